"""The map over clip norm and learning rate: every number in its place, and the ridge."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from synthetic_records import accuracies, private

from dpexp import aggregate, heatmaps

TAUS, ETAS = (1.0, 4.0, 10.0), (0.01, 0.1, 0.25, 1.0)


def rates(skip: tuple[float, float] | None = None, **broken: object) -> pd.DataFrame:
    """Accuracy peaks where eta * tau = 1; `broken` changes the run at tau 10, eta 1."""
    grid = [(tau, eta) for tau in TAUS for eta in ETAS if (tau, eta) != skip]
    records = []
    for tau, eta in grid:
        history = accuracies(0.8 - abs(np.log10(eta * tau)) / 10 + 0.001 * (tau == 4))
        changes = broken if (tau, eta) == (10.0, 1.0) else {}
        records.append(private(2.0, tau, learning_rate=eta, history=history, **changes))
    return aggregate.by_learning_rate(aggregate.to_frame(records))


def drawn(frame: pd.DataFrame) -> Axes:
    ax = Figure().subplots()
    heatmaps.learning_rate_map(frame, ax, Normalize(60, 80))
    return ax


def test_rows_are_learning_rates_and_columns_clip_norms_both_ascending() -> None:
    ax = drawn(rates())
    values = np.asarray(ax.images[0].get_array())
    assert values.shape == (4, 3)
    assert values[:, 1] == pytest.approx([80.1 - 10 * abs(np.log10(eta * 4)) for eta in ETAS])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0.01", "0.1", "0.25", "1"]
    assert "80.1" in {text.get_text() for text in ax.texts}


def test_frames_stand_at_the_best_learning_rate_of_each_clip_norm() -> None:
    centres = [(round(p.get_x() + 0.47), round(p.get_y() + 0.47)) for p in drawn(rates()).patches]
    assert centres == [(0, 3), (1, 2), (2, 1)]


def test_the_ridge_passes_through_the_best_cell_and_keeps_the_product() -> None:
    values = np.zeros((4, 3))
    values[2, 1] = 1.0
    product, rows = heatmaps.ridge(values, np.array(TAUS), np.array(ETAS))
    assert product == 1.0
    assert rows == pytest.approx([3.0, 2.0, 1.0])


def test_the_ridge_ends_where_the_grid_does() -> None:
    values = np.zeros((4, 3))
    values[3, 2] = 1.0  # eta * tau = 10: eta = 10 and 2.5 at the others are above the grid
    _, rows = heatmaps.ridge(values, np.array(TAUS), np.array(ETAS))
    assert np.isnan(rows[:2]).all()
    assert rows[2] == 3.0


def test_diverged_runs_are_crosses_and_missing_ones_empty() -> None:
    ax = drawn(rates(skip=(1.0, 0.01), status="diverged"))
    values = np.asarray(np.ma.filled(ax.images[0].get_array(), np.nan))
    assert np.isnan(values[0, 0])
    assert np.isnan(values[3, 2])
    assert [text.get_position() for text in ax.texts if text.get_text() == "×"] == [(2, 3)]


def test_text_is_dark_on_light_and_light_on_dark() -> None:
    colours = {text.get_text(): text.get_color() for text in drawn(rates()).texts if "." in text.get_text()}
    assert colours["80.1"] == "black"
    assert colours["66.1"] == "white"


def test_one_panel_a_budget_shares_one_scale() -> None:
    both = pd.concat([rates(), rates().assign(target_epsilon=4.0)])
    figure = heatmaps.draw(both)
    images = [ax.images[0] for ax in figure.axes if ax.images]
    assert [ax.get_title(loc="left") for ax in figure.axes[:2]] == ["ε = 2", "ε = 4"]
    assert images[0].norm is images[1].norm
    assert images[0].norm.vmax == pytest.approx(80.1)


def test_a_map_explains_its_marks_and_speaks_of_percentiles_only_where_there_are_any() -> None:
    figure = heatmaps.draw(rates())
    assert figure.get_supxlabel().split("\n") == ["clip norm $\\tau$", heatmaps.MARKS]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["1", "4", "10"]
    percentiles = heatmaps.draw(rates().assign(percentile=[p for p in (0.0, 10.0, 80.0) for _ in ETAS]))
    assert "percentile" in percentiles.get_supxlabel()
