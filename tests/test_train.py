import threading

import pytest
import torch
from conftest import make_run, make_task

from dpexp.grid import Program, pack
from dpexp.heads import HEADS
from dpexp.sampling import Noise, poisson_batch
from dpexp.train import Data, Inputs, Interrupted, evaluate, start, train

DOUBLE = torch.float64


def grid_of_runs(task, **changes):
    return [make_run(task, clip_norm=c, learning_rate=lr, **changes) for c in (0.3, 1.0, 5.0) for lr in (0.1, 0.5, 2.0)]


def trained(task, runs, dtype=torch.float32, **options):
    data = Data.of(task, True, "cpu", dtype)
    return {o.run.run_id: o for program in pack(runs, **options) for o in train(program, data)}


def test_a_run_alone_and_packed_agree(task):
    runs = grid_of_runs(task)
    packed = trained(task, runs, DOUBLE, runs_per_program=100)
    halves = trained(task, runs, DOUBLE, runs_per_program=4)
    alone = trained(task, runs, DOUBLE, runs_per_program=1)
    for run in runs:
        expected = packed[run.run_id].weights[0]
        assert torch.allclose(alone[run.run_id].weights[0], expected, rtol=0, atol=1e-12)
        assert torch.allclose(halves[run.run_id].weights[0], expected, rtol=0, atol=1e-12)


def test_single_precision_runs_agree_alone_and_packed_to_single_precision(task):
    runs = grid_of_runs(task)
    packed, alone = trained(task, runs, runs_per_program=100), trained(task, runs, runs_per_program=1)
    for run in runs:
        assert torch.allclose(alone[run.run_id].weights[0], packed[run.run_id].weights[0], rtol=1e-4, atol=1e-5)


def test_training_follows_the_algorithm_written_out_one_sample_at_a_time(task):
    run = make_run(task, steps=7, clip_norm=0.8, noise_multiplier=0.6, learning_rate=0.9)
    x = torch.cat([task.train.x.double(), torch.ones(len(task.train), 1, dtype=DOUBLE)], dim=1)
    w = torch.zeros(3, 7, dtype=DOUBLE)
    noise = Noise([run.run_id], [(3, 7)], x)
    noise.start_epoch(0)
    for t in range(7):
        total = torch.zeros_like(w)
        for i in poisson_batch(run.mechanism, run.seed, t):
            p = w.clone().requires_grad_()
            torch.nn.functional.cross_entropy((p @ x[i])[None], task.train.y[i][None]).backward()
            total += p.grad * min(1.0, 0.8 / float(p.grad.norm()))
        w -= 0.9 * (total + 0.6 * 0.8 * noise.draw()[0][0]) / 24
    (outcome,) = train(Program(runs=(run,)), Data.of(task, True, "cpu", DOUBLE))
    assert torch.allclose(outcome.weights[0], w, rtol=0, atol=1e-10)


def test_same_seed_same_weights_and_other_seed_other_weights(task):
    hashes = []
    for seed in (0, 0, 1):
        (outcome,) = train(Program(runs=(make_run(task, seed=seed),)), Data.of(task, True, "cpu"))
        hashes.append(outcome.weights_sha256)
    assert hashes[0] == hashes[1] != hashes[2]


class Killed(Exception):
    pass


@pytest.mark.parametrize("killed_after", [1, 2])
def test_a_resumed_program_gives_identical_weights_and_history(task, tmp_path, monkeypatch, killed_after):
    monkeypatch.setattr("dpexp.train.CHECKPOINT_SECONDS", 0.0)
    program, data = Program(runs=tuple(grid_of_runs(task, steps=40))), Data.of(task, True, "cpu")
    whole, epochs = train(program, data), []

    def die(run_steps):
        epochs.append(run_steps)
        if len(epochs) == killed_after + 1:  # the first call reports what was restored
            raise Killed

    checkpoint = tmp_path / "p.pt"
    with pytest.raises(Killed):
        train(program, data, checkpoint=checkpoint, on_epoch=die)
    seen = []
    resumed = train(program, data, checkpoint=checkpoint, on_epoch=seen.append)
    assert seen[0] == killed_after * 9 * 10  # finished epochs are not trained again
    for one, other in zip(whole, resumed, strict=True):
        assert one.weights_sha256 == other.weights_sha256
        assert one.history == other.history


def test_a_damaged_checkpoint_is_reported_and_training_starts_again(task, tmp_path):
    program, data = Program(runs=(make_run(task),)), Data.of(task, True, "cpu")
    (tmp_path / "p.pt").write_bytes(b"not a checkpoint")
    with pytest.warns(UserWarning, match="unreadable checkpoint"):
        (outcome,) = train(program, data, checkpoint=tmp_path / "p.pt")
    assert outcome.weights_sha256 == train(program, data)[0].weights_sha256


