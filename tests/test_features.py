"""The feature cache: found by content, never stale, never half-written, built once."""

import errno
import json
import logging
import multiprocessing
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
import small_sources as sources
import torch
from conftest import compose_config
from rich.console import Console

from dpexp import cache, data, features, run
from dpexp.cache import DiskFullError
from dpexp.config import Config, ConfigError
from dpexp.data import DataError
from dpexp.features import extraction, extractors, fingerprint, store


def mnist(root: Path, *overrides: str) -> Config:
    """MNIST's raw pixels from a data root, cached beside it."""
    given = ["dataset=mnist", "dataset.sizes=any", f"data_root={root}", f"features_dir={root / 'features'}"]
    return compose_config(*given, *overrides)


@pytest.fixture
def root(tmp_path):
    """A data root with a small MNIST."""
    sources.write_mnist(tmp_path)
    return tmp_path


def custom(root: Path, x: np.ndarray, y: np.ndarray, *overrides: str) -> Config:
    """Features of one's own, the same for training and testing."""
    np.savez(root / "mine.npz", x=x, label=y)
    given = ["dataset=custom", "dataset.train=mine.npz", "dataset.test=mine.npz"]
    return compose_config(*given, f"data_root={root}", f"features_dir={root / 'features'}", *overrides)


def cache_file(root: Path) -> Path:
    (path,) = (root / "features").glob("*.safetensors")
    return path


def forbid(*_, **__):
    raise AssertionError("must not be called")


def test_raw_features_are_pixels_over_255_in_the_files_order(root):
    found = features.load(mnist(root))
    expected = sources.grey(20, 1).reshape(20, 784).astype(np.float32) / 255
    np.testing.assert_array_equal(found.train.x.numpy(), expected)
    assert found.train.y.tolist() == [i % 10 for i in range(20)]
    assert (found.dataset, found.extractor, found.num_classes) == ("mnist-sample", "raw", 10)


def test_a_cache_hit_is_equal_and_extracts_nothing(root, monkeypatch):
    built = features.load(mnist(root))
    monkeypatch.setattr(features, "extract_part", forbid)
    found = features.load(mnist(root))
    assert found.digest == built.digest
    assert torch.equal(found.train.x, built.train.x)
    assert torch.equal(found.test.y, built.test.y)


def test_the_digest_is_that_of_the_content(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(8, 3)), np.arange(8) % 2
    first = features.load(custom(tmp_path, x, y, "dataset.title=a")).digest
    assert features.load(custom(tmp_path, x, y, "dataset.title=b")).digest == first
    assert features.load(custom(tmp_path, x, 1 - y, "dataset.title=a")).digest != first
    assert features.load(custom(tmp_path, x + 1, y)).digest != first


def test_moving_data_and_cache_keeps_the_cache_valid(root, tmp_path_factory, monkeypatch):
    built = features.load(mnist(root))
    other = tmp_path_factory.mktemp("elsewhere") / "deep"
    shutil.copytree(root, other)
    monkeypatch.setattr(features, "extract_part", forbid)
    assert features.load(mnist(other)).digest == built.digest


def test_changed_data_and_changed_settings_are_extracted_again(root):
    first = features.load(mnist(root))
    sources.write_idx(root / "MNIST" / "raw", "train", sources.grey(20, 9), np.arange(20) % 10)
    second = features.load(mnist(root))
    third = features.load(mnist(root, "extractor.resize=14"))
    assert len({first.digest, second.digest, third.digest}) == 3
    assert third.train.x.shape == (20, 3 * 14 * 14)


@pytest.mark.parametrize("setting", ["extractor.batch_size=3", "extractor.title=pixels", "seeds=[5]", "compute=cpu"])
def test_settings_that_change_no_feature_use_the_same_cache(root, setting):
    before, after = mnist(root), mnist(root, setting)
    recipes = [extractors.recipe(c.dataset, c.extractor) for c in (before, after)]
    assert recipes[0] == recipes[1]
    assert features.load(before).digest == features.load(after).digest


def test_without_data_network_and_hubs_the_cache_is_enough(root, monkeypatch):
    built = features.load(mnist(root))
    shutil.rmtree(root / "MNIST")
    monkeypatch.setattr(socket, "socket", forbid)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert features.load(mnist(root)).digest == built.digest


