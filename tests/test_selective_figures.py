"""Paper S's figures from synthetic records: bars are counts, markers epsilons, the bounds closed forms."""

from pathlib import Path
from statistics import NormalDist

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from selective_records import TEST, account, beta_run, record

from dpexp.selective import figures
from dpexp.selective.groups import groups
from dpexp.selective.selectivity import largest_good_share, pass_rates
from dpexp.style import STYLE


def paper_test(noise: float, beta: float = 3.0) -> dict[str, float]:
    """DPSR-CG's test in units of C_t."""
    return {"threshold": beta, "clip_range": 2.0, "std": 4 * noise}


@pytest.mark.parametrize(("noise", "ratio"), [(5.67, 1.17), (1.35, 2.41)])
def test_best_and_worst_candidate_pass_with_the_two_tails(noise, ratio):
    worst, best = pass_rates(paper_test(noise))
    assert best == pytest.approx(NormalDist().cdf(-1 / (4 * noise)))
    assert worst == pytest.approx(NormalDist().cdf(-5 / (4 * noise)))
    assert best / worst == pytest.approx(ratio, abs=0.005)


@pytest.mark.parametrize(
    ("noise", "share"), [(2.5, 0.60), (4.0, 0.56), (5.67, 0.54), (1.35, 0.71), (2.15, 0.62), (3.5, 0.57)]
)
def test_half_good_candidates_leave_at_most_this_share_among_the_accepted(noise, share):
    assert largest_good_share(0.5, *pass_rates(paper_test(noise))) == pytest.approx(share, abs=0.006)


def test_no_filter_between_the_two_tails_beats_the_largest_share():
    worst, best = pass_rates(paper_test(1.35))
    generator = np.random.default_rng(0)
    for good in generator.random(200):
        a, b = generator.uniform(worst, best, 2)
        assert good * a / (good * a + (1 - good) * b) <= largest_good_share(good, worst, best) + 1e-12


@pytest.mark.parametrize(("beta", "rates"), [("inf", (0, 0)), ("-inf", (1, 1))])
def test_infinite_thresholds_pass_nothing_or_everything(beta, rates):
    assert pass_rates(TEST | {"threshold": beta}) == rates
    assert largest_good_share(0.3, *rates) == pytest.approx(0.3 * rates[0])


def test_a_test_without_noise_is_a_step():
    assert pass_rates(paper_test(0.0, beta=1.0)) == (0, 1)


def test_counts_add_up_over_seeds_and_nothing_else_counts():
    runs = [
        beta_run(3, (5, 3), (1, 2)),
        beta_run(3, (1, 1), (1, 1), seed=1, run_id="other"),
        beta_run(0, (1, 0), (0, 0)),
    ]
    strangers = [
        beta_run(3, (9, 9), (9, 9), study="selective", run_id="a"),
        beta_run(3, (9, 9), (9, 9), variant="as_published", run_id="b"),
        beta_run(3, (9, 9), (9, 9), dataset="imdb", run_id="c"),
        beta_run(3, (9, 9), (9, 9), privacy={"target_epsilon": 1.0}, run_id="d"),
    ]
    counts = figures.beta_counts([*runs, runs[0], *strangers], "fashion_mnist")
    assert list(counts) == [0, 3]
    assert {k: v for k, v in counts[3].items() if k != "test"} == {
        "accepted_good": 6,
        "accepted_bad": 4,
        "rejected_good": 2,
        "rejected_bad": 3,
    }


def test_beta_is_the_threshold_in_clip_norms():
    run = beta_run(6, (1, 1), (1, 1))
    run["mechanism"] = run["mechanism"] | {"clip_norm": 2.0}
    assert list(figures.beta_counts([run], "fashion_mnist")) == [3]


def test_bars_are_shares_with_their_counts_above():
    counts = figures.beta_counts([beta_run(3, (3, 1), (20, 60)), beta_run("inf", (0, 0), (1, 1))], "fashion_mnist")
    ax = figures.good_and_bad(counts, Figure().subplots())
    assert [bar.get_height() for bar in ax.patches] == [75, 25, 25, 75, 0, 0, 50, 50]
    labels = [text.get_text() for text in ax.texts]
    assert labels[:4] == ["4", "80", "0", "2"]
    assert "$\\beta=\\infty$" in labels


def test_the_definition_of_good_is_in_the_figure():
    counts = figures.beta_counts([beta_run(3, (3, 1), (20, 60))], "fashion_mnist")
    (ax,) = figures.beta_figure(counts, "fashion_mnist").axes
    assert "lowers the loss on held-out examples, measured without privacy" in ax.get_xlabel()


def test_markers_are_hollow_at_the_stated_and_filled_at_the_certified_epsilon():
    runs = [record(0.86), record(0.80, method="dpsur", accounts=[account("naive", 2.9), account("C", None)])]
    ax = figures.accuracy(groups(runs), Figure().subplots())
    hollow = [line for line in ax.get_lines() if line.get_markerfacecolor() == "none"]
    assert sorted((float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in hollow) == [(3, 80), (3, 86)]
    filled = [container.lines[0] for container in ax.containers]
    assert [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in filled] == [(2.7, 86)]


def test_only_figures_whose_runs_are_stored_are_drawn_and_equal_runs_give_equal_bytes(tmp_path: Path, capsys):
    assert figures.write([], tmp_path) == []
    records = [record(), beta_run(3, (3, 1), (20, 60))]
    names = [path.name for path in figures.write(records, tmp_path / "one")]
    assert names == [f"{stem}.{kind}" for stem in ("figure_s4", "selective_accuracy") for kind in ("pdf", "png")]
    figures.write(records[::-1], tmp_path / "two")
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert matplotlib.rcParams["font.serif"] != STYLE["font.serif"], "the style must not leak"
    figures.main(["--output", str(tmp_path)])
    assert capsys.readouterr().out.count("not drawn") == 3
