import pytest
from conftest import compose_config

from dpexp.config import ConfigError

STUDY = ("+sweep=selective", "dataset=mnist")


def test_the_settings_follow_the_data_set():
    sizes = {
        name: compose_config("+sweep=selective", f"dataset={name}").selective.recipes["dpsr_cg"].scaling_bound
        for name in ("mnist", "fashion_mnist", "cifar10", "imdb")
    }
    assert sizes == {"mnist": 8.0, "fashion_mnist": 6.0, "cifar10": 3.0, "imdb": 1.0}


def test_a_setting_may_be_a_table_by_target_epsilon():
    recipe = compose_config(*STUDY).selective.recipes["dpsr_cg"]
    assert [recipe.at("noise_multiplier", epsilon) for epsilon in (1.0, 2.0, 3.0)] == [2.5, 1.5, 1.35]
    with pytest.raises(ConfigError, match=r"noise_multiplier has no entry for dp.target_epsilon=4, only for 1, 2, 3"):
        recipe.at("noise_multiplier", 4.0)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("selective.methods=[dpsr_gc]", r"selective.methods must be one of .*; got 'dpsr_gc' \(did you mean dpsr_cg"),
        ("selective.budget_by=D", r"selective.budget_by must be one of paper, A, B, C; got 'D'"),
        ("selective.reference=public", r"selective.reference must be one of noisy, same_batch, raw"),
        ("selective.beta=nan", r"selective.beta must be a number \(inf and -inf included\), got nan"),
        ("selective.max_trials=0", r"selective.max_trials must be a whole number >= 1, got 0"),
        ("selective.recipes.dpsr_cg.clip_norm=0", r"recipes.dpsr_cg.clip_norm must be a finite number > 0, got 0"),
        ("selective.recipes.dpsr_cg.clip_norm=nan", r"recipes.dpsr_cg.clip_norm must be a finite number > 0, got nan"),
        ("selective.recipes.dpsr_cg.scaling_bound=20", r"saturation must be at least scaling_bound=20, got 11"),
        ("+selective.recipes.dpsr_cg.optimizer=adamw", r"optimizer must be one of sgd, adam; got 'adamw'"),
        ("+selective.recipes.dpsr_cg.clipnorm=1", r"recipes.dpsr_cg.clipnorm is not a setting; did you mean clip_norm"),
        ("selective.recipes.dpsgd.noise_multiplier=-1", r"dpsgd.noise_multiplier must be a finite number >= 0, got -1"),
        ("selective.recipes.dpsgd.extractor=raw", r"dpsgd.extractor must be a section such as .name: raw., got 'raw'"),
        ("selective.methods=[]", r"selective.methods must name at least one method, got none"),
        ("dp.target_epsilon=null dp.noise_multiplier=1", r"need dp.target_epsilon, got null.*selective.recipes"),
        ("selective.learning_rate=[0.1]", r"of its own, for example name=selective_rates"),
        ("recipe=custom", r"for which selective.recipes has no settings, and for no other.*recipe=mnist"),
        ("recipe=none", r"selective.methods names non_private, for which selective.recipes has no settings"),
    ],
)
def test_bad_settings_are_refused_with_key_rule_and_way_out(override, message):
    with pytest.raises(ConfigError, match=message):
        compose_config(*STUDY, *override.split())


def test_the_tables_find_a_study_of_any_name():
    names = ("try1", "selective_b", "selective")
    assert [compose_config(*STUDY, f"name={n}").study for n in names] == ["selective_try1", "selective_b", "selective"]
    assert compose_config("+sweep=clipnorm", "name=try1").study == "try1"


def test_own_data_take_the_recipe_of_another_data_set():
    config = compose_config("+sweep=selective", "dataset=custom", "recipe=mnist")
    assert config.selective.recipes["dpsgd"].net == "raw_cnn_28"
