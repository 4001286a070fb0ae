"""Rows of X, multiplied by numbers or matrices as they are read: kernels that share X share its memory."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ndpp._types import FloatArray, IntArray, RealArray
from ndpp.rows.base import Blocks, Rows, slices


class Multiplied(Rows):
    """Row i of a source, an array or another row source, times ``factors[i]``, if there are any, and some matrices, in double precision."""

    def __init__(
        self,
        source: RealArray | Rows,
        factors: FloatArray | None = None,
        *matrices: FloatArray,
        is_shared: bool = False,
    ) -> None:
        self.is_shared, self.name = is_shared, "X"
        if isinstance(source, Rows):
            self.is_shared, self.name = is_shared or source.is_shared, source.name
        self.source, self.matrices = source, matrices
        self.factors: FloatArray = np.broadcast_to(1.0, len(source)) if factors is None else factors
        if isinstance(source, Multiplied) and not source.matrices:
            self.source, self.factors = source.source, source.factors * self.factors
        self.shape = len(source), (matrices[-1] if matrices else source).shape[1]
        self.dtype = np.dtype(np.float64)

    def _product(self, rows: RealArray, which: slice | IntArray) -> FloatArray:
        return reduce(np.matmul, self.matrices, rows * self.factors[which, None])

    def blocks(self) -> Blocks:
        """Yield the rows, block by block."""
        X = self.source
        blocks = X.blocks() if isinstance(X, Rows) else ((where, X[where]) for where in slices(X.shape, X.dtype))
        return ((where, self._product(block, where)) for where, block in blocks)

    def rows(self, ids: IntArray) -> RealArray:
        """Return the rows of these ids."""
        return self._product(self.source.rows(ids) if isinstance(self.source, Rows) else self.source[ids], ids)
