"""Comparisons of models: the same baskets, the same held-out items, paired gains, both parts of the likelihood, EASE."""

from __future__ import annotations

from math import comb, log, log1p
from types import SimpleNamespace

import numpy as np
import pytest

from ndpp import Baskets, LowRankKernel, Mixture, metrics
from ndpp.baskets.orders import Orders
from ndpp.datasets import make_baskets, make_kernel, shelf_kernel
from ndpp.errors import InvalidInputError, PrecisionError
from ndpp.metrics import models
from ndpp.metrics.likelihood import random_sets
from ndpp.metrics.models import log_size_probabilities
from ndpp.metrics.ranking import held_out_ranks, without
from ndpp.metrics.regression import DROPOUTS, _each_item, _quality

MADE = make_baskets(1500, rng=0)
TRAIN, VALIDATION, TEST = MADE.baskets.split(200, 400, rng=0)
POPULAR, COSINE, EASE = metrics.independent_items(TRAIN), metrics.item_item_cosine(TRAIN), metrics.ease(TRAIN)
ODDS = np.random.default_rng(0).random((3, 40))
MIXTURE = Mixture.tied(ODDS, MADE.kernel.X, MADE.kernel.W / 10, [0.2, 0.3, 0.5])
EVERY = {"kernel": MADE.kernel, "mixture": MIXTURE, "popular": POPULAR, "cosine": COSINE, "EASE": EASE}


def baskets_of(sizes, n_items, rng=0):
    return random_sets(np.random.default_rng(rng), np.asarray(sizes), n_items)


def rowed(found):
    return {row.name: row for row in found.rows}


# -- like with like ----------------------------------------------------------------------------------------------------


def test_each_metric_is_that_of_the_single_function_with_the_same_seed():
    found = rowed(metrics.compare_models(EVERY, TEST, k=5, rng=7, n_boot=0))
    for name, model in EVERY.items():
        own = found[name]
        single = {
            "mean_percentile_rank": metrics.mean_percentile_rank(model, TEST, rng=7, n_boot=0),
            "hit_rate": metrics.hit_rate_at(model, TEST, 5, rng=7, n_boot=0),
            "reciprocal_rank": metrics.mean_reciprocal_rank(model, TEST, rng=7, n_boot=0),
            "ndcg": metrics.ndcg_at(model, TEST, 5, rng=7, n_boot=0),
        }
        for field, expected in single.items():
            assert getattr(own, field).value == pytest.approx(expected.value, rel=1e-12), field
            assert getattr(own, field).name == expected.name
        if models.has_probabilities(model):
            assert own.log_likelihood.value == pytest.approx(metrics.mean_log_likelihood(model, TEST, n_boot=0).value)
        else:
            assert (own.log_likelihood, own.gain, own.size, own.content, own.auc) == (None,) * 5


def test_another_seed_holds_out_other_items():
    first, second = (metrics.compare_models({"a": COSINE}, TEST, rng=seed, n_boot=0).rows[0] for seed in (0, 1))
    assert first.mean_percentile_rank.value != second.mean_percentile_rank.value


def test_gains_are_paired():
    found = metrics.compare_models(EVERY, TEST, rng=0)
    rows = rowed(found)
    assert found.base == "popular"
    assert (rows["popular"].gain, rows["popular"].hit_rate_gain) == (None, None)
    kernel, popular = rows["kernel"], rows["popular"]
    assert kernel.gain.value == pytest.approx(kernel.log_likelihood.value - popular.log_likelihood.value)
    assert kernel.gain.value == pytest.approx(metrics.log_likelihood_gain(MADE.kernel, POPULAR, TEST, n_boot=0).value)
    assert kernel.gain.high - kernel.gain.low < 0.5 * (kernel.log_likelihood.high - kernel.log_likelihood.low)
    assert rows["EASE"].hit_rate_gain.value == pytest.approx(rows["EASE"].hit_rate.value - popular.hit_rate.value)
    twins = metrics.compare_models({"a": MADE.kernel, "b": MADE.kernel}, TEST, rng=0).rows[1]
    assert (twins.gain.low, twins.gain.value, twins.gain.high, twins.hit_rate_gain.high) == (0, 0, 0, 0)


