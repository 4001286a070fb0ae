"""The written-out likelihood and gradients against enumeration, the dense twin, autograd and finite differences."""

from __future__ import annotations

from copy import copy

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import torch

import oracles
from ndpp.baskets import Baskets
from ndpp.learning.batches import PackedBaskets, pack, shuffled
from ndpp.learning.kernel_objective import KernelObjective
from ndpp.learning.models import (
    FreeSkew,
    KernelForm,
    LiteratureStart,
    NoSkew,
    OrthogonalPairs,
    Parameters,
    PopularityStart,
    TrainingStart,
    inner_matrix,
)

FORMS = [FreeSkew(), OrthogonalPairs(), NoSkew()]
with_and_without_empty = pytest.mark.parametrize("nonempty", [False, True], ids=["all sets", "no empty set"])
SETS = [[0, 3], [], [1, 2, 4, 5], [2], [3, 4], [0, 1, 2, 3, 4], []]
GAMMA = 0.3


def problem_of(
    form: KernelForm, *, n_items: int = 6, rank: int = 6, seed: int = 0
) -> tuple[KernelObjective, Parameters]:
    rng = np.random.default_rng(seed)
    parameters = Parameters(
        torch.from_numpy(rng.standard_normal((n_items, rank))),
        torch.from_numpy(form.random(rng, form.columns(rank)[1], 0.7)),
    )
    problem = objective_of(form, PopularityStart(), rank, n_items, GAMMA)
    problem.scale = torch.from_numpy(rng.uniform(0.3, 2.0, n_items))
    problem.penalties = torch.from_numpy(rng.uniform(0.0, 0.2, (n_items, rank)))
    problem.noise_scales = torch.from_numpy(rng.uniform(0.1, 0.9, (n_items, 1)))
    return problem, parameters


def objective_of(
    form: KernelForm, start: TrainingStart, rank: int, n_items: int, gamma: float = 0.0
) -> KernelObjective:
    baskets = Baskets.from_lists([[0]], n_items=n_items)
    return KernelObjective(form, start, 0.0, 0.0, gamma, 0.0, "cpu", torch.float64, rank, baskets, baskets, 0)


def plain_log_probs(
    problem: KernelObjective, X: torch.Tensor, A: torch.Tensor, baskets: list[list[int]]
) -> torch.Tensor:
    """Return log P of each basket from the dense kernel."""
    scaled, h = problem.scale[:, None] * X, problem.n_sym
    L = scaled[:, :h] @ scaled[:, :h].T + scaled[:, h:] @ A @ scaled[:, h:].T
    log_normalizer = torch.logdet(L + torch.eye(len(L), dtype=X.dtype))
    log_dets = [torch.logdet(L[items][:, items]) if items else 0 * log_normalizer for items in baskets]
    return torch.stack(log_dets) - (log_normalizer.expm1().log() if problem.nonempty else log_normalizer)


def plain_loss(problem: KernelObjective, parameters: Parameters, sets: list[list[int]]) -> torch.Tensor:
    A = problem.form.matrix(parameters.skew)
    value = -plain_log_probs(problem, parameters.X, A, sets).mean()
    if isinstance(problem.form, OrthogonalPairs):
        sigma = parameters.skew.exp()
        value = value + GAMMA * torch.log(1 + 2 * sigma / (sigma**2 + 1)).sum()
    return value + (problem.penalties * parameters.X**2).sum()


def batch_of(sets: list[list[int]], multiple: int = 1) -> PackedBaskets:
    return pack(Baskets.from_lists(sets, n_items=6), np.arange(len(sets)), multiple=multiple)


@pytest.mark.parametrize("form", FORMS, ids=repr)
@with_and_without_empty
def test_log_probs_are_the_enumerated_ones(form: KernelForm, nonempty: bool):
    problem, parameters = problem_of(form, rank=6)
    problem.nonempty = nonempty
    scaled = (problem.scale[:, None] * parameters.X).numpy()
    L = scaled @ inner_matrix(form, parameters.skew, problem.n_sym) @ scaled.T
    law, sets = oracles.enumerate_law(L), oracles.subsets(6)[nonempty:]
    total = sum(law.get(s, 0.0) for s in sets)
    problem.validation = Baskets.from_lists(sets, n_items=6)
    values = problem.log_probs(parameters)
    np.testing.assert_allclose(np.exp(values), [law.get(s, 0.0) / total for s in sets], rtol=1e-9, atol=1e-15)
    assert np.exp(values).sum() == pytest.approx(1.0, rel=1e-9)


def test_impossible_sets_have_log_probability_minus_infinity():
    X = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    objective = objective_of(NoSkew(), LiteratureStart(), 2, 3)
    objective.validation = Baskets.from_lists([[0, 1], [0, 2]])
    values = objective.log_probs(Parameters(X, X.new_zeros(0, 0)))
    assert values[0] == -np.inf
    assert values[1] == pytest.approx(-np.log(3 * 2 - 1))  # no basket is empty


