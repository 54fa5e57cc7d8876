"""Archives of data sets: fetched whole, checked, unpacked whole. A folder that exists is complete."""

import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from dpexp.data.splits import DataError, MissingDataError

CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A tar file at its official source. folder: the one it holds."""

    url: str
    md5: str
    folder: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rpartition("/")[2]


def _md5(path: Path) -> str:
    content = hashlib.md5(usedforsecurity=False)  # the sources publish md5
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            content.update(chunk)
    return content.hexdigest()


def require_intact(path: Path, archive: Archive) -> None:
    """Compare a file with the published md5.

    Raises: DataError that says what the file is instead.
    """
    found = _md5(path)
    if found != archive.md5:
        with path.open("rb") as file:
            start = file.read(24)
        raise DataError(
            f"{path}: expected {archive.name} with md5 {archive.md5}, got md5 {found}: {path.stat().st_size:,} bytes "
            f"that start with {start!r}; fetch it from {archive.url} by hand"
        )


def _download(archive: Archive, path: Path) -> None:
    """Fetch to a temporary name; the file gets its own name once it is whole and its md5 is right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(archive.url, timeout=60) as response:
            shutil.copyfileobj(response, file, CHUNK)
        require_intact(Path(temporary), archive)
        os.replace(temporary, path)
    except urllib.error.URLError as error:
        raise MissingDataError(
            f"{archive.name} is not in {path.parent} and downloading {archive.url} failed ({error.reason}); "
            "put the archive there or set data_root"
        ) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _unpack(path: Path, archive: Archive) -> None:
    """Unpack beside the archive under a temporary name, then move the folder into place."""
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{archive.folder}."))
    try:
        with tarfile.open(path) as file:
            file.extractall(temporary, filter="data")
        if not (temporary / archive.folder).is_dir():
            raise DataError(f"{path}: holds no folder {archive.folder}")
        os.replace(temporary / archive.folder, path.parent / archive.folder)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{path}: cannot be unpacked ({error}); delete it and fetch it again") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def unpacked(archive: Archive, parent: Path, download: bool) -> Path:
    """The archive's folder below `parent`: as it is there, or unpacked from the archive there, or downloaded.

    Raises: MissingDataError if it is not here, DataError for a damaged archive (an HTML page, a cut file).
    """
    folder, path = parent / archive.folder, parent / archive.name
    if folder.is_dir():
        return folder
    if path.is_file():
        try:
            require_intact(path, archive)
        except DataError:
            if not download:
                raise
            path.unlink()
    if not path.is_file():
        if not download:
            raise MissingDataError(f"{parent} holds neither the folder {archive.folder} nor {archive.name}")
        _download(archive, path)
    _unpack(path, archive)
    return folder