def test_the_base_model_can_be_chosen():
    other = metrics.compare_models(EVERY, TEST, base="kernel", rng=0, n_boot=0)
    assert rowed(other)["popular"].gain.value < 0
    without = metrics.compare_models({"first": MIXTURE, "second": MADE.kernel}, TEST, rng=0, n_boot=0)
    assert without.base == "first"
    ranks_only = metrics.compare_models(EVERY, TEST, base="EASE", rng=0, n_boot=0)
    assert all(row.gain is None for row in ranks_only.rows)
    assert rowed(ranks_only)["cosine"].hit_rate_gain is not None
    with pytest.raises(InvalidInputError, match=r"one of kernel, mixture, popular, cosine, EASE; got 'Popular'"):
        metrics.compare_models(EVERY, TEST, base="Popular")


def test_a_basket_that_one_model_cannot_have_counts_for_none():
    """The model without large baskets would look better on the smaller ones alone, and is not allowed to."""
    small = make_kernel(40, 4, rng=0)
    baskets = baskets_of([1] * 50 + [2] * 60 + [4] * 40 + [5] * 30 + [7] * 20, 40)
    found = metrics.compare_models({"popular": POPULAR, "small": small}, baskets, rng=0, n_boot=20)
    rows = rowed(found)
    fits, ranked = baskets.select(max_size=4), baskets.select(min_size=2, max_size=5)
    assert (found.n_baskets, found.n_impossible, found.n_held_out, found.n_unranked) == (200, 50, 150, 20)
    assert rows["popular"].log_likelihood.value == pytest.approx(POPULAR.log_likelihoods(fits).mean())
    assert rows["popular"].log_likelihood.value != pytest.approx(POPULAR.log_likelihoods(baskets).mean(), abs=0.5)
    for own, n_zero in ((rows["popular"], 0), (rows["small"], 50)):
        assert {own.log_likelihood.n, own.size.n, own.content.n} == {len(fits)}
        assert own.log_likelihood.n_zero == n_zero
        assert own.auc.n == len(baskets)
        assert {own.mean_percentile_rank.n, own.hit_rate.n, own.reciprocal_rank.n, own.ndcg.n} == {len(ranked)}
    assert "50 baskets have probability zero under a model and count for none, except in AUC (small: 50)." in str(found)
    assert "20 baskets cannot be ranked by a model and count in the ranks of none (small: 20)." in str(found)
    alone = metrics.compare_models({"popular": POPULAR}, baskets, rng=0, n_boot=0)
    assert (alone.n_impossible, alone.n_unranked, alone.rows[0].log_likelihood.n) == (0, 0, 200)
    assert "count" not in str(alone)


def test_no_basket_in_common():
    first, second = (LowRankKernel(np.eye(4), np.diag(odds)) for odds in ([1.0, 1, 0, 0], [0.0, 0, 1, 1]))
    found = metrics.compare_models({"a": first, "b": second}, Baskets.from_lists([[0, 1], [2, 3]]), rng=0)
    assert (found.n_impossible, found.n_unranked) == (2, 2)
    assert np.isnan([found.rows[0].log_likelihood.value, found.rows[1].hit_rate.value]).all()


# -- size and content --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kernel", "mixture", "popular"])
def test_size_and_content_are_the_two_parts(name):
    model = EVERY[name]
    row = metrics.compare_models({name: model}, TEST, rng=0, n_boot=0).rows[0]
    assert row.size.value + row.content.value == pytest.approx(row.log_likelihood.value)
    size = log_size_probabilities(model, TEST)
    some = [0, 1, 5, 17]
    if name == "popular":
        exact = LowRankKernel(np.eye(40), np.diag(model.probabilities / (1 - model.probabilities)))
    else:
        exact = model
    for i in some:
        expected = np.log(exact.size_distribution()[len(TEST[i])])
        assert size[i] == pytest.approx(expected, abs=1e-8)
        assert exact.log_prob(TEST[i], size=len(TEST[i])) == pytest.approx(
            metrics.log_likelihoods(model, TEST[i : i + 1])[0] - size[i], abs=1e-7
        )


