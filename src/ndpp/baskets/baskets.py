"""Many sets of items in compressed form: what ``fit`` accepts and ``sample`` returns.

Basket i holds the item ids ``indices[indptr[i]:indptr[i + 1]]``, sorted and without repeats; the arrays are read-only. Except for
sorting, every operation is linear in the number of entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple, overload

import numpy as np

from ndpp._types import AnyArray, IntArray, RngLike
from ndpp._validation import check_count, frozen
from ndpp.baskets import files
from ndpp.baskets.files import Columns, PathOrFile
from ndpp.baskets.labels import check_ids, check_labels, check_n_items, encode, interpret
from ndpp.errors import InvalidInputError


class Split(NamedTuple):
    """Baskets in three parts."""

    train: Baskets
    val: Baskets
    test: Baskets


@dataclass(frozen=True, eq=False, repr=False)
class Baskets:
    """Many sets of items from one catalogue, immutable.

    ``baskets[i]`` is the array of ids of basket i; a slice, mask or integer array returns ``Baskets``.

    Parameters
    ----------
    indptr : (len + 1,) integers
        Start of each basket in ``indices``, and the end of the last one.
    indices : integers
        Item ids, increasing within a basket.
    n_items : int
        Number of items in the catalogue; ids are in 0..n_items−1.
    labels : sequence of str, optional
        The name of each item.

    Examples
    --------
    >>> baskets = Baskets.from_lists([[3, 0], [1, 2, 5], []], n_items=6)
    >>> len(baskets), baskets[0].tolist(), baskets.sizes.tolist()
    (3, [0, 3], [2, 3, 0])
    >>> baskets[baskets.sizes > 0]
    <Baskets: 2 baskets over 6 items, sizes 2 to 3, mean 2.5>
    >>> Baskets.from_lists([["tea", "milk"], ["milk"]]).labels
    ('milk', 'tea')
    """

    indptr: IntArray
    indices: IntArray
    n_items: int
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        labels = check_labels(self.labels)
        n_items = check_n_items(self.n_items, labels)
        indptr, indices = _integers(self.indptr, "indptr"), _integers(self.indices, "indices")
        if not len(indptr) or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
            raise InvalidInputError(
                f"indptr must rise from 0 to the number of indices, {len(indices)}; got {indptr}. "
                "`Baskets.from_lists` makes both arrays."
            )
        check_ids(indices, n_items)
        rises = np.diff(indices) > 0
        rises[indptr[(indptr > 0) & (indptr < len(indices))] - 1] = True  # from one basket to the next
        if not rises.all():
            raise InvalidInputError("indices must increase within each basket; `Baskets.from_lists` sorts them")
        self._set(indptr, indices, n_items, labels)

    def _set(self, *values: Any) -> None:
        for name, value in zip(("indptr", "indices", "n_items", "labels"), values):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:  # an unpickled array would be writeable
        return Baskets, (self.indptr, self.indices, self.n_items, self.labels)

    @classmethod
    def from_lists(
        cls, sets: Iterable[Iterable[Any]], *, n_items: int | None = None, labels: Sequence[str] | None = None
    ) -> Baskets:
        """Return the baskets of an iterable of sets, each an iterable of item ids or of labels.

        Strings are labels, looked up in ``labels`` or, without it, in the sorted list of all that occur. Integers are ids;
        ``n_items`` defaults to the number of ``labels`` or, without them, the largest id plus one. Repeated items in a basket
        are kept once.
        """
        rows = [_members(members) for members in sets]
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        if rows and all(isinstance(row, np.ndarray) for row in rows):
            values: Any = np.concatenate([row for row in rows if len(row)] or [np.empty(0, np.int64)])
        else:
            values = list(chain.from_iterable(rows))
        return cls._build(np.repeat(np.arange(len(rows)), sizes), len(rows), values, n_items, labels)

    @classmethod
    def from_csr(cls, matrix: Any, *, labels: Sequence[str] | None = None) -> Baskets:
        """Return the baskets of a scipy sparse matrix of zeros and ones: basket i holds item j if entry [i, j] is 1."""
        from scipy import sparse

        csr = sparse.csr_array(matrix, copy=True)
        csr.sum_duplicates()
        ones = csr.data == 1
        wrong = csr.data[~ones & (csr.data != 0)]
        if wrong.size:
            raise InvalidInputError(
                f"the matrix must hold only zeros and ones; it holds {wrong[0]}. For counts, pass `matrix > 0`."
            )
        rows = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
        return cls._build(rows[ones], csr.shape[0], csr.indices[ones], csr.shape[1], labels)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        basket: str,
        item: str,
        n_items: int | None = None,
        labels: Sequence[str] | None = None,
        as_labels: bool = False,
    ) -> Baskets:
        """Return the baskets of a pandas, polars or pyarrow table in long form, with one row per item of each basket.

        Baskets are in order of first appearance. A row whose item is missing stands for an empty basket, if there is no other.

        Parameters
        ----------
        frame : data frame
            Anything in memory that narwhals supports.
        basket, item : str
            The columns. Integers in the item column are ids, strings are labels.
        n_items, labels
            As in :meth:`from_lists`.
        as_labels : bool
            Treat integers as labels, for example product codes that are not positions in a catalogue.
        """
        long = files.from_frame(frame, Columns(basket, item))
        values = [str(value) for value in long.values] if as_labels else long.values
        return cls._build(long.baskets, long.n_baskets, values, n_items, labels)

    @classmethod
    def from_onehot(cls, frame: Any) -> Baskets:
        """Return the baskets of a table with a row per basket and a column of 0/1 or true/false per item; columns are labels."""
        long, names = files.from_onehot(frame)
        return cls._build(*long, len(names), names)

    @classmethod
    def read(
        cls,
        source: PathOrFile,
        *,
        format: str | None = None,
        n_items: int | None = None,
        labels: Sequence[str] | None = None,
        items: PathOrFile | None = None,
        as_labels: bool | None = None,
        basket: str = "basket",
        item: str = "item",
    ) -> Baskets:
        """Read baskets from a file.

        Text: one basket per line, a blank line being an empty basket; ids or labels separated by spaces or, if the file has
        any, commas or tabs. CSV and TSV with a header, and Parquet: long form, as in :meth:`from_frame`. Semicolons, tabs or
        bars are recognised as delimiters from the header. Text, CSV and TSV may be gzipped.

        Parameters
        ----------
        source : path or open file
            An open file is read as text unless ``format`` says otherwise.
        format : {"text", "csv", "tsv", "parquet"}, optional
            By default that of the suffix.
        n_items, labels
            As in :meth:`from_lists`.
        items : path or open file, optional
            A file whose line i is the label of item i, instead of ``labels``.
        as_labels : bool, optional
            Whether whole numbers are labels. By default they are ids, unless only ``labels`` can explain them; if both are
            possible, this must be set. Words other than numbers are always labels.
        basket, item : str
            The columns of the long form.
        """
        kind, columns = files.format_of(source, format), Columns(basket, item)
        if items is not None:
            if labels is not None:
                raise InvalidInputError("pass labels= or the file items=, not both")
            labels = files.read_lines(items)
        if kind == "parquet":
            table = files.read_parquet(source, columns)
            return cls.from_frame(
                table, basket=basket, item=item, n_items=n_items, labels=labels, as_labels=bool(as_labels)
            )
        if kind == "text":
            long = files.read_text(source, columns)
        else:
            long = files.read_csv(source, columns, "\t" if kind == "tsv" else ",")
        return cls._build(long.baskets, long.n_baskets, interpret(long.values, labels, as_labels), n_items, labels)

    @classmethod
    def _build(
        cls, rows: Any, n_baskets: int, values: Any, n_items: int | None, labels: Sequence[str] | None
    ) -> Baskets:
        """Return the baskets in which basket ``rows[i]`` holds ``values[i]``, in any order and with repeats."""
        ids, names = encode(values, check_labels(labels))
        if n_items is None and names is None:
            n_items = int(ids.max()) + 1 if ids.size else 0
        n_items = check_n_items(n_items, names)
        check_ids(ids, n_items)
        rows = np.asarray(rows, np.int64)
        order = np.lexsort((ids, rows))
        rows, ids = rows[order], ids[order]
        first = np.ones(len(ids), bool)
        first[1:] = (np.diff(rows) != 0) | (np.diff(ids) != 0)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[first], minlength=n_baskets))])
        return cls._trusted(indptr, ids[first], n_items, names)

    @classmethod
    def _trusted(cls, indptr: IntArray, indices: IntArray, n_items: int, labels: tuple[str, ...] | None) -> Baskets:
        """Return baskets of new arrays that are known to be valid."""
        made = object.__new__(cls)
        made._set(_integers(indptr, "indptr", copy=False), _integers(indices, "indices", copy=False), n_items, labels)
        return made

    @property
    def sizes(self) -> IntArray:
        """The number of items of each basket."""
        return np.diff(self.indptr)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @overload
    def __getitem__(self, key: int | np.integer) -> IntArray: ...
    @overload
    def __getitem__(self, key: slice | AnyArray | Sequence[int]) -> Baskets: ...
    def __getitem__(self, key: Any) -> IntArray | Baskets:
        if isinstance(key, (int, np.integer)):
            i = range(len(self))[key]
            return self.indices[self.indptr[i] : self.indptr[i + 1]]
        chosen = np.arange(len(self))[key if isinstance(key, slice) or len(key) else slice(0)]
        sizes = self.sizes[chosen]
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        # An entry keeps its distance from the start of its basket.
        where = np.arange(indptr[-1]) + np.repeat(self.indptr[chosen] - indptr[:-1], sizes)
        return self._trusted(indptr, self.indices[where], self.n_items, self.labels)

    def __iter__(self) -> Iterator[IntArray]:
        return (self.indices[i:j] for i, j in pairwise(self.indptr.tolist()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Baskets):
            return NotImplemented
        same = (self.n_items, self.labels) == (other.n_items, other.labels)
        return same and all(map(np.array_equal, (self.indptr, self.indices), (other.indptr, other.indices)))

    def __repr__(self) -> str:
        text = f"<Baskets: {len(self)} basket{'' if len(self) == 1 else 's'} over {self.n_items} items"
        if len(self):
            text += f", sizes {self.sizes.min()} to {self.sizes.max()}, mean {self.sizes.mean():.3g}"
        return text + (", labelled>" if self.labels else ">")

    def labelled(self, i: int) -> tuple[str, ...]:
        """Return the labels of the items of basket i; without labels, their ids as strings."""
        return tuple(str(item) if self.labels is None else self.labels[item] for item in self[i].tolist())

    def select(self, *, min_size: int = 0, max_size: float = math.inf) -> Baskets:
        """Return the baskets with at least ``min_size`` and at most ``max_size`` items."""
        return self[(self.sizes >= min_size) & (self.sizes <= max_size)]

    def split(self, n_val: int, n_test: int, *, rng: RngLike = None) -> Split:
        """Return (train, val, test): ``n_val`` and ``n_test`` random baskets and the rest, each in the original order."""
        n_val, n_test = check_count(n_val, "n_val"), check_count(n_test, "n_test")
        if n_val + n_test > len(self):
            raise InvalidInputError(
                f"n_val + n_test must be at most {len(self)}, the number of baskets; got {n_val} + {n_test}"
            )
        order = np.random.default_rng(rng).permutation(len(self))
        val, test, train = np.split(order, [n_val, n_val + n_test])
        return Split(*(self[np.sort(part)] for part in (train, val, test)))

    def to_csr(self) -> Any:
        """Return a scipy CSR array of shape (len, n_items) with a one (int8) for each item of each basket."""
        from scipy import sparse

        ones = np.ones(len(self.indices), np.int8)
        return sparse.csr_array((ones, self.indices.copy(), self.indptr.copy()), shape=(len(self), self.n_items))

    def to_lists(self) -> list[list[int]]:
        """Return the item ids of each basket."""
        return [items.tolist() for items in self]

    def write(
        self,
        target: PathOrFile,
        *,
        format: str | None = None,
        as_labels: bool = True,
        basket: str = "basket",
        item: str = "item",
    ) -> None:
        """Write a file that :meth:`read` reads, in the format of the suffix or ``format``.

        Labels are written if there are any, unless ``as_labels`` is false. An existing file is replaced once everything is
        written. The file does not hold the catalogue: pass ``n_items`` or ``labels`` to ``read`` if some items occur in no
        basket. Text cannot hold labels with tabs or line ends, nor zero baskets.
        """
        names = self.labels if as_labels else None
        rows: Any = self.to_lists() if names is None else map(self.labelled, range(len(self)))
        files.write(target, rows, names, format=format, columns=Columns(basket, item))


def _integers(value: Any, name: str, *, copy: bool = True) -> IntArray:
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidInputError(f"{name} must be a flat array of integers; got shape {array.shape}, {array.dtype}")
    return frozen(array.astype(np.int64, copy=copy and array.flags.writeable))


def _members(members: Any) -> Any:
    if isinstance(members, (str, bytes, Mapping)) or not isinstance(members, Iterable):
        raise InvalidInputError(f"each basket must be a list, set or array of item ids or labels; got {members!r}")
    return members if hasattr(members, "__len__") else list(members)
