"""Accuracy against clip norm on one pair of axes, as in paper L's Figures 1 to 3."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator

from dpexp import choices
from dpexp.comparison import title
from dpexp.panels import budget
from dpexp.style import CURVES

BASELINES: dict[str, tuple[Any, str]] = {
    "accuracy_mean": ((0, (6, 2)), "non-private"),
    "paper_mean": ((0, (1, 2)), "non-private, paper"),
}
# The paper's markers stand to the right of ours: by a factor on a logarithmic axis, by a part of a place by rank.
PAPER_FACTOR = 1.05
PAPER_PLACES = 0.16
CROWDED = 0.03  # neighbours closer than this part of a logarithmic axis cannot be told apart
# Points below a logarithmic axis for the labels of its places and their leaders, without and with percentiles.
LABEL_ROOM = {False: 18, True: 30}
EXTRACTORS = {  # as their authors write them
    "minilm": "MiniLM",
    "efficientnet_lite0": "EfficientNet-Lite0",
    "distilbert": "DistilBERT",
    "resnet18": "ResNet-18",
    "resnet34": "ResNet-34",
}
HEADS = {"softmax": "softmax regression", "mlp_tanh": "two-layer tanh network"}
LEADER = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.5, "shrinkA": 1, "shrinkB": 0, "relpos": (0.5, 1)}


def accuracy(table: pd.DataFrame, ax: Axes, axis: str = "auto") -> Axes:
    """Test accuracy against clip norm, one curve per budget.

    table: the rows of one data set, features and head from `comparison.against_paper`. Ours are filled
    markers with bars of one standard deviation; the paper's are hollow and stand slightly to the right. axis:
    "log"; "rank", clip norms in ascending order at equal distances; "auto", the former unless it is crowded.
    """
    private = table[(table["method"] == "dpsgd") & ~table["clip_norm"].map(math.isinf)]
    points = clip_norms(private)
    by_rank = axis == "rank" or (axis == "auto" and _crowded(points))
    points["x"] = np.arange(len(points), dtype=float) if by_rank else points["clip_norm"]
    private = private.assign(x=[points["x"].get(key, math.nan) for key in keys(private)])
    ax.set_xscale("linear" if by_rank else "log")
    colours = {}
    for (epsilon, rows), curve in zip(private.groupby("epsilon"), CURVES * len(private), strict=False):
        _curve(rows.sort_values("x"), curve, budget(epsilon), by_rank, ax)
        colours[epsilon] = curve[0]
    chosen = choices.rows(table)
    choices.accuracy(chosen, places(points, chosen["clip_norm"]), colours, ax)
    _baseline(table[table["method"] == "non_private"], ax)
    ax.set_ylabel("test accuracy (%)")
    ax.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    _mark_smallest_constant(points, ax)
    if by_rank:
        _label_ranks(points, ax)
    else:
        _label_clip_norms(points, ax, reach=[*points["clip_norm"], *chosen["clip_norm"]])
    return ax


def places(points: pd.DataFrame, clip_norms: Sequence[float] | pd.Series) -> list[float]:
    """Where clip norms lie on the axis of `points` (columns clip_norm and x, ascending).

    On a logarithmic axis at themselves; by rank between their neighbours, in proportion to the logarithm, and at
    the ends if they lie beyond.
    """
    known = points.dropna(subset="clip_norm")
    if known.empty or known["x"].equals(known["clip_norm"]):
        return list(clip_norms)
    at = np.interp(np.log(list(clip_norms)), np.log(known["clip_norm"]), known["x"])
    return [float(x) for x in at]


def heading(dataset: str, extractor: str, model: str) -> str:
    """A figure's title."""
    return f"{title(dataset)} ({EXTRACTORS.get(extractor, extractor)} features, {HEADS.get(model, model)})"


def has_percentiles(table: pd.DataFrame) -> bool:
    """Whether any clip norm is a percentile of Lipschitz constants (a deeper network has none)."""
    return bool(table["percentile"].notna().any())


def x_label(table: pd.DataFrame, symbol: str = "") -> str:
    """What the axis of `clip_norms` shows."""
    return f"clip norm{symbol}" + (", and its percentile among the Lipschitz constants" * has_percentiles(table))


def keys(private: pd.DataFrame) -> list[tuple[float, float]]:
    """What makes a place on the axis: a percentile, or else a fixed clip norm. -1 stands for none."""
    pairs = zip(private["percentile"], private["clip_norm"], strict=True)
    return [(-1.0, norm) if math.isnan(percentile) else (percentile, -1.0) for percentile, norm in pairs]


def clip_norms(private: pd.DataFrame) -> pd.DataFrame:
    """The places on the axis, ascending, by `keys`: percentile (NaN: a fixed clip norm) and clip_norm.

    Our unrounded clip norm where a cell ran, else the paper's. Percentiles that the paper does not print as
    numbers come last.
    """
    rows = private.assign(key=keys(private)).sort_values("accuracy_mean", kind="stable", na_position="last")
    points = rows.drop_duplicates("key").set_index("key")[["percentile", "clip_norm"]]
    return points.sort_values(["clip_norm", "percentile"], kind="stable")


def _crowded(points: pd.DataFrame) -> bool:
    """Whether a logarithmic axis cannot tell the clip norms apart, or lacks one.

    TweetEval's percentiles lie between 13.8 and 20.8 beside clip norms from 0.1: five of ten would fall on a
    twentieth of the axis. By rank every point has the same room, without the second pair of axes that an inset
    needs; the numbers are on the labels.
    """
    norms = points["clip_norm"].to_numpy(dtype=float)
    if np.isnan(norms).any():
        return True
    gaps = np.diff(np.log(norms))
    return bool(len(gaps) and gaps.min() < CROWDED * gaps.sum())