def test_the_parts_can_be_left_out():
    whole, part = (rowed(metrics.compare_models(EVERY, TEST, rng=0, n_boot=50, by_size=by)) for by in (True, False))
    for name, row in part.items():
        assert (row.size, row.content) == (None, None)
        assert row == whole[name]._replace(size=None, content=None)
    assert whole["mixture"].size is not None


def test_rare_sizes_keep_their_digits():
    """P(|S| = 30) is far below the rounding of a size distribution."""
    popular = metrics.IndependentItems(np.full(40, 1e-3))
    baskets = baskets_of([30, 0, 31], 40)
    expected = [log(comb(40, k)) + k * log(1e-3) + (40 - k) * log1p(-1e-3) for k in (30, 0, 31)]
    np.testing.assert_allclose(log_size_probabilities(popular, baskets), expected, rtol=1e-12)
    kernel = LowRankKernel(np.eye(40), np.eye(40) * 1e-3 / (1 - 1e-3))
    np.testing.assert_allclose(log_size_probabilities(kernel, baskets), expected, rtol=1e-9)
    mixture = Mixture([kernel, kernel], [0.5, 0.5])
    np.testing.assert_allclose(log_size_probabilities(mixture, baskets), expected, rtol=1e-9)


def test_impossible_sizes_and_models_without_sizes(monkeypatch):
    kernel = make_kernel(20, 4, rng=0)
    assert np.isneginf(log_size_probabilities(kernel, baskets_of([5, 2], 20))).tolist() == [True, False]
    bare = SimpleNamespace(
        n_items=20, scores=lambda b: np.zeros((len(b), 20)), log_likelihoods=lambda b: -b.sizes / 1.0
    )
    row = metrics.compare_models({"bare": bare}, baskets_of([2, 3], 20), rng=0, n_boot=0).rows[0]
    assert (row.size, row.content, row.log_likelihood.value) == (None, None, -2.5)

    def refuse(self, size=None):
        if size is not None:
            raise PrecisionError("too small")
        return 0.0

    monkeypatch.setattr(models, "RARE_SIZE", 1.0)
    monkeypatch.setattr(LowRankKernel, "log_normalizer", refuse)
    assert log_size_probabilities(kernel, baskets_of([2], 20)) is None


# -- EASE --------------------------------------------------------------------------------------------------------------


def test_ease_is_a_ridge_regression_of_each_item_on_the_others():
    baskets, penalty = baskets_of(np.random.default_rng(1).integers(1, 7, 200), 12), 7.0
    X = baskets.to_csr().toarray().astype(float)
    expected = np.zeros((12, 12))
    for item in range(12):
        others = np.delete(np.arange(12), item)
        A = X[:, others]
        expected[others, item] = np.linalg.solve(A.T @ A + penalty * np.eye(11), A.T @ X[:, item])
    model = metrics.ease(baskets, penalty=penalty)
    np.testing.assert_allclose(model.weights, expected, atol=1e-12)
    np.testing.assert_allclose(model.scores(baskets), X @ expected, atol=1e-12)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_baskets_may_count_by_a_power_of_their_size(power):
    """The ridge regression of rows divided by the power, and by one number that leaves the trace of the Gram matrix as it was."""
    baskets, penalty = baskets_of(np.random.default_rng(1).integers(1, 7, 200), 12), 7.0
    X = baskets.to_csr().toarray().astype(float)
    rows = X / baskets.sizes[:, None] ** power
    rows *= np.sqrt((X**2).sum() / (rows**2).sum())
    P = np.linalg.inv(rows.T @ rows + penalty * np.eye(12))
    expected = np.eye(12) - P / np.diag(P)
    model = metrics.ease(baskets, penalty=penalty, size_power=power)
    np.testing.assert_allclose(model.weights, expected, atol=1e-12)
    assert model.size_power == power
    assert abs(model.weights - metrics.ease(baskets, penalty=penalty).weights).max() > 1e-3


