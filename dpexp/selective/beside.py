"""Every number that paper S prints beside ours, and ours that it lacks, one row each."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pandas as pd

from dpexp.comparison import title
from dpexp.selective import table_one
from dpexp.selective.groups import STUDY, Account, Group, label

COLUMNS = (
    *("table", "dataset", "method", "variant", "attack", "epsilon", "metric", "value", "std", "runs", "paper_value"),
    *("epsilon_paper_formula", "epsilon_naive", "epsilon_a", "epsilon_b", "epsilon_c", "trials", "accepted"),
)
ACCOUNT_COLUMNS = {
    "epsilon_paper_formula": "paper",
    "epsilon_naive": "naive",
    "epsilon_a": "A",
    "epsilon_b": "B",
    "epsilon_c": "C",
}
NO_CERTIFICATE = "no certificate"
# What the paper's text and tables call these methods needs algorithms that are not part of this package.
ABSENT_METHODS = ("dpis", "matrix_mechanism", "dpagd", "dpsgd_hf", "dpsgd_ts")
NOT_IMPLEMENTED = "not implemented yet"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number. paper_value: NaN where the paper has none; group: our runs, if any; note: why there are none.

    value, std: percent for accuracies (NaN if not run), the printed factor for Table 1.
    """

    table: int | None
    dataset: str
    method: str
    metric: str
    epsilon: float
    paper_value: float
    variant: str = ""
    attack: str = ""
    value: float = math.nan
    std: float = math.nan
    group: Group | None = None
    note: str = field(default="")


def rows(reference: pd.DataFrame, groups: Sequence[Group]) -> list[Row]:
    """A row for every row of the paper, in its order, then one for every group that none of them shows.

    reference: of `reference.selective_tables`. Of several groups that fit a row of the paper none is picked: the row
    says so, and they follow below with the settings that tell them apart.
    """
    found = [_row(printed, groups) for printed in reference.to_dict("records")]
    shown = [row.group for row in found if row.group is not None]
    printed_values = {_key(row): row for row in reversed(found) if row.metric == "accuracy"}
    for group in groups:
        if not any(group is other for other in shown):
            own = _of_group(group, groups)
            like = printed_values.get(_key(own))
            found.append(own if like is None else _of_group(group, groups, like.table, like.paper_value))
    return found


def _key(row: Row) -> tuple[str, str, str]:
    """What a row of ours and one of the paper's must agree in; repr makes NaN equal to itself."""
    return row.dataset, row.method, repr(float(row.epsilon))


def _of_group(group: Group, peers: Sequence[Group], table: int | None = None, paper_value: float = math.nan) -> Row:
    """A group as a row."""
    other = "" if group.study == STUDY else f"study {group.study}"
    return Row(
        table=table,
        dataset=group.dataset,
        method=group.method,
        variant=", ".join(part for part in (label(group, peers), other) if part),
        metric="accuracy",
        epsilon=group.target_epsilon,
        value=group.mean,
        std=group.std,
        paper_value=paper_value,
        group=group,
    )


def _row(printed: dict, groups: Sequence[Group]) -> Row:
    """One row of the paper with our number, or why there is none."""
    number, method, metric = int(printed["table"]), printed["method"], printed["metric"]
    blank = {
        **{"table": number, "dataset": printed["dataset"], "method": method, "metric": metric},
        **{"epsilon": float(printed["epsilon"]), "paper_value": float(printed["value"])},
        "attack": "" if pd.isna(printed["attack"]) else printed["attack"],
    }
    if number == 1:
        return Row(**blank, value=table_one.entry(method, printed["dataset"], int(printed["epsilon"])).printed)
    if metric != "accuracy" or method in ABSENT_METHODS:
        return Row(**blank, note=NOT_IMPLEMENTED)
    fitting = [group for group in groups if group.fills_the_paper and _fits(group, printed)]
    if len(fitting) != 1:
        return Row(**blank, note=_why_missing(printed, groups, len(fitting)))
    group = fitting[0]
    return Row(**blank, variant=label(group, fitting), value=group.mean, std=group.std, group=group)


def _fits(group: Group, printed: dict) -> bool:
    """Whether a group is of a printed row's data set, method and budget."""
    budget = group.target_epsilon == printed["epsilon"] or printed["method"] == "non_private"
    return (group.dataset, group.method) == (printed["dataset"], printed["method"]) and budget


def _why_missing(printed: dict, groups: Iterable[Group], fitting: int) -> str:
    """Why a row of the paper has no number of ours, and how to get it."""
    if fitting:
        return f"{fitting} settings fit this row; each is listed below the paper's rows"
    dataset, method = printed["dataset"], printed["method"]
    run = f"run python -m dpexp.run +sweep=selective dataset={dataset}"
    if any(group.dataset == dataset and group.study == STUDY for group in groups):
        return f"not run yet: {run} selective.methods=[{method}]"
    return f"not run: needs {title(dataset)}, get it by python scripts/get_data.py {dataset} and {run}"


def bound(account: Account | None, certified_only: bool = True, digits: int = 4) -> str:
    """An epsilon as text, rounded up so that it stays a bound; empty for an account that the runs do not have.

    certified_only: whether a number that is not a bound of what ran counts as none. infinity is `inf`.
    """
    if account is None:
        return ""
    if account.epsilon is None or (certified_only and not account.certificate):
        return NO_CERTIFICATE
    if not math.isfinite(account.epsilon):
        return "inf"
    return f"{math.ceil(account.epsilon * 10**digits - 1e-6) / 10**digits:.{digits}f}"


def frame(found: Iterable[Row]) -> pd.DataFrame:
    """Rows as the table of COLUMNS, the accounts as text; nothing where nothing ran."""
    return pd.DataFrame([_fields(row) for row in found], columns=list(COLUMNS)).astype({"table": "Int64"})


def _fields(row: Row) -> dict[str, object]:
    """One row by column. The formulas of the paper and of the naive count are shown whether or not they are bounds."""
    names = ("table", "dataset", "method", "variant", "attack", "epsilon", "metric", "std", "paper_value")
    found: dict[str, object] = {name: getattr(row, name) for name in names}
    found["value"] = f"{row.value:.4f}" if row.metric == "accuracy" and not math.isnan(row.value) else row.value
    found["std"] = "" if math.isnan(row.std) else f"{row.std:.4f}"
    group = row.group
    if group is None:
        return found | {"runs": "" if row.metric == "q_sup_over_q" else 0}
    accounts = {
        column: bound(group.accounts.get(name), certified_only=name not in ("paper", "naive"))
        for column, name in ACCOUNT_COLUMNS.items()
    }
    return found | accounts | {"runs": len(group.accuracies), "trials": group.trials, "accepted": group.accepted}
