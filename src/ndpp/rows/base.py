"""The interface to rows of X that are not one array in memory: in a file, a chunked store or on a cluster.

Preparing a kernel reads all of X in blocks, once or twice; drawing fetches a few rows by id. A :class:`RowSource` does both. What it
returns is checked here: errors name the rows concerned if blocks do not fit together, entries are not finite, or a store has gone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from ndpp._types import IntArray, RealArray
from ndpp.errors import InvalidInputError, NDPPError, PrecisionError, RowsUnavailableError

BLOCK_BYTES = 16 * 2**20
"""Bytes of a block, for stores that have no blocks of their own."""
READ_ALL_FACTOR = 8
"""If fewer than one row in this many is needed, rows are fetched one by one; otherwise the whole store is read."""

Result = TypeVar("Result")
Block = TypeVar("Block", bound=RealArray)
Blocks: TypeAlias = Iterator[tuple[slice, RealArray]]


@runtime_checkable
class RowSource(Protocol):
    """What a store must provide to be the X of a kernel. To reach other processes, it must also pickle.

    ``blocks`` yields all rows in order, each block with its slice of rows. ``rows`` returns the rows of these ids in the same order; ids
    may repeat. Entries are real numbers; all types other than float32 are converted to float64.
    """

    shape: tuple[int, int]
    """Number of items and of columns."""
    dtype: np.dtype[Any]
    """Type of the entries."""

    @abstractmethod
    def blocks(self) -> Blocks:
        """Yield all rows, block by block."""

    @abstractmethod
    def rows(self, ids: IntArray) -> RealArray:
        """Return the rows of these ids."""


class Rows(ABC):
    """A :class:`RowSource` whose results are checked. Immutable; open files are not pickled but opened again where they are needed.

    ``name`` is what messages call the store. Not a subclass of the protocol: ``isinstance`` is slow with those.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    name: str
    is_shared: bool = False
    """Whether many kernels share these rows, so that none of them should keep a copy."""

    def map_blocks(
        self, function: Callable[[RealArray], Result], ids: IntArray | None = None
    ) -> Iterator[tuple[slice, Result]]:
        """Yield ``function`` of every block, or of its rows that are among the sorted ``ids``; slices then count these.

        A store that spans machines overrides this to send the function to the rows rather than the rows to the function.
        """
        for where, block in self.blocks():
            place, local = cut(where, ids)
            if place.stop > place.start:
                yield place, function(block if local is None else block[local])

    @abstractmethod
    def blocks(self) -> Blocks:
        """Yield all rows, block by block."""

    @abstractmethod
    def rows(self, ids: IntArray) -> RealArray:
        """Return the rows of these ids."""

    # -- checked results -----------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of entries, as of an array."""
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> RealArray:
        return np.asarray(self.read(), dtype)

    def __repr__(self) -> str:
        return f"<{self.shape[0]} × {self.shape[1]} {self.dtype}: {self.name}>"

    def each(self, function: Callable[[RealArray], Block]) -> Iterator[tuple[slice, Block]]:
        """Yield ``function`` of every block, computed where the block is stored: for functions with small results."""
        return self._checked(self.map_blocks(partial(_examine, function, self.shape[1])))

    def stream(self) -> Blocks:
        """Yield every block."""
        return self._checked((where, _examine(_same, self.shape[1], block)) for where, block in self.blocks())

    def take(self, ids: IntArray) -> RealArray:
        """Return the rows of these ids."""
        if len(ids) == 0:
            return np.empty((0, self.shape[1]), self.dtype)
        try:
            found = np.asarray(self.rows(ids))
        except NDPPError:
            raise
        except Exception as reason:
            raise self._unavailable(f"row {ids[0]}" if len(ids) == 1 else f"{len(ids)} rows", reason) from reason
        if found.shape != (len(ids), self.shape[1]):
            raise InvalidInputError(
                f"{len(ids)} rows of X should have shape ({len(ids)}, {self.shape[1]}); {self.name} gave {found.shape}"
            )
        return real(found)

    def read(self) -> RealArray:
        """Return all of X as an array."""
        out = np.empty(self.shape, self.dtype)
        for where, block in self.stream():
            out[where] = block
        return out

    def span(self, where: slice) -> tuple[int, int]:
        """Return the first and last catalogue id of a slice of rows."""
        return where.start, where.stop - 1

    def _checked(self, blocks: Iterator[tuple[slice, Examined[Block]]]) -> Iterator[tuple[slice, Block]]:
        """Yield the results of blocks; raise unless these cover X in order."""
        done = 0
        try:
            for where, block in blocks:
                if where.start != done:
                    raise InvalidInputError(
                        f"blocks of X must follow each other; expected row {done} next, {self.name} gave rows "
                        f"{where.start}–{where.stop - 1}"
                    )
                done = where.stop
                yield where, self._check_block(where, block)
        except NDPPError:
            raise
        except Exception as reason:
            raise self._unavailable(f"rows from {self.span(slice(done, done + 1))[0]} on", reason) from reason
        if done != len(self):
            raise InvalidInputError(f"X should have {len(self)} rows; the blocks of {self.name} end after {done}")

    def _check_block(self, where: slice, block: Examined[Block]) -> Block:
        first, last = self.span(where)
        wanted = (where.stop - where.start, self.shape[1])
        if block.shape != wanted:
            raise InvalidInputError(
                f"rows {first}–{last} of X should have shape {wanted}; the block from {self.name} has shape {block.shape}. "
                "All chunks must have the width of X."
            )
        if block.bad is not None:
            row = where.start + block.bad[0]
            raise InvalidInputError(
                f"X must be finite; rows {first}–{last} have NaN or infinite entries, the first at "
                f"[{self.span(slice(row, row + 1))[0]}, {block.bad[1]}]. Drop or repair those rows."
            )
        if block.result is None:
            raise PrecisionError(f"sums of squares of rows {first}–{last} of X overflow; rescale X, and W to match")
        return block.result

    def _unavailable(self, what: str, reason: Exception) -> RowsUnavailableError:
        return RowsUnavailableError(
            f"{what} of X could not be read from {self.name}: {type(reason).__name__}: {reason}. "
            "Is the store still there, and reachable from every worker?"
        )


