"""Configuration -> Features: extracted once, cached by content, checked on every load.

A cache file's name holds three digests: of the recipe (every setting that can change a number), of the data and of the
weights. Where data and weights are on this machine all three are compared; where they are not, the cache is enough.
"""

import importlib.metadata
import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpexp import data
from dpexp.cache import digest, locked
from dpexp.config import Config, ConfigError
from dpexp.data import DataError, MissingDataError, Splits
from dpexp.features import extractors, fingerprint, store
from dpexp.features.encoders import Encoder, matmul_precision
from dpexp.features.extraction import Extraction, Progress, extract_part, shards, silent
from dpexp.features.values import Examples, Features, check, hold_out, warn_about_duplicates

__all__ = ["Examples", "Features", "check", "hold_out", "load", "obtain"]

log = logging.getLogger(__name__)
LIBRARIES = ("dpexp", "torch", "torchvision", "transformers", "timm", "numpy", "pillow")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of the cache. data, weights: their sha256, None where they are not on this machine."""

    folder: Path
    name: str
    recipe: dict[str, Any]
    data: str | None
    weights: str | None
    splits: Splits | None

    def path(self, data: str, weights: str) -> Path:
        """The file's place."""
        return self.folder / f"{self.name}-{data[:8]}-{weights[:8]}{store.SUFFIX}"

    def candidates(self) -> list[Path]:
        """Files that may hold what is asked for."""
        data, weights = (value[:8] if value else "*" for value in (self.data, self.weights))
        # Titles are for people; only where the data are not here do they tell two data sets apart.
        name = f"*-{digest(self.recipe, 8)}" if self.data else self.name
        return sorted(self.folder.glob(f"{name}-{data}-{weights}{store.SUFFIX}"))


def request(config: Config) -> Request:
    """Check the settings and look what is on this machine; downloads nothing.

    Raises: ConfigError; DataError for damaged data.
    """
    data.check(config.dataset)
    extractor = extractors.check(config.extractor)
    try:
        splits = data.load(config.dataset, Path(config.data_root), download=False)
        extractors.check_kind(config.extractor, splits.name, splits.kind)
    except MissingDataError:
        splits = None
    recipe = extractors.recipe(config.dataset, config.extractor)
    title = config.dataset.title if config.dataset.name == "custom" else config.dataset.name
    parts = [title, extractors.label(config.extractor), digest(recipe, 8)]
    return Request(
        folder=Path(config.features_dir),
        name="-".join("".join(c if c.isalnum() or c in "_." else "_" for c in part) for part in parts),
        recipe=recipe,
        data=splits.identity() if splits else None,
        weights=extractor.find_weights(config.extractor),
        splits=splits,
    )


def _cached(wanted: Request) -> tuple[Features, store.Header] | None:
    """What the cache holds, or None after a one-line reason in the log for each file that cannot be used."""
    usable = []
    for path in wanted.candidates():
        try:
            header = store.read_header(path)
            reason = store.reason_against(header, wanted.recipe, wanted.data, wanted.weights)
            if reason:
                raise store.CacheError(reason)
            usable.append((path, header.digest))
        except store.CacheError as error:
            log.warning("%s is not used: %s; extracting again", path, error)
    if len({content for _, content in usable}) > 1:
        names = ", ".join(path.name for path, _ in usable)
        raise ConfigError(
            f"{wanted.folder} holds several features for these settings ({names}) and neither data nor weights are "
            "here to tell which; set data_root or extractor.weights, or remove the others"
        )
    try:
        return store.read(usable[0][0]) if usable else None
    except store.CacheError as error:
        log.warning("%s is not used: %s; extracting again", usable[0][0], error)
        return None


def _kept_rows(folder: Path, splits: Splits, policy: str) -> dict[str, np.ndarray]:
    """For each part a mask of its finite rows; all of them, unless non-finite rows may be dropped."""
    masks = {}
    for part, split in splits.parts().items():
        mask = np.concatenate([np.isfinite(block).all(axis=1) for block in shards(folder, part, len(split))])
        if policy == "error" and not mask.all():
            raise DataError(
                f"{splits.name} {part} has {(~mask).sum()} rows with NaN or infinity, the first is row "
                f"{mask.argmin()}; mend the data, or leave such rows out with dataset.on_nonfinite=drop"
            )
        masks[part] = mask
    return masks