def test_a_stop_request_keeps_the_finished_epoch(task, tmp_path):
    program, data, stop = Program(runs=(make_run(task, steps=30),)), Data.of(task, True, "cpu"), threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        train(program, data, checkpoint=tmp_path / "p.pt", stop=stop)
    seen = []
    train(program, data, checkpoint=tmp_path / "p.pt", on_epoch=seen.append)
    assert seen[0] == 10


def test_every_step_is_taken_empty_batches_included():
    task = make_task(n=64)
    run = make_run(task, expected_batch_size=1, steps=200)
    empty = [t for t in range(200) if len(poisson_batch(run.mechanism, 0, t)) == 0]
    assert len(empty) > 30
    seen = []
    (outcome,) = train(Program(runs=(run,)), Data.of(task, True, "cpu"), on_epoch=seen.append)
    assert sum(seen) == 200
    assert outcome.weights[0].isfinite().all()


def test_an_empty_batch_still_changes_the_weights_by_noise():
    task = make_task(n=64)
    run = make_run(task, expected_batch_size=1, steps=200)
    first_empty = next(t for t in range(200) if len(poisson_batch(run.mechanism, 0, t)) == 0)
    loop, state = start(Program(runs=(run,)), Data.of(task, True, "cpu"))
    loop.epoch(state, range(first_empty))
    before = state.weights[0].clone()
    loop.epoch(state, range(first_empty, first_empty + 1))
    assert float((state.weights[0] - before).std()) == pytest.approx(0.5, rel=0.5)  # eta sigma tau / b, 21 weights


def test_steps_that_are_no_whole_number_of_epochs_are_all_taken(task):
    for steps in (1, 9, 10, 11, 25):
        run = make_run(task, steps=steps)
        assert run.evaluation_steps[-1] == steps
        assert sorted(set(run.evaluation_steps)) == run.evaluation_steps
        seen = []
        train(Program(runs=(run,)), Data.of(task, True, "cpu"), on_epoch=seen.append)
        assert sum(seen) == steps


def test_a_large_clip_norm_at_fixed_noise_multiplier_lowers_accuracy(task):
    small, large = make_run(task, steps=60, clip_norm=1.0), make_run(task, steps=60, clip_norm=1000.0)
    outcomes = trained(task, [small, large], runs_per_program=2)
    last = {run_id: o.history["test_accuracy"][-1] for run_id, o in outcomes.items()}
    assert last[small.run_id] > last[large.run_id] + 0.2


def test_without_noise_and_clipping_the_data_are_fitted(task):
    run = make_run(task, steps=100, clip_norm=float("inf"), noise_multiplier=0.0)
    (outcome,) = train(Program(runs=(run,)), Data.of(task, True, "cpu"))
    assert outcome.train_accuracy > 0.9
    assert outcome.history["fraction_clipped"] == [0.0] * 10


def test_a_full_batch_uses_every_example_in_every_step(task):
    run = make_run(task, expected_batch_size=len(task.train), steps=3)
    (outcome,) = train(Program(runs=(run,)), Data.of(task, True, "cpu"))
    assert outcome.weights[0].isfinite().all()


def test_weights_that_overflow_are_reported_as_diverged_and_leave_others_alone(task):
    wild, calm = make_run(task, learning_rate=1e38, clip_norm=1e3), make_run(task)
    outcomes = trained(task, [wild, calm], runs_per_program=2)
    assert outcomes[wild.run_id].diverged
    assert not outcomes[calm.run_id].diverged
    alone = trained(task, [calm], runs_per_program=1)
    assert torch.allclose(outcomes[calm.run_id].weights[0], alone[calm.run_id].weights[0], atol=1e-5)


def test_accuracy_and_loss_equal_their_definitions(task, monkeypatch):
    monkeypatch.setattr("dpexp.train.EVALUATION_ROWS", 7)
    w = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0))
    inputs = Inputs.of(task.features.test, True, "cpu", torch.float32)
    accuracy, loss = evaluate(HEADS["softmax"], (w,), inputs)
    for k in range(2):
        logits = inputs.x @ w[k].T
        assert float(accuracy[k]) == pytest.approx(float((logits.argmax(1) == inputs.y).double().mean()))
        assert float(loss[k]) == pytest.approx(float(torch.nn.functional.cross_entropy(logits, inputs.y)), rel=1e-5)


def test_a_model_that_cannot_tell_classes_apart_scores_one_in_m(task):
    inputs = Inputs.of(task.features.test, True, "cpu", torch.float32)
    accuracy, _ = evaluate(HEADS["softmax"], (torch.zeros(1, 3, 7),), inputs)
    assert float(accuracy) == pytest.approx(1 / 3)
