"""What a question says in words, as laws take it: the one place where labels, tables, customers and contexts become conditions of a law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_choice
from ndpp.answers.conditions import Names
from ndpp.answers.prepared import NamedCustomer, Prepared
from ndpp.answers.records import Item
from ndpp.baskets.labels import word_of
from ndpp.errors import InvalidInputError
from ndpp.laws.ask import NO_ITEMS, Conditions, Factors
from ndpp.laws.limits import Limit

NEARLY_ZERO = 1e-12
"""The factor of items that are out of stock, beside baskets that hold some of these."""


class Heard(NamedTuple):
    """A question about baskets that begin with ``given`` items, and its conditions."""

    own: Prepared
    """The model that is asked."""
    given: IntArray
    context: Mapping[str, object] | None
    mission: tuple[int, ...] | None
    """The components of a mission."""
    factors: FloatArray | None
    """Factors of the odds of all items."""
    candidates: IntArray | None
    exclude: IntArray
    limits: tuple[Limit, ...]
    person: NamedCustomer | None
    skipped: tuple[Item, ...]
    """Items that are not in the catalogue."""

    @classmethod
    def of(
        cls,
        model: object,
        basket: Names = (),
        *,
        unknown: str = "error",
        candidates: Names | None = None,
        exclude: Names = (),
        limits: Limit | str | Sequence[Limit | str] = (),
        boost: Factors | None = None,
        context: Mapping[str, object] | None = None,
        mission: str | None = None,
        customer: str | int | None = None,
        history: Sequence[Names] | None = None,
    ) -> Heard:
        """Return what is said (``ndpp.answers.conditions.Said``), checked."""
        own = Prepared.of(model)
        skipped: list[Item] | None = [] if check_choice(unknown, "unknown", ("error", "skip")) == "skip" else None
        given, person = own.ids(basket, skipped=skipped), own.whose(customer, history, skipped)
        factors = own.factors_of(boost, skipped)
        only = None if candidates is None else own.ids(candidates, "candidates", skipped)
        never = own.ids(exclude, "exclude", skipped)
        if context and skipped is not None:
            known = own.law.context
            context = {name: value for name, value in context.items() if word_of(value) in known.get(name, ())}
        if mission is not None and person is not None:
            raise InvalidInputError("is one of all customers; name a mission or a customer", argument="mission")
        of_mission = None if mission is None else own.components_of(mission)
        names = tuple(dict.fromkeys(skipped or ()))
        heard = cls(own, given, context, of_mission, factors, only, never, (), person, names)
        return heard._replace(limits=tuple(own.limits(limits, heard._possible)))

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
    def _possible(self) -> IntArray | None:
        """Items that a basket may hold, None if all may be."""
        return None if self.allowed is None else np.union1d(self.allowed, self.given)

    def listing(self) -> Prepared:
        """Return the model whose probabilities order lists of items: lists, not the law, leave out what is excluded or no candidate.

        Items of the basket are not out of stock, even if their factor is zero. Any other has the same effect on them, so where baskets hold
        such items, all that is out of stock has a factor near zero, and one law serves all of them.
        """
        factors = self.factors
        if factors is not None and not factors[self.given].all():
            factors = np.where(factors == 0, NEARLY_ZERO, factors)
        return self.in_situation(factors)

    def in_situation(self, boost: FloatArray | None = None) -> Prepared:
        """Return the model in the context and mission, with these factors alone."""
        return self.own.under(self.own.law.ask(boost=boost, context=self.context, mission=self.mission))

    def drawing(self, size: int | None) -> tuple[Prepared, Conditions]:
        """Return the model that baskets of this size are drawn from, and what is asked of its sampler: together ``law.sample(…)``.

        The model is the same for all baskets, so that what it prepares serves the next one, too.
        """
        both = np.intersect1d(self.given, self.exclude)
        if len(both):  # lists may leave out what is there already
            raise InvalidInputError(f"{self.own.names(both)[0]!r} is both given and excluded; it can be one of them")
        ask = self.own.law.ask(
            given=self.given, exclude=self.exclude, candidates=self.candidates, boost=self.factors, context=self.context,
            mission=self.mission,
        )  # fmt: skip
        rest: Conditions = {"size": size, "given": self.given, "exclude": ask.excluded, "limits": self.limits}
        return self.own.under(ask.of_law, self.person), rest
