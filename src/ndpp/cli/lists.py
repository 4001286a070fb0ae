"""Which items may come: lists of items and categories, on the command line and in files."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import IntArray
from ndpp._validation import check_items
from ndpp.answers import ItemTable, Prepared
from ndpp.answers.records import names_of
from ndpp.baskets import Baskets
from ndpp.baskets.files import format_of, read, read_lines, unquoted
from ndpp.baskets.groups import read_factors, read_groups
from ndpp.baskets.labels import Rules, encode, many
from ndpp.baskets.lines import Columns, Long, MissingColumnError
from ndpp.cli.files import LEAVE_OUT, Law, Source, item_ids, require
from ndpp.cli.options import Categories, Limits
from ndpp.errors import DataWarning, ImpossibleLimitError, InvalidInputError, UnknownLabelError
from ndpp.inference import PerCategory
from ndpp.laws.limits import Limit
from ndpp.laws.limits import Limits as LimitsOf


class Lists(NamedTuple):
    """The items of --only and --candidates-file, without those of --exclude and --exclude-file; how to read them, and whose they are."""

    limits: Limits
    ids: bool = False
    encoding: str | None = None
    unknown: str = "error"
    customers: Any = None
    whose: Mapping[str, Any] = MappingProxyType({})

    def listed(self, law: Law) -> tuple[IntArray | None, IntArray]:
        """Return the items that may come, None if they are not limited, and those that may not."""
        limits, candidates = self.limits, None
        if limits.only or limits.candidates_file is not None:
            candidates = self._items(law, limits.only, limits.candidates_file)
            if not len(candidates):
                named = "--only" if limits.candidates_file is None else limits.candidates_file
                raise InvalidInputError(f"{named} names no item of the model")
        return candidates, self._items(law, limits.exclude, limits.exclude_file)

    def allowed(self, law: Law, wanted: Categories) -> dict[str, Any]:
        """Return which items may be recommended, as :func:`ndpp.answers.recommend` takes it: lists and a limit by category."""
        path, most, only = wanted.category_of, wanted.max_per_category, wanted.categories
        candidates, excluded = self.listed(law)
        lists: dict[str, Any] = {"candidates": candidates, "exclude": excluded, "boost": self.boost(law)}
        require(
            (most is not None or bool(only)) == (path is not None),
            "--category-of goes with --max-per-category or --categories, and they with it",
        )
        if path is None:
            return lists
        table = Source(path).target
        category_of = read_groups(
            table, "category", law.n_items, None if self.ids else law.labels, encoding=self.encoding
        )
        chosen = [
            name for word in only or () for name in ([word] if word in category_of else map(str.strip, word.split(",")))
        ]
        return {**lists, "per_category": PerCategory(category_of, most, chosen or None)}

    def boost(self, law: Law) -> dict[int, float]:
        """Return the factors of --boost."""
        labels, path = None if self.ids else law.labels, self.limits.boost
        if path is None:
            return {}
        return read_factors(Source(path).target, law.n_items, labels, encoding=self.encoding, unknown=self.unknown)

    def narrowed(self, law: Law, given: IntArray) -> tuple[Law, dict[str, Any]]:
        """Return the model of baskets that hold only given items and allowed ones, boosted, and what decided it.

        No given item may be excluded; one that is out of stock stays.
        """
        candidates, excluded = self.listed(law)
        both = np.intersect1d(excluded, given)
        if both.size:
            (name,) = names_of(law, both[:1], ids=self.ids)
            raise InvalidInputError(f"{str(name)!r} is both given and excluded (--exclude); it can only be one of them")
        factors = self.boost(law)
        gone = np.array([item for item, factor in factors.items() if factor == 0], np.int64)
        excluded = np.union1d(excluded, np.setdiff1d(gone, given))
        chosen: dict[str, Any] = {
            "only": None if candidates is None else candidates.tolist(),
            "exclude": excluded.tolist(),
        }
        if factors:
            chosen["boost"] = sorted(factors.items())
        tilt = {item: factor for item, factor in factors.items() if factor} | dict.fromkeys(chosen["exclude"], 0.0)
        if any(value is not None for value in self.whose.values()):
            # Not the id itself: it does not belong in a file of baskets.
            chosen["whose_crc32"] = zlib.crc32(repr(self.whose).encode())
            stocked = law.tilt({item: factor for item, factor in factors.items() if factor or item not in given})
            law, tilt = self.customers.with_law(stocked).law(**self.whose), dict.fromkeys(chosen["exclude"], 0.0)
        if candidates is not None:
            law = law.restrict(np.union1d(candidates, given))
        return law.tilt(tilt), chosen

    def apart(self, starts: Baskets, chosen: dict[str, Any]) -> IntArray:
        """Return the items that only baskets that begin with them may hold: not in --only, or out of stock."""
        given = np.unique(starts.indices)
        only = given if chosen["only"] is None else chosen["only"]
        gone = [item for item, factor in chosen.get("boost", ()) if factor == 0]
        return given[~np.isin(given, only) | np.isin(given, gone)]

    def table(self, law: Law) -> ItemTable | None:
        """Return the table of --table, which --limit needs, None without any limit."""
        limits = self.limits
        require(
            bool(limits.limit) == (limits.table is not None),
            "--limit and --table go together: the table says what limits count and add up",
        )
        if limits.table is None:
            return None
        return ItemTable.read(Source(limits.table).target, law, ids=self.ids, encoding=self.encoding)

    def limited(self, law: Law, starts: Baskets, chosen: dict[str, Any]) -> tuple[list[Limit], dict[str, Any]]:
        """Return the limits on baskets that begin with these items, and what decided them; ``chosen`` is that of :meth:`narrowed`."""
        table = self.table(law)
        if table is None:
            return [], {}
        given = np.unique(starts.indices)
        lists = {"given": given, "candidates": chosen["only"], "exclude": chosen["exclude"]}
        kept = Prepared(law, table).limits(self.limits.limit, **lists)
        each = LimitsOf.of(kept, law)
        for i, basket in enumerate(starts):  # before any of them is completed
            try:
                each.beside(basket)
            except ImpossibleLimitError as error:
                if len(starts) > 1:
                    error.args = (f"basket {starts.ids_or_numbers[i]} of the file: {error.args[0]}",)
                raise
        return kept, {"limits": self.limits.limit, "table_crc32": table.checksum}

    def _items(self, law: Law, words: Sequence[str] | None, path: str | None) -> IntArray:
        """Return the items that are named on the command line and in a file."""
        named = item_ids(law, words, ids=self.ids, unknown=self.unknown)
        return np.unique(named) if path is None else np.union1d(named, self.read(law, path))

    def read(self, law: Law, path: str) -> IntArray:
        """Return the items of a file: one per line, or the column ``item`` of a table."""
        labels = None if self.ids else law.labels
        rules = Rules(labels, as_labels=labels is not None, unknown=self.unknown, missing="skip", name=path)
        if format_of(path, None) == "text":
            lines = [unquoted(line.strip()) for line in read_lines(path, self.encoding) if line.strip()]
            words: Sequence[Any] = Long(range(len(lines)), len(lines), lines).present(rules).values
        else:
            try:
                words = list(read(path, None, Columns("item", "item"), rules, self.encoding).values)
            except MissingColumnError as error:
                error.advice = "A list of items is the column 'item' of a table, or a text file with an item per line"
                raise
        try:
            found, _ = encode(words, labels, unknown=self.unknown)
        except UnknownLabelError as unknown:
            raise InvalidInputError(f"{path}: {unknown}", advice=LEAVE_OUT) from None
        known = (found >= 0) & (found < law.n_items)
        if self.unknown == "skip" and not known.all():
            new = [words[i] for i in np.flatnonzero(~known).tolist()]
            text = f"{path}: skipped {many(len(set(new)), 'unknown item')}, such as {min(new)!r}"
            warnings.warn(text, DataWarning, stacklevel=1)
            found = found[known]
        return check_items(np.unique(found), law.n_items)
