"""Figures and tables of the stored theory runs: `python -m dpexp.theory_figures`."""

import argparse
import io
import math
from collections.abc import Callable
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from dpexp.cache import write_atomic
from dpexp.style import CURVES, METADATA, STYLE
from dpexp.theory_runs import read
from dpexp.theory_tables import markdown, risk_bound_table, slopes

VACUOUS = 1.1  # bounds above this multiple of the initial risk are not drawn
NORMAL_95 = 1.96
TITLES = {
    "6.2": "Theorem 6.2: convex",
    "6.5": "Theorem 6.5: convex and sharp",
    "6.8": "Theorem 6.8: nonconvex",
    "constant": "no theorem: clip norm fixed at $G$",
}


def risk_bound(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Measured risk of one problem against the clip norm, with the bound of Theorem 5.4 and its two terms.

    frame: the records of `theory_risk.risk_against_clip_norm` for one problem.
    """
    prescribed = frame[frame["prescribed"]].sort_values("clip_norm")
    tau = prescribed["clip_norm"]
    ax.plot(tau, prescribed["term_a"] + prescribed["term_b"], color="0.25", lw=1.6, label="bound, (A) + (B)")
    ax.plot(tau, prescribed["term_a"], color="0.45", ls="--", lw=1, label="(A): noise")
    if prescribed["interpolation_gap"].iloc[0] > 0:
        ax.plot(tau, prescribed["term_b"].where(prescribed["term_b"] > 0), color="0.45", ls=":", label="(B): bias")
    tuned = frame.loc[frame.groupby("clip_norm")["risk"].idxmin()]
    for rows, label, (colour, marker, dash) in zip(
        (prescribed, tuned), ("measured, prescribed $\\eta$", "measured, best $\\eta$"), CURVES, strict=False
    ):
        error = NORMAL_95 * rows["risk_standard_error"]
        ax.errorbar(rows["clip_norm"], rows["risk"], error, color=colour, marker=marker, ls=dash, ms=3, label=label)
    _mark_constants(prescribed, ax)
    ax.set(xscale="log", yscale="log", xlabel="clip norm $\\tau$", ylabel="optimisation risk")
    # (B) falls to 0 at G_n, and a bound above the initial risk says nothing.
    ax.set_ylim(prescribed["risk"].min() / 2, 1.5 * prescribed["initial_risk"].max())
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    return ax


def _mark_constants(rows: pd.DataFrame, ax: Axes) -> None:
    """Vertical lines at the smallest and the largest Lipschitz constant."""
    for column, name in (("smallest_lipschitz", "$G_1$"), ("largest_lipschitz", "$G_n$")):
        ax.axvline(rows[column].iloc[0], color="0.7", lw=0.8, zorder=0)
        ax.annotate(
            name,
            (rows[column].iloc[0], 1),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            size=8,
        )


def heavy_tail_rates(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Risk over initial risk against phi for one theorem, a curve per k, with its bound and its fitted slope.

    frame: the records of `theory_rates.risk_against_phi` for one theorem.
    """
    fits = slopes(frame).set_index("k")
    for (k, group), (colour, marker, dash) in zip(frame.groupby("k"), CURVES, strict=True):
        mean = group.groupby("phi")[["risk", "bound", "initial_risk"]].mean()
        fit = fits.loc[k]
        promised = "" if pd.isna(fit["exponent"]) else f" ({fit['exponent']:.3f})"
        label = f"$k={_order(k)}$: {fit['slope']:.3f}{promised}"
        ax.plot(
            mean.index,
            mean["risk"] / mean["initial_risk"],
            color=colour,
            marker=marker,
            ls=dash,
            ms=3.5,
            label=label,
        )
        bound = mean["bound"] / mean["initial_risk"]
        ax.plot(mean.index, bound.where(bound <= VACUOUS), color=colour, lw=0.8, alpha=0.6)
    ax.set(xscale="log", yscale="log", xlabel="$\\varphi$", ylabel="risk / initial risk")
    ax.legend(
        title=TITLES[frame["theorem"].iloc[0]],
        title_fontsize=9.5,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=2,
        columnspacing=1.0,
        handlelength=2.4,
    )
    return ax


def _order(k: float) -> str:
    """A moment order as mathematical text."""
    return "\\infty" if math.isinf(k) else f"{k:g}"


def risk_bound_figure(frame: pd.DataFrame) -> Figure:
    """One panel per problem, from interpolation to conflict."""
    problems = list(frame["problem"].unique())
    figure = Figure(figsize=(7.4, 3.3))
    axes = figure.subplots(1, len(problems))
    for problem, ax in zip(problems, axes, strict=True):
        rows = frame[frame["problem"] == problem]
        risk_bound(rows, ax)
        gap = rows["interpolation_gap"].iloc[0]
        if ax is not axes[0]:
            ax.set_ylabel("")
        ax.set_title(f"{problem}, $\\Delta={gap:.2g}$", pad=14)
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def heavy_tail_figure(frame: pd.DataFrame) -> Figure:
    """One panel per theorem, and one for a clip norm that does not grow."""
    figure = Figure(figsize=(7.4, 5.6))
    axes = figure.subplots(2, 2, sharey=True)
    for (_, rows), ax in zip(frame.groupby("theorem", sort=False), axes.flat, strict=True):
        heavy_tail_rates(rows, ax)
    legend = (
        "Behind each $k$: fitted slope (promised exponent). Markers: measured, mean over data sets. "
        "Thin lines: the theorem's bound, where it promises anything."
    )
    figure.supxlabel(legend, size=8)
    return figure


def save(figure: Callable[[], Figure], stem: Path) -> list[Path]:
    """Draw under the common style and write `stem`.pdf and `stem`.png; returns their paths."""
    with matplotlib.rc_context(STYLE):
        drawn, paths = figure(), []
        for kind, metadata in METADATA.items():
            content = io.BytesIO()
            drawn.savefig(content, format=kind, metadata=metadata)
            paths.append(stem.with_suffix(f".{kind}"))
            write_atomic(paths[-1], content.getvalue())
    return paths


def build(output_dir: Path) -> list[Path]:
    """Every theory figure and table from the records under `output_dir`/results/theory; returns their paths."""
    stored = read(output_dir / "results" / "theory")
    risk, tails = pd.DataFrame(stored["risk_bound"]), pd.DataFrame(stored["heavy_tails"])
    risk_table, rates = risk_bound_table(risk), slopes(tails)
    tables = {
        "theory_risk_bound.csv": risk_table.to_csv(index=False, float_format="%.6g"),
        "theory_rates.csv": rates.to_csv(index=False, float_format="%.6g"),
        "theory.md": markdown(risk_table, rates),
    }
    for name, text in tables.items():
        write_atomic(output_dir / "tables" / name, text.encode())
    return [
        *(output_dir / "tables" / name for name in tables),
        *save(lambda: risk_bound_figure(risk), output_dir / "figures" / "theory_risk_bound"),
        *save(lambda: heavy_tail_figure(tails), output_dir / "figures" / "theory_heavy_tails"),
    ]


def main() -> None:
    """Command line: the outputs folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output-dir", type=Path, default=Path("outputs"))
    build(parser.parse_args().output_dir)


if __name__ == "__main__":
    main()
