"""A progress bar for extractions, with rate and time left."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from dpexp.features.extraction import Progress


class RateColumn(ProgressColumn):
    """Rows a second."""

    def render(self, task: Task) -> str:  # type: ignore[override]
        """The current rate; nothing before there is one."""
        return f"{task.speed:,.0f} rows/s" if task.speed else ""


@contextmanager
def shown(console: Console) -> Iterator[Progress]:
    """A callback that draws one bar a part while an extraction runs, and nothing when the cache is used."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Bar(*columns, console=console) as bar:

        def report(part: str, done: int, total: int) -> None:
            if part not in tasks:
                tasks[part] = bar.add_task(f"extracting {part}", total=total)
            bar.update(tasks[part], completed=done)

        yield report
