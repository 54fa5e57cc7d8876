"""Data set name -> Splits: labels and raw samples in the source's own order."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dpexp.config import ConfigError, DatasetConfig, one_of
from dpexp.data.custom import load_custom
from dpexp.data.hub import load_hub
from dpexp.data.idx import fashion_mnist_folder, load_emnist, load_fashion_mnist, load_mnist
from dpexp.data.photos import load_caltech256, load_cifar10, load_cifar100, load_food101
from dpexp.data.pixels import leave_out_undecodable
from dpexp.data.splits import FEATURES, IMAGES, TEXTS, DataError, ImageFile, MissingDataError, Split, Splits

__all__ = [
    "DATASETS",
    "FEATURES",
    "IMAGES",
    "TEXTS",
    "DataError",
    "ImageFile",
    "MissingDataError",
    "Split",
    "Splits",
    "fashion_mnist_folder",
    "load",
]

DATASETS: dict[str, Callable[[DatasetConfig, Path, bool], Splits]] = {
    "mnist": load_mnist,
    "fashion_mnist": load_fashion_mnist,
    "emnist": load_emnist,
    "tweeteval_emoji": load_hub,
    "tweeteval_emotion": load_hub,
    "emotion": load_hub,
    "imdb": load_hub,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "caltech256": load_caltech256,
    "food101": load_food101,
    "custom": load_custom,
}


def check(config: DatasetConfig) -> None:
    """Check every setting of the `dataset` section that needs no data.

    Raises: ConfigError.
    """
    one_of("dataset.name", config.name, tuple(DATASETS))
    one_of("dataset.sizes", config.sizes, ("official", "any"))
    one_of("dataset.on_bad_image", config.on_bad_image, ("error", "skip"))
    one_of("dataset.on_nonfinite", config.on_nonfinite, ("error", "drop"))
    if not 0 < config.test_fraction < 1:
        raise ConfigError(f"dataset.test_fraction must be between 0 and 1, both excluded, got {config.test_fraction}")


def load(config: DatasetConfig, data_root: Path, download: bool = True) -> Splits:
    """Load a data set, from below `data_root` or, if allowed, from its official source.

    Raises: ConfigError for a setting that cannot be used, MissingDataError for data that is not here, DataError for a
    damaged file.
    """
    check(config)
    if data_root.exists() and not data_root.is_dir():
        raise ConfigError(f"data_root must be a folder, got the file {data_root}")
    splits = DATASETS[config.name](config, data_root, download)
    if config.on_bad_image == "skip":
        (train, bad_train), (test, bad_test) = (leave_out_undecodable(split) for split in splits.parts().values())
        splits = replace(splits, train=train, test=test, skipped=bad_train + bad_test)
    return replace(splits, source=splits.source.removeprefix(f"{data_root}/"))  # no folder of this machine in results
