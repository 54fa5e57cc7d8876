"""Tables 3 to 7 of paper L as printed, ours beside the paper's: `python -m dpexp.paper_tables`.

The paper's rows are filled from three results folders and no other: `clipnorm` (DP-SGD on softmax regression, Tables
4 to 6), `nonconvex` (other heads, Table 7) and `rnmm` (report noisy max, Table 3). A folder of such a name with an
ending, `nonconvex_fashion`, has a setting of its own: of it only what the paper does not have is shown, below the
paper's rows. Departures from the paper's grid are footnotes.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from dpexp import aggregate, comparison
from dpexp.aggregate import Record
from dpexp.cache import write_atomic
from dpexp.captions import accounting, landings
from dpexp.comparison import BLOCK, title
from dpexp.panels import Entry, Panel, budget, panel, panels
from dpexp.tables import csv, latex, markdown
from dpexp.verdicts import verdicts

STUDIES = ("clipnorm", "nonconvex", "rnmm")
ALL = "paper_l"  # the file of every row of the paper
TITLES = {
    3: "Caltech-256, Food-101 and CIFAR-100, with and without report noisy max (RNMM)",
    4: "Caltech-256, Food-101 and CIFAR-100",
    5: "CIFAR-10, TweetEval Emoji and Emotion",
    6: "EMNIST and Fashion-MNIST",
    7: "EMNIST and CIFAR-100 with a two-layer network",
}
COLUMNS = {"rnmm": "w/ RNMM", "dpsgd_best": "w/o RNMM"}  # as printed
LINES = COLUMNS | {"rnmm_sound": "sound choice"}
RNMM_CAPTION = (
    "Test accuracy in percent, mean ± sample standard deviation over the last epochs and seeds; "
    "in brackets the paper's.",
    "Each ε is the total: report noisy max takes 0.3 of it, DP-SGD the rest; "
    "w/o RNMM is the best clip norm of the sweep, whose choice, as that of every learning rate, is outside the "
    "stated ε.",
    "w/ RNMM is the paper's way, for which there is NO guarantee: the chosen sample's constant is used unprotected. "
    "The sound choice, where it ran, is a line of its own. Accounting of w/o RNMM: Tables 4 to 6.",
)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Everything of ours that belongs to the paper. table: rows of `comparison.against_paper`."""

    table: pd.DataFrame
    cells: pd.DataFrame
    reference: pd.DataFrame


def study_cells(records: Sequence[Record], study: str) -> pd.DataFrame:
    """The cells that a study feeds into the paper's tables; a variant's only where the paper has no row."""
    cells = aggregate.cells(aggregate.to_frame(records))
    kind, _, variant = study.partition("_")
    private_choice, softmax = cells["method"].str.startswith("rnmm"), cells["model"] == "softmax"
    belongs = {"rnmm": private_choice, "clipnorm": ~private_choice & softmax, "nonconvex": ~private_choice & ~softmax}
    if variant:
        printed = pd.MultiIndex.from_frame(comparison.read_reference()[BLOCK])
        belongs[kind] &= ~pd.MultiIndex.from_frame(cells[BLOCK]).isin(printed)
    return cells[belongs[kind]]


def build(records: Mapping[str, Sequence[Record]]) -> Paper:
    """Stored records by study (STUDIES and variants of them) beside every row of the paper."""
    parts = [study_cells(records.get(study, ()), study) for study in sorted({*STUDIES, *records})]
    cells = pd.concat([part for part in parts if not part.empty] or parts[:1], ignore_index=True)
    reference = comparison.read_reference()
    extended = pd.concat([reference, _own_choices(cells, reference)], ignore_index=True)
    table = comparison.against_paper(cells, extended)
    return Paper(table=table, cells=cells, reference=reference)


