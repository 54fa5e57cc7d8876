"""The cost table counts what the grid holds, and the largest data set of paper L fits."""

import resource
from pathlib import Path

import pytest
from conftest import compose_config, make_features

from dpexp import grid

SCRIPTS = str(Path(__file__).resolve().parent.parent / "scripts")


@pytest.fixture
def costs(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(SCRIPTS)
    import costs

    return costs


def test_the_counted_runs_and_steps_are_those_of_the_grid(costs):
    changes = ["train.batch_size=24", "train.epochs={2: 1, 4: 2, 6: 3}", "train.last_epochs=1", "seeds=[0,1]"]
    config = compose_config("+sweep=clipnorm", *changes, "train.learning_rate=[0.1,1]", "dp.clip_percentile=[0,100]")
    features = make_features(n=240)
    runs = [run for run in grid.expand(config, grid.prepare(config, features)) if run.method == "dpsgd"]
    assert costs.sweep_size(config, 240) == (len(runs), sum(run.mechanism.steps for run in runs))


def test_a_slice_of_the_grid_at_caltechs_size_stays_within_memory(costs):
    shape = costs.SHAPES["caltech256"]
    assert (shape.d + 1, shape.K) == (513, 257)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert costs.measured_seconds(shape, compose_config("+sweep=clipnorm"), steps=1) > 0
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    assert grown < 3, f"{grown:.1f} GiB"
