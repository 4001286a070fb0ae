"""What customers learn from each other: laws against enumeration, the closed form against a dense one, fits, and files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

import law_table
from law_table import BASES, KINDS, Kind
from ndpp import Baskets, Customers, Mixture
from ndpp.baskets.orders import Orders
from ndpp.customers import Habits
from ndpp.customers.cases import Cases
from ndpp.customers.fitting import Trial
from ndpp.customers.others import LEAST, Others
from ndpp.customers.people import Missions
from ndpp.customers.pulls import Learner
from ndpp.customers.store import Trips, encoded
from ndpp.errors import ModelFileError
from ndpp.inference.ranking import Rule
from ndpp.laws.header import read_raw

HABITS, HISTORY = Habits(0.8, False, 2.0, 0.7), [[0, 2], [2], [1, 2, 4]]


def others_of(n_items: int, scale: float = 0.2) -> Others:
    rng = np.random.default_rng(5)
    shapes = (n_items, 2), (2, n_items), (n_items,)
    return Others(*(np.asarray(scale * rng.normal(size=shape), np.float32) for shape in shapes))


def chances_of(p: Any, others: Others, history: list[list[int]]) -> tuple[Any, Any]:
    """p′ and p″ of all items, by loops."""
    weights = [HABITS.decay**age for age in reversed(range(len(history)))]
    h = np.array([sum(w for w, basket in zip(weights, history) if a in basket) for a in range(len(p))])
    habit = 1 - (1 - p) * (1 - HABITS.strength * h / (sum(weights) + HABITS.prior))
    vector = sum(h[a] * others.items[a] for a in range(len(p))) / np.sqrt((h**2).sum())
    moved = habit + others.shift + vector @ others.pulls
    return habit, np.where(p > 0, np.clip(moved, LEAST * habit, 1 - 1e-9), 0.0)


def of_ann(law: Any, others: Others | None) -> Customers:
    named = Baskets.from_lists(HISTORY, n_items=law.n_items)
    orders = Orders(Baskets(named.indptr, named.indices, law.n_items, law.labels), np.full(len(HISTORY), "ann"))
    return Customers(law, HABITS, others=others).update(orders)


def independent(p: Any, labels: Any = None) -> Mixture:
    made: Mixture = Mixture.tied((p / (1 - p))[None], np.full((len(p), 1), 1e-9), [[1.0]], [1.0], labels=labels)
    return made


@pytest.mark.parametrize("nonempty", [False, True], ids=["any", "nonempty"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_laws_are_the_enumerated_ones(kind: Kind, nonempty: bool) -> None:
    """Own items have the factor that makes them as likely as habits say; then all odds are times those of p″ over those of p′."""
    entry = (law_table.nonempty_entries if nonempty else law_table.entries)(kind, BASES[0])[0]
    truth, w, others = entry.truth, entry.truth.weights, others_of(entry.truth.n_items)
    within = np.array([truth.given_component[:, truth.containing([a])].sum(axis=1) for a in range(truth.n_items)])
    habit, moved = chances_of(within @ w, others, HISTORY)
    own = np.ones(truth.n_items)
    for a in {a for basket in HISTORY for a in basket}:
        if within[a] @ w > 0:
            own[a] = brentq(
                lambda s, a=a: w @ (s * within[a] / (1 - within[a] + s * within[a])) - habit[a], 0.5, 1e6, xtol=1e-13
            )
    with np.errstate(divide="ignore", invalid="ignore"):
        right, wrong = moved * (1 - habit) / (habit * (1 - moved)), moved / habit
    found = np.exp(of_ann(entry.law, others).law("ann").log_probs([list(S) for S in truth.sets]))

    def law_of(pulls: Any) -> Any:
        factors = own * np.where(habit > 0, pulls, 1.0)
        tilted = truth.given_component * np.array([np.prod(factors[list(S)]) for S in truth.sets])
        return w @ (tilted / tilted.sum(axis=1, keepdims=True))

    np.testing.assert_allclose(found, law_of(right), rtol=1e-4, atol=1e-8)  # counts and factors are in single precision
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(found, law_of(wrong), rtol=1e-4, atol=1e-8)


def test_chances_are_those_of_the_formula() -> None:
    law, others = independent(np.array([0.3, 0.2, 0.1, 0.25, 0.05])), others_of(5)
    customers = of_ann(law, others)
    _, moved = chances_of(law.inclusion_probabilities(), others, HISTORY)
    best = customers.next_basket("ann", n=5)
    np.testing.assert_allclose(best.scores, moved[best.items], rtol=1e-5)
    assert best.items.tolist() == np.argsort(-moved).tolist()
    np.testing.assert_allclose(customers.law("ann").inclusion_probabilities(), moved, rtol=1e-5)
    many = customers.recommend_many(["ann", "bob"], n=5)
    assert many[0] is not None
    assert many[0].items.tolist() == best.items.tolist()
    assert customers.law("bob") is law
    assert customers["bob"].over(law) == (None, None)
    plain = of_ann(law, None).next_basket("ann", n=5)
    assert plain.items.tolist() != best.items.tolist()  # or the rest would show nothing


def test_begun_baskets_of_independent_items_have_the_same_chances() -> None:
    customers = of_ann(independent(np.array([0.3, 0.2, 0.1, 0.25, 0.05])), others_of(5))
    empty, begun = customers.next_basket("ann", n=5), customers.recommend("ann", [3], n=5, damping=0.0)
    chances = dict(zip(empty.items.tolist(), empty.scores.tolist()))
    np.testing.assert_allclose(begun.scores, [chances[a] for a in begun.items.tolist()], rtol=1e-5)
    many = customers.recommend_many(["ann"], Baskets.from_lists([[3]], n_items=5), n=5, damping=0.0)
    assert many[0] is not None
    np.testing.assert_allclose(many[0].scores, begun.scores, rtol=1e-9)


@pytest.mark.parametrize("mission_prior", [None, 3.0])
def test_missions_without_what_is_out_of_stock_are_those_of_the_law(mission_prior: float | None) -> None:
    """Several own items, and others' items, where items of a mission are independent: with others or without, one customer or two."""
    odds = np.random.default_rng(0).uniform(0.1, 0.9, (3, 5))
    whole: Mixture = Mixture.tied(odds, np.full((5, 1), 1e-9), [[1.0]], [0.5, 0.2, 0.3])
    gone, names = np.array([0, 2, 3]), ["ann", "bob"]
    law = whole.exclude(gone)
    rule = Rule.of(law, n=2, damping=0.0).without(gone, whole)
    for others in (None, others_of(5)):
        habits = HABITS._replace(mission_prior=mission_prior)
        customers = Customers(whole, habits, others=others).update(
            Orders(Baskets.from_lists([*HISTORY, [3, 4]], n_items=5), ["ann"] * 3 + ["bob"])
        )
        expected = [whole.under(whole.ask(customer=customers[name], exclude=gone)).weights for name in names]
        found = customers._people(customers._state(encoded(names)), None).weights_left(rule)
        assert found is not None
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert np.abs(found[0] - law.weights).max() > 1e-3


