"""Rows in chunked stores, HDF5 and Zarr, read through the store's own library."""

from __future__ import annotations

import os
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from ndpp._types import AnyArray, IntArray
from ndpp.errors import needing
from ndpp.rows.base import Blocks, Rows, check_shape, precision, slices


class ChunkedRows(Rows):
    """An array of a store that is read in chunks."""

    def __init__(self, array: Any, name: str) -> None:
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

    def rows(self, ids: IntArray) -> AnyArray:
        """Return the rows of these ids."""
        distinct, places = np.unique(ids, return_inverse=True)  # both libraries want increasing ids
        return self._fetch(distinct)[places]

    @abstractmethod
    def _fetch(self, rows: slice | IntArray) -> AnyArray: ...


class HDF5Rows(ChunkedRows):
    """An ``h5py.Dataset``. Another process opens the file again, read-only."""

    def __init__(self, array: Any) -> None:
        self.file = os.path.abspath(array.file.filename)
        super().__init__(array, f"HDF5 dataset {array.name!r} of {self.file!r}")

    def _fetch(self, rows: slice | IntArray) -> AnyArray:
        return np.asarray(self.array[rows])

    def __reduce__(self) -> Any:
        return _reopen, (self.file, self.array.name)


def _reopen(filename: str, name: str) -> HDF5Rows:
    with needing("h5py", "scale", "An HDF5 dataset"):
        import h5py
    return HDF5Rows(h5py.File(filename, "r")[name])


class ZarrRows(ChunkedRows):
    """A ``zarr.Array``."""

    def __init__(self, array: Any) -> None:
        super().__init__(array, f"Zarr array {str(array.store_path)!r}")

    def _fetch(self, rows: slice | IntArray) -> AnyArray:
        found = np.asarray(self.array[rows] if isinstance(rows, slice) else self.array.oindex[rows])
        # Zarr reads missing chunks as zeros, so a store that was removed must be detected here.
        root = getattr(self.array.store_path.store, "root", None)
        folder = None if root is None else Path(root) / self.array.store_path.path
        if folder is not None and not any((folder / meta).exists() for meta in ("zarr.json", ".zarray")):
            raise FileNotFoundError(f"no array at {str(folder)!r} any more")
        return found
