"""The schema of the `selective` section: paper S's methods, their settings by data set, and their checks."""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from omegaconf import ListConfig

from dpexp.config_checks import COUNT, POSITIVE, ConfigError, number, numbers, one_of
from dpexp.config_sources import ExtractorConfig

SELECTIVE_METHODS = (
    "non_private",
    "dpsgd",
    "dpsr_cg",
    "dpsr_cg_as_published",
    "dpsr_cg_no_release",
    "dpsur",
    "dpsur_as_published",
    "dpsur_same_scaling",
)
BUDGETS = ("paper", "A", "B", "C")
REFERENCES = ("noisy", "same_batch", "raw")
NORMALISATIONS = ("none", "noisy_statistics", "group_norm", "group_norm_quartered")
OPTIMIZER_NAMES = ("sgd", "adam")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that one method is told about one data set. `by epsilon`: one number, or {target epsilon: number}.

    scaling_bound (S_g), saturation (S_e), metric_bound (C_e): DPSR-CG's, and S_g that of the same-scaling DPSUR.
    validation_batch, loss_bound (C_v), validation_noise (sigma_v, by epsilon): DPSUR's.
    """

    extractor: ExtractorConfig
    net: str
    activation: str = "tanh"
    normalisation: str = "none"
    statistics_noise: float = 8.0  # noise multiplier of each of the two releases of noisy_statistics
    optimizer: str = "sgd"
    batch_size: int = 1
    learning_rate: float = 1.0
    noise_multiplier: Any = 0.0  # by epsilon
    clip_norm: float = math.inf
    scaling_bound: float = 1.0
    saturation: float = 11.0
    metric_bound: float = 1.0
    validation_batch: int = 256
    loss_bound: float = 0.001
    validation_noise: Any = 0.0  # by epsilon
    validation_beta: float = -1.0
    epochs: int = 20  # non_private: how long; every other method is stopped by its budget

    def at(self, name: str, target_epsilon: float | None) -> float:
        """The value of a setting that may be a table by target epsilon. Raises: ConfigError."""
        given = getattr(self, name)
        table = given if isinstance(given, Mapping) else {target_epsilon: given}
        if target_epsilon not in table:
            raise ConfigError(
                f"selective.recipes: {name} has no entry for dp.target_epsilon={target_epsilon:g}, only for "
                f"{', '.join(f'{e:g}' for e in table)}; add one or give a single number"
            )
        return float(table[target_epsilon])


def _recipe(method: str, given: Mapping[str, Any]) -> Recipe:
    """A recipe from its YAML, every key and value checked."""
    known = {entry.name for entry in fields(Recipe)}
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(key, sorted(known), n=1)
            hint = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(sorted(known))}"
            raise ConfigError(f"selective.recipes.{method}.{key} is not a setting; {hint}")
    for key in ("extractor", "net"):
        if key not in given:
            raise ConfigError(f"selective.recipes.{method} must name its {key}")
    if not isinstance(given["extractor"], Mapping):
        raise ConfigError(
            f"selective.recipes.{method}.extractor must be a section such as {{name: raw}}, got {given['extractor']!r}"
        )
    try:
        extractor = ExtractorConfig(**given["extractor"])
    except TypeError as error:
        raise ConfigError(f"selective.recipes.{method}.extractor: {error}") from error
    recipe = Recipe(**{**given, "extractor": extractor})
    where = f"selective.recipes.{method}"
    one_of(f"{where}.activation", recipe.activation, ("tanh", "relu"))
    one_of(f"{where}.normalisation", recipe.normalisation, NORMALISATIONS)
    one_of(f"{where}.optimizer", recipe.optimizer, OPTIMIZER_NAMES)
    for name in ("batch_size", "validation_batch", "epochs"):
        number(f"{where}.{name}", getattr(recipe, name), int, *COUNT)
    for name in ("learning_rate", "scaling_bound", "saturation", "metric_bound", "loss_bound", "statistics_noise"):
        number(f"{where}.{name}", getattr(recipe, name), float, *POSITIVE)
    for name in ("noise_multiplier", "validation_noise"):
        value = getattr(recipe, name)
        for entry in value.values() if isinstance(value, Mapping) else [value]:
            number(f"{where}.{name}", entry, float, "a finite number >= 0", lambda v: math.isfinite(v) and v >= 0)
    if method != "non_private":
        number(f"{where}.clip_norm", recipe.clip_norm, float, *POSITIVE)
    if recipe.saturation < recipe.scaling_bound:
        raise ConfigError(
            f"{where}.saturation must be at least scaling_bound={recipe.scaling_bound:g}, got {recipe.saturation:g}"
        )
    return recipe


@dataclass
class SelectiveConfig:
    """The selective-release study (algorithm=selective). Target epsilons, delta and seeds are those of every study."""

    methods: Any = field(default_factory=list)
    recipes: Any = field(default_factory=dict)  # method -> Recipe's keys; conf/recipe holds paper S's
    budget_by: str = "paper"  # which account stops a run: paper | A | B | C (every trial charged)
    reference: str = "noisy"  # dpsr_cg, sound: noisy | same_batch | raw (no certificate)
    reference_noise: float | None = None  # noise multiplier of the published reference; null: max(20, 5 sigma_t)
    beta: Any = 3.0  # dpsr_cg: the threshold is beta * clip_norm; a list gives a run for each
    learning_rate: Any = None  # null: each recipe's own; a list gives a run of every method for each
    max_trials: int | None = None  # null: so many that reaching them has probability below 1e-6
    max_accepted: int | None = None  # stop early, for a study of the first updates; the budget then is not used up
    evaluations: int = 50  # how often a run is evaluated on the test set
    quality_rows: int = 0  # test examples on which every candidate's loss is measured (Figures 3 and 4); 0: none

    def check(self) -> None:
        """Normalise and check every value."""
        given = self.methods if isinstance(self.methods, list | tuple | ListConfig) else [self.methods]
        self.methods = tuple(dict.fromkeys(one_of("selective.methods", m, SELECTIVE_METHODS) for m in given))
        self.recipes = {name: _recipe(name, recipe) for name, recipe in self.recipes.items()}
        for method in self.methods:
            if method not in self.recipes:
                known = f"only for {', '.join(self.recipes)}" if self.recipes else "and for no other method"
                raise ConfigError(
                    f"selective.methods names {method}, for which selective.recipes has no settings, {known}; choose "
                    "one of conf/recipe, for example recipe=mnist for grey images of 28 x 28, or write one"
                )
        one_of("selective.budget_by", self.budget_by, BUDGETS)
        one_of("selective.reference", self.reference, REFERENCES)
        if self.reference_noise is not None:
            number("selective.reference_noise", self.reference_noise, float, *POSITIVE)
        rule = ("a number (inf and -inf included)", lambda v: not math.isnan(v))
        self.beta = numbers("selective.beta", self.beta, float, *rule)
        given = [] if self.learning_rate is None else self.learning_rate
        self.learning_rate = numbers("selective.learning_rate", given, float, *POSITIVE)
        for name in ("max_trials", "max_accepted"):
            if getattr(self, name) is not None:
                number(f"selective.{name}", getattr(self, name), int, *COUNT)
        number("selective.evaluations", self.evaluations, int, *COUNT)
        number("selective.quality_rows", self.quality_rows, int, "a whole number >= 0", lambda v: v >= 0)

    def check_study(self, study: str, target_epsilon: object) -> None:
        """What a study of paper S needs beyond values that are right by themselves. Raises: ConfigError."""
        if not self.methods:
            raise ConfigError("selective.methods must name at least one method, got none")
        if target_epsilon is None:
            raise ConfigError(
                "paper S's runs need dp.target_epsilon, got null: their noise multipliers are those of "
                "selective.recipes.<method>.noise_multiplier"
            )
        if self.learning_rate and study == "selective":
            raise ConfigError(
                "selective.learning_rate tries several settings, and the study `selective` shows one of each method: "
                "give this study a name of its own, for example name=selective_rates"
            )
