"""The route ``nodes``: items one by one from circles of node matrices (:mod:`.nodes`), for every kernel.

It also draws what other routes leave unfinished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.errors import PrecisionError
from ndpp.linalg.coordinates import Coordinates
from ndpp.linalg.scaling import ROUNDING
from ndpp.linalg.schur import MAX_LOSS, eliminate
from ndpp.linalg.skew import symmetric_part
from ndpp.samplers.exact.nodes import Inclusion, Nodes, given_items
from ndpp.samplers.exact.plan import PLANNED, Tolerances, plan_anew, plan_next, unbiased_count
from ndpp.samplers.exact.routes import CircleReport, Done, Target, Unfinished

TOLERANCES = Tolerances()
MAX_CIRCLES = 8
"""How many circles are tried for one item before the sampler gives up."""
NO_INCLUSION = Inclusion(np.empty((0, 0)), 0.0, 0.0)


class State(NamedTuple):
    """A sample: items chosen in addition to the given ones, node matrices on one rung of the ladder, M, and a report so far."""

    rows: IntArray
    q: FloatArray
    rung: int
    nodes: Nodes
    inclusion: Inclusion
    owned: bool = False  # the node matrices belong to this sample and may be overwritten
    report: CircleReport = CircleReport()

    @classmethod
    def empty(cls, rank: int) -> State:
        """Return a state without items and circle."""
        nodes = Nodes(np.empty((2, 0, 0, 0)), np.empty(0, complex))
        return cls(np.empty(0, np.int64), np.empty((0, rank)), 0, nodes, NO_INCLUSION)

    def monitored(self, left: int, *, recentred: bool = False) -> State:
        """Return the state with M in its report, with ``left`` items missing; ``recentred``: on a new circle."""
        number, error, fraction = self.report
        error, fraction = max(error, abs(self.inclusion.trace - left)), min(fraction, self.inclusion.fraction)
        return self._replace(report=CircleReport(number + recentred, error, fraction))


@dataclass(frozen=True, eq=False)
class NodesRoute:
    """Draws ``wanted`` items in addition to the given ones. Its circles are those of the target's ladder."""

    name: ClassVar[str] = "nodes"

    target: Target
    wanted: int

    @classmethod
    def prepare(cls, target: Target, wanted: int | None) -> NodesRoute | None:
        """Return the route, which suits every target; None for any number of items."""
        return None if wanted is None else cls(target, wanted)

    def draw(self, rng: np.random.Generator) -> Done:
        """Draw all items."""
        state, proposals = self.complete(rng, self.start())
        return Done(state.rows, proposals, state.report)

    @property
    def n_bytes(self) -> int:
        """It has no arrays of its own: circles are those of the ladder."""
        return 0

    def finish(self, target: Target, rng: np.random.Generator, begun: Unfinished) -> Done:
        """Draw the items that another route has left missing."""
        report, kernel = begun.circles or CircleReport(), target.kernel
        state = self.start()._replace(report=report).monitored(self.wanted)
        if len(begun.rows):
            empty = State.empty(kernel.rank)._replace(report=report)
            state = self._recentre(empty._replace(rows=begun.rows, q=kernel.q_rows(begun.rows)))[0]
        state, proposals = self.complete(rng, state)
        return Done(state.rows, begun.proposals + proposals, state.report)

    def complete(self, rng: np.random.Generator, state: State) -> tuple[State, int]:
        """Draw the missing items; return the state with all of them, and the number of proposals."""
        proposals, index = 0, self.target.index
        while len(state.rows) < self.wanted:
            drawn = index.draw_counted(rng, state.inclusion.M)
            state, proposals = self.add(state, drawn.row), proposals + drawn.proposals
        return state, proposals

    def start(self) -> State:
        """Return the state before the first draw; the same for every sample."""
        empty = State.empty(self.target.kernel.rank)
        if self.wanted == 0:
            return empty
        # The ladder caches circles; this remembers which one, and its M.
        rung, count, inclusion = self.target.ladder.remember(("start", self.wanted), self._first)
        nodes = self._nodes(empty, rung, count)
        return empty._replace(rung=rung, nodes=nodes, inclusion=inclusion).monitored(self.wanted)

    def _first(self) -> tuple[int, int, Inclusion]:
        state, count = self._recentre(State.empty(self.target.kernel.rank))
        return state.rung, count, state.inclusion

    def add(self, state: State, row: int) -> State:
        """Return the state with one more item."""
        q = self.target.kernel.q_rows(np.array([row]))
        state = state._replace(rows=np.concatenate([state.rows, [row]]), q=np.concatenate([state.q, q]))
        left = self.wanted - len(state.rows)
        if left == 0:
            self._check_chosen(state)
            return state
        keep = left > 1  # the last item needs only M, not the node matrices
        if keep and not state.owned:
            state = state._replace(nodes=Nodes(state.nodes.Z.copy(), state.nodes.log_w), owned=True)
        nodes, inclusion = state.nodes.condition(q[0], keep=keep)
        if not _trustworthy(inclusion, left):
            return self._recentre(state._replace(nodes=nodes))[0]
        return state._replace(nodes=nodes, inclusion=inclusion).monitored(left)

    def _nodes(self, state: State, rung: int, count: int) -> Nodes:
        circle = self.target.ladder.circle(rung, count)
        log_w = circle.log_w - (len(self.target.given) + self.wanted) * circle.log_t
        return given_items(circle.Z, log_w, state.q) if len(state.q) else Nodes(circle.Z, log_w)

    def _recentre(self, state: State) -> tuple[State, int]:
        """Return the state rebuilt at a radius that suits the items chosen; add nodes until the monitors pass."""
        left, ladder = self.wanted - len(state.rows), self.target.ladder
        chosen = np.concatenate([ladder.given, state.q])
        steps, count = plan_next(state.nodes.log_w, left, PLANNED)
        rung, count = (state.rung + steps, count) if count else plan_anew(ladder.coords, chosen, left)
        inclusion = NO_INCLUSION
        for attempt in range(MAX_CIRCLES):
            nodes = self._nodes(state, rung, count)
            inclusion = nodes.inclusion()
            if _trustworthy(inclusion, left):
                state = state._replace(rung=rung, nodes=nodes, inclusion=inclusion, owned=len(state.q) > 0)
                return state.monitored(left, recentred=True), count
            # First more nodes, up to where the rule is unbiased; then other radii, away from a pole that may be close.
            if count <= ladder.coords.rank:
                count = min(2 * count, unbiased_count(ladder.coords.rank))
            else:
                rung += (1, -2, 3, -4, 5, -6, 7, -8)[attempt]
        last = last_inclusion(ladder.coords, chosen) if left == 1 else None
        if last is not None:
            return state._replace(inclusion=last).monitored(left, recentred=True), count
        raise PrecisionError(
            f"the probabilities of the next item could not be computed to tolerance after {MAX_CIRCLES} attempts "
            f"(trace {inclusion.trace:.12g}, expected {left}; surviving fraction {inclusion.fraction:.1g}). "
            "The kernel is too badly scaled for double precision at this size; rescale X, or use a smaller size."
        )

    def _check_chosen(self, state: State) -> None:
        """Raise unless M gives items already chosen probability zero."""
        chosen = np.concatenate([self.target.ladder.given, state.q[:-1]])
        excess = np.abs(chosen @ state.inclusion.M).max(initial=0.0)
        if excess > TOLERANCES.chosen:
            raise PrecisionError(
                f"M q must be zero for every item already chosen; it is off by {excess:.1g}. "
                "Double precision is not enough for this kernel at this size; rescale X, or use a smaller size."
            )


def _trustworthy(inclusion: Inclusion, left: int) -> bool:
    return bool(TOLERANCES.accepts(abs(inclusion.trace - left), inclusion.fraction))


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
