"""Data sets and encoders of the Hub: what is asked of it, and what happens when it does not answer."""

import re
import shutil
import socket
import sys
import types

import pytest
import small_sources as sources
from conftest import compose_config

from dpexp import data, features
from dpexp.config import DatasetConfig
from dpexp.data import MissingDataError, hub


class FakeTable(dict):
    """What `datasets.load_dataset` returns, as far as it is used."""

    def cast_column(self, column, kind):
        return self


@pytest.fixture
def asked(monkeypatch):
    """Replace the `datasets` library; the list of what was asked of it."""
    calls = []

    def load_dataset(repository, subset, split, revision):
        calls.append((repository, subset, split, revision))
        if repository == "stanfordnlp/imdb":
            raise ConnectionError("no route to host")
        return FakeTable(text=["i feel fine", "i feel low"], label=[1, 0])

    fake = types.SimpleNamespace(load_dataset=load_dataset, Image=lambda decode: None)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    return calls


def test_the_hub_is_asked_for_a_pinned_revision(tmp_path, asked):
    splits = data.load(DatasetConfig(name="emotion", sizes="any"), tmp_path)
    assert [call[:3] for call in asked] == [("dair-ai/emotion", "split", "train"), ("dair-ai/emotion", "split", "test")]
    assert asked[0][3] == hub.SOURCES["emotion"].revision
    assert splits.train.samples == ["i feel fine", "i feel low"]
    assert splits.num_classes == 6
    assert splits.source.startswith("dair-ai/emotion@cab853a1")


def test_local_files_come_before_the_hub(tmp_path, asked):
    sources.write_emotion(tmp_path)
    assert len(data.load(DatasetConfig(name="emotion", sizes="any"), tmp_path).train) == 12
    assert not asked


def test_a_hub_that_does_not_answer_is_missing_data_with_a_way_out(tmp_path, asked):
    with pytest.raises(
        MissingDataError, match=r"imdb/plain_text has no train-\*.parquet and the Hub did not give .*no route"
    ):
        data.load(DatasetConfig(name="imdb"), tmp_path)


@pytest.mark.parametrize("name", sorted(hub.SOURCES))
def test_every_source_is_pinned_to_a_commit_and_has_official_sizes(name):
    source = hub.SOURCES[name]
    assert re.fullmatch(r"[0-9a-f]{40}", source.revision)
    assert min(source.sizes) > 1000
    assert len(set(source.classes)) == len(source.classes) > 1


def test_an_encoder_that_cannot_be_fetched_names_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: (_ for _ in ()).throw(OSError("offline")))
    sources.write_emotion(tmp_path)
    given = ["dataset=emotion", "dataset.sizes=any", f"data_root={tmp_path}", f"features_dir={tmp_path / 'f'}"]
    with pytest.raises(data.DataError, match=r"all-MiniLM-L6-v2 is not in the Hub's cache .*set extractor.weights"):
        features.load(compose_config(*given, "extractor=minilm"))


def test_features_of_a_text_encoder_train_without_texts_encoder_and_network(tmp_path, monkeypatch, caplog):
    sources.write_distilbert(tmp_path / "encoder", layers=1)
    sources.write_emotion(tmp_path)
    given = ["dataset=emotion", "dataset.sizes=any", f"data_root={tmp_path}", f"features_dir={tmp_path / 'f'}"]
    given.append("extractor=distilbert")
    built, header = features.obtain(compose_config(*given, f"extractor.weights={tmp_path / 'encoder'}"))
    assert header.weights != "0" * 64
    shutil.rmtree(tmp_path / "emotion")

    def blocked(*_, **__):
        raise AssertionError("no network is needed")

    monkeypatch.setattr(socket, "socket", blocked)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert features.load(compose_config(*given)).digest == built.digest
    assert not caplog.records
    assert features.load(compose_config(*given, "extractor.weights=/no/such/folder")).digest == built.digest
    assert "extractor.weights=/no/such/folder is not here" in caplog.text
