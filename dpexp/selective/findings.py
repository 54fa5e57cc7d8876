"""What the stored runs of paper S's study say, in sentences that are computed from them."""

import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from dpexp.comparison import title
from dpexp.panels import number
from dpexp.selective.groups import STUDY, Group, method_title
from dpexp.selective.layout import ACCOUNT_NAMES, place
from dpexp.selective.selectivity import largest_good_share, pass_rates

NOTHING_RAN = "No run of this study is stored."
MINUS = "\N{MINUS SIGN}"


def findings(groups: Sequence[Group], reference: pd.DataFrame) -> dict[str, list[str]]:
    """Sentences by data set: runs in the paper's setting, as published, to a true epsilon, over learning rates."""
    found = {}
    for dataset in sorted({group.dataset for group in groups}, key=place):
        own = [g for g in groups if g.dataset == dataset and (g.fills_the_paper or _as_published(g))]
        by_account = [g for g in groups if g.dataset == dataset and g.settings["budget_by"] != "paper"]
        printed = reference[(reference["dataset"] == dataset) & (reference["metric"] == "accuracy")]
        tried = [g for g in groups if g.dataset == dataset and g.study != STUDY]
        said = _left(own, printed) + _by_account(by_account) + _learning_rates(tried)
        if own:
            said += [*_selection(own, printed), *_selectivity(own), *_published(own), *_ended_early(own)]
        if said:
            found[dataset] = said
    return found


def _as_published(group: Group) -> bool:
    """Whether a group is the study's own run of the published code's behaviour."""
    return group.study == STUDY and group.variant == "as_published"


def _budgets(groups: Iterable[Group]) -> list[float]:
    """The stated epsilons, the largest first: there the paper claims most."""
    return sorted({g.target_epsilon for g in groups if not math.isnan(g.target_epsilon)}, reverse=True)


def _one(groups: Iterable[Group], method: str, variant: str | None, epsilon: float) -> Group | None:
    """The group of a method at a stated epsilon; None if there is none, or several that nothing here can rank."""
    found = [
        group
        for group in groups
        if group.method == method
        and (group.variant == "as_published") == (variant == "as_published")
        and group.target_epsilon == epsilon
    ]
    return found[0] if len(found) == 1 else None


def _printed(printed: pd.DataFrame, method: str, epsilon: float) -> str:
    """The paper's accuracy of a method in Table 3; nothing where it has none."""
    rows = printed[(printed["table"] == 3) & (printed["method"] == method) & (printed["epsilon"] == epsilon)]
    return f" (paper {rows['value'].iloc[0]:.2f})" if len(rows) else ""


def _left(groups: Sequence[Group], printed: pd.DataFrame) -> list[str]:
    """Accuracy at a true epsilon: every method at the largest stated epsilon at which it ran."""
    found = []
    for method, variant in dict.fromkeys((g.method, g.variant) for g in groups if g.method != "non_private"):
        own = [group for group in groups if (group.method, group.variant) == (method, variant)]
        epsilon = _budgets(own)[0] if _budgets(own) else math.nan
        group = _one(own, method, variant, epsilon)
        if group is not None:
            found.append(
                f"{method_title(method, variant)}, stated ε = {epsilon:g}: {_percent(group)}"
                f"{_printed(printed, method, epsilon)}, {_certificates(group)}."
            )
    return found


def _by_account(groups: Iterable[Group]) -> list[str]:
    """Accuracy of runs that another account than the paper's formula stopped."""
    return [
        f"{method_title(g.method, g.variant)}, stopped by account {g.settings['budget_by']} at ε = "
        f"{g.target_epsilon:g}: {_percent(g)}, {_certificates(g)}."
        for g in sorted(groups, key=lambda group: -group.target_epsilon)
        if not math.isnan(g.target_epsilon)
    ]


def _learning_rates(groups: Iterable[Group]) -> list[str]:
    """Every grid of learning rates that ran beside the paper's setting, its best, and what selection adds there."""
    found: dict[tuple, dict[float, Group]] = {}
    for group in groups:
        key = group.study, group.target_epsilon, group.variant, group.method, group.settings.get("threshold")
        found.setdefault(key, {})[group.settings["learning_rate"]] = group
    said = []
    for (study, epsilon, variant, method, _), tried in found.items():
        if len(tried) < 2:  # no grid
            continue
        best = max(tried, key=lambda rate: tried[rate].mean)
        listed = ", ".join(f"{rate:g}: {number(tried[rate].mean, tried[rate].std)}" for rate in sorted(tried))
        said.append(
            f"{method_title(method, variant)}, stated ε = {epsilon:g}, accuracy by learning rate ({study}): "
            f"{listed}. The best, {best:g}: {_percent(tried[best])}, {_certificates(tried[best])}; chosen by test "
            "accuracy, which no ε here covers."
        )
        without = found.get((study, epsilon, variant, "dpsr_cg_no_release", None), {}).get(best)
        if method == "dpsr_cg" and (difference := _difference(tried[best], without)):
            said.append(f"Selection at learning rate {best:g}, its best: {difference} at ε = {epsilon:g}.")
    return said


def _percent(group: Group) -> str:
    """A group's accuracy with its seeds."""
    return f"{number(group.mean, group.std)} % ({_seeds(len(group.accuracies))})"


def _seeds(count: int) -> str:
    """A number of seeds."""
    return f"{count} seed{'s' * (count != 1)}"


