"""Everything that can be said in a question, and how each door spells it: laws, the command and the service.

A new condition is a row here, with its type in :class:`Said`, its meaning in :mod:`ndpp.laws.ask`, an option of the command
(``ConditionOptions``) and a field of the service (``serve.schemas``). One test compares the rows with all three, and with the table of
``docs/guide.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    read: Callable[..., object] | None = None
    """Turns what is said into what laws take, ``read(model, value, skipped)``, where ``skipped`` collects unknown items unless it is None.
    Without it, laws take what is said."""

    @property
    def option(self) -> str:
        """What commands call the first of its options."""
        return self.options[0].removeprefix("--").replace("-", "_")


CONDITIONS = (
    Condition("given", "items that are in the basket", ("--given",), ("basket",), "quickstart"),
    Condition("size", "number of items, given ones included", ("--size",), ("size",), "quickstart"),
    Condition("candidates", "the only items that may be added", ("--only", "--candidates-file"), ("candidates",), "rankings",
              lambda model, items, skipped: model.ids(items, "candidates", skipped)),
    Condition("exclude", "items that are never added", ("--exclude", "--exclude-file"), ("exclude",), "rankings",
              lambda model, items, skipped: model.ids(items, "exclude", skipped)),
    Condition("boost", "factors of the odds of items; 0 is out of stock", ("--boost",), ("boost", "out_of_stock"), "limits"),
    Condition("limits", "bounds of counts and totals", ("--limit", "--table"), ("limits",), "limits"),
    Condition("context", "store, weekday and the like", ("--at",), ("context",), "mixtures",
              lambda model, context, skipped: context if skipped is None else model.known_context(context)),
    Condition("mission", "the mission that the basket comes from", ("--mission",), ("mission",), "mixtures",
              lambda model, mission, _: model.components_of(mission)),
    Condition("customer", "whose basket it is", ("--customer", "--history"), ("customer", "history"), "customers"),
)  # fmt: skip
"""All conditions. Recommendations have no size: they do not draw a basket. Boosts, limits and customers go with what the model has of them,
and are read in :mod:`ndpp.answers.heard`."""
