"""Labels as people store them -> 0..K-1, and seeded splits."""

import math
from typing import Any

import numpy as np

from dpexp.data.splits import DataError


def checked_labels(values: Any, num_classes: int, place: str) -> np.ndarray:
    """Labels that must be 0..num_classes-1, as int64 [n].

    The data set's definition gives the number of classes, not what happens to occur. Raises: DataError.
    """
    labels = np.asarray(values)
    integers = labels.dtype.kind in "iu"
    bad = ~((labels >= 0) & (labels < num_classes)) if integers else np.ones(len(labels), dtype=bool)
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"{place}: labels must be integers 0..{num_classes - 1}; found {labels[row]!s} in row {row} "
            f"({bad.sum():,} such rows); is this the unlabelled part?"
        )
    return labels.astype(np.int64)


def flat_labels(values: Any, place: str) -> np.ndarray:
    """Labels of any kind as integers or strings [n]: columns of one, whole floats and booleans are accepted.

    Raises: DataError for missing, negative or fractional labels.
    """
    labels = np.asarray(values)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1:
        raise DataError(f"{place}: labels must be one value a row, got shape {labels.shape}")
    if labels.dtype.kind == "O":
        missing = np.array([value is None or (isinstance(value, float) and math.isnan(value)) for value in labels])
        if missing.any():
            raise DataError(f"{place}: {missing.sum()} labels are missing, the first in row {missing.argmax()}")
        labels = np.array([str(value) for value in labels])
    if labels.dtype.kind in "fb":
        if not np.isfinite(labels).all() or (labels != np.floor(labels)).any():
            raise DataError(
                f"{place}: labels must be whole numbers or names, found {labels[labels != labels.round()][0]}"
            )
        labels = labels.astype(np.int64)
    if labels.dtype.kind in "iu" and len(labels) and labels.min() < 0:
        low = labels.min()
        raise DataError(
            f"{place}: labels must be integers 0..K-1 or names; found {low} ({(labels < 0).sum():,} rows); "
            "leave unlabelled rows out"
        )
    if labels.dtype.kind not in "iuUS":
        raise DataError(f"{place}: labels must be whole numbers or names, got {labels.dtype}")
    return labels


def mapped_labels(parts: list[np.ndarray], num_classes: int | None, place: str) -> tuple[list[np.ndarray], list[str]]:
    """The parts' labels as 0..K-1 in sorted order of what they were, and that order: the map.

    num_classes: K, when some class may be absent; labels must then be 0..K-1 or have exactly K values.
    Raises: DataError.
    """
    if len({labels.dtype.kind in "iu" for labels in parts}) > 1:
        raise DataError(f"{place}: labels are numbers in one part and names in the other")
    values = np.unique(np.concatenate(parts))
    numbers = values.dtype.kind in "iu"
    if num_classes is not None and numbers and len(values) and values[-1] < num_classes:
        return [labels.astype(np.int64) for labels in parts], [str(k) for k in range(num_classes)]
    if num_classes is not None and len(values) != num_classes:
        raise DataError(
            f"{place}: dataset.num_classes={num_classes}, but the labels have {len(values)} values "
            f"({values[0]} ... {values[-1]}); number them 0..{num_classes - 1} or leave dataset.num_classes null"
        )
    return [np.searchsorted(values, labels).astype(np.int64) for labels in parts], [str(value) for value in values]


def seeded_split(labels: np.ndarray, test_fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and for testing, sorted: the same fraction of every class, drawn by a seed.

    A class keeps at least one training row. labels: int64 [n].
    """
    test: list[np.ndarray] = []
    for k in np.unique(labels):
        rows = np.flatnonzero(labels == k)
        count = min(round(test_fraction * len(rows)), len(rows) - 1)
        order = np.random.default_rng([seed, int(k)]).permutation(len(rows))
        test.append(rows[order[:count]])
    held = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(len(labels)), held), held
