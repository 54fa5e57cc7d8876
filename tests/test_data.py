"""MNIST-like files, the Hub's Parquet files, CIFAR pickles, Caltech-256 and Food-101 in their own layouts."""

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
import small_sources as sources

from dpexp import data
from dpexp.config import ConfigError, DatasetConfig
from dpexp.data import DataError, MissingDataError, idx


def load(root: Path, name: str, **settings) -> data.Splits:
    settings = {"sizes": "any"} | settings
    return data.load(DatasetConfig(name=name, **settings), root, download=False)


def test_idx_files_give_back_the_images_and_labels_that_were_written(tmp_path):
    sources.write_mnist(tmp_path)
    splits = load(tmp_path, "mnist")
    np.testing.assert_array_equal(splits.train.samples, sources.grey(20, 1))
    assert splits.test.labels.tolist() == list(range(10))
    assert splits.num_classes == 10


def test_a_sample_is_refused_unless_asked_for_and_then_named_as_one(tmp_path):
    sources.write_mnist(tmp_path)
    with pytest.raises(DataError, match=r"60,000 training and 10,000 test samples, found 20 and 10.*sizes=any"):
        load(tmp_path, "mnist", sizes="official")
    assert load(tmp_path, "mnist").name == "mnist-sample"


def test_no_folder_of_this_machine_reaches_the_results(tmp_path):
    sources.write_mnist(tmp_path)
    assert str(tmp_path) not in load(tmp_path, "mnist").source


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<!DOCTYPE html>",
        gzip.compress(sources.idx(sources.grey(3)))[:-9],
        gzip.compress(sources.idx(sources.grey(3))[:-1]),
    ],
    ids=["zero bytes", "HTML", "cut gzip", "one byte short"],
)
def test_a_damaged_idx_file_is_named(tmp_path, content):
    sources.write_mnist(tmp_path)
    (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz.*fetch it again"):
        load(tmp_path, "mnist")


def test_missing_data_is_told_from_damaged_data(tmp_path):
    with pytest.raises(MissingDataError, match="MNIST is not in"):
        load(tmp_path, "mnist")


def test_a_download_that_fails_says_where_to_put_the_files(tmp_path, monkeypatch):
    def refuse(root, **options):
        raise RuntimeError("File not found or corrupted.")

    monkeypatch.setattr("torchvision.datasets.EMNIST", refuse)
    with pytest.raises(MissingDataError, match=r"EMNIST is not in .*raw and downloading failed \(File not found"):
        data.load(DatasetConfig(name="emnist"), tmp_path)


def test_emnist_letters_start_at_one_and_become_26_classes(tmp_path):
    for part, n in (("train", 52), ("test", 26)):
        labels = np.arange(n) % 26 + 1
        sources.write_idx(tmp_path / "EMNIST" / "raw", f"emnist-letters-{part}", sources.grey(n), labels)
    splits = load(tmp_path, "emnist", subset="letters")
    assert splits.num_classes == 26
    assert splits.train.labels.min() == 0
    assert splits.train.labels.max() == 25
    assert splits.classes[0] == "a"


def test_emnist_images_are_upright_and_labels_are_the_files(tmp_path):
    for part in ("train", "test"):
        sources.write_idx(
            tmp_path / "EMNIST" / "raw" / "gzip", f"emnist-balanced-{part}", sources.grey(47), np.arange(47)
        )
    splits = load(tmp_path, "emnist")
    np.testing.assert_array_equal(splits.train.samples, sources.grey(47).transpose(0, 2, 1))
    assert splits.train.labels.tolist() == list(range(47))
    assert len(splits.classes) == 47
    assert splits.classes[10] == "A"


def test_emnist_sizes_make_one_over_n_smaller_than_the_papers_delta():
    assert 1 / idx.EMNIST_SUBSETS["balanced"][0] < 1e-5


def test_hub_files_keep_their_order_and_their_definitions_classes(tmp_path):
    sources.write_texts(tmp_path / "imdb" / "plain_text", {"train": (["b", "a", ""], [1, 1, 1]), "test": (["c"], [0])})
    splits = load(tmp_path, "imdb")
    assert splits.train.samples == ["b", "a", ""]
    assert splits.num_classes == 2  # although only one class is in the training part
    assert splits.train.labels.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a", "b"], [0, -1], r"integers 0\.\.1; found -1 in row 1 \(1 such rows\)"),
        (["a", "b"], [0, 2], r"integers 0\.\.1; found 2"),
        (["a", "b"], [0.0, 1.0], r"integers 0\.\.1; found 0.0"),
        (["a", None], [0, 1], "row 1 must hold a text, got None"),
    ],
)
def test_bad_rows_of_a_text_table_are_named(tmp_path, texts, labels, message):
    good = (["c"], [0])
    sources.write_texts(tmp_path / "imdb" / "plain_text", {"train": (texts, labels), "test": good})
    with pytest.raises(DataError, match=message):
        load(tmp_path, "imdb")


def test_a_missing_shard_and_a_cut_parquet_file_are_named(tmp_path):
    folder = tmp_path / "imdb" / "plain_text"
    sources.write_texts(folder, {"train": (["a"], [0]), "test": (["c"], [0])})
    (folder / "test-00000-of-00001.parquet").rename(folder / "test-00000-of-00002.parquet")
    with pytest.raises(DataError, match="1 of 2 files of test"):
        load(tmp_path, "imdb")
    (folder / "test-00000-of-00002.parquet").rename(folder / "test-00000-of-00001.parquet")
    train = folder / "train-00000-of-00001.parquet"
    train.write_bytes(train.read_bytes()[:-20])
    with pytest.raises(DataError, match="not a complete Parquet file"):
        load(tmp_path, "imdb")


