"""Many sets of items, in one compressed record: what ``fit`` takes and what ``sample`` returns.

Basket i holds the item ids ``indices[indptr[i]:indptr[i + 1]]``, sorted and without repeats; the arrays are read-only. Every operation
is linear in the number of entries, sorting aside. Raw data may name an item twice in a basket; a set holds it once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple, overload

import numpy as np

from ndpp import _basket_files as files
from ndpp._basket_files import PathOrFile
from ndpp._checks import check_count
from ndpp._types import AnyArray, IntArray, RngLike
from ndpp.errors import InvalidInputError

LARGEST_ID = 2**31 - 1
"""Larger integers are codes of some other system, not positions in a catalogue."""


class Split(NamedTuple):
    """Baskets in three parts."""

    train: Baskets
    val: Baskets
    test: Baskets


@dataclass(frozen=True, eq=False, repr=False)
class Baskets:
    """Many sets of items out of one catalogue, immutable.

    Parameters
    ----------
    indptr : (len + 1,) integers
        Where each basket begins in ``indices``; the last entry is where the last one ends.
    indices : integers
        Item ids, increasing within a basket.
    n_items : int
        Size of the catalogue; ids lie in 0..n_items−1.
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
        labels = _check_labels(self.labels)
        n_items = _check_n_items(self.n_items, labels)
        indptr, indices = (_frozen(value, name) for value, name in ((self.indptr, "indptr"), (self.indices, "indices")))
        if not len(indptr) or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
            raise InvalidInputError(
                f"indptr must rise from 0 to the number of indices, {len(indices)}; got {indptr}. "
                "`Baskets.from_lists` builds both arrays."
            )
        _check_ids(indices, n_items)
        if not _increasing(indptr, indices):
            raise InvalidInputError(
                "indices must increase within each basket; `Baskets.from_lists` sorts and removes repeats"
            )
        for name, value in (("indptr", indptr), ("indices", indices), ("n_items", n_items), ("labels", labels)):
            object.__setattr__(self, name, value)

    # ── making ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def from_lists(
        cls, sets: Iterable[Iterable[Any]], *, n_items: int | None = None, labels: Sequence[str] | None = None
    ) -> Baskets:
        """Return the baskets of an iterable of sets, each an iterable of item ids, or of labels.

        Strings are labels: looked up in ``labels`` or, without it, in all that occur, sorted. Integers are ids; ``n_items`` is the
        length of ``labels`` or, without it, the largest id plus one. An item that comes twice in a basket is kept once.
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
        """Return the baskets of a scipy sparse matrix (any format) or array: row i holds item j where entry [i, j] is one."""
        from scipy import sparse

        csr = sparse.csr_array(matrix)
        csr.sum_duplicates()
        values = csr.data
        wrong = values[~((values == 0) | (values == 1))]
        if wrong.size:
            raise InvalidInputError(
                f"the matrix must hold only zeros and ones; it holds {wrong[0]}. For counts, pass `matrix > 0`."
            )
        rows = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
        return cls._build(rows[values != 0], csr.shape[0], csr.indices[values != 0], csr.shape[1], labels)

    @classmethod
    def from_frame(
        cls, frame: Any, *, basket: str, item: str, n_items: int | None = None, labels: Sequence[str] | None = None,
        as_labels: bool = False,
    ) -> Baskets:  # fmt: skip
        """Return the baskets of a pandas, polars or pyarrow table in long form: a row says that a basket holds an item.

        Baskets come in the order in which they first appear. A row whose item is missing makes its basket exist and adds nothing.

        Parameters
        ----------
        frame : data frame
            Anything eager that narwhals understands.
        basket, item : str
            The columns. Integers in the item column are ids, strings are labels.
        n_items, labels
            As in :meth:`from_lists`.
        as_labels : bool
            Take integers as labels, too: product codes, say, that are not positions in a catalogue.
        """
        table = _narwhals_frame(frame)
        files.check_columns(table.columns, basket, item, "the data frame")
        if table[basket].is_null().any():
            raise InvalidInputError(
                f"column {basket!r} must name a basket in every row; some are missing. Drop those rows."
            )
        missing = table[item].is_null().to_list()
        values = table[item].to_list()
        if table[item].dtype.is_float() and all(gone or value == int(value) for gone, value in zip(missing, values)):
            values = [0 if gone else int(value) for gone, value in zip(missing, values)]  # pandas' integers with gaps
        long = files.number(table[basket].to_list(), values, missing)
        return cls._from_long(long, n_items, labels, as_labels)

    @classmethod
    def from_onehot(cls, frame: Any) -> Baskets:
        """Return the baskets of a table with a row per basket and a column of 0/1 or true/false per item, which names it."""
        table = _narwhals_frame(frame)
        columns = [np.asarray(table[name].to_numpy()) for name in table.columns]
        for name, column in zip(table.columns, columns):
            if column.dtype.kind not in "biuf" or not ((column == 0) | (column == 1)).all():
                raise InvalidInputError(
                    f"column {name!r} must hold only 0 and 1, or true and false. A long table goes to "
                    "`Baskets.from_frame(frame, basket=…, item=…)`."
                )
        pairs = [np.flatnonzero(column) for column in columns]
        rows = np.concatenate([*pairs, np.empty(0, np.int64)])
        ids = np.repeat(np.arange(len(columns)), [len(where) for where in pairs])
        return cls._build(rows, len(table), ids, len(columns), [str(name) for name in table.columns])

    @classmethod
    def read(
        cls, source: PathOrFile, *, format: str | None = None, n_items: int | None = None, labels: Sequence[str] | None = None,
        items: PathOrFile | None = None, as_labels: bool | None = None, basket: str = "basket", item: str = "item",
    ) -> Baskets:  # fmt: skip
        """Read baskets from a file.

        Text: one basket a line, a blank line being an empty basket; ids or labels between spaces or, if the file has any, commas or
        tabs. CSV, TSV (with a header) and Parquet: long form, as in :meth:`from_frame`. CSV and text may be gzipped.

        Parameters
        ----------
        source : path or open file
            An open file is read as text unless ``format`` says otherwise.
        format : {"text", "csv", "tsv", "parquet"}, optional
            By default the suffix tells.
        n_items, labels
            As in :meth:`from_lists`.
        items : path or open file, optional
            A file whose line i names item i, in place of ``labels``.
        as_labels : bool, optional
            Whether whole numbers are labels. By default they are ids, unless they can only be labels; where they could be both,
            it must be said.
        basket, item : str
            The columns of the long form.
        """
        kind = files.format_of(source, format)
        if items is not None:
            if labels is not None:
                raise InvalidInputError(
                    "the names of the items come from labels= or from the file items=; both were given"
                )
            labels = files.read_lines(items)
        if kind == "parquet":
            table = files.read_parquet(source, basket=basket, item=item)
            return cls.from_frame(
                table, basket=basket, item=item, n_items=n_items, labels=labels, as_labels=bool(as_labels)
            )
        if kind == "text":
            rows = files.split_lines(files.read_lines(source))
            numbers = [i for i, row in enumerate(rows) for _ in row]
            long = files.Long(numbers, len(rows), list(chain.from_iterable(rows)))
        else:
            long = files.read_csv(source, basket=basket, item=item, delimiter="\t" if kind == "tsv" else ",")
        return cls._from_long(long._replace(values=_words(long.values, labels, as_labels)), n_items, labels, False)

    @classmethod
    def _from_long(
        cls, long: files.Long, n_items: int | None, labels: Sequence[str] | None, as_labels: bool
    ) -> Baskets:
        values = [str(value) for value in long.values] if as_labels else long.values
        return cls._build(np.array(long.baskets, np.int64), long.n_baskets, values, n_items, labels)

    @classmethod
    def _build(
        cls, rows: IntArray, n_baskets: int, values: Any, n_items: int | None, labels: Sequence[str] | None
    ) -> Baskets:
        """Return the baskets in which basket ``rows[i]`` holds ``values[i]``, in any order and with repeats."""
        names = _check_labels(labels)
        ids, names = _encode(values, names)
        if n_items is None and names is None:
            n_items = int(ids.max()) + 1 if ids.size else 0
        n_items = _check_n_items(n_items, names)
        _check_ids(ids, n_items)
        order = np.lexsort((ids, rows))
        rows, ids = rows[order], ids[order]
        first = np.ones(len(ids), bool)
        first[1:] = (np.diff(rows) != 0) | (np.diff(ids) != 0)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[first], minlength=n_baskets))])
        return cls._trusted(indptr, ids[first], n_items, names)

    @classmethod
    def _trusted(cls, indptr: IntArray, indices: IntArray, n_items: int, labels: tuple[str, ...] | None) -> Baskets:
        """Return a record of fresh arrays that are known to be right."""
        made = object.__new__(cls)
        for array in (indptr, indices):
            array.flags.writeable = False
        for name, value in (("indptr", indptr), ("indices", indices), ("n_items", n_items), ("labels", labels)):
            object.__setattr__(made, name, value)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Baskets, (self.indptr, self.indices, self.n_items, self.labels)

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

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
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            i = range(len(self))[key]
            return self.indices[self.indptr[i] : self.indptr[i + 1]]
        chosen = np.arange(len(self))[np.asarray(key, np.int64) if isinstance(key, list) and not key else key]
        sizes = self.sizes[chosen]
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        # Entry j of the result lies as far behind the start of its basket here as it does there.
        where = np.arange(indptr[-1]) + np.repeat(self.indptr[chosen] - indptr[:-1], sizes)
        return self._trusted(indptr, self.indices[where], self.n_items, self.labels)

    def __iter__(self) -> Iterator[IntArray]:
        return (self.indices[i:j] for i, j in pairwise(self.indptr.tolist()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Baskets):
            return NotImplemented
        return (
            self.n_items == other.n_items
            and self.labels == other.labels
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.indices, other.indices)
        )

    def __repr__(self) -> str:
        text = f"<Baskets: {len(self)} basket{'' if len(self) == 1 else 's'} over {self.n_items} items"
        if len(self):
            text += f", sizes {self.sizes.min()} to {self.sizes.max()}, mean {self.sizes.mean():.3g}"
        return text + (", labelled>" if self.labels else ">")

    def labelled(self, i: int) -> tuple[str, ...]:
        """Return the names of the items of basket i; without labels, their ids as text."""
        return tuple(str(item) if self.labels is None else self.labels[item] for item in self[i].tolist())

    def select(self, *, min_size: int = 0, max_size: int | None = None) -> Baskets:
        """Return the baskets with at least ``min_size`` and at most ``max_size`` items."""
        return self[(self.sizes >= min_size) & (self.sizes <= (math.inf if max_size is None else max_size))]

    def split(self, n_val: int, n_test: int, *, rng: RngLike = None) -> Split:
        """Return (train, val, test): ``n_val`` and ``n_test`` baskets drawn at random, and the rest, each in the order they have here."""
        n_val, n_test = check_count(n_val, "n_val"), check_count(n_test, "n_test")
        if n_val + n_test > len(self):
            raise InvalidInputError(
                f"n_val + n_test must not exceed the number of baskets, {len(self)}; got {n_val} + {n_test}"
            )
        order = np.random.default_rng(rng).permutation(len(self))
        val, test, train = np.split(order, [n_val, n_val + n_test])
        return Split(*(self[np.sort(part)] for part in (train, val, test)))

    # ── giving ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def to_csr(self) -> Any:
        """Return a scipy CSR array of shape (len, n_items) with a one (int8) for each item of each basket."""
        from scipy import sparse

        ones = np.ones(len(self.indices), np.int8)
        return sparse.csr_array((ones, self.indices.copy(), self.indptr.copy()), shape=(len(self), self.n_items))

    def to_lists(self) -> list[list[int]]:
        """Return the item ids of each basket."""
        return [items.tolist() for items in self]

    def write(
        self, target: PathOrFile, *, format: str | None = None, basket: str = "basket", item: str = "item"
    ) -> None:
        """Write to a file that :meth:`read` reads, in the format that the suffix or ``format`` names: labels if there are any, else ids.

        The file is replaced only once everything is written. The catalogue is not in it: pass ``n_items`` or ``labels`` to ``read`` if
        it is to be larger than what occurs. Labels that cannot stand in a text file (tabs, line ends) need CSV or Parquet.
        """
        kind = files.format_of(target, format)
        rows: Any = (self.labelled(i) for i in range(len(self)))
        if kind == "text":
            files.write_text(target, rows, self.labels or ())
        elif kind == "parquet":
            files.write_parquet(
                target, rows if self.labels else self.to_lists(), str if self.labels else int, basket=basket, item=item
            )
        else:
            files.write_csv(target, rows, basket=basket, item=item, delimiter="\t" if kind == "tsv" else ",")


def _frozen(value: Any, name: str) -> IntArray:
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidInputError(f"{name} must be a flat array of integers; got shape {array.shape}, {array.dtype}")
    array = array.astype(np.int64, copy=array.flags.writeable)
    array.flags.writeable = False
    return array


def _increasing(indptr: IntArray, indices: IntArray) -> bool:
    rises = np.diff(indices) > 0
    starts = indptr[(indptr > 0) & (indptr < len(indices))]
    rises[starts - 1] = True
    return bool(rises.all())


def _check_labels(labels: Sequence[str] | None) -> tuple[str, ...] | None:
    if labels is None:
        return None
    if isinstance(labels, str) or not all(isinstance(label, str) and label for label in labels):
        raise InvalidInputError("labels must be a sequence of nonempty strings, one for each item")
    names = tuple(map(str, labels))
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidInputError(f"labels must be distinct; {twice!r} comes more than once")
    return names


def _check_n_items(n_items: Any, labels: tuple[str, ...] | None) -> int:
    if labels is None:
        return check_count(n_items, "n_items")
    if n_items is not None and n_items != len(labels):
        raise InvalidInputError(
            f"n_items must be the number of labels, {len(labels)}; got {n_items}. Pass the labels of the whole catalogue."
        )
    return len(labels)


def _check_ids(ids: IntArray, n_items: int) -> None:
    if not ids.size:
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= n_items:
        raise InvalidInputError(
            f"item ids must lie in 0..{n_items - 1}; unknown item id {low if low < 0 else high}. "
            "Pass n_items= or labels= of the whole catalogue."
        )
    if high > LARGEST_ID:
        raise InvalidInputError(
            f"item ids must be positions in a catalogue, up to {LARGEST_ID}; got {high}. Codes are labels: pass them as strings "
            "or, where there is such an argument, with as_labels=True."
        )


def _members(members: Any) -> Any:
    if isinstance(members, (str, bytes, Mapping)) or not isinstance(members, Iterable):
        raise InvalidInputError(f"each basket must be a list, set or array of item ids or labels; got {members!r}")
    return members if hasattr(members, "__len__") else list(members)


def _encode(values: Any, labels: tuple[str, ...] | None) -> tuple[IntArray, tuple[str, ...] | None]:
    """Return the ids of ``values`` and the labels, which are made up of the values if these are strings and there are none."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values.astype(np.int64), labels
    kinds = set(map(type, values))
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
        try:
            return np.fromiter(values, np.int64, len(values)), labels
        except OverflowError:
            raise InvalidInputError(f"item ids must be positions in a catalogue; got {max(values, key=abs)}") from None
    if not all(issubclass(kind, str) for kind in kinds):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidInputError(f"items must be all integers (ids) or all strings (labels); got {names}")
    labels = _check_labels(sorted(set(values))) if labels is None else labels
    ids = {label: i for i, label in enumerate(labels or ())}
    try:
        return np.fromiter(map(ids.__getitem__, values), np.int64, len(values)), labels
    except KeyError as unknown:
        raise InvalidInputError(
            f"unknown label {unknown.args[0]!r}; it is not among the {len(ids)} labels of the catalogue"
        ) from None


def _words(words: list[str], labels: Sequence[str] | None, as_labels: bool | None) -> list[Any]:
    """Return the words of a file as integers if they are ids, else as they are."""
    numeric = files.all_integers(words)
    if as_labels is False and not numeric:
        wrong = next(word for word in words if not files.all_integers([word]))
        raise InvalidInputError(f"expected item ids (as_labels=False), whole numbers; got {wrong!r}")
    if as_labels or not numeric:
        return words
    ids = [int(word) for word in words]
    if as_labels is None and labels is not None and words and set(words) <= set(labels):
        if max(ids) < len(labels):
            raise InvalidInputError(
                "the whole numbers in this file may be ids or labels; say which with as_labels=False or as_labels=True"
            )
        return words
    return ids


def _narwhals_frame(frame: Any) -> Any:
    import narwhals as nw

    try:
        return nw.from_native(frame, eager_only=True)
    except TypeError:
        raise InvalidInputError(
            f"expected a pandas, polars or pyarrow table in memory; got {type(frame).__name__}. Collect a lazy one first."
        ) from None
