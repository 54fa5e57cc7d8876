"""What the finished cells say about the paper's claims, in numbers and in sentences that admit failure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from dpexp.aggregate import mean
from dpexp.comparison import BLOCK, title

PRINTED_DIGITS = 1  # the paper prints clip norms to one decimal


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One claim about one data set, at one budget or (epsilon None) at all of them.

    claim: small_clip_norms, endpoints, monotone, agreement, features or mixed. holds: None where it cannot be said.
    numbers: accuracies and differences in percentage points, clip norms as they are.
    """

    dataset: str
    extractor: str
    model: str
    epsilon: float | None
    claim: str
    holds: bool | None
    numbers: Mapping[str, float]
    sentence: str


def verdicts(table: pd.DataFrame, reference: pd.DataFrame) -> list[Verdict]:
    """Verdicts on each data set, features and head with DP-SGD cells in a table of
    `comparison.against_paper`.

    reference: the paper's rows, for its printed percentiles. A budget that holds several cells at one clip norm
    (mixed settings) gets one verdict, that no claim can be made of a mixture.
    """
    found: list[Verdict] = []
    private = table[(table["method"] == "dpsgd") & table["accuracy_mean"].notna()]
    for (dataset, extractor, model), block in private.groupby(BLOCK):
        names = {"dataset": dataset, "extractor": extractor, "model": model}
        found += _features(names, block, reference)
        for epsilon, cells in block.sort_values("clip_norm").groupby("epsilon"):
            mixed = cells["clip_norm"].duplicated().any()
            for judge in (_mixed,) if mixed else (_small_clip_norms, _endpoints, _monotone, _agreement):
                found += judge(names | {"epsilon": epsilon}, cells)
    return found


def _of(names: dict, claim: str, holds: bool | None, numbers: dict[str, float], sentence: str) -> list[Verdict]:
    """One verdict, its sentence led by what it is about."""
    budget = f", ε = {names['epsilon']:g}" if "epsilon" in names else ""
    head = "" if names["model"] == "softmax" else f", {names['model']}"
    about = f"{title(names['dataset'])} ({names['extractor']}{head}){budget}: "
    names = {"epsilon": None} | names
    return [Verdict(**names, claim=claim, holds=holds, numbers=numbers, sentence=about + sentence)]


def _at(cells: pd.DataFrame, percentile: float, column: str) -> float:
    """A column's value at a percentile; NaN where it did not run."""
    values = cells.loc[cells["percentile"] == percentile, column]
    return float(values.iloc[0]) if len(values) else math.nan


def _points(value: float) -> str:
    """A signed difference in percentage points."""
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


def _paper(value: float) -> str:
    """The paper's counterpart of a difference, in brackets; nothing where it has none."""
    return "" if math.isnan(value) else f" (paper {_points(value)})"


def _mixed(names: dict, cells: pd.DataFrame) -> list[Verdict]:
    """Several settings at one clip norm: nothing is claimed."""
    most = int(cells["clip_norm"].value_counts().max())
    sentence = (
        f"no verdict: up to {most} settings share a clip norm and cannot be compared as one; "
        "give each setting a study of its own (name=...)."
    )
    return _of(names, "mixed", None, {"settings": float(most)}, sentence)


def _small_clip_norms(names: dict, cells: pd.DataFrame) -> list[Verdict]:
    """Clip norms up to G_1 against those above (Figure 1's caption)."""
    smallest = _at(cells, 0, "clip_norm")
    low, high = cells[cells["clip_norm"] <= smallest], cells[cells["clip_norm"] > smallest]
    if low.empty or high.empty:
        return []
    ours = {"low": mean(list(low["accuracy_mean"])), "high": mean(list(high["accuracy_mean"]))}
    ours["gap"] = ours["low"] - ours["high"]
    ours["paper_gap"] = mean(list(low["paper_mean"])) - mean(list(high["paper_mean"]))
    holds = ours["gap"] > 0
    outcome = "better, as the paper says" if holds else "NOT better, against the paper's claim"
    sentence = (
        f"clip norms ≤ G_1 ({len(low)} cells) reach {ours['low']:.2f} % on average, "
        f"those above ({len(high)} cells) {ours['high']:.2f} %: {outcome}, "
        f"{_points(ours['gap'])} points{_paper(ours['paper_gap'])}."
    )
    return _of(names, "small_clip_norms", holds, ours, sentence)


