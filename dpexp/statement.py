"""The privacy statement of one run in plain language: what its epsilon covers, and what it does not."""

import math

from dpexp.accounting import Account
from dpexp.mechanism import Mechanism
from dpexp.private_clip import NO_GUARANTEE, Choice

ACCOUNTANT_NAMES = {
    "rdp": "Renyi DP (RDP)",
    "prv": "privacy random variables (PRV)",
    "pld": "privacy loss (PLD)",
}


def _epsilon(value: float | None) -> str:
    """An epsilon to four digits, rounded up so that it stays a bound."""
    if value is None:
        return "not available"
    if not math.isfinite(value) or value == 0:
        return "infinity" if value else "0"
    digits = 3 - math.floor(math.log10(value))
    return f"{math.ceil(value * 10.0**digits - 1e-9) / 10.0**digits:g}"


def _selection(select_on: str, candidates: int) -> str:
    """What choosing among several runs costs beyond the account of one."""
    kept_out = {"test": "the test set", "validation": "examples held out of the training set"}[select_on]
    return (
        f"the choice of the learning rate and the clip norm over {candidates} candidate runs by their accuracy on "
        f"{kept_out}"
    )


def _not_covered(noise: str, clip_percentile: float | None, select_on: str, candidates: int) -> list[str]:
    """What an attacker may learn from beyond the released model, one clause each."""
    clauses = [_selection(select_on, candidates)] if candidates > 1 else []
    if clip_percentile is not None:
        clauses.append(
            f"the clip norm, which is percentile {clip_percentile:g} of the training data and was computed without "
            "privacy"
        )
    clauses += [
        "what the record tells of the training data: loss, accuracy and fraction clipped, and percentiles of the "
        "Lipschitz constants",
        "other runs: those of one seed share their mini-batches, so adding up their epsilons does not cover the "
        "release of several",
        "whoever knows the seed: with it and this code batches and noise can be drawn again, so a model to be "
        "released needs a secret seed, and this record, which names it, stays behind",
        "the number of training examples, which sample rate, steps and noise are computed from",
        "the noise source: pseudo-random single-precision numbers of a generator that is not cryptographic",
    ]
    return clauses


def _terms(mechanism: Mechanism, account: Account) -> str:
    """The guarantee itself: unit, adjacency, sampling, mechanism and all epsilons."""
    others = "; ".join(
        f"{ACCOUNTANT_NAMES[name]} {_epsilon(getattr(account, f'epsilon_{name}'))}" for name in ACCOUNTANT_NAMES
    )
    return (
        f"What is released is the one trained model. It is ({_epsilon(account.epsilon)}, {account.delta:g})-"
        "differentially private for one training example: the guarantee compares the training set with the same set "
        f"after one example is added or removed ({mechanism.n} examples). Every step draws a Poisson sample: each "
        f"example enters it independently with probability q = {mechanism.sample_rate:.6g}; exactly the "
        f"{mechanism.steps} steps taken are accounted, empty samples included. Each step clips every example's "
        f"gradient to L2 norm {mechanism.clip_norm:.6g} and adds to the sum Gaussian noise of standard deviation "
        f"{mechanism.noise_std:.6g} (noise multiplier {mechanism.noise_multiplier:.6g}). Epsilon is by "
        f"{ACCOUNTANT_NAMES[account.accountant_used]}; by accountant, at delta = {account.delta:g}: {others}."
    )


def _composition(choice: Choice, account: Account) -> str:
    """How the total is made up where the clip norm was chosen with privacy."""
    return (
        f"Epsilon is a total by basic composition: choosing the clip norm from a public grid by the exponential "
        f"mechanism is ({_epsilon(choice.epsilon)}, 0)-differentially private, training with it is "
        f"({_epsilon(account.epsilon - choice.epsilon)}, {account.delta:g})-differentially private; both together "
        f"are ({_epsilon(account.epsilon)}, {account.delta:g})-differentially private, with the clip norm released too."
    )


def privacy_statement(  # noqa: PLR0913
    mechanism: Mechanism,
    account: Account,
    *,
    noise: str,
    clip_percentile: float | None,
    select_on: str,
    candidates: int,
    choice: Choice | None = None,
) -> str:
    """One paragraph that says what a run's epsilon means and what it leaves out.

    noise: "independent" or "shared". clip_percentile: of the training data, or None for a fixed clip norm.
    select_on: "test" or "validation". candidates: runs that the reported one was, or could be, chosen from.
    choice: how the clip norm was chosen, if with privacy; the account is then that of both steps.
    """
    stated = (account.sample_rate, account.noise_multiplier, account.steps)
    ran = (mechanism.sample_rate, mechanism.noise_multiplier, mechanism.steps)
    assert stated == ran, f"the account {stated} is not that of the mechanism {ran}"
    if mechanism.noise_multiplier == 0:
        return (
            "This run has no privacy guarantee: no noise was added (noise multiplier 0), so epsilon is infinity by "
            "every accountant. The model may reveal its training examples."
        )
    if choice is not None and choice.mode == "paper":
        return f"This run has no privacy guarantee: {NO_GUARANTEE}."
    parts = [_terms(mechanism, account)] + ([_composition(choice, account)] if choice else [])
    parts += [f"Note: {note}." for note in account.notes]
    parts.append(f"Not covered: {'; '.join(_not_covered(noise, clip_percentile, select_on, candidates))}.")
    if noise == "shared":
        parts.append(
            "All runs of a seed that share their noise draw the same, in every study and on every data set: never "
            "release two of these models together, because their difference cancels the noise."
        )
    return " ".join(parts)
