"""What options say about baskets, as questions of :mod:`ndpp.answers` take it: words, lists of items, tables and files of factors."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from ndpp._types import IntArray
from ndpp.answers import Prepared
from ndpp.answers.conditions import CONDITIONS, Said
from ndpp.answers.heard import Heard
from ndpp.baskets import Baskets
from ndpp.baskets.groups import read_factors, read_groups, read_items
from ndpp.cli.files import Source, context_of, item_ids, load_prepared, require
from ndpp.cli.options import Categories, ConditionOptions, ReadingFor, Unknown
from ndpp.customers import Customers
from ndpp.errors import ImpossibleLimitError, InvalidInputError
from ndpp.inference import PerCategory
from ndpp.laws.law import Law
from ndpp.laws.limits import Limits


class Lists(NamedTuple):
    """What options say about baskets, and how the files among them are read."""

    options: ConditionOptions
    ids: bool = False
    encoding: str | None = None
    unknown: str = "error"

    def said(self, own: Prepared) -> Said:
        """Return what is said, as the questions of :mod:`ndpp.answers` take it: options that need no reading as they are."""
        options, law = self.options, own.law
        mixed = len(law.weights) > 1
        require(mixed or options.mission is None, "--mission is for mixtures; this model is a single kernel")
        plain = {one.name: getattr(options, one.option, None) for one in CONDITIONS}
        said = cast(Said, {name: value for name, value in plain.items() if value is not None})
        said |= {
            "unknown": self.unknown, "exclude": self._items(own, options.exclude, options.exclude_file), "boost": self._boost(law),
            "context": context_of(options.at), "customer": None,
        }  # fmt: skip
        if options.history is not None:
            reading = ReadingFor(unknown=Unknown(self.unknown))
            said["history"] = Source(options.history, reading).read_for(law, ids=self.ids).to_lists()
        if options.only or options.candidates_file is not None:
            said["candidates"] = candidates = self._items(own, options.only, options.candidates_file)
            if not len(candidates):
                named = "--only" if options.candidates_file is None else options.candidates_file
                raise InvalidInputError(f"{named} names no item of the model")
        return said

    def open(self, model: Path) -> Prepared:
        """Return the model with its table of items, or that of --table, and with customers."""
        options = self.options
        named = options.customer or options.history is not None
        require(options.customers is not None or not named, "--customer and --history need --customers FILE")
        require(not (options.customer and options.history is not None), "use either --customer or --history")
        own = load_prepared(model, options.table, ids=self.ids, encoding=self.encoding)
        own.customers = None if options.customers is None else Customers.load(options.customers, own.law)
        return own

    def heard(self, own: Prepared, starts: Baskets) -> Heard:
        """Return what is asked about baskets that begin with these items; raise if one of them breaks a limit, before any is completed."""
        said = self.said(own)
        if self.options.customer:
            require(len(self.options.customer) == 1, "name one customer here")
            said["customer"] = self.options.customer[0]
        heard = Heard.of(own, np.unique(starts.indices), **said)
        each = Limits.of(heard.limits, own.law)
        for i, basket in enumerate(starts if heard.limits else ()):
            try:
                each.beside(basket)
            except ImpossibleLimitError as error:
                if len(starts) > 1:
                    error.args = (f"basket {starts.ids_or_numbers[i]} of the file: {error.args[0]}",)
                raise
        return heard

    def told(self, heard: Heard) -> dict[str, object]:
        """Return what decided which baskets come, for the head of their file."""
        at, limit, table, factors = self.options.at, self.options.limit, heard.own.table, heard.factors
        out = np.union1d(heard.exclude, np.setdiff1d(heard.gone, heard.given))
        told: dict[str, object] = {
            "only": None if heard.candidates is None else heard.candidates.tolist(), "exclude": out.tolist(),
            "at": sorted(at) if at else None, "mission": self.options.mission,
        }  # fmt: skip
        if factors is not None:
            told["boost"] = [(int(item), float(factors[item])) for item in np.flatnonzero(factors != 1)]
        if heard.person is not None:  # not the id itself: it does not belong in a file of baskets
            told["whose_crc32"] = zlib.crc32(repr(heard.person.key[1:]).encode())
        if limit and table is not None:
            told |= {"limits": limit, "table_crc32": table.checksum}
        return told

    def per_category(self, law: Law, wanted: Categories) -> PerCategory | None:
        """Return the limit by category, if there is one."""
        path, most, only = wanted.category_of, wanted.max_per_category, wanted.categories
        require(
            (most is not None or bool(only)) == (path is not None),
            "--category-of goes with --max-per-category or --categories, and they with it",
        )
        if path is None:
            return None
        table = Source(path).target
        category_of = read_groups(
            table, "category", law.n_items, None if self.ids else law.labels, encoding=self.encoding
        )
        chosen = [
            name for word in only or () for name in ([word] if word in category_of else map(str.strip, word.split(",")))
        ]
        return PerCategory(category_of, most, chosen or None)

    def _boost(self, law: Law) -> dict[int, float]:
        """Return the factors of --boost."""
        labels, path = None if self.ids else law.labels, self.options.boost
        if path is None:
            return {}
        return read_factors(Source(path).target, law.n_items, labels, encoding=self.encoding, unknown=self.unknown)

    def _items(self, own: Prepared, words: Sequence[str] | None, path: str | None) -> IntArray:
        """Return the items that are named on the command line and in a file."""
        law, named = own.law, item_ids(own, words, ids=self.ids, unknown=self.unknown)
        labels = None if self.ids else law.labels
        if path is None:
            return np.unique(named)
        return np.union1d(named, read_items(path, law.n_items, labels, encoding=self.encoding, unknown=self.unknown))
