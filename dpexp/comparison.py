"""Our cells beside the numbers that the paper prints, row for row."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from dpexp.aggregate import SETTINGS
from dpexp.reference import PAPER_EXTRACTORS, clipnorm_tables

COLUMNS = (
    *("table", "dataset", "extractor", "model", "epsilon", "method", "clip_norm", "percentile", "percentiles"),
    *("accuracy_mean", "accuracy_std", "runs", "learning_rate", "paper_mean", "paper_std", "note"),
)
TITLES = {
    "caltech256": "Caltech-256",
    "food101": "Food-101",
    "cifar100": "CIFAR-100",
    "cifar10": "CIFAR-10",
    "tweeteval_emoji": "TweetEval Emoji",
    "emotion": "Emotion",
    "emnist": "EMNIST",
    "fashion_mnist": "Fashion-MNIST",
    "mnist": "MNIST",
    "imdb": "IMDB",
}
PAPER_SETTING = {"delta": 1e-5, "expected_batch_size": 500.0}  # Section 5.2
PAPER_GRID = {"learning_rates": 16, "runs": 3}  # Section 5.2; `runs` are seeds
GRID_WORDS = {"learning_rates": "learning rates", "runs": "seeds"}
BLOCK = ["dataset", "extractor", "model"]


def title(dataset: str) -> str:
    """A data set's name as the paper prints it; its own name if the paper has none."""
    return TITLES.get(dataset, dataset)


def sweep_of(row: Mapping[Any, Any]) -> str:
    """The sweep, and so the study, that a row of the paper is of."""
    if row["method"] == "rnmm":
        return "rnmm"
    return "clipnorm" if row["model"] == "softmax" else "nonconvex"


def read_reference() -> pd.DataFrame:
    """The paper's Tables 3 to 7 as printed, one row per number, with each data set's extractor."""
    with clipnorm_tables().open(encoding="utf-8") as file:
        reference = pd.read_csv(file)
    return reference.assign(extractor=reference["dataset"].map(PAPER_EXTRACTORS))


