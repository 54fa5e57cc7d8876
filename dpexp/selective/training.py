"""The trial loop: propose an update, test it, release it or leave no trace of it."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpexp.algorithms import dpsr_cg, dpsur
from dpexp.algorithms.candidate import Batch, Candidate, propose
from dpexp.algorithms.optimizers import State
from dpexp.nets import Net, Params
from dpexp.sampling import Noise, generator, poisson_batch, torch_generator
from dpexp.selective.runs import Run
from dpexp.selective.walk import Walk, restore, save
from dpexp.train import CHECKPOINT_SECONDS, Interrupted

EVALUATION_ROWS = 1000


@dataclass(frozen=True, kw_only=True)
class Data:
    """Normalised features on the training device. first_gram: of the training rows, as Net.first_gram gives it."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    first_gram: Tensor | None

    def batch(self, rows: Tensor) -> Batch:
        """The training examples at these rows."""
        gram = None if self.first_gram is None else self.first_gram.index_select(0, rows)
        return Batch(x=self.x.index_select(0, rows), y=self.y.index_select(0, rows), first_gram=gram)


class Draws:
    """All random numbers of a run's trials, keyed by what they are for and by the number of the trial.

    Batches follow from the seed alone, so that runs of one seed share them; noise follows from `key`.
    """

    def __init__(self, run: Run, like: Tensor, key: str | None = None) -> None:
        self._run, self._key = run, key or run.run_id
        noisy = run.mechanism.noise_multiplier > 0
        self._noise = Noise([self._key], run.network.shapes(), like) if noisy else None

    def rows(self, trial: int) -> Tensor:
        """The Poisson sample of a trial."""
        return torch.from_numpy(poisson_batch(self._run.mechanism, self._run.seed, trial))

    def noise(self, trial: int) -> Params | None:
        """Unit normals shaped like the parameters, valid until the next call; None for a run without noise."""
        if self._noise is None:
            return None
        self._noise.start_epoch(trial)
        return tuple(part[0] for part in self._noise.draw())

    def normal(self, purpose: str, trial: int) -> float:
        """One unit normal."""
        return float(generator(self._key, purpose, trial).standard_normal())

    def validation_rows(self, trial: int, expected: float) -> Tensor:
        """DPSUR's own Poisson sample of the training set, independent of the one it trains on."""
        n = self._run.mechanism.n
        chosen = generator(self._run.seed, "validation batch", trial).random(n) < expected / n
        return torch.from_numpy(np.flatnonzero(chosen))

    def divisor(self, trial: int) -> float:
        """The public expected batch size; as published, the size of another Poisson sample."""
        mechanism = self._run.mechanism
        if not self._run.as_published:
            return mechanism.expected_batch_size
        drawn = generator(self._run.seed, "divisor", trial).binomial(mechanism.n, mechanism.sample_rate)
        return float(max(drawn, 1))


