"""Which clip norm to tune on one's own data: paper L, Remark 5.6, with what the finished runs say about it."""

import math

import pandas as pd

from dpexp.comparison import BLOCK

# Below this training accuracy of the non-private model interpolation (Assumption 5.5) looks doubtful: a model
# that fits every sample classifies every sample. 5 % are left to runs that were stopped early.
INTERPOLATES = 0.95
BIAS = {True: "with", False: "without"}


def recommendations(runs: pd.DataFrame, cells: pd.DataFrame) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Sentences for each data set, features and head that has private cells.

    runs: rows of `aggregate.to_frame`; cells: of `aggregate.cells`, made from them. Everything said is computed
    from the private data and is NOT private; it says so.
    """
    found = {}
    for names, block in runs.groupby(BLOCK):
        own = cells[(cells[BLOCK] == list(names)).all(axis=1)]
        private = own[(own["method"] != "non_private") & (own["runs"] > 0)]
        if not private.empty:
            lines = [*_range(block), *_clipped(private), _interpolation(training_accuracy(block))]
            found[names] = tuple(lines)
    return found


def smallest_constants(runs: pd.DataFrame) -> dict[bool, float]:
    """G_1, the smallest Lipschitz constant of softmax regression: True with, False without the bias's constant 1.

    One of the two is stored; the other follows from 2 * (norm(x)^2 + 1) = 2 * norm(x)^2 + 2, which keeps the
    order of the samples. Empty if no run stored percentiles, or if they start above 0.
    """
    for pairs, include_bias in zip(runs["constants"], runs["constants_include_bias"], strict=True):
        at_zero = [value for percentile, value in pairs if percentile == 0]
        if at_zero:
            other = math.sqrt(max(0.0, at_zero[0] ** 2 + (-2 if include_bias else 2)))
            return {bool(include_bias): at_zero[0], not include_bias: other}
    return {}


def training_accuracy(runs: pd.DataFrame) -> float:
    """The best training accuracy of a non-private model, a fraction: the seeds' mean at the best learning rate.

    NaN without a finished non-private run.
    """
    finished = runs[(runs["method"] == "non_private") & (runs["status"] == "done")]
    return float(finished.groupby("learning_rate")["train_accuracy"].mean().max())


def _range(runs: pd.DataFrame) -> list[str]:
    """The range to tune: up to G_1, with the fingerprint of the constants that it belongs to."""
    first = runs.iloc[0]
    if first["model"] != "softmax":
        known = f"The {first['model']} head has no known Lipschitz constants: start at small clip norms and go up"
        return [f"{known} while the accuracy rises."]
    smallest = smallest_constants(runs)
    if not smallest:
        return []
    bias = bool(first["bias"])
    pairs = next(pairs for pairs in runs["constants"] if pairs)
    fingerprint = ", ".join(f"{value:.2f} ({percentile:g} %)" for percentile, value in pairs)
    own = f"{smallest[bias]:.2f} {BIAS[bias]} the bias's constant 1 ({smallest[not bias]:.2f} {BIAS[not bias]} it)"
    return [
        f"Tune the clip norm up to G_1, the smallest per-sample Lipschitz constant: {own}.",
        f"Constants at percentiles, {BIAS[bool(first['constants_include_bias'])]} the 1: {fingerprint}. "
        "G_1 and percentiles come from the private data: NOT private. +sweep=rnmm spends budget on a private choice.",
    ]


def _clipped(private: pd.DataFrame) -> list[str]:
    """Per budget, the fraction of per-sample gradients that were clipped in the last epochs."""
    lines = []
    for epsilon, cells in private[private["fraction_clipped"].notna()].groupby("target_epsilon"):
        shares = [
            f"{100 * row['fraction_clipped']:.0f} % at {row['clip_norm']:.3g}"
            for _, row in cells.sort_values("clip_norm").iterrows()
        ]
        lines.append(f"Samples clipped in the last epochs, by clip norm, at ε = {epsilon:g}: {', '.join(shares)}.")
    return lines


def _interpolation(accuracy: float) -> str:
    """Whether the recommendation's premise holds."""
    if math.isnan(accuracy):
        return "No non-private run, so nothing says whether the model interpolates (train.non_private=true)."
    fitted = f"the non-private model fits {100 * accuracy:.1f} % of its training set"
    if accuracy >= INTERPOLATES:
        return f"Interpolation looks plausible: {fitted} (at least {100 * INTERPOLATES:g} %)."
    return (
        f"WARNING: interpolation looks doubtful, {fitted} (less than {100 * INTERPOLATES:g} %). The recommendation "
        "rests on interpolation (Assumption 5.5): try clip norms above G_1 too."
    )
