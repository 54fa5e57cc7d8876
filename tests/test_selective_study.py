import json
import math
from dataclasses import replace

import numpy as np
import pytest
import selective_worlds
import torch
from conftest import compose_config
from rich.console import Console

from dpexp import results
from dpexp.config import ConfigError
from dpexp.features import Examples, Features
from dpexp.selective import study
from dpexp.train import Interrupted

RECIPE = (
    "{extractor: {name: raw}, net: linear_for_tests, batch_size: 40, learning_rate: 0.5, clip_norm: 1.0, "
    "scaling_bound: 0.5, saturation: 4.0, noise_multiplier: 6.0, validation_batch: 30, validation_noise: 4.0, "
    "epochs: 4}"
)
METHODS = ("non_private", "dpsgd", "dpsr_cg", "dpsr_cg_as_published", "dpsr_cg_no_release", "dpsur")
SMALL = ("dp.target_epsilon=[2.0]", "dp.delta=1e-4", "selective.evaluations=4", "compute.workers=1")


def tiny_features():
    data = selective_worlds.make_data()
    return Features(
        dataset="tiny",
        extractor="raw",
        train=Examples(x=data.x, y=data.y),
        test=Examples(x=data.test_x, y=data.test_y),
        num_classes=3,
        source="made up",
        digest="d" * 16,
    )


@pytest.fixture
def configured(tmp_path, monkeypatch):
    monkeypatch.setattr("dpexp.features.load", lambda config, progress=None: tiny_features())

    def make(*overrides, methods=METHODS):
        recipes = [f"+selective.recipes.{method}={RECIPE}" for method in methods]
        named = f"selective.methods=[{','.join(methods)}]"
        sweep = ("+sweep=selective", "dataset=custom", "recipe=none", f"output_dir={tmp_path}")
        return compose_config(*sweep, *SMALL, named, *recipes, *overrides)

    return make


def run(config):
    console = Console(width=100, record=True)
    return results.read(study.train_selective(config, console)), console.export_text()


def test_a_study_stores_one_self_describing_record_a_run(configured):
    stored, shown = run(configured())
    by_name = {(r["method"], r["variant"]): r for r in stored}
    assert len(by_name) == len(stored) == len(METHODS)
    sound = by_name["dpsr_cg", "sound"]
    assert sound["accepted"] == sound["mechanism"]["steps"] < sound["trials"] <= sound["mechanism"]["max_trials"]
    names = {a["name"]: a for a in sound["accounts"]}
    assert set(names) == {"paper", "naive", "A", "B", "C", "C_rdp", "odometer"}
    assert names["paper"]["epsilon"] <= 2.0
    assert sound["privacy"]["epsilon"] == min(names[n]["epsilon"] for n in "BC")
    published = by_name["dpsr_cg", "as_published"]
    assert published["privacy"]["epsilon"] is None
    assert "No certificate" in published["privacy"]["statement"]
    assert by_name["non_private", ""]["privacy"]["statement"].startswith("This run has no privacy guarantee")
    assert "dpsr_cg" in shown
    assert "trials" in shown


def test_records_are_strict_json_and_name_no_folder(configured, tmp_path):
    run(configured())
    for path in (tmp_path / "results").rglob("*.jsonl"):
        text = path.read_text()
        assert str(tmp_path) not in text
        json.loads(text, parse_constant=pytest.fail)


def test_every_trial_is_logged_with_its_metric_reference_and_decision(configured, tmp_path):
    stored, _ = run(configured(methods=("dpsr_cg",)))
    (record,) = stored
    (path,) = (tmp_path / "results").rglob("*.npz")
    log = np.load(path)
    assert set(log) == {"metric", "reference", "noisy", "accepted"}
    assert len(log["metric"]) == record["trials"]
    assert log["accepted"].sum() == record["accepted"]
    assert math.isinf(log["reference"][0])


def test_asking_twice_trains_once(configured, monkeypatch):
    first, _ = run(configured())
    monkeypatch.setattr(study, "train_all", lambda *_: pytest.fail("trained again"))
    assert run(configured())[0] == first


def test_a_study_that_is_stopped_goes_on_to_the_same_models(configured, monkeypatch, tmp_path):
    whole, _ = run(configured(f"output_dir={tmp_path / 'whole'}"))
    real = study.train

    def interrupted(run, *arguments, **options):
        if run.method == "dpsr_cg" and run.variant == "sound":
            options["on_trial"] = lambda walk: options["stop"].set() if walk.trials == 3 else None
        return real(run, *arguments, **options)

    monkeypatch.setattr(study, "train", interrupted)
    with pytest.raises(Interrupted):
        run(configured())
    assert list((tmp_path / "checkpoints").glob("selective-*.pt"))
    monkeypatch.setattr(study, "train", real)
    again, _ = run(configured())
    assert {r["run_id"]: r["weights_sha256"] for r in again} == {r["run_id"]: r["weights_sha256"] for r in whole}
    assert not list((tmp_path / "checkpoints").glob("selective-*.pt"))


