"""The privacy statement of a run of the selective-release study, in plain language."""

import math
from collections.abc import Sequence

from dpexp.selective.accounts import Epsilon, certified
from dpexp.selective.caveats import HIDDEN, NOT_COVERED
from dpexp.selective.runs import Run


def _number(value: float | None) -> str:
    if value is None:
        return "no certificate"
    return "infinity" if math.isinf(value) else f"{math.ceil(value * 1000 - 1e-9) / 1000:g}"


def _mechanism(run: Run) -> str:
    """What ran, in one or two sentences."""
    m = run.mechanism
    parts = [
        f"{m.n} training examples; every trial draws a Poisson sample with probability q = {m.sample_rate:.6g}, bounds "
        f"every example's gradient and adds to the sum Gaussian noise of standard deviation {m.noise_std:.6g}"
    ]
    if run.scaling == "scaled_as_published" and run.scaling_bound > m.clip_norm:
        parts.append(
            f"as published, a scaled gradient may have norm {run.scaling_bound:g} although the noise is sized for "
            f"{m.clip_norm:g}"
        )
    if run.test is not None:
        parts.append(
            f"an update is released if clip(E_ref - E_t, +-{run.test.clip_range:g}) plus noise of standard deviation "
            f"{run.test.std:.4g} exceeds {run.test.threshold:g}, with the {run.test.reference} reference"
        )
    if run.loss_test is not None:
        parts.append(
            f"an update is released if the change of the loss on another Poisson sample, clipped to "
            f"+-{run.loss_test.loss_bound:g}, plus noise of standard deviation {run.loss_test.std:.4g} lies below "
            f"{run.loss_test.threshold:g}"
        )
    if run.as_published:
        parts.append("as published, the optimizer keeps what rejected updates left in it")
    return "; ".join(parts)


def _not_covered(run: Run) -> list[str]:
    """What an attacker may learn from beyond the released models."""
    clauses = [
        "the choice of this run's settings, and of any run among several, by accuracy on the test set",
        "this record: counts of trials, losses, accuracies and the log of the tests come from private data, and "
        "account A holds only while the counts stay hidden",
        "other runs: those of one seed share their mini-batches",
        "whoever knows the seed",
        "the number of training examples and the sample rate",
        "a noise source that is not cryptographic",
    ]
    inputs = (run.normalisation, "tokens" if run.net == "rnn" else "")
    return [text for name, text in NOT_COVERED.items() if name in inputs] + clauses


def statement(run: Run, accounts: Sequence[Epsilon]) -> str:
    """One paragraph: what ran, what each account says under which hypotheses, and what none of them covers."""
    if run.mechanism.noise_multiplier == 0:
        return (
            "This run has no privacy guarantee: no noise was added (noise multiplier 0), so epsilon is infinity by "
            "every account. The model may reveal its training examples."
        )
    listed = "; ".join(
        f"{row.name}: {_number(row.epsilon)}" + ("" if row.certificate else " (not a certificate)") for row in accounts
    )
    best = certified(accounts)
    claim = (
        f"The smallest certified epsilon is {_number(best.epsilon)} at delta = {best.delta:g}, account {best.name}, "
        f"for one training example added or removed, if: {'; '.join(best.hypotheses)}."
        if best
        else "No certificate is known for this mechanism: none of the numbers below is a guarantee."
    )
    for row in accounts:
        if row.certificate and HIDDEN in row.hypotheses:
            claim += (
                f" Account {row.name}, {_number(row.epsilon)} at delta = {row.delta:g}, holds only for whoever sees "
                f"neither this record nor a log of the trials; it needs: {'; '.join(row.hypotheses)}."
            )
    return (
        f"{claim} What ran: {_mechanism(run)}. Epsilon by account: {listed}. "
        f"Not covered: {'; '.join(_not_covered(run))}."
    )
