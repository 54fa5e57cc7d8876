"""What turns a batch of samples into feature vectors, and what an extractor must state about itself."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dpexp.config import ConfigError, ExtractorConfig
from dpexp.data.splits import Samples, Split

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_WEIGHTS = "0" * 64
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Prepared samples: tensors for the network, in the order of the rows; how many texts were cut."""

    inputs: dict[str, Tensor]
    truncated: int = 0


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A network (or none) ready to run.

    prepare: a split with few rows -> Batch, on the CPU in a loading thread. forward: inputs on the device -> [n, d].
    weights: sha256 of the weights. length: cost of a sample, where batches gain from being sorted by it.
    """

    prepare: Callable[[Split], Batch]
    forward: Callable[[dict[str, Tensor]], Tensor]
    weights: str = NO_WEIGHTS
    device: str = "cpu"
    length: Callable[[Any], int] | None = None


@dataclass(frozen=True, kw_only=True)
class Extractor:
    """An entry of the registry.

    version: to be raised when the same settings give other numbers. kinds: of samples that it takes.
    keys: settings that change its features. build: settings, device -> Encoder (fetches weights if it must).
    fit: instead of build, where the encoder is made from the training samples (never their labels): settings, samples.
    find_weights: sha256 of the weights if they are on this machine, else None; reads no network.
    """

    version: int
    kinds: tuple[str, ...]
    keys: tuple[str, ...]
    build: Callable[[ExtractorConfig, str], Encoder] | None = None
    fit: Callable[[ExtractorConfig, Samples], Encoder] | None = None
    find_weights: Callable[[ExtractorConfig], str | None]
    check: Callable[[ExtractorConfig], None] = lambda config: None

    def __post_init__(self) -> None:
        assert (self.build is None) != (self.fit is None), "an extractor is either built or fitted"


def frozen(model: nn.Module, config: ExtractorConfig, device: str) -> nn.Module:
    """A network in evaluation mode, without gradients, in the configured precision and fastest layout."""
    model = model.eval().requires_grad_(False).to(device=device, dtype=DTYPES[config.dtype])
    assert not any(module.training for module in model.modules())
    return model


@contextmanager
def matmul_precision(tf32: bool) -> "Iterator[None]":
    """TF32 on or off for matrix products and convolutions, restored afterwards."""
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = matmul.fp32_precision, conv.fp32_precision
    matmul.fp32_precision = conv.fp32_precision = "tf32" if tf32 else "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision, conv.fp32_precision = before


def channel_values(key: str, values: Any) -> tuple[float, float, float]:
    """Three numbers, one a channel."""
    numbers = [values] * 3 if isinstance(values, float | int) else values
    if not isinstance(numbers, Sequence) or len(numbers) != 3 or not all(isinstance(v, float | int) for v in numbers):
        raise ConfigError(f"{key} must be one number or three (red, green, blue), got {values!r}")
    return float(numbers[0]), float(numbers[1]), float(numbers[2])
