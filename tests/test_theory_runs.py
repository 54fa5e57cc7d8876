"""The simulations are Algorithm 1, keep to the bounds, and their records survive a round trip."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from dpexp import theory_rates as rates
from dpexp import theory_risk, theory_runs
from dpexp.config import ConfigError
from dpexp.theory import best_constant, convex_steps, exponent, learning_rate, risk_bound

ORIGIN = np.zeros(2)


def _clip(gradient: np.ndarray, clip_norm: float) -> np.ndarray:
    """Equation 2."""
    norm = np.linalg.norm(gradient)
    return gradient * min(1.0, clip_norm / norm) if norm > 0 else gradient


def _schedule(clip_norms: list[float], phi: float, distance: float) -> theory_risk.Schedule:
    steps, C = convex_steps(phi), best_constant(distance)
    lr = np.array([learning_rate(C, tau, phi, steps) for tau in clip_norms])
    return theory_risk.Schedule(clip_norm=np.array(clip_norms), learning_rate=lr, phi=phi, steps=steps, batch_size=10)


def test_dp_sgd_risk_is_algorithm_1_sample_by_sample() -> None:
    losses, phi, tau = theory_risk.convex_problem(0.5), 0.1, 3.0
    schedule = _schedule([tau], phi, losses.distance(ORIGIN))
    generator, w, risks = np.random.default_rng(5), ORIGIN, []
    for _ in range(schedule.steps):
        risks.append(losses.risk(w) - losses.risk(losses.minimiser))
        chosen = generator.random(40) < 10 / 40
        gradient = np.zeros(2)
        for i in np.flatnonzero(chosen):
            side = np.sign(losses.directions[i] @ w - losses.offsets[i])
            gradient += _clip(losses.lipschitz[i] * side * losses.directions[i], tau) / 10
        noise_std = math.sqrt(schedule.steps * (tau * phi) ** 2 / 2)  # d * std^2 = T (tau phi)^2
        gradient += noise_std * generator.standard_normal(2)
        w = w - schedule.learning_rate[0] * gradient
    measured = theory_risk.dp_sgd_risk(losses, ORIGIN, schedule, seed=5)
    assert measured[0] == pytest.approx(np.mean(risks), rel=1e-9)


def test_a_run_does_not_depend_on_the_runs_beside_it() -> None:
    losses = theory_risk.convex_problem(0.5)
    distance = losses.distance(ORIGIN)
    together = theory_risk.dp_sgd_risk(losses, ORIGIN, _schedule([1.0, 5.0], 0.1, distance), seed=0)
    alone = theory_risk.dp_sgd_risk(losses, ORIGIN, _schedule([5.0], 0.1, distance), seed=0)
    assert together[1] == pytest.approx(alone[0], rel=1e-12)


def test_every_clip_norm_up_to_the_smallest_constant_gives_the_same_run() -> None:
    losses = theory_risk.convex_problem(0.0)
    schedule = _schedule([0.01, 0.3, 1.0, 1.5], 0.05, losses.distance(ORIGIN))
    risks = theory_risk.dp_sgd_risk(losses, ORIGIN, schedule, seed=0)
    assert risks[:3] == pytest.approx(risks[0], rel=1e-6)
    assert risks[3] > risks[0] * 1.001


@pytest.mark.parametrize("conflict", [0.0, 0.5])
def test_measured_risk_stays_below_the_bound(conflict: float) -> None:
    losses, phi = theory_risk.convex_problem(conflict), 0.05
    schedule = _schedule([0.5, 1.0, 2.0, 8.0, 20.0, 26.0], phi, losses.distance(ORIGIN))
    risks = np.mean([theory_risk.dp_sgd_risk(losses, ORIGIN, schedule, seed) for seed in range(20)], axis=0)
    C = best_constant(losses.distance(ORIGIN))
    bounds = [risk_bound(losses, tau, phi, ORIGIN, C).total for tau in schedule.clip_norm]
    assert (risks > 0).all()
    assert (risks < bounds).all()


def test_records_mark_one_prescribed_learning_rate_per_clip_norm_and_repeat_exactly() -> None:
    first, second = (theory_risk.risk_against_clip_norm(range(2), phi=0.3) for _ in range(2))
    assert first == second
    per_point = {
        key: sum(r["prescribed"] for r in first if (r["problem"], r["clip_norm"]) == key)
        for key in {(r["problem"], r["clip_norm"]) for r in first}
    }
    assert set(per_point.values()) == {1}
    assert len(per_point) == 3 * 24


@pytest.mark.parametrize("smooth", [False, True])
def test_simulation_without_merging_is_algorithm_1_sample_by_sample(
    smooth: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "SAMPLES", 50)
    monkeypatch.setattr(rates, "REPETITIONS", 1)
    phi, sample = 0.2, rates.draw(1.5, 3, smooth)
    setting = rates.prescribe("6.8" if smooth else "6.5", 1.5, phi, sample)
    setting = type(setting)(clip_norm=2.0, learning_rate=0.2, steps=setting.steps, bound=1.0)
    generator, w, risks = np.random.default_rng(9), rates.START, []
    for _ in range(setting.steps):
        x = w - rates.CENTRES[sample.centre]
        gradients = sample.lipschitz * (2 * x / (1 + x**2) if smooth else np.sign(x))
        risks.append(gradients.mean() ** 2 if smooth else np.mean(sample.lipschitz * np.abs(x)))
        clipped = np.mean([_clip(np.array([g]), 2.0)[0] for g in gradients])
        noise = 2.0 * phi * math.sqrt(setting.steps) * generator.standard_normal((1, 1))[0, 0]
        w = w - 0.2 * (clipped + noise)
    least = 0.0 if smooth else np.abs(rates.CENTRES[:, None] - rates.CENTRES[sample.centre])
    least = 0.0 if smooth else (least * sample.lipschitz).mean(1).min()
    measured = rates.simulate([sample], [setting], phi, setting.steps, seed=9)
    assert measured[0] == pytest.approx(np.mean(risks) - least, rel=2e-3 if smooth else 1e-9)


@pytest.mark.parametrize(("theorem", "phi"), [("6.5", 0.02), ("6.8", 0.02)])
def test_merged_steps_give_the_risk_of_single_steps(theorem: str, phi: float) -> None:
    samples = [rates.draw(4.0, seed, theorem == "6.8") for seed in range(10)]
    settings = [rates.prescribe(theorem, 4.0, phi, sample) for sample in samples]
    leaps = rates.merged(theorem, settings[0], phi, samples[0])
    assert theorem == "6.5" or leaps < settings[0].steps
    leaps = min(leaps, settings[0].steps // 2)
    merged, single = (
        rates.simulate(samples, settings, phi, count, seed=0).mean() for count in (leaps, settings[0].steps)
    )
    assert merged == pytest.approx(single, rel=0.05)


@pytest.mark.parametrize("k", [1.5, 2.0, 4.0])
def test_drawn_constants_have_the_stated_tail_and_moment(k: float) -> None:
    lipschitz = np.concatenate([rates.draw(k, seed, False).lipschitz for seed in range(40)])
    for x in (1.5, 3.0):
        assert (lipschitz > x).mean() == pytest.approx(x ** (-1.1 * k), rel=0.05)
    assert rates.moment_constant(k) ** k == pytest.approx(1.1 * k / (1.1 * k - k))
    assert (rates.draw(math.inf, 0, False).lipschitz == 1).all()


def test_sharp_radius_satisfies_assumption_6_4_and_is_infinite_where_it_fails() -> None:
    sample = rates.draw(2.0, 0, False)
    mean = sample.mass.sum()
    for part in (0.1, 0.5, 0.9):
        radius = sample.sharp_radius(part * mean)
        distances = np.geomspace(radius, 100 * radius, 50)
        for side in (-1, 1):
            risk = sample.risk(sample.minimiser + side * distances)
            assert (risk > part * mean * distances).all()
    assert math.isinf(sample.sharp_radius(1.01 * mean))


@pytest.mark.parametrize(("theorem", "k"), [("6.2", 2.0), ("6.5", 4.0), ("6.8", 1.5), ("6.2", math.inf)])
def test_measured_risk_falls_as_the_theorem_says_and_below_its_bound(theorem: str, k: float) -> None:
    samples = [rates.draw(k, seed, theorem == "6.8") for seed in range(5)]
    grid = rates._phi_grid(theorem, k, samples[0])[3:5]
    records = [r for phi in grid for r in rates._measure(theorem, k, phi, samples, range(5))]
    risks = [np.mean([r["risk"] for r in records if r["phi"] == phi]) for phi in grid]
    slope = math.log(risks[0] / risks[1]) / math.log(grid[0] / grid[1])
    assert slope == pytest.approx(exponent(theorem, k), abs=0.05)
    assert all(r["risk"] < r["bound"] for r in records if r["bound"] is not None)


def test_phi_where_inverts_a_bound() -> None:
    assert rates.phi_where(lambda phi: 3 * phi**0.2, 0.06) == pytest.approx(0.02**5)
    assert rates.phi_where(lambda phi: phi, 7.0) == 0.5


def test_records_survive_a_round_trip_as_strict_json(tmp_path: Path) -> None:
    risk = {"study": "risk_bound", "problem": "x", "risk": 0.1}
    tails = [{"study": "heavy_tails", "k": k, "bound": None} for k in ("inf", 1.5)]
    paths = theory_runs.write([risk, *tails], tmp_path)
    for path in paths:
        for line in path.read_text().splitlines():
            json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    found = theory_runs.read(tmp_path)
    assert found["risk_bound"] == [risk]
    assert [r["k"] for r in found["heavy_tails"]] == [math.inf, 1.5]


def test_nan_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        theory_runs.write([{"study": "risk_bound", "risk": math.nan}], tmp_path)
    assert not list(tmp_path.iterdir())


def test_missing_results_say_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"python -m dpexp\.theory_runs"):
        theory_runs.read(tmp_path)


@pytest.mark.parametrize("seeds", [(), (0,), (0, 0), (-1, 2)])
def test_too_few_or_repeated_seeds_are_named(seeds: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="two or more different whole numbers"):
        theory_runs.run(seeds)


def test_the_theory_sweep_writes_its_tables_and_figures_and_simulates_each_seed_once(tmp_path, monkeypatch):
    from conftest import compose_config
    from rich.console import Console

    from dpexp import run as entry

    few = {"risk_bound": [{"study": "risk_bound", "seeds": 2}], "heavy_tails": []}
    few["heavy_tails"] = [{"study": "heavy_tails", "k": 2, "seed": seed} for seed in (0, 1)]
    simulated = []

    def simulate(seeds):
        simulated.append(tuple(seeds))
        return [*few["risk_bound"], *few["heavy_tails"]]

    monkeypatch.setattr(entry.theory_runs, "run", simulate)
    monkeypatch.setattr(entry.theory_figures, "build", lambda output: [output / "tables" / "theory.md"])
    config = compose_config("+sweep=theory", "seeds=[0,1]", f"output_dir={tmp_path}")
    for _ in range(2):
        assert entry.execute(config, Console(quiet=True)) == [tmp_path / "tables" / "theory.md"]
    assert simulated == [(0, 1)]
    entry.execute(compose_config("+sweep=theory", "seeds=[0,2]", f"output_dir={tmp_path}"), Console(quiet=True))
    assert simulated == [(0, 1), (0, 2)]


def test_the_theory_sweep_has_the_twenty_seeds_of_the_stored_results():
    from conftest import compose_config

    assert compose_config("+sweep=theory").seeds == theory_runs.SEEDS
