"""The route ``nodes``: items one by one from circles of node matrices (:mod:`.nodes`), for every kernel and every index of items.

It also draws what other routes leave unfinished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ndpp._types import IntArray
from ndpp.errors import PrecisionError
from ndpp.linalg import Coordinates, tilted_law
from ndpp.linalg.schur import row_basis
from ndpp.samplers.exact.ladder import Ladder
from ndpp.samplers.exact.monitors import RUNG_STEP, Tolerances, unbiased_count
from ndpp.samplers.exact.nodes import Inclusion, Nodes, given_items
from ndpp.samplers.exact.plan import centre, moments, plan_from_law, plan_from_weights
from ndpp.samplers.exact.routes import CircleReport, Done, Target, Unfinished
from ndpp.samplers.exact.state import NO_INCLUSION, State, last_inclusion

TOLERANCES = Tolerances()
MAX_CIRCLES = 8
"""How many circles are tried for one item before the sampler gives up."""


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

    @property
    def n_bytes(self) -> int:
        """Bytes in addition to those of the ladder: none."""
        return 0

    def draw(self, rng: np.random.Generator) -> Done:
        """Draw all items."""
        return self._done(*self.complete(rng, self.start()))

    def finish(self, rng: np.random.Generator, begun: Unfinished) -> Done:
        """Draw the items that another route has left missing."""
        rest = self._done(*self.complete(rng, self.resume(begun.rows)))
        circles = (
            rest.circles if begun.circles is None or rest.circles is None else begun.circles.with_others(rest.circles)
        )
        return Done(rest.rows, begun.proposals + rest.proposals, circles)

    def _done(self, state: State, proposals: int) -> Done:
        return Done(state.rows, proposals, CircleReport(state.recentred, state.trace_error, state.fraction))

    def complete(self, rng: np.random.Generator, state: State) -> tuple[State, int]:
        """Draw the missing items; return the state with all of them, and the number of proposals."""
        proposals, index = 0, self.target.index
        while len(state.rows) < self.wanted:
            drawn = index.draw_counted(rng, state.inclusion.M)
            state, proposals = self.add(state, int(drawn.rows[0])), proposals + drawn.proposals
        return state, proposals

    def start(self) -> State:
        """Return the state before the first draw; the same for every sample."""
        empty = State.empty(self.target.kernel.rank)
        if self.wanted == 0:
            return empty
        # The ladder caches circles; this remembers which one, and its M.
        rung, count, inclusion = self.target.ladder.cache.remember(("start", self.wanted), self._first)
        nodes = self._nodes(empty, rung, count)
        return empty._replace(rung=rung, nodes=nodes, inclusion=inclusion).monitored(self.wanted)

    def resume(self, rows: IntArray) -> State:
        """Return the state of a sample that already has these rows."""
        start = self.start()
        if not len(rows):
            return start
        empty, q = State.empty(self.target.kernel.rank), self.target.kernel.q_rows(rows)
        return self._recentre(empty._replace(rung=start.rung, rows=rows, q=q))[0]

    def _first(self) -> tuple[int, int, Inclusion]:
        coords = self.target.ladder.coords
        empty = State.empty(coords.rank)
        state, count = self._recentre(empty._replace(rung=first_rung(coords, self.wanted)))
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
        rung, count = plan(ladder, state.rung, left, state)
        inclusion = NO_INCLUSION
        for attempt in range(MAX_CIRCLES):
            nodes = self._nodes(state, rung, count)
            inclusion = nodes.inclusion()
            if _trustworthy(inclusion, left):
                owned, recentred = len(state.q) > 0, state.recentred + 1
                state = state._replace(rung=rung, nodes=nodes, inclusion=inclusion, owned=owned, recentred=recentred)
                return state.monitored(left), count
            # First more nodes, up to where the rule is unbiased; then other radii, away from a pole that may be close.
            if count <= ladder.coords.rank:
                count = min(2 * count, unbiased_count(ladder.coords.rank))
            else:
                rung += (1, -2, 3, -4, 5, -6, 7, -8)[attempt]
        last = last_inclusion(ladder.coords, np.concatenate([ladder.given, state.q])) if left == 1 else None
        if last is not None:
            return state._replace(inclusion=last, recentred=state.recentred + 1), count
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


def first_rung(coords: Coordinates, wanted: int) -> int:
    """Return a rung to begin with, to plan the first circle for ``wanted`` items."""
    scale = np.sort(coords.scale)[-min(wanted, coords.rank)]
    return round(-2 * float(np.log(scale)) / RUNG_STEP)


def plan(ladder: Ladder, rung: int, left: int, state: State | None = None) -> tuple[int, int]:
    """Return the rung and the number of nodes of a circle for ``left`` more items than the given ones and those of a state."""
    q = np.empty((0, ladder.coords.rank)) if state is None else state.q
    found = None if state is None else plan_from_weights(state.nodes.log_w, left)
    if found is None:
        # The rung on which about as many items are expected.
        basis = row_basis(q)[0][None]
        rungs = centre(lambda rung, _: moments(ladder.real(rung), basis), left, np.array([rung]))[0]
        rung = 2 * (int(rungs[0]) // 2)
        law = tilted_law(ladder.coords, float(np.exp(rung * RUNG_STEP)), np.concatenate([ladder.given, q])).law
        found = plan_from_law(law, left) or (0.0, unbiased_count(ladder.coords.rank))
    shift, count = found
    return rung + round(shift / RUNG_STEP), count


def _trustworthy(inclusion: Inclusion, left: int) -> bool:
    return bool(TOLERANCES.accepts(abs(inclusion.trace - left), inclusion.fraction))
