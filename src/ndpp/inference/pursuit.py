"""States of greedy runs straight from the rows of X, for one kernel or many: no factorisation, and one product with X per item.

The gain of item a after Y is x_aᵀ W_Y x_a. Adding item y with pivot p takes a matrix of rank one from W_Y,

    W_{Y∪y} = W_Y − u vᵀ,        u = W_Y x_y / √p,    v = W_Yᵀ x_y / √p,

and (x_aᵀu)(x_aᵀv) from every gain. For a symmetric W, u = v: this is the fast greedy algorithm of Chen, Zhang and Zhou (NeurIPS 2018), its
Cholesky factor kept in the d columns of X rather than in n items, so that an item costs O(n d). The gains of a symmetric kernel never grow,
and :class:`ByColumns` updates only those that may be the best. With few items :class:`ByItems` keeps the factor by items: fewer and smaller
steps. :class:`AnyRun` is for other kernels and for windows, and :class:`OnDevice` for a GPU.

Rows may have factors f: those of the kernel are f_a x_a. X is not multiplied by them. Gains are, by f_a², and nothing else has to be.

Each gain carries an estimate of its rounding error. A step is *sure* if all of them are below ``TIE`` times the best gain; other steps are
left to :class:`~ndpp.inference.runs.Careful`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsv

from ndpp._types import BoolArray, FloatArray, IntArray, RealArray
from ndpp.inference.runs import TIE, GreedyState
from ndpp.laws.scoring import Factored
from ndpp.linalg.operations import Array
from ndpp.linalg.scaling import EPS, rounding_of

MIN_GAIN, MAX_GAIN = 1e-290, 1e290
"""Range of best gains that leaves room for products."""
BLOCK_ENTRIES = 2**17
"""Entries of X that are worked on at a time, so that they stay in cache."""
FIRST_UPDATED = 64
"""How many of the items that may be the best are updated to begin with."""
FETCH_COST = 8
"""What it costs to fetch a row, in products with a row."""
DOUBLED_ENTRIES = 2**20
"""X with at most this many entries is copied to double precision."""
MAX_ITEMS_BY_ITEMS = 2048
"""Number of items up to which the Cholesky factor is kept by items, rather than in the columns of X."""


class RowFactors(NamedTuple):
    """Factors f of the rows, and the sums of squares of the rows of X without them."""

    f: FloatArray
    squares: FloatArray


def squares_of(X: RealArray) -> FloatArray:
    """Return the sum of squares of each row, in double precision."""
    if X.dtype == np.float64:
        return np.asarray(np.vecdot(X, X))
    return _diagonals(X.reshape(-1, X.shape[-1]), None, None)[0].reshape(X.shape[:-1])


def _diagonals(X: RealArray, W: FloatArray | None, magnitudes: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return x_aᵀ W x_a of each row and the magnitude of its terms, in double precision."""
    own = np.empty(len(X))
    scale = own if magnitudes is None else np.empty(len(X))
    for block in _blocks(X):
        x = X[block].astype(np.float64, copy=False)
        own[block] = np.einsum("ij,ij->i", x if W is None else x.dot(W), x)
        if magnitudes is not None:
            scale[block] = (x * x).dot(magnitudes)
    return own, scale


