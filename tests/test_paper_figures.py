"""The paper's figures as grids, and accuracy against epochs."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from synthetic_records import PERCENTILES, accuracies, private, sweep

from dpexp import paper_figures, paper_tables

OURS = paper_tables.build({"clipnorm": list(sweep(lambda e, p, c: 84.0 - c / 10, seeds=1, rates=[0.3]))})


def study_of_epochs() -> list[dict]:
    """Accuracy rises by a point per doubling and falls with the clip norm."""
    points = [(None, 1.0), (0, PERCENTILES[0]), (100, PERCENTILES[100])]
    return [
        private(2.0, norm, p, epochs=e, mechanism={"clip_norm": norm, "noise_multiplier": e / 10, "steps": 120 * e},
                history=accuracies(0.8 + e / 1000 - norm / 1000))
        for e in (5, 10, 20) for p, norm in points
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "shape", "titles"),
    [
        (1, (2, 3), ["Caltech-256", "Food-101", "CIFAR-100", "CIFAR-10", "TweetEval Emoji", "Emotion"]),
        (2, (1, 2), ["EMNIST", "Fashion-MNIST"]),
        (3, (1, 2), ["EMNIST", "CIFAR-100"]),
    ],
)
def test_a_figure_has_the_papers_panels_in_its_order(number: int, shape: tuple[int, int], titles: list[str]) -> None:
    axes = paper_figures.grid(OURS.table, number).axes
    assert axes[0].get_subplotspec().get_gridspec().get_geometry() == shape
    assert [ax.get_title(loc="left") for ax in axes] == [f"({x}) {t}" for x, t in zip("abcdef", titles, strict=False)]


def test_a_panel_without_our_points_shows_the_papers_and_says_what_it_needs() -> None:
    emnist, fashion = paper_figures.grid(OURS.table, 2).axes
    said = [[text.get_text() for text in ax.texts if "not run" in text.get_text()] for ax in (emnist, fashion)]
    assert said == [["not run: needs EMNIST"], []]
    papers = [bars.lines[0].get_ydata() for bars in emnist.containers if len(bars.lines[0].get_xdata())]
    assert [values[0] for values in papers] == [62.78, 65.90, 67.02]


def test_a_data_set_that_ran_with_other_features_is_not_said_to_be_missing() -> None:
    emoji = paper_tables.build({"clipnorm": [private(2.0, 1.0, dataset="tweeteval_emoji", extractor="minilm")]})
    said = [text.get_text() for text in paper_figures.grid(emoji.table, 1).axes[4].texts if "not" in text.get_text()]
    assert said == ["not run on DistilBERT features\n(MiniLM: figure of its own)"]


def test_figure_3_has_a_panel_for_what_the_paper_lacks() -> None:
    mlp = [private(2.0, c, dataset="fashion_mnist", model={"name": "mlp_tanh"}) for c in (1.0, 36.0)]
    table = paper_tables.build({"nonconvex_fashion": mlp}).table
    axes = paper_figures.grid(table, 3).axes
    assert [ax.get_title(loc="left") for ax in axes[2:]] == ["(c) Fashion-MNIST, not in the paper"]
    assert [label.get_text() for label in axes[2].get_xticklabels()] == ["1", "36"]
    assert len(paper_figures.grid(table, 2).axes) == 2


def test_the_shared_legend_has_filled_markers_where_any_panel_has_ours() -> None:
    emnist = [private(2.0, 1.0, dataset="emnist")]  # the first of two panels
    figure = paper_figures.grid(paper_tables.build({"clipnorm": emnist}).table, 2)
    marks = [line for line in figure.legends[0].findobj(Line2D) if line.get_marker() == "o"]
    assert [mark.get_markerfacecolor() == "white" for mark in marks] == [False, True]  # epsilon = 2, and "paper"


def test_the_two_layer_network_is_drawn_from_its_own_rows() -> None:
    mlp = [private(2.0, c, dataset="emnist", model={"name": "mlp_tanh"}) for c in (1.0, 36.0)]
    emnist = paper_figures.grid(paper_tables.build({"nonconvex": mlp}).table, 3).axes[0]
    ours = next(bars for bars in emnist.containers if bars.get_label() == "ε = 2")
    assert list(ours.lines[0].get_ydata()) == pytest.approx([81.0, 81.0])
    assert list(ours.lines[0].get_xdata()) == [0.0, 7.0]


def test_our_baseline_comes_before_the_papers_in_the_shared_legend() -> None:
    (legend,) = paper_figures.grid(OURS.table, 2).legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["ε = 2", "ε = 4", "ε = 6", "paper", "non-private", "non-private, paper"]


def test_epochs_are_on_the_axis_with_their_noise_and_a_curve_per_clip_norm() -> None:
    cells = paper_figures.epochs_cells(study_of_epochs())
    ax = paper_figures.accuracy_against_epochs(cells, Figure().subplots())
    assert [label.get_text() for label in ax.get_xticklabels()] == ["5\n0.50", "10\n1.00", "20\n2.00"]
    curves = {bars.get_label(): bars.lines[0] for bars in ax.containers}
    assert list(curves) == ["$\\tau = 1$", "$\\tau = 3.04$ (0th pctl.)", "$\\tau = 32.4$ (100th pctl.)"]
    assert list(curves["$\\tau = 1$"].get_ydata()) == pytest.approx([80.4, 80.9, 81.9])


def test_the_papers_accuracies_lie_across_the_epochs() -> None:
    ax = paper_figures.accuracy_against_epochs(paper_figures.epochs_cells(study_of_epochs()), Figure().subplots())
    levels = [line.get_ydata()[0] for line in ax.lines if list(line.get_xdata()) == [0, 1]]
    assert levels == [82.99, 82.82, 79.99]


def test_figures_are_named_as_in_the_paper_and_equal_results_give_equal_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(paper_figures.LAYOUTS) == [1, 2, 3]
    monkeypatch.setattr(paper_figures, "LAYOUTS", {3: paper_figures.LAYOUTS[3]})
    none, some = (paper_figures.epochs_cells(records) for records in ([], study_of_epochs()))
    first = paper_figures.write(OURS.table, none, tmp_path / "a")
    assert [path.name for path in first] == ["figure3.pdf", "figure3.png"]
    second = paper_figures.write(OURS.table, some, tmp_path / "b")
    assert [path.name for path in second[:2]] == ["epochs.pdf", "epochs.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second[2:]]
