"""The configuration schema, and every check that needs no data.

Hydra composes YAML into these classes, so that a misspelt key fails at once. `load` turns the composed configuration
into checked values; nothing downstream reads a raw one. Numbers that may be given as one value or as a list are typed
`Any` in the schema and become tuples here, because a Hydra float accepts nan, inf and -1 and a Hydra list no scalar.
"""

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dpexp.config_checks import COUNT, POSITIVE, ConfigError, finite_positive, number, numbers, one_of
from dpexp.config_model import ModelConfig
from dpexp.config_privacy import PrivateClipConfig
from dpexp.config_selective import SELECTIVE_METHODS, Recipe, SelectiveConfig
from dpexp.config_sources import DatasetConfig, ExtractorConfig

NOISE_MODES = ("independent", "shared")
ENGINES = ("packed", "opacus")
SELECT_ON = ("test", "validation")
ACCOUNTANTS = ("rdp", "prv", "pld")
ALGORITHMS = ("dpsgd", "theory", "selective")


@dataclass
class AlgorithmConfig:
    """The training algorithm."""

    name: str = MISSING


@dataclass
class DPConfig:
    """The privacy side. Give exactly one of `target_epsilon` and `noise_multiplier`."""

    target_epsilon: Any = None  # one or several; the noise is calibrated to each
    noise_multiplier: Any = None  # noise standard deviation / clip norm; 0 means no noise and epsilon = infinity
    delta: float | None = None  # None: min(1e-5, 1/(2n))
    accountant: str = "rdp"  # the one that calibrates; all three are reported
    epsilon_tolerance: float = 0.01  # achieved epsilon lies in [target * (1 - tolerance), target]
    clip_norm: Any = field(default_factory=list)  # fixed clip norms
    clip_percentile: Any = field(default_factory=list)  # percentiles of the Lipschitz constants; NOT private
    percentile_include_bias: bool = False  # whether those constants count the constant 1 of the bias
    private_clip: PrivateClipConfig = field(default_factory=PrivateClipConfig)  # clip norms chosen with privacy

    def check(self) -> None:
        """Normalise and check every value of this section."""
        if (self.target_epsilon is None) == (self.noise_multiplier is None):
            raise ConfigError(
                "give exactly one of dp.target_epsilon and dp.noise_multiplier, "
                f"got {self.target_epsilon!r} and {self.noise_multiplier!r}; set the other one to null"
            )
        if self.target_epsilon is not None:
            self.target_epsilon = numbers("dp.target_epsilon", self.target_epsilon, float, *POSITIVE)
        else:
            rule = ("a finite number >= 0", lambda v: math.isfinite(v) and v >= 0)
            self.noise_multiplier = numbers("dp.noise_multiplier", self.noise_multiplier, float, *rule)
        if self.delta is not None:
            number("dp.delta", self.delta, float, "between 0 and 1, both excluded", lambda v: 0 < v < 1)
        one_of("dp.accountant", self.accountant, ACCOUNTANTS)
        number("dp.epsilon_tolerance", self.epsilon_tolerance, float, *POSITIVE)
        self.clip_norm = self._clip_norms()
        rule = ("between 0 and 100", lambda v: 0 <= v <= 100)
        self.clip_percentile = numbers("dp.clip_percentile", self.clip_percentile, float, *rule)
        self.private_clip.check(self.target_epsilon)
        if not (self.clip_norm or self.clip_percentile or self.private_clip.modes):
            raise ConfigError(
                "give at least one of dp.clip_norm, dp.clip_percentile and dp.private_clip.modes, got none"
            )

    def _clip_norms(self) -> tuple[float, ...]:
        """Fixed clip norms; infinity ("no clipping") has no sensitivity bound and so no place beside noise."""
        noiseless = self.noise_multiplier == (0.0,)
        if noiseless:
            return numbers("dp.clip_norm", self.clip_norm, float, "a number > 0", lambda v: v > 0)
        rule = POSITIVE[0]
        values = self.clip_norm if isinstance(self.clip_norm, list | tuple | ListConfig) else [self.clip_norm]
        if math.inf in values:
            rule += " (inf needs dp.noise_multiplier=0)"
        return numbers("dp.clip_norm", self.clip_norm, float, rule, finite_positive)