def groups(seed: int = 0, n_items: int = 40, n_customers: int = 300) -> Orders:
    """Customers of two kinds, who hardly buy anything twice, but of one half of the catalogue each."""
    rng = np.random.default_rng(seed)
    halves = [rng.permutation(n_items // 2) + n_items // 2 * (u % 2) for u in range(n_customers)]
    sets = [half[3 * t : 3 * t + 3].tolist() for half in halves for t in range(5)]
    return Orders(Baskets.from_lists(sets, n_items=n_items), np.repeat([f"c{u}" for u in range(n_customers)], 5))


def test_the_closed_form_is_penalised_least_squares() -> None:
    law, (_, trips) = independent(np.linspace(0.02, 0.15, 40)), Trips.of(groups())
    cases, recency, penalty = Cases.of(trips, np.arange(300)), 0.3, 30.0
    learner = Learner(Trial(cases, Missions(law, trips)), HABITS, (recency,))
    found = learner.learned(HABITS, recency, penalty)
    counts = cases.counts(HABITS).toarray()
    unit = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    p = np.tile(law.inclusion_probabilities(), (len(counts), 1))
    mass = cases.mass(HABITS)[:, None]
    habit = 1 - (1 - p) * (1 - HABITS.strength * counts / (mass + HABITS.prior))
    rest, w = cases.last.baskets.to_csr().toarray() - habit, recency ** np.tile([2, 1, 0], 300)
    vectors = unit @ found.items
    centred, mean = vectors - np.average(vectors, axis=0, weights=w), np.average(habit, axis=0, weights=w)
    usual = (mean**2).sum() / mean.sum()

    def moved(power: float) -> Any:
        pulls = [
            np.linalg.solve(
                centred.T @ (w[:, None] * centred) + penalty * (usual / mean[a]) ** power * np.eye(vectors.shape[1]),
                centred.T @ (w * (rest[:, a] - np.average(rest[:, a], weights=w))),
            )
            for a in range(40)
        ]
        return habit + np.average(rest, axis=0, weights=w) + centred @ np.array(pulls).T

    got = found.moved(habit, cases.counts(HABITS))
    np.testing.assert_allclose(got, np.clip(moved(1.0), LEAST * habit, None), rtol=1e-3, atol=1e-6)
    with pytest.raises(AssertionError):  # one penalty for all items is another model
        np.testing.assert_allclose(got, np.clip(moved(0.0), LEAST * habit, None), rtol=1e-3, atol=1e-6)
    basis = learner.items
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-10)


def test_lists_are_those_of_all_items_ranked() -> None:
    (_, trips), rng = Trips.of(groups()), np.random.default_rng(2)
    cases = Cases.of(trips, np.arange(0, 300, 3))
    p = rng.choice([0.0, 0.05, 0.1, 0.2], (len(cases.target), 40))  # with ties
    chances = cases.chances(lambda part: p[part])
    raised, bought = p.copy(), cases.last.baskets.to_csr().toarray() > 0
    raised[cases.owners, cases.items] = HABITS.raised(p[cases.owners, cases.items], cases.shares(HABITS))
    logs = np.log(np.clip(np.where(bought, raised, 1 - raised), 1e-12, 1.0)).sum(axis=1)
    np.testing.assert_allclose(cases.log_likelihood(HABITS, chances), logs, rtol=1e-9)
    expected = np.array([bought[i, np.argsort(-row, kind="stable")[:10]].sum() for i, row in enumerate(raised)]) / 3
    never = cases.log_likelihood(HABITS._replace(strength=0.0), chances)
    assert not np.allclose(never, logs)
    unique = [len(set(row[np.argsort(-row)[9:11]])) == 2 for row in raised]  # of equal chances, any may be listed
    np.testing.assert_array_equal(cases.listed(HABITS, chances)[0][unique], expected[unique])
    assert np.mean(unique) > 0


def test_missions_are_the_same_kept_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    law = Mixture.tied(
        np.vstack([np.full(40, 0.05), np.linspace(0.01, 0.3, 40)]), np.full((40, 1), 1e-9), [[1.0]], [0.5, 0.5]
    )
    _, trips = Trips.of(groups(n_customers=10))
    missions, orders = Missions(law, trips), np.array([[7, 3, 5], [3, 9, 7]])
    kept = [missions.of(some) for some in orders]
    monkeypatch.setattr("ndpp.customers.people.MAX_KEPT", 0)
    for some, found in zip(orders, kept):
        np.testing.assert_allclose(found, missions.of(some), rtol=1e-6)
    assert np.ptp(np.concatenate(kept)) > 0.01


def test_others_are_learned_from_where_that_gains() -> None:
    orders, law = groups(), independent(np.full(40, 0.075))
    customers = Customers.fit(law, orders)
    assert customers.others is not None
    assert customers.report["others"]["kept"]
    assert "with others" in repr(customers)
    listed = [customers.next_basket(f"c{u}", n=5).items for u in range(20)]
    assert np.mean([(items >= 20) == u % 2 for u, items in enumerate(listed)]) > 0.9
    rng = np.random.default_rng(1)
    sets = [rng.choice(40, 3, replace=False) for _ in range(len(orders))]  # negative control: nobody is like anybody
    assert Customers.fit(law, Orders(Baskets.from_lists(sets, n_items=40), orders.customers)).others is None


def test_own_missions_and_others_go_together() -> None:
    """With missions, the chances from which others take are those of each case."""
    law = Mixture.tied(
        np.vstack([np.full(40, 0.05), np.linspace(0.01, 0.3, 40)]), np.full((40, 1), 1e-9), [[1.0]], [0.5, 0.5]
    )
    habits, (_, trips) = HABITS._replace(mission_prior=2.0), Trips.of(groups())
    trial = Trial(Cases.of(trips, np.arange(300)), Missions(law, trips))
    trial.learn([habits])
    others = Learner(trial, habits, (0.3,)).learned(habits, 0.3, 30.0)
    missions, within = trial.mixed(habits)
    assert missions.shape == (900, 2)
    found = trial.moved(habits, others)
    chances = (missions @ within).astype(np.float64)
    at = trial.cases.owners, trial.cases.items
    chances[at] = habits.raised(chances[at], trial.cases.shares(habits))
    expected = others.moved(chances, trial.cases.counts(habits))
    np.testing.assert_allclose(found.own, expected[at], rtol=1e-6)


def test_files_keep_what_others_buy(tmp_path: Path) -> None:
    labels = [f"item {a}" for a in range(5)]
    law, path = independent(np.array([0.3, 0.2, 0.1, 0.25, 0.05]), labels), tmp_path / "shop.customers"
    customers = of_ann(law, others_of(5))
    customers.save(path)
    assert read_raw(path)[0]["__metadata__"]["format_version"] == "3"
    loaded = Customers.load(path, law)
    for law_then, place in ((law, np.arange(5)), (independent(np.full(6, 0.1), ["new", *labels]), np.arange(1, 6))):
        found = Customers.load(path, law_then)
        moved = np.zeros(law_then.n_items)
        moved[place] = customers.others.shift if customers.others is not None else np.nan
        assert found.others is not None
        np.testing.assert_array_equal(found.others.shift, moved)
        np.testing.assert_array_equal(
            found.others.items[place], customers.others.items if customers.others is not None else 0
        )
    night = Orders(Baskets.from_lists([["item 3"]], labels=labels), ["bob"])
    assert loaded.update(night).others is loaded.others
    assert loaded.update(night).factors("ann") == loaded.factors("ann") == customers.factors("ann")
    replace(customers, others=None).save(path)  # which versions before this one read
    assert read_raw(path)[0]["__metadata__"]["format_version"] == "2"
    wrong = others_of(5)
    for bad in (wrong._replace(shift=wrong.shift * np.float32(np.nan)), wrong._replace(pulls=wrong.pulls[:, :4])):
        replace(customers, others=bad).save(path)
        with pytest.raises(ModelFileError, match="others_"):
            Customers.load(path, law)
