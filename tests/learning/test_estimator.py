"""Estimators as scikit-learn knows them, and what they say to bad input."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

import oracles
from ndpp import metrics
from ndpp.baskets import Baskets
from ndpp.datasets import make_baskets
from ndpp.errors import DataWarning, InvalidInputError
from ndpp.learning import NDPP, ONDPP, LiteratureStart, MixtureNDPP, SymmetricDPP, trainer

ESTIMATORS = [NDPP, ONDPP, SymmetricDPP]
LISTS = [[0, 1], [0, 1, 2], [2], [3, 4], [3, 4], [0, 1], [], [5, 2, 0]] * 6
QUICK: dict[str, Any] = {"rank": 5, "max_epochs": 1, "random_state": 0}


@pytest.fixture(scope="module")
def baskets() -> Baskets:
    return Baskets.from_lists(LISTS, n_items=6)


@pytest.fixture(scope="module")
def model(baskets: Baskets) -> NDPP:
    return NDPP(**QUICK | {"max_epochs": 10}).fit(baskets)


# -- scikit-learn's own suite ------------------------------------------------------------------------------------------

NOT_BINARY = "fits numbers that are neither zero nor one, which are refused"
NEED_BINARY = [
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_readonly_memmap_input",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
]
NEED_BINARY += [
    name for name in ("check_all_zero_sample_weights_error",) if hasattr(estimator_checks, name)
]  # is newer
TWO_ITEMS = "fits two items; orthogonal columns need at least three"
NEED_THREE_ITEMS = [
    "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_n_features_in",
    "check_readonly_memmap_input",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
]


def _failures(estimator: Any, expected: dict[str, str]) -> dict[str, Any]:
    state = np.random.get_state()  # noqa: NPY002  some of the checks use it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, expected_failed_checks=expected, on_fail=None)
    np.random.set_state(state)  # noqa: NPY002
    statuses = [result["status"] for result in results]
    assert "passed" in statuses
    assert statuses.count("xfail") >= len(expected)  # an exception that is not needed is not declared
    return {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}


@pytest.mark.parametrize("estimator", [*ESTIMATORS, MixtureNDPP])
def test_scikit_learns_checks(estimator: Any):
    assert _failures(estimator(max_epochs=1), dict.fromkeys(NEED_BINARY, NOT_BINARY)) == {}


@pytest.mark.parametrize("estimator", [ONDPP, MixtureNDPP])
def test_scikit_learns_checks_on_zeros_and_ones(estimator: Any, monkeypatch: pytest.MonkeyPatch):
    """With its numbers rounded to zeros and ones, the whole suite runs."""
    true = Baskets.from_csr
    monkeypatch.setattr(trainer, "MIN_STEPS", 1)
    monkeypatch.setattr(Baskets, "from_csr", lambda matrix, labels: true(matrix > 0.5, labels=labels))
    expected = dict.fromkeys(NEED_THREE_ITEMS, TWO_ITEMS) if estimator is ONDPP else {}
    assert _failures(estimator(max_epochs=1, random_state=0), expected) == {}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_constructors_only_store_and_clones_are_equal(estimator: Any):
    made = estimator(
        7, noise=0.1, init=LiteratureStart(), checkpoint="somewhere", random_state=np.random.default_rng(0)
    )
    assert clone(made).get_params(deep=False).keys() == made.get_params().keys()
    assert clone(made).get_params()["init"] == LiteratureStart()
    assert estimator(rank="nonsense").rank == "nonsense"
    with pytest.raises(TypeError):
        estimator(rnak=3)


def test_grid_search(baskets: Baskets):
    search = GridSearchCV(NDPP(**QUICK), {"rank": [3, 5]}, cv=2).fit(baskets.to_csr())
    assert search.best_params_["rank"] in (3, 5)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_searches_keep_labels_and_compare_what_is_impossible():
    """A kernel of rank two calls every basket of three items impossible: its score is finite, and lower."""
    named = Baskets.from_lists([["a", "b", "c"], ["a"], ["b", "c"], ["d"]] * 12)
    search = GridSearchCV(SymmetricDPP(max_epochs=1, random_state=0), {"rank": [1, 2, 4]}, cv=2)
    with pytest.warns(UserWarning, match=r"have more items than the rank|less probable than 1e-06 times"):
        search.fit(named, sample_weight=np.ones(48))
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert scores[0] < scores[1] < scores[2]
    assert search.best_estimator_.labels_ == ("a", "b", "c", "d")


def test_the_score_has_a_floor(model: NDPP, baskets: Baskets):
    whole = Baskets.from_lists([[0, 1, 2, 3, 4, 5]], n_items=6)  # of rank five
    floor = np.log(1e-6) + float(model.baseline_.log_likelihoods(whole)[0])
    with pytest.warns(
        DataWarning, match="1 of 49 baskets are less probable than 1e-06 times independent items, 1 of them"
    ):
        score = model.score(Baskets.concat([baskets, whole]))
    assert score == pytest.approx((48 * model.score_samples(baskets).mean() + floor) / 49, rel=1e-12)
    assert model.score_samples(whole)[0] == -np.inf


def test_the_hit_rate_in_searches(baskets: Baskets):
    scorer = metrics.hit_rate_scorer(2)
    search = GridSearchCV(NDPP(**QUICK), {"rank": [3, 5]}, cv=2, scoring=scorer, refit=False)
    found = [search.fit(X).cv_results_["mean_test_score"] for X in (baskets, baskets.to_csr())]
    np.testing.assert_array_equal(*found)
    model = NDPP(**QUICK).fit(baskets)
    expected = metrics.hit_rate_at(model, baskets, 2, rng=0, n_boot=0)
    assert expected.n_zero == 0
    assert scorer(model, LISTS) == pytest.approx(expected.value)
    large = Baskets.concat([Baskets.from_lists([[0, 1, 2, 3, 4, 5]], n_items=6)] * 48)
    impossible = SymmetricDPP(rank=3, max_epochs=1, random_state=0).fit(baskets.select(max_size=2))
    assert scorer(impossible, large) == 0.0  # a rest of five items is impossible, so it counts as a miss


def test_the_hit_rate_of_a_pipeline(baskets: Baskets):
    scorer, pairs = metrics.hit_rate_scorer(1), FunctionTransformer(lambda X: X.select(max_size=2))
    pipeline = make_pipeline(pairs, NDPP(**QUICK)).fit(baskets)
    assert scorer(pipeline, baskets) == scorer(pipeline[-1], pairs.transform(baskets))
    assert scorer(make_pipeline(make_pipeline(pipeline[-1])), baskets) == scorer(pipeline[-1], baskets)
    assert scorer(pipeline, baskets) != scorer(pipeline[-1], baskets)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([[i % 9] for i in range(40)] + [[0, 1]], "40 of 41 baskets hold a single item.* Is the column of the baskets"),
        ([list(range(9))], "there is one basket, of 9 items, so there is nothing to learn from"),
    ],
)
def test_baskets_that_are_no_baskets(sets: Any, message: str):
    with pytest.warns(DataWarning, match=message):
        NDPP(rank=9, max_epochs=1, random_state=0).fit(sets)


# -- what it learns ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_scores_are_log_probabilities(estimator: Any, baskets: Baskets):
    fitted = estimator(**QUICK).fit(baskets)
    law = oracles.enumerate_law(fitted.kernel_.to_dense())
    sets = oracles.subsets(6)
    scores = fitted.score_samples(Baskets.from_lists(sets, n_items=6))
    assert np.exp(scores).sum() == pytest.approx(1.0, rel=1e-9)
    np.testing.assert_allclose(np.exp(scores[:-1]), [law.get(s, 0.0) for s in sets[:-1]], rtol=1e-6, atol=1e-12)
    assert scores[-1] == -np.inf  # six items, rank five
    assert fitted.score(baskets) == pytest.approx(fitted.score_samples(baskets).mean())


@pytest.mark.parametrize("start", [None, LiteratureStart()], ids=repr)
def test_ondpp_constraints_hold_after_training(start: Any, baskets: Baskets):
    fitted = ONDPP(6, max_epochs=5, init=start, random_state=0).fit(baskets)
    X, W = fitted.kernel_.X, fitted.kernel_.W
    n_skew = 2
    V, B = X[:, :-n_skew], X[:, -n_skew:]
    assert np.abs(B.T @ B - np.eye(n_skew)).max() < 1e-10
    assert np.abs(V.T @ B).max() < 1e-10
    assert W[-2, -1] > 0
    np.testing.assert_allclose(W[-2:, -2:], W[-2, -1] * np.array([[0, 1], [-1, 0]]))


@pytest.mark.usefixtures("full_epochs")
def test_gamma_lowers_the_expected_number_of_proposals(baskets: Baskets):
    def proposals(gamma: float) -> float:
        W = ONDPP(6, gamma=gamma, max_epochs=4, random_state=0).fit(baskets).kernel_.W
        sigma = W[-2, -1]
        return 1 + 2 * sigma / (sigma**2 + 1)

    assert proposals(2.0) < proposals(0.0) - 0.01


def test_kinds_of_input_are_equivalent(baskets: Baskets):
    csr = baskets.to_csr()
    dense = csr.toarray()
    frame = pd.DataFrame(dense, columns=list("abcdef"))
    models = [NDPP(**QUICK).fit(X) for X in (baskets, csr, sparse.csr_matrix(csr), dense, dense.astype(bool), frame)]
    lists = NDPP(**QUICK).fit(LISTS)
    for other in [*models[1:], lists]:
        np.testing.assert_array_equal(other.kernel_.X, models[0].kernel_.X)
        assert other.n_features_in_ == 6
    assert models[-1].kernel_.labels == tuple("abcdef")
    assert models[-1].score(frame) == models[0].score(baskets)


def test_random_states(baskets: Baskets):
    kernels = [
        NDPP(**QUICK | {"random_state": state()}).fit(baskets).kernel_.X
        for state in (
            lambda: 3,
            lambda: np.random.default_rng(3),
            lambda: np.random.RandomState(3),
            lambda: np.random.RandomState(3),
            lambda: None,
        )
    ]
    assert np.array_equal(kernels[0], kernels[1])
    assert np.array_equal(kernels[2], kernels[3])
    assert not np.array_equal(kernels[0], kernels[4])


def test_samples_are_those_of_the_kernel(model: NDPP):
    drawn = model.sample(20, size=3, given=[0], exclude=[5], rng=1)
    assert drawn == model.kernel_.sample(20, size=3, given=[0], exclude=[5], rng=1)
    assert all(0 in items and 5 not in items and len(items) == 3 for items in drawn)


def test_recommendations(model: NDPP):
    assert model.recommend([0], n=1).items.tolist() == [1]
    assert set(model.recommend([3], n=10).items) <= {0, 1, 2, 4, 5}
    named = NDPP(**QUICK).fit(Baskets.from_lists(LISTS, labels=list("abcdef")))
    assert named.recommend(["a"]).items.tolist() == named.recommend([0]).items.tolist()


@pytest.mark.usefixtures("full_epochs")
def test_single_precision_is_enough(baskets: Baskets):
    single = NDPP(**QUICK | {"max_epochs": 2, "dtype": "float32"}).fit(baskets)
    double = NDPP(**QUICK | {"max_epochs": 2}).fit(baskets)
    assert single.score(baskets) == pytest.approx(double.score(baskets), abs=0.05)


@pytest.mark.usefixtures("full_epochs")
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_training_on_a_gpu(estimator: Any, baskets: Baskets):
    settings = QUICK | {"max_epochs": 10, "noise": 0.0}  # noise is drawn on the device, and differs
    there = estimator(**settings, device="cuda").fit(baskets)
    here = estimator(**settings).fit(baskets)
    assert there.kernel_.X.dtype == np.float64
    assert there.score(baskets) == pytest.approx(here.score(baskets), abs=0.1)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("full_epochs")
@pytest.mark.parametrize("estimator", [NDPP, SymmetricDPP])
def test_one_item_only(estimator: Any):
    fitted = estimator(max_epochs=8, learning_rate=0.3, random_state=0).fit([[0]] * 30 + [[]] * 10)
    assert fitted.kernel_.inclusion_probabilities()[0] == pytest.approx(0.75, abs=0.1)


@pytest.mark.usefixtures("full_epochs")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_all_baskets_equal(estimator: Any):
    fitted = estimator(max_epochs=5, learning_rate=0.2, random_state=0).fit([[0, 2, 3]] * 40)
    assert np.exp(fitted.score([[0, 2, 3]])) > 0.5


def test_empty_baskets_are_sets_too(model: NDPP):
    assert np.exp(model.score([[]])) == pytest.approx(np.exp(-model.kernel_.log_normalizer()))


@pytest.mark.parametrize("estimator", [*ESTIMATORS, MixtureNDPP])
def test_the_empty_set_is_left_out_unless_there_are_empty_baskets(estimator: Any):
    filled, options = [one for one in LISTS if one], {"max_epochs": 1, "random_state": 0}
    sets = Baskets.from_lists(oracles.subsets(6), n_items=6)
    fitted = estimator(**options).fit(filled, validation=filled)
    assert fitted.law_.nonempty
    assert np.exp(fitted.score_samples(sets)).sum() == pytest.approx(1.0)
    assert fitted.score_samples([[]])[0] == -np.inf
    assert fitted.score_samples(filled).mean() == pytest.approx(fitted.validation_score_, abs=1e-4)
    assert (fitted.sample(100, rng=0).sizes > 0).all()
    for training, held_out in ((LISTS, filled), (filled, LISTS)):
        other = estimator(**options).fit(training, validation=held_out)
        assert not other.law_.nonempty
        assert np.exp(other.score_samples(sets)).sum() == pytest.approx(1.0)
        assert other.score_samples([[]])[0] > -np.inf


@pytest.mark.usefixtures("full_epochs")
def test_leaving_out_the_empty_set_is_learned_with():
    """Small baskets: the model that knows that none is empty is better by far than one that learned without it and is told so later."""
    made = make_baskets(1500, 12, mean_size=1.2, n_pairs=3, rng=0).baskets.select(min_size=1)
    train, validation, _ = made.split(200, 0, rng=0)
    told = MixtureNDPP(n_missions=2, max_epochs=3, random_state=0).fit(train, validation=validation)
    untold = MixtureNDPP(n_missions=2, max_epochs=3, random_state=0).fit(
        Baskets.concat([train, Baskets.from_lists([[]], n_items=12)]), validation=validation
    )
    later = untold.law_.without_empty().log_probs(validation).mean()
    assert told.validation_score_ > later > untold.validation_score_ + 0.1


def test_large_baskets_are_dropped_or_refused():
    sets = [*LISTS, [0, 1, 2, 3, 4, 5]]
    with pytest.warns(UserWarning, match="1 of 49 baskets have more items than the rank of the kernel, 5"):
        fitted = NDPP(**QUICK).fit(sets)
    assert fitted.n_dropped_ == 1
    with pytest.raises(InvalidInputError, match="larger rank, or oversize='drop'"):
        NDPP(**QUICK, oversize="raise").fit(sets)
    with pytest.warns(UserWarning, match="validation baskets"):
        NDPP(**QUICK).fit(LISTS, validation=sets[-2:])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], "nothing to learn"),
        ([[], []], "nothing to learn"),
        (np.zeros((4, 3)), "nothing to learn"),
        (np.array([[1.0, -1.0], [0.0, 1.0]]), "Negative values"),
        (sparse.csr_array(np.array([[1.0, -1.0], [0.0, 1.0]])), "Negative values"),
        (sparse.csr_array(np.array([[1.0, 2.0], [0.0, 1.0]])), "zeros and ones"),
        (np.array([[1.0, np.nan], [0.0, 1.0]]), "NaN"),
        (np.ones((0, 3)), "0 sample"),
        ([[0, -1]], "unknown item id -1"),
        ("text", "each basket must be"),
        (
            pd.DataFrame({"order": ["A", "A"], "product": ["tea", "milk"]}),
            r"Convert a long table with `Baskets\.from_frame",
        ),
    ],
)
def test_bad_baskets(X: Any, message: str):
    with pytest.raises(ValueError, match=message):
        NDPP(**QUICK).fit(X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[6]], "unknown item id 6"),
        ([["tea"]], "the model has no labels; give items as ids below 6"),
        (Baskets.from_lists([[0]], n_items=9), "has 6 items; these baskets have 9"),
        (np.ones((2, 5)), "X has 5 features, but NDPP is expecting 6"),
    ],
)
def test_items_unknown_at_scoring_time(model: NDPP, X: Any, message: str):
    with pytest.raises(ValueError, match=message):
        model.score_samples(X)


def test_other_labels_at_scoring_time():
    named = NDPP(**QUICK).fit(Baskets.from_lists(LISTS, labels=list("abcdef")))
    with pytest.raises(InvalidInputError, match="different labels"):
        named.score(Baskets.from_lists(LISTS, labels=list("bacdef")))
    assert named.score([["a", "b"]]) == named.score([[0, 1]])
    with pytest.raises(InvalidInputError, match="unknown label 'z'"):
        named.score([["z"]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 0}, "rank must be at least 3"),
        ({"rank": 2.5}, "rank must be an integer"),
        ({"noise": -1}, "noise must be a number, at least 0"),
        ({"alpha": "much"}, "alpha must be a number"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate": float("inf")}, "learning_rate"),
        ({"learning_rate": 0.0}, "learning_rate must be a number, above 0; got 0.0"),
        ({"validation_fraction": 1.0}, "between 0 and 0.9"),
        ({"oversize": "keep"}, "'drop' or 'raise'"),
        ({"dtype": "float16"}, "dtype must be"),
        ({"init": "uniform"}, "init must be"),
        ({"device": "cuda"}, "no CUDA"),
        ({"max_epochs": 0}, "max_epochs must be at least 1"),
        ({"n_restarts": 0}, "n_restarts must be at least 1; got 0"),
    ],
)
def test_bad_parameters(change: dict[str, Any], message: str, baskets: Baskets, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InvalidInputError, match=message):
        NDPP(**QUICK | change).fit(baskets)


def test_orthogonal_columns_need_items(baskets: Baskets):
    with pytest.raises(InvalidInputError, match="rank must be between 3 and 6"):
        ONDPP(7).fit(baskets)


@pytest.mark.parametrize("method", ["score_samples", "score", "recommend"])
def test_unfitted_models_say_so(method: str):
    with pytest.raises(NotFittedError):
        getattr(NDPP(), method)([[0]])


def test_importing_ndpp_does_not_load_torch():
    code = "import ndpp, sys; assert not {'torch', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
