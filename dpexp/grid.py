"""Config -> [Run] -> [Program]: what is to be trained, who it is, and what can be trained together."""

import math
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property

from dpexp.accounting import Account
from dpexp.cache import digest
from dpexp.cells import Task, cells
from dpexp.config import Config
from dpexp.features import Features, hold_out
from dpexp.heads import HEADS, Sizes
from dpexp.mechanism import Mechanism
from dpexp.private_clip import Choice

BYTES = 4  # of a float32
EVALUATION_ROWS = 2000  # rows per product in an evaluation: bounds its memory
GENERATION = 2  # raise when a change of the code changes the numbers that the same settings give


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run. Its identity is everything that can change its number; the rest are labels."""

    method: str
    features: str
    model: str
    bias: bool
    hidden: int | None = None
    mechanism: Mechanism
    learning_rate: float
    seed: int
    noise: str
    engine: str
    validation_fraction: float
    # Labels: where the run stands in its grid, and what it costs.
    target_epsilon: float | None
    clip_percentile: float | None
    choice: Choice | None = None
    account: Account

    @cached_property
    def run_id(self) -> str:
        """Hash of everything that can change the run's number; a width counts only where there is a hidden layer."""
        labels = {"target_epsilon", "clip_percentile", "choice", "account"}
        labels |= {"hidden"} if self.hidden is None else set()
        return digest({k: v for k, v in asdict(self).items() if k not in labels} | {"generation": GENERATION})

    def sizes(self, inputs: int, classes: int) -> Sizes:
        """The sizes of the run's head on features with this many numbers, the constant 1 of the bias included."""
        return Sizes(inputs=inputs, classes=classes, bias=self.bias, hidden=self.hidden)

    @property
    def evaluation_steps(self) -> list[int]:
        """The step after which each epoch ends; an epoch is n / b steps, rounded up where that is no whole number."""
        per_epoch = self.mechanism.n / self.mechanism.expected_batch_size
        epochs = max(1, round(self.mechanism.steps / per_epoch))
        ends = [min(self.mechanism.steps, math.ceil(e * per_epoch)) for e in range(1, epochs)]
        return sorted({*ends, self.mechanism.steps})


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


def expand(config: Config, task: Task) -> list[Run]:
    """Every run of the grid: cells x learning rates x seeds, each run once.

    Raises: ConfigError where a setting does not fit the data.
    """
    runs = (
        Run(
            **{name: value for name, value in vars(cell).items() if name != "seeds"},
            features=task.features.digest,
            model=config.model.name,
            bias=config.model.bias,
            hidden=config.model.hidden,
            learning_rate=learning_rate,
            seed=seed,
            noise=config.noise if cell.mechanism.noise_multiplier else "none",
            engine=config.engine,
            validation_fraction=config.train.validation_fraction if task.validation else 0.0,
        )
        for cell in cells(config, task)
        for learning_rate in config.train.learning_rate
        for seed in cell.seeds
    )
    return list({run.run_id: run for run in runs}.values())


def runs_per_program(config: Config, task: Task) -> int:
    """How many runs a program may hold: `compute.runs_per_program`, or fewer where their memory would not fit.

    A run holds its weights, their gradient and its noise, and for each example of a batch (a quarter more, as Poisson
    batches vary) or of an evaluation's rows what the head keeps; all in single precision.
    """
    sizes = Sizes(
        inputs=task.train.x.shape[1] + config.model.bias,
        classes=task.features.num_classes,
        bias=config.model.bias,
        hidden=config.model.hidden,
    )
    head = HEADS[config.model.name]
    parameters = sum(math.prod(shape) for shape in head.shapes(sizes))
    examples = max(1.25 * config.train.batch_size, EVALUATION_ROWS)
    needed = BYTES * (3 * parameters + examples * head.kept(sizes))
    return max(1, min(config.compute.runs_per_program, int(config.compute.program_mib * 2**20 / needed)))


def pack(runs: Iterable[Run], runs_per_program: int) -> list[Program]:
    """Runs grouped by what they must share, in even parts of at most `runs_per_program`.

    Packing looks at the whole grid, not at what is left of it, so that a resumed sweep repeats the same products.
    """
    groups: dict[tuple, list[Run]] = {}
    for run in runs:
        m = run.mechanism
        shared = (run.model, run.bias, run.hidden, run.engine, run.noise, run.seed, m.n, m.expected_batch_size, m.steps)
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
