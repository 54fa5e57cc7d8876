"""The packed two-layer tanh network against autograd, against Opacus, and against its own promises."""

import json
import math

import pytest
import torch
from conftest import ROOT, compose_config, make_run, make_task
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer

from dpexp import grid
from dpexp.algorithms.dpsgd import Plan, step
from dpexp.grid import Program
from dpexp.heads import HEADS, Batch, Sizes, Workspace
from dpexp.opacus_engine import make_private, train_with_opacus
from dpexp.sampling import torch_generator
from dpexp.train import Data, initial_weights, train

MLP = HEADS["mlp_tanh"]
DOUBLE = torch.float64
INPUTS, HIDDEN, CLASSES = 5, 7, 4


def sizes_of(bias):
    return Sizes(inputs=INPUTS, classes=CLASSES, bias=bias, hidden=HIDDEN)


def random_weights(runs, bias, seed=0, scale=1.0):
    draws = torch.Generator().manual_seed(seed)
    return tuple(
        scale * torch.randn(runs, *shape, generator=draws, dtype=DOUBLE) for shape in MLP.shapes(sizes_of(bias))
    )


def random_batch(size, bias, seed=1, scale=1.0):
    draws = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(size, INPUTS, generator=draws, dtype=DOUBLE)
    if bias:
        x[:, -1] = 1
    return Batch(x=x, y=torch.arange(size) % CLASSES, norm=torch.linalg.vector_norm(x, dim=1))


def network(weights, x):
    """The textbook network; x holds the first layer's 1."""
    first, second, *bias = weights
    logits = torch.tanh(x @ first.T) @ second.T
    return logits + bias[0] if bias else logits


def one_by_one(weights, batch, clip_norm):
    """Clipped sums from autograd, one run and one sample at a time: the definition."""
    totals = tuple(torch.zeros_like(w) for w in weights)
    for run in range(len(clip_norm)):
        for x, y in zip(batch.x, batch.y, strict=True):
            own = [w[run].clone().requires_grad_() for w in weights]
            torch.nn.functional.cross_entropy(network(own, x)[None], y[None]).backward()
            norm = math.sqrt(sum(float(p.grad.square().sum()) for p in own))
            for total, p in zip(totals, own, strict=True):
                total[run] += p.grad * min(1.0, float(clip_norm[run]) / norm)
    return totals


def clipped_sum(weights, batch, clip_norm, space=None):
    return MLP.clipped_sum(weights, batch, torch.as_tensor(clip_norm, dtype=DOUBLE), space or Workspace())


@pytest.mark.parametrize("bias", [True, False])
def test_clipped_sums_equal_autograd_one_sample_at_a_time(bias):
    weights, batch, clip_norm = random_weights(3, bias), random_batch(9, bias), [0.5, 2.5, math.inf]
    total = clipped_sum(weights, batch, clip_norm)
    assert len(total.gradient) == (3 if bias else 2)
    for ours, theirs in zip(total.gradient, one_by_one(weights, batch, clip_norm), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert total.clipped[2] == 0
    assert 0 < total.clipped[1] < total.clipped[0]


def test_loss_is_the_summed_cross_entropy():
    weights, batch = random_weights(2, True), random_batch(6, True)
    losses = [
        torch.nn.functional.cross_entropy(network([w[k] for w in weights], batch.x), batch.y, reduction="sum")
        for k in range(2)
    ]
    assert torch.allclose(clipped_sum(weights, batch, [1.0, 1.0]).loss, torch.stack(losses))


@pytest.mark.parametrize("bias", [True, False])
def test_logits_are_the_networks(bias):
    weights, batch = random_weights(2, bias), random_batch(6, bias)
    for k in range(2):
        expected = network([w[k] for w in weights], batch.x).T
        assert torch.allclose(MLP.logits(weights, batch.x)[k], expected)


def test_one_sample_moves_the_sum_by_at_most_the_clip_norm():
    weights, batch, space = random_weights(1, True, scale=3.0), random_batch(20, True, scale=10.0), Workspace()
    whole = [g.clone() for g in clipped_sum(weights, batch, [0.7], space).gradient]
    moved = []
    for left_out in range(20):
        keep = torch.arange(20) != left_out
        rest = Batch(x=batch.x[keep], y=batch.y[keep], norm=batch.norm[keep])
        less = clipped_sum(weights, rest, [0.7], space).gradient
        moved.append(math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(whole, less, strict=True))))
    assert max(moved) <= 0.7 * (1 + 1e-12)
    assert max(moved) > 0.69  # otherwise nothing was clipped and the bound not tried


