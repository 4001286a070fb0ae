"""What is recommended for one basket or many, and limits per category."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
from scipy import sparse

from ndpp._show import Shown
from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp._validation import by_name, check_count
from ndpp.errors import InvalidInputError
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit, Limits


class _Items(NamedTuple):
    items: IntArray
    scores: FloatArray
    labels: tuple[str, ...] | None = None


class Recommendation(Shown, _Items):
    """Items, best first, and their scores, as the :class:`Ranking` defines them.

    ``labels`` are the names of the items, if they have any.
    """

    def table(self) -> tuple[list[str], list[tuple[object, ...]]]:
        """Return a row per item."""
        names = self.items.tolist() if self.labels is None else self.labels
        return ["item", "score"], list(zip(names, self.scores.tolist()))


R = TypeVar("R", bound=Shown)


class Recommendations(Shown, list[R | None]):
    """A recommendation per basket, None for baskets of probability zero; ``basket_ids`` are those of the baskets."""

    def __init__(self, found: Iterable[R | None], basket_ids: Sequence[int | str]) -> None:
        super().__init__(found)
        self.basket_ids = basket_ids

    def table(self) -> tuple[list[str], list[tuple[object, ...]]]:
        """Return a row per basket and item, with the rank of the item."""
        tables = [(i, *one.table()) for i, one in zip(self.basket_ids, self) if one is not None]
        header = next((header for _, header, lines in tables if lines), ["item", "score"])
        lines = [(i, rank, *line) for i, _, own in tables for rank, line in enumerate(own, 1)]
        return ["basket", "rank", *header], lines


class Caps(NamedTuple):
    """Upper limits on a basket and what is recommended for it, together: ``values`` (n, caps) of each item, and the most of each cap."""

    values: sparse.csr_array
    most: FloatArray

    @classmethod
    def of(cls, limits: Limit | Iterable[Limit], law: Law) -> Caps:
        """Return limits on the items of a law; raise if one asks for a least total, which no list can promise."""
        chosen = Limits.of(limits, law)
        for text, low in zip(chosen.texts, chosen.low):
            if low > 0:
                raise InvalidInputError(
                    f"can only bound recommendations from above, and {text} asks for a least total", argument="limits",
                    advice="Complete the basket with sample, greedy_map or `ndpp complete`, which keep both bounds",
                )  # fmt: skip
        return cls(sparse.csr_array(chosen.values.T), chosen.high)

    def joined(self, other: Caps | None) -> Caps:
        """Return these caps and others."""
        if other is None:
            return self
        return Caps(sparse.hstack([self.values, other.values], format="csr"), np.append(self.most, other.most))

    def apply(self, scores: FloatArray, basket: IntArray, n: int) -> None:
        """Set the scores to zero of all but the n best items that fit, one after the other; of equal ones, the smaller id comes first."""
        room = self.most - np.asarray(self.values[basket].sum(axis=0)).ravel()
        ends, caps, values = self.values.indptr, self.values.indices, self.values.data
        kept: list[int] = []
        for a in np.argsort(-scores, kind="stable").tolist():
            if len(kept) == n or not scores[a] > 0:
                break
            own = slice(ends[a], ends[a + 1])
            if (values[own] <= room[caps[own]]).all():
                room[caps[own]] -= values[own]
                kept.append(a)
        best = scores[kept]
        scores[:] = 0.0
        scores[kept] = best


class PerCategory(NamedTuple):
    """Recommendations by category: at most ``most`` from each, those of the basket included, only from those in ``only``, or both.

    ``category_of`` is a mapping from labels to categories, a pandas Series with labels as its index, or an array or list with the category
    of item 0, 1, …, None for items without one. Labels that the model does not know are ignored; an item that may be recommended must have
    a category.

    Examples
    --------
    >>> from ndpp import LowRankKernel, recommend
    >>> kernel = LowRankKernel(np.eye(4), np.diag([4.0, 3.0, 2.0, 1.0]))
    >>> recommend(kernel, [], n=3, per_category=PerCategory(["dairy", "dairy", "dairy", "bread"], 2)).items
    array([0, 1, 3])
    >>> shelf = LowRankKernel(kernel.X, kernel.W, labels=["milk", "cream", "rye", "tea"])
    >>> category_of = {"milk": "dairy", "cream": "dairy", "tea": "drinks", "rye": "bread"}
    >>> recommend(shelf, [], per_category=PerCategory(category_of, 1, only=["dairy", "drinks"])).labels
    ('milk', 'tea')
    """

    category_of: Mapping[Any, Hashable] | Sequence[Hashable] | Any
    most: int | None = None
    only: Collection[Hashable] | None = None

    def limit(self, law: Law, allowed: BoolArray) -> tuple[BoolArray, Caps | None]:
        """Return the ``allowed`` items of the wanted categories, and the limits; all ``allowed`` items must have a category."""
        names, known = by_name(self.category_of, law.labels, law.n_items, "category_of")
        has_category = known & np.array([name is not None for name in names], bool)
        without = np.flatnonzero(allowed & ~has_category)
        if len(without):
            such = int(without[0]) if law.labels is None else law.labels[without[0]]
            raise InvalidInputError(
                f"lacks {len(without):,} of the items that may be recommended, such as {such!r}",
                argument="category_of",
                advice="Give each a category, or name the items to recommend with {candidates}",
            )
        numbers: dict[Hashable, int] = {}
        items = np.flatnonzero(has_category)
        codes = np.array([numbers.setdefault(names[a], len(numbers)) for a in items.tolist()], np.int64)
        if self.only is not None:
            wanted = [numbers[name] if name in numbers else self._refuse(name, numbers) for name in self.only]
            allowed = allowed & np.isin(np.arange(law.n_items), items[np.isin(codes, wanted)])
        if self.most is None:
            return allowed, None
        values = sparse.csr_array((np.ones(len(items)), (items, codes)), shape=(law.n_items, max(1, len(numbers))))
        return allowed, Caps(values, np.full(values.shape[1], float(check_count(self.most, "most", least=1))))

    def _refuse(self, name: Hashable, there: Iterable[Hashable]) -> NoReturn:
        """Raise an error about a category that no item has."""
        words = sorted(str(other) for other in there if other is not None)
        close = get_close_matches(str(name), words, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(words[:8])}"
        raise InvalidInputError(f"has no category {name!r}; {hint}", argument="category_of")
