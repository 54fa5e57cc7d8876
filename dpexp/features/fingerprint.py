"""Are these the paper's features? Percentiles of the Lipschitz constants beside the printed ones."""

import csv
from functools import cache

import numpy as np
import torch

from dpexp import lipschitz
from dpexp.reference import PAPER_EXTRACTORS, clipnorm_tables

PAPER_S = ("scatter", "tokens")  # extractors that paper L has nothing to say about
TOLERANCE = 0.1  # printed with one decimal (0.05), plus the rounding of other library versions


def constants(x: np.ndarray) -> np.ndarray:
    """sqrt(2) * norm of each row of x [n, d], without the constant 1: float64 [n], as the paper's printed values."""
    return lipschitz.constants(torch.from_numpy(np.ascontiguousarray(x)), include_bias=False).numpy()


@cache
def printed(dataset: str) -> dict[float, float]:
    """The paper's percentiles of a data set: {percentile: clip norm}; empty where it prints none."""
    found = {}
    with clipnorm_tables().open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["dataset"] == dataset and row["percentile"] and row["clip_norm"]:
                found[float(row["percentile"])] = float(row["clip_norm"])
    return dict(sorted(found.items()))


def text(dataset: str, extractor: str, values: np.ndarray) -> str:
    """The table of percentiles, ours beside paper L's, and the verdict. Empty where that paper prints none.

    values: [n], the constants of the training features.
    """
    paper = printed(dataset)
    if not paper or extractor in PAPER_S:
        return ""
    ours = {percentile: float(np.percentile(values, percentile)) for percentile in paper}
    rows = [
        "percentile " + "".join(f"{p:>8g}" for p in paper),
        "paper      " + "".join(f"{v:>8.1f}" for v in paper.values()),
        "ours       " + "".join(f"{v:>8.2f}" for v in ours.values()),
    ]
    return "\n".join([*rows, _verdict(dataset, extractor, all(abs(ours[p] - paper[p]) <= TOLERANCE for p in paper))])


def _verdict(dataset: str, extractor: str, same: bool) -> str:
    """What the comparison means."""
    if same:
        return f"{dataset}: same features as the paper"
    wanted = PAPER_EXTRACTORS[dataset]
    if extractor != wanted:
        return f"{dataset}: different: the paper used {wanted}, this is {extractor}; do not compare accuracies"
    return f"{dataset}: different: check image size / pooling / weights"
