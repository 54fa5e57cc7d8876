"""Extractors of texts: DistilBERT and any transformers encoder."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dpexp.config import ConfigError, ExtractorConfig, one_of
from dpexp.data import DataError, Split
from dpexp.features.encoders import DTYPES, Batch, Encoder, frozen
from dpexp.features.weights import file_sha256, local_path

POOLINGS = ("cls", "mean")
KEYS = ("model", "revision", "pooling", "max_length", "dtype", "tf32")
# What makes an encoder: weights, configuration, tokenizer; not its read-me nor other frameworks' copies of the weights.
PATTERNS = ("*.safetensors", "*.json", "vocab.txt", "merges.txt", "*.model")


def check_text(config: ExtractorConfig) -> None:
    """Check the settings of a text encoder."""
    one_of("extractor.pooling", config.pooling, POOLINGS)
    one_of("extractor.dtype", config.dtype, tuple(DTYPES))
    if config.max_length is None or config.max_length < 3:
        raise ConfigError(f"extractor.max_length must be a whole number >= 3, got {config.max_length}")
    if not config.model and not config.weights:
        raise ConfigError("give extractor.model (a name on the Hub) or extractor.weights (a local folder), got neither")


def _snapshot(config: ExtractorConfig, download: bool) -> Path:
    """The folder of a Hub encoder at its pinned revision."""
    from huggingface_hub import snapshot_download

    assert config.model is not None
    return Path(
        snapshot_download(
            config.model,
            revision=config.revision,
            allow_patterns=list(PATTERNS),
            local_files_only=not download,
        )
    )


def _folder_sha256(folder: Path) -> str:
    """sha256 of all files that make an encoder."""
    files = sorted({file for pattern in PATTERNS for file in folder.glob(pattern)})
    files += sorted(folder.glob("*.bin")) if not any(f.suffix == ".safetensors" for f in files) else []
    if not files:
        raise DataError(f"{folder}: holds no transformers encoder (no weights, no configuration)")
    return file_sha256(files)


def find_encoder(config: ExtractorConfig) -> str | None:
    """sha256 of the encoder's files if they are on this machine."""
    if config.weights is not None:
        return _folder_sha256(Path(config.weights)) if Path(config.weights).is_dir() else None
    try:
        return _folder_sha256(_snapshot(config, download=False))
    except (ImportError, OSError, ValueError):  # not in the Hub's cache
        return None


def _folder(config: ExtractorConfig) -> Path:
    """The encoder's folder: local, in the Hub's cache, or downloaded now."""
    path = local_path(config)
    if path is not None:
        if not path.is_dir():
            raise ConfigError(f"extractor.weights must be a transformers folder for {config.name}, got the file {path}")
        return path
    try:
        return _snapshot(config, download=True)
    except Exception as error:  # the Hub's client raises many kinds without a network
        raise DataError(
            f"{config.model} is not in the Hub's cache and downloading failed ({type(error).__name__}: {error}); "
            "set extractor.weights to a local folder"
        ) from error


def pool(hidden: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """[n, tokens, d] -> [n, d]: the first token, or the mean over the tokens that the mask [n, tokens] keeps."""
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


def build_encoder(config: ExtractorConfig, device: str) -> Encoder:
    """A transformers encoder: last hidden state, pooled. Longer texts are cut at `max_length` tokens and counted."""
    import transformers
    from transformers import AutoModel, AutoTokenizer

    folder = _folder(config)
    weights = _folder_sha256(folder)
    transformers.utils.logging.disable_progress_bar()
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model: Any = AutoModel.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # damaged or incomplete folders surface as many kinds
        raise DataError(f"{folder}: cannot be read as an encoder ({type(error).__name__}: {error})") from error
    if not tokenizer.is_fast:
        raise DataError(f"{folder}: needs a fast tokenizer (tokenizer.json), which counts what it cuts off")
    assert config.max_length is not None
    longest = int(getattr(model.config, "max_position_embeddings", config.max_length))
    if config.max_length > longest:
        raise ConfigError(f"extractor.max_length must be at most {longest} for {folder.name}, got {config.max_length}")
    model = frozen(model, config, device)

    def prepare(split: Split) -> Batch:
        texts = list(split.samples)
        tokens = tokenizer(texts, truncation=True, max_length=config.max_length, padding=True, return_tensors="pt")
        cut = sum(bool(encoding.overflowing) for encoding in tokens.encodings)
        inputs = {key: tokens[key] for key in ("input_ids", "attention_mask")}
        return Batch(inputs=inputs, truncated=cut)

    def forward(inputs: dict[str, Tensor]) -> Tensor:
        hidden = model(**inputs).last_hidden_state
        return pool(hidden.to(torch.float32), inputs["attention_mask"], str(config.pooling))

    return Encoder(prepare=prepare, forward=forward, weights=weights, device=device, length=len)
