"""The real architectures with seeded random weights from local files: what a feature may depend on, and what not."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import small_sources as sources
import torch
from PIL import Image
from safetensors.torch import save_file

from dpexp.config import ConfigError, ExtractorConfig
from dpexp.data import DataError, ImageFile, Split
from dpexp.features import extractors, vision
from dpexp.features.encoders import Encoder, matmul_precision
from dpexp.features.extraction import encode

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
TEXTS = ["i am happy", "", "the cat sat on a mat .", "🎉 🎉", "http : / /", "sad " * 5000, "i", "unknown words here"]


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors gain nothing from threads, and lose much when other tests run beside these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build(name: str, **settings) -> Encoder:
    config = ExtractorConfig(name=name, **settings)
    return extractors.check(config).build(config, "cpu")


def photos(n: int = 5) -> Split:
    """Photos of different sizes and modes."""
    modes = ["RGB", "L", "P", "RGBA", "CMYK"]
    images = [sources.noise_image(modes[i % 5], (70 + i, 66), seed=i) for i in range(n)]
    forms = ["JPEG" if image.mode == "CMYK" else "PNG" for image in images]
    files = [
        ImageFile(name=str(i), content=sources.encoded(image, form))
        for i, (image, form) in enumerate(zip(images, forms, strict=True))
    ]
    return Split(samples=files, labels=np.arange(n))


@pytest.fixture(scope="module")
def resnet_files(tmp_path_factory) -> dict[str, Path]:
    """State dicts of both ResNets with seeded random weights, not a new network's running statistics."""
    import torchvision.models

    found = {}
    for name in ("resnet18", "resnet34"):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            state = torchvision.models.get_model(name).state_dict()
        for key in state:
            if key.endswith("running_var"):
                state[key] = state[key] * 1.5
        found[name] = tmp_path_factory.mktemp("weights") / f"{name}.pth"
        torch.save(state, found[name])
    return found


@pytest.fixture(scope="module")
def distilbert_folder(tmp_path_factory) -> Path:
    """DistilBERT as on the Hub."""
    folder = tmp_path_factory.mktemp("distilbert")
    sources.write_distilbert(folder)
    return folder


def bert(folder: Path, **settings) -> Encoder:
    settings = {"pooling": "cls", "max_length": 512} | settings
    return build("distilbert", weights=str(folder), **settings)


def texts(samples: list[str]) -> Split:
    return Split(samples=samples, labels=np.zeros(len(samples), dtype=np.int64))


