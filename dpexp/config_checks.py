"""Checks of single settings. Their errors name the key, the rule, what was given and the way out."""

import difflib
import math
from collections.abc import Callable, Sequence
from typing import Any

from omegaconf import ListConfig


class ConfigError(ValueError):
    """A setting that cannot be used. The message names the key, the rule, what was given and the way out."""


def one_of(key: str, value: Any, known: Sequence[str]) -> str:
    """`value` if it is a known name, else an error that lists the known ones."""
    if value in known:
        return str(value)
    close = difflib.get_close_matches(str(value), known, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise ConfigError(f"{key} must be one of {', '.join(known)}; got {value!r}{hint}")


def number(key: str, value: Any, kind: type[int] | type[float], rule: str, fits: Callable[[Any], bool]) -> Any:
    """`value` as an int or float that satisfies the rule."""
    sane = isinstance(value, kind | int) and not isinstance(value, bool)
    if not sane or not fits(value):
        raise ConfigError(f"{key} must be {rule}, got {value!r}")
    return kind(value)


def numbers(key: str, value: Any, kind: type[int] | type[float], rule: str, fits: Callable[[Any], bool]) -> tuple:
    """One number or a list of them, each satisfying the rule, duplicates dropped, order kept."""
    values = value if isinstance(value, list | tuple | ListConfig) else [value]
    return tuple(dict.fromkeys(number(key, v, kind, rule, fits) for v in values))


def finite_positive(value: float) -> bool:
    """Whether a number is finite and above zero."""
    return math.isfinite(value) and value > 0


POSITIVE = ("a finite number > 0", finite_positive)
COUNT = ("a whole number >= 1", lambda v: v >= 1)