def test_cifar10_planes_become_pixels(tmp_path):
    rows = sources.write_cifar10(tmp_path)
    splits = load(tmp_path, "cifar10")
    assert splits.train.samples.shape == (20, 32, 32, 3)
    assert splits.train.samples[7, 5, 11, 2] == rows[7, 2 * 1024 + 5 * 32 + 11]
    assert splits.train.labels[:8].tolist() == [0, 1, 2, 3, 1, 2, 3, 4]


def test_cifar10_is_the_same_from_pickles_and_from_the_hub(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet
    from PIL import Image

    from dpexp.data.pixels import decode

    sources.write_cifar10(tmp_path / "a")
    pickled = load(tmp_path / "a", "cifar10")
    folder = tmp_path / "b" / "cifar10" / "plain_text"
    folder.mkdir(parents=True)
    for part, split in pickled.parts().items():
        images = [{"bytes": sources.encoded(Image.fromarray(pixels)), "path": None} for pixels in split.samples]
        table = pa.table({"img": images, "label": split.labels})
        pyarrow.parquet.write_table(table, folder / f"{part}-00000-of-00001.parquet")
    hub = load(tmp_path / "b", "cifar10")
    np.testing.assert_array_equal(np.stack([np.asarray(decode(f)) for f in hub.train.samples]), pickled.train.samples)
    np.testing.assert_array_equal(hub.train.labels, pickled.train.labels)


def test_cifar100_has_its_fine_labels(tmp_path):
    sources.write_cifar100(tmp_path)
    splits = load(tmp_path, "cifar100")
    assert splits.num_classes == 100
    assert splits.train.labels.tolist() == [99, 98, 97, 96, 95, 94]


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    sources.write_cifar100(tmp_path)
    (tmp_path / "cifar-100-python" / "train").write_bytes(pickle.dumps({"data": Path("x")}))
    with pytest.raises(DataError, match=r"train: is no complete CIFAR batch \(UnpicklingError.*not allowed"):
        load(tmp_path, "cifar100")


def test_a_cut_cifar_batch_is_named(tmp_path):
    sources.write_cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match="data_batch_3: is no complete CIFAR batch"):
        load(tmp_path, "cifar10")


def test_caltech_split_is_seeded_by_class_and_ignores_stray_files(tmp_path):
    sources.write_caltech(tmp_path)
    first, again = load(tmp_path, "caltech256"), load(tmp_path, "caltech256")
    other = load(tmp_path, "caltech256", split_seed=1)
    assert first.num_classes == 3
    assert np.bincount(first.train.labels).tolist() == [4, 4, 4]
    assert np.bincount(first.test.labels).tolist() == [1, 1, 1]
    assert first.identity() == again.identity()
    assert first.identity() != other.identity()
    names = [f.name for split in first.parts().values() for f in split.samples]
    assert len(set(names)) == 15


def test_caltech_can_drop_its_clutter(tmp_path):
    sources.write_caltech(tmp_path)
    splits = load(tmp_path, "caltech256", drop_clutter=True)
    assert splits.num_classes == 2
    assert splits.classes == ("ak47", "spider")
    assert "no_clutter" in splits.name


def test_a_half_unpacked_caltech_does_not_count_as_there(tmp_path):
    sources.write_caltech(tmp_path)
    with pytest.raises(DataError, match=r"30,607 images here, found 15: unpacked in part\?"):
        load(tmp_path, "caltech256", sizes="official")


def test_food_labels_are_the_sorted_class_names_whatever_the_order_of_the_meta_file(tmp_path):
    sources.write_food(tmp_path)
    splits = load(tmp_path, "food101")
    assert splits.classes == ("apple_pie", "waffles")
    assert [f.name for f in splits.train.samples][:1] == ["waffles/train0.jpg"]
    assert splits.train.labels.tolist() == [1, 1, 0, 0]


def test_a_food_image_that_the_meta_file_lists_must_exist(tmp_path):
    folder = sources.write_food(tmp_path)
    (folder / "images" / "apple_pie" / "train1.jpg").unlink()
    with pytest.raises(DataError, match=r"1 of 4 images of train are missing, the first is apple_pie/train1.jpg"):
        load(tmp_path, "food101")


def test_unknown_names_and_settings_list_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match=r"dataset.name must be one of .*fashion_mnist.*did you mean mnist"):
        load(tmp_path, "mnits")
    with pytest.raises(ConfigError, match=r"dataset.subset must be one of balanced, letters"):
        load(tmp_path, "emnist", subset="all")
    with pytest.raises(ConfigError, match=r"dataset.on_bad_image must be one of error, skip"):
        load(tmp_path, "mnist", on_bad_image="ignore")


def test_every_paper_data_set_can_be_named():
    wanted = {
        "caltech256",
        "food101",
        "cifar10",
        "cifar100",
        "emnist",
        "fashion_mnist",
        "mnist",
        "tweeteval_emoji",
        "emotion",
        "imdb",
    }
    assert wanted <= set(data.DATASETS)
