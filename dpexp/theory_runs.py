"""Runs both theory studies and stores their records: `python -m dpexp.theory_runs`.

Each study is one file of strict JSON lines, complete or absent.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpexp.cache import write_atomic
from dpexp.config import ConfigError
from dpexp.theory_rates import risk_against_phi
from dpexp.theory_risk import risk_against_clip_norm

STUDIES = {"risk_bound": risk_against_clip_norm, "heavy_tails": risk_against_phi}
SEEDS = tuple(range(20))


def run(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The records of both studies; each says which in `study`. At least two seeds, for the intervals.

    A seed is a run of Algorithm 1 in the first study and a data set in the second. 20 seeds: a minute.
    """
    if len(set(seeds)) != len(seeds) or len(seeds) < 2 or min(seeds) < 0:
        raise ConfigError(f"seeds must be two or more different whole numbers >= 0, got {list(seeds)}")
    return [record for study in STUDIES.values() for record in study(seeds)]


def write(records: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """One file of JSON lines per study in `folder`; returns the paths. Refuses nan and infinity."""
    paths = []
    for study in STUDIES:
        lines = [json.dumps(r, allow_nan=False) for r in records if r["study"] == study]
        paths.append(folder / f"{study}.jsonl")
        write_atomic(paths[-1], ("\n".join(lines) + "\n").encode())
    return paths


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Records per study, as `write` left them; k is a number again, math.inf included.

    Raises: ConfigError if a study has not been run.
    """
    found = {}
    for study in STUDIES:
        path = folder / f"{study}.jsonl"
        if not path.exists():
            raise ConfigError(f"no theory results at {path}: run python -m dpexp.theory_runs first")
        found[study] = [json.loads(line) for line in path.read_text().splitlines()]
    for record in found["heavy_tails"]:
        record["k"] = math.inf if record["k"] == "inf" else record["k"]
    return found


def seeds_of(folder: Path) -> set[int]:
    """The seeds whose records `write` left in `folder`; none where a study is missing or has another number of them."""
    if not all((folder / f"{study}.jsonl").exists() for study in STUDIES):
        return set()
    found = read(folder)
    seeds = {record["seed"] for record in found["heavy_tails"]}
    return seeds if {record["seeds"] for record in found["risk_bound"]} == {len(seeds)} else set()


def main() -> None:
    """Command line: how many seeds, and the outputs folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="number of seeds, counted from 0")
    parser.add_argument("--output-dir", type=Path, default=Path("outputs"))
    arguments = parser.parse_args()
    for path in write(run(range(arguments.seeds)), arguments.output_dir / "results" / "theory"):
        print(path)


if __name__ == "__main__":
    main()