def test_rejecting_everything_costs_and_is_marked(configured):
    (record,), _ = run(configured("selective.beta=inf", "selective.max_trials=9", methods=("dpsr_cg",)))
    assert (record["status"], record["trials"], record["accepted"]) == ("trials_exhausted", 9, 0)
    costs = {a["name"]: a["epsilon"] for a in record["accounts"]}
    assert costs["A"] is None
    assert costs["B"] is None
    assert costs["C"] > 0


@pytest.mark.parametrize("by", ["A", "B", "C"])
def test_a_run_may_be_stopped_by_a_certified_account(configured, by):
    (record,), _ = run(configured(f"selective.budget_by={by}", methods=("dpsr_cg",)))
    account = next(a for a in record["accounts"] if a["name"] == by)
    assert account["certificate"]
    assert 1.5 < account["epsilon"] <= 2.0
    assert record["status"] == "done"


def test_an_account_that_a_method_does_not_have_is_refused_before_training(configured):
    with pytest.raises(ConfigError, match=r"selective.budget_by=A has no account for dpsur; use budget_by=paper"):
        run(configured("selective.budget_by=A", methods=("dpsr_cg", "dpsur")))
    with pytest.raises(ConfigError, match=r"give selective.max_trials"):
        run(configured("selective.beta=inf", methods=("dpsr_cg",)))


def test_a_failing_run_leaves_the_others_finished(configured, monkeypatch):
    real = study.train

    def fails(run, *arguments, **options):
        if run.method == "dpsgd":
            raise MemoryError("injected")
        return real(run, *arguments, **options)

    monkeypatch.setattr(study, "train", fails)
    config = configured()
    with pytest.raises(MemoryError, match="injected"):
        run(config)
    monkeypatch.setattr(study, "train", real)
    assert len(run(config)[0]) == len(METHODS)


def test_an_empty_training_batch_is_processed_like_any_other():
    data = selective_worlds.make_data()
    assert data.batch(torch.zeros(0, dtype=torch.int64)).x.shape == (0, selective_worlds.INPUTS)


def test_runs_of_other_settings_cannot_enter_a_cell_of_the_table(configured):
    run(configured(methods=("dpsr_cg",)))
    with pytest.raises(
        ConfigError, match=r"holds dpsr_cg with learning_rate=0.5; this study has learning_rate=0.25.*name="
    ):
        run(configured("selective.recipes.dpsr_cg.learning_rate=0.25", methods=("dpsr_cg",)))
    assert len(run(configured("seeds=[0,1]", methods=("dpsr_cg",)))[0]) == 2


def test_every_method_runs_at_every_learning_rate_that_is_tried(configured):
    grid = ("selective.learning_rate=[0.25,0.5]", "name=rates")
    records, _ = run(configured(*grid, methods=("dpsr_cg", "dpsgd")))
    tried = sorted((record["method"], record["learning_rate"]) for record in records)
    assert tried == [("dpsgd", 0.25), ("dpsgd", 0.5), ("dpsr_cg", 0.25), ("dpsr_cg", 0.5)]
    wider = ("selective.learning_rate=[0.5,1.0]", "name=rates")
    assert len(run(configured(*wider, methods=("dpsr_cg",)))[0]) == 5


def test_a_stored_run_does_not_answer_for_another_budget(configured):
    capped = ("selective.max_accepted=2", "selective.max_trials=2")
    (stored,), _ = run(configured(*capped, methods=("dpsgd",)))
    assert (stored["status"], stored["accepted"]) == ("capped", 2)
    for other, said in (
        ("dp.delta=1e-9", r"holds dpsgd with delta=0.0001; this study has delta=1e-09"),
        ("dp.target_epsilon=[4]", r"holds dpsgd with target_epsilon=2.0; this study has target_epsilon=4.0"),
    ):
        with pytest.raises(ConfigError, match=said):
            run(configured(*capped, other, methods=("dpsgd",)))


def test_other_features_are_refused_with_what_may_have_changed_them(configured, monkeypatch):
    run(configured(methods=("dpsgd",)))
    rounded = replace(tiny_features(), digest="e" * 16)
    monkeypatch.setattr("dpexp.features.load", lambda config, progress=None: rounded)
    with pytest.raises(ConfigError, match=r"holds dpsgd with features=dddd.*processor differ.*another output_dir"):
        run(configured(methods=("dpsgd",)))


def test_a_batch_larger_than_the_data_set_is_refused(configured):
    with pytest.raises(ConfigError, match=r"dpsgd: batch_size=500 must lie between 1 and the 200 training ex"):
        run(configured("selective.recipes.dpsgd.batch_size=500", methods=("dpsgd",)))
