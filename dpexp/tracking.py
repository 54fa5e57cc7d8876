"""Mirrors finished runs to a tracker.

The results folder is the source of truth: a tracker may fail, training goes on.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpexp.config import Config, one_of
from dpexp.results import Record, encode

Mirror = Callable[[Iterable[Record]], None]
WANDB_MODES = ("offline", "online", "disabled")


def _slug(record: Record) -> str:
    """A run name that says what was varied, for example fashion_mnist-raw-dpsgd-eps2-clip3.04-lr1-s0."""
    epsilon = record["privacy"]["target_epsilon"]
    parts = [record["dataset"], record["extractor"], record["method"]]
    parts += [f"eps{epsilon:g}"] if epsilon is not None else []
    clip_norm = encode(record["mechanism"]["clip_norm"])
    parts += [f"clip{clip_norm:g}"] if clip_norm != "inf" else []
    return "-".join([*parts, f"lr{record['learning_rate']:g}", f"s{record['seed']}"])


def _wandb_mode(configured: str) -> str:
    """The mode to start in, decided before the first contact: online without a key would wait or fail."""
    mode = one_of("tracking.mode", os.environ.get("WANDB_MODE", configured), WANDB_MODES)
    has_key = bool(os.environ.get("WANDB_API_KEY")) or "api.wandb.ai" in _netrc()
    if mode == "online" and not has_key:
        warnings.warn("tracking.mode=online without an API key: runs are stored offline instead", stacklevel=2)
        return "offline"
    return mode


def _netrc() -> str:
    path = Path(os.environ.get("NETRC", Path.home() / ".netrc"))
    return path.read_text() if path.is_file() else ""


def _log_run(wandb: Any, record: Record, config: Config, mode: str) -> None:
    """One record as one tracker run of its own, with a fixed id so that sending it twice does not double it."""
    strict = encode(record)
    run = wandb.init(
        project=config.tracking.project,
        group=config.study,
        job_type=record["method"],
        name=_slug(record),
        id=record["run_id"],
        config={key: value for key, value in strict.items() if key not in ("history", "config")},
        dir=config.output_dir,
        mode=mode,
        reinit="finish_previous",
        settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True),
    )
    history = record["history"]
    for row, epoch in enumerate(history["epoch"]):
        run.log({name: values[row] for name, values in history.items()}, step=epoch)
    run.summary.update({"epsilon": strict["privacy"]["epsilon"], "status": record["status"]})
    run.finish()


@contextmanager
def mirror(config: Config) -> Iterator[Mirror]:
    """Where finished records are handed to while training goes on.

    Raises: ConfigError for an unknown tracker. A tracker's own failure becomes one warning and ends the mirroring.
    """
    one_of("tracking.name", config.tracking.name, ("none", "wandb"))
    mode = _wandb_mode(config.tracking.mode) if config.tracking.name == "wandb" else "disabled"
    if mode == "disabled":
        yield lambda records: None
        return
    import wandb

    broken = False

    def send(records: Iterable[Record]) -> None:
        nonlocal broken
        for record in records:
            if broken:
                return
            try:
                _log_run(wandb, record, config, mode)
            except Exception as error:  # whatever a tracker raises must not cost a result
                broken = True
                warnings.warn(f"wandb stopped working ({error}); results stay in {config.output_dir}", stacklevel=2)

    yield send
