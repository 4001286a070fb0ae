"""Customers: their laws against enumeration, their counts against plain sums, updates and files against counting at once."""

from __future__ import annotations

import base64
import json
import tracemalloc
import warnings
import zlib
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file
from scipy.optimize import brentq

import law_table
from law_table import BASES, KIND, KINDS, Kind
from ndpp import Baskets, Customers, LowRankKernel, Mixture, answers, continuation_scores, recommend
from ndpp.answers import Prepared
from ndpp.baskets.orders import Orders
from ndpp.customers import Habits
from ndpp.customers.cases import Cases
from ndpp.customers.store import CustomerCounts, Layers, Trips
from ndpp.errors import BusyFileError, DataWarning, InvalidInputError, ModelFileError, UncheckedModelWarning
from ndpp.inference.ranking import USUAL, Rule, recommend_many

DAY = np.timedelta64(86400, "s")
START = np.datetime64("2026-01-05", "s")  # a Monday
HABITS = [Habits(0.8, False, 2.0, 0.7), Habits(0.8, True, 2.0, 0.7), Habits(0.8, False, 2.0, 0.7, evenness=0.5)]
OF_0_2 = (
    b"c-oDU%}xR_5XV717!%*2>3JpH4`A_vUW`5fCzosr+YODoE!h?$Atbzpo;~|AK8-i0v-kl)p-"
    b"DUQpH6?7ncdst2CfB7(^6QTam&+`UXleJ&y3Zjs0=8&Na%!*q%{esd)Df;J(Ban2#@%z#XQ1V9e04IW<>$fI>?3|NoXaey0Y#maB^v_$ecjH(j|<wvf`<xFX~94#}7{W-"
    b"EPSIC}PZoRVuA0F)yrjDUFd@VaRu(f{#Q|*O|~#7C^xo=Aw42;0YZr!Kb;dN^V_$Dw|F(emefXOCLc3-sSidDx(roZG{uc?0hQR&0QyQPt1g)z7L^milfwdZiF>BG>-"
    b"()&>;$L?EipZ7a)i{5-}tgA=D;ea0nrS8rmHs;25`x2!jnov<uOO&)f|VG1fC>w-"
    b"`5vFuH+9;uskvH+u*>8;N6&^y)^wzW*Ky{EWLmz0NmCW?PIwyp0I|Lih|uvLu8w*6V0(Pu6yI{wC3Re?_}$p2B(6fRi+@8)wa5Z=8L3{^*CH!427cr`_gCjr8af9n=T("
)
"""The file of ann, twice with rye and once with tea, and bob with milk and tea, as ndpp 0.2.0 wrote it."""
both_decays = pytest.mark.parametrize("habits", HABITS, ids=["by basket", "by time", "evenly"])


def shop(n_items: int = 8, n_components: int = 3, seed: int = 0) -> Mixture:
    rng = np.random.default_rng(seed)
    skew = rng.normal(size=(3, 3))
    labels = [f"item {a}" for a in range(n_items)]
    odds = rng.uniform(0.02, 0.4, (n_components, n_items))
    return Mixture.tied(odds, rng.normal(size=(n_items, 3)) / 3, 0.3 * np.eye(3) + skew - skew.T, np.ones(n_components) / n_components,
                        labels=labels).without_empty()  # fmt: skip


def orders_of(law: Any, n: int = 300, n_customers: int = 40, seed: int = 0, *, times: bool = True) -> Orders:
    """Orders of customers who like three items each."""
    rng = np.random.default_rng(seed)
    favourites = [rng.choice(law.n_items, 3, replace=False) for _ in range(n_customers)]
    who = rng.integers(n_customers, size=n)
    sets = [
        {*rng.choice(law.n_items, 2).tolist(), *(a for a in favourites[u].tolist() if rng.random() < 0.6)} for u in who
    ]
    when = START + np.sort(rng.integers(0, 150 * 86400, n)).astype("timedelta64[s]")
    baskets = Baskets.from_lists(sets, labels=law.labels, n_items=law.n_items, basket_ids=range(n))
    return Orders(baskets, np.array([f"c{u}" for u in who]), when if times else None)


def plain_shares(orders: Orders, habits: Habits, customer: str, now: Any = None) -> dict[int, float]:
    """α h of each own item, by a loop."""
    assert orders.customers is not None
    mine = np.flatnonzero(orders.customers == customer).tolist()
    now = orders.times[-1] if now is None and orders.times is not None else now
    counts: dict[int, float] = {}
    mass = 0.0
    for age, i in enumerate(reversed(mine)):
        weight = habits.decay ** (
            (now - orders.times[i]) / DAY / 7 if habits.by_time and orders.times is not None else age
        )
        weight *= len(orders.baskets[i]) ** -habits.evenness
        mass += weight
        for a in orders.baskets[i].tolist():
            counts[a] = counts.get(a, 0.0) + weight
    return {a: habits.strength * count / (mass + habits.prior) for a, count in counts.items()}


# ---- laws against enumeration ---------------------------------------------------------------------------------------


def entry_of(kind: Kind, nonempty: bool) -> law_table.Entry:
    return (law_table.nonempty_entries if nonempty else law_table.entries)(kind, BASES[0])[0]


def factor_of(within: Any, weights: Any, raised: float) -> float:
    """The factor that makes an item with these chances in the components as likely as that, if their weights stay."""
    if len(weights) == 1:
        return float(raised * (1 - within[0]) / (within[0] * (1 - raised)))
    return float(
        brentq(lambda s: weights @ (s * within / (1 - within + s * within)) - raised, 1e-3, 1e6, xtol=1e-13, rtol=1e-13)
    )


def true_law(truth: law_table.Truth, weights: Any, shares: dict[int, float], correction: bool = True) -> Any:
    """P(S) of a customer: every component is tilted, and their weights stay."""
    factors = np.ones(truth.n_items)
    for a, share in shares.items():
        within = truth.given_component[:, truth.containing([a])].sum(axis=1)
        p = float(weights @ within)
        raised = 1 - (1 - p) * (1 - share)
        factors[a] = factor_of(within, weights, raised) if correction else raised / p
    tilted = truth.given_component * np.array([np.prod(factors[list(S)]) for S in truth.sets])
    return weights @ (tilted / tilted.sum(axis=1, keepdims=True))


def check_law(entry: law_table.Entry, customers: Customers, history: list[list[int]], correction: bool = True) -> None:
    """Compare the law of a customer with the truth, tilted by factors from true probabilities."""
    orders = Orders(Baskets.from_lists(history, n_items=entry.truth.n_items), np.full(len(history), "ann"))
    shares = plain_shares(orders, customers.habits, "ann")
    found = np.exp(customers.law("ann").log_probs([list(S) for S in entry.truth.sets]))
    expected = true_law(entry.truth, entry.truth.weights, shares, correction)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)  # counts are kept in single precision