@pytest.mark.parametrize("name", ["resnet18", "resnet34"])
def test_resnet_features_are_what_its_classifier_sees(resnet_files, name):
    import torchvision.models
    from torchvision.transforms import v2

    split = photos()
    found = encode(build(name, weights=str(resnet_files[name]), resize=40, crop=32, **IMAGENET), split, 2).x
    model = torchvision.models.get_model(name).eval()
    model.load_state_dict(torch.load(resnet_files[name], weights_only=True))
    seen = []
    model.fc.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    steps = [
        v2.Resize(40),
        v2.CenterCrop(32),
        v2.PILToTensor(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(**IMAGENET),
    ]
    with torch.inference_mode():
        for file in split.samples:
            with Image.open(io.BytesIO(file.content)) as image:
                model(
                    v2.Compose(steps)(
                        image.convert("RGBA").convert("RGB") if image.mode == "P" else image.convert("RGB")
                    )[None]
                )
    assert found.shape == (5, 512)
    np.testing.assert_allclose(found, torch.cat(seen).numpy(), rtol=1e-4, atol=1e-4)


def test_resnet_features_do_not_depend_on_the_batch_and_keep_the_networks_state(resnet_files):
    encoder = build("resnet18", weights=str(resnet_files["resnet18"]), resize=40, crop=32, **IMAGENET)
    model = next(c.cell_contents for c in encoder.forward.__closure__ if isinstance(c.cell_contents, torch.nn.Module))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    split = photos(10)
    one, many = encode(encoder, split, 1).x, encode(encoder, split, 64).x
    np.testing.assert_allclose(one, many, rtol=1e-5, atol=1e-5)
    assert not any(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_rows_stay_in_the_order_of_their_labels():
    images = np.arange(50, dtype=np.uint8)[:, None, None] * np.ones((1, 4, 4), dtype=np.uint8)
    x = encode(build("raw"), Split(samples=images, labels=np.arange(50)), 7).x
    np.testing.assert_allclose(x[:, 0] * 255, np.arange(50), rtol=1e-6)


def test_a_resnet_finds_other_weights_out(resnet_files, tmp_path):
    settings = {"resize": 40, "crop": 32, **IMAGENET}
    with pytest.raises(DataError, match=r"resnet34.pth: holds other weights than this network needs"):
        build("resnet18", weights=str(resnet_files["resnet34"]), **settings)
    (tmp_path / "page.pth").write_text("<!DOCTYPE html>")
    with pytest.raises(DataError, match=r"page.pth: cannot be read as weights"):
        build("resnet18", weights=str(tmp_path / "page.pth"), **settings)
    with pytest.raises(ConfigError, match=r"extractor.weights must be a file or folder that exists, got /no/such"):
        build("resnet18", weights="/no/such", **settings)


def test_the_weights_hash_is_that_of_the_content_not_of_the_path(resnet_files, tmp_path):
    config = ExtractorConfig(name="resnet18", weights=str(resnet_files["resnet18"]), **IMAGENET)
    copy = tmp_path / "resnet18.pth"
    copy.write_bytes(resnet_files["resnet18"].read_bytes())
    assert vision.find_resnet(config) == vision.find_resnet(ExtractorConfig(name="resnet18", weights=str(copy)))
    other = ExtractorConfig(name="resnet34", weights=str(resnet_files["resnet34"]))
    assert vision.find_resnet(config) != vision.find_resnet(other)


@pytest.mark.parametrize(
    ("resize", "crop", "size"), [(None, None, (70, 66)), (32, None, (33, 32)), (40, 24, (24, 24)), (8, 16, (16, 16))]
)
def test_geometry_is_torchvisions(resize, crop, size):
    from torchvision.transforms import v2

    image = sources.noise_image(size=(70, 66))
    config = ExtractorConfig(name="raw", resize=resize, crop=crop)
    split = Split(samples=np.asarray(image)[None], labels=np.zeros(1, dtype=np.int64))
    found = vision.pixels(split, config)[0]
    steps = ([v2.Resize(resize)] if resize else []) + ([v2.CenterCrop(crop)] if crop else [])
    wanted = v2.Compose([*steps, v2.Identity()])(image)
    assert found.shape == (size[1], size[0], 3)
    np.testing.assert_array_equal(found, np.asarray(wanted))


def test_a_timm_backbone_reads_a_local_checkpoint_with_its_classifier(tmp_path):
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        whole = timm.create_model("resnet10t", num_classes=7).eval()
    save_file(whole.state_dict(), tmp_path / "w.safetensors")
    settings = {"model": "resnet10t", "weights": str(tmp_path / "w.safetensors"), "resize": 32, "crop": 32, **IMAGENET}
    split = photos(3)
    found = encode(build("timm", **settings), split, 2).x
    image = torch.from_numpy(vision.pixels(split, ExtractorConfig(name="timm", resize=32, crop=32))).permute(0, 3, 1, 2)
    mean, std = (torch.tensor(IMAGENET[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    with torch.inference_mode():
        wanted = whole.forward_head(whole.forward_features((image / 255 - mean) / std), pre_logits=True)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(DataError, match="timm cannot make 'resnet10x'"):
        build("timm", **(settings | {"model": "resnet10x"}))


def test_distilbert_features_do_not_depend_on_padding_or_batch(distilbert_folder):
    for pooling in ("cls", "mean"):
        encoder = bert(distilbert_folder, pooling=pooling, max_length=16)
        one, many = encode(encoder, texts(TEXTS), 1).x, encode(encoder, texts(TEXTS), 64).x
        assert one.shape == (len(TEXTS), 768)
        np.testing.assert_allclose(one, many, rtol=1e-5, atol=1e-5)
        assert np.isfinite(one).all()


def test_distilbert_pools_the_last_hidden_state_of_each_text_alone(distilbert_folder):
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = (
        AutoTokenizer.from_pretrained(distilbert_folder),
        AutoModel.from_pretrained(distilbert_folder).eval(),
    )
    with torch.inference_mode():
        hidden = [model(**tokenizer(t, return_tensors="pt")).last_hidden_state[0] for t in TEXTS[:5]]
    for pooling, take in (("cls", lambda h: h[0]), ("mean", lambda h: h.mean(0))):
        found = encode(bert(distilbert_folder, pooling=pooling), texts(TEXTS[:5]), 5).x
        np.testing.assert_allclose(found, torch.stack([take(h) for h in hidden]).numpy(), rtol=1e-4, atol=1e-5)


def test_long_texts_are_cut_and_counted(distilbert_folder):
    shard = encode(bert(distilbert_folder, max_length=8), texts(["sad " * 6, "sad " * 7, "sad " * 5000]), 3)
    assert shard.truncated == 2  # six words and two special tokens just fit
    np.testing.assert_allclose(shard.x[1], shard.x[0], rtol=1e-5, atol=1e-5)


def test_sorting_by_length_keeps_the_order_of_the_rows(distilbert_folder):
    encoder = bert(distilbert_folder, max_length=16)
    forward = encode(encoder, texts(TEXTS), 3).x
    backward = encode(encoder, texts(TEXTS[::-1]), 3).x
    np.testing.assert_allclose(forward, backward[::-1], rtol=1e-5, atol=1e-5)


def test_other_encoder_files_give_another_weights_hash(distilbert_folder):
    config = ExtractorConfig(name="hf", weights=str(distilbert_folder), pooling="mean", max_length=16)
    find = extractors.EXTRACTORS["hf"].find_weights
    before = find(config)
    about = distilbert_folder / "config.json"
    kept = about.read_text()
    about.write_text(json.dumps(json.loads(kept) | {"note": 1}))
    assert find(config) != before
    about.write_text(kept)
    assert find(config) == before


def test_text_settings_are_checked(distilbert_folder, tmp_path):
    with pytest.raises(ConfigError, match=r"extractor.pooling must be one of cls, mean; got 'max'"):
        bert(distilbert_folder, pooling="max")
    with pytest.raises(ConfigError, match=r"extractor.max_length must be at most 512"):
        bert(distilbert_folder, max_length=513)
    with pytest.raises(ConfigError, match=r"give extractor.model .*or extractor.weights .*got neither"):
        build("hf", pooling="mean", max_length=16)
    with pytest.raises(DataError, match="holds no transformers encoder"):
        bert(tmp_path)


def test_image_settings_are_checked():
    with pytest.raises(ConfigError, match=r"extractor.std must be > 0, got \[1, 1, 0\]"):
        build("resnet18", mean=0.5, std=[1, 1, 0])
    with pytest.raises(ConfigError, match=r"extractor.mean must be one number or three"):
        build("resnet18", std=0.5)
    with pytest.raises(
        ConfigError, match=r"extractor.interpolation must be one of nearest, bilinear, bicubic; got 'cubic'"
    ):
        build("raw", interpolation="cubic")
    with pytest.raises(ConfigError, match=r"extractor.crop must be a whole number >= 1 or null, got 0"):
        build("raw", crop=0)


def test_bfloat16_is_near_float32_and_in_the_recipe(resnet_files):
    settings = {"weights": str(resnet_files["resnet18"]), "resize": 40, "crop": 32, **IMAGENET}
    full, half = (encode(build("resnet18", dtype=d, **settings), photos(3), 3).x for d in ("float32", "bfloat16"))
    assert 0 < np.abs(full - half).max() < 0.1 * np.abs(full).max()
    assert "dtype" in extractors.EXTRACTORS["resnet18"].keys


def test_tf32_is_off_unless_asked_for_and_restored():
    before = torch.backends.cuda.matmul.fp32_precision
    with matmul_precision(False):
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    with matmul_precision(True):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert torch.backends.cuda.matmul.fp32_precision == before
