"""A study's figures: which are drawn, their names, and that equal results give equal bytes."""

from pathlib import Path

from synthetic_records import baseline, private, record, sweep

from dpexp import figures
from dpexp.tables import build

SWEEP = list(sweep(lambda e, p, c: 84.0 - c / 10, seeds=2, rates=[0.3]))


def test_runs_without_clipping_have_no_place_on_the_axis() -> None:
    endless = {"target_epsilon": None, "epsilon": "inf"}
    unclipped = record(dataset="mine", mechanism={"clip_norm": "inf", "noise_multiplier": 0.0}, privacy=endless)
    table, _ = build([unclipped], "mine")
    (ax,) = figures.draw(table).axes
    assert ax.containers == []


def test_an_axis_by_rank_says_so() -> None:
    crowded, apart = ([private(2.0, c, dataset="mine") for c in norms] for norms in ((0.1, 5.0, 5.1), (1.0, 5.0)))
    labels = [figures.draw(build(records, "mine")[0]).axes[0].get_xlabel() for records in (crowded, apart)]
    assert labels == ["clip norm (by rank)", "clip norm"]


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


def test_a_title_with_a_slash_makes_no_folder(tmp_path: Path) -> None:
    figures.write([private(2.0, 1.0, dataset="../a/b")], tmp_path, "mine")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"mine-.._a_b-raw.pdf", "mine-.._a_b-raw.png"}


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


def test_several_learning_rates_are_drawn_as_a_map(tmp_path: Path) -> None:
    records = [private(2.0, 1.0, learning_rate=rate) for rate in (0.1, 0.3)]
    names = [path.name for path in figures.write(records, tmp_path, "clipnorm")]
    assert names[2:] == [f"clipnorm-fashion_mnist-raw-learning_rates.{kind}" for kind in ("pdf", "png")]


def test_a_study_without_clip_norms_has_no_figure(tmp_path: Path) -> None:
    chosen = [private(2.0, 3.0, method="rnmm_sound"), baseline()]
    assert figures.write(chosen, tmp_path, "rnmm") == []
