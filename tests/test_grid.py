import dataclasses
import math

import pytest
from conftest import compose_config, make_features, make_run, make_task

from dpexp import grid
from dpexp.config import ConfigError

SMALL = ["train.batch_size=24", "train.epochs=2", "dp.delta=1e-5"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def expand(*overrides, **sizes):
    config = compose_config(*SMALL, *overrides)
    task = grid.prepare(config, make_features(**sizes))
    return grid.expand(config, task)


def test_the_grid_is_cells_times_learning_rates_times_seeds_plus_the_baseline():
    runs = expand(
        "dp.target_epsilon=[2,4]", "dp.clip_percentile=[0,100]", "train.learning_rate=[0.1,1]", "seeds=[0,1,2]"
    )
    private = [run for run in runs if run.method == "dpsgd"]
    assert len(private) == 2 * 3 * 2 * 3
    assert len(runs) - len(private) == 2 * 3
    assert all(run.mechanism.clip_norm == math.inf for run in runs if run.method == "non_private")


def test_every_private_run_meets_its_target_and_no_less():
    for run in expand("dp.target_epsilon=[2,4]"):
        if run.target_epsilon is not None:
            assert 0.99 * run.target_epsilon <= run.account.epsilon <= run.target_epsilon


def test_the_account_is_of_the_steps_and_rate_that_are_trained():
    for run in expand("dp.target_epsilon=[2,4]", "train.epochs={2:1,4:3}"):
        assert run.account.steps == run.mechanism.steps == run.evaluation_steps[-1]
        assert run.account.sample_rate == run.mechanism.sample_rate
        assert run.account.noise_multiplier == run.mechanism.noise_multiplier


def test_the_baseline_can_train_longer_than_the_private_runs():
    runs = expand("train.non_private_epochs=7")
    assert {run.method: run.mechanism.steps for run in runs} == {"dpsgd": 20, "non_private": 70}


def test_a_clip_norm_given_twice_is_run_once():
    assert len(expand("dp.clip_norm=[1,1.0]", "seeds=[1,1]")) == len(expand("dp.clip_norm=[1]", "seeds=[1]"))


def test_identity_changes_with_everything_that_can_change_the_number(task):
    run = make_run(task)
    changed = [
        make_run(task, **change)
        for change in (
            {"learning_rate": 0.6},
            {"seed": 1},
            {"clip_norm": 1.1},
            {"noise_multiplier": 1.1},
            {"steps": 21},
            {"expected_batch_size": 25},
            {"n": 239},
            {"noise": "shared"},
            {"engine": "opacus"},
            {"bias": False},
            {"features": "other"},
            {"validation_fraction": 0.1},
        )
    ]
    assert len({run.run_id, *(other.run_id for other in changed)}) == len(changed) + 1


def test_identity_does_not_change_with_labels(task):
    run = make_run(task)
    assert dataclasses.replace(run, target_epsilon=3.0, clip_percentile=10.0).run_id == run.run_id


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_every_epoch_has_a_step_even_where_an_epoch_is_hardly_longer_than_one(steps):
    for n, batch in ((11, 10), (4, 3), (5, 4), (7, 7)):
        ends = make_run(make_task(n=n), expected_batch_size=batch, steps=steps).evaluation_steps
        assert ends == sorted(set(ends))
        assert ends[-1] == steps


def test_packing_keeps_every_run_once_and_shares_only_what_may_be_shared():
    runs = expand("dp.target_epsilon=[2,4]", "train.epochs={2:1,4:3}", "train.learning_rate=[0.1,0.3,1]", "seeds=[0,1]")
    programs = grid.pack(runs, 4)
    assert sorted(run.run_id for p in programs for run in p.runs) == sorted(run.run_id for run in runs)
    for program in programs:
        assert len(program.runs) <= 4
        assert len({(r.seed, r.mechanism.steps, r.mechanism.sample_rate, r.noise) for r in program.runs}) == 1


def test_only_missing_runs_are_left_to_train():
    programs = grid.pack(expand("train.learning_rate=[0.1,0.3,1]"), 2)
    stored = {run.run_id for run in programs[0].runs} | {programs[1].runs[0].run_id}
    left = [run.run_id for program in grid.missing(programs, stored) for run in program.runs]
    assert not stored & set(left)
    assert len(left) + len(stored) == sum(len(p.runs) for p in programs)


def test_validation_selection_trains_on_fewer_examples_at_a_matching_rate():
    config = compose_config(*SMALL, "select_on=validation", "train.validation_fraction=0.25")
    task = grid.prepare(config, make_features())
    (run, *_) = grid.expand(config, task)
    assert len(task.validation) == 60
    assert run.mechanism.n == len(task.train) == 180
    assert run.mechanism.sample_rate == 24 / 180
    assert run.mechanism.steps == 15  # 2 epochs of 180 / 24 = 7.5 steps
    held = {tuple(row) for row in task.validation.x.tolist()}
    assert not held & {tuple(row) for row in task.train.x.tolist()}


def test_a_batch_larger_than_the_training_set_names_both_numbers():
    with pytest.raises(ConfigError, match=r"train.batch_size=4096 .* \(240 samples of clouds\)"):
        expand("train.batch_size=4096")


def test_full_batch_is_allowed():
    assert expand("train.batch_size=240")[0].mechanism.sample_rate == 1


def test_a_large_delta_warns_with_one_over_n():
    with pytest.warns(UserWarning, match="1/n"):
        expand("dp.delta=0.01")


def test_no_noise_means_infinite_epsilon_and_still_runs():
    runs = expand("dp.target_epsilon=null", "dp.noise_multiplier=0", "dp.clip_norm=[1,inf]")
    assert {run.account.epsilon for run in runs} == {math.inf}
    assert {run.noise for run in runs} == {"none"}
