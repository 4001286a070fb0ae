"""Rows in chunks: HDF5 and Zarr, read through the store's own library, and dask arrays, perhaps on a cluster."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ndpp._types import IntArray, RealArray, cached_property
from ndpp.errors import InvalidInputError, needing
from ndpp.rows.base import Blocks, Result, Rows, check_shape, cut, precision, slices

if TYPE_CHECKING:
    import dask.array
    import h5py
    import zarr

Task: TypeAlias = tuple[Callable[[RealArray], object] | None, object, IntArray | None]
"""A function of rows, a chunk to be computed, and which of its rows are wanted."""


class ChunkedRows(Rows):
    """An array of a store that is read in chunks."""

    def __init__(self, array: h5py.Dataset | zarr.Array, name: str) -> None:
        self.array, self.name = array, name
        self.shape, self.dtype = check_shape(array.shape, "the shape of X"), precision(array.dtype)

    def blocks(self) -> Blocks:
        """Yield all rows, several whole chunks at a time, so that no chunk is decompressed twice."""
        chunk = (self.array.chunks or (1,))[0]
        step = next(slices(self.shape, self.dtype), slice(0, 1)).stop
        step = max(chunk, step // chunk * chunk)
        for start in range(0, len(self), step):
            where = slice(start, min(start + step, len(self)))
            yield where, self._fetch(where)

    def rows(self, ids: IntArray) -> RealArray:
        """Return the rows of these ids."""
        distinct, places = np.unique(ids, return_inverse=True)  # both libraries want increasing ids
        return self._fetch(distinct)[places]

    @abstractmethod
    def _fetch(self, rows: slice | IntArray) -> RealArray: ...


class HDF5Rows(ChunkedRows):
    """An ``h5py.Dataset``. Another process opens the file again, read-only."""

    def __init__(self, array: h5py.Dataset) -> None:
        self.file = os.path.abspath(array.file.filename)
        super().__init__(array, f"HDF5 dataset {array.name!r} of {self.file!r}")

    def _fetch(self, rows: slice | IntArray) -> RealArray:
        return np.asarray(self.array[rows])

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self.file, self.array.name)


def _reopen(filename: str, name: str) -> HDF5Rows:
    with needing("h5py", "scale", "An HDF5 dataset"):
        import h5py
    return HDF5Rows(h5py.File(filename, "r")[name])


class ZarrRows(ChunkedRows):
    """A ``zarr.Array``."""

    def __init__(self, array: zarr.Array) -> None:
        super().__init__(array, f"Zarr array {str(array.store_path)!r}")

    def _fetch(self, rows: slice | IntArray) -> RealArray:
        found = np.asarray(self.array[rows] if isinstance(rows, slice) else self.array.oindex[rows])
        # Zarr reads missing chunks as zeros, so a store that was removed must be detected here.
        root = getattr(self.array.store_path.store, "root", None)
        folder = None if root is None else Path(root) / self.array.store_path.path
        if folder is not None and not any((folder / meta).exists() for meta in ("zarr.json", ".zarray")):
            raise FileNotFoundError(f"no array at {str(folder)!r} any more")
        return found


class DaskRows(Rows):
    """A ``dask.array.Array``; its columns are merged into one chunk. Functions go to the chunks; only results and requested rows come back.

    If a worker is lost, dask computes its chunks again. Call ``persist`` on the array first: otherwise a chunk is computed again every time
    some of its rows are requested.
    """

    def __init__(self, array: dask.array.Array) -> None:
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

    def __reduce__(self) -> tuple[object, ...]:
        return DaskRows, (self.array,)

    def blocks(self) -> Blocks:
        """Yield all rows, chunk by chunk."""
        return ((where, chunk.compute()) for where, chunk in zip(*self._chunks))

    def map_blocks(
        self, function: Callable[[RealArray], Result], ids: IntArray | None = None
    ) -> Iterator[tuple[slice, Result]]:
        """Yield ``function`` of every chunk, computed where the chunk is, all at once; see :meth:`Rows.map_blocks`."""
        places, tasks = list[slice](), list[Task]()
        for where, chunk in zip(*self._chunks):
            place, local = cut(where, ids)
            if place.stop > place.start:
                places.append(place)
                tasks.append((function, chunk, local))
        return zip(places, _compute(tasks))

    def rows(self, ids: IntArray) -> RealArray:
        """Return the rows of these ids; nothing else is transferred."""
        bounds, chunks = self._chunks
        out = np.empty((len(ids), self.shape[1]), self.dtype)
        owner = np.searchsorted([where.stop for where in bounds], ids, side="right")
        used = np.unique(owner).tolist()
        tasks: list[Task] = [(None, chunks[i], ids[owner == i] - bounds[i].start) for i in used]
        for i, found in zip(used, _compute(tasks)):
            out[owner == i] = found
        return out


def _compute(tasks: list[Task]) -> tuple[Any, ...]:
    import dask

    delayed = dask.delayed(_apply, pure=False)
    found: tuple[Any, ...] = dask.compute(*(delayed(*task) for task in tasks), traverse=False)
    return found


def _apply(function: Callable[[RealArray], object] | None, block: RealArray, local: IntArray | None) -> object:
    block = np.asarray(block)
    part = block if local is None else block[local]
    return part if function is None else function(part)