def _blocks(X: RealArray) -> list[slice]:
    step = max(1, BLOCK_ENTRIES // X.shape[1])
    return [slice(start, start + step) for start in range(0, len(X), step)]


def pursuit(
    kernel: Factored,
    given: Sequence[int],
    open: BoolArray | None,
    size: int,
    *,
    window: int | None = None,
    factors: RowFactors | None = None,
    at_once: bool = False,
) -> GreedyState:
    """Return the state of one run that begins with the given rows, for up to ``size`` items in all.

    ``open`` are the rows that may be added, None for all. Factors are for W = I. With ``at_once``, the state knows at each step whether it
    is sure, and not only at the end.
    """
    X = kernel.X
    with np.errstate(all="ignore"):  # what is not sure is computed again
        if not kernel.is_symmetric or window is not None:
            return AnyRun(kernel, given, open, window, factors)
        if at_once or (X is not None and (X.size > DOUBLED_ENTRIES or len(X) > MAX_ITEMS_BY_ITEMS)):
            return ByColumns(kernel, given, open, size, factors)
        return ByItems(kernel, given, open, size, factors)


class _Symmetric(GreedyState):
    """One run of a symmetric kernel: gains that only fall, −inf for rows that cannot be added."""

    def __init__(self, kernel: Factored, open: BoolArray | None, factors: RowFactors | None) -> None:
        X, W, magnitudes, _ = kernel
        if X is not None and X.size <= DOUBLED_ENTRIES:
            X = np.asarray(X, np.float64)
        if factors is not None:
            own = scale = factors.squares
        elif X is not None:
            own, scale = _diagonals(X, W, magnitudes)
        else:
            assert W is not None
            own, scale = W.diagonal(), W.diagonal() if magnitudes is None else magnitudes
        self.X, self.W, self.scale, self.f2 = X, W, scale, None if factors is None else factors.f * factors.f
        self.gains = own.copy() if self.f2 is None else own * self.f2
        largest = scale if self.f2 is None else self.gains
        self.largest = largest.item(largest.argmax())  # less overhead than max
        if open is not None:
            self.gains[~open] = -np.inf

    def best(self) -> tuple[Sequence[int], Sequence[float]] | None:
        """Return the best row and its gain."""
        gains = self.gains
        row = int(gains.argmax())
        top = gains.item(row)
        if not MIN_GAIN < top < MAX_GAIN:
            return None
        if row and gains.item(gains[:row].argmax()) >= top * (1 - TIE):
            row = int((gains >= top * (1 - TIE)).argmax())
        return (row,), (gains.item(row),)

    def close(self, group: Sequence[int]) -> None:
        """Leave out a row."""
        self.gains[group[0]] = -np.inf


class ByItems(_Symmetric):
    """A run with few items, which keeps the products c_j = x_aᵀu_j of all of them, rather than u_j.

    Which steps were sure is found out at the end: the relative error of pivot p_j is w_j = 4ε + (noise + Σ_i c_i² w_i) / p_j, where the sum
    is at most L_jj max w_i.
    """

    def __init__(
        self, kernel: Factored, given: Sequence[int], open: BoolArray | None, size: int, factors: RowFactors | None
    ) -> None:
        super().__init__(kernel, open, factors)
        n = len(self.gains)
        self.rounding = rounding_of(n if self.X is None else self.X.shape[1])
        self.vectors, self.space = np.empty((min(size, n), n)), np.empty(n)
        self.rows, self.pivots, self.n_given = list[int](), list[float](), len(given)
        for row in given:
            self.add([row])

    def add(self, group: Sequence[int]) -> None:
        """Add a row."""
        row, j = group[0], len(self.rows)
        self.rows.append(row)
        if j > len(self.pivots):  # nothing can follow a row that is not sure
            return
        u, X, W, gains = self.vectors[j], self.X, self.W, self.gains
        if X is None:
            u[:] = W[row]  # type: ignore[index]
        else:
            X.dot(X[row] if W is None else W.dot(X[row]), out=u)
        if j:
            u -= self.vectors[:j, row].dot(self.vectors[:j], out=self.space)
        pivot = u.item(row)
        if not pivot > MIN_GAIN:
            gains[:] = -np.inf
            return
        self.pivots.append(pivot)
        u /= pivot**0.5
        change = np.multiply(u, u, out=self.space)
        if self.f2 is not None:
            change *= self.f2
        gains -= change
        gains[row] = -np.inf

    def n_sure(self, gains: Sequence[float]) -> int:
        """Return how many items are sure: all, by the bound, or as many as the errors themselves show."""
        error = 0.0
        for row, pivot in zip(self.rows, self.pivots):
            error = 4 * EPS + (self.rounding + error) * self.scale.item(row) / pivot
        if gains and error <= TIE and (self.rounding + error) * self.largest <= TIE * min(gains):
            return len(gains)
        # The errors are the solution of a triangular system.
        m, g, pivots = len(self.pivots), self.n_given, np.array(self.pivots)
        rows = np.array(self.rows[:m], np.int64)
        own, along = self.rounding * self.scale[rows], self.vectors[:m, rows]
        errors = dtrsv((along * along / -pivots).T, 4 * EPS + own / pivots, lower=1, diag=1) if m else pivots
        worst = np.full(m + 1, self.rounding)
        worst[1:] += np.maximum.accumulate(errors)
        is_sure = (errors - 4 * EPS) <= TIE
        tops = self.largest * worst[g : g + len(gains)] <= TIE * np.array(gains)
        kept = 1 + int(is_sure.argmin()) if not is_sure.all() else m + 1  # the item after the last pivot that is sure
        return max(0, min(kept - g, len(tops) if tops.all() else int(tops.argmin())))


class ByColumns(_Symmetric):
    """A run with many items, which updates gains where they may matter: gains that are not up to date bound those that are.

    All are those after ``base`` items or later, and some are updated from there by one product with the vectors of the items since; where
    that would cost more than updating all, all are. O(n d k) at worst. A gain is L_aa less squares (x_aᵀu_j)², each with the relative error
    ``weights[j]`` of its pivot.
    """

    X: RealArray

    def __init__(
        self, kernel: Factored, given: Sequence[int], open: BoolArray | None, size: int, factors: RowFactors | None
    ) -> None:
        super().__init__(kernel._replace(X=kernel.rows), open, factors)
        n, d = self.X.shape
        self.at_base, self.base, self.count, self.work, self.is_lazy = self.gains.copy(), 0, 0, 0, True
        self.rounding = self.worst = rounding_of(d)
        self.vectors, self.weights, self.is_sure = np.empty((min(size, n), d)), np.empty(min(size, n)), True
        for row in given:
            self.add([row])

    def best(self) -> tuple[Sequence[int], Sequence[float]] | None:
        """Return the best row and its gain; None as soon as that is not sure."""
        if self.base < self.count:
            self._find()
        found = super().best() if self.is_sure else None
        return found if found is not None and self.worst * self.largest <= TIE * found[1][0] else None

    def add(self, group: Sequence[int]) -> None:
        """Add a row."""
        (row,), j = group, self.count
        x, doubt = self.X[row].astype(np.float64, copy=False), self.rounding * self.scale.item(row)
        u, before = x if self.W is None else self.W.dot(x), self.vectors[:j]
        if j:
            along = before.dot(x)
            u = u - along.dot(before)
            doubt += float((along * along).dot(self.weights[:j]))
        pivot = float(x.dot(u))
        if not (pivot > MIN_GAIN and doubt <= TIE * pivot):
            self.is_sure = False
            return
        self.vectors[j] = u / pivot**0.5
        self.weights[j] = weight = 4 * EPS + doubt / pivot
        self.worst, self.count = max(self.worst, self.rounding + weight), j + 1
        self.close(group)

    def close(self, group: Sequence[int]) -> None:
        """Leave out a row."""
        self.gains[group[0]] = self.at_base[group[0]] = -np.inf

    def _find(self) -> None:
        """Bring gains up to date until the best is among them."""
        n, since, top, rows = len(self.X), self.count - self.base, -np.inf, np.argmax(self.gains, keepdims=True)
        stale = self.gains > -np.inf
        for chunk in (FIRST_UPDATED, 8 * FIRST_UPDATED, n, n) if self.is_lazy else ():
            self._update(rows)
            self.work += len(rows) * (since + FETCH_COST)
            stale[rows] = False
            top = max(top, self.gains[rows].max())
            rows = np.flatnonzero(stale & (self.gains >= top * (1 - 2 * TIE)))
            if not len(rows):
                return
            if chunk > FIRST_UPDATED and self.work + len(rows) * (since + FETCH_COST) > n * (since + 1):
                break
            if len(rows) > chunk:
                rows = rows[np.argpartition(-self.gains[rows], chunk)[:chunk]]
        for block in _blocks(self.X) if self.X.dtype != np.float64 else [slice(None)]:
            self._update(block)
        self.base, self.work, self.at_base = self.count, 0, self.gains.copy()
        self.is_lazy = since > 1 or self.X.size > DOUBLED_ENTRIES  # small X: what did not pay once is not tried again

    def _update(self, rows: IntArray | slice) -> None:
        x = self.X[rows].astype(np.float64, copy=False)
        if self.count == self.base + 1:
            change = np.square(x.dot(self.vectors[self.base]))
        else:
            products = x @ self.vectors[self.base : self.count].T
            change = np.einsum("ij,ij->i", products, products)
        self.gains[rows] = self.at_base[rows] - (change if self.f2 is None else change * self.f2[rows])


class AnyRun(GreedyState):
    """A run of a kernel that is not symmetric, or of any with a ``window``: gains are those after the last ``window - 1`` items alone."""

    def __init__(
        self,
        kernel: Factored,
        given: Sequence[int],
        open: BoolArray | None,
        window: int | None,
        factors: RowFactors | None,
    ) -> None:
        X = np.asarray(kernel.rows, np.float64)
        self.X, self.W = X if factors is None else X * factors.f[:, None], kernel.W
        self.window, self.is_symmetric, self.is_sure = window, kernel.is_symmetric, True
        self.open = np.ones(len(X), bool) if open is None else open.copy()
        self.own, self.scale = _diagonals(self.X, self.W, kernel.magnitudes)
        self.rounding = rounding_of(X.shape[1])
        self.gains, self.noise = self.own.copy(), self.rounding * self.scale
        self.rows = list[int]()
        self.left = list[FloatArray]()  # u of each item added; in a window, its column of L
        self.right = list[FloatArray]()
        for row in given:
            self.add([row])

    def best(self) -> tuple[Sequence[int], Sequence[float]] | None:
        """Return the best row and its gain; None as soon as that is not sure."""
        gains = np.where(self.open, self.gains, -np.inf)
        top = gains.item(gains.argmax())
        if not (self.is_sure and MIN_GAIN < top < MAX_GAIN and (self.noise * self.open).max() <= TIE * top):
            return None
        row = int((gains >= top * (1 - TIE)).argmax())
        return (row,), (gains.item(row),)

    def add(self, group: Sequence[int]) -> None:
        """Add a row."""
        row, doubt = group[0], self.noise[group[0]]
        x = self.X[row]
        u, v = (x, x) if self.W is None else (self.W @ x, x @ self.W)
        self.close(group)
        if self.window is not None:
            self.is_sure &= bool(self.gains[row] > MIN_GAIN and doubt <= TIE * self.gains[row])
            return self._slide(row, u, v, self.window - 1)
        if self.left:
            left, right = np.array(self.left), np.array(self.right)
            u = u - (right @ x) @ left
            v = v - (left @ x) @ right
        pivot = x @ u
        self.is_sure &= bool(pivot > MIN_GAIN and doubt <= TIE * pivot)
        self.left.append(u / pivot**0.5)
        self.right.append(v / pivot**0.5)
        change = (self.X @ self.left[-1]) * (self.X @ self.right[-1])
        self.noise = self.noise + (4 * EPS + doubt / pivot) * np.abs(change)
        self.gains -= change

    def close(self, group: Sequence[int]) -> None:
        """Leave out a row."""
        self.open[group[0]] = False

    def _slide(self, row: int, u: FloatArray, v: FloatArray, most: int) -> None:
        """Compute gains after the last items of the window alone: L_aa − L_aY L_Y⁻¹ L_Ya."""
        self.rows.append(row)
        self.left.append(self.X @ u)
        self.right.append(self.left[-1] if self.is_symmetric else self.X @ v)
        for kept in (self.rows, self.left, self.right):
            del kept[: max(0, len(kept) - most)]
        if not self.rows:  # a window of one item
            return
        left, at = np.array(self.left), self.rows
        try:
            weights = np.linalg.solve(left[:, at].T, np.array(self.right))
        except np.linalg.LinAlgError:
            self.is_sure = False
            return
        roots = self.scale**0.5
        reach = roots + roots[at] @ np.abs(weights)
        self.gains, self.noise = self.own - (left * weights).sum(0), self.rounding * reach * reach


class OnDevice(GreedyState):
    """Runs of kernels X_b X_bᵀ side by side on a GPU, X (b, n, d) in double precision: about a dozen operations per item.

    ``gains`` are the diagonals, and are overwritten. As in :class:`ByItems`, which steps were sure is found out at the end. Items that were
    added are not marked: their gains are zero up to errors that no sure step takes for the best.
    """

    def __init__(self, torch: ModuleType, X: Array, given: Array, size: int, gains: Array) -> None:
        b, _, d = X.shape
        self.torch, self.X, self.gains, self.n_given, self.count = torch, X, gains, given.shape[1], 0
        self.picks, self.found = given.new_empty((b, size)), gains.new_empty((b, size))
        self.vectors, self.largest = X.new_empty((b, size, d)), gains.amax(-1)
        self.change, self.is_best = torch.empty_like(gains), torch.empty_like(gains, dtype=torch.bool)
        self.picks[:, : self.n_given] = given
        for _ in range(self.n_given):
            self.add([])

    def best(self) -> tuple[Sequence[Array], Sequence[Array]]:
        """Return the best item of each run and its gain."""
        torch, gains, here = self.torch, self.gains, slice(self.count, self.count + 1)
        torch.ge(gains, gains.amax(-1, keepdim=True) * (1 - TIE), out=self.is_best)
        pick = torch.argmax(self.is_best.view(torch.uint8), -1, keepdim=True, out=self.picks[:, here])
        return [pick], [torch.gather(gains, 1, pick, out=self.found[:, here])]

    def add(self, group: Sequence[Array]) -> None:
        """Add the next of ``picks`` to each run."""
        torch, X, gains, j = self.torch, self.X, self.gains, self.count
        pick, u, before = self.picks[:, j : j + 1], self.vectors[:, j : j + 1], self.vectors[:, :j]
        if j < self.n_given:
            torch.gather(gains, 1, pick, out=self.found[:, j : j + 1])
        torch.gather(X, 1, pick[:, :, None].expand(len(X), 1, X.shape[2]), out=u)
        if j and len(X) == 1:
            u[0, 0].addmv_(before[0].T, before[0] @ u[0, 0], alpha=-1)
        elif j:
            u.baddbmm_(torch.bmm(u, before.mT), before, alpha=-1)
        u *= self.found[:, j : j + 1].rsqrt()[:, :, None]
        if len(X) == 1:
            torch.mv(X[0], u[0, 0], out=self.change[0])
        else:
            torch.bmm(X, u.mT, out=self.change[:, :, None])
        gains.addcmul_(self.change, self.change, value=-1)
        self.count += 1

    def close(self, group: Sequence[Array]) -> None:
        """Leave out an item of each run."""
        self.gains.scatter_(1, group[0], -np.inf)

    @property
    def sure(self) -> Array:
        """Which runs were sure at each step."""
        torch, X, picks, found, g = self.torch, self.X, self.picks, self.found, self.n_given
        size, rounding = picks.shape[1], rounding_of(X.shape[2])
        rows = X.gather(1, picks[:, :, None].expand(len(X), size, X.shape[2]))
        along, noise = rows @ self.vectors.mT, rounding * (rows * rows).sum(-1)
        system, start = (along * along / -found[:, :, None]).tril(-1), 4 * EPS + noise / found
        errors = torch.linalg.solve_triangular(system, start[:, :, None], upper=False, unitriangular=True)[:, :, 0]
        worst = rounding + torch.nn.functional.pad(errors, (1, 0)).cummax(-1).values[:, :size]  # of the items before
        is_sure = (found > MIN_GAIN) & (found < MAX_GAIN) & (errors <= 4 * EPS + TIE)
        is_sure[:, g:] &= (worst * self.largest[:, None] <= TIE * found)[:, g:]
        return is_sure.all(-1)
