"""Draw an item by its leverage: propose from one fixed distribution, accept according to M.

The leverages ℓ_a = ‖q_a‖² sum to r. If 0 ⪯ M ⪯ c·I then q_aᵀ M q_a ≤ c ℓ_a. Proposing a with probability ℓ_a / r and accepting it
with probability q_aᵀ M q_a / (c ℓ_a) is therefore exact. The acceptance rate is tr(M) / (c r), whatever n and the kernel.

Cost: O(n) to prepare a Walker–Vose alias table [Vose, IEEE Trans. Softw. Eng. 1991]; O(1) to propose an item, O(r²) to accept or
reject it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from ndpp._compiled import interpreted, interruptible, njit
from ndpp._stop import look
from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp._validation import check_count, clip_probabilities, frozen
from ndpp.errors import BudgetExceededError, InvalidInputError
from ndpp.items.base import check_total
from ndpp.laws.kernel import LowRankKernel

BLOCK = 2048
"""Most proposals made at once. It affects speed only."""
MAX_INTERPRETED_ITEMS, MAX_INTERPRETED_TABLES = 4096, 8
"""The first tables of a process, up to this many of up to this many items, are built without compiled code, in milliseconds each."""
_built = itertools.count()
ACCEPTANCE = "acceptance of an item proposed by its leverage"


class ItemDraw(NamedTuple):
    """A row of the kernel's support, and how many rows were proposed to obtain it."""

    row: int
    proposals: int


class TableArrays(NamedTuple):
    """What compiled code needs of a :class:`LeverageTable`, which explains it."""

    threshold: FloatArray
    alias: AnyArray
    leverage: FloatArray
    total: float
    budget: int


