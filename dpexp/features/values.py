"""Checked float vectors that a head is trained on."""

import hashlib
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpexp.config import ConfigError
from dpexp.data import DataError
from dpexp.sampling import generator

ROWS = 4096  # looked at together


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Feature vectors x [n, d] (float32) with labels y [n] (int64)."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def subset(self, rows: Tensor) -> "Examples":
        """The examples at these rows."""
        return Examples(x=self.x[rows], y=self.y[rows])


@dataclass(frozen=True, kw_only=True)
class Features:
    """What training and reporting know about a data set.

    digest: identifies the content of all arrays. fingerprint: the comparison with the paper's percentiles, to print.
    """

    dataset: str
    extractor: str
    train: Examples
    test: Examples
    num_classes: int
    source: str
    digest: str
    fingerprint: str = ""


def finite_rows(x: np.ndarray) -> np.ndarray:
    """Which rows of x [n, d] hold neither NaN nor infinity: bool [n]. Memory: that of a few thousand rows."""
    blocks = [np.isfinite(x[start : start + ROWS]).all(axis=1) for start in range(0, len(x), ROWS)]
    return np.concatenate(blocks) if blocks else np.empty(0, dtype=bool)


def check(x: np.ndarray, y: np.ndarray, num_classes: int, part: str) -> Examples:
    """Features and labels as tensors, or a DataError that says what is wrong with them.

    x: [n, d] of any real dtype; computed on in float32. y: [n] whole numbers in 0..num_classes-1.
    """
    if x.ndim != 2 or len(x) == 0:
        raise DataError(f"{part} features must be a table of n >= 1 rows and d columns, got shape {x.shape}")
    if y.shape != (len(x),):
        raise DataError(f"{part} needs one label a row: {len(x)} feature rows, labels of shape {y.shape}")
    if not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= num_classes:
        bad = y.min() if y.min() < 0 else y.max()
        raise DataError(f"{part} labels must be integers 0..{num_classes - 1}, found {bad} ({y.dtype})")
    x = np.ascontiguousarray(x, dtype=np.float32)
    broken = ~finite_rows(x)
    if broken.any():
        raise DataError(f"{part} has {broken.sum()} rows with NaN or infinity, the first is row {broken.argmax()}")
    return Examples(x=torch.from_numpy(x), y=torch.from_numpy(y.astype(np.int64)))


def count_duplicates(x: Tensor) -> int:
    """How many rows of x [n, d] (float32) repeat an earlier one, bit for bit.

    Equal rows have equal sums of their bits as whole numbers, which wrap but never round; only rows that share a sum
    with another are compared in full.
    """
    sums = torch.cat([block.sum(1) for block in x.view(torch.int32).split(ROWS)])  # torch widens a block to sum it
    _, group, sizes = sums.unique(return_inverse=True, return_counts=True)
    shared = x[sizes[group] > 1].numpy()
    return len(shared) - len({hashlib.blake2b(row, digest_size=16).digest() for row in shared})


def warn_about_duplicates(examples: Examples, dataset: str) -> None:
    """The unit of privacy is one row: a person with two rows is covered only once."""
    duplicates = count_duplicates(examples.x)
    if duplicates:
        warnings.warn(
            f"{dataset}: {duplicates} duplicate rows in the training features; "
            "the privacy statement protects one row, not a person who owns several",
            stacklevel=2,
        )


def hold_out(examples: Examples, fraction: float) -> tuple[Examples, Examples]:
    """Split off a random fraction for validation: (rest, held out).

    The split is the same for every seed, so that runs of all seeds protect and train on the same examples.
    Raises: ConfigError if either part would be empty.
    """
    held = round(fraction * len(examples))
    if not 0 < held < len(examples):
        raise ConfigError(
            f"train.validation_fraction={fraction:g} of {len(examples)} training examples leaves an empty part; "
            "choose another fraction or select_on=test"
        )
    order = torch.from_numpy(generator(0, "validation", len(examples)).permutation(len(examples)))
    return examples.subset(order[held:].sort().values), examples.subset(order[:held].sort().values)
