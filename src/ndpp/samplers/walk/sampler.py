"""The two-item down-up walk on sets of one size [Han22, Alg. 1].

Law: P(S) ∝ det(L_S) over the sets of k items, in the limit of many steps; approximate after any number of them. One
step leaves the law unchanged. A step removes two items, uniformly, and puts a pair {a, b} back with probability ∝
det L_{A ∪ {a, b}}, where A are the items kept. The up-step draws the pair: ``DirectUp`` (two draws of one item, no
rejection of pairs), ``RejectionUp`` (the paper's Alg. 2) or ``NaiveUp`` (all pairs). L_A may be singular: the pair
still has a well-defined distribution.

Cost: k² steps by default, as in the paper. That is enough for kernels learned from baskets, but not for kernels whose
items come in tight pairs (L = ⊕ [[ε, 1], [−1, ε]] relaxes in about k²/2 steps). :class:`Exact` needs no such guess.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ndpp._types import IntArray, Items, Jobs, KeyArray, RngLike
from ndpp._validation import check_count
from ndpp.errors import BudgetExceededError, ImpossibleSizeError, InvalidInputError, ZeroProbabilityError
from ndpp.inference import greedy_map
from ndpp.items import LeverageTable
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.skew import symmetric_part
from ndpp.samplers._dispatch import dispatch
from ndpp.samplers.base import BATCH, Draw, Sampler, stream
from ndpp.samplers.walk.up import PreparedUp, UpStep
from ndpp.samplers.walk.up_direct import DirectUp

Start: TypeAlias = Literal["uniform", "greedy"] | Items
"""Where a chain starts: a uniform draw from the sets of positive probability, the greedy MAP set, or these items."""

START_BUDGET = 10_000
"""Maximum number of uniform sets drawn to find one of positive probability."""


class WalkState(NamedTuple):
    """A set, as sorted catalogue ids and as rows of the kernel's support."""

    items: IntArray
    rows: IntArray


