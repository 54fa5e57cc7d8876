"""The paper's tables from all studies: what fills a row, what stands below, and that every row is there."""

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_records import accuracies, baseline, private, record, sweep

from dpexp import comparison, paper_tables, tables
from dpexp.panels import NOTHING, Panel

REFERENCE = comparison.read_reference()
RESNET = {"dataset": "cifar100", "extractor": "resnet18"}
MLP = {"model": {"name": "mlp_tanh"}}
NOTHING_RAN = paper_tables.build({})


def drawn(method: str, **features: str) -> list[dict]:
    made = [
        private(2.0, 10.0 + s, seed=s, method=method, history=accuracies(0.5 + s / 100), **features) for s in range(3)
    ]
    return [r | {"run_id": f"{method}-{r['dataset']}-{r['seed']}"} for r in made]


def panel(number: int, records: dict[str, list[dict]], title: str) -> Panel:
    found = [p for p in paper_tables.table_panels(paper_tables.build(records), number) if title in p.title]
    assert len(found) == 1
    return found[0]


def rnmm_line(records: dict[str, list[dict]], label: str) -> list[float]:
    entries = dict(paper_tables.rnmm_panel(paper_tables.build(records)).rows)[label]
    return [entry.mean for entry in entries[:2]]


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_each_table_has_the_papers_rows_as_printed_though_nothing_ran(number: int) -> None:
    printed = REFERENCE[REFERENCE["table"] == number]
    text = paper_tables.texts(NOTHING_RAN)[f"table{number}.md"]
    for row in printed.itertuples():
        assert f"{NOTHING} ({row.accuracy_mean:.2f} ± {row.accuracy_std:.2f})" in text
    shown = [line for line in text.splitlines() if re.match(r"\| (τ|Non-private)", line)]
    private_rows = printed[printed["method"] == "dpsgd"]
    assert len(shown) == len(private_rows) / 3 + printed["dataset"].nunique()
    titles = re.findall(r"^## (.*) \(", text, re.MULTILINE)
    assert titles == [comparison.title(name) for name in dict.fromkeys(printed["dataset"])]


def test_table_3_has_the_papers_columns_in_its_order() -> None:
    shown = paper_tables.rnmm_panel(NOTHING_RAN)
    assert shown.head[:5] == ("Dataset", "ε = 2 w/ RNMM", "ε = 2 w/o RNMM", "ε = 4 w/ RNMM", "ε = 4 w/o RNMM")
    assert [label for label, _ in shown.rows] == ["Caltech-256", "Food-101", "CIFAR-100"]
    assert [e.paper_mean for e in shown.rows[0][1]] == [70.03, 74.03, 78.27, 79.00, 79.53, 80.50]


def test_what_did_not_run_says_what_it_needs_and_how_to_get_it() -> None:
    for number, name, sweep_name in ((5, "emotion", "clipnorm"), (7, "emnist", "nonconvex"), (3, "food101", "rnmm")):
        text = paper_tables.texts(NOTHING_RAN)[f"table{number}.md"]
        assert f"needs {comparison.title(name)}, get it by python scripts/get_data.py {name} and run" in text
        assert f"+sweep={sweep_name} dataset={name}" in text


def test_a_study_fills_only_the_rows_that_are_its_own() -> None:
    wrong = {"clipnorm": [private(2.0, 1.0, dataset="emnist", **MLP)], "nonconvex": [private(2.0, 1.0)]}
    assert paper_tables.build(wrong).table["accuracy_mean"].isna().all()
    right = {"nonconvex": wrong["clipnorm"], "clipnorm": wrong["nonconvex"]}
    assert list(paper_tables.build(right).table["accuracy_mean"].dropna()) == pytest.approx([81.0, 81.0])


def test_a_variant_fills_no_row_of_the_paper_and_stands_below_where_the_paper_has_none() -> None:
    everywhere = [private(2.0, 1.0, dataset=name, **MLP) for name in ("emnist", "fashion_mnist")]
    paper = paper_tables.build({"nonconvex_fashion": everywhere, "clipnorm_short": [private(2.0, 1.0)]})
    assert list(paper.table.dropna(subset="accuracy_mean")["dataset"]) == ["fashion_mnist"]
    assert paper_tables.table_panels(paper, 7)[-1].title.endswith(", not in the paper")


def test_studies_and_their_variants_are_read_and_nothing_else(tmp_path: Path) -> None:
    for name in ("clipnorm", "clipnorm-validation", "nonconvex_fashion", "epochs_5", "theory"):
        (tmp_path / name).mkdir()
    assert set(paper_tables.read(tmp_path)) == {"clipnorm", "nonconvex", "rnmm", "nonconvex_fashion"}


