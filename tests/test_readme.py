"""What the README says to type works, and the numbers it shows are the stored ones."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, compose_config, make_features

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line.split("  #")[0].strip() for block in BLOCKS for line in block.replace("\\\n", " ").splitlines() if line.strip()
]
RUNS = [shlex.split(c)[3:] for c in COMMANDS if c.startswith("python -m dpexp.run")]


@pytest.mark.parametrize("overrides", RUNS, ids=" ".join)
def test_every_run_command_composes_and_passes_its_checks(overrides):
    first_choices = [o.partition(",")[0] if o.startswith("dataset=") else o for o in overrides if o != "-m"]
    compose_config(*first_choices)


def test_every_make_target_that_is_named_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)(?=[ `\n])", README))
    assert named
    assert named <= targets | {"make"}


def test_every_file_that_is_named_exists():
    named = set(re.findall(r"\b(?:conf|outputs|dpexp|scripts)/[\w./-]*\w", README))
    for path in named - {"outputs/mine"}:
        assert (ROOT / path).exists(), path


def test_every_key_of_the_table_is_a_key_of_the_configuration():
    rows = re.findall(r"^\| (`[^|]*`[^|]*) \|", README, re.MULTILINE)
    config = compose_config()
    for key in re.findall(r"`([a-z_.]+)`", " ".join(rows)):
        value = config
        for part in key.split("."):
            value = getattr(value, part)


TABLES = re.findall(r"<!-- table: (\S+) -->\n(.*?)<!-- end -->", README, re.DOTALL)


@pytest.mark.parametrize(("path", "table"), TABLES, ids=[path for path, _ in TABLES])
def test_every_line_of_a_table_is_a_committed_one(path, table):
    committed = (ROOT / path).read_text().splitlines()
    assert len(table.splitlines()) > 2
    assert set(table.splitlines()) <= set(committed)


def test_both_papers_have_a_table():
    assert len(TABLES) == 2


def test_the_command_for_own_features_runs(tmp_path):
    features = make_features()
    for part in ("train", "test"):
        examples = getattr(features, part)
        np.savez(tmp_path / f"{part}.npz", x=examples.x.numpy(), label=examples.y.numpy())
    (own,) = [o for o in RUNS if "dataset=custom" in o]
    own = [o for o in own if not o.startswith("data_root=")]
    small = [
        "train.batch_size=24",
        "train.epochs=2",
        "train.non_private_epochs=2",
        "train.learning_rate=[1]",
        "seeds=0",
    ]
    small += ["dp.target_epsilon=4", "dp.clip_percentile=[0]", "dp.clip_norm=[1]"]
    done = subprocess.run(
        [sys.executable, "-m", "dpexp.run", *own, f"data_root={tmp_path}", *small],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mine" in done.stdout
    assert Path(tmp_path / "outputs" / "tables" / "mine.csv").is_file()


def test_what_the_readme_says_of_paper_s_is_what_its_tables_found():
    found = (ROOT / "outputs/tables/selective_release.md").read_text()
    pairs = {
        "epsilon of 895": ["= 895."],
        "138\n  on Fashion-MNIST": ["= 138."],
        "0.04 ± 0.13": ["+0.04 ± 0.13"],
        "89.09 ± 0.20 %": ["0.2: 89.09 ± 0.20"],
        "0.43 ± 0.10": ["−0.43 ± 0.10"],
        "0.28 at worst and 0.45 at best": ["probability 0.28 and the best with 0.45"],
        "4.27 points": ["+4.27 points (1 seed) at ε = 3"],
        "0.01 to 1.03": ["−0.01 points (1 seed) at ε = 3", "−1.03 points (1 seed) at ε = 1"],
        "1.35 to\n  2.60": ["(paper: +1.35 points)", "(paper: +2.60 points)"],
        "86.81, 88.71 and 89.10 % at 1, 2 and 3": [
            f"stopped by account B at ε = {epsilon}: {accuracy} %"
            for epsilon, accuracy in ((1, "86.81"), (2, "88.71"), (3, "89.10"))
        ],
    }
    for said, lines in pairs.items():
        assert said in README
        assert [line for line in lines if line not in found] == []
