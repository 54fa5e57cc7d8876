"""Tables as the paper lays them out: clip norms down, budgets across, the baseline last."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from dpexp.aggregate import EDGE
from dpexp.captions import METHOD_NAMES, NOTHING, accounting, budget, caption, plain
from dpexp.comparison import BLOCK, title
from dpexp.verdicts import Verdict

SIGNS = "†‡§¶‖"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Our and the paper's accuracy (percent), NaN where there is none. marks: the signs of the notes about it."""

    mean: float = math.nan
    std: float = math.nan
    paper_mean: float = math.nan
    paper_std: float = math.nan
    marks: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One data set's table. head: headings of the labels and the columns; rows: a label and an entry a column.

    baseline: non-private, across all columns. notes: footnotes, each led by the sign that marks its entries.
    accounting: a sentence for every budget of every method. recommendation: how to choose a clip norm.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]
    baseline: Entry | None
    notes: tuple[str, ...]
    caption: tuple[str, ...]
    accounting: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()
    recommendation: tuple[str, ...] = ()


def panels(
    table: pd.DataFrame,
    cells: pd.DataFrame,
    verdicts: Iterable[Verdict],
    recommendations: Mapping[tuple[str, ...], tuple[str, ...]],
) -> list[Panel]:
    """One panel per data set, features and head that has a cell of ours, in the table's order.

    table: rows of `comparison.against_paper`, made from `cells`. recommendations: of `recommend`.
    """
    verdicts = list(verdicts)
    found = []
    for names, rows in _without_best(table).groupby(BLOCK, sort=False):
        if rows["runs"].sum() > 0:
            ours = _shown(cells[(cells[BLOCK] == list(names)).all(axis=1)], rows)
            said = tuple(v.sentence for v in verdicts if (v.dataset, v.extractor, v.model) == names)
            shown = panel(rows, caption(ours, bool(rows["paper_mean"].notna().any())))
            advice = recommendations.get(names, ())
            found.append(replace(shown, accounting=accounting(ours), verdicts=said, recommendation=advice))
    return found


def _shown(cells: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The cells of the methods that a table's rows show; the paper's row of report noisy max shows ours of it."""
    return cells[cells["method"].isin({*rows["method"], *rows["method"].map({"rnmm": "rnmm_paper"})})]


def not_run(table: pd.DataFrame) -> list[str]:
    """Why rows of the paper have no number, each reason once, with how many rows it stands for."""
    reasons = table[table["accuracy_mean"].isna()]["note"].value_counts(sort=False)
    return [f"{reason} ({count} rows of the paper)" for reason, count in reasons.items()]


def number(mean: float, std: float) -> str:
    """An accuracy with its deviation; a dash for none."""
    if math.isnan(mean):
        return NOTHING
    return f"{mean:.2f}" if math.isnan(std) else f"{mean:.2f} ± {std:.2f}"


def _without_best(table: pd.DataFrame) -> pd.DataFrame:
    """The table without rows that repeat the best of other rows."""
    return table[table["method"] != "dpsgd_best"]


def panel(rows: pd.DataFrame, caption: tuple[str, ...]) -> Panel:
    """The rows of one data set, from `comparison.against_paper`, as a panel without verdicts.

    A study of baselines only has one column without a budget.
    """
    signs = _signs(rows)
    private = rows[rows["method"] != "non_private"]
    baselines = [_entry(row, signs) for _, row in rows[rows["method"] == "non_private"].iterrows()]
    budgets = tuple(sorted(private["epsilon"].unique()))
    dataset, extractor, model = rows.iloc[0][BLOCK]
    return Panel(
        title=f"{title(dataset)} ({extractor} features, {model})",
        head=("Clip norm", *map(budget, budgets)) if budgets else ("", "accuracy"),
        rows=tuple(_lines(private, budgets, signs)),
        baseline=next((b for b in baselines if not math.isnan(b.mean)), baselines[0] if baselines else None),
        notes=tuple(f"{sign or 'All cells:'} {note}." for note, sign in signs.items()),
        caption=caption,
    )


def _lines(
    private: pd.DataFrame, budgets: tuple[float, ...], signs: Mapping[str, str]
) -> Iterable[tuple[str, tuple[Entry, ...]]]:
    """One line per clip norm, a further one where a budget has several cells at the same clip norm."""
    lines: dict[tuple[str, int], dict[float, Entry]] = {}
    for _, row in private.iterrows():
        label, nth = _label(row), 0
        while row["epsilon"] in lines.get((label, nth), {}):
            nth += 1
        lines.setdefault((label, nth), {})[row["epsilon"]] = _entry(row, signs)
    for (label, _), entries in lines.items():
        yield label, tuple(entries.get(epsilon, Entry()) for epsilon in budgets)


def _entry(row: pd.Series, signs: Mapping[str, str]) -> Entry:
    """One row's numbers."""
    ran = not math.isnan(row["accuracy_mean"])
    return Entry(
        mean=row["accuracy_mean"],
        std=row["accuracy_std"],
        paper_mean=row["paper_mean"],
        paper_std=row["paper_std"],
        marks="".join(sign for note, sign in signs.items() if note in _said(row)) if ran else "",
    )


def _label(row: pd.Series) -> str:
    """How the paper names a clip norm; other methods by their name, with the mean of the clip norms they chose."""
    method = METHOD_NAMES.get(row["method"], row["method"])
    if row["method"].startswith("rnmm"):
        return method if math.isnan(row["clip_norm"]) else f"{method}, mean τ = {row['clip_norm']:.2f}"
    if math.isnan(row["percentile"]):
        norm = "" if math.isnan(row["clip_norm"]) else f"τ = {plain(row['clip_norm'])}"
    else:
        value = "τ = " if math.isnan(row["clip_norm"]) else f"τ = {row['clip_norm']:.1f} "
        *others, last = [ordinal(float(at)) for at in row["percentiles"].split() or [row["percentile"]]]
        norm = f"{value}({', '.join(others)}{' and ' if others else ''}{last} pctl.)"
    return " ".join(part for part in (method, norm) if part)


def ordinal(value: float) -> str:
    """0th, 1st, 2nd, 11th, 99.9th."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    whole = value == int(value) and int(value) % 100 not in (11, 12, 13)
    return f"{value:g}{endings.get(int(value) % 10, 'th') if whole else 'th'}"


def _said(row: pd.Series) -> list[str]:
    """The notes about one row, one by one."""
    return [note for note in row["note"].split("; ") if note]


def _signs(rows: pd.DataFrame) -> dict[str, str]:
    """A sign for every different note about cells that ran, the first for the edge of the grid; none for a note
    about all of several.
    """
    ran = [_said(row) for _, row in rows[rows["accuracy_mean"].notna()].iterrows()]
    counts = Counter(note for notes in ran for note in notes)
    common = {note: "" for note, count in counts.items() if count == len(ran) > 1}
    marked = sorted(counts.keys() - common.keys(), key=lambda note: (note != EDGE, list(counts).index(note)))
    return common | {note: SIGNS[k % len(SIGNS)] * (1 + k // len(SIGNS)) for k, note in enumerate(marked)}
