"""What stands beneath a table: how accuracies were averaged and tuned, and what every budget costs."""

import math
from collections.abc import Iterable

import pandas as pd

NOTHING = "\N{EN DASH}"
ACCOUNTANTS = ("rdp", "prv", "pld")
METHOD_NAMES = {
    "dpsgd": "",
    "rnmm": "RNMM as printed (no guarantee)",
    "rnmm_paper": "RNMM as printed (no guarantee)",
    "rnmm_sound": "private minimum (proven)",
}
# Cells that agree in these share a sentence on their account.
ACCOUNT = ["method", "target_epsilon", "epochs", "steps", "delta", "accountant", "n", "expected_batch_size"]


def budget(epsilon: float) -> str:
    """A column's heading."""
    return f"ε = {plain(epsilon)}"


def plain(value: float) -> str:
    """A number in words that a person reads: infinity as a sign, nothing as a dash."""
    return NOTHING if math.isnan(value) else "∞" if math.isinf(value) else f"{value:g}"


def caption(cells: pd.DataFrame, brackets: bool) -> tuple[str, ...]:
    """What a reader must know about one data set's cells (rows of `aggregate.cells`) before their `accounting`.

    brackets: whether the table shows the paper's numbers too.
    """
    private = cells[cells["method"] != "non_private"]
    lines = [_averaging(cells, brackets), _tuning(cells)]
    if private["percentile"].notna().any():
        bias = {True: "with", False: "without"}[bool(private["include_bias"].any())]
        lines.append(
            "Clip norms at percentiles of the per-sample Lipschitz constants "
            f"({bias} the bias's constant 1) are computed from the private data: they are NOT private."
        )
    lines += landings(private)
    lines.append("The paper does not state its number of epochs.")
    if (cells["noise"] == "shared").any():
        lines.append(
            "Noise is shared between runs (common random numbers): a study mode, not valid for releasing "
            "several of these models together."
        )
    return (*lines, *(f"Engine: {engine}." for engine in sorted(set(cells["engine"]) - {"packed"})))


def accounting(cells: pd.DataFrame) -> tuple[str, ...]:
    """What each budget of each method costs, one sentence each, then every note of an account, once."""
    private = cells[cells["method"] != "non_private"]
    lines = [_account(group) for _, group in private.groupby(ACCOUNT, dropna=False)]
    methods: dict[str, dict[str, None]] = {}
    for method, notes in zip(cells["method"], cells["privacy_notes"], strict=True):
        for note in notes:
            methods.setdefault(note, {})[METHOD_NAMES.get(method, method)] = None
    about = {note: ", ".join(name for name in names if name) for note, names in methods.items()}
    return (
        *lines,
        *(f"{names}: {note}." if names else f"{note[:1].upper()}{note[1:]}." for note, names in about.items()),
    )


def landings(private: pd.DataFrame) -> Iterable[str]:
    """Where clip norms that were chosen from the data lie among the constants, a sentence per method."""
    for method, rows in private[private["landing"].notna()].groupby("method"):
        landing = rows["landing"].iloc[0]
        at = {quantile: f"{value:.4g}" for quantile, value in landing["at"].items()}
        yield (
            f"{METHOD_NAMES[str(method)]}: over {landing['draws']} draws the clip norm lies on percentile "
            f"{at['50']} of the constants (median; {at['0']} to {at['100']}, 80 % of draws {at['10']} to {at['90']}), "
            f"and at or below the smallest constant in {100 * landing['at_or_below_minimum']:.0f} % of draws."
        )


def _averaging(cells: pd.DataFrame, brackets: bool) -> str:
    """Over what accuracies are averaged, how deviations are, and what the paper has beside them."""
    paper = "in brackets the paper's" if brackets else "the paper prints none for these data, features and head"
    seeds = sorted({seed for seeds in cells["seeds"] for seed in seeds})
    counts = sorted({int(runs) for runs in cells["runs"] if runs})
    epochs = sorted({round(v / r) for v, r in zip(cells["values"], cells["runs"], strict=True) if r})
    return (
        "Test accuracy in percent, mean ± sample standard deviation (ddof=1) over the last "
        f"{_listed(epochs)} epochs of {_listed(counts)} seeds ({_listed(seeds)}); {paper}."
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
    noise = f"{name}, {noise}" if name else noise
    return f"{noise}, {first['steps']:,.0f} steps{epochs} on {batches}, δ = {first['delta']:g}; achieved ε {achieved}."


def _range(values: pd.Series) -> str:
    """One value, or the smallest and largest of several, to three decimals."""
    texts = [f"{value:.3f}" if math.isfinite(value) else plain(value) for value in (values.min(), values.max())]
    return " to ".join(dict.fromkeys(texts))


def _listed(values: Iterable[object]) -> str:
    """Values separated by commas; a dash for none."""
    return ", ".join(str(value) for value in values) or NOTHING
