"""Accuracy against clip norm: what is drawn where."""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from synthetic_records import PERCENTILES, baseline, private, sweep

from dpexp import curves
from dpexp.comparison import read_reference
from dpexp.tables import build

SWEEP = list(sweep(lambda e, p, c: 84.0 - c / 10, seeds=2, rates=[0.3]))


def fashion(records: list[dict]) -> pd.DataFrame:
    table, _ = build(records, "clipnorm")
    return table[(table["dataset"] == "fashion_mnist") & (table["extractor"] == "raw")]


def paper(dataset: str) -> pd.DataFrame:
    table, _ = build([], "clipnorm")
    return table[(table["dataset"] == dataset) & (table["model"] == "softmax") & (table["table"] != 3)]


def drawn(records: list[dict], axis: str = "auto") -> Axes:
    return curves.accuracy(fashion(records), Figure().subplots(), axis)


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
    assert list(x) == pytest.approx([curves.PAPER_FACTOR * norm for norm in (1.0, *PERCENTILES.values())])
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
    labels = [label for _, label in curves.legend(fashion([private(2.0, 1.0)]), ax)]
    assert labels == ["ε = 2", "ε = 4", "ε = 6", "paper", "non-private, paper"]
    assert drawn([baseline()]).lines


def test_an_empty_table_draws_empty_axes() -> None:
    table, _ = build([], "mine")
    assert curves.accuracy(table, Figure().subplots()).containers == []


@pytest.mark.parametrize("positions", [[0.0, 0.5, 1.0], [0.1, 0.11, 0.12, 0.9], [0.5] * 4, [0.3], []])
def test_labels_keep_their_distance_and_their_order_and_move_only_if_crowded(positions: list[float]) -> None:
    moved = curves.spread(positions, gap=0.1, highest=2.0)
    assert (np.diff(moved) >= 0.1 - 1e-12).all()
    assert np.sum(moved) == pytest.approx(np.sum(positions))
    if (np.diff(positions) >= 0.1).all():
        assert list(moved) == pytest.approx(positions)


def test_labels_stay_inside_the_axes() -> None:
    moved = curves.spread([0.9, 0.95, 0.96], gap=0.1, highest=1.0)
    assert list(moved) == pytest.approx([0.8, 0.9, 1.0])


def ticks(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_xticklabels()]


def test_clip_norms_that_a_logarithmic_axis_cannot_tell_apart_stand_by_rank() -> None:
    ax = curves.accuracy(paper("tweeteval_emoji"), Figure().subplots())
    assert ax.get_xscale() == "linear"
    assert list(ax.get_xticks()) == list(range(10))
    assert ticks(ax)[3:6] == ["10\n", "13.8\n0 %", "15.9\n10 %"]
    assert drawn(SWEEP).get_xscale() == "log"


def test_percentiles_that_the_paper_does_not_print_come_last_and_unvalued() -> None:
    ax = curves.accuracy(paper("caltech256"), Figure().subplots())
    assert ticks(ax) == ["0.1\n", "1\n", "5\n", "10\n", *(f"\n{p} %" for p in PERCENTILES)]


def test_by_rank_ours_stand_on_the_ticks_and_the_papers_beside_them() -> None:
    ax = drawn(SWEEP, "rank")
    ours, paper = ax.containers[0].lines[0], ax.containers[1].lines[0]
    assert list(ours.get_xdata()) == list(range(7))
    assert list(paper.get_xdata()) == pytest.approx([k + curves.PAPER_PLACES for k in range(7)])


def test_a_percentile_has_one_place_though_the_paper_rounds_it() -> None:
    points = curves.clip_norms(
        fashion([r for r in SWEEP if r["privacy"]["target_epsilon"] == 2.0]).query("method == 'dpsgd'")
    )
    assert list(points["clip_norm"]) == [1.0, *PERCENTILES.values()]


def test_the_papers_points_are_joined_only_where_none_are_ours() -> None:
    alone = curves.accuracy(paper("emnist"), Figure().subplots(), "rank")
    assert [bars.lines[0].get_linestyle() for bars in alone.containers if bars.lines[0].get_xdata().size] == [
        "-",
        "--",
        "-.",
    ]
    beside = [bars.lines[0] for bars in drawn(SWEEP).containers if not bars.get_label().startswith("ε")]
    assert {line.get_linestyle() for line in beside} == {"None"}


def test_every_data_set_of_the_paper_can_be_drawn() -> None:
    for dataset in read_reference()["dataset"].unique():
        ax = curves.accuracy(paper(dataset), Figure().subplots(), "rank")
        assert all(math.isfinite(x) for bars in ax.containers for x in bars.lines[0].get_xdata())


def test_an_axis_without_percentiles_does_not_speak_of_them() -> None:
    mlp = [private(2.0, c, model={"name": "mlp_tanh"}) for c in (1.0, 6.0)]
    table = build(mlp, "nonconvex_fashion")[0].query("runs > 0")
    assert curves.x_label(table) == "clip norm"
    assert "percentile" in curves.x_label(fashion(SWEEP))
    ax = curves.accuracy(table, Figure().subplots(), "rank")
    assert ticks(ax) == ["1", "6"]


def test_the_baseline_does_not_lie_on_the_frame() -> None:
    levels = [82.5, 84.35, 86.0]  # below the best, within the margin above, beyond it
    for level in levels:
        table = fashion(SWEEP).assign(paper_mean=math.nan, paper_std=math.nan)
        table.loc[table["method"] == "non_private", "accuracy_mean"] = level
        low, high = curves.accuracy(table, Figure().subplots()).get_ylim()
        assert level < high - 0.04 * (high - low)


def test_a_budget_that_only_the_paper_has_is_hollow_in_the_legend() -> None:
    alone = curves.accuracy(paper("emnist"), Figure().subplots())
    handles = dict((label, handle) for handle, label in curves.legend(paper("emnist"), alone))
    assert handles["ε = 2"].lines[0].get_markerfacecolor() == "white"
    ours = dict((label, handle) for handle, label in curves.legend(fashion(SWEEP), drawn(SWEEP)))
    assert ours["ε = 2"].lines[0].get_markerfacecolor() != "white"
