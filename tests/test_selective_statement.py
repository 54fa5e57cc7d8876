"""The statement of a selective release says what ran and claims no more than a certificate does."""

import math
import re
from functools import lru_cache

import pytest
from selective_worlds import make_loss_test, make_mechanism, make_metric_test, make_run

from dpexp.selective.accounts import HIDDEN, Ran, accounts, certified
from dpexp.selective.statement import statement

DPSUR = dict(method="dpsur", test=None, scaling="clipped", loss_test=make_loss_test(), validation_noise=1.3)
RAW = make_metric_test(reference="raw", reference_std=0.0)
RUNS = {
    "dpsgd": make_run(method="dpsgd", test=None, scaling="clipped"),
    "noisy": make_run(),
    "same_batch": make_run(test=make_metric_test(reference="same_batch", reference_std=0.0)),
    "raw": make_run(test=RAW),
    "as_published": make_run(variant="as_published", scaling="scaled_as_published", scaling_bound=3.0, test=RAW),
    "dpsur": make_run(**DPSUR),
    "dpsur_as_published": make_run(
        **(DPSUR | {"variant": "as_published", "loss_test": make_loss_test(stored_loss=True)})
    ),
    "no test noise": make_run(test=make_metric_test(std=0.0)),
    "rejects all": make_run(test=make_metric_test(threshold=math.inf)),
    "accepts all": make_run(test=make_metric_test(threshold=-math.inf)),
    "few trials": make_run(max_trials=14),
    "statistics": make_run(normalisation="noisy_statistics"),
    "no noise": make_run(mechanism=make_mechanism(noise_multiplier=0.0)),
}


@lru_cache(maxsize=32)
def explain(name):
    run = RUNS[name]
    found = accounts(
        Ran(release=run.release, updates=run.mechanism.steps, trials_allowed=run.max_trials, accepted=9, trials=30)
    )
    return statement(run, found), found


@pytest.mark.parametrize("name", RUNS)
def test_the_statement_names_the_mechanism_and_never_claims_more_than_a_certificate(name):
    run = RUNS[name]
    text, found = explain(name)
    assert not re.search(r"\b(None|nan)\b", text)
    if run.mechanism.noise_multiplier == 0:
        assert "no privacy guarantee" in text
        return
    assert f"{run.mechanism.n} training examples" in text
    assert f"standard deviation {run.mechanism.noise_std:.6g}" in text
    assert ("an update is released if" in text) == (run.test is not None or run.loss_test is not None)
    assert ("the optimizer keeps what rejected updates left in it" in text) == run.as_published
    certified = [row.epsilon for row in found if row.certificate and HIDDEN not in row.hypotheses]
    claim = re.search(r"smallest certified epsilon is ([\d.]+|infinity)", text)
    if certified:
        assert claim
        assert float(claim[1]) >= min(certified)
        assert math.isinf(min(certified)) or float(claim[1]) <= min(certified) + 1e-3
    else:
        assert claim is None
        assert text.startswith("No certificate is known for this mechanism")
    for row in found:
        listed = re.search(rf"[ ;] ?{row.name}: ([^;]*?)( \(not a certificate\))?(;|\. Not covered)", text)
        assert bool(listed[2]) == (not row.certificate)
        assert row.certificate or row.epsilon is not None or listed[1] == "no certificate"


@pytest.mark.parametrize(
    ("name", "accounts_with_certificate"),
    [
        ("dpsgd", ["paper", "naive", "A", "B", "C", "C_rdp"]),
        ("noisy", ["A", "B", "C", "C_rdp"]),
        ("same_batch", ["A", "B", "C", "C_rdp"]),
        ("raw", []),
        ("as_published", []),
        ("dpsur", ["C", "C_rdp"]),
        ("dpsur_as_published", []),
        ("rejects all", ["C", "C_rdp"]),
        ("few trials", ["B", "C", "C_rdp"]),
    ],
)
def test_only_these_accounts_are_certificates(name, accounts_with_certificate):
    _, found = explain(name)
    assert [row.name for row in found if row.certificate] == accounts_with_certificate


@pytest.mark.parametrize("name", ["noisy", "same_batch", "accepts all", "statistics"])
def test_an_account_that_needs_hidden_counts_is_no_headline_of_a_record_that_tells_them(name):
    text, found = explain(name)
    by_name = {row.name: row for row in found}
    a, b, best = by_name["A"], by_name["B"], certified(found)
    assert a.certificate
    assert a.epsilon <= b.epsilon == best.epsilon
    assert HIDDEN in a.hypotheses
    assert HIDDEN not in best.hypotheses
    assert "account B, for one training example added or removed" in text
    assert "Account A, " in text
    assert "holds only for whoever sees neither this record nor a log of the trials" in text


def test_without_a_hidden_account_none_is_mentioned():
    for name in ("dpsgd", "dpsur", "few trials", "as_published"):
        assert "holds only for whoever sees neither" not in explain(name)[0]


def test_the_statement_names_public_statistics_and_undersized_noise():
    assert "medians that bound the channel statistics" in explain("statistics")[0]
    assert "may have norm 3 although the noise is sized for 1" in explain("as_published")[0]
