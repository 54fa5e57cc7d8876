"""Configuration -> [Run]: how many updates a budget allows, and at most how many trials they may take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from dpexp.accounting import resolve_delta
from dpexp.algorithms.dpsr_cg import Test
from dpexp.algorithms.dpsur import LossTest
from dpexp.config import Config, ConfigError
from dpexp.config_checks import one_of
from dpexp.config_selective import Recipe
from dpexp.features import Features
from dpexp.mechanism import Mechanism
from dpexp.nets import NETS
from dpexp.selective import ledger, renyi
from dpexp.selective.ledger import Release, acceptance
from dpexp.selective.runs import Run

SCALINGS = {
    "non_private": "unscaled",
    "dpsgd": "clipped",
    "dpsur": "clipped",
    "dpsr_cg": "scaled",
    "dpsr_cg_no_release": "scaled",
    "dpsur_same_scaling": "scaled",
}
PUBLISHED = "_as_published"  # ending of the methods that follow the published code where it differs from its paper
TWO_SIDED = ("dpsr_cg", "dpsr_cg_no_release", "dpsur", "dpsur_same_scaling")  # methods that paper and code differ in


@dataclass(frozen=True, kw_only=True)
class Request:
    """One cell of the study before its budget is known."""

    name: str  # of the method, with its variant
    method: str
    variant: str
    recipe: Recipe
    n: int
    delta: float
    target_epsilon: float
    beta: float
    learning_rate: float

    @property
    def noise_multiplier(self) -> float:
        """Of the gradient sum, at the target epsilon."""
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


def _budget(asked: Request, release: Release, config: Config) -> tuple[int, int]:
    """(accepted updates, trials at most) that a cell's budget allows. Raises: ConfigError for no account or no room."""
    by = config.selective.budget_by
    certified = not release.published and (release.loss_test is None or by == "C")
    if by != "paper" and not certified:
        raise ConfigError(
            f"selective.budget_by={by} has no account for {asked.name}; use budget_by=paper"
            f"{'' if release.published else ' or C'} or leave the method out"
        )
    if by != "paper" and release.test is not None and release.test.reference == "raw":
        raise ConfigError(f"selective.budget_by={by} needs selective.reference=noisy or same_batch, got raw")
    steps, most = ledger.budget(release, by, asked.target_epsilon)
    if not steps:
        test = "" if release.loss_test is None else ", validation_noise (or a smaller validation_batch)"
        raise ConfigError(
            f"dp.target_epsilon={asked.target_epsilon:g} by account {by} allows {asked.name} no update; raise it or "
            f"selective.recipes.{asked.name}: noise_multiplier{test}"
        )
    if steps >= renyi.MOST:
        raise ConfigError(
            f"dp.target_epsilon={asked.target_epsilon:g} by account {by} allows {asked.name} a billion updates and "
            f"more; lower it or selective.recipes.{asked.name}.noise_multiplier={asked.noise_multiplier:g}"
        )
    return steps, most


def _limited(asked: Request, release: Release, budget: tuple[int, int], config: Config) -> tuple[int, int]:
    """A cell's budget with selective.max_accepted and max_trials. Raises: ConfigError where no trials are enough."""
    (steps, most), chosen = budget, config.selective
    every = release.smallest_acceptance == 1  # every trial is an accepted update
    if chosen.max_accepted is not None:
        steps = min(steps, chosen.max_accepted)
        most = steps if every else most
    if chosen.max_trials is not None:  # account C pays for trials: no more of them than the budget allows
        most = min(chosen.max_trials, most) if every or chosen.budget_by == "C" else chosen.max_trials
    if not most:
        raise ConfigError(
            f"a trial of {asked.name} may be accepted with probability {release.smallest_acceptance:.1g}, so no "
            "number of trials is enough: give selective.max_trials"
        )
    return steps, most


