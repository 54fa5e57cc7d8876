"""Slopes are recovered from made-up records, and tables and figures follow from the stored ones alone."""

import math
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from dpexp import theory_figures, theory_runs, theory_tables
from dpexp.style import STYLE
from dpexp.theory import exponent

OUTPUTS = Path(__file__).parent.parent / "outputs"


def _tails(slope: float, spread: float) -> pd.DataFrame:
    """Risk 2 * phi^slope with a factor per data set, and flat above phi = 1e-4, which must not count."""
    generator = np.random.default_rng(0)
    rows = []
    for seed in range(12):
        tilt, factor = slope + spread * generator.normal(), math.exp(generator.normal())
        for phi in np.geomspace(1e-6, 1e-2, 9):
            risk = 2 * factor * phi**tilt if phi < 1.01e-4 else 0.5
            rows.append({"seed": seed, "phi": phi, "risk": risk, "bound": 4 * factor * phi**slope})
    frame = pd.DataFrame(rows)
    return frame.assign(theorem="6.5", k=2.0, exponent=0.5, initial_risk=1.0)


@pytest.fixture(scope="module")
def stored() -> dict[str, pd.DataFrame]:
    records = theory_runs.read(OUTPUTS / "results" / "theory")
    return {study: pd.DataFrame(rows) for study, rows in records.items()}


def test_slopes_are_exact_without_noise_and_use_only_the_smallest_phi() -> None:
    fit = theory_tables.slopes(_tails(0.5, spread=0.0)).iloc[0]
    assert [fit["slope"], fit["slope_low"], fit["slope_high"]] == pytest.approx([0.5] * 3)
    assert fit["phi_low"] == pytest.approx(1e-6)
    assert fit["phi_high"] == pytest.approx(1e-6 * 10**1.5)


def test_interval_holds_the_slope_and_widens_with_the_spread_over_data_sets() -> None:
    narrow, wide = (theory_tables.slopes(_tails(0.5, spread)).iloc[0] for spread in (0.01, 0.1))
    for fit in (narrow, wide):
        assert fit["slope_low"] < fit["slope"] < fit["slope_high"]
        assert fit["slope_low"] < 0.5 < fit["slope_high"]
    ratio = (wide["slope_high"] - wide["slope_low"]) / (narrow["slope_high"] - narrow["slope_low"])
    assert ratio == pytest.approx(10, rel=0.05)


def test_stored_slopes_lie_near_the_promised_exponents(stored: dict[str, pd.DataFrame]) -> None:
    fits = theory_tables.slopes(stored["heavy_tails"])
    assert len(fits) == 16
    for fit in fits[fits["theorem"] != "constant"].itertuples():
        assert fit.slope == pytest.approx(exponent(fit.theorem, fit.k), abs=0.01)
        assert fit.risk_over_bound < 1
    constant = fits[fits["theorem"] == "constant"]
    assert (constant["slope"] > 0.95).all()


def test_stored_risks_are_flat_below_the_smallest_constant_and_under_the_bound(
    stored: dict[str, pd.DataFrame],
) -> None:
    frame = stored["risk_bound"]
    assert (frame["risk"] < frame["term_a"] + frame["term_b"]).all()
    below = frame[frame["clip_norm"] <= frame["smallest_lipschitz"]]
    assert (below.groupby(["problem", "C"])["risk"].agg(np.ptp) < 1e-6).all()
    prescribed = frame[frame["prescribed"] & (frame["problem"] == "interpolation")].set_index("clip_norm")
    assert prescribed["risk"][1.0] < prescribed["risk"][20.0] / 4


@pytest.mark.parametrize("name", ["theory_risk_bound.csv", "theory_rates.csv", "theory.md"])
def test_committed_tables_follow_from_the_committed_records(name: str, stored: dict[str, pd.DataFrame]) -> None:
    risk = theory_tables.risk_bound_table(stored["risk_bound"])
    rates = theory_tables.slopes(stored["heavy_tails"])
    built = {
        "theory_risk_bound.csv": risk.to_csv(index=False, float_format="%.6g"),
        "theory_rates.csv": rates.to_csv(index=False, float_format="%.6g"),
        "theory.md": theory_tables.markdown(risk, rates),
    }
    assert (OUTPUTS / "tables" / name).read_text() == built[name]


def test_risk_bound_draws_what_is_stored(stored: dict[str, pd.DataFrame]) -> None:
    frame = stored["risk_bound"]
    rows = frame[frame["problem"] == "conflict"]
    ax = theory_figures.risk_bound(rows, Figure().subplots())
    lines = {line.get_label(): line for line in ax.get_lines()}
    prescribed = rows[rows["prescribed"]].sort_values("clip_norm")
    np.testing.assert_array_equal(lines["bound, (A) + (B)"].get_ydata(), prescribed["term_a"] + prescribed["term_b"])
    measured, tuned = (container.lines[0].get_ydata() for container in ax.containers)
    np.testing.assert_array_equal(measured, prescribed["risk"])
    assert (np.asarray(tuned) <= np.asarray(measured)).all()


def test_heavy_tail_rates_hides_bounds_that_promise_nothing(stored: dict[str, pd.DataFrame]) -> None:
    frame = stored["heavy_tails"]
    ax = theory_figures.heavy_tail_rates(frame[frame["theorem"] == "6.5"], Figure().subplots())
    thin = [line for line in ax.get_lines() if line.get_marker() == "None"]
    assert len(thin) == 4
    for line in thin:
        heights = np.asarray(line.get_ydata(), dtype=float)
        assert np.nanmax(heights) <= 1.1
        assert np.isnan(heights).any()


def test_build_writes_every_file_and_the_same_figure_has_the_same_bytes(
    tmp_path: Path, stored: dict[str, pd.DataFrame]
) -> None:
    records = theory_runs.read(OUTPUTS / "results" / "theory")
    tails = [r | {"k": "inf" if math.isinf(r["k"]) else r["k"]} for r in records["heavy_tails"]]
    theory_runs.write(records["risk_bound"] + tails, tmp_path / "results" / "theory")
    theory_figures.build(tmp_path)
    files = {p.name: p.read_bytes() for p in sorted(tmp_path.rglob("theory*")) if p.is_file()}
    assert len(files) == 7
    theory_figures.save(lambda: theory_figures.risk_bound_figure(stored["risk_bound"]), tmp_path / "again")
    for kind in (".pdf", ".png"):
        assert (tmp_path / "again").with_suffix(kind).read_bytes() == files[f"theory_risk_bound{kind}"]
    assert matplotlib.rcParams["font.serif"] != STYLE["font.serif"], "the style must not leak"