def test_a_sample_without_a_gradient_is_not_clipped_and_adds_nothing():
    # With zero inputs, no bias and zero weights, h = 0 and both layers' gradients vanish.
    weights = tuple(torch.zeros(1, *shape, dtype=DOUBLE) for shape in MLP.shapes(sizes_of(False)))
    batch = Batch(x=torch.zeros(2, INPUTS, dtype=DOUBLE), y=torch.tensor([0, 1]), norm=torch.zeros(2, dtype=DOUBLE))
    total = clipped_sum(weights, batch, [0.1])
    assert all(not g.any() for g in total.gradient)
    assert total.clipped.item() == 0


def test_an_empty_batch_has_a_zero_sum():
    empty = Batch(x=torch.zeros(0, INPUTS, dtype=DOUBLE), y=torch.zeros(0, dtype=torch.int64), norm=torch.zeros(0))
    total = clipped_sum(random_weights(2, True), empty, [1.0, 1.0])
    assert all(not g.any() for g in total.gradient)
    assert not total.loss.any()


class GivenNoise(DPOptimizer):
    """Opacus' optimizer with its noise replaced by given unit draws, one for each parameter."""

    units = ()

    def add_noise(self):
        for p, unit in zip(self.params, self.units, strict=True):
            p.grad = p.summed_grad + self.noise_multiplier * self.max_grad_norm * unit


@pytest.mark.parametrize("clip_norm", [0.2, 2.0, 50.0])
def test_the_packed_step_equals_opacus_on_the_same_batches_and_noise(clip_norm):
    draws = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=draws, dtype=DOUBLE)  # noqa: E731
    sigma, rate, expected = 1.3, 0.4, 6
    weights = random_weights(3, True)
    module = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN, bias=False), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, CLASSES)
    ).double()
    with torch.no_grad():
        for parameter, w in zip(module.parameters(), weights, strict=True):
            parameter.copy_(w[1])
    wrapped = GradSampleModule(module)
    optimizer = GivenNoise(
        torch.optim.SGD(wrapped.parameters(), lr=rate),
        noise_multiplier=sigma,
        max_grad_norm=clip_norm,
        expected_batch_size=expected,
    )
    as_tensor = lambda values: torch.tensor(values, dtype=DOUBLE)  # noqa: E731
    plan = Plan(
        head=MLP,
        clip_norm=as_tensor([1.0, clip_norm, 0.1]),
        noise_std=as_tensor([2.0, sigma * clip_norm, 0.3]),
        learning_rate=as_tensor([rate / 7, rate, 2 * rate]),
        expected_batch_size=expected,
    )
    space = Workspace()
    for size in (7, 5, 1, 9, 6):
        x, y = normal(size, INPUTS), torch.randint(CLASSES, (size,), generator=draws)
        units = tuple(normal(*w.shape) for w in weights)
        step(weights, Batch(x=x, y=y, norm=x.norm(dim=1)), units, plan, space)
        optimizer.units = [unit[1] for unit in units]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(wrapped(x), y).backward()
        optimizer.step()
    for ours, theirs in zip(weights, module.parameters(), strict=True):
        # Opacus clips to C / (norm + 1e-6), the paper to C / norm: a relative difference of about 1e-6.
        assert torch.allclose(ours[1], theirs.detach(), rtol=0, atol=2e-5 * clip_norm)


def mlp_runs(task, **changes):
    changes = {"model": "mlp_tanh", "hidden": 8} | changes
    return tuple(make_run(task, clip_norm=c, learning_rate=lr, **changes) for c in (0.3, 2.0) for lr in (0.1, 1.0))


def test_a_run_alone_and_packed_agree(task):
    runs, data = mlp_runs(task), Data.of(task, True, "cpu", DOUBLE)
    packed = train(Program(runs=runs), data)
    for together in packed:
        (alone,) = train(Program(runs=(together.run,)), data)
        for one, other in zip(alone.weights, together.weights, strict=True):
            assert torch.allclose(one, other, rtol=0, atol=1e-12)


class Killed(Exception):
    pass


def test_a_resumed_program_gives_identical_weights_and_history(task, tmp_path, monkeypatch):
    monkeypatch.setattr("dpexp.train.CHECKPOINT_SECONDS", 0.0)
    program, data, epochs = Program(runs=mlp_runs(task, steps=40)), Data.of(task, True, "cpu"), []
    whole = train(program, data)

    def die(run_steps):
        epochs.append(run_steps)
        if len(epochs) == 3:
            raise Killed

    with pytest.raises(Killed):
        train(program, data, checkpoint=tmp_path / "p.pt", on_epoch=die)
    resumed = train(program, data, checkpoint=tmp_path / "p.pt")
    for one, other in zip(whole, resumed, strict=True):
        assert one.weights_sha256 == other.weights_sha256
        assert one.history == other.history


