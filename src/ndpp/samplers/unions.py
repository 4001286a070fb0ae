"""Sets of a kernel with a background: T, whose items come together, and R, whose items come by themselves.

Distribution: P(S) ∝ det(L_S), L = diag(δ) + X W Xᵀ. A set of any size is S = T ∪ R: T is drawn by :class:`Exact` from the low-rank part,
and R item by item; nothing is rejected. Sets of size k are drawn by rejection, by the rule that accepts more of them:

* m ∝ e_m(X W Xᵀ) e_{k−m}(δ), T of m items from X W Xᵀ, R of k − m items with odds δ (:class:`SizedAlone`); accepted if T and R do not
  meet. Expected number of proposals: Σ_m e_m e_{k−m} / e_k(L), small unless some items are in a large part of all baskets.
* S = T ∪ R of the kernel ρL, with ρ such that k items are expected; accepted if |S| = k. Expected number: 1 / P_ρ(|S| = k), about 2.5
  standard deviations of the size.

Cost per sample: that of T, and O(|R|) for R (:class:`Alone`), independent of n. Preparing takes O(n r²).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

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
from ndpp.linalg.tilts import solve_each, solve_tilt
from ndpp.rows.scaled import Multiplied
from ndpp.samplers.exact import Exact

FREQUENT_ODDS = 1.0
"""Items with larger odds, in more than half of all baskets, are drawn one by one; the others come from a table."""
SIZED_BUDGET = 10**6
"""Maximum number of sets of independent items that are drawn until one has the wanted size."""
LOG_WIDTH = 0.1
"""Items whose odds differ by up to about this factor's logarithm share a group where tilts are searched."""
NO_ROWS = np.empty(0, np.int64)

ItemsOf = Callable[[np.random.Generator, IntArray], IntArray]


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

    def draw_sized(
        self, rng: np.random.Generator, size: int, removed: IntArray = NO_ROWS, items_of: ItemsOf | None = None
    ) -> IntArray:
        """Draw R without some rows, given its size, by rejection: the odds are such that this size is not rare.

        ``items_of`` draws items of rows, some of each; it is then their number that counts.
        """

        def draw() -> IntArray:
            found = without(self.draw(rng), removed)
            return found if items_of is None or len(found) > size else items_of(rng, found)

        return _first_of_size(size, draw)


@dataclass(frozen=True, eq=False)
class SizedAlone:
    """R of m items, P(R) ∝ Π δ_i: odds τδ, with τ such that about m items are expected, until there are m. O(m log n), whatever m and δ.

    m is nearly the mean, and so nearly the most probable of all numbers: R is drawn about 2.5 standard deviations of |R| times. Items with
    τδ > 1, at most 2m on average, are drawn one by one. The others are hit Poisson(τδ) times, and kept if they are with probability
    τδ / (1 + τδ) / (1 − e^{−τδ}).

    ``odds`` ascend, ``sums`` are their cumulative ones, and ``log_tilts`` are log τ of the numbers from ``least`` on.

    Examples
    --------
    >>> alone = SizedAlone.prepare(np.array([0.0, 1e-9, 1e-9, 1e-20]), np.array([1, 2]))
    >>> sorted(alone.draw_sized(np.random.default_rng(0), 2).tolist())
    [1, 2]
    """

    odds: FloatArray
    rows: IntArray
    sums: FloatArray
    least: int
    log_tilts: FloatArray

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return n_bytes_of((self.odds, self.rows, self.sums, self.log_tilts))

    @classmethod
    def prepare(cls, odds: FloatArray, counts: IntArray) -> SizedAlone:
        """Sort the items, and find the tilts for these consecutive numbers m, in O(n log n)."""
        rows = np.argsort(odds, kind="stable")[np.count_nonzero(odds == 0) :]
        odds = odds[rows]
        return cls(odds, rows, np.cumsum(odds), int(counts.min()), tilts_of_counts(odds, np.sort(counts)))

    def draw_sized(self, rng: np.random.Generator, size: int) -> IntArray:
        """Draw R of ``size`` items, as rows in any order."""
        if size == 0:
            return NO_ROWS
        even = np.exp(-self.log_tilts[size - self.least])  # the odds of items that come with probability 1/2
        n_rare = int(np.searchsorted(self.odds, even, side="right"))
        sums, p = self.sums[:n_rare], 1 / (1 + even / self.odds[n_rare:])

        def draw() -> IntArray:
            frequent = n_rare + np.flatnonzero(rng.random(len(p)) < p)
            n_hits = rng.poisson(sums[-1] / even) if n_rare else 0
            if n_hits == 0 or len(frequent) + n_hits < size:
                return frequent
            hits = np.unique(np.searchsorted(sums[:-1], sums[-1] * rng.random(n_hits), side="right"))
            own = self.odds[hits] / even
            return np.concatenate([frequent, hits[rng.random(len(hits)) * -np.expm1(-own) < own / (1 + own)]])

        return self.rows[_first_of_size(size, draw)]


