"""Groups of items, such as categories, from a table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from ndpp.baskets.baskets import Baskets
from ndpp.baskets.files import format_of, name_of
from ndpp.baskets.frames import PathOrFile
from ndpp.baskets.lines import MissingColumnError
from ndpp.errors import DataWarning, InvalidInputError


def read_groups(
    source: PathOrFile, column: str, n_items: int, labels: Sequence[str] | None, *, encoding: str | None = None
) -> list[str | None]:
    """Return what a column of a table says about each item of a catalogue, None for items that are not in the column ``item``.

    Without ``labels`` the table names items by ids. It may hold products that are not in the catalogue.
    """
    named = {"labels": labels, "as_labels": True} if labels is not None else {"n_items": n_items, "as_labels": False}
    kind = format_of(source, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        try:
            found = Baskets.read(
                source, format="csv" if kind == "text" else kind, basket=column, unknown="skip", encoding=encoding, **named
            )  # fmt: skip
        except MissingColumnError as error:
            error.advice = f"The file needs the columns 'item' and '{column}'"
            raise
    twice = np.flatnonzero(np.bincount(found.indices, minlength=n_items) > 1)
    if len(twice):
        name = int(twice[0]) if labels is None else labels[twice[0]]
        raise InvalidInputError(f"{name_of(source)}: item {name!r} has several {column[:-1]}ies; it can only have one")
    groups: list[str | None] = [None] * n_items
    for name, items in zip(found.ids_or_numbers, found):
        for item in items.tolist():
            groups[item] = str(name)
    return groups