@dataclass
class TrainConfig:
    """The optimisation side. Give exactly one of `epochs` and `steps`."""

    batch_size: int = 500  # expected (Poisson) batch size, the public divisor
    epochs: Any = None  # one number, or a table {target epsilon: epochs}
    steps: int | None = None
    learning_rate: Any = field(default_factory=lambda: [1.0])
    non_private: bool = True  # also train the non-private baseline
    non_private_epochs: int | None = None  # None: as many steps as the longest private run
    last_epochs: int = 5  # the reported accuracy is the mean over this many last epochs
    validation_fraction: float = 0.1  # held out of the training set under select_on=validation

    def check(self) -> None:
        """Normalise and check every value of this section."""
        number("train.batch_size", self.batch_size, int, *COUNT)
        if (self.epochs is None) == (self.steps is None):
            raise ConfigError(
                "give exactly one of train.epochs and train.steps, "
                f"got {self.epochs!r} and {self.steps!r}; set the other one to null"
            )
        if isinstance(self.epochs, Mapping):
            self.epochs = {float(e): self._count("train.epochs", v) for e, v in self.epochs.items()}
        elif self.epochs is not None:
            self._count("train.epochs", self.epochs)
        else:
            self._count("train.steps", self.steps)
        if self.non_private_epochs is not None:
            self._count("train.non_private_epochs", self.non_private_epochs)
        self.learning_rate = numbers("train.learning_rate", self.learning_rate, float, *POSITIVE)
        if not self.learning_rate:
            raise ConfigError("train.learning_rate must name at least one learning rate, got none")
        number("train.last_epochs", self.last_epochs, int, *COUNT)
        rule = ("between 0 and 1, both excluded", lambda v: 0 < v < 1)
        number("train.validation_fraction", self.validation_fraction, float, *rule)

    @staticmethod
    def _count(key: str, value: Any) -> int:
        return number(key, value, int, *COUNT)

    def epochs_for(self, target_epsilon: float | None) -> int | None:
        """Epochs at a target epsilon; the longest entry of a table where there is no target. None: `steps` rules."""
        if not isinstance(self.epochs, Mapping):
            return self.epochs
        if target_epsilon is None:
            return max(self.epochs.values())
        if target_epsilon not in self.epochs:
            raise ConfigError(
                f"train.epochs has no entry for target epsilon {target_epsilon:g}, only for "
                f"{', '.join(f'{e:g}' for e in self.epochs)}; add one or give a single number"
            )
        return self.epochs[target_epsilon]


@dataclass
class ComputeConfig:
    """Where and how fast; nothing here may change a result."""

    device: str = "cpu"
    workers: int | None = None  # programs that train at once; None: one a core, one on an accelerator
    runs_per_program: int = 112  # at most how many runs advance in one set of matrix products
    program_mib: int = 512  # memory of one program's weights and buffers; large heads get fewer runs per program


@dataclass
class TrackingConfig:
    """Where results are mirrored to."""

    name: str = "none"
    project: str = "dpexp"
    mode: str = "offline"


