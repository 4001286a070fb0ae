"""Many sets of items in compressed form: what ``fit`` accepts and ``sample`` returns.

Basket i holds the item ids ``indices[indptr[i]:indptr[i + 1]]``, sorted and without repeats; the arrays are read-only. Except for
sorting, every operation is linear in the number of entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from ndpp._show import SHOWN_ROWS, html_table, to_frame
from ndpp._types import AnyArray, FloatArray, IntArray, RngLike, TimeArray, WordArray, cached_property
from ndpp._validation import check_count, frozen
from ndpp.baskets import files, frames
from ndpp.baskets.frames import PathOrFile
from ndpp.baskets.labels import Rules, check_basket_ids, check_ids, check_labels, check_n_items, many, places
from ndpp.baskets.lines import COMPLETION, Columns, Fields, Long
from ndpp.baskets.times import Column
from ndpp.errors import InvalidInputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class OrderColumns(NamedTuple):
    """What is known about each of some baskets; None, or no column of context, where nothing is."""

    customers: WordArray | None = None
    times: TimeArray | None = None
    weights: FloatArray | None = None
    context: Mapping[str, WordArray] = {}

    def take(self, key: slice | IntArray) -> OrderColumns:
        """Return what is known about some of the baskets."""
        if self is NOTHING_KNOWN:
            return self
        return OrderColumns(
            None if self.customers is None else frozen(self.customers[key]),
            None if self.times is None else frozen(self.times[key]),
            None if self.weights is None else frozen(self.weights[key]),
            {name: frozen(words[key]) for name, words in self.context.items()},
        )


NOTHING_KNOWN = OrderColumns()


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
    basket_ids : sequence of int or str, optional
        The id of each basket, such as an order number. Parts of the baskets keep theirs.

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
    basket_ids: tuple[int | str, ...] | None = None
    _columns = NOTHING_KNOWN

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
        self._set(indptr, indices, n_items, labels, check_basket_ids(self.basket_ids, len(indptr) - 1))

    def _set(self, *values: object) -> None:
        for name, value in zip(("indptr", "indices", "n_items", "labels", "basket_ids", "_columns"), values):
            object.__setattr__(self, name, value)

    @property
    def _fields(self) -> Fields:
        return self.indptr, self.indices, self.n_items, self.labels, self.basket_ids

    def __reduce__(self) -> tuple[Any, ...]:  # an unpickled array would be writeable
        return self._trusted, (*self._fields, self._columns)

    @classmethod
    def from_lists(
        cls,
        sets: Iterable[Iterable[Any]],
        *,
        n_items: int | None = None,
        labels: Sequence[str] | None = None,
        unknown: str = "error",
        basket_ids: Iterable[Any] | None = None,
    ) -> Baskets:
        """Return the baskets of an iterable of sets, each an iterable of item ids or of labels.

        Strings are labels, looked up in ``labels`` or, without it, in the sorted list of all that occur. Integers are ids;
        ``n_items`` defaults to the number of ``labels`` or, without them, the largest id plus one. Repeated items in a basket
        are kept once. With ``unknown="skip"``, items that are not in the catalogue are left out, with a
        :class:`~ndpp.errors.DataWarning`.
        """
        rows = [_members(members) for members in sets]
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        if rows and all(isinstance(row, np.ndarray) for row in rows):
            values: Column = np.concatenate([row for row in rows if len(row)] or [np.empty(0, np.int64)])
        else:
            values = list(chain.from_iterable(rows))
        ids = check_basket_ids(basket_ids, len(rows))
        long = Long(np.repeat(np.arange(len(rows)), sizes), len(rows), values, ids)
        return cls._trusted(*long.arrays(Rules.of(labels, n_items=n_items, unknown=unknown)))

    @classmethod
    def from_csr(
        cls, matrix: object, *, labels: Sequence[str] | None = None, basket_ids: Iterable[Any] | None = None
    ) -> Baskets:
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
        long = Long(rows[ones], csr.shape[0], csr.indices[ones], check_basket_ids(basket_ids, csr.shape[0]))
        return cls._trusted(*long.arrays(Rules.of(labels, n_items=csr.shape[1])))

    @classmethod
    def from_frame(
        cls,
        frame: object,
        *,
        basket: str | Sequence[str],
        item: str,
        n_items: int | None = None,
        labels: Sequence[str] | None = None,
        as_labels: bool | None = None,
        unknown: str = "error",
        missing: str = "error",
    ) -> Baskets:
        """Return the baskets of a pandas, polars or pyarrow table in long form, with one row per item of each basket.

        Baskets are in order of first appearance. A row whose item is missing stands for an empty basket, if it is the
        basket's only row.

        Parameters
        ----------
        frame : data frame
            Anything in memory that narwhals supports.
        basket, item : str, or list of str for the basket
            The columns; several may name a basket together, such as ``["customer", "date"]``. What they say becomes ``basket_ids``.
        n_items, labels, as_labels, unknown, missing
            As in :meth:`read`.
        """
        rules = Rules.of(labels, n_items, as_labels, unknown, missing, "the data frame")
        columns = Columns.of(basket, item)
        long = frames.frame_table(frame, columns.names, [COMPLETION]).long(columns, rules)
        return cls._trusted(*long.arrays(rules))

    @classmethod
    def from_onehot(cls, frame: object, *, basket: str | None = None) -> Baskets:
        """Return the baskets of a table with a row per basket and a column of 0/1 or true/false per item; columns are labels.

        ``basket`` names the column of the basket ids, if there is one.
        """
        long, names = frames.from_onehot(frame, basket)
        return cls._trusted(*long.arrays(Rules.of(names)))

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
        unknown: str = "error",
        missing: str = "error",
        encoding: str | None = None,
        basket: str | Sequence[str] = "basket",
        item: str = "item",
    ) -> Baskets:
        """Read baskets from a file.

        Text: one basket per line, a blank line being an empty basket; ids or labels separated by spaces or, if the file has
        any, tabs or what most lines have of commas, semicolons and bars. CSV and TSV with a header, and Parquet: long form, as in
        :meth:`from_frame`. Semicolons, tabs or bars are recognised as delimiters from the header. Text, CSV and TSV may be gzipped.
        Blanks at the ends of names are removed, unless ``labels`` has the name as it is, or :meth:`write` wrote it: what it writes is
        read back the same.

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
            Whether whole numbers are labels or ids. By default they are labels, unless ``n_items`` or ``labels`` describes a
            catalogue in which they can only be positions; if both are possible, this must be set.
        unknown : {"error", "skip"}
            What to do about items that are not in the catalogue. Skipped items are counted in a
            :class:`~ndpp.errors.DataWarning`.
        missing : {"error", "skip", "keep"}
            What to do about rows without a basket or an item: an empty field or NA, N/A, NaN, null. "keep" takes these words for names.
        encoding : str, optional
            The encoding of a text, CSV or TSV file; UTF-8 by default.
        basket, item : str, or list of str for the basket
            The columns of the long form.
        """
        rules = Rules.of(labels, n_items, as_labels, unknown, missing, files.name_of(source))
        if items is not None:
            if labels is not None:
                raise InvalidInputError("pass labels= or the file items=, not both")
            names = rules._replace(name=files.name_of(items), missing="keep").clean(files.read_lines(items, encoding))
            rules = rules._replace(labels=check_labels(names))
        long = files.read(source, format, Columns.of(basket, item), rules, encoding)
        return cls._trusted(*long.arrays(rules))

    @classmethod
    def concat(cls, parts: Iterable[Baskets]) -> Baskets:
        """Return the baskets of several parts, one after the other, over the union of their catalogues by label.

        Ids of the first part stay as they are; labels that it lacks follow in the order of the other parts. Parts without labels must be
        over the same number of items. Basket ids are kept if all parts have them.

        Examples
        --------
        >>> january, february = Baskets.from_lists([["tea", "milk"]]), Baskets.from_lists([["rye", "tea"]])
        >>> both = Baskets.concat([january, february])
        >>> both.labels, both.to_lists()
        (('milk', 'tea', 'rye'), [[0, 1], [1, 2]])
        """
        parts = list(parts)
        if not parts or not all(isinstance(part, Baskets) for part in parts):
            raise InvalidInputError(f"concat takes a list of Baskets, at least one; got {parts!r:.60}")
        unnamed, sizes = sum(part.labels is None for part in parts), sorted({part.n_items for part in parts})
        if 0 < unnamed < len(parts):
            raise InvalidInputError(
                f"baskets are joined by the labels of their items; {unnamed} of {len(parts)} parts have none. "
                "Make them with labels=, or name their items with relabel."
            )
        if unnamed and len(sizes) > 1:
            raise InvalidInputError(
                f"baskets without labels are joined by item ids, so all must be over the same items; these are over {sizes}. "
                "Make them with labels=, or with the n_items= of all."
            )
        labels = None if unnamed else tuple(dict.fromkeys(name for part in parts for name in part.labels or ()))
        over = [part if labels is None else part._placed(places(part.labels or (), labels), labels) for part in parts]
        indptr = np.append(0, np.cumsum(np.concatenate([part.sizes for part in over])))
        all_ids = [part.basket_ids for part in parts]
        ids = None if None in all_ids else check_basket_ids(chain.from_iterable(filter(None, all_ids)), len(indptr) - 1)
        indices = np.concatenate([part.indices for part in over])
        return cls._trusted(indptr, indices, sizes[0] if labels is None else len(labels), labels, ids)

    def relabel(self, names: Mapping[Any, str] | Callable[[Any], str]) -> Self:
        """Return the baskets with other labels. Items that get the same label become one item, which a basket holds once.

        ``names`` is a mapping from old labels to new ones, in which labels that it lacks stay as they are, or a function of a label.
        Baskets without labels get some: their items are named by id. New labels are in the order of the old ones.

        Examples
        --------
        >>> baskets = Baskets.from_lists([["milk 1l", "milk 2l"], ["milk 2l", "tea"]])
        >>> merged = baskets.relabel({"milk 1l": "milk", "milk 2l": "milk"})
        >>> merged.labels, merged.to_lists()
        (('milk', 'tea'), [[0], [0, 1]])
        >>> baskets.relabel(str.upper).labels
        ('MILK 1L', 'MILK 2L', 'TEA')
        """
        old: Sequence[Any] = range(self.n_items) if self.labels is None else self.labels
        if isinstance(names, Mapping) and len(names) and not any(name in names for name in old):
            raise InvalidInputError(
                f"none of {many(len(names), 'label')} to replace, such as {next(iter(names))!r}, is in the catalogue"
            )
        new = [names.get(name, name) for name in old] if isinstance(names, Mapping) else list(map(names, old))
        wrong = next((i for i, name in enumerate(new) if not isinstance(name, str) or not name), None)
        if wrong is not None:
            raise InvalidInputError(f"a label must be a nonempty string; item {old[wrong]!r} would get {new[wrong]!r}")
        labels = tuple(dict.fromkeys(new))
        return self._placed(places(new, labels), labels)

    def _placed(self, place: IntArray, labels: tuple[str, ...] | None, n_items: int | None = None) -> Self:
        """Return the baskets with item ``place[i]`` instead of i, none if that is −1; items that become one are held once."""
        ids, owner = place[self.indices], np.repeat(np.arange(len(self)), self.sizes)
        long = Long(owner[ids >= 0], len(self), ids[ids >= 0], self.basket_ids)
        return self._trusted(*long.arrays(Rules(labels, n_items)), self._columns)

    def with_labels(self, labels: Sequence[str] | None) -> Self:
        """Return the baskets with these labels of the items, one for each."""
        names = check_labels(labels, self.n_items)
        return self._trusted(self.indptr, self.indices, self.n_items, names, self.basket_ids, self._columns)

    @classmethod
    def _trusted(
        cls,
        indptr: IntArray,
        indices: IntArray,
        n_items: int,
        labels: tuple[str, ...] | None = None,
        basket_ids: tuple[int | str, ...] | None = None,
        columns: OrderColumns = NOTHING_KNOWN,
    ) -> Self:
        """Return baskets of new arrays and other fields that are known to be valid."""
        made = object.__new__(cls)
        arrays = _integers(indptr, "indptr", copy=False), _integers(indices, "indices", copy=False)
        made._set(*arrays, n_items, labels, basket_ids, columns.take(slice(None)))
        return made

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """Number of baskets and of items, by which scikit-learn takes parts as baskets."""
        return len(self), self.n_items

    @property
    def weights(self) -> FloatArray | None:
        """How often each basket counts; None if all count once. :class:`~ndpp.baskets.orders.Orders` may have weights."""
        return self._columns.weights

    @property
    def context(self) -> Mapping[str, WordArray]:
        """Columns of context, with a word for each basket; :class:`~ndpp.baskets.orders.Orders` may have some."""
        return self._columns.context

    @cached_property
    def total_weight(self) -> float:
        """The number of baskets, each counted as often as it counts."""
        return float(len(self) if self.weights is None else np.sum(self.weights))

    @property
    def sizes(self) -> IntArray:
        """The number of items of each basket."""
        return np.diff(self.indptr)

    @overload
    def __getitem__(self, key: int | np.integer) -> IntArray: ...
    @overload
    def __getitem__(self, key: slice | AnyArray | Sequence[int]) -> Self: ...
    def __getitem__(self, key: int | np.integer | slice | AnyArray | Sequence[int]) -> IntArray | Self:
        if isinstance(key, tuple) and key[1:] == (...,):  # as scikit-learn takes rows of what has a shape
            key = key[0]
        if isinstance(key, (int, np.integer)):
            i = range(len(self))[key]
            return self.indices[self.indptr[i] : self.indptr[i + 1]]
        chosen = np.arange(len(self))[key if isinstance(key, slice) or len(key) else slice(0)]
        sizes = self.sizes[chosen]
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        # An entry keeps its distance from the start of its basket.
        where = np.arange(indptr[-1]) + np.repeat(self.indptr[chosen] - indptr[:-1], sizes)
        ids = None if self.basket_ids is None else tuple(self.basket_ids[i] for i in chosen.tolist())
        columns = self._columns.take(chosen)
        return self._trusted(indptr, self.indices[where], self.n_items, self.labels, ids, columns)

    def __iter__(self) -> Iterator[IntArray]:
        return (self.indices[i:j] for i, j in pairwise(self.indptr.tolist()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Baskets):
            return NotImplemented
        same = (self.n_items, self.labels, len(self)) == (other.n_items, other.labels, len(other))
        same = same and all(map(np.array_equal, (self.indptr, self.indices), (other.indptr, other.indices)))
        # A file of text has ids of text, and baskets without ids are numbered in it.
        return same and all(str(own) == str(its) for own, its in zip(self.ids_or_numbers, other.ids_or_numbers))

    def select(self, *, min_size: int = 0, max_size: float = math.inf) -> Self:
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

    def to_csr(self) -> csr_array:
        """Return a scipy CSR array of shape (len, n_items) with a one (int64, which products can count in) for each item of each basket."""
        from scipy import sparse

        ones = np.ones(len(self.indices), np.int64)
        return sparse.csr_array((ones, self.indices.copy(), self.indptr.copy()), shape=(len(self), self.n_items))

    def to_lists(self) -> list[list[int]]:
        """Return the item ids of each basket."""
        return [items.tolist() for items in self]

    def to_frame(self, backend: str | None = None, *, basket: str = "basket", item: str = "item") -> Any:
        """Return the long form as a data frame of pandas, polars or pyarrow; an empty basket is a row without an item."""
        named = zip(self.ids_or_numbers, self._named(as_labels=True))
        pairs = [(i, name) for i, row in named for name in row or [None]]
        return to_frame(dict(zip((basket, item), zip(*pairs) if pairs else ((), ()))), backend)

    def __repr__(self) -> str:
        text = f"<Baskets: {len(self)} basket{'' if len(self) == 1 else 's'} over {self.n_items} items"
        if len(self):
            text += f", sizes {self.sizes.min()} to {self.sizes.max()}, mean {self.sizes.mean():.3g}"
        return text + (", labelled" if self.labels else "") + (", with ids>" if self.basket_ids else ">")

    def _repr_html_(self) -> str:
        shown = [(i, ", ".join(self.labelled(k))) for k, i in enumerate(self.ids_or_numbers[:SHOWN_ROWS])]
        return html_table(repr(self).strip("<>"), ["basket", "items"], shown, n_lines=len(self))

    def labelled(self, i: int) -> tuple[str, ...]:
        """Return the labels of the items of basket i; without labels, their ids as strings."""
        return tuple(str(item) if self.labels is None else self.labels[item] for item in self[i].tolist())

    @property
    def ids_or_numbers(self) -> Sequence[int | str]:
        """The ``basket_ids`` or, without them, 0, 1, 2, …"""
        return range(len(self)) if self.basket_ids is None else self.basket_ids

    def _named(self, *, as_labels: bool) -> Iterable[Sequence[Any]]:
        """Return the labels of the items of each basket, or their ids if there are none."""
        return map(self.labelled, range(len(self))) if as_labels and self.labels is not None else self.to_lists()

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
        written. The file does not hold the catalogue: pass ``n_items`` or ``labels`` to ``read``, or ``as_labels=False`` if the
        file holds ids. Tables hold ``basket_ids``, or number the baskets 0, 1, 2, …; text does not, and cannot hold zero baskets.
        """
        kind, names = files.format_of(target, format), self.labels if as_labels else None
        if kind == "text" and not len(self):
            raise InvalidInputError("a text file cannot hold zero baskets; write CSV or Parquet")
        if kind != "text" and self.basket_ids is not None:
            files.check_table_ids(self.basket_ids)
            files.check_names(kind, map(str, self.basket_ids))
        rows, columns = self._named(as_labels=as_labels), Columns.of(basket, item)
        files.write(target, rows, self.ids_or_numbers, columns, kind, names or (), self.context)


def _integers(value: ArrayLike, name: str, *, copy: bool = True) -> IntArray:
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidInputError(f"{name} must be a flat array of integers; got shape {array.shape}, {array.dtype}")
    return frozen(array.astype(np.int64, copy=copy and array.flags.writeable))


def _members(members: object) -> Column:
    if isinstance(members, (str, bytes, Mapping)) or not isinstance(members, Iterable):
        raise InvalidInputError(f"each basket must be a list, set or array of item ids or labels; got {members!r}")
    return members if isinstance(members, (Sequence, np.ndarray)) else list(members)
