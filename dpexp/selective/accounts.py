"""Every epsilon of a run, each with what it assumes: the paper's, the naive one, three that hold, the one as coded."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from dpexp.selective import ledger, renyi
from dpexp.selective.caveats import HIDDEN, NOT_REVIEWED
from dpexp.selective.ledger import Release

ADJACENCY = "one training example is added or removed"
RESTORED = "rejected updates leave no trace in weights or optimizer"
POISSON = "every trial draws its own Poisson sample, empty ones included"
FEW_ORDERS = (1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # of the odometer, which pays for every order it may choose from


@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """One account of a run.

    epsilon: None where nothing is known. certificate: whether it bounds the privacy loss of what ran, if the hypotheses
    hold: (epsilon, delta)-DP for adding or removing one training example.
    """

    name: str
    epsilon: float | None
    delta: float
    certificate: bool
    hypotheses: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A run as its accounts see it. updates: planned; trials_allowed: fixed in advance; accepted, trials: realised."""

    release: Release
    updates: int
    trials_allowed: int
    accepted: int
    trials: int

    @property
    def selects(self) -> bool:
        """Whether updates can be rejected."""
        return self.release.test is not None or self.release.loss_test is not None

    @property
    def ordinary(self) -> bool:
        """Whether this is DP-SGD: every update is released, and its noise is sized for its sensitivity."""
        return not self.selects and self.release.coded_sensitivity == 1


def _no(name: str, ran: Ran, note: str) -> Epsilon:
    return Epsilon(name=name, epsilon=None, delta=ran.release.delta, certificate=False, note=f"no certificate: {note}")


def _total(ran: Ran, once: Callable[[Release], np.ndarray], count: int, delta: float | None = None) -> float:
    """Epsilon of `count` times a Renyi cost, with what is released once."""
    if ran.release.noise_multiplier == 0:
        return math.inf
    release = ran.release
    return renyi.epsilon(release.fixed + count * once(release), release.delta if delta is None else delta)


def _obstacle(ran: Ran) -> str | None:
    """Why no theorem covers accepted updates alone, if none does."""
    release = ran.release
    if release.loss_test is not None:
        return "DPSUR's acceptance looks at the noisy update itself, so accepted updates are a private selection"
    if release.published:
        return "the optimizer keeps rejected gradients, and the reference is never made private"
    if release.test is not None and release.test.reference == "raw":
        return "the reference is a hidden function of an earlier batch"
    if release.test is not None and release.test.std == 0:
        return "the test has no noise"
    if release.smallest_acceptance == 0:
        return "an update may never be accepted"
    return None


def paper(ran: Ran) -> Epsilon:
    """Paper S, Sections 3.4 and 4.6: accepted updates at the inflated rate; for DP-SGD its ordinary account."""
    note = "ordinary RDP of DP-SGD"
    if ran.selects:
        note = "the paper's formula; its proof ignores how acceptance changes the rest of the batch"
    if ran.release.loss_test is not None and ran.release.published:
        note = "DPSUR's own formula: accepted updates and their tests at the rates that are sampled"
    return Epsilon(
        name="paper",
        epsilon=_total(ran, ledger.paper_once, max(ran.updates, ran.accepted)),
        delta=ran.release.delta,
        certificate=ran.ordinary,
        hypotheses=() if not ran.ordinary else (ADJACENCY, "all updates are released", POISSON),
        note=note,
    )


def naive(ran: Ran) -> Epsilon:
    """Accepted updates at the rate that is sampled, as if rejecting cost nothing."""
    return Epsilon(
        name="naive",
        epsilon=_total(ran, ledger.naive_once, max(ran.updates, ran.accepted)),
        delta=ran.release.delta,
        certificate=ran.ordinary,
        hypotheses=() if not ran.ordinary else (ADJACENCY, "all updates are released", POISSON),
        note="accepted updates only, at the rate that is sampled" if ran.selects else "the same as the paper's",
    )


def _released(ran: Ran) -> str:
    """What of the accepted updates Theorems A and B cover, beside the numbers of trials."""
    test = ran.release.test
    return "the accepted weights" + (" and the noisy references" if test and test.reference == "noisy" else "")


def a(ran: Ran) -> Epsilon:
    """Theorem A; the cap of trials is paid for inside delta."""
    if not ran.selects:
        return replace(naive(ran), name="A", note="no update can be rejected: DP-SGD's account")
    reason = _obstacle(ran)
    if reason:
        return _no("A", ran, reason)
    failure = ledger.cap_failure(ran.release, ran.updates, ran.trials_allowed)
    if failure >= ran.release.delta / 2:
        return _no(
            "A", ran, f"the worst case meets the cap of {ran.trials_allowed} trials with probability {failure:.2g}"
        )
    return Epsilon(
        name="A",
        epsilon=_total(ran, ledger.a_once, ran.updates, ran.release.delta - failure) - math.log1p(-failure),
        delta=ran.release.delta,
        certificate=True,
        hypotheses=(
            ADJACENCY,
            f"{_released(ran)} are released",
            HIDDEN,
            "the cap of trials is met with a probability that delta includes",
            RESTORED,
            POISSON,
        ),
        note=f"Theorem A, {NOT_REVIEWED}",
    )