def _own_choices(cells: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """Rows for Table 3 of data sets where the paper has none, without its numbers."""
    drawn = cells[cells["method"].str.startswith("rnmm")]
    known = {tuple(row) for row in reference[reference["table"] == 3][BLOCK].to_numpy()}
    rows = [
        dict(zip(BLOCK, names, strict=True)) | {"table": 3, "epsilon": epsilon, "method": method}
        for (*names, epsilon), _ in drawn.groupby([*BLOCK, "target_epsilon"])
        if tuple(names) not in known
        for method in ("rnmm", "dpsgd_best")
    ]
    return pd.DataFrame(rows, columns=reference.columns).astype(reference.dtypes)


def table_panels(paper: Paper, number: int) -> list[Panel]:
    """One of Tables 4 to 7: the paper's data sets in its order, then ours that it lacks."""
    printed = paper.table[paper.table["table"] == number]
    own = paper.table[paper.table["table"].isna() & ~paper.table["method"].str.startswith("rnmm")]
    shown = pd.concat([printed, own[_beside(own, printed, number)]])
    said = verdicts(shown, paper.reference)
    ran = {made.title: made for made in panels(shown, paper.cells, said, {})}
    found = []
    for names, rows in shown.groupby(BLOCK, sort=False):
        made = panel(rows, ())
        absent = not (printed[BLOCK] == list(names)).all(axis=1).any()
        if made.title in ran:
            found.append(replace(ran[made.title], title=made.title + (", not in the paper" if absent else "")))
        else:
            found.append(
                replace(made, caption=(f"{_sentence(rows['note'].iloc[0])} In brackets the paper's numbers.",))
            )
    return found


def _sentence(note: str) -> str:
    """A note as a sentence of its own."""
    return f"{note[:1].upper()}{note[1:]}."


def _beside(own: pd.DataFrame, printed: pd.DataFrame, number: int) -> pd.Series:
    """Which of our other rows stand below a table: its data sets (other heads: every data set)."""
    head = own["model"] == "softmax"
    return ~head if number == 7 else head & own["dataset"].isin(printed["dataset"])


def rnmm_panel(paper: Paper) -> Panel:
    """Table 3 as printed: data sets down, budgets across, each with and without report noisy max.

    The sound choice has a line of its own beneath its data set.
    """
    sound = paper.table["method"] == "rnmm_sound"
    rows = paper.table[sound | paper.table["table"].eq(3).fillna(False)]
    budgets = sorted(rows["epsilon"].unique())
    lines: list[tuple[str, tuple[Entry, ...]]] = []
    notes: list[str] = []
    costs: list[str] = []
    for names, block in rows.groupby(BLOCK, sort=False):
        name = title(names[0]) + ("" if block["paper_mean"].notna().any() else f" ({names[1]}), not in the paper")
        lines.append((name, tuple(_entry(block, e, method) for e in budgets for method in COLUMNS)))
        if (block["method"] == "rnmm_sound").any():
            pairs = [(_entry(block, e, "rnmm_sound"), Entry()) for e in budgets]
            lines.append((f"{name}, sound choice", tuple(entry for pair in pairs for entry in pair)))
        for method, column in LINES.items():
            said = block.loc[block["method"] == method, "note"]
            notes += [f"{name} {column}: {note}." for note in dict.fromkeys(said) if note]
        about = f"{title(names[0])} ({names[1]})"
        ours = paper.cells[(paper.cells[BLOCK] == list(names)).all(axis=1)]
        drawn = ours[ours["method"].str.startswith("rnmm")]
        notes += [f"{about}, {sentence}" for sentence in landings(drawn)]
        costs += [f"{about}, {sentence}" for sentence in accounting(drawn)]
    head = ("Dataset", *(f"{budget(e)} {column}" for e in budgets for column in COLUMNS.values()))
    return Panel(
        title="Report noisy max",
        head=head,
        rows=tuple(lines),
        baseline=None,
        notes=tuple(notes),
        caption=RNMM_CAPTION,
        accounting=tuple(costs),
    )


def _entry(block: pd.DataFrame, epsilon: float, method: str) -> Entry:
    """The numbers of one method at one budget; nothing where there is none."""
    rows = block[(block["method"] == method) & (block["epsilon"] == epsilon)]
    if len(rows) != 1:
        return Entry()
    mean, std, paper_mean, paper_std = (
        float(rows[name].iloc[0]) for name in ("accuracy_mean", "accuracy_std", "paper_mean", "paper_std")
    )
    return Entry(mean=mean, std=std, paper_mean=paper_mean, paper_std=paper_std)


def texts(paper: Paper) -> dict[str, str]:
    """File name -> content: `tableN.md`, `tableN.tex` and the CSV of every row of the paper."""
    found = {}
    for number, about in TITLES.items():
        shown = [rnmm_panel(paper)] if number == 3 else table_panels(paper, number)
        found[f"table{number}.md"] = f"# Table {number}: {about}\n\n{markdown(shown)}"
        found[f"table{number}.tex"] = latex(shown)
    return found | {f"{ALL}.csv": csv(paper.table)}


def read(results_dir: Path) -> dict[str, Sequence[Record]]:
    """The stored records by study: of STUDIES and of their variants."""
    from dpexp import results  # after --help, which needs nothing

    folders = [folder for study in STUDIES for folder in (results_dir / study, *results_dir.glob(f"{study}_*"))]
    return {folder.name: results.read(folder) for folder in sorted(folders)}


def write(paper: Paper, folder: Path) -> list[Path]:
    """Write every file of `texts` into a folder. Equal records give equal bytes."""
    paths = []
    for name, text in texts(paper).items():
        paths.append(folder / name)
        write_atomic(paths[-1], text.encode())
    return paths


def output_dir(description: str | None, argv: Sequence[str] | None) -> Path:
    """Parse a command line that names the folder of results, tables and figures."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--output", type=Path, default=Path("outputs"), help="folder that holds results/ (default: %(default)s)"
    )
    return parser.parse_args(argv).output


def main(argv: Sequence[str] | None = None) -> None:
    """Write the paper's tables from the stored results."""
    output = output_dir(__doc__, argv)
    for path in write(build(read(output / "results")), output / "tables"):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
