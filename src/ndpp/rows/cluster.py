"""Rows in a dask array, here or on a cluster: functions go to the chunks, only their results and the rows asked for come back.

A chunk that is lost with its worker is computed again from its recipe; dask sees to that. A chunk that is not kept (``persist``) is
computed again every time some of its rows are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ndpp._types import AnyArray, IntArray
from ndpp.errors import InvalidInputError
from ndpp.rows.base import Result, Rows, check_shape, cut, kind


@dataclass(frozen=True, eq=False, repr=False)
class DaskRows(Rows):
    """A ``dask.array.Array`` whose chunks are runs of whole rows."""

    array: Any

    def __post_init__(self) -> None:
        if any(np.isnan(length) for length in self.array.shape):
            raise InvalidInputError(
                "the dask array does not know how many rows its chunks have; call X.compute_chunk_sizes()"
            )
        object.__setattr__(self, "shape", check_shape(self.array.shape, "the shape of X"))
        object.__setattr__(self, "dtype", kind(self.array.dtype))
        if self.array.numblocks[1] > 1:
            object.__setattr__(self, "array", self.array.rechunk({1: -1}))

    @property
    def name(self) -> str:
        """What to call the store in a message."""
        return f"dask array {self.array.name!r}"

    @cached_property
    def _chunks(self) -> tuple[IntArray, list[Any]]:
        """First row of every chunk, and what computes it."""
        return np.cumsum([0, *self.array.chunks[0]]), self.array.to_delayed()[:, 0].tolist()

    def __reduce__(self) -> Any:
        return DaskRows, (self.array,)

    def blocks(self) -> Iterator[tuple[slice, AnyArray]]:
        """Yield all rows, chunk by chunk."""
        bounds, chunks = self._chunks
        for start, stop, chunk in zip(bounds[:-1].tolist(), bounds[1:].tolist(), chunks):
            yield slice(start, stop), chunk.compute()

    def map_blocks(
        self, function: Callable[[AnyArray], Result], ids: IntArray | None = None
    ) -> Iterator[tuple[slice, Result]]:
        """Yield ``function`` of every chunk, computed where the chunk is, all chunks at once; see :meth:`Rows.map_blocks`."""
        import dask

        bounds, chunks = self._chunks
        places, tasks = [], []
        for start, stop, chunk in zip(bounds[:-1].tolist(), bounds[1:].tolist(), chunks):
            place, local = cut(slice(start, stop), ids)
            if place.stop > place.start:
                places.append(place)
                tasks.append(dask.delayed(_apply, pure=False)(function, chunk, local))
        return zip(places, dask.compute(*tasks, traverse=False))

    def rows(self, ids: IntArray) -> AnyArray:
        """Return the rows of these ids; only they travel."""
        import dask

        bounds, chunks = self._chunks
        out = np.empty((len(ids), self.shape[1]), self.dtype)
        owner = np.searchsorted(bounds, ids, side="right") - 1
        touched = np.unique(owner).tolist()
        masks = [owner == i for i in touched]
        tasks = [
            dask.delayed(_apply, pure=False)(None, chunks[i], ids[mask] - bounds[i]) for i, mask in zip(touched, masks)
        ]
        for mask, found in zip(masks, dask.compute(*tasks, traverse=False)):
            out[mask] = found
        return out


def _apply(function: Callable[[AnyArray], Any] | None, block: AnyArray, local: IntArray | None) -> Any:
    block = np.asarray(block)
    part = block if local is None else block[local]
    return part if function is None else function(part)
