"""Where the rows of X lie: in a file, a chunked store or the memory of a cluster, anything but one array in this process.

Two questions are asked of X. Preparing a kernel streams over all of it, by blocks, once or twice; drawing asks for a few rows by id.
A :class:`RowSource` answers both. What comes back is checked once, here: blocks that do not fit together, entries that are not finite
and stores that have gone are named by the rows they concern.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from ndpp._types import AnyArray, IntArray
from ndpp.errors import InvalidInputError, NDPPError, PrecisionError, RowsUnavailableError

BLOCK_BYTES = 16 * 2**20
"""Size of a block, where the store has no blocks of its own."""
FEW = 8
"""Fewer than one row in so many is fetched row by row; more, and the whole store is streamed."""

Result = TypeVar("Result", bound=AnyArray)


@runtime_checkable
class RowSource(Protocol):
    """What a store of one's own has to offer to be the X of a kernel. It is pickled where it goes to other processes.

    ``blocks`` yields all rows in order, with the slice of rows that each block holds. ``rows`` returns the rows of these ids, in their
    order, ids repeated or not. Entries are real numbers; anything but float32 is computed with as float64.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Number of items and of columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Kind of the entries."""

    def blocks(self) -> Iterator[tuple[slice, AnyArray]]:
        """Yield all rows, block by block."""

    def rows(self, ids: IntArray) -> AnyArray:
        """Return some rows."""


class Rows(ABC):
    """A row source with its answers checked. Immutable; open files are not pickled but opened again where they are wanted."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    is_shared: bool = False
    """Whether many kernels share these rows, so that none of them should keep rows of its own."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[slice, AnyArray]]:
        """Yield all rows, block by block."""

    @abstractmethod
    def rows(self, ids: IntArray) -> AnyArray:
        """Return the rows of these ids."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What to call the store in a message."""

    def map_blocks(
        self, function: Callable[[AnyArray], Result], ids: IntArray | None = None
    ) -> Iterator[tuple[slice, Result]]:
        """Yield ``function`` of every block, or of those of its rows that are among ``ids``, which ascend; slices then count these.

        A store that spans machines replaces this, so that the function goes to the rows and not the rows to the function.
        """
        for where, block in self.blocks():
            place, local = cut(where, ids)
            if place.stop > place.start:
                yield place, function(block if local is None else block[local])

    # -- checked answers -----------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return np.asarray(self.read(), dtype)

    def __repr__(self) -> str:
        return f"<{self.shape[0]} × {self.shape[1]} {self.dtype}: {self.name}>"

    def each(self, function: Callable[[AnyArray], Result]) -> Iterator[tuple[slice, Result]]:
        """Yield ``function`` of every block, computed where the block lies: for functions with small results."""
        return self._checked(self.map_blocks(partial(_judge, function, self.shape[1])))

    def stream(self) -> Iterator[tuple[slice, AnyArray]]:
        """Yield every block."""
        return self._checked((where, _judge(_same, self.shape[1], block)) for where, block in self.blocks())

    def take(self, ids: IntArray) -> AnyArray:
        """Return the rows of these ids."""
        if len(ids) == 0:
            return np.empty((0, self.shape[1]), self.dtype)
        try:
            found = np.asarray(self.rows(ids))
        except NDPPError:
            raise
        except Exception as reason:
            raise self._gone(f"row {ids[0]}" if len(ids) == 1 else f"{len(ids)} rows", reason) from reason
        if found.shape != (len(ids), self.shape[1]):
            raise InvalidInputError(
                f"{len(ids)} rows of X should come as {len(ids)} × {self.shape[1]}; {self.name} gave {found.shape}"
            )
        return real(found)

    def read(self) -> AnyArray:
        """Return all of X as an array."""
        out = np.empty(self.shape, self.dtype)
        for where, block in self.stream():
            out[where] = block
        return out

    def span(self, where: slice) -> tuple[int, int]:
        """Return the first and last catalogue id of a slice of rows."""
        return where.start, where.stop - 1

    def _checked(self, answers: Iterator[tuple[slice, Any]]) -> Iterator[tuple[slice, Any]]:
        """Yield the results of blocks that tile X; name the rows where they do not."""
        done = 0
        while True:
            try:
                where, answer = next(answers)
            except StopIteration:
                break
            except NDPPError:
                raise
            except Exception as reason:
                raise self._gone(f"rows from {self.span(slice(done, done + 1))[0]} on", reason) from reason
            if where.start != done:
                raise InvalidInputError(
                    f"blocks of X must follow each other; row {done} was next, {self.name} gave rows {where.start}–{where.stop - 1}"
                )
            self._check_entries(where, answer)
            done = where.stop
            yield where, answer.result
        if done != len(self):
            raise InvalidInputError(f"X should have {len(self)} rows; the blocks of {self.name} end after {done}")

    def _check_entries(self, where: slice, answer: Answer) -> None:
        first, last = self.span(where)
        wanted = (where.stop - where.start, self.shape[1])
        if answer.shape != wanted:
            raise InvalidInputError(
                f"rows {first}–{last} of X should be {wanted[0]} × {wanted[1]}; the block that {self.name} gave has shape "
                f"{answer.shape}. All chunks must have the width of X."
            )
        if answer.bad is not None:
            row = where.start + answer.bad[0]
            raise InvalidInputError(
                f"X must be finite; rows {first}–{last} hold NaN or infinite entries, the first at "
                f"[{self.span(slice(row, row + 1))[0]}, {answer.bad[1]}]. Drop or repair those rows."
            )
        if answer.result is None:
            raise PrecisionError(f"sums of squares of rows {first}–{last} of X overflow; rescale X, and W to match")

    def _gone(self, what: str, reason: Exception) -> RowsUnavailableError:
        return RowsUnavailableError(
            f"{what} of X could not be read from {self.name}: {type(reason).__name__}: {reason}. "
            "Is the store still there, and reachable from every worker?"
        )


