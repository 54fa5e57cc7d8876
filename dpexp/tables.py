"""Tables of stored results as CSV, Markdown, LaTeX and in the terminal: `python -m dpexp.tables`."""

import argparse
import csv as csv_format
import io
import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dpexp import aggregate, comparison
from dpexp.aggregate import Record
from dpexp.cache import write_atomic
from dpexp.console import plain_console
from dpexp.panels import Entry, Panel, not_run, number, panels
from dpexp.recommend import recommendations
from dpexp.verdicts import verdicts

# Digits that can be rebuilt on another machine: sums of stored float64 numbers differ there in the last
# places only.
ACCOUNTING = "Accounting"
BASELINE = "Non-private baseline"
CHOOSING = "Choosing a clip norm for this data"
VERDICTS = "The paper's claims"
NO_RUNS = "No finished runs."
DECIMALS: dict[str, Callable[[float], str]] = {
    "accuracy_mean": "{:.4f}".format,
    "accuracy_std": "{:.4f}".format,
    "paper_mean": "{:.2f}".format,
    "paper_std": "{:.2f}".format,
}
# The paper's tables that a study of this name reproduces; clipnorm shows all, to say what did not run.
PAPER_TABLES = {"clipnorm": (3, 4, 5, 6, 7), "rnmm": (3,), "nonconvex": (7,)}
COMPANIONS = {"rnmm": "clipnorm"}  # Table 3 sets the private choice beside the best of the clip-norm study
LATEX = {
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "τ": r"$\tau$",
    **{sign: rf"$\{name}$" for sign, name in zip("βρσ", ("beta", "rho", "sigma"), strict=True)},
    "±": r"$\pm$",
    "≤": r"$\leq$",
    **{"≥": r"$\geq$", "<": r"$<$", ">": r"$>$", "^": r"\^{}", "~": r"\~{}"},
    "\N{MINUS SIGN}": r"$-$",
    "∞": r"$\infty$",
    **{"†": r"$\dagger$", "‡": r"$\ddagger$", "§": r"\S{}", "¶": r"\P{}", "‖": r"$\|$"},
    "\N{EN DASH}": "--",
}


def csv(table: pd.DataFrame) -> str:
    """A table of `comparison.against_paper` as CSV; an empty field for no value, `inf` for infinity."""
    text = io.StringIO()
    writer = csv_format.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.to_dict("records"):
        writer.writerow([_field(name, value) for name, value in row.items()])
    return text.getvalue()


def _field(column: str, value: Any) -> str:
    """One value as text."""
    if pd.isna(value):
        return ""
    return value if isinstance(value, str) else DECIMALS.get(column, "{:.10g}".format)(value)


def markdown(panels: Sequence[Panel], missing: Iterable[str] = ()) -> str:
    """Panels as Markdown, each with caption, notes and lists beneath, then what did not run."""
    parts = [_markdown_panel(panel) for panel in panels] or [NO_RUNS + "\n"]
    missing = [f"- {reason}" for reason in missing]
    if missing:
        parts.append("\n".join(["## Without a number", "", *missing, ""]))
    return "\n".join(parts)


def _markdown_panel(panel: Panel) -> str:
    """One panel as a Markdown section."""
    width = len(panel.head)
    lines = [f"## {panel.title}", "", _pipes(panel.head), _pipes(["---"] * width)]
    lines += [_pipes([label, *map(entry_text, entries)]) for label, entries in panel.rows]
    if panel.baseline:
        lines.append(_pipes([BASELINE, entry_text(panel.baseline), *[""] * (width - 2)]))
    lines += ["", " ".join(panel.caption), ""]
    lines += [*(f"{note}  " for note in panel.notes), ""] if panel.notes else []
    for heading, sentences in _lists(panel):
        lines += [f"**{heading}**", "", *(f"- {sentence}" for sentence in sentences), ""]
    return "\n".join(lines)


def _lists(panel: Panel) -> list[tuple[str, tuple[str, ...]]]:
    """The lists beneath a table that have something to say, each with its heading."""
    found = ((ACCOUNTING, panel.accounting), (VERDICTS, panel.verdicts), (CHOOSING, panel.recommendation))
    return [(heading, sentences) for heading, sentences in found if sentences]


def _pipes(values: Iterable[str]) -> str:
    """One row of a Markdown table."""
    return f"| {' | '.join(values)} |"


def entry_text(entry: Entry) -> str:
    """Ours, with the signs of its notes, and the paper's in brackets."""
    ours = number(entry.mean, entry.std) + entry.marks
    return ours if math.isnan(entry.paper_mean) else f"{ours} ({number(entry.paper_mean, entry.paper_std)})"


def escape(text: str) -> str:
    """Plain text as LaTeX."""
    text = re.sub(r"([&%$#_{}])", r"\\\1", text)
    text = re.sub(r"\bG\\_(\w)", r"$G_{\1}$", text)
    return "".join(LATEX.get(sign, sign) for sign in text)


def latex(panels: Sequence[Panel], missing: Iterable[str] = ()) -> str:
    """Panels as LaTeX tables (package booktabs), laid out like the paper's Table 6."""
    head = ["% needs the package booktabs", *(f"% {reason}" for reason in missing), ""]
    return "\n".join([*head, *map(_latex_panel, panels)])


