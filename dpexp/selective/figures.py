"""Figures 3 and 4 of paper S, and accuracy at the true epsilon: `python -m dpexp.selective.figures`.

Figures 3 and 4 are drawn from the studies named `selective_beta*`, the third from `selective`. A figure whose runs are
not stored is not drawn, and the command says so.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dpexp.comparison import title
from dpexp.paper_tables import output_dir
from dpexp.results import Record
from dpexp.selective.groups import BETA_STUDY, METHODS, STUDY, Group, groups, method_title
from dpexp.selective.layout import DATASETS
from dpexp.selective.selectivity import largest_good_share, pass_rates
from dpexp.selective.tables import read
from dpexp.style import STYLE, save

BETA_FIGURES = {"figure_s3": "imdb", "figure_s4": "fashion_mnist"}  # the paper's Figures 3 and 4
KINDS = {"good": ("#0072B2", ""), "bad": ("#D55E00", "////")}
DECISIONS = ("accepted", "rejected")
BAR = 0.38
GOOD_MEANS = (
    "Good: the candidate lowers the loss on held-out examples, measured without privacy and for this figure only.\n"
    "Above the bars: how many candidates, over all seeds."
)
# Okabe and Ito's palette; the marker tells the methods apart in grey print, the size their variants.
MARKS = {
    ("dpsgd", False): ("#000000", "o"),
    ("dpsr_cg", False): ("#0072B2", "s"),
    ("dpsr_cg", True): ("#D55E00", "D"),
    ("dpsr_cg_no_release", False): ("#009E73", "^"),
    ("dpsur", False): ("#CC79A7", "v"),
    ("dpsur", True): ("#E69F00", "P"),
    ("dpsur_same_scaling", False): ("#56B4E9", "X"),
}


def beta_counts(records: Iterable[Record], dataset: str) -> dict[float, dict[str, Any]]:
    """Good and bad, accepted and rejected candidates of the sound DPSR-CG by beta, summed over seeds.

    Also each beta's `test`, the constants of the test. Only runs for the stated epsilon of the paper's figures, 3.
    """
    found: dict[float, dict[str, Any]] = {}
    for record in {record["run_id"]: record for record in records}.values():
        if not _of_beta_figure(record, dataset):
            continue
        test = record["mechanism"]["test"]
        beta = float(test["threshold"]) / float(record["mechanism"]["clip_norm"])
        entry = found.setdefault(round(beta, 9), {"test": test})
        for name, count in record["quality"].items():
            entry[name] = entry.get(name, 0) + count
    return dict(sorted(found.items()))


def _of_beta_figure(record: Record, dataset: str) -> bool:
    """Whether a record belongs to a data set's figure of beta."""
    study = record["study"].startswith(BETA_STUDY) and "quality" in record
    method = record["method"] == "dpsr_cg" and record["variant"] != "as_published"
    return study and method and record["dataset"] == dataset and record["privacy"]["target_epsilon"] == 3


def good_and_bad(counts: Mapping[float, Mapping[str, Any]], ax: Axes) -> Axes:
    """Shares of good and bad candidates among the accepted and the rejected ones, against beta.

    counts: of `beta_counts`. The dashed line over an accepted bar is the most that its test could reach with
    candidates of which as many are good; the dotted line is the share of good ones among all candidates.
    """
    places, names = [], []
    for index, entry in enumerate(counts.values()):
        for decision, centre in zip(DECISIONS, (index - BAR / 1.8, index + BAR / 1.8), strict=True):
            good, bad = entry[f"{decision}_good"], entry[f"{decision}_bad"]
            _stack(ax, centre, good, bad)
            places.append(centre)
            names.append(decision)
        _predict(ax, index, entry)
    ax.set_xticks(places, [name[:3] + "." for name in names])
    for index, beta in enumerate(counts):
        label = f"$\\beta={beta:g}$" if math.isfinite(beta) else f"$\\beta={'-' * (beta < 0)}\\infty$"
        ax.annotate(label, (index, 0), (0, -17), xycoords=("data", "axes fraction"), textcoords="offset points",
                    ha="center", va="top", size=9)  # fmt: skip
    ax.tick_params(axis="x", length=0)
    ax.set_axisbelow(True)
    ax.set(ylim=(0, 108), ylabel="share of candidates (%)", xlim=(-0.6, len(counts) - 0.4))
    ax.set_yticks(range(0, 101, 20))
    return ax


def _stack(ax: Axes, centre: float, good: int, bad: int) -> None:
    """One bar to 100 %, with its count above; an empty one has the count alone."""
    total, below = good + bad, 0.0
    for (colour, hatch), count in zip(KINDS.values(), (good, bad), strict=True):
        share = 100 * count / total if total else 0.0
        ax.bar(centre, share, BAR, bottom=below, color=colour, hatch=hatch, edgecolor="white", linewidth=0.6)
        below += share
    ax.annotate(f"{total:,}", (centre, below), (0, 2), textcoords="offset points", ha="center", size=7)


