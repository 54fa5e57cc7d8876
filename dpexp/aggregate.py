"""Result records -> one row per run -> one row per cell, the numbers behind every table and figure.

A cell is what the paper prints one number for: a data set with its features and head, a method, a privacy
budget and a clip norm. Its learning rate is chosen among those that were tried, its accuracy is the mean over
the last epochs and the seeds. Nothing is averaged silently: what is missing, failed or diverged is named in
the cell's note.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

Record = Mapping[str, Any]

# What must agree between runs that are averaged, beyond the names that a table shows.
SETTINGS = (
    *(
        "features",
        "bias",
        "hidden",
        "include_bias",
        "n",
        "expected_batch_size",
        "steps",
        "epochs",
        "delta",
        "accountant",
    ),
    *("select_on", "noise", "engine", "last_epochs"),
)
# A percentile's clip norm is data (validation splits differ in it): the percentile is the key, not the norm. One that
# was chosen with privacy differs from seed to seed: the method is the key.
CELL = (
    *("dataset", "extractor", "model", "method", "target_epsilon"),
    *("fixed_clip_norm", "percentile", "fixed_noise_multiplier", *SETTINGS),
)
MEASURED = (
    *("clip_norm", "noise_multiplier", "epsilon", "epsilon_rdp", "epsilon_prv", "epsilon_pld"),
    *("fraction_clipped", "train_accuracy"),
)
CELL_COLUMNS = (
    *(*CELL, "accuracy_mean", "accuracy_std", "values", "runs", "seeds", "learning_rate", "learning_rates"),
    *("percentiles", "selection_accuracy", *MEASURED, "accountants_used", "privacy_notes", "landing", "note"),
)
EDGE = "best learning rate is at the edge of the grid"
RUN_COLUMNS = (
    *(
        "run_id",
        "study",
        *CELL,
        "learning_rate",
        "seed",
        "status",
        "finite",
        "planned_seeds",
        "planned_rates",
    ),
    *("test_accuracy", "test_values", "selection_accuracy", *MEASURED, "accountant_used", "privacy_notes", "landing"),
    *("constants", "constants_include_bias", "percentiles"),
)


def number(value: Any) -> float:
    """A stored number as a float: "inf" is infinity, null is NaN."""
    return math.nan if value is None else float(value)


def last(values: Sequence[Any] | None, count: int) -> tuple[float, ...]:
    """The last `count` entries of a per-epoch curve (all, if there are fewer) as floats."""
    return tuple(number(v) for v in (values or ())[-count:])


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; NaN of nothing."""
    return math.fsum(values) / len(values) if values else math.nan


def _planned(value: Any, own: float) -> frozenset[float]:
    """The values that a run's configuration lists for a swept setting, with the run's own."""
    listed = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return frozenset({own, *(float(v) for v in listed)})


def _curves(record: Record) -> dict[str, Any]:
    """What the last epochs of one run say."""
    history, count = record["history"], record["last_epochs"]
    test = last(history.get("test_accuracy"), count)
    selection = last(history.get(f"{record['select_on']}_accuracy"), count)
    return {
        "test_values": test,
        "test_accuracy": mean(test),
        "selection_accuracy": mean(selection),
        "fraction_clipped": mean(last(history.get("fraction_clipped"), count)),
        "train_accuracy": number(record.get("train_accuracy")),
        "finite": bool(test) and all(map(math.isfinite, (*test, *selection))),
    }


def _privacy(record: Record) -> dict[str, Any]:
    """Budget and achieved epsilons of one run."""
    privacy = record["privacy"]
    names = ("target_epsilon", "delta", "epsilon", "epsilon_rdp", "epsilon_prv", "epsilon_pld")
    return {
        **{name: number(privacy.get(name)) for name in names},
        "accountant": privacy.get("accountant") or "",
        "accountant_used": privacy.get("accountant_used") or "",
        "privacy_notes": tuple(privacy.get("notes") or ()),
    }


def _constants(record: Record) -> dict[str, Any]:
    """Percentiles of the training set's Lipschitz constants: (percentile, constant) pairs, ascending."""
    known = record.get("lipschitz") or {}
    pairs = sorted((float(at), number(value)) for at, value in (known.get("percentiles") or {}).items())
    return {"constants": tuple(pairs), "constants_include_bias": bool(known.get("include_bias"))}


