"""Privately chosen clip norms in figures: drawn where they lie, and beside where the seeds' choices land."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from synthetic_records import accuracies, private, sweep

from dpexp import choices, curves, figures
from dpexp.tables import build

NAMES = ["RNMM as printed (no guarantee)", "private minimum (proven)"]
LANDINGS = {
    "rnmm_paper": {"draws": 100, "at": {"0": 1.0, "10": 3.0, "50": 16.0, "90": 75.0, "100": 95.0}},
    "rnmm_sound": {"draws": 100, "at": {"0": 0.0, "10": 0.0, "50": 0.0, "90": 0.5, "100": 2.0}},
}
SHARES = {"rnmm_paper": 0.0, "rnmm_sound": 0.6}
for name, share in SHARES.items():
    LANDINGS[name]["at_or_below_minimum"] = share


def chosen(method: str, norms: list[float], accuracy: float) -> list[dict]:
    """Seeds of one budget, each with its own clip norm."""
    how = {"mode": method, "epsilon": 0.3, "landing": LANDINGS[method]}
    return [
        private(2.0, norm, method=method, seed=seed, study="rnmm", history=accuracies(accuracy)) | {"private_clip": how}
        for seed, norm in enumerate(norms)
    ]


SWEEP = list(sweep(lambda e, p, c: 84.0 - c / 10, seeds=1, rates=[0.1, 0.3]))
CHOICES = [*chosen("rnmm_paper", [8.0, 22.0], 0.82), *chosen("rnmm_sound", [0.4, 0.6], 0.83)]


def fashion() -> pd.DataFrame:
    table, _ = build([*SWEEP, *CHOICES], "rnmm")
    return table[(table["dataset"] == "fashion_mnist") & (table["extractor"] == "raw")]


def markers(ax: Axes) -> dict[str, tuple[float, float]]:
    lines = [bars.lines[0] for bars in ax.containers if bars.lines[0].get_marker() in choices.MARKERS.values()]
    return {line.get_marker(): (line.get_xdata()[0], line.get_ydata()[0]) for line in lines}


def test_a_private_choice_stands_at_its_mean_clip_norm_and_its_accuracy() -> None:
    found = markers(curves.accuracy(fashion(), Figure().subplots()))
    assert found["X"] == pytest.approx((15.0, 82.0))
    assert found["*"] == pytest.approx((0.5, 83.0))


def test_a_choice_has_the_colour_of_its_budget() -> None:
    ax = curves.accuracy(fashion(), Figure().subplots())
    curve = next(bars.lines[0] for bars in ax.containers if bars.get_label() == "ε = 2")
    mark = next(bars.lines[0] for bars in ax.containers if bars.lines[0].get_marker() == "X")
    assert to_rgba(mark.get_color()) == to_rgba(curve.get_color())


def test_the_axis_reaches_choices_outside_the_swept_clip_norms() -> None:
    low, high = curves.accuracy(fashion(), Figure().subplots()).get_xlim()
    assert low < 0.5
    assert high > 32.4


def test_by_rank_a_choice_stands_between_its_neighbours() -> None:
    points = pd.DataFrame({"clip_norm": [1.0, 4.0, 16.0], "x": [0.0, 1.0, 2.0]})
    assert curves.places(points, [2.0, 16.0, 0.1]) == pytest.approx([0.5, 2.0, 0.0])


def test_the_legend_says_which_choice_has_a_guarantee() -> None:
    table = fashion()
    labels = [label for _, label in curves.legend(table, curves.accuracy(table, Figure().subplots()))]
    assert labels[-2:] == NAMES


def test_landings_are_drawn_as_stored() -> None:
    ax = choices.landing(LANDINGS, Figure().subplots())
    ranges = [tuple(line.get_xdata()) for line in ax.lines]
    assert ranges == [(1.0, 95.0), (3.0, 75.0), (16.0,), (0.0, 2.0), (0.0, 0.5), (0.0,)]
    assert [label.get_text().replace("\n", " ") for label in ax.get_yticklabels()] == NAMES
    assert [text.get_text().split(" in ")[1] for text in ax.texts] == ["0 % of 100 draws", "60 % of 100 draws"]


def test_a_studys_landings_are_those_of_its_own_data_set() -> None:
    other = chosen("rnmm_paper", [1.0], 0.5)[0] | {"dataset": "mine"}
    found = figures.landings([*SWEEP, *CHOICES[2:], other], ["fashion_mnist", "raw", "softmax"])
    assert found == {"rnmm_sound": LANDINGS["rnmm_sound"]}


def test_the_study_of_choices_draws_one_figure_and_leaves_the_map_to_the_sweep(tmp_path: Path) -> None:
    paths = figures.write([*SWEEP, *CHOICES], tmp_path, "rnmm")
    assert [path.name for path in paths] == ["rnmm-fashion_mnist-raw.pdf", "rnmm-fashion_mnist-raw.png"]
    assert len(figures.write(SWEEP, tmp_path, "clipnorm")) == 4
