"""Calibrated noise meets its target, delta is questioned, and what is kept on disk is what was computed."""

import json
import math
import time

import pytest

from dpexp.accounting import Account, account, cached_account, cached_calibration, calibrate, resolve_delta
from dpexp.config import ConfigError

MAIN = {"sample_rate": 500 / 60000, "delta": 1e-5}


@pytest.mark.parametrize(
    ("accountant", "target", "printed"),
    [("rdp", 1, 2.71351), ("rdp", 3, 1.21639), ("rdp", 8, 0.76781), ("pld", 1, 2.51205), ("pld", 3, 1.15044)],
)
def test_calibrated_noise_is_the_printed_one_and_the_smallest(accountant, target, printed):
    sigma = calibrate(target, 0.02, 1000, 1e-5, accountant)
    assert sigma == pytest.approx(printed, rel=3e-4)  # the printed search stopped a little above the smallest
    assert sigma == round(sigma, 5)
    assert target * 0.999 <= account(0.02, sigma, 1000, 1e-5, accountant).epsilon <= target
    assert account(0.02, sigma - 2e-5, 1000, 1e-5, accountant).epsilon > target


def test_calibration_by_prv_has_the_property_too():
    sigma = calibrate(2.0, steps=1200, accountant="prv", **MAIN)
    found = account(noise_multiplier=sigma, steps=1200, accountant="prv", **MAIN)
    assert found.accountant_used == "prv"
    assert 2.0 * 0.99 <= found.epsilon_prv <= 2.0 < found.epsilon_rdp


@pytest.mark.parametrize(("target", "steps", "near"), [(2, 1200, 0.979), (4, 3600, 0.9), (6, 3600, 0.762)])
def test_noise_of_the_main_experiment(target, steps, near):
    sigma = calibrate(target, steps=steps, **MAIN)
    assert sigma == pytest.approx(near, rel=0.01)


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
@pytest.mark.parametrize("target", [100.0, 1e4])
def test_large_targets_take_seconds(accountant, target):
    start = time.perf_counter()
    sigma = calibrate(target, steps=3600, accountant=accountant, **MAIN)
    assert time.perf_counter() - start < 15
    found = account(noise_multiplier=sigma, steps=3600, accountant=accountant, **MAIN)
    assert target * 0.99 <= found.epsilon <= target
    assert found.accountant_used == "rdp"
    assert any(note.startswith("prv failed") for note in found.notes)


def test_an_unreachable_target_is_explained():
    with pytest.raises(ConfigError) as error:
        calibrate(1e-4, steps=3600, **MAIN)
    for part in (
        "target_epsilon=0.0001",
        "delta=1e-05",
        "0.00833333",
        "3600 steps",
        "accountant rdp",
        "1e+06",
        "0.0035",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_epsilon": 0.0}, r"dp.target_epsilon must be a finite number > 0, got 0\.0"),
        ({"target_epsilon": -1}, "dp.target_epsilon"),
        ({"target_epsilon": math.nan}, "dp.target_epsilon"),
        ({"target_epsilon": math.inf}, "dp.target_epsilon"),
        ({"steps": 0}, "steps must be a whole number >= 1, got 0"),
        ({"sample_rate": 0.0}, "sample rate"),
        ({"sample_rate": 2.0}, "sample rate"),
        ({"delta": 1.0}, "dp.delta"),
        ({"accountant": "gdp"}, "accountant"),
        ({"tolerance": 0.0}, "dp.epsilon_tolerance"),
    ],
)
def test_calibration_refuses_values_outside_their_range_at_once(change, message):
    base = {"target_epsilon": 1.0, "sample_rate": 0.01, "steps": 10, "delta": 1e-5}
    with pytest.raises(ConfigError, match=message):
        calibrate(**base | change)


@pytest.mark.parametrize("n", [50000, 75750, 25000, 16000, 3257])
def test_delta_below_one_in_n_is_taken_quietly(n):
    assert resolve_delta(1e-5, n) == 1e-5


def test_delta_of_one_in_n_or_more_warns_with_both_numbers():
    with pytest.warns(UserWarning, match=r"1/n = 8\.87e-06 for n = 112800"):
        assert resolve_delta(1e-5, 112800) == 1e-5