def customer_of(entry: law_table.Entry, history: list[list[int]], habits: Habits = HABITS[0]) -> Customers:
    law = entry.law
    baskets = Baskets.from_lists(history, n_items=law.n_items, labels=None)
    named = Baskets(baskets.indptr, baskets.indices, law.n_items, law.labels)
    return Customers(law, habits).update(Orders(named, np.full(len(history), "ann")))


@pytest.mark.parametrize("nonempty", [False, True], ids=["any", "nonempty"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_laws_of_customers_are_the_enumerated_ones(kind: Kind, nonempty: bool) -> None:
    entry, history = entry_of(kind, nonempty), [[0, 2], [2], [1, 2, 4]]
    customers = customer_of(entry, history)
    check_law(entry, customers, history)
    with pytest.raises(AssertionError):  # a factor p′/p forgets that the other sets become rarer
        check_law(entry, customers, history, correction=False)
    with pytest.raises(AssertionError):
        check_law(entry, customers, history[::-1])
    if kind.is_mixture:  # a tilt of the whole law also moves its weights, to components with larger sets
        moved = np.exp(entry.law.tilt(customers.factors("ann")).log_probs([list(S) for S in entry.truth.sets]))
        assert np.abs(moved - np.exp(customers.law("ann").log_probs([list(S) for S in entry.truth.sets]))).max() > 1e-3
    assert customers.law("bob") is entry.law


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_one_own_item_has_exactly_the_chance_that_is_shown(kind: Kind) -> None:
    entry = entry_of(kind, True)
    customers = customer_of(entry, [[3], [3]])
    (share,) = plain_shares(Orders(Baskets.from_lists([[3], [3]]), np.full(2, "ann")), HABITS[0], "ann").values()
    p = entry.truth.mass([3])
    expected = 1 - (1 - p) * (1 - share)
    np.testing.assert_allclose(customers.law("ann").inclusion_probabilities()[3], expected, rtol=1e-6)
    shown = customers.next_basket("ann", n=10)
    np.testing.assert_allclose(shown.scores[shown.items.tolist().index(3)], expected, rtol=1e-6)


def test_own_missions_and_weekdays_are_weights_of_the_law() -> None:
    entry = entry_of(KIND["tied mixture"], True)
    law, history = entry.law, [[0, 1], [2]]
    law = law.with_context({"weekday": ("Monday", "Friday")}, np.log([[2.0, 1.0, 0.5], [1.0, 1.0, 1.0]]))
    habits = HABITS[0]._replace(mission_prior=3.0)
    orders = Orders(Baskets.from_lists(history, n_items=6), np.full(2, "ann"), START + DAY * np.arange(2))
    orders = Orders(
        Baskets(orders.baskets.indptr, orders.baskets.indices, 6, law.labels), orders.customers, orders.times
    )
    customers = Customers(law, habits).update(orders)
    posterior = np.array([law.responsibilities(basket, whole=True) for basket in history])
    for time, base in (("2026-02-03", law), ("2026-02-02", law.at(weekday="Monday"))):
        weights = (0.8 * posterior[0] + posterior[1] + 3.0 * base.weights) / (1.8 + 3.0)
        p = np.array(
            [weights @ entry.truth.given_component[:, entry.truth.containing([a])].sum(axis=1) for a in range(6)]
        )
        found = np.exp(customers.law("ann", time=time).log_probs([list(S) for S in entry.truth.sets]))
        np.testing.assert_allclose(
            found, true_law(entry.truth, weights, plain_shares(orders, habits, "ann")), rtol=1e-5
        )
        shown = customers.next_basket("ann", n=6, time=time)
        many = customers.recommend_many(["ann"], n=6, time=time)[0]
        assert many is not None
        np.testing.assert_allclose(shown.scores, many.scores)
        shares = plain_shares(orders, habits, "ann")
        expected = [1 - (1 - p[a]) * (1 - shares.get(a, 0.0)) for a in shown.items.tolist()]
        np.testing.assert_allclose(shown.scores, expected, rtol=1e-5)
    plain = Customers(law, HABITS[0])
    np.testing.assert_array_equal(plain.law("bob", time="2026-02-02").weights, law.at(weekday="Monday").weights)
    np.testing.assert_allclose(plain.law("bob", time="2026-02-03").weights, law.weights)  # it knows no Tuesday
    settled = plain.with_law(law.at(weekday="Monday"))  # a weekday counts once
    assert settled.law("bob", time="2026-02-06") is settled.plain
    basket = customers.recommend_many(["ann", "bob"], Baskets.from_lists([[3], [4]], n_items=6), n=3)
    for one, name, held in zip(basket, ["ann", "bob"], [[3], [4]]):
        assert one is not None
        np.testing.assert_allclose(one.scores, customers.recommend(name, held, n=3).scores)


@pytest.mark.parametrize("nonempty", [False, True], ids=["any", "nonempty"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.is_mixture], ids=str)
def test_begun_baskets_are_continued_by_own_missions_and_habits(kind: Kind, nonempty: bool) -> None:
    entry, history = entry_of(kind, nonempty), [[0, 2], [2], [1, 2, 4]]
    customers = customer_of(entry, history, HABITS[0]._replace(mission_prior=3.0))
    shares = plain_shares(Orders(Baskets.from_lists(history), np.full(3, "ann")), HABITS[0], "ann")
    posterior = np.array([entry.law.responsibilities(basket, whole=True) for basket in history])
    own = (0.8 ** np.array([2, 1, 0]) @ posterior + 3.0 * entry.law.weights) / (1 + 0.8 + 0.64 + 3.0)
    names, baskets = ["ann", "bob", "ann"], Baskets.from_lists([[3], [3], [1, 5]], n_items=entry.truth.n_items)
    every = entry.law.weights @ entry.truth.given_component
    usual = {a: every[entry.truth.containing([a])].sum() for a in range(entry.truth.n_items)}
    for n, staples in product((2, 6), (True, False)):  # with few, the scores of other items are only bounded
        options: Any = {"n": n, "damping": 0.0, "staples": staples}
        many = customers.recommend_many(names, baskets, **options)
        for name, held, found in zip(names, baskets.to_lists(), many):
            weights, mine = (own, shares) if name == "ann" else (entry.law.weights, {})
            joint = weights @ entry.truth.given_component
            base = joint[entry.truth.containing(held)].sum()
            expected = {
                a: 1 - (1 - joint[entry.truth.containing([*held, a])].sum() / base) * (1 - mine.get(a, 0.0))
                for a in range(entry.truth.n_items)
                if a not in held
            }
            no_staples = [a for a, chance in expected.items() if chance >= usual[a] * USUAL]
            if not staples and no_staples:  # own items count as they are raised
                expected = {a: expected[a] for a in no_staples}
            best = sorted(expected, key=lambda a: -expected[a])[:n]
            one = customers.recommend(name, held, **options)
            for each in (one, found):
                assert each is not None
                assert each.items.tolist() == best
                np.testing.assert_allclose(each.scores, [expected[a] for a in best], rtol=1e-5)


@pytest.mark.parametrize("nonempty", [False, True], ids=["any", "nonempty"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_lists_without_an_own_item_are_those_of_the_law(kind: Kind, nonempty: bool) -> None:
    """Missions with an item that somebody likes are less likely where it is out of stock, and more so for others' baskets."""
    entry, history = entry_of(kind, nonempty), [[2], [2], [2]]
    law, boost = entry.law, {2: 0.0, 1: 3.0}
    customers = customer_of(entry, history, HABITS[0]._replace(mission_prior=3.0 if kind.is_mixture else None))
    expected = law.under(law.ask(boost=boost, customer=customers["ann"])).inclusion_probabilities()
    options: Any = {"n": 6, "damping": 0.0}
    boosted = law.tilt({1: 3.0})
    people, empty = customers.with_law(boosted), Baskets.from_lists([[], []], n_items=law.n_items)
    rule = Rule.of(boosted.exclude([2]), **options).without(np.array([2]), boosted)
    many = people._by_rule(rule, ["bob", "ann"], None)[1], people._by_rule(rule, ["bob", "ann"], empty)[1]
    prepared, said = Prepared(law, customers=customers), {**options, "boost": boost, "customer": "ann"}
    each: list[Any] = [
        recommend(law, [], boost=boost, customer=customers["ann"], **options),
        recommend_many(law, empty, boost=boost, customer=customers["ann"], **options)[0],
        *many,
    ]
    for one in each:
        np.testing.assert_allclose(one.scores, expected[one.items], rtol=1e-6)
        assert 2 not in one.items
    answered = answers.recommend(prepared, [], **said, staples=True)
    np.testing.assert_allclose([row.score for row in answered.items], each[0].scores, rtol=1e-9)
    of_nobody = law.under(law.ask(boost=boost)).inclusion_probabilities()
    assert not kind.is_mixture or np.abs(expected - of_nobody).max() > 1e-3


# ---- recommendations ------------------------------------------------------------------------------------------------


@both_decays
def test_bulk_recommendations_are_those_of_each_customer(habits: Habits) -> None:
    law = shop(30)
    orders = orders_of(law)
    customers, names = Customers(law, habits).update(orders), ["c3", "nobody", "c1", "c3"]
    for options in ({}, {"damping": 0.4}, {"candidates": [1, 2, 5]}, {"ranking": "lift"}):
        found = customers.recommend_many(names, n=7, n_jobs=2, **options)
        assert found.basket_ids == names
        for name, one in zip(names, found):
            expected = customers.next_basket(name, 7, **options)
            assert one is not None
            assert one.labels == expected.labels
            np.testing.assert_allclose(one.scores, expected.scores)
    baskets = Baskets.from_lists([[0], [3, 4], [5], [6]], n_items=30)
    for staples in (True, False):
        for name, basket, one in zip(names, baskets, customers.recommend_many(names, baskets, n=5, staples=staples)):
            expected = customers.recommend(name, basket, n=5, staples=staples)
            assert one is not None
            assert one.items.tolist() == expected.items.tolist()
            assert not np.isin(basket, one.items).any()


def test_what_customers_buy_anyway_is_no_staple() -> None:
    """An own item is judged by its raised chance, where a bound would rule it out for everybody, too."""
    law = shop(30)
    usual, basket = law.popularity, [3]
    times = continuation_scores(law, basket) / usual
    for least in np.argsort(np.where(times > 0, times, 9.0))[:5].tolist():
        bought = Baskets.from_lists([[least]] * 9, n_items=30, labels=law.labels)
        customers = Customers(law, HABITS[0]).update(Orders(bought, ["ann"] * 9))
        for ranking in ("continuation", "lift"):
            options: Any = {"ranking": ranking, "support": 0.0, "staples": False}
            assert least not in recommend(law, basket, n=3, **options).items
            (found,) = customers.recommend_many(["ann"], Baskets.from_lists([basket], n_items=30), n=3, **options)
            assert found is not None
            assert least in found.items
            assert found.items.tolist() == customers.recommend("ann", basket, n=3, **options).items.tolist()


def test_scores_are_those_of_the_law_where_they_are_exact() -> None:
    law = shop()
    customers = Customers(law, HABITS[0]).update(orders_of(law))
    for basket in ([0], [1, 2]):
        completion = customers.recommend("c1", basket, n=8, ranking="completion")
        np.testing.assert_allclose(
            completion.scores, recommend(customers.law("c1"), basket, n=8, ranking="completion").scores
        )
    plain = recommend(law, [0], n=5)
    assert customers.recommend("nobody", [0], n=5).labels == plain.labels
    with pytest.warns(DataWarning, match="skipped 1 unknown item"):
        skipped = customers.recommend("c1", ["item 0", "what"], n=5, unknown="skip")
    assert skipped.labels == customers.recommend("c1", [0], n=5).labels


def test_a_history_stands_for_a_customer() -> None:
    law = shop()
    orders = orders_of(law, times=False)
    customers = Customers(law, HABITS[0]).update(orders)
    assert orders.customers is not None
    mine = orders.baskets[orders.customers == "c5"]
    history = [mine.labelled(i) for i in range(len(mine))]
    assert customers.factors(history=history) == customers.factors("c5")
    assert customers.next_basket(history=history).labels == customers.next_basket("c5").labels
    np.testing.assert_array_equal(
        customers.law(history=history).inclusion_probabilities(), customers.law("c5").inclusion_probabilities()
    )
    assert customers.law(history=[]) is law
    assert customers.factors(history=history[::-1]) != customers.factors("c5")
    with pytest.raises(InvalidInputError, match="instead of a customer"):
        customers.recommend("c5", history=history)
    with pytest.raises(InvalidInputError, match="unknown label 'whisky'"):
        customers.factors(history=[["whisky"]])


def test_histories_without_times_are_spaced_as_usual() -> None:
    law = shop()
    habits = Habits(0.8, True, 2.0, 0.7, gap=2.0)
    customers = Customers(law, habits, clock=int(START.astype(np.int64)))
    named = customers.factors(history=[["item 1"], ["item 2", "item 1"]])
    orders = Orders(Baskets.from_lists([[1], [2, 1]], labels=law.labels), times=START - DAY * np.array([28, 14]))
    assert named == pytest.approx(customers.factors(history=orders))
    assert customers.factors(history=orders, time="2027-01-01")["item 1"] < named["item 1"]
    with pytest.raises(InvalidInputError, match="time must be a time such as 2026-03-01"):
        customers.factors(history=orders, time="soon")
    with pytest.raises(InvalidInputError, match="must have times"):
        customers.update(orders_of(law, times=False))


# ---- counts, updates and files --------------------------------------------------------------------------------------


def write_version_1(path: Path, store: CustomerCounts, **facts: Any) -> None:
    """Write a file as versions before 0.3 did."""
    arrays = {name: np.asarray(values) for name, values in store._asdict().items()}
    arrays["seen"] = arrays.pop("marks")[arrays.pop("marks_indptr")[:-1]]
    arrays["ids"] = np.frombuffer(store.ids.tobytes(), np.uint8).reshape(len(store.ids), -1)
    known = {
        "habits": HABITS[0],
        "report": {},
        "contexts": {},
        "clock": int(store.last.max()),
        "n_items": 8,
        "n_missions": 3,
    }
    text = json.dumps({**known, "labels": [f"item {a}" for a in range(8)], **facts})
    save_file(arrays, path, {"customers": text, "format": "ndpp-customers", "format_version": "1"})


def assert_same(found: Customers, expected: Customers, names: list[str]) -> None:
    for name in names:
        mine, wanted = found.factors(name), expected.factors(name)
        assert mine.keys() == wanted.keys()
        np.testing.assert_allclose([mine[a] for a in wanted], list(wanted.values()), rtol=1e-5)


@both_decays
def test_updates_are_as_counting_at_once(habits: Habits, tmp_path: Path) -> None:
    law = shop()
    orders = orders_of(law)
    names = [f"c{u}" for u in range(40)]
    at_once, step_by_step = Customers(law, habits).update(orders), Customers(law, habits)
    for part in np.array_split(np.arange(300), 7):
        step_by_step = step_by_step.update(orders[part])
        step_by_step.save(tmp_path / "shop.customers")
        step_by_step = Customers.load(tmp_path / "shop.customers", law)
    assert_same(step_by_step, at_once, names)
    p, within = law.inclusion_probabilities(), law.component_inclusions()
    for name in names[:5]:
        factors = at_once.factors(name)
        for a, share in plain_shares(orders, habits, name).items():
            expected = factor_of(within[:, a], law.weights, 1 - (1 - p[a]) * (1 - share))
            np.testing.assert_allclose(factors[f"item {a}"], expected, rtol=1e-5)
    shuffled = np.random.default_rng(1).permutation(300)  # orders out of time order are sorted
    assert orders.customers is not None
    assert orders.times is not None
    mixed = Orders(orders.baskets[shuffled], orders.customers[shuffled], orders.times[shuffled])
    assert_same(Customers(law, habits).update(mixed), at_once, names)


@pytest.mark.parametrize("mission_prior", [None, 5.0])
def test_an_order_counts_as_often_as_its_weight_says(mission_prior: float | None) -> None:
    """By time, an order of weight w is w orders of that time."""
    law, orders = shop(), orders_of(shop())
    often = np.random.default_rng(1).integers(0, 4, len(orders))
    habits = HABITS[1]._replace(mission_prior=mission_prior, evenness=0.5)
    at = np.repeat(np.arange(len(orders)), often)
    ids = Baskets.from_lists([list(orders[i]) for i in at], n_items=8, labels=law.labels, basket_ids=range(len(at)))
    assert orders.customers is not None
    assert orders.times is not None
    names = [f"c{u}" for u in range(40)]
    expected = Customers(law, habits).update(Orders(ids, orders.customers[at], orders.times[at]))
    weighted = Orders(orders.baskets, orders.customers, orders.times, weights=often)
    found = Customers(law, habits)
    for part in np.array_split(np.arange(len(orders)), 3):
        found = found.update(weighted[part])
    assert_same(found, expected, names)
    assert list(found) == list(expected)
    mine = orders.customers == "c1"
    last = orders.times[mine][-1]
    assert found.factors(history=weighted[mine], time=last) == pytest.approx(found.factors("c1", time=last), rel=1e-5)


def test_fit_counts_orders_by_weight() -> None:
    law, orders = shop(), orders_of(shop())
    half = np.arange(len(orders)) % 2
    plain = Customers.fit(law, orders)
    names = [f"c{u}" for u in range(40)]

    def fitted(weights: Any) -> Customers:
        return Customers.fit(law, Orders(orders.baskets, orders.customers, orders.times, weights=weights))

    assert fitted(np.ones(len(orders))).habits == plain.habits
    assert_same(fitted(half), Customers.fit(law, orders[half == 1]), names)
    assert fitted(np.where(half, 1.0, 20.0)).report != plain.report


def test_an_update_touches_only_those_who_bought() -> None:
    law = shop()
    orders = orders_of(law)
    before = Customers(law, HABITS[1]).update(orders[:250])
    after = before.update(orders[250:])
    assert orders.customers is not None
    bought = set(orders.customers[250:].tolist())
    assert {name.decode() for name in after.layers.changed.ids.tolist()} == bought
    assert after.layers.base is before.layers.base
    now = str(orders.times[-1]) if orders.times is not None else ""
    for name in {*orders.customers[:250].tolist()} - bought:
        assert after.factors(name) == before.factors(name, time=now)  # untouched ones decay all the same


@pytest.mark.parametrize("times", [True, False], ids=["times", "no times"])
def test_an_order_counts_once(times: bool) -> None:
    law = shop()
    orders = orders_of(law, times=times)
    customers = Customers(law, HABITS[0]).update(orders[:280]).update(orders[280:])
    with pytest.warns(DataWarning, match="20 orders of 20 had been counted already"):
        again = customers.update(orders[280:])
    assert again.layers is customers.layers
    if times:
        with pytest.warns(DataWarning, match="280 orders of 300"):
            again = Customers(law, HABITS[0]).update(orders[:280]).update(orders)
        assert_same(again, customers, [f"c{u}" for u in range(40)])


def test_two_orders_at_the_same_time_are_told_apart_by_their_ids() -> None:
    law = shop()
    times = np.full(3, START)
    orders = Orders(
        Baskets.from_lists([[0], [1], [2]], labels=law.labels, basket_ids=["a", "b", "c"]), np.full(3, "ann"), times
    )
    customers = Customers(law).update(orders[:2])
    with pytest.warns(DataWarning, match="2 orders of 3"):
        customers = customers.update(orders)
    assert set(customers.factors("ann")) == {"item 0", "item 1", "item 2"}
    assert customers.layers.rows(customers.layers.find(np.array([b"ann"]))).mass[0] == pytest.approx(1 + 0.95 + 0.95**2)


def baskets_of(customer: str, ids: list[Any], times: Any = None, items: Any = None) -> Orders:
    """Orders of one customer, of one item each."""
    items = [int(one) % 8 for one in ids] if items is None else items
    named = Baskets.from_lists(
        [[one] for one in items], labels=[f"item {a}" for a in range(8)], basket_ids=None if ids[0] is None else ids
    )
    times = None if times is None else np.broadcast_to(np.asarray(times, "datetime64[s]"), len(ids))
    return Orders(named, np.full(len(ids), customer), times)


def n_counted(customers: Customers, name: str = "ann") -> float:
    """Return how many orders are counted, where none fades."""
    return float(customers.layers.rows(customers.layers.find(np.array([name.encode()]))).mass[0])


STEADY = Habits(1.0, False, 2.0, 0.7)


@pytest.mark.parametrize("saved", [False, True], ids=["in memory", "in a file"])
@pytest.mark.parametrize("times", [True, False], ids=["times", "no times"])
def test_any_nights_in_any_order_count_each_order_once(times: bool, saved: bool, tmp_path: Path) -> None:
    """Nights overlap, come again and hold orders twice; at one time there are many orders of a customer."""
    law, rng = shop(), np.random.default_rng(7)
    when = START + DAY * np.sort(rng.integers(4, size=120)) if times else None
    whole = orders_of(law, 120, 5, times=False)
    assert whole.customers is not None
    whole = Orders(whole.baskets, whole.customers, when)
    customers = Customers(law, HABITS[0])
    for night in range(4):
        now = when == START + DAY * night if when is not None else np.arange(120) // 30 == night
        (mine,) = np.nonzero(now)
        for part in (mine[: len(mine) // 2], np.append(mine, mine[:3]), mine[::2], np.arange(mine[-1] + 1)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                customers = customers.update(whole[part])
            if saved:
                customers.save(tmp_path / "shop.customers")
                customers = Customers.load(tmp_path / "shop.customers", law)
    assert_same(customers, Customers(law, HABITS[0]).update(whole), [f"c{u}" for u in range(5)])


def test_without_times_orders_are_known_from_all_updates() -> None:
    customers = Customers(shop(), STEADY).update(baskets_of("ann", [1, 2])).update(baskets_of("ann", [3]))
    with pytest.warns(DataWarning, match="2 orders of 2 had been counted"):
        customers = customers.update(baskets_of("ann", [1, 2]))
    assert n_counted(customers) == 3
    with pytest.warns(DataWarning, match="1 order of 2 had been counted"):
        assert n_counted(customers.update(baskets_of("ann", [3, 4]))) == 4
    assert n_counted(customers.update(baskets_of("bob", [3])), "bob") == 1  # an id of another customer


@pytest.mark.parametrize("k", [4, 20])
def test_no_new_order_is_lost_beside_others_of_its_time(k: int) -> None:
    """A filter of 64 bits took one in four new orders beside 20 others for one of them."""
    customers = Customers(shop(), STEADY).update(baskets_of("ann", list(range(k)), START))
    customers = customers.update(baskets_of("ann", list(range(1000, 3000)), START))
    assert n_counted(customers) == k + 2000


def test_an_order_that_comes_twice_at_once_counts_once() -> None:
    law, times = shop(), [START, START, START + DAY]
    twice = baskets_of("ann", ["7", "7", "7"], times, items=[1, 1, 1])  # the number begins anew each day
    with pytest.warns(DataWarning, match="1 order of 3 had been counted"):
        assert n_counted(Customers(law, STEADY).update(twice)) == 2
    with pytest.warns(DataWarning, match="1 order of 2 had been counted"):
        night = Customers(law, STEADY).update(twice[:2])
    assert n_counted(night.update(twice[2:])) == 2  # nights apart, too
    with pytest.warns(DataWarning) as told:
        assert n_counted(Customers.fit(law, Orders(twice.baskets, twice.customers))) == 1
    assert "2 orders of 3" in str(told[0].message)


def test_what_cannot_be_told_is_refused() -> None:
    law = shop()
    customers = Customers(law, STEADY).update(baskets_of("ann", [None, None], START, items=[1, 2]))
    for orders in (baskets_of("ann", [None], START, items=[3]), baskets_of("ann", ["3"], START)):
        with pytest.raises(
            InvalidInputError, match="must have ids, now and before: 1 of 1 have the customer and time of"
        ):
            customers.update(orders)
    later = customers.update(baskets_of("ann", ["3"], START + DAY))
    with pytest.raises(InvalidInputError, match="must have ids"):
        later.update(baskets_of("ann", [None], START + DAY, items=[4]))
    assert n_counted(later.update(baskets_of("ann", ["4"], START + DAY))) == 4
    untimed = Customers(law, STEADY).update(baskets_of("ann", [None], items=[1]))
    with pytest.raises(InvalidInputError, match="have the customer of a counted order"):
        untimed.update(baskets_of("ann", [2]))
    with pytest.raises(InvalidInputError, match="must have no times, as earlier orders of the same customers"):
        untimed.update(baskets_of("ann", [2], START))
    with pytest.raises(InvalidInputError, match="must have times, as earlier orders of the same customers"):
        later.update(baskets_of("ann", [9]))


def test_files_of_0_2_do_not_know_the_orders_of_the_last_time(tmp_path: Path) -> None:
    path = tmp_path / "old.customers"
    path.write_bytes(zlib.decompress(base64.b85decode(OF_0_2)))
    law = LowRankKernel(np.eye(3), np.diag([1.0, 0.5, 0.5]), labels=["milk", "rye", "tea"])
    with pytest.warns(UncheckedModelWarning):
        old = Customers.load(path, law)

    def orders(time: str) -> Orders:
        return Orders(Baskets.from_lists([["milk"]], labels=law.labels, basket_ids=["2"]), ["ann"], [time])

    with pytest.warns(DataWarning, match="1 order of 1 had been counted"):
        assert old.update(orders("2026-03-08")).layers is old.layers
    with pytest.raises(
        InvalidInputError, match=r"Versions before 0.3 did not keep ids.* Leave out orders that are not"
    ):
        old.update(orders("2026-03-09"))
    new = old.update(orders("2026-03-10"))
    assert set(new.factors("ann")) == {"milk", "rye", "tea"}
    with pytest.warns(DataWarning, match="1 order of 1 had been counted"):
        assert new.update(orders("2026-03-10")).layers is new.layers


def test_updates_without_anything_new() -> None:
    law = shop()
    customers = Customers(law).update(orders_of(law))
    none = pd.DataFrame({"basket": [], "item": [], "customer": [], "time": []})
    nothing = Orders(Baskets.from_lists([]), np.empty(0, str), np.empty(0, "datetime64[s]"))
    assert customers.update(nothing).layers is customers.layers
    assert customers.update(none).layers is customers.layers
    foreign = pd.DataFrame({"basket": [1], "item": ["whisky"], "customer": ["c1"], "time": ["2030-01-01"]})
    with (
        pytest.warns(DataWarning, match="skipped 1 unknown"),
        pytest.warns(DataWarning, match="no order has both a customer and an item"),
    ):
        assert customers.update(foreign).layers is customers.layers
    anonymous = pd.DataFrame({"basket": [1], "item": ["item 1"], "customer": [None], "time": ["2030-01-01"]})
    with pytest.warns(DataWarning, match="no order has"):
        assert len(customers.update(anonymous)) == len(customers)
    new = pd.DataFrame({"basket": [1], "item": ["item 1"], "customer": ["new"], "time": ["2030-01-01"]})
    assert "new" not in customers
    assert "new" in customers.update(new)
    assert len(customers.update(new)) == len(customers) + 1
    with pytest.raises(InvalidInputError, match="row 1: 'soon'"):
        customers.update(new.assign(time="soon"))


def test_a_forgotten_customer_is_gone(tmp_path: Path) -> None:
    law = shop()
    customers = Customers(law, HABITS[0]).update(orders_of(law))
    path = tmp_path / "shop.customers"
    customers.save(path)
    assert b"c17" in path.read_bytes()
    without = Customers.load(path, law).forget("c17")
    assert "c17" not in without
    assert len(without) == len(customers) - 1
    assert without.law("c17") is law
    without.save(path)
    assert b"c17" not in path.read_bytes()
    loaded = Customers.load(path, law)
    assert_same(loaded, customers, [f"c{u}" for u in range(40) if u != 17])
    with pytest.raises(InvalidInputError, match="nothing to forget"):
        loaded.forget("c17")
    with pytest.warns(DataWarning, match="counted already"):
        assert loaded.forget("c3").update(orders_of(law, seed=9)).factors("c3")  # forgetting is no ban


def test_another_law_of_the_shop(tmp_path: Path) -> None:
    law, labels = shop(), [f"item {a}" for a in range(8)]
    customers = Customers(law, HABITS[0]).update(orders_of(law))
    customers.save(tmp_path / "a")
    moved = Mixture.tied(
        law.odds[:, ::-1], law.base.X[::-1], law.base.W, law.weights, labels=[*labels[:1:-1], "new 1", "new 0"]
    )
    for found in (customers.with_law(moved), Customers.load(tmp_path / "a", moved)):
        assert set(found.factors("c1")) == {a for a in customers.factors("c1") if a not in ("item 0", "item 1")}
        found.save(tmp_path / "b")
        again = Customers.load(tmp_path / "b", moved)
        assert again.factors("c1") == found.factors("c1")
        assert_same(again.update(orders_of(law, seed=3, n=5)[:0]), found, ["c1", "c2"])
    with pytest.raises(InvalidInputError, match="another shop"):
        customers.with_law(
            Mixture.tied(law.odds, law.base.X, law.base.W, law.weights, labels=[f"x{a}" for a in range(8)])
        )
    with pytest.raises(InvalidInputError, match="8 items with labels; it has 8 without"):
        customers.with_law(Mixture.tied(law.odds, law.base.X, law.base.W, law.weights))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    law = shop()
    path = tmp_path / "shop.customers"
    Customers(law, HABITS[0]).update(orders_of(law)).save(path)
    whole = path.read_bytes()
    for data, why in [(whole[:-9], "truncated"), (b"", "truncated"), (whole.replace(b"ndpp-customers", b"ndpp-customerz"), "does not hold"),
                      (whole.replace(b'"format_version":"2"', b'"format_version":"9"'), "version 9"),
                      (whole.replace(b'"format_version":"2"', b'"format_version":"1"'), "unknown fields"),
                      (whole.replace(b'\\"clock\\"', b'\\"clack\\"'), "does not match its digest"),
                      (whole.replace(b"item 3", b"item 9"), "does not match its digest"),
                      (whole[:-1] + bytes([whole[-1] ^ 1]), "ids are not ascending|ids does not match its checksum")]:  # fmt: skip
        assert data != whole
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match=why):
            Customers.load(path, law)
    with pytest.raises(FileNotFoundError):
        Customers.load(tmp_path / "none", law)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("counts", np.nan, "counts are not finite"),
        ("counts", -1.0, "counts are not finite"),
        ("mass", np.inf, "mass are not finite"),
        ("missions", -0.5, "missions are not finite"),
        ("items", 8, "items are not those"),
        ("items", -2, "items are not those"),
        ("indptr", 10**9, "wrong length|not ascending"),
        ("ids", b"zzz", "ids are not ascending"),
        ("ids", b"\xff", "utf-8"),
        ("habits", [np.nan, False, 2.0, 0.7], "header is damaged"),
        ("habits", [0.8, False, 2.0, 0.7, 0, 0, 0, 0, 0], "header is damaged"),
        ("labels", ["item 1"] * 8, "header is damaged"),
        ("clock", 2**70, "header is damaged"),
        ("n_items", "eight", "damaged"),
    ],
)
def test_what_no_customer_can_have_is_refused(tmp_path: Path, name: str, value: Any, why: str) -> None:
    """In files of older versions, without a digest, and in files whose digest and checksums were made anew."""
    law, path = shop(), tmp_path / "shop.customers"
    customers = Customers(law, HABITS[0]._replace(mission_prior=2.0)).update(orders_of(law))
    store = customers.layers.base
    if name in store._fields:
        array = getattr(store, name).copy()
        array[(-1 if value == b"\xff" else 1,) * array.ndim] = value
        store = store._replace(**{name: array})
        layers = Layers(store, CustomerCounts.blank(np.empty(0, "S1"), 3))
        if name not in ("ids", "indptr"):  # with those, nothing can be written
            replace(customers, layers=layers).save(path)
            with pytest.raises(ModelFileError, match=why):
                Customers.load(path, law)
        write_version_1(path, store)
    else:
        write_version_1(path, store, **{name: value})
    with pytest.raises(ModelFileError, match=why):
        Customers.load(path, law)


def test_files_of_ndpp_0_2_are_read(tmp_path: Path) -> None:
    path = tmp_path / "old.customers"
    path.write_bytes(zlib.decompress(base64.b85decode(OF_0_2)))
    law = LowRankKernel(np.eye(3), np.diag([1.0, 0.5, 0.5]), labels=["milk", "rye", "tea"])
    with pytest.warns(UncheckedModelWarning):
        found = Customers.load(path, law)
    assert found.factors("ann") == pytest.approx({"rye": 1.3256029758460395, "tea": 1.150263617777015})
    found.save(path)
    again = Customers.load(path, law)
    assert_same(again, found, ["ann", "bob"])


def test_files_have_one_writer_and_survive_a_failed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ndpp._atomic import one_writer
    from ndpp.customers import store

    law = shop()
    path = tmp_path / "shop.customers"
    customers = Customers(law, HABITS[0]).update(orders_of(law))
    customers.save(path)
    whole = path.read_bytes()
    with one_writer(path), pytest.raises(BusyFileError):
        customers.save(path)
    monkeypatch.setattr(store.Layers, "rows", lambda self, at: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        customers.save(path)
    assert path.read_bytes() == whole
    assert [file.name for file in tmp_path.iterdir()] == ["shop.customers"]


def test_a_file_is_read_where_it_is_needed(tmp_path: Path) -> None:
    """Memory does not grow with the number of customers, but for eight bytes or so each while a file is written."""
    law, n, own = shop(100), 30_000, 40
    counts = np.random.default_rng(0).uniform(0.1, 3.0, n * own).astype(np.float32)
    base = CustomerCounts(
        np.array([b"%06d" % i for i in range(n)]), np.arange(n + 1) * own, np.tile(np.arange(own, dtype=np.int32), n), counts,
        np.full(n, 5.0, np.float32), np.full(n, 1_767_225_600), np.arange(n + 1), np.ones(n, np.uint64), np.zeros((n, 0), np.float32),
    )  # fmt: skip
    path = tmp_path / "shop.customers"
    Customers(law, layers=Layers(base, CustomerCounts.blank(np.empty(0, "S1")))).save(path)
    size = path.stat().st_size
    law.inclusion_probabilities()
    tracemalloc.start()
    customers = Customers.load(path, law)
    factors = customers.factors("012345")
    one = Orders(Baskets.from_lists([[50]], labels=law.labels), np.array(["012345"]), np.array([START]))
    customers = customers.update(one)
    read = tracemalloc.get_traced_memory()[1]
    customers.save(path)
    written = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read < 0.05 * size
    assert written < 0.6 * size
    again = Customers.load(path, law)
    assert set(again.factors("012345")) == {*factors, "item 50"}
    np.testing.assert_array_equal(again.layers.base.counts[: own * 12345], counts[: own * 12345])


@pytest.mark.parametrize("bad", ["", "x" * 300, "a\0"])
def test_ids_that_cannot_be_kept(bad: str) -> None:
    law = shop()
    with pytest.raises(InvalidInputError, match="1 to 256 bytes"):
        Customers(law).law(bad)


def test_ids_that_utf_8_cannot_hold() -> None:
    law, name = shop(), "half a pair \ud800"
    customers = Customers(law).update(baskets_of("ann", [1], START))
    lines = pd.DataFrame({"basket": [2], "item": ["item 1"], "customer": [name], "time": ["2030-01-01"]}, dtype=object)
    for ask in (
        lambda: customers[name],
        lambda: name in customers,
        lambda: customers.forget(name),
        lambda: customers.recommend_many(["ann", name]),
        lambda: customers.update(baskets_of(name, [2], START)),
        lambda: customers.update(lines),
        lambda: Customers.fit(law, baskets_of(name, [2], START)),
    ):
        with pytest.raises(InvalidInputError, match="id must be text in UTF-8"):
            ask()


def test_ids_of_any_length_and_script(tmp_path: Path) -> None:
    law = shop()
    names = ["ä", "longer than all others", "7", "77", "日本"]
    one = Orders(
        Baskets.from_lists([[0], [1], [2], [3], [4]], labels=law.labels), np.array(names), np.arange(5) * DAY + START
    )
    customers = Customers(law).update(one[:1]).update(one[1:])
    customers.save(tmp_path / "c")
    for found in (customers, Customers.load(tmp_path / "c", law)):
        assert [list(found.factors(name)) for name in names] == [[f"item {a}"] for a in range(5)]
        assert "longer than all others!" not in found
        assert "longer" not in found
        assert 7 in found


# ---- fitting --------------------------------------------------------------------------------------------------------


def test_fit_recovers_what_customers_do() -> None:
    """Customers who repeat themselves have a high strength; customers who do not gain nothing."""
    law = shop(30)
    loyal = Customers.fit(law, orders_of(law, 1200, 150))
    assert loyal.report["gain"] > 0.2
    assert loyal.report["recall@10"][0] > loyal.report["recall@10"][1] + 0.05
    assert f"recall@10 {loyal.report['recall@10'][0]:.3f}" in repr(loyal)
    rng, p = np.random.default_rng(0), law.inclusion_probabilities()
    sets = [np.flatnonzero(rng.random(30) < p) for _ in range(1200)]
    same = orders_of(law, 1200, 150)
    fickle = Customers.fit(law, Orders(Baskets.from_lists(sets, labels=law.labels), same.customers, same.times))
    assert fickle.report["gain"] < 0.1 < loyal.report["gain"]
    assert json.loads(json.dumps(loyal.report)) == loyal.report
    again = Customers.fit(law, orders_of(law, 1200, 150))
    assert again.habits == loyal.habits


def test_fit_prefers_the_right_clock() -> None:
    """What customers like changes on a date, after which some come often and some rarely: only the calendar tells."""
    law, rng = shop(40), np.random.default_rng(0)
    who, when, sets = [], [], []
    for u in range(400):
        n_old, n_new = rng.integers(1, 12, 2)
        likes = rng.choice(40, (2, 4), replace=False)
        for k in range(n_old + n_new):
            is_new = k >= n_old
            day = 200 + 150 * rng.random() if is_new else 100 * rng.random()
            who.append(f"c{u}")
            when.append(START + np.timedelta64(int(day * 86400), "s"))
            sets.append([a for a in likes[int(is_new)] if rng.random() < 0.8] or [int(likes[0][0])])
    orders = Orders(Baskets.from_lists(sets, labels=law.labels), np.array(who), np.array(when))
    assert Customers.fit(law, orders).habits.by_time


def test_each_target_is_foretold_from_the_baskets_before_it() -> None:
    sets = [[0, 1], [1], [1, 2, 3, 4], [0], [2], [3], [4]]  # five of ann, two of bob
    trips = Trips(np.array([0] * 5 + [1] * 2), Baskets.from_lists(sets), None, np.ones(7))
    cases, habits = Cases.of(trips, np.array([0, 1])), Habits(0.5, False, 1.0, 1.0, evenness=0.5)
    assert [trips.baskets[i].tolist() for i in cases.target] == [[1, 2, 3, 4], [0], [2], [4]]
    found = dict(zip(zip(cases.owners.tolist(), cases.items.tolist()), cases.shares(habits).tolist()))
    ages = {0: [(0, 2**-0.5 / 2), (1, 2**-0.5 / 2 + 1)], 1: [(0, 2**-0.5 / 4), (1, 2**-0.5 / 4 + 0.5 + 0.5)]}
    for case, expected in ages.items():
        mass = [2**-0.5 / 2 + 1, 2**-0.5 / 4 + 0.5 + 0.5][case] + 1.0
        for item, count in expected:
            assert found[case, item] == pytest.approx(count / mass)
    assert {item for case, item in found if case == 3} == {3}
    plain = cases.chances(lambda part: np.tile([0.5, 0.4, 0.3, 0.2, 0.1], (part.stop - part.start, 1)))
    recall, ndcg = cases.listed(habits, plain)
    assert recall.tolist() == [1.0] * 4  # of five items all are listed
    assert ndcg[3] == pytest.approx(1 / np.log2(6))  # 3, 0, 1, 2, 4
    by_hand = sum(np.log([0.5, 0.6, 0.7, 1 - 0.6, 0.1]))  # bob: α h of item 3 is 1/2
    assert cases.log_likelihood(habits, plain)[3] == pytest.approx(by_hand)


def test_small_baskets_count_for_more_where_they_tell_more() -> None:
    """Customers buy a few favourites one or two at a time, and now and then fifteen things that they will not buy again."""
    n_items, rng = 150, np.random.default_rng(0)
    law = Mixture.tied(np.full((1, n_items), 0.02), np.full((n_items, 1), 1e-3), [[1.0]], [1.0],
                       labels=[f"item {a}" for a in range(n_items)]).without_empty()  # fmt: skip
    who, sets = [], []
    for u in range(200):
        favourites = rng.choice(n_items, 5, replace=False)
        for _ in range(6):
            is_large = rng.random() < 0.4
            who.append(f"c{u}")
            sets.append(
                rng.choice(n_items, 15, replace=False) if is_large else rng.choice(favourites, 2, replace=False)
            )
    orders = Orders(Baskets.from_lists(sets, labels=law.labels), np.array(who))
    fitted = Customers.fit(law, orders)
    assert fitted.habits.evenness > 0
    assert f"evenness {fitted.habits.evenness:.3g}" in repr(fitted)
    same = Cases.of(Trips.of(orders)[1], np.arange(200))
    plain = same.chances(lambda part: np.tile(law.inclusion_probabilities(), (part.stop - part.start, 1)))
    lists, likely = (
        [measure(habits) for habits in (fitted.habits, fitted.habits._replace(evenness=0.0))]
        for measure in (
            lambda habits: same.listed(habits, plain)[1].mean(), lambda habits: same.log_likelihood(habits, plain).mean(),
        )
    )  # fmt: skip
    assert lists[0] > lists[1] + 0.02
    assert likely[0] > likely[1] + 0.02


def test_files_of_before_evenness_are_read(tmp_path: Path) -> None:
    law, path = shop(), tmp_path / "shop.customers"
    customers = Customers(law, HABITS[0]).update(orders_of(law))
    write_version_1(path, customers.layers.base, habits=HABITS[0][:-1])
    with pytest.warns(UncheckedModelWarning, match="written by ndpp 0.2, without a digest"):
        found = Customers.load(path, law)
    assert found.habits == HABITS[0]
    assert_same(found, customers, ["c1", "c2"])


def test_own_missions_are_kept_where_they_gain() -> None:
    """Half of the customers shop on one mission and half on the other, for different items each time."""
    odds = np.full((2, 60), 1e-3)
    odds[0, :30] = odds[1, 30:] = 0.25
    law = Mixture.tied(
        odds, np.full((60, 1), 1e-3), [[1.0]], [0.5, 0.5], labels=[f"item {a}" for a in range(60)]
    ).without_empty()
    n, rng = 400, np.random.default_rng(0)
    who = rng.integers(80, size=n)
    parts = [[(30 * c + rng.choice(30, 6, replace=False)).tolist() for _ in range(n)] for c in (0, 1)]
    when = START + DAY * np.arange(n)
    orders = Orders(Baskets.from_lists([parts[u % 2][i] for i, u in enumerate(who)], labels=law.labels), who, when)
    customers = Customers.fit(law, orders)
    assert customers.report["own missions"]["kept"]
    assert customers.report["own missions"]["gain"] > 0.5
    assert "own missions" in repr(customers)
    items = [int(label.split()[1]) for label in customers.next_basket("0").labels or ()]
    assert np.mean(np.array(items) < 30) > 0.8
    by_day = customers.with_law(
        law.with_context({"weekday": ("Monday", "Sunday")}, np.array([[2.0, -2.0], [-2.0, 2.0]]))
    )
    monday, sunday = (by_day.next_basket("new", n=5, time=day).items.mean() for day in ("2026-01-05", "2026-01-11"))
    assert monday < 30 < sunday


def test_contexts_of_older_files_are_dropped_and_said(tmp_path: Path) -> None:
    """Version 0.2 wrote how missions depend on weekdays and seasons; a law knows that now."""
    law = shop()
    path, customers = tmp_path / "shop.customers", Customers(law, HABITS[0]).update(orders_of(law))
    write_version_1(path, customers.layers.base, contexts={"season": {}})
    with (
        pytest.warns(UncheckedModelWarning),
        pytest.warns(
            DataWarning, match=r"depend on season, which is left out: a law knows that now. .*context=\['season'\]"
        ),
    ):
        found = Customers.load(path, law)
    assert_same(found, customers, ["c1", "c2"])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_customer_is_a_condition(kind: Kind) -> None:
    """Weights, and factors within components whose weights stay, over the law of the customers or over another."""
    entry, history = entry_of(kind, True), [[0, 2], [2], [1, 2, 4]]
    customers = customer_of(entry, history)
    assert customers["bob"].over(entry.law) == (None, None)
    tilted = entry.law.tilt({0: 2.0, 3: 0.5})
    for law in (entry.law, tilted):
        weights, factors = customers["ann"].over(law)
        assert weights is None
        assert factors is not None
        own = customers.with_law(law).factors("ann")
        named = range(6) if law.labels is None else law.labels
        np.testing.assert_allclose(factors, [own.get(name, 1.0) for name in named])
    same = customers.person(history=history).over(entry.law)[1]
    np.testing.assert_allclose(np.asarray(same), np.asarray(customers["ann"].over(entry.law)[1]), rtol=1e-6)


def test_few_customers_get_the_usual_habits(tmp_path: Path) -> None:
    law = shop()
    orders = orders_of(law, 60, 15)
    frame = orders.baskets.to_frame("pandas")
    frame["customer"] = np.repeat(orders.customers, orders.baskets.sizes)
    frame["time"] = np.repeat(np.asarray(orders.times), orders.baskets.sizes)
    frame.to_csv(tmp_path / "orders.csv", index=False)
    frame.to_parquet(tmp_path / "orders.parquet")
    with pytest.warns(DataWarning, match="too few to fit habits"):
        expected = Customers.fit(law, orders)
    assert expected.habits == Habits()
    assert expected.report == {"fitted": False}
    for source in (frame, tmp_path / "orders.csv", tmp_path / "orders.parquet"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            assert_same(Customers.fit(law, source), expected, [f"c{u}" for u in range(15)])
    with pytest.raises(InvalidInputError, match="no column 'client'"):
        Customers.fit(law, frame, customer="client")
    with pytest.raises(InvalidInputError, match="must say who bought"):
        Customers.fit(law, Orders(orders.baskets))
    with pytest.raises(InvalidInputError, match="validation_fraction must be between 0 and 1"):
        Customers.fit(law, orders, validation_fraction=1)
    with pytest.raises(InvalidInputError, match="must be over the 8 items"):
        Customers.fit(law, Orders(Baskets.from_lists([[11]]), np.array(["ann"])))
