"""Exact samples of a nonsymmetric DPP, unconstrained or of one size, at a cost independent of the number of items.

Law: P(S) ∝ det(L_S), over all sets or those of size k, with given and excluded items. Exact: no chain, no mixing time, no rejection
constant that depends on the kernel. Items are drawn one after another from their conditional probabilities

    P(a ∈ S | Y ⊆ S, |S| = k) = q_aᵀMq_a,        M = [t^k] w(t)Z(t) / [t^k] w(t)        (``docs/theory``)

where the coefficients come from the trapezoid rule on a circle, and conditioning on one more item is a rank-one update at each node. The
leverages ‖q_a‖² bound all these probabilities, so one static table serves every item, with r/(k − i) proposals on average, whatever n.

Cost per sample, in eigencoordinates (:mod:`.eigenchain`): O(k² N r), and O(N m r) for each of r/(k − m) candidates of item m + 1, in one
compiled call that releases the interpreter's lock. N is about 8 standard deviations of the size and falls as items are drawn. Where B has
no well-conditioned eigenvectors, and for the rest of a sample that fails a monitor: O(k N r²), with node matrices (:mod:`.nodes`), compiled
if Q is in memory (:mod:`.chain`); ``info["doubts"]`` counts the proposals that single precision could not decide there. Preparing is one QR
of X. Memory in addition to X: the leverage table, the rows in eigencoordinates if Q is kept (16nr bytes), cached circles (at most
``memory`` bytes) and, where they are used, one set of node matrices per thread, 8 N r² bytes.

The radius follows the sample: as items are added, the remaining size drifts from its mean at the old radius, and the sampler re-centres on
another rung of a geometric ladder. Monitors, on every item: tr M = k − |Y| (shows any bias of the rule), the surviving fraction
|Σ Re w|/Σ|w| (digits lost), acceptance probabilities within [0, 1]; on every sample, in eigencoordinates on every item: M q_Y = 0.

Two kinds of samples need no circle: those of a symmetric kernel (:mod:`.spectral`, O(k r²) per sample), and those of any size if the
kernel has well-conditioned eigenvectors, as learned kernels do (:mod:`.eigenclock`, O(k² r) per move of a clock).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items
from ndpp.errors import PrecisionError, ZeroProbabilityError
from ndpp.items import ItemDraws, ItemIndex, LeverageTable
from ndpp.items.base import invert_cdf
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg import tilted_law
from ndpp.linalg.schur import row_basis
from ndpp.samplers._device import with_engine
from ndpp.samplers.base import Draw, Engine, Monitor, Sampler
from ndpp.samplers.exact.chain import can_chain, draw_chain
from ndpp.samplers.exact.eigen import EigenRows
from ndpp.samplers.exact.eigenchain import EigenChain
from ndpp.samplers.exact.eigenclock import EigenClock
from ndpp.samplers.exact.ladder import Ladder
from ndpp.samplers.exact.monitors import RUNG_STEP, Tolerances, unbiased_count
from ndpp.samplers.exact.nodes import Inclusion, Nodes, given_items
from ndpp.samplers.exact.plan import centre, moments, plan_from_law, plan_from_weights
from ndpp.samplers.exact.spectral import Spectrum, draw_spectral, is_symmetric
from ndpp.samplers.exact.state import NO_INCLUSION, State, last_inclusion

TOLERANCES = Tolerances()
MAX_CIRCLES = 8
"""How many circles are tried for one item before the sampler gives up."""


@dataclass(frozen=True, eq=False)
class Exact(Sampler):
    """The default sampler: by eigenvectors if W is symmetric (``symmetric``), by a clock for any size (``clock``), else by circles.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(4), np.diag([1.0, 2.0, 3.0, 4.0]))
    >>> sampler = ndpp.samplers.Exact.prepare(kernel, size=2)
    >>> sampler.symmetric, sampler.sample(1000, rng=0).baskets.sizes.max()
    (True, np.int64(2))
    """

    kernel: LowRankKernel
    size: int | None
    given: IntArray
    index: ItemIndex | None  # None for a kernel of rank zero, whose only sample is the empty set
    ladder: Ladder = field(repr=False)
    size_law: FloatArray = field(repr=False)
    engine: Engine | None = field(default=None, repr=False)
    symmetric: bool = False

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
        """Check the request and compute what depends on the kernel alone.

        Parameters
        ----------
        kernel : LowRankKernel
        size : int, optional
            Number of items per sample, including given ones. If None, the unconstrained NDPP is sampled.
        given : items
            Items that every sample contains.
        exclude, candidates : items
            Items that no sample contains; the only items that a sample may contain in addition to the given ones.
        index : callable
            Builds what draws single items: ``LeverageTable.prepare`` or ``Tree.prepare``.
        memory : int
            Maximum bytes of cached circles. Peak memory in addition to X is this, a table of 20n bytes, and 16 N r² bytes per thread.
        device : str, optional
            "cuda" or "cuda:1": ``sample`` draws there, thousands at a time. Without a GPU, it warns and draws on the CPU.
        """
        kernel = _narrowed(kernel.without_background(), given, exclude, candidates)
        rows = np.sort(kernel.rows_of(given, "given"))
        q = kernel.q_rows(rows)
        if size is not None:
            size = kernel.check_size(size, given=kernel.catalogue_ids(rows))
        law = kernel.free_law(q) if size is None else tilted_law(kernel.coordinates, 1.0, q)
        if law.log_weight == -np.inf:
            raise ZeroProbabilityError(f"the {len(rows)} given items never occur together; give fewer or other items")
        ladder = Ladder(kernel.coordinates, q, check_count(memory, "memory"))
        found = index(kernel) if kernel.rank else None
        sampler = cls(kernel, size, rows, found, ladder, law.law, symmetric=is_symmetric(kernel))
        return with_engine(sampler, device)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted rows of the kernel's support."""
        drawn = self._draw_without_circles(rng)
        if drawn is not None:
            counters = {"proposals": drawn.proposals, "rejections": drawn.proposals - len(drawn.rows)}
            return Draw(np.sort(np.concatenate([self.given, drawn.rows])), counters)
        wanted = self.size - len(self.given) if self.size is not None else self.draw_count(rng)
        state, proposals = self._draw_wanted(rng, wanted)
        info: dict[str, float] = {"proposals": proposals, "rejections": proposals - wanted, "doubts": state.doubts}
        info |= {"recentred": state.recentred, Monitor.TRACE_ERROR: state.trace_error, Monitor.FRACTION: state.fraction}
        return Draw(np.sort(np.concatenate([self.given, state.rows])), info)

    def _draw_without_circles(self, rng: np.random.Generator) -> ItemDraws | None:
        """Draw the items of one sample in addition to the given ones; None if that needs circles."""
        if self.symmetric:
            return self.draw_by_eigenvectors(rng, None if self.size is None else self.size - len(self.given))
        clock = self.clock if self.size is None else None
        return None if clock is None else clock.draw(rng, cast(LeverageTable, self.index), self.given)

    @property
    def clock(self) -> EigenClock | None:
        """What draws samples of any size; None if they need circles."""
        mean = float(self.size_law @ np.arange(len(self.size_law)))
        return self.ladder.remember("clock", lambda: EigenClock.prepare(self.index, self.given, mean) or ()) or None

    def draw_count(self, rng: np.random.Generator) -> int:
        """Draw the number of items in addition to the given ones."""
        return int(invert_cdf(self.size_law, rng.random(1))[0])

    def draw_rows(self, rng: np.random.Generator, wanted: int) -> IntArray:
        """Draw a set of ``wanted`` items in addition to the given ones, as rows in any order."""
        if self.symmetric:
            return np.concatenate([self.given, self.draw_by_eigenvectors(rng, wanted).rows])
        return np.concatenate([self.given, self._draw_wanted(rng, wanted)[0].rows])

    def _draw_wanted(self, rng: np.random.Generator, wanted: int) -> tuple[State, int]:
        """Draw ``wanted`` items of a general kernel; return a state that has them, and the number of proposals."""
        chain = self.eigenchain(wanted)
        if chain is None:
            return self.complete(rng, self.start(wanted), wanted)
        index = cast(LeverageTable, self.index)
        run = chain.draw(rng, index)
        if run.spent:
            raise index.over_budget(run.rows[:0], 1, (wanted - len(run.rows)) / index.total, 1.0)
        state, proposals = self.start(0)._replace(rows=run.rows), 0
        if len(run.rows) < wanted:
            state, proposals = self.complete(rng, self.resume(run.rows, wanted), wanted)
        return state._replace(
            recentred=state.recentred + run.circles - 1,
            trace_error=max(state.trace_error, run.trace_error),
            fraction=min(state.fraction, run.fraction),
        ), proposals + run.proposals

    def eigenchain(self, wanted: int) -> EigenChain | None:
        """Return what draws ``wanted`` items in eigencoordinates; None if they need node matrices."""
        key = "eigenchain", wanted
        return self.ladder.remember(key, lambda: self._first_chain(wanted) or ()) or None if wanted else None

    def _first_chain(self, wanted: int) -> EigenChain | None:
        (eigen,) = self.ladder.remember("eigen", lambda: (EigenRows.of(self.index),))
        if eigen is None:
            return None
        rung, count = self._plan(self.start(0)._replace(rung=self._rung(wanted)), wanted)
        return EigenChain.prepare(eigen, self.ladder.given, len(self.given) + wanted, wanted, rung, count)

    def draw_by_eigenvectors(self, rng: np.random.Generator, wanted: int | None) -> ItemDraws:
        """Draw the items of one sample of a symmetric kernel in addition to the given ones: ``wanted`` of them, or any number if None."""
        index = self.index
        if wanted == 0 or index is None:
            return ItemDraws(np.empty(0, np.int64), 0)
        key = "eigenvectors", wanted
        return draw_spectral(
            rng, self.ladder.remember(key, lambda: Spectrum.prepare(index, self.ladder.given, wanted)), index
        )

    def complete(self, rng: np.random.Generator, state: State, wanted: int) -> tuple[State, int]:
        """Draw the missing items; return the state with ``wanted`` items and the number of proposals."""
        proposals = 0
        while len(state.rows) < wanted:
            assert self.index is not None
            if can_chain(self.index):
                state, used = self._chain(rng, state, wanted)
            else:
                rows, used = self.index.draw_counted(rng, state.inclusion.M)
                state = self.add(state, int(rows[0]), wanted)
            proposals += used
        return state, proposals

    def _chain(self, rng: np.random.Generator, state: State, wanted: int) -> tuple[State, int]:
        """Draw until all items are there or another circle is needed, which is then built."""
        n = len(state.rows)
        rows, q = np.empty(wanted, np.int64), np.empty((wanted, self.kernel.rank))
        rows[:n], q[:n] = state.rows, state.q
        # The last item but one needs M of the next, and not its node matrices: nothing is overwritten.
        Z = state.nodes.Z if state.owned or wanted - n <= 2 else state.nodes.Z.copy()
        nodes, M = Nodes(Z, state.nodes.log_w.copy()), state.inclusion.M.copy()
        assert isinstance(self.index, LeverageTable)
        chain = draw_chain(rng, self.index, nodes, M, rows, q, n, TOLERANCES)
        state = state._replace(
            rows=rows[: chain.done],
            q=q[: chain.done],
            nodes=nodes,
            inclusion=state.inclusion._replace(M=M),
            owned=True,
            trace_error=max(state.trace_error, chain.trace_error),
            fraction=min(state.fraction, chain.fraction),
            doubts=state.doubts + chain.doubts,
        )
        if chain.done < wanted:
            return self._recentre(state, wanted)[0], chain.proposals
        self._check_chosen(state)
        return state, chain.proposals

    def start(self, wanted: int) -> State:
        """Return the state before the first of ``wanted`` draws; the same for every sample."""
        empty = State.empty(self.kernel.rank)
        if wanted == 0:
            return empty
        # The ladder caches circles; this remembers which one, and its M.
        rung, count, *inclusion = self.ladder.remember(("start", wanted), lambda: self._first(empty, wanted))
        nodes = self._nodes(empty, rung, count, wanted)
        return empty._replace(rung=rung, nodes=nodes, inclusion=Inclusion._make(inclusion)).monitored(wanted)

    def resume(self, rows: IntArray, wanted: int) -> State:
        """Return the state of a sample that already has these rows, out of ``wanted``."""
        start = self.start(wanted)
        if not len(rows):
            return start
        bare = self.start(0)._replace(rung=start.rung, rows=rows, q=self.kernel.q_rows(rows))
        return self._recentre(bare, wanted)[0]

    def _first(self, empty: State, wanted: int) -> tuple[int, int, FloatArray, float, float]:
        state, count = self._recentre(empty._replace(rung=self._rung(wanted)), wanted)
        return state.rung, count, *state.inclusion

    def _rung(self, wanted: int) -> int:
        """Return a rung to begin with."""
        scale = np.sort(self.kernel.coordinates.scale)[-min(wanted, self.kernel.rank)]
        return round(-2 * float(np.log(scale)) / RUNG_STEP)

    def add(self, state: State, row: int, wanted: int) -> State:
        """Return the state with one more item."""
        q = self.kernel.q_rows(np.array([row]))
        state = state._replace(rows=np.concatenate([state.rows, [row]]), q=np.concatenate([state.q, q]))
        left = wanted - len(state.rows)
        if left == 0:
            self._check_chosen(state)
            return state
        keep = left > 1  # the last item needs only M, not the node matrices
        if keep and not state.owned:
            state = state._replace(nodes=Nodes(state.nodes.Z.copy(), state.nodes.log_w), owned=True)
        nodes, inclusion = state.nodes.condition(q[0], keep=keep)
        if not _trustworthy(inclusion, left):
            return self._recentre(state._replace(nodes=nodes), wanted)[0]
        return state._replace(nodes=nodes, inclusion=inclusion).monitored(left)

    def _nodes(self, state: State, rung: int, count: int, wanted: int) -> Nodes:
        circle = self.ladder.circle(rung, count)
        log_w = circle.log_w - (len(self.given) + wanted) * circle.log_t
        return given_items(circle.Z, log_w, state.q) if len(state.q) else Nodes(circle.Z, log_w)

    def _recentre(self, state: State, wanted: int) -> tuple[State, int]:
        """Return the state rebuilt at a radius that suits the items chosen; add nodes until the monitors pass."""
        left = wanted - len(state.rows)
        rung, count = self._plan(state, left)
        inclusion = NO_INCLUSION
        for attempt in range(MAX_CIRCLES):
            nodes = self._nodes(state, rung, count, wanted)
            inclusion = nodes.inclusion()
            if _trustworthy(inclusion, left):
                owned, recentred = len(state.q) > 0, state.recentred + 1
                state = state._replace(rung=rung, nodes=nodes, inclusion=inclusion, owned=owned, recentred=recentred)
                return state.monitored(left), count
            # First more nodes, up to where the rule is unbiased; then other radii, away from a pole that may be close.
            if count <= self.kernel.rank:
                count = min(2 * count, unbiased_count(self.kernel.rank))
            else:
                rung += (1, -2, 3, -4, 5, -6, 7, -8)[attempt]
        chosen = np.concatenate([self.ladder.given, state.q])
        last = last_inclusion(self.kernel.coordinates, chosen) if left == 1 else None
        if last is not None:
            return state._replace(inclusion=last, recentred=state.recentred + 1), count
        raise PrecisionError(
            f"the probabilities of the next item could not be computed to tolerance after {MAX_CIRCLES} attempts "
            f"(trace {inclusion.trace:.12g}, expected {left}; surviving fraction {inclusion.fraction:.1g}). "
            "The kernel is too badly scaled for double precision at this size; rescale X, or use a smaller size."
        )

    def _plan(self, state: State, left: int) -> tuple[int, int]:
        """Return the rung and the number of nodes for ``left`` more items."""
        rung, plan = state.rung, plan_from_weights(state.nodes.log_w, left)
        if plan is None:
            # The rung on which about as many items are expected.
            basis = row_basis(state.q)[0][None]
            rungs = centre(lambda rung, _: moments(self.ladder.real(rung), basis), left, np.array([rung]))[0]
            rung = 2 * (int(rungs[0]) // 2)
            chosen = np.concatenate([self.ladder.given, state.q])
            law = tilted_law(self.kernel.coordinates, float(np.exp(rung * RUNG_STEP)), chosen).law
            plan = plan_from_law(law, left) or (0.0, unbiased_count(self.kernel.rank))
        shift, count = plan
        return rung + round(shift / RUNG_STEP), count

    def _check_chosen(self, state: State) -> None:
        """Raise unless M gives items already chosen probability zero."""
        chosen = np.concatenate([self.ladder.given, state.q[:-1]])
        excess = np.abs(chosen @ state.inclusion.M).max(initial=0.0)
        if excess > TOLERANCES.chosen:
            raise PrecisionError(
                f"M q must be zero for every item already chosen; it is off by {excess:.1g}. "
                "Double precision is not enough for this kernel at this size; rescale X, or use a smaller size."
            )


def _narrowed(kernel: LowRankKernel, given: Items, exclude: Items, candidates: Items | None) -> LowRankKernel:
    if candidates is not None:
        allowed = check_items(candidates, kernel, "candidates")
        kernel = kernel.restrict(np.union1d(allowed, check_items(given, kernel, "given")))
    excluded = check_items(exclude, kernel, "exclude")
    return kernel.exclude(excluded) if len(excluded) else kernel


def _trustworthy(inclusion: Inclusion, left: int) -> bool:
    return bool(TOLERANCES.accepts(abs(inclusion.trace - left), inclusion.fraction))
