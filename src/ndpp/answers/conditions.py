"""Everything that can be said in a question, and how each door spells it: laws, the command and the service.

A new condition is a row here, its meaning in :mod:`ndpp.laws.ask`, an option of the command and a field of the service. One test compares
the rows with all three, and with the table of ``docs/guide.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypedDict

from ndpp._types import IntArray
from ndpp.laws.ask import Factors
from ndpp.laws.limits import Limit

Names: TypeAlias = Sequence[int | str] | Sequence[int] | Sequence[str] | IntArray
"""Items by label or by id, also in one list."""


class Said(TypedDict, total=False):
    """What every question of :mod:`ndpp.answers` about what to buy takes, in words: labels, limits by a table, ids of customers."""

    unknown: str
    """With "skip", items and contexts that the model does not know are left out, and items are named in the answer as ``skipped``."""
    candidates: Names | None
    """The only items that may be added."""
    exclude: Names
    """Items that are never added."""
    limits: Limit | str | Sequence[Limit | str]
    """What the basket and all that is added keep together; in words if the model has a table (:class:`~ndpp.answers.ItemTable`)."""
    boost: Factors | None
    """Factors of the odds of items, as in ``law.tilt``; 0 is out of stock."""
    context: Mapping[str, object] | None
    """Columns and their values, as in ``law.at``."""
    mission: str | None
    """The mission that the basket comes from: its name, or its number, from 1, in the order of :func:`ndpp.answers.missions`."""
    customer: str | int | None
    """The id of a customer, if the model has customers."""
    history: Sequence[Names] | None
    """The baskets of a customer, oldest first, in place of an id."""


class Condition(NamedTuple):
    """A condition: what laws call it, what it means, the options of the command, the fields of the service, and its page of the docs."""

    name: str
    meaning: str
    options: tuple[str, ...]
    fields: tuple[str, ...]
    page: str

    @property
    def option(self) -> str:
        """What commands call the first of its options."""
        return self.options[0].removeprefix("--").replace("-", "_")


CONDITIONS = (
    Condition("given", "items that are in the basket", ("--given",), ("basket",), "quickstart"),
    Condition("size", "number of items, given ones included", ("--size",), ("size",), "quickstart"),
    Condition("candidates", "the only items that may be added", ("--only", "--candidates-file"), ("candidates",), "rankings"),
    Condition("exclude", "items that are never added", ("--exclude", "--exclude-file"), ("exclude",), "rankings"),
    Condition("boost", "factors of the odds of items; 0 is out of stock", ("--boost",), ("boost", "out_of_stock"), "limits"),
    Condition("limits", "bounds of counts and totals", ("--limit", "--table"), ("limits",), "limits"),
    Condition("context", "store, weekday and the like", ("--at",), ("context",), "mixtures"),
    Condition("mission", "the mission that the basket comes from", ("--mission",), ("mission",), "mixtures"),
    Condition("customer", "whose basket it is", ("--customer", "--history"), ("customer", "history"), "customers"),
)  # fmt: skip
"""All conditions. Recommendations have no size: they do not draw a basket."""


def condition_table() -> list[str]:
    """Return the table of the documentation, line by line."""
    header = ["| in Python | means | command | service | page |", "|---|---|---|---|---|"]
    return header + [
        f"| `{one.name}` | {one.meaning} | {_code(one.options)} | {_code(one.fields)} | {{doc}}`{one.page}` |"
        for one in CONDITIONS
    ]


def _code(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)
