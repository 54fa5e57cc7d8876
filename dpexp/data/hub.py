"""Data sets of the Hugging Face Hub: Parquet files in the Hub's layout below `data_root`, else through `datasets`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpexp.config import DatasetConfig
from dpexp.data.labels import checked_labels
from dpexp.data.splits import IMAGES, TEXTS, DataError, ImageFile, MissingDataError, Samples, Split, Splits

EMOJI = (
    "❤",
    "😍",
    "😂",
    "💕",
    "🔥",
    "😊",
    "😎",
    "✨",
    "💙",
    "😘",
    "📷",
    "🇺🇸",
    "☀",
    "💜",
    "😉",
    "💯",
    "😁",
    "🎄",
    "📸",
    "😜",
)
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """Where a data set lives on the Hub, pinned, and what it must look like.

    folder: its place below `data_root`. sizes: official (train, test). column: that of the samples.
    """

    repository: str
    subset: str
    revision: str
    folder: str
    sizes: tuple[int, int]
    classes: tuple[str, ...]
    kind: str = TEXTS
    column: str = "text"


TWEET_EVAL = "b3a375baf0f409c77e6bc7aa35102b7b3534f8be"
SOURCES = {
    "tweeteval_emoji": HubSource(
        repository="cardiffnlp/tweet_eval",
        subset="emoji",
        revision=TWEET_EVAL,
        folder="tweet_eval/emoji",
        sizes=(45_000, 50_000),
        classes=EMOJI,
    ),
    "tweeteval_emotion": HubSource(
        repository="cardiffnlp/tweet_eval",
        subset="emotion",
        revision=TWEET_EVAL,
        folder="tweet_eval/emotion",
        sizes=(3_257, 1_421),
        classes=("anger", "joy", "optimism", "sadness"),
    ),
    "emotion": HubSource(
        repository="dair-ai/emotion",
        subset="split",
        revision="cab853a1dbdf4c42c2b3ef2173804746df8825fe",
        folder="emotion/split",
        sizes=(16_000, 2_000),
        classes=("sadness", "joy", "love", "anger", "fear", "surprise"),
    ),
    "imdb": HubSource(
        repository="stanfordnlp/imdb",
        subset="plain_text",
        revision="e6281661ce1c48d982bc483cf8a173c1bbeb5d31",
        folder="imdb/plain_text",
        sizes=(25_000, 25_000),
        classes=("negative", "positive"),
    ),
    "cifar10": HubSource(
        repository="uoft-cs/cifar10",
        subset="plain_text",
        revision="0b2714987fa478483af9968de7c934580d0bb9a2",
        folder="cifar10/plain_text",
        sizes=(50_000, 10_000),
        classes=CIFAR10,
        kind=IMAGES,
        column="img",
    ),
}


def read_parquet(files: Sequence[Path], columns: Sequence[str]) -> dict[str, list[Any]]:
    """Columns of one or several Parquet files, in the files' order.

    Raises: DataError for a file that is not Parquet or lacks a column.
    """
    import pyarrow
    import pyarrow.parquet

    found: dict[str, list[Any]] = {column: [] for column in columns}
    for file in files:
        try:
            table = pyarrow.parquet.ParquetFile(file)
        except (OSError, pyarrow.ArrowInvalid) as error:
            raise DataError(f"{file}: not a complete Parquet file ({error}); delete it and fetch it again") from error
        missing = [column for column in columns if column not in table.schema_arrow.names]
        if missing:
            raise DataError(f"{file}: has no column {missing[0]!r}; its columns are {table.schema_arrow.names}")
        for column, values in table.read(columns=list(columns)).to_pydict().items():
            found[column] += values
    return found


def text_samples(values: Sequence[Any], place: str) -> Samples:
    """Texts, each of which must be a string (an empty one is a text; None is not)."""
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise DataError(f"{place}: row {row} must hold a text, got {value!r}; remove the row or fill it")
    return list(values)


def image_samples(values: Sequence[Any], place: str) -> Samples:
    """Encoded images as the Hub stores them: {bytes, path}."""
    files = []
    for row, value in enumerate(values):
        content = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(content, bytes):
            raise DataError(f"{place}: row {row} must hold the bytes of an image, got {type(content).__name__}")
        files.append(ImageFile(name=f"{place} row {row}", content=content))
    return files


def _columns(source: HubSource, part: str, data_root: Path, download: bool) -> tuple[dict[str, list[Any]], str]:
    """Samples and labels of one split and where they were found."""
    folder = data_root / source.folder
    files = sorted(folder.glob(f"{part}-*.parquet"))
    if files:
        expected = int(files[0].stem.rpartition("-of-")[2]) if "-of-" in files[0].stem else len(files)
        if len(files) != expected:
            raise DataError(f"{folder}: has {len(files)} of {expected} files of {part}; fetch the missing ones")
        return read_parquet(files, (source.column, "label")), str(folder)
    if not download:
        raise MissingDataError(f"{folder} has no {part}-*.parquet")
    return _from_hub(source, part, folder)


def _from_hub(source: HubSource, part: str, folder: Path) -> tuple[dict[str, list[Any]], str]:
    """One split through `datasets` at the pinned revision (its own cache serves it again without a network)."""
    import datasets

    place = f"{source.repository}@{source.revision[:8]}"
    try:
        table = datasets.load_dataset(source.repository, source.subset, split=part, revision=source.revision)
    except Exception as error:  # `datasets` raises many unrelated kinds for a missing network
        raise MissingDataError(
            f"{folder} has no {part}-*.parquet and the Hub did not give {place} ({type(error).__name__}: {error}); "
            "put the Parquet files there or set data_root"
        ) from error
    if source.kind == IMAGES:
        table = table.cast_column(source.column, datasets.Image(decode=False))
    return {column: list(table[column]) for column in (source.column, "label")}, place


def load_hub(config: DatasetConfig, data_root: Path, download: bool) -> Splits:
    """A data set of `SOURCES`: its training and test splits (a validation split is left alone)."""
    source = SOURCES[config.name]
    parts, places = {}, {}
    for part in ("train", "test"):
        columns, place = _columns(source, part, data_root, download)
        read = image_samples if source.kind == IMAGES else text_samples
        labels = checked_labels(columns["label"], len(source.classes), f"{place} {part}")
        parts[part], places[part] = (
            Split(samples=read(columns[source.column], f"{place} {part}"), labels=labels),
            place,
        )
    splits = Splits(
        name=config.name,
        kind=source.kind,
        num_classes=len(source.classes),
        source=places["train"],
        classes=source.classes,
        train=parts["train"],
        test=parts["test"],
    )
    return splits.sized(*source.sizes, config.sizes)
