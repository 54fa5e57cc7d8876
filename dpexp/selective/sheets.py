"""A table of texts with what to know beneath it, as Markdown, as LaTeX and in the terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from dpexp.tables import escape

LONGEST_NAME = 14  # characters of a method's longest part that should not be cut, in a terminal


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


def without(sheet: Sheet, columns: Iterable[str]) -> Sheet:
    """A sheet without the columns of these headings."""
    kept = [index for index, name in enumerate(sheet.head) if name not in {*columns}]
    rows = tuple(tuple(row[index] for index in kept) for row in sheet.rows)
    return replace(sheet, head=tuple(sheet.head[index] for index in kept), rows=rows)


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
    """One sheet with what to know beneath. Where it is too wide, names wrap and numbers stay whole."""
    grid = Table(title=sheet.title, title_justify="left")
    for index, name in enumerate(sheet.head):
        named = index < 2
        heading = name if named else name.replace(", ", ",\n").replace("'s ", "'s\n").replace("stated ", "stated\n")
        grid.add_column(
            heading,
            justify="left" if named else "right",
            no_wrap=not named,
            min_width=LONGEST_NAME if index == 1 else None,
        )
    for index, row in enumerate(sheet.rows):
        if index in sheet.blocks and index:
            grid.add_section()
        grid.add_row(*(Text(_short(cell)) for cell in row))
    beneath = [*sheet.caption, *(f"- {note}" for note in sheet.notes)]
    return Lines(grid, *(Text(_short(text)) for text in beneath), Text())


def _short(text: str) -> str:
    """The same with a shorter word for what would be the widest entry of a column of numbers."""
    return text.replace("no certificate", "none")
