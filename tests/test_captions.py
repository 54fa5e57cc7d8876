"""What a table says of its own cells: accounts, brackets, stand-ins and percentiles that coincide."""

import csv
import io

from rich.console import Console
from synthetic_records import private, sweep

from dpexp import tables
from dpexp.panels import Panel

SWEEP = list(sweep(lambda e, p, c: 84.0 - c / 10))


def panel(*records: dict) -> Panel:
    shown = tables.build(records, "clipnorm")[1]
    assert len(shown) == 1
    return shown[0]


def test_a_note_of_the_accounting_is_a_sentence_of_its_own_and_said_once() -> None:
    noted = {"target_epsilon": 2.0, "notes": ["PRV failed, RDP used"]}
    shown = panel(*(private(2.0, c, privacy=noted) for c in (1.0, 5.0)))
    assert shown.accounting[1:] == ("PRV failed, RDP used.",)
    assert tables.markdown([shown]).count("\n- PRV failed, RDP used.\n") == 1
    choices = [private(2.0, c, method="rnmm_sound", privacy=noted, seed=s) for s, c in enumerate((1.0, 5.0))]
    assert panel(*choices).accounting[1:] == ("private minimum (proven): PRV failed, RDP used.",)


def test_every_budget_of_every_method_has_one_line_of_accounting_in_every_format() -> None:
    choices = [private(e, 3.0, method="rnmm_sound") for e in (2.0, 4.0)]
    shown = panel(*SWEEP, *choices)
    leads = [line.partition(": noise multiplier")[0] for line in shown.accounting]
    assert leads == [
        *("ε = 2", "ε = 4", "ε = 6"),
        *("private minimum (proven), ε = 2", "private minimum (proven), ε = 4"),
    ]
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(tables.terminal([shown]))
    text, printed, latex = tables.markdown([shown]), console.export_text().splitlines(), tables.latex([shown])
    assert "**Accounting**\n\n" + "\n".join(f"- {line}" for line in shown.accounting) in text
    assert all(f"- {line}" in printed for line in shown.accounting)
    assert all(rf"\par\raggedright {tables.escape(line)}" in latex.splitlines() for line in shown.accounting)


def test_the_papers_brackets_are_named_only_where_a_cell_has_them() -> None:
    assert "; in brackets the paper's." in panel(*SWEEP).caption[0]
    for other in ({"dataset": "mnist"}, {"extractor": "efficientnet_lite0"}):
        shown = panel(private(2.0, 1.0, **other))
        assert "bracket" not in " ".join(shown.caption)
        assert shown.caption[0].endswith("; the paper prints none for these data, features and head.")


def test_features_that_stand_in_for_the_papers_are_named_beneath_every_table_of_theirs() -> None:
    shown = panel(*(private(2.0, c, dataset="tweeteval_emoji", extractor="minilm") for c in (1.0, 5.0)))
    said = "minilm features stand in for the paper's distilbert features, and nothing here claims to match the paper."
    assert f"All cells: {said}" in shown.notes
    assert "paper" not in " ".join(panel(private(2.0, 1.0, dataset="my_data")).notes)


def test_percentiles_that_share_a_clip_norm_are_all_named_by_their_row() -> None:
    same = {"percentiles": {"0": 1.5, "10": 1.5, "20": 1.5, "40": 2.0}, "include_bias": False}
    other = {"dataset": "my_data", "lipschitz": same}
    rows = [private(2.0, 1.5, 20.0, **other), private(2.0, 2.0, 40.0, **other), private(2.0, 3.0, **other)]
    labels = [label for label, _ in panel(*rows).rows]
    assert labels == ["τ = 1.5 (0th, 10th and 20th pctl.)", "τ = 2.0 (40th pctl.)", "τ = 3"]
    assert {row["percentiles"] for row in csv.DictReader(io.StringIO(tables.csv(tables.build(rows, "mine")[0])))} == {
        "",
        "0 10 20",
    }


def test_a_row_of_the_paper_whose_percentile_coincides_with_another_says_so() -> None:
    same = {"percentiles": {"0": 1.5, "10": 1.5}, "include_bias": False}
    table = tables.build([private(2.0, 1.5, 10.0, lipschitz=same)], "clipnorm")[0]
    own = table[(table["dataset"] == "fashion_mnist") & (table["epsilon"] == 2.0)].set_index("percentile")["note"]
    assert own[0] == "coincides with another percentile: see its row"
    assert own[20] == "not run yet"
