"""Customers: a law of baskets for each of them, by tilting the items that they have bought before."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias, TypedDict, Unpack

import numpy as np

from ndpp._types import Items, RngLike
from ndpp.baskets import Baskets
from ndpp.baskets.labels import check_labels, many, places
from ndpp.baskets.orders import Orders
from ndpp.customers import store as stores
from ndpp.customers.cases import MAX_CHANCES
from ndpp.customers.fitting import MIN_CUSTOMERS, fit_habits, halves
from ndpp.customers.others import Others
from ndpp.customers.people import Customer, Habits, Missions, People, Time, at_time, best_sparse, read_time, timed
from ndpp.customers.pulls import fit_others
from ndpp.customers.store import NEVER, WEEK, CustomerCounts, IdArray, Layers, Trips, encoded
from ndpp.errors import DataWarning, InvalidInputError, UncheckedModelWarning
from ndpp.inference.ranking import DAMPING, OrderOptions, Rule, recommend
from ndpp.inference.recommendation import Recommendation, Recommendations
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.law import Law
from ndpp.laws.scoring import Best

History: TypeAlias = Orders | Sequence[Items]
"""The baskets of a customer, oldest first."""
NOBODY = Layers(CustomerCounts.blank(np.empty(0, "S1")), CustomerCounts.blank(np.empty(0, "S1")))
USUAL = Habits()
BLOCK = 1024
"""Customers for whom recommendations are made at a time, fewer if there are many items."""


class ColumnNames(TypedDict, total=False):
    """The columns of order lines: by default "customer", "time", "basket" and "item"; no ``time`` if rows are in order of time."""

    customer: str
    time: str | None
    basket: str
    item: str


@dataclass(frozen=True, eq=False, repr=False)
class Customers:
    """What customers bought so far, and the law of each one's next basket: the law of all, with the customer's own items tilted.

    The chance of an item in a customer's basket is p′ = 1 − (1 − p)(1 − α h), where p is that of the law and h the decayed share of the
    customer's baskets that hold the item. A factor for the item in every component has this effect. :meth:`fit` makes customers, and
    ``customers["ann"]`` is one of them: a condition, ``law.sample(customer=customers["ann"])``.

    Examples
    --------
    >>> import ndpp
    >>> law = ndpp.LowRankKernel(np.eye(3), np.diag([1.0, 0.5, 0.5]), labels=["milk", "rye", "tea"])
    >>> orders = Orders(Baskets.from_lists([["rye"], ["milk", "rye"]], labels=law.labels), ["ann", "ann"])
    >>> customers = Customers(law).update(orders)
    >>> customers
    <Customers: 1 customer over 3 items; decay 0.95 per basket, prior 10, strength 0.6>
    >>> customers.next_basket("ann", n=2).labels, customers.next_basket("bob", n=2).labels
    (('milk', 'rye'), ('milk', 'rye'))
    >>> round(customers.factors("ann")["rye"], 3)
    1.326
    """

    plain: Law
    """The law of customers of whom nothing is known."""
    habits: Habits = USUAL
    report: Mapping[str, Any] = field(default_factory=dict)
    """What was fitted, and what it gained on customers that were not used for it."""
    clock: int = NEVER
    layers: Layers = NOBODY
    others: Others | None = None
    """What customers learn from each other; None if that gains nothing."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", Law.required(self.plain))

    @classmethod
    def fit(
        cls,
        law: object,
        orders: object,
        *,
        validation_fraction: float = 0.8,
        random_state: RngLike = 0,
        **columns: Unpack[ColumnNames],
    ) -> Customers:
        """Return the customers of these orders, with decay and strength fitted on the last three baskets of most of them.

        Parameters
        ----------
        law : LowRankKernel, Mixture or fitted estimator
            The law of all customers' baskets.
        orders : Orders, path or data frame
            Order lines; what is not ``Orders`` is read by :meth:`~ndpp.baskets.orders.Orders.read`. Items that the law does not know are
            skipped. An order counts as often as its weight says, at one age; one of weight 0 is left out.
        validation_fraction : float
            The part of the customers who came again on whose last baskets habits are fitted; ``report`` tells what is gained on the others.
        random_state : int or numpy.random.Generator
            Which customers these are.
        **columns
            Names of the columns, where they are not "customer", "time", "basket" and "item"; ``time=None`` if rows are in order of time.
        """
        if not 0 < validation_fraction < 1:
            raise InvalidInputError(
                f"must be between 0 and 1; got {validation_fraction}", argument="validation_fraction"
            )
        made = cls(Law.required(law))
        found = made._known(orders, **columns)
        if not len(found):
            raise InvalidInputError("no order has both a customer and an item that the law knows")
        ids, trips = Trips.of(found)
        trips = _new(CustomerCounts.blank(ids), trips)
        n_again = int(np.sum(np.bincount(trips.who) > 1))
        missions, habits, report, others = Missions(made.plain, trips), USUAL, dict[str, Any](fitted=False), None
        if n_again < MIN_CUSTOMERS:
            text = f"{n_again} customers came again, too few to fit habits (at least {MIN_CUSTOMERS}); the usual ones are taken"
            warnings.warn(text, DataWarning, stacklevel=2)
        else:
            parts = halves(trips, validation_fraction, np.random.default_rng(random_state))
            habits, report = fit_habits(missions, *parts)
            habits, others, more = fit_others(missions, parts[1], habits)
            report |= more
        return replace(made, habits=habits, report=report, others=others)._with(
            CustomerCounts.blank(ids), trips, missions
        )

    # -- one customer --------------------------------------------------------------------------------------------------------

    def __getitem__(self, customer: object) -> Customer:
        """Return a customer, by id; one of whom nothing is known changes nothing."""
        return self.person(customer)

    def person(
        self,
        customer: object = None,
        *,
        history: History | None = None,
        time: Time | None = None,
        unknown: str = "error",
    ) -> Customer:
        """Return a customer, by id or by ``history``, a list of baskets, oldest first, or Orders.

        ``time`` is when the basket will be bought, by default when the last order of all customers was. If the law depends on the weekday,
        month, season or hour, that of ``time`` counts. ``unknown`` says what to do about items of the history that are not in the law.
        """
        return Customer(self._people(self._counts(customer, history, unknown), time), time)

    def factors(
        self, customer: object = None, *, history: History | None = None, time: Time | None = None
    ) -> dict[int | str, float]:
        """Return the factor of each of a customer's own items, by label or, without labels, by id; none for a new customer."""
        one = self.person(customer, history=history, time=time)
        _, factors = one.over(self.plain)
        own = one.people.counts.items
        items = [] if factors is None else own[factors[own] != 1].tolist()
        names: Sequence[int | str] = self.plain.labels or range(self.plain.n_items)
        return {names[a]: float(factors[a]) for a in items if factors is not None}

    def law(self, customer: object = None, *, history: History | None = None, time: Time | None = None) -> Law:
        """Return the law of a customer's baskets, the plain one for a new customer: it draws, completes and recommends as any other.

        Every component is tilted by :meth:`factors`, and the weights of components stay. The chance of an own item is exactly p′ if it is
        the only one; several that attract each other are raised a little further.
        """
        base = at_time(self.plain, time)
        return base.under(base.ask(customer=self.person(customer, history=history, time=time)))

    def next_basket(
        self,
        customer: object = None,
        n: int = 10,
        *,
        history: History | None = None,
        time: Time | None = None,
        **options: Unpack[OrderOptions],
    ) -> Recommendation:
        """Return the items that are most likely in a customer's next basket, with their chances p′.

        ``options`` are those of :func:`ndpp.recommend`; ``damping`` is 0 by default.
        """
        chosen: OrderOptions = {"damping": self.habits.damping, **options}
        return self.recommend(customer, (), n, history=history, time=time, **chosen)

    def recommend(
        self,
        customer: object = None,
        basket: Items = (),
        n: int = 10,
        *,
        history: History | None = None,
        time: Time | None = None,
        unknown: str = "error",
        **options: Unpack[OrderOptions],
    ) -> Recommendation:
        """Return the ``n`` best items for a customer whose basket has begun.

        As :func:`ndpp.recommend`, whose ``options`` it takes, with P(a | basket) raised to p′ for the customer's own items; scores of
        ``Ranking.COMPLETION`` are those of the customer's :meth:`law`.
        """
        one = self.person(customer, history=history, time=time, unknown=unknown)
        return recommend(self.plain, basket, n, customer=one, unknown=unknown, **options)

    def bought(self, customers: Sequence[object] = (), *, history: History | None = None) -> list[dict[int, float]]:
        """Return how often each customer, or the one with this history, buys their own items, by id: the decayed share of their baskets."""
        own = self._state(encoded(customers)) if history is None else self._counts(None, history)
        pairs = list(zip(own.items.tolist(), (own.counts / own.mass[own.owners]).tolist()))
        return [dict(pairs[start:end]) for start, end in pairwise(own.indptr.tolist())]

    # -- many customers ------------------------------------------------------------------------------------------------------

    def recommend_many(
        self,
        customers: Sequence[object],
        baskets: Baskets | None = None,
        n: int = 10,
        *,
        time: Time | None = None,
        n_jobs: int = 1,
        **options: Unpack[OrderOptions],
    ) -> Recommendations[Recommendation]:
        """Return :meth:`recommend` for each customer and basket, or without ``baskets`` :meth:`next_basket` for each customer.

        Lists of next baskets are made in compiled loops over the customers' own items. A basket that never occurs has None.
        """
        if baskets is not None and len(baskets) != (size := len(customers)):
            raise InvalidInputError(f"must be {size}, one per customer; got {len(baskets)}", argument="baskets")
        chosen: OrderOptions = {"damping": self.habits.damping if baskets is None else DAMPING, **options}
        rule = Rule.of(self.plain, n=n, **chosen)
        if rule.ranking.is_whole:
            raise InvalidInputError("must be continuation or lift for many customers", argument="ranking")
        return self._by_rule(rule, customers, baskets, time, n_jobs)

    def _by_rule(
        self, rule: Rule, customers: Sequence[object], baskets: Baskets | None, time: Time | None = None, jobs: int = 1
    ) -> Recommendations[Recommendation]:
        """Return the lists of :meth:`recommend_many` by a rule, which may leave out what is out of stock."""
        ids, is_sparse = encoded(customers), baskets is None and rule.caps is None and not len(rule.gone)
        is_sparse = is_sparse and not self.habits.mission_prior and self.others is None
        step = BLOCK if is_sparse else max(1, min(BLOCK, MAX_CHANCES // self.plain.n_items))

        def block(start: int) -> list[Recommendation | None]:
            part = slice(start, start + step)
            people = self._people(self._state(ids[part]), time)
            return self._lists(timed(rule, time), people, None if baskets is None else baskets[part])

        starts = range(0, len(ids), step)
        if jobs == 1:
            found = [block(start) for start in starts]
        else:
            with ThreadPoolExecutor(jobs) as pool:
                found = list(pool.map(block, starts))
        return Recommendations([one for part in found for one in part], [str(one) for one in customers])

    def _lists(self, rule: Rule, people: People, baskets: Baskets | None) -> list[Recommendation | None]:
        """Return the best items for each customer, whose baskets have begun or not; None for baskets of probability zero."""
        own, best = people.counts, None
        if baskets is None and rule.caps is None and self.others is None and people.weights_left(rule) is None:
            return best_sparse(rule, people, rule.law.popularity, rule.law.labels)
        if baskets is not None and rule.caps is None:  # beside the best, the chances of own items matter
            best = Best(rule.n, rule.allowed, rule.unit, rule.least, np.split(own.items, own.indptr[1:-1]))
        chances = people.begun(rule, baskets, best)
        held = [np.empty(0, np.int64)] * len(own.mass) if baskets is None else list(baskets)
        return [None if np.isnan(row[0]) else rule.best(row, items) for row, items in zip(chances, held)]

    # -- what customers are --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of all customers."""
        base, changed = self.layers.base.ids, self.layers.changed.ids
        for place in self.layers.all().tolist():
            yield (base[place] if place < len(base) else changed[place - len(base)]).decode()

    def __contains__(self, customer: object) -> bool:
        return bool(self._state(encoded([customer])).mass[0] > 0)

    def __repr__(self) -> str:
        habits = self.habits
        text = f"<Customers: {many(len(self), 'customer')} over {many(self.plain.n_items, 'item')}; decay {habits.decay:.3g} per "
        text += f"{'week' if habits.by_time else 'basket'}, prior {habits.prior:.3g}, strength {habits.strength:.3g}"
        text += f", evenness {habits.evenness:.3g}" * (habits.evenness > 0)
        text += ", own missions" * bool(habits.mission_prior) + ", with others" * (self.others is not None)
        if "recall@10" in self.report:
            text += "; recall@10 {:.3f}, {:.3f} without customers".format(*self.report["recall@10"])
        return text + ">"

    def update(self, orders: object, **columns: Unpack[ColumnNames]) -> Customers:
        """Return the customers after further orders; only those who bought are touched.

        Orders may be in any order. An order that is older than the last one counted of its customer is taken to be counted already, as is
        one of the same time with the same id, and without times one with the id of any order of the customer; a
        :class:`~ndpp.errors.DataWarning` says how many. Orders of which this cannot be told are an error. Parameters are those of
        :meth:`fit`.
        """
        ids, trips = Trips.of(self._known(orders, **columns))
        state = self._state(ids)
        return self._with(state, _new(state, trips))

    def forget(self, customer: object) -> Customers:
        """Return the customers without one of them; the file that :meth:`save` then writes has nothing of this customer."""
        if customer not in self:
            raise InvalidInputError("there is no such customer, so there is nothing to forget")
        gone = CustomerCounts.blank(encoded([customer]))
        return replace(self, layers=self.layers.with_changed(gone))

    def with_law(self, law: object) -> Customers:
        """Return the customers with another law, such as that of tonight; items are found by their labels."""
        return self._moved(law, self.plain.catalogue, len(self.plain.weights))

    def _moved(self, model: object, old: Catalogue, n_missions: int) -> Customers:
        """Return the customers with the law of a model, if that of before had the items ``old`` and ``n_missions`` missions."""
        law = Law.required(model)
        if (old.labels is None) != (law.labels is None) or (old.labels is None and old.n_items != law.n_items):
            raise InvalidInputError(
                f"must have the items of these customers, {many(old.n_items, 'item')} with{'' if old.labels else 'out'} labels; it has "
                f"{law.n_items:,} with{'' if law.labels else 'out'}", argument="law",
            )  # fmt: skip
        made = replace(self, plain=law)
        if old.labels is not None and law.labels is not None and old.labels != law.labels[: old.n_items]:
            place = places(old.labels, law.labels)
            if (place < 0).all():
                raise InvalidInputError(
                    "has none of the items of these customers; it is that of another shop", argument="law"
                )
            others = self.others and self.others.placed(place, law.n_items)
            made = replace(made, layers=self.layers.placed(place), others=others)
        if self.habits.mission_prior and n_missions != len(law.weights):
            text = "the law has another number of missions; those of customers are left out until the next fit"
            warnings.warn(text, DataWarning, stacklevel=3)
            habits = self.habits._replace(mission_prior=None)
            made = replace(made, habits=habits, layers=made.layers.without_missions())
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the customers to a safetensors file, which is replaced whole or not at all, and has one writer at a time.

        The law is not in it, but the labels of its items are.
        """
        facts = {
            "habits": self.habits, "report": self.report, "contexts": {}, "clock": self.clock, "n_items": self.plain.n_items,
            "n_missions": len(self.plain.weights), "labels": self.plain.labels,
        }  # fmt: skip
        stores.write(path, self.layers, {"customers": json.dumps(facts)}, self.others)

    @classmethod
    def load(cls, path: str | os.PathLike[str], law: object) -> Customers:
        """Return the customers of a file with a law: the one that they were fitted with, or a later one of the same shop.

        Customers are read from the file when they are asked for, so that a million of them take little memory.
        """
        store, facts, others = stores.read(path)
        is_sealed = facts["is_sealed"]
        try:
            labels = check_labels(facts["labels"], facts["n_items"])
            layers = replace(NOBODY, base=store)
            clock, report = np.int64(facts["clock"]).item(), dict(facts["report"])
            made = cls(Law.required(law), Habits.checked(facts["habits"]), report, clock, layers, others)
            dropped, n_missions = list(facts["contexts"]), int(facts["n_missions"])
        except (KeyError, TypeError, ValueError, OverflowError) as reason:
            raise stores.bad(path, f"its header is damaged ({reason!r}); {stores.CORRUPT}") from None
        if not is_sealed:
            text = (
                "was written by ndpp 0.2, without a digest: not all changes would be noticed. Save it again to add one."
            )
            warnings.warn(f"{os.fspath(path)!r} {text}", UncheckedModelWarning, stacklevel=2)
        if dropped:
            warnings.warn(
                f"{os.fspath(path)!r} says how missions depend on {' and '.join(dropped)}, which is left out: a law knows that now. "
                f"Fit it with context={dropped!r}",
                DataWarning,
                stacklevel=2,
            )
        return made._moved(law, Catalogue(facts["n_items"], labels), n_missions)

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _known(self, orders: object, **columns: Unpack[ColumnNames]) -> Orders:
        """Return the orders with a customer and an item of the plain law, over its items."""
        plain = self.plain
        if not isinstance(orders, Orders):
            names: ColumnNames = {"customer": "customer", "time": "time", **columns}
            n_items = None if plain.labels else plain.n_items
            orders = Orders.read(orders, labels=plain.labels, n_items=n_items, unknown="skip", **names)
        found = orders
        if plain.labels is not None and orders.labels is not None and orders.labels != plain.labels:
            found = orders._placed(places(orders.labels, plain.labels), plain.labels)
        elif orders.n_items != plain.n_items and len(orders.indices):
            raise InvalidInputError(
                f"must be over the {plain.n_items:,} items of the law; they are over {orders.n_items:,}",
                argument="orders",
            )
        if orders.customers is None:
            raise InvalidInputError(
                "must say who bought each basket", argument="orders", advice="Name the column with {customer}"
            )
        if orders.times is None and self.habits.by_time:
            raise InvalidInputError("must have times: these customers' orders count by time", argument="orders")
        counts = True if orders.weights is None else orders.weights > 0
        kept: Orders = found[(orders.customers != "") & (found.sizes > 0) & counts]
        if len(orders) and not len(kept):
            warnings.warn("no order has both a customer and an item that the law knows", DataWarning, stacklevel=3)
        return kept

    def _with(self, state: CustomerCounts, trips: Trips, missions: Missions | None = None) -> Customers:
        """Return the customers after orders of some of them, ``state`` as they are now; missions may be known."""
        if not len(trips.who):
            return self
        touched, who = np.unique(trips.who, return_inverse=True)
        store = self._added(state.rows(touched), trips._replace(who=who), missions)
        layers = self.layers.with_changed(store) if len(self.layers.base.ids) else replace(NOBODY, base=store)
        return replace(self, layers=layers, clock=max(self.clock, int(trips.seconds().max())))

    def _added(self, state: CustomerCounts, trips: Trips, missions: Missions | None = None) -> CustomerCounts:
        habits = self.habits
        posterior = (missions or Missions(self.plain, trips)).of if habits.mission_prior else None
        counted = trips.weights * habits.counted(trips.baskets.sizes)
        return stores.added(state, trips, habits.decay, habits.by_time, counted, posterior)

    def _state(self, ids: IdArray) -> CustomerCounts:
        """Return what is known of customers, in memory; nothing of unknown ones. Items that the law does not know are left out."""
        found = self.layers.rows(self.layers.find(ids))
        if (found.items < 0).any():
            kept, owners = found.items >= 0, found.owners
            indptr = np.concatenate([[0], np.cumsum(np.bincount(owners[kept], minlength=len(ids)))])
            found = found._replace(indptr=indptr, items=found.items[kept], counts=found.counts[kept])
        if found.items.max(initial=0) >= self.plain.n_items:
            raise InvalidInputError(
                "hold items that the law does not have; the file is corrupt, or of another law", argument="customers"
            )
        return found._replace(ids=ids)

    def _counts(self, customer: object, history: History | None, unknown: str = "error") -> CustomerCounts:
        """Return what is known of a customer, by id or by history."""
        if history is None:
            return self._state(encoded([customer]) if customer is not None else np.empty(1, "S1"))
        if customer is not None:
            raise InvalidInputError("is instead of a customer's id; give one of them", argument="history")
        if not isinstance(history, Orders):
            plain = self.plain
            baskets = Baskets.from_lists(history, n_items=plain.n_items, labels=plain.labels, unknown=unknown)
            steps = (self.clock if self.clock != NEVER else 0) - self.habits.gap * WEEK * np.arange(len(baskets), 0, -1)
            history = Orders(baskets, times=steps.astype("datetime64[s]"))
        seen = self._known(Orders(history, np.full(len(history), "history"), history.times, weights=history.weights))
        blank = CustomerCounts.blank(encoded(["history"]))
        if not len(seen):
            return blank
        return self._added(blank, Trips.of(seen)[1])

    def _people(self, counts: CustomerCounts, time: Time | None) -> People:
        """Return customers at a time, by default that of the last order."""
        now = self.clock if time is None else int(read_time(time).astype(np.int64))
        return People(self.habits, counts, now, self.others)


def _new(state: CustomerCounts, trips: Trips) -> Trips:
    """Return the orders that are not counted yet; warn of others."""
    counted = stores.is_counted(state, trips)
    if counted.any():
        text = f"{many(int(counted.sum()), 'order')} of {len(counted):,} had been counted already, or came after later ones; left out"
        warnings.warn(text, DataWarning, stacklevel=3)
    return trips.take(np.flatnonzero(~counted))
