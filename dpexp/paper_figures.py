"""Figures 1 to 3 of paper L as grids, and accuracy against epochs: `python -m dpexp.paper_figures`.

A panel shows our points beside the paper's; where the data set did not run, the paper's alone, and it says so. Figure
3 has further panels for other data sets that ran with a two-layer network; for softmax regression `dpexp.figures`
draws them. The
same results folders feed it as feed the tables (`dpexp.paper_tables`), and `epochs_*` the last figure.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from dpexp import aggregate, curves
from dpexp.aggregate import Record
from dpexp.comparison import BLOCK, PAPER_EXTRACTORS, read_reference, title
from dpexp.panels import budget, ordinal
from dpexp.paper_tables import build, output_dir, read
from dpexp.style import CURVES, STYLE, save

Block = tuple[str, str, str]  # data set, features, head

# Rows and columns, and the panels in the paper's order: data set and head.
LAYOUTS: dict[int, tuple[tuple[int, int], tuple[tuple[str, str], ...]]] = {
    1: (
        (2, 3),
        tuple(
            (name, "softmax") for name in ("caltech256", "food101", "cifar100", "cifar10", "tweeteval_emoji", "emotion")
        ),
    ),
    2: ((1, 2), (("emnist", "softmax"), ("fashion_mnist", "softmax"))),
    3: ((1, 2), (("emnist", "mlp_tanh"), ("cifar100", "mlp_tanh"))),
}
PANEL = {1: (2.6, 2.35), 2: (3.6, 2.9), 3: (3.6, 2.9)}  # inches
EXTENDED = 3  # the figure that shows what the paper lacks, too
EPOCHS = "epochs_*"  # the results folders of the study of epochs


def grid(table: pd.DataFrame, number: int) -> Figure:
    """One of the paper's figures. table: rows of `comparison.against_paper`, all studies together.

    Clip norms stand by rank in every panel, so that panels can be compared and TweetEval's can be read.
    """
    (rows, columns), panels = LAYOUTS[number]
    blocks = [(dataset, PAPER_EXTRACTORS[dataset], model) for dataset, model in panels]
    blocks += (others := _others(table, blocks) if number == EXTENDED else [])
    columns += len(others)
    width, height = PANEL[number]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width * columns, height * rows + 0.4))
        axes = figure.subplots(rows, columns, squeeze=False)
        entries: dict[str, Any] = {}
        for letter, block, ax in zip("abcdefghij", blocks, axes.flat, strict=False):
            shown = _rows(table, block)
            curves.accuracy(shown, ax, axis="rank")
            ax.set_title(f"({letter}) {title(block[0])}{', not in the paper' * (block in others)}", loc="left")
            found = {label: handle for handle, label in curves.legend(shown, ax)}
            ran = shown["accuracy_mean"].notna().any()
            entries = entries | found if ran else found | entries  # filled markers where any panel has them
            if not ran:
                _say_not_run(table, block, ax)
        for ax in axes[:, 1:].flat:
            ax.set_ylabel("")
        for ax in axes[-1]:
            ax.set_xlabel("clip norm, by rank" if number == EXTENDED else "clip norm and percentile, by rank")
        labels = sorted(entries, key=_baselines_last)
        handles = [entries[label] for label in labels]
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _others(table: pd.DataFrame, blocks: Sequence[Block]) -> list[Block]:
    """Data sets and features that ran with the head of these blocks and that the paper does not have."""
    ran = table[(table["model"] == blocks[0][2]) & (table["method"] == "dpsgd") & table["accuracy_mean"].notna()]
    found = dict.fromkeys(ran[BLOCK].itertuples(index=False, name=None))
    return [block for block in found if block not in blocks]


def _rows(table: pd.DataFrame, block: Block) -> pd.DataFrame:
    """The rows of one panel; Table 3's, and private choices, are of another figure."""
    alike = (table[BLOCK] == list(block)).all(axis=1) & table["method"].isin(["dpsgd", "non_private"])
    return table[alike & table["table"].fillna(0).ne(3)]


def _say_not_run(table: pd.DataFrame, block: Block, ax: Axes) -> None:
    """Why a panel has none of our points: the data set is missing, or ran with other features only."""
    dataset, extractor, model = block
    alike = (table["dataset"] == dataset) & (table["model"] == model) & table["accuracy_mean"].notna()
    other = ", ".join(curves.EXTRACTORS.get(name, name) for name in table.loc[alike, "extractor"].unique())
    text = f"not run: needs {title(dataset)}"
    if other:
        text = f"not run on {curves.EXTRACTORS.get(extractor, extractor)} features\n({other}: figure of its own)"
    # Top right, below the baseline, is free: accuracy falls with the clip norm.
    ax.text(0.98, 0.91, text, transform=ax.transAxes, ha="right", va="top", fontsize=7, style="italic", color="0.3")


