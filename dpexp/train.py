"""Program + Task -> [Outcome]: the training loop, its evaluations and its checkpoints."""

import hashlib
import io
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from dpexp.algorithms import dpsgd
from dpexp.cache import write_atomic
from dpexp.cells import Task
from dpexp.features import Examples
from dpexp.grid import EVALUATION_ROWS, Program, Run
from dpexp.heads import HEADS, Batch, Head, Weights, Workspace
from dpexp.sampling import Noise, poisson_batch, torch_generator

CHECKPOINT_SECONDS = 15.0  # at most this much work is lost to a kill
OBSERVE_EVERY = 4  # batches; loss and clipping are diagnostics, and a quarter of the batches shows them well


class Interrupted(Exception):
    """Training was asked to stop; finished epochs are in the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Examples on the training device, with the constant 1 appended if the head has a bias.

    x: [n, d or d+1]. norm: |x| [n], the 1 included.
    """

    x: Tensor
    y: Tensor
    norm: Tensor

    @classmethod
    def of(cls, examples: Examples, bias: bool, device: str, dtype: torch.dtype) -> "Inputs":
        """Move examples to the device in the shape that heads read."""
        x = examples.x.to(device, dtype)
        x = torch.cat([x, x.new_ones(len(x), 1)], dim=1) if bias else x
        return cls(x=x, y=examples.y.to(device), norm=torch.linalg.vector_norm(x, dim=1))

    def batch(self, rows: Tensor, space: Workspace, observed: bool) -> Batch:
        """The examples at these rows, valid until the next call; index_select gathers faster than indexing."""
        x = torch.index_select(self.x, 0, rows, out=space.tensor("x", (len(rows), self.x.shape[1]), self.x))
        return Batch(x=x, y=self.y.index_select(0, rows), norm=self.norm.index_select(0, rows), observed=observed)


@dataclass(frozen=True, kw_only=True)
class Data:
    """A task on the training device, loaded once and shared by all programs."""

    train: Inputs
    validation: Inputs | None
    test: Inputs
    num_classes: int

    @classmethod
    def of(cls, task: Task, bias: bool, device: str, dtype: torch.dtype = torch.float32) -> "Data":
        """Move a task to the device."""
        held = task.validation
        return cls(
            train=Inputs.of(task.train, bias, device, dtype),
            validation=None if held is None else Inputs.of(held, bias, device, dtype),
            test=Inputs.of(task.features.test, bias, device, dtype),
            num_classes=task.features.num_classes,
        )


def weights_sha256(weights: Weights) -> str:
    """Hash of weights: equal hashes mean bit-identical models."""
    content = hashlib.sha256()
    for w in weights:
        content.update(w.cpu().contiguous().numpy().tobytes())
    return content.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What training one run gave. history: one value per epoch and quantity; accuracies are fractions."""

    run: Run
    history: dict[str, list[float]]
    train_accuracy: float
    weights: Weights
    seconds: float

    @property
    def diverged(self) -> bool:
        """Whether a weight stopped being finite."""
        return not all(bool(w.isfinite().all()) for w in self.weights)

    @property
    def weights_sha256(self) -> str:
        """Hash of the final weights."""
        return weights_sha256(self.weights)


@dataclass
class State:
    """What a checkpoint holds: finished epochs, weights [K, ...], and per quantity a list of [K] tensors."""

    weights: Weights
    epoch: int = 0
    history: dict[str, list[Tensor]] = field(default_factory=dict)
    seconds: float = 0.0

    def note(self, name: str, values: Tensor) -> None:
        """Append one epoch's value of a quantity, [K]."""
        self.history.setdefault(name, []).append(values.double().cpu())

    def save(self, path: Path) -> None:
        """Write the checkpoint, whole or not at all."""
        buffer = io.BytesIO()
        torch.save(self.__dict__, buffer)
        write_atomic(path, buffer.getvalue())


def _restore(path: Path | None, fresh: State) -> State:
    """The checkpoint's state, or the fresh one where there is none that can be read."""
    if path is None or not path.exists():
        return fresh
    device = fresh.weights[0].device
    try:
        saved = State(**torch.load(path, map_location=device, weights_only=True))
        saved.weights = tuple(saved.weights)
        fits = [w.shape for w in saved.weights] == [w.shape for w in fresh.weights]
    except Exception as error:  # torch.load raises many kinds on a damaged file
        warnings.warn(f"{path}: unreadable checkpoint ({error}); this program starts again", stacklevel=2)
        return fresh
    return saved if fits else fresh


