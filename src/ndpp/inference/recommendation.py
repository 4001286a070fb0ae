"""What is recommended for one basket or many, and limits per category."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ndpp._show import Shown
from ndpp._types import FloatArray, IntArray
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


R = TypeVar("R", bound=Shown)


class Recommendations(Shown, list[R | None]):
    """A recommendation per basket, None for baskets of probability zero; ``basket_ids`` are those of the baskets."""

    def __init__(self, found: Iterable[R | None], basket_ids: Sequence[int | str]) -> None:
        super().__init__(found)
        self.basket_ids = basket_ids

    def table(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return a row per basket and item, with the rank of the item."""
        tables = [(i, *one.table()) for i, one in zip(self.basket_ids, self) if one is not None]
        header = next((header for _, header, lines in tables if lines), ["item", "score"])
        lines = [(i, rank, *line) for i, _, own in tables for rank, line in enumerate(own, 1)]
        return ["basket", "rank", *header], lines


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

    def limit(self, n_items: int) -> Callable[[FloatArray], None]:
        """Return what sets those scores of a catalogue to zero that exceed the limit; of equal scores, the smaller id counts first."""
        if len(self.category_of) != n_items:
            problem = f"must have a category for each of {n_items} items; got {len(self.category_of)}"
            raise InvalidInputError(problem, argument="category_of")
        numbers: dict[Hashable, int] = {}
        codes = np.array([numbers.setdefault(name, len(numbers)) for name in self.category_of], np.int64)
        counts = np.bincount(codes)
        place = np.arange(n_items) - np.repeat(np.cumsum(counts) - counts, counts)  # within the category
        exceeds = place >= check_count(self.most, "most", least=1)

        def apply(scores: FloatArray) -> None:
            scores[np.lexsort((-scores, codes))[exceeds]] = 0.0

        return apply