def _draft(asked: Request, config: Config, features: Features, seed: int) -> Run:
    """A run of a cell before its budget is known."""
    recipe = asked.recipe
    test = _metric_test(asked, config) if asked.method == "dpsr_cg" else None
    loss_test = _loss_test(asked) if asked.method.startswith("dpsur") else None
    scaling = SCALINGS[asked.method]
    # The effective batch size of paper S, Section 4.5: smaller by rho, so that q * rho is about B / n.
    inflation = 1.0 if test is None else acceptance(test).inflation
    batch = math.floor(recipe.batch_size / inflation)
    if not 1 <= batch <= asked.n:
        shrunk, way_out = "", ""
        if test is not None:
            shrunk = f" over rho = {inflation:.4g}, the largest ratio of acceptance probabilities,"
            way_out = ", or give more noise_multiplier or less beta for a smaller rho"
        raise ConfigError(
            f"selective.recipes.{asked.name}: batch_size={recipe.batch_size}{shrunk} must lie between 1 and the "
            f"{asked.n} training examples; change batch_size{way_out}"
        )
    return Run(
        method=asked.method,
        variant=asked.variant,
        features=features.digest,
        net=recipe.net,
        activation=recipe.activation,
        normalisation=recipe.normalisation,
        statistics_noise=recipe.statistics_noise,
        optimizer=recipe.optimizer,
        learning_rate=asked.learning_rate,
        seed=seed,
        mechanism=Mechanism(
            n=asked.n,
            expected_batch_size=float(batch),
            steps=1,
            clip_norm=recipe.clip_norm if asked.method != "non_private" else math.inf,
            noise_multiplier=asked.noise_multiplier if asked.method != "non_private" else 0.0,
        ),
        scaling="scaled_as_published" if asked.variant == "as_published" and scaling == "scaled" else scaling,
        scaling_bound=recipe.scaling_bound,
        test=test,
        loss_test=loss_test,
        validation_noise=recipe.at("validation_noise", asked.target_epsilon) if loss_test else 0.0,
        max_trials=1,
        quality_rows=config.selective.quality_rows,
        target_epsilon=asked.target_epsilon if asked.method != "non_private" else None,
        delta=asked.delta,
        budget_by=config.selective.budget_by,
    )


def _run(asked: Request, config: Config, features: Features, seed: int) -> Run:
    """One run of a cell, with as many updates and trials as its budget allows; the baseline: its epochs."""
    draft = _draft(asked, config, features, seed)
    if asked.method == "non_private":
        steps = most = round(asked.recipe.epochs * asked.n / asked.recipe.batch_size)
        return replace(draft, mechanism=replace(draft.mechanism, steps=steps), max_trials=most)
    budget = _budget(asked, draft.release, config)
    steps, most = _limited(asked, draft.release, budget, config)
    planned = replace(draft.mechanism, steps=steps)
    return replace(draft, mechanism=planned, max_trials=most, budget_updates=budget[0])


def _require_fit(name: str, recipe: Recipe, features: Features) -> None:
    """Refuse a network that cannot read a data set, before anything is trained. Raises: ConfigError."""
    where = f"selective.recipes.{name}.net"
    net = NETS[one_of(where, recipe.net, tuple(NETS))](recipe.activation)
    takes, width = math.prod(net.input_shape), features.train.x.shape[1]
    if (takes, net.classes) != (width, features.num_classes):
        raise ConfigError(
            f"{where}={recipe.net} takes {takes} numbers and tells {net.classes} classes apart, but {features.dataset} "
            f"({features.extractor}) has {width} and {features.num_classes}; choose another net or extractor"
        )


def expand(config: Config, features_of: dict[str, Features]) -> list[Run]:
    """Every run of the study: methods x targets x thresholds x learning rates x seeds, each once.

    features_of: by method, because methods differ in what they train on. Raises: ConfigError.
    """
    runs = []
    for name in config.selective.methods:
        method = name.removesuffix(PUBLISHED)
        features, recipe = features_of[name], config.selective.recipes[name]
        _require_fit(name, recipe, features)
        n = len(features.train)
        for target in config.dp.target_epsilon if method != "non_private" else (math.inf,):
            for beta, rate in product(
                config.selective.beta if method == "dpsr_cg" else (0.0,),
                config.selective.learning_rate or (recipe.learning_rate,),
            ):
                asked = Request(
                    name=name,
                    method=method,
                    variant="as_published" if name.endswith(PUBLISHED) else "sound" if method in TWO_SIDED else "",
                    recipe=recipe,
                    n=n,
                    delta=resolve_delta(config.dp.delta, n),
                    target_epsilon=target,
                    beta=beta,
                    learning_rate=rate,
                )
                runs += [_run(asked, config, features, seed) for seed in config.seeds]
    return _distinct(runs)


def _distinct(runs: Sequence[Run]) -> list[Run]:
    """Every run once. Raises: ConfigError where caps make the runs of different budgets one."""
    found: dict[str, Run] = {}
    for run in runs:
        other = found.setdefault(run.run_id, run)
        if other != run:
            raise ConfigError(
                f"dp.target_epsilon={other.target_epsilon:g} and {run.target_epsilon:g} plan the same run of "
                f"{run.name}: {run.mechanism.steps} updates of at most {run.max_trials} trials with equal noise; ask "
                "for one of them, or lift selective.max_accepted and selective.max_trials"
            )
    return list(found.values())
