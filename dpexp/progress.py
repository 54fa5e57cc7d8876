"""What a person sees while a sweep runs: what is going to be trained, how far it is, how long it will take."""

import math
from collections.abc import Collection, Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from dpexp.console import marked
from dpexp.grid import Program, Run
from dpexp.results import Record


def plan_table(runs: Sequence[Run], done: Collection[str]) -> Table:
    """Budgets of a grid: for each target epsilon what was calibrated, what it achieves, and how many runs it has."""
    first = runs[0].account
    table = Table(
        title=f"Budgets at δ = {first.delta:g}, sample rate {first.sample_rate:.6g}",
        caption="σ: noise multiplier. Each ε holds for one run alone; choosing among runs is not included.",
    )
    table.add_column("method", no_wrap=True)
    for name in ("target", "σ", "steps", "ε RDP", "ε PRV", "ε PLD", "runs", "done"):
        table.add_column(name, justify="right", no_wrap=True)
    groups: dict[tuple, list[Run]] = {}
    for run in runs:
        groups.setdefault((run.method, run.target_epsilon, run.account), []).append(run)
    for (method, target, account), members in groups.items():
        finished = sum(run.run_id in done for run in members)
        row = [method, "–" if target is None else f"{target:g}", f"{account.noise_multiplier:.4f}"]
        row += [_epsilon(e) for e in (account.epsilon_rdp, account.epsilon_prv, account.epsilon_pld)]
        row.insert(3, f"{account.steps:,}")
        table.add_row(*row, f"{len(members):,}", f"{finished:,}")
    return table


def _epsilon(value: float | None) -> str:
    if value is None:
        return "–"
    return "∞" if math.isinf(value) else f"{value:.3f}"


class Progress:
    """A progress bar over run-steps; on a console that is no terminal, one line for each finished program."""

    def __init__(self, console: Console, title: str, programs: Sequence[Program], finished: int) -> None:
        self._console = console
        self._finished = finished
        self._total = finished + sum(len(program.runs) for program in programs)
        self._best = 0.0
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
        self._bar = Bar(
            *columns,
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
            speed_estimate_period=120,
        )
        steps = sum(program.run_steps for program in programs)
        self._task = self._bar.add_task(title, total=steps, state=self._state())

    def _state(self) -> str:
        best = f", best accuracy {100 * self._best:.2f} %" if self._best else ""
        return f"{self._finished:,}/{self._total:,} runs{best}"

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def advance(self, run_steps: int) -> None:
        """Count run-steps that are done. Called from every worker."""
        self._bar.advance(self._task, run_steps)

    def finished(self, records: Sequence[Record]) -> None:
        """Count the runs of a finished program and remember the best private accuracy."""
        self._finished += len(records)
        private = [r["history"]["test_accuracy"][-1] for r in records if r["method"] != "non_private"]
        self._best = max([self._best, *private])
        self._bar.update(self._task, state=self._state())
        if not self._console.is_terminal:
            left = self._bar.tasks[0].time_remaining
            self._console.print(f"{self._state()}" + (f", {left:.0f} s left" if left is not None else ""))

    def stopping(self) -> None:
        """Say that a request to stop was heard; the running epochs end first."""
        self._console.print("Stopping after the current epoch.")

    def failed(self, program: Program, error: BaseException) -> None:
        """Say at once which runs failed and why; the others go on."""
        first = program.runs[0]
        which = f"{len(program.runs)} runs of seed {first.seed}, {first.mechanism.steps} steps"
        self._console.print(marked("failed", "red", f": {which}: {type(error).__name__}: {error}"))
