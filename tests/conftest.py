"""Small worlds that the tests share."""

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir

from dpexp import config as configuration
from dpexp.accounting import account
from dpexp.config import Config
from dpexp.features import Examples, Features
from dpexp.grid import Run, Task
from dpexp.mechanism import Mechanism

ROOT = Path(__file__).resolve().parent.parent
SMALL = [  # the clip-norm sweep on the small data set
    "+sweep=clipnorm",
    "train.batch_size=24",
    "train.epochs=4",
    "train.non_private_epochs=null",
    "train.last_epochs=2",
    "train.learning_rate=[0.1,1]",
    "dp.target_epsilon=[2,4]",
    "dp.clip_percentile=[0,100]",
    "seeds=[0,1]",
]


def compose_config(*overrides: str) -> Config:
    """The checked configuration that these command-line overrides give."""
    configuration.register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return configuration.load(compose("config", overrides=list(overrides)))


def make_examples(n: int, dimension: int, num_classes: int, seed: int, dtype=torch.float32) -> Examples:
    """Gaussian clouds, one a class, that a linear head can tell apart."""
    draws = torch.Generator().manual_seed(seed)
    centres = torch.randn(num_classes, dimension, generator=torch.Generator().manual_seed(1), dtype=dtype)
    y = torch.arange(n) % num_classes
    return Examples(x=centres[y] + 0.7 * torch.randn(n, dimension, generator=draws, dtype=dtype), y=y)


def make_features(n: int = 240, dimension: int = 6, num_classes: int = 3, dtype=torch.float32) -> Features:
    """A small data set with 60 test examples."""
    return Features(
        dataset="clouds",
        extractor="raw",
        train=make_examples(n, dimension, num_classes, seed=2, dtype=dtype),
        test=make_examples(60, dimension, num_classes, seed=3, dtype=dtype),
        num_classes=num_classes,
        source="made by the tests",
        digest=f"clouds-{n}-{dimension}-{num_classes}",
    )


def make_task(**sizes) -> Task:
    """The small data set as an experiment without a validation split uses it."""
    features = make_features(**sizes)
    return Task(features=features, train=features.train, validation=None)


def make_run(task: Task, **changes) -> Run:
    """A run on the small data set; any field of Run or of its Mechanism can be changed."""
    mechanism = {
        "n": len(task.train),
        "expected_batch_size": 24,
        "steps": 20,
        "clip_norm": 1.0,
        "noise_multiplier": 1.0,
    }
    mechanism |= {key: changes.pop(key) for key in list(changes) if key in mechanism}
    made = Mechanism(**mechanism)
    values = {
        "method": "dpsgd" if made.noise_multiplier else "non_private",
        "features": task.features.digest,
        "model": "softmax",
        "bias": True,
        "mechanism": made,
        "learning_rate": 0.5,
        "seed": 0,
        "noise": "independent" if made.noise_multiplier else "none",
        "engine": "packed",
        "validation_fraction": 0.0,
        "target_epsilon": None,
        "clip_percentile": None,
        "account": account(1.0, 0.0, 1, 1e-5),  # not looked at by tests of training
    }
    return Run(**values | changes)


@pytest.fixture
def task() -> Task:
    """The small data set."""
    return make_task()
