import math

import pytest
from conftest import compose_config
from hydra.errors import ConfigCompositionException, MissingConfigException

from dpexp import comparison
from dpexp.config import Config, ConfigError, check_keys

INFINITE = ["dp.target_epsilon=null", "dp.noise_multiplier=0"]


def test_the_papers_grid_has_1008_private_runs():
    config = compose_config("+sweep=clipnorm")
    clip_norms = len(config.dp.clip_norm) + len(config.dp.clip_percentile)
    private = clip_norms * len(config.train.learning_rate) * len(config.dp.target_epsilon) * len(config.seeds)
    assert private == 7 * 16 * 3 * 3 == 1008
    assert config.train.epochs == {2.0: 10, 4.0: 30, 6.0: 30}
    assert (config.train.batch_size, config.dp.delta, config.dp.accountant) == (500, 1e-5, "rdp")


def test_each_data_set_brings_the_fixed_clip_norms_that_the_paper_prints():
    reference = comparison.read_reference()
    softmax = reference[(reference.method == "dpsgd") & (reference.model == "softmax") & reference.percentile.isna()]
    for dataset, rows in softmax.groupby("dataset"):
        config = compose_config("+sweep=clipnorm", f"dataset={dataset}")
        assert sorted(config.dp.clip_norm) == sorted(set(rows.clip_norm)), dataset


