"""Rows in chunked stores, HDF5 and Zarr, read through the store's own library."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ndpp._types import AnyArray, IntArray
from ndpp.errors import MissingExtraError
from ndpp.rows.base import Rows, check_shape, kind, slices


@dataclass(frozen=True, eq=False, repr=False)
class _Store(Rows):
    array: Any

    def __post_init__(self) -> None:
        # Kept, as a store that has been closed no longer knows them.
        object.__setattr__(self, "shape", check_shape(self.array.shape, "the shape of X"))
        object.__setattr__(self, "dtype", kind(self.array.dtype))

    def blocks(self) -> Iterator[tuple[slice, AnyArray]]:
        """Yield all rows, a run of whole chunks at a time, so that no chunk is unpacked twice."""
        chunk = (self.array.chunks or (1,))[0]
        step = next(slices(self.shape, self.dtype), slice(0, 1)).stop
        step = max(chunk, step // chunk * chunk)
        for start in range(0, len(self), step):
            where = slice(start, min(start + step, len(self)))
            yield where, self._there(self.array[where])

    def rows(self, ids: IntArray) -> AnyArray:
        """Return the rows of these ids."""
        distinct, places = np.unique(ids, return_inverse=True)  # both libraries want ids that ascend
        return self._there(self._pick(distinct))[places]

    @abstractmethod
    def _pick(self, ids: IntArray) -> AnyArray: ...

    def _there(self, found: AnyArray) -> AnyArray:
        return found


class HDF5Rows(_Store):
    """An ``h5py.Dataset``. In another process the file is opened again, to read."""

    @property
    def name(self) -> str:
        """What to call the store in a message."""
        return (
            f"HDF5 dataset {self.array.name!r} of {self.array.file.filename!r}" if self.array else "a closed HDF5 file"
        )

    def _pick(self, ids: IntArray) -> AnyArray:
        return np.asarray(self.array[ids])

    def __reduce__(self) -> Any:
        return _reopen, (os.path.abspath(self.array.file.filename), self.array.name)


def _reopen(filename: str, name: str) -> HDF5Rows:
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("h5py", "scale", "An HDF5 dataset") from None
    return HDF5Rows(h5py.File(filename, "r")[name])


class ZarrRows(_Store):
    """A ``zarr.Array``."""

    @property
    def name(self) -> str:
        """What to call the store in a message."""
        return f"Zarr array {str(self.array.store_path)!r}"

    def _pick(self, ids: IntArray) -> AnyArray:
        return np.asarray(self.array.oindex[ids])

    def _there(self, found: AnyArray) -> AnyArray:
        # Zarr takes a chunk that is not there for one of zeros, so a store that was removed has to be missed.
        root = getattr(self.array.store_path.store, "root", None)
        folder = None if root is None else Path(root) / self.array.store_path.path
        if folder is not None and not any((folder / meta).exists() for meta in ("zarr.json", ".zarray")):
            raise FileNotFoundError(f"no array at {str(folder)!r} any more")
        return found