def b(ran: Ran) -> Epsilon:
    """Theorem B: A, with the numbers of trials released too."""
    if not ran.selects:
        return replace(naive(ran), name="B", note="no update can be rejected: DP-SGD's account")
    reason = _obstacle(ran)
    if reason:
        return _no("B", ran, reason)
    return Epsilon(
        name="B",
        epsilon=_total(ran, ledger.b_once, ran.updates),
        delta=ran.release.delta,
        certificate=True,
        hypotheses=(
            ADJACENCY,
            f"{_released(ran)} are released, and so are the numbers of trials",
            RESTORED,
            POISSON,
        ),
        note=f"Theorem B, {NOT_REVIEWED}",
    )


def _trial_obstacle(ran: Ran) -> str | None:
    """Why charging every trial does not cover the run, if it does not."""
    release = ran.release
    if release.coded_sensitivity > 1:
        return "a scaled gradient may exceed the norm that the noise is sized for"
    if release.loss_test is not None and release.loss_test.stored_loss:
        return "the stored loss of an earlier batch is never made private"
    if release.test is not None and release.test.reference == "raw":
        return "the clipped difference depends on two private batches at once"
    return None


def _by_trials(ran: Ran, name: str, epsilon: Callable[[], float], note: str) -> Epsilon:
    """Account C: every allowed trial charged as if all of it were released."""
    reason = _trial_obstacle(ran)
    if reason:
        return _no(name, ran, reason)
    return Epsilon(
        name=name,
        epsilon=epsilon(),
        delta=ran.release.delta,
        certificate=True,
        hypotheses=(
            ADJACENCY,
            "everything of all allowed trials may be released",
            "the number of allowed trials was fixed in advance",
            POISSON,
        ),
        note=note,
    )


def c(ran: Ran) -> Epsilon:
    """Account C by privacy loss distributions."""
    note = "every allowed trial as one sampled Gaussian, by privacy loss distributions (PLD)"
    return _by_trials(ran, "C", lambda: ledger.c_pld(ran.release, ran.trials_allowed), note)


def c_rdp(ran: Ran) -> Epsilon:
    """Account C by Renyi divergences."""
    note = "account C by Renyi divergences (RDP)"
    return _by_trials(ran, "C_rdp", lambda: _total(ran, ledger.c_once, ran.trials_allowed), note)


def odometer(ran: Ran) -> Epsilon:
    """What the trials that were made cost, valid at whatever trial one looks (Ville's inequality).

    exp((a-1) (loss - N D_a)) is a supermartingale, so loss > N D_a + ln(M / delta) / (a - 1) happens at some N and for
    one of M orders with probability delta at most.
    """
    reason = _trial_obstacle(ran)
    if reason:
        return _no("odometer", ran, reason)
    if ran.release.noise_multiplier == 0:
        return replace(_no("odometer", ran, ""), epsilon=math.inf, note="no noise")
    cost = dict(zip(renyi.ORDERS, ran.release.fixed + ran.trials * ledger.c_once(ran.release), strict=True))
    spent = [cost[order] + math.log(len(FEW_ORDERS) / ran.release.delta) / (order - 1) for order in FEW_ORDERS]
    return Epsilon(
        name="odometer",
        epsilon=float(min(spent)),
        delta=ran.release.delta,
        certificate=False,
        hypotheses=(ADJACENCY, "everything of the trials that were made may be released", POISSON),
        note="the privacy loss after the trials that were made; not differential privacy: their number is random",
    )


def as_coded(ran: Ran) -> Epsilon:
    """The published scaling at the sensitivity that it has: what the nominal epsilon would have to be at least."""
    release = ran.release
    rate, sigma = release.sample_rate, release.noise_multiplier / release.coded_sensitivity
    return Epsilon(
        name="as_coded",
        epsilon=_total(ran, lambda _: renyi.sampled_gaussian(rate, sigma), max(ran.updates, ran.accepted)),
        delta=release.delta,
        certificate=False,
        note=(
            "accepted updates alone, with the norm that scaled gradients can have in the published code "
            "(scaling_bound); its test and its optimizer's memory come on top"
        ),
    )


def accounts(ran: Ran) -> list[Epsilon]:
    """All accounts of a run, the paper's first."""
    rows = [row(ran) for row in (paper, naive, a, b, c, c_rdp, odometer)]
    published_scaling = ran.release.published and ran.release.test is not None
    return rows + ([as_coded(ran)] if published_scaling else [])


def certified(rows: Iterable[Epsilon]) -> Epsilon | None:
    """The smallest epsilon among the certificates that hold for whoever reads a run's record; None without one.

    A record tells the numbers of trials, so an account that needs them hidden is left out.
    """
    valid = (row for row in rows if row.certificate and HIDDEN not in row.hypotheses)
    found = [(row.epsilon, row.name, row) for row in valid if row.epsilon is not None]
    return min(found)[2] if found else None
