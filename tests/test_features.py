"""What features are made of, what is refused, and whether they are the paper's."""

from pathlib import Path

import numpy as np
import pytest
import small_sources as sources
import torch
from conftest import compose_config
from feature_worlds import custom, mnist

from dpexp import data, features
from dpexp.config import ConfigError
from dpexp.data import DataError
from dpexp.features import extractors, fingerprint, values
from dpexp.reference import PAPER_EXTRACTORS

CONF = Path(__file__).resolve().parent.parent / "conf"
PRINTED = sorted(set(PAPER_EXTRACTORS) - {"caltech256", "food101"})  # the paper prints no percentiles for these


@pytest.fixture
def root(tmp_path):
    """A data root with a small MNIST."""
    sources.write_mnist(tmp_path)
    return tmp_path


def test_rows_with_nan_are_refused_with_count_and_first_index(tmp_path):
    x = np.random.default_rng(0).normal(size=(9, 3))
    x[4, 1], x[7, 0] = np.nan, np.inf
    with pytest.raises(DataError, match=r"2 rows with NaN or infinity, the first is row 4.*on_nonfinite=drop"):
        features.load(custom(tmp_path, x, np.arange(9) % 2))


def test_dropped_rows_leave_exactly_the_features_of_the_data_without_them(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(9, 3)), np.arange(9) % 2
    spoilt = x.copy()
    spoilt[4, 1], spoilt[7, 0] = np.nan, -np.inf
    found, header = features.obtain(custom(tmp_path, spoilt, y, "dataset.on_nonfinite=drop"))
    clean = features.load(custom(tmp_path, np.delete(x, [4, 7], 0), np.delete(y, [4, 7])))
    assert found.digest == clean.digest
    assert len(found.train) == 7
    assert header.dropped == {"train": [4, 7], "test": [4, 7]}


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint8])
def test_features_of_any_real_dtype_are_computed_in_float32(tmp_path, dtype):
    x = np.random.default_rng(0).integers(0, 50, (10, 3)).astype(dtype)
    found = features.load(custom(tmp_path, x, np.arange(10) % 2))
    assert found.train.x.dtype == torch.float32
    np.testing.assert_array_equal(found.train.x.numpy(), x.astype(np.float32))


def test_a_float64_value_beyond_float32_counts_as_infinite(tmp_path):
    x = np.ones((4, 2)) * np.arange(4)[:, None]
    x[3, 0] = 1e300
    with pytest.raises(DataError, match="1 rows with NaN or infinity, the first is row 3"):
        features.load(custom(tmp_path, x, np.arange(4) % 2))


def test_duplicate_rows_warn_with_their_number(tmp_path):
    x = np.arange(12).reshape(6, 2)
    x[3] = x[1]
    with pytest.warns(UserWarning, match="1 duplicate rows in the training features"):
        features.load(custom(tmp_path, x, np.arange(6) % 2))


def test_the_label_map_and_what_was_left_out_are_stored(tmp_path):
    folder = tmp_path / "pets"
    for name in ("dog", "cat"):
        (folder / name).mkdir(parents=True)
        for i in range(4):
            sources.noise_image(seed=i + (name == "cat") * 10).save(folder / name / f"{i}.png")
    (folder / "dog" / "3.png").write_bytes(b"?")
    given = [
        "dataset=custom",
        "dataset.kind=images",
        "dataset.train=pets",
        "dataset.test=pets",
        f"data_root={tmp_path}",
    ]
    config = compose_config(*given, f"features_dir={tmp_path / 'f'}", "dataset.on_bad_image=skip")
    found, header = features.obtain(config)
    assert header.classes == ["cat", "dog"]
    assert header.skipped == ["dog/3.png", "dog/3.png"]
    assert len(found.train) == 7
    assert {"numpy", "torch"} <= set(header.versions)
    with pytest.raises(DataError, match=r"dog/3.png: cannot be decoded"):
        features.load(compose_config(*given, f"features_dir={tmp_path / 'f'}"))


def test_images_of_different_sizes_need_a_crop(tmp_path):
    sources.write_caltech(tmp_path)
    given = ["dataset=caltech256", "dataset.sizes=any", f"data_root={tmp_path}", f"features_dir={tmp_path / 'f'}"]
    with pytest.raises(DataError, match=r"images differ in size .*set extractor.resize and extractor.crop"):
        features.load(compose_config(*given))
    found = features.load(compose_config(*given, "extractor.resize=8", "extractor.crop=8"))
    assert found.train.x.shape == (12, 3 * 8 * 8)


