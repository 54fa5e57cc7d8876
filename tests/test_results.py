import json
import math
import os
import subprocess
import sys

import pytest
from conftest import ROOT

from dpexp import results
from dpexp.config import ConfigError


def record(run_id, **more):
    return {"format": results.FORMAT, "run_id": run_id, **more}


def test_what_is_appended_is_read_back(tmp_path):
    results.append(tmp_path, "p1", [record("a", value=0.1), record("b", value=[1, 2])])
    results.append(tmp_path, "p2", [record("c")])
    assert [r["run_id"] for r in results.read(tmp_path)] == ["a", "b", "c"]
    assert results.read(tmp_path)[0]["value"] == 0.1


def test_a_missing_folder_holds_no_results(tmp_path):
    assert results.read(tmp_path / "none") == []


def test_a_run_stored_twice_counts_once(tmp_path):
    results.append(tmp_path, "p1", [record("a")])
    results.append(tmp_path, "p2", [record("a"), record("b")])
    assert [r["run_id"] for r in results.read(tmp_path)] == ["a", "b"]


def test_files_are_strict_json_with_infinity_and_nan_spelt_out(tmp_path):
    path = results.append(tmp_path, "p", [record("a", epsilon=math.inf, loss=[math.nan, 1.0])])
    line = path.read_text().strip()
    assert "NaN" not in line
    assert "Infinity" not in line
    assert json.loads(line)["epsilon"] == "inf"
    assert json.loads(line)["loss"] == [None, 1.0]


def test_a_write_that_fails_leaves_nothing_under_the_final_name(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no room"):
        results.append(tmp_path, "p", [record("a")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"run_id": "a"}', '{"format": 1}', '{"format": 1, "run_id": "a", "x": NaN}', '{"format": 99}']
)
def test_a_foreign_file_is_named_with_its_line(tmp_path, line):
    (tmp_path / "p.jsonl").write_text(json.dumps(record("a")) + "\n" + line + "\n")
    with pytest.raises(results.ResultsError, match=r"p\.jsonl, line 2"):
        results.read(tmp_path)


SETTINGS = {"dataset": "d", "extractor": "raw", "model": "softmax", "train.epochs": {2.0: 10}, "dp.delta": 1e-5}


def test_one_study_cannot_mix_settings_and_the_error_names_them(tmp_path):
    results.append(tmp_path, "p", [record("a", settings=SETTINGS)])
    stored = results.read(tmp_path)
    results.check_settings(tmp_path, SETTINGS, stored)
    results.check_settings(tmp_path, SETTINGS | {"dataset": "other", "dp.delta": 1e-6}, stored)
    with pytest.raises(ConfigError, match=r"train.epochs=.*2.0.*10.*train.epochs=50.*name="):
        results.check_settings(tmp_path, SETTINGS | {"train.epochs": 50}, stored)


def test_a_record_without_settings_is_named(tmp_path):
    with pytest.raises(results.ResultsError, match="run a has no settings"):
        results.check_settings(tmp_path, SETTINGS, [record("a")])


def test_a_folder_that_cannot_be_made_is_named_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="output_dir: cannot create"):
        results.require_writable(tmp_path / "file" / "results")


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder `study`."""
    code = (
        "import sys, time; from pathlib import Path; from dpexp import results\n"
        "with results.sole_writer(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(tmp_path / "study")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as started:
        assert started.stdout.readline() == "held\n"
        yield started
        started.kill()


def test_a_second_sweep_in_one_folder_is_refused_at_once_and_told_who_is_there_and_the_way_out(holder, tmp_path):
    refusal = rf"study is in use by another sweep \(process {holder.pid} on \S+\).*name=study_2"
    for _ in range(2):
        with pytest.raises(ConfigError, match=refusal), results.sole_writer(tmp_path / "study"):
            pytest.fail("two writers")
    with results.sole_writer(tmp_path / "another study"):
        pass


def test_what_a_killed_sweep_left_behind_blocks_nobody(holder, tmp_path):
    holder.kill()
    holder.wait()
    assert (tmp_path / "study" / ".lock").exists()
    with results.sole_writer(tmp_path / "study"):
        assert (tmp_path / "study" / ".lock").read_text().startswith(f"process {os.getpid()} on ")


def test_jobs_of_one_process_hold_a_folder_one_after_the_other_and_leave_nothing(tmp_path):
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a job fails"), results.sole_writer(tmp_path / "study"):
            raise RuntimeError("a job fails")
    assert list((tmp_path / "study").iterdir()) == []
