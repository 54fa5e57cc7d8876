"""The look that all figures share: readable in print, in grey, and by colour-blind people."""

import io
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from dpexp.cache import write_atomic

STYLE: Any = {
    "font.family": "serif",
    "font.serif": ["STIXGeneral"],
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.titlesize": 9.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "errorbar.capsize": 1.8,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
}
# Okabe and Ito's palette for colour-blind readers; dash and marker tell the curves apart in grey print.
CURVES = (("#0072B2", "o", "-"), ("#D55E00", "s", "--"), ("#009E73", "^", "-."), ("#CC79A7", "D", ":"))
# Files without dates and program versions: equal results give equal bytes.
METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as `path`.pdf and `path`.png. Equal figures give equal bytes."""
    paths = []
    for kind, metadata in METADATA.items():
        content = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            figure.savefig(content, format=kind, metadata=metadata)
        paths.append(path.with_name(f"{path.name}.{kind}"))
        write_atomic(paths[-1], content.getvalue())
    return paths
