"""The points of a grid before learning rates: what is run, under which mechanism, and what it costs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dpexp import accounting, lipschitz, private_clip
from dpexp.accounting import Account
from dpexp.config import Config, ConfigError
from dpexp.features import Examples, Features
from dpexp.mechanism import Mechanism
from dpexp.private_clip import Choice


@dataclass(frozen=True, kw_only=True)
class Task:
    """Features as one experiment uses them. validation is None unless the learning rate is selected on it."""

    features: Features
    train: Examples
    validation: Examples | None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A point of the grid before its learning rate: what is run, for which seeds, and what it costs.

    choice: how the clip norm was chosen, if with privacy; the seeds of such a study have clip norms of their own.
    """

    method: str
    mechanism: Mechanism
    target_epsilon: float | None
    clip_percentile: float | None
    choice: Choice | None
    account: Account
    seeds: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class _Budget:
    """A noise multiplier, the steps it is for, and the total target that it helps to meet."""

    target: float | None
    steps: int
    noise_multiplier: float


@dataclass(frozen=True, kw_only=True)
class _Clip:
    """A clip norm and where it comes from."""

    norm: float
    seeds: tuple[int, ...]
    method: str = "dpsgd"
    percentile: float | None = None
    choice: Choice | None = None


def steps_for(config: Config, epochs: int | None, n: int) -> int:
    """Training steps: epochs * n / batch size, rounded up; the configured number where epochs are not."""
    if epochs is None:
        assert config.train.steps is not None
        return config.train.steps
    return math.ceil(epochs * n / config.train.batch_size)


def _plain_clips(config: Config, train: Examples) -> Iterator[_Clip]:
    """Fixed clip norms and percentiles, each clip norm once.

    Percentile clip norms keep six digits, so that the last bit of a norm cannot change a run's identity.
    """
    constants = lipschitz.constants(train.x, config.dp.percentile_include_bias)
    found: dict[float, float | None] = dict.fromkeys(config.dp.clip_norm)
    for percentile, clip_norm in lipschitz.percentile_clip_norms(constants, config.dp.clip_percentile).items():
        found[float(f"{clip_norm:.6g}")] = percentile
    for clip_norm, percentile_of in found.items():
        yield _Clip(norm=clip_norm, percentile=percentile_of, seeds=config.seeds)


def _private_clips(config: Config, train: Examples) -> Iterator[_Clip]:
    """One clip norm for each mode and seed."""
    if not config.dp.private_clip.modes:
        return
    constants = lipschitz.constants(train.x, config.dp.percentile_include_bias)
    for mode in config.dp.private_clip.modes:
        for seed in config.seeds:
            yield _Clip(
                norm=private_clip.draw(mode, constants, config.dp.private_clip, seed),
                seeds=(seed,),
                method=private_clip.METHODS[mode],
                choice=Choice(mode=mode, epsilon=config.dp.private_clip.epsilon),
            )


def _budgets(config: Config, n: int, delta: float, spent: float) -> Iterator[_Budget]:
    """Every private budget of the grid; where there is a target, DP-SGD gets what `spent` leaves of it."""
    if config.dp.noise_multiplier is not None:
        steps = steps_for(config, config.train.epochs_for(None), n)
        yield from (_Budget(target=None, steps=steps, noise_multiplier=s) for s in config.dp.noise_multiplier)
        return
    for target in config.dp.target_epsilon:
        steps = steps_for(config, config.train.epochs_for(target), n)
        noise_multiplier = accounting.cached_calibration(
            _cache(config),
            target_epsilon=target - spent,
            sample_rate=config.train.batch_size / n,
            steps=steps,
            delta=delta,
            accountant=config.dp.accountant,
            tolerance=config.dp.epsilon_tolerance,
        )
        yield _Budget(target=target, steps=steps, noise_multiplier=noise_multiplier)


def _cache(config: Config) -> Path:
    """Where calibrations and accounts are kept."""
    return Path(config.output_dir) / "cache" / "accounting"


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
    points: list[tuple[_Clip, _Budget]] = []
    for clips, spent in ((_plain_clips, 0.0), (_private_clips, config.dp.private_clip.epsilon)):
        found = list(clips(config, task.train))
        points += [(clip, budget) for budget in (_budgets(config, n, delta, spent) if found else ()) for clip in found]
    if config.train.non_private:
        epochs = config.train.non_private_epochs or config.train.epochs_for(None)
        baseline = _Budget(target=None, steps=steps_for(config, epochs, n), noise_multiplier=0.0)
        points.append((_Clip(norm=math.inf, seeds=config.seeds, method="non_private"), baseline))
    return [_cell(config, n, delta, clip, budget) for clip, budget in points]


def _cell(config: Config, n: int, delta: float, clip: _Clip, budget: _Budget) -> Cell:
    """A clip norm under a budget, with its account."""
    mechanism = Mechanism(
        n=n,
        expected_batch_size=config.train.batch_size,
        steps=budget.steps,
        clip_norm=clip.norm,
        noise_multiplier=budget.noise_multiplier,
    )
    account = accounting.cached_account(
        _cache(config),
        sample_rate=mechanism.sample_rate,
        noise_multiplier=mechanism.noise_multiplier,
        steps=mechanism.steps,
        delta=delta,
        accountant=config.dp.accountant,
    )
    spent = clip.choice.epsilon if clip.choice else 0.0
    if budget.target is not None:
        _check_budget(budget.target - spent, account.epsilon, config.dp.epsilon_tolerance)
    return Cell(
        method=clip.method,
        mechanism=mechanism,
        target_epsilon=budget.target,
        clip_percentile=clip.percentile,
        choice=clip.choice,
        account=private_clip.compose(account, clip.choice) if clip.choice else account,
        seeds=clip.seeds,
    )


def _check_budget(target: float, achieved: float, tolerance: float) -> None:
    """Achieved epsilon never above the target, and not needlessly below it."""
    if not target * (1 - tolerance) <= achieved <= target:
        raise ConfigError(
            f"calibration to epsilon {target:g} achieved {achieved:.6g}, outside "
            f"[{target * (1 - tolerance):g}, {target:g}]; choose another dp.accountant"
        )
