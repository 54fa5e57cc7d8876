"""A person's own features, images and texts."""

import numpy as np
import pandas as pd
import pytest
import small_sources as sources
import torch
from safetensors.torch import save_file

from dpexp import data
from dpexp.config import ConfigError, DatasetConfig
from dpexp.data import DataError, labels


def load(root, **settings):
    return data.load(DatasetConfig(name="custom", **settings), root)


def features(n=30, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32), np.arange(n) % 3


def save(path, x, y):
    """Features and labels in the format of the file's ending."""
    if path.suffix == ".npz":
        np.savez(path, x=x, label=y)
    elif path.suffix == ".safetensors":
        save_file({"x": torch.from_numpy(x), "label": torch.from_numpy(y)}, path)
    else:
        frame = pd.DataFrame({"id": range(len(y)), **{f"f{i}": x[:, i] for i in range(x.shape[1])}, "label": y})
        frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors", "a.parquet", "a.csv"])
def test_features_are_the_same_from_every_format(tmp_path, name):
    x, y = features()
    save(tmp_path / name, x, y)
    save(tmp_path / f"test_{name}", x[:6], y[:6])
    column = "x" if name.endswith(("npz", "safetensors")) else "f*"
    splits = load(tmp_path, kind="features", train=name, test=f"test_{name}", x=column, title="mine")
    np.testing.assert_allclose(splits.train.samples, x, rtol=1e-6)
    assert splits.train.labels.tolist() == y.tolist()
    assert (splits.name, splits.num_classes, len(splits.test)) == ("mine", 3, 6)


def test_a_column_of_vectors_and_a_list_of_columns_name_features(tmp_path):
    x, y = features()
    pd.DataFrame({"e": list(x), "label": y}).to_parquet(tmp_path / "a.parquet")
    save(tmp_path / "b.parquet", x, y)
    vectors = load(tmp_path, kind="features", train="a.parquet", x="e")
    chosen = load(tmp_path, kind="features", train="b.parquet", x=["f2", "f0"])
    np.testing.assert_array_equal(chosen.train.samples, np.asarray(vectors.train.samples)[:, [2, 0]])


def test_without_a_test_file_the_split_is_seeded_and_by_class(tmp_path):
    save(tmp_path / "a.npz", *features(n=60))
    settings = {"kind": "features", "train": "a.npz"}
    splits, again = load(tmp_path, **settings), load(tmp_path, **settings)
    assert np.bincount(splits.train.labels).tolist() == [16, 16, 16]
    assert np.bincount(splits.test.labels).tolist() == [4, 4, 4]
    assert splits.identity() == again.identity() != load(tmp_path, **settings, split_seed=1).identity()


def test_bfloat16_features_are_read(tmp_path):
    x = torch.randn(6, 3).to(torch.bfloat16)
    save_file({"x": x, "label": torch.arange(6) % 2}, tmp_path / "a.safetensors")
    splits = load(tmp_path, kind="features", train="a.safetensors", test="a.safetensors")
    np.testing.assert_array_equal(splits.train.samples, x.float().numpy())


def test_an_image_folder_names_its_classes(tmp_path):
    for name in ("dog", "cat"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(5):
            sources.noise_image(seed=i).save(tmp_path / "pets" / name / f"{i}.png")
    (tmp_path / "pets" / "cat" / "notes.txt").write_text("not an image")
    splits = load(tmp_path, kind="images", train="pets")
    assert splits.classes == ("cat", "dog")
    assert (len(splits.train), len(splits.test)) == (8, 2)


def test_a_text_table_is_read_as_it_stands(tmp_path):
    (tmp_path / "mail.csv").write_text('body,topic\n12,spam\n"NA, none",ham\n,spam\n007,ham\n')
    splits = load(tmp_path, kind="texts", train="mail.csv", test="mail.csv", x="body", label="topic")
    assert splits.train.samples == ["12", "NA, none", "", "007"]
    assert splits.classes == ("ham", "spam")
    assert splits.train.labels.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("given", "wanted", "classes"),
    [
        ([1, 26, 3], [0, 2, 1], ["1", "3", "26"]),
        ([0, 2, 7], [0, 1, 2], ["0", "2", "7"]),
        ([0.0, 2.0, 1.0], [0, 2, 1], ["0", "1", "2"]),
        ([[1], [0], [1]], [1, 0, 1], ["0", "1"]),
        (["b", "a", "b"], [1, 0, 1], ["a", "b"]),
        ([True, False, True], [1, 0, 1], ["0", "1"]),
    ],
    ids=["from one", "gaps", "floats", "column", "names", "booleans"],
)
def test_labels_become_zero_to_k_minus_one_with_their_map(given, wanted, classes):
    found, names = labels.mapped_labels([labels.flat_labels(given, "y")], None, "y")
    assert found[0].tolist() == wanted
    assert found[0].dtype == np.int64
    assert names == classes


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, -1, -1], r"found -1 \(2 rows\)"),
        ([0.0, 0.5], "whole numbers or names, found 0.5"),
        ([0.0, float("nan")], "whole numbers or names"),
        (["a", None], "1 labels are missing, the first in row 1"),
        ([[0, 1], [1, 0]], r"one value a row, got shape \(2, 2\)"),
    ],
)
def test_labels_that_mean_nothing_are_refused(given, message):
    with pytest.raises(DataError, match=message):
        labels.flat_labels(given, "y")