def _certificates(group: Group) -> str:
    """The true epsilon for whoever may see the numbers of trials, and the smaller one if nobody may."""
    public, secret = group.certified(counts_public=True), group.certified(counts_public=False)
    if secret is None:
        coded = group.accounts.get("as_coded")
        known = f"; its gradients alone amount to ε = {coded.epsilon:.3g}" if coded and coded.epsilon else ""
        return f"for which no finite bound on ε is known{known}"
    parts = [_certificate(*public)] if public is not None else []
    if secret != public:
        parts.append(f"{_certificate(*secret)} while the numbers of trials stay secret")
    return "; ".join(parts)


def _certificate(name: str, epsilon: float) -> str:
    """One bound with the account that gives it."""
    return f"ε ≤ {math.ceil(epsilon * 100 - 1e-6) / 100:.2f} by account {ACCOUNT_NAMES.get(name, name)}"


def _selection(groups: Sequence[Group], printed: pd.DataFrame) -> list[str]:
    """DPSR-CG less itself without selective release, at every stated epsilon, and what the paper has."""
    compared = []
    for epsilon in _budgets(groups):
        with_test = _one(groups, "dpsr_cg", "sound", epsilon)
        without = _one(groups, "dpsr_cg_no_release", None, epsilon)
        said = _difference(with_test, without)
        if said:
            compared.append(f"{said} at ε = {epsilon:g}{_printed_difference(printed, epsilon)}")
    if compared:
        return [f"Selection (DPSR-CG less the same without selective release): {'; '.join(compared)}."]
    absent = [method_title(method) for method in ("dpsr_cg", "dpsr_cg_no_release") if not _ran_soundly(groups, method)]
    if absent:
        return [f"Whether selection helps is not answered here: {' and '.join(absent)} did not run."]
    return ["Whether selection helps is not answered here: with and without it share no stated ε and seed."]


def _ran_soundly(groups: Iterable[Group], method: str) -> bool:
    """Whether any run of a method is there that is not as published."""
    return any(group.method == method and group.variant != "as_published" for group in groups)


def _printed_difference(printed: pd.DataFrame, epsilon: float) -> str:
    """The paper's difference of the same two methods (Table 2); nothing where it has none."""
    rows = printed[(printed["table"] == 2) & (printed["epsilon"] == epsilon)].set_index("method")["value"]
    if not {"dpsr_cg", "dpsr_cg_no_release"} <= set(rows.index):
        return ""
    return f" (paper: {_points(float(rows['dpsr_cg'] - rows['dpsr_cg_no_release']))})"


def _selectivity(groups: Sequence[Group]) -> list[str]:
    """How far the test can tell candidates apart, at the largest stated epsilon of the sound DPSR-CG."""
    for epsilon in _budgets(groups):
        group = _one(groups, "dpsr_cg", "sound", epsilon)
        if group is not None and group.test is not None:
            worst, best = pass_rates(group.test)
            return [
                f"The test lets the worst possible candidate pass with probability {worst:.2f} and the best with "
                f"{best:.2f} (ε = {epsilon:g}); {group.accepted / max(group.trials, 1):.2f} of all passed. "
                f"Of candidates half of which are good, at most {largest_good_share(0.5, worst, best):.0%} of the "
                "accepted ones can be good."
            ]
    return []


def _published(groups: Sequence[Group]) -> list[str]:
    """The published code's behaviour less the sound one, method by method."""
    found = []
    for method in ("dpsr_cg", "dpsur"):
        compared = []
        for epsilon in _budgets(groups):
            published, sound = (_one(groups, method, variant, epsilon) for variant in ("as_published", "sound"))
            said = _difference(published, sound)
            if said:
                compared.append(f"{said} at ε = {epsilon:g}")
        if compared:
            found.append(f"{method_title(method)} as published less the sound one: {'; '.join(compared)}.")
    return found


def _difference(first: Group | None, second: Group | None) -> str:
    """Mean difference in points over the seeds that both have, with its spread; nothing where there are none."""
    if first is None or second is None:
        return ""
    pairs = _paired(first.accuracies, second.accuracies)
    if not pairs:
        return ""
    mean = math.fsum(pairs) / len(pairs)
    spread = ""
    if len(pairs) > 1:
        deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in pairs) / (len(pairs) - 1))
        spread = f" ± {deviation:.2f}"
    return f"{_points(mean, spread)} ({_seeds(len(pairs))})"


def _paired(first: Mapping[int, float], second: Mapping[int, float]) -> list[float]:
    """Differences seed by seed."""
    return [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]


def _points(value: float, spread: str = "") -> str:
    """A signed difference of percentages."""
    sign = "+" if round(value, 2) > 0 else MINUS if round(value, 2) < 0 else ""
    return f"{sign}{abs(value):.2f}{spread} points"


def _ended_early(groups: Sequence[Group]) -> list[str]:
    """Runs that did not use up their budget."""
    found = [
        f"{method_title(g.method, g.variant)} at ε = {g.target_epsilon:g}: {g.statuses.count(status)} of "
        f"{len(g.statuses)} {status.replace('_', ' ')}"
        for g in groups
        for status in dict.fromkeys(g.statuses)
        if status != "done"
    ]
    return [f"Ended before the budget was used up: {'; '.join(found)}."] if found else []


def markdown(found: Mapping[str, Sequence[str]]) -> str:
    """The sentences as a section."""
    lines = ["## What was found", ""]
    if not found:
        return "\n".join([*lines, NOTHING_RAN, ""])
    lines += [
        "Differences are means over the seeds that both sides have, ± their sample standard deviation; one seed says "
        "nothing about the spread.",
        "",
    ]
    for dataset, sentences in found.items():
        lines += [f"**{title(dataset)}**", "", *(f"- {sentence}" for sentence in sentences), ""]
    return "\n".join(lines)
