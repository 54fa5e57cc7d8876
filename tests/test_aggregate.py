"""Runs -> cells: what is averaged, what is chosen, what is said about what is missing."""

import math
import statistics
import subprocess
import sys

import pandas as pd
import pytest
from synthetic_records import RATES, accuracies, baseline, private, record, sweep

from dpexp import aggregate


def cells(*records: dict) -> pd.DataFrame:
    return aggregate.cells(aggregate.to_frame(records))


def only(frame: pd.DataFrame) -> pd.Series:
    assert len(frame) == 1
    return frame.iloc[0]


def grid(rates: list[float], seeds: list[int]) -> dict:
    return {"seeds": seeds, "train": {"learning_rate": rates}}


def test_a_cell_is_the_mean_and_sample_deviation_over_last_epochs_and_seeds() -> None:
    curves = [(0.1, 0.80, 0.82), (0.2, 0.81, 0.83)]
    runs = [record(seed=s, last_epochs=2, history=accuracies(*c)) for s, c in enumerate(curves)]
    cell = only(cells(*runs))
    percent = [80, 82, 81, 83]
    assert cell["accuracy_mean"] == pytest.approx(statistics.mean(percent), rel=1e-12)
    assert cell["accuracy_std"] == pytest.approx(statistics.stdev(percent), rel=1e-12)
    assert (cell["runs"], cell["values"], cell["seeds"]) == (2, 4, (0, 1))
    assert cell["note"] == ""


def test_a_curve_shorter_than_the_last_epochs_is_averaged_whole() -> None:
    cell = only(cells(record(history=accuracies(0.5, 0.6))))
    assert cell["accuracy_mean"] == pytest.approx(55.0)
    assert cell["values"] == 2


def test_one_value_has_no_deviation() -> None:
    assert math.isnan(only(cells(record(history=accuracies(0.5))))["accuracy_std"])


def test_the_learning_rate_is_chosen_on_test_or_on_validation_as_the_runs_say() -> None:
    better_on_test = accuracies(0.9, validation_accuracy=[0.5])
    better_on_validation = accuracies(0.8, validation_accuracy=[0.6])
    for select_on, rate, accuracy in (("test", 1.0, 90.0), ("validation", 3.0, 80.0)):
        runs = [
            record(learning_rate=1.0, select_on=select_on, history=better_on_test),
            record(learning_rate=3.0, select_on=select_on, history=better_on_validation),
        ]
        cell = only(cells(*runs))
        assert cell["learning_rate"] == rate
        assert cell["accuracy_mean"] == pytest.approx(accuracy)


def test_a_lucky_rate_with_fewer_seeds_is_not_chosen() -> None:
    config = grid([0.3, 1.0], [0, 1])
    runs = [record(learning_rate=0.3, seed=s, history=accuracies(0.7), config=config) for s in (0, 1)]
    lucky = record(learning_rate=1.0, seed=0, history=accuracies(0.99), config=config)
    cell = only(cells(*runs, lucky))
    assert cell["learning_rate"] == 0.3
    assert cell["runs"] == 2
    assert "incomplete: 1 of 2 learning rates" in cell["note"]


def test_a_cell_without_all_its_seeds_says_so() -> None:
    config = grid([0.3], [0, 1, 2])
    cell = only(cells(*(record(learning_rate=0.3, seed=s, config=config) for s in (0, 1))))
    assert cell["note"] == "incomplete: 2 of 3 seeds"


@pytest.mark.parametrize(
    "broken", [{"status": "diverged"}, {"history": accuracies(0.9, None)}, {"history": accuracies()}]
)
def test_a_diverged_run_disqualifies_its_rate_and_is_named(broken: dict) -> None:
    config = grid([0.3, 1.0, 3.0], [0, 1])
    good = [
        record(learning_rate=rate, seed=s, history=accuracies(0.7 + rate / 100), config=config)
        for rate in (0.3, 1.0, 3.0)
        for s in (0, 1)
    ]
    good[-1] |= broken
    good[-2] |= {"history": accuracies(0.99)}
    cell = only(cells(*good))
    assert cell["learning_rate"] == 1.0
    assert cell["accuracy_mean"] == pytest.approx(71.0)
    assert cell["note"] == "diverged at learning rate 3"


@pytest.mark.parametrize("broken", [{"status": "diverged"}, {"history": accuracies(0.9, None)}])
def test_a_cell_in_which_everything_diverged_has_no_number(broken: dict) -> None:
    cell = only(cells(record(**broken)))
    assert math.isnan(cell["accuracy_mean"])
    assert math.isnan(cell["learning_rate"])
    assert cell["runs"] == 0
    assert cell["note"] == "no learning rate has a usable run; diverged at learning rate 1"