def test_dropout_penalizes_each_item_by_how_often_it_occurs():
    """The regression of each item on the others, with the penalty that dropout of the share p is in expectation."""
    baskets, penalty, p = baskets_of(np.random.default_rng(1).integers(1, 7, 200), 12), 7.0, 0.4
    X = baskets.to_csr().toarray().astype(float)
    expected = np.zeros((12, 12))
    for item in range(12):
        others = np.delete(np.arange(12), item)
        kept = np.where(np.eye(11, dtype=bool), 1 - p, (1 - p) ** 2)  # how often two items are there together
        A = X[:, others].T @ X[:, others] * kept / (1 - p) ** 2
        expected[others, item] = np.linalg.solve(A + penalty * np.eye(11), X[:, others].T @ X[:, item])
    model = metrics.ease(baskets, penalty=penalty, dropout=p)
    np.testing.assert_allclose(model.weights, expected, atol=1e-12)
    assert model.dropout == p
    assert abs(model.weights - metrics.ease(baskets, penalty=penalty).weights).max() > 1e-3


def test_baskets_may_count_by_weights():
    baskets = baskets_of(np.random.default_rng(1).integers(1, 7, 200), 12)
    by_size = metrics.ease(baskets, penalty=7.0, size_power=0.25).weights
    np.testing.assert_allclose(metrics.ease(baskets, penalty=7.0, weights=3 * baskets.sizes**-0.5).weights, by_size)
    np.testing.assert_allclose(metrics.ease(Orders(baskets, weights=baskets.sizes**-0.5), penalty=7.0).weights, by_size)
    first = metrics.ease(baskets, penalty=7.0, weights=np.arange(200) < 50).weights
    np.testing.assert_allclose(first, metrics.ease(baskets[:50], penalty=7.0).weights)
    with pytest.raises(InvalidInputError, match="weights"):
        metrics.ease(baskets, weights=np.ones(3))


def test_validation_baskets_choose_the_dropout():
    chosen = metrics.ease(TRAIN, penalty=30.0, dropout=None, validation=VALIDATION)
    tried = {p: metrics.ease(TRAIN, penalty=30.0, dropout=p) for p in DROPOUTS}
    held = _each_item(VALIDATION)
    quality = {p: _quality(model, held) for p, model in tried.items()}
    assert quality[chosen.dropout] == max(quality.values()) > min(quality.values())
    assert metrics.ease(TRAIN, dropout=None).dropout == 0.2


def test_validation_baskets_choose_the_power():
    chosen = metrics.ease(TRAIN, size_power=None, validation=VALIDATION)
    assert chosen.penalty == metrics.ease(TRAIN, size_power=0.5, validation=VALIDATION).penalty
    owner = np.repeat(np.arange(len(VALIDATION)), np.where(VALIDATION.sizes > 1, VALIDATION.sizes, 0))
    each = VALIDATION[owner]
    first = np.searchsorted(owner, owner)
    held = without(each, np.arange(len(owner)) - first)
    quality = {
        power: np.average(
            held_out_ranks(metrics.ease(TRAIN, penalty=chosen.penalty, size_power=power), held).reciprocal(), weights=1 / held.sizes
        )
        for power in (0.25, 0.5, 0.75, 1.0)
    }  # fmt: skip
    assert quality[chosen.size_power] == max(quality.values())
    assert len(set(quality.values())) == 4
    assert metrics.ease(TRAIN, size_power=None).size_power == 0.5


