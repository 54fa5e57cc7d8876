"""Time of one training step of one two-layer tanh network: packed programs, their matrix products, Opacus `hooks`.

The work is Fashion-MNIST's: n = 60,000, expected batch 500, 785 inputs, 256 hidden units, 10 classes, Poisson sampling
and batch assembly included. All contestants run in one process, in turn, and are repeated; the median counts.
"""

import argparse
import statistics
import time
from dataclasses import replace

import torch
from bench import BATCH, CLASSES, DIMENSION, make_runs, make_task, opacus_seconds, packed_seconds

from dpexp.grid import Run
from dpexp.sweep import one_thread_each
from dpexp.train import Data

HIDDEN = 256
PACK = 48  # 24 runs a core on two cores, as in the nonconvex_fashion sweep


def mlp_runs(count: int, noise: str) -> list[Run]:
    """Private runs that differ in learning rate only."""
    return [replace(run, model="mlp_tanh", hidden=HIDDEN) for run in make_runs(count, noise)]


def flops() -> int:
    """Floating-point operations of the products of one run-step: two of the first layer, three of the second."""
    return 2 * BATCH * HIDDEN * (2 * (DIMENSION + 1) + 3 * CLASSES)


def products_seconds(count: int, steps: int, cores: int) -> float:
    """Seconds for these products alone, for `count` runs spread over the cores."""
    x, share = torch.rand(BATCH, DIMENSION + 1), count // cores

    def products(parts: tuple[torch.Tensor, ...]) -> None:
        first, second, h, logits, gradient_1, gradient_2 = parts
        for _ in range(steps):
            torch.mm(first, x.T, out=h.view(share * HIDDEN, BATCH))
            torch.bmm(second, h, out=logits)
            torch.bmm(logits, h.mT, out=gradient_2)
            torch.bmm(second.mT, logits, out=h)
            torch.mm(h.view(share * HIDDEN, BATCH), x, out=gradient_1)

    def buffers() -> tuple[torch.Tensor, ...]:
        wide, narrow = (share * HIDDEN, DIMENSION + 1), (share, CLASSES, HIDDEN)
        shapes = (wide, narrow, (share, HIDDEN, BATCH), (share, CLASSES, BATCH), wide, narrow)
        return tuple(1e-3 * torch.rand(shape) for shape in shapes)

    parts = [buffers() for _ in range(cores)]
    with one_thread_each(cores) as pool:
        started = time.perf_counter()
        list(pool.map(products, parts))
        return (time.perf_counter() - started) / steps


def measure(repeats: int) -> dict[str, float]:
    """Median milliseconds of every contestant for one step of one run."""
    data, cores = Data.of(make_task(), True, "cpu"), torch.get_num_threads()
    (single,) = mlp_runs(1, "independent")
    seen: dict[str, list[float]] = {}
    for _ in range(repeats):
        seen.setdefault("hooks", []).append(opacus_seconds(data, single, "hooks", steps=10))
        seen.setdefault("products", []).append(products_seconds(PACK, 5, cores) / PACK)
        for noise in ("independent", "shared"):
            seconds = packed_seconds(data, mlp_runs(PACK, noise), 5, cores) / PACK
            seen.setdefault(noise, []).append(seconds)
    return {name: 1e3 * statistics.median(values) for name, values in seen.items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="rounds over all contestants (default: 3)")
    ms = measure(parser.parse_args().repeats)
    print(f"{flops() / 1e6:.0f} MFLOP of matrix products a run-step, {torch.get_num_threads()} threads, {PACK} runs")
    for name, value in ms.items():
        print(f"{name:>12}: {value:8.3f} ms a run-step, {flops() / value / 1e6:7.1f} GFLOP/s")
    print(
        f"bench_mlp hooks_ratio={ms['hooks'] / ms['independent']:.1f} "
        f"shared_hooks_ratio={ms['hooks'] / ms['shared']:.1f} "
        f"gemm_fraction={ms['products'] / ms['independent']:.3f} "
        f"shared_gemm_fraction={ms['products'] / ms['shared']:.3f}"
    )


if __name__ == "__main__":
    main()
