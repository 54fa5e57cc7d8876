"""The values that loading a data set returns."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

IMAGES, TEXTS, FEATURES = "images", "texts", "features"


class DataError(ValueError):
    """A data file that is damaged or not what it should be. The message names the file."""


class MissingDataError(DataError):
    """Data that is not on this machine and was not, or could not be, downloaded."""


@dataclass(frozen=True, kw_only=True)
class ImageFile:
    """One encoded image: a path, or bytes together with the name that errors use."""

    name: str
    path: Path | None = None
    content: bytes | None = None

    def read(self) -> bytes:
        """The encoded bytes."""
        if self.content is not None:
            return self.content
        assert self.path is not None
        return self.path.read_bytes()


Samples = np.ndarray | Sequence[ImageFile] | Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Split:
    """Samples and labels in the same order.

    samples: uint8 images [n, height, width] or [n, height, width, 3]; or encoded images; or texts; or features [n, d].
    labels: int64 [n] in 0..num_classes-1.
    """

    samples: Samples
    labels: np.ndarray

    def __post_init__(self) -> None:
        assert len(self.samples) == len(self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> "Split":
        """The chosen rows, in the given order."""
        samples = self.samples
        chosen = samples[rows] if isinstance(samples, np.ndarray) else [samples[i] for i in rows]
        return Split(samples=chosen, labels=self.labels[rows])

    def identity(self) -> str:
        """Hex digest of all samples and labels: equal content gives equal identity wherever it is stored."""
        content = hashlib.sha256(np.ascontiguousarray(self.labels).tobytes())
        if isinstance(self.samples, np.ndarray):
            content.update(f"{self.samples.dtype}{self.samples.shape}".encode())
            content.update(np.ascontiguousarray(self.samples).tobytes())
            return content.hexdigest()
        for sample in self.samples:
            piece = sample.encode() if isinstance(sample, str) else sample.read()
            content.update(len(piece).to_bytes(8, "little") + piece)
        return content.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Splits:
    """A loaded data set.

    kind: images, texts or features. source: where its files were found. classes: name of each label, where known.
    skipped: names of samples that were left out (undecodable images).
    """

    name: str
    kind: str
    train: Split
    test: Split
    num_classes: int
    source: str
    classes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def parts(self) -> dict[str, Split]:
        """The splits by name, in the order in which they are extracted."""
        return {"train": self.train, "test": self.test}

    def identity(self) -> str:
        """Hex digest of the content of both splits and of the number of classes."""
        parts = [self.kind, str(self.num_classes), *(split.identity() for split in self.parts().values())]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    def sized(self, train: int, test: int, sizes: str) -> "Splits":
        """These splits if they have the official sizes; else, under `sizes=any`, named as a sample.

        Raises: DataError under `sizes=official` when a size differs.
        """
        found = (len(self.train), len(self.test))
        if found == (train, test):
            return self
        if sizes == "official":
            raise DataError(
                f"{self.source}: {self.name} has {train:,} training and {test:,} test samples, found {found[0]:,} and "
                f"{found[1]:,}; fetch it again, or set dataset.sizes=any to use a sample (tables will say so)"
            )
        return replace(self, name=f"{self.name}-sample", source=f"{self.source} (sample: {found[0]}+{found[1]})")
