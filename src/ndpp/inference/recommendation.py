"""What is recommended for one basket or many, and limits per category."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ndpp._show import Shown
from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.errors import InvalidInputError


class _Items(NamedTuple):
    items: IntArray
    scores: FloatArray
    labels: tuple[str, ...] | None = None


class Recommendation(Shown, _Items):
    """Items, best first, and their scores, as the :class:`Ranking` defines them.

    ``labels`` are the names of the items, if they have any.
    """

    def table(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return a row per item."""
        names = self.items.tolist() if self.labels is None else self.labels
        return ["item", "score"], list(zip(names, self.scores.tolist()))


class Recommendations(Shown, list[Recommendation | None]):
    """A recommendation per basket, None for baskets of probability zero; ``basket_ids`` are those of the baskets."""

    def __init__(self, found: Iterable[Recommendation | None], basket_ids: Sequence[int | str]) -> None:
        super().__init__(found)
        self.basket_ids = basket_ids

    def table(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return a row per basket and item, with the rank of the item."""
        found = [(i, one) for i, one in zip(self.basket_ids, self) if one is not None]
        lines = [(i, rank, *line) for i, one in found for rank, line in enumerate(one.table()[1], 1)]
        return ["basket", "rank", "item", "score"], lines


class PerCategory(NamedTuple):
    """At most ``most`` recommendations from each category: the ranked list, without what exceeds the limit of its category.

    ``category_of`` has the category of each item of the catalogue. What is in the basket does not count.

    Examples
    --------
    >>> from ndpp import LowRankKernel, recommend
    >>> kernel = LowRankKernel(np.eye(4), np.diag([4.0, 3.0, 2.0, 1.0]))
    >>> recommend(kernel, [], n=3, per_category=PerCategory(["dairy", "dairy", "dairy", "bread"], 2)).items
    array([0, 1, 3])
    """

    category_of: Sequence[Hashable]
    most: int

    def limit(self, n_items: int) -> Limit:
        """Return the limit for scores of a catalogue."""
        if len(self.category_of) != n_items:
            problem = f"must have a category for each of {n_items} items; got {len(self.category_of)}"
            raise InvalidInputError(problem, argument="category_of")
        numbers: dict[Hashable, int] = {}
        codes = np.array([numbers.setdefault(name, len(numbers)) for name in self.category_of], np.int64)
        counts = np.bincount(codes)
        place = np.arange(n_items) - np.repeat(np.cumsum(counts) - counts, counts)  # within the category
        return Limit(codes, place >= check_count(self.most, "most", least=1))


class Limit(NamedTuple):
    """The number of each item's category; and where, in order of category and score, items exceed the limit."""

    codes: IntArray
    exceeds: BoolArray

    def apply(self, scores: FloatArray) -> None:
        """Set the scores of items that exceed the limit to zero; of equal scores, the smaller id counts first."""
        scores[np.lexsort((-scores, self.codes))[self.exceeds]] = 0.0
