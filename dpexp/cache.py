"""Files that are written once, whole, and found again by what they contain."""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any


def digest(value: Any, length: int = 16) -> str:
    """Hex digest of a JSON-like value; equal values give equal digests in every process and on every machine."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and move it into place, so that existence means completeness."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes files private; results are meant to be shared
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
