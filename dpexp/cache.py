"""Files that are written once, whole, and found again by what they contain."""

import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

log = logging.getLogger(__name__)


class DiskFullError(OSError):
    """Not enough room for a file. The message says how much is needed and how much is free."""


class TakenError(RuntimeError):
    """Another process holds a claim. The message is what it wrote about itself; empty if it has not yet."""


def digest(value: Any, length: int = 16) -> str:
    """Hex digest of a JSON-like value; equal values give equal digests in every process and on every machine."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def write_atomic(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file under a temporary name and move it into place, so that existence means completeness.

    content: the bytes, or pieces of them in order, for files that should not be held in memory.
    Raises: DiskFullError, after the temporary file is gone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    written = 0
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in (content,) if isinstance(content, bytes) else content:
                written += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes files private; results are meant to be shared
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(path.parent).free
            raise DiskFullError(
                error.errno,
                f"no room for {path}: {written:,} bytes were written, {free:,} bytes are free there now",
            ) from error
        raise


def require_free(folder: Path, needed: int) -> None:
    """Fail early when a folder's file system cannot take `needed` bytes.

    Raises: DiskFullError.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskFullError(errno.ENOSPC, f"{folder} needs {needed:,} bytes, {free:,} are free")


def _lock(descriptor: int, path: Path) -> bool:
    """Take an exclusive lock, saying so if another process has to be waited for; False where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.warning("waiting for another process that builds %s", path)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock of `path` (a file beside it) while its content is built; others wait. A dead holder frees it.

    Yields False where the file system has no locks: then several builders may work at once, and only the atomic
    write keeps them apart.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("a") as file:
        yield _lock(file.fileno(), path)


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Hold a lock file that names this process; refuse at once, without waiting, while another process holds it.

    The lock is the operating system's and ends with its holder, so a file that a killed process left behind blocks
    nobody. Where the file system has no locks nothing is refused.
    Raises: TakenError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _claim(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock ends: whoever comes next makes a file of its own
        file.close()


def _claim(path: Path) -> IO[str]:
    """The lock file, open and locked, with this process named in it."""
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            file.close()
            raise TakenError(holder) from None
        except OSError:
            log.warning("%s: no locks on this file system; do not start two sweeps here at once", path.parent)
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            break
        file.close()  # its last holder removed it between our opening and our locking
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}")
    file.flush()
    return file