def _endpoints(names: dict, cells: pd.DataFrame) -> list[Verdict]:
    """G_1 against G_n, the smallest against the largest constant."""
    numbers = {name: _at(cells, at, "accuracy_mean") for name, at in (("first", 0), ("last", 100))}
    gap = numbers["first"] - numbers["last"]
    if math.isnan(gap):
        return []
    paper = _at(cells, 0, "paper_mean") - _at(cells, 100, "paper_mean")
    outcome = "G_1 wins" if gap > 0 else "G_1 does NOT win, against the paper's claim"
    sentence = (
        f"G_1 gives {numbers['first']:.2f} %, G_n {numbers['last']:.2f} %: {outcome}, "
        f"{_points(gap)} points{_paper(paper)}."
    )
    return _of(names, "endpoints", gap > 0, numbers | {"gap": gap, "paper_gap": paper}, sentence)


def _rises(cells: pd.DataFrame, column: str) -> list[tuple[float, float, float]]:
    """Neighbouring percentiles between which a column does not fall: from, to, by how much it goes up."""
    rows = cells[cells["percentile"].notna() & cells[column].notna()].sort_values("percentile")
    at, values = list(rows["percentile"]), list(rows[column])
    steps = zip(at, at[1:], values, values[1:], strict=False)
    return [(a, b, later - earlier) for a, b, earlier, later in steps if later >= earlier]


def _named(rises: list[tuple[float, float, float]]) -> str:
    """Rises as text."""
    return ", ".join(f"from {a:g} to {b:g} by {_points(by)}" for a, b, by in rises)


def _monotone(names: dict, cells: pd.DataFrame) -> list[Verdict]:
    """Whether accuracy falls at every step from the lowest to the highest percentile that ran."""
    percentiles = cells["percentile"].dropna()
    if len(percentiles) < 2:
        return []
    ours, paper = _rises(cells, "accuracy_mean"), _rises(cells, "paper_mean")
    between = f"between the percentiles {percentiles.min():g} and {percentiles.max():g}"
    if ours:
        sentence = f"accuracy does NOT fall at every step {between}: it rises {_named(ours)}"
        small = max(by for _, _, by in ours) < cells["accuracy_std"].min()
        sentence += " (less than every cell's standard deviation)" if small else ""
    else:
        sentence = f"accuracy falls at every step {between}"
    if paper:
        sentence += f"; the paper's own rises {_named(paper)}"
    numbers = {"rises": float(len(ours)), "paper_rises": float(len(paper))}
    return _of(names, "monotone", not ours, numbers, sentence + ".")


def _agreement(names: dict, cells: pd.DataFrame) -> list[Verdict]:
    """Root mean square and largest difference from the paper's numbers."""
    both = cells[cells["paper_mean"].notna()]
    if both.empty:
        return []
    differences = list(both["accuracy_mean"] - both["paper_mean"])
    rms = math.sqrt(mean([d * d for d in differences]))
    largest = max(differences, key=abs)
    sentence = (
        f"{len(both)} cells differ from the paper by {rms:.2f} points (root mean square), at most {_points(largest)}."
    )
    return _of(names, "agreement", None, {"rms": rms, "largest": largest, "cells": float(len(both))}, sentence)


def _features(names: dict, block: pd.DataFrame, reference: pd.DataFrame) -> list[Verdict]:
    """The fingerprint: percentiles of our constants against the printed digits."""
    keys = [reference[name] == names[name] for name in BLOCK]
    printed = reference[keys[0] & keys[1] & keys[2] & reference["percentile"].notna()]
    printed = printed.dropna(subset=["clip_norm"]).drop_duplicates("percentile").set_index("percentile")["clip_norm"]
    ours = block[block["table"].notna() & block["percentile"].notna()]
    ours = ours.drop_duplicates("percentile").set_index("percentile")["clip_norm"]
    shared = sorted(set(printed.index) & set(ours.index))
    if not shared:
        return []
    off = [p for p in shared if round(ours[p], PRINTED_DIGITS) != round(printed[p], PRINTED_DIGITS)]
    pairs = ", ".join(f"{p:g} %: {ours[p]:.2f} ({printed[p]:.1f})" for p in (off or shared))
    if off:
        sentence = f"DIFFERENT features from the paper's: percentiles of the constants, ours (printed): {pairs}."
    else:
        sentence = f"same features as the paper: percentiles of the constants, ours (printed): {pairs}."
    return _of(names, "features", not off, {f"{p:g}": float(ours[p]) for p in shared}, sentence)