def _latex_panel(panel: Panel) -> str:
    """One panel as a LaTeX table."""
    width = len(panel.head) - 1
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'c' * width}}}", r"\toprule"]
    lines += [_ampersands(map(escape, panel.head)), r"\midrule"]
    lines += [_ampersands(map(escape, [label, *map(entry_text, row)])) for label, row in panel.rows]
    if panel.baseline:
        value = rf"\multicolumn{{{width}}}{{c}}{{{escape(entry_text(panel.baseline))}}}"
        lines += [r"\midrule", _ampersands([BASELINE, value])]
    about = [f"{panel.title}.", *panel.caption, *panel.notes]
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{escape(' '.join(about))}}}", r"\footnotesize"]
    lines += [rf"\par\raggedright {escape(sentence)}" for sentence in (*panel.accounting, *panel.verdicts)]
    return "\n".join([*lines, r"\end{table}", ""])


def _ampersands(values: Iterable[str]) -> str:
    """One row of a LaTeX table."""
    return " & ".join(values) + r" \\"


def terminal(panels: Sequence[Panel]) -> RenderableType:
    """Panels as something that `rich.console.Console` prints; what ran nowhere is a sentence."""
    return Group(*map(_terminal_panel, panels)) if panels else Text(NO_RUNS)


def _terminal_panel(panel: Panel) -> Group:
    """One panel with what to know beneath."""
    head, *columns = panel.head
    grid = Table(title=panel.title, title_justify="left")
    grid.add_column(head)
    for column in columns:
        grid.add_column(column, justify="right")
    for label, entries in panel.rows:
        grid.add_row(Text(label), *(Text(entry_text(entry)) for entry in entries))
    if panel.baseline:
        grid.add_section()
        grid.add_row(BASELINE, Text(entry_text(panel.baseline)))
    beneath = [*panel.caption, *panel.notes]
    for heading, sentences in _lists(panel):
        beneath += ["", heading, *(f"- {sentence}" for sentence in sentences)]
    return Group(grid, *map(Text, beneath), Text())


def build(records: Iterable[Record], study: str) -> tuple[pd.DataFrame, list[Panel]]:
    """A study's records as the table beside the paper's numbers, and as panels.

    A study of the paper's has every row of its tables, so that it says what did not run; beside them, and in any
    other study, stand only the rows of the data sets and heads that ran.
    """
    runs = aggregate.to_frame(records)
    cells = aggregate.cells(runs)
    reference = comparison.read_reference()
    ran = pd.MultiIndex.from_frame(cells[comparison.BLOCK])
    wanted = pd.MultiIndex.from_frame(reference[comparison.BLOCK]).isin(ran)
    reference = reference[wanted | reference["table"].isin(PAPER_TABLES.get(study.partition("-")[0], ()))]
    table = comparison.against_paper(cells, reference)
    table["note"] = [_in_study(row, study) for row in table.to_dict("records")]
    return table, panels(table, cells, verdicts(table, reference), recommendations(runs, cells))


def _in_study(row: Mapping[Hashable, Any], study: str) -> str:
    """A row's note; that a row of another sweep's is missing says nothing about that sweep."""
    sweep = comparison.sweep_of(row)
    if not row["note"].startswith("not run:") or sweep == study.partition("-")[0]:
        return row["note"]
    return f"not in this study{row['note'].removeprefix('not run')} (of all studies: paper_l.csv)"


def stored(folder: Path) -> list[dict[str, Any]]:
    """A study's records, with those of the study that its table is read beside, if both are stored."""
    from dpexp import results  # after --help, which needs nothing

    found = results.read(folder)
    study, dash, variant = folder.name.partition("-")
    if not found or study not in COMPANIONS:
        return found
    blocks = {(r["dataset"], r["extractor"], r["model"]["name"]) for r in found}
    beside = results.read(folder.parent / f"{COMPANIONS[study]}{dash}{variant}")
    return found + [r for r in beside if (r["dataset"], r["extractor"], r["model"]["name"]) in blocks]


def write(records: Iterable[Record], output_dir: Path, study: str) -> list[Path]:
    """Write `tables/<study>.csv`, `.md` and `.tex` under `output_dir`. Equal records give equal bytes."""
    table, shown = build(records, study)
    missing = not_run(table)
    texts = {"csv": csv(table), "md": markdown(shown, missing), "tex": latex(shown, missing)}
    paths = [output_dir / "tables" / f"{study}.{kind}" for kind in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_atomic(path, text.encode())
    return paths


def arguments(description: str, argv: Sequence[str] | None) -> tuple[Path, Path]:
    """Parse a command line that names a results folder: the folder, and where outputs go."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "results",
        nargs="?",
        type=Path,
        default=Path("outputs/results/clipnorm"),
        help="folder of stored results; its name is the study's (default: %(default)s)",
    )
    parser.add_argument("--output", type=Path, help="output folder (default: the one that holds results/)")
    given = parser.parse_args(argv)
    if not given.results.is_dir():
        parser.error(f"no results folder {given.results}; run a study first: python -m dpexp.run +sweep=clipnorm")
    return given.results, given.output or given.results.parent.parent


def main(argv: Sequence[str] | None = None) -> None:
    """Print a study's table and write its files."""
    folder, output = arguments("Rebuild a study's tables from its stored results (no training).", argv)
    records = stored(folder)
    console = plain_console()
    console.print(terminal(build(records, folder.name)[1]))
    for path in write(records, output, folder.name):
        console.print(f"wrote {path}", soft_wrap=True)


if __name__ == "__main__":
    main()
