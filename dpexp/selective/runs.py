"""One run of the selective-release study: everything that can change its number, and labels."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from dpexp.algorithms import dpsr_cg, dpsur, scaling
from dpexp.algorithms.candidate import Plan
from dpexp.algorithms.optimizers import OPTIMIZERS
from dpexp.cache import digest
from dpexp.mechanism import Mechanism
from dpexp.nets import NETS, Net
from dpexp.selective.ledger import Release

GENERATION = 1  # raise when a change of the code changes the numbers that the same settings give
LABELS = ("target_epsilon", "delta", "budget_by", "budget_updates")  # what a run was planned for


@dataclass(frozen=True, kw_only=True)
class Run:
    """A method on a data set with one seed.

    mechanism.steps: planned accepted updates. max_trials: at most so many trials, fixed in advance. scaling: unscaled,
    clipped, scaled or scaled_as_published. test: DPSR-CG's, loss_test: DPSUR's; None where every update is released.
    The last four are labels: what the run was planned for. budget_updates: accepted updates that its budget allows,
    None without a budget; mechanism.steps are fewer where selective.max_accepted says so.
    """

    method: str
    variant: str
    features: str
    net: str
    activation: str
    normalisation: str
    statistics_noise: float
    optimizer: str
    learning_rate: float
    seed: int
    mechanism: Mechanism
    scaling: str
    scaling_bound: float
    test: dpsr_cg.Test | None
    loss_test: dpsur.LossTest | None
    validation_noise: float
    max_trials: int
    quality_rows: int
    target_epsilon: float | None
    delta: float
    budget_by: str
    budget_updates: int | None = None

    def __post_init__(self) -> None:
        loss = self.loss_test
        sized = loss is None or math.isclose(loss.std, 2 * loss.loss_bound * self.validation_noise)
        assert sized, "the noise of DPSUR's test is the one that is accounted"

    @property
    def as_published(self) -> bool:
        """Whether the run follows the published code where that differs from its paper."""
        return self.variant == "as_published"

    @property
    def capped(self) -> bool:
        """Whether the run stops before its budget is used up, by plan."""
        return self.budget_updates is not None and self.mechanism.steps < self.budget_updates

    @cached_property
    def run_id(self) -> str:
        """Hash of everything that can change the run's number."""
        return digest({k: v for k, v in asdict(self).items() if k not in LABELS} | {"selective": GENERATION})

    @property
    def name(self) -> str:
        """Method and variant as the configuration writes them."""
        return f"{self.method}_{self.variant}" if self.variant == "as_published" else self.method

    @cached_property
    def release(self) -> Release:
        """What its accounts need to know of the run."""
        m, published = self.mechanism, self.scaling == "scaled_as_published"
        return Release(
            published=self.as_published,
            sample_rate=m.sample_rate,
            noise_multiplier=m.noise_multiplier,
            coded_sensitivity=max(1.0, self.scaling_bound / m.clip_norm) if published else 1.0,
            test=self.test,
            loss_test=self.loss_test,
            validation_rate=self.loss_test.validation_batch / m.n if self.loss_test else 0.0,
            validation_noise=self.validation_noise,
            statistics_noise=self.statistics_noise if self.normalisation == "noisy_statistics" else None,
            delta=self.delta,
        )

    @cached_property
    def network(self) -> Net:
        """The network that is trained."""
        return NETS[self.net](self.activation)

    @property
    def plan(self) -> Plan:
        """The constants of an update."""
        clip, bound = self.mechanism.clip_norm, self.scaling_bound
        factors: dict[str, Callable[[Tensor], Tensor]] = {
            "unscaled": torch.ones_like,
            "clipped": partial(scaling.clipped, clip_norm=clip),
            "scaled": partial(scaling.scaled, clip_norm=clip, scaling_bound=bound),
            "scaled_as_published": partial(scaling.scaled_as_published, clip_norm=clip, scaling_bound=bound),
        }
        return Plan(
            net=self.network,
            factors=factors[self.scaling],
            noise_std=self.mechanism.noise_std,
            learning_rate=self.learning_rate,
            update=OPTIMIZERS[self.optimizer],
        )
