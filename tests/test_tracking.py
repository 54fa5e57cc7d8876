import sys
import types

import pandas as pd
import pytest
from conftest import compose_config

from dpexp.config import ConfigError
from dpexp.tracking import Mirror


def record(run_id="a", epsilon=2.0, clip_norm=3.04):
    return {
        "run_id": run_id,
        "dataset": "fashion_mnist",
        "extractor": "raw",
        "method": "dpsgd",
        "mechanism": {"clip_norm": clip_norm},
        "learning_rate": 1.0,
        "seed": 0,
        "privacy": {"target_epsilon": epsilon, "epsilon": 1.99},
        "status": "done",
        "history": {"epoch": [1, 2], "test_accuracy": [0.5, 0.6]},
        "config": {},
    }


@pytest.fixture(autouse=True)
def _no_account(monkeypatch, tmp_path):
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))


@pytest.fixture
def fake(monkeypatch):
    """A stand-in for wandb that remembers what it was told."""
    started = []

    class Run:
        def __init__(self, **arguments):
            self.arguments, self.logged, self.summary, self.finished = arguments, [], {}, False
            started.append(self)

        def log(self, values, step=None):
            self.logged.append((step, values))

        def finish(self):
            self.finished = True

    module = types.SimpleNamespace(
        init=Run, Settings=lambda **_: None, Table=lambda dataframe: dataframe, started=started
    )
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def mirror(tmp_path, *overrides):
    return Mirror(compose_config("tracking=wandb", f"output_dir={tmp_path}", *overrides))


def test_each_record_is_a_run_of_its_own_with_group_type_name_and_curves(fake, tmp_path):
    mirror(tmp_path).send([record("a"), record("b", epsilon=None, clip_norm=float("inf"))])
    first, second = fake.started
    assert first.arguments["id"] == "a"
    assert first.arguments["group"] == "run"
    assert first.arguments["job_type"] == "dpsgd"
    assert first.arguments["name"] == "fashion_mnist-raw-dpsgd-eps2-clip3.04-lr1-s0"
    assert second.arguments["name"] == "fashion_mnist-raw-dpsgd-lr1-s0"
    assert [step for step, _ in first.logged] == [1, 2]
    assert first.logged[1][1]["test_accuracy"] == 0.6
    assert first.summary["epsilon"] == 1.99
    assert first.finished
    assert second.finished


def test_the_table_is_mirrored_without_not_a_numbers(fake, tmp_path):
    mirror(tmp_path).send_table(pd.DataFrame({"accuracy": [1.0, float("nan")]}))
    ((_, logged),) = fake.started[0].logged
    assert logged["table"]["accuracy"].tolist() == [1.0, None]


def test_without_tracking_the_tracker_is_not_even_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it would raise
    Mirror(compose_config()).send([record()])


def test_a_tracker_that_fails_warns_once_and_is_left_alone(fake, tmp_path, monkeypatch):
    def refuse(**_):
        raise OSError("no route")

    monkeypatch.setattr(fake, "init", refuse)
    sender = mirror(tmp_path)
    with pytest.warns(UserWarning, match="no route") as warned:
        sender.send([record("a"), record("b")])
    assert len(warned) == 1


def test_online_without_a_key_falls_back_to_offline_before_the_first_contact(fake, tmp_path):
    with pytest.warns(UserWarning, match="stored offline"):
        sender = mirror(tmp_path, "tracking.mode=online")
    sender.send([record()])
    assert fake.started[0].arguments["mode"] == "offline"


def test_the_environment_can_switch_tracking_off(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    mirror(tmp_path).send([record()])
    assert fake.started == []


def test_unknown_trackers_and_modes_are_named(tmp_path):
    with pytest.raises(ConfigError, match="tracking.name must be one of none, wandb"):
        Mirror(compose_config("tracking.name=mlflow"))
    with pytest.raises(ConfigError, match="tracking.mode must be one of"):
        mirror(tmp_path, "tracking.mode=sometimes")


def test_real_wandb_stores_runs_offline_without_an_account(tmp_path):
    pytest.importorskip("wandb")
    sender = mirror(tmp_path)
    sender.send([record("a"), record("b")])
    sender.send_table(pd.DataFrame({"accuracy": [1.0]}))
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 3
