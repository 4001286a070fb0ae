"""Rows in plain files, read rather than mapped: memory use stays small, and a truncated file is an error, not a crash."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ndpp._types import IntArray, RealArray
from ndpp.errors import InvalidInputError
from ndpp.rows.base import Blocks, Rows, check_shape, precision, slices


class FileRows(Rows):
    """A matrix stored row by row in a file, starting at byte ``offset``; ``stored`` is the type of its entries.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> path = tempfile.mkdtemp() + "/X.f4"
    >>> np.arange(12, dtype=np.float32).tofile(path)
    >>> FileRows(path, (6, 2), "float32").take(np.array([5, 0]))
    array([[10., 11.],
           [ 0.,  1.]], dtype=float32)
    """

    def __init__(
        self, path: str | os.PathLike[str], shape: tuple[int, int], stored: npt.DTypeLike, offset: int = 0
    ) -> None:
        self.path, self.offset = str(Path(path).resolve()), offset
        self.name = f"file {self.path!r}"
        self.shape, self.stored = check_shape(shape, "shape"), np.dtype(stored)
        self.dtype = precision(self.stored)
        self._row_bytes = self.stored.itemsize * self.shape[1]
        wanted, there = offset + len(self) * self._row_bytes, os.stat(self.path).st_size
        if there < wanted:
            raise InvalidInputError(
                f"{self.name} should hold {self.shape[0]} × {self.shape[1]} {self.stored} from byte {offset}, {wanted} bytes in all; "
                f"it has {there}"
            )

    @classmethod
    def of(cls, array: np.memmap[Any, Any]) -> FileRows | None:
        """Return the rows of a memory map, or of a slice of its rows; None if they are not stored row by row in a file."""
        in_file = array.filename is not None and array.mode != "c" and array.flags.c_contiguous
        if not in_file or array.ndim != 2:
            return None
        if not hasattr(os, "pread") and array.mode != "r":
            array.flush()  # on Windows, changes of a map may not be visible in its file otherwise
        mapped: mmap.mmap = array._mmap  # type: ignore[attr-defined]
        start = np.frombuffer(mapped, np.uint8).ctypes.data
        offset = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY + array.ctypes.data - start
        return cls(str(array.filename), array.shape, array.dtype, offset)

    @property
    def _opened(self) -> tuple[int, Callable[[int, int], bytes]]:
        if "_file" not in self.__dict__:
            self.__dict__.setdefault("_file", opened(self.path))  # one file, if threads come together
        found: tuple[int, Callable[[int, int], bytes]] = self.__dict__["_file"]
        return found

    @property
    def descriptor(self) -> int:
        """The number of the open file, which stays open as long as these rows exist."""
        return self._opened[0]

    def _read(self, count: int, offset: int) -> bytes:
        return self._opened[1](count, offset)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_file"}

    def blocks(self) -> Blocks:
        """Yield all rows, block by block."""
        for where in slices(self.shape, self.stored):
            parts, at, end = [], *(self.offset + row * self._row_bytes for row in (where.start, where.stop))
            while at < end:  # a read may return less than requested
                parts.append(self._read(end - at, at))
                at += len(parts[-1]) or self._truncated(where.start)
            yield where, self._matrix(parts)

    def rows(self, ids: IntArray) -> RealArray:
        """Return the rows of these ids, with one read per row."""
        (_, read), offset, width = self._opened, self.offset, self._row_bytes
        parts = [read(width, offset + row * width) for row in ids.tolist()]
        if sum(map(len, parts)) != width * len(parts):
            self._truncated(int(ids[[len(part) < width for part in parts]][0]))
        return self._matrix(parts)

    def _matrix(self, parts: list[bytes]) -> RealArray:
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        return np.frombuffer(data, self.stored).reshape(-1, self.shape[1])

    def _truncated(self, row: int) -> int:
        raise OSError(f"the file ends before the end of row {row}; it was cut short")


def opened(path: str) -> tuple[int, Callable[[int, int], bytes]]:
    """Return the descriptor of a file, and a thread-safe function (number of bytes, offset) that reads from it; it is closed with this."""
    file = open(path, "rb", buffering=0)  # noqa: SIM115
    lock = threading.Lock()

    def pread(count: int, offset: int) -> bytes:
        return os.pread(file.fileno(), count, offset)

    def seek_and_read(count: int, offset: int) -> bytes:
        with lock:  # the threads share one position
            file.seek(offset)
            return file.read(count)

    read = pread if hasattr(os, "pread") else seek_and_read
    weakref.finalize(read, file.close)
    return file.fileno(), read


class Stacked(Rows):
    """Several sources, one below the other: the shards of a saved kernel, or a folder of files."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        if not parts:
            raise InvalidInputError("X must have at least one part; there is none")
        width = parts[0].shape[1]
        for i, part in enumerate(parts):
            if part.shape[1] != width:
                raise InvalidInputError(
                    f"all parts of X must be equally wide; part 0 has {width} columns, part {i} ({part.name}) {part.shape[1]}"
                )
        self.parts, self._bounds = parts, np.cumsum([0, *map(len, parts)])
        self.shape = int(self._bounds[-1]), width
        self.dtype = np.result_type(*(part.dtype for part in parts))
        self.name = f"{len(parts)} parts, {parts[0].name} the first"

    def blocks(self) -> Blocks:
        """Yield all rows, block by block."""
        for start, part in zip(self._bounds.tolist(), self.parts):
            for where, block in part.blocks():
                yield slice(start + where.start, start + where.stop), block

    def rows(self, ids: IntArray) -> RealArray:
        """Return the rows of these ids."""
        out = np.empty((len(ids), self.shape[1]), self.dtype)
        owner = np.searchsorted(self._bounds, ids, side="right") - 1
        for i in np.unique(owner).tolist():
            out[owner == i] = self.parts[i].rows(ids[owner == i] - self._bounds[i])
        return out
