"""What CPU and GPU share: tolerances of the exact sampler's monitors, the step of the ladder, numbers of nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ndpp._validation import PROBABILITY_TOLERANCE

RUNG_STEP = 0.35
"""Step of the ladder in log ρ. One step changes the mean size by about RUNG_STEP times its variance."""
NODE_COUNTS = np.array(
    [4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 160, 192, 256, 384, 512, 1024]
)
"""Numbers of nodes to choose from: few, so that samples share circles."""


class Tolerances(NamedTuple):
    """Bounds of the monitors.

    ``trace``: |tr M − number of remaining items|; divided by the number of nodes, this bounds the bias of the rule. ``fraction``: smallest
    surviving fraction; rounding errors are divided by it. ``chance``: how far acceptance probabilities may lie outside [0, 1].
    ``chosen``: largest entry of M q for an item already chosen, which is zero in exact arithmetic.
    """

    trace: float = 2e-8
    fraction: float = 1e-5
    chance: float = PROBABILITY_TOLERANCE
    chosen: float = 1e-6

    def accepts(self, trace_error: Any, fraction: Any) -> Any:
        """Tell whether M may be drawn from; takes numbers, or arrays with one entry per sample."""
        return (trace_error <= self.trace) & (fraction >= self.fraction)


def unbiased_count(rank: int) -> int:
    """Return the smallest even number of nodes for which the rule is unbiased: more than the rank."""
    return 2 * (rank // 2 + 1)
