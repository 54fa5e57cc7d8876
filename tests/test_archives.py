"""Archives: what is fetched is checked, what is unpacked is whole, and a failed start does not fool the next one."""

import dataclasses
import hashlib
import tarfile

import pytest

from dpexp.data import DataError, MissingDataError
from dpexp.data.archives import Archive, unpacked


@pytest.fixture
def archive(tmp_path):
    """A small archive at a file:// address."""
    source = tmp_path / "source"
    (source / "things").mkdir(parents=True)
    (source / "things" / "a.txt").write_text("a" * 5000)
    path = source / "things.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        file.add(source / "things", "things")
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    return Archive(url=path.as_uri(), md5=md5, folder="things")


def test_an_archive_is_fetched_checked_and_unpacked(archive, tmp_path):
    folder = unpacked(archive, tmp_path / "data", download=True)
    assert (folder / "a.txt").read_text() == "a" * 5000
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == ["things", "things.tar.gz"]


def test_without_a_download_missing_data_says_where_to_put_it(archive, tmp_path):
    with pytest.raises(MissingDataError, match=r"neither the folder things nor things.tar.gz"):
        unpacked(archive, tmp_path / "data", download=False)


@pytest.mark.parametrize(
    "content", [b"", b"<!DOCTYPE html><html>login</html>", b"\x1f\x8b cut"], ids=["0 bytes", "HTML", "cut"]
)
def test_a_damaged_archive_put_by_hand_is_described(archive, tmp_path, content):
    (tmp_path / "things.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"expected things.tar.gz with md5 \w{32}, got md5") as error:
        unpacked(archive, tmp_path, download=False)
    assert repr(content[:24]) in str(error.value)
    assert not (tmp_path / "things").exists()


def test_a_damaged_archive_is_fetched_again(archive, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "things.tar.gz").write_bytes(b"<!DOCTYPE html>")
    assert (unpacked(archive, tmp_path / "data", download=True) / "a.txt").exists()


def test_a_page_instead_of_an_archive_leaves_nothing_behind(archive, tmp_path):
    page = tmp_path / "page.tar.gz"
    page.write_text("<!DOCTYPE html>")
    wrong = dataclasses.replace(archive, url=page.as_uri())
    for _ in range(2):
        with pytest.raises(DataError, match="start with b'<!DOCTYPE html>'"):
            unpacked(wrong, tmp_path / "data", download=True)
        assert list((tmp_path / "data").iterdir()) == []


def test_an_address_that_does_not_answer_is_missing_data(archive, tmp_path):
    gone = dataclasses.replace(archive, url=(tmp_path / "gone.tar.gz").as_uri())
    with pytest.raises(MissingDataError, match=r"downloading file://.* failed"):
        unpacked(gone, tmp_path / "data", download=True)
    assert list((tmp_path / "data").iterdir()) == []


def test_an_interrupted_unpacking_is_done_again(archive, tmp_path, monkeypatch):
    def stop(self, path, filter):
        (path / "things").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(tarfile.TarFile, "extractall", stop)
    with pytest.raises(KeyboardInterrupt):
        unpacked(archive, tmp_path / "data", download=True)
    assert not (tmp_path / "data" / "things").exists()
    monkeypatch.undo()
    assert (unpacked(archive, tmp_path / "data", download=False) / "a.txt").exists()
