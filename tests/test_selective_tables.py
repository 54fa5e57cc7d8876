"""Paper S's tables from synthetic records: what fills a row, what an epsilon may say, and what was found."""

import csv
import io
import math
import re
import subprocess
import sys

import pytest
import yaml
from conftest import ROOT
from rich.console import Console
from selective_records import account, record, study

from dpexp.reference import selective_tables
from dpexp.selective import beside, findings, footnotes, layout, table_one, tables
from dpexp.selective.groups import Account, groups, label

HEADER = (
    "table,dataset,method,variant,attack,epsilon,metric,value,std,runs,paper_value,epsilon_paper_formula,"
    "epsilon_naive,epsilon_a,epsilon_b,epsilon_c,trials,accepted"
)
REFERENCE = selective_tables()


def lines(records: list[dict]) -> list[dict[str, str]]:
    """The CSV of some records, parsed."""
    return list(csv.DictReader(io.StringIO(tables.texts(records)["selective_release.csv"])))


def line(records: list[dict], **wanted: str) -> dict[str, str]:
    """The one line of the CSV with these values; Fashion-MNIST's DPSR-CG at epsilon 3 unless told."""
    wanted = {"dataset": "fashion_mnist", "method": "dpsr_cg", "epsilon": "3", "metric": "accuracy"} | wanted
    (found,) = [row for row in lines(records) if all(row[name] == value for name, value in wanted.items())]
    return found


def found_in(records: list[dict]) -> str:
    """What was found about Fashion-MNIST."""
    return " ".join(findings.findings(groups(records), REFERENCE).get("fashion_mnist", []))


def test_every_row_of_the_paper_is_there_in_its_order_whether_or_not_anything_ran():
    text = tables.texts([])["selective_release.csv"]
    assert text.partition("\n")[0] == HEADER
    assert [(r["table"], r["dataset"], r["method"], float(r["paper_value"])) for r in lines([])] == [
        (str(r.table), r.dataset, r.method, r.value) for r in REFERENCE.itertuples()
    ]
    assert {r["value"] for r in lines([]) if r["table"] != "1"} == {""}
    assert [r["paper_value"] for r in lines(study())][: len(REFERENCE)] == [r["paper_value"] for r in lines([])]


def test_all_24_entries_of_table_1_come_out_to_the_printed_digit():
    found = [row for row in lines([]) if row["table"] == "1"]
    assert len(found) == 24
    assert all(float(row["value"]) == float(row["paper_value"]) for row in found)


def test_table_1_fits_only_if_its_columns_are_read_in_reverse():
    printed = REFERENCE[REFERENCE["table"] == 1]
    entries = {(e.method, e.dataset, e.epsilon): e.value for e in printed.itertuples()}
    as_it_stands = [
        table_one.entry(method, dataset, 4 - epsilon).printed == value
        for (method, dataset, epsilon), value in entries.items()
    ]
    assert not all(as_it_stands)


@pytest.mark.parametrize("dataset", table_one.TEST_NOISE["dpsur"])
def test_table_1_and_the_recipes_agree_on_the_noise(dataset):
    recipes = yaml.safe_load((ROOT / "conf" / "recipe" / f"{dataset}.yaml").read_text())["recipes"]
    for method, key in (("dpsr_cg", "noise_multiplier"), ("dpsur", "validation_noise")):
        assert tuple(recipes[method][key][e] for e in table_one.BUDGETS) == table_one.TEST_NOISE[method][dataset]


def test_a_row_is_the_mean_over_seeds_with_the_sample_deviation():
    row = line([record(a, seed=s, trials=t) for s, (a, t) in enumerate([(0.80, 10), (0.81, 20), (0.85, 60)])])
    assert (row["value"], row["runs"], row["trials"], row["variant"]) == ("82.0000", "3", "30", "sound")
    assert row["std"] == f"{math.sqrt((2**2 + 1**2 + 3**2) / 2):.4f}"
    assert line([record(0.80)])["std"] == ""


def test_an_epsilon_is_the_largest_over_the_runs():
    runs = [record(seed=s, accounts=[account("B", epsilon)]) for s, epsilon in enumerate([2.5, 2.75, 2.25])]
    assert line(runs)["epsilon_b"] == "2.7500"


