"""Rows of X, each multiplied by a number as it is read: kernels that share X share its memory."""

from __future__ import annotations

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
        source = self.source
        parts = (
            source.blocks() if isinstance(source, Rows) else ((s, source[s]) for s in slices(self.shape, self.dtype))
        )
        return ((where, block * self.factors[where, None]) for where, block in parts)

    def rows(self, ids: IntArray) -> AnyArray:
        """Return the rows of these ids."""
        found = self.source.rows(ids) if isinstance(self.source, Rows) else self.source[ids]
        return found * self.factors[ids, None]
