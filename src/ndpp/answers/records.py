"""Answers as records. The command prints them, the service sends them, and its OpenAPI document is made from them.

Items go by their labels, or by their ids if the model has no labels or ids are asked for. Labels carry the names of a table of the items
(``ndpp._show.NamedLabel``), which people read; JSON has these as ``names``, by label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np

from ndpp._show import Shown, called, to_json
from ndpp._types import IntArray

Item = int | str
SHOWN = 6
"""Typical items in the line of a mission."""


def names_of(labels: Sequence[str] | None, items: Sequence[int] | IntArray) -> list[Item]:
    """Return items as labels, or as ids if there are none."""
    numbers: list[Item] = np.asarray(items, np.int64).tolist()
    return numbers if labels is None else [labels[i] for i in items]


class Record(Shown):
    """What every answer can do: show itself as a table, and become a data frame or JSON.

    The fields ``listed`` hold the rows of the table, records like ``row``; without any, the record is the only row.
    """

    listed: ClassVar[tuple[str, ...]] = ()
    row: ClassVar[type]
    __pydantic_config__: ClassVar[dict[str, Any]] = {"use_attribute_docstrings": True}

    def table(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the names of columns, and rows; lists within a row are left out."""
        rows = [one for name in self.listed for one in getattr(self, name)] if self.listed else [self]
        kind: Any = type(rows[0]) if rows else self.row
        header = [field.name for field in fields(kind) if not str(field.type).startswith("tuple")]
        return header, [tuple(getattr(row, name) for name in header) for row in rows]

    def data(self) -> dict[str, Any]:
        """Return the answer in dictionaries, lists and numbers."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def to_json(self) -> str:
        """Return strict JSON: what the service sends."""
        return to_json(self.data())


@dataclass(frozen=True, repr=False)
class Scored(Record):
    """An item and its score."""

    item: Item
    score: float


@dataclass(frozen=True)
class TiedTo:
    """An item of the basket, and the factor of ties if it were the whole basket."""

    item: Item
    factor: float


@dataclass(frozen=True, repr=False)
class Why(Scored):
    """Why an item is recommended: score = popularity · mission · ties."""

    popularity: float
    """The score if the basket did not matter."""
    mission: float
    """The factor of what the basket says about its mission."""
    ties: float
    """The factor of ties to the items of the basket."""
    because: str | None
    """The mission that contributes most; null if the model has none."""
    tied_to: Item | None
    """The item of the basket with the strongest tie, if any is above one."""
    share: float
    """Share of such baskets that contain the item: of those with the given items or, by completion, with just one more."""
    by_item: tuple[TiedTo, ...]
    """Ties to single items of the basket, strongest first."""


@dataclass(frozen=True, repr=False)
class Own(Scored):
    """An item and its score for a customer."""

    usual: float
    """How often this customer buys it: the share of their baskets, of which the last ones count most."""


@dataclass(frozen=True, repr=False)
class WhyOwn(Why):
    """Why an item is recommended to a customer: score = popularity · mission · ties · customer."""

    customer: float
    """The factor of what this customer has bought before."""
    usual: float
    """How often this customer buys it: the share of their baskets, of which the last ones count most."""


@dataclass(frozen=True, repr=False)
class Explained(Why):
    """Why one item that was asked about would be recommended."""

    skipped: tuple[Item, ...] = ()
    """Items of the question that are not in the catalogue and were left out."""


@dataclass(frozen=True, repr=False)
class Recommended(Record):
    """Items for a basket, best first."""

    listed, row = ("items",), Scored
    ranking: str
    meaning: str
    """What a score says."""
    items: tuple[WhyOwn | Own | Why | Scored, ...]
    skipped: tuple[Item, ...] = ()
    """Items of the question that are not in the catalogue and were left out."""
    customer: str | None = None
    """Whose basket it is: a "known" customer's, a "new" one's, who gets what everybody gets, or by "history"; null if none was named."""


@dataclass(frozen=True)
class Drawn:
    """A basket: all of its items, and those that were not given."""

    items: tuple[Item, ...]
    added: tuple[Item, ...]


@dataclass(frozen=True, repr=False)
class Completed(Record):
    """Baskets drawn, and the seed that gives them again."""

    seed: int
    baskets: tuple[Drawn, ...]
    skipped: tuple[Item, ...] = ()
    """Items of the question that are not in the catalogue and were left out."""
    customer: str | None = None
    """Whose baskets these are, as in recommendations."""

    def table(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return a row per item of each basket."""
        return ["basket", "item"], [(i, item) for i, one in enumerate(self.baskets) for item in one.items]


@dataclass(frozen=True)
class Relation:
    """Two items that go together, or stand in for each other."""

    kind: str
    """complement or substitute"""
    item: Item
    other: Item
    lift: float
    """P(other | item) / P(other)"""
    by_missions: float
    """What missions alone would make of the lift."""
    by_ties: float
    """The part of the lift that missions do not explain."""
    together: float
    """P(item, other): share of baskets that contain both."""
    correlation: float
    """The correlation that orders lists: of complements beyond what sizes of baskets explain, of substitutes the part that ties make."""

    @property
    def times(self) -> float:
        """How many times as often they are together: complements as independent items would be, substitutes as their missions explain."""
        return self.by_ties if self.kind == "substitute" else self.lift


