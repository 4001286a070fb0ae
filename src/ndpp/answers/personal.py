"""Whose basket a question is about: a customer, by id or by what they have bought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ndpp._types import FloatArray
from ndpp.answers.conditions import Names
from ndpp.answers.prepared import Prepared
from ndpp.answers.records import Item
from ndpp.customers import Customers
from ndpp.errors import InvalidInputError
from ndpp.laws.law import Law


class NamedCustomer(NamedTuple):
    """A customer, by id or by a history of baskets, oldest first; ``bought`` is how often they buy their own items."""

    customers: Customers
    bought: Mapping[int, float]
    customer: str | None = None
    history: tuple[tuple[int, ...], ...] | None = None

    @classmethod
    def of(
        cls,
        own: Prepared,
        customer: str | int | None,
        history: Sequence[Names] | None,
        skipped: list[Item] | None = None,
    ) -> NamedCustomer | None:
        """Return whom a question names; None if it names nobody."""
        if history is None:
            return None if customer is None else cls.each(own, [customer])[0]
        if customer is not None:
            raise InvalidInputError("name a customer or give a history, not both", argument="customer")
        baskets = tuple(tuple(own.ids(basket, "history", skipped).tolist()) for basket in history)
        known = _known(own, "history")
        return cls(known, known.bought(history=baskets)[0], history=baskets)

    @classmethod
    def each(cls, own: Prepared, customers: Sequence[str | int]) -> list[NamedCustomer]:
        """Return customers by their ids."""
        known, names = _known(own, "customer"), list(map(str, customers))
        return [cls(known, bought, name) for bought, name in zip(known.bought(names), names)]

    @property
    def kind(self) -> str:
        """How much is known: by "history", or of a "known" or a "new" customer."""
        return "history" if self.history is not None else "known" if self.bought else "new"

    @property
    def asked(self) -> dict[str, Any]:
        """The arguments by which :class:`ndpp.Customers` is asked."""
        return {"customer": self.customer} if self.history is None else {"history": self.history}

    @property
    def key(self) -> tuple[object, ...]:
        """What caches know this customer by."""
        return id(self.customers), self.customer, self.history

    def over(self, law: Law) -> tuple[FloatArray | None, FloatArray | None]:
        """Return the weights of the components in this customer's baskets, and factors of the items within each component."""
        return self.customers.person(self.customer, history=self.history).over(law)


def _known(own: Prepared, argument: str) -> Customers:
    """Return the customers of a model; raise if it has none."""
    if own.customers is None:
        advice = "Name a file of customers with {customers}"
        raise InvalidInputError("needs customers, and this model has none", argument=argument, advice=advice)
    return own.customers
