"""Privately chosen clip norms in figures: their accuracy beside the swept clip norms, and where they land."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from dpexp.panels import METHOD_NAMES

MARKERS = {METHOD_NAMES["rnmm_paper"]: "X", METHOD_NAMES["rnmm_sound"]: "*"}
SIZES = {"X": 6.5, "*": 9.5}  # points; a star's area is small for its width
EDGE: Any = {"markeredgecolor": "black", "markeredgewidth": 0.7}


def rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `comparison.against_paper` with an accuracy of ours at a privately chosen clip norm, by name.

    Adds the column `choice`, the method's name in words.
    """
    ran = table[table["method"].str.startswith("rnmm") & table["accuracy_mean"].notna()]
    return ran.assign(choice=ran["method"].map(METHOD_NAMES))


def accuracy(chosen: pd.DataFrame, x: Sequence[float], colours: Mapping[float, str], ax: Axes) -> None:
    """Accuracy at each choice's mean clip norm: shape is the way of choosing, colour the budget.

    chosen: of `rows`; x: its places on the axis. Bars are one standard deviation.
    """
    for at, row in zip(x, chosen.to_dict("records"), strict=True):
        marker = MARKERS[row["choice"]]
        ax.errorbar(
            *(at, row["accuracy_mean"], row["accuracy_std"]),
            color=colours.get(row["epsilon"], "0.5"),
            marker=marker,
            markersize=SIZES[marker],
            elinewidth=0.9,
            linestyle="none",
            zorder=5,
            **EDGE,
        )


def legend(chosen: pd.DataFrame) -> list[tuple[Any, str]]:
    """A grey marker for each way of choosing."""
    return [(_marker(name), name) for name in MARKERS if name in set(chosen["choice"])]


def _marker(name: str) -> Line2D:
    """The mark of a way of choosing, of no budget."""
    marker = MARKERS[name]
    return Line2D([], [], color="0.75", marker=marker, markersize=SIZES[marker], linestyle="none", **EDGE)


def landing(landings: Mapping[str, Mapping[str, Any]], ax: Axes) -> Axes:
    """On which percentile of the Lipschitz constants the choices of many seeds land, one line per way of choosing.

    landings: by method, the `landing` of a record's private clip norm (`private_clip.Landing`).
    """
    for y, (method, found) in enumerate(landings.items()):
        name, at = METHOD_NAMES[method], found["at"]
        ax.plot([at["0"], at["100"]], [y, y], color="0.4", linewidth=0.9, clip_on=False)
        ax.plot([at["10"], at["90"]], [y, y], color="0.75", linewidth=5, solid_capstyle="butt", clip_on=False)
        shape: Any = {"marker": MARKERS[name], "markersize": SIZES[MARKERS[name]]}
        ax.plot([at["50"]], [y], color="0.75", linestyle="none", clip_on=False, zorder=3, **shape, **EDGE)
        said = f"at or below $G_1$ in {100 * found['at_or_below_minimum']:.0f} % of {found['draws']} draws"
        ax.annotate(said, (100, y), xytext=(0, 4), textcoords="offset points", ha="right", va="bottom", fontsize=8)
    ax.set_yticks(np.arange(len(landings)), [METHOD_NAMES[method].replace(" (", "\n(") for method in landings])
    ax.set(xlim=(-1.5, 100), ylim=(len(landings) - 0.5, -0.7))
    ax.tick_params(axis="y", length=0)
    ax.grid(False)
    ax.set_xlabel(
        "percentile of the constants that the choice lands on\n(marker: median; bar: 80 % of draws; line: all)"
    )
    return ax
