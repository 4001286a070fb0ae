"""Exact samples of a nonsymmetric DPP, unconstrained or of one size, at a cost that does not depend on the number of items.

Law: P(S) ∝ det(L_S), over all sets or those of size k, given items and exclusions allowed. Exact: no chain, no mixing time, no
rejection constant that depends on the kernel. The items are drawn one after another, each from its conditional probability

    P(a ∈ S | Y ⊆ S, |S| = k) = q_aᵀMq_a,        M = [t^k] w(t)Z(t) / [t^k] w(t)        (``docs/theory``)

where the coefficients come from the trapezoid rule on a circle and conditioning on one more item is rank one at each node. A static
table of leverages ‖q_a‖² dominates every such law, so an item costs r/(k − i) proposals on average, whatever n.

Cost of a sample: O(k N r²) with N nodes, N about 8 standard deviations of the size; preparing is one QR of X. Memory beside X: the
leverage table, the cached circles (at most ``memory`` bytes) and one set of node matrices per thread, 8 N r² bytes.

The radius follows the sample: as items join, the number still to come drifts from the mean of the law at the old radius; the sampler
then re-centres on another rung of a geometric ladder. Monitors, on every item: tr M = k − |Y| (shows any bias of the rule), the
surviving fraction |Σ Re w|/Σ|w| (digits lost), acceptance probabilities within [0, 1]; on every sample: M q_Y = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items
from ndpp.errors import PrecisionError, ZeroProbabilityError
from ndpp.items import ItemIndex, LeverageTable
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg import tilted_law
from ndpp.linalg.schur import row_basis
from ndpp.samplers._device import with_engine
from ndpp.samplers.base import Draw, Engine, Sampler
from ndpp.samplers.exact.ladder import Ladder
from ndpp.samplers.exact.monitors import RUNG, Tolerances, unbiased_count
from ndpp.samplers.exact.nodes import Nodes, Weighed, given_items
from ndpp.samplers.exact.plan import centre, moments, plan_from_law, plan_from_weights

TOLERANCES = Tolerances()
ATTEMPTS = 8
"""Most circles that are tried before a sample is given up."""
ENGINE = "ndpp.samplers.gpu.exact:ExactEngine"
"""What draws on a CUDA device. It builds on this module, so it is named here and loaded when a device is asked for."""


class State(NamedTuple):
    """Items chosen beside the given ones, node matrices on one rung of the ladder, M, and what a person wants to know."""

    rows: IntArray
    q: FloatArray
    rung: int
    nodes: Nodes
    weighed: Weighed
    owned: bool = False  # the node matrices are this sample's own and may be overwritten
    recentred: int = 0
    trace_error: float = 0.0
    fraction: float = 1.0


@dataclass(frozen=True, eq=False)
class Exact(Sampler):
    """The library's default sampler.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(4), np.diag([1.0, 2.0, 3.0, 4.0]))
    >>> ndpp.samplers.Exact.prepare(kernel, size=2).sample(1000, rng=0).baskets.sizes.max()
    np.int64(2)
    """

    kernel: LowRankKernel
    size: int | None
    given: IntArray
    index: ItemIndex | None  # None: a kernel of rank zero, whose only sample is the empty set
    ladder: Ladder = field(repr=False)
    size_law: FloatArray = field(repr=False)
    engine: Engine | None = field(default=None, repr=False)

    @classmethod
    def prepare(
        cls,
        kernel: LowRankKernel,
        *,
        size: int | None = None,
        given: Items = (),
        exclude: Items = (),
        candidates: Items | None = None,
        index: Callable[[LowRankKernel], ItemIndex] = LeverageTable.prepare,
        memory: int = 256 * 2**20,
        device: str | None = None,
    ) -> Exact:
        """Pay for what depends on the kernel alone; refuse what cannot be drawn before any work.

        Parameters
        ----------
        kernel : LowRankKernel
        size : int, optional
            Items of each sample, given ones included. None: the unconstrained NDPP.
        given : items
            Items every sample contains.
        exclude, candidates : items
            Items no sample contains; the only items, beside the given ones, a sample may contain.
        index : callable
            Makes what draws one item from the kernel: ``LeverageTable.prepare`` or ``Tree.prepare``.
        memory : int
            Most bytes of cached circles. Peak memory beside X is this, 20n bytes of table and 16 N r² bytes per thread.
        device : str, optional
            "cuda" or "cuda:1": ``sample`` draws there, thousands at a time. Without a GPU, a warning, and the CPU.
        """
        kernel = _narrowed(kernel, given, exclude, candidates)
        rows = np.sort(kernel.rows_of(given, "given"))
        q = kernel.q_rows(rows)
        if size is not None:
            size = kernel.check_size(size, given=q)
        law = tilted_law(kernel.coordinates, 1.0, q)
        if law.log_weight == -np.inf:
            raise ZeroProbabilityError(
                f"the {len(rows)} given items have probability zero of being in a sample together; give fewer or other items"
            )
        ladder = Ladder(kernel.coordinates, q, check_count(memory, "memory"))
        sampler = cls(kernel, size, rows, index(kernel) if kernel.rank else None, ladder, law.law)
        return with_engine(sampler, device, ENGINE)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted rows of the kernel's support."""
        wanted = self.size - len(self.given) if self.size is not None else self.draw_count(rng)
        state, proposals = self.complete(rng, self.start(wanted), wanted)
        info = {
            "proposals": proposals,
            "rejections": proposals - wanted,
            "recentred": state.recentred,
            "trace_error": state.trace_error,
            "fraction": state.fraction,
        }
        return Draw(np.sort(np.concatenate([self.given, state.rows])), info)

    def draw_count(self, rng: np.random.Generator) -> int:
        """Draw the number of items in addition to the given ones."""
        cdf = np.cumsum(self.size_law)
        return int(np.searchsorted(cdf, rng.random() * cdf[-1], side="right"))

    def draw_rows(self, rng: np.random.Generator, wanted: int) -> IntArray:
        """Draw a set of ``wanted`` items in addition to the given ones, as rows in any order."""
        return np.concatenate([self.given, self.complete(rng, self.start(wanted), wanted)[0].rows])

    def complete(self, rng: np.random.Generator, state: State, wanted: int) -> tuple[State, int]:
        """Draw the items that are missing from ``wanted``; return the state with all of them, and how many were proposed."""
        proposals = 0
        while len(state.rows) < wanted:
            assert self.index is not None
            drawn = self.index.draw_counted(rng, state.weighed.M)
            proposals += drawn.proposals
            state = self.add(state, int(drawn.rows[0]), wanted)
        return state, proposals

    # -- the chain of conditional laws ---------------------------------------------------------------------------------------

    def start(self, wanted: int) -> State:
        """Return the state before the first of ``wanted`` draws; the same for every sample."""
        nothing = State(np.empty(0, np.int64), np.empty((0, self.kernel.rank)), 0, _NO_NODES, _NOTHING)
        if wanted == 0:
            return nothing
        # Circles are kept by the ladder; here only which one, and its M.
        rung, count, *weighed = self.ladder.remember(("start", wanted), lambda: self._first(nothing, wanted))
        nodes = self._nodes(nothing, rung, count, wanted)
        return _judged(nothing._replace(rung=rung, nodes=nodes, weighed=Weighed._make(weighed)), wanted)

    def resume(self, rows: IntArray, wanted: int) -> State:
        """Return the state of a sample that has these rows already, of ``wanted`` in all."""
        start = self.start(wanted)
        if not len(rows):
            return start
        bare = self.start(0)._replace(rung=start.rung, rows=rows, q=self.kernel.q_rows(rows))
        return self._recentre(bare, wanted)[0]

    def _first(self, nothing: State, wanted: int) -> tuple[int, int, FloatArray, float, float]:
        size = np.sort(self.kernel.coordinates.scale)[-min(wanted, self.kernel.rank)]
        state, count = self._recentre(nothing._replace(rung=round(-2 * float(np.log(size)) / RUNG)), wanted)
        return state.rung, count, *state.weighed

    def add(self, state: State, row: int, wanted: int) -> State:
        """Return the state with one more item."""
        q = self.kernel.q_rows(np.array([row]))
        state = state._replace(rows=np.concatenate([state.rows, [row]]), q=np.concatenate([state.q, q]))
        left = wanted - len(state.rows)
        if left == 0:
            self._check_chosen(state)
            return state
        keep = left > 1  # before the last item only M is wanted, not the matrices it is made of
        if keep and not state.owned:
            state = state._replace(nodes=Nodes(state.nodes.Z.copy(), state.nodes.log_w), owned=True)
        nodes, weighed = state.nodes.condition(q[0], keep=keep)
        if not _trustworthy(weighed, left):
            return self._recentre(state._replace(nodes=nodes), wanted)[0]
        return _judged(state._replace(nodes=nodes, weighed=weighed), left)

    def _nodes(self, state: State, rung: int, count: int, wanted: int) -> Nodes:
        circle = self.ladder.circle(rung, count)
        log_w = circle.log_w - (len(self.given) + wanted) * circle.log_t
        return given_items(circle.Z, log_w, state.q) if len(state.q) else Nodes(circle.Z, log_w)

    def _recentre(self, state: State, wanted: int) -> tuple[State, int]:
        """Return the state rebuilt at a radius that suits the items chosen; widen the rule until the monitors agree."""
        left = wanted - len(state.rows)
        rung, count = self._plan(state, left)
        weighed = _NOTHING
        for attempt in range(ATTEMPTS):
            nodes = self._nodes(state, rung, count, wanted)
            weighed = nodes.weigh()
            if _trustworthy(weighed, left):
                owned, recentred = len(state.q) > 0, state.recentred + 1
                state = state._replace(rung=rung, nodes=nodes, weighed=weighed, owned=owned, recentred=recentred)
                return _judged(state, left), count
            # First more nodes, up to where the rule has no bias at all; then other radii, away from an unlucky pole.
            if count <= self.kernel.rank:
                count = min(2 * count, unbiased_count(self.kernel.rank))
            else:
                rung += (1, -2, 3, -4, 5, -6, 7, -8)[attempt]
        raise PrecisionError(
            f"the law of the next item could not be computed to tolerance after {ATTEMPTS} attempts "
            f"(trace {weighed.trace:.12g} where {left} was expected, surviving fraction {weighed.fraction:.1g}). "
            f"The kernel is too badly scaled for double precision at this size; rescale X or ask for a smaller size."
        )

    def _plan(self, state: State, left: int) -> tuple[int, int]:
        """Return the rung and the number of nodes for ``left`` more items."""
        rung, plan = state.rung, plan_from_weights(state.nodes.log_w, left)
        if plan is None:
            rung = 2 * (self._centre(state, left) // 2)
            chosen = np.concatenate([self.ladder.given, state.q])
            law = tilted_law(self.kernel.coordinates, float(np.exp(rung * RUNG)), chosen).law
            plan = plan_from_law(law, left) or (0.0, unbiased_count(self.kernel.rank))
        shift, count = plan
        return rung + round(shift / RUNG), count

    def _centre(self, state: State, left: int) -> int:
        """Return the rung on which about ``left`` more items are expected."""
        basis = row_basis(state.q)[0][None]
        rungs, _, _ = centre(lambda rung, _: moments(self.ladder.real(rung), basis), left, np.array([state.rung]))
        return int(rungs[0])

    def _check_chosen(self, state: State) -> None:
        """Raise unless M gave the items already chosen no further probability."""
        chosen = np.concatenate([self.ladder.given, state.q[:-1]])
        excess = np.abs(chosen @ state.weighed.M).max(initial=0.0)
        if excess > TOLERANCES.chosen:
            raise PrecisionError(
                f"M q = 0 must hold for every item already chosen; it is off by {excess:.1g}. "
                "Double precision cannot carry this kernel at this size; rescale X or ask for a smaller size."
            )


_NO_NODES = Nodes(np.empty((2, 0, 0, 0)), np.empty(0, complex))
_NOTHING = Weighed(np.empty((0, 0)), 0.0, 0.0)


def _narrowed(kernel: LowRankKernel, given: Items, exclude: Items, candidates: Items | None) -> LowRankKernel:
    if candidates is not None:
        allowed = check_items(candidates, kernel.n_items, "candidates")
        kernel = kernel.restrict(np.union1d(allowed, check_items(given, kernel.n_items, "given")))
    excluded = check_items(exclude, kernel.n_items, "exclude")
    return kernel.exclude(excluded) if len(excluded) else kernel


def _trustworthy(weighed: Weighed, left: int) -> bool:
    return bool(TOLERANCES.accepts(abs(weighed.trace - left), weighed.fraction))


def _judged(state: State, left: int) -> State:
    """Return the state with the worst its monitors have shown so far."""
    error, fraction = abs(state.weighed.trace - left), state.weighed.fraction
    return state._replace(trace_error=max(state.trace_error, error), fraction=min(state.fraction, fraction))
