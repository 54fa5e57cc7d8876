"""What the clip-norm sweep costs on each of paper L's data sets in full.

python scripts/costs.py [--measure caltech256 ...] [--steps 10]
Runs, steps and operations follow from the sweep's configuration; --measure times a slice of it (one program a core) on
random features of the data set's size. The GPU column is not a measurement but a lower bound: the larger of
operations / float32 peak and bytes / bandwidth of an A100.
"""

import argparse
import math
import os
import resource
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from dpexp import config as configuration
from dpexp.accounting import account
from dpexp.config import Config
from dpexp.data.idx import EMNIST_SUBSETS
from dpexp.features import Examples, Features
from dpexp.grid import Program, Run, Task
from dpexp.mechanism import Mechanism
from dpexp.sweep import one_thread_each
from dpexp.train import Data, start

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


def random_task(shape: Shape) -> Task:
    """Random features of this size: the time does not depend on what they are."""
    draws = torch.Generator().manual_seed(0)
    x = torch.rand(shape.n, shape.d, generator=draws)
    part = Examples(x=x, y=torch.randint(shape.K, (shape.n,), generator=draws))
    features = Features(
        dataset="random",
        extractor="random",
        train=part,
        test=part.subset(torch.arange(min(1000, shape.n))),
        num_classes=shape.K,
        source="random",
        digest="random",
    )
    return Task(features=features, train=part, validation=None)


def random_runs(shape: Shape, batch: int, count: int) -> list[Run]:
    """Private runs that differ in learning rate only."""
    mechanism = Mechanism(n=shape.n, expected_batch_size=batch, steps=100, clip_norm=1.0, noise_multiplier=1.0)
    first = Run(
        method="dpsgd",
        features="random",
        model="softmax",
        bias=True,
        mechanism=mechanism,
        learning_rate=0.1,
        seed=0,
        noise="independent",
        engine="packed",
        validation_fraction=0.0,
        target_epsilon=None,
        clip_percentile=None,
        account=account(batch / shape.n, 0.0, 100, 1e-5),  # timing needs no account
    )
    return [replace(first, learning_rate=0.1 * (k + 1) / count) for k in range(count)]


def measured_seconds(shape: Shape, config: Config, steps: int) -> float:
    """Seconds of one step of one run, with every core training a program of the configured size."""
    cores, size = os.cpu_count() or 1, config.compute.runs_per_program
    data = Data.of(random_task(shape), True, config.compute.device)
    programs = [
        start(Program(runs=tuple(random_runs(shape, config.train.batch_size, size))), data) for _ in range(cores)
    ]
    with one_thread_each(cores) as pool:

        def train(count: int) -> None:
            list(pool.map(lambda pair: pair[0].epoch(pair[1], range(count)), programs))

        train(2)  # memory is taken on first use
        begin = time.perf_counter()
        train(steps)
        return (time.perf_counter() - begin) / (steps * cores * size)


def row(name: str, config: Config, steps: int | None) -> list[str]:
    """One line of the table; measured where `steps` is given."""
    shape = SHAPES[name]
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
    config = configuration.compose(["+sweep=clipnorm"], CONF)
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
        table.add_row(*row(name, config, arguments.steps if name in arguments.measure else None))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
