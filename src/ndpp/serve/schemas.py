"""What requests look like: the OpenAPI document is made from these records, and from those of ``ndpp.answers``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ndpp.answers import ItemTable
from ndpp.answers.records import Description
from ndpp.answers.table import FORMS
from ndpp.inference import Ranking
from ndpp.inference.ranking import DAMPING
from ndpp.serve import limits

Id = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1, description="position in the catalogue")]
Label = Annotated[str, Field(strict=True, min_length=1, max_length=limits.LABEL_LENGTH, description="name of the item")]
Item = Id | Label
Share = Annotated[float, Field(ge=0, le=1)]
Customer = Annotated[str, Field(min_length=1, max_length=limits.LABEL_LENGTH)] | Annotated[int, Field(strict=True)]
Factor = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Items = Annotated[list[Item], Field(max_length=limits.BASKET_ITEMS)]
Listed = Annotated[list[Item], Field(max_length=limits.LISTED_ITEMS)]
InWords = Annotated[list[Annotated[str, Field(max_length=limits.LABEL_LENGTH)]], Field(max_length=limits.BASKET_LIMITS)]
Count = Annotated[int, Field(strict=True, ge=1, le=limits.RESULTS)]
Samples = Annotated[int, Field(strict=True, ge=1, le=limits.SAMPLES)]
Size = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Seed = Annotated[int, Field(strict=True, ge=0, le=2**53 - 1)]


class AnyAsk(BaseModel):
    """What every request may say."""

    model_config = ConfigDict(extra="forbid")
    ids: bool = Field(False, strict=True, description="Answer with ids, even where the model has labels.")


class WithBasket(AnyAsk):
    """A basket: labels are strings, ids are integers."""

    basket: Items = Field([], description="Items that are in.", examples=[["bread", "butter"]])


class Ranked(AnyAsk):
    """How items are ranked."""

    ranking: Ranking = Field(
        Ranking.CONTINUATION,
        description="`continuation`: the probability that a basket with the given items contains this one, too; `completion`: how many "
        "times as probable the basket is with the item as without it; `lift`: how many times as likely the item is as in any basket.",
    )
    damping: Share | None = Field(
        None,
        description="Continuations are ordered by P(item | basket) / P(item)^damping: larger for fewer bestsellers. "
        f"Null: {DAMPING}, or what suits a customer's next basket.",
    )
    support: Share | None = Field(
        None,
        description="Lift lists items in at least this share of baskets; null: a quarter of the mean of all items.",
    )
    staples: bool = Field(
        False,
        strict=True,
        description="List items that are less likely with this basket than in any, too, such as salt with ginger; completions have them "
        "in any case.",
    )


class Forgiving(AnyAsk):
    """What about items that the model does not know."""

    unknown: Literal["error", "skip"] = Field(
        "error",
        description="Items that are not in the catalogue: `error` refuses the request; `skip` leaves them out and lists them in `skipped`.",
    )

    context: Annotated[dict[Label, Item], Field(max_length=limits.CONTEXT_COLUMNS)] = Field(
        {},
        description="Columns of context and their values, as `/api/model` lists them; with `unknown` `skip` others have no effect.",
        examples=[{"store": "3", "weekday": "Sunday"}],
    )
    mission: Annotated[str, Field(min_length=1, max_length=limits.LABEL_LENGTH)] | None = Field(
        None,
        description="The mission that the basket comes from: its name, or its number from 1 in `/api/model`. Not for customers.",
        examples=[None],
    )


class Limited(Forgiving):
    """Which items may come, and how many."""

    candidates: Listed | None = Field(None, description="Only these items may be added.")
    exclude: Listed = Field([], description="Items that are never added.")
    limits: InWords = Field(
        [],
        description="What the basket and all that is added keep together, by the table of the server: counts of a category and totals of "
        f"numbers, as {FORMS}. Recommendations take upper limits only.",
        examples=[["dairy=1..2", "price<=20"]],
    )


class Boosted(AnyAsk):
    """How much more likely items are than the model says, and what is not there."""

    boost: Annotated[dict[Label, Factor], Field(max_length=limits.LISTED_ITEMS)] = Field(
        {},
        description="The odds of items times factors, by label, in addition to the factors of the server. A boost is prepared when it is "
        "first asked for, some seconds for a large model; the last few are kept.",
        examples=[{"butter": 2.0, "jam": 0.5}],
    )
    out_of_stock: Listed = Field(
        [],
        description="Items that are not there: their factor is 0. Unlike `exclude`, this makes room for what is bought instead.",
    )


class Personal(AnyAsk):
    """Whose basket it is."""

    customer: Customer | None = Field(
        None,
        description="The id of a customer, if the server has customers. One of whom it knows nothing gets what everybody gets; the answer "
        "says so in `customer`. Ids and histories are not logged.",
        examples=["17"],
    )
    history: Annotated[list[Items], Field(max_length=limits.HISTORY)] | None = Field(
        None,
        description="The baskets of a customer, oldest first, instead of an id. Nothing of it is stored.",
        examples=[[["bread", "jam"], ["tea"]]],
    )


class Categorized(AnyAsk):
    """From which categories items may come, and how many from each."""

    categories: Annotated[list[Label], Field(max_length=limits.LISTED_ITEMS)] | None = Field(
        None, description="Only items of these categories are recommended.", examples=[["dairy", "spreads"]]
    )
    per_category: Count | None = Field(None, description="Most items from a category.")
    category_of: Annotated[dict[Label, Label], Field(max_length=limits.LISTED_ITEMS)] | None = Field(
        None,
        description="The category of each item that may be recommended, by label; null: as the table of the server has it.",
        examples=[{"butter": "dairy", "jam": "spreads"}],
    )


class RecommendAsk(WithBasket, Personal, Ranked, Limited, Boosted, Categorized):
    """What goes with it?"""

    n: Count = Field(10, description="Most items to return.")
    why: bool = Field(
        False, strict=True, description="Say what each score owes to popularity, to the mission and to ties."
    )


class AnyDrawAsk(Limited, Boosted):
    """How baskets are drawn."""

    n: Samples = Field(1, description="How many baskets to draw.")
    size: Size | None = Field(None, description="Items of each basket, given ones included; null: any number.")
    seed: Seed | None = Field(None, description="The same seed gives the same baskets; null: a fresh one.")


class DrawAsk(AnyDrawAsk, Personal):
    """Draw baskets."""


class CompleteAsk(DrawAsk, WithBasket):
    """Draw whole baskets that contain these items."""


class ProbabilityAsk(WithBasket, Forgiving):
    """How likely is this basket?"""


class WhyAsk(WithBasket, Forgiving, Boosted):
    """What does an item's score owe to popularity, to the mission and to ties?"""

    ranking: Ranking = Field(Ranking.CONTINUATION, description="As in `recommend`.")
    item: Item = Field(description="The item whose score is explained.", examples=["jam"])