def test_the_penalty_is_the_best_on_validation_baskets():
    chosen = metrics.ease(TRAIN, validation=VALIDATION)
    baskets = VALIDATION.select(min_size=2)

    def plain(model):
        """Mean reciprocal rank of every item, held out one at a time."""
        total = []
        for basket in baskets:
            ranks = []
            for item in basket:
                rest = Baskets.from_lists([basket[basket != item]], n_items=baskets.n_items)
                score = model.scores(rest)[0]
                others = np.setdiff1d(np.arange(baskets.n_items), basket)
                ranks.append(1 + np.sum(score[others] > score[item]))
            total.append(np.mean(1 / np.array(ranks)))
        return np.mean(total)

    quality = {
        penalty: plain(metrics.ease(TRAIN, penalty=penalty)) for penalty in (10.0, 100.0, 1000.0, chosen.penalty)
    }
    assert max(quality.values()) == quality[chosen.penalty]
    assert len(set(quality.values())) >= 3
    assert metrics.ease(TRAIN).penalty == metrics.ease(TRAIN, validation=VALIDATION[:0]).penalty == 100


def test_ease_finds_what_goes_together():
    made = make_baskets(4000, 40, n_pairs=10, complement_lift=4.0, mean_size=3.0, rng=0)
    train, validation, test = made.baskets.split(400, 1500, rng=0)
    popular = metrics.hit_rate_at(metrics.independent_items(train), test, 5, rng=0)
    assert metrics.hit_rate_at(metrics.ease(train, validation=validation), test, 5, rng=0).low > popular.value


def test_wrong_input_to_ease():
    with pytest.raises(InvalidInputError, match=r"40 items are more than max_items=39"):
        metrics.ease(TRAIN, max_items=39)
    for penalty in (0.0, -1.0, np.nan):
        with pytest.raises(InvalidInputError, match="penalty must be positive"):
            metrics.ease(TRAIN, penalty=penalty)
    with pytest.raises(InvalidInputError, match="size_power must lie between 0 and 2"):
        metrics.ease(TRAIN, size_power=-1.0)
    for dropout in (-0.1, 1.0, np.nan):
        with pytest.raises(InvalidInputError, match="dropout must be at least 0 and less than 1"):
            metrics.ease(TRAIN, dropout=dropout)
    with pytest.raises(InvalidInputError, match="Ease ranks items but has no probabilities"):
        metrics.mean_log_likelihood(EASE, TEST)


def test_items_that_no_basket_has():
    model = metrics.ease(Baskets.from_lists([[0, 1], [0, 1], [2]], n_items=5))
    assert np.isfinite(model.weights).all()
    assert not model.weights[3:].any()


# -- tables and wrong input --------------------------------------------------------------------------------------------


def test_the_tables():
    found = metrics.compare_models(EVERY, TEST, k=5, rng=0, n_boot=50)
    (first, likely), (second, ranks) = found.tables()
    assert first == ["model", "log-likelihood", "gain", "log P(size)", "log P(items | size)", "AUC"]
    assert second == ["model", "MPR", "hit rate@5", "hit rate@5 gain", "MRR", "NDCG@5"]
    assert [line[0] for line in likely] == ["kernel", "mixture", "popular"]
    assert [line[0] for line in ranks] == list(EVERY)
    assert all("±" in cell for line in likely + ranks for cell in line[1:] if cell != "–")
    top, bottom, notes = str(found).split("\n\n")
    assert len({len(line) for line in top.splitlines()}) == 1
    assert max(map(len, bottom.splitlines())) <= 100
    assert notes.endswith("Gains are over popular, basket by basket.")
    assert "±" not in str(metrics.compare_models(EVERY, TEST, rng=0, n_boot=0))


def test_a_frame_has_a_row_per_model_and_metric():
    pytest.importorskip("pandas")
    found = metrics.compare_models(EVERY, TEST, rng=0, n_boot=20)
    frame = found.to_frame()
    values = [(row.name, one.name, one.value, one.low, one.n) for row in found.rows for one in row.estimates]
    assert list(frame[["model", "metric", "value", "low", "n"]].itertuples(index=False, name=None)) == values


