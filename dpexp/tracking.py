"""Mirrors finished runs to a tracker.

The results folder is the source of truth: a tracker may fail, training goes on.
"""

import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from dpexp.config import Config, one_of
from dpexp.results import Record, encode

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


def _start(wandb: Any, experiment: Config, mode: str, **about: Any) -> Any:
    """A tracker run of its own, with a fixed id so that sending it twice does not double it."""
    return wandb.init(
        **about,
        project=experiment.tracking.project,
        group=experiment.study,
        dir=experiment.output_dir,
        mode=mode,
        reinit="finish_previous",
        settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True),
    )


def _log_run(wandb: Any, record: Record, config: Config, mode: str) -> None:
    """One record: its settings, its curves by epoch and its epsilon."""
    strict = encode(record)
    about = {key: value for key, value in strict.items() if key not in ("history", "config")}
    names = {"id": record["run_id"], "name": _slug(record), "job_type": record["method"]}
    run = _start(wandb, config, mode, **names, config=about)
    history = record["history"]
    for row, step in enumerate(history["epoch" if "epoch" in history else "accepted"]):
        run.log({name: values[row] for name, values in history.items()}, step=int(step))
    run.summary.update({"epsilon": strict["privacy"]["epsilon"], "status": record["status"]})
    run.finish()


def _log_table(wandb: Any, table: pd.DataFrame, config: Config, mode: str) -> None:
    """The study's table as one tracker run."""
    run = _start(wandb, config, mode, id=f"{config.study}-table", name="table", job_type="table")
    run.log({"table": wandb.Table(dataframe=table.astype(object).where(table.notna(), None))})
    run.finish()


class Mirror:
    """Hands finished records to a tracker. Its first failure becomes a warning and ends the mirroring."""

    def __init__(self, config: Config) -> None:
        one_of("tracking.name", config.tracking.name, ("none", "wandb"))
        self._config = config
        self._mode = _wandb_mode(config.tracking.mode) if config.tracking.name == "wandb" else "disabled"

    def send(self, records: Iterable[Record]) -> None:
        """Mirror records, each as a run of its own."""
        for record in records:
            self._try(_log_run, record)

    def send_table(self, table: pd.DataFrame) -> None:
        """Mirror a study's table."""
        self._try(_log_table, table)

    def _try(self, log: Callable[..., None], what: Any) -> None:
        if self._mode == "disabled":
            return
        try:
            import wandb

            log(wandb, what, self._config, self._mode)
        except Exception as error:  # whatever a tracker raises must not cost a result
            self._mode = "disabled"
            folder = self._config.output_dir
            warnings.warn(f"wandb stopped working ({error}); results stay in {folder}", stacklevel=3)
