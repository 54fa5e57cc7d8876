"""Our cells beside the paper's numbers."""

import math

import pandas as pd
import pytest
from synthetic_records import accuracies, baseline, private, record, sweep

from dpexp import aggregate, comparison

REFERENCE = comparison.read_reference()


def table(*records: dict) -> pd.DataFrame:
    return comparison.against_paper(aggregate.cells(aggregate.to_frame(records)), REFERENCE)


def paper_row(frame: pd.DataFrame, **wanted: object) -> pd.Series:
    rows = frame[frame["table"].notna()]
    for name, value in wanted.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1
    return rows.iloc[0]


def test_every_row_of_the_paper_comes_first_in_its_order_even_without_records() -> None:
    for frame in (table(), table(*sweep(lambda e, p, c: 80.0, seeds=1, rates=[0.3]), record(dataset="mine"))):
        head = frame.iloc[: len(REFERENCE)]
        assert list(frame.columns) == list(comparison.COLUMNS)
        for name in ("dataset", "model", "method"):
            assert list(head[name]) == list(REFERENCE[name])
        assert list(head["table"]) == list(REFERENCE["table"])
        assert list(head["paper_mean"]) == list(REFERENCE["accuracy_mean"])
        assert list(head["paper_std"]) == list(REFERENCE["accuracy_std"])


def test_nothing_ran_means_no_number_and_a_reason_in_every_row() -> None:
    frame = table()
    assert frame["accuracy_mean"].isna().all()
    assert (frame["runs"] == 0).all()
    assert frame["note"].str.startswith("not run: needs ").all()
    assert paper_row(frame, dataset="caltech256", method="non_private")["note"] == (
        "not run: needs Caltech-256, get it by python scripts/get_data.py caltech256 and run "
        "python -m dpexp.run +sweep=clipnorm dataset=caltech256 extractor=resnet34"
    )


def test_fixed_clip_norms_match_by_value_and_percentiles_by_percentile() -> None:
    frame = table(private(2.0, 1.0), private(2.0, 3.0439, 0, history=accuracies(0.5)), baseline())
    fashion = {"dataset": "fashion_mnist", "epsilon": 2.0}
    assert paper_row(frame, **fashion, clip_norm=1.0)["accuracy_mean"] == pytest.approx(81.0)
    smallest = paper_row(frame, **fashion, percentile=0.0)
    assert smallest["accuracy_mean"] == pytest.approx(50.0)
    assert smallest["clip_norm"] == 3.0439
    assert (frame["accuracy_mean"].notna()).sum() == 3
    assert len(frame) == len(REFERENCE)


def test_a_fixed_clip_norm_is_not_shown_in_the_row_of_a_percentile() -> None:
    frame = table(private(2.0, 3.0))
    assert math.isnan(paper_row(frame, dataset="fashion_mnist", epsilon=2.0, percentile=0.0)["accuracy_mean"])
    assert frame.iloc[-1]["clip_norm"] == 3.0
    assert pd.isna(frame.iloc[-1]["table"])


def test_percentiles_that_count_the_bias_are_not_the_papers() -> None:
    frame = table(private(2.0, 3.357, 0, lipschitz={"include_bias": True}))
    assert frame.iloc[: len(REFERENCE)]["accuracy_mean"].isna().all()
    assert "constants with the bias's 1" in frame.iloc[-1]["note"]


@pytest.mark.parametrize("dataset", ["cifar10", "emnist", "emotion"])
def test_other_features_are_never_shown_as_the_papers_row(dataset: str) -> None:
    needed = comparison.PAPER_EXTRACTORS[dataset]
    frame = table(private(2.0, 1.0, dataset=dataset, extractor="scatter"))
    head, extra = frame.iloc[: len(REFERENCE)], frame.iloc[len(REFERENCE) :]
    assert head["accuracy_mean"].isna().all()
    assert list(extra["extractor"]) == ["scatter"]
    assert (
        f"stand in for the paper's {needed} features, and nothing here claims to match the paper"
        in extra.iloc[0]["note"]
    )
    assert math.isnan(extra.iloc[0]["paper_mean"])


