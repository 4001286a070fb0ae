"""Rows of items for compiled loops: one function, :func:`take`, whatever they are kept in.

A loop is written once. With rows in memory or in plain files it is compiled, and so is :func:`take`; with rows in another store, the same
loop is interpreted (:func:`suited`), and what it calls is still compiled. Draws do not depend on where rows are kept.

In eigencoordinates, a row has two sides, and between them stands a diagonal matrix F: :func:`write_resolvent` and :func:`apply`.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numba.core import types
from numba.extending import overload

from ndpp._compiled import Function, interpreted, jitable, njit, soon
from ndpp._types import AnyArray, ComplexArray, FloatArray, IntArray
from ndpp._validation import frozen
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.support import CHANGED
from ndpp.linalg.eigen import EigenBasis
from ndpp.rows import FileRows, Stacked
from ndpp.rows.scaled import Multiplied

Rows: TypeAlias = AnyArray | LowRankKernel
"""An array (n, w), whose row a is that of item a; or a kernel, which fetches rows of Q from its store."""

BLOCK = 4096
"""Items whose sides are computed at a time."""
LEFT, RIGHT = -1, 1
"""On which side of F a vector stands."""


def rows_of(kernel: LowRankKernel) -> tuple[Rows, FloatArray, FloatArray | None]:
    """Return rows of Q; or rows of X, if only these are in memory, their factors, and the matrix that makes them rows of Q."""
    coords, X, factors = kernel.coordinates, kernel._factor, np.ones(1)
    if coords.Q is not None:
        return coords.Q, factors, None
    if isinstance(X, Multiplied) and not X.matrices:
        factors, X = X.factors, X.source
    return (X, factors, coords.to_q) if isinstance(X, np.ndarray) else (kernel, factors, None)


def suited(rows: Rows, loop: Function, steps: float = np.inf) -> Function:
    """Return a loop of about ``steps`` steps over these rows: compiled if they are in memory or in files, else interpreted."""
    if isinstance(rows, np.ndarray):
        return soon(loop, steps)
    found = _opened.get(rows) or InFiles.of(rows)
    if found is None:
        return interpreted(loop)
    _opened[rows] = found
    return partial(found.run, rows, loop)  # type: ignore[return-value]


class InFiles(NamedTuple):
    """Rows of Q of a kernel whose X is in one file or several, for compiled loops.

    Files are read, not mapped: a file that is cut short ends with an error, where access to a map would end the process.
    """

    files: IntArray
    """Of each, its descriptor, the byte that its first row begins with, and the number of this row, (m, 3)."""
    itemsize: int
    """4 for float32, 8 for float64."""
    ids: IntArray
    """Which rows of X they are; empty for all."""
    factors: FloatArray
    to_q: FloatArray
    leverage: FloatArray

    @classmethod
    def of(cls, kernel: LowRankKernel) -> InFiles | None:
        """Return the rows of a kernel; None if they are kept elsewhere, or the files cannot be opened."""
        X: Any = kernel._scaled
        factors, coords = np.ones(1), kernel.coordinates
        if isinstance(X, Multiplied) and not X.matrices:
            factors, X = X.factors, X.source
        parts: Any = X.parts if isinstance(X, Stacked) else [X]
        if not hasattr(os, "pread") or any(type(x) is not FileRows or x.stored != X.dtype for x in parts):
            return None
        try:
            files = [(x.descriptor, x.offset, len(x)) for x in parts]
        except OSError:
            return None
        begin = np.array(files)
        begin[:, 2] = np.cumsum(begin[:, 2]) - begin[:, 2]
        ids = np.empty(0, np.int64) if kernel._allowed is None else kernel._allowed
        others: tuple[Any, ...] = ids, factors, np.ascontiguousarray(coords.to_q), coords.leverage
        return cls(begin, X.dtype.itemsize, *map(frozen, others))

    def run(self, kernel: LowRankKernel, loop: Function, *arguments: Any) -> Any:
        """Call a compiled loop with these rows in place of those of the kernel."""
        own: Any = self
        try:
            return loop(
                *(own if a is kernel else a._replace(rows=own) if isinstance(a, Sides) else a for a in arguments)
            )
        except EOFError as missing:
            row = np.array(missing.args)
            kernel.q_rows(row)  # raises if it cannot be read
            raise kernel._changed(row) from None


_opened: WeakKeyDictionary[LowRankKernel, InFiles] = WeakKeyDictionary()


def take(which: IntArray, rows: Rows, factors: FloatArray, out: FloatArray) -> None:
    """Write the rows of these items, shape (m, w), each times its factor, or all times the only one."""
    if isinstance(rows, np.ndarray):
        np.multiply(factors[np.minimum(which, len(factors) - 1), None], rows[which], out=out)
    else:
        out[:] = rows.q_rows(which)


@overload(take)
def _take_compiled(which, rows, factors, out):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array):
        return lambda which, rows, factors, out: _copy(which, rows, factors, out)
    return lambda which, rows, factors, out: _read(which, rows, out)


@njit()
def _copy(which: IntArray, rows: AnyArray, factors: FloatArray, out: FloatArray) -> None:
    for i in range(which.size):
        a = which[i]
        scale = factors[min(a, factors.size - 1)]
        for k in range(out.shape[1]):
            out[i, k] = scale * rows[a, k]


pread: Any = types.ExternalFunction("pread", types.intp(types.intc, types.voidptr, types.uintp, types.int64))
"""That of the C library."""


@njit(fastmath={"reassoc"}, error_model="numpy")
def _read(which: IntArray, rows: InFiles, out: FloatArray) -> None:
    """Write rows of Q; raise EOFError with the first that cannot be read, or has changed since the kernel was prepared."""
    n, d = which.size, len(rows.to_q)
    x, doubles, width, f = np.empty((n, d)), np.empty(d), d * rows.itemsize, 0
    singles = doubles.view(np.float32)
    for i in range(n):
        a = rows.ids[which[i]] if rows.ids.size else which[i]
        if len(rows.files) > 1:
            f = np.searchsorted(rows.files[:, 2], a, side="right") - 1
        place = rows.files[f, 1] + (a - rows.files[f, 2]) * width
        if pread(rows.files[f, 0], doubles.ctypes, width, place) != width:
            raise EOFError(which[i])
        scale = rows.factors[min(a, rows.factors.size - 1)]
        for k in range(d):
            x[i, k] = scale * (singles[k] if rows.itemsize == 4 else doubles[k])
    np.dot(x, rows.to_q, out)
    for i in range(n):
        square, leverage = 0.0, rows.leverage[which[i]]
        for k in range(out.shape[1]):
            square += out[i, k] * out[i, k]
        if not abs(square - leverage) <= CHANGED * leverage + 1e-12:
            raise EOFError(which[i])


class Sides(NamedTuple):
    """Where the sides l and r of items come from: their rows, times each of two matrices.

    The sides of some items, of all, or of none are kept: those of item a are ``kept[place[a]]``, l and r side by side; −1 if they are not.
    If ``right_is_half``, r is half of l, and l alone is kept. Rows in memory are read-only, whatever they are: for others, loops would be
    compiled again.
    """

    rows: Rows
    factors: FloatArray
    to_left: FloatArray
    to_right: FloatArray
    kept: FloatArray
    place: AnyArray
    right_is_half: bool

    def __reduce__(self) -> tuple[Any, ...]:  # unpickled rows would be writeable
        return Sides._read_only, tuple(self)

    @classmethod
    def of(cls, rows: Rows, factors: FloatArray, to_left: FloatArray, to_right: FloatArray, which: IntArray) -> Sides:
        """Compute the sides of some items, those that are proposed most often, once for all samples."""
        is_half = bool(np.array_equal(to_left, 2 * to_right))  # as it is if B is skew
        both = to_left if is_half else np.concatenate([to_left, to_right], axis=1)
        kept = np.empty((len(which), both.shape[1]))
        for start in range(0, len(which), BLOCK):
            own = np.empty((len(which[start : start + BLOCK]), len(both)))
            take(which[start : start + BLOCK], rows, factors, own)
            np.dot(own, both, out=kept[start : start + BLOCK])
        place = np.full(len(rows) if len(which) and isinstance(rows, np.ndarray) else 0, -1, np.int32)
        place[which] = np.arange(len(which))
        return cls._read_only(rows, factors, to_left, to_right, kept, place, is_half)

    @classmethod
    def _read_only(cls, rows: Rows, *others: Any) -> Sides:
        return cls(frozen(rows) if isinstance(rows, np.ndarray) else rows, *others)

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays but the rows."""
        return sum(part.nbytes for part in self[1:6])