def _predict(ax: Axes, index: int, entry: Mapping[str, Any]) -> None:
    """The share of good ones among all, and the largest that the test could leave among the accepted."""
    good = sum(entry[f"{decision}_good"] for decision in DECISIONS)
    total = good + sum(entry[f"{decision}_bad"] for decision in DECISIONS)
    if not total:
        return
    ax.hlines(100 * good / total, index - 0.46, index + 0.46, color="black", linestyle=":", linewidth=1.2)
    worst, best = pass_rates(entry["test"])
    if best > 0:
        most = 100 * largest_good_share(good / total, worst, best)
        left = index - BAR / 1.8 - BAR / 2
        ax.hlines(most, left - 0.04, left + BAR + 0.04, color="black", linestyle="--", linewidth=1.2)


def beta_figure(counts: Mapping[float, Mapping[str, Any]], dataset: str) -> Figure:
    """One of the paper's Figures 3 and 4."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(4.6, 1.15 * len(counts) + 1.0), 3.5))
        ax = good_and_bad(counts, figure.subplots())
        ax.set_title(f"{title(dataset)}, stated $\\varepsilon$ = 3: accepted and rejected candidates", loc="left")
        handles: list[Artist] = [
            Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name)
            for name, (colour, hatch) in KINDS.items()
        ]
        handles += [
            Line2D([], [], color="black", linestyle=":", label="good among all"),
            Line2D([], [], color="black", linestyle="--", label="most the test could reach"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        ax.set_xlabel(GOOD_MEANS, fontsize=7, labelpad=20)
    return figure


def accuracy(shown: Sequence[Group], ax: Axes) -> Axes:
    """Accuracy of one data set's groups against epsilon: hollow where it is stated, filled where it is certified.

    The certified epsilon is the smallest that holds for who knows the numbers of trials, as a reader of the stored
    records does. Across: the non-private baseline.
    """
    for group in shown:
        if group.method == "non_private":
            ax.axhline(group.mean, color="0.45", linestyle=(0, (4, 2)), linewidth=1)
            continue
        colour, marker = _mark(group)
        certified = group.certified(counts_public=True)
        ax.plot(group.target_epsilon, group.mean, marker, color=colour, markerfacecolor="none", markersize=5)
        if certified is not None:
            ends = [group.target_epsilon, certified[1]]
            ax.plot(ends, [group.mean] * 2, color=colour, linewidth=0.7, alpha=0.7)
            deviation = None if math.isnan(group.std) else group.std
            ax.errorbar(certified[1], group.mean, deviation, color=colour, marker=marker, markersize=5, linestyle="")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlim(0, 1.07 * ax.dataLim.x1)  # room for the markers at the largest epsilon
    ax.set(xlabel="$\\varepsilon$", ylabel="test accuracy (%)")
    return ax


def _mark(group: Group) -> tuple[str, str]:
    """Colour and marker of a group's method."""
    return MARKS[group.method, group.variant == "as_published"]


def accuracy_figure(shown: Sequence[Group]) -> Figure:
    """One panel per data set that ran, in the paper's order."""
    names = [name for name in DATASETS if any(group.dataset == name for group in shown)]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(4.6, 3.4 * len(names)), 3.7))
        axes = figure.subplots(1, len(names), squeeze=False)[0]
        for name, ax in zip(names, axes, strict=True):
            accuracy([group for group in shown if group.dataset == name], ax)
            ax.set_title(title(name), loc="left")
        for ax in axes[1:]:
            ax.set_ylabel("")
        handles = _legend(shown)
        figure.legend(handles=handles, loc="outside lower center", ncols=2 if len(names) == 1 else 4)
    return figure


def _legend(shown: Sequence[Group]) -> list[Line2D]:
    """Every method that is drawn, then what hollow and filled mean."""
    drawn = {(group.method, group.variant == "as_published") for group in shown}
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=method_title(key[0], "as_published" * key[1]))
        for key, (colour, marker) in MARKS.items()
        if key in drawn
    ]
    hollow = Line2D([], [], color="0.4", marker="o", linestyle="", markerfacecolor="none")
    hollow.set_label("hollow: stated $\\varepsilon$ (alone: no finite bound)")
    filled = Line2D([], [], color="0.4", marker="o", linestyle="", label="filled: certified, trial counts public")
    handles += [hollow, filled]
    if any(method == "non_private" for method, _ in drawn):
        handles.append(Line2D([], [], color="0.45", linestyle=(0, (4, 2)), label=METHODS["non_private"]))
    return handles


def write(records: Sequence[Record], folder: Path) -> list[Path]:
    """Draw every figure whose runs are stored into a folder."""
    paths = []
    for name, dataset in BETA_FIGURES.items():
        counts = beta_counts(records, dataset)
        paths += save(beta_figure(counts, dataset), folder / name) if counts else []
    shown = [g for g in groups(records) if g.study == STUDY and g.dataset in DATASETS and _drawn(g)]
    return paths + (save(accuracy_figure(shown), folder / "selective_accuracy") if shown else [])


def _drawn(group: Group) -> bool:
    """Whether a group has a place in the figure of accuracies."""
    key = (group.method, group.variant == "as_published")
    return group.method == "non_private" or (key in MARKS and not math.isnan(group.target_epsilon))


def main(argv: Sequence[str] | None = None) -> None:
    """Draw the figures from the stored results."""
    output = output_dir(__doc__, argv)
    paths = write(read(output / "results"), output / "figures")
    for path in paths:
        print(f"wrote {path}")
    for name in (*BETA_FIGURES, "selective_accuracy"):
        if not any(path.stem == name for path in paths):
            print(f"not drawn: {name}, none of its runs is stored under {output / 'results'}")


if __name__ == "__main__":
    main()
