"""Clip norms chosen from the data inside the privacy budget (paper L, Section 5.2 and Table 3).

Two modes stand side by side. `paper` is report noisy max over the negative Lipschitz constants as the paper describes
it, whose winner is released as it is: no guarantee. `sound` is a proven choice from a public grid. Both are a clip
norm per seed, because a new training run would have to choose anew.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from dpexp import accounting, lipschitz
from dpexp.accounting import Account
from dpexp.config_privacy import PrivateClipConfig
from dpexp.sampling import generator

METHODS = {"paper": "rnmm_paper", "sound": "rnmm_sound"}
NO_GUARANTEE = (
    "report noisy max as the paper describes it releases the selected example's own Lipschitz constant, and one "
    "example can move a score by more than any public bound, so no epsilon can be stated and the target is nominal"
)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How a run's clip norm was chosen: the mode, and the epsilon that the choice spends (by name, in `paper`)."""

    mode: str
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Landing:
    """Where a mode's choices lie among the constants: over many draws, percentages of the constants below them.

    at: {quantile over the draws in percent: percentage of constants below}. at_or_below_minimum: share of draws that
    no constant lies below. NOT private: computed from the data, for reports.
    """

    draws: int
    at: dict[str, float]
    at_or_below_minimum: float


def _paper(constants: Tensor, settings: PrivateClipConfig, draws: np.random.Generator) -> float:
    return lipschitz.report_noisy_max_minimum(constants, settings.epsilon, settings.scale, draws)


def _sound(constants: Tensor, settings: PrivateClipConfig, draws: np.random.Generator) -> float:
    grid = lipschitz.geometric_grid(settings.low, settings.high, settings.count)
    return lipschitz.private_minimum(constants, settings.epsilon, grid, draws, settings.power)


MECHANISMS: dict[str, Callable[[Tensor, PrivateClipConfig, np.random.Generator], float]] = {
    "paper": _paper,
    "sound": _sound,
}


def draw(mode: str, constants: Tensor, settings: PrivateClipConfig, seed: int) -> float:
    """The clip norm of one seed, to six digits. constants: [n].

    The stream is keyed by the constants too: with a key of the seed alone, choices on two data sets would share their
    randomness, and releasing both would not compose.
    Guarantee: in mode `sound`, (settings.epsilon, 0)-DP (`lipschitz.private_minimum`); in mode `paper`, none.
    """
    data = hashlib.sha256(constants.cpu().numpy().tobytes()).hexdigest()
    return float(f"{MECHANISMS[mode](constants, settings, generator(seed, 'clip norm', mode, data)):.6g}")


def landing(mode: str, constants: Tensor, settings: PrivateClipConfig, draws: int = 100) -> Landing:
    """Where the choices of the seeds 0 to draws - 1 lie among the constants [n]."""
    chosen = np.array([draw(mode, constants, settings, seed) for seed in range(draws)])
    below = np.searchsorted(np.sort(constants.double().cpu().numpy()), chosen, side="left")
    percent = 100 * below / len(constants)
    return Landing(
        draws=draws,
        at={str(q): float(f"{np.percentile(percent, q):.6g}") for q in (0, 10, 50, 90, 100)},
        at_or_below_minimum=float((below == 0).mean()),
    )


def compose(account: Account, choice: Choice) -> Account:
    """The account of choosing a clip norm and then training with it, from the account of the training alone."""
    if choice.mode == "paper":
        return accounting.without_guarantee(account, NO_GUARANTEE)
    return accounting.add_pure(account, choice.epsilon, "the choice of the clip norm")
