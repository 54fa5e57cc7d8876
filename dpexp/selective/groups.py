"""Records of paper S's study -> one value per group of runs that differ in their seed alone."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dpexp.results import Record
from dpexp.selective.caveats import HIDDEN

STUDY = "selective"  # the study whose runs fill the paper's rows
BETA_STUDY = "selective_beta"  # studies of Figures 3 and 4: they stop early, so their accuracies are of no table
METHODS = {
    "dpsr_cg": "DPSR-CG",
    "dpsr_cg_no_release": "DPSR-CG (w/o selective release)",
    "dpsur": "DPSUR",
    "dpsur_same_scaling": "DPSUR (with same gradient scaling)",
    "matrix_mechanism": "DPSGD Matrix Mechanism",
    "dpis": "DPIS",
    "dpsgd_hf": "DPSGD-HF",
    "dpsgd_ts": "DPSGD-TS",
    "dpagd": "DPAGD",
    "dpsgd": "DPSGD",
    "non_private": "non-private",
}
# The settings that a person chooses, in the order in which a label names those that differ.
CHOSEN = (
    *("budget_by", "learning_rate", "n", "extractor", "net", "activation", "normalisation", "optimizer"),
    *("expected_batch_size", "noise_multiplier", "clip_norm", "scaling_bound", "reference", "reference_std"),
    *("threshold", "validation_batch", "max_trials"),
)


@dataclass(frozen=True, kw_only=True)
class Account:
    """One epsilon of a group. epsilon: the largest over its runs, None if one of them has none.

    certificate: whether it is a bound for every run. hypotheses, notes: of all runs, each once.
    """

    epsilon: float | None
    certificate: bool
    hypotheses: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def hides_counts(self) -> bool:
        """Whether it no longer holds for who knows how many trials were run."""
        return HIDDEN in self.hypotheses


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ in their seed alone. accuracies: seed -> test accuracy of the last released model, percent.

    target_epsilon: NaN without a budget. test: the constants of DPSR-CG's test, None for other methods. trials,
    accepted: means over the runs. statuses: one per run.
    """

    study: str
    dataset: str
    method: str
    variant: str
    target_epsilon: float
    settings: Mapping[str, Any]
    test: Mapping[str, Any] | None
    accuracies: Mapping[int, float]
    trials: float
    accepted: float
    statuses: tuple[str, ...]
    accounts: Mapping[str, Account]

    @property
    def mean(self) -> float:
        """Mean accuracy over seeds, percent."""
        return math.fsum(self.accuracies.values()) / len(self.accuracies)

    @property
    def std(self) -> float:
        """Sample standard deviation over seeds, percent; NaN for one seed."""
        count = len(self.accuracies)
        if count < 2:
            return math.nan
        return math.sqrt(math.fsum((a - self.mean) ** 2 for a in self.accuracies.values()) / (count - 1))

    @property
    def fills_the_paper(self) -> bool:
        """Whether a row of the paper may show it: the study's own run, stopped by the paper's formula."""
        by_formula = self.settings["budget_by"] == "paper" or self.method == "non_private"
        return self.study == STUDY and by_formula and self.variant != "as_published"

    def certified(self, counts_public: bool) -> tuple[str, float] | None:
        """Name and epsilon of the smallest account that bounds what ran; None if none does, or only infinity.

        counts_public: whether it must hold for who knows the numbers of trials, which these records tell.
        """
        found = [
            (account.epsilon, name)
            for name, account in self.accounts.items()
            if account.certificate and account.epsilon is not None and not (counts_public and account.hides_counts)
        ]
        finite = [(epsilon, name) for epsilon, name in found if math.isfinite(epsilon)]
        return (min(finite)[1], min(finite)[0]) if finite else None


def method_title(method: str, variant: str = "") -> str:
    """A method's name as the paper prints it, with its variant."""
    name = METHODS.get(method, method)
    return f"{name}, {variant.replace('as_published', 'as published')}" if variant else name


