"""The items of one exact sample in one compiled call: no interpreter between items, and other threads run meanwhile.

The call returns early only if the monitors ask for another circle, about twice for 50 items and hardly ever for 10. It needs a leverage
table and a Q in memory. With other indexes and stores, :class:`~ndpp.samplers.Exact` draws item by item.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpp._compiled import njit
from ndpp._types import FloatArray, IntArray
from ndpp._validation import clip_probabilities
from ndpp.items import ItemIndex, LeverageTable, table
from ndpp.items.base import check_total
from ndpp.items.table import ACCEPTANCE, TableArrays, draw_one
from ndpp.samplers.exact.monitors import Tolerances
from ndpp.samplers.exact.nodes import Nodes, condition_nodes


class Chain(NamedTuple):
    """Items drawn so far, proposals, how many of these were decided in double precision, and the worst values of the monitors."""

    done: int
    proposals: int
    doubts: int
    trace_error: float
    fraction: float


def can_chain(index: ItemIndex | None) -> bool:
    """Return whether the compiled call can draw from this index."""
    return type(index) is LeverageTable and index.kernel.coordinates.Q is not None


def draw_chain(
    rng: np.random.Generator,
    index: LeverageTable,
    nodes: Nodes,
    M: FloatArray,
    rows: IntArray,
    q: FloatArray,
    done: int,
    tolerances: Tolerances,
) -> Chain:
    """Fill ``rows[done:]`` and ``q[done:]``, the rows of Q, until all are drawn or M fails the tolerances. Nodes and M are overwritten."""
    Q = index.kernel.coordinates.Q
    assert Q is not None
    arrays = TableArrays(index.threshold, index.alias, index.leverage, index.total, index.budget)
    chain, refused, extremes = _draw_chain(
        rng, arrays, Q, nodes.Z, nodes.log_w, M, rows, q, done, tolerances, table.FILTERING
    )
    if refused:
        clip_probabilities(np.array(extremes), ACCEPTANCE, tolerance=tolerances.chance)
        total = float(np.trace(M))
        check_total(total)
        raise index.over_budget(rows[:0], 1, total / index.total, 1.0)
    return Chain(*chain)


@njit(error_model="numpy")
def _draw_chain(
    rng: np.random.Generator,
    arrays: TableArrays,
    Q: FloatArray,
    Z: FloatArray,
    log_w: FloatArray,
    M: FloatArray,
    rows: IntArray,
    q: FloatArray,
    done: int,
    tolerances: Tolerances,
    filtering: float,
) -> tuple[tuple[int, int, int, float, float], bool, tuple[float, float]]:
    """Return the fields of :class:`Chain`, whether no item could be drawn from M, and the range of acceptance probabilities then."""
    proposals, doubts, trace_error, fraction = 0, 0, 0.0, 1.0
    while True:
        row, low, high = -1, 0.5, 0.5
        if 0 < np.trace(M) < np.inf:
            row, used, unsure, low, high = draw_one(rng, arrays, Q, M, filtering)
            proposals += used
            doubts += unsure
        if row < 0 or not (low >= -tolerances.chance and high <= 1 + tolerances.chance):
            return (done, proposals, doubts, trace_error, fraction), True, (low, high)
        rows[done], q[done] = row, Q[row]
        done += 1
        left = rows.size - done
        if left == 0:
            break
        trace, part = condition_nodes(Z, q[done - 1], log_w, log_w, M, left > 1)
        error = abs(trace - left)
        if not (error <= tolerances.trace and part >= tolerances.fraction):
            break
        trace_error, fraction = max(trace_error, error), min(fraction, part)
    return (done, proposals, doubts, trace_error, fraction), False, (0.5, 0.5)
