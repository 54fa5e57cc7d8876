"""Run + walk -> record: what ran, what came out, and every account of what it cost."""

import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from dpexp.cache import write_atomic
from dpexp.features import Features
from dpexp.record import git_commit, versions
from dpexp.results import FORMAT, Record
from dpexp.selective.accounts import Epsilon, certified
from dpexp.selective.runs import GENERATION, Run
from dpexp.selective.walk import Walk
from dpexp.train import weights_sha256


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run that has ended. accuracies: fractions, of the last released model."""

    run: Run
    walk: Walk
    features: Features
    train_accuracy: float
    accounts: Sequence[Epsilon]
    statement: str


def status(run: Run, walk: Walk) -> str:
    """How a run ended."""
    if walk.diverged:
        return "diverged"
    if walk.accepted < run.mechanism.steps and run.budget_by != "C":
        return "trials_exhausted"
    return "capped" if run.capped else "done"


def _mechanism(run: Run) -> Record:
    """The constants of the mechanism that ran, flat."""
    found = asdict(run.mechanism) | {
        "sample_rate": run.mechanism.sample_rate,
        "noise_std": run.mechanism.noise_std,
        "scaling": run.scaling,
        "scaling_bound": run.scaling_bound if run.scaling != "clipped" else None,
        "max_trials": run.max_trials,
        "optimizer": run.optimizer,
        "normalisation": run.normalisation,
    }
    if run.normalisation == "noisy_statistics":
        found["statistics_noise"] = run.statistics_noise
    for name, test in (("test", run.test), ("loss_test", run.loss_test)):
        if test is not None:
            found |= {name: asdict(test)}
    return found


def settings(run: Run) -> Record:
    """What must agree between the runs of one cell of a table."""
    shapes = run.network.shapes()
    model = {
        "name": run.net,
        "activation": run.activation,
        "parameters": sum(math.prod(shape) for shape in shapes),
    }
    return {
        "features": run.features,
        "model": model,
        "learning_rate": run.learning_rate,
        "budget_by": run.budget_by,
        "mechanism": _mechanism(run),
    }


def quality(walk: Walk) -> Record | None:
    """Good and bad candidates among accepted and rejected ones; good: the held-out loss falls. None if not measured."""
    if "loss_before" not in walk.log:
        return None
    columns = {name: np.array(walk.log[name]) for name in ("loss_before", "loss_after", "accepted")}
    good, accepted = columns["loss_after"] < columns["loss_before"], columns["accepted"] > 0
    return {
        "accepted_good": int((accepted & good).sum()),
        "accepted_bad": int((accepted & ~good).sum()),
        "rejected_good": int((~accepted & good).sum()),
        "rejected_bad": int((~accepted & ~good).sum()),
    }


def build(done: Finished, study: str) -> Record:
    """The self-describing record of one run, in the schema that selective.tables reads."""
    run, walk, features = done.run, done.walk, done.features
    history = {name: [float(f"{v:.6g}") for v in values] for name, values in walk.history.items()}
    best = certified(done.accounts)
    record = {
        "format": FORMAT,
        "generation": GENERATION,
        "run_id": run.run_id,
        "study": study,
        "method": run.method,
        "variant": run.variant,
        "dataset": features.dataset,
        "extractor": features.extractor,
        "source": features.source,
        "seed": run.seed,
        **settings(run),
        "trials": walk.trials,
        "accepted": walk.accepted,
        "status": status(run, walk),
        "accounts": [asdict(account) for account in done.accounts],
        "privacy": {
            "target_epsilon": run.target_epsilon,
            "delta": run.delta,
            "epsilon": best.epsilon if best else None,
            "account": best.name if best else None,
            "statement": done.statement,
        },
        "history": history,
        "test_accuracy": history["test_accuracy"][-1],
        "train_accuracy": float(f"{done.train_accuracy:.6g}"),
        "weights_sha256": weights_sha256(walk.state.params),
        "seconds": round(walk.seconds, 1),
        "versions": versions(),
        "git_commit": git_commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    found = quality(walk)
    return record | ({"quality": found} if found else {})


def write_log(folder: Path, run: Run, walk: Walk) -> Path | None:
    """Every trial's metric, reference, noisy difference and decision as arrays of one file; None without a test."""
    if not walk.log:
        return None
    columns = {name: np.array(values, dtype=np.float32) for name, values in walk.log.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **columns)
    path = folder / f"{run.run_id}.npz"
    write_atomic(path, buffer.getvalue())
    return path
