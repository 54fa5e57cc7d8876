"""Hydra entry: `python -m dpexp.run +sweep=clipnorm` composes a configuration and runs it to its table and figure."""

import json
import logging
import shlex
import signal
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.console import Console

from dpexp import config as configuration
from dpexp import features, figures, grid, record, results, tables, theory_figures, theory_runs
from dpexp.cache import DiskFullError, write_atomic
from dpexp.config import Config, ConfigError
from dpexp.console import marked, plain_console
from dpexp.data import DataError
from dpexp.features import bar
from dpexp.progress import Progress, plan_table
from dpexp.results import ResultsError
from dpexp.selective import figures as selective_figures
from dpexp.selective import study
from dpexp.selective import tables as selective_tables
from dpexp.sweep import train_all
from dpexp.tracking import Mirror
from dpexp.train import Interrupted

CONF = str(Path(__file__).resolve().parent.parent / "conf")
SHARED_NOISE = (
    "noise=shared draws one noise for all runs of a seed. Never release two of these models together: their difference "
    "cancels the noise."
)
EXPECTED_ERRORS = (ConfigError, DataError, DiskFullError, ResultsError)


def train_grid(config: Config, console: Console) -> list[Path]:
    """A training study, from a checked configuration to the paths of its table and figure."""
    output, mirror = Path(config.output_dir), Mirror(config)
    folder = output / "results" / config.study
    with bar.shown(console) as progress:
        found = features.load(config, progress)
    console.print(f"{found.dataset}: {len(found.train):,} / {len(found.test):,} from {found.source}")
    if found.fingerprint:
        console.print(found.fingerprint, highlight=False)
    task = grid.prepare(config, found)
    runs = grid.expand(config, task)
    context = record.Context(config=config, task=task, candidates=len(runs))
    stored = results.read(folder)
    results.check_settings(folder, context.settings, stored)

    done = {r["run_id"] for r in stored}
    console.print(plan_table(runs, done))
    if config.noise == "shared":
        console.print(marked("warning:", "bold yellow", f" {SHARED_NOISE}"))
    programs = grid.missing(grid.pack(runs, grid.runs_per_program(config, task)), done)
    shown = Progress(console, config.study, programs, finished=sum(run.run_id in done for run in runs))
    train_all(programs, context, folder, shown, mirror)

    stored = tables.stored(folder)
    table, panels = tables.build(stored, config.study)
    mirror.send_table(table)
    console.print(tables.terminal(panels))
    return [*tables.write(stored, output, config.study), *figures.write(stored, output, config.study)]


def simulate_theory(config: Config, console: Console) -> list[Path]:
    """The theory studies; stored records of the same seeds are not computed again."""
    output = Path(config.output_dir)
    folder = output / "results" / "theory"
    if theory_runs.seeds_of(folder) != set(config.seeds):
        console.print(f"Simulating {len(config.seeds)} seeds of {', '.join(theory_runs.STUDIES)}.")
        theory_runs.write(theory_runs.run(config.seeds), folder)
    return theory_figures.build(output)


def release_selectively(config: Config, console: Console) -> list[Path]:
    """Paper S's study; its tables show every stored study of its kind."""
    output = Path(config.output_dir)
    study.train_selective(config, console)
    stored = selective_tables.read(output / "results")
    console.print(selective_tables.terminal(stored))
    written = selective_tables.write(stored, output / "tables")
    return [*written, *selective_figures.write(stored, output / "figures")]


STUDIES = {"dpsgd": train_grid, "theory": simulate_theory, "selective": release_selectively}


def execute(config: Config, console: Console) -> list[Path]:
    """The whole pipeline of an algorithm, alone in its results folder; returns the paths of its tables and figures."""
    with results.sole_writer(Path(config.output_dir) / "results" / config.study):
        return STUDIES[config.algorithm.name](config, console)


def _write_status(status: str, **details: object) -> None:
    """Say in the job's own log folder how it ended; a launcher may not."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    write_atomic(folder / "status.json", json.dumps({"status": status, **details}, default=str).encode())


def _fail(error: Exception, console: Console) -> None:
    """Report a job's error at once. Alone, the program ends; in a multirun the other jobs go on."""
    _write_status("failed", error=f"{type(error).__name__}: {error}")
    expected = isinstance(error, EXPECTED_ERRORS)
    console.print(marked(*("error:", "bold red", f" {error}") if expected else ("failed", "bold red", "")))
    if not expected or HydraConfig.get().mode == RunMode.MULTIRUN:
        raise error
    sys.exit(2)


@hydra.main(config_path=CONF, config_name="config", version_base="1.3")
def _job(composed: DictConfig) -> None:
    """One Hydra job: run a composed configuration and say how it ended."""
    console = plain_console()
    try:
        paths = execute(configuration.load(composed), console)
    except (Interrupted, KeyboardInterrupt):  # in training, or before and after it
        _write_status("interrupted")
        console.print("Interrupted. What is finished is stored; the same command goes on from there:")
        console.print(f"  python -m dpexp.run {shlex.join(sys.argv[1:])}", highlight=False, soft_wrap=True)
        sys.exit(130)
    except Exception as error:
        _fail(error, console)
    else:
        _write_status("done", paths=paths)
        console.print("Written:", *(f"\n  {path}" for path in paths), highlight=False, soft_wrap=True)


def _stop_like_ctrl_c(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Check the command line's keys, then hand over to Hydra."""
    logging.captureWarnings(True)
    signal.signal(signal.SIGTERM, _stop_like_ctrl_c)
    configuration.register()
    try:
        configuration.check_keys(sys.argv[1:])
    except ConfigError as error:
        sys.exit(f"error: {error}")
    _job()


if __name__ == "__main__":
    main()
