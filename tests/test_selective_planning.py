"""From a recipe to runs: budgets, effective batches, identities and refusals."""

import math
from dataclasses import replace

import pytest
import torch
from conftest import compose_config

from dpexp.config import ConfigError
from dpexp.features import Examples, Features
from dpexp.nets import NETS
from dpexp.selective import ledger
from dpexp.selective.ledger import acceptance
from dpexp.selective.planning import expand
from dpexp.selective.runs import LABELS

SIZE = {"mnist": 60_000, "fashion_mnist": 60_000, "imdb": 25_000}


def make_features(n, width, classes):
    """Features of these sizes that take no memory."""
    rows = Examples(x=torch.empty(1, 1).expand(n, width), y=torch.empty(1, dtype=torch.int64).expand(n))
    return Features(
        dataset="d", extractor="e", train=rows, test=rows, num_classes=classes, source="made here", digest=f"rows-{n}"
    )


def planned(data, methods, *overrides):
    listed = "[" + ",".join(methods) + "]"
    config = compose_config("+sweep=selective", f"dataset={data}", f"selective.methods={listed}", *overrides)
    nets = {method: NETS[config.selective.recipes[method].net]("tanh") for method in methods}
    sizes = {method: (math.prod(net.input_shape), net.classes) for method, net in nets.items()}
    return expand(config, {method: make_features(SIZE[data], *sizes[method]) for method in methods})


@pytest.mark.parametrize(
    ("data", "updates", "batches", "plain"),
    [
        ("mnist", (562, 1033, 1795), (916, 820, 791), (677, 1206, 1930)),
        ("fashion_mnist", (785, 1529, 1520), (1925, 1876, 1789), (784, 715, 1519)),
        ("imdb", (186, 311, 295), (916, 862, 791), (103, 310, 295)),
    ],
)
def test_the_recipes_plan_the_published_updates_at_the_effective_batch(data, updates, batches, plain):
    runs = planned(data, ["dpsgd", "dpsr_cg", "dpsr_cg_as_published"])
    for method, steps in (("dpsgd", plain), ("dpsr_cg", updates), ("dpsr_cg_as_published", updates)):
        of = [run for run in runs if run.name == method]
        assert tuple(run.mechanism.steps for run in of) == steps
        if method != "dpsgd":
            assert tuple(run.mechanism.expected_batch_size for run in of) == batches
    for run in runs:
        assert run.delta == 1e-5
        assert run.max_trials >= run.mechanism.steps
        assert ledger.cap_failure(run.release, run.mechanism.steps, run.max_trials) <= ledger.CAP_FAILURE


def test_sampler_noise_and_accountant_read_one_mechanism():
    for run in planned("imdb", ["dpsgd", "dpsr_cg", "dpsur"], "dp.target_epsilon=[3]"):
        m = run.mechanism
        assert run.release.sample_rate == m.sample_rate == m.expected_batch_size / SIZE["imdb"]
        assert run.release.noise_multiplier == m.noise_multiplier
        assert run.plan.noise_std == m.noise_std == m.noise_multiplier * m.clip_norm
        if run.test is not None:
            assert run.test.std == pytest.approx(4 * m.noise_multiplier * m.clip_norm)
            assert run.test.threshold == 3 * m.clip_norm
            assert run.test.clip_range == 2 * m.clip_norm
            assert m.expected_batch_size == 1024 // acceptance(run.test).inflation
        if run.loss_test is not None:
            assert run.loss_test.std == pytest.approx(2 * run.loss_test.loss_bound * run.validation_noise)
            assert run.release.validation_rate == run.loss_test.validation_batch / SIZE["imdb"]


def test_labels_are_no_part_of_a_runs_identity_and_all_else_is():
    (run,) = planned("imdb", ["dpsr_cg"], "dp.target_epsilon=[3]")
    relabelled = replace(run, target_epsilon=7.0, delta=1e-6, budget_by="C")
    assert relabelled.run_id == run.run_id
    assert set(LABELS) == {"target_epsilon", "delta", "budget_by", "budget_updates"}
    for change in (
        {"seed": 9},
        {"max_trials": run.max_trials + 1},
        {"mechanism": replace(run.mechanism, steps=run.mechanism.steps + 1)},
        {"test": replace(run.test, std=1.0)},
        {"variant": "as_published"},
        {"quality_rows": 5},
    ):
        assert replace(run, **change).run_id != run.run_id


def test_a_run_is_planned_by_the_account_that_is_chosen():
    steps = {
        by: planned("imdb", ["dpsr_cg"], "dp.target_epsilon=[3]", f"selective.budget_by={by}")[0].mechanism.steps
        for by in ("paper", "A", "B", "C")
    }
    assert steps["A"] > steps["B"] > steps["paper"]
    (by_trials,) = planned("imdb", ["dpsur"], "dp.target_epsilon=[3]", "selective.budget_by=C")
    assert by_trials.max_trials == by_trials.mechanism.steps
    for given, allowed in ((10**9, by_trials.max_trials), (20, 20)):
        chosen = ("selective.budget_by=C", f"selective.max_trials={given}")
        assert planned("imdb", ["dpsur"], "dp.target_epsilon=[3]", *chosen)[0].max_trials == allowed