@dataclass(frozen=True, repr=False)
class Pairs(Record):
    """The strongest pairs among the most popular items of the catalogue."""

    listed, row = ("complements", "substitutes"), Relation
    popular: int
    """Items whose pairs were searched."""
    complements: tuple[Relation, ...]
    substitutes: tuple[Relation, ...]


@dataclass(frozen=True, repr=False)
class Related(Record):
    """What goes with an item, and what stands in for it, strongest first."""

    listed, row = ("complements", "substitutes"), Relation
    item: Item
    probability: float
    """Share of baskets that contain the item."""
    complements: tuple[Relation, ...]
    substitutes: tuple[Relation, ...]


@dataclass(frozen=True)
class MissionShare:
    """A mission and how probable it is, given the basket."""

    name: str
    probability: float


@dataclass(frozen=True, repr=False)
class Likelihood(Record):
    """How likely a basket is, as a whole and by its size. Logarithms are natural; null stands for probability zero."""

    log_prob: float | None
    """log P(S): the basket is exactly this one."""
    log_prob_of_size: float | None
    """log P(S | |S| = k), among baskets of the same size."""
    log_lift: float | None
    """log of P(S) over the probability of S if items were independent."""
    contained: float
    """P(items ⊆ S): the share of baskets that contain all of these items, whatever else they hold."""
    contained_lift: float
    """How many times as often that is as if items were independent."""
    contained_size: float | None
    """Mean size of the baskets that contain all of these items; null if there are none."""
    size: int
    size_probability: float | None
    """P(|S| = k); null while it is being computed."""
    at_most: float | None
    """P(|S| ≤ k); null while it is being computed."""
    missions: tuple[MissionShare, ...]
    """Missions of the basket that are at least one percent probable; empty if the model has none."""
    basket: tuple[Item, ...] = ()
    """The items of the basket."""
    skipped: tuple[Item, ...] = ()
    """Items of the question that are not in the catalogue and were left out."""


@dataclass(frozen=True)
class Share:
    """An item, and the share of baskets that contain it."""

    item: Item
    probability: float


@dataclass(frozen=True)
class Typical(Share):
    """An item of a mission: its probability there, and how many times that in all baskets it is."""

    lift: float


@dataclass(frozen=True)
class Mission:
    """A mission: its share of the baskets, their mean size, and its most typical items. Similar components are one mission."""

    name: str
    share: float
    mean_size: float
    items: tuple[Typical, ...]
    components: tuple[int, ...]
    """The components of the mixture that it consists of."""

    def __str__(self) -> str:
        typical = ", ".join(f"{called(one.item)} ({one.lift:.1f}×)" for one in self.items[:SHOWN])
        return f"{self.name}: {self.share:.1%} of baskets, {self.mean_size:.1f} items on average. Typical: {typical}"


@dataclass(frozen=True, repr=False)
class Description(Record):
    """A model in numbers and words."""

    n_items: int
    rank: int | None
    """The rank of a kernel; a mixture has none."""
    n_components: int
    labelled: bool
    mean_size: float
    size_distribution: tuple[float, ...] | None
    """P(|S| = k) for k = 0, 1, …; null where it was not computed, which takes a minute for hundreds of components."""
    popular: tuple[Share, ...]
    """The most popular items."""
    missions: tuple[Mission, ...]
    """Missions of a mixture, largest first."""


@dataclass(frozen=True, repr=False)
class Sizes(Record):
    """How many items the baskets with an item hold."""

    item: Item
    probability: float
    """Share of baskets that contain it."""
    size_distribution: tuple[float, ...] | None
    """P(|S| = k) of these baskets for k = 0, 1, …; null where it is not known yet."""

    def table(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return a row per size."""
        return ["size", "probability"], list(enumerate(self.size_distribution or ()))


@dataclass(frozen=True)
class Place(Share):
    """An item, the share of baskets that contain it, its place, and the mission whose baskets contain it most often, if there are any."""

    x: float
    y: float
    mission: str | None


@dataclass(frozen=True, repr=False)
class Map(Record):
    """The most popular items and their places in the unit square: items of a kind are close together."""

    listed, row = ("items",), Place
    items: tuple[Place, ...]


@dataclass(frozen=True)
class FoundItem:
    """An item of the catalogue."""

    id: int
    item: Item
    probability: float


@dataclass(frozen=True, repr=False)
class Found(Record):
    """Items found, best first, and how many there are in all."""

    listed, row = ("items",), FoundItem
    items: tuple[FoundItem, ...]
    total: int


@dataclass(frozen=True)
class ChangedMission:
    """A mission, and its share of the baskets before and now."""

    name: str
    before: float
    now: float


@dataclass(frozen=True)
class ChangedItem:
    """An item, and the share of baskets that contain it, before and now."""

    item: Item
    before: float
    now: float


@dataclass(frozen=True, repr=False)
class Changes(Record):
    """What has changed since another version of a model, the largest changes first."""

    listed, row = ("items",), ChangedItem
    missions: tuple[ChangedMission, ...]
    """Missions of both models; empty for kernels, and for models of different missions."""
    items: tuple[ChangedItem, ...]
    """Items that both models have."""
    entered: tuple[Share, ...]
    """New items, the most popular first."""
    left: tuple[Share, ...]
    """Items that are gone, and how popular they were."""
    n_entered: int
    n_left: int
