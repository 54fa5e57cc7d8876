"""The privacy account of a run, and the noise that meets a target epsilon, both kept on disk."""

import json
import logging
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache as memoise
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dpexp import cache
from dpexp.accountants import NUMERICAL, Setting, check_orders, numerical_epsilon, rdp_epsilon
from dpexp.config import ACCOUNTANTS, ConfigError, finite_positive, one_of
from dpexp.noise_search import smallest_noise_multiplier

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Account:
    """What one run costs: (epsilon, delta)-DP for adding or removing one training example.

    epsilon_prv and epsilon_pld are None where that accountant has no usable answer; `notes` says why. `accountant`
    is the one asked for, `accountant_used` the one that `epsilon` comes from.
    """

    sample_rate: float
    noise_multiplier: float
    steps: int
    delta: float
    epsilon_rdp: float
    epsilon_prv: float | None
    epsilon_pld: float | None
    accountant: str
    accountant_used: str
    epsilon: float
    notes: tuple[str, ...] = ()


def _require(key: str, value: float, rule: str, fits: bool) -> None:
    """Raise ConfigError unless the value fits the rule."""
    if not fits:
        raise ConfigError(f"{key} must be {rule}, got {value!r}")


def _check(sample_rate: float, steps: int, delta: float, fewest_steps: int) -> None:
    """Raise ConfigError for what no accountant can treat."""
    rule = "above 0 and at most 1 (expected batch size / training examples; 1 is the full batch)"
    _require("sample rate", sample_rate, rule, 0 < sample_rate <= 1)
    whole = isinstance(steps, int) and not isinstance(steps, bool)
    _require("steps", steps, f"a whole number >= {fewest_steps}", whole and steps >= fewest_steps)
    _require("dp.delta", delta, "between 0 and 1, both excluded", 0 < delta < 1)