@pytest.mark.parametrize(
    ("second", "shown"),
    [
        (account("A", None), "no certificate"),
        (account("A", "inf"), "inf"),
        (account("A", 2.5, certificate=False), "no certificate"),
    ],
)
def test_one_run_without_a_bound_leaves_the_row_without_one(second, shown):
    runs = [record(seed=0, accounts=[account("A", 2.5)]), record(seed=1, accounts=[second])]
    assert line(runs)["epsilon_a"] == shown


def test_an_account_that_one_run_lacks_is_no_certificate_and_one_that_all_lack_is_empty():
    runs = [record(seed=0, accounts=[account("A", 2.5)]), record(seed=1, accounts=[])]
    assert line(runs)["epsilon_a"] == "no certificate"
    assert line(runs)["epsilon_b"] == ""


@pytest.mark.parametrize("epsilon", [0.1, 1 / 3, 2.00001, 2.99991, 138.123456])
@pytest.mark.parametrize("digits", [2, 4])
def test_rounding_never_turns_a_bound_into_less(epsilon, digits):
    known = Account(epsilon=epsilon, certificate=True, hypotheses=(), notes=())
    assert epsilon - 1e-9 <= float(beside.bound(known, digits=digits)) <= epsilon + 10**-digits


def test_formulas_are_shown_in_brackets_because_they_bound_nothing():
    sheet = layout.accounts(groups([record()]))
    shown = dict(zip(sheet.head, sheet.rows[0], strict=True))
    assert (shown["ε, paper's formula"], shown["ε, naive"], shown["ε, B"]) == ("(2.90)", "(2.50)", "2.70")
    assert line([record()])["epsilon_paper_formula"] == "2.9000"


def test_other_studies_variants_and_stopping_rules_never_fill_a_row_of_the_paper():
    others = [
        record(0.5, study="selective_rates", learning_rate=0.3),
        record(0.6, variant="as_published"),
        record(0.7, budget_by="C"),
    ]
    rows = [row for row in beside.rows(REFERENCE, groups(others)) if row.dataset == "fashion_mnist"]
    printed = [row for row in rows if row.method == "dpsr_cg" and row.metric == "accuracy" and row.group is None]
    assert len(printed) == 3
    shown = {row.variant: (row.value, row.paper_value) for row in rows if row.group is not None}
    assert sorted(value for value, _ in shown.values()) == pytest.approx([50, 60, 70])
    assert {paper for _, paper in shown.values()} == {90.98}
    assert len(shown) == 3


def test_a_run_that_two_studies_share_fills_the_papers_row_and_stands_in_the_other_study():
    shared = [record(0.86, run_id="same"), record(0.86, run_id="same", study="selective_rates")]
    shown = [row for row in beside.rows(REFERENCE, groups(shared)) if row.group is not None]
    assert [(row.table, row.variant) for row in shown] == [(3, "sound"), (3, "sound, study selective_rates")]


def test_other_studies_stand_in_the_table_of_accounts_alone():
    own = groups([record(0.86), record(0.5, study="selective_rates", learning_rate=0.3)])
    _, _, accuracies, costs = tables.shown(beside.rows(REFERENCE, own), own)
    assert "50.00" not in repr(accuracies.rows)
    assert [row[1] for row in costs.rows] == ["DPSR-CG, sound", "DPSR-CG, sound (selective_rates)"]


def test_findings_tell_the_best_of_several_learning_rates_and_that_it_was_chosen():
    rates = [record(a, study="selective_rates", learning_rate=r) for a, r in ((0.86, 0.1), (0.885, 0.4), (0.85, 0.8))]
    rates.append(record(0.89, study="selective_rates", learning_rate=0.4, method="dpsr_cg_no_release"))
    found = found_in(rates)
    assert "accuracy by learning rate (selective_rates): 0.1: 86.00, 0.4: 88.50, 0.8: 85.00." in found
    assert "The best, 0.4: 88.50 % (1 seed), ε ≤ 2.70 by account B" in found
    assert "chosen by test accuracy" in found
    assert "Selection at learning rate 0.4, its best: \N{MINUS SIGN}0.50 points (1 seed) at ε = 3." in found
    assert "by learning rate" not in found_in(rates[:1])


