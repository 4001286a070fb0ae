"""Exact samples of a kernel with a background, L = diag(δ) + X W Xᵀ, unconstrained or of one size.

Distribution: P(S) ∝ det(L_S), with given and excluded items. Exact. A sample of any size is S = T ∪ R: T is drawn by :class:`Exact` from
the low-rank part, and R item by item; nothing is rejected. Sets of size k are drawn by rejection, from the proposal that is accepted more
often:

* :class:`DisjointParts`: m ∝ e_m(X W Xᵀ) e_{k−m}(δ), T of m items from X W Xᵀ, R of k − m items with odds δ; accepted if T and R do not
  meet. Expected number of proposals: Σ_m e_m e_{k−m} / e_k(L), small unless some items are in a large part of all baskets.
* :class:`SizedUnion`: S = T ∪ R of the kernel ρL, with ρ such that k items are expected; accepted if |S| = k. Expected number:
  1 / P_ρ(|S| = k), about 2.5 standard deviations of the size.

Cost per sample: that of T, and O(|R|) for R (:class:`Alone`), independent of n. Preparing takes O(n r²). On a GPU (:class:`UnionEngine`) T
is drawn there, and R on the CPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from ndpp._types import AnyArray, FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.errors import BudgetExceededError, ImpossibleSizeError
from ndpp.items.base import look_up_cdf
from ndpp.items.table import alias_table, look_up
from ndpp.laws.background import NEWTON_STEPS, BackgroundKernel
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.precision import check_given
from ndpp.linalg import tilted_law
from ndpp.linalg.union_size import SizeDistribution, UnionSize
from ndpp.samplers.base import Draw, Draws, Engine, Sampler, stream
from ndpp.samplers.exact import Exact

FREQUENT_ODDS = 1.0
"""Items with larger odds, in more than half of all baskets, are drawn one by one; the others come from a table."""
GIVE_UP_FACTOR = 50
"""A draw gives up after this many times the expected number of proposals, which has a probability of at most exp(−50)."""
MAX_PROPOSALS = 1e4
"""Largest acceptable mean number of proposals per draw."""


PROPOSALS_FACTOR = 3
"""Proposals per sample on a GPU, relative to their expected number. One sample in twenty (exp(−3)) then has to be drawn on the CPU."""
KEY_FLIPS = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
"""Bits of the key that differ between the streams of T on a GPU and those of R and of samples drawn on the CPU."""
SIZED_BUDGET = 10**6
"""Maximum number of sets of independent items that are drawn until one has the wanted size."""


@dataclass(frozen=True, eq=False)
class Alone:
    """R: each item i of the support by itself with odds δ_i, at a cost of O(|R|) that does not depend on the number of items.

    Item i is hit Poisson(log(1 + δ_i)) times, independently of the others: that is not zero with probability δ_i / (1 + δ_i). The total
    number of hits is Poisson, and each hits i with probability ∝ log(1 + δ_i), by an alias table.

    Examples
    --------
    >>> alone = Alone.prepare(np.array([0.0, 3.0, 0.5]))
    >>> sizes = [len(alone.draw(np.random.default_rng(i))) for i in range(1000)]
    >>> bool(abs(np.mean(sizes) - (3 / 4 + 1 / 3)) < 0.1)
    True
    """

    rows: IntArray
    rate: float
    threshold: FloatArray
    alias: AnyArray
    frequent: IntArray
    frequent_p: FloatArray

    @classmethod
    def prepare(cls, odds: FloatArray) -> Alone:
        """Build the table, in O(n)."""
        rows, frequent = np.flatnonzero((odds > 0) & (odds <= FREQUENT_ODDS)), np.flatnonzero(odds > FREQUENT_ODDS)
        rates = np.log1p(odds[rows])
        threshold, alias = alias_table(rates) if len(rows) else (np.empty(0), np.empty(0, np.int32))
        return cls(rows, float(rates.sum()), threshold, alias, frequent, odds[frequent] / (1 + odds[frequent]))

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Draw R, as rows in any order."""
        hits = look_up(self.threshold, self.alias, rng.random((2, rng.poisson(self.rate))))
        rows = self.rows[np.unique(hits)]
        if len(self.frequent) == 0:
            return rows
        return np.concatenate([rows, self.frequent[rng.random(len(self.frequent)) < self.frequent_p]])

    def draw_sized(self, rng: np.random.Generator, size: int) -> IntArray:
        """Draw R given its size, by rejection: the odds are such that this size is not rare."""
        for _ in range(SIZED_BUDGET):
            rows = self.draw(rng)
            if len(rows) == size:
                return rows
        raise BudgetExceededError(
            f"{SIZED_BUDGET} sets of independent items were drawn, none of {size} items", count=SIZED_BUDGET
        )


