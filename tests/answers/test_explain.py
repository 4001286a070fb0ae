"""What a kernel is said to mean is what it does: planted pairs are found, probabilities are those of enumeration."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from kernels import AWKWARD, data_folder, learned
from ndpp import Baskets, LowRankKernel, Mixture, Ranking, answers, recommend
from ndpp.answers import relations
from ndpp.datasets import load_baskets, make_baskets, make_kernel
from ndpp.errors import InvalidInputError, ZeroProbabilityError


@pytest.fixture(scope="module")
def planted():
    return make_baskets(0, 60, n_pairs=6, rng=0)


def ids(pairs):
    return {frozenset((pair.item, pair.other)) for pair in pairs}


def test_planted_pairs_are_the_strongest(planted):
    found = answers.pairs(planted.kernel, n=6, ids=True)
    assert ids(found.complements) == {frozenset(pair) for pair in planted.complements.tolist()}
    assert ids(found.substitutes) == {frozenset(pair) for pair in planted.substitutes.tolist()}
    for pairs, lift in ((found.complements, 3.0), (found.substitutes, 0.2)):
        np.testing.assert_allclose([pair.lift for pair in pairs], lift)


def test_planted_partners_are_the_only_ones(planted):
    for a, b in planted.complements.tolist():
        found = answers.related(planted.kernel, a, ids=True)
        assert [pair.other for pair in found.complements] == [b]
        assert found.substitutes == ()
    for a, b in planted.substitutes.tolist():
        found = answers.related(planted.kernel, b, ids=True)
        assert [pair.other for pair in found.substitutes] == [a]
        assert found.complements == ()
    assert len(answers.pairs(planted.kernel, n=50, ids=True).complements) == 6


def test_a_learned_kernel_of_planted_baskets_shows_the_pairs():
    """The kernel estimated from pair counts alone, as if only they were known."""
    made = make_baskets(30_000, 20, n_pairs=3, rng=1)
    matrix = made.baskets.to_csr().toarray().astype(float)
    p, together = matrix.mean(axis=0), matrix.T @ matrix / len(matrix)
    K, cross = np.diag(p), np.outer(p, p) - together  # K_ab K_ba
    for a, b in [*made.complements, *made.substitutes]:
        K[a, b], K[b, a] = np.sqrt(abs(cross[a, b])), np.sign(cross[a, b]) * np.sqrt(abs(cross[a, b]))
    kernel = LowRankKernel(np.eye(20), K @ np.linalg.inv(np.eye(20) - K))
    found = answers.pairs(kernel, n=3, ids=True)
    assert ids(found.complements) == {frozenset(pair) for pair in made.complements.tolist()}
    assert ids(found.substitutes) == {frozenset(pair) for pair in made.substitutes.tolist()}


@pytest.mark.parametrize("case", [case for case in AWKWARD if case.n_items <= 12], ids=str)
def test_probabilities_are_those_of_the_kernel(case):
    p = case.kernel.inclusion_probabilities()
    if not p.any():
        pytest.skip("no item of this kernel occurs")
    a = int(p.argmax())
    given = case.kernel.inclusion_probabilities(given=[a])
    found = answers.related(case.kernel, a, n=20, ids=True)
    assert (found.item, found.probability) == (a, pytest.approx(p[a]))
    for pair in found.complements + found.substitutes:
        b = pair.other
        assert pair.together == pytest.approx(p[a] * given[b], rel=1e-6, abs=1e-9)
        spread = np.sqrt(p[a] * (1 - p[a]) * p[b] * (1 - p[b]))
        assert pair.correlation == pytest.approx((p[a] * given[b] - p[a] * p[b]) / spread, rel=1e-5, abs=1e-6)
    named = {pair.other for pair in found.complements + found.substitutes}
    for b in set(np.flatnonzero(p).tolist()) - named - {a}:
        assert (1 - relations.MISSING) * (1 - 1e-5) < given[b] / p[b] < relations.COMPLEMENT_LIFT * (1 + 1e-5)


def test_order_and_sides():
    found = answers.pairs(make_kernel(30, 8, rng=1), n=15, ids=True)
    ups, downs = ([pair.correlation for pair in pairs] for pairs in (found.complements, found.substitutes))
    assert ups == sorted(ups, reverse=True)
    assert downs == sorted(downs)
    assert min(ups) > 0 > max(downs)
    assert all(pair.lift > 1 for pair in found.complements)
    assert all(pair.lift < 1 for pair in found.substitutes)


def test_all_pairs_against_a_plain_loop(monkeypatch):
    kernel = make_kernel(30, 8, rng=1)
    L = kernel.to_dense()
    K = L @ np.linalg.inv(np.eye(30) + L)
    spread = np.sqrt(np.diag(K) * (1 - np.diag(K)))
    values = {(a, b): -K[a, b] * K[b, a] / (spread[a] * spread[b]) for a in range(30) for b in range(a + 1, 30)}
    lifts = {(a, b): 1 - K[a, b] * K[b, a] / (K[a, a] * K[b, b]) for a, b in values}
    best = sorted(
        (pair for pair in values if not 1 - relations.MISSING < lifts[pair] < relations.COMPLEMENT_LIFT), key=values.get
    )
    n_complements = sum(values[pair] > 0 for pair in best)
    assert 0 < n_complements < 7
    for pairs_at_once in (10**6, 100, 1):
        monkeypatch.setattr(relations, "CHUNK_PAIRS", pairs_at_once)
        found = answers.pairs(kernel, n=7, ids=True)
        assert [(pair.item, pair.other) for pair in found.complements] == best[: -n_complements - 1 : -1]
        assert [(pair.item, pair.other) for pair in found.substitutes] == best[:7]
        assert found.complements[0].correlation == pytest.approx(values[best[-1]])


def test_a_symmetric_kernel_has_no_complements():
    V = np.random.default_rng(0).standard_normal((15, 4))
    found = answers.pairs(LowRankKernel(V, np.eye(4)), n=5)
    assert (len(found.complements), len(found.substitutes)) == (0, 5)


def test_popularity():
    kernel = LowRankKernel(np.eye(3), np.diag([1.0, 3.0, 1.0]), labels=["x", "y", "z"])
    popular = answers.describe(kernel, n=2).popular
    assert [(share.item, share.probability) for share in popular] == [
        ("y", pytest.approx(0.75)),
        ("x", pytest.approx(0.5)),
    ]
    assert answers.describe(SimpleNamespace(kernel_=kernel), n=1).popular[0].item == "y"


def test_labels_and_text():
    L = [[0.5, 0.8, 0.48], [-0.8, 0.5, 0.0], [0.48, 0.0, 0.5]]
    kernel = LowRankKernel(np.eye(3), L, labels=["bread", "butter", "rolls"])
    assert answers.related(kernel, "bread") == answers.related(kernel, 0)
    found = answers.related(kernel, "butter")
    assert (found.item, found.probability) == ("butter", pytest.approx(kernel.inclusion_probabilities()[1]))
    assert found.complements[0].other == "bread"
    assert found.substitutes == ()
    assert repr(answers.pairs(kernel)).splitlines()[-1].split()[:3] == ["substitute", "bread", "rolls"]


def test_rare_items_and_others_can_be_left_out(planted):
    p = planted.kernel.inclusion_probabilities()
    a, b = planted.complements[p[planted.complements].sum(axis=1).argmin()].tolist()
    a, b = sorted((a, b), key=p.__getitem__, reverse=True)
    rarer = int(np.count_nonzero(p > p[b] * 1.01))
    assert answers.related(planted.kernel, a, popular=rarer, ids=True).complements == ()
    assert answers.related(planted.kernel, a, popular=int(np.count_nonzero(p >= p[b])), ids=True).complements != ()
    found = answers.pairs(planted.kernel, n=50, popular=30, ids=True)
    assert all(min(p[list(pair)]) >= np.median(p) for pair in ids(found.complements + found.substitutes))
    assert len(found.complements) < 6


def test_restricted_kernels(planted):
    a, b = planted.complements[0].tolist()
    kernel = planted.kernel.exclude([b])
    assert answers.related(kernel, a, ids=True).complements == ()
    with pytest.raises(ZeroProbabilityError, match="never occurs"):
        answers.related(kernel, b, ids=True)


def test_wrong_input(planted):
    with pytest.raises(InvalidInputError, match="fitted estimator"):
        answers.pairs("model")
    with pytest.raises(InvalidInputError, match="n must be"):
        answers.pairs(planted.kernel, n=0)
    with pytest.raises(InvalidInputError, match="unknown item id 60"):
        answers.related(planted.kernel, 60, ids=True)
    with pytest.raises(InvalidInputError, match="no labels"):
        answers.related(planted.kernel, "bread", ids=True)


# -- mixtures ----------------------------------------------------------------------------------------------------------------

SHOP = ["pasta", "pesto", "bread", "butter", "beer", "crisps"]


@pytest.fixture(scope="module")
def trips() -> Mixture:
    """Two kinds of dinner, breakfast, and a party; pasta is tied to pesto, and bread to butter."""
    X = np.zeros((6, 4))
    X[[0, 1, 2, 3], [0, 1, 2, 3]] = 1.5
    W = np.kron(np.eye(2), [[0.0, 1.0], [-1.0, 0.0]])
    odds = [
        [0.9, 0.5, 0.1, 0.1, 0.1, 0.1],
        [0.7, 0.7, 0.1, 0.1, 0.1, 0.1],
        [0.1, 0.1, 0.9, 0.5, 0.1, 0.1],
        [0.1, 0.1, 0.1, 0.1, 2, 2],
    ]
    return Mixture.tied(odds, X, W, [0.2, 0.2, 0.25, 0.35], labels=SHOP)


def plain(mixture: Mixture) -> Mixture:
    """The same components, as if they had nothing in common."""
    return Mixture(list(mixture.components), mixture.weights)


@pytest.mark.parametrize("change", [lambda law: law, plain], ids=["tied", "plain"])
def test_pairs_of_a_mixture_are_told_from_those_of_its_missions(trips, change):
    law, P, p = change(trips), trips.component_inclusions(), trips.inclusion_probabilities()
    found = answers.pairs(law, n=20, ids=True)
    assert ids(found.complements[:2]) == {frozenset((0, 1)), frozenset((2, 3))}
    together = {
        frozenset((a, b)): law.inclusion_probabilities()[a] * law.inclusion_probabilities(given=[a])[b]
        for a in range(6)
        for b in range(a)
    }
    for pair in found.complements + found.substitutes:
        a, b = pair.item, pair.other
        apart = float(trips.weights @ (P[:, a] * P[:, b]))
        assert pair.together == pytest.approx(together[frozenset((a, b))])
        assert pair.by_missions == pytest.approx(apart / (p[a] * p[b]))
        assert pair.by_ties == pytest.approx(pair.together / apart)
        assert pair.lift == pytest.approx(pair.by_ties * pair.by_missions)
    (near,) = answers.related(law, "beer", ids=True).complements  # crisps come on the same trips, and have no tie
    assert (near.other, near.by_ties) == (5, pytest.approx(1.0))
    assert trips.inclusion_probabilities(given=[4])[5] > 1.5 * trips.inclusion_probabilities()[5]


def test_items_that_some_components_exclude():
    kernel = make_kernel(8, 4, rng=0)
    law = Mixture([kernel, kernel.exclude([0, 1])], [0.5, 0.5])
    for pair in answers.related(law, 0, ids=True).complements + answers.related(law, 3, ids=True).substitutes:
        a, b = pair.item, pair.other
        assert pair.together == pytest.approx(
            law.inclusion_probabilities()[a] * law.inclusion_probabilities(given=[a])[b]
        )


@pytest.mark.parametrize("change", [lambda law: law, plain], ids=["tied", "plain"])
def test_missions_are_merged_and_named(trips, change):
    found = answers.missions(change(trips), n=3, n_items=2)
    assert [one.components for one in found] == [(0, 1), (3,), (2,)]
    assert [one.share for one in found] == pytest.approx([0.4, 0.35, 0.25])
    assert [one.name for one in found] == ["pasta and pesto", "beer and crisps", "bread and butter"]
    P, overall = trips.component_inclusions(), trips.inclusion_probabilities()
    assert [one.mean_size for one in found] == pytest.approx([P[:2].mean(axis=0).sum(), P[3].sum(), P[2].sum()])
    top = found[1].items[0]
    assert top.item == "beer"
    assert (top.probability, top.lift) == (pytest.approx(P[3, 4]), pytest.approx(P[3, 4] / overall[4]))
    assert str(found[1]).startswith("beer and crisps: 35.0% of baskets, ")


def test_all_missions_none_and_one(trips):
    assert sorted(one.components for one in answers.missions(trips, n=None)) == [(0,), (1,), (2,), (3,)]
    (whole,) = answers.missions(trips, n=1)
    assert (whole.share, whole.components) == (pytest.approx(1), (0, 1, 2, 3))
    assert whole.mean_size == pytest.approx(trips.inclusion_probabilities().sum())
    (own,) = answers.missions(make_kernel(20, 4, rng=0))
    assert (own.share, own.components) == (1.0, (0,))
    never = Mixture.tied([[1.0, 2.0], [2.0, 1.0]], np.zeros((2, 2)), np.zeros((2, 2)), [1.0, 0.0])
    assert [one.components for one in answers.missions(never)] == [(0,)]


def test_names_of_missions(trips):
    given = Mixture(list(trips.components), trips.weights, names=["one", "two", "three", "four"])
    assert {one.name for one in answers.missions(given)} == {"one", "two", "three", "four"}
    assert {one.name for one in answers.missions(given, n=3)} == {"pasta and pesto", "three", "four"}
    twins = Mixture.tied(
        [[1.0, 1.0, 0.2]] * 3,
        np.zeros((3, 2)),
        np.zeros((2, 2)),
        [0.5, 0.3, 0.2],
        labels=["Red cup", "Blue cup", "Tea"],
    )
    names = [one.name for one in answers.missions(twins)]
    assert len(set(names)) == 3
    assert all(name.startswith(names[0]) for name in names)


@pytest.mark.parametrize("ranking", list(Ranking))
@pytest.mark.parametrize("kind", ["tied", "plain", "kernel"])
def test_reasons_add_up(trips, ranking, kind):
    law = {"tied": trips, "plain": plain(trips), "kernel": trips.components[0]}[kind]
    p, P = (
        law.inclusion_probabilities(),
        trips.component_inclusions() if kind != "kernel" else law.inclusion_probabilities()[None],
    )
    odds = {
        Ranking.COMPLETION: lambda q, a: q / (1 - q),
        Ranking.CONTINUATION: lambda q, a: q,
        Ranking.LIFT: lambda q, a: q / p[a],
    }[ranking]
    for basket in ([], [0], [2, 4]):
        found = answers.recommend(law, basket, n=3, ranking=ranking, staples=True, why=True, ids=True).items
        best = recommend(law, basket, n=3, ranking=ranking)
        assert [one.item for one in found] == best.items.tolist()
        posterior = (
            np.ones(1) if kind == "kernel" else law.responsibilities(basket, whole=ranking is Ranking.COMPLETION)
        )
        chances = law.inclusion_probabilities(given=basket)
        for one, score in zip(found, best.scores):
            assert one.score == pytest.approx(score, rel=1e-12)
            if ranking is Ranking.COMPLETION:  # of the baskets with one more item
                more = [law.log_prob([*basket, a]) for a in set(range(law.n_items)) - set(basket)]
                assert np.log(one.share) == pytest.approx(law.log_prob([*basket, one.item]) - np.logaddexp.reduce(more))
            else:
                assert one.share == pytest.approx(chances[one.item])
            assert one.popularity * one.mission * one.ties == pytest.approx(score, rel=1e-12)
            assert one.popularity == pytest.approx(odds(p[one.item], one.item), rel=1e-12)
            assert one.popularity * one.mission == pytest.approx(posterior @ odds(P[:, one.item], one.item))
            assert (one.because is None) == (kind == "kernel")
            assert {tie.item for tie in one.by_item} == set(basket)
            for tie in one.by_item:
                score = ranking.scores(law, [tie.item])[one.item]
                alone = (
                    law.responsibilities([tie.item], whole=ranking is Ranking.COMPLETION) if kind != "kernel" else [1.0]
                )
                assert tie.factor == pytest.approx(score / (alone @ odds(P[:, one.item], one.item)))
            if len(basket) == 1:
                assert one.by_item[0].factor == pytest.approx(one.ties)


def test_reasons_take_labels(trips):
    found = [answers.recommend(trips, basket, n=2, why=True) for basket in (["pasta", "beer"], [0, 4])]
    assert found[0] == found[1]


def test_reasons_name_the_mission_and_the_tie(trips):
    found = answers.recommend(trips, [0, 5], n=5, ranking=Ranking.COMPLETION, why=True)
    by_label = {one.item: one for one in found.items}
    assert by_label["pesto"].because == "pasta and pesto"
    assert by_label["pesto"].tied_to == by_label["pesto"].by_item[0].item == "pasta"
    assert by_label["pesto"].ties > 1.1
    assert by_label["beer"].because == "beer and crisps"
    alone = answers.recommend(trips, [], n=1, why=True).items[0]
    assert (alone.by_item, alone.tied_to) == ((), None)


def test_reasons_in_bulk(trips):
    apart = Mixture.tied([[1, 1, 0, 0], [0, 0, 1, 1]], np.zeros((4, 2)), np.zeros((2, 2)), [0.5, 0.5])
    found = answers.recommend_each(apart, Baskets.from_lists([[0], [0, 2]], n_items=4), n=2, why=True)
    assert found[0] == answers.recommend(apart, [0], n=2, why=True)
    assert found[1] is None
    baskets = Baskets.from_lists([[0], [1, 4]], n_items=6)
    many = answers.recommend_each(trips, baskets, n=2, candidates=[2, 3], why=True, ids=True)
    assert [[one.item for one in own.items] for own in many] == [
        recommend(trips, basket, n=2, candidates=[2, 3]).items.tolist() for basket in ([0], [1, 4])
    ]


@pytest.mark.data
def test_pairs_of_a_learned_kernel_are_pairs_of_the_data():
    kernel = learned("B").kernel
    baskets = load_baskets("uk_retail", folder=data_folder())
    matrix = baskets.to_csr().astype(float)
    p = np.asarray(matrix.sum(axis=0)).ravel() / len(baskets)
    found = answers.pairs(
        kernel, n=20, popular=int(np.count_nonzero(kernel.inclusion_probabilities() >= 0.005)), ids=True
    )
    for pair in found.complements:
        a, b = pair.item, pair.other
        together = (matrix[:, [a]].multiply(matrix[:, [b]])).sum() / len(baskets)
        assert together / (p[a] * p[b]) > 2
