"""What there is to see of baskets: their number, sizes, ids and names; in a line, as a data frame, and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ndpp._show import MOST_ROWS, html_table, to_frame
from ndpp._types import IntArray


class Shown:
    """What a person sees of :class:`ndpp.Baskets`."""

    indptr: IntArray
    indices: IntArray
    n_items: int
    labels: tuple[str, ...] | None
    basket_ids: tuple[int | str, ...] | None

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def sizes(self) -> IntArray:
        """The number of items of each basket."""
        return np.diff(self.indptr)

    def __repr__(self) -> str:
        text = f"<Baskets: {len(self)} basket{'' if len(self) == 1 else 's'} over {self.n_items} items"
        if len(self):
            text += f", sizes {self.sizes.min()} to {self.sizes.max()}, mean {self.sizes.mean():.3g}"
        return text + (", labelled" if self.labels else "") + (", with ids>" if self.basket_ids else ">")

    def to_frame(self, backend: str | None = None, *, basket: str = "basket", item: str = "item") -> Any:
        """Return the long form as a data frame of pandas, polars or pyarrow; an empty basket is a row without an item."""
        names: Any = self._items if self.labels is None else self.labelled
        pairs = [(i, name) for k, i in enumerate(self.ids_or_numbers) for name in names(k) or [None]]
        return to_frame(dict(zip((basket, item), zip(*pairs) if pairs else ((), ()))), backend)

    def _items(self, i: int) -> list[int]:
        items: list[int] = self.indices[self.indptr[i] : self.indptr[i + 1]].tolist()
        return items

    def _repr_html_(self) -> str:
        shown = [(i, ", ".join(self.labelled(k))) for k, i in enumerate(self.ids_or_numbers[:MOST_ROWS])]
        return html_table(repr(self).strip("<>"), ["basket", "items"], shown, n_lines=len(self))

    def labelled(self, i: int) -> tuple[str, ...]:
        """Return the labels of the items of basket i; without labels, their ids as strings."""
        items = self._items(range(len(self))[i])
        return tuple(str(item) if self.labels is None else self.labels[item] for item in items)

    @property
    def ids_or_numbers(self) -> Sequence[int | str]:
        """The ``basket_ids`` or, without them, 0, 1, 2, …"""
        return range(len(self)) if self.basket_ids is None else self.basket_ids
