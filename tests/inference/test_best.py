"""The best set of one size and its bound, against enumeration."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import ndpp
from ndpp.errors import (
    BudgetExceededError,
    ImpossibleLimitError,
    ImpossibleSizeError,
    InvalidInputError,
    UnknownItemError,
)
from ndpp.laws.kernel_scoring import concave_bound

N = 10


def laws() -> dict[str, object]:
    rng = np.random.default_rng(0)
    X, D = rng.standard_normal((N, 5)) * np.exp(rng.standard_normal((N, 1)) / 2), rng.standard_normal((5, 5))
    delta, skew = rng.uniform(0, 1, N), np.eye(5) / 4 + D - D.T
    odds = np.exp(rng.standard_normal((3, N)) - 1)
    return {
        "symmetric": ndpp.LowRankKernel(X),
        "nonsymmetric": ndpp.LowRankKernel(X, skew),
        "background": ndpp.LowRankKernel(X, skew, background=delta),
        "restricted": ndpp.LowRankKernel(X, skew).exclude([1]),
        "mixture": ndpp.Mixture([ndpp.LowRankKernel(X), ndpp.LowRankKernel(X[::-1], skew)], [0.3, 0.7]),
        "tied mixture": ndpp.Mixture.tied(odds, X / 4, skew, [0.5, 0.25, 0.25]),
    }


LAWS = laws()


def weight(law, items) -> float:
    return law.log_prob(items) + law.log_normalizer()


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("given", [(), (3,)], ids=["any", "given"])
@pytest.mark.parametrize("name", LAWS)
def test_the_bound_is_above_the_best_and_the_set_is_one(name: str, given: tuple[int, ...], size: int):
    law = LAWS[name]
    best = max(weight(law, S) for S in combinations(range(N), size) if set(given) <= set(S))
    found = ndpp.best_set(law, size, given=given, n_samples=20)
    assert len(found.items) == size
    assert set(given) <= set(found.items.tolist())
    assert found.log_weight == pytest.approx(weight(law, found.items), abs=1e-9)
    assert found.log_weight >= weight(law, ndpp.greedy_map(law, size, given=given)) - 1e-9
    assert found.log_weight == pytest.approx(best, abs=1e-9)  # so few items leave no room for local optima
    assert found.bound >= best - 1e-9
    assert found.gap == found.bound - found.log_weight >= 0
    assert found.bound <= law.log_normalizer(size) + 1e-9


@pytest.mark.parametrize("name", ["symmetric", "nonsymmetric", "background", "mixture", "tied mixture"])
def test_limits_are_kept_and_the_bound_is_above_the_best(name: str):
    law, prices = LAWS[name], np.linspace(1, 3, N)
    limits = [ndpp.Limit(range(5), least=1, most=2), ndpp.Limit(prices, most=6.5)]
    kept = [
        S
        for S in combinations(range(N), 3)
        if 3 in S and 1 <= sum(a < 5 for a in S) <= 2 and prices[list(S)].sum() <= 6.5
    ]
    best = max(kept, key=lambda S: weight(law, S))
    found = ndpp.best_set(law, 3, given=[3], limits=limits, n_samples=20)
    assert tuple(found.items.tolist()) in kept
    assert found.log_weight >= weight(law, ndpp.greedy_map(law, 3, given=[3], limits=limits)) - 1e-9
    assert found.log_weight == pytest.approx(weight(law, best), abs=1e-9)
    assert found.bound >= found.log_weight
    with pytest.raises(ImpossibleLimitError):
        ndpp.best_set(law, 3, limits=ndpp.Limit(prices, most=2))


def test_greedy_is_improved():
    """The longest vector is between the two that span the most."""
    kernel = ndpp.LowRankKernel([[1.0, 0.0], [0.0, 1.0], [0.9, 0.9]])
    assert 2 in ndpp.greedy_map(kernel, 2)
    found = ndpp.best_set(kernel, 2, n_samples=0)
    assert found.items.tolist() == [0, 1]
    assert found.log_weight == pytest.approx(0, abs=1e-12)
    assert ndpp.best_set(kernel, 2, candidates=[1, 2]).items.tolist() == [1, 2]
    assert ndpp.best_set(kernel, 2, candidates=[1], given=[2]).items.tolist() == [1, 2]


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_concave_bound(size: int):
    """Above every set of the relaxation's kernel, far below the spectral bound, and sharp where one set stands out."""
    rng = np.random.default_rng(1)
    for spread in (0.0, 1.0, 3.0):
        Y = rng.standard_normal((12, 6)) * np.exp(spread * rng.standard_normal((12, 1)))
        best = max(np.linalg.slogdet(Y[list(S)] @ Y[list(S)].T)[1] for S in combinations(range(12), size))
        spectral = np.log(np.linalg.eigvalsh(Y.T @ Y)[::-1][:size]).sum()
        bound = concave_bound(Y, size)
        assert best - 1e-9 <= bound <= spectral + 1e-9
        assert bound - best < 0.5 * (spectral - best) + 1e-9
        assert spread < 3 or bound - best < 0.1


