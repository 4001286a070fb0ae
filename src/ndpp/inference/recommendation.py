"""What is recommended for one basket or many, and limits per category."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ndpp._show import Shown
from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp._validation import by_name, check_count
from ndpp.errors import InvalidInputError
from ndpp.laws.law import Law


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

    ``category_of`` is a mapping from labels to categories, a pandas Series with labels as its index, or an array or list with the category
    of item 0, 1, …. Labels that the model does not know are ignored; an item that may be recommended must have a category. What is in the
    basket does not count.

    Examples
    --------
    >>> from ndpp import LowRankKernel, recommend
    >>> kernel = LowRankKernel(np.eye(4), np.diag([4.0, 3.0, 2.0, 1.0]))
    >>> recommend(kernel, [], n=3, per_category=PerCategory(["dairy", "dairy", "dairy", "bread"], 2)).items
    array([0, 1, 3])
    >>> shelf = LowRankKernel(kernel.X, kernel.W, labels=["milk", "cream", "rye", "tea"])
    >>> recommend(shelf, [], n=3, per_category=PerCategory({"milk": 1, "cream": 1, "tea": 2, "rye": 3}, 1)).labels
    ('milk', 'rye', 'tea')
    """

    category_of: Mapping[Any, Hashable] | Sequence[Hashable] | Any
    most: int

    def limit(self, law: Law, allowed: BoolArray) -> Callable[[FloatArray], None]:
        """Return what sets scores to zero that exceed the limit; of equal ones, the smaller id counts first.

        All ``allowed`` items must have a category.
        """
        names, known = by_name(self.category_of, law.labels, law.n_items, "category_of")
        without = np.flatnonzero(allowed & ~known)
        if len(without):
            such = int(without[0]) if law.labels is None else law.labels[without[0]]
            raise InvalidInputError(
                f"lacks {len(without):,} of the items that may be recommended, such as {such!r}",
                argument="category_of",
                advice="Give each a category, or name the items to recommend with {candidates}",
            )
        numbers: dict[Hashable, int] = {}
        codes = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
        counts = np.bincount(codes)
        place = np.arange(law.n_items) - np.repeat(np.cumsum(counts) - counts, counts)  # within the category
        exceeds = place >= check_count(self.most, "most", least=1)

        def apply(scores: FloatArray) -> None:
            scores[np.lexsort((-scores, codes))[exceeds]] = 0.0

        return apply
