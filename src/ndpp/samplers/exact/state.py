"""A sample that the circles of :mod:`.nodes` are drawing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.linalg import Coordinates, symmetric_part
from ndpp.linalg.schur import MAX_LOSS, ROUNDING, eliminate
from ndpp.samplers.exact.nodes import Inclusion, Nodes

NO_INCLUSION = Inclusion(np.empty((0, 0)), 0.0, 0.0)


class State(NamedTuple):
    """Items chosen in addition to the given ones, node matrices on one rung of the ladder, M, and the worst values of the monitors."""

    rows: IntArray
    q: FloatArray
    rung: int
    nodes: Nodes
    inclusion: Inclusion
    owned: bool = False  # the node matrices belong to this sample and may be overwritten
    recentred: int = 0
    trace_error: float = 0.0
    fraction: float = 1.0

    @classmethod
    def empty(cls, rank: int) -> State:
        """Return a state without items and circle."""
        nodes = Nodes(np.empty((2, 0, 0, 0)), np.empty(0, complex))
        return cls(np.empty(0, np.int64), np.empty((0, rank)), 0, nodes, NO_INCLUSION)

    def monitored(self, left: int) -> State:
        """Return the state with the worst values of the monitors so far, with ``left`` items missing."""
        error, fraction = abs(self.inclusion.trace - left), self.inclusion.fraction
        return self._replace(trace_error=max(self.trace_error, error), fraction=min(self.fraction, fraction))


def last_inclusion(coords: Coordinates, chosen: FloatArray) -> Inclusion | None:
    """Return M of the last item, the diagonal of what eliminating the others leaves of L: no circle, so nothing cancels."""
    given = eliminate(coords, chosen)
    if given is None or given.null.size or given.loss > MAX_LOSS:
        return None
    M = given.to_z @ symmetric_part(given.M) @ given.to_z.T
    trace = float(np.trace(M))
    largest = float(np.abs(given.to_z).max() ** 2 * given.magnitudes.max())
    is_exact = len(chosen) == 0  # the symmetric part of B is computed apart from its skew part
    return Inclusion(M / trace, 1.0, 1.0) if is_exact or ROUNDING * largest < MAX_LOSS * trace else None