@jitable(error_model="numpy")
def fetch(which: IntArray, sides: Sides, left: FloatArray, right: FloatArray) -> None:
    """Write the sides of these items, shapes (m, D)."""
    D, missing, n_missing = left.shape[1], np.empty(which.size, np.int64), 0
    for i in range(which.size):
        at = sides.place[which[i]] if sides.place.size else -1
        if at < 0:
            missing[n_missing] = i
            n_missing += 1
        elif sides.right_is_half:
            for k in range(D):  # compiled, faster than slices
                left[i, k] = sides.kept[at, k]
                right[i, k] = left[i, k] / 2
        else:
            for k in range(D):
                left[i, k], right[i, k] = sides.kept[at, k], sides.kept[at, D + k]
    if n_missing == 0:
        return
    missing = missing[:n_missing]
    x = np.empty((n_missing, len(sides.to_left)))
    take(which[missing], sides.rows, sides.factors, x)
    found = np.dot(x, sides.to_left)
    other = found / 2 if sides.right_is_half else np.dot(x, sides.to_right)
    _put(missing, found, other, left, right)


@njit()
def _put(places: IntArray, found: FloatArray, other: FloatArray, left: FloatArray, right: FloatArray) -> None:
    for j in range(places.size):
        for k in range(left.shape[1]):
            left[places[j], k], right[places[j], k] = found[j, k], other[j, k]


