"""Table 1 of paper S: by how much the test is said to raise the chance that one example takes part.

The text leaves the formula's constants open. All 24 printed entries follow from these: the test's noise is its noise
multiplier times the full range of the clipped gap, C_max is the threshold plus half that range, s is one example's
share for DPSR-CG and the full range for DPSUR. Entries are cut off after two digits, and the printed columns stand in
reverse order: what is printed under epsilon 1 belongs to the noise of epsilon 3, and the other way about.
"""

import math
from dataclasses import dataclass

from dpexp.selective.theorems import Acceptance

BETA = 3.0  # Section 5.1
BUDGETS = (1, 2, 3)
# Noise multipliers of the tests at epsilon 1, 2, 3. DPSR-CG's are those of its gradients, DPSUR's those it published.
TEST_NOISE = {
    "dpsr_cg": {
        "mnist": (2.5, 1.5, 1.35),
        "fashion_mnist": (4.0, 3.0, 2.15),
        "cifar10": (5.67, 3.5, 3.5),
        "imdb": (2.5, 1.8, 1.35),
    },
    "dpsur": {
        "mnist": (1.3, 1.0, 0.9),
        "fashion_mnist": (1.3, 1.3, 0.8),
        "cifar10": (1.3, 1.3, 1.1),
        "imdb": (1.3, 1.2, 1.0),
    },
}


@dataclass(frozen=True, kw_only=True)
class Inflation:
    """One entry. printed_under: its column in the paper; belongs_to: the epsilon whose noise gives its value."""

    noise_multiplier: float
    printed_under: int
    belongs_to: int
    value: float

    @property
    def printed(self) -> float:
        """The value as the paper prints it, cut off after two digits."""
        return math.floor(100 * self.value) / 100


def entry(method: str, dataset: str, printed_under: int) -> Inflation:
    """The entry that the paper prints for a method and a data set under an epsilon."""
    belongs_to = BUDGETS[-1 - BUDGETS.index(printed_under)]
    noise = TEST_NOISE[method][dataset][BUDGETS.index(belongs_to)]
    if method == "dpsr_cg":  # in units of C_t; one example moves the gap by C_t
        gap = Acceptance(threshold=BETA, clip_range=2, std=4 * noise, sensitivity=1, signed=False)
    else:  # in units of C_v; one example is taken to move the gap by all of its range
        gap = Acceptance(threshold=1, clip_range=1, std=2 * noise, sensitivity=2, signed=False)
    return Inflation(noise_multiplier=noise, printed_under=printed_under, belongs_to=belongs_to, value=gap.inflation)
