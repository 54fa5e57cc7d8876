"""Running an encoder over a data set: shards that survive an interruption, loading that overlaps computing."""

import io
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from dpexp.cache import require_free, write_atomic
from dpexp.data import DataError, Split
from dpexp.features.encoders import Batch, Encoder

SHARD_ROWS = 1024
PREFETCH = 4  # batches prepared ahead of the network

# part, rows done, rows in all
Progress = Callable[[str, int, int], None]


def silent(part: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Features x [rows, d] of consecutive rows; how many of their texts were cut."""

    x: np.ndarray
    truncated: int


def _prepared(encoder: Encoder, split: Split, batches: list[np.ndarray]) -> Iterator[Batch]:
    """The batches in order, the next ones being prepared in a thread while the network runs on this one."""
    pin = encoder.device.startswith("cuda")

    def prepare(rows: np.ndarray) -> Batch:
        batch = encoder.prepare(split.take(rows))
        if pin:
            batch = Batch(inputs={k: v.pin_memory() for k, v in batch.inputs.items()}, truncated=batch.truncated)
        return batch

    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting: list[Future[Batch]] = []
        for rows in batches:
            waiting.append(pool.submit(prepare, rows))
            if len(waiting) > PREFETCH:
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()


def encode(encoder: Encoder, split: Split, batch_size: int) -> Shard:
    """Features of all rows of a split, in its order, held in memory.

    Texts are batched by length, because a batch costs what its longest text costs; the order of the rows stays.
    """
    order = np.arange(len(split))
    if encoder.length is not None:
        order = np.argsort([encoder.length(sample) for sample in split.samples], kind="stable")
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    x: np.ndarray | None = None
    truncated = 0
    with torch.inference_mode():
        for rows, batch in zip(batches, _prepared(encoder, split, batches), strict=True):
            inputs = {key: value.to(encoder.device, non_blocking=True) for key, value in batch.inputs.items()}
            vectors = encoder.forward(inputs)
            if vectors.ndim != 2:
                shape = tuple(vectors.shape)
                raise DataError(f"the extractor must give one vector a sample, got a tensor of shape {shape}")
            block = vectors.float().cpu().numpy()
            x = np.empty((len(split), block.shape[1]), dtype=np.float32) if x is None else x
            x[rows] = block
            truncated += batch.truncated
    if x is None:
        raise DataError("cannot extract features of an empty split")
    return Shard(x=x, truncated=truncated)


def _shard_path(folder: Path, part: str, start: int) -> Path:
    return folder / f"{part}-{start:09d}.npz"


def read_shard(path: Path) -> Shard | None:
    """A complete shard, or None."""
    try:
        with np.load(path) as file:
            return Shard(x=file["x"], truncated=int(file["truncated"]))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None


def _write_shard(path: Path, shard: Shard) -> None:
    content = io.BytesIO()
    np.savez(content, x=shard.x, truncated=shard.truncated)
    write_atomic(path, content.getvalue())


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """An encoder at work: `folder` takes the shards."""

    encoder: Encoder
    folder: Path
    batch_size: int
    progress: Progress = silent


def extract_part(work: Extraction, part: str, split: Split) -> int:
    """Write one split's features as shards, skipping the ones that are there. Memory: one shard.

    Returns the number of texts that were cut. Raises: DataError, DiskFullError.
    """
    truncated = 0
    for start in range(0, len(split), SHARD_ROWS):
        rows = np.arange(start, min(start + SHARD_ROWS, len(split)))
        path = _shard_path(work.folder, part, start)
        shard = read_shard(path)
        if shard is None or len(shard.x) != len(rows):
            shard = encode(work.encoder, split.take(rows), work.batch_size)
            if start == 0:
                work.folder.mkdir(parents=True, exist_ok=True)
                # The shards, and then the file that is made of them.
                require_free(work.folder, 2 * len(split) * shard.x.shape[1] * shard.x.itemsize)
            _write_shard(path, shard)
        truncated += shard.truncated
        work.progress(part, int(rows[-1]) + 1, len(split))
    return truncated


def shards(folder: Path, part: str, n: int) -> Iterator[np.ndarray]:
    """The feature rows of a split, shard by shard."""
    for start in range(0, n, SHARD_ROWS):
        shard = read_shard(_shard_path(folder, part, start))
        assert shard is not None, "shards are complete before they are read"
        yield shard.x
