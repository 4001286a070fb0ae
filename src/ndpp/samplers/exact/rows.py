"""Rows of items for compiled loops: one function, :func:`fetch`, whatever they are kept in.

A loop is written once. With rows in memory it is compiled, and so is :func:`fetch`; with rows in a store, the same loop is interpreted
(:func:`ndpp._compiled.interpreted`), and what it calls is still compiled. Draws do not depend on where rows are kept.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numba.extending import overload

from ndpp._compiled import njit
from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg import EigenBasis
from ndpp.rows.scaled import Scaled


class RowsInMemory(NamedTuple):
    """Rows (n, w), of which item a has one, times factor a, or times the only factor, and times each of two matrices.

    If ``are_products``, the products of a row stand in it side by side, and there is nothing to multiply. If ``second_is_half``, the second
    product is half of the first one.
    """

    rows: AnyArray
    factors: FloatArray
    to_first: FloatArray
    to_second: FloatArray
    are_products: bool
    second_is_half: bool

    def write(self, which: IntArray, first: FloatArray, second: FloatArray) -> None:
        """Write the products of these items, shapes (m, D)."""
        _write(which, self, first, second)


class RowsInStore(NamedTuple):
    """Rows of Q that the kernel fetches from its store, times each of two matrices."""

    kernel: LowRankKernel
    to_first: FloatArray
    to_second: FloatArray

    def write(self, which: IntArray, first: FloatArray, second: FloatArray) -> None:
        """Write the products of these items, shapes (m, D)."""
        q = self.kernel.q_rows(which)
        np.dot(q, self.to_first, first)
        np.dot(q, self.to_second, second)


Source: TypeAlias = RowsInMemory | RowsInStore


def fetch(which: IntArray, source: Source, first: FloatArray, second: FloatArray) -> None:
    """Write the two products of the rows of these items, shapes (m, D)."""
    source.write(which, first, second)


@overload(fetch)
def _fetch_compiled(which, source, first, second):  # type: ignore[no-untyped-def]
    return lambda which, source, first, second: _write(which, source, first, second)


@njit(error_model="numpy")
def _write(which: IntArray, source: RowsInMemory, first: FloatArray, second: FloatArray) -> None:
    n, D, d = which.size, first.shape[1], source.rows.shape[1]
    if source.are_products:
        for i in range(n):
            for k in range(D):
                first[i, k], second[i, k] = source.rows[which[i], k], source.rows[which[i], D + k]
        return
    x = np.empty((n, d))
    for i in range(n):
        a = which[i]
        scale = source.factors[min(a, source.factors.size - 1)]
        for k in range(d):
            x[i, k] = scale * source.rows[a, k]
    np.dot(x, source.to_first, first)
    if source.second_is_half:
        for i in range(n):
            for k in range(D):
                second[i, k] = first[i, k] / 2
    else:
        np.dot(x, source.to_second, second)


class EigenRows(NamedTuple):
    """The sides l and r of all items of a kernel (:attr:`ndpp.linalg.EigenBasis.to_sides`), as products of their rows.

    ``to_sides`` makes the sides of a row of Q. ``n_bytes`` does not count what the kernel and its basis have anyway.
    """

    values: AnyArray
    multiplicity: FloatArray
    to_sides: FloatArray
    source: Source
    n_bytes: int

    @classmethod
    def of(cls, kernel: LowRankKernel, basis: EigenBasis, memory: int) -> EigenRows:
        """Return the sides of a kernel with this basis.

        If Q is kept, they are computed once for all items, O(n r²), unless that would take more than ``memory`` bytes.
        """
        to_sides = basis.to_sides
        source, n_bytes = _source(kernel, to_sides, memory)
        return cls(basis.values, basis.multiplicity, to_sides, source, n_bytes + to_sides.nbytes)

    @property
    def is_compiled(self) -> bool:
        """Whether compiled loops can read the rows."""
        return isinstance(self.source, RowsInMemory)

    def sides(self, which: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return l and r of items, shapes (m, D)."""
        left, right = np.empty((2, len(which), self.to_sides.shape[2]))
        self.source.write(which, left, right)
        return left, right


def _source(kernel: LowRankKernel, to_sides: FloatArray, memory: int) -> tuple[Source, int]:
    """Return where the sides come from, and the bytes of its arrays that the kernel does not have."""
    coords, X, one = kernel.coordinates, kernel._factor, np.ones(1)
    left, right = to_sides
    is_half = bool(np.array_equal(left, 2 * right))  # as it is if B is skew
    if coords.Q is not None and 2 * 8 * len(coords.Q) * left.shape[1] <= memory:
        both = np.concatenate([coords.Q @ left, coords.Q @ right], axis=1)
        return RowsInMemory(both, one, left, right, True, is_half), both.nbytes + one.nbytes
    if coords.Q is not None:
        return RowsInMemory(coords.Q, one, left, right, False, is_half), one.nbytes
    if isinstance(X, Scaled):
        one, X = X.factors, X.source
    if not isinstance(X, np.ndarray):
        return RowsInStore(kernel, left, right), 0
    to_left, to_right = coords.to_q @ left, coords.to_q @ right
    own = to_left.nbytes + to_right.nbytes + one.nbytes
    return RowsInMemory(X, one, to_left, to_right, False, is_half), own


@njit(fastmath={"contract"}, error_model="numpy")
def apply_right(g: FloatArray, K: int, right: FloatArray, out: FloatArray) -> None:
    """Write F r for a real part of F, stored as (g, h), K and D − K of them."""
    for k in range(g.size - K):
        a, b, s, t = g[k], g[K + k], right[k], right[K + k]
        out[k], out[K + k] = a * s + b * t, a * t - b * s
    for k in range(g.size - K, K):
        out[k] = g[k] * right[k]


@njit(fastmath={"contract"}, error_model="numpy")
def apply_left(g: FloatArray, K: int, left: FloatArray, out: FloatArray) -> None:
    """Write l F for a real part of F, stored as (g, h), K and D − K of them."""
    for k in range(g.size - K):
        a, b, x, y = g[k], g[K + k], left[k], left[K + k]
        out[k], out[K + k] = a * x - b * y, a * y + b * x
    for k in range(g.size - K, K):
        out[k] = g[k] * left[k]