def test_a_failed_run_is_left_out_and_counted() -> None:
    config = grid([1.0], [0, 1])
    cell = only(cells(record(seed=0, config=config), record(seed=1, status="failed", config=config)))
    assert cell["runs"] == 1
    assert cell["note"] == "incomplete: 1 of 2 seeds; 1 failed run left out"


def test_a_best_rate_at_the_edge_of_the_grid_is_noted() -> None:
    def best_at(rate: float) -> str:
        runs = [record(learning_rate=r, history=accuracies(0.9 if r == rate else 0.5)) for r in RATES]
        return only(cells(*runs))["note"]

    assert [best_at(rate) for rate in RATES] == [
        "best learning rate is at the edge of the grid",
        "",
        "",
        "",
        "best learning rate is at the edge of the grid",
    ]


def test_the_smaller_of_two_equally_good_rates_is_chosen() -> None:
    runs = [record(learning_rate=rate, history=accuracies(0.9)) for rate in (3.0, 1.0)]
    assert only(cells(*runs))["learning_rate"] == 1.0


def test_a_run_given_twice_counts_once() -> None:
    assert only(cells(record(), record()))["runs"] == 1


def test_two_runs_of_one_cell_rate_and_seed_are_refused() -> None:
    with pytest.raises(ValueError, match=r"runs a, b .* seed 0: a seed must count once"):
        cells(record(run_id="a"), record(run_id="b"))


@pytest.mark.parametrize(
    "other",
    [
        {"epochs": 20},
        {"features": "other"},
        {"noise": "shared"},
        {"select_on": "validation", "history": accuracies(0.8, validation_accuracy=[0.8])},
        {"extractor": "resnet18"},
        {"mechanism": {"expected_batch_size": 250.0}},
        {"model": {"bias": False}},
    ],
)
def test_runs_under_other_settings_are_another_cell(other: dict) -> None:
    frame = cells(record(run_id="a"), record(run_id="b", **other))
    assert list(frame["runs"]) == [1, 1]


def test_a_percentile_is_one_cell_even_where_its_clip_norm_differs_between_seeds() -> None:
    runs = [private(2.0, norm, 0, seed=s) for s, norm in enumerate((3.0, 3.2))]
    cell = only(cells(*runs))
    assert cell["runs"] == 2
    assert cell["clip_norm"] == pytest.approx(3.1)


def test_infinite_epsilon_and_clip_norm_are_read() -> None:
    cell = only(cells(baseline()))
    assert cell["epsilon"] == math.inf
    assert cell["clip_norm"] == math.inf
    assert math.isnan(cell["target_epsilon"])


def test_runs_with_given_noise_are_cells_by_noise() -> None:
    runs = [
        record(run_id=str(s), mechanism={"noise_multiplier": s}, privacy={"target_epsilon": None}) for s in (0.0, 1.0)
    ]
    assert list(cells(*runs)["noise_multiplier"]) == [0.0, 1.0]


def test_no_records_give_empty_frames_with_all_columns() -> None:
    frame = aggregate.to_frame([])
    assert frame.empty
    assert list(aggregate.cells(frame).columns) == list(aggregate.CELL_COLUMNS)
    assert aggregate.by_learning_rate(frame).empty


def test_cells_do_not_depend_on_the_order_of_records() -> None:
    records = list(sweep(lambda e, p, c: 80.0 - c / 10, seeds=2))
    pd.testing.assert_frame_equal(cells(*records), cells(*reversed(records)))


def test_a_full_sweep_has_a_cell_per_budget_and_clip_norm_and_a_baseline() -> None:
    frame = cells(*sweep(lambda e, p, c: 80.0 - c / 10))
    assert len(frame) == 3 * 7 + 1
    assert (frame["learning_rate"] == 0.3).all()
    assert (frame["note"] == "").all()


@pytest.mark.parametrize("module", ["tables", "figures"])
def test_reports_import_no_training_library(module: str) -> None:
    heavy = {"torch", "hydra", "opacus", "wandb", *(["matplotlib"] if module != "figures" else [])}
    code = f"import sys, dpexp.{module}; sys.exit(bool({heavy!r} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_baseline_keeps_its_training_accuracy() -> None:
    assert only(cells(baseline(train_accuracy=0.86)))["train_accuracy"] == 0.86
    assert math.isnan(only(cells(baseline(train_accuracy=None)))["train_accuracy"])


def test_learning_rates_of_a_percentile_carry_its_clip_norm() -> None:
    frame = aggregate.to_frame([private(2.0, 3.0, 0, learning_rate=r) for r in (1.0, 3.0)])
    assert list(aggregate.by_learning_rate(frame)["clip_norm"]) == [3.0, 3.0]


def test_a_cell_names_the_accountants_that_were_used() -> None:
    used = [
        private(2.0, 1.0, seed=s, privacy={"target_epsilon": 2.0, "accountant_used": a}) for s, a in enumerate("ba")
    ]
    assert only(cells(*used))["accountants_used"] == ("a", "b")
