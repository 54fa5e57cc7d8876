"""Configuration -> [Run]: how many updates a budget allows, and at most how many trials they may take."""

import math
from dataclasses import dataclass

from dpexp.accounting import resolve_delta
from dpexp.algorithms.dpsr_cg import Test
from dpexp.algorithms.dpsur import LossTest
from dpexp.config import Config, ConfigError
from dpexp.config_selective import Recipe
from dpexp.features import Features
from dpexp.mechanism import Mechanism
from dpexp.selective import ledger
from dpexp.selective.runs import Run

CAP_FAILURE = 1e-6  # probability with which a run may reach its last allowed trial
SCALINGS = {
    "non_private": "unscaled",
    "dpsgd": "clipped",
    "dpsur": "clipped",
    "dpsr_cg": "scaled",
    "dpsr_cg_no_release": "scaled",
    "dpsur_same_scaling": "scaled",
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One cell of the study before its budget is known."""

    method: str
    variant: str
    recipe: Recipe
    n: int
    delta: float
    target_epsilon: float
    beta: float

    @property
    def noise_multiplier(self) -> float:
        return self.recipe.at("noise_multiplier", self.target_epsilon)


def _metric_test(asked: Request, config: Config) -> Test:
    """DPSR-CG's test: half width 2 C_t, threshold beta C_t, noise 4 sigma_t C_t (paper S, Sections 4.4 and 4.7)."""
    clip, sigma = asked.recipe.clip_norm, asked.noise_multiplier
    chosen = config.selective
    multiplier = chosen.reference_noise or max(20.0, 5 * sigma)
    reference = "raw" if asked.variant == "as_published" else chosen.reference
    return Test(
        scaling_bound=asked.recipe.scaling_bound,
        saturation=asked.recipe.saturation,
        metric_bound=asked.recipe.metric_bound,
        clip_range=2 * clip,
        threshold=asked.beta * clip,
        std=4 * sigma * clip,
        reference=reference,
        reference_std=multiplier * asked.recipe.metric_bound if reference == "noisy" else 0.0,
    )


def _loss_test(asked: Request) -> LossTest:
    """DPSUR's test: the clipped difference has range 2 C_v, its noise sigma_v times that."""
    recipe, sigma = asked.recipe, asked.recipe.at("validation_noise", asked.target_epsilon)
    return LossTest(
        validation_batch=recipe.validation_batch,
        loss_bound=recipe.loss_bound,
        threshold=recipe.validation_beta * recipe.loss_bound,
        std=2 * recipe.loss_bound * sigma,
        stored_loss=asked.variant == "as_published",
    )