def groups(records: Iterable[Record]) -> list[Group]:
    """All groups, the studies of beta left out, in a fixed order: data set, method, variant, budget, settings."""
    found: dict[str, list[Record]] = {}
    wanted = (record for record in records if not record["study"].startswith(BETA_STUDY))
    unique = {(record["study"], record["run_id"]): record for record in wanted}  # two studies may share a run
    for record in unique.values():
        key = json.dumps(
            [*_identity(record), record["features"], _settings(record), record["mechanism"]], sort_keys=True
        )
        found.setdefault(key, []).append(record)
    return sorted((_group(runs) for runs in found.values()), key=_place)


def _identity(record: Record) -> tuple[Any, ...]:
    """What names a group."""
    target = record["privacy"]["target_epsilon"]
    return record["study"], record["dataset"], record["method"], record["variant"], target


def _settings(record: Record) -> dict[str, Any]:
    """The settings of a run by the names in CHOSEN, those that it has."""
    mechanism = record["mechanism"]
    flat = {
        **{name: record[name] for name in ("budget_by", "learning_rate", "extractor")},
        **{"net": record["model"]["name"], "activation": record["model"]["activation"]},
        **mechanism,
        **(mechanism.get("test") or {}),
        **(mechanism.get("loss_test") or {}),
    }
    return {name: flat[name] for name in CHOSEN if flat.get(name) is not None}


def _group(runs: list[Record]) -> Group:
    """The runs of one group, by seed. Two runs of one seed (an older generation's, say) are refused."""
    runs = sorted(runs, key=lambda run: run["seed"])
    seeds = [run["seed"] for run in runs]
    study, dataset, method, variant, target = _identity(runs[0])
    if len(set(seeds)) < len(seeds):
        raise ValueError(
            f"results of {study}: {dataset} {method} {variant} at epsilon {target} has two runs of one seed with equal "
            f"settings ({', '.join(run['run_id'] for run in runs)}); move the file of the older one away"
        )
    return Group(
        study=study,
        dataset=dataset,
        method=method,
        variant=variant,
        target_epsilon=math.nan if target is None else float(target),
        settings=_settings(runs[0]),
        test=runs[0]["mechanism"].get("test"),
        accuracies={run["seed"]: 100 * float(run["test_accuracy"]) for run in runs},
        trials=math.fsum(run["trials"] for run in runs) / len(runs),
        accepted=math.fsum(run["accepted"] for run in runs) / len(runs),
        statuses=tuple(run["status"] for run in runs),
        accounts=_accounts(runs),
    )


def _accounts(runs: list[Record]) -> dict[str, Account]:
    """Every account that any of the runs has, over all runs."""
    by_run = [{account["name"]: account for account in run["accounts"]} for run in runs]
    found = {}
    for name in dict.fromkeys(name for accounts in by_run for name in accounts):
        entries = [accounts[name] for accounts in by_run if name in accounts]
        values = [entry["epsilon"] for entry in entries]
        complete = len(entries) == len(runs) and None not in values
        found[name] = Account(
            epsilon=max(map(float, values)) if complete else None,
            certificate=complete and all(entry["certificate"] for entry in entries),
            hypotheses=tuple(dict.fromkeys(said for entry in entries for said in entry["hypotheses"])),
            notes=tuple(dict.fromkeys(entry["note"] for entry in entries if entry["note"])),
        )
    return found


def _place(group: Group) -> tuple[Any, ...]:
    """Where a group stands among all."""
    methods = list(METHODS)
    rank = methods.index(group.method) if group.method in methods else len(methods)
    budget = math.inf if math.isnan(group.target_epsilon) else group.target_epsilon
    return group.study, group.dataset, rank, group.variant != "sound", group.variant, budget, repr(group.settings)


def label(group: Group, peers: Iterable[Group]) -> str:
    """A group's variant, and the chosen settings in which it differs from others of its study, data set and budget."""
    alike = [
        peer
        for peer in peers
        if all(getattr(peer, name) == getattr(group, name) for name in ("study", "dataset", "method", "variant"))
        and (peer.target_epsilon == group.target_epsilon or group.method == "non_private")
    ]
    differing = [name for name in CHOSEN if len({repr(peer.settings.get(name)) for peer in alike}) > 1]
    parts = [group.variant] if group.variant else []
    parts += [f"{name}={_plain(group.settings.get(name))}" for name in differing]
    return ", ".join(parts)


def _plain(value: Any) -> str:
    """A setting as a person would write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)
