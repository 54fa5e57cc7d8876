"""Each study of the paper from its sweep file to its tables and figures, on a small data set."""

import pytest
from conftest import compose_config, make_features
from rich.console import Console

from dpexp import results
from dpexp import run as entry

SMALL = [
    "train.batch_size=24",
    "train.epochs={2:1,4:2,6:2}",
    "train.non_private_epochs=2",
    "train.last_epochs=2",
    "train.learning_rate=[0.3,1]",
    "dp.target_epsilon=[2,4]",
    "seeds=[0,1]",
]


@pytest.mark.parametrize(
    ("study", "overrides", "methods", "shown"),
    [
        ("rnmm", [], {"rnmm_paper", "rnmm_sound"}, "private minimum (proven)"),
        ("nonconvex", ["model.hidden=4", "dp.clip_norm=[1,6]"], {"dpsgd", "non_private"}, "mlp_tanh"),
        ("nonconvex_fashion", ["model.hidden=4"], {"dpsgd", "non_private"}, "mlp_tanh"),
    ],
)
def test_a_study_runs_from_its_sweep_file_to_its_table(tmp_path, monkeypatch, study, overrides, methods, shown):
    monkeypatch.setattr(entry.features, "load", lambda config, progress=None: make_features())
    config = compose_config(f"+sweep={study}", *SMALL, *overrides, f"output_dir={tmp_path}")
    paths = entry.execute(config, Console(quiet=True))
    stored = results.read(tmp_path / "results" / config.study)
    assert {record["method"] for record in stored} == methods
    assert all(record["status"] == "done" for record in stored)
    assert all(path.stat().st_size > 0 for path in paths)
    assert shown in (tmp_path / "tables" / f"{config.study}.md").read_text()
    before = {record["run_id"]: record["created"] for record in stored}
    entry.execute(config, Console(quiet=True))
    assert {r["run_id"]: r["created"] for r in results.read(tmp_path / "results" / config.study)} == before


def test_the_fashion_study_is_a_part_of_the_papers_grid():
    whole, part = compose_config("+sweep=nonconvex"), compose_config("+sweep=nonconvex_fashion")
    assert whole.dp.clip_norm == (1, 3, 6, 12, 18, 24, 30, 36)
    assert whole.model.hidden == part.model.hidden == 256
    assert set(part.dp.clip_norm) <= set(whole.dp.clip_norm)
    assert set(part.train.learning_rate) <= set(whole.train.learning_rate)
    assert set(part.dp.target_epsilon) <= set(whole.dp.target_epsilon)
