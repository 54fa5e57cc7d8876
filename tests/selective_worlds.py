"""A small network and small data on which a whole selective-release run takes a fraction of a second."""

import math
from dataclasses import dataclass

import torch

from dpexp.algorithms import dpsr_cg, dpsur
from dpexp.mechanism import Mechanism
from dpexp.nets import NETS
from dpexp.selective.runs import Run
from dpexp.selective.training import Data

N, INPUTS, CLASSES = 200, 5, 3


@dataclass(frozen=True, kw_only=True)
class Seen:
    loss: torch.Tensor
    norm: torch.Tensor
    residual: torch.Tensor
    x: torch.Tensor

    def weighted_sum(self, factors):
        return ((self.residual * factors[:, None]).T @ self.x,)


class Linear:
    """Softmax regression without bias: the smallest thing with the interface of a network."""

    input_shape, classes = (INPUTS,), CLASSES

    def __init__(self, activation):
        pass

    def arranged(self, x):
        return x

    def shapes(self):
        return [(CLASSES, INPUTS)]

    def init(self, draws):
        return (torch.randn(CLASSES, INPUTS, generator=draws, dtype=torch.float64),)

    def logits(self, params, x):
        return x @ params[0].T

    def first_gram(self, x):
        return None

    def per_sample(self, params, x, y, first_gram=None):
        logits = self.logits(params, x)
        residual = logits.softmax(dim=1) - torch.nn.functional.one_hot(y, CLASSES)
        loss = torch.nn.functional.cross_entropy(logits, y, reduction="none")
        norm = residual.norm(dim=1) * x.norm(dim=1)
        return Seen(loss=loss, norm=norm, residual=residual, x=x)


NETS["linear_for_tests"] = Linear


def make_data(seed=0):
    draws = torch.Generator().manual_seed(seed)
    truth = torch.randn(INPUTS, CLASSES, generator=draws)
    x = torch.randn(N + 100, INPUTS, generator=draws)
    y = (x @ truth).argmax(dim=1)
    return Data(x=x[:N], y=y[:N], test_x=x[N:], test_y=y[N:], first_gram=None)


def make_mechanism(**changes):
    values = dict(n=N, expected_batch_size=40.0, steps=12, clip_norm=1.0, noise_multiplier=1.5)
    return Mechanism(**(values | changes))


def make_metric_test(**changes):
    values = dict(
        scaling_bound=0.5, saturation=4.0, metric_bound=1.0, clip_range=2.0, threshold=3.0, std=6.0, reference="noisy"
    )
    return dpsr_cg.Test(**(values | {"reference_std": 20.0} | changes))


def make_loss_test(**changes):
    values = dict(validation_batch=30, loss_bound=1e-3, threshold=-1e-3, std=2.6e-3, stored_loss=False)
    return dpsur.LossTest(**(values | changes))


def make_run(**changes):
    values = dict(
        method="dpsr_cg",
        variant="sound",
        features="f",
        net="linear_for_tests",
        activation="tanh",
        normalisation="none",
        statistics_noise=8.0,
        optimizer="sgd",
        learning_rate=0.5,
        seed=0,
        mechanism=make_mechanism(),
        scaling="scaled",
        scaling_bound=0.5,
        test=make_metric_test(),
        loss_test=None,
        validation_noise=1.3,
        max_trials=400,
        quality_rows=0,
        target_epsilon=1.0,
        delta=1e-5,
        budget_by="paper",
    )
    return Run(**(values | changes))


ACCEPT_ALL, REJECT_ALL = {"threshold": -math.inf}, {"threshold": math.inf}