def _coinciding(record: Record) -> str:
    """All percentiles at the clip norm of a percentile's run, where they are several: a grid runs it only once."""
    own, norm = number(record.get("clip_percentile")), number(record["mechanism"]["clip_norm"])
    if math.isnan(own):
        return ""
    found = sorted({own, *(at for at, value in _constants(record)["constants"] if value == norm)})
    return " ".join(f"{at:g}" for at in found) if len(found) > 1 else ""


def _row(record: Record) -> dict[str, Any]:
    """One run as a flat row."""
    mechanism = record["mechanism"]
    config = record.get("config") or {}
    percentile = number(record.get("clip_percentile"))
    row = {name: record[name] for name in ("run_id", "study", "method", "dataset", "extractor", "features", "seed")}
    row |= {name: record[name] for name in ("select_on", "noise", "engine", "status", "last_epochs")}
    row |= {
        name: number(mechanism[name]) for name in ("n", "expected_batch_size", "steps", "clip_norm", "noise_multiplier")
    }
    row |= {
        "model": record["model"]["name"],
        "bias": bool(record["model"].get("bias", True)),
        "hidden": number(record["model"].get("hidden")),
        "percentile": percentile,
        "percentiles": _coinciding(record),
        # The constant 1 of the bias changes percentiles only; a fixed clip norm is the same with and without.
        "include_bias": not math.isnan(percentile) and bool(record["lipschitz"]["include_bias"]),
        "epochs": number(record.get("epochs")),
        "learning_rate": number(record["learning_rate"]),
        "planned_seeds": _planned(config.get("seeds"), record["seed"]),
        "planned_rates": _planned((config.get("train") or {}).get("learning_rate"), record["learning_rate"]),
    }
    row |= _privacy(record) | _curves(record) | _constants(record)
    private, chosen = record["method"] != "non_private", record.get("private_clip")
    row["landing"] = chosen["landing"] if chosen else None
    # A privately chosen clip norm is drawn a seed: there it is an outcome, not what makes a cell.
    fixed = private and math.isnan(percentile) and not record["method"].startswith("rnmm")
    row["fixed_clip_norm"] = row["clip_norm"] if fixed else math.nan
    untargeted = private and math.isnan(row["target_epsilon"])
    row["fixed_noise_multiplier"] = row["noise_multiplier"] if untargeted else math.nan
    return row


def to_frame(records: Iterable[Record]) -> pd.DataFrame:
    """One row per run, in the order given; a run_id that comes twice is kept once.

    Accuracies are fractions: `test_accuracy` and `selection_accuracy` (on the split that the run selects on)
    are means over the run's last epochs, `test_values` holds those epochs one by one.
    """
    rows = {record["run_id"]: _row(record) for record in records}
    return pd.DataFrame(list(rows.values()), columns=list(RUN_COLUMNS))


def by_learning_rate(runs: pd.DataFrame) -> pd.DataFrame:
    """Rows of `to_frame` -> one row per cell and learning rate, rates ascending within a cell.

    clip_norm: the mean over the runs, where the cell is a percentile's. seeds: those with a finished run.
    diverged: whether any run diverged or has an accuracy that is not finite. selection_accuracy, test_accuracy:
    means over the finished seeds (fractions), NaN if diverged or none finished.

    Raises: ValueError if two runs agree in cell, learning rate and seed: they would count one seed twice.
    """
    keys = [*CELL, "learning_rate"]
    rows = []
    for key, group in runs.groupby(keys, dropna=False):
        done = group[group["status"] == "done"]
        _refuse_repeated_seeds(done)
        diverged = bool((group["status"] == "diverged").any() or not done["finite"].all())
        row = dict(zip(keys, key, strict=True)) | {"seeds": tuple(sorted(done["seed"])), "diverged": diverged}
        row["clip_norm"] = mean(list(group["clip_norm"]))
        for name in ("selection_accuracy", "test_accuracy"):
            row[name] = math.nan if diverged else mean(list(done[name]))
        rows.append(row)
    columns = [*keys, "clip_norm", "seeds", "diverged", "selection_accuracy", "test_accuracy"]
    return pd.DataFrame(rows, columns=columns)


