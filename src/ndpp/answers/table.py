"""A table of the items: their names for people, their pictures, and limits in words, ``dairy=1..2`` or ``price<=20``.

The command, the service and notebooks read it here. A model file may hold one in its metadata, by label, so that it stays right when items
enter and leave.
"""

from __future__ import annotations

import os
import re
import warnings
import zlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ndpp._show import NamedLabel
from ndpp._types import BoolArray, FloatArray, cached_property
from ndpp._validation import Catalogued
from ndpp.answers.records import names_of
from ndpp.baskets.files import name_of
from ndpp.baskets.frames import PathOrFile
from ndpp.baskets.groups import read_columns
from ndpp.baskets.labels import many
from ndpp.errors import DataWarning, InvalidInputError, similar
from ndpp.laws.limits import Limit

NAME, PICTURE = "name", "picture"
"""Columns that describe single items: no limit counts or adds them up."""
ATTACHED = "item_table"
"""What the metadata of a model call its table."""
FORMS = "NAME=2, NAME=1..2, NAME<=2 or NAME>=1"
LEAST_CODE = 5
"""The least number of digits of codes that are all of one length."""
_PICTURE = re.compile(r"(?P<host>https?://[A-Za-z0-9.-]+(:[0-9]+)?)/[^\s\\]+|(?!/|.*\.\.)[^:?#\\\x00-\x1f]+")
"""An address on the web, or a path in a folder of pictures."""
_COMMA = re.compile(r"-?[0-9]+(,([0-9]{1,2}|[0-9]{4,}))?")  # 1,234 may be a thousand
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_LIMIT = re.compile(
    rf"(?P<name>.+?)\s*(?:<=\s*(?P<most>{_NUMBER})|>=\s*(?P<least>{_NUMBER})|=\s*(?P<low>{_NUMBER})(?:\.\.(?P<high>{_NUMBER}))?)"
)


def _are_codes(words: Collection[str]) -> bool:
    """Return whether all of these are digits but no numbers: of one length of at least five, or some with a zero before others."""
    if not all(map(str.isdecimal, words)):
        return False
    lengths = set(map(len, words))
    return any(len(word) > 1 and word[0] == "0" for word in words) or (len(lengths) == 1 and min(lengths) >= LEAST_CODE)


def _with_comma(word: str) -> float:
    return float(word.replace(",", "."))


class Statistic(NamedTuple):
    """What a limit bounds: the total of a ``column`` of numbers, or the number of items with this ``value`` of it."""

    column: str
    value: str | None = None