def _epsilons(setting: Setting, orders: Sequence[float] | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Epsilon by every accountant, and notes on them."""
    if setting.steps == 0 or setting.noise_multiplier == 0:
        return dict.fromkeys(ACCOUNTANTS, math.inf if setting.steps else 0.0), ()
    rdp, notes = rdp_epsilon(setting, orders)
    epsilons: dict[str, Any] = {"rdp": rdp}
    for name in NUMERICAL:
        epsilons[name], more = numerical_epsilon(name, setting, rdp)
        notes += more
    return epsilons, notes


def account(  # noqa: PLR0913
    sample_rate: float,
    noise_multiplier: float,
    steps: int,
    delta: float,
    accountant: str = "rdp",
    *,
    orders: Sequence[float] | None = None,
) -> Account:
    """Epsilon of DP-SGD at delta by all three accountants; `accountant` picks the one that counts.

    sample_rate: probability q of each example to enter a batch. noise_multiplier: noise_std / clip_norm; 0 gives
    infinity. orders: Renyi orders for RDP, all > 1; None: Opacus' grid, widened by itself.
    PRV or PLD without a usable answer is None, with a note, and RDP is used in its place.

    Raises: ConfigError for values outside their range.
    Guarantee: `epsilon` upper-bounds the privacy loss of releasing all steps, under add/remove adjacency.
    """
    _check(sample_rate, steps, delta, fewest_steps=0)
    sane = math.isfinite(noise_multiplier) and noise_multiplier >= 0
    _require("noise multiplier", noise_multiplier, "a finite number >= 0", sane)
    one_of("accountant", accountant, ACCOUNTANTS)
    if orders is not None:
        check_orders(orders)
    setting = Setting(sample_rate=sample_rate, noise_multiplier=noise_multiplier, steps=steps, delta=delta)
    epsilons, notes = _epsilons(setting, orders)
    used = accountant if epsilons[accountant] is not None else "rdp"
    return Account(
        **asdict(setting),
        **{f"epsilon_{name}": value for name, value in epsilons.items()},
        accountant=accountant,
        accountant_used=used,
        epsilon=epsilons[used],
        notes=notes,
    )


def _chosen(setting: Setting, accountant: str, sigma: float) -> tuple[float, str]:
    """Epsilon at a noise multiplier as `account` would choose it, and the accountant that it comes from."""
    here = replace(setting, noise_multiplier=sigma)
    rdp, _ = rdp_epsilon(here)
    epsilon = None if accountant == "rdp" else numerical_epsilon(accountant, here, rdp)[0]
    return (rdp, "rdp") if epsilon is None else (epsilon, accountant)


def calibrate(  # noqa: PLR0913
    target_epsilon: float,
    sample_rate: float,
    steps: int,
    delta: float,
    accountant: str = "rdp",
    *,
    tolerance: float = 0.01,
) -> float:
    """The smallest noise multiplier, to about 1e-5, with epsilon in [target * (1 - tolerance), target].

    Epsilon is that of `account` with the same accountant, so where PRV or PLD has no answer it is RDP's.

    Raises: ConfigError for values outside their range and for a target that no noise multiplier meets.
    """
    _require("dp.target_epsilon", target_epsilon, "a finite number > 0", finite_positive(target_epsilon))
    _require("dp.epsilon_tolerance", tolerance, "a finite number > 0", finite_positive(tolerance))
    _check(sample_rate, steps, delta, fewest_steps=1)
    one_of("accountant", accountant, ACCOUNTANTS)
    setting = Setting(sample_rate=sample_rate, noise_multiplier=1.0, steps=steps, delta=delta)
    by_rdp = partial(_chosen, setting, "rdp")
    sigma = smallest_noise_multiplier(lambda s: by_rdp(s)[0], target_epsilon, start=1.0, factor=2.0)
    chosen = memoise(partial(_chosen, setting, accountant))
    if chosen(sigma)[1] != "rdp":
        sigma = smallest_noise_multiplier(lambda s: chosen(s)[0], target_epsilon, start=sigma, factor=1.1)
    epsilon, _ = chosen(sigma)
    if not target_epsilon * (1 - tolerance) <= epsilon <= target_epsilon:
        raise _unreachable(target_epsilon, tolerance, replace(setting, noise_multiplier=sigma), accountant, epsilon)
    return sigma


def _unreachable(target: float, tolerance: float, last: Setting, accountant: str, epsilon: float) -> ConfigError:
    """The error for a target that the search did not meet, with its last setting and the epsilon there."""
    where = f"delta={last.delta:g}, sample rate {last.sample_rate:g}, {last.steps} steps, accountant {accountant}"
    if epsilon > target:
        return ConfigError(
            f"dp.target_epsilon={target:g} cannot be reached at {where}: the largest noise multiplier tried, "
            f"{last.noise_multiplier:g}, still gives epsilon {epsilon:.4g}, the smallest reachable; "
            "use fewer steps, a smaller sample rate, a larger delta or another dp.accountant (rdp, prv, pld)"
        )
    return ConfigError(
        f"dp.target_epsilon={target:g} cannot be met within dp.epsilon_tolerance={tolerance:g} at {where}: noise "
        f"multiplier {last.noise_multiplier:g} gives epsilon {epsilon:.4g} and less noise gives too much; "
        "raise the tolerance, use another dp.accountant or give dp.noise_multiplier"
    )


def resolve_delta(delta: float | None, n: int) -> float:
    """The delta of a run on n training examples: the one given, else min(1e-5, 1/(2n)).

    Warns: at delta >= 1/n, where releasing one example in the clear would count as private.
    Raises: ConfigError for a delta outside (0, 1).
    """
    if delta is None:
        return min(1e-5, 1 / (2 * n))
    _require("dp.delta", delta, "between 0 and 1, both excluded", 0 < delta < 1)
    if delta >= 1 / n:
        warnings.warn(
            f"dp.delta={delta:g} is not below 1/n = {1 / n:.3g} for n = {n} training examples: publishing one "
            f"example at random would meet it. Set dp.delta=null for {min(1e-5, 1 / (2 * n)):.3g}",
            stacklevel=2,
        )
    return delta


def add_pure(account: Account, epsilon: float, what: str) -> Account:
    """The account of an (epsilon, 0)-DP step followed by the training that `account` is of, which may use its result.

    Guarantee: basic composition, (epsilon + account.epsilon, delta)-DP (Dwork and Roth 2014, Theorem 3.16 and
    Appendix B for a second step that depends on the first), with every accountant's epsilon in place of the second.
    Raises: ConfigError for an epsilon that is not finite and above 0.
    """
    _require("epsilon", epsilon, "a finite number > 0", finite_positive(epsilon))
    names = ("epsilon", *(f"epsilon_{name}" for name in ACCOUNTANTS))
    totals = {name: None if (old := getattr(account, name)) is None else old + epsilon for name in names}
    note = f"{what} is inside the budget: every epsilon of such a run includes {epsilon:g} for it, by basic composition"
    return replace(account, **totals, notes=(*account.notes, note))  # type: ignore[arg-type]


def without_guarantee(account: Account, why: str) -> Account:
    """The account of a release whose steps are not all private: every epsilon is infinity, and a note says why."""
    nothing: dict[str, Any] = dict.fromkeys(("epsilon", *(f"epsilon_{name}" for name in ACCOUNTANTS)), math.inf)
    return replace(account, **nothing, notes=(*account.notes, f"no guarantee: {why}"))


def _refuse_constant(name: str) -> float:
    """Strict JSON knows no NaN or Infinity."""
    raise ValueError(f"{name} is not JSON")


def _remembered(folder: Path, question: dict[str, Any], compute: Callable[[], Any], check: Callable[[Any], Any]) -> Any:
    """The checked answer kept in the folder for this question, or a new one, which is then kept."""
    question = question | {"versions": {name: version(name) for name in ("opacus", "dp-accounting")}}
    path = folder / f"{question['kind']}-{cache.digest(question)}.json"
    if path.exists():
        try:
            kept = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
            if kept["question"] != question:
                raise ValueError("it answers another question")
            if kept.get("answer_digest") != cache.digest(kept["answer"]):
                raise ValueError("its answer was edited, or kept by an older version")
            return check(kept["answer"])
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s is damaged or foreign (%s); it is computed again", path, error)
    answer = compute()
    kept = {"question": question, "answer": answer, "answer_digest": cache.digest(answer)}
    text = json.dumps(kept, indent=1, allow_nan=False)
    cache.write_atomic(path, text.encode())
    return check(answer)


def _sigma(answer: Any) -> float:
    """A kept noise multiplier, or ValueError."""
    if not isinstance(answer, float) or not finite_positive(answer):
        raise ValueError(f"{answer!r} is no noise multiplier")
    return answer


def _account(answer: Any, question: dict[str, Any]) -> Account:
    """A kept account, or ValueError or TypeError if it cannot be that of the question."""
    values: dict[str, Any] = {key: math.inf if value == "inf" else value for key, value in answer.items()}
    kept = Account(**(values | {"notes": tuple(values["notes"])}))
    if kept.epsilon != getattr(kept, f"epsilon_{kept.accountant_used}", None):
        raise ValueError("its epsilon is not that of the accountant used")
    if any(getattr(kept, key) != value for key, value in question.items()):
        raise ValueError("it is the account of another setting")
    return kept


def cached_calibration(  # noqa: PLR0913
    folder: Path,
    *,
    target_epsilon: float,
    sample_rate: float,
    steps: int,
    delta: float,
    accountant: str = "rdp",
    tolerance: float = 0.01,
) -> float:
    """`calibrate`, computed once per question and version of the accountants, and kept in the folder."""
    question: dict[str, Any] = dict(
        target_epsilon=target_epsilon,
        sample_rate=sample_rate,
        steps=steps,
        delta=delta,
        accountant=accountant,
        tolerance=tolerance,
    )
    return _remembered(folder, {"kind": "sigma", **question}, lambda: calibrate(**question), _sigma)


def cached_account(  # noqa: PLR0913
    folder: Path,
    *,
    sample_rate: float,
    noise_multiplier: float,
    steps: int,
    delta: float,
    accountant: str = "rdp",
) -> Account:
    """`account`, computed once per question and version of the accountants, and kept in the folder."""
    question: dict[str, Any] = dict(
        sample_rate=sample_rate,
        noise_multiplier=noise_multiplier,
        steps=steps,
        delta=delta,
        accountant=accountant,
    )

    def compute() -> dict[str, Any]:
        values = asdict(account(**question))
        return {key: "inf" if value == math.inf else value for key, value in values.items()}

    return _remembered(folder, {"kind": "account", **question}, compute, partial(_account, question=question))
