"""Customers: a law of baskets for each of them, by tilting the items that they have bought before."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import softmax

from ndpp._types import AnyArray, FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.baskets import Baskets
from ndpp.baskets.labels import Rules, many
from ndpp.baskets.lines import Long
from ndpp.baskets.orders import CALENDAR, Orders, moment
from ndpp.customers import store as stores
from ndpp.customers.habits import (
    CHANCES,
    CONTEXTS,
    EVENNESS,
    LEAST_CUSTOMERS,
    MISSION_PRIORS,
    SHARPER,
    Cases,
    Habits,
    Trial,
    best_of,
    context_missions,
    fit_habits,
    is_gain,
    is_loss,
    ranked,
    without_own,
)
from ndpp.customers.store import NEVER, WEEK, Layers, Store, Trips, encoded
from ndpp.errors import DataWarning, InvalidInputError
from ndpp.inference.ranking import DAMPING, ZERO_CHANCE, Rule, rounded
from ndpp.inference.recommendation import Recommendation, Recommendations
from ndpp.inference.scores import scores_of_one, scores_or_nan
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.law import Law
from ndpp.laws.scoring import Best

USUAL, NO_HABITS = Habits(), Habits(strength=0.0)
MOST_CUSTOMERS, MOST_ORDERS = 4_000, 60_000
"""Customers on whose last baskets habits are fitted, and others on whom they are tried; fewer if these have more orders."""
MOST_BASKETS = 20_000
"""Baskets whose missions are looked at to see whether weekdays or seasons matter."""
NOBODY = Layers(Store.blank(np.empty(0, "S1")), Store.blank(np.empty(0, "S1")))
BLOCK = 1024
"""Customers for whom recommendations are made at a time, fewer if there are many items."""
LARGEST = np.log(1e9)
"""Of the logarithms of factors."""


@dataclass(frozen=True, eq=False, repr=False)
class Customers:
    """What customers bought so far, and the law of each one's next basket: the law of all, with the customer's own items tilted.

    The chance of an item in a customer's basket is p′ = 1 − (1 − p)(1 − α h), where p is that of the law and h the decayed share of the
    customer's baskets that hold the item. A factor for the item in every component has this effect. :meth:`fit` makes customers.

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

    plain: Any
    """The law of customers of whom nothing is known."""
    habits: Habits = USUAL
    report: Mapping[str, Any] = field(default_factory=dict)
    """What was fitted, and what it gained on customers that were not used for it."""
    contexts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    clock: int = NEVER
    layers: Layers = NOBODY

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", Law.required(self.plain))

    @classmethod
    def fit(
        cls,
        law: Any,
        orders: Any,
        *,
        customer: str = "customer",
        time: str | None = "time",
        basket: str = "basket",
        item: str = "item",
        validation_fraction: float = 0.8,
        random_state: Any = 0,
        **how: Any,
    ) -> Customers:
        """Return the customers of these orders, with decay and strength fitted on the last three baskets of most of them.

        Parameters
        ----------
        law : LowRankKernel, Mixture or fitted estimator
            The law of all customers' baskets.
        orders : Orders, path or data frame
            Order lines; what is not ``Orders`` is read by :meth:`~ndpp.baskets.orders.Orders.read`. Items that the law does not know are
            skipped.
        customer, time, basket, item : str
            The columns; ``time=None`` if rows are in order of time.
        validation_fraction : float
            The part of the customers who came again on whose last baskets habits are fitted; ``report`` tells what is gained on the others.
        random_state : int or numpy.random.Generator
            Which customers these are.
        **how
            Further parameters of :meth:`~ndpp.baskets.orders.Orders.read`.
        """
        if not 0 < validation_fraction < 1:
            raise InvalidInputError(
                f"must be between 0 and 1; got {validation_fraction}", argument="validation_fraction"
            )
        made = cls(law)
        orders = made._read(orders, customer=customer, time=time, basket=basket, item=item, **how)
        if not len(orders):
            raise InvalidInputError("no order has both a customer and an item that the law knows")
        ids, trips = Trips.of(orders)
        again = np.flatnonzero(np.bincount(trips.who) > 1)
        if len(again) < LEAST_CUSTOMERS:
            text = f"{len(again)} customers came again, too few to fit habits (at least {LEAST_CUSTOMERS}); the usual ones are taken"
            warnings.warn(text, DataWarning, stacklevel=2)
            return replace(made, report={"fitted": False})._with(Store.blank(ids), trips)
        shuffled = np.random.default_rng(random_state).permutation(again)
        n = min(max(1, round(validation_fraction * len(again))), len(again) - 1)
        parts, n_of = [part[:MOST_CUSTOMERS] for part in (shuffled[:n], shuffled[n:])], np.bincount(trips.who)
        parts = [np.sort(part[: max(1, np.searchsorted(np.cumsum(n_of[part]), MOST_ORDERS))]) for part in parts]
        return made._fitted(trips, *parts)._with(Store.blank(ids), trips)

    def _fitted(self, trips: Trips, *halves: IntArray) -> Customers:
        """Return customers with habits that suit the first of them; what the others gain is reported."""
        plain, has_missions = self.plain, len(self.plain.weights) > 1
        inclusions = self._inclusions.astype(np.float32) if has_missions else np.empty((0, 0), np.float32)
        parts = [Cases.of(trips, half) for half in halves]
        trials = [Trial(part, self._popularity, inclusions, plain.weights.astype(np.float32)) for part in parts]
        clocks = [
            fit_habits(parts[0], self._popularity, by_time)
            for by_time in (False, True)[: 1 + (trips.times is not None)]
        ]
        clocks.sort(key=lambda habits: -trials[0].scores(habits)[1].mean())
        sizes = parts[0].trips.baskets.sizes
        even = {(own, gamma, clock.by_time): clock.even(gamma, sizes, own) for own in (None, MISSION_PRIORS[0])[: 1 + has_missions]
                for clock in clocks for gamma in EVENNESS}  # fmt: skip
        if has_missions:
            for trial in trials:
                trial.learn([way for (own, *_), way in even.items() if own is not None], self._posterior)
        habits = best_of(trials, list(even.values()))
        if habits.mission_prior is not None:
            unit = habits.mission_prior / MISSION_PRIORS[0]
            habits = best_of(trials, [habits._replace(mission_prior=prior * unit) for prior in MISSION_PRIORS])
        ways = [
            habits._replace(prior=share * habits.prior, strength=max(least, habits.strength))
            for share, least in SHARPER
        ]
        habits = best_of(trials, ways)
        report: dict[str, Any] = {"fitted": True, "customers": [len(half) for half in halves]}
        contexts = self._contexts(trials, habits._replace(mission_prior=None), report) if has_missions else {}
        if has_missions:
            without = trials[1].scores(habits._replace(mission_prior=None))
            gains = [float((new - old).mean()) for new, old in zip(trials[1].scores(habits), without)]
            report["own missions"] = {
                "gain": gains[1],
                "recall@10 + NDCG@10": gains[0],
                "kept": habits.mission_prior is not None,
            }
        report["gain"] = float((trials[1].scores(habits)[1] - trials[1].scores(NO_HABITS)[1]).mean())
        report["recall@10"] = [float(trials[1].recall(way).mean()) for way in (habits, NO_HABITS)]
        return self._changed(habits=habits, contexts=contexts, report=report)

    def _contexts(self, trials: Sequence[Trial], habits: Habits, report: dict[str, Any]) -> dict[str, Any]:
        """Return how frequent each mission is on weekdays and in seasons, where this gains."""
        kept: dict[str, Any] = {}
        weights, cases = self.plain.weights, trials[0].cases
        if cases.trips.times is not None:
            seen = cases.trips.take(np.setdiff1d(np.arange(len(cases.trips.who)), cases.target)[:MOST_BASKETS])
            posterior = self._posterior(seen.baskets)
            for name in CONTEXTS:
                ratios, changes = context_missions(seen, name, posterior, weights), []
                for trial in trials:
                    words = CALENDAR[name](np.asarray(trial.cases.last.times)).tolist()
                    rows = np.array([weights * ratios.get(word, 1.0) for word in words])
                    found = trial.scores(habits, trial.chances_at(rows / rows.sum(axis=1, keepdims=True)))
                    changes.append([new - old for new, old in zip(found, trial.scores(habits))])
                (lists, likely), (others, likely_there) = changes
                is_kept = is_gain(likely, likely_there) and not (is_loss(lists) or is_loss(others))
                report[name] = {
                    "gain": float(likely_there.mean()),
                    "recall@10 + NDCG@10": float(others.mean()),
                    "kept": is_kept,
                }
                kept |= {name: ratios} if is_kept else {}
        return kept

    # -- one customer --------------------------------------------------------------------------------------------------------

    def factors(self, customer: Any = None, *, history: Any = None, time: Any = None) -> dict[Any, float]:
        """Return the factor of each of a customer's own items, by label or, without labels, by id; none for a new customer.

        ``history``, instead of a customer, is a list of baskets, oldest first, or Orders. ``time`` is when the basket will be bought, by
        default when the last order of all customers was.
        """
        items, factors = self._factors(self._own(customer, history), time)
        names = items.tolist() if self.plain.labels is None else [self.plain.labels[a] for a in items.tolist()]
        return dict(zip(names, factors.tolist()))

    def law(self, customer: Any = None, *, history: Any = None, time: Any = None) -> Any:
        """Return the law of a customer's baskets, the plain one for a new customer: it draws, completes and recommends as any other.

        Every component is tilted by :meth:`factors`, and the weights of components stay. The chance of an own item is exactly p′ if it is
        the only one; several that attract each other are raised a little further.
        """
        return self._law(self._own(customer, history), time)

    def factors_of(self, history: Any, *, time: Any = None) -> dict[Any, float]:
        """Return the :meth:`factors` of a customer with this history."""
        return self.factors(history=history, time=time)

    def law_of(self, history: Any, *, time: Any = None) -> Any:
        """Return the :meth:`law` of a customer with this history."""
        return self.law(history=history, time=time)

    def next_basket(
        self, customer: Any = None, n: int = 10, *, history: Any = None, time: Any = None, **options: Any
    ) -> Recommendation:
        """Return the items that are most likely in a customer's next basket, with their chances p′.

        ``options`` are those of :func:`ndpp.recommend`; ``damping`` is 0 by default.
        """
        options = {"damping": self.habits.damping} | options
        return self.recommend(customer, (), n, history=history, time=time, **options)

    def recommend(
        self,
        customer: Any = None,
        basket: Items = (),
        n: int = 10,
        *,
        history: Any = None,
        time: Any = None,
        unknown: str = "error",
        **options: Any,
    ) -> Recommendation:
        """Return the ``n`` best items for a customer whose basket has begun.

        As :func:`ndpp.recommend`, whose ``options`` it takes, with P(a | basket) raised to p′ for the customer's own items; scores of
        ``Ranking.COMPLETION`` are those of the customer's :meth:`law`.
        """
        own, plain = self._own(customer, history, unknown), self.plain
        if unknown != "error":
            basket = Baskets.from_lists([basket], n_items=plain.n_items, labels=plain.labels, unknown=unknown)[0]
        ids, rule = check_items(basket, plain, "basket"), Rule.of(plain, n=n, popularity=self._popularity, **options)
        if rule.ranking.is_whole:
            return rule.best(scores_of_one(self._law(own, time), ids, whole=True), ids)
        (found,) = self._lists(rule, own, time, plain.one_basket(ids) if len(ids) else None)
        if found is None:
            found = rule.best(
                scores_of_one(self._mission_law(self._weights(own, time)), ids, whole=False), ids
            )  # raises
        return found

    def bought(self, customers: Sequence[Any] = (), *, history: Any = None) -> list[dict[int, float]]:
        """Return how often each customer, or the one with this history, buys their own items, by id: the decayed share of their baskets."""
        own = self._state(encoded(customers)) if history is None else self._own(None, history)
        pairs = list(zip(own.items.tolist(), (own.counts / own.mass[own.owners]).tolist()))
        return [dict(pairs[start:end]) for start, end in pairwise(own.indptr.tolist())]

    # -- many customers ------------------------------------------------------------------------------------------------------

    def recommend_many(
        self,
        customers: Sequence[Any],
        baskets: Baskets | None = None,
        n: int = 10,
        *,
        time: Any = None,
        n_jobs: int = 1,
        **options: Any,
    ) -> Recommendations[Recommendation]:
        """Return :meth:`recommend` for each customer and basket, or without ``baskets`` :meth:`next_basket` for each customer.

        A list that knows the customers as its ``basket_ids``; None for baskets of probability zero. ``n_jobs`` is the number of threads.
        """
        ids, plain = encoded(customers), self.plain
        if baskets is not None and len(baskets) != len(ids):
            raise InvalidInputError(f"must be {len(ids)}, one per customer; got {len(baskets)}", argument="baskets")
        rule = Rule.of(
            plain, n=n, popularity=self._popularity,
            **({"damping": self.habits.damping if baskets is None else DAMPING} | options),
        )  # fmt: skip
        if rule.ranking.is_whole:
            raise InvalidInputError("must be continuation or lift for many customers", argument="ranking")

        is_sparse = baskets is None and rule.caps is None and self._weights(self._state(ids[:0]), time) is None
        step = BLOCK if is_sparse else max(1, min(BLOCK, CHANCES // plain.n_items))

        def block(start: int) -> list[Recommendation | None]:
            part = slice(start, start + step)
            return self._lists(rule, self._state(ids[part]), time, None if baskets is None else baskets[part])

        starts = range(0, len(ids), step)
        if n_jobs == 1:
            found = [block(start) for start in starts]
        else:
            with ThreadPoolExecutor(n_jobs) as pool:
                found = list(pool.map(block, starts))
        return Recommendations([one for part in found for one in part], [str(one) for one in customers])

    def _lists(self, rule: Rule, own: Store, time: Any, baskets: Baskets | None) -> list[Recommendation | None]:
        """Return the best items for each customer, whose baskets have begun or not; None for baskets of probability zero."""
        weights, n, n_items = self._weights(own, time), len(own.mass), self.plain.n_items
        if baskets is None and weights is None and rule.caps is None:
            return self._best_sparse(rule, own, time)
        if baskets is None:
            chances = np.array(
                np.broadcast_to(self._popularity if weights is None else weights @ self._inclusions, (n, n_items))
            )
        else:  # beside the best, the chances of own items matter
            wanted = np.split(own.items, own.indptr[1:-1])
            best = None if rule.caps is not None else Best(rule.n, rule.allowed, rule.unit, wanted)
            chances = scores_or_nan(self.plain, baskets, whole=False, best=best, weights=weights)
        self._raise(chances, own, time)
        held = [np.empty(0, np.int64)] * n if baskets is None else list(baskets)
        return [None if np.isnan(row[0]) else rule.best(row, items) for row, items in zip(chances, held)]

    def _best_sparse(self, rule: Rule, own: Store, time: Any) -> list[Recommendation | None]:
        """Return the best items of each customer from the customer's own items and the best of all, without a table of all items."""
        p, owners, items, n = self._popularity, own.owners, own.items, len(own.mass)
        chances = self.habits.raised(p[items], self._shares(own, time))
        unit = np.broadcast_to(rule.unit, p.shape)
        can = rule.allowed & (p > ZERO_CHANCE)
        common = np.where(can, p / unit, 0.0)
        first = np.argsort(-rounded(common), kind="stable")[: rule.n]
        owner, item, keys = without_own(
            owners, items, np.where(can[items], chances / unit[items], 0.0), first, common[first], n
        )
        chance = np.append(chances, p[item[len(items) :]]) / np.broadcast_to(rule.shown, p.shape)[item]
        order, rank = ranked(owner, rounded(keys), n, item)
        best = order[(rank < rule.n) & (keys[order] > 0)]
        ends = np.cumsum(np.bincount(owner[best], minlength=n)).tolist()
        item, chance, labels = item[best].astype(np.int64), chance[best], self.plain.labels
        names = None if labels is None else [labels[a] for a in item.tolist()]
        return [
            Recommendation(item[i:j], chance[i:j], None if names is None else tuple(names[i:j]))
            for i, j in zip([0, *ends], ends)
        ]

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
        text += "".join(f", own {name}" for name in (["missions"] if habits.mission_prior else []))
        text += "".join(f", by {name}" for name in self.contexts)
        if "recall@10" in self.report:
            text += "; recall@10 {:.3f}, {:.3f} without customers".format(*self.report["recall@10"])
        return text + ">"

    def update(
        self,
        orders: Any,
        *,
        customer: str = "customer",
        time: str | None = "time",
        basket: str = "basket",
        item: str = "item",
        **how: Any,
    ) -> Customers:
        """Return the customers after further orders; only those who bought are touched.

        Orders may be in any order. An order that is older than the last one counted of its customer is taken to be counted already, as is
        one of the same time with the same id, and without times one with the id of one of the customer's last orders; a
        :class:`~ndpp.errors.DataWarning` says how many. Other parameters are as in :meth:`fit`.
        """
        orders = self._read(orders, customer=customer, time=time, basket=basket, item=item, **how)
        ids, trips = Trips.of(orders)
        state = self._state(ids)
        counted = stores.is_counted(state, trips)
        if counted.any():
            text = f"{many(int(counted.sum()), 'order')} of {len(orders):,} had been counted already, or came after later ones; left out"
            warnings.warn(text, DataWarning, stacklevel=2)
        return self._with(state, trips.take(np.flatnonzero(~counted)))

    def forget(self, customer: Any) -> Customers:
        """Return the customers without one of them; the file that :meth:`save` then writes has nothing of this customer."""
        if customer not in self:
            raise InvalidInputError("there is no such customer, so there is nothing to forget")
        gone = Store.blank(encoded([customer]))
        return self._changed(layers=self.layers.with_changed(gone))

    def with_law(self, law: Any) -> Customers:
        """Return the customers with another law, such as that of tonight; items are found by their labels."""
        return self._moved(law, self.plain.catalogue, len(self.plain.weights))

    def _moved(self, law: Any, old: Catalogue, n_missions: int) -> Customers:
        """Return the customers with a law, if they knew the items ``old`` and so many missions."""
        law = Law.required(law)
        if (old.labels is None) != (law.labels is None) or (old.labels is None and old.n_items != law.n_items):
            raise InvalidInputError(
                f"must have the items of these customers, {many(old.n_items, 'item')} with{'' if old.labels else 'out'} labels; it has "
                f"{law.n_items:,} with{'' if law.labels else 'out'}", argument="law",
            )  # fmt: skip
        made = replace(self, plain=law)
        if old.labels is not None and old.labels != law.labels[: old.n_items]:
            place = np.array([made._number.get(label, -1) for label in old.labels])
            if (place < 0).all():
                raise InvalidInputError(
                    "has none of the items of these customers; it is that of another shop", argument="law"
                )
            made = replace(made, layers=self.layers.placed(place))
        if (self.habits.mission_prior or self.contexts) and n_missions != len(law.weights):
            text = "the law has another number of missions; those of customers, weekdays and seasons are left out until the next fit"
            warnings.warn(text, DataWarning, stacklevel=3)
            made = replace(
                made,
                habits=self.habits._replace(mission_prior=None),
                contexts={},
                layers=made.layers.without_missions(),
            )
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the customers to a safetensors file, which is replaced whole or not at all, and has one writer at a time.

        The law is not in it, but the labels of its items are.
        """
        ratios = {name: {word: found.tolist() for word, found in of.items()} for name, of in self.contexts.items()}
        facts = {
            "habits": self.habits, "report": self.report, "contexts": ratios, "clock": self.clock,
            "n_items": self.plain.n_items, "n_missions": len(self.plain.weights), "labels": self.plain.labels,
        }  # fmt: skip
        stores.write(path, self.layers, {"customers": json.dumps(facts)})

    @classmethod
    def load(cls, path: str | os.PathLike[str], law: Any) -> Customers:
        """Return the customers of a file with a law: the one that they were fitted with, or a later one of the same shop.

        Customers are read from the file when they are asked for, so that a million of them take little memory.
        """
        store, about = stores.read(path)
        try:
            facts = json.loads(about["customers"])
            labels = facts["labels"] and tuple(facts["labels"])
            contexts = {name: {word: np.array(x) for word, x in of.items()} for name, of in facts["contexts"].items()}
            made = cls(
                law, Habits(*facts["habits"]), facts["report"], contexts, facts["clock"], replace(NOBODY, base=store)
            )
            return made._moved(law, Catalogue(facts["n_items"], labels), facts["n_missions"])
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as reason:
            raise stores.bad(path, f"its header is corrupt ({reason!r}). Copy it again") from None

    # -- inside --------------------------------------------------------------------------------------------------------------

    @cached_property
    def _popularity(self) -> FloatArray:
        """P(a ∈ S) of the plain law."""
        return np.asarray(self.plain.inclusion_probabilities())

    @cached_property
    def _inclusions(self) -> FloatArray:
        """P_c(a ∈ S) of its components."""
        return np.asarray(self.plain.component_inclusions())

    @cached_property
    def _number(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.plain.labels or ())}

    def _read(self, orders: Any, *, customer: str, time: str | None, **how: Any) -> Orders:
        """Return the orders with a customer and an item of the plain law."""
        plain = self.plain
        if not isinstance(orders, Orders):
            how = {"labels": plain.labels, "n_items": None if plain.labels else plain.n_items, "unknown": "skip"} | how
            orders = Orders.read(orders, customer=customer, time=time, **how)
        baskets = orders.baskets
        if plain.labels is not None and baskets.labels is not None and baskets.labels != plain.labels:
            ids = np.array([self._number.get(label, -1) for label in baskets.labels], np.int64)[baskets.indices]
            rows = np.repeat(np.arange(len(baskets)), baskets.sizes)
            long = Long(rows[ids >= 0], len(baskets), ids[ids >= 0], baskets.basket_ids)
            orders = replace(orders, baskets=Baskets._trusted(*long.arrays(Rules(plain.labels))))
        elif baskets.n_items != plain.n_items:
            raise InvalidInputError(
                f"must be over the {plain.n_items:,} items of the law; they are over {baskets.n_items:,}",
                argument="orders",
            )
        if orders.customers is None:
            raise InvalidInputError(
                "must say who bought each basket", argument="orders", advice="Name the column with {customer}"
            )
        if orders.times is None and self.habits.by_time:
            raise InvalidInputError("must have times: these customers' orders count by time", argument="orders")
        kept: Orders = orders[(orders.customers != "") & (orders.baskets.sizes > 0)]
        if len(orders) and not len(kept):
            warnings.warn("no order has both a customer and an item that the law knows", DataWarning, stacklevel=3)
        return kept

    def _changed(self, **changes: Any) -> Customers:
        """Return these customers with changes, and what is known of the law."""
        made = replace(self, **changes)
        vars(made).update(
            (name, vars(self)[name]) for name in ("_popularity", "_inclusions", "_number") if name in vars(self)
        )
        return made

    def _with(self, state: Store, trips: Trips) -> Customers:
        """Return the customers after orders of some of them, ``state`` as they are now."""
        if not len(trips.who):
            return self
        touched, who = np.unique(trips.who, return_inverse=True)
        store = self._added(state.rows(touched), trips._replace(who=who))
        layers = self.layers.with_changed(store) if len(self.layers.base.ids) else replace(NOBODY, base=store)
        return self._changed(layers=layers, clock=max(self.clock, int(trips.seconds().max())))

    def _added(self, state: Store, trips: Trips) -> Store:
        habits, posterior = self.habits, self._posterior if self.habits.mission_prior else None
        return stores.added(state, trips, habits.decay, habits.by_time, habits.counted(trips.baskets.sizes), posterior)

    def _posterior(self, baskets: Baskets) -> FloatArray:
        """Return P(component | basket) of each basket."""
        with np.errstate(divide="ignore"):
            prior = np.log(self.plain.weights)
        logs = prior + self.plain.component_log_probs(baskets)
        logs[np.isneginf(logs).all(axis=1)] = prior  # rounding, or a law of another catalogue
        return np.asarray(softmax(logs, axis=1))

    def _state(self, ids: AnyArray) -> Store:
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

    def _own(self, customer: Any, history: Any, unknown: str = "error") -> Store:
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
        history = replace(history, customers=np.full(len(history), "history"))
        seen = self._read(history, customer="", time=None)
        blank = Store.blank(encoded(["history"]))
        if not len(seen):
            return blank
        return self._added(blank, Trips(np.zeros(len(seen), np.int64), seen.baskets, seen.times))

    def _fade(self, own: Store, time: Any) -> FloatArray:
        """Return by how much the counts of each customer have decayed since the customer's last order."""
        if not self.habits.by_time:
            return np.ones(len(own.mass))
        now = self.clock if time is None else int(_time(time).astype(np.int64))
        passed = np.where(own.last == NEVER, 0, np.maximum(now - np.where(own.last == NEVER, now, own.last), 0))
        return np.asarray(self.habits.decay ** (passed / WEEK))

    def _shares(self, own: Store, time: Any) -> FloatArray:
        """Return α h of each own item."""
        fade = self._fade(own, time)
        return self.habits.shares(own.counts * fade[own.owners], (own.mass * fade)[own.owners])

    def _weights(self, own: Store, time: Any) -> FloatArray | None:
        """Return the mission weights of each customer, None for those of the plain law."""
        prior, contexts = self.habits.mission_prior, {} if time is None else self.contexts
        if not prior and not contexts:
            return None
        out = np.tile(self.plain.weights, (len(own.mass), 1))
        if prior and own.missions.shape[1]:
            fade = self._fade(own, time)
            out = (own.missions * fade[:, None] + prior * out) / (own.mass * fade + prior)[:, None]
        for name, ratios in contexts.items():
            out *= ratios.get(str(CALENDAR[name](_time(time)[None])[0]), 1.0)
        return np.asarray(out / out.sum(axis=1, keepdims=True))

    def _chances(self, own: Store, time: Any) -> FloatArray:
        """Return P(a ∈ S) for each customer before tilts, or one row for all."""
        weights = self._weights(own, time)
        return self._popularity[None] if weights is None else weights @ self._inclusions

    def _mission_law(self, weights: FloatArray | None) -> Any:
        """Return the law with these mission weights, one row."""
        return self.plain if weights is None else self.plain.framed(self.plain.frame.weighted(weights[0]))

    def _law(self, own: Store, time: Any) -> Any:
        """Return the law of one customer."""
        base = self._mission_law(self._weights(own, time))
        tilted = base.tilt(dict(zip(*(values.tolist() for values in self._factors(own, time)))))
        return tilted if tilted is base else tilted.framed(tilted.frame.weighted(base.weights))

    def _factors(self, own: Store, time: Any) -> tuple[IntArray, FloatArray]:
        """Return the own items of one customer that can occur, and their factors: Σ_c w_c s p_ca / (1 − p_ca + s p_ca) = p′_a."""
        weights, p = self._weights(own, time), self._chances(own, time)[0]
        items, shares = own.items[p[own.items] > 0].astype(np.int64), self._shares(own, time)[p[own.items] > 0]
        raised = self.habits.raised(p[items], shares)
        if len(self.plain.weights) == 1:
            return items, raised * (1 - p[items]) / (p[items] * (1 - raised))
        w, within = self.plain.weights if weights is None else weights[0], self._inclusions[:, items]
        low, high = np.zeros(len(items)), np.full(len(items), LARGEST)
        for _ in range(60):  # bisection of log s
            s = np.exp((low + high) / 2)
            is_low = w @ (s * within / (1 - within + s * within)) < raised
            low, high = np.where(is_low, (low + high) / 2, low), np.where(is_low, high, (low + high) / 2)
        return items, np.exp((low + high) / 2)

    def _raise(self, chances: FloatArray, own: Store, time: Any) -> None:
        """Replace p by p′ for own items, in place, unless they cannot occur."""
        owners, before = own.owners, chances[own.owners, own.items]
        raised = self.habits.raised(before, self._shares(own, time))
        chances[owners, own.items] = np.where(before > ZERO_CHANCE, raised, before)


def _time(time: Any) -> Any:
    found = moment(time)
    if np.isnat(found):
        raise InvalidInputError(f"must be a time such as 2026-03-01 or 2026-03-01 12:30; got {time!r}", argument="time")
    return found
