"""Rows of X that are not one array in memory: files, HDF5, Zarr, dask, or your own store with two methods.

``LowRankKernel(X, W)`` accepts any of them as X; :func:`as_rows` shows how it will read one.
"""

from __future__ import annotations

import numpy as np

from ndpp.errors import InvalidInputError
from ndpp.rows.base import Rows, RowSource, SelectedRows, Wrapped
from ndpp.rows.files import FileRows, Stacked
from ndpp.rows.stores import DaskRows, HDF5Rows, ZarrRows

__all__ = ["DaskRows", "FileRows", "HDF5Rows", "RowSource", "Rows", "SelectedRows", "Stacked", "ZarrRows", "as_rows"]


def as_rows(value: object) -> Rows | None:
    """Return ``value`` as a row source; None if it is an array in memory or a nested list.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> X = np.memmap(tempfile.mkdtemp() + "/X", np.float32, "w+", shape=(6, 2))
    >>> as_rows(X).shape, as_rows(X).dtype
    ((6, 2), dtype('float32'))
    >>> as_rows([[1.0]])
    """
    if type(value) is np.ndarray:
        return None
    if isinstance(value, Rows):
        return value
    if isinstance(value, np.memmap):
        return FileRows.of(value)
    match type(value).__module__.partition(".")[0], type(value).__name__:
        case "h5py", "Dataset":
            return HDF5Rows(value)
        case "zarr", "Array":
            return ZarrRows(value)
        case "dask", "Array":
            return DaskRows(value)
    if isinstance(value, RowSource):
        return Wrapped(value)
    if hasattr(value, "blocks") and hasattr(value, "shape"):
        raise InvalidInputError(
            f"X of type {type(value).__name__} has blocks(), but not all of shape, dtype, blocks() and rows(ids); see ndpp.rows.RowSource"
        )
    return None
