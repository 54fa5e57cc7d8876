"""Clip norms chosen inside the budget: their cells, accounts, statements, records and rows of the table."""

import json
import math

import numpy as np
import pytest
from conftest import compose_config, make_features

from dpexp import accounting, aggregate, grid, lipschitz, private_clip, record, statement, tables
from dpexp.config import ConfigError
from dpexp.config_privacy import PrivateClipConfig
from dpexp.grid import Program
from dpexp.results import encode
from dpexp.train import Data, train

SMALL = [
    "+sweep=rnmm",
    "train.batch_size=24",
    "train.epochs={2:2,4:4}",
    "train.last_epochs=2",
    "train.learning_rate=[0.3,1]",
    "dp.target_epsilon=[2,4]",
    "seeds=[0,1,2]",
]
SETTINGS = PrivateClipConfig()


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """Context and runs of the small grid."""
    config = compose_config(*SMALL, f"output_dir={tmp_path_factory.mktemp('rnmm')}")
    task = grid.prepare(config, make_features())
    runs = grid.expand(config, task)
    return record.Context(config=config, task=task, candidates=len(runs)), runs


@pytest.fixture(scope="module")
def records(experiment):
    """Records of every run, as they are read back from disk."""
    context, runs = experiment
    data = Data.of(context.task, True, "cpu")
    outcomes = [o for program in grid.pack(runs, 100) for o in train(program, data)]
    return [json.loads(json.dumps(encode(record.build(outcome, context)))) for outcome in outcomes]


def constants_of(context):
    return lipschitz.constants(context.task.train.x, False)


def test_every_mode_and_seed_has_one_clip_norm_at_all_budgets_and_learning_rates(experiment):
    _, runs = experiment
    assert len(runs) == 2 * 2 * 2 * 3  # modes, budgets, learning rates, seeds
    assert len({run.run_id for run in runs}) == len(runs)
    norms = {(run.method, run.seed, run.mechanism.clip_norm) for run in runs}
    assert len(norms) == 2 * 3
    for method in ("rnmm_paper", "rnmm_sound"):
        assert len({norm for name, _, norm in norms if name == method}) == 3


def test_the_sound_choice_is_a_value_of_the_public_grid_and_the_papers_one_samples_own_constant(experiment):
    context, runs = experiment
    candidates = lipschitz.geometric_grid(SETTINGS.low, SETTINGS.high, SETTINGS.count)
    for run in runs:
        among = candidates if run.method == "rnmm_sound" else constants_of(context).numpy()
        assert np.isclose(among, run.mechanism.clip_norm, rtol=1e-5).any()


def test_a_draw_depends_on_the_seed_and_the_mode_alone(experiment):
    constants = constants_of(experiment[0])
    assert private_clip.draw("sound", constants, SETTINGS, 5) == private_clip.draw("sound", constants, SETTINGS, 5)
    assert len({private_clip.draw("sound", constants, SETTINGS, seed) for seed in range(8)}) > 4


def test_training_is_calibrated_to_what_the_choice_leaves_and_the_sound_total_meets_the_target(experiment):
    _, runs = experiment
    for run in runs:
        m = run.mechanism
        alone = accounting.account(m.sample_rate, m.noise_multiplier, m.steps, run.account.delta)
        assert 0.99 * (run.target_epsilon - 0.3) <= alone.epsilon <= run.target_epsilon - 0.3
        if run.method == "rnmm_sound":
            for name in ("epsilon", "epsilon_rdp", "epsilon_prv", "epsilon_pld"):
                assert getattr(run.account, name) == pytest.approx(getattr(alone, name) + 0.3, abs=1e-12)
            assert run.account.epsilon <= run.target_epsilon
        else:
            assert run.account.epsilon == run.account.epsilon_rdp == run.account.epsilon_pld == math.inf


def test_adding_a_pure_step_keeps_delta_and_unknown_epsilons():
    account = accounting.account(0.1, 1.0, 10, 1e-5)
    total = accounting.add_pure(account, 0.5, "a choice")
    assert (total.delta, total.steps) == (account.delta, account.steps)
    import dataclasses

    unknown = accounting.add_pure(dataclasses.replace(account, epsilon_prv=None), 0.5, "a choice")
    assert unknown.epsilon_prv is None
    with pytest.raises(ConfigError, match="epsilon must be a finite number > 0"):
        accounting.add_pure(account, 0.0, "nothing")


def statement_of(run):
    return statement.privacy_statement(
        run.mechanism, run.account, noise="independent", clip_percentile=None, select_on="test", candidates=1,
        choice=run.choice,
    )  # fmt: skip


