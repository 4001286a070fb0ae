"""Everything a caller can say about a set, as one record that is made and checked in one place.

A question about a law P = Σ_c w_c P_c is a question about

    P(S | ask)  ∝  Σ_c w_c(ask) P_c(S) · Π_{i∈S} s_i · 1[J ⊆ S] · 1[low ≤ c_j(S) ≤ high, for each limit j].

Context, mission and customer choose the weights w. Boosts and a customer's habits are factors s: the first raise the weight of components
that hold the boosted items, as ``law.tilt`` does, and the second act within each component. Items that are excluded, out of stock or no
candidates have s = 0. Given items are J. Size and limits bound counts and totals of S.

``law.ask(…)`` makes an :class:`Ask`, and ``law.under(ask)`` is the law of the sets it describes. Every verb of a law takes the same
:class:`Conditions`: ``law.log_prob(items, exclude=…)`` is ``law.under(law.ask(exclude=…)).log_prob(items)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, TypeAlias, TypedDict

import numpy as np

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import Catalogued, check_items, check_values
from ndpp.errors import InvalidInputError, ZeroProbabilityError
from ndpp.laws.limits import NO_LIMITS, Limit, Limits
from ndpp.laws.precision import check_given

Factors: TypeAlias = Mapping[int, float] | Mapping[str, float] | Sequence[float] | FloatArray
"""Factors ≥ 0 of the odds of items: of all of them, or by id or label; others have 1."""


class Weighted(Catalogued, Protocol):
    """What an :class:`Ask` needs to know of a law."""

    @property
    def weights(self) -> FloatArray:
        """The probabilities of the components."""

    def component(self, which: int | str) -> int:
        """Return the number of a component."""

    def weights_at(self, context: Mapping[str, object]) -> FloatArray:
        """Return the weights of the components in a context."""

    def under(self, ask: Any) -> Any:
        """Return the law of what is asked about."""


class Whose(Protocol):
    """Whose basket it is: ``customers["ann"]`` of :class:`ndpp.Customers`."""

    def over(self, law: Any) -> tuple[FloatArray | None, FloatArray | None]:
        """Return the weights (C,) of the components in this person's baskets, and factors (n,) of the items within each component."""

    def begun(self, rule: Any, basket: IntArray) -> FloatArray:
        """Return the chance of each item to be in this person's basket, which has begun with these, for a list by a rule."""


class Conditions(TypedDict, total=False):
    """What can be said in any question; whatever one verb of a law takes, all take."""

    size: int | None
    """Number of items of the set, given ones included. None: any number."""
    given: Items
    """Items that the set contains."""
    exclude: Items
    """Items that it does not contain."""
    candidates: Items | None
    """The only items that it may contain beside the given ones."""
    boost: Factors | None
    """Factors of the odds of items, as in ``law.tilt``; 0 is out of stock."""
    limits: Limit | Sequence[Limit]
    """Bounds of counts and totals, given items included."""
    context: Mapping[str, object] | None
    """Columns and their values, as in ``law.at``."""
    mission: int | str | Sequence[int] | Sequence[str] | None
    """The component that the set comes from, or several, by number or name."""
    customer: Whose | None
    """Whose basket it is."""


class Ask(NamedTuple):
    """What a caller said, checked: items as ids, factors and weights as arrays, None where nothing was said."""

    given: IntArray
    size: int | None
    limits: Limits
    excluded: IntArray
    """Items that are out, ascending."""
    weights: FloatArray | None
    """w_c by context, mission and customer."""
    columns: tuple[str, ...]
    """The columns of context that are known."""
    factors: FloatArray | None
    """Factors > 0 of the odds of all items."""
    keeps_weights: bool
    """Whether factors act within components, whose weights stay, and not on the weights as well."""

    @classmethod
    def of(
        cls,
        law: Weighted,
        *,
        size: int | None = None,
        given: Items = (),
        exclude: Items = (),
        candidates: Items | None = None,
        boost: Factors | None = None,
        limits: Limit | Sequence[Limit] = (),
        context: Mapping[str, object] | None = None,
        mission: int | str | Sequence[int] | Sequence[str] | None = None,
        customer: Whose | None = None,
    ) -> Ask:
        """Check what is asked of a law."""
        ids, out = check_items(given, law, "given"), check_items(exclude, law, "exclude")
        if size is not None:
            check_given(size, len(ids))
        if len(both := np.intersect1d(ids, out)):
            name = int(both[0]) if law.labels is None else law.labels[both[0]]
            raise ZeroProbabilityError(f"{name!r} is both given and excluded; it can be one of them")
        everything, factors = np.arange(law.n_items), None
        if candidates is not None:
            allowed = np.union1d(check_items(candidates, law, "candidates"), ids)
            out = np.union1d(out, np.setdiff1d(everything, allowed))
        if boost is not None and len(boost):
            factors = check_values(boost, law, "boost", default=1.0)
            out = np.union1d(out, np.setdiff1d(np.flatnonzero(factors == 0), ids))
            factors[factors == 0] = 1.0  # of a given item, any factor has the same effect
        weights = law.weights_at(context) if context else None
        if mission is not None:
            weights = _of_mission(law, mission, law.weights if weights is None else weights)
        factors = None if factors is None or (factors == 1).all() else factors
        made = cls(ids, size, Limits.of(limits, law), np.sort(out), weights, tuple(context or ()), factors, False)
        return made if customer is None else made.whose(law.under(made.of_law), customer)

    def whose(self, law: Weighted, customer: Whose) -> Ask:
        """Return the same of one customer's baskets; ``law`` is that of everybody's."""
        weights, habits = customer.over(law)
        if weights is None and habits is None:  # of whom nothing is known
            return self
        factors = habits if self.factors is None or habits is None else self.factors * habits
        return self._replace(
            weights=law.weights if weights is None else weights, keeps_weights=True,
            factors=self.factors if factors is None else factors,
        )  # fmt: skip

    @property
    def of_law(self) -> Ask:
        """The part that chooses weights and factors, before items are out."""
        return self._replace(given=NO_ITEMS, size=None, limits=NO_LIMITS, excluded=NO_ITEMS)

    @property
    def is_closed(self) -> bool:
        """Whether the law under it is a law of the same kind: nothing is given, and no size or limit asked for."""
        return not len(self.given) and self.size is None and not len(self.limits)

    @property
    def key(self) -> bytes:
        """What caches know it by."""
        limits, words = self.limits, (self.size, self.columns, self.keeps_weights, self.limits.texts)
        digest = blake2b(repr(words).encode())
        arrays = limits.values, limits.low, limits.high, self.given, self.excluded, self.weights, self.factors
        for array in arrays:
            digest.update(b"none|" if array is None else array.tobytes() + b"|")
        return digest.digest()


NO_ITEMS = np.empty(0, np.int64)


def _of_mission(law: Weighted, mission: int | str | Sequence[int] | Sequence[str], weights: FloatArray) -> FloatArray:
    """Return the weights of some components, and zero for all others."""
    chosen: list[int | str] = [mission] if isinstance(mission, int | str) else list(mission)
    if not chosen:
        raise InvalidInputError("must name at least one component; got none", argument="mission")
    which = [law.component(one) for one in chosen]
    out = np.zeros(len(weights))
    out[which] = weights[which] if len(which) > 1 else 1.0
    if not out.any():
        raise ZeroProbabilityError("the chosen components have probability zero")
    return np.asarray(out / out.sum())
