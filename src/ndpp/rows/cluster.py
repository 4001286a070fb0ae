"""Rows in a dask array, on this machine or on a cluster: functions go to the chunks; only results and requested rows come back.

If a worker is lost, dask computes its chunks again. Call ``persist`` on the array first: otherwise a chunk is computed again every time
some of its rows are requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from ndpp._types import AnyArray, IntArray
from ndpp.errors import InvalidInputError
from ndpp.rows.base import Blocks, Result, Rows, check_shape, cut, precision


class DaskRows(Rows):
    """A ``dask.array.Array``; its columns are merged into one chunk."""

    def __init__(self, array: Any) -> None:
        if any(np.isnan(length) for length in array.shape):
            raise InvalidInputError(
                "the dask array does not know how many rows its chunks have; call X.compute_chunk_sizes()"
            )
        self.shape, self.dtype = check_shape(array.shape, "the shape of X"), precision(array.dtype)
        self.array = array.rechunk({1: -1}) if array.numblocks[1] > 1 else array
        self.name = f"dask array {self.array.name!r}"

    @cached_property
    def _chunks(self) -> tuple[list[slice], list[Any]]:
        """The rows of every chunk, and what computes it."""
        bounds = np.cumsum([0, *self.array.chunks[0]]).tolist()
        return list(map(slice, bounds[:-1], bounds[1:])), self.array.to_delayed()[:, 0].tolist()

    def __reduce__(self) -> Any:
        return DaskRows, (self.array,)

    def blocks(self) -> Blocks:
        """Yield all rows, chunk by chunk."""
        return ((where, chunk.compute()) for where, chunk in zip(*self._chunks))

    def map_blocks(
        self, function: Callable[[AnyArray], Result], ids: IntArray | None = None
    ) -> Iterator[tuple[slice, Result]]:
        """Yield ``function`` of every chunk, computed where the chunk is, all at once; see :meth:`Rows.map_blocks`."""
        places, tasks = [], []
        for where, chunk in zip(*self._chunks):
            place, local = cut(where, ids)
            if place.stop > place.start:
                places.append(place)
                tasks.append((function, chunk, local))
        return zip(places, _compute(tasks))

    def rows(self, ids: IntArray) -> AnyArray:
        """Return the rows of these ids; nothing else is transferred."""
        bounds, chunks = self._chunks
        out = np.empty((len(ids), self.shape[1]), self.dtype)
        owner = np.searchsorted([where.stop for where in bounds], ids, side="right")
        used = np.unique(owner).tolist()
        tasks = [(None, chunks[i], ids[owner == i] - bounds[i].start) for i in used]
        for i, found in zip(used, _compute(tasks)):
            out[owner == i] = found
        return out


def _compute(tasks: list[Any]) -> Any:
    import dask

    delayed = dask.delayed(_apply, pure=False)
    return dask.compute(*(delayed(*task) for task in tasks), traverse=False)


def _apply(function: Callable[[AnyArray], Any] | None, block: AnyArray, local: IntArray | None) -> Any:
    block = np.asarray(block)
    part = block if local is None else block[local]
    return part if function is None else function(part)