@dataclass(frozen=True, eq=False)
class ItemTable:
    """What a table says about the items of a law: names, pictures, and columns of numbers, such as prices, and of words, such as kinds.

    Attributes
    ----------
    law : law
        The distribution over the items.
    columns : dict
        The text of each item in each column, None where there is none.
    name : str
        What messages call the table.

    Examples
    --------
    >>> import io, ndpp
    >>> shelf = ndpp.datasets.shelf_kernel()
    >>> table = ItemTable.read(io.StringIO("item,kind,price\\nbread,bakery,2.5\\nrolls,bakery,1.5\\nbutter,dairy,3\\n"), shelf)
    >>> table.limits(["bakery=1..2"])
    [<Limit 'bakery': at least 1 and at most 2 of 2 items>]
    """

    law: Catalogued
    columns: dict[str, list[str | None]]
    name: str = "the table"

    @classmethod
    def read(
        cls, source: PathOrFile, law: Catalogued, *, ids: bool = False, item: str = "item", encoding: str | None = None
    ) -> ItemTable:
        """Read a CSV, TSV or Parquet table, with the labels of items in its column ``item`` (or another), with ``ids`` their ids."""
        labels, name = None if ids else law.labels, name_of(source)
        found = cls(law, read_columns(source, law.n_items, labels, item=item, encoding=encoding), name)
        if lost := [word for word in found.columns.get(PICTURE, ()) if word and not _PICTURE.fullmatch(word)]:
            rule = "a picture is an address, such as https://shop.example/tea.jpg, or a path in the folder of pictures"
            text = f"{name}: left out {many(len(lost), 'picture')}, such as {lost[0]!r}; {rule}"
            warnings.warn(text, DataWarning, stacklevel=2)
        return found

    @classmethod
    def attached(cls, metadata: Mapping[str, Any], law: Catalogued) -> ItemTable | None:
        """Return the table that the metadata of a model hold, None if there is none."""
        match metadata.get(ATTACHED):
            case {"file": str(name), "columns": dict(columns)}:
                keys = _keys(law)
                return cls(law, {column: list(map(words.get, keys)) for column, words in columns.items()}, name)
        return None

    def attach(self) -> dict[str, Any]:
        """Return what makes the table a part of a model, ``ndpp.save(law, path, metadata=table.attach())``."""
        keys = _keys(self.law)
        columns = {
            column: {key: word for key, word in zip(keys, words) if word is not None}
            for column, words in self.columns.items()
        }
        return {ATTACHED: {"file": os.path.basename(self.name), "columns": columns}}

    @cached_property
    def labels(self) -> tuple[str, ...] | None:
        """The labels of the law, those of items with a name or a picture with both."""
        if self.law.labels is None or not {NAME, PICTURE} & self.columns.keys():
            return self.law.labels
        names = self.columns.get(NAME, self.law.labels)
        return tuple(
            label if name in (None, label) and not picture else NamedLabel(label, name or label, picture)
            for label, name, picture in zip(self.law.labels, names, self.pictures)
        )

    @cached_property
    def pictures(self) -> list[str | None]:
        """Where the picture of each item is: an address on the web, or a path in a folder of pictures."""
        words = self.columns.get(PICTURE, [None] * self.law.n_items)
        return [word if word and _PICTURE.fullmatch(word) else None for word in words]

    @cached_property
    def hosts(self) -> list[str]:
        """Where pictures on the web come from, such as https://shop.example."""
        found = (_PICTURE.fullmatch(word) for word in {word for word in self.pictures if word})
        return sorted({one["host"] for one in found if one and one["host"]})

    @property
    def _countable(self) -> dict[str, list[str | None]]:
        """The columns that limits may be about."""
        return {column: words for column, words in self.columns.items() if column not in (NAME, PICTURE)}

    @cached_property
    def numbers(self) -> dict[str, FloatArray]:
        """The columns of numbers, NaN where there is none; codes, such as 100205 or 0017, are words."""
        found = {}
        for column, words in self._countable.items():
            there = {word for word in words if word is not None}
            with suppress(ValueError):
                if there and not _are_codes(there):
                    number = _with_comma if all(map(_COMMA.fullmatch, there)) else float
                    found[column] = np.array([np.nan if word is None else number(word) for word in words])
        return {column: values for column, values in found.items() if not np.isnan(values).all()}

    @cached_property
    def categories(self) -> dict[str, list[str]]:
        """The values of each column of words, sorted."""
        others = {column: words for column, words in self._countable.items() if column not in self.numbers}
        return {column: sorted({word for word in words if word is not None}) for column, words in others.items()}

    @cached_property
    def checksum(self) -> str:
        """What tells one table from another."""
        return f"{zlib.crc32(repr(self.columns).encode('utf-8', 'replace')):08x}"

    def limits(self, words: Iterable[str], possible: BoolArray | None = None) -> list[Limit]:
        """Return limits in words: ``price<=20`` bounds the total of a column of numbers, ``dairy=1..2`` how many items are ``dairy``.

        A category is looked up in all columns of words; ``aisle:dairy`` names its column, too. An item without a category counts for none.
        Each ``possible`` item, by default every item, must have a number in a column whose total is bounded.
        """
        bounds: dict[Statistic, tuple[str, float | None, float | None]] = {}
        for word in words:
            parts = _LIMIT.fullmatch(word.strip())
            if parts is None or parts["name"].endswith("="):
                form = word.replace("==", "=", 1) if "==" in word else FORMS
                raise InvalidInputError(f"{word!r} cannot be read; write {form}", argument="limits")
            name, most, least, low, high = (parts[key] for key in ("name", "most", "least", "low", "high"))
            found = self._find(name)
            _, least_before, most_before = bounds.get(found, (name, None, None))
            least, most = low or least, high or low or most
            bounds[found] = (
                name if found.value is None else found.value,
                max((float(x) for x in (least, least_before) if x is not None), default=None),
                min((float(x) for x in (most, most_before) if x is not None), default=None),
            )
        return [self._limit(found, *rest, possible) for found, rest in bounds.items()]

    def _limit(
        self, found: Statistic, name: str, least: float | None, most: float | None, possible: BoolArray | None
    ) -> Limit:
        column, value = found
        if value is not None:
            return Limit([i for i, word in enumerate(self.columns[column]) if word == value], least, most, name)
        values = self.numbers[column]
        lacking = np.flatnonzero(np.isnan(values) & (True if possible is None else possible))
        if len(lacking):
            such = names_of(self.law.labels, lacking[:1])[0]
            raise InvalidInputError(
                f"{self.name} has no {column} for {many(len(lacking), 'item')} that may be in a basket, such as {such!r}",
                advice="Fill it in, or leave such items out with {exclude}",
            )
        return Limit(np.nan_to_num(values), least, most, name)

    def _find(self, name: str) -> Statistic:
        """Return what a name stands for; raise, with what is there, if that is nothing or not clear."""
        if name in self.numbers:
            return Statistic(name)
        holding = [column for column, values in self.categories.items() if name in values]
        if len(holding) > 1:
            both = " and ".join(map(repr, holding))
            raise InvalidInputError(
                f"{name!r} is not clear: the columns {both} of {self.name} have it; write {holding[0]}:{name}", argument="limits"
            )  # fmt: skip
        if holding:
            return Statistic(holding[0], name)
        for column, words in self.columns.items():
            if name.startswith(f"{column}:") and name[len(column) + 1 :] in words:
                return Statistic(column, name[len(column) + 1 :])
        if self.categories.get(name):
            raise InvalidInputError(
                f"{name!r} is a column of words or codes, and only numbers add up; name what to count, such as "
                f"{self.categories[name][0]!r}",
                argument="limits",
            )
        there = list(
            dict.fromkeys([*self.numbers, *(value for values in self.categories.values() for value in values)])
        )
        close = similar(name.rpartition(":")[2], there, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(there[:8]) or 'nothing but items'}"
        raise InvalidInputError(f"{name!r} is not in {self.name}; {hint}", argument="limits")


def _keys(law: Catalogued) -> list[str]:
    """Return what names items in metadata: labels, or ids where there are none."""
    return list(law.labels or map(str, range(law.n_items)))
