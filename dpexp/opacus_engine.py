"""One run through Opacus' PrivacyEngine: the reference that the packed step is compared with."""

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from opacus import PrivacyEngine
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from dpexp.config import ConfigError
from dpexp.grid import Program, Run
from dpexp.heads import HEADS, Head, Weights
from dpexp.sampling import torch_generator
from dpexp.train import Data, Interrupted, Outcome, evaluate, initial_weights


@dataclass(frozen=True, kw_only=True)
class Private:
    """What Opacus makes of a head, SGD without momentum and the training set. weights: in the head's own order."""

    engine: PrivacyEngine
    module: nn.Module
    weights: Weights
    optimizer: Any
    criterion: Any
    loader: DataLoader

    def step(self, x: Tensor, y: Tensor) -> float | None:
        """One noisy update; returns the batch's mean loss, None for an empty batch."""
        self.optimizer.zero_grad()
        loss = self.criterion(self.module(x), y)
        loss.backward()
        self.optimizer.step()
        return float(loss.item()) if len(y) else None


def _softmax(weights: Weights) -> nn.Module:
    """Linear without bias: x holds the 1."""
    classes, inputs = weights[0].shape
    return nn.Linear(inputs, classes, bias=False)


def _mlp_tanh(weights: Weights) -> nn.Module:
    """Two linear layers; the first has no bias, because x holds the 1."""
    (hidden, inputs), classes = weights[0].shape, len(weights[1])
    second = nn.Linear(hidden, classes, bias=len(weights) == 3)
    return nn.Sequential(nn.Linear(inputs, hidden, bias=False), nn.Tanh(), second)


MODULES: dict[str, Callable[[Weights], nn.Module]] = {"softmax": _softmax, "mlp_tanh": _mlp_tanh}


def _module(model: str, weights: Weights) -> nn.Module:
    """The head as a torch module with these weights; its parameters are in the head's order."""
    module = MODULES[model](weights).to(weights[0])
    with torch.no_grad():
        for parameter, w in zip(module.parameters(), weights, strict=True):
            parameter.copy_(w)
    return module


def check(run: Run) -> None:
    """Refuse a run that Opacus would not train as it is stated; it always samples at 1 / ceil(n / batch size).

    Raises: ConfigError.
    """
    if run.method == "non_private" or run.model not in MODULES:
        raise ConfigError(
            f"engine=opacus trains private runs of {', '.join(MODULES)}, got {run.method} on {run.model}; "
            "use engine=packed or train.non_private=false"
        )
    mechanism = run.mechanism
    if mechanism.n % mechanism.expected_batch_size:
        raise ConfigError(
            f"engine=opacus needs a train.batch_size that divides n={mechanism.n}, got "
            f"{mechanism.expected_batch_size:g}: Opacus would sample at another rate; use engine=packed"
        )


def make_private(run: Run, data: Data, grad_sample_mode: str = "hooks") -> Private:
    """Wrap a run's head in Opacus. Raises: ConfigError as `check`."""
    check(run)
    inputs, mechanism = data.train, run.mechanism
    device = inputs.x.device
    module = _module(run.model, initial_weights(run, data))
    weights = tuple(module.parameters())
    batches = torch_generator(torch.device("cpu"), run.seed, "opacus batches")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Secure RNG turned off")  # the privacy statement says so
        engine = PrivacyEngine(accountant="rdp")
        module, optimizer, *criterion, loader = engine.make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=run.learning_rate),
            criterion=nn.CrossEntropyLoss(),
            data_loader=DataLoader(
                TensorDataset(inputs.x, inputs.y),
                batch_size=int(mechanism.expected_batch_size),
                generator=batches,
            ),
            noise_multiplier=mechanism.noise_multiplier,
            max_grad_norm=mechanism.clip_norm,
            noise_generator=torch_generator(device, run.run_id, "opacus noise"),
            grad_sample_mode=grad_sample_mode,
        )
    assert loader.sample_rate == mechanism.sample_rate
    assert optimizer.expected_batch_size == mechanism.expected_batch_size
    return Private(
        engine=engine,
        module=module,
        weights=weights,
        optimizer=optimizer,
        criterion=criterion[0] if criterion else nn.CrossEntropyLoss(),
        loader=loader,
    )


def train_with_opacus(
    program: Program,
    data: Data,
    *,
    checkpoint: Path | None = None,
    on_epoch: Callable[[int], None] = lambda run_steps: None,
    stop: threading.Event | None = None,
) -> list[Outcome]:
    """Train a program of one private run with Opacus; the same arguments and outcome as `train.train`.

    No checkpoint is kept: a run of this engine that is cut off starts again.
    """
    (run,) = program.runs
    started, private, done = time.monotonic(), make_private(run, data), 0
    head = HEADS[run.model]
    history: dict[str, list[float]] = {}
    batches = _endless(private.loader)
    for end in run.evaluation_steps:
        losses = [private.step(*next(batches)) for _ in range(done, end)]
        on_epoch(end - done)
        done = end
        weights = tuple(w.detach()[None] for w in private.weights)
        for name, value in (_evaluations(head, weights, data) | {"train_loss": _mean(losses)}).items():
            history.setdefault(name, []).append(value)
        if stop is not None and stop.is_set():
            raise Interrupted
    accounted = sum(steps for _, _, steps in private.engine.accountant.history)
    assert accounted == run.mechanism.steps, "trained steps equal accounted steps"
    train_accuracy, _ = evaluate(head, weights, data.train)
    return [
        Outcome(
            run=run,
            history=history,
            train_accuracy=float(train_accuracy),
            weights=tuple(w[0].clone() for w in weights),
            seconds=time.monotonic() - started,
        )
    ]


def _endless(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    """Fresh Poisson batches for ever; one pass of Opacus' loader is only 1 / q of them."""
    while True:
        yield from loader


def _mean(losses: list[float | None]) -> float:
    """Mean loss of the batches that were not empty; NaN if all were."""
    seen = [loss for loss in losses if loss is not None]
    return sum(seen) / len(seen) if seen else math.nan


def _evaluations(head: Head, weights: Weights, data: Data) -> dict[str, float]:
    """Accuracy and loss on the test set and, if there is one, the validation set."""
    found: dict[str, float] = {}
    for part, inputs in (("test", data.test), ("validation", data.validation)):
        if inputs is not None:
            accuracy, loss = evaluate(head, weights, inputs)
            found |= {f"{part}_accuracy": float(accuracy), f"{part}_loss": float(loss)}
    return found
