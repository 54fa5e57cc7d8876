"""Accuracy over clip norm and learning rate, one panel a budget: the whole grid in one picture."""

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from dpexp.curves import clip_norms, heading, keys, point_labels, x_label
from dpexp.panels import budget
from dpexp.style import STYLE

COLOURS = "cividis"  # perceptually uniform, made for colour-blind readers, and monotone in grey
SPAN = 12.0  # percentage points below the best that the colours resolve; all that is worse has the darkest
LIGHT = 0.6  # colours above this part of the scale take black text
RIDGE = "#D55E00"
MARKS = "frame: best of a clip norm; line: $\\eta\\tau$ as at the best of all"
PANEL = (2.45, 4.3)  # inches, for 7 clip norms and 16 learning rates


def learning_rate_map(rates: pd.DataFrame, ax: Axes, norm: Normalize) -> AxesImage:
    """Accuracy over clip norm (columns) and learning rate (rows), with the ridge through the best cell.

    rates: rows of `aggregate.by_learning_rate` at one budget. Columns and rows stand at equal distances, so the
    ridge, eta * tau constant, is interpolated between the rows. Frames mark the best learning rate of each clip
    norm; a cross is a run that diverged, an empty place one that did not finish.
    """
    rates = rates.assign(accuracy_mean=100 * rates["test_accuracy"])
    points, etas = clip_norms(rates), np.sort(rates["learning_rate"].unique())
    columns = points.index.get_indexer(pd.Index(keys(rates)))
    rows = np.searchsorted(etas, rates["learning_rate"])
    values = np.full((len(etas), len(points)), np.nan)
    values[rows, columns] = rates["accuracy_mean"]
    image = ax.imshow(values, cmap=COLOURS, norm=norm, aspect="auto", origin="lower")
    _print_values(values, norm, ax)
    for x, y in zip(columns[rates["diverged"]], rows[rates["diverged"]], strict=True):
        ax.text(x, y, "×", ha="center", va="center", fontsize=7)
    if np.isfinite(values).any():
        _ridge(values, points["clip_norm"].to_numpy(dtype=float), etas, ax)
    ax.set_xticks(range(len(points)), point_labels(points), fontsize=6.5)
    ax.set_yticks(range(len(etas)), [f"{eta:g}" for eta in etas], fontsize=7)
    ax.tick_params(length=0)
    ax.grid(False)
    ax.spines[:].set_visible(False)
    return image


def _print_values(values: np.ndarray, norm: Normalize, ax: Axes) -> None:
    """Every accuracy as a number on a patch of its cell's colour, so that the ridge does not strike it out; a frame
    around the best of each column.
    """
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "black" if norm(value) > LIGHT else "white"
            ground = {"facecolor": colormaps[COLOURS](norm(value)), "edgecolor": "none", "pad": 0.8}
            ax.text(
                *(column, row, f"{value:.1f}"),
                color=colour, ha="center", va="center", fontsize=6, zorder=4, bbox=ground,
            )  # fmt: skip
    for column in np.flatnonzero(np.isfinite(values).any(axis=0)):
        corner = (column - 0.47, np.nanargmax(values[:, column]) - 0.47)
        ax.add_patch(Rectangle(corner, 0.94, 0.94, fill=False, edgecolor="black", linewidth=1.1))


def ridge(values: np.ndarray, clip_norms: np.ndarray, etas: np.ndarray) -> tuple[float, np.ndarray]:
    """eta * tau of the best cell, and the row of eta = (eta * tau) / tau in each column.

    values: accuracy [eta, tau]. Rows count from 0 and are interpolated in log eta; NaN outside the grid.
    """
    row, column = np.unravel_index(np.nanargmax(values), values.shape)
    product = float(etas[row] * clip_norms[column])
    rows = np.interp(np.log(product / clip_norms), np.log(etas), np.arange(len(etas)), left=np.nan, right=np.nan)
    return product, rows


def _ridge(values: np.ndarray, clip_norms: np.ndarray, etas: np.ndarray, ax: Axes) -> None:
    """The line eta * tau = constant through the best cell."""
    product, rows = ridge(values, clip_norms, etas)
    outline = [withStroke(linewidth=2.0, foreground="white")]
    ax.plot(range(len(rows)), rows, color=RIDGE, linewidth=1.0, path_effects=outline, zorder=2)
    ax.annotate(f"$\\eta\\tau = {product:.3g}$", (1, 1), xycoords="axes fraction", ha="right", va="bottom", fontsize=8)


def draw(rates: pd.DataFrame) -> Figure:
    """One data set's private rows of `aggregate.by_learning_rate`, a panel per budget."""
    budgets = sorted(rates["target_epsilon"].unique())
    best = 100 * rates["test_accuracy"].max()
    norm = Normalize(best - SPAN, best, clip=True)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(PANEL[0] * len(budgets) + 0.5, PANEL[1]))
        axes = figure.subplots(1, len(budgets), squeeze=False, sharey=True)[0]
        for epsilon, ax in zip(budgets, axes, strict=True):
            image = learning_rate_map(rates[rates["target_epsilon"] == epsilon], ax, norm)
            ax.set_title(budget(epsilon), loc="left")
        axes[0].set_ylabel("learning rate $\\eta$")
        label = x_label(rates, " $\\tau$")
        if len(budgets) == 1:  # narrower than the line is long
            label = label.replace(", and", ",\nand")
        figure.supxlabel(f"{label}\n{MARKS}", fontsize=9)
        bar = figure.colorbar(image, ax=list(axes), extend="min", aspect=40, pad=0.01)
        bar.set_label("test accuracy (%)")
        bar.outline.set_visible(False)
        first = rates.iloc[0]
        figure.suptitle(heading(first["dataset"], first["extractor"], first["model"]), fontsize=9.5)
    return figure
