"""Where a run stands, in memory and on disk, so that a cut-off run goes on where it was."""

import io
import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import torch

from dpexp.algorithms.optimizers import State
from dpexp.cache import write_atomic
from dpexp.nets import Params


@dataclass
class Walk:
    """Where a run stands. reference: of the test, inf before the first update; previous: weights before the last."""

    state: State
    reference: float = math.inf
    previous: Params | None = None
    accepted: int = 0
    trials: int = 0
    seconds: float = 0.0
    log: dict[str, list[float]] = field(default_factory=dict)
    history: dict[str, list[float]] = field(default_factory=dict)

    def note(self, where: str, **values: float) -> None:
        """Append values to the columns of `log` or `history`."""
        for name, value in values.items():
            getattr(self, where).setdefault(name, []).append(float(value))

    @property
    def diverged(self) -> bool:
        """Whether a weight stopped being finite."""
        return not all(bool(w.isfinite().all()) for w in self.state.params)


def save(path: Path, run_id: str, walk: Walk) -> None:
    """Write the run's progress, whole or not at all."""
    content = dict(walk.__dict__) | {"state": dict(walk.state.__dict__), "run_id": run_id}
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomic(path, buffer.getvalue())


def restore(path: Path | None, run_id: str) -> Walk | None:
    """The saved progress of this run; None where there is none that can be read, with a warning if it is damaged."""
    if path is None or not path.exists():
        return None
    try:
        content = torch.load(path, weights_only=True)
        if content.pop("run_id") != run_id:
            return None
        return Walk(**(content | {"state": State(**content["state"])}))
    except Exception as error:  # torch.load raises many kinds on a damaged file
        warnings.warn(f"{path}: unreadable checkpoint ({error}); this run starts again", stacklevel=2)
        return None