def against_paper(cells: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """Our cells beside the paper's numbers: every row of `reference` in its order, then our cells that it
    lacks.

    Accuracies are percent. Fixed clip norms match by value, percentiles by percentile; `clip_norm` is ours,
    unrounded, where the cell ran and the paper's printed one where it did not. `percentiles` lists, separated by
    spaces, all percentiles at that clip norm where they are several. `note` says why a value is missing. Of several
    cells that fit one row (say, two numbers of epochs) none is picked: they follow below, with what tells them
    apart.
    """
    rows: list[dict[str, Any]] = []
    shown: set[int] = set()
    blocks = dict(list(cells.groupby(BLOCK)))
    for paper in reference.to_dict("records"):
        block = blocks.get(tuple(paper[name] for name in BLOCK), cells.iloc[:0])
        found = block if block.empty else MATCHES[paper["method"]](paper, block)
        row = _blank(paper)
        if len(found) == 1:
            row |= _values(found.iloc[0]) | {"note": _join(found.iloc[0]["note"], _departures(found.iloc[0]))}
            shown |= {int(found.index[0])} if row["method"] != "dpsgd_best" else set()
        else:
            row["note"] = _why_missing(paper, block, found)
        rows.append(row)
    extra = cells[~cells.index.isin(shown)]
    rows += [_extra(cell, cells) for _, cell in extra.iterrows()]
    types = {"table": "Int64", "runs": "Int64"}
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(types)


def _same_method(paper: dict[str, Any], block: pd.DataFrame) -> pd.DataFrame:
    """Our cells of the row's method and budget."""
    budget = block["target_epsilon"] == paper["epsilon"]
    return block[(block["method"] == paper["method"]) & (budget | math.isnan(paper["epsilon"]))]


def _same_clip_norm(paper: dict[str, Any], block: pd.DataFrame) -> pd.DataFrame:
    """Our cells of the row's method, budget and clip norm; printed percentiles do not count the bias's 1."""
    cells = _same_method(paper, block)
    if math.isnan(paper["percentile"]):
        return cells[cells["percentile"].isna() & np.isclose(cells["clip_norm"], paper["clip_norm"], rtol=1e-9)]
    return cells[(cells["percentile"] == paper["percentile"]) & ~cells["include_bias"].astype(bool)]


def _report_noisy_max(paper: dict[str, Any], block: pd.DataFrame) -> pd.DataFrame:
    """Our cells of the row's budget with report noisy max as the paper describes it."""
    return _same_method(paper | {"method": "rnmm_paper"}, block)


def _best_clip_norm(paper: dict[str, Any], block: pd.DataFrame) -> pd.DataFrame:
    """The best of our DP-SGD cells of the row's budget (Table 3, "without RNMM")."""
    cells = _same_method(paper | {"method": "dpsgd"}, block)
    return cells.sort_values("selection_accuracy", ascending=False, kind="stable").head(1)


# How our cells of a row's data set, features and head are narrowed down to the row.
MATCHES: dict[str, Callable[[dict[str, Any], pd.DataFrame], pd.DataFrame]] = {
    "dpsgd": _same_clip_norm,
    "non_private": _same_method,
    "rnmm": _report_noisy_max,
    "dpsgd_best": _best_clip_norm,
}


def _blank(paper: dict[str, Any]) -> dict[str, Any]:
    """A row of the paper with nothing of ours yet."""
    row = {name: paper[name] for name in COLUMNS if name in paper}
    row |= {"paper_mean": paper["accuracy_mean"], "paper_std": paper["accuracy_std"], "percentiles": ""}
    return row | {"accuracy_mean": math.nan, "accuracy_std": math.nan, "runs": 0, "learning_rate": math.nan}


def _values(cell: pd.Series) -> dict[str, Any]:
    """Our numbers of one cell; a baseline has no clip norm."""
    row = {name: cell[name] for name in ("percentiles", "accuracy_mean", "accuracy_std", "runs", "learning_rate")}
    return row | ({} if cell["method"] == "non_private" else {"clip_norm": cell["clip_norm"]})


def _extra(cell: pd.Series, cells: pd.DataFrame) -> dict[str, Any]:
    """A row for a cell that the paper does not have; a cell without a target shows its achieved epsilon."""
    row = {name: cell[name] for name in (*BLOCK, "method", "percentile")} | {"clip_norm": math.nan} | _values(cell)
    target = cell["target_epsilon"]
    untargeted = math.isnan(target) and cell["method"] != "non_private"
    row["epsilon"] = cell["epsilon"] if untargeted else target
    given = f"noise multiplier {cell['noise_multiplier']:g} given" if untargeted else ""
    wanted = PAPER_EXTRACTORS.get(cell["dataset"], cell["extractor"])
    other = ""
    if wanted != cell["extractor"]:
        other = (
            f"{cell['extractor']} features stand in for the paper's {wanted} features, "
            "and nothing here claims to match the paper"
        )
    bias = "constants with the bias's 1" if cell["include_bias"] else ""
    note = _join(cell["note"], other, bias, given, _settings(cell, cells), _departures(cell))
    return row | {"table": pd.NA, "paper_mean": math.nan, "paper_std": math.nan, "note": note}


def _settings(cell: pd.Series, cells: pd.DataFrame) -> str:
    """The settings in which a cell differs from others of the same block, method and target."""
    alike = cells[np.logical_and.reduce([cells[name] == cell[name] for name in (*BLOCK, "method")])]
    if not math.isnan(cell["target_epsilon"]):
        alike = alike[alike["target_epsilon"] == cell["target_epsilon"]]
    varied = [name for name in SETTINGS if name != "include_bias" and alike[name].nunique(dropna=False) > 1]
    return ", ".join(f"{name} = {_plain(cell[name])}" for name in varied)


def _departures(cell: pd.Series) -> str:
    """Where a cell of one of the paper's data sets is not trained as the paper's were."""
    if cell["dataset"] not in PAPER_EXTRACTORS:
        return ""
    settings = {} if cell["method"] == "non_private" else PAPER_SETTING
    off = {k: v for k, v in settings.items() if not math.isclose(cell[k], v, rel_tol=1e-9)}
    parts = [f"{name} = {cell[name]:g} (paper: {value:g})" for name, value in off.items()]
    fewer = {k: v for k, v in PAPER_GRID.items() if 0 < cell[k] < v}
    parts += [f"{GRID_WORDS[name]} {cell[name]:g} (paper: {value})" for name, value in fewer.items()]
    return ", ".join(parts)


def _why_missing(paper: dict[str, Any], block: pd.DataFrame, found: pd.DataFrame) -> str:
    """Why a row of the paper has no number of ours, and how to get it."""
    if len(found) > 1:
        return f"{len(found)} settings fit this row; each is listed below the paper's rows"
    if not block.empty:
        same = _same_method(paper, block)["percentiles"].str.split().map(lambda at: f"{paper['percentile']:g}" in at)
        return "coincides with another percentile: see its row" if same.any() else "not run yet"
    dataset, sweep = paper["dataset"], sweep_of(paper)
    return (
        f"not run: needs {title(dataset)}, get it by python scripts/get_data.py {dataset} and run "
        f"python -m dpexp.run +sweep={sweep} dataset={dataset} extractor={paper['extractor']}"
    )


def _plain(value: Any) -> str:
    """A setting's value as a person would write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _join(*parts: str) -> str:
    """Notes that say something, as one."""
    return "; ".join(part for part in parts if part)
