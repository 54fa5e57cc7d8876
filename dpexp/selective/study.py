"""The selective-release study from a checked configuration to stored records: runs at once, one a core."""

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from dpexp import features, results
from dpexp.config import Config
from dpexp.console import marked
from dpexp.features import Features, bar
from dpexp.selective import records
from dpexp.selective.accounts import Ran, accounts
from dpexp.selective.planning import expand
from dpexp.selective.preparation import Prepared
from dpexp.selective.runs import Run
from dpexp.selective.statement import statement
from dpexp.selective.training import evaluate, train
from dpexp.selective.walk import Walk
from dpexp.sweep import device, one_thread_each, workers
from dpexp.tracking import Mirror
from dpexp.train import Interrupted


def load_features(config: Config, console: Console) -> dict[str, Features]:
    """The features of every method's extractor, by method; each extractor runs once."""
    found: dict[str, Features] = {}
    loaded: dict[str, Features] = {}
    for method in config.selective.methods:
        extractor = config.selective.recipes[method].extractor
        key = repr(extractor)
        if key not in loaded:
            with bar.shown(console) as progress:
                loaded[key] = features.load(replace(config, extractor=extractor), progress)
            here = loaded[key]
            console.print(
                f"{here.dataset}, {here.extractor}: {len(here.train):,} / {len(here.test):,} from {here.source}"
            )
        found[method] = loaded[key]
    return found


def plan_table(runs: Sequence[Run], done: Collection[str]) -> Table:
    """What is going to run: budgets, accepted updates and the trials they may take."""
    table = Table(
        title=f"Paper S at δ = {runs[0].delta:g}",
        caption="T: accepted updates that the budget allows. N: trials at most. σ: noise multiplier.",
    )
    table.add_column("method", no_wrap=True)
    for name in ("ε", "σ", "batch", "T", "N", "runs", "done"):
        table.add_column(name, justify="right", no_wrap=True)
    groups: dict[tuple, list[Run]] = {}
    for run in runs:
        groups.setdefault((run.name, run.target_epsilon, run.mechanism, run.max_trials), []).append(run)
    for (name, target, mechanism, most), members in groups.items():
        table.add_row(
            name,
            "–" if target is None else f"{target:g}",
            f"{mechanism.noise_multiplier:g}",
            f"{mechanism.expected_batch_size:g}",
            f"{mechanism.steps:,}",
            f"{most:,}",
            str(len(members)),
            str(sum(run.run_id in done for run in members)),
        )
    return table


class Bars:
    """A progress bar for all accepted updates of a study, with time left; plain lines where there is no terminal."""

    def __init__(self, console: Console, runs: Sequence[Run]) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} updates"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=120,
        )
        total = sum(run.mechanism.steps for run in runs)
        self._task: TaskID = self._bar.add_task("selective release", total=total)
        self._seen: dict[str, int] = {}

    def __enter__(self) -> "Bars":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, run: Run, walk: Walk) -> None:
        """Count what a run has accepted since the last call. Called from every worker."""
        before = self._seen.get(run.run_id, 0)
        if walk.accepted > before:
            self._seen[run.run_id] = walk.accepted
            self._bar.advance(self._task, walk.accepted - before)

    def say(self, run: Run, record: results.Record) -> None:
        """One line for a finished run."""
        target = "" if run.target_epsilon is None else f" ε = {run.target_epsilon:g}"
        self._console.print(
            f"{run.name}{target} η = {run.learning_rate:g} seed {run.seed}: {100 * record['test_accuracy']:.2f} % "
            f"after {record['accepted']:,} updates of {record['trials']:,} trials, {record['status']}, "
            f"{record['seconds']:.0f} s",
            highlight=False,
        )

    def failed(self, run: Run, error: BaseException) -> None:
        """Say at once which run failed and why; the others go on."""
        said = f": {run.name} seed {run.seed}: {type(error).__name__}: {error}"
        self._console.print(marked("failed", "red", said))


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the workers share."""

    config: Config
    data: Prepared
    bars: Bars
    mirror: Mirror
    stop: threading.Event

    def checkpoint(self, run: Run) -> Path:
        """Where a run's progress is kept until it is finished."""
        return Path(self.config.output_dir) / "checkpoints" / f"selective-{run.run_id}.pt"

    def run(self, run: Run) -> tuple[results.Record, Walk]:
        """Train one run and write down what it gave and what it cost."""
        data = self.data.data(run)
        walk = train(
            run,
            data,
            self.config.selective.evaluations,
            checkpoint=self.checkpoint(run),
            on_trial=lambda walk: self.bars.advance(run, walk),
            stop=self.stop,
        )
        ran = Ran(
            release=run.release,
            updates=run.mechanism.steps,
            trials_allowed=run.max_trials,
            accepted=walk.accepted,
            trials=walk.trials,
        )
        rows = accounts(ran)
        done = records.Finished(
            run=run,
            walk=walk,
            features=self.data.features(run),
            train_accuracy=evaluate(run.network, walk.state.params, data.x, data.y)[0],
            accounts=rows,
            statement=statement(run, rows),
        )
        return records.build(done, self.config.study), walk