@pytest.mark.parametrize("multiple", [1, 4])
@pytest.mark.parametrize("form", FORMS, ids=repr)
@with_and_without_empty
def test_loss_and_gradient_are_those_of_autograd(
    form: KernelForm, multiple: int, nonempty: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(KernelObjective.log_dets_gradient, "__kwdefaults__", {"jitter": 0.0})
    (problem, parameters), sets = problem_of(form), [one for one in SETS if one or not nonempty]
    problem.nonempty = nonempty
    loss = problem.at(parameters, batch_of(sets, multiple))
    leaves = Parameters(*(tensor.clone().requires_grad_() for tensor in parameters))
    expected = plain_loss(problem, leaves, sets)
    expected.backward()
    assert float(loss.value) == pytest.approx(float(expected.detach()), rel=1e-12)
    for got, leaf in zip(loss.gradient, leaves):
        wanted = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("noisy", [False, True], ids=["still", "noisy"])
@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_gradient_is_that_of_finite_differences(form: KernelForm, noisy: bool):
    problem, parameters = problem_of(form, seed=1)
    noise = torch.from_numpy(np.random.default_rng(2).standard_normal(parameters.X.shape)) / 5 if noisy else None
    batch = batch_of(SETS)

    def value(X: torch.Tensor, skew: torch.Tensor) -> float:
        return float(problem.at(Parameters(X, skew), batch, noise=noise).value)

    gradient = problem.at(parameters, batch, noise=noise).gradient
    rng, h = np.random.default_rng(3), 1e-5
    for _ in range(5):
        way = Parameters(*(torch.from_numpy(rng.standard_normal(tuple(tensor.shape))) for tensor in parameters))
        ahead, behind = ([t + s * h * w for t, w in zip(parameters, way)] for s in (1, -1))
        slope = (value(*ahead) - value(*behind)) / (2 * h)
        expected = sum(float((g * w).sum()) for g, w in zip(gradient, way))
        assert slope == pytest.approx(expected, rel=1e-6)


def test_a_wrong_gradient_is_noticed():
    problem, parameters = problem_of(FreeSkew())
    loss = problem.at(parameters, batch_of(SETS[:3]))
    other = problem.at(parameters, batch_of(SETS[3:]))
    assert not torch.allclose(loss.gradient.X, other.gradient.X, rtol=1e-3)


def test_jitter_gives_forbidden_baskets_a_gradient():
    X, A = torch.ones(6, 2, dtype=torch.float64), torch.zeros(0, 0, dtype=torch.float64)
    value, in_X, _ = objective_of(NoSkew(), LiteratureStart(), 2, 6).log_dets_gradient(X, A, batch_of([[0, 1]]))
    assert torch.isfinite(in_X).all()
    assert torch.isfinite(value)


def test_single_precision_parameters_are_enough():
    problem, parameters = problem_of(FreeSkew())
    single = copy(problem)
    single.scale, single.penalties = problem.scale.float(), problem.penalties.float()
    exact = problem.at(parameters, batch_of(SETS))
    near = single.at(Parameters(*(t.float() for t in parameters)), batch_of(SETS))
    assert near.gradient.X.dtype == torch.float32
    assert float(near.value) == pytest.approx(float(exact.value), rel=1e-5)
    torch.testing.assert_close(near.gradient.X.double(), exact.gradient.X, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_on_a_gpu_loss_and_gradient_are_those_of_the_cpu(form: KernelForm):
    """Single precision for the parameters, double for the determinants."""
    problem, parameters = problem_of(form)
    there = copy(problem)
    there.scale, there.penalties = (tensor.float().cuda() for tensor in (problem.scale, problem.penalties))
    batch = batch_of(SETS, 16)
    exact = problem.at(parameters, batch_of(SETS))
    near = there.at(Parameters(*(t.float().cuda() for t in parameters)), batch._replace(items=batch.items.cuda()))
    assert float(near.value) == pytest.approx(float(exact.value), rel=1e-5)
    torch.testing.assert_close(near.gradient.X.double().cpu(), exact.gradient.X, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("multiple", [1, 3])
def test_batches_hold_every_basket(multiple: int):
    batch = batch_of(SETS, multiple)
    found = []
    for start, m, k in batch.blocks:
        found += batch.items[start : start + m * k].view(m, k).tolist()
    assert sorted([i for i in row if i < 6] for row in found) == sorted(s for s in SETS if s)
    assert batch.n_baskets == len(SETS)
    assert batch.padded == (multiple > 1)


def test_an_epoch_shuffles_all_baskets():
    rng = np.random.default_rng(0)
    first, second = (list(shuffled(rng, 23, 5)) for _ in range(2))
    assert sorted(np.concatenate(first)) == list(range(23))
    assert {len(part) for part in first} <= {4, 5}
    assert np.concatenate(first).tolist() != np.concatenate(second).tolist()