def test_without_data_an_ambiguous_cache_is_refused(root):
    features.load(mnist(root))
    sources.write_mnist(root, n_train=30)
    features.load(mnist(root))
    shutil.rmtree(root / "MNIST")
    with pytest.raises(ConfigError, match="holds several features for these settings"):
        features.load(mnist(root))


def damage(path: Path, how: str) -> None:
    """Spoil a cache file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    about = json.loads(header["__metadata__"]["dpexp"])
    about |= {
        "older": {"format": 0},
        "other recipe": {"recipe": {}},
        "other n": {"shapes": {"train": [19, 784], "test": [10, 784]}},
    }.get(how, {})
    header["__metadata__"] = {} if how == "foreign" else {"dpexp": json.dumps(about)}
    if how in ("older", "other recipe", "other n", "foreign"):
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        content = len(text).to_bytes(8, "little") + text + content[8 + length :]
    content = {"empty": b"", "cut": content[:-5], "wrong magic": b"PK\3\4" + content}.get(how, content)
    if how == "one bit":
        content = content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("empty", "it is empty"),
        ("cut", "truncated or no safetensors file"),
        ("wrong magic", "truncated or no safetensors file"),
        ("foreign", "not written by dpexp"),
        ("older", "it has format 0, this version reads 1"),
        ("other recipe", "made with other settings"),
        ("other n", r"the header says \[19, 784\]"),
        ("one bit", "content is damaged"),
    ],
)
def test_a_spoilt_cache_file_gives_one_reason_and_is_rebuilt(root, caplog, how, reason):
    built = features.load(mnist(root))
    damage(cache_file(root), how)
    with caplog.at_level(logging.WARNING):
        assert features.load(mnist(root)).digest == built.digest
    assert {record.getMessage().count("\n") for record in caplog.records} == {0}
    assert any(reason.replace("\\", "") in r.getMessage() for r in caplog.records)
    caplog.clear()
    features.load(mnist(root))
    assert not caplog.records


def test_other_weights_features_under_this_name_are_not_used(root, caplog):
    features.load(mnist(root))
    path = cache_file(root)
    sources.write_mnist(root, n_train=30)
    data = features.request(mnist(root)).data
    path.rename(path.with_name(path.name.replace(path.name.split("-")[3], data[:8])))
    assert len(features.load(mnist(root)).train) == 30
    assert "it was made from other data" in caplog.text


def test_an_interrupted_extraction_resumes_from_its_last_shard(tmp_path, monkeypatch):
    monkeypatch.setattr(extraction, "SHARD_ROWS", 8)
    rng = np.random.default_rng(0)
    config = custom(tmp_path, rng.normal(size=(40, 3)), np.arange(40) % 2)
    encode, calls = extraction.encode, []

    def encode_twice(*arguments):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(1)
        return encode(*arguments)

    monkeypatch.setattr(extraction, "encode", encode_twice)
    with pytest.raises(KeyboardInterrupt):
        features.load(config)
    assert not list((tmp_path / "features").glob("*.safetensors"))
    monkeypatch.setattr(extraction, "encode", lambda *a: calls.append(1) or encode(*a))
    resumed = features.load(config)
    assert len(calls) == 10  # five shards a part, none twice
    shutil.rmtree(tmp_path / "features")
    assert features.load(config).digest == resumed.digest
    assert not list((tmp_path / "features").glob("*.partial"))


def test_a_damaged_shard_is_extracted_again(tmp_path, monkeypatch):
    monkeypatch.setattr(extraction, "SHARD_ROWS", 8)
    config = custom(tmp_path, np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2)
    whole = features.load(config).digest
    cache_file(tmp_path).unlink()
    monkeypatch.setattr(features, "_assemble", forbid)
    with pytest.raises(AssertionError, match="must not be called"):
        features.load(config)
    (folder,) = (tmp_path / "features").glob("*.partial")
    sorted(folder.iterdir())[0].write_bytes(b"PK")
    monkeypatch.undo()
    monkeypatch.setattr(extraction, "SHARD_ROWS", 8)
    assert features.load(config).digest == whole


def test_memory_is_that_of_a_shard_whatever_n(tmp_path, monkeypatch):
    monkeypatch.setattr(extraction, "SHARD_ROWS", 8)
    sizes = []
    encode = extraction.encode

    def measured(encoder, split, batch_size):
        shard = encode(encoder, split, batch_size)
        sizes.append(len(shard.x))
        return shard

    monkeypatch.setattr(extraction, "encode", measured)
    features.load(custom(tmp_path, np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) % 2))
    assert max(sizes) == 8


def _load_digest(root: str, started, results) -> None:
    """In another process: wait for the others, then ask for the same features."""
    count = []
    original = extraction.encode
    extraction.encode = lambda *a: count.append(1) or original(*a)
    started.wait()
    found = features.load(mnist(Path(root)))
    results.put((found.digest, len(count)))


def test_four_processes_build_the_cache_once_and_read_the_same(root):
    context = multiprocessing.get_context("fork")
    started, results = context.Barrier(4), context.Queue()
    workers = [context.Process(target=_load_digest, args=(str(root), started, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
    assert len({digest for digest, _ in found}) == 1
    assert sorted(count for _, count in found) == [0, 0, 0, 2]  # one process, its two parts


def test_a_full_disk_leaves_no_file_and_says_how_much_is_missing(root, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache.os, "fsync", full)
    with pytest.raises(DiskFullError, match=r"no room for .*: [\d,]+ bytes were written, [\d,]+ bytes are free"):
        features.load(mnist(root))
    assert not [p for p in (root / "features").rglob("*") if p.is_file() and not p.name.endswith(".lock")]


def test_a_disk_that_is_too_small_is_noticed_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))
    config = custom(tmp_path, np.zeros((40, 3)) + np.arange(40)[:, None], np.arange(40) % 2)
    with pytest.raises(DiskFullError, match="needs 960 bytes, 10 are free"):
        features.load(config)


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


def test_the_header_is_strict_json(root):
    features.load(mnist(root))
    content = cache_file(root).read_bytes()
    length = int.from_bytes(content[:8], "little")
    about = json.loads(content[8 : 8 + length])["__metadata__"]["dpexp"]
    json.loads(about, parse_constant=forbid)


def test_the_fingerprint_knows_the_papers_features_and_says_when_they_differ():
    paper = fingerprint.printed("fashion_mnist")
    assert paper == {0: 3.0, 10: 10.0, 20: 12.2, 40: 15.6, 80: 22.3, 100: 32.4}
    values = np.interp(np.linspace(0, 100, 1001), list(paper), list(paper.values()))
    assert "same features as the paper" in fingerprint.text("fashion_mnist", "raw", values)
    assert "check image size / pooling / weights" in fingerprint.text("fashion_mnist", "raw", values * 1.1)
    assert "the paper used raw, this is timm" in fingerprint.text("fashion_mnist", "timm", values * 1.1)
    assert fingerprint.text("mnist", "raw", values) == ""


def test_every_printed_data_set_has_its_papers_extractor():
    for dataset, extractor in fingerprint.PAPER_EXTRACTOR.items():
        assert len(fingerprint.printed(dataset)) == 6
        assert extractor in extractors.EXTRACTORS


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


CONF = Path(__file__).resolve().parent.parent / "conf"


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


@pytest.mark.parametrize("dataset", sorted(fingerprint.PAPER_EXTRACTOR))
def test_the_percentiles_in_a_data_sets_header_comment_are_the_printed_ones(dataset):
    printed = " ".join(f"{value:.1f}" for value in fingerprint.printed(dataset).values())
    assert f": {printed} (paper L, Table" in (CONF / "dataset" / f"{dataset}.yaml").read_text().replace("\n# ", " ")


def test_a_sweep_trains_and_reports_from_the_cache_alone(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.arange(200) % 3
    small = ["+sweep=clipnorm", "train.batch_size=20", "train.epochs=2", "train.last_epochs=1", "seeds=[0]"]
    small += ["train.learning_rate=[0.1,1]", "dp.target_epsilon=[4]", "dp.clip_percentile=[0]"]
    given = [*small, f"output_dir={tmp_path / 'out'}"]
    config = custom(tmp_path, rng.normal(size=(200, 5)) + y[:, None], y, *given)
    features.load(config)
    (tmp_path / "mine.npz").unlink()
    monkeypatch.setattr(socket, "socket", forbid)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    written = run.execute(config, Console(quiet=True))
    assert all(path.stat().st_size > 0 for path in written)
    assert {".csv", ".png"} <= {path.suffix for path in written}