class SizedUnion(NamedTuple):
    """S = T ∪ R of ρL, accepted if it has ``size`` items (None: always). ``log_mass``: log of all weights proposed, det L_S if accepted.

    ``by_clock``: T is drawn whatever its size (:mod:`.exact.eigenclock`), not by circles for a size drawn before. More is rejected, and no
    circle has to be kept for every component and size.
    """

    ties: Exact
    alone: Alone
    size: int | None
    log_mass: float
    by_clock: bool = False

    @classmethod
    def prepare(
        cls, kernel: BackgroundKernel, tied: IntArray, size: int | None, memory: int, device: str | None = None
    ) -> SizedUnion:
        """Choose ρ for the size, or ρ = 1."""
        if size is None:
            return cls.of(kernel, tied, None, memory, kernel.log_mass(tied), device)
        tilted, _, log_tilt = kernel.tilted_for(size, tied)
        return cls.of(tilted, tied, size, memory, tilted.log_mass(tied) - size * log_tilt, device)

    @classmethod
    def of(
        cls,
        tilted: BackgroundKernel,
        tied: IntArray,
        size: int | None,
        memory: int,
        log_mass: float = np.nan,
        device: str | None = None,
    ) -> SizedUnion:
        """Prepare the parts of the kernel ρL."""
        ties = Exact.prepare(tilted.ties, given=tied, memory=memory, device=device)
        return cls(ties, Alone.prepare(tilted.odds), size, log_mass)

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return S, as rows of the support, or None. Only where the numbers of items allow it T is drawn, which costs most."""
        if self.size is None:
            return np.union1d(self.ties.draw(rng).rows, self.alone.draw(rng))
        if self.by_clock:
            apart = self.alone.draw(rng)
            rows = None if len(apart) > self.size else np.union1d(self.ties.draw(rng).rows, apart)
            return None if rows is None or len(rows) != self.size else rows
        m, apart = self.ties.draw_count(rng), self.alone.draw(rng)
        n_together = m + len(self.ties.given)
        if max(n_together, len(apart)) > self.size or n_together + len(apart) < self.size:
            return None
        rows = np.union1d(self.ties.draw_rows(rng, m), apart)
        return rows if len(rows) == self.size else None


class DisjointParts(NamedTuple):
    """T of m further items, m by ``cdf``, and R of the others, accepted if they do not meet."""

    ties: Exact
    alone: Alone
    size: int
    log_mass: float
    cdf: FloatArray

    @classmethod
    def prepare(cls, kernel: BackgroundKernel, tied: IntArray, size: int, memory: int) -> DisjointParts:
        """Weigh e_m(X W Xᵀ) e_{k−m}(δ) under ρL, with ρ such that T and R together have about as many items as wanted."""
        low_rank = LowRankKernel(kernel.X, kernel.W, support=kernel.support, magnitudes=kernel._magnitudes)
        q, left = low_rank.q_rows(low_rank.rows_of(tied)), size - len(tied)
        log_tilt, low, high = kernel.tilted_for(size, tied).log_tilt, -np.inf, np.inf
        for _ in range(NEWTON_STEPS):
            odds = np.exp(log_tilt) * kernel.odds
            together = tilted_law(low_rank.coordinates, float(np.exp(log_tilt)), q)
            mean = float(np.trace(together.marginal) + (odds / (1 + odds)).sum())
            if abs(mean - left) <= max(0.3, 0.3 * np.sqrt(left)):
                break
            low, high = (low, log_tilt) if mean > left else (log_tilt, high)
            step = float(np.clip(np.log(max(left, 0.1) / mean), -3, 3))
            log_tilt = log_tilt + step if low < log_tilt + step < high else (low + high) / 2
        apart = independent_sizes(odds)
        weights = np.array([chance * apart.at(left - m) for m, chance in enumerate(together.law[: left + 1])])
        with np.errstate(divide="ignore"):
            log_mass = float(np.log(weights.sum()) + together.log_weight + np.log1p(odds).sum() - size * log_tilt)
        ties = Exact.prepare(low_rank, given=tied, memory=memory)
        return cls(ties, Alone.prepare(odds), size, log_mass, np.cumsum(weights))

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return S, as rows of the support, or None."""
        m = int(look_up_cdf(self.cdf, rng.random(1))[0])
        together = self.ties.draw_rows(rng, m)
        rows = np.union1d(together, self.alone.draw_sized(rng, self.size - len(together)))
        return rows if len(rows) == self.size else None


