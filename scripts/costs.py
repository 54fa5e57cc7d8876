"""What the clip-norm sweep costs on each of paper L's data sets in full.

python scripts/costs.py [--measure caltech256 ...] [--steps 10]
Runs, steps and operations follow from the sweep's configuration; --measure times a slice of it (one program a core) on
random features of the data set's size. The GPU column is not a measurement but a lower bound: the larger of
operations / float32 peak and bytes / bandwidth of an A100.
"""

import argparse
import math
import resource
from dataclasses import dataclass
from pathlib import Path

import torch
from bench import make_runs, make_task, packed_seconds
from rich.console import Console
from rich.table import Table

from dpexp import config as configuration
from dpexp.config import Config
from dpexp.data.idx import EMNIST_SUBSETS
from dpexp.train import Data

CONF = Path(__file__).resolve().parent.parent / "conf"
A100_FLOPS, A100_BYTES = 19.5e12, 1.5e12  # a second: float32 without tensor cores; memory
TRAFFIC = 6  # how often a step reads or writes numbers of the weights' size: weights, gradient, noise, twice each


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A data set as a head sees it: n training rows, d features, K classes."""

    n: int
    d: int
    K: int


SHAPES = {
    "caltech256": Shape(n=round(0.8 * 30_607), d=512, K=257),
    "food101": Shape(n=75_750, d=512, K=101),
    "cifar100": Shape(n=50_000, d=512, K=100),
    "cifar10": Shape(n=50_000, d=512, K=10),
    "tweeteval_emoji": Shape(n=45_000, d=768, K=20),
    "emotion": Shape(n=16_000, d=768, K=6),
    "emnist": Shape(n=EMNIST_SUBSETS["balanced"][0], d=784, K=EMNIST_SUBSETS["balanced"][2]),
    "fashion_mnist": Shape(n=60_000, d=784, K=10),
    "imdb": Shape(n=25_000, d=768, K=2),
    "mnist": Shape(n=60_000, d=784, K=10),
}


def sweep_size(config: Config, n: int) -> tuple[int, int]:
    """Private runs of the sweep, and the steps of all of them together."""
    per_target = (
        (len(config.dp.clip_norm) + len(config.dp.clip_percentile))
        * len(config.train.learning_rate)
        * len(config.seeds)
    )
    epochs = [config.train.epochs_for(target) or 0 for target in config.dp.target_epsilon]
    steps = [math.ceil(count * n / config.train.batch_size) for count in epochs]
    return per_target * len(steps), per_target * sum(steps)


def step_flops(shape: Shape, batch: int) -> int:
    """Operations of one step of one run: two products of a [batch, d + 1] and a [d + 1, K] matrix."""
    return 2 * 2 * batch * (shape.d + 1) * shape.K


def step_bytes(shape: Shape) -> int:
    """Memory traffic of one step of one run; the batch is shared by a program's runs."""
    return TRAFFIC * 4 * (shape.d + 1) * shape.K


def measured_seconds(shape: Shape, config: Config, steps: int) -> float:
    """Seconds of one step of one run, with every core training a program of the configured size."""
    cores = torch.get_num_threads()
    count = cores * config.compute.runs_per_program
    data = Data.of(make_task(shape.n, shape.d, shape.K), True, "cpu")
    return packed_seconds(data, make_runs(count, "independent", shape.n), steps, cores) / count


def row(name: str, steps: int | None) -> list[str]:
    """One line of the table; measured where `steps` is given."""
    shape, config = SHAPES[name], configuration.compose(["+sweep=clipnorm", f"dataset={name}"], CONF)
    runs, total = sweep_size(config, shape.n)
    flops = total * step_flops(shape, config.train.batch_size)
    gpu = max(flops / A100_FLOPS, total * step_bytes(shape) / A100_BYTES)
    cells = [name, f"{shape.n:,} x {shape.d + 1} x {shape.K}", f"{runs:,}", f"{total:,}", f"{flops / 1e12:,.0f}"]
    cells += [f"{4 * shape.n * shape.d / 2**20:,.0f}", f"{gpu / 60:.1f}"]
    if steps is None:
        return [*cells, "", "", ""]
    seconds = measured_seconds(shape, config, steps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return [*cells, f"{1e3 * seconds:.3f}", f"{seconds * total / 3600:.1f}", f"{peak:,.0f}"]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", default=[], choices=list(SHAPES), help="data sets to time here")
    parser.add_argument("--steps", type=int, default=10, help="steps to time (default: 10)")
    arguments = parser.parse_args()
    table = Table(title="The clip-norm sweep in full")
    for column in (
        "data set",
        "n x (d+1) x K",
        "runs",
        "steps, all runs",
        "TFLOP",
        "features MiB",
        "GPU min, at least",
    ):
        table.add_column(column, justify="left" if column == "data set" else "right")
    for column in ("ms / step and run here", "hours here", "peak MiB here"):
        table.add_column(column, justify="right")
    for name in SHAPES:
        table.add_row(*row(name, arguments.steps if name in arguments.measure else None))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
