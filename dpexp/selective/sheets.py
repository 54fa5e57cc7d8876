"""A table of texts with what to know beneath it, as Markdown, as LaTeX and in the terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from dpexp.tables import escape


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """head: headings; rows: as many texts each; caption: sentences of one paragraph; notes: a line each.

    blocks: indices of the rows before which a line is drawn.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    blocks: frozenset[int] = frozenset()


def markdown(sheet: Sheet) -> str:
    """A sheet as a Markdown section."""
    lines = [f"## {sheet.title}", ""]
    lines += [_pipes(sheet.head), _pipes(["---"] * len(sheet.head)), *map(_pipes, sheet.rows), ""]
    lines += [" ".join(sheet.caption), ""] if sheet.caption else []
    lines += [*(f"- {note}" for note in sheet.notes), ""] if sheet.notes else []
    return "\n".join(lines)


def _pipes(values: Iterable[str]) -> str:
    """One row of a Markdown table."""
    return f"| {' | '.join(value.replace('|', chr(92) + '|') for value in values)} |"


def latex(sheet: Sheet) -> str:
    """A sheet as a LaTeX table (package booktabs)."""
    columns = "l" * 2 + "c" * (len(sheet.head) - 2)
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _ampersands(sheet.head)]
    for index, row in enumerate(sheet.rows):
        lines += [r"\midrule"] if index == 0 or index in sheet.blocks else []
        lines.append(_ampersands(row))
    about = escape(" ".join([f"{sheet.title}.", *sheet.caption]))
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{about}}}", r"\footnotesize"]
    lines += [rf"\par\raggedright {escape(note)}" for note in sheet.notes]
    return "\n".join([*lines, r"\end{table}", ""])


def _ampersands(values: Iterable[str]) -> str:
    """One row of a LaTeX table."""
    return " & ".join(map(escape, values)) + r" \\"


def terminal(sheets: Sequence[Sheet]) -> Lines:
    """Sheets as something that `rich.console.Console` prints."""
    return Lines(*map(_terminal, sheets))


def _terminal(sheet: Sheet) -> Lines:
    """One sheet with what to know beneath."""
    grid = Table(title=sheet.title, title_justify="left")
    for index, name in enumerate(sheet.head):
        grid.add_column(name, justify="left" if index < 2 else "right")
    for index, row in enumerate(sheet.rows):
        if index in sheet.blocks and index:
            grid.add_section()
        grid.add_row(*map(Text, row))
    return Lines(grid, *map(Text, sheet.caption), *(Text(f"- {note}") for note in sheet.notes), Text())
