"""Tables as the paper lays them out: clip norms down, budgets across, the baseline last."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from dpexp.aggregate import EDGE
from dpexp.comparison import BLOCK, title
from dpexp.verdicts import Verdict

NOTHING = "\N{EN DASH}"
SIGNS = "†‡§¶‖"
ACCOUNTANTS = ("rdp", "prv", "pld")
METHOD_NAMES = {
    "dpsgd": "",
    "rnmm": "RNMM as printed (no guarantee)",
    "rnmm_paper": "RNMM as printed (no guarantee)",
    "rnmm_sound": "private minimum (proven)",
}


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
    recommendation: how to choose a clip norm.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]
    baseline: Entry | None
    notes: tuple[str, ...]
    caption: tuple[str, ...]
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
            ours = cells[(cells[BLOCK] == list(names)).all(axis=1)]
            said = tuple(v.sentence for v in verdicts if (v.dataset, v.extractor, v.model) == names)
            shown = panel(rows, caption(ours))
            found.append(replace(shown, verdicts=said, recommendation=recommendations.get(names, ())))
    return found


def not_run(table: pd.DataFrame) -> list[str]:
    """Why rows of the paper have no number, each reason once, with how many rows it stands for."""
    reasons = table[table["accuracy_mean"].isna()]["note"].value_counts(sort=False)
    return [f"{reason} ({count} rows of the paper)" for reason, count in reasons.items()]


def number(mean: float, std: float) -> str:
    """An accuracy with its deviation; a dash for none."""
    if math.isnan(mean):
        return NOTHING
    return f"{mean:.2f}" if math.isnan(std) else f"{mean:.2f} ± {std:.2f}"


def budget(epsilon: float) -> str:
    """A column's heading."""
    return f"ε = {_plain(epsilon)}"


def _plain(value: float) -> str:
    """A number in words that a person reads: infinity as a sign, nothing as a dash."""
    return NOTHING if math.isnan(value) else "∞" if math.isinf(value) else f"{value:g}"


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
        norm = "" if math.isnan(row["clip_norm"]) else f"τ = {_plain(row['clip_norm'])}"
    else:
        value = "τ = " if math.isnan(row["clip_norm"]) else f"τ = {row['clip_norm']:.1f} "
        norm = f"{value}({ordinal(row['percentile'])} pctl.)"
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


def caption(cells: pd.DataFrame) -> tuple[str, ...]:
    """What a reader must know about one data set's cells (rows of `aggregate.cells`)."""
    private = cells[cells["method"] != "non_private"]
    lines = [_averaging(cells), _tuning(cells)]
    if private["percentile"].notna().any():
        bias = {True: "with", False: "without"}[bool(private["include_bias"].any())]
        lines.append(
            "Clip norms at percentiles of the per-sample Lipschitz constants "
            f"({bias} the bias's constant 1) are computed from the private data: they are NOT private."
        )
    lines += _landings(private)
    keys = ["method", "target_epsilon", "epochs", "steps", "delta", "accountant", "n", "expected_batch_size"]
    lines += [_account(group) for _, group in private.groupby(keys, dropna=False)]
    lines.append("The paper does not state its number of epochs.")
    if (cells["noise"] == "shared").any():
        lines.append(
            "Noise is shared between runs (common random numbers): a study mode, not valid for releasing "
            "several of these models together."
        )
    lines += [f"Engine: {engine}." for engine in sorted(set(cells["engine"]) - {"packed"})]
    notes = dict.fromkeys(note for notes in cells["privacy_notes"] for note in notes)
    return (*lines, *(f"Accounting: {note}" for note in notes))


def _landings(private: pd.DataFrame) -> Iterable[str]:
    """Where clip norms that were chosen from the data lie among the constants, a sentence per method."""
    for method, rows in private[private["landing"].notna()].groupby("method"):
        landing = rows["landing"].iloc[0]
        at = {quantile: f"{value:.4g}" for quantile, value in landing["at"].items()}
        yield (
            f"{METHOD_NAMES[str(method)]}: over {landing['draws']} draws the clip norm lies on percentile "
            f"{at['50']} of the constants (median; {at['0']} to {at['100']}, 80 % of draws {at['10']} to {at['90']}), "
            f"and at or below the smallest constant in {100 * landing['at_or_below_minimum']:.0f} % of draws."
        )


def _averaging(cells: pd.DataFrame) -> str:
    """Over what accuracies are averaged, and how deviations are."""
    seeds = sorted({seed for seeds in cells["seeds"] for seed in seeds})
    counts = sorted({int(runs) for runs in cells["runs"] if runs})
    epochs = sorted({round(v / r) for v, r in zip(cells["values"], cells["runs"], strict=True) if r})
    return (
        "Test accuracy in percent, mean ± sample standard deviation (ddof=1) over the last "
        f"{_listed(epochs)} epochs of {_listed(counts)} seeds ({_listed(seeds)}); in brackets the paper's."
    )


def _tuning(cells: pd.DataFrame) -> str:
    """How the learning rate was chosen."""
    sources = {
        "test": "the test accuracy, as in the paper",
        "validation": "the accuracy on a validation split held out of the training set",
    }
    chosen = _listed([sources[name] for name in sorted(set(cells["select_on"]))])
    rates = _listed(sorted(set(cells["learning_rates"])))
    return f"Learning rate: the best of {rates} per cell by {chosen}; this tuning is outside the stated ε."


def _account(cells: pd.DataFrame) -> str:
    """Budget, noise and achieved epsilons of cells that share them."""
    first = cells.iloc[0]
    name = METHOD_NAMES.get(first["method"], first["method"])
    noise = f"noise multiplier {_range(cells['noise_multiplier'])}"
    if math.isnan(first["target_epsilon"]):
        noise = f"Given {noise}"
    else:
        noise = f"{budget(first['target_epsilon'])}: {noise} by the {first['accountant'].upper()} accountant"
    used = {name for names in cells["accountants_used"] for name in names} - {first["accountant"]}
    noise += "".join(f" ({name.upper()} used in its place)" for name in sorted(used))
    epochs = "" if math.isnan(first["epochs"]) else f" ({first['epochs']:g} epochs)"
    batches = f"Poisson batches of {first['expected_batch_size']:g} expected from {first['n']:,.0f}"
    achieved = ", ".join(f"{_range(cells[f'epsilon_{name}'])} {name.upper()}" for name in ACCOUNTANTS)
    noise = f"{name}: {noise}" if name else noise
    return f"{noise}, {first['steps']:,.0f} steps{epochs} on {batches}, δ = {first['delta']:g}; achieved ε {achieved}."


def _range(values: pd.Series) -> str:
    """One value, or the smallest and largest of several, to three decimals."""
    texts = [f"{value:.3f}" if math.isfinite(value) else _plain(value) for value in (values.min(), values.max())]
    return " to ".join(dict.fromkeys(texts))


def _listed(values: Iterable[object]) -> str:
    """Values separated by commas; a dash for none."""
    return ", ".join(str(value) for value in values) or NOTHING
