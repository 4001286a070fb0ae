"""Rows in plain files, read and never mapped: the pages read belong to the system, and a file cut short is an error, not a crash."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ndpp._types import AnyArray, IntArray
from ndpp.errors import InvalidInputError
from ndpp.rows.base import Rows, check_shape, kind, slices


@dataclass(frozen=True, eq=False, repr=False)
class FileRows(Rows):
    """A matrix that lies row after row in a file, from a byte ``offset`` on.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> path = tempfile.mkdtemp() + "/X.f4"
    >>> np.arange(12, dtype=np.float32).tofile(path)
    >>> FileRows(path, (6, 2), "float32").take(np.array([5, 0]))
    array([[10., 11.],
           [ 0.,  1.]], dtype=float32)
    """

    path: str
    shape: tuple[int, int]
    stored: Any
    offset: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(Path(self.path).resolve()))
        object.__setattr__(self, "shape", check_shape(self.shape, "shape"))
        object.__setattr__(self, "stored", np.dtype(self.stored))
        wanted, there = self.offset + len(self) * self._row_bytes, os.stat(self.path).st_size
        if there < wanted:
            raise InvalidInputError(
                f"{self.name} should hold {self.shape[0]} × {self.shape[1]} {self.stored} from byte {self.offset}, {wanted} bytes in all; "
                f"it has {there}"
            )

    @classmethod
    def of(cls, array: np.memmap[Any, Any]) -> FileRows | None:
        """Return the rows of a memory map, or of a run of its rows; None where they do not lie in a file row after row."""
        in_file = array.filename is not None and array.mode != "c" and array.flags.c_contiguous
        if not in_file or array.ndim != 2:
            return None
        if not hasattr(os, "pread") and array.mode != "r":
            array.flush()  # Windows does not promise that what was written to a map is read from its file
        mapped: Any = array._mmap  # type: ignore[attr-defined]
        start = np.frombuffer(mapped, np.uint8).ctypes.data
        offset = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY + array.ctypes.data - start
        return cls(str(array.filename), array.shape, array.dtype, offset)

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """Kind of the entries, as they are computed with."""
        return kind(self.stored)

    @property
    def name(self) -> str:
        """What to call the store in a message."""
        return f"file {self.path!r}"

    @property
    def _row_bytes(self) -> int:
        return int(self.stored.itemsize * self.shape[1])

    @cached_property
    def _read(self) -> Callable[[int, int], bytes]:
        return reader(self.path)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_read"}

    def blocks(self) -> Iterator[tuple[slice, AnyArray]]:
        """Yield all rows, block by block."""
        for where in slices(self.shape, self.stored):
            parts, at, end = [], *(self.offset + row * self._row_bytes for row in (where.start, where.stop))
            while at < end:  # a read may give less than it was asked for
                parts.append(self._read(end - at, at))
                at += len(parts[-1]) or self._cut_short(where.start)
            yield where, self._matrix(parts)

    def rows(self, ids: IntArray) -> AnyArray:
        """Return the rows of these ids, one read each."""
        read, offset, width = self._read, self.offset, self._row_bytes
        parts = [read(width, offset + row * width) for row in ids.tolist()]
        if sum(map(len, parts)) != width * len(parts):
            self._cut_short(int(ids[[len(part) < width for part in parts]][0]))
        return self._matrix(parts)

    def _matrix(self, parts: list[bytes]) -> AnyArray:
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        return np.frombuffer(data, self.stored).reshape(-1, self.shape[1])

    def _cut_short(self, row: int) -> int:
        raise OSError(f"the file ends before the end of row {row}; it was cut short")


def reader(path: str) -> Callable[[int, int], bytes]:
    """Return a function (number of bytes, where) that reads from a file, in any number of threads; the file closes with it."""
    file = open(path, "rb", buffering=0)  # noqa: SIM115
    lock = threading.Lock()

    def pread(count: int, where: int) -> bytes:
        return os.pread(file.fileno(), count, where)

    def seek_and_read(count: int, where: int) -> bytes:
        with lock:  # the threads share one position
            file.seek(where)
            return file.read(count)

    read = pread if hasattr(os, "pread") else seek_and_read
    weakref.finalize(read, file.close)
    return read


@dataclass(frozen=True, eq=False, repr=False)
class Stacked(Rows):
    """Several sources, one under the other, as one: the shards of a saved kernel, or a folder of files."""

    parts: Sequence[Rows]

    def __post_init__(self) -> None:
        if not self.parts:
            raise InvalidInputError("X must have at least one part; there is none")
        width = self.parts[0].shape[1]
        for i, part in enumerate(self.parts):
            if part.shape[1] != width:
                raise InvalidInputError(
                    f"all parts of X must be equally wide; part 0 has {width} columns, part {i} ({part.name}) {part.shape[1]}"
                )

    @cached_property
    def _bounds(self) -> IntArray:
        return np.cumsum([0, *map(len, self.parts)])

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """Number of items and of columns."""
        return int(self._bounds[-1]), self.parts[0].shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """The finest precision of the parts."""
        return np.result_type(*(part.dtype for part in self.parts))

    @property
    def name(self) -> str:
        """What to call the store in a message."""
        return f"{len(self.parts)} parts, {self.parts[0].name} the first"

    def blocks(self) -> Iterator[tuple[slice, AnyArray]]:
        """Yield all rows, block by block."""
        for start, part in zip(self._bounds.tolist(), self.parts):
            for where, block in part.blocks():
                yield slice(start + where.start, start + where.stop), block

    def rows(self, ids: IntArray) -> AnyArray:
        """Return the rows of these ids."""
        out = np.empty((len(ids), self.shape[1]), self.dtype)
        owner = np.searchsorted(self._bounds, ids, side="right") - 1
        for i in np.unique(owner).tolist():
            mine = owner == i
            out[mine] = self.parts[i].rows(ids[mine] - self._bounds[i])
        return out