def test_a_reduced_grid_is_named_beneath_the_papers_row() -> None:
    shown = panel(6, {"clipnorm": list(sweep(lambda e, p, c: 80.0, seeds=2))}, "Fashion-MNIST")
    assert shown.notes == ("All cells: learning rates 5 (paper: 16), seeds 2 (paper: 3).",)
    assert dict(shown.rows)["τ = 1"][0].mean == pytest.approx(79.95)


def test_other_features_and_other_data_stand_below_and_are_said_not_to_be_the_papers() -> None:
    own = {
        "clipnorm": [private(2.0, 1.0, dataset="cifar10", extractor="mine"), private(2.0, 1.0, dataset="mnist")],
        "nonconvex": [private(2.0, 1.0, **MLP), baseline(**MLP)],
    }
    paper = paper_tables.build(own)
    titles = {number: [p.title for p in paper_tables.table_panels(paper, number)] for number in (4, 5, 6, 7)}
    assert titles[5][-1] == "CIFAR-10 (mine features, softmax), not in the paper"
    assert titles[7][-1] == "Fashion-MNIST (raw features, mlp_tanh), not in the paper"
    assert not any("mnist" in title for title in titles[6])


def test_table_3_sets_both_private_choices_beside_the_best_clip_norm() -> None:
    best = [private(2.0, c, history=accuracies(a), **RESNET) for c, a in ((1.0, 0.60), (10.0, 0.55))]
    records = {"clipnorm": best, "rnmm": [*drawn("rnmm_paper", **RESNET), *drawn("rnmm_sound", **RESNET)]}
    assert rnmm_line(records, "CIFAR-100") == pytest.approx([51.0, 60.0])
    assert rnmm_line(records, "CIFAR-100, sound choice")[0] == pytest.approx(51.0)


def test_table_3_has_a_line_of_its_own_for_data_that_the_paper_did_not_try() -> None:
    records = {"clipnorm": [private(2.0, 1.0)], "rnmm": drawn("rnmm_paper")}
    assert rnmm_line(records, "Fashion-MNIST (raw), not in the paper") == pytest.approx([51.0, 81.0])


def test_table_3_says_what_each_private_choice_costs_and_table_6_speaks_of_its_own_rows_only() -> None:
    records = {"clipnorm": [private(2.0, 1.0)], "rnmm": [*drawn("rnmm_paper"), *drawn("rnmm_sound")]}
    costs = paper_tables.rnmm_panel(paper_tables.build(records)).accounting
    leads = [line.partition(": noise multiplier")[0] for line in costs]
    assert leads == [
        "Fashion-MNIST (raw), RNMM as printed (no guarantee), ε = 2",
        "Fashion-MNIST (raw), private minimum (proven), ε = 2",
    ]
    shown = panel(6, records, "Fashion-MNIST")
    assert [line.partition(": noise multiplier")[0] for line in shown.accounting] == ["ε = 2"]
    assert "private minimum" not in " ".join(shown.caption)


def test_the_csv_of_all_studies_begins_with_every_row_of_the_paper() -> None:
    text = paper_tables.texts(paper_tables.build({"rnmm": drawn("rnmm_sound")}))["paper_l.csv"]
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [float(r["paper_mean"]) for r in rows[: len(REFERENCE)]] == list(REFERENCE["accuracy_mean"])
    assert all(r["accuracy_mean"] or r["note"] for r in rows[: len(REFERENCE)])


def test_a_studys_own_table_does_not_speak_for_another_sweep() -> None:
    notes = tables.build([], "clipnorm")[0].set_index(["table", "method"])["note"]
    assert notes[7, "dpsgd"].str.startswith("not in this study: needs ").all()
    assert notes[6, "dpsgd"].str.startswith("not run: needs ").all()


def test_latex_balances_and_is_plain_ascii() -> None:
    for name, text in paper_tables.texts(NOTHING_RAN).items():
        if name.endswith(".tex"):
            assert text.isascii()
            assert text.count(r"\begin{table}") == text.count(r"\end{table}") > 0


def test_equal_records_in_any_order_give_equal_texts() -> None:
    records = [*sweep(lambda e, p, c: 80.0 - c, seeds=1), record(dataset="mine")]
    first, second = (paper_tables.texts(paper_tables.build({"clipnorm": r})) for r in (records, records[::-1]))
    assert first == second


@pytest.mark.parametrize("module", ["paper_tables", "paper_figures", "theory_figures"])
def test_rebuilding_needs_no_torch(module: str, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.modules['torch'] = None; import dpexp.{module} as m; from dpexp import results;"
        "print('torch' in sys.modules and sys.modules['torch'] is not None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr[-500:]