def test_an_extractor_that_cannot_take_the_data_names_those_that_can(root):
    given = mnist(root, "extractor=minilm")
    with pytest.raises(
        DataError, match=r"extractor=hf cannot take images, which mnist-sample holds; use one of: raw, resnet18"
    ):
        features.load(given)


def test_a_setting_that_an_extractor_would_ignore_is_refused(root):
    with pytest.raises(ConfigError, match=r"extractor.pooling must stay None for extractor=raw.*got 'cls'"):
        features.load(mnist(root, "extractor.pooling=cls"))
    with pytest.raises(
        ConfigError, match=r"extractor.name must be one of raw, resnet18, .*got 'resnet19'.*did you mean resnet18"
    ):
        features.load(mnist(root, "extractor.name=resnet19"))


def test_the_fingerprint_knows_the_papers_features_and_says_when_they_differ():
    paper = fingerprint.printed("fashion_mnist")
    assert paper == {0: 3.0, 10: 10.0, 20: 12.2, 40: 15.6, 80: 22.3, 100: 32.4}
    values = np.interp(np.linspace(0, 100, 1001), list(paper), list(paper.values()))
    assert "same features as the paper" in fingerprint.text("fashion_mnist", "raw", values)
    assert "check image size / pooling / weights" in fingerprint.text("fashion_mnist", "raw", values * 1.1)
    assert "the paper used raw, this is timm" in fingerprint.text("fashion_mnist", "timm", values * 1.1)
    assert fingerprint.text("mnist", "raw", values) == ""


def test_every_printed_data_set_has_its_papers_extractor():
    assert len(PRINTED) == 6
    for dataset, extractor in PAPER_EXTRACTORS.items():
        assert len(fingerprint.printed(dataset)) == (6 if dataset in PRINTED else 0)
        assert extractor in extractors.EXTRACTORS


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "dataset").glob("*.yaml")))
def test_every_data_set_file_composes_passes_its_checks_and_names_its_source(name):
    config = compose_config(f"dataset={name}")
    data.check(config.dataset)
    assert config.dataset.name == name
    assert (CONF / "dataset" / f"{name}.yaml").read_text().startswith("# ")


def test_every_data_set_of_the_registry_has_its_file():
    assert {path.stem for path in (CONF / "dataset").glob("*.yaml")} == set(data.DATASETS)


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "extractor").glob("*.yaml")))
def test_every_extractor_file_composes_and_passes_its_checks(name):
    needs_model = ["extractor.model=any"] if name in ("hf", "timm") else []
    extractors.check(compose_config(f"extractor={name}", *needs_model).extractor)


def test_custom_data_needs_a_path(tmp_path):
    with pytest.raises(ConfigError, match="dataset.train must name a file or folder for dataset=custom, got null"):
        features.load(compose_config("dataset=custom", f"data_root={tmp_path}"))


@pytest.mark.parametrize("dataset", PRINTED)
def test_the_percentiles_in_a_data_sets_header_comment_are_the_printed_ones(dataset):
    printed = " ".join(f"{value:.1f}" for value in fingerprint.printed(dataset).values())
    assert f": {printed} (paper L, Table" in (CONF / "dataset" / f"{dataset}.yaml").read_text().replace("\n# ", " ")


def test_equal_rows_are_counted_bit_for_bit_even_among_rows_of_equal_sums():
    x = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [0.0, 0.0], [-0.0, 0.0], [1.0, 2.0]])
    assert values.count_duplicates(x) == 2
    permuted = torch.stack([torch.randperm(9, generator=torch.Generator().manual_seed(i)) for i in range(50)]).float()
    assert values.count_duplicates(torch.cat([permuted, permuted[:7]])) == 7


def test_finite_rows_are_the_same_in_blocks(monkeypatch):
    monkeypatch.setattr(values, "ROWS", 2)
    x = np.ones((5, 3))
    x[1, 2], x[4, 0] = np.nan, -np.inf
    assert values.finite_rows(x).tolist() == [True, False, True, True, False]
    assert values.finite_rows(x[:0]).tolist() == []


def test_paper_l_has_nothing_to_say_about_the_features_of_paper_s():
    assert fingerprint.text("fashion_mnist", "scatter", np.ones(4)) == ""
