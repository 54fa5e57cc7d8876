"""Extractors of images: raw pixels, torchvision ResNets, any timm backbone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from dpexp.config import ConfigError, ExtractorConfig, one_of
from dpexp.data import DataError, ImageFile, Split
from dpexp.data.pixels import decode
from dpexp.features.encoders import DTYPES, Batch, Encoder, channel_values, frozen
from dpexp.features.weights import file_sha256, find_file, load_into, local_path, read_state, state_sha256

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
GEOMETRY = ("resize", "crop", "interpolation")
NORMALISED = (*GEOMETRY, "mean", "std", "dtype", "tf32")


def _resized(image: Image.Image, config: ExtractorConfig) -> Image.Image:
    """The shorter side scaled to `resize`, then the centre square of side `crop` (torchvision's evaluation recipe)."""
    if config.resize is not None:
        width, height = image.size
        scale = config.resize / min(width, height)
        # The longer side is cut off, not rounded, as torchvision does.
        size = (max(config.resize, int(width * scale)), max(config.resize, int(height * scale)))
        image = image.resize(size, FILTERS[config.interpolation])
    if config.crop is not None:
        left, top = round((image.width - config.crop) / 2), round((image.height - config.crop) / 2)
        image = image.crop((left, top, left + config.crop, top + config.crop))
    return image


def _image(sample: Any) -> Image.Image:
    """One sample as RGB."""
    return decode(sample) if isinstance(sample, ImageFile) else Image.fromarray(sample).convert("RGB")


def pixels(split: Split, config: ExtractorConfig) -> np.ndarray:
    """uint8 [n, height, width, 3], after resizing and cropping.

    Raises: DataError for images of different sizes when no crop makes them equal.
    """
    images = [np.asarray(_resized(_image(sample), config)) for sample in split.samples]
    sizes = {image.shape for image in images}
    if len(sizes) > 1:
        found = ", ".join(f"{w} x {h}" for h, w, _ in sorted(sizes)[:3])
        raise DataError(f"images differ in size ({found}, ...); set extractor.resize and extractor.crop")
    return np.stack(images)


def check_geometry(config: ExtractorConfig) -> None:
    """Check image sizes, interpolation and normalisation."""
    one_of("extractor.interpolation", config.interpolation, tuple(FILTERS))
    for key in ("resize", "crop"):
        value = getattr(config, key)
        if value is not None and value < 1:
            raise ConfigError(f"extractor.{key} must be a whole number >= 1 or null, got {value}")


def check_normalised(config: ExtractorConfig) -> None:
    """Check what the networks need beside the geometry."""
    check_geometry(config)
    one_of("extractor.dtype", config.dtype, tuple(DTYPES))
    for key in ("mean", "std"):
        values = channel_values(f"extractor.{key}", getattr(config, key))
        if key == "std" and min(values) <= 0:
            raise ConfigError(f"extractor.std must be > 0, got {getattr(config, key)!r}")


def build_raw(config: ExtractorConfig, device: str) -> Encoder:
    """Feature vectors as they are; flattened pixels / 255 of images: [n, height * width] if grey, else 3 times that."""

    def prepare(split: Split) -> Batch:
        samples = split.samples
        if isinstance(samples, np.ndarray) and samples.ndim == 2:
            with np.errstate(over="ignore"):  # becomes infinite, which is refused later with its row
                return Batch(inputs={"x": torch.from_numpy(samples.astype(np.float32))})
        as_stored = isinstance(samples, np.ndarray) and config.resize is None and config.crop is None
        values = np.asarray(samples) if as_stored else pixels(split, config)
        return Batch(inputs={"x": torch.from_numpy(values.reshape(len(values), -1).astype(np.float32) / 255)})

    return Encoder(prepare=prepare, forward=lambda inputs: inputs["x"])


def _image_encoder(model: nn.Module, weights: str, config: ExtractorConfig, device: str) -> Encoder:
    """A network that maps normalised images [n, 3, height, width] to features [n, d]."""
    model = frozen(model, config, device).to(memory_format=torch.channels_last)
    mean, std = (
        torch.tensor(channel_values(f"extractor.{key}", getattr(config, key)), device=device).view(1, 3, 1, 1)
        for key in ("mean", "std")
    )

    def prepare(split: Split) -> Batch:
        # A permuted view of [n, h, w, c] is the channels-last layout.
        return Batch(inputs={"image": torch.from_numpy(pixels(split, config)).permute(0, 3, 1, 2)})

    def forward(inputs: dict[str, Tensor]) -> Tensor:
        image = (inputs["image"].float() / 255 - mean) / std
        return model(image.to(DTYPES[config.dtype], memory_format=torch.channels_last))

    return Encoder(prepare=prepare, forward=forward, weights=weights, device=device)


def _resnet_weights(name: str) -> Any:
    """torchvision's enum entry of the paper's weights."""
    import torchvision.models

    return torchvision.models.get_model_weights(name)["IMAGENET1K_V1"]


def _resnet_file(name: str) -> Path:
    """Where the hub keeps the weights of a ResNet once they are downloaded."""
    return Path(torch.hub.get_dir()) / "checkpoints" / Path(_resnet_weights(name).url).name


def find_resnet(config: ExtractorConfig) -> str | None:
    """sha256 of the ResNet's weights if they are on this machine."""
    if config.weights is not None:
        return find_file(config)
    file = _resnet_file(config.name)
    return file_sha256([file]) if file.is_file() else None


def build_resnet(config: ExtractorConfig, device: str) -> Encoder:
    """ResNet-18 or -34 without its classifier: the 512 average-pooled features before it (He et al. 2016)."""
    import torchvision.models

    path = local_path(config) or _resnet_file(config.name)
    if not path.exists():
        _download_resnet(config.name)
    model = torchvision.models.get_model(config.name)
    model.fc = nn.Identity()
    load_into(model, read_state(path), path, head=("fc",))
    return _image_encoder(model, file_sha256([path]), config, device)


def _download_resnet(name: str) -> None:
    """Fetch a ResNet's weights into the hub's folder; its hash is checked before the file gets its name."""
    try:
        torch.hub.load_state_dict_from_url(_resnet_weights(name).url, progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"the weights of {name} are not in {_resnet_file(name).parent} and downloading failed ({error}); "
            "set extractor.weights to a local file"
        ) from error


def check_timm(config: ExtractorConfig) -> None:
    """A timm extractor names its architecture."""
    check_normalised(config)
    if not config.model:
        raise ConfigError("extractor.model must name a timm architecture (for example resnet50), got null")


def build_timm(config: ExtractorConfig, device: str) -> Encoder:
    """Any timm backbone without its classifier, with weights from a local file or from timm's hub."""
    import timm

    assert config.model is not None
    path = local_path(config)
    create: Callable[..., nn.Module] = timm.create_model
    try:
        model = create(config.model, pretrained=path is None, num_classes=0)
    except Exception as error:  # timm and the hub raise many kinds: unknown name, no network, no such tag
        raise DataError(
            f"timm cannot make {config.model!r} ({type(error).__name__}: {error}); check extractor.model, or set "
            "extractor.weights to a local file"
        ) from error
    if path is None:
        return _image_encoder(model, state_sha256(model.state_dict()), config, device)
    heads = getattr(model, "default_cfg", {}).get("classifier") or ()
    heads = (heads,) if isinstance(heads, str) else tuple(heads)
    load_into(model, read_state(path), path, head=tuple(head.partition(".")[0] for head in heads))
    return _image_encoder(model, file_sha256([path]), config, device)
