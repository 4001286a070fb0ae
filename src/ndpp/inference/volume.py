"""Greedy sets of any size for log det(δI + F_S F_Sᵀ), exact without looking at every row for every item.

With a ridge δ the gain of item a is log(1 + g_a / δ), g_a = f_aᵀ W f_a and W = (I + F_SᵀF_S / δ)⁻¹, a d × d matrix however many items there
are. Adding item y takes u uᵀ from W, u = W f_y / √(δ + g_y), and (f_aᵀu)² from every g_a: gains never grow. A *round* therefore looks at
all rows once, keeps the items with the largest gains, the pool, and adds items from the pool for as long as its best gain is at least
that of every item outside when the round began. These are the items of the plain greedy algorithm. The pool grows or shrinks until rounds
and additions cost about the same. [Minoux, 1978; Chen et al., NeurIPS 2018]

Arrays are of NumPy, or tensors of torch on a GPU: the functions used have the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp.errors import InvalidInputError
from ndpp.inference.runs import TIE
from ndpp.linalg.operations import Array
from ndpp.rows import Rows

BLOCK_ENTRIES = 2**22
"""Entries of F that are looked at together: 32 MB in double precision."""
LEAST_POOL = 4096
"""Items of the first pool; it never has fewer than a quarter of them."""
ROUND = 4
"""Items added in one round, per column: gains and W are then computed afresh, which keeps rounding from adding up."""
MATRIX_SPEED = 8
"""How much faster products with a matrix are than with a vector, per number."""
PASSED = 4
"""In one pass, this many times as many items as are wanted are chosen from all parts together."""


class Features(NamedTuple):
    """Rows of F in memory, on a device or on disk, and the factors they are multiplied by."""

    X: Array
    factors: FloatArray
    xp: ModuleType
    device: Any = None

    def double(self, values: Array) -> Array:
        """Return an array in double precision, where the work is done."""
        if self.xp is np:
            return np.asarray(values, np.float64)
        return self.xp.asarray(values, dtype=self.xp.float64, device=self.device)

    def parts(self, size: int) -> Iterator[tuple[slice, Array]]:
        """Yield all rows without their factors, in parts of at least ``size``, but for the last."""
        n = len(self.factors)
        if not isinstance(self.X, Rows):
            yield from ((slice(i, min(i + size, n)), self.double(self.X[i : i + size])) for i in range(0, n, size))
            return
        held, start = list[Array](), 0
        for where, block in self.X.stream():
            for first in range(0, len(block), size):
                held.append(block[first : first + size])
                stop = where.start + min(first + size, len(block))
                if stop - start >= size or stop == n:
                    yield slice(start, stop), self.double(np.concatenate(held))
                    held, start = [], stop

    def rows(self, ids: IntArray) -> Array:
        """Return some rows, multiplied by their factors."""
        if isinstance(self.X, Rows):
            found = self.double(self.X.take(ids))
        else:
            found = self.double(self.X[ids if self.xp is np else self.xp.asarray(ids, device=self.device)])
        return found * self.double(self.factors[ids])[:, None]

    def squares(self, M: Array = None) -> FloatArray:
        """Return ‖f_aᵀM‖² of every row; without M, ‖f_a‖², which must be finite."""
        out = np.empty(len(self.factors))
        with np.errstate(over="ignore", invalid="ignore"):
            for where, block in self.parts(max(1, BLOCK_ENTRIES // self.X.shape[1])):
                part = block if M is None else block @ M
                found = self.xp.linalg.vecdot(part, part)
                out[where] = found if self.xp is np else found.cpu().numpy()
            out *= self.factors**2
        if M is None and not np.isfinite(out).all():
            bad = int(np.argmin(np.isfinite(out)))
            raise InvalidInputError(
                f"must be finite, and their squares too; those of item {bad} are not. Drop or repair such rows",
                argument="rows of F",
            )
        return out


class Quotas(NamedTuple):
    """The group of each item, −1 for none, and between how many and how many items of each group are wanted."""

    groups: IntArray
    least: IntArray
    most: IntArray

    def open(self, counts: IntArray, left: int) -> BoolArray:
        """Return which groups may come next, the last for items without one, given how many there are and how many items are to come."""
        missing = np.maximum(self.least - counts, 0)
        return np.append(missing > 0, False) if missing.sum() >= left else np.append(counts < self.most, True)

    def counts(self, items: Sequence[int]) -> IntArray:
        """Return how many items there are of each group."""
        groups = self.groups[np.array(items, np.int64)]
        return np.bincount(groups[groups >= 0], minlength=len(self.least))


class Volume:
    """A greedy run: the ``items`` so far, in order, and ``values``, the factors δ + g by which the determinant grew with each."""

    def __init__(
        self,
        F: Features,
        ridge: float,
        squares: FloatArray,
        quotas: Quotas | None = None,
        items: Sequence[int] = (),
    ) -> None:
        self.F, self.ridge, self.quotas, self.xp = F, ridge, quotas, F.xp
        self.n, self.d = len(squares), int(F.X.shape[1])
        self.items, self.values, self.size, self.age = list(items), list[float](), LEAST_POOL, 0
        self.longest = max(ROUND * self.d, LEAST_POOL // 64)
        self.gains = squares.copy()
        self.W = self._afresh() if len(self.items) else F.double(np.eye(self.d))

    def extend(self, count: int, after: Callable[[Volume], None] | None = None) -> None:
        """Add ``count`` items, and call ``after`` at the end of each round."""
        end = len(self.items) + count
        while len(self.items) < end:
            vectors = self._round(end)
            self.age += len(vectors)
            if len(self.items) < end:
                if self.age >= self.longest or len(vectors) > self.d // 2:
                    self.W = self._afresh()
                else:
                    self.gains -= self.F.squares(self.xp.stack(vectors).T)
                # The pool grows if additions were cheaper than looking at all rows, and shrinks if they were much dearer.
                looks, cost = self.n * min(len(vectors), self.d) // MATRIX_SPEED, len(vectors) * min(self.size, self.n)
                if cost < looks:
                    self.size = min(2 * self.size, self.n)
                elif cost > 8 * looks:
                    self.size = max(self.size // 2, LEAST_POOL // 4)
            if after is not None:
                after(self)

    def _afresh(self) -> Array:
        """Compute all gains from the items, and return W."""
        xp, F, G = self.xp, self.F, self.F.double(np.zeros((self.d, self.d)))
        step = max(1, BLOCK_ENTRIES // self.d)
        for start in range(0, len(self.items), step):
            rows = F.rows(np.array(self.items[start : start + step], np.int64))
            G += rows.T @ rows
        values, U = xp.linalg.eigh(G)
        with np.errstate(over="ignore"):
            H = U * (1 + xp.clip(values, 0.0, None) / self.ridge) ** -0.5  # W = H Hᵀ
        self.gains, self.age = F.squares(H), 0
        self.gains[self.items] = -np.inf
        return H @ H.T

    def _round(self, end: int) -> list[Array]:
        """Add items from a pool for as long as they are certain to be the best; return the vectors u."""
        xp, F, ridge, quotas, W = self.xp, self.F, self.ridge, self.quotas, self.W
        gains, vectors = self.gains, list[Array]()
        if quotas is not None:
            counts = quotas.counts(self.items)
            is_open = quotas.open(counts, end - len(self.items))
            gains = np.where(is_open[quotas.groups], gains, -np.inf)
        ids, outside = pool(gains, self.size)
        P, g = F.rows(ids), F.double(gains[ids])
        while len(self.items) < end and len(vectors) < max(self.longest - self.age, 1):
            top = float(g.max())
            if top == -np.inf or (vectors and top < outside - TIE * max(outside, 0.0)):
                break
            j = int(xp.argmax((g >= top - TIE * max(top, 0.0)) * 1))
            u = W @ P[j]
            p = ridge + max(float(P[j] @ u), 0.0)
            u = u / p**0.5
            W -= xp.outer(u, u)
            g -= (P @ u) ** 2
            g[j] = -np.inf
            self.items.append(int(ids[j]))
            self.values.append(p)
            vectors.append(u)
            if quotas is not None:
                counts += np.arange(len(counts)) == quotas.groups[self.items[-1]]
                still = quotas.open(counts, end - len(self.items))
                if (still != is_open).any():
                    g[xp.asarray(~still[quotas.groups[ids]], device=F.device)] = -np.inf
                    is_open = still
        self.gains[self.items] = -np.inf
        return vectors


def pool(gains: FloatArray, size: int) -> tuple[IntArray, float]:
    """Return the ids of the ``size`` largest gains in order of ids, smaller ids first if equal, and the largest gain of the rest."""
    if size >= len(gains):
        return np.arange(len(gains)), -np.inf
    least = np.partition(gains, len(gains) - size)[len(gains) - size]
    above = np.flatnonzero(gains > least)
    equal = np.flatnonzero(gains == least)
    room = size - len(above)
    ids = np.sort(np.concatenate([above, equal[:room]]))
    if len(equal) > room:
        return ids, float(least)
    return ids, float(gains[gains < least].max(initial=-np.inf))


def default_ridge(squares: FloatArray, d: int) -> float:
    """Return the mean of the squared entries of F; 1 if all are zero."""
    return float(squares.mean()) / d or 1.0


def one_pass(
    F: Features, k: int, ridge: float | None, size: int, given: Sequence[int], advance: Callable[[int], None]
) -> IntArray:
    """Return ``k`` items that are chosen from the greedy items of parts of about ``size`` rows, each of which is looked at once.

    The items of a part stand for ``PASSED`` times the share of the part in the final set, and the ridge of its run is as much smaller.
    Without a ridge, it follows from the first part.
    """
    n, d = len(F.factors), int(F.X.shape[1])
    total, ids, rows = k + len(given), [np.array(given, np.int64)], []
    for where, X in F.parts(size):
        part = F._replace(X=X, factors=F.factors[where])
        squares = part.squares()
        ridge = default_ridge(squares, d) if ridge is None else ridge
        share = min(1.0, PASSED * len(squares) / n)
        run = Volume(part, ridge * share, squares)
        run.extend(min(len(squares), int(np.ceil(total * share))))
        own = np.array(run.items, np.int64)
        own = own[~np.isin(own + where.start, given)]
        ids.append(own + where.start)
        rows.append(part.rows(own))
    if given:
        rows.insert(0, F.rows(ids[0]))
    known = np.concatenate(ids)
    union = F._replace(X=F.xp.concatenate(rows), factors=np.ones(len(known)))
    final = Volume(union, float(ridge or 1.0), union.squares(), items=range(len(given)))
    final.extend(k)
    advance(k)
    return known[final.items[len(given) :]]
