"""The route ``nodes``: items one by one from circles of node matrices (:mod:`.nodes`), for every kernel.

It also draws what other routes leave unfinished.

Sizes that are rare at every radius, such as odd ones of a kernel that is nearly skew, leave no circle many digits. There the error is
bounded, by what rounding does to the distribution of sizes (:func:`~ndpp.linalg.size_law.rounding_error`) divided by the surviving
fraction. Up to ``REFUSE_ERROR`` for the first item, and ``MOST_ERROR`` later, items are drawn from the nearest M that keeps
0 ⪯ sym M ⪯ I and M q_Y = 0 (:func:`bounded`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.errors import PrecisionError
from ndpp.laws.precision import REFUSE_ERROR
from ndpp.linalg.coordinates import Coordinates
from ndpp.linalg.scaling import ROUNDING
from ndpp.linalg.schur import MAX_LOSS, eliminate, row_basis
from ndpp.linalg.size_law import rounding_error
from ndpp.linalg.skew import symmetric_part
from ndpp.samplers.exact.nodes import Inclusion, Nodes, given_items
from ndpp.samplers.exact.plan import PLANNED, RUNG_STEP, Tolerances, plan_anew, plan_next, unbiased_count
from ndpp.samplers.exact.routes import CircleReport, Done, Target, Unfinished

TOLERANCES = Tolerances()
MAX_CIRCLES = 8
"""How many circles are tried for one item before the sampler gives up."""
KEPT = 0.25
"""Part of the surviving fraction so far with which a sample stays on a circle, if no other can be planned."""
MOST_ERROR = 100 * REFUSE_ERROR
"""Largest bound within a sample. A sample counts with its probability, and those with items so far that are rare have larger bounds."""
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


class Bounded(NamedTuple):
    """The nearest M that can be one, a bound of its error by rounding, and what the monitors show of it."""

    inclusion: Inclusion
    bound: float
    seen: float

    def is_drawn_from(self, most: float) -> bool:
        """Whether the error is known, and at most this."""
        return self.seen <= max(self.bound, TOLERANCES.trace) and self.bound <= most

    def refusal(self, size: int, n_given: int) -> PrecisionError:
        """Return the error that says why nothing is drawn, and what helps."""
        error, given = max(self.bound, self.seen), f" that contain the {n_given} items so far" if n_given else ""
        if self.inclusion.fraction < TOLERANCES.fraction:
            share = max(self.inclusion.fraction, 0.0)
            why = (
                f"of all sets{given}, no more than about {share:.1g} have size {size}, however X is scaled, and the rounding errors of the "
                "others are too large beside that. Ask for another size."
            )
        else:
            why = "some directions of X are too small. Drop them, or ask for a smaller size."
        return PrecisionError(
            f"the probabilities of the next item have errors of up to {error:.1g} in double precision, too large to draw from: {why}"
        )


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
    def power(self) -> int:
        """The size of a sample, given items included."""
        return len(self.target.given) + self.wanted

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
            return self._recentre(state._replace(nodes=nodes, inclusion=inclusion))[0]
        return state._replace(nodes=nodes, inclusion=inclusion).monitored(left)

    def _nodes(self, state: State, rung: int, count: int) -> Nodes:
        circle = self.target.ladder.circle(rung, count)
        log_w = circle.log_w - self.power * circle.log_t
        return given_items(circle.Z, log_w, state.q) if len(state.q) else Nodes(circle.Z, log_w)

    def _recentre(self, state: State) -> tuple[State, int]:
        """Return the state rebuilt at a radius that suits the items chosen; add nodes until the monitors pass."""
        left, ladder = self.wanted - len(state.rows), self.target.ladder
        chosen = np.concatenate([ladder.given, state.q])
        steps, count = plan_next(state.nodes.log_w, left, PLANNED)
        most = MOST_ERROR if len(state.rows) else REFUSE_ERROR
        n_nodes, fraction = 2 * len(state.nodes.log_w), state.inclusion.fraction
        if not count and n_nodes > ladder.coords.rank and fraction > KEPT * state.report.fraction:
            found = bounded(ladder.coords, chosen, state.rung, state.inclusion, left)
            if found.is_drawn_from(most):
                return state._replace(inclusion=found.inclusion).monitored(left), n_nodes
        anew = None if count else plan_anew(ladder.coords, chosen, left)
        rung, count = anew or (state.rung + steps, count)
        lost: Bounded | None = None
        for attempt in range(MAX_CIRCLES):
            nodes = self._nodes(state, rung, count)
            inclusion = nodes.inclusion()
            good = _trustworthy(inclusion, left)
            is_full = count > ladder.coords.rank or attempt == MAX_CIRCLES - 1
            if not good and is_full and lost is None:
                last = last_inclusion(ladder.coords, chosen) if left == 1 else None
                if last is not None:
                    return state._replace(inclusion=last).monitored(left, recentred=True), count
                rung, count = (anew or plan_anew(ladder.coords, chosen, left))[0], unbiased_count(ladder.coords.rank)
                nodes = self._nodes(state, rung, count)
                lost = bounded(ladder.coords, chosen, rung, nodes.inclusion(), left)
                inclusion, good = lost.inclusion, lost.is_drawn_from(most)
            if good:
                state = state._replace(rung=rung, nodes=nodes, inclusion=inclusion, owned=len(state.q) > 0)
                return state.monitored(left, recentred=True), count
            # First more nodes, up to where the rule is unbiased; then other radii, away from a pole that may be close.
            if count <= ladder.coords.rank:
                count = min(2 * count, unbiased_count(ladder.coords.rank))
            else:
                rung += (1, -2, 3, -4, 5, -6, 7, -8)[attempt]
        assert lost is not None
        raise lost.refusal(self.power, len(chosen))

    def _check_chosen(self, state: State) -> None:
        """Raise unless M gives items already chosen probability zero."""
        chosen = np.concatenate([self.target.ladder.given, state.q[:-1]])
        excess = np.abs(chosen @ state.inclusion.M).max(initial=0.0)
        if excess > TOLERANCES.chosen:
            raise PrecisionError(
                f"M q must be zero for every item already chosen; it is off by {excess:.1g}: double precision is not enough "
                f"for sets of size {self.power} of this kernel. Ask for another size, or drop the smallest directions of X."
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


def bounded(coords: Coordinates, chosen: FloatArray, rung: int, inclusion: Inclusion, left: int) -> Bounded:
    """Return what M of the circle on this rung, with enough nodes for an unbiased rule, says about the distribution of the next item."""
    M, trace, fraction = inclusion
    if not (np.isfinite(M).all() and fraction > 0):
        return Bounded(inclusion, np.inf, np.inf)
    basis = row_basis(chosen)[0]
    values, vectors = np.linalg.eigh(_without(symmetric_part(M), basis))
    nearest = _without((vectors * values.clip(0, 1)) @ vectors.T, basis)
    seen = max(abs(trace - left), float(np.linalg.norm(symmetric_part(M) - nearest)))
    bound = rounding_error(coords, np.exp(rung * RUNG_STEP), chosen) / fraction
    return Bounded(Inclusion(nearest, trace, fraction), bound, seen)


def _without(M: FloatArray, basis: FloatArray) -> FloatArray:
    """Return M on the complement of a span, on both sides."""
    M = M - basis.T @ (basis @ M)
    return M - (M @ basis.T) @ basis
