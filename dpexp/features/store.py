"""The file of extracted features: safetensors with a header that says what it is. Its format lives here alone."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from dpexp.cache import write_atomic
from dpexp.data import DataError
from dpexp.features.values import Features, check

FORMAT = 1
SUFFIX = ".safetensors"
PARTS = ("train", "test")

log = logging.getLogger(__name__)


class CacheError(ValueError):
    """A cache file that must not be used. The message is one line and says why."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a cache file says about itself.

    recipe: every setting that can change the numbers. data, weights: sha256 of samples and labels, of the network.
    digest: of the arrays. truncated: texts that were cut. skipped, dropped: samples and feature rows left out.
    """

    recipe: dict[str, Any]
    data: str
    weights: str
    dataset: str
    extractor: str
    num_classes: int
    source: str
    digest: str = ""
    shapes: dict[str, list[int]] = field(default_factory=dict)
    classes: list[str] = field(default_factory=list)
    truncated: int = 0
    skipped: list[str] = field(default_factory=list)
    dropped: dict[str, list[int]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    format: int = FORMAT


Pieces = Callable[[str], Iterator[np.ndarray]]


def content_digest(shapes: dict[str, tuple[int, int]], pieces: Pieces, labels: dict[str, np.ndarray]) -> str:
    """Digest of all arrays. pieces: part -> its feature rows, float32, in consecutive blocks."""
    content = hashlib.sha256()
    for part in PARTS:
        content.update(str(tuple(shapes[part])).encode())
        for block in pieces(part):
            content.update(np.ascontiguousarray(block).data)  # its bytes, without a copy
        content.update(labels[part].astype(np.int64).tobytes())
    return content.hexdigest()[:16]


def _layout(shapes: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """The safetensors table of contents."""
    table, offset = {}, 0
    for part in PARTS:
        n, d = shapes[part]
        for name, dtype, shape, size in (
            (f"{part}.x", "F32", [n, d], 4 * n * d),
            (f"{part}.y", "I64", [n], 8 * n),
        ):
            table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
            offset += size
    return table


def write(path: Path, header: Header, pieces: Pieces, labels: dict[str, np.ndarray]) -> None:
    """Write a cache file, atomically and without holding the features in memory.

    Raises: DiskFullError.
    """
    shapes = {part: (header.shapes[part][0], header.shapes[part][1]) for part in PARTS}
    about = {"__metadata__": {"dpexp": json.dumps(asdict(header), allow_nan=False)}, **_layout(shapes)}
    text = json.dumps(about, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)

    def stream() -> Iterator[bytes]:
        yield len(text).to_bytes(8, "little") + text
        for part in PARTS:
            for block in pieces(part):
                yield np.ascontiguousarray(block, dtype="<f4").tobytes()
            yield labels[part].astype("<i8").tobytes()

    write_atomic(path, stream())


def read_header(path: Path) -> Header:
    """The header of a cache file.

    Raises: CacheError for a file that is no complete cache file of this version.
    """
    size = path.stat().st_size
    if size == 0:
        raise CacheError("it is empty")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise CacheError(f"it is truncated or no safetensors file ({error})") from error
    if "dpexp" not in metadata:
        raise CacheError("it was not written by dpexp")
    try:
        fields = json.loads(metadata["dpexp"])
        found = fields.get("format")
        if found != FORMAT:
            raise CacheError(f"it has format {found}, this version reads {FORMAT}")
        return Header(**fields)
    except (TypeError, AttributeError, json.JSONDecodeError) as error:
        raise CacheError(f"its header cannot be read ({error})") from error


def read(path: Path) -> tuple[Features, Header]:
    """Features of a cache file, checked against the header: sizes, labels, and the digest of every byte.

    Raises: CacheError.
    """
    header = read_header(path)
    with safe_open(path, framework="numpy") as file:
        names = set(file.keys())
        if names != {f"{part}.{axis}" for part in PARTS for axis in "xy"}:
            raise CacheError(f"it holds other tensors: {sorted(names)}")
        arrays = {name: file.get_tensor(name) for name in names}
    for part in PARTS:
        if list(arrays[f"{part}.x"].shape) != header.shapes[part]:
            raise CacheError(
                f"its {part} features are {arrays[f'{part}.x'].shape}, the header says {header.shapes[part]}"
            )
    shapes = {part: arrays[f"{part}.x"].shape for part in PARTS}
    labels = {part: arrays[f"{part}.y"] for part in PARTS}
    if content_digest(shapes, lambda part: iter([arrays[f"{part}.x"]]), labels) != header.digest:
        raise CacheError("its content is damaged (digest differs)")
    try:
        examples = {
            part: check(arrays[f"{part}.x"], labels[part], header.num_classes, f"{header.dataset} {part}")
            for part in PARTS
        }
    except DataError as error:
        raise CacheError(str(error)) from error
    features = Features(
        dataset=header.dataset,
        extractor=header.extractor,
        num_classes=header.num_classes,
        source=header.source,
        digest=header.digest,
        fingerprint=header.fingerprint,
        **examples,
    )
    return features, header


def reason_against(header: Header, recipe: dict[str, Any], data: str | None, weights: str | None) -> str | None:
    """Why a cache file does not hold what is asked for, or None. None for `data` or `weights`: not known here."""
    if header.recipe != recipe:
        keys = [k for k in {*recipe, *header.recipe} if recipe.get(k) != header.recipe.get(k)]
        return f"it was made with other settings ({', '.join(sorted(keys))})"
    if data is not None and header.data != data:
        return "it was made from other data"
    if weights is not None and header.weights != weights:
        return "it was made by other weights"
    return None
