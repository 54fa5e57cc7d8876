"""The store of results: one self-describing record a run, one strict-JSON file a finished program.

A program's records are written together, under a temporary name and then moved into place. A file that exists is
therefore complete, several processes may write to one folder, and a sweep that was cut off resumes by looking.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpexp.cache import TakenError, claimed, write_atomic
from dpexp.config import ConfigError

FORMAT = 1
Record = dict[str, Any]
FEATURES_DIFFER = (
    ". Equal settings give other features where the data, the libraries or the processor differ (by rounding, for "
    "example): to go on with the stored study copy its features_dir from the machine that ran it; to compute all of "
    "it afresh give another output_dir"
)


class ResultsError(ValueError):
    """A results file that cannot be understood. The message names the file and the line."""


def encode(value: Any) -> Any:
    """A value in strict JSON's terms: infinity becomes the string "inf", NaN becomes null, tuples become lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return value


def append(folder: Path, name: str, records: Iterable[Record]) -> Path:
    """Add the records of one finished program as the file `<name>.jsonl`, whole or not at all."""
    lines = [json.dumps(encode(record), allow_nan=False, separators=(",", ":")) for record in records]
    path = folder / f"{name}.jsonl"
    write_atomic(path, ("\n".join(lines) + "\n").encode())
    return path


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _parse(path: Path) -> Iterable[Record]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line, parse_constant=_refuse_constant)
            found, _ = record["format"], record["run_id"]
        except (ValueError, KeyError, TypeError) as error:
            raise ResultsError(f"{path}, line {number}: not a result record ({error}); move the file away") from error
        if found != FORMAT:
            raise ResultsError(f"{path}, line {number}: format {found}, this version reads {FORMAT}")
        yield record


def read(folder: Path) -> list[Record]:
    """All records of a results folder, each run once, in a fixed order. A missing folder holds none.

    Raises: ResultsError for a file that is not strict JSON lines of this format.
    """
    records = {r["run_id"]: r for path in sorted(folder.glob("*.jsonl")) for r in _parse(path)}
    return list(records.values())


def check_settings(folder: Path, settings: Record, stored: Iterable[Record]) -> None:
    """Refuse to mix, in one study, runs of the same features whose settings differ.

    settings: everything that must agree between the runs of a table, by configuration key.
    Raises: ConfigError; ResultsError for a record without settings.
    """
    wanted = encode(settings)
    for record in stored:
        if "settings" not in record:
            raise ResultsError(f"{folder}: run {record['run_id']} has no settings; move its file away")
        have = record["settings"]
        if any(have[key] != wanted[key] for key in ("dataset", "extractor", "model")):
            continue
        refuse_mixture(folder, "runs", have, wanted)


def refuse_mixture(folder: Path, runs: str, have: Record, wanted: Record) -> None:
    """Refuse to add to a study runs whose settings differ from those of its stored `runs`. Raises: ConfigError."""
    found = dict(_differences(have, wanted))
    if found:
        raise ConfigError(
            f"{folder} holds {runs} with {', '.join(f'{key}={stored}' for key, (stored, _) in found.items())}; this "
            f"study has {', '.join(f'{key}={asked}' for key, (_, asked) in found.items())}. One table cannot mix them: "
            f"give this study a name of its own, for example name={folder.name}_2"
            f"{FEATURES_DIFFER if 'features' in found else ''}"
        )


def _differences(have: Record, wanted: Record, section: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Every key of `wanted`, with its section's name, whose value differs: (stored, wanted)."""
    for key, asked in wanted.items():
        stored = have.get(key)
        if isinstance(asked, dict) and isinstance(stored, dict):
            yield from _differences(stored, {**dict.fromkeys(stored), **asked}, f"{section}{key}.")
        elif stored != asked:
            yield section + key, (stored, asked)


def require_writable(folder: Path) -> None:
    """Fail before training, not after it, where results cannot be stored. Raises: ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"output_dir: cannot create {folder} ({error}); choose another output_dir") from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"output_dir: cannot write to {folder}; choose another output_dir")


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a results folder while a study runs: two at once would train the same runs twice.

    Raises: ConfigError, at once, where the folder cannot be written or another process holds it.
    """
    require_writable(folder)
    try:
        with claimed(folder / ".lock"):
            yield
    except TakenError as error:
        raise ConfigError(
            f"{folder} is in use by another sweep ({error or 'another process'}). Wait for it or stop it, then give "
            f"the same command again; or give this experiment a name of its own, for example name={folder.name}_2"
        ) from None
