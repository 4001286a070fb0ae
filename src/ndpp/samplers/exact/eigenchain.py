"""Exact samples of one size in eigencoordinates, one compiled call per sample.

Law and circles: those of :class:`~ndpp.samplers.Exact`, and with the same seed the same draws, up to rounding. There are no node matrices
(:mod:`.eigenring`): an item that follows m others costs O(N m r), and so does a candidate for it, where the circles of :mod:`.nodes` take
O(N r²) and O(r²). Given items count by an orthonormal basis of their rows, in which nearly equal ones cost no digits.

Monitors, before every item: the trace and the surviving fraction as on other circles, acceptance probabilities within [0, 1], and the
form of a signed sum of the rows of all items chosen, which M maps to zero. A sample that fails one is completed by the circles of
:mod:`.nodes`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ndpp._compiled import interruptible, jitable, njit, soon, write
from ndpp._memory import n_bytes_of
from ndpp._types import ComplexArray, FloatArray, IntArray
from ndpp.items import LeverageTable
from ndpp.items.table import TableArrays, look_up, proposals_at_once
from ndpp.laws.precision import WARN_ERROR
from ndpp.linalg.schur import row_basis
from ndpp.linalg.tilts import MOST_TILT
from ndpp.samplers.exact.eigenclock import remaining
from ndpp.samplers.exact.eigenring import (
    TARGETS,
    Ring,
    RingRequest,
    Weights,
    advance,
    begin,
    forms_of,
    open_ring,
    weigh,
    with_space,
)
from ndpp.samplers.exact.node_route import NodesRoute
from ndpp.samplers.exact.plan import PLANNED, RUNG_STEP, Tolerances, plan_next, remaining_size_law, unbiased_count
from ndpp.samplers.exact.routes import CircleReport, Done, Target, Unfinished
from ndpp.samplers.exact.rows import EigenRows, Sides, fetch, suited

COMMON = 1e-3
"""Least probability of a size, on the circle where it is about the mean, that needs no further look."""
BESIDE = 0.3
"""How far the mean on the first circle is from the size, or from the largest one."""
GROUP = 32
"""Most candidates that are judged together."""
LOW_RANK = 32
"""Up to this rank, calls take longer than what they compute, and dyads are no slower than matrices, however many."""
NOT_YET, FAILED = -1, -2


@dataclass(frozen=True, eq=False)
class EigenChain:
    """What draws ``request.wanted`` items in addition to given ones: their sides, and the first circle."""

    name: ClassVar[str] = "ring"

    index: LeverageTable
    eigen: EigenRows
    request: RingRequest
    left: FloatArray
    right: FloatArray
    ring: Ring

    @classmethod
    def prepare(cls, target: Target, wanted: int | None) -> EigenChain | None:
        """Open the first circle; None if it fails the monitors or would not pay.

        Beyond half the rank, the dyads of a node hold more numbers than the matrix that they stand for.
        """
        eigen = None if wanted is None else target.eigen
        if wanted is None or eigen is None:
            return None
        given, D = target.ladder.given, eigen.to_sides.shape[2]
        if D > LOW_RANK and 2 * (len(given) + wanted) > D:
            return None
        request = RingRequest(len(given) + wanted, wanted, TARGETS, Tolerances())
        left, right = row_basis(given)[0] @ eigen.to_sides
        rung = rung_for(eigen, left, right, wanted)
        found = soon(_first, D**2 * (1 + len(given)) ** 2)(eigen.values, request, rung, left, right)
        return cls(target.index, eigen, request, left, right, Ring(*found[:8])) if found[8] else None

    @property
    def n_bytes(self) -> int:
        """Bytes in addition to those of the target."""
        return n_bytes_of((self.left, self.right, self.ring))

    def draw(self, rng: np.random.Generator) -> Done | Unfinished:
        """Draw items until all are there or a monitor fails."""
        index, eigen, request = self.index, self.eigen, self.request
        steps = request.wanted * request.power * self.ring.F.size
        rows, spent, proposals, recentred, trace_error, fraction = suited(eigen.source.rows, _run, steps)(
            rng, index.arrays, eigen.values, eigen.source, request, self.left, self.right, self.ring
        )
        if spent:
            raise index.over_budget(index.total / (request.wanted - len(rows)))
        found = rows, proposals, CircleReport(recentred, trace_error, fraction)
        return Done(*found) if len(rows) == request.wanted else Unfinished(*found)

    def finish(self, target: Target, rng: np.random.Generator, begun: Unfinished) -> Done:
        """Draw the items that are missing by node matrices."""
        return NodesRoute(target, self.request.wanted).finish(target, rng, begun)


def rung_for(eigen: EigenRows, left: FloatArray, right: FloatArray, wanted: int) -> int:
    """Return the rung on which about ``wanted`` items are expected in addition to those with these sides.

    The fewest and the most possible ones would need the first and the last rung.
    """
    rate, alone = soon(remaining, len(eigen.values) * (1 + len(left)) ** 2), np.zeros(len(left))
    mean = min(wanted + BESIDE, len(left.T) - len(left) - BESIDE)

    def is_enough(rung: int) -> bool:
        return rate(-rung * RUNG_STEP, eigen.values, eigen.multiplicity, left, right, alone)[3] >= mean

    most = int(MOST_TILT / RUNG_STEP)
    return bisect_left(range(-most, most), True, key=is_enough) - most


@interruptible()
def is_clear(target: Target, wanted: int) -> bool:
    """Return whether sets of ``wanted`` further items are common on some circle, and far from rounding, so that nothing is to be said."""
    eigen, ladder, (basis, height) = target.eigen, target.ladder, row_basis(target.ladder.given)
    if eigen is None or not height.all() or not 0 < wanted < ladder.coords.rank - len(height):
        return False
    left, right = basis @ eigen.to_sides
    rung = rung_for(eigen, left, right, wanted)
    law = soon(size_law_on, len(left.T) ** 2 * (1 + len(left)) ** 2)(eigen.values, rung, left, right, wanted)
    return bool(len(law) and law[wanted] > COMMON and ladder.error_on(rung) < WARN_ERROR / 100 * law[wanted])


@njit(error_model="numpy")
def size_law_on(values: ComplexArray, rung: int, left: FloatArray, right: FloatArray, wanted: int) -> FloatArray:
    """Return the distribution of the number of items in addition to those with these sides on a rung; nothing if it cannot be computed."""
    m, count = len(left), unbiased_count(left.shape[1])
    return remaining_size_law(open_ring(values, rung, count, m + wanted, left, right, m).log_w, wanted)


@njit(error_model="numpy")
def _first(
    values: ComplexArray, request: RingRequest, rung: int, left: FloatArray, right: FloatArray
) -> tuple[int, int, FloatArray, ComplexArray, FloatArray, FloatArray, ComplexArray, IntArray, bool]:
    """Return the fields of the first circle, and whether it passes; on the rung, about as many items are expected as are wanted."""
    every = unbiased_count(left.shape[1])
    log_w = open_ring(values, rung, every, request.power, left, right, len(left)).log_w
    steps, count = plan_next(log_w, request.wanted, PLANNED)
    opened, _, good = begin(values, request, rung + steps, count or every, left, right, request.wanted)
    r = with_space(opened, len(left), len(left))  # for the dyads of given items: a draw makes space for its own
    # Ctrl-C while a compiled function makes a named tuple of Python would end the process.
    return r.rung, r.K, r.F, r.trace, r.zeta, r.eta, r.log_w, r.live, good


@njit(error_model="numpy")
def _run(
    rng: np.random.Generator,
    table: TableArrays,
    values: ComplexArray,
    source: Sides,
    request: RingRequest,
    given_left: FloatArray,
    given_right: FloatArray,
    ring: Ring,
) -> tuple[IntArray, bool, int, int, float, float]:
    """Return the items, whether the budget for the next one is spent, the proposals, and the fields of :class:`CircleReport`."""
    (m, D), rows = given_left.shape, np.empty(request.wanted, np.int64)
    left, right = np.empty((m + rows.size, D)), np.empty((m + rows.size, D))
    write(given_left, left[:m])
    write(given_right, right[:m])
    done, proposals, recentred, trace_error, fraction = 0, 0, 0, 0.0, 1.0
    ring, good = with_space(ring, m, m + rows.size), True
    weights = weigh(ring)
    while good and done < rows.size:
        trace_error = max(trace_error, abs(weights.trace - (rows.size - done)))
        fraction = min(fraction, weights.fraction)
        rows[done], used, u, x = _draw_one(rng, table, source, request, ring, weights, left, right, m)
        proposals += used
        if rows[done] < 0:
            return rows[:done], rows[done] == NOT_YET, proposals, recentred, trace_error, fraction
        done, m = done + 1, m + 1
        if done < rows.size:
            ring, weights, good, opened = advance(values, request, ring, left[:m], right[:m], u, x, done)
            recentred += opened
    return rows[:done], False, proposals, recentred, trace_error, fraction


@jitable(error_model="numpy")
def _draw_one(
    rng: np.random.Generator,
    table: TableArrays,
    source: Sides,
    request: RingRequest,
    ring: Ring,
    weights: Weights,
    left: FloatArray,
    right: FloatArray,
    m: int,
) -> tuple[int, int, FloatArray, FloatArray]:
    """Draw an item and write its sides; return its row, NOT_YET or FAILED, how many were proposed, l ζ and η r."""
    block, tried, nothing = np.empty((2, GROUP + 1, left.shape[1])), 0, np.empty(0)
    signed_sum(left[:m], right[:m], block[:, 0])
    while tried < table.budget:
        n = proposals_at_once(table.total / weights.trace, table.budget - tried)
        uniforms = rng.random((3, n))
        step = min(max(int(table.total / weights.trace), 4), GROUP)  # one of table.total / trace candidates is accepted
        candidates = look_up(table.threshold, table.alias, uniforms)
        for start in range(0, n, step):
            some = candidates[start : start + step]
            fetch(some, source, block[0, 1 : some.size + 1], block[1, 1 : some.size + 1])
            checked = int(start == 0 and tried == 0)
            found, u, x = judge(
                ring,
                weights,
                m,
                block[0, 1 - checked : some.size + 1],
                block[1, 1 - checked : some.size + 1],
                uniforms[2, start : start + step],
                table.leverage[some],
                request.tolerances,
            )
            if found >= 0:
                write(block[0, found + 1], left[m])
                write(block[1, found + 1], right[m])
                return some[found], tried + start + found + 1, u, x
            if found == FAILED:
                return FAILED, tried + start + some.size, nothing, nothing
        tried += n
    return NOT_YET, tried, nothing, nothing


@njit(error_model="numpy")
def judge(
    ring: Ring,
    weights: Weights,
    m: int,
    left: FloatArray,
    right: FloatArray,
    coins: FloatArray,
    ceiling: FloatArray,
    tolerances: Tolerances,
) -> tuple[int, FloatArray, FloatArray]:
    """Return the place of the first candidate that is accepted, NOT_YET, or FAILED if a monitor fails; its l ζ and η r.

    If there is a row more than coins, the first is a combination of the m items, to which M gives probability zero.
    """
    forms, u, x = forms_of(ring, weights, m, left, right)
    first = len(left) - coins.size
    if first and not abs(forms[0]) <= tolerances.chosen * max(m, 1):
        return FAILED, u[0], x[0]
    for c in range(coins.size):
        chance = forms[first + c] / ceiling[c]
        if not (chance >= -tolerances.chance and chance <= 1 + tolerances.chance):
            return FAILED, u[0], x[0]
        if coins[c] < chance:
            return c, u[first + c], x[first + c]
    return NOT_YET, u[0], x[0]


@njit()
def signed_sum(left: FloatArray, right: FloatArray, out: FloatArray) -> None:
    """Write the sides of Σ ±q_a, shape (2, D), for items with these sides."""
    out[:] = 0.0
    for i in range(len(left)):
        sign = 1.0 if i % 2 else -1.0
        for k in range(left.shape[1]):
            out[0, k] += sign * left[i, k]
            out[1, k] += sign * right[i, k]
