"""MNIST, Fashion-MNIST and EMNIST: images and labels in IDX files."""

import gzip
import math
import zipfile
from pathlib import Path

import numpy as np

from dpexp.config import DatasetConfig, one_of
from dpexp.data.splits import IMAGES, DataError, MissingDataError, Split, Splits

SYSTEM_DATASETS = Path("/usr/share/datasets")  # where Debian's dataset-* packages install

# Cohen et al. 2017, Table II: (training images, test images, classes) of each subset.
EMNIST_SUBSETS = {
    "balanced": (112_800, 18_800, 47),
    "letters": (124_800, 20_800, 26),
    "digits": (240_000, 40_000, 10),
    "mnist": (60_000, 10_000, 10),
    "bymerge": (697_932, 116_323, 47),
    "byclass": (697_932, 116_323, 62),
}
FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def read_idx(path: Path, axes: int) -> np.ndarray:
    """One IDX file of unsigned bytes with `axes` axes, gzipped or not.

    Raises: DataError for a file that is unreadable, of another kind, or longer or shorter than its header says.
    """
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read as an IDX file ({error}); delete it and fetch it again") from error
    header = 4 + 4 * axes
    shape = tuple(int(n) for n in np.frombuffer(content[4:header], ">u4")) if len(content) >= header else ()
    if content[:4] != bytes([0, 0, 8, axes]) or len(content) != header + math.prod(shape):
        raise DataError(
            f"{path}: expected an IDX file of unsigned bytes with {axes} axes, got {len(content)} bytes that start "
            f"with {content[:16].hex(' ')}; delete it and fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _find_idx(folders: tuple[Path, ...], stem: str) -> Path | None:
    """An IDX file under its plain or gzipped name in the first folder that has it."""
    return next((f / name for f in folders for name in (stem, f"{stem}.gz") if (f / name).is_file()), None)


def _idx_split(folders: tuple[Path, ...], prefix: str, num_classes: int, first_label: int = 0) -> Split:
    """Images and labels of one part of an MNIST-like data set."""
    arrays = []
    for stem, axes in ((f"{prefix}-images-idx3-ubyte", 3), (f"{prefix}-labels-idx1-ubyte", 1)):
        path = _find_idx(folders, stem)
        if path is None:
            raise DataError(f"{folders[0]}: {stem} (or {stem}.gz) is missing; fetch the data set again")
        arrays.append(read_idx(path, axes))
    images, labels = arrays[0], arrays[1].astype(np.int64) - first_label
    if len(images) != len(labels):
        raise DataError(f"{path}: {len(labels)} labels for {len(images)} images; fetch the data set again")
    if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
        low, high = first_label, num_classes - 1 + first_label
        raise DataError(f"{path}: labels must be {low}..{high}, found {labels.min() + low}..{labels.max() + low}")
    return Split(samples=images, labels=labels)


def _locate(folders: tuple[Path, ...], stem: str, torchvision_class: str, data_root: Path, download: bool) -> Path:
    """The folder that holds `stem`, after downloading by torchvision if allowed and needed."""
    found = _find_idx(folders, stem)
    if found is None and download:
        import torchvision.datasets

        try:
            options = {"split": "balanced"} if torchvision_class == "EMNIST" else {}
            getattr(torchvision.datasets, torchvision_class)(str(data_root), download=True, **options)
        except (OSError, RuntimeError, EOFError, zipfile.BadZipFile) as error:
            raise MissingDataError(
                f"{torchvision_class} is not in {folders[0]} and downloading failed ({error}); "
                "put its IDX files there or set data_root"
            ) from error
        found = _find_idx(folders, stem)
    if found is None:
        raise MissingDataError(f"{torchvision_class} is not in {' nor in '.join(map(str, folders))}")
    return found.parent


def fashion_mnist_folder(data_root: Path) -> Path | None:
    """The folder that holds Fashion-MNIST: below `data_root`, else Debian's package; None if neither has it."""
    found = _find_idx(_fashion_folders(data_root), "train-images-idx3-ubyte")
    return found.parent if found else None


def _fashion_folders(data_root: Path) -> tuple[Path, ...]:
    return data_root / "FashionMNIST" / "raw", SYSTEM_DATASETS / "fashion-mnist"


def _mnist_like(
    config: DatasetConfig, folders: tuple[Path, ...], torchvision_class: str, data_root: Path, download: bool
) -> Splits:
    """A data set of 60,000 / 10,000 images in 10 classes."""
    folder = _locate(folders, "train-images-idx3-ubyte", torchvision_class, data_root, download)
    classes = FASHION if torchvision_class == "FashionMNIST" else tuple("0123456789")
    train, test = (_idx_split((folder,), prefix, 10) for prefix in ("train", "t10k"))
    splits = Splits(
        name=config.name,
        kind=IMAGES,
        train=train,
        test=test,
        num_classes=10,
        source=str(folder),
        classes=classes,
    )
    return splits.sized(60_000, 10_000, config.sizes)


def load_mnist(config: DatasetConfig, data_root: Path, download: bool) -> Splits:
    """MNIST: 60,000 / 10,000 images of 28 x 28 in 10 classes."""
    return _mnist_like(config, (data_root / "MNIST" / "raw",), "MNIST", data_root, download)


def load_fashion_mnist(config: DatasetConfig, data_root: Path, download: bool) -> Splits:
    """Fashion-MNIST: 60,000 / 10,000 images of 28 x 28 in 10 classes."""
    return _mnist_like(config, _fashion_folders(data_root), "FashionMNIST", data_root, download)


def _emnist_classes(subset: str) -> tuple[str, ...]:
    """Character of each label, after shifting to 0..K-1."""
    digits, upper, lower = "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
    merged = digits + upper + "abdefghnqrt"  # the 15 lower-case letters that look like their capitals are merged
    names = {"letters": lower, "digits": digits, "mnist": digits, "byclass": digits + upper + lower}
    return tuple(names.get(subset, merged))


def load_emnist(config: DatasetConfig, data_root: Path, download: bool) -> Splits:
    """EMNIST, upright, labels from 0: the files hold transposed images, and `letters` counts its labels from 1."""
    subset = one_of("dataset.subset", config.subset, tuple(EMNIST_SUBSETS))
    n_train, n_test, num_classes = EMNIST_SUBSETS[subset]
    raw = data_root / "EMNIST" / "raw"
    folders = (raw, raw / "gzip", data_root / "EMNIST" / "gzip")
    folder = _locate(folders, f"emnist-{subset}-train-images-idx3-ubyte", "EMNIST", data_root, download)
    first = 1 if subset == "letters" else 0
    train, test = (_idx_split((folder,), f"emnist-{subset}-{part}", num_classes, first) for part in ("train", "test"))
    train, test = (Split(samples=np.asarray(s.samples).swapaxes(1, 2), labels=s.labels) for s in (train, test))
    name = "emnist" if subset == "balanced" else f"emnist_{subset}"
    splits = Splits(
        name=name,
        kind=IMAGES,
        train=train,
        test=test,
        num_classes=num_classes,
        source=str(folder),
        classes=_emnist_classes(subset),
    )
    return splits.sized(n_train, n_test, config.sizes)
