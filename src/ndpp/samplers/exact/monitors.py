"""What the CPU and the GPU share: the tolerances of the exact sampler's monitors, the ladder's step, the numbers of nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ndpp._validation import PROBABILITY_TOLERANCE

RUNG = 0.35
"""Step of the ladder in log ρ. One step moves the mean size by about RUNG times its variance."""
COUNTS = np.array([4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 160, 192, 256, 384, 512, 1024])
"""Numbers of nodes to choose from: few, so that circles are shared between samples."""
TRACE_TOLERANCE = 2e-8
"""How far tr M may be from the number of items still to come. Divided by the number of nodes, this is the bias of the rule."""
FRACTION_FLOOR = 1e-5
"""Smallest surviving fraction. Rounding errors are divided by it."""
CHOSEN_TOLERANCE = 1e-6
"""Largest entry of M q for an item already chosen, which is zero in exact arithmetic."""


class Tolerances(NamedTuple):
    """Bounds of the monitors: on |tr M − left|, the surviving fraction, acceptance probabilities outside [0, 1], and |M q_Y|."""

    trace: float = TRACE_TOLERANCE
    fraction: float = FRACTION_FLOOR
    chance: float = PROBABILITY_TOLERANCE
    chosen: float = CHOSEN_TOLERANCE

    def accepts(self, trace_error: Any, fraction: Any) -> Any:
        """Tell whether M may be drawn from; numbers, or arrays with one entry per sample."""
        return (trace_error <= self.trace) & (fraction >= self.fraction)


def unbiased_count(rank: int) -> int:
    """Return the smallest even number of nodes that folds nothing: more than the rank."""
    return 2 * (rank // 2 + 1)
