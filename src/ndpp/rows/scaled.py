"""Rows of X, multiplied by numbers or matrices as they are read: kernels that share X share its memory."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp.rows.base import Blocks, Rows, slices


class Scaled(Rows):
    """Row i of the source, an array or another row source, times ``factors[i]``, in double precision."""

    def __init__(self, source: AnyArray | Rows, factors: FloatArray, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared or (isinstance(source, Rows) and source.is_shared)
        self.source: AnyArray | Rows = source.source if isinstance(source, Scaled) else source
        self.factors: FloatArray = source.factors * factors if isinstance(source, Scaled) else factors
        self.shape, self.dtype = (source.shape[0], source.shape[1]), np.dtype(np.float64)
        self.name = self.source.name if isinstance(self.source, Rows) else "X"

    def blocks(self) -> Blocks:
        """Yield the rows, block by block."""
        return ((where, block * self.factors[where, None]) for where, block in blocks_of(self.source))

    def rows(self, ids: IntArray) -> AnyArray:
        """Return the rows of these ids."""
        found = self.source.rows(ids) if isinstance(self.source, Rows) else self.source[ids]
        return found * self.factors[ids, None]


class Turned(Rows):
    """The rows of a source, an array or another row source, times some matrices, in double precision."""

    def __init__(self, source: AnyArray | Rows, *matrices: FloatArray) -> None:
        self.source, self.matrices = source, matrices
        self.is_shared = isinstance(source, Rows) and source.is_shared
        self.shape, self.dtype = (source.shape[0], matrices[-1].shape[1]), np.dtype(np.float64)
        self.name = source.name if isinstance(source, Rows) else "X"

    def _turned(self, rows: AnyArray) -> FloatArray:
        return reduce(np.matmul, self.matrices, np.asarray(rows, np.float64))

    def blocks(self) -> Blocks:
        """Yield the rows, block by block."""
        return ((where, self._turned(block)) for where, block in blocks_of(self.source))

    def rows(self, ids: IntArray) -> AnyArray:
        """Return the rows of these ids."""
        return self._turned(self.source.rows(ids) if isinstance(self.source, Rows) else self.source[ids])


def blocks_of(source: AnyArray | Rows) -> Blocks:
    """Yield an array or a row source block by block."""
    if isinstance(source, Rows):
        return source.blocks()
    return ((where, source[where]) for where in slices(source.shape, source.dtype))