def test_another_head_is_never_shown_as_the_papers_row() -> None:
    frame = table(private(2.0, 1.0, dataset="emnist", model={"name": "mlp_tanh"}))
    assert list(frame[frame["accuracy_mean"].notna()]["table"]) == [7]


def test_several_settings_of_one_row_are_listed_and_none_is_picked() -> None:
    frame = table(*(private(2.0, 1.0, epochs=e) for e in (10, 50)))
    row = paper_row(frame, dataset="fashion_mnist", epsilon=2.0, clip_norm=1.0)
    assert math.isnan(row["accuracy_mean"])
    assert row["note"] == "2 settings fit this row; each is listed below the paper's rows"
    notes = [note.split("; ")[0] for note in frame.iloc[len(REFERENCE) :]["note"]]
    assert notes == ["steps = 1200, epochs = 10", "steps = 6000, epochs = 50"]


def test_a_row_that_departs_from_the_papers_setting_says_so() -> None:
    config = {"train": {"learning_rate": [10.0**-k for k in range(16)]}}
    runs = [private(2.0, 1.0, seed=s, config=config, privacy={"target_epsilon": 2.0, "delta": 1e-6}) for s in range(3)]
    row = paper_row(table(*runs), dataset="fashion_mnist", epsilon=2.0, clip_norm=1.0)
    assert row["note"].split("; ")[-1] == "delta = 1e-06 (paper: 1e-05)"


def test_a_smaller_grid_than_the_papers_is_named_in_its_rows() -> None:
    row = paper_row(table(private(2.0, 1.0)), dataset="fashion_mnist", epsilon=2.0, clip_norm=1.0)
    assert row["note"] == "learning rates 1 (paper: 16), seeds 1 (paper: 3)"
    assert table(record(dataset="mine")).iloc[-1]["note"] == ""


def test_report_noisy_max_is_one_row_however_its_clip_norms_fall() -> None:
    features = {"dataset": "cifar100", "extractor": "resnet18"}
    drawn = [
        private(2.0, 10.0 + s, seed=s, method=m, **features) for s in range(3) for m in ("rnmm_paper", "rnmm_sound")
    ]
    frame = table(*[r | {"run_id": f"{r['method']}{r['seed']}"} for r in drawn])
    row = paper_row(frame, dataset="cifar100", epsilon=2.0, method="rnmm")
    assert (row["runs"], row["clip_norm"]) == (3, 11.0)
    assert list(frame.iloc[len(REFERENCE) :]["method"]) == ["rnmm_sound"]


def test_the_best_of_table_3_is_the_best_clip_norm_of_ours() -> None:
    features = {"dataset": "cifar100", "extractor": "resnet18"}
    frame = table(
        private(2.0, 0.1, history=accuracies(0.54), **features),
        private(2.0, 10.0, history=accuracies(0.55), **features),
    )
    row = paper_row(frame, dataset="cifar100", epsilon=2.0, method="dpsgd_best")
    assert (row["accuracy_mean"], row["clip_norm"]) == (pytest.approx(55.0), 10.0)
    assert frame["table"].notna().all()


def test_a_run_without_a_target_shows_its_achieved_epsilon() -> None:
    endless = {"target_epsilon": None, "epsilon": "inf", "epsilon_rdp": "inf"}
    frame = table(record(mechanism={"noise_multiplier": 0.0}, privacy=endless))
    assert frame.iloc[-1]["epsilon"] == math.inf
    assert "noise multiplier 0 given" in frame.iloc[-1]["note"]


def test_reference_covers_the_papers_tables_with_known_extractors() -> None:
    assert sorted(REFERENCE["table"].unique()) == [3, 4, 5, 6, 7]
    assert REFERENCE["extractor"].notna().all()
    assert set(REFERENCE["method"]) == set(comparison.MATCHES)
