"""Figures: what is drawn where, and that equal results give equal bytes."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from synthetic_records import PERCENTILES, baseline, private, record, sweep

from dpexp import figures
from dpexp.tables import build

SWEEP = list(sweep(lambda e, p, c: 84.0 - c / 10, seeds=2, rates=[0.3]))


def fashion(records: list[dict]) -> pd.DataFrame:
    table, _ = build(records, "clipnorm")
    return table[(table["dataset"] == "fashion_mnist") & (table["extractor"] == "raw")]


def drawn(records: list[dict]) -> Axes:
    return figures.accuracy(fashion(records), Figure().subplots())


def texts(ax: Axes) -> list[str]:
    return [annotation.get_text().strip() for annotation in ax.texts]


def test_each_budget_is_a_curve_of_our_means_with_bars_of_one_deviation() -> None:
    ax = drawn(SWEEP)
    curves = [bars for bars in ax.containers if bars.get_label().startswith("ε")]
    assert [bars.get_label() for bars in curves] == ["ε = 2", "ε = 4", "ε = 6"]
    line, _, (bars,) = curves[0].lines
    x, y = line.get_data()
    assert list(x) == [1.0, *PERCENTILES.values()]
    rows = fashion(SWEEP).query("epsilon == 2")
    assert list(y) == list(rows["accuracy_mean"])
    heights = [np.ptp(segment[:, 1]) / 2 for segment in bars.get_segments()]
    assert heights == pytest.approx(list(rows["accuracy_std"]))


def test_the_papers_points_are_hollow_and_stand_to_the_right_of_ours() -> None:
    ax = drawn(SWEEP)
    paper = [bars.lines[0] for bars in ax.containers if not bars.get_label().startswith("ε")]
    assert len(paper) == 3
    assert all(line.get_markerfacecolor() == "white" for line in paper)
    x, y = paper[0].get_data()
    assert list(x) == pytest.approx([figures.PAPER_SHIFT * norm for norm in (1.0, *PERCENTILES.values())])
    assert list(y) == [82.99, 82.82, 82.24, 82.27, 82.05, 81.24, 79.99]


def test_the_axis_is_logarithmic_and_names_fixed_norms_by_value_and_percentiles_by_both() -> None:
    ax = drawn(SWEEP)
    assert ax.get_xscale() == "log"
    labels = ["1", "3.0\n0 %", "10.0\n10 %", "12.2\n20 %", "15.6\n40 %", "22.3\n80 %", "32.4\n100 %"]
    assert [text for text in texts(ax) if text != "$G_1$"] == labels
    assert texts(ax).count("$G_1$") == 1


def test_baselines_are_lines_across_ours_and_the_papers() -> None:
    levels = [line.get_ydata()[0] for line in drawn(SWEEP).lines if list(line.get_xdata()) == [0, 1]]
    assert levels == pytest.approx([83.95, 84.44])  # two seeds lie 0.1 below and at 84


def test_only_what_was_run_is_drawn() -> None:
    ax = drawn([private(2.0, 1.0)])
    ours = [bars.lines[0] for bars in ax.containers if bars.get_label() == "ε = 2"]
    assert len(ours[0].get_xdata()) == 1
    labels = [label for _, label in figures.legend(fashion([private(2.0, 1.0)]), ax)]
    assert labels == ["ε = 2", "ε = 4", "ε = 6", "paper", "non-private, paper"]
    assert drawn([baseline()]).lines


def test_runs_without_clipping_have_no_place_on_the_axis() -> None:
    endless = {"target_epsilon": None, "epsilon": "inf"}
    unclipped = record(dataset="mine", mechanism={"clip_norm": "inf", "noise_multiplier": 0.0}, privacy=endless)
    table, _ = build([unclipped], "mine")
    (ax,) = figures.draw(table).axes
    assert ax.containers == []


def test_an_empty_table_draws_empty_axes() -> None:
    table, _ = build([], "mine")
    assert figures.accuracy(table, Figure().subplots()).containers == []


@pytest.mark.parametrize("positions", [[0.0, 0.5, 1.0], [0.1, 0.11, 0.12, 0.9], [0.5] * 4, [0.3], []])
def test_labels_keep_their_distance_and_their_order_and_move_only_if_crowded(positions: list[float]) -> None:
    moved = figures.spread(positions, gap=0.1, highest=2.0)
    assert (np.diff(moved) >= 0.1 - 1e-12).all()
    assert np.sum(moved) == pytest.approx(np.sum(positions))
    if (np.diff(positions) >= 0.1).all():
        assert list(moved) == pytest.approx(positions)


def test_labels_stay_inside_the_axes() -> None:
    moved = figures.spread([0.9, 0.95, 0.96], gap=0.1, highest=1.0)
    assert list(moved) == pytest.approx([0.8, 0.9, 1.0])


def test_the_papers_figure_has_its_name_and_others_are_named_by_what_they_show(tmp_path: Path) -> None:
    records = [
        *SWEEP,
        record(dataset="my_data"),
        record(dataset="cifar100", extractor="resnet18", model={"name": "mlp_tanh"}),
    ]
    names = {path.name for path in figures.write(records, tmp_path, "clipnorm")}
    stems = {"figure2b", "clipnorm-my_data-raw", "clipnorm-cifar100-resnet18-mlp_tanh"}
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("pdf", "png")}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == names


def test_another_studys_figure_does_not_take_the_papers_name(tmp_path: Path) -> None:
    paths = figures.write([private(2.0, 1.0)], tmp_path, "smoke")
    assert [path.name for path in paths] == ["smoke-fashion_mnist-raw.pdf", "smoke-fashion_mnist-raw.png"]


def test_no_runs_give_no_figure(tmp_path: Path) -> None:
    assert figures.write([], tmp_path, "clipnorm") == []


def test_equal_results_give_equal_bytes_and_no_dates(tmp_path: Path) -> None:
    first = figures.write(SWEEP, tmp_path / "a", "clipnorm")
    second = figures.write(SWEEP, tmp_path / "b", "clipnorm")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert b"CreationDate" not in one.read_bytes()
