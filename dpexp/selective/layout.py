"""Tables 1 to 3 of paper S as it lays them out, and a table of what every run really costs."""

import math
from collections.abc import Iterable, Sequence

from dpexp.comparison import title
from dpexp.panels import NOTHING, Entry, budget
from dpexp.selective import table_one
from dpexp.selective.beside import Row, bound
from dpexp.selective.groups import STUDY, Group, label, method_title
from dpexp.selective.sheets import Sheet
from dpexp.tables import entry_text

DATASETS = ("mnist", "fashion_mnist", "cifar10", "imdb")
ABLATION = ("dpsr_cg", "dpsr_cg_no_release", "dpsur_same_scaling")
ACCOUNT_NAMES = {
    "paper": "paper's formula",
    "naive": "naive",
    "A": "A",
    "B": "B",
    "C": "C",
    "C_rdp": "C by RDP",
    "odometer": "odometer",
    "as_coded": "as coded",
}
ENDED_EARLY = "†"
IN_BRACKETS = "In brackets the paper's."
OURS = (
    "Test accuracy in percent of the last released model, mean ± sample standard deviation over seeds (no ± for one "
    f"seed). {IN_BRACKETS} Columns are the stated ε; what it really is stands in the table of accounts. "
    "The published settings stand in conf/recipe, those of a run in its record; how they were chosen is outside ε."
)
FORMULAS_NOTE = (
    "A number in brackets is what a formula gives, but no bound of what ran; `no certificate`: no bound is known. "
    "Every epsilon is the largest over the runs of its line and is rounded up; trials and accepted updates are means."
)


def table_1(rows: Iterable[Row]) -> Sheet:
    """The factor between q_sup and q, ours as printed, with the paper's."""
    printed = [row for row in rows if row.table == 1]
    lines, notes = [], []
    for dataset in DATASETS:
        for method in table_one.TEST_NOISE:
            entries = [row for row in printed if (row.dataset, row.method) == (dataset, method)]
            name = title(dataset) if method == "dpsr_cg" else ""
            ours = [f"{row.value:.2f} ({row.paper_value:.2f})" for row in entries]
            lines.append((name, method_title(method), *ours))
            notes.append(f"{title(dataset)}, {method_title(method)}: {_in_true_order(method, dataset)}.")
    return Sheet(
        title="Table 1: largest q_sup / q",
        head=("Data set", "Method", *map(budget, table_one.BUDGETS)),
        rows=tuple(lines),
        caption=(
            "Computed, then cut off after two digits as the paper does.",
            IN_BRACKETS,
            "The columns are the paper's and stand in reverse order: what it prints under ε = 1 belongs to the noise "
            "of ε = 3, and the other way about.",
            "The factor is the paper's own and not a bound of what the test costs.",
        ),
        notes=tuple(notes),
        blocks=frozenset(range(0, len(lines), 2)),
    )


def _in_true_order(method: str, dataset: str) -> str:
    """The noise multipliers of a method's tests at the budgets they were used at, and the factors before cutting."""
    entries = {e.belongs_to: e for e in (table_one.entry(method, dataset, under) for under in table_one.BUDGETS)}
    ordered = [entries[epsilon] for epsilon in table_one.BUDGETS]
    noise, factors = ", ".join(f"{e.noise_multiplier:g}" for e in ordered), ", ".join(f"{e.value:.4f}" for e in ordered)
    return f"noise multipliers {noise} at ε = {', '.join(map(str, table_one.BUDGETS))} give {factors}"


def table_2(rows: Sequence[Row]) -> Sheet:
    """The ablation: with and without selective release, and DPSUR with the same scaling."""
    wanted = {row.dataset for row in rows if row.method in ABLATION[1:]}
    return _accuracies(rows, 2, "Table 2: what selective release adds", ABLATION, wanted)


def table_3(rows: Sequence[Row]) -> Sheet:
    """All methods on all data sets."""
    methods = tuple(dict.fromkeys(row.method for row in rows if row.metric == "accuracy"))
    methods = tuple(method for method in methods if method not in (*ABLATION[1:], "non_private"))
    wanted = {row.dataset for row in rows if row.metric == "accuracy"}
    return _accuracies(rows, 3, "Table 3: test accuracy", methods, wanted)


Lines = dict[tuple[str, str, str], dict[float, Row]]  # (data set, method, variant) -> epsilon -> row


