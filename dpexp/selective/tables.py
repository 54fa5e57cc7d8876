"""Tables 1 to 3 of paper S beside ours, and what every run really costs: `python -m dpexp.selective.tables`.

All stored studies named `selective` or `selective_*` are read; those of beta, of which Figures 3 and 4 are drawn, have
no row here. Only `selective`, stopped by the paper's formula, fills the paper's rows; other studies stand in the table
of accounts.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Group as Lines
from rich.markdown import Markdown

from dpexp.cache import write_atomic
from dpexp.console import plain_console
from dpexp.paper_tables import output_dir
from dpexp.reference import selective_tables
from dpexp.results import Record
from dpexp.selective import beside, findings, footnotes, layout, sheets
from dpexp.selective.groups import Group, groups
from dpexp.selective.sheets import Sheet
from dpexp.tables import csv

NAME = "selective_release"
FILE_ONLY = (  # columns too many for a terminal; the paper's formula is what the stated epsilon was planned by
    *("ε, paper's formula", "ε, naive", "ε, C by RDP", "ε, odometer", "ε, as coded"),
    *("trials", "accepted", "rate", "runs", "status"),
)
TITLE = "Paper S: updates that pass a noisy test, and what they cost"


def read(results_dir: Path) -> list[Record]:
    """The records of every study whose name begins with `selective`."""
    from dpexp import results  # after --help, which needs nothing

    return [record for folder in sorted(results_dir.glob("selective*")) for record in results.read(folder)]


def missing(rows: Sequence[beside.Row]) -> list[str]:
    """Why rows of the paper have no number, each reason once, with the rows it stands for."""
    reasons: dict[str, list[beside.Row]] = {}
    for row in rows:
        if row.note:
            reasons.setdefault(row.note, []).append(row)
    return [f"{reason} ({_tables(found)})" for reason, found in reasons.items()]


def _tables(rows: Sequence[beside.Row]) -> str:
    """How many rows of which tables."""
    numbers = sorted({row.table for row in rows if row.table is not None})
    named = ", ".join(map(str, numbers))
    return f"{len(rows)} number{'s' * (len(rows) != 1)} of Table{'s' * (len(numbers) > 1)} {named}"


def shown(rows: Sequence[beside.Row], own: Sequence[Group]) -> list[Sheet]:
    """Tables 1 to 3 and the accounts, in this order."""
    costs = layout.accounts(own)
    return [
        layout.table_1(rows),
        layout.table_2(rows),
        layout.table_3(rows),
        replace(costs, notes=footnotes.notes(own)),
    ]


def texts(records: Sequence[Record]) -> dict[str, str]:
    """File name -> content. Equal records give equal texts."""
    own, reference = groups(records), selective_tables()
    rows = beside.rows(reference, own)
    parts, absent = shown(rows, own), missing(rows)
    gaps = ["## Without a number", "", *(f"- {reason}" for reason in absent), ""] if absent else []
    sections = [*map(sheets.markdown, parts), findings.markdown(findings.findings(own, reference)), "\n".join(gaps)]
    head = ["% needs the package booktabs", *(f"% {reason}" for reason in absent), ""]
    return {
        f"{NAME}.csv": csv(beside.frame(rows)),
        f"{NAME}.md": "\n".join([f"# {TITLE}", "", *sections]),
        f"{NAME}.tex": "\n".join([*head, *map(sheets.latex, parts)]),
    }


def terminal(records: Sequence[Record]) -> Lines:
    """Tables 2 and 3, the accounts and what was found for the data sets that ran, for `rich.console.Console.print`."""
    own, reference = groups(records), selective_tables()
    ran = {group.dataset for group in own}
    _, *parts, costs = shown([row for row in beside.rows(reference, own) if row.dataset in ran], own)
    notes = tuple(note for note in costs.notes if f"ε, {note.partition(':')[0]}" not in FILE_ONLY)
    parts.append(replace(sheets.without(costs, FILE_ONLY), notes=notes))
    return Lines(
        sheets.terminal([part for part in parts if part.rows]),
        Markdown(findings.markdown(findings.findings(own, reference))),
    )


def write(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write every file of `texts` into a folder."""
    paths = []
    for name, text in texts(records).items():
        paths.append(folder / name)
        write_atomic(paths[-1], text.encode())
    return paths


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables and write their files from the stored results."""
    output = output_dir(__doc__, argv)
    records = read(output / "results")
    console = plain_console()
    console.print(terminal(records))
    for path in write(records, output / "tables"):
        console.print(f"wrote {path}", soft_wrap=True)


if __name__ == "__main__":
    main()