@pytest.mark.parametrize(
    ("methods", "overrides", "message"),
    [
        (["dpsur"], ["selective.budget_by=A"], "budget_by=A has no account for dpsur; use budget_by=paper or C or"),
        (["dpsur"], ["selective.budget_by=B"], "budget_by=B has no account for dpsur; use budget_by=paper or C or"),
        (["dpsr_cg_as_published"], ["selective.budget_by=A"], "no account for dpsr_cg_as_published; use budget_by=p"),
        (["dpsr_cg_as_published"], ["selective.budget_by=C"], "no account for dpsr_cg_as_published; use budget_by=p"),
        (["dpsur_as_published"], ["selective.budget_by=C"], "no account for dpsur_as_published; use budget_by=paper"),
        (["dpsr_cg"], ["selective.budget_by=B", "selective.reference=raw"], "needs selective.reference=noisy or same"),
        (["dpsr_cg"], ["selective.budget_by=C", "selective.reference=raw"], "needs selective.reference=noisy or same"),
        (["dpsr_cg"], ["selective.beta=inf"], "accepted with probability 0, so no number of trials is enough: give"),
        (["dpsr_cg"], ["selective.beta=60"], "so no number of trials is enough: give selective.max_trials"),
        (["dpsr_cg"], ["selective.beta=1e9"], r"batch_size=1024 over rho = inf.* less beta"),
        (["dpsr_cg"], ["selective.recipes.dpsr_cg.noise_multiplier=0"], "allows dpsr_cg no update; raise it or"),
        (
            ["dpsr_cg"],
            ["selective.recipes.dpsr_cg.noise_multiplier=0", "selective.beta=1"],
            r"batch_size=1024 over rho = inf",
        ),
        (["dpsgd"], ["selective.recipes.dpsgd.noise_multiplier=0"], "allows dpsgd no update; raise it or"),
        (["dpsur"], ["selective.recipes.dpsur.validation_noise=0"], "no update; raise it or .*: .*validation_noise"),
        (["dpsgd"], ["selective.recipes.dpsgd.noise_multiplier=1e9"], "a billion updates and more; lower it or"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_the_way_out(methods, overrides, message):
    with pytest.raises(ConfigError, match=message):
        planned("imdb", methods, "dp.target_epsilon=[3]", *overrides)


def test_a_number_of_trials_lets_a_test_that_never_accepts_run():
    (run,) = planned("imdb", ["dpsr_cg"], "dp.target_epsilon=[3]", "selective.beta=inf", "selective.max_trials=50")
    assert run.max_trials == 50
    assert run.release.smallest_acceptance == 0


def test_budgets_whose_runs_a_cap_makes_one_are_refused():
    caps = ("selective.max_accepted=2", "selective.recipes.dpsgd.noise_multiplier=2")
    with pytest.raises(ConfigError, match=r"target_epsilon=1 and 2 plan the same run of dpsgd: 2 updates of at most 2"):
        planned("imdb", ["dpsgd"], *caps)


def test_a_cap_of_updates_is_one_of_trials_where_every_trial_is_accepted():
    (run,) = planned("imdb", ["dpsgd"], "dp.target_epsilon=[3]", "selective.max_accepted=2", "selective.max_trials=9")
    assert (run.mechanism.steps, run.max_trials, run.budget_updates, run.capped) == (2, 2, 295, True)
    (whole,) = planned("imdb", ["dpsgd"], "dp.target_epsilon=[3]", "selective.max_accepted=900")
    assert (whole.mechanism.steps, whole.max_trials, whole.capped) == (295, 295, False)


def test_fewer_updates_than_the_budget_allows_keep_the_budgets_trials():
    (run,) = planned("imdb", ["dpsr_cg"], "dp.target_epsilon=[3]", "selective.max_accepted=10")
    assert run.mechanism.steps == 10
    assert ledger.cap_failure(run.release, 10, run.max_trials) < 1e-9


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("selective.recipes.dpsgd.net=cnn", "net must be one of scatter_cnn_28, .*; got 'cnn'"),
        ("selective.recipes.dpsgd.net=rnn", "rnn takes 80 numbers and tells 2 classes apart, but d .e. has 784 and 10"),
    ],
)
def test_a_network_that_cannot_read_the_data_is_refused_before_training(override, message):
    config = compose_config("+sweep=selective", "dataset=mnist", "selective.methods=[dpsgd]", override)
    with pytest.raises(ConfigError, match=message):
        expand(config, {"dpsgd": make_features(60_000, 784, 10)})