def _accuracies(rows: Sequence[Row], number: int, name: str, methods: Sequence[str], wanted: set[str]) -> Sheet:
    """Data sets and methods down, budgets across."""
    lines = _lines(rows, number, methods, wanted)
    budgets = sorted({epsilon for entries in lines.values() for epsilon in entries})
    baselines = {row.dataset: row for row in reversed(rows) if row.method == "non_private" and row.metric == "accuracy"}
    with_baseline = number == 3
    texts: list[tuple[str, ...]] = []
    blocks: set[int] = set()
    last = ""
    for (dataset, method, variant), entries in lines.items():
        first = dataset != last
        blocks |= {len(texts)} if first else set()
        cells = [_entry(entries.get(epsilon)) for epsilon in budgets]
        cells += [_entry(baselines.get(dataset)) if first else ""] if with_baseline else []
        shown = any(row.table == number for row in entries.values())
        method_name = method_title(method, variant) + ("" if shown else f", not in Table {number}")
        texts.append((title(dataset) if first else "", method_name, *cells))
        last = dataset
    ended_early = any(ENDED_EARLY in cell for row in texts for cell in row)
    return Sheet(
        title=name,
        head=("Data set", "Method", *map(budget, budgets), *(["non-private"] if with_baseline else [])),
        rows=tuple(texts),
        caption=(OURS, *_variants(lines)),
        notes=(f"{ENDED_EARLY} A run ended before its budget was used up: see its status below.",) * ended_early,
        blocks=frozenset(blocks),
    )


def _variants(lines: Lines) -> tuple[str, ...]:
    """What a line without a variant's name is, where there is one with it."""
    if not any(variant for *_, variant in lines):
        return ()
    return (
        "Lines without a variant's name are the sound one; `as published` does what the authors' code does, for which "
        "the stated ε is not a bound.",
    )


def _lines(rows: Sequence[Row], number: int, methods: Sequence[str], wanted: set[str]) -> Lines:
    """The rows of a table by line, in the order of data sets and methods, a variant below its method.

    A data set that the paper's table lacks shows what another of its tables, or none, has of these methods. Other
    studies than the paper's stand in the table of accounts alone.
    """
    found: Lines = {}
    for row in sorted(rows, key=lambda row: row.table != number):
        if row.group is not None and row.group.study != STUDY:
            continue
        if row.metric == "accuracy" and row.method in methods and row.dataset in wanted:
            variant = "" if row.variant == "sound" else row.variant
            found.setdefault((row.dataset, row.method, variant), {}).setdefault(row.epsilon, row)
    keys = sorted(found, key=lambda key: (place(key[0]), methods.index(key[1]), key[2]))
    return {key: found[key] for key in keys}


def _entry(row: Row | None) -> str:
    """Ours with the paper's in brackets."""
    if row is None:
        return ""
    marks = ENDED_EARLY if row.group is not None and set(row.group.statuses) != {"done"} else ""
    return entry_text(Entry(mean=row.value, std=row.std, paper_mean=row.paper_value, marks=marks))


def accounts(groups: Sequence[Group]) -> Sheet:
    """Every account of every group with a budget, and how often its test let an update pass."""
    private = [group for group in groups if group.method != "non_private"]
    names = [name for name in ACCOUNT_NAMES if name != "C_rdp" or any(name in g.accounts for g in private)]
    names += sorted({name for group in private for name in group.accounts} - {*names})
    lines: list[tuple[str, ...]] = []
    blocks: set[int] = set()
    last = ""
    for group in sorted(private, key=lambda group: place(group.dataset)):
        blocks |= {len(lines)} if group.dataset != last else set()
        lines.append((title(group.dataset) if group.dataset != last else "", *_account_cells(group, groups, names)))
        last = group.dataset
    heads = [f"ε, {ACCOUNT_NAMES.get(name, name)}" for name in names]
    return Sheet(
        title="What every run costs",
        head=(
            *("Data set", "Method", "stated ε", "accuracy"), *heads,
            *("trials", "accepted", "rate", "runs", "status"),
        ),
        rows=tuple(lines),
        caption=(FORMULAS_NOTE,),
        blocks=frozenset(blocks),
    )  # fmt: skip


def place(dataset: str) -> tuple[int, str]:
    """What data sets are sorted by: their order in the paper, then those that it lacks by name."""
    return (DATASETS.index(dataset) if dataset in DATASETS else len(DATASETS)), dataset


def _account_cells(group: Group, peers: Sequence[Group], names: Iterable[str]) -> list[str]:
    """One line of the table of accounts, without the data set."""
    method = method_title(group.method, label(group, peers)) + (f" ({group.study})" if group.study != STUDY else "")
    stated = NOTHING if math.isnan(group.target_epsilon) else f"{group.target_epsilon:g}"
    counts = [f"{group.trials:g}", f"{group.accepted:g}", f"{group.accepted / max(group.trials, 1):.0%}"]
    states = [f"{group.statuses.count(s)} {s.replace('_', ' ')}" for s in dict.fromkeys(group.statuses)]
    return [
        *(method, stated, entry_text(Entry(mean=group.mean, std=group.std))),
        *(_account_cell(group, name) for name in names),
        *(*counts, str(len(group.accuracies)), ", ".join(states)),
    ]


def _account_cell(group: Group, name: str) -> str:
    """One epsilon, in brackets where it is no bound of what ran; a dash where the account is not of this method."""
    account = group.accounts.get(name)
    if account is None:
        return NOTHING
    text = bound(account, certified_only=False, digits=2).replace("inf", "∞")
    return text if account.certificate or account.epsilon is None else f"({text})"
