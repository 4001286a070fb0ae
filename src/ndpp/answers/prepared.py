"""A law with what the answers to many questions share, computed once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ndpp._show import called, has_name
from ndpp._types import FloatArray, IntArray, cached_property
from ndpp._validation import check_items, check_values
from ndpp.answers.atlas import draw_map
from ndpp.answers.conditions import Names
from ndpp.answers.mission import find_missions
from ndpp.answers.records import Item, Map, Mission, names_of
from ndpp.answers.search import LabelIndex, folded
from ndpp.answers.table import ItemTable
from ndpp.baskets.labels import word_of
from ndpp.customers import Customers
from ndpp.customers.people import Customer
from ndpp.errors import InvalidInputError, UnknownLabelError
from ndpp.inference.ranking import Rule
from ndpp.laws.ask import Ask, Factors
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit

T = TypeVar("T")
MISSIONS, TYPICAL = 12, 12
"""Missions for reading, and items by which each is described."""
MAPPED = 300
"""Items of a map."""
MEMORY = 2**30
"""Most bytes of matrices that the sampler of a model keeps."""
N_ADDED = 6
"""Items that are often added to a basket. What is prepared for it serves four to eight."""
CLEAR = 5
"""Items of one name that a message lists, at most."""
KEPT = 4
"""Conditions, and customers, whose laws are kept; what they prepare is part of the memory of the model."""


class once(cached_property[T]):
    """A property that is computed when first asked for, by one thread while others wait."""

    def __get__(self, instance: Prepared | Kept | None, owner: type | None = None) -> T:  # type: ignore[override]
        if instance is None:
            return self  # type: ignore[return-value]
        with instance._lock:
            found: T = super().__get__(instance, owner)
            return found


class Kept:
    """A law that is made when it is first asked for, which may take seconds."""

    def __init__(self, make: Callable[[], Law]) -> None:
        self._lock, self._make = threading.RLock(), make

    @once
    def law(self) -> Law:
        """The law."""
        return self._make()


class NamedCustomer(NamedTuple):
    """A customer, by id or by a history of baskets, oldest first; ``bought`` is how often they buy their own items."""

    customers: Customers
    bought: Mapping[int, float]
    customer: str | None = None
    history: tuple[tuple[int, ...], ...] | None = None

    @property
    def kind(self) -> str:
        """How much is known: by "history", or of a "known" or a "new" customer."""
        return "history" if self.history is not None else "known" if self.bought else "new"

    @property
    def key(self) -> tuple[object, ...]:
        """What caches know this customer by."""
        return id(self.customers), self.customer, self.history

    def over(self, law: Law) -> tuple[FloatArray | None, FloatArray | None]:
        """Return the weights of the components in this customer's baskets, and factors of the items within each component."""
        return self._person.over(law)

    def begun(self, rule: Rule, basket: IntArray) -> FloatArray:
        """Return the chance of each item to be in this customer's basket, which has begun with these, for a list by a rule."""
        return self._person.begun(rule, basket)

    @property
    def _person(self) -> Customer:
        return self.customers.person(self.customer, history=self.history)


