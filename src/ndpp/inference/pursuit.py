"""Gains of greedy runs straight from the rows of X, for one kernel or many: no factorisation, and one product with X per item.

The gain of item a after Y is x_aᵀ W_Y x_a. Adding item y with pivot p takes a matrix of rank one from W_Y,

    W_{Y∪y} = W_Y − u vᵀ,        u = W_Y x_y / √p,    v = W_Yᵀ x_y / √p,

and (x_aᵀu)(x_aᵀv) from every gain. For a symmetric W, u = v: this is the fast greedy algorithm of Chen, Zhang and Zhou (NeurIPS 2018), its
Cholesky factor kept in the d columns of X rather than in n items, so that an item costs O(n d). The gains of a symmetric kernel never grow,
and :class:`Lazy` updates only those that may be the best.

Each gain carries an estimate of its rounding error. A step is *sure* if all of them are below ``TIE`` times the best gain; other steps are
left to the careful routines of :mod:`ndpp.inference.greedy`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ndpp._types import AnyArray, BoolArray
from ndpp.linalg.operations import Array
from ndpp.linalg.scaling import EPS, rounding_of

TIE = 2.0**-31
"""A gain that is below the best by at most this part of it counts as equal, and the smallest id is taken."""
SMALLEST, LARGEST = 1e-290, 1e290
"""Range of best gains that leaves room for products."""
BLOCK = 2**17
"""Entries of X that are worked on at a time, so that they stay in cache."""
CHUNK = 64
"""How many of the items that may be the best are updated to begin with."""
GATHER = 8
"""What it costs to fetch a row, in products with a row."""
LAZY = 2**20
"""With more entries of X than this, gains are updated where they may matter, and not all of them."""


BY_ITEMS = 2048
"""Number of items up to which the Cholesky factor is kept by items, rather than in the columns of X."""


class Inner(NamedTuple):
    """W in double precision, None for the identity, its magnitudes, and whether it is symmetric."""

    W: Array = None
    magnitudes: Array = None
    is_symmetric: bool = True


def pursuit(
    X: AnyArray | None, open: BoolArray, size: int, inner: Inner, *, window: int | None = None, lazy: bool = True
) -> Pursuit | Lazy:
    """Return the run of one kernel with these rows, before any item is added. None: rows of the identity, so that W is L."""
    with np.errstate(all="ignore"):  # what is not sure is computed again
        if lazy and window is None and inner.is_symmetric:
            return Lazy(X, open, size, inner)
        X = np.eye(len(open)) if X is None else X
        return Pursuit(np, np.asarray(X, np.float64)[None], open[None], inner, window=window)


def extend(run: Pursuit | Lazy, count: int) -> tuple[list[Any], list[Any]]:
    """Add up to so many items, as long as a run is sure; return them and their gains."""
    picks: list[Any] = []
    gains: list[Any] = []
    with np.errstate(all="ignore"):  # what is not sure is computed again
        if isinstance(run, Lazy) and run.by_items:
            return run.extend(count)
        while len(picks) < count:
            best, gain = run.best()
            if not any(run.sure):
                break
            picks.append(best)
            gains.append(gain)
            if len(picks) < count:
                run.add(best)
    return picks, gains


class Pursuit:
    """Gains of b greedy runs side by side, in NumPy or torch: ``X`` (b, n, d) in double precision, and one ``W``, None for the identity.

    ``open`` are the items that may be added, ``window`` is how many items in a row are judged together, and ``sure`` tells which runs have
    been sure so far.
    """

    def __init__(
        self, xp: Any, X: Array, open: Array, inner: Inner | None = None, *, window: int | None = None
    ) -> None:
        self.xp, self.X, self.open, self.window = xp, X, open, window
        self.W, magnitudes, self.is_symmetric = inner or Inner()
        W = self.W
        self.gains = self.own = xp.einsum("bij,bij->bi", X if W is None else X @ W, X)
        self.scale = self.own if magnitudes is None else (X * X) @ magnitudes
        self.noise = rounding_of(X.shape[-1]) * self.scale
        self.sure, self.each = open.any(-1) | True, (open.any(-1) | True).nonzero()
        self.each = self.each[0] if isinstance(self.each, tuple) else self.each[:, 0]
        self.left: list[Array] = []  # u of each item added; in a window, its column of L
        self.right: list[Array] = []
        self.picks: list[Array] = []

    def best(self) -> tuple[Array, Array]:
        """Return the best item of each run and its gain."""
        gains = self.xp.where(self.open, self.gains, -np.inf)
        top = self.xp.amax(gains, -1)
        self.sure &= (top > SMALLEST) & (top < LARGEST) & (self.xp.amax(self.noise * self.open, -1) <= TIE * top)
        picks = first(gains >= (top * (1 - TIE))[:, None])
        return picks, gains[self.each, picks]

    def add(self, picks: Array) -> None:
        """Add an item to each run."""
        at = self.each, picks
        x, doubt = self.X[at], self.noise[at]
        u = x if self.W is None else x @ self.W.T
        v = x if self.W is None else x @ self.W
        self.open[at] = False
        if self.window is not None:
            self.sure &= (self.gains[at] > SMALLEST) & (doubt <= TIE * self.gains[at])
            return self._slide(picks, u, v, self.window - 1)
        if self.left:
            left = self.xp.stack(self.left, 1)
            right = left if self.is_symmetric else self.xp.stack(self.right, 1)
            u = u - ((right @ x[:, :, None]).mT @ left)[:, 0]
            v = v - ((left @ x[:, :, None]).mT @ right)[:, 0] if not self.is_symmetric else u
        pivot = (x * u).sum(-1)
        self.sure &= (pivot > SMALLEST) & (doubt <= TIE * pivot)
        root = pivot[:, None] ** 0.5
        self.left.append(u / root)
        change = self._products(self.left[-1])
        if self.is_symmetric:
            change = change * change
        else:
            self.right.append(v / root)
            change = change * self._products(self.right[-1])
        self.gains = self.gains - change
        self.noise = self.noise + (4 * EPS + doubt / pivot)[:, None] * abs(change)

    def _products(self, vectors: Array) -> Array:
        return (self.X @ vectors[:, :, None])[:, :, 0]

    def _slide(self, picks: Array, u: Array, v: Array, most: int) -> None:
        """Compute gains after the last items of the window alone: L_aa − L_aY L_Y⁻¹ L_Ya."""
        self.picks.append(picks)
        self.left.append(self._products(u))
        self.right.append(self.left[-1] if self.is_symmetric else self._products(v))
        for kept in (self.picks, self.left, self.right):
            del kept[: max(0, len(kept) - most)]
        if not self.picks:  # a window of one item
            return
        left, right, chosen = (self.xp.stack(kept, 1) for kept in (self.left, self.right, self.picks))
        at = self.each[:, None], chosen
        try:
            weights = self.xp.linalg.solve(self.xp.stack([column[at] for column in self.left], 2), right)
        except self.xp.linalg.LinAlgError:
            self.sure &= False
            return
        self.gains = self.own - (left * weights).sum(1)
        roots = self.scale**0.5
        reach = roots + (abs(weights) * roots[at][:, :, None]).sum(1)
        self.noise = rounding_of(self.X.shape[-1]) * reach * reach


def first(mask: Array) -> Array:
    """Return the first true entry of each row."""
    if isinstance(mask, np.ndarray):
        return mask.argmax(-1)
    return (mask.cumsum(-1) == 0).sum(-1).clip(max=mask.shape[-1] - 1)  # torch's argmax returns any of several


class Lazy:
    """Gains of one greedy run of a symmetric kernel: of X (n, d), an array of either precision, or None, the identity: W is L then.

    With few items, each addition updates all gains. With many, gains that are not up to date bound those that are. All are those after
    ``base`` items or later, and some are updated from there by one product with the vectors of the items since; where that would cost
    more than updating all, all are. O(n d k) at worst.

    Up to ``BY_ITEMS`` items, the products x_aᵀu_j of all items are kept rather than u_j: fewer and smaller steps.

    A gain is L_aa less squares (x_aᵀu_j)², each with the relative error ``weights[j]`` of its pivot.
    """

    def __init__(self, X: AnyArray | None, open: BoolArray, size: int, inner: Inner) -> None:
        self.is_lazy, self.open, self.base, self.count, self.work = X is not None and X.size > LAZY, open, 0, 0, 0
        (W, magnitudes, _), self.W, n = inner, inner.W, len(open)
        self.X: Any = X if self.is_lazy or X is None else np.asarray(X, np.float64)
        self.own = np.empty(n) if X is not None else W.diagonal()
        scale, d = self.own if magnitudes is None else np.empty(n), n if X is None else X.shape[1]
        if X is None:
            scale = magnitudes
        for block in self._blocks() if X is not None else ():
            x: Any = self.X[block].astype(np.float64, copy=False)  # type: ignore[index]
            self.own[block] = np.einsum("ij,ij->i", x if W is None else x.dot(W), x)
            if magnitudes is not None:
                scale[block] = (x * x).dot(magnitudes)
        self.rounding = rounding_of(d)
        self.noise, self.gains, self.at_base = self.rounding * scale, self.own.copy(), self.own
        self.gains[~open] = -np.inf
        self.largest, self.worst = float(scale.max()), self.rounding
        self.by_items = X is None or (not self.is_lazy and n <= BY_ITEMS)
        self.vectors, self.weights, self.is_sure = np.empty((size, n if self.by_items else d)), np.empty(size), True

    @property
    def sure(self) -> list[bool]:
        """Whether the run has been sure so far."""
        return [self.is_sure]

    def best(self) -> tuple[list[int], list[float]]:
        """Return the best item and its gain."""
        if self.base < self.count:
            self._find()
        gains = self.gains
        top = float(gains[gains.argmax()])  # less overhead than max
        if not (SMALLEST < top < LARGEST and self.worst * self.largest <= TIE * top):
            self.is_sure = False
        pick = int((gains >= top * (1 - TIE)).argmax())
        return [pick], [gains[pick]]

    def extend(self, count: int) -> tuple[list[Any], list[Any]]:
        """Add up to so many items by their products, as :meth:`best` and :meth:`add` do, with less overhead."""
        gains, vectors, weights, noise, (X, W) = self.gains, self.vectors, self.weights, self.noise, (self.X, self.W)
        space, picks, found, j = np.empty(len(gains)), list[Any](), list[Any](), self.count
        while len(picks) < count:
            top = float(gains[gains.argmax()])
            if not (SMALLEST < top < LARGEST and self.worst * self.largest <= TIE * top):
                self.is_sure = False
                break
            row = int((gains >= top * (1 - TIE)).argmax())
            picks.append([row])
            found.append([float(gains[row])])
            if len(picks) == count:
                break
            u, doubt = vectors[j], float(noise[row])
            if X is None:
                u[:] = W[row]
            else:
                X.dot(X[row] if W is None else W.dot(X[row]), out=u)
            if j:
                along = vectors[:j, row]
                u -= along.dot(vectors[:j], out=space)
                doubt += float((along * along).dot(weights[:j]))
            pivot = float(u[row])
            if not (pivot > SMALLEST and doubt <= TIE * pivot):
                self.is_sure = False
                break
            u /= pivot**0.5
            gains -= np.multiply(u, u, out=space)
            gains[row] = -np.inf
            weights[j] = weight = 4 * EPS + doubt / pivot
            self.worst, j = max(self.worst, self.rounding + weight), j + 1
        self.base = self.count = j
        return picks, found

    def add(self, picks: Any) -> None:
        """Add an item."""
        row, j, doubt = int(picks[0]), self.count, float(self.noise[int(picks[0])])
        x: Any = None if self.X is None else self.X[row].astype(np.float64, copy=False)
        u = self.W[row] if x is None else x if self.W is None else self.W.dot(x)
        if self.by_items and x is not None:
            u = self.X.dot(u)
        if j:
            before = self.vectors[:j]
            along = before[:, row] if self.by_items else before.dot(x)
            u = u - along.dot(before)
            doubt += float((along * along).dot(self.weights[:j]))
        pivot = float(u[row] if self.by_items else x.dot(u))
        if not (pivot > SMALLEST and doubt <= TIE * pivot):
            self.is_sure = False
            return
        self.vectors[j] = u = u / pivot**0.5
        self.weights[j] = weight = 4 * EPS + doubt / pivot
        self.worst, self.count = max(self.worst, self.rounding + weight), j + 1
        if not self.is_lazy:
            change, self.base = u if self.by_items else self.X.dot(u), self.count
            self.gains -= change * change
        self.open[row], self.gains[row] = False, -np.inf

    def _find(self) -> None:
        """Bring gains up to date until the best is among them."""
        n, since, top, rows = len(self.X), self.count - self.base, -np.inf, np.argmax(self.gains, keepdims=True)
        stale = self.open.copy()
        for chunk in (CHUNK, 8 * CHUNK, n, n):
            self._update(rows)
            self.work += len(rows) * (since + GATHER)
            stale[rows] = False
            top = max(top, self.gains[rows].max())
            rows = np.flatnonzero(stale & (self.gains >= top * (1 - 2 * TIE)))
            if not len(rows):
                return
            if chunk > CHUNK and self.work + len(rows) * (since + GATHER) > n * (since + 1):
                break
            if len(rows) > chunk:
                rows = rows[np.argpartition(-self.gains[rows], chunk)[:chunk]]
        for block in self._blocks():
            self._update(block)
        self.base, self.work, self.at_base = self.count, 0, self.gains.copy()

    def _update(self, rows: Any) -> None:
        products = self.X[rows].astype(np.float64, copy=False) @ self.vectors[self.base : self.count].T
        change = np.einsum("ij,ij->i", products, products)
        self.gains[rows] = np.where(self.open[rows], self.at_base[rows] - change, -np.inf)

    def _blocks(self) -> list[slice]:
        step = max(1, BLOCK // self.X.shape[1])
        return [slice(start, start + step) for start in range(0, len(self.X), step)]
