"""Get a data set: `python scripts/get_data.py NAME [--data-root data]`.

Looks where dpexp would look, then downloads from the official source, then, on Debian and Ubuntu, unpacks the
distribution's own package of the same files (no root needed; Fashion-MNIST only).
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dpexp import data
from dpexp.config import DatasetConfig

DEBIAN_PACKAGE = "dataset-fashion-mnist"


def from_debian(data_root: Path) -> None:
    """Unpack the four IDX files of Debian's package into the folder where a download would put them."""
    target = data_root / "FashionMNIST" / "raw"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", DEBIAN_PACKAGE], cwd=folder, check=True, capture_output=True)
        (package,) = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True, capture_output=True)
        target.mkdir(parents=True, exist_ok=True)
        for file in sorted(Path(folder).rglob("*-ubyte.gz")):
            shutil.copyfile(file, target / f".{file.name}")
            (target / f".{file.name}").replace(target / file.name)


def fetch_fashion_mnist(data_root: Path) -> data.Splits:
    """Load Fashion-MNIST from the first source that has it. Raises: DataError if none has."""
    try:
        return data.load(DatasetConfig(name="fashion_mnist"), data_root)
    except data.DataError as error:
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            raise
        print(f"{error}\nTrying the Debian package {DEBIAN_PACKAGE} instead.", file=sys.stderr)
    try:
        from_debian(data_root)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        hint = "run `apt-get update` first if its list of packages is empty"
        raise data.DataError(f"{' '.join(map(str, error.cmd))} failed: {said}; {hint}") from error
    return data.load(DatasetConfig(name="fashion_mnist"), data_root)


def fetch(name: str, data_root: Path) -> data.Splits:
    """Load a data set, downloading it if need be. Raises: DataError."""
    if name == "fashion_mnist":
        return fetch_fashion_mnist(data_root)
    return data.load(DatasetConfig(name=name), data_root)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=[name for name in data.DATASETS if name != "custom"])
    parser.add_argument("--data-root", type=Path, default=Path("data"), help="where data sets are kept (default: data)")
    arguments = parser.parse_args()
    try:
        splits = fetch(arguments.dataset, arguments.data_root)
    except data.DataError as error:
        sys.exit(f"error: {error}")
    counts = f"{len(splits.train.labels):,} training and {len(splits.test.labels):,} test samples"
    print(f"{splits.name}: {counts} in {splits.source}")


if __name__ == "__main__":
    main()
