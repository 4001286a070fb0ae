"""What requests and answers look like: the OpenAPI document is made from these records."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ndpp.serve import limits

Id = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1, description="position in the catalogue")]
Label = Annotated[str, Field(strict=True, min_length=1, max_length=limits.LABEL_LENGTH, description="name of the item")]
Item = Id | Label
Probability = Annotated[float, Field(ge=0, le=1)]
Items = Annotated[list[Item], Field(max_length=limits.BASKET_ITEMS)]
Listed = Annotated[list[Item], Field(max_length=limits.LISTED_ITEMS)]
Count = Annotated[int, Field(strict=True, ge=1, le=limits.RESULTS)]
Samples = Annotated[int, Field(strict=True, ge=1, le=limits.SAMPLES)]
Size = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Seed = Annotated[int, Field(strict=True, ge=0, le=2**53 - 1)]


class Ask(BaseModel):
    """What every request may say."""

    model_config = ConfigDict(extra="forbid")
    ids: bool = Field(False, strict=True, description="Answer with ids, even where the model has labels.")


class WithBasket(Ask):
    """A basket: labels are strings, ids are integers."""

    basket: Items = Field([], description="Items that are in.", examples=[["bread", "butter"]])


class RecommendAsk(WithBasket):
    """What goes next?"""

    n: Count = Field(10, description="Most items to return.")
    by: Literal["next", "inclusion"] = Field(
        "next",
        description="Rank by `next`, how many times as probable the basket is with the item as without it, "
        "or by `inclusion`, the probability that a basket which contains these items also contains the item.",
    )
    candidates: Listed | None = Field(None, description="Recommend only these items.")
    exclude: Listed = Field([], description="Never recommend these items.")
    explain: bool = Field(False, strict=True, description="Say what each score owes to each item of the basket.")


class DrawAsk(Ask):
    """Draw baskets."""

    n: Samples = Field(1, description="How many baskets to draw.")
    size: Size | None = Field(None, description="Items of each basket, given ones included; null: any number.")
    candidates: Listed | None = Field(None, description="Only these items may join.")
    exclude: Listed = Field([], description="Items that no basket contains.")
    seed: Seed | None = Field(None, description="The same seed gives the same baskets; null: a fresh one.")


class CompleteAsk(DrawAsk, WithBasket):
    """Draw whole baskets that contain these items."""


class ProbabilityAsk(WithBasket):
    """How likely is this basket?"""


class ExplainAsk(WithBasket):
    """What does an item's score owe to the items of the basket?"""

    item: Item = Field(description="The item whose score is explained.", examples=["jam"])


class BatchAsk(Ask):
    """One question for many baskets."""

    task: Literal["recommend", "complete", "probability"] = Field(description="What to ask for each basket.")
    baskets: list[Items] = Field(
        max_length=limits.BATCH_BASKETS, description="The baskets.", examples=[[["bread"], ["tea"]]]
    )
    n: Annotated[int, Field(strict=True, ge=1, le=100)] = Field(
        10, description="Items, or completions, for each basket."
    )
    by: Literal["next", "inclusion"] = Field("next", description="How `recommend` ranks.")
    size: Size | None = Field(None, description="Items of each completion, given ones included.")
    candidates: Listed | None = Field(None, description="Only these items.")
    exclude: Listed = Field([], description="Never these items.")
    seed: Seed | None = Field(None, description="Completion i of the batch depends on the seed and on i.")


# -- answers -----------------------------------------------------------------------------------------------------------------


class Reason(BaseModel):
    """An item of the basket and the factor by which it changes the score; null where the score without it is undefined or zero."""

    item: Item
    factor: float | None


class Recommended(BaseModel):
    """An item and its score."""

    item: Item
    score: float
    because: list[Reason] | None = None


class RecommendAnswer(BaseModel):
    """Items, best first."""

    items: list[Recommended]


class Drawn(BaseModel):
    """A basket: the items that were given, and those that were drawn."""

    items: list[Item]
    added: list[Item]


class DrawAnswer(BaseModel):
    """Baskets drawn, and the seed that gives them again."""

    seed: int
    baskets: list[Drawn]


class MissionShare(BaseModel):
    """A mission and how probable it is, given the basket."""

    name: str
    probability: Probability


class ProbabilityAnswer(BaseModel):
    """How likely a basket is, as a whole and by its size. Logarithms are natural; null stands for probability zero."""

    log_prob: float | None = Field(description="log P(S): the basket is exactly this one.")
    log_prob_of_size: float | None = Field(description="log P(S | |S| = k), among baskets of the same size.")
    log_lift: float | None = Field(description="log of P(S) over the probability of S if items were independent.")
    size: int
    size_probability: Probability | None = Field(description="P(|S| = k); null while it is being computed.")
    at_most: Probability | None = Field(description="P(|S| ≤ k); null while it is being computed.")
    missions: list[MissionShare] = Field(description="Probable missions of the basket; empty if the model has none.")


class RelatedItem(BaseModel):
    """An item that goes with another or stands in for it."""

    item: Item
    probability: Probability = Field(description="P(b): share of baskets that contain the item.")
    together: Probability = Field(description="P(a, b): share of baskets that contain both.")
    lift: float = Field(description="P(b | a) / P(b)")
    correlation: float


class RelatedAnswer(BaseModel):
    """Complements and substitutes of an item, strongest first."""

    item: Item
    probability: Probability
    complements: list[RelatedItem]
    substitutes: list[RelatedItem]


class ExplainAnswer(BaseModel):
    """A score, the item's score for an empty basket, and the factor of each item of the basket, strongest first."""

    item: Item
    score: float
    alone: float = Field(description="The score for an empty basket.")
    because: list[Reason]


class FoundItem(BaseModel):
    """An item of the catalogue."""

    id: int
    item: Item
    probability: Probability


class ItemsAnswer(BaseModel):
    """Items found, best first, and how many there are in all."""

    items: list[FoundItem]
    total: int


class MissionAnswer(BaseModel):
    """A mission: its share of the baskets, their mean size, and its most typical items. Similar components are one mission."""

    name: str
    share: Probability
    mean_size: float
    items: list[Item]
    lifts: list[float]


class ModelAnswer(BaseModel):
    """The model."""

    name: str
    checksum: str
    n_items: int
    rank: int | None
    labelled: bool
    mean_size: float
    size_distribution: list[Probability] | None = Field(
        description="P(|S| = k) for k = 0, 1, …; null while it is being computed, which takes a minute for hundreds of components."
    )
    missions: list[MissionAnswer]


class MapAnswer(BaseModel):
    """The most popular items and their places in the unit square: items that go with the same items lie close together."""

    items: list[Item]
    probabilities: list[Probability]
    places: list[Annotated[list[float], Field(min_length=2, max_length=2)]]


class Problem(BaseModel):
    """A problem document, RFC 9457."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
