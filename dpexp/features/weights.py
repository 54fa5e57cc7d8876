"""Weights files and their hashes."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dpexp.config import ConfigError, ExtractorConfig
from dpexp.data import DataError


def file_sha256(paths: Iterable[Path]) -> str:
    """Hex digest of the content of files, with their names, in the given order."""
    content = hashlib.sha256()
    for path in paths:
        content.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                content.update(chunk)
    return content.hexdigest()


def state_sha256(state: dict[str, Tensor]) -> str:
    """Hex digest of named tensors."""
    content = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        content.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        content.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def local_path(config: ExtractorConfig) -> Path | None:
    """The configured local weights, or None for those of the hub.

    Raises: ConfigError if the path does not exist.
    """
    if config.weights is None:
        return None
    path = Path(config.weights)
    if not path.exists():
        raise ConfigError(f"extractor.weights must be a file or folder that exists, got {config.weights}")
    return path


def find_file(config: ExtractorConfig) -> str | None:
    """sha256 of the configured weights file if it is on this machine."""
    path = Path(config.weights) if config.weights else None
    return file_sha256([path]) if path and path.is_file() else None


def read_state(path: Path) -> dict[str, Tensor]:
    """Named tensors of a .safetensors file or of a PyTorch checkpoint (tensors only, no code is run).

    Raises: DataError for anything else.
    """
    try:
        state: Any
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each format has its own kinds of errors for a damaged file
        raise DataError(f"{path}: cannot be read as weights ({type(error).__name__}: {error})") from error
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise DataError(f"{path}: must hold a table of named tensors (a state_dict), got {type(state).__name__}")
    return state


def load_into(model: torch.nn.Module, state: dict[str, Tensor], path: Path, head: tuple[str, ...]) -> None:
    """Load tensors into a network whose classifier (`head`: its names) was taken off.

    Raises: DataError when other tensors than the classifier's are missing, left over or of another shape.
    """
    state = {name: value for name, value in state.items() if name.partition(".")[0] not in head}
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).replace("\n", " ")[:300]
        raise DataError(f"{path}: holds other weights than this network needs: {reason}") from error
