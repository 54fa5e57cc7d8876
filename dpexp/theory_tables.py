"""Tables of the stored theory runs: the risk per clip norm, and the fitted exponents of phi."""

import math

import numpy as np
import pandas as pd

FITTED_POINTS = 4  # slopes are fitted over this many smallest phi
RESAMPLES = 2000
SHOWN = (0.125, 1.0, 2.0, 5.0, 10.0, 20.0, 26.0)  # clip norms of the printed table; the nearest that was run
NOTES = """\
These runs can show that the measured risk keeps below the bounds; that the bound of Theorem 5.4 has the
shape of the measured curve where samples interpolate; and that with the prescribed clip norm, learning
rate and steps the risk falls with phi as Table 2 says. `risk_best_rate` is the least mean risk over seven
values of C on the same seeds, so a little optimistic.

They also show where the bound of Theorem 5.4 says little. alpha is not continuous in the data: a conflict
that hardly moves the measured risk takes alpha(G_1) from about 5 to 1.4. And by its property (iv) alpha
is 1 for every clip norm wherever some point fits all samples but the one with the largest constant. In a
linear model with linearly independent features there always is one (or a sequence that tends to it): such
a model interpolates, and still the theorem promises nothing for small clip norms.

They cannot show that the rates are tight. The problem is fixed while phi falls, whereas a lower bound
picks the worst distribution for each phi. The rate seen is the schedule's own: both the way to the
minimiser and the noise around it are proportional to tau * phi, and the prescribed tau exceeds nearly
every Lipschitz constant, so that clipping hardly acts. On the same problem a clip norm fixed at G gives a
risk that falls almost linearly in phi. The intervals are over data sets (bootstrap), not over problems; a
slope that misses its exponent by more than its interval shows that phi is finite. Where Theorem 6.5 has
no bound, Assumption 6.4 does not hold at that phi. The smallest phi stand for more steps than anyone
takes; they are reached by merging steps (`dpexp/theory_rates.py`).

phi is set directly and stands for no epsilon: Theorem 3.4 leaves its constant nu unstated and holds only
for epsilon below an unstated multiple of (b/n)^2 * T. It is used here as the theory's noise scale and
nowhere else."""


def slopes(frame: pd.DataFrame) -> pd.DataFrame:
    """Fitted exponent of phi for each theorem and k: mean and 95% bootstrap interval over data sets.

    frame: the records of `theory_rates.risk_against_phi`. Each data set's slope is a least-squares line
    through log risk over log phi at the FITTED_POINTS smallest phi. `risk_over_bound` is the largest ratio
    where there is a bound.
    """
    generator = np.random.default_rng(0)
    rows = []
    for (theorem, k), group in frame.groupby(["theorem", "k"], sort=False):
        risk = group.pivot_table(index="seed", columns="phi", values="risk").iloc[:, :FITTED_POINTS]
        fitted = np.polyfit(np.log(risk.columns.to_numpy(float)), np.log(risk.to_numpy()).T, 1)[0]
        resampled = fitted[generator.integers(fitted.size, size=(RESAMPLES, fitted.size))].mean(1)
        low, high = np.percentile(resampled, [2.5, 97.5])
        rows.append(
            {
                "theorem": theorem,
                "k": k,
                "exponent": group["exponent"].iloc[0],
                "slope": fitted.mean(),
                "slope_low": low,
                "slope_high": high,
                "phi_low": float(risk.columns.min()),
                "phi_high": float(risk.columns.max()),
                "risk_over_bound": (group["risk"] / group["bound"]).max(),
                "data_sets": fitted.size,
            }
        )
    return pd.DataFrame(rows)


def risk_bound_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Per problem and clip norm: alpha, both terms, the risk at the prescribed and at the best rate."""
    best = frame.groupby(["problem", "clip_norm"], sort=False)["risk"].min().rename("risk_best_rate")
    table = frame[frame["prescribed"]].join(best, on=["problem", "clip_norm"])
    columns = ["problem", "interpolation_gap", "clip_norm", "alpha", "term_a", "term_b"]
    return table[[*columns, "risk", "risk_standard_error", "risk_best_rate", "seeds"]]


def markdown(risk: pd.DataFrame, rates: pd.DataFrame) -> str:
    """Both tables as one Markdown page; of the first, the clip norms nearest to SHOWN."""
    clip_norms = np.sort(risk["clip_norm"].unique())
    nearest = [clip_norms[np.abs(np.log(clip_norms / shown)).argmin()] for shown in SHOWN]
    chosen = risk[risk["clip_norm"].isin(nearest)].drop(columns="seeds")
    head = "# Theory of paper L, measured\n\n"
    first = f"## Theorem 5.4: risk against clip norm ({risk['seeds'].iloc[0]} seeds)\n\n{_grid(chosen)}\n\n"
    second = f"## Table 2: fitted slopes ({rates['data_sets'].iloc[0]} data sets)\n\n{_grid(rates)}\n\n"
    return head + first + second + NOTES + "\n"


def _grid(table: pd.DataFrame) -> str:
    """A frame as a Markdown table with four significant digits."""
    rows = [list(table.columns), ["---"] * table.shape[1]]
    rows += [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cell(value: object) -> str:
    """A number to four digits, an empty cell for none, text as it is."""
    if isinstance(value, str):
        return value
    assert isinstance(value, int | float)
    return "" if math.isnan(value) else f"{value:.4g}"