def test_of_two_settings_that_fit_a_row_none_is_picked_and_both_are_named():
    runs = [record(0.80), record(0.82, learning_rate=0.3)]
    rows = beside.rows(REFERENCE, groups(runs))
    (printed,) = [
        r for r in rows if (r.table, r.dataset, r.method, r.epsilon) == (3, "fashion_mnist", "dpsr_cg", 3) and r.note
    ]
    assert printed.note.startswith("2 settings fit this row")
    assert [row.variant for row in rows if row.group] == ["sound, learning_rate=0.1", "sound, learning_rate=0.3"]


def test_a_label_names_what_differs_at_one_budget_only():
    first, second = groups([record(), record(privacy={"target_epsilon": 1.0}, learning_rate=0.3)])
    assert label(first, [first, second]) == label(second, [first, second]) == "sound"


def test_two_equal_runs_of_one_seed_are_refused():
    with pytest.raises(ValueError, match="two runs of one seed"):
        groups([record(run_id="a"), record(run_id="b")])


def test_a_run_stored_twice_counts_once_and_beta_studies_do_not_count():
    assert line([record(0.8), record(0.8)])["runs"] == "1"
    assert groups([record(study="selective_beta_fashion")]) == []


def test_reasons_name_the_data_to_get_or_the_method_to_run():
    missing = "\n".join(tables.missing(beside.rows(REFERENCE, groups([record()]))))
    assert "needs CIFAR-10, get it by python scripts/get_data.py cifar10" in missing
    assert "dataset=fashion_mnist selective.methods=[dpsur]" in missing
    assert "needs Fashion-MNIST" not in missing
    assert re.search(r"not implemented yet \(85 numbers of Tables 3, 4, 5\)", missing)


def test_numbers_of_trials_that_are_known_rule_out_account_a():
    (group,) = groups([record()])
    assert group.certified(counts_public=False) == ("A", 2.6)
    assert group.certified(counts_public=True) == ("B", 2.7)
    (formulas,) = groups([record(accounts=[account("odometer", 2.0), account("naive", 1.0)])])
    assert formulas.certified(counts_public=False) is None


def test_findings_give_the_true_epsilon_and_the_account_that_certifies_it():
    said = found_in(study())
    assert "86.10 ± 0.10 % (3 seeds) (paper 90.98), ε ≤ 2.70 by account B; ε ≤ 2.60 by account A while the" in said
    assert "as published, stated ε = 3: 90.50 % (1 seed) (paper 90.98), for which no finite bound" in said
    assert "its gradients alone amount to ε = 138" in said
    assert "DPSUR, sound, stated ε = 3: 80.00 % (1 seed) (paper 86.60), for which no finite bound on ε is known" in said
    assert "stopped by account C at ε = 3: 84.00 % (1 seed)" in said
    assert "DPSUR, sound at ε = 3: 1 of 1 trials exhausted" in said


def test_differences_are_paired_by_seed():
    """Seeds 0, 1, 2 lie +0.2, +0.1, 0.0 points apart, and seed 7 has no partner."""
    said = found_in([*study(), record(0.10, seed=7)])
    assert "0.10 ± 0.10 points (3 seeds) at ε = 3" in said
    assert "DPSR-CG as published less the sound one: +4.50 points (1 seed) at ε = 3" in said


def test_the_papers_own_difference_stands_beside_ours():
    runs = [record(0.72, dataset="imdb"), record(0.70, dataset="imdb", method="dpsr_cg_no_release", variant="")]
    selection = " ".join(findings.findings(groups(runs), REFERENCE)["imdb"])
    assert "+2.00 points (1 seed) at ε = 3 (paper: +2.60 points)" in selection


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([record()], "not answered here: DPSR-CG (w/o selective release) did not run"),
        (
            [record(method="dpsgd", variant="")],
            "not answered here: DPSR-CG and DPSR-CG (w/o selective release) did not",
        ),
        ([record(), record(method="dpsr_cg_no_release", variant="", seed=1)], "share no stated ε and seed"),
    ],
)
def test_what_the_runs_cannot_answer_is_said(runs, said):
    assert said in found_in(runs)