def test_the_sound_statement_names_both_parts_and_their_sum(experiment):
    run = next(run for run in experiment[1] if run.method == "rnmm_sound" and run.target_epsilon == 2)
    said = statement_of(run)
    assert "basic composition" in said
    assert "(0.3, 0)-differentially private" in said
    assert f"({statement._epsilon(run.account.epsilon)}, 1e-05)-differentially private" in said
    assert "no privacy guarantee" not in said


def test_the_papers_statement_claims_nothing_and_says_why(experiment):
    run = next(run for run in experiment[1] if run.method == "rnmm_paper")
    said = statement_of(run)
    assert said.startswith("This run has no privacy guarantee")
    assert "own Lipschitz constant" in said
    assert "nominal" in said
    assert "differentially private" not in said


def test_records_say_how_the_clip_norm_was_chosen_and_where_such_choices_land(records, experiment):
    constants = constants_of(experiment[0])
    for r in records:
        chosen = r["private_clip"]
        assert chosen["settings"]["scale"] == 1.0
        assert chosen["landing"]["draws"] == 100
        draws = [private_clip.draw(chosen["mode"], constants, SETTINGS, seed) for seed in range(100)]
        below = sorted(lipschitz.percentile_of(constants, value) for value in draws)
        assert chosen["landing"]["at"]["0"] == pytest.approx(below[0], rel=1e-5)
        assert chosen["landing"]["at"]["100"] == pytest.approx(below[-1], rel=1e-5)
        share = sum(value == 0 for value in below) / 100
        assert chosen["landing"]["at_or_below_minimum"] == pytest.approx(share)


def test_seeds_with_different_clip_norms_are_one_cell(records):
    cells = aggregate.cells(aggregate.to_frame(records))
    assert len(cells) == 2 * 2  # modes, budgets
    assert set(cells["runs"]) == {3}
    for _, cell in cells.iterrows():
        norms = {r["mechanism"]["clip_norm"] for r in records if r["method"] == cell["method"]}
        assert min(norms) < cell["clip_norm"] < max(norms)


def test_the_papers_rows_take_the_papers_mode_and_the_sound_mode_stands_beside_them(records):
    as_if = [r | {"dataset": "cifar100", "extractor": "resnet18"} for r in records]
    table, shown = tables.build(as_if, "rnmm")
    rows = table[(table["table"] == 3) & (table["method"] == "rnmm") & (table["dataset"] == "cifar100")]
    cells = aggregate.cells(aggregate.to_frame(as_if)).set_index(["method", "target_epsilon"])
    for epsilon in (2.0, 4.0):
        (ours,) = rows[rows["epsilon"] == epsilon]["accuracy_mean"]
        assert ours == cells.loc[("rnmm_paper", epsilon), "accuracy_mean"]
    assert (table["method"] == "rnmm_sound").sum() == 2
    assert len(table[(table["table"] == 3) & (table["dataset"] == "food101")]) == 6  # what did not run is named
    text = tables.markdown(shown)
    assert "private minimum (proven), mean τ" in text
    assert "over 100 draws" in text
    assert "no guarantee" in text


def test_table_three_finds_the_best_of_the_clip_norm_study_beside_it(records, tmp_path):
    from dpexp import results

    results.append(tmp_path / "rnmm", "a", records)
    assert len(tables.stored(tmp_path / "rnmm")) == len(records)
    plain = [
        {name: value for name, value in r.items() if name != "private_clip"} | {"method": "dpsgd", "run_id": f"x{n}"}
        for n, r in enumerate(records)
        if r["method"] == "rnmm_paper"
    ]
    results.append(tmp_path / "clipnorm", "b", [*plain, plain[0] | {"dataset": "other", "run_id": "y"}])
    assert len(tables.stored(tmp_path / "rnmm")) == len(records) + len(plain)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dp.private_clip.modes=[papre]", "did you mean paper?"),
        ("dp.private_clip.epsilon=0", "dp.private_clip.epsilon must be a finite number > 0"),
        ("dp.private_clip.epsilon=2", "dp.target_epsilon=2 must exceed dp.private_clip.epsilon=2"),
        ("dp.private_clip.high=0.05", "dp.private_clip.high must be a finite number > low = 0.1"),
        ("dp.private_clip.count=1", "dp.private_clip.count must be a whole number >= 2"),
    ],
)
def test_a_setting_out_of_range_is_refused(override, message):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        compose_config("+sweep=rnmm", override)


def test_a_single_program_holds_seeds_of_one_kind_only(experiment):
    for program in grid.pack(experiment[1], 100):
        assert isinstance(program, Program)
        assert len({run.seed for run in program.runs}) == 1