@dataclass
class Config:
    """A whole experiment."""

    name: str = MISSING  # the study: names the results folder, the table and the figure
    data_root: str = "data"
    output_dir: str = "outputs"
    features_dir: str = "outputs/features"
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    extractor: ExtractorConfig = field(default_factory=ExtractorConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    dp: DPConfig = field(default_factory=DPConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    selective: SelectiveConfig = field(default_factory=SelectiveConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    seeds: Any = field(default_factory=lambda: [0])
    select_on: str = "test"
    noise: str = "independent"
    engine: str = "packed"

    def check(self) -> None:
        """Normalise and check every section, then what spans several."""
        if not re.fullmatch(r"\w[\w.-]{0,99}", self.name):
            raise ConfigError(
                "name must be 1 to 100 letters, digits, _, - and ., and begin with none of the last two, because it "
                f"names files; got {self.name!r}"
            )
        self.model.check()
        one_of("algorithm.name", self.algorithm.name, ALGORITHMS)
        self.dp.check()
        self.train.check()
        self.selective.check()
        if self.algorithm.name == "selective":
            self.selective.check_study(self.study, self.dp.target_epsilon)
        rule = ("a whole number >= 0", lambda v: v >= 0)
        self.seeds = numbers("seeds", self.seeds, int, *rule)
        if not self.seeds:
            raise ConfigError("seeds must name at least one seed, got none")
        one_of("select_on", self.select_on, SELECT_ON)
        one_of("noise", self.noise, NOISE_MODES)
        one_of("engine", self.engine, ENGINES)
        if self.compute.workers is not None:
            number("compute.workers", self.compute.workers, int, *COUNT)
        number("compute.runs_per_program", self.compute.runs_per_program, int, *COUNT)
        number("compute.program_mib", self.compute.program_mib, int, *COUNT)
        for target in self.dp.target_epsilon or ():
            self.train.epochs_for(target)
        if self.model.name != "softmax" and (self.dp.clip_percentile or self.dp.private_clip.modes):
            raise ConfigError(
                "dp.clip_percentile and dp.private_clip use the Lipschitz constants of softmax regression, got "
                f"model.name={self.model.name}; give fixed dp.clip_norm instead"
            )

    @property
    def study(self) -> str:
        """The study's name, extended by every choice that must not share a results folder with the default one.

        The tables of paper S find their studies by name.
        """
        of_paper_s = self.algorithm.name == "selective" and not self.name.startswith("selective")
        parts = [f"selective_{self.name}" if of_paper_s else self.name]
        parts += [self.select_on] if self.select_on != "test" else []
        parts += [f"{self.noise}_noise"] if self.noise != "independent" else []
        parts += [self.engine] if self.engine != "packed" else []
        return "-".join(parts)


def register() -> None:
    """Make the schema known to Hydra, so that composition checks every key."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)


def _keys(schema: type, prefix: str = "") -> list[str]:
    """Every key of the schema by its full name."""
    found = []
    for entry in fields(schema):
        found.append(prefix + entry.name)
        if is_dataclass(entry.type) and isinstance(entry.type, type):
            found += _keys(entry.type, f"{prefix}{entry.name}.")
    return found


def check_keys(overrides: Sequence[str]) -> None:
    """Refuse a misspelt key on the command line with the closest known one; Hydra would only refuse it. Also a ~.

    Raises: ConfigError.
    """
    known = [
        *_keys(Config),
        "recipe",
        *(key for method in SELECTIVE_METHODS for key in _keys(Recipe, f"selective.recipes.{method}.")),
    ]
    for override in overrides:
        key, equals, value = override.partition("=")
        if equals and value.startswith("~"):
            raise ConfigError(f"{override}: ~ is not expanded there; write {key}=$HOME{value[1:]}")
        if equals and re.fullmatch(r"[A-Za-z_.]+", key) and not key.startswith("hydra.") and key not in known:
            close = difflib.get_close_matches(key, [*known, "+sweep"], n=1)
            hint = f"did you mean {close[0]}?" if close else "--cfg job prints all of them"
            raise ConfigError(f"{key} is not a key of the configuration; {hint}")


def compose(overrides: Sequence[str], folder: Path) -> Config:
    """The checked configuration that command-line overrides give on a folder of YAML files. Raises: ConfigError."""
    register()
    check_keys(overrides)
    try:
        with hydra.initialize_config_dir(version_base="1.3", config_dir=str(folder)):
            return load(hydra.compose("config", overrides=list(overrides)))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(str(error)) from error


def load(composed: DictConfig) -> Config:
    """Resolve and check a composed configuration.

    Raises: ConfigError, whose message names the key.
    """
    config = OmegaConf.to_object(composed)
    assert isinstance(config, Config), "compose from conf/config.yaml, which builds on the schema"
    config.check()
    return config


def plain(config: Config) -> dict[str, Any]:
    """The configuration as nested built-in values, for records and trackers."""
    return asdict(config)