def test_a_likely_set_is_certified():
    """Where one set has most of the probability, or where all eigenvalues are taken, the gap is zero."""
    L = np.diag([5.0, 4.0, 3.0, 0.1, 0.2])
    assert ndpp.best_set(ndpp.LowRankKernel.from_dense(L), 3).gap == 0
    assert ndpp.best_set(LAWS["symmetric"], 3, given=[0, 1, 2]).gap == 0
    assert ndpp.best_set(LAWS["mixture"], 2, given=[0, 1]).gap == pytest.approx(0, abs=1e-9)
    assert ndpp.best_set(LAWS["symmetric"], 0) == (pytest.approx([]), 0.0, 0.0)


def test_where_greedy_ends_samples_go_on():
    """Of a purely skew kernel, greedy adds pairs; sets of odd size do not occur."""
    kernel = ndpp.LowRankKernel(np.eye(4), [[0, 2, 0, 0], [-2, 0, 0, 0], [0, 0, 0, 1], [0, 0, -1, 0]])
    assert ndpp.best_set(kernel, 2).items.tolist() == [0, 1]
    assert ndpp.best_set(kernel, 4, given=[3]).items.tolist() == [0, 1, 2, 3]
    with pytest.raises(ImpossibleSizeError):
        ndpp.best_set(kernel, 3)


def test_limits_may_come_from_a_generator():
    law, limit = LAWS["mixture"], ndpp.Limit([0, 1], most=0)
    assert not {0, 1} & set(ndpp.best_set(law, 2, limits=(one for one in [limit])).items.tolist())
    assert not {0, 1} & set(ndpp.greedy_map(law, 2, limits=(one for one in [limit])).tolist())
    assert not {0, 1} & set(ndpp.recommend(law, [2], n=9, limits=(one for one in [limit])).items.tolist())


def test_where_samples_take_too_long_the_greedy_set_is_left(monkeypatch: pytest.MonkeyPatch):
    law, called = LAWS["mixture"], []

    def sample(*_: object, **__: object) -> None:
        called.append(1)
        raise BudgetExceededError("too many proposals", count=1)

    expected = ndpp.best_set(law, 2, n_samples=0)
    monkeypatch.setattr(ndpp.laws.law.Law, "sample", sample)
    assert ndpp.best_set(law, 2).items.tolist() == expected.items.tolist()
    assert called


def test_many_items():
    """A gap of a fraction of a nat, where the sum of all sets is 38 nats above."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((1000, 32))
    X *= (np.exp(rng.standard_normal(1000) / 2) / np.linalg.norm(X, axis=1))[:, None]
    kernel = ndpp.LowRankKernel(X)
    found = ndpp.best_set(kernel, 8, n_samples=0)
    assert found.gap < 0.5
    assert found.log_weight >= kernel.log_det(ndpp.greedy_map(kernel, 8)) - 1e-9
    assert found.bound < kernel.log_normalizer(8) - 20


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"size": 6}, ImpossibleSizeError, "rank of the kernel, 5"),
        ({"size": -1}, InvalidInputError, "size must be at least 0"),
        ({"size": 2.0}, InvalidInputError, "size must be an integer"),
        ({"given": [0, 1, 2]}, ImpossibleSizeError, "given"),
        ({"given": [0, 0]}, InvalidInputError, "must not repeat"),
        ({"given": [99]}, UnknownItemError, "99"),
        ({"candidates": [0]}, ImpossibleSizeError, "size 2"),
        ({"n_samples": -1}, InvalidInputError, "n_samples must be at least 0"),
        ({"law": np.eye(3)}, InvalidInputError, "expected a kernel, a mixture or a fitted estimator"),
    ],
)
def test_bad_input(arguments: dict, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        ndpp.best_set(**{"law": LAWS["symmetric"], "size": 2} | arguments)


def test_a_law_without_the_empty_set_has_the_same_best_sets():
    law = ndpp.Mixture([ndpp.LowRankKernel(np.diag([3.0, 1.0, 0.5, 2.0]) / scale) for scale in (1.0, 30.0)], [0.4, 0.6])
    for size in (1, 2):
        found, other = ndpp.best_set(law, size, rng=0), ndpp.best_set(law.without_empty(), size, rng=0)
        assert found.items.tolist() == other.items.tolist()
        assert other.log_weight == pytest.approx(law.without_empty().log_prob(other.items))
        assert other.log_weight <= other.bound <= 0
