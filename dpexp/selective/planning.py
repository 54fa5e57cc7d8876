"""Configuration -> [Run]: how many updates a budget allows, and at most how many trials they may take."""

import math
from dataclasses import dataclass, replace

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


def _plan(asked: Request, config: Config) -> tuple[Mechanism, int, Test | None, LossTest | None]:
    """Mechanism with its planned updates, trials at most, and the test."""
    recipe, test, loss_test = asked.recipe, None, None
    batch, sigma = float(recipe.batch_size), asked.noise_multiplier
    if asked.method == "dpsr_cg":
        test = _metric_test(asked, config)
        batch = float(math.floor(batch / ledger.metric_inflation(test)))  # the effective batch size of Section 4.5
    elif asked.method in ("dpsur", "dpsur_same_scaling"):
        loss_test = _loss_test(asked)
    cost = ledger.Cost(
        method=asked.method,
        variant=asked.variant,
        sample_rate=batch / asked.n,
        noise_multiplier=sigma,
        test=test,
        loss_test=loss_test,
        validation_rate=recipe.validation_batch / asked.n,
        validation_noise=recipe.at("validation_noise", asked.target_epsilon) if loss_test else 0.0,
        statistics_noise=recipe.statistics_noise if recipe.normalisation == "noisy_statistics" else None,
        delta=asked.delta,
    )
    steps, most = ledger.budget(cost, config.selective.budget_by, asked.target_epsilon)
    mechanism = Mechanism(
        n=asked.n, expected_batch_size=batch, steps=steps, clip_norm=recipe.clip_norm, noise_multiplier=sigma
    )
    return mechanism, most, test, loss_test


def _non_private(recipe: Recipe, n: int) -> Mechanism:
    """The baseline: a fixed number of epochs without bound or noise."""
    steps = round(recipe.epochs * n / recipe.batch_size)
    return Mechanism(
        n=n, expected_batch_size=float(recipe.batch_size), steps=steps, clip_norm=math.inf, noise_multiplier=0.0
    )


def _run(asked: Request, config: Config, features: Features, seed: int) -> Run:
    """One run of a cell."""
    recipe, private = asked.recipe, asked.method != "non_private"
    mechanism, most, test, loss_test = (
        _plan(asked, config) if private else (_non_private(recipe, asked.n), 0, None, None)
    )
    chosen = config.selective
    if chosen.max_accepted is not None and chosen.max_accepted < mechanism.steps:
        mechanism = replace(mechanism, steps=chosen.max_accepted)
    scaling = SCALINGS[asked.method]
    return Run(
        method=asked.method,
        variant=asked.variant,
        features=features.digest,
        net=recipe.net,
        activation=recipe.activation,
        normalisation=recipe.normalisation,
        statistics_noise=recipe.statistics_noise,
        optimizer=recipe.optimizer,
        learning_rate=recipe.learning_rate,
        seed=seed,
        mechanism=mechanism,
        scaling="scaled_as_published" if asked.variant == "as_published" and scaling == "scaled" else scaling,
        scaling_bound=recipe.scaling_bound,
        test=test,
        loss_test=loss_test,
        validation_noise=recipe.at("validation_noise", asked.target_epsilon) if loss_test else 0.0,
        max_trials=chosen.max_trials or max(most, mechanism.steps),
        quality_rows=chosen.quality_rows,
        target_epsilon=asked.target_epsilon if private else None,
        delta=asked.delta,
        budget_by=chosen.budget_by,
    )


def expand(config: Config, features_of: dict[str, Features]) -> list[Run]:
    """Every run of the study: methods x targets x thresholds x seeds, each once.

    features_of: by method, because methods differ in what they train on. Raises: ConfigError.
    """
    runs = []
    for name in config.selective.methods:
        method, _, variant = name.partition(":")
        features, recipe = features_of[name], config.selective.recipes[name]
        n = len(features.train)
        for target in config.dp.target_epsilon if method != "non_private" else (math.inf,):
            for beta in config.selective.beta if method == "dpsr_cg" else (0.0,):
                asked = Request(
                    method=method,
                    variant=variant or ("sound" if method.startswith(("dpsr_cg", "dpsur")) else ""),
                    recipe=recipe,
                    n=n,
                    delta=resolve_delta(config.dp.delta, n),
                    target_epsilon=target,
                    beta=beta,
                )
                runs += [_run(asked, config, features, seed) for seed in config.seeds]
    return list({run.run_id: run for run in runs}.values())