@pytest.mark.parametrize(("n", "expected"), [(1000, 1e-5), (50000, 1e-5), (112800, 1 / 225600)])
def test_delta_left_open_is_at_most_half_of_one_in_n(n, expected):
    assert resolve_delta(None, n) == expected


@pytest.mark.parametrize("delta", [0.0, -1e-5, 1.0, 1.5, math.nan])
def test_delta_outside_its_range_is_refused(delta):
    with pytest.raises(ConfigError, match=r"dp\.delta"):
        resolve_delta(delta, 1000)


QUESTION = {"sample_rate": 0.05, "noise_multiplier": 2.0, "steps": 20, "delta": 1e-5}


@pytest.fixture
def computed(monkeypatch) -> list[str]:
    """The names of what was computed rather than read."""
    calls: list[str] = []
    for name, function in (("account", account), ("calibrate", calibrate)):

        def counted(*args, name=name, function=function, **kwargs):
            calls.append(name)
            return function(*args, **kwargs)

        monkeypatch.setattr(f"dpexp.accounting.{name}", counted)
    return calls


def test_a_kept_account_is_the_computed_one_and_is_computed_once(tmp_path, computed):
    first, second = (cached_account(tmp_path, **QUESTION) for _ in range(2))
    assert first == second == account(**QUESTION)
    assert isinstance(first, Account)
    assert computed == ["account"]
    cached_account(tmp_path, **QUESTION | {"accountant": "pld"})
    cached_account(tmp_path, **QUESTION | {"steps": 21})
    assert computed == ["account"] * 3
    assert len(list(tmp_path.iterdir())) == 3


def test_a_kept_noise_multiplier_is_the_computed_one_and_is_computed_once(tmp_path, computed):
    question = {"target_epsilon": 1.0, "sample_rate": 0.05, "steps": 20, "delta": 1e-5}
    first, second = (cached_calibration(tmp_path, **question) for _ in range(2))
    assert first == second == calibrate(**question)
    assert computed == ["calibrate"]
    cached_calibration(tmp_path, **question, tolerance=0.02)
    assert computed == ["calibrate"] * 2


def test_infinity_and_missing_answers_survive_strict_json(tmp_path):
    def refuse(constant):
        raise AssertionError(constant)

    for change in ({"noise_multiplier": 0.0}, {"delta": 1e-18}):
        kept = [cached_account(tmp_path, **QUESTION | change) for _ in range(2)]
        assert kept[0] == kept[1] == account(**QUESTION | change)
    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert [json.loads(text, parse_constant=refuse)["question"]["kind"] for text in texts] == ["account"] * 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"steps": 20', '"steps": 21', 1),
        lambda text: text.replace('"epsilon": ', '"epsilon": 1'),
        lambda text: text.replace('"notes": []', '"notes": 3'),
        lambda text: text.replace('"epsilon_prv"', '"epsilon_gdp"'),
        lambda text: text.replace('"delta": 1e-05', '"delta": NaN', 1),
        lambda text: '"delta": 1e-06'.join(text.rsplit('"delta": 1e-05', 1)),  # in the answer
    ],
)
def test_a_damaged_or_foreign_file_is_computed_again(tmp_path, damage, caplog):
    first = cached_account(tmp_path, **QUESTION)
    (path,) = tmp_path.iterdir()
    whole = path.read_text()
    path.write_text(damage(whole))
    assert path.read_text() != whole
    assert cached_account(tmp_path, **QUESTION) == first
    assert "computed again" in caplog.text
    assert path.read_text() == whole


def test_a_kept_noise_multiplier_that_was_edited_by_hand_is_not_used_and_its_file_is_named(tmp_path, caplog):
    question = {"target_epsilon": 1.0, "sample_rate": 0.05, "steps": 20, "delta": 1e-5}
    first = cached_calibration(tmp_path, **question)
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace(f'"answer": {first}', f'"answer": {first / 2}'))
    assert str(first / 2) in path.read_text()
    assert cached_calibration(tmp_path, **question) == first
    assert f"{path} is damaged or foreign (its answer was edited" in caplog.text


def test_another_version_of_an_accountant_asks_again(tmp_path, computed, monkeypatch):
    cached_account(tmp_path, **QUESTION)
    monkeypatch.setattr("dpexp.accounting.version", lambda name: f"other {name}")
    cached_account(tmp_path, **QUESTION)
    assert computed == ["account"] * 2