def test_nothing_stored_is_one_sentence():
    assert findings.NOTHING_RAN in tables.texts([])["selective_release.md"]


def test_footnotes_are_the_records_own_hypotheses_with_what_is_special_to_a_method():
    both = {"accounts": [account("B", 2.5, hypotheses=["shared", "own to the test"])]}
    runs = [record(**both), record(method="dpsgd", variant="", accounts=[account("B", 2.5, hypotheses=["shared"])])]
    notes = footnotes.notes(groups(runs))
    (of_b,) = [note for note in notes if note.startswith("B:")]
    assert "Assumes shared. DPSR-CG, sound: assumes also own to the test." in of_b
    assert not any("medians" in note or "Trial counts" in note for note in notes)


def test_what_no_account_covers_is_said_where_it_was_used():
    noisy = record(mechanism={"normalisation": "noisy_statistics"})
    text = record(dataset="imdb", extractor="tokens")
    assert any("medians" in note for note in footnotes.notes(groups([noisy])))
    assert any("vocabulary" in note for note in footnotes.notes(groups([text])))
    assert any("Trial counts" in note for note in footnotes.notes(groups([text])))


def test_runs_that_ended_early_are_marked():
    sheet = layout.table_3(beside.rows(REFERENCE, groups(study())))
    cells = {row[1]: row for row in sheet.rows if "80.00" in "".join(row)}
    assert "80.00† (86.60)" in cells["DPSUR"]
    assert len(sheet.notes) == 1


def test_table_2_shows_data_sets_that_the_paper_lacks_and_says_so():
    sheet = layout.table_2(beside.rows(REFERENCE, groups(study())))
    names = [row[1] for row in sheet.rows]
    assert "DPSR-CG (w/o selective release), not in Table 2" in names
    assert [row[0] for row in sheet.rows if row[0]] == ["Fashion-MNIST", "CIFAR-10", "IMDB"]


@pytest.mark.parametrize("records", [[], study()], ids=["nothing", "study"])
def test_latex_has_no_naked_sign_and_all_rows_are_as_wide(records):
    text = tables.texts(records)["selective_release.tex"]
    body = [row for row in text.splitlines() if not row.startswith("%")]
    assert not re.search(r"(?<!\\)[%#_](?!\{)", re.sub(r"\$[^$]*\$", "", "\n".join(body)))
    for columns, rows in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        for row in (row for row in rows.splitlines() if row.endswith(r"\\")):
            assert len(re.findall(r"(?<!\\)&", row)) == len(columns) - 1


def test_markdown_rows_are_as_wide_as_their_heads():
    for section in tables.texts(study())["selective_release.md"].split("\n## "):
        assert len({row.count("|") for row in section.splitlines() if row.startswith("|")}) <= 1


def test_the_terminal_shows_accounts_and_findings():
    console = Console(width=250, record=True, file=io.StringIO())
    console.print(tables.terminal(study()))
    text = console.export_text()
    assert "2.70" in text  # account B
    assert " none " in text  # no certificate
    assert "What was found" in text
    assert "Fashion-MNIST" in text
    assert "CIFAR-10" not in text  # which did not run


def test_equal_records_in_any_order_give_equal_texts():
    assert tables.texts(study()) == tables.texts(study()[::-1])


def test_rebuilding_needs_no_torch(tmp_path):
    code = (
        "import sys; from pathlib import Path; import selective_records as r;"
        "from dpexp import results; from dpexp.selective import figures, tables;"
        f"results.append(Path({str(tmp_path)!r}) / 'results' / 'selective', 'all', r.study());"
        f"tables.main(['--output', {str(tmp_path)!r}]);"
        "print(any(name.split('.')[0] == 'torch' for name in sys.modules))"
    )
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": "/usr/bin", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=paths)
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["False"]), done.stderr[-500:]
    written = {path.name: path.read_text() for path in (tmp_path / "tables").iterdir()}
    assert written == tables.texts(study()), "from files as from memory"
