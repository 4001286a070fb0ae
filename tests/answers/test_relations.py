"""Complements and substitutes are what their definition says, by enumeration, and what was planted is found."""

from __future__ import annotations

from itertools import combinations
from math import sqrt

import numpy as np
import pytest

import ndpp
from kernels import data_folder
from ndpp import Baskets, LowRankKernel, Mixture, answers
from ndpp.datasets import load_baskets

SHOP = ["red cup", "blue cup", "saucer", "milk", "newspaper", "petrol"]


def shop(avoidance: float = 0.95, share: float = 0.3) -> Mixture:
    """Trips for crockery, with a red or a blue cup, everyday trips, and petrol. Anyone buys milk and newspapers on both."""
    crockery = np.diag([1.0, 1.0, 1.5, 1.5, 1.2, 0.02])
    crockery[0, 1] = crockery[1, 0] = avoidance
    kinds = crockery, np.diag([0.02, 0.02, 0.02, 1.5, 1.2, 0.02]), np.diag([0.01, 0.01, 0.01, 0.05, 0.05, 9.0])
    kernels = [LowRankKernel(np.eye(6), L, labels=SHOP) for L in kinds]
    return Mixture(kernels, [share, 0.9 - share, 0.1])


def subsets(n: int) -> list[list[int]]:
    return [list(found) for k in range(n + 1) for found in combinations(range(n), k)]


def expected(law: Mixture) -> dict[str, list[tuple[int, int]]]:
    """The lists of all pairs, by the words of the definition: every probability is a sum over all baskets."""
    n, baskets = law.n_items, subsets(law.n_items)
    chances = [[float(np.exp(kernel.log_prob(basket))) for basket in baskets] for kernel in law.components]
    w = law.weights

    def share(c: int, *items: int) -> float:
        return sum(chance for chance, basket in zip(chances[c], baskets) if {*items} <= {*basket})

    def mean(value) -> float:
        return float(sum(w[c] * value(c) for c in range(len(w))))

    sizes = [sum(share(c, a) for a in range(n)) for c in range(len(w))]
    p = [mean(lambda c, a=a: share(c, a)) for a in range(n)]
    size = mean(lambda c: sizes[c])
    m = [mean(lambda c, a=a: share(c, a) * sizes[c]) / (p[a] * size) for a in range(n)]
    usual = sum(p[a] * m[a] for a in range(n)) / size

    def missions(a: int, b: int) -> float:
        return mean(lambda c: share(c, a) * share(c, b))

    strength: dict[str, dict[tuple[int, int], float]] = {"complements": {}, "substitutes": {}}
    for a, b in combinations(range(n), 2):
        together, apart, by_missions = mean(lambda c, a=a, b=b: share(c, a, b)), p[a] * p[b], missions(a, b)
        spread, crowd = sqrt(p[a] * (1 - p[a]) * p[b] * (1 - p[b])), max(1.0, m[a] * m[b] / usual)
        if together >= 1.1 * crowd * apart:
            strength["complements"][a, b] = (together - crowd * apart) / spread
        missing = by_missions - together
        alike = missing >= 0.1 * sqrt(missions(a, a) * missions(b, b))
        if missing >= 0.2 * by_missions and alike and together <= 4 * apart:
            strength["substitutes"][a, b] = missing / spread
            strength["complements"].pop((a, b), None)  # a pair is in one list
    return {kind: sorted(found, key=found.get, reverse=True) for kind, found in strength.items()}


def tied() -> Mixture:
    """Six items in three missions, with ties that attract."""
    rng = np.random.default_rng(0)
    return Mixture.tied(
        rng.gamma(0.5, 1.0, (3, 6)), rng.normal(size=(6, 2)), [[0.0, 1.0], [-1.0, 0.0]], [0.5, 0.3, 0.2]
    )


@pytest.mark.parametrize("law", [shop(), shop(avoidance=0.75), tied()], ids=["shop", "less", "tied"])
def test_the_definition_by_enumeration(law):
    found, wanted = answers.pairs(law, n=100, ids=True), expected(law)
    assert wanted["complements"]
    for kind, pairs in wanted.items():
        assert [(pair.item, pair.other) for pair in getattr(found, kind)] == pairs
    for a in range(law.n_items):
        own = answers.related(law, a, ids=True)
        for kind, pairs in wanted.items():
            others = [pair.other for pair in getattr(own, kind)]
            assert others == [b if a == first else first for first, b in pairs if a in (first, b)]


