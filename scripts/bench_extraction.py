"""Extraction against the bare forward pass: images or texts a second of both, on this machine.

python scripts/bench_extraction.py dataset=mnist extractor=efficientnet_lite0 extractor.weights=FILE [--rows 2048]
python scripts/bench_extraction.py dataset=mnist extractor=scatter
The bare pass runs the same batches of the same rows, decoded, resized or tokenised beforehand.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from dpexp import config as configuration
from dpexp import data
from dpexp.config import Config
from dpexp.data import Split
from dpexp.features import extractors
from dpexp.features.encoders import Encoder, matmul_precision
from dpexp.features.extraction import encode

CONF = Path(__file__).resolve().parent.parent / "conf"


def bare_seconds(encoder: Encoder, split: Split, batch_size: int) -> float:
    """Seconds of the network alone on prepared batches, in the order in which `encode` makes them."""
    order = np.arange(len(split))
    if encoder.length is not None:
        order = np.argsort([encoder.length(sample) for sample in split.samples], kind="stable")
    starts = range(0, len(split), batch_size)
    batches = [encoder.prepare(split.take(order[start : start + batch_size])).inputs for start in starts]
    with torch.inference_mode():
        begin = time.perf_counter()
        for inputs in batches:
            encoder.forward({key: value.to(encoder.device) for key, value in inputs.items()}).float().cpu()
        return time.perf_counter() - begin


def whole_seconds(encoder: Encoder, split: Split, batch_size: int) -> float:
    """Seconds of loading, preparing and extracting."""
    begin = time.perf_counter()
    encode(encoder, split, batch_size)
    return time.perf_counter() - begin


def measure(config: Config, rows: int, repeats: int) -> tuple[float, float]:
    """Rows a second, bare and whole: the best of several alternating repeats."""
    splits = data.load(config.dataset, Path(config.data_root))
    split = splits.train.take(np.arange(min(rows, len(splits.train))))
    extractors.check(config.extractor)
    encoder = extractors.encoder(config.extractor, config.compute.device, splits.train.samples)
    size = config.extractor.batch_size
    with matmul_precision(config.extractor.tf32):
        encode(encoder, split.take(np.arange(min(2 * size, len(split)))), size)
        times = [(bare_seconds(encoder, split, size), whole_seconds(encoder, split, size)) for _ in range(repeats)]
    return len(split) / min(bare for bare, _ in times), len(split) / min(whole for _, whole in times)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="settings as for dpexp.run")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_intermixed_args()
    config = configuration.compose(arguments.overrides, CONF)
    bare, whole = measure(config, arguments.rows, arguments.repeats)
    name = f"{config.dataset.name}, {extractors.label(config.extractor)}, {torch.get_num_threads()} threads"
    print(f"{name}: bare forward {bare:,.0f} rows/s, extraction {whole:,.0f} rows/s, ratio {whole / bare:.2f}")


if __name__ == "__main__":
    main()
