"""The file format of the feature cache."""

import json

import numpy as np
import small_sources as sources
from feature_worlds import cache_file, forbid, mnist

from dpexp import features
from dpexp.features import store


def test_the_store_gives_back_what_was_written(tmp_path):
    rng = np.random.default_rng(0)
    x = {part: rng.normal(size=(n, 3)).astype(np.float32) for part, n in (("train", 5), ("test", 2))}
    y = {"train": np.array([0, 1, 2, 0, 1]), "test": np.array([2, 0])}
    shapes = {part: array.shape for part, array in x.items()}
    about = store.Header(
        recipe={"a": 1},
        data="d",
        weights="w",
        dataset="two words",
        extractor="raw",
        num_classes=3,
        source="é",
        shapes={part: list(shape) for part, shape in shapes.items()},
        digest=store.content_digest(shapes, lambda part: iter([x[part]]), y),
    )
    store.write(tmp_path / "f.safetensors", about, lambda part: iter([x[part][:1], x[part][1:]]), y)
    found, header = store.read(tmp_path / "f.safetensors")
    assert header == about
    np.testing.assert_array_equal(found.train.x.numpy(), x["train"])
    np.testing.assert_array_equal(found.test.y.numpy(), y["test"])


def test_the_header_is_strict_json(tmp_path):
    sources.write_mnist(tmp_path)
    features.load(mnist(tmp_path))
    content = cache_file(tmp_path).read_bytes()
    length = int.from_bytes(content[:8], "little")
    about = json.loads(content[8 : 8 + length])["__metadata__"]["dpexp"]
    json.loads(about, parse_constant=forbid)