def tilts_of_counts(odds: FloatArray, counts: IntArray) -> FloatArray:
    """Return log τ under which about these numbers of items with ascending odds are expected; similar odds are taken together."""
    n = len(odds)
    if n == 0:
        return np.zeros(len(counts))
    first = np.flatnonzero(np.diff(np.round(np.log(odds) / LOG_WIDTH), prepend=-np.inf))
    n_each = np.diff(first, append=n)
    log_odds = np.log(np.add.reduceat(odds, first) / n_each)

    def moments(log_tilt: FloatArray, _: IntArray) -> tuple[FloatArray, FloatArray]:
        p = np.exp(-np.logaddexp(0, -(log_tilt[:, None] + log_odds)))
        return p @ n_each, (p * (1 - p)) @ n_each

    start = -np.log(odds[n - counts.clip(1, n)])
    return solve_each(moments, counts.clip(0.3, n - 0.3), start, deviations=0.3)


def _first_of_size(size: int, draw: Callable[[], IntArray]) -> IntArray:
    for _ in range(SIZED_BUDGET):
        look()
        found = draw()
        if len(found) == size:
            return found
    raise BudgetExceededError(
        f"{SIZED_BUDGET} sets of independent items were drawn, none of {size} items", count=SIZED_BUDGET
    )


def without(rows: IntArray, others: IntArray) -> IntArray:
    """Return the rows that are not among a few others."""
    return rows[~(rows[:, None] == others).any(axis=1)] if len(others) else rows


