"""Mixtures over families of items: what ``test_contract`` does not ask of every law."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy.special import betaln

import ndpp
import oracles
from families import CASES, FAMILIES, ITEM_ODDS, ODDS, STATES, every, law_of, mixed, plain
from kernels import BY_NAME
from mixtures import TOLERANCE, WEIGHTS, N, assert_close, enumerated, inclusion
from ndpp import Baskets, FamilyMixture, Mixture, answers
from ndpp.errors import ImpossibleSizeError, InvalidInputError, ZeroProbabilityError
from ndpp.laws.ask import NO_ITEMS
from ndpp.linalg.operations import NUMPY
from ndpp.linalg.updates import LowRankChange


@every
def test_probabilities(name: str):
    law, expected = law_of(name), mixed(name)
    assert_close(enumerated(law), expected)
    sizes = np.bincount([len(S) for S in expected], list(expected.values()), N + 1)
    assert law.max_size == max(map(len, expected))
    assert law.size_distribution() == pytest.approx(sizes[: law.max_size + 1], abs=TOLERANCE)
    assert law.inclusion_probabilities() == pytest.approx(inclusion(expected), abs=TOLERANCE)
    each = [inclusion(component) for component in plain(name)[0]]
    assert law.component_inclusions() == pytest.approx(np.array(each), abs=TOLERANCE)
    for size in (0, 2, law.max_size):
        if 1e-8 < sizes[size] < 1e-5:
            continue  # known to 1e-15, and so not to ten digits; those below are computed another way
        assert_close(enumerated(law, size), mixed(name, lambda S, size=size: len(S) == size))
        by_size = inclusion(mixed(name, lambda S, size=size: len(S) == size))
        assert law.inclusion_probabilities(size) == pytest.approx(by_size, abs=TOLERANCE)


def test_families_of_one_item_are_a_mixture_with_shared_ties():
    case, ties = CASES["families of one item"], BY_NAME["generic"]
    law, tied = law_of("families of one item"), Mixture.tied(case.odds, ties.X[:N], ties.W, WEIGHTS[2])
    baskets = Baskets.from_lists(oracles.subsets(N), n_items=N)
    assert law.log_probs(baskets) == pytest.approx(tied.log_probs(baskets), abs=1e-14)
    assert law.inclusion_probabilities(given=[2]) == pytest.approx(tied.inclusion_probabilities(given=[2]), abs=1e-14)
    scores = [ndpp.next_item_scores(each, baskets[1:9]) for each in (law, tied)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-14)


def test_a_family_with_one_state_that_is_not_tied_has_independent_items():
    odds = np.array([0.2, 3.0, 0.5, 1.0])
    law = FamilyMixture([[1.0, 1.0]], odds[:, None], [0, 0, 0, 1], [0, 1], np.zeros((2, 1)), [[1.0]], [1.0])
    for S in oracles.subsets(4):
        p = np.where(np.isin(np.arange(4), S), odds, 1.0) / (1 + odds)
        assert law.log_prob(S) == pytest.approx(np.log(p).sum())


def test_the_other_form():
    """f(S_g) = Σ_s ρ_s Π Bernoulli(θ_is): the distribution of the items of one family that is not tied."""
    rho, theta = np.array([0.7, 0.2, 0.1]), np.array([[0.1, 0.9, 0.0], [0.05, 0.8, 0.5], [0.2, 0.0, 0.9]])
    bernoulli = {
        S: float(rho @ np.where(np.isin(np.arange(3), S)[:, None], theta, 1 - theta).prod(axis=0))
        for S in oracles.subsets(3)
    }
    a = rho * (1 - theta).prod(axis=0) / bernoulli[()]
    law = FamilyMixture([a], theta / (1 - theta), [0, 0, 0], [0, 0, 0], [[0.0]], [[1.0]], [1.0])
    for S, p in bernoulli.items():
        assert law.log_prob(S) == pytest.approx(np.log(p))


def test_rare_sizes_are_relatively_accurate():
    """Thirty rare items in families of three: all thirty have a probability of about e^−300."""
    n = 30
    odds, item_odds = np.full((1, 10), 1e-3), np.full((n, 1), 0.01)
    law = FamilyMixture(odds, item_odds, np.arange(n) // 3, np.arange(10), np.zeros((10, 1)), [[1.0]], [1.0])
    largest = law.log_prob(range(n))
    assert largest < -190
    assert law.log_normalizer(n) == pytest.approx(largest, rel=1e-9)
    assert law.log_prob(range(n), n) == pytest.approx(0.0, abs=1e-8)
    inside = law.log_normalizer(5)
    assert law._parts(NO_ITEMS).sized(0, 5, 0.0).log_weight_of(5)[0] - law.log_normalizers()[0] == pytest.approx(
        inside, rel=1e-9
    )
    assert law.inclusion_probabilities(5) == pytest.approx(5 / n, rel=1e-8)


@pytest.mark.parametrize("scale", [1e30, 1e12, 1.0, 1e-12, 1e-30])
def test_sizes_of_families_that_nearly_always_or_hardly_ever_come(scale: float):
    odds = [scale * np.array([1.0, 2.0, 3.0])]
    law = FamilyMixture(odds, np.ones((3, 1)), [0, 1, 2], [0, 1, 2], np.zeros((3, 1)), [[1.0]], [1.0])
    assert law.inclusion_probabilities(1) == pytest.approx([1 / 6, 1 / 3, 1 / 2], rel=1e-10)
    assert law.inclusion_probabilities(2) == pytest.approx([5 / 11, 8 / 11, 9 / 11], rel=1e-10)
    log_total = np.log1p(odds[0]).sum()
    for size, weight in enumerate([1.0, 6.0, 11.0, 6.0]):
        expected = np.log(weight) + size * np.log(scale) - log_total
        assert law.log_normalizer(size) == pytest.approx(expected, abs=1e-9)


@pytest.mark.filterwarnings("error")
def test_one_size_of_large_families():
    """Sets of items of two families that are not tied: with o = Σ C(n, j) r^j, the odds to have none are given."""
    n, a, r = 2000, np.array([0.3, 1e-3]), np.array([0.01, 0.02])
    law = FamilyMixture([a], np.repeat(r, n)[:, None], np.repeat([0, 1], n), [0, 1], np.zeros((2, 1)), [[1.0]], [1.0])
    log_binomial = [betaln(n - j + 1, j + 1) + np.log(n + 1) for j in range(41)]
    own = np.exp(np.arange(41) * np.log(r[:, None]) - log_binomial) * a[:, None]
    own[:, 0] = 1.0
    by_count = own[0] * own[1][::-1]  # j items of the first family, 40 − j of the second
    log_total = np.log1p(a * np.expm1(n * np.log1p(r))).sum()
    assert law.log_normalizer(40) == pytest.approx(np.log(by_count.sum()) - log_total, rel=1e-9)
    mean = by_count @ np.arange(41) / by_count.sum()
    expected = np.repeat([mean / n, (40 - mean) / n], n)
    assert law.inclusion_probabilities(40) == pytest.approx(expected, rel=1e-8)


def test_a_larger_catalogue():
    """Against the distribution of the families, and samples of single items: more items than are enumerated elsewhere."""
    rng = np.random.default_rng(0)
    families, states = np.arange(30) % 12, np.repeat(np.arange(12), 2)
    X, W = rng.standard_normal((12, 6)) / 2, np.kron(np.eye(3), [[0.0, 1.0], [-1.0, 0.0]])
    law = FamilyMixture(
        np.exp(rng.normal(-3, 1, (4, 24))), np.exp(rng.normal(-1, 1, (30, 2))), families, states, X, W, [0.25] * 4
    )
    sizes, p = law.size_distribution(), law.inclusion_probabilities()
    assert sizes.sum() == pytest.approx(1.0)
    assert sizes @ np.arange(31) == pytest.approx(p.sum())
    assert sizes[7] * law.inclusion_probabilities(7).sum() == pytest.approx(7 * sizes[7])
    by_size = sum(sizes[k] * law.inclusion_probabilities(k) for k in range(31) if sizes[k] > 1e-13)
    assert by_size == pytest.approx(p, abs=1e-9)
    given = [3, 28, 4]
    rest = law.condition(given)
    expected = law.inclusion_probabilities(given=given)
    expected[given] = 0
    assert rest.inclusion_probabilities() == pytest.approx(expected, abs=1e-10)


def test_points_of_a_circle_against_the_plain_sum_over_families():
    """Rare families need few powers of z, and large ones that come as a whole need more than are expanded."""
    rng = np.random.default_rng(2)
    families = np.concatenate([np.repeat([0, 1], 45), 2 + np.arange(150) % 60])
    X, W = rng.standard_normal((62, 4)) / 2, np.kron(np.eye(2), [[0.1, 1.0], [-1.0, 0.0]])
    item_odds = np.exp(rng.normal(-1, 1, (240, 1)))
    item_odds[:45] = 6.0
    odds = np.append([[1e-40, 1e-6]], np.exp(rng.normal(-5, 2, (1, 60))), axis=1)
    law = FamilyMixture(odds, item_odds, families, np.arange(62), X, W, [1.0])
    sizes, z = (
        law._parts(NO_ITEMS).at(0, 0.0).sizes,
        np.exp(np.append(1e-3 + 1j * np.linspace(0.01, 3.1, 40), [-1.0, 0.5])),
    )
    o = np.stack([a * (np.prod(1 + np.outer(item_odds[families == g], z), axis=0) - 1) for g, a in enumerate(odds[0])])
    Q = law.touched.all_rows
    QW = Q @ law.touched.core
    assert sum(len(groups.rows) for groups in sizes.heavy) in range(1, 30)
    plain = np.eye(4) + np.einsum("gm,ga,gb->mab", o / (1 + o), Q, QW)
    log_mean = np.log1p(o).sum(axis=0) + sum(NUMPY.log_det(plain)) - law.log_normalizers()[0]
    assert np.exp(sizes.log_mean(z)) == pytest.approx(np.exp(log_mean), rel=1e-11, abs=1e-13)
    assert law.size_distribution().sum() == pytest.approx(1.0, abs=1e-13)
    assert law.size_distribution() @ np.arange(law.max_size + 1) == pytest.approx(law.inclusion_probabilities().sum())


def test_files_and_pickles(tmp_path):
    labels, names = list("abcdef"), ["one", "two", "three"]
    law = CASES["several"].law(labels=labels, names=names)
    assert law.ids(["c"]).tolist() == [2]
    assert law.components[1].labels == tuple(labels)
    for each in (law, law.condition([1]), law.exclude([0])):
        ndpp.save(each, tmp_path / "m.safetensors", metadata={"note": 1})
        for again in (ndpp.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(each))):
            assert type(again) is FamilyMixture
            assert (again.names, again.labels) == (each.names, each.labels)
            assert again.weights == pytest.approx(each.weights, rel=1e-15)
            assert again.log_prob([4, 2]) == pytest.approx(each.log_prob([4, 2]), rel=1e-14)
        assert ndpp.load_metadata(tmp_path / "m.safetensors") == {"note": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"odds": [[-1.0] * 5]}, "component 0 and state 0 are -1"),
        ({"odds": [[1.0] * 4]}, r"odds must have shape \('any', 5\)"),
        ({"odds": [[np.inf] * 5]}, "odds must be finite"),
        ({"item_odds": [[1.0, -2.0]] * 6}, "those of item 0 and state 1 are -2"),
        ({"item_odds": [[1.0]] * 6}, "one has 2 states, and there are 1 columns"),
        ({"item_odds": [[1.0, 1.0]] * 5}, "one per row of item_odds; got 6 for 5"),
        ({"families": [0, 1, 0, 3, 1, 0]}, "families must be in 0..2, as X has 3 rows; they are in 0..3"),
        ({"families": [0.5] * 6}, "families must be a flat sequence"),
        ({"states": [0, 0, 1, 1, -1]}, "states must be in 0..2"),
        ({"weights": [0.5]}, "sum to one"),
        ({"labels": ["a"]}, "labels must be 6 names"),
        ({"names": ["a", "b"]}, "names must be 1"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str):
    ties = BY_NAME["generic"]
    arguments: dict[str, Any] = {
        "odds": ODDS[:1], "item_odds": ITEM_ODDS, "families": FAMILIES, "states": STATES, "X": ties.X[:3], "W": ties.W, "weights": [1.0],
    }  # fmt: skip
    with pytest.raises(InvalidInputError, match=message):
        FamilyMixture(**arguments | change)


def test_what_cannot_be():
    law = law_of("zero odds")
    with pytest.raises(ZeroProbabilityError, match="item 0 was given, and it can never occur"):
        law.inclusion_probabilities(given=[0])
    with pytest.raises(ImpossibleSizeError, match="no set is larger than 5 items; size 6"):
        law.log_prob(range(6), 6)
    with pytest.raises(ImpossibleSizeError, match="no set is larger than 5 items; size 6"):
        law.responsibilities([1], size=6)
    with pytest.raises(ImpossibleSizeError, match="2 are given, but size is 1"):
        law.inclusion_probabilities(1, [1, 2])
    assert law.log_prob([0]) == -np.inf
    everything = law_of("several").condition(range(6))
    assert everything.size_distribution() == pytest.approx(
        [1.0], rel=0, abs=4 * np.finfo(float).eps
    )  # weights sum to one ± ε


def test_explanations_read_families():
    law = CASES["several"].law(labels=list("abcdef"))
    assert sum(mission.share for mission in answers.missions(law)) == pytest.approx(1.0)
    for one in answers.recommend(law, [0], why=True).items:
        assert one.popularity * one.mission * one.ties == pytest.approx(one.score)
    variants = answers.related(law, "b", n=5)
    assert {pair.other for pair in variants.complements + variants.substitutes} <= set("acdef")
    assert law.only([1]).log_prob([0, 2]) == pytest.approx(law.components[1].log_prob([0, 2]))
    assert ndpp.greedy_map(law, 3, given=[0]).tolist()[0] == 0


@pytest.mark.parametrize("kind", ["families", "items"])
def test_tilts_of_a_few_items_update_what_is_known(kind: str):
    """Against the same law, of which nothing is known; also tilted twice, and given items."""
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((12, 6)) / 2, np.kron(np.eye(3), [[0.0, 1.0], [-1.0, 0.0]])
    law: Any = Mixture.tied(np.exp(rng.normal(-1, 1, (4, 12))), X, W, [0.25] * 4)
    if kind == "families":
        odds, item_odds = np.exp(rng.normal(-3, 1, (4, 24))), np.exp(rng.normal(-1, 1, (30, 2)))
        law = FamilyMixture(odds, item_odds, np.arange(30) % 12, np.repeat(np.arange(12), 2), X, W, [0.25] * 4)
    for made in (tilted := law.without_empty().tilt({0: 3.0, 5: 0.2})), tilted.tilt({5: 7.0, 3: 1e-3}):
        anew = made._again(_known={}, _kept={})
        assert isinstance(made.touched._state.N, LowRankChange)
        assert isinstance(anew.touched._state.N, np.ndarray)
        np.testing.assert_allclose(made.log_normalizers(), anew.log_normalizers(), rtol=1e-12)
        np.testing.assert_allclose(made.touched._state.N, anew.touched._state.N, atol=1e-13)
        assert made.largest.tolist() == anew.largest.tolist()
        for given in ([], [5, 1, 2]):
            expected = anew.inclusion_probabilities(given=given)
            np.testing.assert_allclose(made.inclusion_probabilities(given=given), expected, atol=1e-12)
            drawn, other = (one.sample(50, rng=0, given=given) for one in (made, anew))
            assert [basket.tolist() for basket in drawn] == [basket.tolist() for basket in other]
        assert (made.touched._state.errors < 1e-11).all()
