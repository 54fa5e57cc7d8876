"""Time of one training step of one run: packed programs, their matrix products alone, and Opacus, on the same work.

The work is Fashion-MNIST's softmax regression: n = 60,000, expected batch 500, 785 x 10 weights, Poisson sampling and
batch assembly included. Everything is measured in one process, in turn, and repeated; the median counts.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from rich.console import Console
from rich.table import Table

from dpexp.accounting import account
from dpexp.features import Examples, Features
from dpexp.grid import Program, Run, Task
from dpexp.mechanism import Mechanism
from dpexp.opacus_engine import make_private
from dpexp.sweep import one_thread_each
from dpexp.train import Data, start

N, DIMENSION, CLASSES, BATCH = 60_000, 784, 10, 500
EPOCH = N // BATCH  # steps: what is done once an epoch is part of the price
PACKS = (1, 16, 112, 336, 1008)
OPACUS_MODES = ("hooks", "ew", "ghost")


def make_task(n: int = N, dimension: int = DIMENSION, classes: int = CLASSES) -> Task:
    """Random features, by default in Fashion-MNIST's shape: the time does not depend on what they show."""
    draws = torch.Generator().manual_seed(0)
    x, y = torch.rand(n, dimension, generator=draws), torch.randint(classes, (n,), generator=draws)
    part = Examples(x=x, y=y)
    features = Features(
        dataset="random",
        extractor="raw",
        train=part,
        test=part.subset(torch.arange(100)),
        num_classes=classes,
        source="benchmark",
        digest="random",
    )
    return Task(features=features, train=part, validation=None)


def make_runs(count: int, noise: str, n: int = N) -> list[Run]:
    """Private runs that differ in learning rate only."""
    mechanism = Mechanism(n=n, expected_batch_size=BATCH, steps=EPOCH, clip_norm=1.0, noise_multiplier=1.0)
    first = Run(
        method="dpsgd",
        features="random",
        model="softmax",
        bias=True,
        mechanism=mechanism,
        learning_rate=0.1,
        seed=0,
        noise=noise,
        engine="packed",
        validation_fraction=0.0,
        target_epsilon=None,
        clip_percentile=None,
        account=account(BATCH / n, 0.0, EPOCH, 1e-5),  # timing needs no account
    )
    return [replace(first, learning_rate=0.1 * (k + 1) / count) for k in range(count)]


def packed_seconds(data: Data, runs: list[Run], steps: int, cores: int) -> float:
    """Seconds a step of these runs, spread over the cores as a sweep spreads them."""
    count = len(runs)
    share = math.ceil(count / cores)
    programs = [start(Program(runs=tuple(runs[i : i + share])), data) for i in range(0, count, share)]
    with one_thread_each(cores) as pool:

        def epoch(steps: int) -> None:
            list(pool.map(lambda pair: pair[0].epoch(pair[1], range(steps)), programs))

        epoch(5)  # memory is taken on first use
        started = time.perf_counter()
        epoch(steps)
        return (time.perf_counter() - started) / steps


def products_seconds(count: int, steps: int, cores: int) -> float:
    """Seconds for the two matrix products of a step of `count` runs, the faster of two ways to use the cores."""
    x = torch.rand(BATCH, DIMENSION + 1)

    def pair(runs: int) -> Callable[[], None]:
        w, gradient = torch.rand(runs * CLASSES, DIMENSION + 1), torch.empty(runs * CLASSES, DIMENSION + 1)
        logits = torch.empty(runs * CLASSES, BATCH)

        def products() -> None:
            torch.mm(w, x.T, out=logits)
            torch.mm(logits, x, out=gradient)

        return products

    def timed(run: Callable[[], object]) -> float:
        run()
        started = time.perf_counter()
        for _ in range(steps):
            run()
        return (time.perf_counter() - started) / steps

    together = timed(pair(count))
    shares = [pair(math.ceil(count / cores)) for _ in range(min(cores, count))]
    with one_thread_each(cores) as pool:
        apart = timed(lambda: list(pool.map(lambda products: products(), shares)))
    return min(together, apart)


def opacus_seconds(data: Data, run: Run, mode: str, steps: int) -> float:
    """Seconds a step of one run with Opacus and its own data loader."""
    private = make_private(run, data, mode)
    batches = iter(private.loader)
    for _ in range(3):
        private.step(*next(batches))
    started = time.perf_counter()
    for _ in range(steps):
        private.step(*next(batches))
    return (time.perf_counter() - started) / steps


def measure(repeats: int) -> dict[tuple[str, str | int], float]:
    """Median milliseconds of every contestant for one step of one run."""
    data, cores = Data.of(make_task(), True, "cpu"), torch.get_num_threads()
    (single,) = make_runs(1, "independent")
    seen: dict[tuple[str, str | int], list[float]] = {}
    for _ in range(repeats):
        for mode in OPACUS_MODES:
            seen.setdefault(("opacus", mode), []).append(opacus_seconds(data, single, mode, steps=40))
        for count in PACKS:
            products = products_seconds(count, max(10, min(100, 20_000 // count)), cores) / count
            seen.setdefault(("products", count), []).append(products)
            for noise in ("independent", "shared"):
                seconds = packed_seconds(data, make_runs(count, noise), EPOCH, cores) / count
                seen.setdefault((noise, count), []).append(seconds)
    return {key: 1e3 * statistics.median(values) for key, values in seen.items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="rounds over all contestants (default: 3)")
    ms, console = measure(parser.parse_args().repeats), Console()
    table = Table(title="Milliseconds for one training step of one run")
    for column in ("runs packed", "independent noise", "shared noise", "products alone", "products / shared"):
        table.add_column(column, justify="right")
    for count in PACKS:
        row = [ms[kind, count] for kind in ("independent", "shared", "products")]
        table.add_row(f"{count:,}", *(f"{value:.4f}" for value in row), f"{row[2] / row[1]:.2f}")
    console.print(table)
    best = ms["independent", 336]
    for mode in OPACUS_MODES:
        console.print(
            f"Opacus {mode}: {ms['opacus', mode]:.2f} ms, {ms['opacus', mode] / best:.0f} x packed at 336 runs"
        )
    print(
        f"bench hooks_ratio={ms['opacus', 'hooks'] / best:.1f} ghost_ratio={ms['opacus', 'ghost'] / best:.1f} "
        f"gemm_fraction={ms['products', 336] / ms['shared', 336]:.3f}"
    )


if __name__ == "__main__":
    main()
