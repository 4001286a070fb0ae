"""Sets of one component of a distribution: T, whose items come together, and R, whose items come by themselves.

Distribution: P(S) ∝ det(L_S), L = diag(δ) + X W Xᵀ, or that of sets of items of which S are the families. A set of any size is S = T ∪ R: T
is drawn by :class:`Exact` from the low-rank part, and R item by item; nothing is rejected. Sets of size k are drawn by rejection, from the
proposal that is accepted more often:

* :class:`DisjointParts`: m ∝ e_m(X W Xᵀ) e_{k−m}(δ), T of m items from X W Xᵀ, R of k − m items with odds δ; accepted if T and R do not
  meet. Expected number of proposals: Σ_m e_m e_{k−m} / e_k(L), small unless some items are in a large part of all baskets.
* :class:`SizedUnion`: S = T ∪ R of the kernel ρL, with ρ such that k items are expected; accepted if |S| = k. Expected number:
  1 / P_ρ(|S| = k), about 2.5 standard deviations of the size.

Cost per sample: that of T, and O(|R|) for R (:class:`Alone`), independent of n. Preparing takes O(n r²).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from ndpp._compiled import soon
from ndpp._memory import n_bytes_of
from ndpp._stop import look
from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp.errors import BudgetExceededError
from ndpp.items.base import look_up_cdf
from ndpp.items.table import alias_table, look_up
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.size_law import tilted_law
from ndpp.linalg.sizes import Coins, SizeLaw
from ndpp.linalg.tilts import solve_tilt
from ndpp.rows.scaled import Multiplied
from ndpp.samplers.exact import Exact

FREQUENT_ODDS = 1.0
"""Items with larger odds, in more than half of all baskets, are drawn one by one; the others come from a table."""
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

    odds: FloatArray
    rows: IntArray
    rate: float
    threshold: FloatArray
    alias: AnyArray
    frequent: IntArray
    frequent_p: FloatArray

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return n_bytes_of((self.odds, self.rows, self.threshold, self.alias, self.frequent, self.frequent_p))

    @classmethod
    def prepare(cls, odds: FloatArray) -> Alone:
        """Build the table, in O(n)."""
        rows, frequent = np.flatnonzero((odds > 0) & (odds <= FREQUENT_ODDS)), np.flatnonzero(odds > FREQUENT_ODDS)
        rates = np.log1p(odds[rows])
        threshold, alias = alias_table(rates) if len(rows) else (np.empty(0), np.empty(0, np.int32))
        return cls(odds, rows, float(rates.sum()), threshold, alias, frequent, odds[frequent] / (1 + odds[frequent]))

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Draw R, as rows in any order."""
        coins = rng.random((2, rng.poisson(self.rate)))
        hits = soon(look_up, coins.size)(self.threshold, self.alias, coins)
        rows = self.rows[np.unique(hits)]
        if len(self.frequent) == 0:
            return rows
        return np.concatenate([rows, self.frequent[rng.random(len(self.frequent)) < self.frequent_p]])

    def draw_sized(self, rng: np.random.Generator, size: int) -> IntArray:
        """Draw R given its size, by rejection: the odds are such that this size is not rare."""
        for _ in range(SIZED_BUDGET):
            look()
            rows = self.draw(rng)
            if len(rows) == size:
                return rows
        raise BudgetExceededError(
            f"{SIZED_BUDGET} sets of independent items were drawn, none of {size} items", count=SIZED_BUDGET
        )