class Examined(NamedTuple, Generic[Block]):
    """The shape of a block, the index of its first entry that is not finite, and the result if it is finite."""

    shape: tuple[int, ...]
    bad: tuple[int, int] | None = None
    result: Block | None = None


def _examine(function: Callable[[RealArray], Block], width: int, block: RealArray) -> Examined[Block]:
    """Apply the function, on the block's own machine. Entries are examined only if the result is not finite."""
    block = real(np.asarray(block))
    if block.ndim != 2 or block.shape[1] != width:
        return Examined(block.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        result = function(block)
        if np.isfinite(result.sum()) or np.isfinite(result).all():
            return Examined(block.shape, None, result)
    bad = np.argwhere(~np.isfinite(block))
    return Examined(block.shape, (int(bad[0, 0]), int(bad[0, 1])) if len(bad) else None)


def _same(block: RealArray) -> RealArray:
    return block


class Wrapped(Rows):
    """A user's own row source."""

    def __init__(self, source: RowSource) -> None:
        self.source, self.name = source, type(source).__name__
        self.shape, self.dtype = check_shape(source.shape, f"{self.name}.shape"), precision(source.dtype)

    def blocks(self) -> Blocks:
        """Yield all rows, block by block."""
        return self.source.blocks()

    def rows(self, ids: IntArray) -> RealArray:
        """Return the rows of these ids."""
        return self.source.rows(ids)


class SelectedRows(Rows):
    """Some rows of another source, by sorted ids: the support of a kernel that excludes items."""

    def __init__(self, source: Rows, ids: IntArray) -> None:
        self.source, self.ids, self.name, self.is_shared = source, ids, source.name, source.is_shared
        self.shape, self.dtype = (len(ids), source.shape[1]), source.dtype

    def blocks(self) -> Blocks:
        """Yield the rows, block by block."""
        if len(self.ids) * READ_ALL_FACTOR >= len(self.source):
            return Rows.map_blocks(self.source, _same, self.ids)
        return ((where, self.source.rows(self.ids[where])) for where in slices(self.shape, self.dtype))

    def map_blocks(
        self, function: Callable[[RealArray], Result], ids: IntArray | None = None
    ) -> Iterator[tuple[slice, Result]]:
        """Yield ``function`` of every block; see :meth:`Rows.map_blocks`."""
        assert ids is None
        if len(self.ids) * READ_ALL_FACTOR >= len(self.source):
            return self.source.map_blocks(function, self.ids)
        return super().map_blocks(function)

    def rows(self, ids: IntArray) -> RealArray:
        """Return the rows at these positions of ``self.ids``."""
        return self.source.rows(self.ids[ids])

    def span(self, where: slice) -> tuple[int, int]:
        """Return the first and last catalogue id of a slice of rows."""
        return int(self.ids[where.start]), int(self.ids[where.stop - 1])


def cut(where: slice, ids: IntArray | None) -> tuple[slice, IntArray | None]:
    """Return which of the sorted ``ids`` lie in a block of rows, and their positions in the block (None: all of it)."""
    if ids is None:
        return where, None
    start, stop = np.searchsorted(ids, (where.start, where.stop)).tolist()
    whole = stop - start == where.stop - where.start
    return slice(start, stop), None if whole else ids[start:stop] - where.start


def slices(shape: tuple[int, int], dtype: np.dtype[Any]) -> Iterator[slice]:
    """Yield slices of rows that hold about ``BLOCK_BYTES`` each."""
    step = max(1, BLOCK_BYTES // (dtype.itemsize * shape[1]))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def real(block: RealArray) -> RealArray:
    """Return a block as float32, if it is, or float64."""
    return block if block.dtype.char in "fd" and block.dtype.isnative else block.astype(precision(block.dtype))


def precision(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return the type that entries of this type are converted to: float32 or float64."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "fiub":
        raise InvalidInputError(f"X must be a matrix of real numbers; the store's entries are {dtype}")
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize == 4 else np.float64)


def check_shape(shape: Sequence[float], name: str) -> tuple[int, int]:
    """Return a shape of two integers."""
    if len(shape) != 2 or any(isinstance(s, float) and not s.is_integer() for s in shape):
        raise InvalidInputError(f"{name} must be two whole numbers, items and columns; it is {tuple(shape)}")
    return int(shape[0]), int(shape[1])