@dataclass(frozen=True, eq=False)
class LeverageTable:
    """An alias table over the leverages of a kernel's items.

    Attributes
    ----------
    leverage : (m,) array
        ℓ_a, proportional to the probability of proposing row a.
    threshold, alias : (m,) arrays
        Cell i returns row i with probability ``threshold[i]`` and row ``alias[i]`` otherwise.
    total : float
        Σℓ, the rank of the kernel up to rounding.
    budget : int
        Maximum number of proposals per item.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.array([[2.0], [0.0], [1.0]]), np.eye(1))
    >>> table = LeverageTable.prepare(kernel)
    >>> table.draw(np.random.default_rng(0), np.eye(1))
    0
    """

    kernel: LowRankKernel
    leverage: FloatArray
    threshold: FloatArray
    alias: AnyArray  # int32 if that suffices
    total: float
    budget: int

    @classmethod
    def prepare(
        cls, kernel: LowRankKernel, *, budget: int = 1_000_000, leverage: FloatArray | None = None
    ) -> LeverageTable:
        """Build the alias table, in O(n), for other leverages if rows have other coordinates. One of rank zero proposes nothing."""
        leverage = frozen(np.asarray(kernel.coordinates.leverage if leverage is None else leverage, dtype=np.float64))
        with interruptible():
            threshold, alias = map(frozen, alias_table(leverage if leverage.any() else np.ones(leverage.size)))
        return cls(kernel, leverage, threshold, alias, float(leverage.sum()), check_count(budget, "budget", least=1))

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Unpickled arrays would be writeable, and code would be compiled again for them.
        vars(self).update(
            {name: frozen(part) if isinstance(part, np.ndarray) else part for name, part in state.items()}
        )

    @property
    def n_bytes(self) -> int:
        """Bytes in addition to those of the kernel, which has most leverages anyway."""
        known = self.kernel.coordinates.leverage if "coordinates" in vars(self.kernel) else None
        own = 0 if known is not None and np.may_share_memory(known, self.leverage) else self.leverage.nbytes
        return own + self.threshold.nbytes + self.alias.nbytes

    @property
    def arrays(self) -> TableArrays:
        """What compiled code needs."""
        return TableArrays(self.threshold, self.alias, self.leverage, self.total, self.budget)

    def draw(self, rng: Generator, M: FloatArray) -> int:
        """Draw row a with probability ∝ q_aᵀ M q_a, where M ⪯ I."""
        return self.draw_counted(rng, M).row

    def draw_counted(self, rng: Generator, M: FloatArray, *, bound: float = 1.0) -> ItemDraw:
        """Draw a row as :meth:`draw` does, where ``M ⪯ bound · I``, and count the proposals.

        Raises
        ------
        PrecisionError
            An acceptance probability is outside [0, 1]: ``M ⪯ bound · I`` or ``0 ⪯ M`` does not hold.
        BudgetExceededError
            ``budget`` proposals were not enough; ``count`` holds their number.
        """
        rank = self.kernel.rank
        if M.shape != (rank, rank):
            raise InvalidInputError(f"M must have shape ({rank}, {rank}), the rank of the kernel; it has {M.shape}")
        if not bound > 0:
            raise InvalidInputError(f"bound must be positive, with M ⪯ bound · I; got {bound}")
        total = float(np.trace(M))
        check_total(total)
        expected = bound * self.total / total
        judge = partial(self._accepted, np.ascontiguousarray(M), bound)
        return self.draw_by(rng, proposals_at_once(expected, self.budget), judge, expected)

    def draw_by(
        self, rng: Generator, at_once: int, judge: Callable[[IntArray, FloatArray], int], expected: float
    ) -> ItemDraw:
        """Propose rows by their leverage, ``at_once`` together, until one is accepted.

        ``judge(rows, uniforms)`` returns the place of the first row that is accepted, −1 if none is; ``expected`` proposals are needed on
        average.
        """
        for done in range(0, self.budget, at_once):
            look()
            uniforms = rng.random((3, min(at_once, self.budget - done)))
            rows = look_up(self.threshold, self.alias, uniforms)
            place = judge(rows, uniforms[2])
            if place >= 0:
                return ItemDraw(int(rows[place]), done + place + 1)
        raise self.over_budget(expected)

    def over_budget(self, expected: float, proposals: int | None = None) -> BudgetExceededError:
        """Return the error for an item that needs more proposals than the budget has, after ``proposals`` for it and others."""
        return BudgetExceededError(
            f"{self.budget} items were proposed by their leverage and rejected; {expected:.3g} proposals are needed on average. "
            "Pass a tighter bound, or raise the budget of the LeverageTable.",
            count=self.budget if proposals is None else proposals,
        )

    def _accepted(self, M: FloatArray, bound: float, rows: IntArray, uniforms: FloatArray) -> int:
        """Return the place of the first row that is accepted, −1 if none is."""
        Q, places = self.kernel.coordinates.Q, rows
        if Q is None:
            Q, places = self.kernel.q_rows(rows), np.arange(len(rows))
        place, low, high = accept(Q, places, M, uniforms, bound * self.leverage[rows])
        if not (low >= 0 and high <= 1):
            clip_probabilities(np.array([low, high]), ACCEPTANCE)
        return place


def alias_table(weights: FloatArray) -> tuple[FloatArray, AnyArray]:
    """Return the thresholds and aliases of the distribution ∝ ``weights``.

    Examples
    --------
    >>> alias_table(np.array([1.0, 3.0]))
    (array([0.5, 1. ]), array([1, 1], dtype=int32))
    """
    total = float(weights.sum())
    check_total(total)
    threshold = weights * (weights.size / total)
    # With 10⁸ items every byte counts.
    alias = np.arange(weights.size, dtype=np.int32 if weights.size < 2**31 else np.int64)
    is_little = len(alias) <= MAX_INTERPRETED_ITEMS and next(_built) < MAX_INTERPRETED_TABLES
    (interpreted(pair_cells) if is_little else pair_cells)(threshold, alias)
    return threshold, alias


@njit(nogil=False)  # releasing the GIL costs more than this loop
def look_up(threshold: FloatArray, alias: AnyArray, uniforms: FloatArray) -> IntArray:
    """Return a row per column of ``uniforms``: the first entry chooses a cell, the second between its row and its alias."""
    rows = np.empty(uniforms.shape[1], np.int64)
    for i in range(rows.size):
        rows[i] = look_up_one(threshold, alias, uniforms[0, i], uniforms[1, i])
    return rows


@njit()
def look_up_one(threshold: FloatArray, alias: AnyArray, first: float, second: float) -> int:
    """Return a row: the first number chooses a cell, the second between its row and its alias."""
    cell = min(int(first * alias.size), alias.size - 1)  # the product may round up to alias.size
    return cell if second < threshold[cell] else int(alias[cell])


