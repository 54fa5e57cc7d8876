"""Config -> [Run] -> [Program]: what is to be trained, who it is, and what can be trained together."""

import math
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from dpexp import accounting, lipschitz
from dpexp.accounting import Account
from dpexp.cache import digest
from dpexp.config import Config, ConfigError
from dpexp.features import Examples, Features, hold_out
from dpexp.mechanism import Mechanism

GENERATION = 1  # raise when a change of the code changes the numbers that the same settings give


@dataclass(frozen=True, kw_only=True)
class Task:
    """Features as one experiment uses them. validation is None unless the learning rate is selected on it."""

    features: Features
    train: Examples
    validation: Examples | None


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run. Its identity is everything that can change its number; the rest are labels."""

    method: str
    features: str
    model: str
    bias: bool
    mechanism: Mechanism
    learning_rate: float
    seed: int
    noise: str
    engine: str
    validation_fraction: float
    # Labels: where the run stands in its grid, and what it costs.
    target_epsilon: float | None
    clip_percentile: float | None
    account: Account

    @cached_property
    def run_id(self) -> str:
        """Hash of everything that can change the run's number."""
        labels = ("target_epsilon", "clip_percentile", "account")
        return digest({k: v for k, v in asdict(self).items() if k not in labels} | {"generation": GENERATION})

    @property
    def evaluation_steps(self) -> list[int]:
        """The step after which each epoch ends; an epoch is n / b steps, rounded up where that is no whole number."""
        per_epoch = self.mechanism.n / self.mechanism.expected_batch_size
        epochs = max(1, round(self.mechanism.steps / per_epoch))
        ends = [min(self.mechanism.steps, math.ceil(e * per_epoch)) for e in range(1, epochs)]
        return [*ends, self.mechanism.steps]


@dataclass(frozen=True, kw_only=True)
class Program:
    """Runs that share mini-batches and shapes, and so advance in the same matrix products."""

    runs: tuple[Run, ...]

    @cached_property
    def program_id(self) -> str:
        """Hash of the runs it holds."""
        return digest([run.run_id for run in self.runs])

    @property
    def run_steps(self) -> int:
        """Training steps summed over its runs: the unit of progress."""
        return len(self.runs) * self.runs[0].mechanism.steps


def prepare(config: Config, features: Features) -> Task:
    """Hold out a validation set if the learning rate is to be selected on one."""
    if config.select_on == "test":
        return Task(features=features, train=features.train, validation=None)
    train, validation = hold_out(features.train, config.train.validation_fraction)
    return Task(features=features, train=train, validation=validation)


def steps_for(config: Config, epochs: int | None, n: int) -> int:
    """Training steps: epochs * n / batch size, rounded up; the configured number where epochs are not."""
    if epochs is None:
        assert config.train.steps is not None
        return config.train.steps
    return math.ceil(epochs * n / config.train.batch_size)