def test_variants_that_exclude_each_other_are_substitutes():
    law = shop()
    found = answers.related(law, "red cup")
    assert [pair.other for pair in found.substitutes] == ["blue cup"]
    assert [pair.other for pair in found.complements] == ["saucer"]
    (pair,) = answers.pairs(law).substitutes
    assert {pair.item, pair.other} == {"red cup", "blue cup"}
    assert pair.by_missions > 2 > 0.5 > pair.by_ties
    assert pair.times == pair.by_ties


def test_substitutes_that_a_mission_brings_together_are_no_complements():
    law = shop(avoidance=0.75)
    (pair,) = answers.pairs(law).substitutes
    assert {pair.item, pair.other} == {"red cup", "blue cup"}
    assert pair.lift > 1.1
    assert "blue cup" not in [one.other for one in answers.related(law, "red cup").complements]


@pytest.mark.parametrize(("n_baskets", "n_found"), [(100, 0), (100_000, 1)])
def test_what_so_few_baskets_cannot_show_is_no_substitute(n_baskets, n_found):
    law = shop(avoidance=0.75)
    for metadata in (
        {"baskets": {"number": n_baskets}},
        {"memory": {"orders": float(n_baskets)}, "baskets": {"number": 1}},
    ):
        own = answers.Prepared(law, metadata=metadata)
        assert len(answers.pairs(own).substitutes) == n_found
        assert answers.pairs(own).complements == answers.pairs(law).complements


def test_independent_bestsellers_are_neither():
    found = answers.related(shop(), "milk")
    assert "newspaper" not in [pair.other for pair in found.complements + found.substitutes]


def test_what_belongs_to_other_missions_is_no_substitute():
    """Petrol is seldom bought with anything: its lift is low, and nobody takes it instead of milk."""
    law = shop()
    assert law.inclusion_probabilities(given=["milk"])[5] < 0.5 * law.inclusion_probabilities()[5]
    assert answers.related(law, "petrol").substitutes == ()


def test_a_mission_makes_complements_without_a_tie():
    pages = Mixture.tied(
        [[2.0, 1.0, 0.1, 0.1], [0.1, 0.1, 1.0, 1.0]],
        np.zeros((4, 2)),
        np.zeros((2, 2)),
        [0.4, 0.6],
        labels=["sports", "games", "weather", "travel"],
    )
    (pair,) = answers.related(pages, "sports").complements
    assert (pair.other, pair.by_ties) == ("games", pytest.approx(1.0))


def test_a_high_lift_makes_no_substitute():
    """In a rare mission, cups that avoid each other still are together many times as often as by chance."""
    law = shop(avoidance=0.75, share=0.02)
    given = law.inclusion_probabilities(given=["red cup"])[1] / law.inclusion_probabilities()[1]
    assert given > 4
    found = answers.related(law, "red cup")
    assert found.substitutes == ()
    assert {pair.other: pair.by_ties for pair in found.complements}["blue cup"] < 0.8


def test_large_baskets_make_no_complements():
    """Independent items on trips that are large or small: every lift is above one, and it says nothing."""
    law = Mixture.tied(np.outer([0.05, 1.0], np.ones(8)), np.zeros((8, 2)), np.zeros((2, 2)), [0.7, 0.3])
    assert law.inclusion_probabilities(given=[0])[1] > 1.5 * law.inclusion_probabilities()[1]
    assert answers.pairs(law) == answers.records.Pairs(8, (), ())


@pytest.mark.data
def test_ingredients_that_replace_each_other():
    """A small mixture of Food.com: names of one thing replace each other, and no substitute has a high lift."""
    if not (data_folder() / "foodcom.baskets.gz").exists():
        pytest.skip("needs the recipes of Food.com: foodcom.baskets.gz in the folder NDPP_DATA")
    recipes = load_baskets("foodcom", folder=data_folder())
    kept = np.sort(np.argsort(-np.bincount(recipes.indices), kind="stable")[:150])
    lists = [kept.searchsorted(np.intersect1d(recipes[i], kept)) for i in range(4000)]
    baskets = Baskets.from_lists(lists, n_items=150, labels=[recipes.labels[i] for i in kept])
    law = ndpp.MixtureNDPP(8, rank=16, families=None, max_epochs=3, random_state=0).fit(baskets).law_
    found = answers.pairs(law, n=12)
    instead, together = (
        {frozenset((pair.item, pair.other)) for pair in kind} for kind in (found.substitutes, found.complements)
    )
    assert instead >= {frozenset(("garlic", "garlic clove")), frozenset(("salt", "kosher salt"))}
    assert together >= {frozenset(("salt", "pepper")), frozenset(("soy sauce", "sesame oil"))}
    assert all(pair.lift <= 4 and pair.by_ties <= 0.8 for pair in found.substitutes)
    assert all(pair.lift > 1.1 for pair in found.complements)
