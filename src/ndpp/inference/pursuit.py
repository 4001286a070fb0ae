"""Gains of greedy runs straight from the rows of X, for one kernel or many: no factorisation, and one product with X per item.

The gain of item a after Y is x_aᵀ W_Y x_a. Adding item y with pivot p takes a matrix of rank one from W_Y,

    W_{Y∪y} = W_Y − u vᵀ,        u = W_Y x_y / √p,    v = W_Yᵀ x_y / √p,

and (x_aᵀu)(x_aᵀv) from every gain. For a symmetric W, u = v: this is the fast greedy algorithm of Chen, Zhang and Zhou (NeurIPS 2018), its
Cholesky factor kept in the d columns of X rather than in n items, so that an item costs O(n d). The gains of a symmetric kernel never grow,
and :class:`Lazy` updates only those that may be the best. With few items :class:`Few` keeps the factor by items: fewer and smaller steps.

Rows may have factors f: those of the kernel are f_a x_a. X is not multiplied by them. Gains are, by f_a², and nothing else has to be.

Each gain carries an estimate of its rounding error. A step is *sure* if all of them are below ``TIE`` times the best gain; other steps are
left to the careful routines of :mod:`ndpp.inference.greedy`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsv

from ndpp._types import AnyArray, BoolArray, FloatArray
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
STEP = 2**14
"""With at most this many products per item to add, L is computed first, whole: fewer and smaller steps again."""


class Inner(NamedTuple):
    """W in double precision, None for the identity, its magnitudes, and whether it is symmetric."""

    W: Array = None
    magnitudes: Array = None
    is_symmetric: bool = True


class Factors(NamedTuple):
    """Factors f of the rows, and the sums of squares of the rows of X without them."""

    f: FloatArray
    squares: FloatArray


def squares_of(X: AnyArray) -> FloatArray:
    """Return the sum of squares of each row, in double precision."""
    if X.dtype == np.float64:
        return np.asarray(np.vecdot(X, X))
    rows, step = X.reshape(-1, X.shape[-1]), max(1, BLOCK // X.shape[-1])
    parts = (rows[start : start + step].astype(np.float64) for start in range(0, len(rows), step))
    return np.concatenate([np.einsum("ij,ij->i", part, part) for part in parts]).reshape(X.shape[:-1])


def pursuit(
    X: AnyArray | None,
    open: BoolArray | None,
    size: int,
    inner: Inner,
    *,
    window: int | None = None,
    lazy: bool = True,
    factors: Factors | None = None,
) -> Pursuit | Lazy | Few:
    """Return the run of one kernel with these rows, before any item is added. X None: rows of the identity, so that W is L.

    ``open`` None: all items may be added. Factors are for W = I.
    """
    is_lazy = lazy and window is None and inner.is_symmetric
    if is_lazy and (X is None or (X.size <= LAZY and len(X) <= BY_ITEMS)):
        if X is not None and inner.W is None and X.shape[1] < len(X) and X.size * len(X) <= STEP * size:
            rows = np.asarray(X, np.float64) if factors is None else X * factors.f[:, None]
            X, inner, factors = None, Inner(rows.dot(rows.T)), None
        return Few(X, open, inner, factors)
    with np.errstate(all="ignore"):  # what is not sure is computed again
        if is_lazy and X is not None:
            return Lazy(X, open, size, inner, factors)
        X = np.eye(len(inner.W)) if X is None else np.asarray(X, np.float64)
        X = X if factors is None else X * factors.f[:, None]
        return Pursuit(np, X[None], np.ones((1, len(X)), bool) if open is None else open[None], inner, window=window)


def extend(run: Pursuit | Lazy | Few, count: int) -> tuple[list[Any], list[Any]]:
    """Add up to so many items, as long as a run is sure; return them and their gains."""
    picks: list[Any] = []
    gains: list[Any] = []
    with np.errstate(all="ignore"):  # what is not sure is computed again
        if isinstance(run, Few):
            return run.extend(count)
        while len(picks) < count:
            best, gain = run.best()
            if run.is_here and not any(run.sure):
                break
            picks.append(best)
            gains.append(gain)
            if len(picks) < count:
                run.add(best)
    return picks, gains


class Pursuit:
    """Gains of b greedy runs side by side, in NumPy or torch: ``X`` (b, n, d) in double precision, and one ``W``, None for the identity.

    ``open`` are the items that may be added, ``window`` is how many items in a row are judged together, ``sure`` tells which runs have
    been sure so far, and ``own`` are the diagonals of the kernels, if they are known.
    """

    def __init__(
        self,
        xp: Any,
        X: Array,
        open: Array,
        inner: Inner | None = None,
        *,
        window: int | None = None,
        own: Array = None,
    ) -> None:
        self.xp, self.X, self.open, self.window = xp, X, open, window
        self.is_here = xp is np or X.device.type == "cpu"  # a GPU is not waited for
        self.W, magnitudes, self.is_symmetric = inner or Inner()
        W = self.W
        self.own = xp.einsum("bij,bij->bi", X if W is None else X @ W, X) if own is None else own
        self.scale = self.own if magnitudes is None else (X * X) @ magnitudes
        self.rounding = rounding_of(X.shape[-1])
        self.noise, self.gains = self.rounding * self.scale, self.own + 0.0
        self.doubt = xp.amax(self.noise * open, -1)  # the largest error of a gain
        self.sure, self.each = open.any(-1) | True, (open.any(-1) | True).nonzero()
        self.each = self.each[0] if isinstance(self.each, tuple) else self.each[:, 0]
        self.left: list[Array] = []  # u of each item added; in a window, its column of L
        self.right: list[Array] = []
        self.picks: list[Array] = []

    def best(self) -> tuple[Array, Array]:
        """Return the best item of each run and its gain."""
        gains = self.xp.where(self.open, self.gains, -np.inf)
        top = self.xp.amax(gains, -1)
        self.sure &= (top > SMALLEST) & (top < LARGEST) & (self.doubt <= TIE * top)
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
            v = u if self.is_symmetric else v - ((left @ x[:, :, None]).mT @ right)[:, 0]
        pivot = (x * u).sum(-1)
        self.sure &= (pivot > SMALLEST) & (doubt <= TIE * pivot)
        root, weight = pivot[:, None] ** 0.5, 4 * EPS + doubt / pivot
        self.left.append(u / root)
        change = self._products(self.left[-1])
        self.right.append(self.left[-1] if self.is_symmetric else v / root)
        change = change * (change if self.is_symmetric else self._products(self.right[-1]))
        self.noise = self.noise + weight[:, None] * abs(change)
        self.doubt = self.xp.amax(self.noise * self.open, -1)
        self.gains -= change

    def _products(self, vectors: Array) -> Array:
        return (self.X[0] @ vectors[0])[None] if len(vectors) == 1 else (self.X @ vectors[:, :, None])[:, :, 0]

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
        self.noise = self.rounding * reach * reach
        self.doubt = self.xp.amax(self.noise * self.open, -1)


def side_by_side(
    torch: Any, X: Array, gains: Array, given: Array, open: Array, size: int
) -> tuple[Array, Array, Array]:
    """Return the items of greedy runs of kernels X_b X_bᵀ, X (b, n, d) in double precision, their gains, and which runs are sure.

    For a GPU, where what counts is how many operations there are: about a dozen per item. ``gains`` are the diagonals, and are overwritten.
    As in :class:`Few`, which steps were sure is found out at the end. Items that were added are not marked: their gains are zero up to
    errors that no sure step takes for the best.
    """
    (b, _, d), g, rounding = X.shape, given.shape[1], rounding_of(X.shape[2])
    picks, found, vectors = given.new_empty((b, size)), gains.new_empty((b, size)), X.new_empty((b, size, d))
    largest, change, is_best = gains.amax(-1), torch.empty_like(gains), torch.empty_like(gains, dtype=torch.bool)
    picks[:, :g] = given
    for j in range(size):
        pick, u, before = picks[:, j : j + 1], vectors[:, j : j + 1], vectors[:, :j]
        if j == g and open is not None:
            gains.masked_fill_(~open, -np.inf)
        if j >= g:
            torch.ge(gains, gains.amax(-1, keepdim=True) * (1 - TIE), out=is_best)
            torch.argmax(is_best.view(torch.uint8), -1, keepdim=True, out=pick)
        pivot = torch.gather(gains, 1, pick, out=found[:, j : j + 1])
        if j == size - 1:
            break
        torch.gather(X, 1, pick[:, :, None].expand(b, 1, d), out=u)
        if j and b == 1:
            u[0, 0].addmv_(before[0].T, before[0] @ u[0, 0], alpha=-1)
        elif j:
            u.baddbmm_(torch.bmm(u, before.mT), before, alpha=-1)
        u *= pivot.rsqrt()[:, :, None]
        if b == 1:
            torch.mv(X[0], u[0, 0], out=change[0])
        else:
            torch.bmm(X, u.mT, out=change[:, :, None])
        gains.addcmul_(change, change, value=-1)
    rows = X.gather(1, picks[:, :, None].expand(b, size, d))
    along, noise = rows @ vectors.mT, rounding * (rows * rows).sum(-1)
    system, start = (along * along / -found[:, :, None]).tril(-1), 4 * EPS + noise / found
    errors = torch.linalg.solve_triangular(system, start[:, :, None], upper=False, unitriangular=True)[:, :, 0]
    worst = rounding + torch.nn.functional.pad(errors, (1, 0)).cummax(-1).values[:, :size]  # of the items before
    is_sure = (found > SMALLEST) & (found < LARGEST) & (errors <= 4 * EPS + TIE)
    is_sure[:, g:] &= (worst * largest[:, None] <= TIE * found)[:, g:]
    return picks, found, is_sure.all(-1)


def first(mask: Array) -> Array:
    """Return the first true entry of each row."""
    return mask.argmax(-1) if isinstance(mask, np.ndarray) else mask.byte().argmax(-1)


class Few:
    """One greedy run of a symmetric kernel with few items: of X (n, d), or None, the identity: W is L then.

    The products c_j = x_aᵀu_j of all items are kept, rather than u_j. Items are chosen first, and which steps were sure is found out at the
    end: the relative error of pivot p_j is w_j = 4ε + (noise + Σ_i c_i² w_i) / p_j, where the sum is at most L_jj max w_i.
    """

    is_here, sure = True, (True,)

    def __init__(self, X: AnyArray | None, open: BoolArray | None, inner: Inner, factors: Factors | None) -> None:
        self.parts, self.given = (X, open, inner, factors), list[int]()

    def _begin(self, X: AnyArray | None, open: BoolArray | None, inner: Inner, factors: Factors | None) -> None:
        rows: Any = None if X is None else np.asarray(X, np.float64)
        W, scale, _ = inner
        self.f2 = None if factors is None else factors.f * factors.f
        if X is None:
            own, self.lines = W.diagonal(), W
        elif factors is None:
            self.lines = rows if W is None else rows.dot(W)  # X times a row is a column of L
            own = np.einsum("ij,ij->i", self.lines, rows)
            scale = None if scale is None else (rows * rows).dot(scale)
        else:
            own, scale, self.lines = factors.squares, factors.squares, rows
        self.X = rows
        scale = own if scale is None else scale
        self.gains = own.copy() if self.f2 is None else own * self.f2
        largest = scale if self.f2 is None else self.gains
        self.scale, self.largest = scale, largest.item(largest.argmax())  # less overhead than max
        self.rounding = rounding_of(self.lines.shape[1])
        if open is not None:
            self.gains[~open] = -np.inf

    def add(self, picks: Any) -> None:
        """Add a given item, before any others."""
        self.given.append(int(picks[0]))

    def extend(self, count: int) -> tuple[list[Any], list[Any]]:
        """Add up to so many items, as long as the run is sure; return them and their gains."""
        self._begin(*self.parts)
        gains, X, lines, f2, g = self.gains, self.X, self.lines, self.f2, len(self.given)
        vectors, space, rows = np.empty((g + count, len(gains))), np.empty(len(gains)), self.given
        found, pivots = list[float](), list[float]()
        for j in range(g + count):
            if j < g:
                row = rows[j]
            else:
                row = int(gains.argmax())
                top = gains.item(row)
                if not SMALLEST < top < LARGEST:
                    break
                if row and gains.item(gains[:row].argmax()) >= top * (1 - TIE):
                    row = int((gains >= top * (1 - TIE)).argmax())
                rows.append(row)
                found.append(gains.item(row))
                if j == g + count - 1:
                    break
            u = vectors[j]
            if X is None:
                u[:] = lines[row]
            else:
                X.dot(lines[row], out=u)
            if j:
                u -= vectors[:j, row].dot(vectors[:j], out=space)
            pivot = u.item(row)
            if not pivot > SMALLEST:
                break
            pivots.append(pivot)
            u /= pivot**0.5
            np.multiply(u, u, out=space)
            if f2 is not None:
                space *= f2
            gains -= space
            gains[row] = -np.inf
        error = 0.0
        for row, pivot in zip(rows, pivots):
            error = 4 * EPS + (self.rounding + error) * self.scale.item(row) / pivot
        is_sure = found and error <= TIE and (self.rounding + error) * self.largest <= TIE * min(found)
        sure = len(found) if is_sure else self._sure(vectors, np.array(pivots), np.array(found), g)
        return [[row] for row in rows[g : g + sure]], [[gain] for gain in found[:sure]]

    def _sure(self, vectors: FloatArray, pivots: FloatArray, found: FloatArray, g: int) -> int:
        """Return how many items are sure, from the errors themselves, a triangular system."""
        m = len(pivots)
        rows = np.array(self.given[:m], np.int64)
        own, along = self.rounding * self.scale[rows], vectors[:m, rows]
        errors = dtrsv((along * along / -pivots).T, 4 * EPS + own / pivots, lower=1, diag=1) if m else pivots
        worst = np.full(m + 1, self.rounding)
        worst[1:] += np.maximum.accumulate(errors)
        is_sure = (errors - 4 * EPS) <= TIE
        tops = self.largest * worst[g : g + len(found)] <= TIE * found
        kept = 1 + int(is_sure.argmin()) if not is_sure.all() else m + 1  # the item after the last pivot that is sure
        return max(0, min(kept - g, len(tops) if tops.all() else int(tops.argmin())))


class Lazy:
    """Gains of one greedy run of a symmetric kernel: of X (n, d), an array of either precision.

    With few entries, each addition updates all gains. With many, gains that are not up to date bound those that are. All are those after
    ``base`` items or later, and some are updated from there by one product with the vectors of the items since; where that would cost
    more than updating all, all are. O(n d k) at worst.

    A gain is L_aa less squares (x_aᵀu_j)², each with the relative error ``weights[j]`` of its pivot.
    """

    is_here = True

    def __init__(
        self, X: AnyArray, open: BoolArray | None, size: int, inner: Inner, factors: Factors | None = None
    ) -> None:
        self.is_lazy, self.base, self.count, self.work = X.size > LAZY, 0, 0, 0
        (W, magnitudes, _), self.W, (n, d) = inner, inner.W, X.shape
        self.open = np.ones(n, bool) if open is None else open
        self.X: Any = X if self.is_lazy else np.asarray(X, np.float64)
        self.f2 = None if factors is None else factors.f * factors.f
        scale = own = np.empty(n) if factors is None else factors.squares
        if magnitudes is not None:
            scale = np.empty(n)
        for block in self._blocks() if factors is None else ():
            x = self.X[block].astype(np.float64, copy=False)
            own[block] = np.einsum("ij,ij->i", x if W is None else x.dot(W), x)
            if magnitudes is not None:
                scale[block] = (x * x).dot(magnitudes)
        self.rounding = rounding_of(d)
        self.noise, self.at_base = self.rounding * scale, own if self.f2 is None else own * self.f2
        self.gains = self.at_base.copy()
        self.gains[~self.open] = -np.inf
        self.largest, self.worst = float((scale if self.f2 is None else self.at_base).max()), self.rounding
        self.vectors, self.weights, self.is_sure = np.empty((size, d)), np.empty(size), True

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

    def add(self, picks: Any) -> None:
        """Add an item."""
        row, j, doubt = int(picks[0]), self.count, float(self.noise[int(picks[0])])
        x = self.X[row].astype(np.float64, copy=False)
        u, before = x if self.W is None else self.W.dot(x), self.vectors[:j]
        if j:
            along = before.dot(x)
            u = u - along.dot(before)
            doubt += float((along * along).dot(self.weights[:j]))
        pivot = float(x.dot(u))
        if not (pivot > SMALLEST and doubt <= TIE * pivot):
            self.is_sure = False
            return
        self.vectors[j] = u = u / pivot**0.5
        self.weights[j] = weight = 4 * EPS + doubt / pivot
        self.worst, self.count = max(self.worst, self.rounding + weight), j + 1
        if not self.is_lazy:
            change, self.base = self.X.dot(u), self.count
            change *= change
            self.gains -= change if self.f2 is None else change * self.f2
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
        change = change if self.f2 is None else change * self.f2[rows]
        self.gains[rows] = np.where(self.open[rows], self.at_base[rows] - change, -np.inf)

    def _blocks(self) -> list[slice]:
        step = max(1, BLOCK // self.X.shape[1])
        return [slice(start, start + step) for start in range(0, len(self.X), step)]
