"""Where all randomness comes from: one stream per purpose, each keyed by what it is for.

No stream is ever shared or advanced by another one, so a run's random numbers do not depend on what runs beside it,
in which order, or from which epoch it was resumed.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from dpexp.mechanism import Mechanism

TAIL = 5.0  # standard deviations


def seed_sequence(*key: str | int) -> np.random.SeedSequence:
    """A 256-bit seed that depends on the key alone."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in key)
    return np.random.SeedSequence(int.from_bytes(hashlib.sha256(text.encode()).digest()))


def generator(*key: str | int) -> np.random.Generator:
    """A numpy generator for one purpose, for example `generator(seed, "batches", step)`."""
    return np.random.Generator(np.random.PCG64(seed_sequence(*key)))


def torch_generator(device: torch.device, *key: str | int) -> torch.Generator:
    """A torch generator for one purpose.

    On the CPU torch's Mersenne Twister keeps 32 bits of a manual seed, so that two of 100,000 streams would collide
    and two models would share their noise. Its whole state is therefore filled from the seed sequence, by numpy's own
    seeding of the same generator (a test compares the two streams). CUDA's Philox takes 64 bits of key.
    """
    made = torch.Generator(device)
    sequence = seed_sequence(*key)
    if device.type != "cpu":
        return made.manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1)))
    state = made.manual_seed(0).get_state()
    twister = np.random.MT19937(sequence).state["state"]
    # torch's layout: initial seed (8 bytes), words left + 1 (4), seeded (4), next word (8), 624 words as uint64.
    state[8:12] = torch.from_numpy(np.array([625 - twister["pos"]], np.int32).view(np.uint8))
    state[16:24] = torch.from_numpy(np.array([twister["pos"]], np.uint64).view(np.uint8))
    state[24 : 24 + 8 * 624] = torch.from_numpy(twister["key"].astype(np.uint64).view(np.uint8))
    return made.set_state(state)


def poisson_batch(mechanism: Mechanism, seed: int, step: int) -> np.ndarray:
    """Indices of one Poisson batch: each of the n examples is in it with probability q, independently.

    Drawn as a Binomial(n, q) size and then a uniform subset of that size, which is the same distribution at a cost of
    q*n instead of n draws. May be empty. Returns int64 [batch], sorted.
    """
    draws = generator(seed, "batches", step)
    size = draws.binomial(mechanism.n, mechanism.sample_rate)
    return np.sort(draws.choice(mechanism.n, size=size, replace=False, shuffle=False))


class Noise:
    """Standard normal tensors for the runs of a program, one stream per run (or one for all).

    keys: one per run; shared_key: if given, one stream serves every run (common random numbers).
    shapes: the parameter shapes of one run.
    """

    def __init__(
        self,
        keys: Sequence[str],
        shapes: Sequence[tuple[int, ...]],
        like: Tensor,
        shared_key: str | None = None,
    ) -> None:
        self._keys = [shared_key] if shared_key is not None else list(keys)
        self._unit = tuple(like.new_empty(len(self._keys), *shape) for shape in shapes)
        self._slots = [tuple(part[k] for part in self._unit) for k in range(len(self._keys))]
        self._streams: list[torch.Generator] = []
        self._tails: list[list[np.random.Generator]] = []
        self._mends = like.device.type == "cpu" and like.dtype == torch.float32  # doubles and Philox reach further

    def start_epoch(self, epoch: int) -> None:
        """Key every stream by (run, epoch), so that a resumed program continues with the same numbers."""
        self._streams = [torch_generator(self._unit[0].device, key, "noise", epoch) for key in self._keys]
        numbers = range(len(self._unit))
        self._tails = [[generator(key, "tail", epoch, number) for number in numbers] for key in self._keys]

    def draw(self) -> tuple[Tensor, ...]:
        """Fresh unit noise [runs or 1, *shape] for each parameter, valid until the next draw."""
        for slots, stream in zip(self._slots, self._streams, strict=True):
            for slot in slots:
                slot.normal_(generator=stream)
        if self._mends:
            for number, part in enumerate(self._unit):
                self._mend(number, part.view(len(self._keys), -1))
        return self._unit

    def _mend(self, number: int, part: Tensor) -> None:
        """Draw anew, from the normal's exact tail, what lies beyond TAIL; the sign stays.

        torch turns 24-bit uniform numbers into single-precision normals, so on a CPU none of them lies beyond
        sqrt(-2 ln 2^-24) = 5.77. Where one example moves one weight alone, the missing mass would cost more than
        delta. Below TAIL the 24 bits are fine enough: there are 2^24 exp(-TAIL^2 / 2) = 62 steps beyond it.
        """
        lowest, highest = torch.aminmax(part, dim=1)
        for run in (torch.maximum(-lowest, highest) > TAIL).nonzero()[:, 0].tolist():
            beyond = (part[run].abs() > TAIL).nonzero()[:, 0]
            uniform = 1.0 - self._tails[run][number].random(len(beyond))  # in (0, 1]
            size = torch.from_numpy(-ndtri(uniform * ndtr(-TAIL))).to(part.dtype)
            part[run, beyond] = torch.copysign(size, part[run, beyond])