def _refuse_repeated_seeds(runs: pd.DataFrame) -> None:
    """Fail if one seed occurs twice among runs of one cell and learning rate."""
    again = runs[runs["seed"].duplicated(keep=False)]
    if not again.empty:
        raise ValueError(
            f"results hold runs {', '.join(again['run_id'])} of one {again['dataset'].iloc[0]} cell, "
            f"learning rate {again['learning_rate'].iloc[0]:g} and seed {again['seed'].iloc[0]}: a seed must "
            "count once; keep one of them, or give other settings a study of their own (name=...)"
        )


def cells(runs: pd.DataFrame) -> pd.DataFrame:
    """Rows of `to_frame` -> one row per cell, sorted by names, budget and clip norm.

    accuracy_mean, accuracy_std: percent, over last epochs and seeds together at the best learning rate; the
    deviation is the sample's (ddof=1), NaN for a single value. percentiles: those that share the clip norm, as text,
    where they are several. runs: seeds averaged. The best learning rate
    has the highest mean selection accuracy among those with the most finished seeds and no diverged run; the
    smaller on ties.
    """
    rows = [_cell(dict(zip(CELL, key, strict=True)), group) for key, group in runs.groupby(list(CELL), dropna=False)]
    frame = pd.DataFrame(rows, columns=list(CELL_COLUMNS))
    order = ["dataset", "extractor", "model", "method", "target_epsilon", "clip_norm", "percentile"]
    return frame.sort_values(order, kind="stable", ignore_index=True)


def _cell(key: dict[str, Any], group: pd.DataFrame) -> dict[str, Any]:
    """The best learning rate of one cell and what it reaches."""
    rates = by_learning_rate(group)
    usable = rates[~rates["diverged"] & (rates["seeds"].map(len) > 0)]
    complete = usable[usable["seeds"].map(len) == usable["seeds"].map(len).max()]
    row = key | {
        "runs": 0,
        "seeds": (),
        "learning_rate": math.nan,
        "learning_rates": len(_union(group["planned_rates"])),
    }
    chosen = group
    if not complete.empty:
        best = complete.loc[complete["selection_accuracy"].idxmax()]
        chosen = group[(group["learning_rate"] == best["learning_rate"]) & (group["status"] == "done")]
        row |= {"runs": len(best["seeds"]), "seeds": best["seeds"], "learning_rate": best["learning_rate"]}
        row |= _accuracy(chosen) | {"selection_accuracy": 100 * best["selection_accuracy"]}
    row |= {name: mean(list(chosen[name])) for name in MEASURED}
    row["accountants_used"] = tuple(sorted(set(chosen["accountant_used"]) - {""}))
    row["privacy_notes"] = tuple(dict.fromkeys(note for notes in chosen["privacy_notes"] for note in notes))
    row["landing"], row["percentiles"] = chosen["landing"].iloc[0], chosen["percentiles"].iloc[0]
    row["note"] = "; ".join(_notes(group, rates, complete, row["learning_rate"]))
    return row


def _accuracy(runs: pd.DataFrame) -> dict[str, float]:
    """Mean and sample standard deviation (percent) over epochs and seeds together."""
    values = pd.Series([100 * v for run in runs["test_values"] for v in run], dtype=float)
    return {"accuracy_mean": values.mean(), "accuracy_std": values.std(ddof=1), "values": len(values)}


def _union(sets: Iterable[frozenset[float]]) -> frozenset[float]:
    """All members of several sets."""
    return frozenset().union(*sets)


def _notes(group: pd.DataFrame, rates: pd.DataFrame, complete: pd.DataFrame, best: float) -> list[str]:
    """What a reader must know before trusting the cell."""
    seeds, grid = _union(group["planned_seeds"]), _union(group["planned_rates"])
    diverged = rates[rates["diverged"]]["learning_rate"]
    finished = int(complete["seeds"].map(len).max()) if not complete.empty else 0
    judged = len(complete) + len(diverged)
    notes = []
    if not finished:
        notes.append("no learning rate has a usable run")
    elif finished < len(seeds):
        notes.append(f"incomplete: {finished} of {len(seeds)} seeds")
    if finished and judged < len(grid):
        notes.append(f"incomplete: {judged} of {len(grid)} learning rates")
    if not diverged.empty:
        notes.append(f"diverged at learning rate {', '.join(f'{rate:g}' for rate in diverged)}")
    for status, count in group["status"].value_counts().sort_index().items():
        if status not in ("done", "diverged"):
            notes.append(f"{count} {status} run{'s' if count > 1 else ''} left out")
    if len(grid) > 1 and best in (min(grid), max(grid)):
        notes.append(EDGE)
    return notes
