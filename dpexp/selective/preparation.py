"""Features -> the tensors that a run trains on, normalised once and shared by the runs that train on the same."""

import threading
from collections import OrderedDict

import torch
from torch import Tensor

from dpexp.features import Features, normalise
from dpexp.sampling import torch_generator
from dpexp.selective.runs import Run
from dpexp.selective.training import Data

KEPT = 3  # normalised copies in memory, 1.1 GB each for 70,000 scattering transforms of 28 x 28


def _normalised(run: Run, train: Tensor, test: Tensor, channels: int) -> tuple[Tensor, Tensor]:
    """Copies of both parts after the run's normalisation; the noise of noisy statistics follows from the seed."""
    if run.normalisation == "none":
        return train, test
    parts = train.clone(), test.clone()
    if run.normalisation == "noisy_statistics":
        draws = torch_generator(torch.device("cpu"), run.seed, "channel statistics", run.features)
        found = normalise.noisy_channel_statistics(parts[0], channels, run.statistics_noise, draws)
        for part in parts:
            normalise.standardise_(part, *found)
        return parts
    for part in parts:
        if run.normalisation == "group_norm_quartered":
            normalise.damp_wavelet_channels_(part, channels)
        normalise.group_norm_(part, channels)
    return parts


class Prepared:
    """Normalised data by content: at most KEPT copies, each made once even if several runs ask at the same time."""

    def __init__(self, features: dict[str, Features], device: str) -> None:
        self._features, self._device = features, device
        self._made: OrderedDict[tuple, Data] = OrderedDict()
        self._lock = threading.Lock()

    def features(self, run: Run) -> Features:
        """The features that a run trains on, before normalisation."""
        return self._features[run.features]

    def data(self, run: Run) -> Data:
        """The tensors that a run trains on."""
        noisy = run.normalisation == "noisy_statistics"
        key = (run.features, run.normalisation, run.net, *((run.statistics_noise, run.seed) if noisy else ()))
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(run)
                while len(self._made) > KEPT:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
            return self._made[key]

    def _make(self, run: Run) -> Data:
        """Normalise the features of a run and lay them out as its network reads them."""
        found, net = self._features[run.features], run.network
        train, test = _normalised(run, found.train.x, found.test.x, net.input_shape[0])
        train, test = (net.arranged(x.to(self._device)) for x in (train, test))
        return Data(
            x=train,
            y=found.train.y.to(self._device),
            test_x=test,
            test_y=found.test.y.to(self._device),
            first_gram=net.first_gram(train),
        )