def clip_norms(config: Config, train: Examples) -> dict[float, float | None]:
    """Every clip norm of the grid with the percentile it stands for (None: a fixed one).

    Percentile clip norms keep six digits, so that the last bit of a norm cannot change a run's identity.
    """
    constants = lipschitz.constants(train.x, config.dp.percentile_include_bias)
    found: dict[float, float | None] = dict.fromkeys(config.dp.clip_norm)
    for percentile, clip_norm in lipschitz.percentile_clip_norms(constants, config.dp.clip_percentile).items():
        found[float(f"{clip_norm:.6g}")] = percentile
    return found


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A point of the grid before its learning rate and seed: what is run, and what it costs."""

    method: str
    mechanism: Mechanism
    target_epsilon: float | None
    clip_percentile: float | None
    account: Account


def _budgets(config: Config, n: int, delta: float, cache: Path) -> Iterable[tuple[float | None, int, float]]:
    """(target epsilon, steps, noise multiplier) of every private budget in the grid."""
    if config.dp.noise_multiplier is not None:
        steps = steps_for(config, config.train.epochs_for(None), n)
        yield from ((None, steps, sigma) for sigma in config.dp.noise_multiplier)
        return
    for target in config.dp.target_epsilon:
        steps = steps_for(config, config.train.epochs_for(target), n)
        noise_multiplier = accounting.cached_calibration(
            cache,
            target_epsilon=target,
            sample_rate=config.train.batch_size / n,
            steps=steps,
            delta=delta,
            accountant=config.dp.accountant,
            tolerance=config.dp.epsilon_tolerance,
        )
        yield target, steps, noise_multiplier


def cells(config: Config, task: Task) -> list[Cell]:
    """Every cell of the grid, private ones first, each with its calibrated noise and its account.

    Raises: ConfigError where a setting does not fit the data.
    """
    n, batch_size = len(task.train), config.train.batch_size
    if batch_size > n:
        raise ConfigError(
            f"train.batch_size={batch_size} is larger than the training set ({n} samples of "
            f"{task.features.dataset}); use at most {n} (full batch, sample rate 1)"
        )
    delta = accounting.resolve_delta(config.dp.delta, n)
    cache = Path(config.output_dir) / "cache" / "accounting"
    points: list[tuple] = [
        ("dpsgd", *budget, clip_norm, percentile)
        for budget in _budgets(config, n, delta, cache)
        for clip_norm, percentile in clip_norms(config, task.train).items()
    ]
    if config.train.non_private:
        epochs = config.train.non_private_epochs or config.train.epochs_for(None)
        points.append(("non_private", None, steps_for(config, epochs, n), 0.0, math.inf, None))
    found = []
    for method, target, steps, noise_multiplier, clip_norm, percentile in points:
        mechanism = Mechanism(
            n=n,
            expected_batch_size=batch_size,
            steps=steps,
            clip_norm=clip_norm,
            noise_multiplier=noise_multiplier,
        )
        account = accounting.cached_account(
            cache,
            sample_rate=mechanism.sample_rate,
            noise_multiplier=noise_multiplier,
            steps=steps,
            delta=delta,
            accountant=config.dp.accountant,
        )
        _check_budget(target, account.epsilon, config.dp.epsilon_tolerance)
        found.append(
            Cell(
                method=method,
                mechanism=mechanism,
                target_epsilon=target,
                clip_percentile=percentile,
                account=account,
            )
        )
    return found


def expand(config: Config, task: Task) -> list[Run]:
    """Every run of the grid: cells x learning rates x seeds, each run once.

    Raises: ConfigError where a setting does not fit the data.
    """
    runs = (
        Run(
            **vars(cell),
            features=task.features.digest,
            model=config.model.name,
            bias=config.model.bias,
            learning_rate=learning_rate,
            seed=seed,
            noise=config.noise if cell.mechanism.noise_multiplier else "none",
            engine=config.engine,
            validation_fraction=config.train.validation_fraction if task.validation else 0.0,
        )
        for cell in cells(config, task)
        for learning_rate in config.train.learning_rate
        for seed in config.seeds
    )
    return list({run.run_id: run for run in runs}.values())


def _check_budget(target: float | None, achieved: float, tolerance: float) -> None:
    """Achieved epsilon never above the target, and not needlessly below it."""
    if target is not None and not target * (1 - tolerance) <= achieved <= target:
        raise ConfigError(
            f"calibration to epsilon {target:g} achieved {achieved:.6g}, outside "
            f"[{target * (1 - tolerance):g}, {target:g}]; choose another dp.accountant"
        )


def pack(runs: Iterable[Run], runs_per_program: int) -> list[Program]:
    """Runs grouped by what they must share, in even parts of at most `runs_per_program`.

    Packing looks at the whole grid, not at what is left of it, so that a resumed sweep repeats the same products.
    """
    groups: dict[tuple, list[Run]] = {}
    for run in runs:
        m = run.mechanism
        shared = (run.model, run.bias, run.engine, run.noise, run.seed, m.n, m.expected_batch_size, m.steps)
        groups.setdefault(shared, []).append(run)
    programs = []
    for group in groups.values():
        limit = 1 if group[0].engine == "opacus" else runs_per_program
        parts = math.ceil(len(group) / limit)
        size = math.ceil(len(group) / parts)
        programs += [Program(runs=tuple(group[i : i + size])) for i in range(0, len(group), size)]
    return programs


def missing(programs: Iterable[Program], done: Collection[str]) -> list[Program]:
    """What is left to train: programs without the runs whose results are stored."""
    left = [tuple(run for run in program.runs if run.run_id not in done) for program in programs]
    return [Program(runs=runs) for runs in left if runs]
