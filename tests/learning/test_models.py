"""Families keep what they promise; starts begin where they say."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import torch

from ndpp.laws.kernel import LowRankKernel
from ndpp.learning.models import (
    FreeSkew,
    KernelForm,
    LiteratureStart,
    NoSkew,
    OrthogonalPairs,
    Parameters,
    PopularityStart,
    TrainingStart,
    _orthonormal,
    inner_matrix,
)
from ndpp.learning.trainer import clone

FORMS = [FreeSkew(), OrthogonalPairs(), NoSkew()]
COUNTS = np.array([0.0, 1.0, 5.0, 200.0, 990.0, 1000.0, 30.0, 30.0])


def started(
    form: KernelForm, start: TrainingStart, rank: int = 8, mean_size: float = 2.5
) -> tuple[Parameters, np.ndarray, int]:
    scale = start.scale(COUNTS, 1000)
    parameters = start.parameters(np.random.default_rng(0), form, scale, rank, mean_size)
    return parameters, scale, form.columns(rank)[0]


def kernel_of(form: KernelForm, parameters: Parameters, scale: np.ndarray, n_sym: int) -> LowRankKernel:
    return LowRankKernel(parameters.X.numpy() * scale[:, None], inner_matrix(form, parameters.skew, n_sym))


def test_without_noise_items_count_more_and_pairs_less():
    noise, scale = torch.tensor([[0.0], [1.0]], dtype=torch.float64), torch.tensor([3.0, 1.0], dtype=torch.float64)
    for form, v, b in ((FreeSkew(), 1.1**2, 2**-0.25), (OrthogonalPairs(), 1.0, 1.0), (NoSkew(), 1.0, 1.0)):
        parameters = Parameters(torch.ones(2, 4, dtype=torch.float64), torch.zeros(0))
        n_sym, n_skew = form.columns(4)
        form.correct_for_noise(parameters, noise, scale, n_sym)
        np.testing.assert_allclose(parameters.X, [[v] * n_sym + [1.0] * n_skew, [v] * n_sym + [b] * n_skew])


@pytest.mark.parametrize("rank", range(3, 20))
@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_columns_make_up_the_rank(form: KernelForm, rank: int):
    n_sym, n_skew = form.columns(rank)
    assert n_sym + n_skew == rank
    assert n_sym >= 1
    assert n_skew % 2 == 0
    assert (n_skew == 0) == isinstance(form, NoSkew)


@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_inner_matrix_is_identity_and_skew(form: KernelForm):
    _, n_skew = form.columns(9)
    skew = torch.from_numpy(form.random(np.random.default_rng(0), n_skew, 1.0))
    W = inner_matrix(form, skew, 9 - n_skew)
    np.testing.assert_allclose(W + W.T, 2 * np.diag([1.0] * (9 - n_skew) + [0.0] * n_skew), atol=1e-15)
    assert np.linalg.matrix_rank(W) == 9


@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_popularity_start_has_the_mean_size_of_the_baskets(form: KernelForm):
    kernel = kernel_of(form, *started(form, PopularityStart()))
    assert kernel.inclusion_probabilities().sum() == pytest.approx(2.5, rel=1e-6)


def test_popularity_start_orders_items_by_how_often_they_occur():
    scale = PopularityStart().scale(COUNTS, 1000)
    assert np.isfinite(scale).all()
    np.testing.assert_array_equal(np.argsort(scale, kind="stable"), np.argsort(COUNTS, kind="stable"))
    assert scale[3] ** 2 == pytest.approx(200.5 / 800.5)


def test_a_mean_size_above_the_rank_is_no_obstacle():
    kernel = kernel_of(NoSkew(), *started(NoSkew(), PopularityStart(), rank=2, mean_size=7.0))
    assert kernel.inclusion_probabilities().sum() == pytest.approx(1.8, rel=1e-6)


def test_literature_start_is_the_literatures():
    parameters, scale, n_sym = started(FreeSkew(), LiteratureStart())
    assert (scale == 1).all()
    assert parameters.X.min() >= 0
    assert parameters.X.max() <= 1
    assert float(parameters.X.mean()) == pytest.approx(0.5, abs=0.1)
    assert float(parameters.skew.std()) == pytest.approx(1.0, abs=0.4)
    assert n_sym == 4


@pytest.mark.parametrize("start", [PopularityStart(), LiteratureStart()], ids=repr)
def test_orthogonal_constraints_hold(start: TrainingStart):
    form = OrthogonalPairs()
    parameters, scale, n_sym = started(form, start)
    parameters.X.add_(torch.from_numpy(np.random.default_rng(1).standard_normal(parameters.X.shape)), alpha=0.3)
    form.constrain(parameters, torch.from_numpy(scale), n_sym)
    X = parameters.X.numpy() * scale[:, None]
    V, B = X[:, :n_sym], X[:, n_sym:]
    assert np.abs(B.T @ B - np.eye(B.shape[1])).max() < 1e-12
    assert np.abs(V.T @ B).max() < 1e-12
    assert np.linalg.norm(V) > 0.1


@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_rescaling_multiplies_the_kernel(form: KernelForm):
    parameters, scale, n_sym = started(form, PopularityStart())
    before = kernel_of(form, clone(parameters), scale, n_sym).to_dense()
    form.rescale(parameters, 3.0, n_sym)
    np.testing.assert_allclose(kernel_of(form, parameters, scale, n_sym).to_dense(), 3 * before, rtol=1e-12, atol=1e-14)


def test_penalty_is_the_expected_number_of_proposals():
    sigma = np.array([0.1, 1.0, 7.0])
    value, gradient = OrthogonalPairs().penalty(torch.from_numpy(np.log(sigma)))
    assert np.exp(float(value)) == pytest.approx(np.prod(1 + 2 * sigma / (sigma**2 + 1)))
    assert (gradient.sign().numpy() == [1, 0, -1]).all()  # the factor is largest, 2, at σ = 1


def test_nearly_dependent_columns_are_made_orthonormal():
    rng = np.random.default_rng(0)
    B = np.ones((50, 4)) + 1e-12 * rng.standard_normal((50, 4))
    Q = _orthonormal(torch.from_numpy(B)).numpy()
    assert np.abs(Q.T @ Q - np.eye(4)).max() < 1e-12


def test_orthonormal_factor_is_the_nearest():
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((50, 4)))[0]
    np.testing.assert_allclose(_orthonormal(torch.from_numpy(-Q)).numpy(), -Q, atol=1e-14)


def test_gradient_along_the_constraints():
    """Directions that respect the constraints: the loss changes, after they are restored, as the gradient says."""
    form, rng, h = OrthogonalPairs(), np.random.default_rng(0), 1e-6
    parameters, scale, n_sym = started(form, PopularityStart())
    rows, target = torch.from_numpy(scale), torch.from_numpy(rng.standard_normal(parameters.X.shape))

    def value(X: torch.Tensor) -> float:
        moved = Parameters(X.clone(), parameters.skew)
        form.constrain(moved, rows, n_sym)
        return float(((moved.X - target) ** 2).sum())

    B = (parameters.X * rows[:, None])[:, n_sym:]
    in_X = 2 * (parameters.X - target)
    gradient = form.tangent(parameters, in_X, rows, n_sym)
    for _ in range(3):
        way = torch.from_numpy(rng.standard_normal(parameters.X.shape))
        M = B.T @ way[:, n_sym:]
        way[:, n_sym:] -= B @ ((M + M.T) / 2)
        way /= rows[:, None]
        slope = (value(parameters.X + h * way) - value(parameters.X - h * way)) / (2 * h)
        assert slope == pytest.approx(float((gradient * way).sum()), rel=1e-5, abs=1e-6)
        assert slope != pytest.approx(float((in_X * way).sum()), rel=1e-3)
