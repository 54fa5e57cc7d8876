"""Outcome -> record: everything a reader of one result needs to know about it."""

import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path

from dpexp import __version__, lipschitz, private_clip
from dpexp.cells import Task
from dpexp.config import Config, plain
from dpexp.grid import GENERATION
from dpexp.results import FORMAT, Record
from dpexp.statement import privacy_statement
from dpexp.train import Outcome

LOCAL = ("data_root", "output_dir", "features_dir")  # one machine's paths, which change no number
FILES = (("extractor", "weights"), ("dataset", "train"), ("dataset", "test"))  # may be given as absolute paths
PERCENTILES = (0.0, 10.0, 20.0, 40.0, 80.0, 100.0)  # the ones that paper L prints


@dataclass(frozen=True, kw_only=True)
class Context:
    """What all records of one experiment share. candidates: how many runs the best one is chosen from."""

    config: Config
    task: Task
    candidates: int

    @cached_property
    def settings(self) -> Record:
        """What must agree between the runs of one table."""
        return settings(self.config, self.task)

    @cached_property
    def fingerprint(self) -> Record:
        """Percentiles of the training set's Lipschitz constants."""
        return fingerprint(self.config, self.task)

    @cached_property
    def landings(self) -> Record:
        """For each private choice of the clip norm, where it lands among the constants."""
        return landings(self.config, self.task)


def settings(config: Config, task: Task) -> Record:
    """What must agree between the runs of one table."""
    return {
        "generation": GENERATION,
        "dataset": task.features.dataset,
        "extractor": task.features.extractor,
        "model": config.model.name,
        "features": task.features.digest,
        "model.bias": config.model.bias,
        "algorithm": config.algorithm.name,
        "train.batch_size": config.train.batch_size,
        "train.epochs": config.train.epochs,
        "train.steps": config.train.steps,
        "train.non_private_epochs": config.train.non_private_epochs,
        "train.last_epochs": config.train.last_epochs,
        "train.validation_fraction": config.train.validation_fraction if task.validation else 0.0,
        "dp.delta": config.dp.delta,
        "dp.accountant": config.dp.accountant,
        "dp.percentile_include_bias": config.dp.percentile_include_bias,
        **({"model.hidden": config.model.hidden} if config.model.hidden else {}),
        **({"dp.private_clip": _private_clip(config)} if config.dp.private_clip.modes else {}),
        "select_on": config.select_on,
        "noise": config.noise,
        "engine": config.engine,
    }


def _private_clip(config: Config) -> Record:
    """Everything that a private choice of the clip norm depends on; which modes are run side by side does not."""
    return {name: value for name, value in asdict(config.dp.private_clip).items() if name != "modes"}


@cache
def versions() -> dict[str, str]:
    """Versions of what computed the numbers."""
    names = ("torch", "opacus", "dp-accounting", "numpy")
    return {"dpexp": __version__, "python": platform.python_version()} | {name: version(name) for name in names}


@cache
def git_commit() -> str | None:
    """Commit of the code, with "+" if files differ from it; None outside a git checkout."""
    folder = Path(__file__).parent

    def ask(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout

    try:
        return ask("rev-parse", "HEAD").strip() + ("+" if ask("status", "--porcelain", "--", ".").strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def fingerprint(config: Config, task: Task) -> Record:
    """Percentiles of the training set's Lipschitz constants: they tell features apart. NOT private."""
    include_bias = config.dp.percentile_include_bias
    constants = lipschitz.constants(task.train.x, include_bias)
    found = {f"{p:g}": float(f"{v:.6g}") for p, v in lipschitz.percentiles(constants, PERCENTILES).items()}
    return {"include_bias": include_bias, "percentiles": found}


def landings(config: Config, task: Task) -> Record:
    """Where each mode of choosing a clip norm lands among the constants, over 100 seeds. NOT private."""
    constants, given = lipschitz.constants(task.train.x, config.dp.percentile_include_bias), config.dp.private_clip
    return {mode: asdict(private_clip.landing(mode, constants, given)) for mode in given.modes}


def _choice(outcome: Outcome, context: Context) -> Record:
    """How the clip norm was chosen; nothing for a fixed one or a percentile."""
    choice = outcome.run.choice
    if choice is None:
        return {}
    about = asdict(choice) | {"settings": _private_clip(context.config), "landing": context.landings[choice.mode]}
    return {"private_clip": about}


def _privacy(outcome: Outcome, context: Context) -> Record:
    """Target, account and plain-language statement."""
    run = outcome.run
    statement = privacy_statement(
        run.mechanism,
        run.account,
        noise=run.noise,
        clip_percentile=run.clip_percentile,
        select_on=context.config.select_on,
        candidates=context.candidates,
        choice=run.choice,
    )
    return {"target_epsilon": run.target_epsilon, **asdict(run.account), "statement": statement}


def _portable(config: Record) -> Record:
    """The configuration without one machine's paths; of an absolute path to data or weights the name is kept."""
    kept = {key: value for key, value in config.items() if key not in LOCAL}
    for section, key in FILES:
        given = kept[section][key]
        if given and Path(given).is_absolute():
            kept[section] = kept[section] | {key: Path(given).name}
    return kept


def _provenance(context: Context) -> Record:
    """What computed the number, from what configuration, and when."""
    return {
        "device": context.config.compute.device,
        "settings": context.settings,
        "config": _portable(plain(context.config)),
        "versions": versions(),
        "git_commit": git_commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def build(outcome: Outcome, context: Context) -> Record:
    """The self-describing record of one run, in the schema that aggregate.py reads."""
    run, config, features = outcome.run, context.config, context.task.features
    history = {name: [float(f"{v:.6g}") for v in values] for name, values in outcome.history.items()}
    epochs = len(history["test_accuracy"])
    mechanism = asdict(run.mechanism) | {
        "sample_rate": run.mechanism.sample_rate,
        "noise_std": run.mechanism.noise_std,
    }
    return (
        {
            "format": FORMAT,
            "run_id": run.run_id,
            "study": config.study,
            "method": run.method,
            "dataset": features.dataset,
            "extractor": features.extractor,
            "features": features.digest,
            "source": features.source,
            "model": {"name": run.model, "bias": run.bias} | ({"hidden": run.hidden} if run.hidden else {}),
            "num_classes": features.num_classes,
            "dimension": features.train.x.shape[1],
            "mechanism": mechanism,
            "clip_percentile": run.clip_percentile,
            "lipschitz": context.fingerprint,
            "learning_rate": run.learning_rate,
            "seed": run.seed,
            "select_on": config.select_on,
            "last_epochs": config.train.last_epochs,
            "noise": run.noise,
            "engine": run.engine,
            "epochs": epochs,
            "privacy": _privacy(outcome, context),
            "history": {"epoch": list(range(1, epochs + 1)), **history},
            "train_accuracy": float(f"{outcome.train_accuracy:.6g}"),
            "status": "diverged" if outcome.diverged else "done",
            "weights_sha256": outcome.weights_sha256,
            "seconds": round(outcome.seconds, 3),
        }
        | _choice(outcome, context)
        | _provenance(context)
    )
