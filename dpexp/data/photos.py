"""CIFAR-10, CIFAR-100, Caltech-256 and Food-101 in the folders that their archives hold."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpexp.config import DatasetConfig
from dpexp.data.archives import Archive, unpacked
from dpexp.data.hub import CIFAR10, SOURCES, load_hub
from dpexp.data.labels import checked_labels, seeded_split
from dpexp.data.splits import IMAGES, DataError, ImageFile, MissingDataError, Split, Splits

# Addresses and md5 sums as in torchvision's data set classes.
ARCHIVES = {
    "cifar10": Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        folder="cifar-10-batches-py",
    ),
    "cifar100": Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        folder="cifar-100-python",
    ),
    "caltech256": Archive(
        url="https://data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar",
        md5="67b4f42ca05d46448c6bb8ecd2220f6d",
        folder="256_ObjectCategories",
    ),
    "food101": Archive(
        url="http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz",
        md5="85eeb15f3717b99a5da872d97d918f87",
        folder="food-101",
    ),
}
CALTECH_IMAGES = {False: 30_607, True: 29_780}  # with and without the 827 of clutter (Griffin et al. 2007)


ALLOWED = {("numpy", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}


class _ArraysOnly(pickle.Unpickler):
    """Reads dictionaries of arrays and refuses everything that would run code."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")  # the official files are older than numpy 2
        if (module.partition(".")[0], name) not in ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return super().find_class(module, name)


def _batch(path: Path, label_key: str, num_classes: int) -> Split:
    """One pickled CIFAR batch: rows of 3072 bytes, red, green, blue planes of 32 x 32."""
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="latin1").load()
        images, labels = content["data"], content[label_key]
        images = images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    except (OSError, EOFError, pickle.UnpicklingError, KeyError, ValueError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(
            f"{path}: is no complete CIFAR batch ({reason}); delete its folder and fetch it again"
        ) from error
    if len(images) != len(labels):
        raise DataError(f"{path}: {len(labels)} labels for {len(images)} images; delete its folder and fetch it again")
    return Split(samples=np.ascontiguousarray(images), labels=checked_labels(labels, num_classes, str(path)))


def _joined(batches: list[Split]) -> Split:
    """Batches one after the other."""
    samples = np.concatenate([np.asarray(batch.samples) for batch in batches])
    return Split(samples=samples, labels=np.concatenate([batch.labels for batch in batches]))


def load_cifar10(config: DatasetConfig, data_root: Path, download: bool) -> Splits:
    """CIFAR-10 from its pickles, or in the Hub's layout where only that is there."""
    in_hub_layout = (data_root / SOURCES["cifar10"].folder).is_dir()
    if in_hub_layout and not (data_root / ARCHIVES["cifar10"].folder).is_dir():
        return load_hub(config, data_root, download=False)
    folder = unpacked(ARCHIVES["cifar10"], data_root, download)
    train = _joined([_batch(folder / f"data_batch_{i}", "labels", 10) for i in range(1, 6)])
    test = _batch(folder / "test_batch", "labels", 10)
    return Splits(
        name="cifar10", kind=IMAGES, train=train, test=test, num_classes=10, source=str(folder), classes=CIFAR10
    ).sized(50_000, 10_000, config.sizes)


def load_cifar100(config: DatasetConfig, data_root: Path, download: bool) -> Splits:
    """CIFAR-100 with its 100 fine labels."""
    folder = unpacked(ARCHIVES["cifar100"], data_root, download)
    train, test = (_batch(folder / part, "fine_labels", 100) for part in ("train", "test"))
    return Splits(name="cifar100", kind=IMAGES, train=train, test=test, num_classes=100, source=str(folder)).sized(
        50_000, 10_000, config.sizes
    )


def load_caltech256(config: DatasetConfig, data_root: Path, download: bool) -> Splits:
    """Caltech-256: folders `001.ak47` ... `257.clutter`. The source has no split: ours is seeded and by class."""
    folder = unpacked(ARCHIVES["caltech256"], data_root / "caltech256", download)
    named = sorted(f for f in folder.iterdir() if f.is_dir() and f.name[:3].isdigit() and f.name[3:4] == ".")
    classes = [f for f in named if not (config.drop_clutter and f.name == "257.clutter")]
    paths = [(k, path) for k, f in enumerate(classes) for path in sorted(f.glob("*.jpg"))]
    if not paths:
        raise MissingDataError(f"{folder} holds no images; delete it and fetch it again")
    files = [ImageFile(name=str(path.relative_to(folder)), path=path) for _, path in paths]
    everything = Split(samples=files, labels=np.array([k for k, _ in paths], dtype=np.int64))
    train, test = seeded_split(everything.labels, config.test_fraction, config.split_seed)
    splits = Splits(
        name="caltech256_no_clutter" if config.drop_clutter else "caltech256",
        kind=IMAGES,
        train=everything.take(train),
        test=everything.take(test),
        num_classes=len(classes),
        source=str(folder),
        classes=tuple(f.name[4:] for f in classes),
    )
    expected = CALTECH_IMAGES[config.drop_clutter]
    if len(files) == expected:
        return splits
    if config.sizes == "official":
        raise DataError(
            f"{folder}: Caltech-256 has {expected:,} images here, found {len(files):,}: unpacked in part? Delete the "
            "folder and fetch it again, or set dataset.sizes=any to use a sample (tables will say so)"
        )
    return replace(splits, name=f"{splits.name}-sample")


def _food_split(folder: Path, part: str, classes: list[str]) -> Split:
    """The images that meta/<part>.json lists, class by class."""
    try:
        listed = json.loads((folder / "meta" / f"{part}.json").read_text())
        rows = [(classes.index(name), f"{entry}.jpg") for name, entries in listed.items() for entry in entries]
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"{folder}/meta/{part}.json: cannot be read ({error}); fetch the data set again") from error
    files = [ImageFile(name=entry, path=folder / "images" / entry) for _, entry in rows]
    absent = [file.name for file in files if file.path is not None and not file.path.is_file()]
    if absent:
        raise DataError(
            f"{folder}: {len(absent):,} of {len(files):,} images of {part} are missing, the first is {absent[0]}; "
            "delete the folder and fetch it again"
        )
    return Split(samples=files, labels=np.array([k for k, _ in rows], dtype=np.int64))


def load_food101(config: DatasetConfig, data_root: Path, download: bool) -> Splits:
    """Food-101 with the split of its meta files."""
    folder = unpacked(ARCHIVES["food101"], data_root, download)
    names = folder / "meta" / "classes.txt"
    if not names.is_file():
        raise DataError(f"{names} is missing; delete {folder} and fetch it again")
    classes = sorted(names.read_text().split())
    train, test = (_food_split(folder, part, classes) for part in ("train", "test"))
    return Splits(
        name="food101",
        kind=IMAGES,
        train=train,
        test=test,
        num_classes=len(classes),
        source=str(folder),
        classes=tuple(classes),
    ).sized(75_750, 25_250, config.sizes)