def evaluate(head: Head, weights: Weights, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Accuracy (fraction) and mean cross-entropy of each run: two tensors [K].

    Where several classes share the highest logit, one of them counts as drawn at random: all-zero weights score 1/m.
    """
    correct = torch.zeros(weights[0].shape[0], device=weights[0].device, dtype=torch.float64)
    loss = torch.zeros_like(correct)
    for rows in torch.arange(len(inputs.y), device=inputs.y.device).split(EVALUATION_ROWS):
        margins = head.logits(weights, inputs.x[rows])  # in place from here on: memory costs more than arithmetic
        margins.sub_(margins.amax(dim=1, keepdim=True))
        truth = margins.gather(1, inputs.y[rows].expand(len(margins), 1, -1))[:, 0]
        ties = (margins == 0).to(margins.dtype).sum(dim=1)
        correct += ((truth == 0) / ties).sum(dim=1)
        loss += (margins.exp_().sum(dim=1).log_() - truth).sum(dim=1)
    return correct / len(inputs.y), loss / len(inputs.y)


def _plan(runs: tuple[Run, ...], head: Head, like: Tensor) -> dpsgd.Plan:
    """The step's constants for these runs."""
    return dpsgd.Plan(
        head=head,
        clip_norm=like.new_tensor([run.mechanism.clip_norm for run in runs]),
        noise_std=like.new_tensor([run.mechanism.noise_std for run in runs]),
        learning_rate=like.new_tensor([run.learning_rate for run in runs]),
        expected_batch_size=runs[0].mechanism.expected_batch_size,
    )


def _noise(runs: tuple[Run, ...], shapes: list[tuple[int, ...]], like: Tensor) -> Noise | None:
    """The program's noise streams; None if no run has noise."""
    if runs[0].noise == "none":
        return None
    shared = f"seed {runs[0].seed}" if runs[0].noise == "shared" else None
    return Noise([run.run_id for run in runs], shapes, like, shared)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Everything an epoch reads and nothing it keeps."""

    runs: tuple[Run, ...]
    head: Head
    data: Data
    plan: dpsgd.Plan
    noise: Noise | None
    space: Workspace

    def epoch(self, state: State, steps: range) -> None:
        """One epoch of updates, in place; training loss and clipped fraction over its observed batches."""
        if self.noise is not None:
            self.noise.start_epoch(state.epoch)
        run = self.runs[0]
        loss = torch.zeros(len(self.runs), device=self.data.train.x.device)
        clipped, seen = torch.zeros_like(loss), 0
        for step in steps:
            rows = torch.from_numpy(poisson_batch(run.mechanism, run.seed, step)).to(loss.device)
            unit = self.noise.draw() if self.noise is not None else None
            batch = self.data.train.batch(rows, self.space, observed=(step - steps.start) % OBSERVE_EVERY == 0)
            total = dpsgd.step(state.weights, batch, unit, self.plan, self.space)
            if total.loss is not None and total.clipped is not None:
                loss += total.loss
                clipped += total.clipped
                seen += len(rows)
        state.note("train_loss", loss / max(seen, 1))
        state.note("fraction_clipped", clipped / max(seen, 1))

    def evaluate(self, state: State) -> None:
        """Accuracy and loss on the test set and, if there is one, the validation set."""
        for part, inputs in (("test", self.data.test), ("validation", self.data.validation)):
            if inputs is not None:
                accuracy, loss = evaluate(self.head, state.weights, inputs)
                state.note(f"{part}_accuracy", accuracy)
                state.note(f"{part}_loss", loss)


def initial_weights(run: Run, data: Data) -> Weights:
    """The weights [*shape] that a run starts from: the same for every run of a seed with the same head and sizes."""
    like, head = data.train.x, HEADS[run.model]
    draws = torch_generator(torch.device("cpu"), run.seed, "init")
    return tuple(w.to(like) for w in head.init(run.sizes(like.shape[1], data.num_classes), draws))


def start(program: Program, data: Data) -> tuple[Loop, State]:
    """A program at its first step: initial weights, and everything its epochs read."""
    runs, head, like = program.runs, HEADS[program.runs[0].model], data.train.x
    first = initial_weights(runs[0], data)
    noise, plan = _noise(runs, [tuple(w.shape) for w in first], like), _plan(runs, head, like)
    loop = Loop(runs=runs, head=head, data=data, plan=plan, noise=noise, space=Workspace())
    return loop, State(weights=tuple(w.repeat(len(runs), *[1] * w.dim()) for w in first))


def train(
    program: Program,
    data: Data,
    *,
    checkpoint: Path | None = None,
    on_epoch: Callable[[int], None] = lambda run_steps: None,
    stop: threading.Event | None = None,
) -> list[Outcome]:
    """Train every run of a program from its initial weights and evaluate it after each epoch.

    checkpoint: where progress is saved and looked for. on_epoch: told the run-steps done since the last call.
    stop: checked after each epoch; when set, progress is saved and Interrupted is raised.
    """
    runs = program.runs
    loop, state = start(program, data)
    state = _restore(checkpoint, state)
    ends = [0, *runs[0].evaluation_steps]
    assert ends[-1] == runs[0].mechanism.steps, "trained steps equal accounted steps"
    on_epoch(len(runs) * ends[state.epoch])
    saved = time.monotonic()
    while state.epoch < len(ends) - 1:
        started = time.monotonic()
        steps = range(ends[state.epoch], ends[state.epoch + 1])
        loop.epoch(state, steps)
        loop.evaluate(state)
        state.epoch += 1
        state.seconds += time.monotonic() - started
        stopping = stop is not None and stop.is_set()
        if checkpoint is not None and (stopping or time.monotonic() - saved > CHECKPOINT_SECONDS):
            state.save(checkpoint)
            saved = time.monotonic()
        on_epoch(len(runs) * len(steps))
        if stopping:
            raise Interrupted
    return _outcomes(runs, state, loop.head, data)


def _outcomes(runs: tuple[Run, ...], state: State, head: Head, data: Data) -> list[Outcome]:
    """Each run's share of a finished program."""
    train_accuracy, _ = evaluate(head, state.weights, data.train)
    return [
        Outcome(
            run=run,
            history={name: [float(values[k]) for values in column] for name, column in state.history.items()},
            train_accuracy=float(train_accuracy[k]),
            weights=tuple(w[k].clone() for w in state.weights),
            seconds=state.seconds / len(runs),
        )
        for k, run in enumerate(runs)
    ]
