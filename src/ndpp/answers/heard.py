"""What a question says in words, as laws take it: the one place where labels, tables, customers and contexts become conditions of a law."""

from __future__ import annotations

from typing import NamedTuple, Unpack, cast

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_choice
from ndpp.answers.conditions import CONDITIONS, Names, Said
from ndpp.answers.prepared import MEMORY, N_ADDED, NamedCustomer, Prepared
from ndpp.answers.records import Item
from ndpp.errors import InvalidInputError
from ndpp.inference.scores import listing_factors
from ndpp.laws.ask import NO_ITEMS, Conditions
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit


class Heard(NamedTuple):
    """A question about baskets that begin with ``given`` items, and its conditions."""

    own: Prepared
    """The model that is asked."""
    given: IntArray
    said: Conditions
    """What else is said, as laws take it."""
    exclude: IntArray
    """Items that are never added."""
    candidates: IntArray | None
    """The only items that may be added, None if all may."""
    factors: FloatArray | None
    """Factors of the odds of all items, None if all are one."""
    person: NamedCustomer | None
    skipped: tuple[Item, ...]
    """Items that are not in the catalogue."""

    @classmethod
    def of(cls, model: object, basket: Names = (), **said: Unpack[Said]) -> Heard:
        """Return what is said, checked. Conditions that doors and laws spell alike are passed on as they are."""
        for name in said.keys() - Said.__annotations__:
            raise TypeError(f"there is no condition {name!r}; there are {', '.join(Said.__annotations__)}")
        own = Prepared.of(model)
        skips = check_choice(said.get("unknown", "error"), "unknown", ("error", "skip")) == "skip"
        skipped: list[Item] | None = [] if skips else None
        given, person = own.ids(basket, skipped=skipped), own.whose(said.get("customer"), said.get("history"), skipped)
        if said.get("mission") is not None and person is not None:
            raise InvalidInputError("is one of all customers; name a mission or a customer", argument="mission")
        read: dict[str, object] = {}
        for one in CONDITIONS:
            value = said.get(one.name)
            if value is not None and one.name != "customer":
                read[one.name] = value if one.read is None else one.read(own, value, skipped)
        read["boost"] = factors = own.factors_of(said.get("boost"), skipped)
        exclude, candidates = (cast(IntArray | None, read.get(name)) for name in ("exclude", "candidates"))
        heard = cls(
            own, given, cast(Conditions, read), NO_ITEMS if exclude is None else exclude, candidates, factors, person,
            tuple(dict.fromkeys(skipped or ())),
        )  # fmt: skip
        possible = None if heard.allowed is None else np.union1d(heard.allowed, given)
        return heard._replace(said={**heard.said, "limits": own.limits(said.get("limits", ()), possible)})

    @property
    def gone(self) -> IntArray:
        """Items that are out of stock."""
        return NO_ITEMS if self.factors is None else np.flatnonzero(self.factors == 0)

    @property
    def allowed(self) -> IntArray | None:
        """Items that may be added, None if all may."""
        never = np.union1d(self.exclude, self.gone)
        if not len(never):
            return self.candidates
        return np.setdiff1d(np.arange(self.own.law.n_items) if self.candidates is None else self.candidates, never)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What the basket and all that is added keep together."""
        return self.own.law.ask(**self._of_lists(None)).limits.records

    def listing(self) -> Law:
        """Return the law whose probabilities order lists of items: lists, not the law, keep limits and leave out what is no candidate.

        Items of the basket stay possible even if they are out of stock, so that one law serves many baskets.
        """
        factors = None if self.factors is None else listing_factors(self.factors, self.given)
        ask = self.own.law.ask(**self._of_lists(factors))
        return self.own.under(ask.of_law._replace(excluded=ask.excluded))

    def whole(self, person: NamedCustomer | None = None) -> Law:
        """Return the same law before anything is out of stock; that of a customer, whose completions are listed, if one is named."""
        return self.own.under(self.own.law.ask(**self._of_lists(self.factors)).of_law, person)

    def _of_lists(self, factors: FloatArray | None) -> Conditions:
        return {**self.said, "boost": factors, "candidates": None, "exclude": NO_ITEMS}

    def in_situation(self) -> Law:
        """Return the law in the context and mission, whatever else is said."""
        law, said = self.own.law, self.said
        return self.own.under(law.ask(context=said.get("context"), mission=said.get("mission")))

    def drawing(self, size: int | None) -> tuple[Law, Conditions]:
        """Return the law that baskets of this size are drawn from, and what is asked of its sampler: together ``law.sample(…)``.

        The law is the same for all baskets, so that what it prepares serves the next one, too.
        """
        both = np.intersect1d(self.given, self.exclude)
        if len(both):  # lists may leave out what is there already
            raise InvalidInputError(f"{self.own.names(both)[0]!r} is both given and excluded; it can be one of them")
        said: Conditions = {**self.said, "given": self.given}
        ask = self.own.law.ask(**said)
        rest: Conditions = {"size": size, "given": self.given, "exclude": ask.excluded, "limits": ask.limits.records}
        return self.own.under(ask.of_law, self.person), rest

    def prepare_components(self) -> None:
        """Prepare what draws from the components of a mixture with shared ties, the most probable first, as far as memory goes."""
        from ndpp.samplers.shared import prepare_components  # imports numba

        law, _ = self.drawing(None)
        for left in (None, N_ADDED):
            prepare_components(law, MEMORY, left)
