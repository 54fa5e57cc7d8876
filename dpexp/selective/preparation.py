"""Features -> the tensors that a run trains on, normalised once and shared by the runs that train on the same."""

import threading
from collections import OrderedDict

from dpexp.features import Features
from dpexp.features.normalise import normalise
from dpexp.sampling import generator
from dpexp.selective.runs import Run
from dpexp.selective.training import Data

KEPT = 3  # normalised copies in memory, 1.1 GB each for 70,000 scattering transforms of 28 x 28


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
        """Normalise the features of a run. The noise of noisy statistics follows from the seed."""
        found, net = self._features[run.features], run.network
        draws = generator(run.seed, "channel statistics", run.features)
        train, test = normalise(run.normalisation, found.train.x, found.test.x, run.statistics_noise, draws)
        train, test = train.to(self._device), test.to(self._device)
        return Data(
            x=train,
            y=found.train.y.to(self._device),
            test_x=test,
            test_y=found.test.y.to(self._device),
            first_gram=net.first_gram(train),
        )