def _assemble(path: Path, folder: Path, splits: Splits, header: store.Header, policy: str) -> None:
    """Shards -> one cache file, without the rows that are left out."""
    masks = _kept_rows(folder, splits, policy)
    labels = {part: split.labels[masks[part]] for part, split in splits.parts().items()}

    def pieces(part: str) -> Iterator[np.ndarray]:
        start = 0
        for block in shards(folder, part, len(masks[part])):
            yield block[masks[part][start : start + len(block)]]
            start += len(block)

    width = next(shards(folder, "train", len(masks["train"]))).shape[1]
    shapes = {part: (len(rows), width) for part, rows in labels.items()}
    constants = np.concatenate([fingerprint.constants(block) for block in pieces("train")])
    header = replace(
        header,
        shapes={part: list(shape) for part, shape in shapes.items()},
        digest=store.content_digest(shapes, pieces, labels),
        dropped={part: np.flatnonzero(~mask).tolist() for part, mask in masks.items()},
        fingerprint=fingerprint.text(splits.name, header.recipe["extractor.name"], constants),
    )
    store.write(path, header, pieces, labels)


def _versions() -> dict[str, str]:
    """Versions of the libraries that can move a feature by rounding."""
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _header(config: Config, wanted: Request, splits: Splits, encoder: Encoder, truncated: int) -> store.Header:
    """The header of features that were just extracted, but for what their arrays say."""
    return store.Header(
        recipe=wanted.recipe,
        data=wanted.data or splits.identity(),
        weights=encoder.weights,
        dataset=splits.name,
        extractor=extractors.label(config.extractor),
        num_classes=splits.num_classes,
        source=splits.source,
        classes=list(splits.classes),
        skipped=list(splits.skipped),
        truncated=truncated,
        versions=_versions(),
    )


def _build(config: Config, wanted: Request, progress: Progress, rebuild: bool) -> tuple[Features, store.Header]:
    """Extract features and write them to the cache. Of several processes one extracts, the others wait and read."""
    splits = wanted.splits or data.load(config.dataset, Path(config.data_root))
    extractors.check_kind(config.extractor, splits.name, splits.kind)
    encoder = extractors.encoder(config.extractor, config.compute.device, splits.train.samples)
    wanted = replace(wanted, data=wanted.data or splits.identity(), weights=encoder.weights)
    assert wanted.data is not None
    path = wanted.path(wanted.data, encoder.weights)
    with locked(path) as held:
        found = None if rebuild else _cached(wanted)
        if found is not None:
            return found
        folder = path.with_suffix(".partial" if held else f".{os.getpid()}.partial")
        if rebuild:
            shutil.rmtree(folder, ignore_errors=True)
        with matmul_precision(config.extractor.tf32):
            size = config.extractor.batch_size
            work = Extraction(encoder=encoder, folder=folder, batch_size=size, progress=progress)
            cut = [extract_part(work, part, split) for part, split in splits.parts().items()]
        header = _header(config, wanted, splits, encoder, sum(cut))
        _assemble(path, folder, splits, header, config.dataset.on_nonfinite)
        shutil.rmtree(folder)
        return store.read(path)


def obtain(config: Config, progress: Progress = silent, rebuild: bool = False) -> tuple[Features, store.Header]:
    """Features and the header of their cache file: from the cache, or extracted now and cached.

    Raises: ConfigError for settings, DataError for data or weights, DiskFullError.
    """
    wanted = request(config)
    found = None if rebuild else _cached(wanted)
    if found and config.extractor.weights and wanted.weights is None:
        made_by = found[1].weights[:8]
        log.warning(
            "extractor.weights=%s is not here; cached features of weights %s", config.extractor.weights, made_by
        )
    features, header = found or _build(config, wanted, progress, rebuild)
    if wanted.splits:  # the cache may have been made under another title or from another folder
        features = replace(features, dataset=wanted.splits.name, source=wanted.splits.source)
    features = replace(features, extractor=extractors.label(config.extractor))
    warn_about_duplicates(features.train, features.dataset)
    return features, header


def load(config: Config, progress: Progress = silent) -> Features:
    """The features of a configuration; prints nothing. progress(part, rows done, rows in all) follows an extraction.

    Raises: ConfigError for settings, DataError for data or weights, DiskFullError.
    """
    return obtain(config, progress)[0]
