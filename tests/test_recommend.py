"""The recommendation follows from the records: its range, its premise, its numbers."""

import math

import pandas as pd
import pytest
import torch
from synthetic_records import PERCENTILES, accuracies, baseline, private

from dpexp import aggregate, lipschitz, recommend


def frame(*records: dict) -> pd.DataFrame:
    return aggregate.to_frame(records)


def sentences(*records: dict) -> str:
    runs = frame(*records)
    return "\n".join(
        line for lines in recommend.recommendations(runs, aggregate.cells(runs)).values() for line in lines
    )


@pytest.mark.parametrize("stored", [True, False])
def test_the_constant_with_and_without_bias_follow_from_each_other(stored: bool) -> None:
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    direct = {bias: float(lipschitz.constants(x, bias).min()) for bias in (True, False)}
    known = {"include_bias": stored, "percentiles": {"0": direct[stored], "100": 9.0}}
    assert recommend.smallest_constants(frame(private(2.0, 1.0, lipschitz=known))) == pytest.approx(direct)


def test_a_constant_of_zero_pixels_stays_a_number() -> None:
    known = {"include_bias": True, "percentiles": {"0": 1.4142}}  # sqrt(2), rounded down
    assert recommend.smallest_constants(frame(private(2.0, 1.0, lipschitz=known)))[False] == 0.0


def test_the_range_ends_at_the_constant_of_the_head_that_was_trained() -> None:
    with_bias = math.sqrt(PERCENTILES[0] ** 2 + 2)
    said = sentences(private(2.0, 1.0))
    assert f"{with_bias:.2f} with the bias's constant 1 ({PERCENTILES[0]:.2f} without" in said
    said = sentences(private(2.0, 1.0, model={"name": "softmax", "bias": False}))
    assert f"Lipschitz constant: {PERCENTILES[0]:.2f} without" in said


def test_the_fingerprint_is_said_not_to_be_private_and_the_alternative_is_named() -> None:
    said = sentences(private(2.0, 1.0))
    for needed in ("3.04 (0 %)", "32.39 (100 %)", "NOT private", "+sweep=rnmm"):
        assert needed in said


def test_the_fraction_clipped_is_the_mean_of_the_last_epochs_by_clip_norm() -> None:
    def run(norm: float, *clipped: float) -> dict:
        return private(2.0, norm, last_epochs=2, history=accuracies(*[0.8] * len(clipped), fraction_clipped=clipped))

    assert "at ε = 2: 90 % at 1, 5 % at 12.3." in sentences(run(12.34, 0.05, 0.05), run(1.0, 0.1, 1.0, 0.8))


@pytest.mark.parametrize(("fitted", "doubtful"), [(0.9499, True), (0.95, False)])
def test_doubt_about_interpolation_starts_below_the_stated_threshold(fitted: float, doubtful: bool) -> None:
    said = sentences(private(2.0, 1.0), baseline(train_accuracy=fitted))
    assert ("WARNING: interpolation looks doubtful" in said) is doubtful
    assert "95 %" in said


def test_the_fit_is_that_of_the_best_learning_rate_over_its_seeds() -> None:
    runs = [
        baseline(learning_rate=r, seed=s, train_accuracy=a)
        for r, s, a in ((1.0, 0, 0.9), (1.0, 1, 0.7), (3.0, 0, 0.75))
    ]
    runs.append(baseline(learning_rate=9.0, train_accuracy=0.99, status="diverged"))
    assert recommend.training_accuracy(frame(*runs)) == pytest.approx(0.8)


def test_without_a_baseline_nothing_is_claimed_about_interpolation() -> None:
    assert "No non-private run" in sentences(private(2.0, 1.0))


def test_another_head_gets_no_constant_that_is_not_its_own() -> None:
    said = sentences(private(2.0, 1.0, model={"name": "mlp_tanh"}))
    assert "mlp_tanh head has no known Lipschitz constants" in said
    assert "G_1, the smallest" not in said


def test_nothing_private_gives_no_recommendation() -> None:
    assert sentences(baseline()) == ""