def _curve(rows: pd.DataFrame, curve: tuple[str, str, str], label: str, by_rank: bool, ax: Axes) -> None:
    """Ours and the paper's points at one budget; the paper's are joined where there are none of ours."""
    colour, marker, dash = curve
    ours = rows[rows["accuracy_mean"].notna()]
    if not ours.empty:
        x, y, bar = (ours[name] for name in ("x", "accuracy_mean", "accuracy_std"))
        ax.errorbar(x, y, bar, color=colour, marker=marker, linestyle=dash, label=label, elinewidth=0.9, zorder=3)
    paper = rows[rows["paper_mean"].notna()]
    x, y, bar = (paper[name] for name in ("x", "paper_mean", "paper_std"))
    if not ours.empty:
        x = x + PAPER_PLACES if by_rank else x * PAPER_FACTOR
    ax.errorbar(
        *(x, y, bar),
        color=colour,
        marker=marker,
        label="_" if len(ours) else label,
        linestyle="none" if len(ours) else dash,
        linewidth=0.7,
        markerfacecolor="white",
        markeredgewidth=0.8,
        markersize=4,
        elinewidth=0.6,
        zorder=2,
    )


def _baseline(rows: pd.DataFrame, ax: Axes) -> None:
    """Non-private accuracy as a line across, ours dashed, the paper's dotted."""
    for column, (dash, _) in BASELINES.items():
        for value in rows[column].dropna():
            ax.axhline(value, color="0.25", linestyle=dash, linewidth=0.9, zorder=1)
            ax.update_datalim([(0, value)], updatex=False)  # else a line within the margin may lie on the frame
            ax.autoscale_view(scalex=False)


def _mark_smallest_constant(points: pd.DataFrame, ax: Axes) -> None:
    """A vertical line at G_1, the 0th percentile."""
    for x in points.loc[points["percentile"] == 0, "x"]:
        ax.axvline(x, color="0.6", linewidth=0.7, zorder=0)
        where = ax.get_xaxis_transform()
        ax.annotate("$G_1$", (x, 0), xycoords=where, xytext=(3, 3), textcoords="offset points")


def point_labels(points: pd.DataFrame) -> list[str]:
    """Labels of the places of `clip_norms`, with a second line for percentiles if there are any."""
    labels = [point_label(*pair) for pair in points[["clip_norm", "percentile"]].to_numpy(dtype=float)]
    return labels if has_percentiles(points) else [label.rstrip() for label in labels]


def point_label(clip_norm: float, percentile: float) -> str:
    """A fixed clip norm by its value, a percentile by both; the value is left out where nobody knows it."""
    if math.isnan(percentile):
        return f"{clip_norm:g}\n"
    return f"{'' if math.isnan(clip_norm) else f'{clip_norm:.1f}'}\n{percentile:g} %"


def _label_ranks(points: pd.DataFrame, ax: Axes) -> None:
    """A tick at every place, labelled beneath."""
    ax.set_xticks(points["x"], point_labels(points), fontsize=6)
    ax.set_xlim(-0.5, len(points) - 0.35)


def _label_clip_norms(points: pd.DataFrame, ax: Axes, reach: Sequence[float]) -> None:
    """A tick at every clip norm, labelled by value or percentile; crowded labels move apart.

    reach: all that the axis must hold.
    """
    norms = points["clip_norm"].to_numpy(dtype=float)
    ax.xaxis.set_major_locator(FixedLocator(list(norms)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(NullFormatter())
    if not len(norms):
        return
    low, high = np.log10(min(reach) / 1.25), np.log10(max(reach) * 1.25)
    ax.set_xlim(10**low, 10**high)
    at = (np.log10(norms) - low) / (high - low)
    labels = spread(at, gap=0.068, highest=0.985)
    for tick, label, text in zip(at, labels, point_labels(points), strict=True):
        ax.annotate(
            *(text, (tick, -3), (label, -10)),
            xycoords=("axes fraction", "axes points"),
            textcoords=("axes fraction", "axes points"),
            arrowprops=LEADER,
            ha="center",
            va="top",
            fontsize=7.5,
        )


def spread(positions: Sequence[float] | np.ndarray, gap: float, highest: float) -> np.ndarray:
    """Ascending positions moved as little as possible until neighbours are `gap` apart, none above `highest`.

    Pool adjacent violators: with k * gap subtracted the wanted positions must not decrease, and the closest
    non-decreasing sequence (least squares) replaces every falling stretch by its mean.
    """
    offsets = gap * np.arange(len(positions))
    pools: list[list[float]] = []
    for value in np.asarray(positions, dtype=float) - offsets:
        pools.append([value])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    level = np.array([np.mean(pool) for pool in pools for _ in pool])
    return np.minimum(level, highest - gap * (len(level) - 1)) + offsets


def legend(table: pd.DataFrame, ax: Axes) -> list[tuple[Any, str]]:
    """Handles and labels of what `accuracy` drew: the budgets, the paper's markers, the baselines, the choices."""
    entries: list[tuple[Any, str]] = list(zip(*ax.get_legend_handles_labels(), strict=True))
    if table.loc[table["method"] == "dpsgd", "paper_mean"].notna().any():
        hollow = Line2D([], [], color="0.3", marker="o", markersize=4, markerfacecolor="white", linestyle="none")
        entries.append((hollow, "paper"))
    baseline = table[table["method"] == "non_private"]
    for column, (dash, label) in BASELINES.items():
        if baseline[column].notna().any():
            entries.append((Line2D([], [], color="0.25", linestyle=dash, linewidth=0.9), label))
    return entries + choices.legend(choices.rows(table))