def evaluate(net: Net, params: Params, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Accuracy (fraction) and mean cross-entropy on examples x [n, d], y [n]."""
    correct = loss = 0.0
    for rows, labels in zip(x.split(EVALUATION_ROWS), y.split(EVALUATION_ROWS), strict=True):
        logits = net.logits(params, rows)
        correct += float((logits.argmax(dim=1) == labels).sum())
        loss += float((logits.logsumexp(dim=1) - logits.gather(1, labels[:, None])[:, 0]).double().sum())
    return correct / len(y), loss / len(y)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Everything a trial reads and nothing it keeps."""

    run: Run
    data: Data
    draws: Draws

    def trial(self, walk: Walk) -> None:
        """One trial: walk on, or stay where the last accepted update led."""
        run, number = self.run, walk.trials
        batch = self.data.batch(self.draws.rows(number).to(self.data.y.device))
        noise, divisor = self.draws.noise(number), self.draws.divisor(number)
        candidate = propose(walk.state, batch, noise, divisor, run.plan)
        accepted = self._decide(walk, batch, candidate, number)
        self._observe(walk, candidate)
        before = walk.state
        walk.trials += 1
        if not accepted and run.as_published and run.loss_test and not walk.accepted:
            walk.state = candidate.state  # as published: before the first acceptance nothing is restored
        else:
            walk.state = dpsr_cg.after(before, candidate, accepted, restore_optimizer=not run.as_published)
        if accepted:
            walk.previous = before.params
            walk.accepted += 1

    def _decide(self, walk: Walk, batch: Batch, candidate: Candidate, number: int) -> bool:
        """Whether the candidate is released; its test is logged."""
        if self.run.test is not None:
            return self._decide_by_metric(walk, batch, candidate, number, self.run.test)
        if self.run.loss_test is not None:
            return self._decide_by_loss(walk, candidate, number, self.run.loss_test)
        return True

    def _decide_by_metric(
        self, walk: Walk, batch: Batch, candidate: Candidate, number: int, test: dpsr_cg.Test
    ) -> bool:
        """DPSR-CG, Algorithm 2, lines on the metric."""
        metric, reference = test.metric(candidate.norm), walk.reference
        if test.reference == "same_batch" and walk.previous is not None:
            earlier = self.run.network.per_sample(walk.previous, batch.x, batch.y, batch.first_gram)
            reference = test.metric(earlier.norm)
        noisy = test.noisy_difference(reference, metric, self.draws.normal("test", number))
        accepted = test.passes(noisy)
        if self.run.as_published and walk.accepted < dpsr_cg.WARM_UP:
            accepted = True
        walk.note("log", metric=metric, reference=reference, noisy=noisy, accepted=accepted)
        if accepted and test.reference != "same_batch":
            walk.reference = test.next_reference(metric, self.draws.normal("reference", number))
        return accepted

    def _decide_by_loss(self, walk: Walk, candidate: Candidate, number: int, test: dpsur.LossTest) -> bool:
        """DPSUR, Algorithm 2, lines on the losses."""
        rows = self.draws.validation_rows(number, test.validation_batch).to(self.data.y.device)
        x, y, net = self.data.x[rows], self.data.y[rows], self.run.network
        after = dpsur.mean_loss(net, candidate.state.params, x, y)
        if test.stored_loss:
            before = dpsur.FIRST_LOSS if math.isinf(walk.reference) else walk.reference
        else:
            before = dpsur.mean_loss(net, walk.state.params, x, y)
        noisy = test.noisy_difference(before, after, self.draws.normal("test", number))
        accepted = test.passes(noisy)
        walk.note("log", metric=after, reference=before, noisy=noisy, accepted=accepted)
        if accepted:
            walk.reference = after
        return accepted

    def _observe(self, walk: Walk, candidate: Candidate) -> None:
        """Held-out loss before and after a candidate: for Figures 3 and 4 only, never for a decision."""
        if rows := self.run.quality_rows:
            x, y, net = self.data.test_x[:rows], self.data.test_y[:rows], self.run.network
            walk.note("log", loss_before=evaluate(net, walk.state.params, x, y)[1])
            walk.note("log", loss_after=evaluate(net, candidate.state.params, x, y)[1])

    def evaluate(self, walk: Walk) -> None:
        """Accuracy and loss of the released model on the test set."""
        accuracy, loss = evaluate(self.run.network, walk.state.params, self.data.test_x, self.data.test_y)
        walk.note("history", accepted=walk.accepted, trials=walk.trials, test_accuracy=accuracy, test_loss=loss)


def start(run: Run, like: Tensor) -> Walk:
    """A run before its first trial: the same first weights for all runs of a seed with the same network."""
    draws = torch_generator(torch.device("cpu"), run.seed, "init")
    return Walk(state=State(params=tuple(w.to(like) for w in run.network.init(draws))))


def _finished(run: Run, walk: Walk) -> bool:
    """Whether the budget is used up, in updates or in trials, or the run has diverged."""
    used = walk.accepted >= run.mechanism.steps
    return used or walk.trials >= run.max_trials


def train(  # noqa: PLR0913
    run: Run,
    data: Data,
    evaluations: int,
    *,
    checkpoint: Path | None = None,
    on_trial: Callable[[Walk], None] = lambda walk: None,
    stop: threading.Event | None = None,
) -> Walk:
    """Train one run to its planned number of accepted updates, or to its last allowed trial.

    checkpoint: where progress is saved and looked for. stop: when set, progress is saved and Interrupted is raised.
    """
    loop = Loop(run=run, data=data, draws=Draws(run, data.x))
    walk = restore(checkpoint, run.run_id) or start(run, data.x)
    marks = {math.ceil(k * run.mechanism.steps / evaluations) for k in range(1, evaluations + 1)}
    began = saved = time.monotonic()
    past = walk.seconds
    on_trial(walk)
    while not _finished(run, walk):
        known = walk.accepted
        loop.trial(walk)
        if walk.accepted > known and walk.accepted in marks:
            loop.evaluate(walk)
            if walk.diverged:
                break
        walk.seconds = past + time.monotonic() - began
        stopping = stop is not None and stop.is_set()
        if checkpoint is not None and (stopping or time.monotonic() - saved > CHECKPOINT_SECONDS):
            save(checkpoint, run.run_id, walk)
            saved = time.monotonic()
        on_trial(walk)
        if stopping:
            raise Interrupted
    if run.as_published and walk.accepted == run.mechanism.steps and not walk.diverged:
        loop.trial(walk)  # as published: the budget is looked at once too late
    if not walk.history or walk.history["trials"][-1] != walk.trials:
        loop.evaluate(walk)
    return walk