class SizedUnion(NamedTuple):
    """S = T ∪ R of ρL, accepted if it has ``size`` items (None: always). ``log_mass``: log of all weights proposed, det L_S if accepted."""

    ties: Exact
    alone: Alone
    size: int | None
    log_mass: float

    @property
    def n_bytes(self) -> int:
        """Bytes of all that it keeps, but for its kernel."""
        return n_bytes_of((self.alone, self.ties, self.ties.ladder.memory))

    @classmethod
    def prepare(
        cls, kernel: LowRankKernel, tied: IntArray, size: int, memory: int, device: str | None = None
    ) -> SizedUnion:
        """Choose ρ for the size."""
        tilted = kernel.tilted_for(size, tied)
        log_mass = tilted.kernel.log_mass(tied) - size * tilted.log_tilt
        return cls.of(tilted.kernel, tied, size, memory, log_mass, device)

    @classmethod
    def of(
        cls,
        tilted: LowRankKernel,
        tied: IntArray,
        size: int | None,
        memory: int,
        log_mass: float = np.nan,
        device: str | None = None,
    ) -> SizedUnion:
        """Prepare the parts of the kernel ρL."""
        ties = Exact.prepare(tilted.low_rank, given=tied, memory=memory, device=device)
        return cls(ties, Alone.prepare(tilted.odds), size, log_mass)

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return S, as items of the catalogue, or None. Only where the numbers of items allow it T is drawn, which costs most."""
        if self.size is None:
            return joined(self, self.ties.draw(rng).rows, self.alone.draw(rng))
        m, apart = self.ties.draw_count(rng), self.alone.draw(rng)
        n_together = m + len(self.ties.given)
        if max(n_together, len(apart)) > self.size or n_together + len(apart) < self.size:
            return None
        return joined(self, self.ties.draw_rows(rng, m), apart)


class DisjointParts(NamedTuple):
    """T of m further items, m by ``cdf``, and R of the others, accepted if they do not meet."""

    ties: Exact
    alone: Alone
    size: int
    log_mass: float
    cdf: FloatArray

    @property
    def n_bytes(self) -> int:
        """Bytes of all that it keeps, but for its kernel."""
        return n_bytes_of((self.alone, self.ties, self.ties.ladder.memory))

    @classmethod
    def prepare(cls, kernel: LowRankKernel, tied: IntArray, size: int, memory: int) -> DisjointParts:
        """Weigh e_m(X W Xᵀ) e_{k−m}(δ) under ρL, with ρ such that T and R together have about as many items as wanted."""
        low_rank = LowRankKernel(kernel.X, kernel.W, support=kernel.support, magnitudes=kernel._magnitudes)
        q, left = low_rank.q_rows(low_rank.rows_of(tied)), size - len(tied)

        def moments(log_tilt: float) -> tuple[float, float]:
            odds = np.exp(log_tilt) * kernel.odds
            Z = tilted_law(low_rank.coordinates, float(np.exp(log_tilt)), q).marginal
            mean, variance = np.trace(Z) + (odds / (1 + odds)).sum(), (odds / (1 + odds) ** 2).sum()
            return float(mean), float(variance + np.trace(Z) - np.einsum("ij,ji->", Z, Z))

        log_tilt = solve_tilt(moments, left, kernel.tilted_for(size, tied).log_tilt, deviations=0.3)
        odds = np.exp(log_tilt) * kernel.odds
        together = tilted_law(low_rank.coordinates, float(np.exp(log_tilt)), q)
        apart = independent_sizes(odds)
        weights = np.array([chance * apart[left - m] for m, chance in enumerate(together.law[: left + 1])])
        with np.errstate(divide="ignore"):
            log_mass = float(np.log(weights.sum()) + together.log_weight + np.log1p(odds).sum() - size * log_tilt)
        ties = Exact.prepare(low_rank, given=tied, memory=memory)
        return cls(ties, Alone.prepare(odds), size, log_mass, np.cumsum(weights))

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return S, as items of the catalogue, or None."""
        together = self.ties.draw_rows(rng, look_up_cdf(self.cdf, rng.random()))
        return joined(self, together, self.alone.draw_sized(rng, self.size - len(together)))


def kernel_bytes(kernel: LowRankKernel, law: LowRankKernel | None = None) -> int:
    """Return the bytes of a kernel that was made for draws, and of what was computed of it, but for what a law has as well."""
    others = {} if law is None else _parts(law)
    return sum(n_bytes_of(part) for key, part in _parts(kernel).items() if key not in others)


def _parts(kernel: LowRankKernel) -> dict[int, object]:
    """Return the large parts of a kernel, each once, whatever views of it there are."""
    rows = [kernel.X, kernel.background, *(vars(kernel).get(name) for name in ("_scaled", "_factor", "_law"))]
    rows = [row.source if isinstance(row, Multiplied) else row for row in rows]
    rows = [row.base if isinstance(row, np.ndarray) and row.base is not None else row for row in rows]
    return {id(part): part for part in (*rows, vars(kernel).get("coordinates"))}


Proposal: TypeAlias = SizedUnion | DisjointParts


def joined(parts: Proposal, together: IntArray, apart: IntArray) -> IntArray | None:
    """Return the union of T and R, rows of the support, as items of the catalogue; None if it does not have the wanted size."""
    rows = np.union1d(together, apart)
    return parts.ties.kernel.catalogue_ids(rows) if parts.size in (None, len(rows)) else None


def independent_sizes(odds: FloatArray) -> FloatArray:
    """Return the distribution of the number of items that come by themselves with these odds."""
    coins = Coins(odds / (1 + odds), np.empty((len(odds), 0)))
    return SizeLaw.prepare(np.empty((0, 0)), lambda: [coins], len(odds)).distribution()


def propose_from(
    kernel: LowRankKernel, tied: IntArray, size: int | None, memory: int, device: str | None = None
) -> Proposal:
    """Return what proposes sets of the kernel that contain ``tied``, items without a background; ``size`` counts them."""
    if kernel.background is None:
        ties = Exact.prepare(kernel, size=size, given=tied, memory=memory, device=device)
        return SizedUnion(ties, Alone.prepare(np.zeros(kernel.n_rows)), None, kernel.log_mass(tied, size))
    if size is None:
        return SizedUnion.of(kernel, tied, None, memory, kernel.log_mass(tied), device)
    union = SizedUnion.prepare(kernel, tied, kernel.check_size(size, given=tied), memory, device)
    if device not in (None, "cpu"):  # a GPU draws T without regard to its size
        return union
    parts = DisjointParts.prepare(kernel, tied, size, memory)
    return parts if -np.inf < parts.log_mass < union.log_mass else union
