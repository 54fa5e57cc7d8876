import threading
from dataclasses import replace

import pytest
import torch
from selective_worlds import (
    ACCEPT_ALL,
    REJECT_ALL,
    make_data,
    make_loss_test,
    make_mechanism,
    make_metric_test,
    make_run,
)

from dpexp.algorithms import scaling
from dpexp.selective import training
from dpexp.selective.training import Draws, Loop, start, train
from dpexp.selective.walk import restore, save
from dpexp.train import Interrupted

DATA = make_data()


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state.params, b.state.params, strict=True))


def with_key(run, steps, key="k"):
    """A run of some trials whose noise follows from `key` and not from the run's identity."""
    loop = Loop(run=run, data=DATA, draws=Draws(run, DATA.x, key))
    walk = start(run, DATA.x)
    for _ in range(steps):
        loop.trial(walk)
    return walk


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_accepting_every_update_is_dp_sgd_bit_for_bit(optimizer):
    released = make_run(method="dpsgd", test=None, optimizer=optimizer)
    tested = make_run(test=make_metric_test(**ACCEPT_ALL), optimizer=optimizer)
    by_loss = make_run(test=None, loss_test=make_loss_test(threshold=float("inf")), optimizer=optimizer)
    assert same(with_key(released, 10), with_key(tested, 10))
    assert same(with_key(released, 10), with_key(by_loss, 10))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_rejecting_every_update_leaves_weights_and_optimizer_untouched_and_stops_marked(optimizer):
    run = make_run(test=make_metric_test(**REJECT_ALL), max_trials=30, optimizer=optimizer)
    walk = train(run, DATA, 5)
    first = start(run, DATA.x)
    assert same(walk, first)
    assert walk.state.moments == ()
    assert walk.state.updates == 0
    assert (walk.trials, walk.accepted) == (30, 0)
    assert walk.history["test_accuracy"]


def test_trials_are_accepted_and_rejected_ones_and_all_are_logged():
    walk = train(make_run(), DATA, 5)
    assert walk.accepted == 12 == sum(walk.log["accepted"])
    assert walk.trials == len(walk.log["metric"]) == len(walk.log["noisy"]) > 12


def test_a_rejected_update_leaves_no_trace_in_what_follows():
    run = make_run()
    walk = train(run, DATA, 5)
    kept = [trial for trial, accepted in enumerate(walk.log["accepted"]) if accepted]
    loop, only = Loop(run=replace(run, test=None), data=DATA, draws=Draws(run, DATA.x, run.run_id)), start(run, DATA.x)
    for trial in kept:
        only.trials = trial
        loop.trial(only)
    assert same(walk, only)


def test_the_published_code_keeps_rejected_gradients_in_its_momentum():
    published = make_run(variant="as_published", test=make_metric_test(**REJECT_ALL, reference="raw"))
    loop, walk = Loop(run=published, data=DATA, draws=Draws(published, DATA.x, "k")), start(published, DATA.x)
    walk.accepted = 100  # past its warm-up
    loop.trial(walk)
    assert same(walk, start(published, DATA.x))
    assert walk.state.updates == 1


def test_the_published_code_takes_its_first_29_updates_whatever_the_test_says():
    run = make_run(variant="as_published", test=make_metric_test(**REJECT_ALL, reference="raw"), max_trials=60)
    run = replace(run, mechanism=make_mechanism(steps=50))
    assert train(run, DATA, 5).accepted == 29


def test_published_dpsur_keeps_rejected_updates_before_its_first_acceptance():
    run = make_run(
        variant="as_published", test=None, loss_test=make_loss_test(threshold=-1e9, stored_loss=True), max_trials=3
    )
    assert not same(train(run, DATA, 5), start(run, DATA.x))


def test_the_reference_is_the_accepted_metric_with_noise_or_without():
    raw, noisy = (make_metric_test(**ACCEPT_ALL, reference=r) for r in ("raw", "noisy"))
    log = with_key(make_run(test=raw), 6).log
    assert log["reference"][1:] == log["metric"][:-1]
    log = with_key(make_run(test=noisy), 400).log
    gaps = torch.tensor(log["reference"][1:]) - torch.tensor(log["metric"][:-1])
    assert abs(float(gaps.std()) - 20.0) < 2.0


def test_the_same_batch_reference_is_the_metric_at_the_weights_before_the_last_update():
    test = make_metric_test(**ACCEPT_ALL, reference="same_batch")
    run = make_run(test=test)
    one, two = with_key(run, 1), with_key(run, 2)
    batch = DATA.batch(Draws(run, DATA.x, "k").rows(1))
    for params, name in ((one.previous, "reference"), (one.state.params, "metric")):
        norm = run.network.per_sample(params, batch.x, batch.y).norm
        expected = scaling.metric(norm, 0.5, 4.0, 1.0).double().sum()
        assert two.log[name][1] == pytest.approx(float(expected))


def test_an_empty_batch_is_a_trial_of_pure_noise():
    run = make_run(mechanism=make_mechanism(expected_batch_size=1e-9, steps=2), test=make_metric_test(**ACCEPT_ALL))
    walk = train(run, DATA, 5)
    assert walk.accepted == 2
    assert walk.log["metric"] == [0.0, 0.0]
    assert not same(walk, start(run, DATA.x))


def test_a_run_that_is_cut_off_goes_on_to_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    run, stop = make_run(optimizer="adam"), threading.Event()

    def stop_at_seven(walk):
        if walk.trials == 7:
            stop.set()

    with pytest.raises(Interrupted):
        train(run, DATA, 5, checkpoint=tmp_path / "c", on_trial=stop_at_seven, stop=stop)
    resumed, whole = train(run, DATA, 5, checkpoint=tmp_path / "c"), train(run, DATA, 5)
    assert same(resumed, whole)
    assert (resumed.log, resumed.history, resumed.trials) == (whole.log, whole.history, whole.trials)


def test_the_checkpoint_of_another_run_and_a_damaged_one_are_not_used(tmp_path):
    run, path = make_run(), tmp_path / "c"
    save(path, run.run_id, start(run, DATA.x))
    assert restore(path, run.run_id) is not None
    assert restore(path, "another") is None
    path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(UserWarning, match="unreadable checkpoint"):
        assert restore(path, run.run_id) is None


def test_noise_and_validation_batches_are_drawn_apart_from_the_training_batch():
    draws = Draws(make_run(), DATA.x)
    assert draws.rows(0).tolist() != draws.validation_rows(0, 40).tolist()
    assert draws.normal("test", 0) != draws.normal("reference", 0) != draws.normal("test", 1)


def test_a_run_that_diverges_stops():
    run = make_run(method="dpsgd", test=None, learning_rate=1e38, mechanism=make_mechanism(steps=500), max_trials=500)
    walk = train(run, DATA, 50)
    assert walk.diverged
    assert walk.trials < 500


def test_quality_compares_the_held_out_loss_before_and_after_every_candidate():
    walk = train(make_run(quality_rows=50), DATA, 5)
    assert len(walk.log["loss_before"]) == len(walk.log["loss_after"]) == walk.trials
    plain = train(make_run(), DATA, 5)
    assert len(plain.log["metric"]) > 0
    assert "loss_before" not in plain.log
