"""Metrics against plain loops and known values, and intervals against the spread they claim to show."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import goodness
from kernels import BY_NAME, data_folder, learned
from ndpp import Baskets, LowRankKernel, metrics
from ndpp.datasets import load_baskets, make_baskets, make_kernel
from ndpp.errors import InvalidInputError, ZeroProbabilityError
from ndpp.inference import next_item_scores
from ndpp.laws import batched
from ndpp.metrics import likelihood
from ndpp.metrics.estimates import Bootstrap
from ndpp.metrics.likelihood import random_sets
from ndpp.metrics.models import scores
from ndpp.metrics.ranking import held_out_ranks, hold_out

RANKED = (metrics.mean_percentile_rank, metrics.hit_rate_at, metrics.mean_reciprocal_rank, metrics.ndcg_at)
METRICS = (metrics.mean_log_likelihood, metrics.auc, *RANKED)


def all_sets(n_items, most=None):
    sets = ([a for a in range(n_items) if i >> a & 1] for i in range(2**n_items))
    return Baskets.from_lists([items for items in sets if most is None or len(items) <= most], n_items=n_items)


def plain_scores(kernel, basket):
    try:
        return next_item_scores(kernel, basket) * (len(basket) < kernel.rank)
    except ZeroProbabilityError:
        return np.full(kernel.n_items, np.nan)


# -- many baskets at once ----------------------------------------------------------------------------------------------


SOME = [BY_NAME[name] for name in ("generic", "purely skew", "duplicate rows", "badly scaled rows", "singular L_A")]
"""The contract of laws has them all."""


@pytest.mark.parametrize("case", SOME, ids=str)
def test_log_likelihoods_are_those_of_single_baskets(case):
    baskets = all_sets(min(case.n_items, 8)) if case.n_items <= 8 else random_baskets(case.n_items, 200)
    baskets = Baskets(baskets.indptr, baskets.indices, case.n_items)
    plain = [case.kernel.log_prob(items) for items in baskets]
    np.testing.assert_allclose(metrics.log_likelihoods(case.kernel, baskets), plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_scores_are_those_of_single_baskets(case):
    baskets = random_baskets(case.n_items, 40, most=4)
    plain = np.array([plain_scores(case.kernel, items) for items in baskets])
    size = ((case.kernel.q_rows(np.arange(case.n_items)) * case.kernel.coordinates.scale) ** 2).sum(axis=1)
    found = scores(case.kernel, baskets)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(plain))
    known = ~np.isnan(plain)
    assert (np.abs(found - plain) <= 1e-8 * (size + plain))[known].all()


def random_baskets(n_items, n_baskets, most=6, rng=0):
    rng = np.random.default_rng(rng)
    return random_sets(rng, rng.integers(0, min(most, n_items) + 1, n_baskets), n_items)


@pytest.mark.parametrize("small", [False, True], ids=["one chunk", "many chunks"])
def test_chunks_make_no_difference(monkeypatch, small):
    kernel, baskets = make_kernel(60, 10, rng=0), random_baskets(60, 100, most=9)
    if small:
        for name, value in (("CHUNK_ITEMS", 20), ("STACK_ENTRIES", 50), ("BLOCK_ROWS", 7)):
            monkeypatch.setattr(batched, name, value)
        monkeypatch.setattr("ndpp.metrics.ranking.CHUNK_SCORES", 200)
    plain = [kernel.log_prob(items) for items in baskets]
    np.testing.assert_allclose(metrics.log_likelihoods(kernel, baskets), plain, rtol=1e-9)
    expected = [next_item_scores(kernel, items) for items in baskets]
    np.testing.assert_allclose(scores(kernel, baskets), expected, rtol=1e-8, atol=1e-10)
    whole = metrics.mean_percentile_rank(kernel, baskets, rng=0)
    assert whole.value == pytest.approx(plain_mpr(kernel, baskets, rng=0))


def test_the_careful_route_gives_the_same(monkeypatch):
    kernel, baskets = make_kernel(30, 10, rng=0), random_baskets(30, 50, most=9)
    fast = metrics.log_likelihoods(kernel, baskets), scores(kernel, baskets)
    monkeypatch.setattr(batched, "MAX_LOSS", 0.0)
    careful = metrics.log_likelihoods(kernel, baskets), scores(kernel, baskets)
    for one, other in zip(fast, careful):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


def test_a_restricted_kernel_gives_other_items_no_chance():
    kernel = make_kernel(12, 6, rng=0).exclude([3, 7])
    baskets = Baskets.from_lists([[0, 1], [3, 4], [7], [11], []], n_items=12)
    found = metrics.log_likelihoods(kernel, baskets)
    np.testing.assert_allclose(found, [kernel.log_prob(items) for items in baskets], rtol=1e-9)
    assert np.isneginf(found).tolist() == [False, True, True, False, False]
    np.testing.assert_array_equal(np.isnan(scores(kernel, baskets)).all(axis=1), np.isneginf(found))
    np.testing.assert_array_equal(scores(kernel, baskets)[[0, 3, 4]][:, [3, 7]], 0.0)


def test_baskets_larger_than_the_rank_are_impossible():
    kernel = make_kernel(20, 4, rng=0)
    baskets = Baskets.from_lists([range(5), range(4)], n_items=20)
    assert np.isneginf(metrics.log_likelihoods(kernel, baskets)).tolist() == [True, False]


# -- likelihood --------------------------------------------------------------------------------------------------------


def test_mean_log_likelihood_by_hand():
    kernel = LowRankKernel(np.eye(2), [[1.0, 1.0], [-1.0, 1.0]])  # weights 1, 1, 1, 2 of 5
    found = metrics.mean_log_likelihood(kernel, Baskets.from_lists([[0, 1], [0], [], [1]], n_items=2), rng=0)
    assert found.value == pytest.approx(np.mean(np.log([2 / 5, 1 / 5, 1 / 5, 1 / 5])))
    assert found.low <= float(found) <= found.high
    assert (found.n, found.n_zero, found.level) == (4, 0, 0.95)


def test_the_expected_log_likelihood_is_minus_the_entropy():
    made = make_baskets(20_000, 8, mean_size=1.5, n_pairs=2, complement_lift=2.0, rng=0)
    p = np.exp(metrics.log_likelihoods(made.kernel, all_sets(8)))
    assert p.sum() == pytest.approx(1)
    found = metrics.mean_log_likelihood(made.kernel, made.baskets, level=0.999, rng=0)
    assert found.low < (p * np.log(p)).sum() < found.high


def test_impossible_baskets_are_counted_and_left_out():
    kernel = make_kernel(10, 4, rng=0)
    baskets = Baskets.from_lists([[0], range(5), [4, 5]], n_items=10)
    found = metrics.mean_log_likelihood(kernel, baskets, rng=0)
    assert (found.n, found.n_zero) == (2, 1)
    assert found.value == pytest.approx((kernel.log_prob([0]) + kernel.log_prob([4, 5])) / 2)
    assert "on 2 baskets, 1 more of probability zero" in str(found)
    nothing = metrics.mean_log_likelihood(kernel, baskets[1:2], rng=0)
    assert nothing.n == 0
    assert np.isnan(nothing.value)


def test_gain_is_the_paired_difference():
    made = make_baskets(3000, rng=0)
    train, _, test = made.baskets.split(0, 1000, rng=1)
    baseline = metrics.independent_items(train)
    gain = metrics.log_likelihood_gain(made.kernel, baseline, test, rng=0)
    ours, theirs = (metrics.mean_log_likelihood(model, test, rng=0) for model in (made.kernel, baseline))
    assert gain.value == pytest.approx(ours.value - theirs.value)
    assert gain.low > 0
    assert gain.high - gain.low < 0.5 * (ours.high - ours.low)
    assert metrics.log_likelihood_gain(baseline, baseline, test, rng=0).value == 0


def test_gain_leaves_out_what_either_holds_impossible():
    kernel = make_kernel(10, 2, rng=0)
    other = make_kernel(10, 6, rng=0)
    baskets = Baskets.from_lists([[0], [1, 2, 3], [4]], n_items=10)
    for pair in ((kernel, other), (other, kernel)):
        found = metrics.log_likelihood_gain(*pair, baskets, n_boot=0)
        assert found.n_zero == 1
        assert np.isfinite(found.value)


# -- AUC ---------------------------------------------------------------------------------------------------------------


def test_random_sets_are_uniform():
    sets = random_sets(np.random.default_rng(0), np.repeat([3, 0, 1, 5], [20_000, 5, 10_000, 4]), 5)
    assert sets.sizes.tolist() == [3] * 20_000 + [0] * 5 + [1] * 10_000 + [5] * 4
    threes = [(a, b, c) for a in range(5) for b in range(a + 1, 5) for c in range(b + 1, 5)]
    goodness.assert_law(sets[:20_000].to_lists(), dict.fromkeys(threes, 0.1))
    goodness.assert_law(sets[20_005:30_005].to_lists(), {(a,): 0.2 for a in range(5)})


def test_auc_is_the_chance_to_beat_a_set_of_the_same_size():
    kernel = make_kernel(9, 6, rng=2)
    baskets = random_baskets(9, 300, most=4, rng=3)
    law, of_all = metrics.log_likelihoods(kernel, all_sets(9)), all_sets(9).sizes
    ours = metrics.log_likelihoods(kernel, baskets)
    kept = baskets.sizes > 0
    expected = [np.mean(law[of_all == size] < value) for value, size in zip(ours[kept], baskets.sizes[kept])]
    ties = [np.mean(np.isclose(law[of_all == size], value)) / 2 for value, size in zip(ours[kept], baskets.sizes[kept])]
    found = metrics.auc(kernel, baskets, rng=0)
    assert found.n == kept.sum()
    assert found.value == pytest.approx(np.mean(np.array(expected) + ties), abs=0.03)
    assert found.low < found.value < found.high


def test_auc_of_a_blind_and_of_a_sharp_model():
    baskets = Baskets.from_lists([[0, 1], [1, 2], [0, 2]] * 30, n_items=200)
    blind = metrics.IndependentItems(np.full(200, 0.01))
    assert metrics.auc(blind, baskets, rng=0).value == 0.5
    assert metrics.auc(metrics.independent_items(baskets), baskets, rng=0).value > 0.99


def test_auc_draws_ten_sets_a_basket_but_no_more_items_than_it_may(monkeypatch):
    baskets, drawn = Baskets.from_lists([[0, 1]] * 30 + [[2]] * 4, n_items=9), []
    monkeypatch.setattr(
        likelihood, "random_sets", lambda rng, sizes, n: drawn.append(sizes) or random_sets(rng, sizes, n)
    )
    for most, counts in ((20_000, [40, 300]), (100, [40, 50]), (10, [10, 30])):  # sets of one item, and of two
        monkeypatch.setattr(likelihood, "SET_ITEMS", most)
        metrics.auc(metrics.independent_items(baskets), baskets, n_boot=0, rng=0)
        assert np.bincount(drawn[-1])[1:].tolist() == counts


# -- ranks -------------------------------------------------------------------------------------------------------------


def plain_mpr(kernel, baskets, rng, rule="random"):
    """The same with one basket at a time and sorting by hand."""
    baskets = baskets.select(min_size=2)
    positions = np.random.default_rng(rng).integers(baskets.sizes) if rule == "random" else baskets.sizes - 1
    values = []
    for items, position in zip(baskets, positions):
        held, rest = items[position], np.delete(items, position)
        score = plain_scores(kernel, rest)
        if np.isnan(score).any():
            continue
        others = np.setdiff1d(np.arange(baskets.n_items), items)
        below = sum(score[i] < score[held] for i in others)
        ties = sum(score[i] == score[held] for i in others)
        values.append((below + 1 + ties / 2) / (len(others) + 1))
    return 100 * np.mean(values)


@pytest.mark.parametrize("rule", ["random", "largest-id"])
def test_mean_percentile_rank_against_a_plain_loop(rule):
    kernel, baskets = make_kernel(25, 6, rng=0), random_baskets(25, 80, most=8)
    found = metrics.mean_percentile_rank(kernel, baskets, holdout=rule, rng=5)
    assert found.value == pytest.approx(plain_mpr(kernel, baskets, 5, rule))
    # A rest larger than the rank is impossible; one item out of rank + 1 leaves a rest that is not.
    assert found.n_zero == np.sum(baskets.sizes > kernel.rank + 1)
    assert found.n + found.n_zero == np.sum(baskets.sizes >= 2)


def test_ranks_by_hand():
    model = SimpleNamespace(n_items=5, scores=lambda baskets: np.tile([3.0, 1.0, 2.0, 2.0, 2.0], (len(baskets), 1)))
    baskets = Baskets.from_lists([[0, 1], [0, 4], [3], [1, 2, 3]], n_items=5)
    ranks = held_out_ranks(model, hold_out(baskets, np.random.default_rng(0), "largest-id"))
    # Held out: 1 of {1, 2, 3, 4}, 4 of the same, 3 of {0, 3, 4}.
    assert ranks.above.tolist() == [3, 0, 1]
    assert ranks.ties.tolist() == [0, 2, 1]
    assert ranks.candidates.tolist() == [4, 4, 3]
    np.testing.assert_allclose(ranks.percentile(), [100 / 4, 100 * 3 / 4, 100 * 1.5 / 3])
    np.testing.assert_allclose(ranks.in_top(1), [0, 1 / 3, 0])
    np.testing.assert_allclose(ranks.in_top(2), [0, 2 / 3, 1 / 2])
    np.testing.assert_allclose(ranks.in_top(4), 1)
    np.testing.assert_allclose(ranks.reciprocal(), [1 / 4, (1 + 1 / 2 + 1 / 3) / 3, (1 / 2 + 1 / 3) / 2])
    gains = 1 / np.log2([2, 3, 4, 5])
    np.testing.assert_allclose(ranks.discounted(2), [0, (gains[0] + gains[1]) / 3, gains[1] / 2])
    np.testing.assert_allclose(ranks.discounted(10), [gains[3], gains[:3].mean(), gains[1:3].mean()])


def test_a_blind_ranking_scores_fifty():
    baskets = random_baskets(30, 200, most=5)
    blind = metrics.IndependentItems(np.full(30, 0.1))
    found = metrics.mean_percentile_rank(blind, baskets, rng=0)
    assert found.value == pytest.approx(50 * (1 + 1 / 28), rel=0.02)  # the item itself is at or below itself
    assert metrics.hit_rate_at(blind, baskets, 28, rng=0).value == pytest.approx(1, abs=0.06)


def test_random_holdout_is_uniform_and_the_largest_id_is_not():
    baskets, rng = Baskets.from_lists([[0, 1, 2, 3]] * 6000), np.random.default_rng(0)
    goodness.assert_counts(np.bincount(hold_out(baskets, rng).items, minlength=4), [0.25] * 4)
    assert set(hold_out(baskets, rng, "largest-id").items) == {3}


def test_complements_help_to_guess():
    made = make_baskets(4000, 40, n_pairs=10, complement_lift=4.0, mean_size=3.0, rng=0)
    train, _, test = made.baskets.split(0, 2000, rng=0)
    baseline = metrics.independent_items(train)
    for metric in (metrics.mean_percentile_rank, lambda *a, **k: metrics.hit_rate_at(*a, 5, **k)):
        truth, popular = metric(made.kernel, test, rng=1), metric(baseline, test, rng=1)
        assert truth.low > popular.value


# -- baselines ---------------------------------------------------------------------------------------------------------


def test_independent_items_is_a_law():
    baseline = metrics.independent_items(random_baskets(6, 50))
    assert np.exp(baseline.log_likelihoods(all_sets(6))).sum() == pytest.approx(1)
    kernel = LowRankKernel(np.eye(6), np.diag(baseline.probabilities / (1 - baseline.probabilities)))
    np.testing.assert_allclose(
        baseline.log_likelihoods(all_sets(6)), metrics.log_likelihoods(kernel, all_sets(6)), rtol=1e-10
    )


def test_unseen_items_are_possible():
    baseline = metrics.independent_items(Baskets.from_lists([[0]], n_items=3))
    assert np.isfinite(baseline.log_likelihoods(Baskets.from_lists([[1, 2]], n_items=3))).all()
    with pytest.raises(InvalidInputError, match="smoothing"):
        metrics.independent_items(Baskets.from_lists([[0]]), smoothing=0)


def test_margins_of_zero_and_one_are_moved_off():
    margins = metrics.independent_margins(LowRankKernel(np.diag([0.0, 1e10, 1e10]), np.eye(3)))
    np.testing.assert_array_equal(margins.probabilities, [1e-12, 1 - 1e-12, 1 - 1e-12])
    assert np.isfinite(margins.log_likelihoods(all_sets(3))).all()


def test_item_item_cosine_against_a_plain_loop():
    train, test = random_baskets(12, 100, rng=0), random_baskets(12, 20, rng=1)
    M = train.to_csr().toarray().astype(float)
    norms = np.sqrt((M**2).sum(axis=0))
    S = M.T @ M / np.outer(norms, norms)
    np.fill_diagonal(S, 0)
    expected = [S[items].sum(axis=0) for items in test]
    np.testing.assert_allclose(metrics.item_item_cosine(train).scores(test), expected, atol=1e-12)


def test_shrunk_cosine_and_rp3beta_against_plain_loops():
    rng = np.random.default_rng(0)
    train = Baskets.from_lists([rng.choice(9, rng.integers(6), replace=False).tolist() for _ in range(80)], n_items=9)
    X = train.to_csr().toarray().astype(float)
    counts, sizes, pairs = X.sum(axis=0), X.sum(axis=1), X.T @ X
    shrunk, walked = np.zeros((9, 9)), np.zeros((9, 9))
    for a, b in itertools.permutations(range(9), 2):
        shrunk[a, b] = pairs[a, b] / np.sqrt(counts[a] * counts[b]) * pairs[a, b] / max(pairs[a, b] + 5.0, 1.0)
        walked[a, b] = sum((X[u, a] / counts[a]) ** 0.7 * (X[u, b] / sizes[u]) ** 0.7 for u in range(len(X)) if X[u, a])
        walked[a, b] /= counts[b] ** 0.3
    np.testing.assert_allclose(metrics.item_item_cosine(train, shrinkage=5.0).weights.toarray(), shrunk, atol=1e-12)
    np.testing.assert_allclose(metrics.rp3beta(train, alpha=0.7, beta=0.3).weights.toarray(), walked, atol=1e-12)
    with pytest.raises(InvalidInputError, match="shrinkage must be at least zero"):
        metrics.item_item_cosine(train, shrinkage=-1.0)


def test_cosine_has_no_likelihood():
    baskets = random_baskets(6, 20)
    with pytest.raises(InvalidInputError, match="ItemWeights ranks items but has no probabilities"):
        metrics.mean_log_likelihood(metrics.item_item_cosine(baskets), baskets)


# -- intervals, sizes, tables ------------------------------------------------------------------------------------------


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(0)
    baseline = metrics.IndependentItems(np.full(10, 0.2))
    truth = 10 * (0.2 * np.log(0.2) + 0.8 * np.log(0.8))
    covered = 0
    for _ in range(200):
        baskets = Baskets.from_csr(rng.random((60, 10)) < 0.2)
        found = metrics.mean_log_likelihood(baseline, baskets, level=0.9, n_boot=200, rng=rng)
        covered += found.low <= truth <= found.high
    assert 0.80 < covered / 200 < 0.97


def test_intervals_in_parts_are_the_same(monkeypatch):
    values = np.random.default_rng(0).random(30)
    whole = Bootstrap(0.9, 50, 1).intervals(values[:, None])
    monkeypatch.setattr("ndpp.metrics.estimates.CHUNK_VALUES", 100)
    parts = Bootstrap(0.9, 50, 1).intervals(values[:, None])
    np.testing.assert_allclose(parts, whole, rtol=1e-14)


def test_the_same_seed_gives_the_same_and_no_interval_without_resamples():
    kernel, baskets = make_kernel(20, 6, rng=0), random_baskets(20, 60)
    for metric in METRICS:
        assert metric(kernel, baskets, rng=3) == metric(kernel, baskets, rng=3)
        assert metric(kernel, baskets, rng=3) != metric(kernel, baskets, rng=4)
        bare = metric(kernel, baskets, rng=3, n_boot=0)
        assert np.isnan([bare.low, bare.high]).all()
        assert bare.value == metric(kernel, baskets, rng=3).value


# -- wrong input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_wrong_input(metric):
    kernel, baskets = make_kernel(20, 6, rng=0), random_baskets(20, 10)
    with pytest.raises(InvalidInputError, match="have the same items; the model has 20, the baskets have 21"):
        metric(kernel, random_baskets(21, 10))
    with pytest.raises(InvalidInputError, match="expected a kernel"):
        metric(object(), baskets)
    with pytest.raises(InvalidInputError, match="level"):
        metric(kernel, baskets, level=95)
    with pytest.raises(InvalidInputError, match="n_boot"):
        metric(kernel, baskets, n_boot=-1)


def test_wrong_baskets_and_rules():
    kernel, baskets = make_kernel(20, 6, rng=0), random_baskets(20, 10)
    with pytest.raises(InvalidInputError, match="expected Baskets; got list"):
        metrics.mean_log_likelihood(kernel, [[0, 1]])
    with pytest.raises(InvalidInputError, match="holdout must be one of random, largest-id"):
        metrics.mean_percentile_rank(kernel, baskets, holdout="largest")
    with pytest.raises(InvalidInputError, match="k must be"):
        metrics.hit_rate_at(kernel, baskets, 0)
    with pytest.raises(InvalidInputError, match="k must be"):
        metrics.ndcg_at(kernel, baskets, 0)


def test_no_basket_of_two_items():
    found = metrics.mean_percentile_rank(make_kernel(5, 2, rng=0), Baskets.from_lists([[0], []], n_items=5), rng=0)
    assert (found.n, found.n_zero) == (0, 0)
    assert np.isnan(found.value)


# -- real data ---------------------------------------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.parametrize("name", ["A", "B"])
def test_a_learned_kernel_on_real_baskets(name):
    kernel = learned(name).kernel
    baskets = load_baskets("uk_retail", folder=data_folder())[::400]
    plain = [kernel.log_prob(items) for items in baskets]
    np.testing.assert_allclose(metrics.log_likelihoods(kernel, baskets), plain, rtol=1e-10)
    some = baskets.select(min_size=1)[:8]
    expected = np.array([next_item_scores(kernel, items) for items in some])
    np.testing.assert_allclose(scores(kernel, some), expected, rtol=1e-5, atol=1e-8 * expected.max())


@pytest.mark.data
def test_known_figures_of_uk_retail():
    if not (data_folder() / "uk_retail.baskets.gz").is_file():
        pytest.skip(f"no uk_retail.baskets.gz in {data_folder()}; point NDPP_DATA at the folder of real data")
    train, _, test = load_baskets("uk_retail", folder=data_folder()).split(300, 2000, rng=0)
    baseline, cosine = metrics.independent_items(train), metrics.item_item_cosine(train)
    assert metrics.mean_log_likelihood(baseline, test, n_boot=0).value == pytest.approx(-104.1, abs=1.5)
    assert metrics.mean_percentile_rank(baseline, test, rng=0, n_boot=0).value == pytest.approx(83.8, abs=1)
    assert metrics.mean_percentile_rank(cosine, test, rng=0, n_boot=0).value == pytest.approx(93.2, abs=1)


def test_ranks_beyond_the_catalogue():
    baskets = Baskets.from_lists([[0, 1], [2, 3]], n_items=4)
    law = LowRankKernel(np.eye(4), np.eye(4))
    for metric in (metrics.hit_rate_at, metrics.ndcg_at):
        values = [metric(law, baskets, k, n_boot=0).value for k in (4, 2**40, 2**63)]
        assert values[0] == values[1] == values[2]