def train_all(runs: Sequence[Run], work: Work, folder: Path) -> None:
    """Train every run and store its record and log as soon as it is finished; longest first.

    Raises: Interrupted after Ctrl-C or SIGTERM; the first error of a run once the others are done.
    """
    errors: list[BaseException] = []
    ordered = sorted(runs, key=lambda run: -run.mechanism.steps * run.mechanism.expected_batch_size)
    with work.bars, one_thread_each(workers(work.config)) as pool:
        futures: dict[Future, Run] = {pool.submit(work.run, run): run for run in ordered}
        try:
            for future in as_completed(futures):
                run, error = futures[future], future.exception()
                if error is not None:
                    errors.append(error)
                    work.bars.failed(run, error)
                    continue
                record, walk = future.result()
                records.write_log(folder / "trials", run, walk)
                results.append(folder, run.run_id, [record])
                work.mirror.send([record])
                work.checkpoint(run).unlink(missing_ok=True)
                work.bars.say(run, record)
        except BaseException as error:
            work.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted from None
            raise
    if errors:
        raise errors[0]


def refuse_mixtures(folder: Path, runs: Sequence[Run], stored: Sequence[results.Record], tuned: bool) -> None:
    """Refuse runs that would share a cell of a table with stored ones of other settings.

    stored: of the same data set. tuned: whether learning rates are tried, each then has a cell. Raises: ConfigError.
    """

    def cell(method: str, variant: str, target: float | None, settings: results.Record) -> tuple[object, ...]:
        threshold = settings["mechanism"].get("test", {}).get("threshold")
        return method, variant, target, threshold, settings["learning_rate"] if tuned else None

    known = {
        cell(record["method"], record["variant"], record["privacy"]["target_epsilon"], record): record
        for record in stored
    }
    by_id = {record["run_id"]: record for record in stored}
    for run in runs:
        wanted = results.encode(records.settings(run) | {"delta": run.delta})
        have = known.get(cell(run.method, run.variant, run.target_epsilon, wanted))
        if have:
            results.refuse_mixture(folder, run.name, have | {"delta": have["privacy"]["delta"]}, wanted)
        if run.run_id in by_id:  # the same mechanism under another budget, whose accounts and statement would differ
            have = by_id[run.run_id]
            wanted = {"target_epsilon": run.target_epsilon, "delta": run.delta}
            results.refuse_mixture(folder, run.name, have["privacy"], wanted)


def train_selective(config: Config, console: Console) -> Path:
    """The study of a checked configuration; returns the folder of its records."""
    folder = Path(config.output_dir) / "results" / config.study
    by_method = load_features(config, console)
    runs = expand(config, by_method)
    stored = results.read(folder)
    dataset = next(iter(by_method.values())).dataset
    of_it = [record for record in stored if record["dataset"] == dataset]
    refuse_mixtures(folder, runs, of_it, tuned=bool(config.selective.learning_rate))
    done = {record["run_id"] for record in stored}
    console.print(plan_table(runs, done))
    missing = [run for run in runs if run.run_id not in done]
    if missing:
        data = Prepared({found.digest: found for found in by_method.values()}, device(config))
        bars, mirror = Bars(console, missing), Mirror(config)
        work = Work(config=config, data=data, bars=bars, mirror=mirror, stop=threading.Event())
        train_all(missing, work, folder)
    return folder