def test_num_classes_keeps_absent_classes():
    found, names = labels.mapped_labels([np.array([0, 3]), np.array([4])], 6, "y")
    assert [part.tolist() for part in found] == [[0, 3], [4]]
    assert len(names) == 6
    with pytest.raises(DataError, match=r"dataset.num_classes=3, but the labels have 2 values \(0 ... 7\)"):
        labels.mapped_labels([np.array([0, 7])], 3, "y")


def test_a_class_that_only_the_test_part_has_counts(tmp_path):
    x, y = features()
    save(tmp_path / "a.npz", x, np.minimum(y, 1))
    save(tmp_path / "b.npz", x, y)
    splits = load(tmp_path, kind="features", train="a.npz", test="b.npz")
    assert splits.num_classes == 3
    assert splits.train.labels.max() == 1


def test_a_class_of_one_stays_in_the_training_part():
    train, test = labels.seeded_split(np.array([0] * 10 + [1]), 0.5, 0)
    assert 10 in train
    assert len(test) == 5


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((3, 2)), np.zeros(2, int), "3 samples, 2 labels"),
        (np.zeros((0, 2)), np.zeros(0, int), "0 samples, 0 labels"),
        (np.zeros(3), np.zeros(3, int), r"numeric table \[n, d\], got float64 of shape \(3,\)"),
        (np.array([["a"], ["b"]]), np.zeros(2, int), "numeric table"),
    ],
)
def test_tables_that_are_no_features_are_refused(tmp_path, x, y, message):
    np.savez(tmp_path / "a.npz", x=x, label=y)
    with pytest.raises(DataError, match=message):
        load(tmp_path, kind="features", train="a.npz")


def test_wrong_names_list_the_right_ones(tmp_path):
    save(tmp_path / "a.npz", *features())
    save(tmp_path / "a.csv", *features())
    with pytest.raises(DataError, match="no array 'z'; its arrays are 'x', 'label'"):
        load(tmp_path, kind="features", train="a.npz", x="z")
    with pytest.raises(DataError, match="no column 'z'; its columns are 'id', 'f0'"):
        load(tmp_path, kind="features", train="a.csv", x="z")
    with pytest.raises(ConfigError, match=r"dataset.kind must be one of features, images, texts; got 'image'"):
        load(tmp_path, kind="image", train="a.npz")
    with pytest.raises(
        DataError, match=r"b.npz does not exist; dataset.train and dataset.test are relative to data_root"
    ):
        load(tmp_path, kind="features", train="b.npz")


def test_a_damaged_file_is_named(tmp_path):
    for name in ("a.npz", "a.safetensors", "a.parquet"):
        (tmp_path / name).write_bytes(b"<!DOCTYPE html>")
        with pytest.raises(DataError, match=name):
            load(tmp_path, kind="features", train=name)


def test_parts_of_different_width_are_refused(tmp_path):
    save(tmp_path / "a.npz", *features(d=4))
    save(tmp_path / "b.npz", *features(d=5))
    with pytest.raises(DataError, match=r"a.npz has 4 features a row, b.npz has 5"):
        load(tmp_path, kind="features", train="a.npz", test="b.npz")