Proposal: TypeAlias = SizedUnion | DisjointParts


def independent_sizes(odds: FloatArray) -> SizeDistribution:
    """Return the distribution of the number of items that come by themselves with these odds."""
    return UnionSize.prepare(np.empty((0, 0)), [(odds / (1 + odds), np.empty((len(odds), 0)))]).distribution()


def propose_from(
    kernel: LowRankKernel, tied: IntArray, size: int | None, memory: int, device: str | None = None
) -> Proposal:
    """Return what proposes sets of the kernel that contain ``tied``, items without a background; ``size`` counts them."""
    if not isinstance(kernel, BackgroundKernel):
        ties = Exact.prepare(kernel, size=size, given=tied, memory=memory, device=device)
        return SizedUnion(ties, Alone.prepare(np.zeros(1)), None, kernel.log_mass(tied, size))
    if size is None:
        return SizedUnion.prepare(kernel, tied, None, memory, device)
    union = SizedUnion.prepare(kernel, tied, kernel.check_tied_size(size, tied), memory, device)
    if device not in (None, "cpu"):  # a GPU draws T without regard to its size
        return union
    parts = DisjointParts.prepare(kernel, tied, size, memory)
    return parts if -np.inf < parts.log_mass < union.log_mass else union


@dataclass(frozen=True, eq=False)
class UnionEngine:
    """Draws T on a GPU, by the engine of :class:`Exact`, and R on the CPU.

    Sets of one size: of each sample ``attempts`` proposals are made, and the first of the right size is taken. The few samples without one
    are drawn on the CPU.
    """

    sampler: ExactUnion
    attempts: int

    def draws(self, key: AnyArray, first: int, n_samples: int) -> Iterator[Draws]:
        """Yield the samples first, first + 1, … in order, some at a time."""
        apart_key, cpu_key = (np.asarray(key, np.uint64) ^ np.array([0, flip], np.uint64) for flip in KEY_FLIPS)
        union, given = self.sampler.proposal, self.sampler.given
        assert isinstance(union, SizedUnion)
        assert union.ties.engine is not None
        waiting: list[Draw] = []
        found: Draw | None = None
        began = time.perf_counter()
        number = first * self.attempts
        for part in union.ties.engine.draws(key, number, n_samples * self.attempts):
            for together in part.baskets:
                index, attempt = divmod(number, self.attempts)
                if found is None:
                    apart = union.ties.kernel.catalogue_ids(union.alone.draw(stream(apart_key, number)))
                    ids = np.union1d(together, apart)
                    if union.size in (None, len(ids)):
                        found = self._draw(np.concatenate([given, ids]), attempt + 1)
                if attempt == self.attempts - 1:
                    waiting.append(found or self.sampler.draw(stream(cpu_key, index)))
                    found = None
                number += 1
            if waiting:
                seconds = (time.perf_counter() - began) / len(waiting)
                yield self.sampler._collect([Draw(draw.rows, {**draw.info, "seconds": seconds}) for draw in waiting])
                waiting, began = [], time.perf_counter()

    def _draw(self, ids: IntArray, proposals: int) -> Draw:
        rows = self.sampler.kernel.rows_of(np.sort(ids))
        return Draw(rows, {"proposals": proposals, "rejections": proposals - 1})