def test_only_rankers():
    found = metrics.compare_models({"cosine": COSINE, "EASE": EASE}, TEST, rng=0, n_boot=0)
    (table,) = found.tables()
    assert [line[0] for line in table[1]] == ["cosine", "EASE"]
    assert found.base == "cosine"


def test_no_model_and_no_basket_of_two():
    assert str(metrics.compare_models({}, TEST)).startswith("400 baskets")
    found = metrics.compare_models({"popular": POPULAR}, TEST.select(max_size=1), rng=0, holdout="largest-id")
    assert found.n_held_out == 0
    assert np.isnan(found.rows[0].hit_rate.value)
    assert np.isfinite(found.rows[0].log_likelihood.value)


def test_models_to_compare_have_names():
    with pytest.raises(InvalidInputError, match=r"models must map names to models.* got a LowRankKernel"):
        metrics.compare_models(MADE.kernel, TEST)
    with pytest.raises(InvalidInputError, match="expected Baskets; got list"):
        metrics.compare_models({"a": MADE.kernel}, [[0, 1]])


def test_fitted_estimators_are_models():
    estimator = SimpleNamespace(law_=MIXTURE)
    one, other = (metrics.compare_models({"a": model}, TEST, rng=0, n_boot=0).rows[0] for model in (estimator, MIXTURE))
    assert str(one) == str(other)


def test_precision_at_is_the_hit_rate():
    assert metrics.precision_at is metrics.hit_rate_at


# -- in context --------------------------------------------------------------------------------------------------------


def test_baskets_in_context_are_judged_in_it():
    """All metrics, basket by basket, are those of ``law.at``; a value that was not learned has no effect."""
    law = MIXTURE.with_context({"day": ("x", "y")}, np.random.default_rng(1).normal(size=(2, 3)))
    words = np.resize(["x", "y", "new"], len(TEST))
    judged = Orders(TEST, context={"day": words, "noise": words})
    laws = [law.at(day=word, unknown="skip") for word in words]
    alone = [TEST[[i]] for i in range(len(TEST))]
    logs = [one.log_prob(basket) for one, basket in zip(laws, TEST)]
    np.testing.assert_allclose(metrics.log_likelihoods(law, judged), logs)
    sizes = [log_size_probabilities(one, basket)[0] for one, basket in zip(laws, alone)]
    np.testing.assert_allclose(log_size_probabilities(law, judged), sizes)
    scores = np.concatenate([models.scores(one, basket) for one, basket in zip(laws, alone)])
    np.testing.assert_allclose(models.scores(law, judged), scores, rtol=1e-9)
    found, plain = (
        metrics.compare_models({"law": law}, baskets, rng=0, n_boot=0).rows[0] for baskets in (judged, TEST)
    )
    assert found.log_likelihood.value == pytest.approx(np.mean(logs))
    for field in ("log_likelihood", "size", "content", "auc", "mean_percentile_rank", "ndcg"):
        assert getattr(found, field).value != getattr(plain, field).value, field
    other, same = (metrics.compare_models({"law": MIXTURE}, one, rng=0, n_boot=0).rows[0] for one in (judged, TEST))
    assert [one.value for one in other.estimates] == [one.value for one in same.estimates]


def test_empty_baskets_are_not_said_to_be_impossible():
    law = shelf_kernel().without_empty()
    found = metrics.compare_models(
        {"model": law}, Baskets.from_lists([[], [], [0, 1], [6, 8]], n_items=law.n_items), n_boot=10
    )
    assert (found.n_impossible, found.n_empty) == (2, 2)
    told = " ".join(found.notes())
    assert "2 baskets are empty, as orders whose items were all skipped are; a model here has no empty baskets." in told
    assert "probability zero" not in told
    assert (
        metrics.compare_models(
            {"model": shelf_kernel()}, Baskets.from_lists([[], [0, 1]], n_items=12), n_boot=10
        ).n_empty
        == 0
    )
