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
from feature_worlds import cache_file, custom, forbid, mnist
from rich.console import Console

from dpexp import cache, features, run
from dpexp.cache import DiskFullError
from dpexp.config import ConfigError
from dpexp.features import extraction, extractors


@pytest.fixture
def root(tmp_path):
    """A data root with a small MNIST."""
    sources.write_mnist(tmp_path)
    return tmp_path


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
def test_settings_that_change_no_feature_use_the_same_cache(root, setting, monkeypatch):
    before, after = mnist(root), mnist(root, setting)
    recipes = [extractors.recipe(c.dataset, c.extractor) for c in (before, after)]
    assert recipes[0] == recipes[1]
    built = features.load(before)
    monkeypatch.setattr(features, "extract_part", forbid)
    found = features.load(after)
    assert found.digest == built.digest
    assert found.extractor == (after.extractor.title or "raw")


def test_another_title_is_shown_but_extracts_nothing(tmp_path, monkeypatch):
    x, y = np.random.default_rng(0).normal(size=(8, 3)), np.arange(8) % 2
    built = features.load(custom(tmp_path, x, y, "dataset.title=a"))
    monkeypatch.setattr(features, "extract_part", forbid)
    found = features.load(custom(tmp_path, x, y, "dataset.title=b"))
    assert (built.dataset, found.dataset) == ("a", "b")
    assert found.digest == built.digest


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