@dataclass(frozen=True, eq=False)
class SizedUnion:
    """S = T ∪ R, accepted if it has ``size`` items (None: always), in addition to ``given`` items, which come by themselves.

    ``n_tied`` are the cumulative weights of the number of further items of T, which R must not meet; None if any number of items comes with
    ρL. ``expected`` is the mean number of proposals, ``n_kernel`` the bytes of kernels that were made for it.
    """

    given: IntArray
    ties: Exact
    alone: Alone | SizedAlone
    size: int | None
    n_tied: FloatArray | None
    expected: float
    n_kernel: int
    grows: ClassVar[bool] = True

    @classmethod
    def prepare(
        cls, law: LowRankKernel, rest: LowRankKernel, tied: IntArray, given: IntArray, size: int | None, memory: int, device: str | None
    ) -> SizedUnion:  # fmt: skip
        """Prepare sets of what is left of a law given items, those that are ``tied``, without a background, among them."""
        left, alone, n_tied, wanted = rest, None, None, None
        log_mass = total = rest.log_mass(tied, size)
        if size is not None and rest.background is not None:
            wanted, (sized, left) = rest.check_size(size, given=tied), rest.tilted_for(size, tied)
            log_tilt = sized.part.log_tilt
            log_mass = left.log_mass(tied) - size * log_tilt
            # A GPU draws T without regard to its size.
            found = disjoint_parts(rest, tied, size, log_tilt) if device in (None, "cpu") else None
            if found is not None and -np.inf < found[0] < log_mass:
                log_mass, left, n_tied = found
                alone = SizedAlone.prepare(rest.odds, size - len(tied) - np.arange(len(n_tied)))
        of_ties = size if rest.background is None else None
        ties = Exact.prepare(left.low_rank, size=of_ties, given=tied, memory=memory, device=device)
        expected = float(np.exp(log_mass - total))
        return cls(
            given, ties, alone or Alone.prepare(left.odds), wanted, n_tied, expected, kernel_bytes(ties.kernel, law)
        )

    @property
    def n_bytes(self) -> int:
        """Bytes of all that it keeps."""
        return n_bytes_of((self.alone, self.ties, self.ties.ladder.memory)) + self.n_kernel

    @property
    def route(self) -> str:
        """How T, the part of a sample that costs most, is drawn."""
        return self.ties.route

    def __getitem__(self, c: int) -> SizedUnion:
        return self

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return S, as items of the catalogue, or None. Only where the numbers of items allow it T is drawn, which costs most."""
        if isinstance(self.alone, SizedAlone):
            assert self.size is not None
            assert self.n_tied is not None
            together = self.ties.draw_rows(rng, look_up_cdf(self.n_tied, rng.random()))
            apart = self.alone.draw_sized(rng, self.size - len(together))
        elif self.size is None:
            together, apart = self.ties.draw(rng).rows, self.alone.draw(rng)
        else:
            m, apart = self.ties.draw_count(rng), self.alone.draw(rng)
            n_together = m + len(self.ties.given)
            if max(n_together, len(apart)) > self.size or n_together + len(apart) < self.size:
                return None
            together = self.ties.draw_rows(rng, m)
        rows = np.union1d(together, apart)
        return self.ties.kernel.catalogue_ids(rows) if self.size in (None, len(rows)) else None


def disjoint_parts(
    kernel: LowRankKernel, tied: IntArray, size: int, start: float
) -> tuple[float, LowRankKernel, FloatArray]:
    """Return the log of all weights e_m(X W Xᵀ) e_{k−m}(δ), the kernel X W Xᵀ, and the cumulative weights of m.

    They are computed under ρL, with ρ such that T and R together have about as many items as wanted; the search begins at ``start``.
    """
    low_rank = LowRankKernel(kernel.X, kernel.W, support=kernel.support, magnitudes=kernel._magnitudes)
    q, left = low_rank.q_rows(low_rank.rows_of(tied)), size - len(tied)

    def moments(log_tilt: float) -> tuple[float, float]:
        odds = np.exp(log_tilt) * kernel.odds
        Z = tilted_law(low_rank.coordinates, float(np.exp(log_tilt)), q).marginal
        mean, variance = np.trace(Z) + (odds / (1 + odds)).sum(), (odds / (1 + odds) ** 2).sum()
        return float(mean), float(variance + np.trace(Z) - np.einsum("ij,ji->", Z, Z))

    log_tilt = solve_tilt(moments, left, start, deviations=0.3)
    odds = np.exp(log_tilt) * kernel.odds
    together = tilted_law(low_rank.coordinates, float(np.exp(log_tilt)), q)
    apart = independent_sizes(odds)
    weights = np.array([chance * apart[left - m] for m, chance in enumerate(together.law[: left + 1])])
    with np.errstate(divide="ignore"):
        log_mass = float(np.log(weights.sum()) + together.log_weight + np.log1p(odds).sum() - size * log_tilt)
    return log_mass, low_rank, np.cumsum(weights)


def independent_sizes(odds: FloatArray) -> FloatArray:
    """Return the distribution of the number of items that come by themselves with these odds."""
    coins = Coins(odds / (1 + odds), np.empty((len(odds), 0)))
    return SizeLaw.prepare(np.empty((0, 0)), lambda: [coins], len(odds)).distribution()


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
