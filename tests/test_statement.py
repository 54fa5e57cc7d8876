"""The privacy statement names what the guarantee covers and everything that it does not."""

import re

import pytest

from dpexp.accounting import Account, account
from dpexp.mechanism import Mechanism
from dpexp.statement import privacy_statement

CHOICES = {"noise": "independent", "clip_percentile": None, "select_on": "test", "candidates": 336}


@pytest.fixture(scope="module")
def mechanism() -> Mechanism:
    return Mechanism(n=2000, expected_batch_size=100, steps=40, clip_norm=1.5, noise_multiplier=2.0)


@pytest.fixture(scope="module")
def paid(mechanism: Mechanism) -> Account:
    return account(mechanism.sample_rate, mechanism.noise_multiplier, mechanism.steps, 1e-5)


def test_statement_has_every_term_of_the_guarantee(mechanism, paid):
    text = privacy_statement(mechanism, paid, **CHOICES)
    for part in (
        "one trained model",
        "one training example",
        "added or removed",
        "Poisson",
        "q = 0.05",
        "40 steps",
        "Gaussian noise",
        "standard deviation 3",
        "noise multiplier 2",
        "L2 norm 1.5",
        "1e-05",
    ):
        assert part in text, part


def test_statement_rounds_every_epsilon_up(mechanism, paid):
    text = privacy_statement(mechanism, paid, **CHOICES)
    for name, value in (("RDP", paid.epsilon_rdp), ("PRV", paid.epsilon_prv), ("PLD", paid.epsilon_pld)):
        (stated,) = re.findall(rf"\({name}\) (\d+\.\d+)", text)
        assert value <= float(stated) <= value * 1.001
    (main,) = re.findall(r"\((\d+\.\d+), 1e-05\)-differentially private", text)
    assert paid.epsilon <= float(main) <= paid.epsilon * 1.001


def test_statement_lists_what_is_not_covered(mechanism, paid):
    text = privacy_statement(mechanism, paid, **CHOICES)
    uncovered = text[text.index("Not covered") :]
    for part in (
        "learning rate",
        "clip norm",
        "336",
        "test set",
        "loss",
        "fraction clipped",
        "percentiles of the Lipschitz",
        "mini-batches",
    ):
        assert part in uncovered, part
    assert "not cryptographic" in uncovered
    assert "secret seed" in uncovered
    assert "number of training examples" in uncovered
    assert "of the training data and was computed" not in text
    assert "never release" not in text


@pytest.mark.parametrize(
    ("choice", "part"),
    [
        ({"clip_percentile": 40.0}, "percentile 40 of the training data"),
        ({"select_on": "validation"}, "held out of the training set"),
        ({"noise": "shared"}, "never release two of these models together"),
        ({"noise": "shared"}, "cancels the noise"),
        ({"noise": "shared"}, "in every study and on every data set"),
    ],
)
def test_every_choice_that_weakens_the_guarantee_is_said(mechanism, paid, choice, part):
    assert part not in privacy_statement(mechanism, paid, **CHOICES)
    assert part in privacy_statement(mechanism, paid, **CHOICES | choice)


def test_a_fallback_is_said():
    mechanism = Mechanism(n=2000, expected_batch_size=100, steps=40, clip_norm=1.5, noise_multiplier=2.0)
    text = privacy_statement(mechanism, account(0.05, 2.0, 40, 1e-18, "prv"), **CHOICES)
    assert "Epsilon is by Renyi DP (RDP)" in text
    assert "prv failed" in text
    assert "(PRV) not available" in text


def test_without_noise_the_statement_gives_no_guarantee():
    mechanism = Mechanism(n=2000, expected_batch_size=100, steps=40, clip_norm=1.5, noise_multiplier=0.0)
    text = privacy_statement(mechanism, account(0.05, 0.0, 40, 1e-5), **CHOICES)
    assert "no privacy guarantee" in text
    assert "epsilon is infinity" in text
    assert "differentially private" not in text


def test_an_account_of_another_run_is_refused(mechanism):
    with pytest.raises(AssertionError, match="is not that of the mechanism"):
        privacy_statement(mechanism, account(0.05, 2.0, 39, 1e-5), **CHOICES)