class BatchAsk(Ranked, AnyDrawAsk, Categorized):
    """One question for many baskets. What is drawn for basket i depends on the seed and on i. Categories are for recommendations."""

    task: Literal["recommend", "complete", "probability"] = Field(description="What to ask for each basket.")
    baskets: list[Items] = Field(
        max_length=limits.BATCH_BASKETS, description="The baskets.", examples=[[["bread"], ["tea"]]]
    )
    customers: Annotated[list[Customer | None], Field(max_length=limits.BATCH_BASKETS)] | None = Field(
        None, description="The customer of each basket, null for none."
    )
    n: Annotated[int, Field(strict=True, ge=1, le=100)] = Field(
        10, description="Items, or completions, for each basket."
    )


# -- answers: records of ndpp.answers, and what only the service knows ---------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of the server's table."""

    name: str
    values: tuple[str, ...] | None
    """Its different words; null if it holds numbers."""

    @classmethod
    def of(cls, table: ItemTable | None) -> tuple[Column, ...]:
        """Return the columns of a table, if there is one."""
        if table is None:
            return ()
        words = [cls(name, tuple(found)) for name, found in table.categories.items() if len(found) <= limits.CATEGORIES]
        return (*(cls(name, None) for name in table.numbers), *words)


@dataclass(frozen=True, repr=False)
class ModelAnswer(Description):
    """The model that is served."""

    name: str
    context: dict[str, tuple[str, ...]]
    """Columns of context that it was fitted with, and their values."""
    checksum: str
    """Tells versions of the model apart."""
    columns: tuple[Column, ...]
    """What limits may be about: columns of the server's table. Those of words with very many different values are left out."""
    customers: int | None
    """How many customers the server knows; null if requests cannot name any."""


class ModelPlace(BaseModel):
    """A model of the server, and the path below which it is asked."""

    name: str
    path: str


class ModelsAnswer(BaseModel):
    """The models of the server, the first of which is asked without a name, too."""

    models: list[ModelPlace]


class Problem(BaseModel):
    """A problem document, RFC 9457."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
