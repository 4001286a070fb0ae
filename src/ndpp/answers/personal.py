"""Whose basket a question is about: a customer, by id or by what they have bought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ndpp.answers.prepared import Prepared
from ndpp.answers.records import Item
from ndpp.errors import InvalidInputError


class Person(NamedTuple):
    """A customer, by id or by a history of baskets, oldest first; ``bought`` is how often they buy their own items."""

    bought: Mapping[int, float]
    customer: str | None = None
    history: tuple[tuple[int, ...], ...] | None = None

    @classmethod
    def of(
        cls, own: Prepared, customer: str | int | None, history: Sequence[Any] | None, skipped: list[Item] | None = None
    ) -> Person | None:
        """Return whom a question names; None if it names nobody."""
        if history is None:
            return None if customer is None else cls.each(own, [customer])[0]
        if customer is not None:
            raise InvalidInputError("name a customer or give a history, not both", argument="customer")
        baskets = tuple(tuple(own.ids(basket, "history", skipped).tolist()) for basket in history)
        return cls(_known(own, "history").bought(history=baskets)[0], history=baskets)

    @classmethod
    def each(cls, own: Prepared, customers: Sequence[str | int]) -> list[Person]:
        """Return customers by their ids."""
        names = list(map(str, customers))
        return list(map(cls, _known(own, "customer").bought(names), names))

    @property
    def kind(self) -> str:
        """How much is known: by "history", or of a "known" or a "new" customer."""
        return "history" if self.history is not None else "known" if self.bought else "new"

    @property
    def asked(self) -> dict[str, Any]:
        """The arguments by which :class:`ndpp.Customers` is asked."""
        return {"customer": self.customer} if self.history is None else {"history": self.history}


def _known(own: Prepared, argument: str) -> Any:
    """Return the customers of a model; raise if it has none."""
    if own.customers is None:
        advice = "Name a file of customers with {customers}"
        raise InvalidInputError("needs customers, and this model has none", argument=argument, advice=advice)
    return own.customers