class EigenRows(NamedTuple):
    """The sides l and r of all items of a kernel (:attr:`ndpp.linalg.EigenBasis.to_sides`).

    ``to_sides`` makes the sides of a row of Q. ``mean`` is the expected number of items. ``n_bytes`` does not count what the kernel and
    its basis have anyway.
    """

    values: AnyArray
    multiplicity: FloatArray
    to_sides: FloatArray
    source: Sides
    mean: float
    n_bytes: int

    @classmethod
    def of(cls, kernel: LowRankKernel, basis: EigenBasis, memory: int) -> EigenRows:
        """Return the sides of a kernel with this basis.

        They are computed once, O(r²) each: for all items, if Q is kept, unless that would take more than ``memory`` bytes. If only X is in
        memory, they are those of the items proposed most often, within half of ``memory``, provided that most proposals are of these.
        """
        to_sides, (rows, factors, to_q), Q = basis.to_sides, rows_of(kernel), kernel.coordinates.Q
        left, right = to_sides if to_q is None else to_q @ to_sides
        is_stored = isinstance(rows, LowRankKernel)
        which, leverage = np.arange(0 if is_stored else kernel.n_rows), kernel.coordinates.leverage
        n_bytes = 2 * 8 * left.shape[1]
        if to_q is not None and (most := memory // 2 // n_bytes) < len(which):
            which = np.argpartition(-leverage, most)[:most]
        is_worth = 2 * leverage[which].sum() > leverage.sum() if Q is None else n_bytes * len(which) <= memory
        if not is_worth:
            which = which[:0]
        source = Sides.of(rows, factors, left, right, which)
        n_bytes = source.n_bytes + (0 if to_q is None else to_sides.nbytes)
        return cls(basis.values, basis.multiplicity, to_sides, source, basis.mean, n_bytes)

    def sides(self, which: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return l and r of items, shapes (m, D)."""
        source, own = self.source, np.empty((len(which), len(self.source.to_left)))
        take(which, source.rows, source.factors, own)
        return own @ source.to_left, own @ source.to_right


@njit(error_model="numpy")
def write_resolvent(values: ComplexArray, t: complex, F: FloatArray) -> complex:
    """Write F = tD/(1 + tD) of these eigenvalues as (g, h), real and imaginary parts (2, D); return log det(I + tD)."""
    K, total, product = values.size, 0j, 1 + 0j
    for k in range(K):
        a = t * values[k]
        f = a / (1 + a)
        product *= 1 + a
        g = f
        if k < F.shape[1] - K:
            b = t * np.conj(values[k])
            other = b / (1 + b)
            product *= 1 + b
            g, skew = (f + other) / 2, (f - other) / 2j
            F[0, K + k], F[1, K + k] = skew.real, skew.imag
        F[0, k], F[1, k] = g.real, g.imag
        if not 1e-60 < abs(product) < 1e60:
            total += np.log(product)
            product = 1 + 0j
    return complex(total + np.log(product))


@njit(fastmath={"contract"}, error_model="numpy")
def apply(g: FloatArray, K: int, sign: int, side: FloatArray, out: FloatArray) -> None:
    """Write F r (RIGHT) or l F (LEFT) for a real part of F, stored as (g, h), K and D − K of them."""
    for k in range(g.size - K):
        a, b, s, t = g[k], sign * g[K + k], side[k], side[K + k]
        out[k], out[K + k] = a * s + b * t, a * t - b * s
    for k in range(g.size - K, K):
        out[k] = g[k] * side[k]
