"""The committed tables and figures follow from the committed results, and the results meet the paper."""

import math

import pandas as pd
import pytest
from conftest import ROOT

from dpexp import aggregate, figures, results, tables

FOLDER = ROOT / "outputs" / "results" / "clipnorm"


@pytest.fixture(scope="module")
def records():
    return results.read(FOLDER)


@pytest.fixture(scope="module")
def fashion():
    table = pd.read_csv(ROOT / "outputs" / "tables" / "clipnorm.csv")
    return table[(table.table == 6) & (table.dataset == "fashion_mnist")]


def test_committed_tables_are_rebuilt_byte_for_byte(records, tmp_path):
    for path in tables.write(records, tmp_path, "clipnorm"):
        assert path.read_bytes() == (ROOT / "outputs" / "tables" / path.name).read_bytes(), path.name


def test_the_committed_figure_shows_the_committed_results(records, tmp_path):
    written = figures.write(records, tmp_path, "clipnorm")
    assert "figure2b.pdf" in {path.name for path in written}
    assert all((ROOT / "outputs" / "figures" / path.name).is_file() for path in written)


def test_every_cell_is_within_eight_tenths_of_the_paper_and_each_budget_within_four_on_average(fashion):
    assert len(fashion) == 22
    difference = fashion.accuracy_mean - fashion.paper_mean
    assert difference.abs().max() <= 0.8
    for _, rows in difference[fashion.method == "dpsgd"].groupby(fashion.epsilon):
        assert len(rows) == 7
        assert math.sqrt((rows**2).mean()) <= 0.4


def test_accuracy_falls_from_the_smallest_constant_to_the_largest(fashion):
    for _, rows in fashion[fashion.percentile.notna()].groupby("epsilon"):
        accuracy = rows.set_index("percentile").accuracy_mean
        assert accuracy[0] > accuracy[100]


def test_percentiles_equal_the_printed_digits(records):
    (found,) = {
        tuple(r["lipschitz"]["percentiles"].values())
        for r in records
        if (r["dataset"], r["extractor"]) == ("fashion_mnist", "raw")
    }
    assert [round(value, 1) for value in found] == [3.0, 10.0, 12.2, 15.6, 22.3, 32.4]


def test_every_private_run_meets_its_target_by_its_own_accountant(records):
    private = [r for r in records if r["method"] == "dpsgd"]
    assert len(private) >= 1008
    for r in private:
        target, account = r["privacy"]["target_epsilon"], r["privacy"]
        assert 0.99 * target <= account["epsilon"] <= target
        assert account["epsilon_pld"] <= account["epsilon_rdp"]
        assert account["steps"] == r["mechanism"]["steps"]
        assert account["sample_rate"] == r["mechanism"]["sample_rate"]


def test_every_cell_has_its_sixteen_learning_rates_and_three_seeds(records):
    frame = aggregate.to_frame(r for r in records if (r["dataset"], r["extractor"]) == ("fashion_mnist", "raw"))
    assert len(frame) == 1008 + 48
    assert set(frame.groupby(["method", "clip_norm", "target_epsilon"], dropna=False).size()) == {48}
