"""Figures of stored results: `python -m dpexp.figures`. Needs no display and keeps no global state."""

import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator

from dpexp.aggregate import Record
from dpexp.cache import write_atomic
from dpexp.comparison import BLOCK, title
from dpexp.panels import budget
from dpexp.tables import arguments, build

STYLE: Any = {
    "font.family": "serif",
    "font.serif": ["STIXGeneral"],
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.titlesize": 9.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "errorbar.capsize": 1.8,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.1,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
}
# Okabe and Ito's palette for colour-blind readers; dash and marker tell the curves apart in grey print.
CURVES = (("#0072B2", "o", "-"), ("#D55E00", "s", "--"), ("#009E73", "^", "-."), ("#CC79A7", "D", ":"))
BASELINES: dict[str, tuple[Any, str]] = {
    "accuracy_mean": ((0, (6, 2)), "non-private"),
    "paper_mean": ((0, (1, 2)), "non-private, paper"),
}
PAPER_SHIFT = 1.035  # the paper's markers stand this factor to the right of ours
SIZE = (5.2, 3.6)  # inches
LABEL_ROOM = 30  # points below the axis for the clip norms, two lines and a leader
# Files without dates and program versions: equal results give equal bytes.
METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
PAPER_NAMES = {("clipnorm", "fashion_mnist", "raw", "softmax"): "figure2b"}


def accuracy(table: pd.DataFrame, ax: Axes) -> Axes:
    """Test accuracy against clip norm, one curve per budget, as in paper L's Figures 1 to 3.

    table: the rows of one data set, features and head from `comparison.against_paper`. Ours are filled
    markers with bars of one standard deviation; the paper's are hollow and stand slightly to the right.
    """
    private = table[(table["method"] == "dpsgd") & table["clip_norm"].map(math.isfinite)]
    for (epsilon, rows), curve in zip(private.groupby("epsilon"), CURVES * len(private), strict=False):
        _curve(rows.sort_values("clip_norm"), curve, budget(epsilon), ax)
    _baseline(table[table["method"] == "non_private"], ax)
    ax.set_xscale("log")
    ax.set_xlabel("clip norm, and its percentile among the Lipschitz constants", labelpad=LABEL_ROOM)
    ax.set_ylabel("test accuracy (%)")
    ax.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    _mark_smallest_constant(private, ax)
    _label_clip_norms(private, ax)
    return ax


def _curve(rows: pd.DataFrame, curve: tuple[str, str, str], label: str, ax: Axes) -> None:
    """Ours and the paper's points at one budget."""
    colour, marker, dash = curve
    ours = rows[rows["accuracy_mean"].notna()]
    x, y, bar = (ours[name] for name in ("clip_norm", "accuracy_mean", "accuracy_std"))
    ax.errorbar(x, y, bar, color=colour, marker=marker, linestyle=dash, label=label, elinewidth=0.9, zorder=3)
    paper = rows[rows["paper_mean"].notna()]
    x, y, bar = (paper[name] for name in ("clip_norm", "paper_mean", "paper_std"))
    ax.errorbar(
        *(x * PAPER_SHIFT, y, bar),
        color=colour,
        marker=marker,
        linestyle="none",
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


def _mark_smallest_constant(private: pd.DataFrame, ax: Axes) -> None:
    """A vertical line at G_1, the 0th percentile."""
    for value in private.loc[private["percentile"] == 0, "clip_norm"].head(1):
        ax.axvline(value, color="0.6", linewidth=0.7, zorder=0)
        where = ax.get_xaxis_transform()
        ax.annotate("$G_1$", (value, 0), xycoords=where, xytext=(3, 3), textcoords="offset points")


def _label_clip_norms(private: pd.DataFrame, ax: Axes) -> None:
    """A tick at every clip norm, labelled by value or percentile; crowded labels move apart."""
    points = private.drop_duplicates(["clip_norm", "percentile"]).sort_values("clip_norm")
    norms = points["clip_norm"].to_numpy(dtype=float)
    ax.xaxis.set_major_locator(FixedLocator(list(norms)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(NullFormatter())
    if not len(norms):
        return
    low, high = np.log10(norms[0] / 1.25), np.log10(norms[-1] * 1.25)
    ax.set_xlim(10**low, 10**high)
    at = (np.log10(norms) - low) / (high - low)
    labels = spread(at, gap=0.068, highest=0.985)
    for tick, label, (_, row) in zip(at, labels, points.iterrows(), strict=True):
        fixed = math.isnan(row["percentile"])
        text = f"{row['clip_norm']:g}\n" if fixed else f"{row['clip_norm']:.1f}\n{row['percentile']:g} %"
        leader = {
            "arrowstyle": "-",
            "color": "0.6",
            "linewidth": 0.5,
            "shrinkA": 1,
            "shrinkB": 0,
            "relpos": (0.5, 1),
        }
        ax.annotate(
            *(text, (tick, -3), (label, -10)),
            xycoords=("axes fraction", "axes points"),
            textcoords=("axes fraction", "axes points"),
            arrowprops=leader,
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
    """Handles and labels of what `accuracy` drew: the budgets, the paper's markers, the two baselines."""
    entries: list[tuple[Any, str]] = list(zip(*ax.get_legend_handles_labels(), strict=True))
    if table.loc[table["method"] == "dpsgd", "paper_mean"].notna().any():
        hollow = Line2D([], [], color="0.3", marker="o", markersize=4, markerfacecolor="white", linestyle="none")
        entries.append((hollow, "paper"))
    baseline = table[table["method"] == "non_private"]
    for column, (dash, label) in BASELINES.items():
        if baseline[column].notna().any():
            entries.append((Line2D([], [], color="0.25", linestyle=dash, linewidth=0.9), label))
    return entries


def draw(table: pd.DataFrame) -> Figure:
    """One data set's rows of `comparison.against_paper` as a figure of its own."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE)
        ax = accuracy(table, figure.subplots())
        dataset, extractor, model = table.iloc[0][BLOCK]
        ax.set_title(f"{title(dataset)} ({extractor} features, {model})", loc="left")
        entries = legend(table, ax)
        handles, labels = [handle for handle, _ in entries], [label for _, label in entries]
        figure.legend(handles, labels, loc="outside lower center", ncols=max(len(labels), 1))
    return figure


def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as `path`.pdf and `path`.png. Equal figures give equal bytes."""
    paths = []
    for kind, metadata in METADATA.items():
        content = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            figure.savefig(content, format=kind, metadata=metadata)
        paths.append(path.with_name(f"{path.name}.{kind}"))
        write_atomic(paths[-1], content.getvalue())
    return paths


def write(records: Iterable[Record], output_dir: Path, study: str) -> list[Path]:
    """Draw every data set, features and head of a study that ran, under `output_dir`/figures."""
    table, _ = build(records, study)
    paths: list[Path] = []
    for (dataset, extractor, model), rows in table.groupby(BLOCK, sort=False):
        if rows["accuracy_mean"].notna().any():
            parts = [study, dataset, extractor, *([] if model == "softmax" else [model])]
            name = PAPER_NAMES.get((study, dataset, extractor, model), "-".join(parts))
            paths += save(draw(rows), output_dir / "figures" / name)
    return paths


def main(argv: Sequence[str] | None = None) -> None:
    """Draw a study's figures."""
    folder, output = arguments("Redraw a study's figures from its stored results (no training).", argv)
    from dpexp import results  # after --help, which needs nothing

    paths = write(results.read(folder), output, folder.name)
    print("\n".join(f"wrote {path}" for path in paths) or f"no finished runs in {folder}, no figure")


if __name__ == "__main__":
    main()
