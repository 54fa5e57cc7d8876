"""`python -m dpexp.features`: build, inspect, list, clear."""

import pytest
import small_sources as sources

from dpexp.features.__main__ import main


@pytest.fixture
def arguments(tmp_path):
    """Settings of a small MNIST."""
    sources.write_mnist(tmp_path)
    return ["dataset=mnist", "dataset.sizes=any", f"data_root={tmp_path}", f"features_dir={tmp_path / 'f'}"]


def test_building_twice_extracts_once_and_describes_the_same(arguments, capsys):
    assert main(arguments) == 0
    first = capsys.readouterr()
    assert main(arguments) == 0
    second = capsys.readouterr()
    assert first.out == second.out
    assert "mnist-sample by raw: 20 + 10 rows of 784, 10 classes" in first.out
    assert "extracting train" in first.err
    assert "extracting" not in second.err
    assert main([*arguments, "--rebuild"]) == 0
    assert "extracting train" in capsys.readouterr().err


def test_list_describes_every_file_and_names_the_unusable_ones(arguments, tmp_path, capsys):
    main(arguments)
    (tmp_path / "f" / "broken.safetensors").write_bytes(b"")
    (tmp_path / "f" / "other.partial").mkdir()
    capsys.readouterr()
    assert main(["--list", arguments[-1]]) == 0
    said = capsys.readouterr().out
    assert "mnist-raw-" in said
    assert "broken.safetensors: cannot be used: it is empty" in said
    assert "other.partial: interrupted, resumes at the next start" in said


def test_clear_removes_the_files_of_the_settings_or_all(arguments, tmp_path, capsys):
    main(arguments)
    main([*arguments, "extractor.resize=8"])
    assert len(list((tmp_path / "f").glob("*.safetensors"))) == 2
    assert main(["--clear", *arguments]) == 0
    assert len(list((tmp_path / "f").glob("*.safetensors"))) == 1
    assert main(["--clear", arguments[-1]]) == 0
    assert not list((tmp_path / "f").glob("*.safetensors"))
    assert main(["--list", arguments[-1]]) == 0
    assert "holds no features" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("extractor.crop=0", "extractor.crop must be a whole number >= 1"),
        ("extractor.crops=5", "did you mean extractor.crop?"),
        ("dataset=minst", "minst"),
        ("dataset.sizes=official", "60,000 training and 10,000 test samples, found 20 and 10"),
    ],
)
def test_mistakes_give_one_message_and_a_failing_status(arguments, capsys, wrong, message):
    assert main([*arguments, wrong]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


def test_the_fingerprint_is_shown_where_the_paper_prints_percentiles(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "FashionMNIST" / "raw"
    sources.write_idx(folder, "train", sources.grey(20), [i % 10 for i in range(20)])
    sources.write_idx(folder, "t10k", sources.grey(10, 1), range(10))
    given = ["dataset=fashion_mnist", f"data_root={tmp_path}", f"features_dir={tmp_path / 'f'}", "dataset.sizes=any"]
    assert main(given) == 0
    assert "different" not in capsys.readouterr().out  # a sample is not the paper's data set
    monkeypatch.setattr("dpexp.data.splits.Splits.sized", lambda self, train, test, sizes: self)
    assert main([*given, "--rebuild"]) == 0
    said = capsys.readouterr().out
    assert "paper           3.0    10.0    12.2    15.6    22.3    32.4" in said
    assert "fashion_mnist: different: check image size / pooling / weights" in said
