"""Claims of the paper, judged on numbers that are known."""

import math
from collections.abc import Callable

import pytest
from synthetic_records import PERCENTILES, private, sweep

from dpexp import aggregate, comparison
from dpexp.verdicts import Verdict, verdicts

REFERENCE = comparison.read_reference()
Mean = Callable[[float | None, float | None, float], float]


def judge(records: list[dict]) -> list[Verdict]:
    table = comparison.against_paper(aggregate.cells(aggregate.to_frame(records)), REFERENCE)
    return verdicts(table, REFERENCE)


def claims(mean: Mean, claim: str) -> list[Verdict]:
    # One seed of a sweep lies 0.1 below its mean.
    return [v for v in judge(list(sweep(lambda *cell: mean(*cell) + 0.1, seeds=1, rates=[0.3]))) if v.claim == claim]


def printed(epsilon: float | None, percentile: float | None, clip_norm: float) -> float:
    """The paper's own number for a cell."""
    rows = REFERENCE[(REFERENCE["dataset"] == "fashion_mnist") & (REFERENCE["table"] == 6)]
    rows = rows[rows["epsilon"].isna() if epsilon is None else rows["epsilon"] == epsilon]
    if epsilon is not None:
        rows = rows[rows["percentile"].isna() if percentile is None else rows["percentile"] == percentile]
    return float(rows["accuracy_mean"].iloc[0])


def test_small_clip_norms_are_averaged_up_to_and_including_the_smallest_constant() -> None:
    found = claims(lambda e, p, c: 82.0 if c == 1 else 78.0 if c < 4 else 75.0 - (p == 100) * 5, "small_clip_norms")
    assert [v.epsilon for v in found] == [2.0, 4.0, 6.0]
    assert found[0].numbers["low"] == pytest.approx(80.0)
    assert found[0].numbers["high"] == pytest.approx((4 * 75 + 70) / 5)
    assert found[0].holds is True


def test_the_gap_between_smallest_and_largest_constant_is_ours_and_the_papers() -> None:
    found = claims(lambda e, p, c: 80.0 - c, "endpoints")[0]
    assert found.numbers["gap"] == pytest.approx(PERCENTILES[100] - PERCENTILES[0])
    assert found.numbers["paper_gap"] == pytest.approx(82.82 - 79.99)
    assert "G_1 wins" in found.sentence
    assert "(paper +2.83)" in found.sentence


@pytest.mark.parametrize("claim", ["small_clip_norms", "endpoints", "monotone"])
def test_a_claim_that_fails_is_said_to_fail(claim: str) -> None:
    for found in claims(lambda e, p, c: 50.0 + c, claim):
        assert found.holds is False
        assert " NOT " in found.sentence


def test_no_difference_is_not_a_win() -> None:
    for claim in ("small_clip_norms", "endpoints"):
        assert [v.holds for v in claims(lambda e, p, c: 80.0, claim)] == [False] * 3


def test_one_rise_breaks_monotony_and_is_named() -> None:
    found = claims(lambda e, p, c: 80.0 - c + (p == 20) * 3, "monotone")[1]
    assert found.holds is False
    rise = 3 - (PERCENTILES[20] - PERCENTILES[10])
    assert f"rises from 10 to 20 by +{rise:.2f}" in found.sentence


def test_a_rise_is_called_small_only_if_it_is_below_every_deviation() -> None:
    for rise, small in ((0.01, True), (1.0, False)):
        found = claims(lambda e, p, c, rise=rise: 80.0 + rise * (p == 100), "monotone")[0]
        assert found.holds is False
        assert ("less than every cell's standard deviation" in found.sentence) is small


def test_the_papers_own_rises_are_named() -> None:
    found = claims(lambda e, p, c: 80.0 - c, "monotone")
    assert [v.holds for v in found] == [True] * 3
    assert [v.numbers["paper_rises"] for v in found] == [1.0, 0.0, 1.0]
    assert "the paper's own rises from 10 to 20 by +0.03" in found[0].sentence


def test_the_papers_own_numbers_agree_with_the_paper() -> None:
    for found in claims(printed, "agreement"):
        assert found.numbers["rms"] == pytest.approx(0.0, abs=1e-9)
        assert found.numbers["cells"] == 7


def test_differences_are_a_root_mean_square_and_the_largest_with_its_sign() -> None:
    def off(epsilon: float | None, percentile: float | None, clip_norm: float) -> float:
        return printed(epsilon, percentile, clip_norm) - 0.7 * (percentile == 40)

    found = claims(off, "agreement")[0]
    assert found.numbers["rms"] == pytest.approx(0.7 / math.sqrt(7))
    assert found.numbers["largest"] == pytest.approx(-0.7)


def test_equal_printed_digits_mean_the_papers_features() -> None:
    found = claims(lambda e, p, c: 80.0, "features")
    assert [v.holds for v in found] == [True]
    assert found[0].numbers == pytest.approx({str(p): norm for p, norm in PERCENTILES.items()})


def test_one_percentile_that_differs_in_a_printed_digit_means_other_features() -> None:
    norms = PERCENTILES | {10: 10.092}
    found = [v for v in judge([private(2.0, norm, p) for p, norm in norms.items()]) if v.claim == "features"]
    assert found[0].holds is False
    assert found[0].sentence.endswith("ours (printed): 10 %: 10.09 (10.0).")


def test_mixed_settings_are_not_judged_and_it_is_said() -> None:
    records = [private(2.0, norm, p, epochs=e) for e in (10, 50) for p, norm in PERCENTILES.items()]
    (found,) = judge(records)
    assert (found.claim, found.holds, found.epsilon) == ("mixed", None, 2.0)
    assert "no verdict: up to 2 settings share a clip norm" in found.sentence


def test_features_that_the_paper_does_not_have_are_judged_without_it() -> None:
    found = judge([r | {"extractor": "scatter"} for r in sweep(lambda e, p, c: 80.0 - c, seeds=1, rates=[0.3])])
    assert {v.claim for v in found} == {"small_clip_norms", "endpoints", "monotone"}
    assert not any("(paper" in v.sentence for v in found)


def test_nothing_that_ran_gives_no_verdict() -> None:
    assert judge([]) == []
