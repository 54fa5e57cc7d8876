"""Figures of one study's stored results: `python -m dpexp.figures`. Needs no display and keeps no global state."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from dpexp import aggregate, choices, curves, heatmaps
from dpexp.aggregate import Record
from dpexp.comparison import BLOCK
from dpexp.style import STYLE, save
from dpexp.tables import COMPANIONS, arguments, build, stored

SIZE = (5.2, 3.6)  # inches
LANDING = 1.7  # inches, for where private choices land
LEGEND_ROW = 6  # entries
PAPER_NAMES = {("clipnorm", "fashion_mnist", "raw", "softmax"): "figure2b"}


def draw(table: pd.DataFrame, landings: Mapping[str, Mapping[str, Any]] | None = None) -> Figure:
    """One data set's rows of `comparison.against_paper` as a figure of its own.

    landings: of `landings`; if there are any, a second pair of axes shows where private choices land.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(SIZE[0], SIZE[1] + (LANDING if landings else 0)))
        axes = figure.subplots(1 + bool(landings), squeeze=False, height_ratios=[3, 1][: 1 + bool(landings)])[:, 0]
        ax = curves.accuracy(table, axes[0])
        logarithmic = ax.get_xscale() == "log"
        room = curves.LABEL_ROOM[curves.has_percentiles(table)] if logarithmic else None
        ax.set_xlabel(curves.x_label(table) + ("" if logarithmic else " (by rank)"), labelpad=room)
        ax.set_title(curves.heading(*table.iloc[0][BLOCK]), loc="left")
        entries = dict((label, handle) for handle, label in curves.legend(table, ax))
        columns = max(len(entries), 1) if len(entries) <= LEGEND_ROW else -(-len(entries) // 2)
        figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, columnspacing=1.1)
        if landings:
            choices.landing(landings, axes[1])
    return figure


def landings(records: Iterable[Record], names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Where the private choices of one data set, features and head land, by method."""
    found = {}
    for record in records:
        chosen = record.get("private_clip")
        if chosen and [record["dataset"], record["extractor"], record["model"]["name"]] == list(names):
            found[record["method"]] = chosen["landing"]
    return dict(sorted(found.items()))


def _name(study: str, names: Iterable[str]) -> str:
    """A figure's file name: what it shows, the usual head left out; titles are people's own and may hold any sign."""
    dataset, extractor, model = names
    parts = [study, dataset, extractor, *([] if model == "softmax" else [model])]
    return "-".join("".join(c if c.isalnum() or c in "_.-" else "_" for c in part) for part in parts)


def write(records: Iterable[Record], output_dir: Path, study: str) -> list[Path]:
    """Draw every data set, features and head of a study that ran DP-SGD, under `output_dir`/figures.

    Accuracy against clip norm, and where several learning rates were tried, a map over both.
    """
    records = list(records)
    folder, paths = output_dir / "figures", []
    table, _ = build(records, study)
    for names, rows in table.groupby(BLOCK, sort=False):
        if rows.loc[rows["method"] == "dpsgd", "accuracy_mean"].notna().any():
            drawn = draw(rows, landings(records, names))
            paths += save(drawn, folder / PAPER_NAMES.get((study, *names), _name(study, names)))
    companion = COMPANIONS.get(study.partition("-")[0])  # has its maps in its own study
    own = [record for record in records if companion is None or record["study"].partition("-")[0] != companion]
    rates = aggregate.by_learning_rate(aggregate.to_frame(own))
    rates = rates[(rates["method"] == "dpsgd") & rates["target_epsilon"].notna()]
    for names, rows in rates.groupby(BLOCK, sort=False):
        if rows["learning_rate"].nunique() > 1 and rows["test_accuracy"].notna().any():
            paths += save(heatmaps.draw(rows), folder / f"{_name(study, names)}-learning_rates")
    return paths


def main(argv: Sequence[str] | None = None) -> None:
    """Draw a study's figures."""
    folder, output = arguments("Redraw a study's figures from its stored results (no training).", argv)
    paths = write(stored(folder), output, folder.name)
    print("\n".join(f"wrote {path}" for path in paths) or f"no finished runs in {folder}, no figure")


if __name__ == "__main__":
    main()