@dataclass(frozen=True, eq=False)
class Walk(Sampler):
    """Chains on sets of ``size`` items.

    ``sample(n)`` runs n independent chains of ``burn_in + steps`` steps and returns their last sets. With ``thin``,
    the sets come from ``chains`` long chains instead: sample i is from chain i mod ``chains`` after ``burn_in +
    thin·(1 + i div chains)`` steps. Each chain has its own stream, so sample i depends on the seed and on i alone.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), [[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> walk = Walk.prepare(kernel, size=2, up=DirectUp(), steps=1)
    >>> walk.sample(2, rng=0).baskets[0]  # items 0 and 1 attract each other; item 2 comes with neither alone
    array([0, 1])
    >>> rng = np.random.default_rng(0)
    >>> state, info = walk.step(rng, walk.init(rng, start=[0, 1]))
    >>> state.items
    array([0, 1])
    """

    kernel: LowRankKernel
    size: int
    up: PreparedUp | None
    index: LeverageTable | None
    steps: int
    start: IntArray | None
    burn_in: int = 0
    thin: int | None = None
    chains: int = 1

    @classmethod
    def prepare(
        cls,
        kernel: LowRankKernel,
        *,
        size: int,
        up: UpStep = DirectUp(),  # noqa: B008  frozen settings
        steps: int | None = None,
        start: Start = "uniform",
        burn_in: int = 0,
        thin: int | None = None,
        chains: int | None = None,
    ) -> Walk:
        """Compute what depends on the kernel alone.

        Parameters
        ----------
        kernel : LowRankKernel
        size : int
            Number of items per set. Sets of size 0 and 1 are drawn directly and exactly, without a chain.
        up : UpStep
            How two items are put back: ``DirectUp()``, ``RejectionUp()`` or ``NaiveUp()``.
        steps, burn_in : int
            Number of steps of an independent chain, ``size²`` if None and not with ``thin``; and of those before all others.
        start : "uniform", "greedy" or items
            Where chains start.
        thin, chains : int, optional
            Take samples from this many long chains (1 if None; only with ``thin``), ``thin`` steps apart.
        """
        size = kernel.without_background().check_size(size)
        if thin is None and chains is not None:
            raise InvalidInputError("chains= needs thin=; without thin, every sample has its own chain")
        if thin is not None and steps is not None:
            raise InvalidInputError("steps= is for independent chains, thin= for long ones; give one of the two")
        return cls(
            kernel,
            size,
            up.prepare(kernel, size) if size > 1 else None,
            LeverageTable.prepare(kernel) if size == 1 else None,
            size**2 if steps is None else check_count(steps, "steps"),
            _start_rows(kernel, size, start),
            check_count(burn_in, "burn_in"),
            None if thin is None else check_count(thin, "thin", least=1),
            check_count(1 if chains is None else chains, "chains", least=1),
        )

    def init(self, rng: RngLike, start: Start | None = None) -> WalkState:
        """Return the first state of a chain: ``start``, or the start given to ``prepare``."""
        rows = self.start if start is None else _start_rows(self.kernel, self.size, start)
        if rows is None:
            rows = self._uniform(np.random.default_rng(rng))
        return self._state(rows)

    def step(self, rng: RngLike, state: WalkState) -> tuple[WalkState, Mapping[str, float]]:
        """Return the next set and the counters of its up-step; a set of at most one item is drawn exactly."""
        rng = np.random.default_rng(rng)
        if self.size < 2:
            return self._direct(rng), {"proposals": 1, "rejections": 0}
        assert self.up is not None
        kept = np.delete(state.rows, rng.choice(self.size, 2, replace=False, shuffle=False))  # Alg. 1, line 3
        pair, info = self.up.pair(rng, kept)  # line 4
        return self._state(np.concatenate([kept, pair])), info

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw the last set of one independent chain."""
        if self.size < 2:
            return Draw(self._direct(rng).rows, {"steps": 0, "proposals": 1, "rejections": 0})
        state, info = self._advance(rng, self.init(rng), self.burn_in + self.steps)
        return Draw(state.rows, info)

    def _advance(self, rng: np.random.Generator, state: WalkState, steps: int) -> tuple[WalkState, dict[str, float]]:
        total: Counter[str] = Counter(steps=steps, proposals=0, rejections=0)
        for _ in range(steps):
            state, info = self.step(rng, state)
            for name, value in info.items():
                total[name] += value  # type: ignore[assignment]
        return state, dict(total)

    def _state(self, rows: IntArray) -> WalkState:
        rows = np.sort(rows)
        return WalkState(self.kernel.catalogue_ids(rows), rows)

    def _direct(self, rng: np.random.Generator) -> WalkState:
        """Draw a set of at most one item, item a with probability ∝ q_aᵀBq_a."""
        if self.size == 0:
            return self._state(np.empty(0, np.int64))
        assert self.index is not None
        M = symmetric_part(self.kernel.coordinates.B)
        return self._state(np.array([self.index.draw(rng, M / np.trace(M))]))

    def _uniform(self, rng: np.random.Generator) -> IntArray:
        """Draw uniformly from the sets of positive probability, by rejection from all sets of items that can occur."""
        possible = np.flatnonzero(self.kernel.coordinates.leverage)
        for _ in range(START_BUDGET):
            rows = possible[rng.choice(len(possible), self.size, replace=False, shuffle=False)]
            if self.kernel.is_possible(rows):
                return rows
        raise BudgetExceededError(
            f"none of {START_BUDGET} uniform sets of {self.size} items has positive probability: such sets are rare. "
            'Use start="greedy", or start at an exact sample: start=kernel.sample(size=…)[0].',
            count=START_BUDGET,
        )

    def _run(self, key: KeyArray, batches: Sequence[range], n_jobs: Jobs) -> Iterator[list[Draw]]:
        if self.thin is None or not batches:
            yield from super()._run(key, batches, n_jobs)
            return
        first, last = batches[0].start, batches[-1].stop
        ends = [-(-(last - c) // self.chains) for c in range(self.chains)]  # number of samples of each chain
        states: list[tuple[np.random.Generator, WalkState | None]] = [
            (stream(key, c), None) for c in range(self.chains)
        ]
        for begin in range(0, ends[0], BATCH):
            counts = [max(0, min(BATCH, end - begin)) for end in ends]
            tasks = [(*state, count) for state, count in zip(states, counts)]
            runs = list(dispatch(Walk._continue, self, tasks, n_jobs))
            states = [run[0] for run in runs]
            draws = [run[1][j] for j in range(max(counts)) for run in runs if j < len(run[1])]
            yield draws[max(0, first - begin * self.chains) :]

    def _continue(
        self, task: tuple[np.random.Generator, WalkState | None, int]
    ) -> tuple[tuple[np.random.Generator, WalkState], list[Draw]]:
        """Return the state of a long chain after ``count`` more samples, and these samples."""
        rng, state, count = task
        draws = []
        extra = self.burn_in if state is None else 0
        state = self.init(rng) if state is None else state
        for _ in range(count):
            began = time.perf_counter()
            state, info = self._advance(rng, state, extra + (self.thin or 1))
            draws.append(Draw(state.rows, {**info, "seconds": time.perf_counter() - began}))
            extra = 0
        return (rng, state), draws


def _start_rows(kernel: LowRankKernel, size: int, start: Start) -> IntArray | None:
    """Return the rows at which a chain starts, None for a uniform draw; raise if the chain cannot be there."""
    if isinstance(start, str):
        if start == "uniform":
            return None
        if start != "greedy":
            raise InvalidInputError(f'start must be "uniform", "greedy" or items; got {start!r}')
        try:
            return kernel.rows_of(greedy_map(kernel, size))
        except ImpossibleSizeError as reason:
            raise InvalidInputError(
                f'start="greedy" finds no set of {size} items ({reason}). Use start="uniform", or give items'
            ) from None
    rows = kernel.rows_of(start, "start")
    if len(rows) != size:
        raise InvalidInputError(f"start must have {size} items, as size says; it has {len(rows)}")
    if not kernel.is_possible(rows):
        raise ZeroProbabilityError(
            f"start {sorted(map(int, start))} has probability zero; a chain must start at a set that can occur"
        )
    return rows