def test_a_sweep_can_be_overridden_on_the_command_line():
    config = compose_config("+sweep=clipnorm", "seeds=7", "train.epochs=5", "dp.clip_norm=0.5", "dp.target_epsilon=3")
    assert config.seeds == (7,)
    assert config.dp.clip_norm == (0.5,)
    assert config.train.epochs_for(3.0) == 5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dp.clip_norm=nan", "dp.clip_norm must be a finite number > 0, got nan"),
        ("dp.clip_norm=0", "dp.clip_norm must be a finite number > 0, got 0"),
        ("dp.clip_norm=-1", "dp.clip_norm must be a finite number > 0, got -1"),
        ("dp.clip_norm=[1,nan]", "dp.clip_norm must be a finite number > 0, got nan"),
        ("dp.clip_norm=inf", "inf needs dp.noise_multiplier=0"),
        ("dp.clip_norm=[]", "at least one of dp.clip_norm, dp.clip_percentile and dp.private_clip.modes"),
        ("dp.clip_percentile=-1", "dp.clip_percentile must be between 0 and 100, got -1"),
        ("dp.clip_percentile=101", "dp.clip_percentile must be between 0 and 100, got 101"),
        ("dp.target_epsilon=0", "dp.target_epsilon must be a finite number > 0, got 0"),
        ("dp.target_epsilon=-1", "dp.target_epsilon must be a finite number > 0, got -1"),
        ("dp.target_epsilon=nan", "dp.target_epsilon must be a finite number > 0, got nan"),
        ("dp.target_epsilon=null", "exactly one of dp.target_epsilon and dp.noise_multiplier"),
        ("dp.noise_multiplier=1", "exactly one of dp.target_epsilon and dp.noise_multiplier"),
        ("dp.delta=0", "dp.delta must be between 0 and 1, both excluded, got 0"),
        ("dp.delta=1.5", "dp.delta must be between 0 and 1, both excluded, got 1.5"),
        ("dp.accountant=gdp", "dp.accountant must be one of rdp, prv, pld; got 'gdp'"),
        ("train.epochs=0", "train.epochs must be a whole number >= 1, got 0"),
        ("train.epochs=2.5", "train.epochs must be a whole number >= 1, got 2.5"),
        ("train.epochs=null", "exactly one of train.epochs and train.steps"),
        ("train.steps=10", "exactly one of train.epochs and train.steps"),
        ("train.epochs={2:10}", "train.epochs has no entry for target epsilon 3"),
        ("train.batch_size=0", "train.batch_size must be a whole number >= 1, got 0"),
        ("train.learning_rate=0", "train.learning_rate must be a finite number > 0, got 0"),
        ("train.learning_rate=[]", "train.learning_rate must name at least one"),
        ("train.validation_fraction=1", "train.validation_fraction must be between 0 and 1"),
        ("seeds=1.5", "seeds must be a whole number >= 0, got 1.5"),
        ("seeds=-1", "seeds must be a whole number >= 0, got -1"),
        ("seeds=007x", "seeds must be a whole number >= 0, got '007x'"),
        ("seeds=[]", "seeds must name at least one"),
        ("name=''", "name must be 1 to 100 letters"),
        ("name=..", "got '..'"),
        ("name=a/b", "because it names files; got 'a/b'"),
        (f"name={'a' * 300}", "name must be 1 to 100 letters"),
        ("noise=Shared", "did you mean shared?"),
        ("engine=opacuss", "did you mean opacus?"),
        ("select_on=train", "select_on must be one of test, validation"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name_before_any_data_is_loaded(override, message):
    with pytest.raises(ConfigError) as raised:
        compose_config(override)
    assert message in str(raised.value)


def test_noise_multiplier_zero_allows_no_clipping_and_a_negative_one_is_refused():
    assert compose_config(*INFINITE, "dp.clip_norm=inf").dp.clip_norm == (math.inf,)
    with pytest.raises(ConfigError, match="dp.noise_multiplier must be a finite number >= 0, got -1"):
        compose_config("dp.target_epsilon=null", "dp.noise_multiplier=-1")


def test_seed_zero_is_a_seed_and_duplicates_are_one():
    assert compose_config("seeds=[0,1,1,0]").seeds == (0, 1)
    assert compose_config("dp.clip_norm=[1,1.0]").dp.clip_norm == (1.0,)


@pytest.mark.parametrize(
    "override", ["dp.delta=abc", "train.batch_size=1.5", "train.non_private=maybe", "dp.cip_norm=1"]
)
def test_hydra_refuses_values_of_another_type_and_unknown_keys(override):
    with pytest.raises(ConfigCompositionException):
        compose_config(override)


def test_an_unknown_group_choice_lists_the_known_ones():
    with pytest.raises(MissingConfigException, match="fashion_mnist"):
        compose_config("dataset=nope")


@pytest.mark.parametrize(
    ("override", "suggestion"),
    [
        ("dp.cip_norm=1", "dp.clip_norm"),
        ("train.epoch=3", "train.epochs"),
        ("sweep=clipnorm", r"\+sweep"),
        ("seed=1", "seeds"),
        ("selective.recipes.dpsgd.batchsize=1", "selective.recipes.dpsgd.batch_size"),
    ],
)
def test_a_misspelt_key_gets_the_closest_known_one(override, suggestion):
    with pytest.raises(ConfigError, match=f"did you mean {suggestion}"):
        check_keys([override])


def test_a_key_that_is_like_no_other_gets_a_short_hint():
    with pytest.raises(ConfigError, match="zzz is not a key of the configuration; --cfg job prints all of them$"):
        check_keys(["zzz=1"])


def test_known_keys_and_hydras_own_pass():
    check_keys(
        ["+sweep=clipnorm", "dp.clip_norm=1", "dataset=fashion_mnist", "hydra.verbose=true", "-m", "~dp", "++a.b=1"]
    )
    check_keys(["recipe=mnist"])
    check_keys(["selective.recipes.dpsur.learning_rate=1", "selective.recipes.dpsgd.extractor.batch_size=8"])


def test_the_study_name_tells_apart_what_must_not_share_a_folder():
    names = {
        compose_config("+sweep=clipnorm", *more).study
        for more in ([], ["select_on=validation"], ["noise=shared"], ["engine=opacus"])
    }
    assert names == {"clipnorm", "clipnorm-validation", "clipnorm-shared_noise", "clipnorm-opacus"}


def test_the_schema_has_a_yaml_default_for_every_key():
    config = compose_config()
    assert isinstance(config, Config)
    assert config.name == "run"


def test_the_study_of_epochs_has_a_results_folder_per_number_of_epochs() -> None:
    assert compose_config("+sweep=epochs", "train.epochs=20").study == "epochs_20"
