"""A person's own data: feature tables, image folders, text tables."""

import fnmatch
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpexp.config import ConfigError, DatasetConfig, one_of
from dpexp.data.hub import image_samples, read_parquet, text_samples
from dpexp.data.labels import flat_labels, mapped_labels, seeded_split
from dpexp.data.splits import (
    FEATURES,
    IMAGES,
    TEXTS,
    DataError,
    ImageFile,
    MissingDataError,
    Samples,
    Split,
    Splits,
)

IMAGE_ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
FORMATS = ("csv", "tsv", "parquet", "npz", "safetensors", "folder")
Read = tuple[Samples, Any]


def _format(config: DatasetConfig, path: Path) -> str:
    """How a file is to be read."""
    if config.format is not None:
        return one_of("dataset.format", config.format, FORMATS)
    found = "folder" if path.is_dir() else path.suffix.lstrip(".").lower()
    if found not in FORMATS:
        raise ConfigError(f"dataset.format must be given for {path} (one of {', '.join(FORMATS)})")
    return found


def _array_file(path: Path, form: str, names: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Two named arrays of an .npz or .safetensors file."""
    try:
        if form == "npz":
            with np.load(path) as file:
                arrays = {name: file[name] for name in names if name in file}
                known = list(file)
        else:
            from safetensors.torch import load_file

            tensors = load_file(path)
            known = list(tensors)
            # numpy has no bfloat16; float32 holds every value of it.
            arrays = {
                n: (t.float() if t.is_floating_point() and t.itemsize == 2 else t).numpy() for n, t in tensors.items()
            }
    except Exception as error:  # each format has its own kinds of errors for a damaged file
        raise DataError(f"{path}: cannot be read as {form} ({type(error).__name__}: {error})") from error
    for name in names:
        if name not in arrays:
            raise DataError(f"{path}: has no array {name!r}; its arrays are {', '.join(map(repr, known))}")
    return arrays[names[0]], arrays[names[1]]


def _columns(path: Path, form: str) -> list[str]:
    """Column names of a table."""
    if form == "parquet":
        import pyarrow.parquet

        try:
            return list(pyarrow.parquet.read_schema(path).names)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not a complete Parquet file ({error})") from error
    import pandas as pd

    return [str(name) for name in pd.read_csv(path, sep=_separator(form), nrows=0).columns]


def _separator(form: str) -> str:
    return "\t" if form == "tsv" else ","


def _table(path: Path, form: str, columns: Sequence[str], text: str | None = None) -> dict[str, list[Any]]:
    """Columns of a Parquet, CSV or TSV file; the one named `text` is read as it stands, even where it is a number."""
    known = _columns(path, form)
    missing = [column for column in columns if column not in known]
    if missing:
        raise DataError(f"{path}: has no column {missing[0]!r}; its columns are {', '.join(map(repr, known))}")
    if form == "parquet":
        return read_parquet([path], columns)
    import pandas as pd

    kinds = {text: str} if text else None
    try:
        frame = pd.read_csv(path, sep=_separator(form), usecols=list(columns), dtype=kinds, keep_default_na=not text)
    except ValueError as error:
        raise DataError(f"{path}: cannot be read as {form} ({error})") from error
    return {column: frame[column].tolist() for column in columns}


def _feature_columns(config: DatasetConfig, known: Sequence[str]) -> list[str]:
    """The columns that dataset.x names: one, a list, or a pattern like `f*`."""
    wanted = [config.x] if isinstance(config.x, str) else list(config.x)
    return [name for pattern in wanted for name in (fnmatch.filter(known, pattern) or [pattern])]


def _read_features(config: DatasetConfig, path: Path) -> Read:
    """Feature vectors [n, d] as they are stored."""
    form = _format(config, path)
    labels: Any
    if form in ("npz", "safetensors"):
        x, labels = _array_file(path, form, (str(config.x), config.label))
    else:
        names = [n for n in _feature_columns(config, _columns(path, form)) if n != config.label]
        table = _table(path, form, [*names, config.label])
        x, labels = _matrix([table[name] for name in names]), table[config.label]
    if x.ndim != 2 or x.dtype.kind not in "iufb":
        raise DataError(f"{path}: features must be a numeric table [n, d], got {x.dtype} of shape {x.shape}")
    return x, labels


def _matrix(columns: list[list[Any]]) -> np.ndarray:
    """Several numeric columns side by side, or one whose entries are vectors."""
    if len(columns) == 1 and columns[0] and isinstance(columns[0][0], list):
        lengths = {len(vector) for vector in columns[0]}
        return np.array(columns[0]) if len(lengths) == 1 else np.array(columns[0], dtype=object)
    return np.column_stack(columns)


def _read_texts(config: DatasetConfig, path: Path) -> Read:
    """Texts of one column of a table."""
    table = _table(path, _format(config, path), [str(config.x), config.label], text=str(config.x))
    return text_samples(table[str(config.x)], str(path)), table[config.label]


def _read_images(config: DatasetConfig, path: Path) -> Read:
    """Images of a folder with one folder a class, or encoded in a column of a Parquet file."""
    if _format(config, path) == "parquet":
        table = _table(path, "parquet", [str(config.x), config.label])
        return image_samples(table[str(config.x)], str(path)), table[config.label]
    folders = sorted(f for f in path.iterdir() if f.is_dir())
    found = [(f.name, p) for f in folders for p in sorted(f.rglob("*")) if p.suffix.lower() in IMAGE_ENDINGS]
    images = [ImageFile(name=str(file.relative_to(path)), path=file) for _, file in found]
    return images, np.array([name for name, _ in found], dtype=str)


READERS: dict[str, Callable[[DatasetConfig, Path], Read]] = {
    FEATURES: _read_features,
    IMAGES: _read_images,
    TEXTS: _read_texts,
}


def _part(config: DatasetConfig, data_root: Path, where: str) -> tuple[Samples, np.ndarray]:
    """Samples and labels of one file or folder, equally many and at least one."""
    path = data_root / where
    if not path.exists():
        raise MissingDataError(f"{path} does not exist; dataset.train and dataset.test are relative to data_root")
    samples, labels = READERS[str(config.kind)](config, path)
    flat = flat_labels(labels, str(path))
    if len(samples) != len(flat) or not len(flat):
        raise DataError(
            f"{path}: needs one label a sample, at least one; got {len(samples)} samples, {len(flat)} labels"
        )
    return samples, flat


def load_custom(config: DatasetConfig, data_root: Path, download: bool) -> Splits:
    """The data that `dataset.train` and `dataset.test` point at; a seeded split by class where there is no test.

    Raises: ConfigError, MissingDataError, DataError.
    """
    kind = one_of("dataset.kind", config.kind, tuple(READERS))
    if config.train is None:
        raise ConfigError("dataset.train must name a file or folder for dataset=custom, got null")
    read = [_part(config, data_root, where) for where in (config.train, config.test) if where is not None]
    labels, classes = mapped_labels([y for _, y in read], config.num_classes, config.train)
    parts = [Split(samples=x, labels=y) for (x, _), y in zip(read, labels, strict=True)]
    if config.test is None:
        train, test = seeded_split(labels[0], config.test_fraction, config.split_seed)
        if not len(test):
            raise ConfigError(
                f"dataset.test_fraction={config.test_fraction} of {len(train)} samples is an empty test set"
            )
        parts = [parts[0].take(train), parts[0].take(test)]
    if kind == FEATURES and np.asarray(parts[0].samples).shape[1] != np.asarray(parts[1].samples).shape[1]:
        widths = [np.asarray(part.samples).shape[1] for part in parts]
        raise DataError(f"{config.train} has {widths[0]} features a row, {config.test} has {widths[1]}")
    return Splits(
        name=config.title,
        kind=kind,
        train=parts[0],
        test=parts[1],
        num_classes=len(classes),
        source=config.train,
        classes=tuple(classes),
    )