def _baselines_last(label: str) -> int:
    """Order of a legend that several panels share: budgets, the paper's points, our baseline, the paper's."""
    baselines = [name for _, name in curves.BASELINES.values()]
    return 1 + baselines.index(label) if label in baselines else 0


def accuracy_against_epochs(cells: pd.DataFrame, ax: Axes) -> Axes:
    """Accuracy over the number of epochs at one budget, one curve per clip norm; across, what the paper prints.

    cells: rows of `aggregate.cells` of one data set, features, head and budget. Every point has its own noise,
    calibrated to the budget, and its own best learning rate.
    """
    reference = read_reference()
    points = curves.clip_norms(cells)
    for (key, point), (colour, marker, dash) in zip(points.iterrows(), CURVES, strict=False):
        rows = cells[[found == key for found in curves.keys(cells)]].sort_values("epochs")
        label = f"$\\tau = {point['clip_norm']:.3g}$"
        if pd.notna(point["percentile"]):
            label += f" ({ordinal(point['percentile'])} pctl.)"
        ax.errorbar(
            *(rows["epochs"], rows["accuracy_mean"], rows["accuracy_std"]),
            color=colour, marker=marker, linestyle=dash, label=label, elinewidth=0.9,
        )  # fmt: skip
        for printed in _printed(reference, rows.iloc[0]):
            ax.axhline(printed, color=colour, linestyle=(0, (1, 2)), linewidth=0.9, zorder=1)
    first = cells.iloc[0]
    noise = cells.groupby("epochs")["noise_multiplier"].mean()
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(noise.index, [f"{epochs:g}\n{value:.2f}" for epochs, value in noise.items()])
    ax.set(xlabel="epochs, and the noise multiplier that they need", ylabel="test accuracy (%)")
    ax.set_title(f"{curves.heading(*first[BLOCK])}, {budget(first['target_epsilon'])}", loc="left")
    return ax


def _printed(reference: pd.DataFrame, cell: pd.Series) -> Iterator[float]:
    """The paper's accuracy for a cell, where it has one."""
    rows = reference[(reference[BLOCK] == list(cell[BLOCK])).all(axis=1) & (reference["method"] == "dpsgd")]
    rows = rows[rows["epsilon"] == cell["target_epsilon"]]
    by_percentile = rows["percentile"] == cell["percentile"]
    yield from rows[by_percentile | (rows["percentile"].isna() & (rows["clip_norm"] == cell["fixed_clip_norm"]))][
        "accuracy_mean"
    ]


def epochs_figure(cells: pd.DataFrame) -> Figure:
    """One panel per data set, features, head and budget that ran with several numbers of epochs."""
    groups = [rows for _, rows in cells.groupby([*BLOCK, "target_epsilon"], sort=False)]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.4 * len(groups), 3.3))
        axes = figure.subplots(1, len(groups), squeeze=False)[0]
        for rows, ax in zip(groups, axes, strict=True):
            accuracy_against_epochs(rows, ax)
            ax.legend(loc="lower right", title="dotted: the paper's", title_fontsize=8)
    return figure


def epochs_cells(records: Sequence[Record]) -> pd.DataFrame:
    """The finished private cells of the studies of epochs."""
    cells = aggregate.cells(aggregate.to_frame(records))
    return cells[(cells["method"] == "dpsgd") & (cells["runs"] > 0) & cells["target_epsilon"].notna()]


def write(table: pd.DataFrame, epochs: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw accuracy against epochs, if that study ran, and Figures 1 to 3 into a folder."""
    paths = [] if epochs.empty else save(epochs_figure(epochs), folder / "epochs")
    for number in LAYOUTS:
        paths += save(grid(table, number), folder / f"figure{number}")
    return paths


def main(argv: Sequence[str] | None = None) -> None:
    """Draw the paper's figures from the stored results."""
    from dpexp import results  # after --help, which needs nothing

    output = output_dir(__doc__, argv)
    stored = output / "results"
    epochs = [record for folder in sorted(stored.glob(EPOCHS)) for record in results.read(folder)]
    for path in write(build(read(stored)).table, epochs_cells(epochs), output / "figures"):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
