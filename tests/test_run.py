"""The command line, end to end, on a small data set."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, SMALL

from dpexp import results

RUNS = 2 * 3 * 2 * 2 + 2 * 2  # in SMALL
ONE_RUN = [
    "dp.target_epsilon=4",
    "dp.clip_percentile=[]",
    "train.learning_rate=1",
    "seeds=0",
    "train.non_private=false",
]


def command(*overrides):
    flags, keys = [o for o in overrides if o.startswith("-")], [o for o in overrides if not o.startswith("-")]
    return [sys.executable, str(ROOT / "tests" / "tiny_run.py"), *flags, *SMALL, *keys]


def run(folder, *overrides, **environment):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", **environment}
    return subprocess.run(command(*overrides), cwd=folder, env=environment, capture_output=True, text=True, check=False)


def numbers(folder, study="clipnorm"):
    """What must not depend on when and how a run was computed."""
    return {
        r["run_id"]: (r["weights_sha256"], r["history"], r["privacy"])
        for r in results.read(folder / "outputs" / "results" / study)
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which the small sweep ran without a break, and what it printed."""
    folder = tmp_path_factory.mktemp("finished")
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_a_sweep_ends_with_its_table_and_the_paths_of_its_files(finished):
    folder, printed = finished
    assert len(numbers(folder)) == RUNS
    assert "clouds" in printed
    for path in ("outputs/tables/clipnorm.csv", "outputs/tables/clipnorm.md", "outputs/tables/clipnorm.tex"):
        assert path in printed
        assert (folder / path).stat().st_size > 0
    assert list((folder / "outputs" / "figures").glob("*.pdf"))


def test_asking_again_trains_nothing_and_changes_nothing(finished):
    folder, _ = finished
    before = {path: path.read_bytes() for path in (folder / "outputs").glob("[rt]*/**/*") if path.is_file()}
    again = run(folder)
    assert again.returncode == 0
    assert {path: path.read_bytes() for path in before} == before