class Answer(NamedTuple):
    """What a block gave: its shape, the place of its first entry that is not finite, and the result where that is finite."""

    shape: tuple[int, ...]
    bad: tuple[int, int] | None = None
    result: Any = None


def _judge(function: Callable[[AnyArray], Any], width: int, block: AnyArray) -> Any:
    """Apply the function on the block's own machine. Entries are looked at only where the result is not finite."""
    block = real(np.asarray(block))
    if block.ndim != 2 or block.shape[1] != width:
        return Answer(block.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        result = function(block)
        if np.isfinite(result.sum()) or np.isfinite(result).all():
            return Answer(block.shape, None, result)
    bad = np.argwhere(~np.isfinite(block))
    return Answer(block.shape, (int(bad[0, 0]), int(bad[0, 1])) if len(bad) else None)


def _same(block: AnyArray) -> AnyArray:
    return block


class Wrapped(Rows):
    """A user's own row source."""

    def __init__(self, source: RowSource) -> None:
        self.source = source
        self.shape, self.dtype = check_shape(source.shape, f"{type(source).__name__}.shape"), kind(source.dtype)

    @property
    def name(self) -> str:
        """What to call the store in a message."""
        return type(self.source).__name__

    def blocks(self) -> Iterator[tuple[slice, AnyArray]]:
        """Yield all rows, block by block."""
        return self.source.blocks()

    def rows(self, ids: IntArray) -> AnyArray:
        """Return the rows of these ids."""
        return self.source.rows(ids)

    def map_blocks(
        self, function: Callable[[AnyArray], Result], ids: IntArray | None = None
    ) -> Iterator[tuple[slice, Result]]:
        """Yield ``function`` of every block, by the source's own ``map_blocks`` if it has one."""
        own = getattr(self.source, "map_blocks", super().map_blocks)
        return own(function, ids)


class Part(Rows):
    """Some rows of another source, ids ascending: the support of a kernel that excludes items."""

    def __init__(self, source: Rows, ids: IntArray) -> None:
        self.source, self.ids, self.is_shared = source, ids, source.is_shared
        self.shape, self.dtype = (len(ids), source.shape[1]), source.dtype

    @property
    def name(self) -> str:
        """What to call the store in a message."""
        return self.source.name

    def blocks(self) -> Iterator[tuple[slice, AnyArray]]:
        """Yield the rows, block by block."""
        return Rows.map_blocks(self.source, _same, self.ids) if not self._few else self._groups()

    def map_blocks(
        self, function: Callable[[AnyArray], Result], ids: IntArray | None = None
    ) -> Iterator[tuple[slice, Result]]:
        """Yield ``function`` of every block; see :meth:`Rows.map_blocks`."""
        assert ids is None
        if self._few:
            return ((where, function(block)) for where, block in self._groups())
        return self.source.map_blocks(function, self.ids)

    def rows(self, ids: IntArray) -> AnyArray:
        """Return the rows of these places."""
        return self.source.rows(self.ids[ids])

    def span(self, where: slice) -> tuple[int, int]:
        """Return the first and last catalogue id of a slice of rows."""
        return int(self.ids[where.start]), int(self.ids[where.stop - 1])

    @property
    def _few(self) -> bool:
        return len(self.ids) * FEW < len(self.source)

    def _groups(self) -> Iterator[tuple[slice, AnyArray]]:
        for where in slices(self.shape, self.dtype):
            yield where, self.source.rows(self.ids[where])


def cut(where: slice, ids: IntArray | None) -> tuple[slice, IntArray | None]:
    """Return which of the ascending ``ids`` lie in a block of rows, and where in the block; None: all of it."""
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


def real(block: AnyArray) -> AnyArray:
    """Return a block as float32, where it is, or float64."""
    return block if block.dtype.char in "fd" and block.dtype.isnative else block.astype(kind(block.dtype))


def kind(dtype: Any) -> np.dtype[Any]:
    """Return the precision that entries of this kind are computed with."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "fiub":
        raise InvalidInputError(f"X must be a matrix of real numbers; the store's entries are {dtype}")
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize == 4 else np.float64)


def check_shape(shape: Any, name: str) -> tuple[int, int]:
    """Return a shape of two whole numbers."""
    if len(shape) != 2 or any(isinstance(s, float) and not s.is_integer() for s in shape):
        raise InvalidInputError(f"{name} must be two whole numbers, items and columns; it is {tuple(shape)}")
    return int(shape[0]), int(shape[1])
