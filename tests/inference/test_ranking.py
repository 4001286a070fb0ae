"""Rankings, for every law, one basket and many; their scores by enumeration are in the contract of laws."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from families import law_of as family_law
from kernels import BY_NAME
from mixtures import general, tied
from ndpp import (
    Baskets,
    FamilyMixture,
    Limit,
    LowRankKernel,
    Mixture,
    PerCategory,
    Ranking,
    answers,
    continuation_scores,
    greedy_map,
    metrics,
    next_item_scores,
    recommend,
    recommend_many,
)
from ndpp.datasets import make_kernel, shelf_kernel
from ndpp.errors import ImpossibleSizeError, InvalidInputError, PrecisionError, UnknownLabelError, ZeroProbabilityError
from ndpp.inference.ranking import DAMPING, USUAL, Rule
from ndpp.inference.scores import scores_or_nan
from ndpp.laws.begun import NO_BOUND, SPREAD, Begun, eliminated, parts
from oracles import subsets

N = 6
SKEW, GENERIC = BY_NAME["purely skew"], BY_NAME["generic"]
LAWS = {
    "kernel": LowRankKernel(GENERIC.X[:N], GENERIC.W),
    "skew kernel": LowRankKernel(SKEW.X[:N], SKEW.W),
    "background": LowRankKernel(SKEW.X[:N], SKEW.W, background=[0.0, 0.5, 0.0, 2.0, 0.125, 9.0]),
    "excluded items": LowRankKernel(SKEW.X[:N], SKEW.W, background=[0.1, 0.5, 0.0, 2.0, 0.125, 9.0]).exclude([1]),
    "tied": tied("several", "generic"),
    "tied, disjoint items": tied("disjoint items", "generic"),
    "families": family_law("several"),
    "tied, equal missions": tied("equal missions", "generic"),
    "tied, a mission without items": tied("an empty mission", "generic"),
    "tied, equal rows": tied("several", "duplicate rows"),
    "families, zero odds": family_law("zero odds").condition([1]),
    "mixture": general("several", "purely skew"),
    "mixture of skew and symmetric": Mixture(
        [LowRankKernel(SKEW.X[:N], SKEW.W), LowRankKernel(GENERIC.X[:N], np.eye(7))], [0.5, 0.5]
    ),
}
WITHOUT_STAPLES = "tied, disjoint items", "tied, a mission without items"
"""Nothing is clearly less likely with the baskets of the test."""
every = pytest.mark.parametrize("name", LAWS)


@every
def test_what_goes_with_a_basket_in_particular(name: str):
    law, p = LAWS[name], LAWS[name].inclusion_probabilities()
    baskets = Baskets.from_lists([[], [3], [2, 4]], n_items=N)
    possible = [i for i, S in enumerate(baskets) if not np.isnan(scores_or_nan(law, baskets[[i]], whole=False)[0, 0])]
    assert possible[:2] == [0, 1]
    for i, many in zip(possible, Ranking.LIFT.scores(law, baskets[possible])):
        expected = [chance / p[a] if p[a] > 0 else 0.0 for a, chance in enumerate(continuation_scores(law, baskets[i]))]
        assert many == pytest.approx(expected, abs=1e-9)
        assert Ranking.LIFT.scores(law, baskets[i]) == pytest.approx(expected, abs=1e-9)


@every
def test_recommendations_say_which(name: str):
    law = LAWS[name]
    basket = [3]
    for ranking in Ranking:
        if name == "skew kernel" and ranking is Ranking.COMPLETION:
            with pytest.raises(ZeroProbabilityError):
                recommend(law, basket, ranking=ranking)
            continue
        scores = ranking.scores(law, basket)
        found = recommend(law, basket, n=2, ranking=ranking, damping=0.0, support=0.0)
        # Of scores that are equal up to rounding, that of the smaller id comes first.
        best = sorted(scores, reverse=True)[:2][: len(found.items)]
        assert sorted(found.scores, reverse=True) == pytest.approx(best, rel=1e-12)
        assert found.scores == pytest.approx(best, rel=1e-14, abs=0)
        assert recommend(law, basket, candidates=[0, 2], ranking=ranking, damping=0.0, support=0.0).items.tolist() == [
            a for a in sorted([0, 2], key=lambda a: -scores[a]) if scores[a] > 0
        ]


@every
@pytest.mark.parametrize("damping", [DAMPING, 0.7, 1.0])
def test_popular_items_count_less_in_continuations(name: str, damping: float):
    """The order is that of P(a | J) / P(a)^γ, and the score P(a | J); that is the default, with γ = 0.2."""
    law, p = LAWS[name], LAWS[name].inclusion_probabilities()
    chances = continuation_scores(law, [3])
    order = sorted(np.flatnonzero(chances > 0), key=lambda a: (-round(chances[a] / p[a] ** damping, 9), a))
    many = recommend_many(law, Baskets.from_lists([[3], []], n_items=N), damping=damping)
    for found in (recommend(law, [3], damping=damping), law.recommend([3], damping=damping), many[0]):
        assert found.items.tolist() == order
        assert found.scores == pytest.approx(chances[order], abs=1e-9)
    if damping == DAMPING:
        assert recommend(law, [3], n=3).items.tolist() == order[:3]
        assert law.recommend([3], n=3, ranking="continuation").items.tolist() == order[:3]


@every
def test_lift_leaves_out_items_too_rare_to_judge(name: str):
    law, p = LAWS[name], LAWS[name].inclusion_probabilities()
    common = set(np.flatnonzero(p >= p[p > 0].mean() / 4).tolist())
    many = recommend_many(law, Baskets.from_lists([[3]], n_items=N), ranking=Ranking.LIFT)
    for found in (recommend(law, [3], ranking=Ranking.LIFT), many[0]):
        assert set(found.items.tolist()) == {a for a in common if continuation_scores(law, [3])[a] > 0}
    least = float(np.median(p))
    assert (p[recommend(law, [3], ranking=Ranking.LIFT, support=least).items] >= least).all()
    assert len(recommend(law, [3], ranking=Ranking.LIFT, support=1.1).items) == 0


@every
@pytest.mark.parametrize("ranking", Ranking)
def test_staples_are_left_out(name: str, ranking: Ranking):
    """Items that are less likely with the basket than in any; unless no other is left, the basket is empty, or it lacks one item."""
    law, p, n_left_out = LAWS[name], LAWS[name].inclusion_probabilities(), 0
    options: Any = {"ranking": ranking, "support": 0.0, "n": N}
    for basket in ([], [0], [3], [5], [2, 4]):
        try:
            with_staples = recommend(law, basket, **options)
        except ZeroProbabilityError:
            continue
        usual = p[with_staples.items] * USUAL
        kept = with_staples.items[continuation_scores(law, basket)[with_staples.items] >= usual].tolist()
        if not kept or not basket or ranking.is_whole:
            kept = with_staples.items.tolist()
        (many,) = recommend_many(law, Baskets.from_lists([basket], n_items=N), staples=False, **options)
        for found in (recommend(law, basket, staples=False, **options), many):
            assert found is not None
            assert found.items.tolist() == kept
            assert found.scores == pytest.approx(with_staples.scores[np.isin(with_staples.items, kept)], rel=1e-9)
        n_left_out += len(with_staples.items) - len(kept)
    assert (n_left_out > 0) == (name not in WITHOUT_STAPLES and not ranking.is_whole)


@pytest.mark.parametrize(("kind", "core"), [("tied", "skew"), ("tied", "partly symmetric"), ("families", "skew")])
@pytest.mark.parametrize("ranking", [Ranking.CONTINUATION, Ranking.LIFT])
def test_where_few_items_are_no_staples_they_are_the_list(kind: str, core: str, ranking: Ranking):
    law = many_missions(kind, core)
    options: Any = {"n": 4, "ranking": ranking, "support": 0.0}
    for basket in begun_baskets(law)[1:8]:
        times = continuation_scores(law, basket) / np.maximum(law.popularity, 1e-300)
        less, more = np.flatnonzero((times > 0) & (times < USUAL)), np.argsort(-times)[:2]
        alone = recommend(law, basket, candidates=less, **options)
        assert len(less) > len(alone.items) == 4
        without = recommend(law, basket, candidates=less, staples=False, **options)
        assert without.items.tolist() == alone.items.tolist()
        assert without.scores == pytest.approx(alone.scores, rel=1e-9)
        both = recommend(law, basket, candidates=[*less, *more], staples=False, **options)
        assert sorted(both.items) == sorted(more)


def test_limits_that_only_staples_keep_are_kept_by_them():
    law = many_missions("tied")
    (basket,) = begun_baskets(law)[[4]]
    times = continuation_scores(law, basket) / np.maximum(law.popularity, 1e-300)
    never = Limit(np.flatnonzero(times >= USUAL).tolist(), most=0)
    found, same = (recommend(law, basket, staples=staples, limits=never) for staples in (False, True))
    assert found.items.tolist() == same.items.tolist()
    assert len(found.items) == 10


@pytest.mark.parametrize("damping", [-0.1, 1.5, float("nan")])
def test_damping_is_between_none_and_lift(damping: float):
    with pytest.raises(InvalidInputError, match="damping must be between 0 and 1"):
        recommend(LAWS["kernel"], [3], damping=damping)
    with pytest.raises(InvalidInputError, match="ranking must be one of continuation, completion, lift; got 'next'"):
        recommend(LAWS["kernel"], [3], ranking="next")


@every
def test_recommendations_in_bulk_are_those_of_each(name: str, monkeypatch):
    law, lists = LAWS[name], [list(S) for S in subsets(N) if len(S) <= 3][::8]
    for ranking in Ranking:
        alone = [alone_or_none(law, S, ranking) for S in lists]
        for at_once in (1, 10**6):
            monkeypatch.setattr("ndpp.inference.ranking.SCORES_AT_ONCE", at_once)
            many = recommend_many(
                law, Baskets.from_lists(lists, n_items=N), n=2, candidates=[0, 2, 4, 5], ranking=ranking
            )
            assert [found is None for found in many] == [one is None for one in alone]
            for found, (expected, scores) in ((found, one) for found, one in zip(many, alone) if one is not None):
                assert found.scores == pytest.approx(expected.scores, abs=1e-9)
                # Equal scores may come in another order.
                assert scores[found.items] == pytest.approx(expected.scores, abs=1e-9)


def alone_or_none(law, basket: list[int], ranking: Ranking):
    """(Recommendation, scores of all items) of one basket; None if it cannot occur."""
    try:
        return recommend(law, basket, n=2, candidates=[0, 2, 4, 5], ranking=ranking), ranking.scores(law, basket)
    except ZeroProbabilityError:
        return None


CORES = {
    "skew": np.kron(np.eye(3), [[0.0, 1.0], [-1.0, 0.0]]),
    "nearly skew": np.kron(np.eye(3), [[0.1, 1.0], [-1.0, 0.3]]),
    "partly symmetric": np.diag([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]) + np.kron(np.diag([1.0, 1.0, 0.0]), [[0, 1], [-1, 0]]),
}
"""There is no bound of the last."""
KINDS = [*product(["tied", "families"], CORES)]


@cache
def many_missions(kind: str, core: str = "skew", strength: float = 0.5) -> Mixture:
    """Forty components over 90 items, some of which cannot occur."""
    rng = np.random.default_rng(7)
    X, W = rng.standard_normal((90, 6)) * strength, CORES[core]
    odds = np.exp(rng.normal(-3, 1.5, (40, 90)))
    if kind == "tied":
        return Mixture.tied(odds, X, W, rng.dirichlet(np.ones(40))).exclude([3, 50])
    families = np.concatenate([np.arange(60), np.arange(60)[::2]])
    return FamilyMixture(
        odds, np.exp(rng.normal(-1, 1, (90, 2))), families, np.arange(90) % 60, X[:60], W, rng.dirichlet(np.ones(40))
    )


def begun_baskets(law: Mixture) -> Baskets:
    return Baskets.from_lists([[], [5], *(basket[:4] for basket in law.sample(20, rng=0))], n_items=90)


ASKED = [*product((Ranking.CONTINUATION, Ranking.LIFT), (None, range(0, 90, 2)), (True, False))]


@cache
def one_by_one(kind: str, core: str) -> dict[Any, list[Any]]:
    """Recommendations for begun baskets, one basket after the other, from the scores of all items."""
    law = many_missions(kind, core)
    scored = [(continuation_scores(law, basket), basket) for basket in begun_baskets(law)]
    return {
        asked: [Rule.of(law, n=5, ranking=asked[0], candidates=asked[1], staples=asked[2]).best(*one) for one in scored]
        for asked in ASKED
    }


@pytest.mark.parametrize(("kind", "core"), KINDS)
def test_scores_of_begun_baskets_in_bulk_are_those_of_each(kind: str, core: str):
    law = many_missions(kind, core)
    baskets = begun_baskets(law)
    single = np.stack([continuation_scores(law, basket) for basket in baskets])
    assert Begun(law, baskets).scores() == pytest.approx(single, abs=2e-12)


@pytest.mark.parametrize(("kind", "core"), KINDS)
@pytest.mark.parametrize(("few", "equal"), [(0, 1e-9), (90, 1e-9), (0, -1.0), (90, -1.0)])
def test_begun_baskets_in_bulk_are_those_of_each(kind: str, core: str, few: int, equal: float, monkeypatch):
    """By one bound or both; and a threshold that is twice the right one loses items, so that dropping is at work."""
    law = many_missions(kind, core)
    baskets, alone = begun_baskets(law), one_by_one(kind, core)
    begun = Begun(law, baskets)
    assert begun.posterior == pytest.approx(np.stack([law.responsibilities(basket) for basket in baskets]), abs=1e-12)
    monkeypatch.setattr("ndpp.laws.begun.FEW", few)
    monkeypatch.setattr("ndpp.laws.begun.MANY", few // 2)
    monkeypatch.setattr("ndpp.laws.begun.EQUAL", equal)
    differ = 0
    for asked in ASKED:
        ranking, candidates, staples = asked
        options: Any = {"n": 5, "candidates": candidates, "ranking": ranking, "staples": staples}
        found = recommend_many(law, baskets, **options)
        singly = [recommend(law, basket, **options) for basket in baskets]
        for bulk, one in [*zip(found, alone[asked]), *zip(singly, alone[asked])]:
            if equal > 0 or bulk.items.tolist() == one.items.tolist():
                assert bulk.items.tolist() == one.items.tolist()
                assert bulk.scores == pytest.approx(one.scores, abs=2e-12, rel=1e-9)
            else:
                differ += 1
    assert (differ > 0) == (equal < 0 and (few == 0 or core != "partly symmetric"))


@pytest.mark.parametrize(("kind", "core"), KINDS)
@pytest.mark.parametrize("strength", [0.5, 0.1])
def test_the_second_part_is_within_its_bounds(kind: str, core: str, strength: float):
    """With strong ties and with weak ones; the closer bound is sharp."""
    law = many_missions(kind, core, strength)
    begun = Begun(law, begun_baskets(law))
    first, pulls, gain = begun._sums()[0], begun._pulls(), begun.scores() - begun._first_parts()
    own = begun._settled[:2]
    gain[own] = 0.0
    assert (begun.posterior @ law.inclusion_table.T <= first).all()
    assert (first <= begun.posterior @ law.inclusion_table.T * (1 + 1e-4) + 1e-12).all()
    every = np.arange(law.n_items)
    second = np.stack([begun._gains(i, every) for i in range(len(begun.baskets))])
    assert gain.max() > 0.05 * strength**4
    assert (gain <= second).all()
    large = gain > 0.2 * gain.max()
    assert np.median((gain / second)[large]) > 0.4
    if core == "partly symmetric":
        assert (pulls == NO_BOUND).all()
        return
    assert not pulls[0].any()
    bound = first * (law.growth[0] + law.growth[1] * pulls)
    assert (gain <= bound + 1e-12).all()
    if (core, strength) == ("skew", 0.1):
        assert np.median((gain / bound.clip(1e-300))[large]) > 0.3


def test_bounds_in_single_precision_are_bounds():
    """Of squares of products that cancel, and of vectors that single precision cannot hold."""
    law = many_missions("tied", "skew")
    begun, rng = Begun(law, begun_baskets(law)), np.random.default_rng(0)
    x = law.all_rows
    vectors = rng.standard_normal((50, x.shape[1]))
    vectors -= np.outer(vectors @ x[3], x[3]) / (x[3] @ x[3])  # orthogonal to one row
    exact = np.square(x @ vectors.T)
    squares, lengths, errors = begun._squares(vectors, slice(None))
    bounds = (1 + SPREAD) * (squares.astype(float) + np.outer(lengths, errors))
    assert (exact <= bounds).all()
    assert (bounds <= 1.01 * exact + 1e-6).all()
    squares, lengths, errors = begun._squares(1e60 * vectors, slice(None))
    assert not (squares + np.outer(lengths, errors) < 1e30).any()


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_small_matrices_are_eliminated_as_by_lapack(k: int):
    """Relative to |A| |A⁻¹|, up to nearly singular ones; singular ones have no sign, and raise nothing."""
    rng = np.random.default_rng(k)
    A = rng.standard_normal((200, k, k)) * 10.0 ** rng.uniform(-5, 5, (200, 1, 1))
    if k > 1:
        A[::2, 1] = A[::2, 0] + 1e-6 * A[::2, 1]
    sign, log_abs, inverses = eliminated(A)
    expected, condition = np.linalg.slogdet(A), np.ones(200)
    if k:
        condition = np.abs(A).max(axis=(1, 2)) * np.abs(inverses).sum(axis=(1, 2))
    assert np.array_equal(sign, expected.sign)
    assert (
        np.abs(log_abs - expected.logabsdet) <= 16 * np.finfo(float).eps * condition + 1e-14 * np.abs(log_abs)
    ).all()
    assert (np.abs(inverses @ A - np.eye(k)) <= 1e-14 * condition[:, None, None]).all()
    if k:
        assert eliminated(np.zeros((1, k, k)))[0].tolist() == [0.0]


@pytest.mark.parametrize("kind", ["tied", "families"])
def test_products_are_formed_for_all_baskets_and_in_parts(kind: str, monkeypatch):
    """Whatever the size of the parts, and for baskets that are alone or share all their items with others."""
    law = many_missions(kind)
    lists = [[5], [7, 5], [], [5, 7, 9], [9, 7, 5, 60], [11, 12]]
    baskets = Baskets.from_lists(lists, n_items=90)
    single = np.stack([continuation_scores(law, basket) for basket in lists])
    for products, items, n_parts in ((2**25, 512, 1), (2 * 40 * 6 * 5, 7, 2), (1, 1, 6)):
        monkeypatch.setattr("ndpp.laws.begun.PRODUCTS", products)
        monkeypatch.setattr("ndpp.laws.begun.ITEMS", items)
        found = [part.tolist() for part in parts(law, baskets)]
        assert len(found) == n_parts
        assert sorted(i for part in found for i in part) == [0, 1, 2, 3, 4, 5]
        assert continuation_scores(law, baskets) == pytest.approx(single, abs=2e-12)
        for basket, expected in zip(lists, single):
            alone = continuation_scores(law, Baskets.from_lists([basket], n_items=90))
            assert alone[0] == pytest.approx(expected, abs=2e-12)


@pytest.mark.parametrize("kept", [2**26, 1])
@pytest.mark.parametrize("kind", ["tied", "families"])
def test_what_was_asked_before_changes_no_digit(kind: str, kept: int, monkeypatch):
    """What is kept of single items, with however many others it was computed."""
    monkeypatch.setattr("ndpp.laws.begun.KEPT_BYTES", kept)
    (fresh, other), baskets = [many_missions.__wrapped__(kind) for _ in range(2)], ([5, 7, 9], [7], [9, 60, 5], [60])
    found = [fresh.inclusion_probabilities(given=basket) for basket in baskets]
    assert other.responsibilities([60, 9]).sum() == pytest.approx(1)
    for basket, expected in reversed([*zip(baskets, found)]):
        assert np.array_equal(other.inclusion_probabilities(given=basket), expected)


@pytest.mark.parametrize("ranking", [Ranking.CONTINUATION, Ranking.LIFT])
def test_of_equal_items_in_bulk_the_first_are_recommended(ranking: Ranking):
    """Equal up to rounding, which must not decide which items are looked at again."""
    rng = np.random.default_rng(3)
    twins = np.tile(np.arange(30), 4)
    odds, X = np.exp(rng.normal(-3, 1.5, (40, 30)))[:, twins], (rng.standard_normal((30, 6)) / 2)[twins]
    odds *= 1 + 1e-13 * np.repeat(np.arange(4), 30)  # the last of equal items is the most popular, by rounding
    law = Mixture.tied(odds, X, CORES["nearly skew"], rng.dirichlet(np.ones(40)))
    lists = [[a, (7 * a + 3) % 30] for a in range(30)]
    for n in (1, 2, 6):
        for basket, found in zip(
            lists, recommend_many(law, Baskets.from_lists(lists, n_items=120), n=n, ranking=ranking)
        ):
            assert found is not None
            assert found.items.tolist() == recommend(law, basket, n=n, ranking=ranking).items.tolist()


def test_a_begun_basket_to_which_rounding_matters_says_so():
    """As alone; the other baskets of the batch do not."""
    X, W = np.sqrt(1e13) * np.array([[1.0, 0], [0, 1], [1, 1], [0, 0]]), [[0.0, 1.0], [-1.0, 0.0]]
    law = Mixture.tied(np.full((2, 4), 1e-13) * [[1.0], [0.5]], X, W, [0.5, 0.5])
    fine, lost = Baskets.from_lists([[0], [3]], n_items=4), Baskets.from_lists([[0], [0, 1, 2]], n_items=4)
    assert recommend_many(law, fine, ranking=Ranking.CONTINUATION)[1] is not None
    with pytest.raises(PrecisionError):
        continuation_scores(law, [0, 1, 2])
    with pytest.raises(PrecisionError):
        recommend_many(law, lost, ranking=Ranking.CONTINUATION)


def test_of_equal_items_the_first_are_recommended():
    kernel = LowRankKernel(np.eye(5), np.diag([1.0, 2.0, 1.0, 1.0, 2.0]))
    for n in range(1, 8):
        (found,) = recommend_many(kernel, Baskets.from_lists([[1]], n_items=5), n=n)
        assert found is not None
        assert found.items.tolist() == [4, 0, 2, 3][:n]


@pytest.mark.parametrize("name", ["tied", "mixture", "tied, disjoint items"])
def test_the_greedy_basket_of_a_mixture_takes_the_best_next_item(name: str):
    law, chosen = LAWS[name], [2]
    longest = 2 if "disjoint" in name else N
    while len(chosen) < longest:
        chosen.append(int(np.argmax(next_item_scores(law, chosen))))
    for size in range(1, longest + 1):
        assert greedy_map(law, size, given=[2]).tolist() == chosen[:size]
    assert greedy_map(law, 2, given=[2], candidates=[3]).tolist() == [2, 3]
    for size, message in (
        (0, "size counts the given items"),
        (N + 1, "no set is larger"),
        (3, "ends after 2 items|larger than 2"),
    ):
        with pytest.raises(ImpossibleSizeError, match=message):
            greedy_map(law, size, given=[2], candidates=[3])


def test_a_greedy_basket_of_the_given_items_alone():
    for law in LAWS.values():
        assert law.log_prob([3, 5]) > -np.inf or law is LAWS["tied, disjoint items"]
        if law.log_prob([3, 5]) > -np.inf:
            assert greedy_map(law, 2, given=[3, 5]).tolist() == [3, 5]


def test_the_two_differ():
    """An item that makes the basket larger still is likely in what it becomes, and unlikely in the very next basket."""
    few, many = [9.0, 2.0, 0.0, 0.0, 0.0, 0.0], [9.0, 0.0, 9.0, 9.0, 9.0, 9.0]
    mixture = Mixture.tied([few, many], np.zeros((6, 1)), [[1.0]], [0.5, 0.5])
    assert recommend(mixture, [0], n=1, ranking=Ranking.COMPLETION).items.tolist() == [1]
    assert recommend(mixture, [0], n=1).items.tolist() == [2]


def test_errors():
    mixture = LAWS["tied, disjoint items"]
    with pytest.raises(ZeroProbabilityError, match=r"\[0, 2\]"):
        next_item_scores(mixture, Baskets.from_lists([[0], [0, 2]], n_items=N))
    with pytest.raises(ZeroProbabilityError):
        continuation_scores(mixture, [0, 2])
    with pytest.raises(InvalidInputError, match="one catalogue"):
        Ranking.CONTINUATION.scores(mixture, Baskets.from_lists([[0]], n_items=2))


def test_metrics_take_mixtures():
    mixture = LAWS["tied"]
    baskets = mixture.sample(60, rng=0)
    assert metrics.log_likelihoods(mixture, baskets) == pytest.approx(mixture.log_probs(baskets))
    assert metrics.mean_percentile_rank(mixture, baskets, rng=0, n_boot=10).value > 40


def test_a_limit_per_category_filters_the_ranked_list():
    rng = np.random.default_rng(0)
    kernel = make_kernel(40, 6, rng=1)
    category_of = rng.integers(0, 5, 40).tolist()
    baskets = Baskets.from_lists([[0], [3, 7], []], n_items=40)
    candidates = np.flatnonzero(rng.random(40) < 0.8)
    for most in (1, 3):
        limit = PerCategory(category_of, most)
        found = recommend_many(kernel, baskets, n=9, candidates=candidates, per_category=limit)
        for basket, own in zip(baskets, found):
            ranked = recommend(kernel, basket, n=40, candidates=candidates)
            assert len(ranked.items) > 9
            counts, kept = Counter(category_of[item] for item in basket.tolist()), []
            for item in ranked.items.tolist():
                if counts[category_of[item]] < most:
                    counts[category_of[item]] += 1
                    kept.append(item)
            assert own.items.tolist() == kept[:9]
            single = recommend(kernel, basket, n=9, candidates=candidates, per_category=limit)
            assert single.items.tolist() == kept[:9]
            np.testing.assert_allclose(single.scores, own.scores, rtol=1e-12)


@pytest.mark.parametrize("most", [None, 1])
def test_only_some_categories(most: int | None):
    labels = ["tea", "rye", "milk", "jam"]
    shop = LowRankKernel(np.eye(4), np.diag([4.0, 3.0, 2.0, 1.0]), labels=labels)
    of = ["drink", "bread", "drink", "sweet"]
    found = recommend(shop, [], per_category=PerCategory(of, most, only=["sweet", "drink"])).labels
    assert found == (("tea", "milk", "jam") if most is None else ("tea", "jam"))
    with pytest.raises(InvalidInputError, match="category_of has no category 'drinks'; did you mean 'drink'"):
        recommend(shop, [], per_category=PerCategory(of, most, only=["drinks"]))
    with pytest.raises(InvalidInputError, match="has no category 7; it has bread, drink, sweet"):
        recommend(shop, [], per_category=PerCategory(of, most, only=[7]))
    with pytest.raises(InvalidInputError, match="lacks 1 of the items that may be recommended, such as 'milk'"):
        recommend(shop, [], per_category=PerCategory([*of[:2], None, "sweet"], most, only=["sweet"]))


def test_a_limit_needs_a_category_per_item():
    kernel = make_kernel(40, 6, rng=1)
    with pytest.raises(InvalidInputError, match="category_of must have 40 entries, or be a mapping from names; got 2"):
        recommend(kernel, [], per_category=PerCategory(["a", "b"], 1))
    with pytest.raises(InvalidInputError, match="most must be at least 1; got 0"):
        recommend(kernel, [], per_category=PerCategory(["a"] * 40, 0))


@pytest.mark.parametrize("form", [dict, pd.Series])
def test_categories_by_label(form: Any):
    labels = ["tea", "rye", "milk", "jam"]
    shop = LowRankKernel(np.eye(4), np.diag([4.0, 3.0, 2.0, 1.0]), labels=labels)
    by_label = form({"jam": "sweet", "milk": "drink", "tea": "drink", "rye": "bread", "soap": "other"})
    for most, expected in ((1, ["tea", "rye", "jam"]), (2, labels)):
        assert list(recommend(shop, [], per_category=PerCategory(by_label, most)).labels or ()) == expected
    by_position = form({0: "drink", 1: "bread", 2: "drink", 3: "sweet"})
    assert recommend(shop, [], per_category=PerCategory(by_position, 1)).labels == ("tea", "rye", "jam")
    nameless = LowRankKernel(shop.X, shop.W)
    assert recommend(nameless, [], per_category=PerCategory(by_position, 1)).items.tolist() == [0, 1, 3]


def test_categories_by_product_codes():
    """Whole numbers are names where the catalogue has such names, and positions where it has not."""
    shop = LowRankKernel(np.eye(3), np.diag([4.0, 3.0, 2.0]), labels=["22", "1", "7"])
    limit = PerCategory(pd.Series(["a", "a", "b"], index=[1, 7, 22]), 1)
    assert recommend(shop, [], per_category=limit).labels == ("22", "1")
    assert recommend(shop, [], per_category=PerCategory(pd.Series(["a", "a", "b"]), 1)).labels == ("22", "7")


@pytest.mark.parametrize(
    ("categories", "message"),
    [
        ({"tea": 1, "rye": None}, "lacks 2 of the items that may be recommended, such as 'rye'. Give each a category"),
        (
            pd.Series({"tea": 1.0, "rye": 2.0, "milk": np.nan}),
            "lacks 1 of the items that may be recommended, such as 'milk'",
        ),
        ({"soap": 1}, "none of its keys, such as 'soap', is among the names, such as 'tea'"),
        ({}, "none of its keys is among the names"),
        (pd.Series([1, 2], index=["tea", "tea"]), "some of its keys occur twice"),
    ],
)
def test_items_without_a_category(categories: Any, message: str):
    shop = LowRankKernel(np.eye(3), np.diag([4.0, 3.0, 2.0]), labels=["tea", "rye", "milk"])
    with pytest.raises(InvalidInputError, match=f"category_of .*{message}"):
        recommend(shop, [], per_category=PerCategory(categories, 1))


def test_what_may_not_be_recommended_needs_no_category():
    shop = LowRankKernel(np.eye(3), np.diag([4.0, 3.0, 2.0]), labels=["tea", "rye", "milk"])
    limit = PerCategory({"tea": 1, "milk": 1}, 1)
    assert recommend(shop, [], candidates=["tea", "milk"], per_category=limit).labels == ("tea",)


class Fitted(NamedTuple):
    """As much of a fitted estimator as functions ask of it."""

    law_: Any


def test_functions_take_estimators():
    law = LAWS["tied"]
    model, baskets = Fitted(law), Baskets.from_lists([[], [2]], n_items=N)
    for asked in (next_item_scores, continuation_scores):
        np.testing.assert_array_equal(asked(model, [2]), asked(law, [2]))
    for asked in (next_item_scores, continuation_scores, Ranking.LIFT.scores):
        np.testing.assert_array_equal(asked(model, baskets), asked(law, baskets))
    np.testing.assert_array_equal(greedy_map(model, 3), greedy_map(law, 3))
    assert repr(recommend(model, [2], 3)) == repr(recommend(law, [2], n=3)) == repr(law.recommend([2], 3))
    assert repr(recommend_many(model, baskets)) == repr(recommend_many(law, baskets))
    with pytest.raises(InvalidInputError, match="expected a kernel, a mixture or a fitted estimator; got list"):
        recommend([1.0], [2])


@pytest.mark.parametrize("name", LAWS)
def test_scores_equal_up_to_rounding_come_in_the_order_of_the_catalogue(name):
    """An empty basket makes no item more likely: every lift is one."""
    law = LAWS[name]
    possible, empty = np.flatnonzero(law.inclusion_probabilities() > 0), Baskets.from_lists([[]], n_items=law.n_items)
    many = recommend_many(law, empty, n=4, ranking=Ranking.LIFT, support=0.0)
    for found in (recommend(law, [], n=4, ranking=Ranking.LIFT, support=0.0), many[0]):
        assert found is not None
        assert found.scores == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_array_equal(found.items, possible[:4])


def test_lift_of_items_that_hardly_ever_occur_is_the_same_in_bulk():
    rng, n = np.random.default_rng(5), 12
    odds = rng.uniform(0.1, 1.0, (3, n))
    odds[:, 0] = [1e-14, 1e-14, 0.5]  # it occurs in the component that hardly ever occurs
    skew = rng.normal(size=(4, 4))
    law = Mixture.tied(odds, rng.normal(size=(n, 4)), np.eye(4) + skew - skew.T, [0.6, 0.4 - 1e-13, 1e-13])
    baskets = Baskets.from_lists([[1, 2, 3], [4]], n_items=n)
    many = recommend_many(law, baskets, n=n, ranking="lift", support=0.0)
    for basket, found in zip(baskets, many):
        one = recommend(law, basket, n=n, ranking="lift", support=0.0)
        parts = np.array([component.inclusion_probabilities(given=basket) for component in law.components])
        lift = law.responsibilities(basket) @ parts / law.inclusion_probabilities()
        assert one.scores == pytest.approx(lift[one.items], rel=1e-8)
        assert found.items.tolist() == one.items.tolist()
        assert found.scores == pytest.approx(one.scores, rel=1e-8)
    assert 0 in one.items


@pytest.mark.filterwarnings("ignore::ndpp.errors.DataWarning")
def test_unknown_items_of_all_lists_are_skipped():
    """As in ``ndpp.answers``, the command and the service."""
    law = shelf_kernel()
    lists = {"exclude": ["rice", "oat drink"], "candidates": ["rice", "tea", "jam", "oat drink"]}
    found = law.recommend(["bread", "oat drink"], unknown="skip", **lists)
    assert found.labels == law.recommend(["bread"], exclude=["rice"], candidates=["rice", "tea", "jam"]).labels
    asked = answers.recommend(law, ["bread", "oat drink"], unknown="skip", **lists)
    assert [one.item for one in asked.items] == list(found.labels)
    with pytest.raises(UnknownLabelError):
        law.recommend(["bread"], exclude=["oat drink"])