def test_records_are_strict_json_and_describe_themselves(finished):
    folder, _ = finished
    for path in (folder / "outputs" / "results" / "clipnorm").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            r = json.loads(line, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
            assert r["config"]["train"]["batch_size"] == 24
            assert r["versions"]["opacus"]
            assert r["mechanism"]["steps"] == 40
            assert len(r["history"]["test_accuracy"]) == r["epochs"] == 4
            if r["method"] == "dpsgd":
                assert r["privacy"]["epsilon"] <= r["privacy"]["target_epsilon"]
                assert "not" in r["privacy"]["statement"]
            else:
                assert r["privacy"]["epsilon"] == "inf"


def test_a_sweep_killed_in_the_middle_computes_only_what_is_missing_with_identical_numbers(finished, tmp_path):
    whole = numbers(finished[0])
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    narrow = "compute.runs_per_program=112"
    started = subprocess.Popen(
        command(narrow, "compute.workers=1"),
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    folder, deadline = tmp_path / "outputs" / "results" / "clipnorm", time.monotonic() + 120
    while not list(folder.glob("*.jsonl")) and time.monotonic() < deadline and started.poll() is None:
        time.sleep(0.002)
    started.send_signal(signal.SIGKILL)
    started.wait()
    kept = {path: path.read_bytes() for path in folder.glob("*.jsonl")}
    assert kept
    again = run(tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert numbers(tmp_path) == whole
    assert {path: path.read_bytes() for path in kept} == kept


def test_worker_count_does_not_change_a_number(finished, tmp_path):
    assert run(tmp_path, "compute.workers=1").returncode == 0
    assert numbers(tmp_path) == numbers(finished[0])


def test_ctrl_c_keeps_what_is_finished_and_prints_how_to_go_on(tmp_path):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    started = subprocess.Popen(
        command("train.epochs=3000"),
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "outputs" / "results").exists() and time.monotonic() < deadline and started.poll() is None:
        time.sleep(0.05)
    time.sleep(3)
    started.send_signal(signal.SIGINT)
    printed, _ = started.communicate(timeout=60)
    assert started.returncode == 130, printed
    assert "the same command goes on from there" in printed
    assert "train.epochs=3000" in printed
    status = next((tmp_path / "outputs" / "logs").rglob("status.json"))
    assert json.loads(status.read_text())["status"] == "interrupted"


def test_ctrl_c_outside_training_ends_as_quietly(tmp_path):
    script = (
        "import tiny_run, dpexp.features\n"
        "def stopped(*_): raise KeyboardInterrupt\n"
        "dpexp.features.load = stopped\n"
        "tiny_run.main()"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    stopped = subprocess.run(
        [sys.executable, "-c", script, *SMALL, "extractor.mean=[a,b]"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert stopped.returncode == 130, stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert "'extractor.mean=[a,b]'" in stopped.stdout  # not taken for a style and left out
    status = next((tmp_path / "outputs" / "logs").rglob("status.json"))
    assert json.loads(status.read_text())["status"] == "interrupted"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["dp.clip_norm=nan"], "dp.clip_norm must be a finite number > 0, got nan"),
        (["train.batch_size=4096"], "train.batch_size=4096 is larger than the training set (240 samples"),
        (["dp.cip_norm=1"], "did you mean dp.clip_norm?"),
        (["compute=cuda"], "needs a CUDA GPU"),
        (["data_root=~/data"], "write data_root=$HOME/data"),
        (["engine=opacus"], "engine=opacus trains private runs"),
        (["engine=opacus", "train.non_private=false", "train.batch_size=23"], "that divides n=240, got 23"),
    ],
)
def test_a_bad_setting_ends_with_one_clear_line_and_leaves_no_results(tmp_path, overrides, message):
    if overrides == ["compute=cuda"]:
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            pytest.skip("this machine has a GPU")
    failed = run(tmp_path, *overrides)
    printed = " ".join((failed.stdout + failed.stderr).split())
    assert failed.returncode != 0
    assert message in printed
    assert "Traceback" not in printed
    assert not list(tmp_path.rglob("*.jsonl"))


def test_other_settings_cannot_slip_into_a_finished_study(finished):
    folder, _ = finished
    before = numbers(folder)
    refused = run(folder, "train.epochs=5")
    printed = " ".join((refused.stdout + refused.stderr).split())
    assert refused.returncode != 0
    assert "train.epochs=4" in printed
    assert "train.epochs=5" in printed
    assert "name=" in printed
    assert numbers(folder) == before


def test_a_second_sweep_in_one_results_folder_ends_with_one_clear_line_before_it_loads_data(tmp_path):
    with results.sole_writer(tmp_path / "outputs" / "results" / "clipnorm"):
        refused, other = run(tmp_path), run(tmp_path, *ONE_RUN, "name=other")
    printed = " ".join((refused.stdout + refused.stderr).split())
    assert refused.returncode == 2
    assert f"is in use by another sweep (process {os.getpid()} on " in printed
    assert "name=clipnorm_2" in printed
    assert "Traceback" not in printed
    assert "clouds" not in printed
    assert numbers(tmp_path) == {}
    assert other.returncode == 0, other.stdout + other.stderr


def test_a_multirun_goes_on_after_a_job_that_fails_and_later_jobs_give_the_numbers_of_one_alone(finished, tmp_path):
    failed = run(
        tmp_path, "-m", "seeds=[0]", "name=first,second,third", "train.batch_size=24,4096", "train.non_private=false"
    )
    assert failed.returncode != 0
    assert {path.name for path in (tmp_path / "outputs" / "results").iterdir() if list(path.iterdir())} == {
        "first",
        "second",
        "third",
    }
    states = [json.loads(path.read_text())["status"] for path in (tmp_path / "outputs" / "logs").rglob("status.json")]
    assert sorted(states) == ["done"] * 3 + ["failed"] * 3
    alone = {run_id: values[:2] for run_id, values in numbers(finished[0]).items()}
    for name in ("first", "second", "third"):
        jobs = {run_id: values[:2] for run_id, values in numbers(tmp_path, name).items()}
        assert len(jobs) == 12
        assert jobs.items() <= alone.items()


def test_the_opacus_engine_reaches_the_packed_engines_accuracy(tmp_path):
    for engine in ("packed", "opacus"):
        done = run(tmp_path, *ONE_RUN, f"engine={engine}")
        assert done.returncode == 0, done.stdout + done.stderr
    accuracies = []
    for study in ("clipnorm", "clipnorm-opacus"):
        (r,) = results.read(tmp_path / "outputs" / "results" / study)
        assert r["engine"] == study.partition("-")[2] or r["engine"] == "packed"
        accuracies.append(r["history"]["test_accuracy"][-1])
    assert abs(accuracies[0] - accuracies[1]) < 0.15
    assert min(accuracies) > 0.6


def test_shared_noise_is_announced_with_its_danger(tmp_path):
    done = run(tmp_path, *ONE_RUN, "noise=shared")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Never release two of these models together" in " ".join(done.stdout.split())
    (r,) = results.read(tmp_path / "outputs" / "results" / "clipnorm-shared_noise")
    assert "never release two of these models together" in r["privacy"]["statement"]


def test_help_names_the_groups_and_the_sweep(tmp_path):
    shown = run(tmp_path, "--help").stdout
    assert "sweep: " in shown
    assert "clipnorm" in shown
    assert Path(ROOT / "conf" / "sweep" / "clipnorm.yaml").is_file()
