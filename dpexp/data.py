"""Data set name -> Splits: labels and raw samples in the source's own order."""

import gzip
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpexp.config import ConfigError, one_of

SYSTEM_DATASETS = Path("/usr/share/datasets")  # where Debian's dataset-* packages install


class DataError(ValueError):
    """A data file that is missing, damaged or not what it should be. The message names the file."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Samples and labels in the same order.

    samples: uint8 [n, height, width] images.
    labels: int64 [n] in 0..num_classes-1.
    """

    samples: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Splits:
    """A loaded data set. `source` says where its files were found."""

    name: str
    train: Split
    test: Split
    num_classes: int
    source: str


def _read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """One IDX file of unsigned bytes (gzipped or not), checked against the shape it must have."""
    expected = bytes([0, 0, 8, len(shape)]) + np.array(shape, dtype=">u4").tobytes()
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read as an IDX file ({error}); delete it and fetch it again") from error
    if content[: len(expected)] != expected or len(content) != len(expected) + math.prod(shape):
        start = content[:16].hex(" ")
        raise DataError(
            f"{path}: expected an IDX file of {shape} unsigned bytes ({len(expected) + math.prod(shape)} bytes), "
            f"got {len(content)} bytes that start with {start}; delete it and fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=len(expected)).reshape(shape)


def _find_idx(folder: Path, stem: str) -> Path | None:
    """An IDX file under its plain or gzipped name."""
    return next((p for p in (folder / stem, folder / f"{stem}.gz") if p.is_file()), None)


def _idx_split(folder: Path, prefix: str, n: int, num_classes: int) -> Split:
    """Images and labels of one part of an MNIST-like data set."""
    images, labels = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
    paths = {stem: _find_idx(folder, stem) for stem in (images, labels)}
    for stem, path in paths.items():
        if path is None:
            raise DataError(f"{folder}: {stem} (or {stem}.gz) is missing; fetch the data set again")
    assert paths[images] is not None
    assert paths[labels] is not None
    y = _read_idx(paths[labels], (n,)).astype(np.int64)  # type: ignore[arg-type]
    if y.max() >= num_classes:
        raise DataError(f"{paths[labels]}: labels must be 0..{num_classes - 1}, found {y.max()}")
    return Split(samples=_read_idx(paths[images], (n, 28, 28)), labels=y)  # type: ignore[arg-type]


def _download_fashion_mnist(data_root: Path) -> None:
    """Fetch Fashion-MNIST from its official source by torchvision."""
    from torchvision.datasets import FashionMNIST

    FashionMNIST(str(data_root), download=True)


def fashion_mnist_folder(data_root: Path) -> Path | None:
    """The folder that holds Fashion-MNIST: below `data_root`, else Debian's package; None if neither has it."""
    folders = (data_root / "FashionMNIST" / "raw", SYSTEM_DATASETS / "fashion-mnist")
    return next((f for f in folders if _find_idx(f, "train-images-idx3-ubyte")), None)


def _load_fashion_mnist(data_root: Path) -> Splits:
    """Fashion-MNIST: 60,000 / 10,000 images of 28 x 28 in 10 classes."""
    folder = fashion_mnist_folder(data_root)
    if folder is None:
        try:
            _download_fashion_mnist(data_root)
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"Fashion-MNIST is neither in {data_root / 'FashionMNIST' / 'raw'} nor in {SYSTEM_DATASETS}, and "
                f"downloading failed ({error}); run `python scripts/get_data.py fashion_mnist` or set data_root"
            ) from error
        folder = fashion_mnist_folder(data_root)
        assert folder is not None
    train, test = _idx_split(folder, "train", 60_000, 10), _idx_split(folder, "t10k", 10_000, 10)
    return Splits(name="fashion_mnist", train=train, test=test, num_classes=10, source=str(folder))


DATASETS: dict[str, Callable[[Path], Splits]] = {"fashion_mnist": _load_fashion_mnist}


def load(name: str, data_root: Path) -> Splits:
    """Load a data set by name.

    Raises: ConfigError for an unknown name, DataError for a missing or damaged file.
    """
    one_of("dataset.name", name, tuple(DATASETS))
    if data_root.exists() and not data_root.is_dir():
        raise ConfigError(f"data_root must be a folder, got the file {data_root}")
    return DATASETS[name](data_root)