class Prepared:
    """A law, and what many answers share; each part is computed when first needed. Threads may share it.

    Every question of :mod:`ndpp.answers` takes one in place of a law: ``model = answers.Prepared(law)`` answers the second question faster.
    With a ``table`` of its items, by default that of ``metadata`` (``ndpp.load_metadata``), people read names and may ask by them, and
    questions take limits in words. ``boost``, factors as in ``law.tilt``, is part of every question about what to buy: recommendations,
    their reasons and draws. With ``customers`` (:class:`ndpp.Customers`) such questions may name one.
    """

    factors: FloatArray | None = None
    orders: float | None
    """How many baskets the model was fitted to, if its metadata say so."""

    def __init__(
        self,
        model: object,
        table: ItemTable | None = None,
        boost: Factors | None = None,
        customers: Customers | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.law, self.customers = Law.required(model), customers
        self.table = ItemTable.attached(metadata or {}, self.law) if table is None else table
        self.orders = _orders(metadata or {})
        self.labels = self.law.labels if self.table is None else self.table.labels
        self._lock = threading.RLock()
        self._laws: dict[Hashable, Kept] = {}
        self._of_customers: dict[Hashable, Kept] = {}
        self.factors = self.factors_of(boost)

    @classmethod
    def of(cls, model: object) -> Prepared:
        """Return a law, fitted estimator or prepared model as a prepared one."""
        return model if isinstance(model, Prepared) else cls(model)

    # -- names ---------------------------------------------------------------------------------------------------------------

    def ids(self, items: Names, argument: str = "basket", skipped: list[Item] | None = None) -> IntArray:
        """Return the ids of distinct items: a string is a label or, where no label is so spelled, a name; an integer is an id.

        A name must be that of one item. Items that are not in the catalogue raise an error, or are left out and added to ``skipped`` if it
        is given.
        """
        if self._by_name and not isinstance(items, str | np.ndarray):
            items = [self._by_label(item) for item in items]
        if skipped is not None and not isinstance(items, str):
            catalogue = self.law.catalogue
            skipped += [item for item in items if item not in catalogue]
            items = [item for item in items if item in catalogue]
        labels = [item for item in items if isinstance(item, str)]
        if 0 < len(labels) < len(items):
            known = dict(zip(labels, self.law.ids(labels).tolist()))
            items = [known[item] if isinstance(item, str) else item for item in items]
        try:
            return check_items(items, self.law, argument)
        except UnknownLabelError as unknown:
            if self._by_name:  # similar names are more likely than similar codes
                unknown = UnknownLabelError(unknown.label, list(map(called, self.labels or ())))
                meant = (label for name in unknown.suggestions for label in self.labels or () if called(label) == name)
                unknown.suggestions = tuple(dict.fromkeys(meant))
            raise unknown from None

    def knows(self, word: str) -> bool:
        """Return whether an item is so called, by its label or its name."""
        return word in self.law.catalogue or folded(word) in self._by_name

    @once
    def _by_name(self) -> dict[str, list[int]]:
        """The items of each name, without case and accents."""
        found: dict[str, list[int]] = {}
        for i, label in enumerate(self.labels or ()):
            if has_name(label):
                found.setdefault(folded(label.name), []).append(i)
        return found

    def _by_label(self, item: int | str) -> int | str:
        """Return an item that is called by its name by its label; anything else as it is."""
        found = self._by_name.get(folded(item), []) if isinstance(item, str) and item not in self.law.catalogue else []
        if len(found) > 1:
            such = ", ".join(map(str, self.names(found[:CLEAR]))) + ", …" * (len(found) > CLEAR)
            raise InvalidInputError(f"{item!r} is the name of {len(found)} items; say which by its label: {such}")
        return self.names(found)[0] if found else item

    def names(self, items: Sequence[int] | IntArray, *, ids: bool = False) -> list[Item]:
        """Return items as labels, with names where there are any, or as ids if these are wanted or there are no labels."""
        return names_of(None if ids else self.labels, items)

    def limits(self, limits: Limit | str | Sequence[Limit | str], possible: IntArray | None = None) -> list[Limit]:
        """Return limits on baskets of ``possible`` items, by default of all; those in words by the table."""
        chosen = [limits] if isinstance(limits, Limit | str) else list(limits)
        words = [one for one in chosen if isinstance(one, str)]
        kept = [one for one in chosen if not isinstance(one, str)]
        if not words:
            return kept
        if self.table is None:
            raise InvalidInputError(
                f"in words, such as {words[0]!r}, need a table of the items", argument="limits", advice="Name one with {table}"
            )  # fmt: skip
        return kept + self.table.limits(
            words, None if possible is None else np.isin(np.arange(self.law.n_items), possible)
        )

    def factors_of(self, boost: Factors | None, skipped: list[Item] | None = None) -> FloatArray | None:
        """Return the factors of the odds of all items, those of the model and of a boost; None if all are one."""
        factors = self.factors
        if boost is not None and len(boost):
            if isinstance(boost, Mapping):
                catalogue = self.law.catalogue
                named = {self._by_label(item): factor for item, factor in boost.items()}
                if self.law.labels is None:  # JSON has no numbers for keys
                    named = {int(item) if str(item).isdecimal() else item: factor for item, factor in named.items()}
                items = self.ids(list(named), "boost", skipped)
                boost = dict(zip(items.tolist(), (factor for item, factor in named.items() if item in catalogue)))
            found = check_values(boost, self.law, "boost", default=1.0)
            factors = found if factors is None else found * factors
        return None if factors is None or (factors == 1).all() else factors

    def components_of(self, mission: str) -> tuple[int, ...]:
        """Return the components of a mission, given by name or by its number, from 1."""
        found = self.missions
        if not found:
            raise InvalidInputError("is for mixtures; this model is a single kernel", argument="mission")
        for number, one in enumerate(found, 1):
            if mission in (one.name, str(number)):
                return one.components
        if mission in (self.law.names or ()):
            return (self.law.component(mission),)
        raise InvalidInputError(f"there is no mission {mission!r}; ndpp info lists all {len(found)}")

    def known_context(self, context: Mapping[str, object]) -> dict[str, object]:
        """Return the columns and values that the model knows."""
        known = self.law.context
        return {name: value for name, value in context.items() if word_of(value) in known.get(name, ())}

    # -- customers -----------------------------------------------------------------------------------------------------------

    def whose(
        self, customer: str | int | None, history: Sequence[Names] | None, skipped: list[Item] | None = None
    ) -> NamedCustomer | None:
        """Return whom a question names; None if it names nobody."""
        if history is None:
            return None if customer is None else self.each_of([customer])[0]
        if customer is not None:
            raise InvalidInputError("name a customer or give a history, not both", argument="customer")
        baskets = tuple(tuple(self.ids(basket, "history", skipped).tolist()) for basket in history)
        known = self._known("history")
        return NamedCustomer(known, known.bought(history=baskets)[0], history=baskets)

    def each_of(self, customers: Sequence[str | int]) -> list[NamedCustomer]:
        """Return customers by their ids."""
        known, names = self._known("customer"), list(map(str, customers))
        return [NamedCustomer(known, bought, name) for bought, name in zip(known.bought(names), names)]

    def _known(self, argument: str) -> Customers:
        """Return the customers of the model; raise if it has none."""
        if self.customers is None:
            advice = "Name a file of customers with {customers}"
            raise InvalidInputError("needs customers, and this model has none", argument=argument, advice=advice)
        return self.customers

    def people(self, law: Law) -> Customers:
        """Return the customers, over a law."""
        return self._known("customer").with_law(law)

    # -- conditions ----------------------------------------------------------------------------------------------------------

    def under(self, ask: Ask, person: NamedCustomer | None = None) -> Law:
        """Return the law under conditions, of a customer if one is named; itself, if nothing is said. The last few are kept."""
        law = base = self.law
        if ask.weights is not None or ask.factors is not None or len(ask.excluded):
            law = base = self._keep(self._laws, ask.key, lambda: self._make(ask))
        if person is not None:
            law = self._keep(self._of_customers, (ask.key, *person.key), lambda: self._make(ask.whose(base, person)))
        return law

    def _make(self, ask: Ask) -> Law:
        """Return the law under conditions, which shares the memory of the model, as there is one bound for all."""
        memory, made = self.law.memory.within(MEMORY), self.law.under(ask)
        return made if made.memory is memory else self.law._remembering(made, memory.part())

    def _keep(self, kept: dict[Hashable, Kept], key: Hashable, make: Callable[[], Law]) -> Law:
        """Return a law that is kept, or make it, while other questions go on."""
        with self._lock:
            found = kept[key] = kept.pop(key) if key in kept else Kept(make)
            if len(kept) > KEPT:
                del kept[next(iter(kept))]
        return found.law

    # -- what many answers share ---------------------------------------------------------------------------------------------

    @once
    def recurrence(self) -> FloatArray:
        """E(a, a) = Σ_c w_c P_c(a)² of every item: how often two baskets of one mission both contain it."""
        return np.asarray(self.law.inclusion_table**2 @ (self.law.weights / self.law.kept))

    @once
    def crowd(self) -> FloatArray:
        """m(a) / √m of every item: the product of two is the lift that the sizes of baskets explain (``ndpp.answers.relations``)."""
        table, p, weights = self.law.inclusion_table, self.law.popularity, self.law.weights / self.law.kept
        sizes = table.sum(axis=0)
        among = np.divide(table @ (weights * sizes), p, out=np.zeros_like(p), where=p > 0)
        return np.asarray(among / np.sqrt(weights @ sizes**2 or 1.0))

    @once
    def missions(self) -> tuple[Mission, ...]:
        """The missions of a mixture, similar components merged, largest first; a kernel has none."""
        return find_missions(self.law, MISSIONS, TYPICAL, self.labels) if len(self.law.weights) > 1 else ()

    @once
    def sizes(self) -> FloatArray | None:
        """P(|S| = k)."""
        return np.asarray(self.law.size_distribution())

    def sizes_with(self, item: int) -> FloatArray | None:
        """Return P(|S| = k) of the baskets with an item."""
        return np.asarray(self.law.sizes_with([item])[0])

    @once
    def index(self) -> LabelIndex:
        """The names and labels of the catalogue, to search in."""
        return LabelIndex([_searched(one) for one in self.names(range(self.law.n_items))], self.law.popularity)

    @once
    def map(self) -> Map:
        """The map of the catalogue."""
        return draw_map(self.law, MAPPED, self.missions, self.labels)


def _orders(metadata: Mapping[str, Any]) -> float | None:
    """Return how many baskets a model was fitted to, as its metadata say, None if they do not."""
    match metadata:
        case {"memory": {"orders": float() | int() as found}} | {"baskets": {"weight": float() | int() as found}}:
            return float(found)
        case {"baskets": {"number": int(found)}}:
            return float(found)
    return None


def _searched(item: Item) -> str:
    """Return what a search looks at: the name of an item, if it has one, and its label."""
    return f"{item.name} {item}" if has_name(item) else str(item)
