"""Figures of one study's stored results: `python -m dpexp.figures`. Needs no display and keeps no global state."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from dpexp import aggregate, curves, heatmaps
from dpexp.aggregate import Record
from dpexp.comparison import BLOCK, title
from dpexp.style import STYLE, save
from dpexp.tables import arguments, build

SIZE = (5.2, 3.6)  # inches
PAPER_NAMES = {("clipnorm", "fashion_mnist", "raw", "softmax"): "figure2b"}


def draw(table: pd.DataFrame) -> Figure:
    """One data set's rows of `comparison.against_paper` as a figure of its own."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE)
        ax = curves.accuracy(table, figure.subplots())
        room = curves.LABEL_ROOM if ax.get_xscale() == "log" else None
        ax.set_xlabel("clip norm, and its percentile among the Lipschitz constants", labelpad=room)
        dataset, extractor, model = table.iloc[0][BLOCK]
        ax.set_title(f"{title(dataset)} ({extractor} features, {model})", loc="left")
        entries = dict((label, handle) for handle, label in curves.legend(table, ax))
        columns = max(len(entries), 1)
        figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, columnspacing=1.1)
    return figure


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
            paths += save(draw(rows), folder / PAPER_NAMES.get((study, *names), _name(study, names)))
    rates = aggregate.by_learning_rate(aggregate.to_frame(records))
    rates = rates[(rates["method"] == "dpsgd") & rates["target_epsilon"].notna()]
    for names, rows in rates.groupby(BLOCK, sort=False):
        if rows["learning_rate"].nunique() > 1 and rows["test_accuracy"].notna().any():
            paths += save(heatmaps.draw(rows), folder / f"{_name(study, names)}-learning_rates")
    return paths


def main(argv: Sequence[str] | None = None) -> None:
    """Draw a study's figures."""
    folder, output = arguments("Redraw a study's figures from its stored results (no training).", argv)
    from dpexp import results  # after --help, which needs nothing

    paths = write(results.read(folder), output, folder.name)
    print("\n".join(f"wrote {path}" for path in paths) or f"no finished runs in {folder}, no figure")


if __name__ == "__main__":
    main()