def test_all_runs_of_a_seed_start_alike_and_other_seeds_elsewhere(task):
    data = Data.of(task, True, "cpu")
    first, again = (initial_weights(run, data) for run in mlp_runs(task)[:2])
    other = initial_weights(mlp_runs(task, seed=1)[0], data)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_first_weights_are_torchs_default_for_linear():
    # Linear(400, 300) and Linear(300, 200): uniform within 1 / sqrt(inputs), standard deviation bound / sqrt(3).
    sizes = Sizes(inputs=401, classes=200, bias=True, hidden=300)
    first, second, bias = MLP.init(sizes, torch_generator(torch.device("cpu"), 0, "init"))
    layer = torch.nn.Linear(400, 300)
    assert first.shape == (300, 401)
    for ours, fan in ((first[:, :-1], 400), (first[:, -1], 400), (second, 300), (bias, 300)):
        bound = 1 / math.sqrt(fan)
        assert 0.9 * bound < float(ours.abs().max()) <= bound
        assert float(ours.std()) == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert float(layer.weight.detach().abs().max()) == pytest.approx(1 / math.sqrt(400), rel=0.01)


def test_the_width_is_part_of_an_mlps_identity_and_of_no_softmax_runs(task):
    assert (
        make_run(task).run_id == "354cd99ab572e710"
    )  # a change of it would orphan every stored result: raise GENERATION and say why
    narrow, wide = (make_run(task, model="mlp_tanh", hidden=width) for width in (8, 9))
    assert len({make_run(task).run_id, narrow.run_id, wide.run_id}) == 3


def test_stored_softmax_runs_are_found_again_by_their_identity():
    folder = ROOT / "outputs" / "results" / "clipnorm"
    for path in sorted(folder.glob("*.jsonl")):
        r = json.loads(path.read_text().splitlines()[0])
        names = ("n", "expected_batch_size", "steps", "clip_norm", "noise_multiplier")
        mechanism = {name: float(v) if (v := r["mechanism"][name]) == "inf" else v for name in names}
        own = {name: r[name] for name in ("method", "features", "learning_rate", "seed", "noise", "engine")}
        assert make_run(make_task(), **own, **mechanism, validation_fraction=0.0).run_id == r["run_id"]


def test_runs_of_different_widths_share_no_program(task):
    runs = [make_run(task, model="mlp_tanh", hidden=width) for width in (8, 9)]
    assert len(grid.pack(runs, 10)) == 2


def test_opacus_trains_the_same_network_from_the_same_start(task):
    run = make_run(task, model="mlp_tanh", hidden=8, engine="opacus", noise_multiplier=0.3, clip_norm=5.0, steps=60)
    data = Data.of(task, True, "cpu")
    start = initial_weights(run, data)
    for ours, theirs in zip(start, make_private(run, data).weights, strict=True):
        assert torch.equal(ours, theirs.detach())
    packed = train(Program(runs=(run,)), data)[0].history["test_accuracy"][-1]
    opacus = train_with_opacus(Program(runs=(run,)), data)[0].history["test_accuracy"][-1]
    assert min(packed, opacus) > 0.8
    assert abs(packed - opacus) < 0.15


def test_a_large_head_gets_fewer_runs_per_program_and_a_small_one_all():
    task = make_task()
    small = compose_config("train.batch_size=24")
    assert grid.runs_per_program(small, task) == small.compute.runs_per_program
    wide = compose_config("train.batch_size=24", "model=mlp_tanh", "model.hidden=4096")
    held = grid.runs_per_program(wide, task)
    assert 1 <= held < 112
    # Three copies of the weights and three values per example and unit, in four bytes each.
    one = 4 * (3 * (4096 * 7 + 3 * 4097) + 2000 * 3 * (4096 + 3))
    assert held * one <= 512 * 2**20 < (held + 1) * one


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model=mlp_tanh", "model.hidden=0"], "model.hidden must be a whole number >= 1, got 0"),
        (["model=softmax", "model.hidden=9"], "model.hidden must be null"),
        (["model=mlp_tanh", "dp.clip_percentile=[0]"], "give fixed dp.clip_norm instead"),
        (["model.name=mlp"], "model.name must be one of softmax, mlp_tanh"),
    ],
)
def test_a_model_setting_that_means_nothing_is_refused(overrides, message):
    from dpexp.config import ConfigError

    with pytest.raises(ConfigError, match=message):
        compose_config(*overrides)