@dataclass(frozen=True, eq=False)
class ExactUnion(Sampler):
    """What ``kernel.sample`` draws with if the kernel has a background.

    Attributes
    ----------
    given : array
        Given items that have a background; ``proposal`` (None: all items are given) draws the others from the kernel ``rest``.
    expected_proposals : float
        Mean number of proposals per draw, in closed form; 1 for sets of any size.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), np.eye(3), background=[0.1, 2.0, 0.0])
    >>> ExactUnion.prepare(kernel, size=2).sample(100, rng=0).baskets.sizes.max()
    np.int64(2)
    """

    kernel: LowRankKernel
    given: IntArray
    rest: LowRankKernel
    proposal: Proposal | None
    expected_proposals: float = 1.0
    engine: Engine | None = field(default=None, repr=False)

    @classmethod
    def prepare(
        cls,
        kernel: LowRankKernel,
        *,
        size: int | None = None,
        given: Items = (),
        exclude: Items = (),
        memory: int = 256 * 2**20,
        device: str | None = None,
    ) -> ExactUnion:
        """Pay for what depends on the kernel alone; refuse what cannot be drawn. Parameters as in :meth:`Exact.prepare`.

        Raises
        ------
        BudgetExceededError
            Sets of this size would take more than ``MAX_PROPOSALS`` proposals on average.
        """
        excluded = check_items(exclude, kernel, "exclude")
        kernel = kernel.exclude(excluded) if len(excluded) else kernel
        ids = kernel.catalogue_ids(kernel.rows_of(given, "given"))
        rest, tied = kernel.given_alone(ids) if isinstance(kernel, BackgroundKernel) else (kernel, ids)
        alone = np.setdiff1d(ids, tied)
        if size is not None:
            size = check_given(size, len(ids)) - len(alone)
        if rest is None and size in (None, 0):
            return cls(kernel, alone, kernel, None)
        if rest is None:
            raise ImpossibleSizeError(f"all {len(ids)} items are given; no set is larger")
        proposal = propose_from(rest, tied, size, memory, device)
        expected = float(np.exp(proposal.log_mass - rest.log_mass(tied, size)))
        if expected > MAX_PROPOSALS:
            raise BudgetExceededError(
                f"sets of this size would need {expected:.3g} proposals per draw on average, above {MAX_PROPOSALS:g}; "
                "ask for another size, see kernel.size_distribution(), or draw sets of any size",
                count=0,
            )
        sampler = cls(kernel, alone, rest, proposal, expected)
        return sampler if proposal.ties.engine is None else sampler.with_engine()

    def with_engine(self) -> ExactUnion:
        """Return the sampler that draws T by the engine of its ties."""
        sized = self.proposal is not None and self.proposal.size is not None
        return replace(
            self, engine=UnionEngine(self, int(np.ceil(PROPOSALS_FACTOR * self.expected_proposals)) if sized else 1)
        )

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted rows of the kernel's support."""
        if self.proposal is None:
            return Draw(np.sort(self.kernel.rows_of(self.given)), {"proposals": 0, "rejections": 0})
        for proposals in range(1, int(GIVE_UP_FACTOR * self.expected_proposals) + 2):
            rows = self.proposal.propose(rng)
            if rows is not None:
                ids = np.sort(np.concatenate([self.given, self.rest.catalogue_ids(rows)]))
                return Draw(self.kernel.rows_of(ids), {"proposals": proposals, "rejections": proposals - 1})
        raise BudgetExceededError(
            f"{proposals} proposals were all rejected, where {self.expected_proposals:.3g} are needed on average",
            count=proposals,
        )