@njit()
def proposals_at_once(expected: float, most: int) -> int:
    """Return how many rows to propose if ``expected`` proposals are needed on average; at most ``most``, the rest of the budget."""
    # tr M is often an integer; rounding keeps its last digits from deciding how many random numbers are used.
    return int(min(max(round(1.1 * expected, 4) + 8, 16), BLOCK, most))


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def accept(
    Q: FloatArray, places: IntArray, M: FloatArray, uniforms: FloatArray, ceiling: FloatArray
) -> tuple[int, float, float]:
    """Return the first i with uniforms[i] < qᵀMq / ceiling[i], q = Q[places[i]], −1 if there is none, and the range of these ratios.

    Proposals are judged in small groups. A ratio that is not finite ends the search and is the range.
    """
    n, r = places.size, Q.shape[1]
    step = 8 if n < 24 else 16 if n < 64 else 32
    low, high = 0.5, 0.5
    q, product = np.empty((step, r)), np.empty((step, r))
    for start in range(0, n, step):
        stop = min(start + step, n)
        for i in range(start, stop):
            for b in range(r):
                q[i - start, b] = Q[places[i], b]
        np.dot(q[: stop - start], M, product[: stop - start])
        for i in range(start, stop):
            chance = 0.0
            for b in range(r):
                chance += q[i - start, b] * product[i - start, b]
            chance /= ceiling[i]
            if not math.isfinite(chance):
                return -1, chance, chance
            low, high = min(low, chance), max(high, chance)
            if uniforms[i] < chance:
                return i, low, high
    return -1, low, high


@njit()
def pair_cells(threshold: FloatArray, alias: AnyArray) -> None:
    """Fill each cell that holds less than one from a cell that holds more, in place."""
    n = threshold.size
    cells = np.empty(n, alias.dtype)  # those below one from the front, the others from the end
    n_small = n_large = 0
    fullest = 0
    for i in range(n):
        if threshold[i] > threshold[fullest]:
            fullest = i
        if threshold[i] < 1.0:
            cells[n_small] = i
            n_small += 1
        else:
            n_large += 1
            cells[n - n_large] = i
    while n_small and n_large:
        n_small -= 1
        i, j = cells[n_small], cells[n - n_large]
        alias[i] = j
        threshold[j] -= 1.0 - threshold[i]
        if threshold[j] < 1.0:
            n_large -= 1
            cells[n_small] = j
            n_small += 1
    for j in cells[n - n_large :]:
        threshold[j] = 1.0
    # Rounding may leave cells unpaired. Their remainder goes to a likely item, so that an item of weight zero is never drawn.
    for i in cells[:n_small]:
        alias[i] = fullest


# -- proposals of compiled loops: a small generator whose state is an array, seeded by the stream of the sample ---------------

_U11, _U17, _U19, _U23, _U32, _U41, _U45 = (np.uint64(shift) for shift in (11, 17, 19, 23, 32, 41, 45))


def seed_words(rng: np.random.Generator) -> AnyArray:
    """Return the state of a generator for :func:`uniform`, four words."""
    words = rng.bit_generator.random_raw(8)
    return words[:4] ^ (words[4:] << _U32)  # some generators have words of 32 bits


@njit()
def uniform(state: AnyArray) -> float:
    """Return the next number in [0, 1) of the generator xoshiro256++ [Blackman & Vigna, 2021], whose state is four words."""
    a, b, c, d = state[0], state[1], state[2], state[3]
    total = a + d
    word = ((total << _U23) | (total >> _U41)) + a
    c ^= a
    d ^= b
    state[1] = b ^ c
    state[0] = a ^ d
    state[2] = c ^ (b << _U17)
    state[3] = (d << _U45) | (d >> _U19)
    return float(word >> _U11) * 2.0**-53


@njit()
def propose(seed: AnyArray, table: TableArrays, n: int) -> tuple[IntArray, FloatArray]:
    """Return the next n candidates, by their leverage, and a uniform for the acceptance of each."""
    candidates, uniforms = np.empty(n, np.int64), np.empty(n)
    for c in range(n):
        candidates[c] = look_up_one(table.threshold, table.alias, uniform(seed), uniform(seed))
        uniforms[c] = uniform(seed)
    return candidates, uniforms
