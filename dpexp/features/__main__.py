"""Build and inspect the feature cache.

python -m dpexp.features dataset=... extractor=... [--rebuild]   extract if needed, then describe
python -m dpexp.features --list                                  every cache file and whether it can be used
python -m dpexp.features --clear [dataset=... extractor=...]     remove files: those of these settings, or all
"""

import argparse
import logging
import shutil
import sys
from pathlib import Path

from rich.console import Console

from dpexp import config as configuration
from dpexp import features
from dpexp.cache import DiskFullError
from dpexp.config import Config, ConfigError
from dpexp.console import plain_console
from dpexp.data import DataError
from dpexp.features import bar, store

CONF = Path(__file__).resolve().parents[2] / "conf"


def describe(header: store.Header, path_name: str) -> list[str]:
    """What a person wants to know of a cache file."""
    sizes = " + ".join(f"{n:,}" for n, _ in header.shapes.values())
    width = header.shapes["train"][1]
    lines = [
        f"{path_name}",
        f"  {header.dataset} by {header.extractor}: {sizes} rows of {width}, {header.num_classes} classes",
    ]
    lines.append(f"  digest {header.digest}, from {header.source}")
    lines += [f"  {header.truncated:,} texts were cut"] if header.truncated else []
    lines += [f"  left out: {', '.join(header.skipped)}"] if header.skipped else []
    lines += [f"  rows left out of {part}: {rows}" for part, rows in header.dropped.items() if rows]
    return lines + [f"  {line}" for line in header.fingerprint.splitlines()]


def list_files(folder: Path) -> list[str]:
    """A description of every cache file below a folder."""
    lines = []
    for path in sorted(folder.glob(f"*{store.SUFFIX}")):
        try:
            lines += describe(store.read_header(path), f"{path.name} ({path.stat().st_size / 1e6:,.0f} MB)")
        except store.CacheError as error:
            lines.append(f"{path.name}: cannot be used: {error}")
    lines += [f"{path.name}: interrupted, resumes at the next start" for path in sorted(folder.glob("*.partial"))]
    return lines or [f"{folder} holds no features"]


def clear(folder: Path, name: str) -> list[str]:
    """Remove the cache files whose name starts with `name`, and what interrupted extractions left."""
    removed = []
    for path in sorted(folder.glob(f"{name}*")):
        if path.suffix == ".partial":
            shutil.rmtree(path)
        elif path.suffix == store.SUFFIX:
            path.unlink()
        else:
            continue
        removed.append(f"removed {path.name}")
    return removed or ["nothing to remove"]


def build(config: Config, rebuild: bool, console: Console) -> list[str]:
    """Extract if needed; a description of the result."""
    with bar.shown(console) as progress:
        found, header = features.obtain(config, progress, rebuild)
    return describe(header, f"features {found.digest}")


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m dpexp.features", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--list", action="store_true", help="list the cache")
    parser.add_argument("--clear", action="store_true", help="remove cache files")
    parser.add_argument("--rebuild", action="store_true", help="extract again")
    parser.add_argument("overrides", nargs="*", help="settings as for dpexp.run, for example dataset=mnist")
    options = parser.parse_intermixed_args(arguments)
    console = plain_console(stderr=True)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        config = configuration.compose(options.overrides, CONF)
        folder = Path(config.features_dir)
        if options.list:
            lines = list_files(folder)
        elif options.clear:
            chosen = [o for o in options.overrides if o.startswith(("dataset", "extractor"))]
            lines = clear(folder, features.request(config).name if chosen else "")
        else:
            lines = build(config, options.rebuild, console)
    except (ConfigError, DataError, DiskFullError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
