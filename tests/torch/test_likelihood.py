"""``ndpp.torch`` against the laws of kernels, enumeration, and finite differences."""

from __future__ import annotations

import warnings
from functools import partial
from shutil import which
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import torch
from torch.autograd import gradcheck

import ndpp.torch as nt
import oracles
from devices import on_devices
from kernels import AWKWARD, BY_NAME
from ndpp import Baskets, LowRankKernel
from ndpp.errors import (
    ImpossibleSizeError,
    InvalidInputError,
    InvalidKernelError,
    UnknownItemError,
    ZeroProbabilityError,
)
from ndpp.learning.batches import pack
from ndpp.learning.determinants import log_det_inverse, unit
from ndpp.torch.circle import Generating, _node_count
from ndpp.torch.inputs import as_rows

EPS = np.finfo(float).eps
WITHIN = 1e-8
"""Of log-probabilities of the awkward kernels, whose C = XᵀX has condition numbers up to 1e6 or so."""
RARE = 1e-13


def tensor(values: Any, *, grad: bool = True) -> torch.Tensor:
    return torch.tensor(np.asarray(values, np.float64), requires_grad=grad)


def generic(n: int = 6, d: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    D = rng.standard_normal((d, d))
    return tensor(rng.standard_normal((n, d))), tensor(np.eye(d) + D - D.T)


def agree(found: torch.Tensor, wanted: Any) -> None:
    """Compare log-probabilities; those below rounding of the largest may be −inf."""
    mine, wanted = found.detach().numpy(), np.asarray(wanted)
    rare = np.exp(wanted) < RARE
    assert (np.exp(mine[rare]) < 10 * RARE).all()
    np.testing.assert_allclose(mine[~rare], wanted[~rare], rtol=0, atol=WITHIN)


CONDITIONS = [
    {}, {"nonempty": True}, {"given": [0]}, {"given": [2, 1]}, {"size": 1}, {"size": 2}, {"size": 3},
    {"size": 2, "given": [1]}, {"size": 4, "given": [0, 2]},
]  # fmt: skip


@pytest.mark.parametrize("with_background", [False, True], ids=["low rank", "background"])
@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_probabilities_are_those_of_the_law(case, with_background):
    background = np.linspace(0, 1.5, case.n_items) if with_background else None
    X, W, sets = tensor(case.X), tensor(case.W), [list(one) for one in oracles.subsets(case.n_items)]
    law = LowRankKernel(case.X, case.W, background=background)
    for conditions in CONDITIONS:
        options = dict(conditions)
        base = law.without_empty() if options.pop("nonempty", False) else law
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wanted = base.log_probs(sets, **options)
        except InvalidInputError:
            with pytest.raises(InvalidInputError):
                nt.log_prob(X, sets, W, background=background, **conditions)
            continue
        found = nt.log_prob(X, sets, W, background=background, **conditions)
        agree(found, wanted)
        X.grad = None
        found[torch.isfinite(found)].sum().backward()
        assert X.grad is not None
        assert torch.isfinite(X.grad).all()
        if not with_background and "nonempty" not in conditions:
            inside = law.inclusion_probabilities(**options)
            np.testing.assert_allclose(nt.inclusion_probabilities(X, W, **options).detach(), inside, atol=WITHIN)


@pytest.mark.parametrize("name", ["generic", "symmetric", "ondpp", "far from normal"])
def test_next_items_have_the_scores_of_the_law(name):
    case, several = BY_NAME[name], [[0], [1, 2], []]
    X, W = tensor(case.X), tensor(case.W)
    wanted = np.array([ndpp_scores(case.kernel, one) for one in several])
    np.testing.assert_allclose(nt.next_item_log_probs(X, several, W).exp().detach(), wanted, atol=1e-12)
    alone = nt.next_item_log_probs(X, [1, 2], W)
    np.testing.assert_allclose(alone.exp().detach(), wanted[1], atol=1e-12)
    assert torch.isinf(alone[[1, 2]]).all()


def ndpp_scores(kernel: LowRankKernel, items: list[int]) -> Any:
    from ndpp import next_item_scores

    scores = next_item_scores(kernel, items)
    return scores / scores.sum()


# -- gradients ---------------------------------------------------------------------------------------------------------------

SETS = [[0, 3], [1, 2, 4], [5], [0, 1, 2, 3], []]


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "nonsymmetric"])
@pytest.mark.parametrize("conditions", [*CONDITIONS[:3], {"size": 3}, {"size": 3, "given": [1]}], ids=str)
def test_gradients_of_log_probabilities(conditions, symmetric):
    (X, W), background = generic(), tensor(np.linspace(0.2, 1.0, 6))
    sets = SETS if "size" not in conditions else [[0, 1, 2], [1, 4, 5]]
    sets = [one for one in sets if set(conditions.get("given", ())) <= set(one)]
    sets = [one for one in sets if one or "nonempty" not in conditions]

    def value(X: torch.Tensor, W: torch.Tensor, background: torch.Tensor | None = None) -> torch.Tensor:
        return nt.log_prob(X, sets, None if symmetric else W, background=background, **conditions)

    assert gradcheck(value, (X, W.detach() if symmetric else W))
    assert gradcheck(value, (X, W.detach() if symmetric else W, background))


@pytest.mark.parametrize("size", [None, 0, 1, 3, 4])
def test_gradients_of_normalisers_and_inclusions(size):
    (X, W), background = generic(), tensor(np.linspace(0.2, 1.0, 6))
    assert gradcheck(partial(nt.log_normalizer, size=size), (X, W))
    assert gradcheck(lambda X, W, b: nt.log_normalizer(X, W, size=size, background=b), (X, W, background))
    assert gradcheck(partial(nt.inclusion_probabilities, size=size), (X, W))
    if size is None or size > 2:
        assert gradcheck(partial(nt.inclusion_probabilities, size=size, given=[0, 2]), (X, W))


def test_gradients_of_next_items():
    X, W = generic()
    assert gradcheck(lambda X, W: nt.next_item_log_probs(X, [[0], [1, 2], []], W).exp(), (X, W))


@pytest.mark.parametrize("size", [None, 2])
def test_gradients_of_a_batch(size):
    _, W = generic()
    X = torch.stack([generic(seed=seed)[0].detach() for seed in (1, 2)]).requires_grad_()
    sets = [[0, 3], [1, 5]]
    assert gradcheck(lambda X, W: nt.log_prob(X, sets, W, size=size), (X, W))
    assert gradcheck(lambda X, W: nt.inclusion_probabilities(X, W, size=size, given=[1]), (X, W))
    assert gradcheck(lambda X, W: nt.next_item_log_probs(X, sets, W).exp(), (X, W))
    alone = [nt.log_prob(one, [items], W, size=size) for one, items in zip(X, sets)]
    torch.testing.assert_close(nt.log_prob(X, sets, W, size=size), torch.cat(alone), rtol=0, atol=1e-12)
    each = torch.stack([nt.log_normalizer(one, W, size=size) for one in X])
    torch.testing.assert_close(nt.log_normalizer(X, W, size=size), each, rtol=0, atol=1e-12)


def test_the_gradient_of_log_e_k_is_the_inclusion_matrix():
    """In L, it is Mᵀ in the sense of M_ij = P(i, j) terms: its product with L has the inclusion probabilities on the diagonal."""
    L = tensor((X := generic()[0].detach()) @ X.T + torch.eye(6))
    value = nt.log_normalizer(torch.eye(6, dtype=torch.float64), L, size=3)
    (G,) = torch.autograd.grad(value, L)
    inside = LowRankKernel(np.eye(6), L.detach().numpy()).inclusion_probabilities(size=3)
    np.testing.assert_allclose((G.T @ L).diagonal().detach(), inside, atol=1e-12)


def test_equal_eigenvalues_have_gradients():
    X = torch.eye(5, dtype=torch.float64, requires_grad=True)
    nt.log_normalizer(X, size=2).backward()
    torch.testing.assert_close(X.grad, 0.8 * torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-13)


def test_the_check_of_gradients_can_fail():
    X, _ = generic()
    with pytest.raises(Exception, match="Jacobian mismatch"):
        gradcheck(lambda X: nt.log_normalizer(X) + 0.01 * X.detach().square().sum() + 0 * X.sum(), (X,))


# -- rounding ----------------------------------------------------------------------------------------------------------------


def test_single_precision_is_read_and_not_computed_in():
    """What is rounded is X alone: the values are those of the rounded rows."""
    X, W = generic(40, 8)
    single = X.detach().float().requires_grad_()
    sets = [[0, 3, 9], [5, 7]]
    for size in (None, 3):
        found = nt.log_prob(single, sets, W, size=size)
        torch.testing.assert_close(found, nt.log_prob(single.detach().double(), sets, W, size=size), rtol=0, atol=0)
        assert found.dtype == torch.float64
    nt.log_prob(single, sets, W).sum().backward()
    (wanted,) = torch.autograd.grad(nt.log_prob(X, sets, W).sum(), X)
    assert single.grad is not None
    assert single.grad.dtype == torch.float32
    scale = float(wanted.abs().max())
    # Rounding of X by u changes the gradient by about u times the condition number of the minors; 1e4 is generous for these.
    np.testing.assert_allclose(single.grad, wanted, rtol=0, atol=1e4 * scale * float(torch.finfo(torch.float32).eps))


def test_near_singular_minors_keep_their_digits():
    """det L_S = η² for rows (1, 0) and (1, η); its gradient in η is 2/η."""
    for eta in (1e-2, 1e-4, 1e-6):
        y = tensor(eta)
        X = torch.stack([tensor([1.0, 0.0]), torch.stack([tensor(1.0), y])])
        value = nt.log_prob(X, [[0, 1]])[0] + nt.log_normalizer(X)
        (slope,) = torch.autograd.grad(value, y)
        assert abs(float(value.detach()) - 2 * np.log(eta)) < 16 * EPS / eta**2
        assert abs(float(slope) * eta / 2 - 1) < 16 * EPS / eta**2 + 1e-12


def test_impossible_sets_have_no_gradient():
    X = tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [3.0, 1.0]])
    found = nt.log_prob(X, [[0, 1], [0, 2], [0, 2, 3]])
    assert torch.isinf(found[[0, 2]]).all()
    found[[0, 2]].sum().backward()
    assert X.grad is not None
    assert torch.isfinite(X.grad).all()


def test_sizes_up_to_the_rank_of_columns_of_any_scale():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, 6)) * 10.0 ** np.array([-6, -4, -2, 0, 2, 4])
    law = LowRankKernel(X)
    for size in range(7):
        assert abs(float(nt.log_normalizer(torch.from_numpy(X), size=size)) - law.log_normalizer(size)) < 1e-8


def test_enough_points_for_sizes_of_any_spread():
    """Aliased sizes of a binomial, whose coefficients are known, are rounding."""
    for n, p in ((40, 0.5), (200, 0.1), (300, 0.01)):
        X = torch.eye(n, dtype=torch.float64) * (p / (1 - p)) ** 0.5
        size = max(1, round(n * p))
        wanted = float(
            torch.lgamma(torch.tensor([n + 1.0, size + 1, n - size + 1], dtype=torch.float64))
            @ tensor([1, -1, -1], grad=False)
        )
        assert abs(float(nt.log_normalizer(X, size=size)) - wanted - size * np.log(p / (1 - p))) < 1e-11
    assert _node_count(5.0, 1000) < 60


def test_determinants_have_their_sign():
    rng = np.random.default_rng(0)
    A = torch.from_numpy(rng.standard_normal((20, 5, 5)))
    for stack in (A, torch.complex(A, A.flip(0))):
        logs, inverse, factors = log_det_inverse(stack)
        sign, log_abs = torch.linalg.slogdet(stack)
        torch.testing.assert_close(logs, log_abs, rtol=0, atol=1e-12)
        torch.testing.assert_close(unit(factors), sign, rtol=0, atol=1e-12)
        torch.testing.assert_close(
            inverse @ stack, torch.eye(5, dtype=stack.dtype).expand_as(stack), rtol=0, atol=1e-10
        )


def test_sets_that_are_padded_for_a_gpu_are_the_same(monkeypatch):
    (X, W), background = generic(), torch.linspace(0, 1, 6, dtype=torch.float64)
    calls = [
        lambda: nt.log_prob(X, SETS, W),
        lambda: nt.log_prob(X, SETS, W, background=background),
        lambda: nt.next_item_log_probs(X, SETS[:3], W).exp(),
    ]
    plain = [(value := call(), torch.autograd.grad(value.sum(), X)[0]) for call in calls]
    monkeypatch.setattr("ndpp.torch.likelihood.pack", partial(pack, multiple=3))
    for call, (value, gradient) in zip(calls, plain):
        padded = call()
        torch.testing.assert_close(padded, value, rtol=0, atol=1e-12)
        torch.testing.assert_close(torch.autograd.grad(padded.sum(), X)[0], gradient, rtol=0, atol=1e-10)


@on_devices
def test_devices_agree(device):
    X, W = generic(50, 8)
    sets = [[0, 3, 9], [5, 7], list(range(8)), []]
    there, inner = X.detach().to(device).requires_grad_(), W.detach().to(device)
    found = nt.log_prob(there, sets, inner)
    torch.testing.assert_close(found.cpu(), nt.log_prob(X, sets, W), rtol=0, atol=1e-9)
    for size, given in ((None, None), (3, [1])):
        inside = nt.inclusion_probabilities(there, inner, size=size, given=given)
        torch.testing.assert_close(
            inside.cpu(), nt.inclusion_probabilities(X, W, size=size, given=given), rtol=0, atol=1e-9
        )
    drawn = nt.sample(there, inner, 5, size=3, rng=0)
    assert drawn.sets.sizes.tolist() == [3] * 5
    drawn.log_probs.sum().backward()
    assert torch.isfinite(there.grad).all()


# -- frameworks --------------------------------------------------------------------------------------------------------------


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(features))


def loss_of(rows: torch.nn.Module, features: torch.Tensor) -> torch.Tensor:
    X = rows(features)
    return -nt.log_prob(X, [[0, 1], [2]]).mean() + nt.inclusion_probabilities(X, size=2)[0]


@pytest.mark.filterwarnings("ignore")  # of torch about itself
@pytest.mark.parametrize(
    "backend",
    [
        "eager",
        "aot_eager",
        pytest.param("inductor", marks=pytest.mark.skipif(which("g++") is None, reason="no C++ compiler for inductor")),
    ],
)
def test_compiled_programs_have_the_same_gradients(backend):
    features, rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), Encoder()
    loss_of(rows, features).backward()
    wanted = rows.layer.weight.grad.clone()
    rows.zero_grad()
    torch.compile(loss_of, backend=backend)(rows, features).backward()
    torch.testing.assert_close(rows.layer.weight.grad, wanted)


def test_autocast_changes_the_encoder_alone():
    features, rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), Encoder()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        X = rows(features)
        assert X.dtype == torch.bfloat16
        found = nt.log_prob(X, [[0, 1], [2]], size=None)
    torch.testing.assert_close(found, nt.log_prob(X.detach().double(), [[0, 1], [2]]), rtol=0, atol=1e-13)
    found.sum().backward()
    assert torch.isfinite(rows.layer.weight.grad).all()


# -- what was passed ---------------------------------------------------------------------------------------------------------


def test_sets_may_be_baskets_lists_or_padded_ids():
    X, W = generic()
    wanted = nt.log_prob(X, [[3, 0], [1], []], W)
    for sets in (Baskets.from_lists([[0, 3], [1], []], n_items=6), torch.tensor([[0, 3], [1, -1], [-1, -1]])):
        torch.testing.assert_close(nt.log_prob(X, sets, W), wanted, rtol=0, atol=0)


WRONG = [
    (lambda X, W: nt.log_prob(X, [[0, 6]], W), UnknownItemError, r"0\.\.5"),
    (lambda X, W: nt.log_prob(X, [[1], [0, 0]], W), InvalidInputError, "set 1 has item 0 more than once"),
    (lambda X, W: nt.log_prob(X, [0, 1], W), InvalidInputError, "into a list"),
    (lambda X, W: nt.log_prob(X, torch.tensor([0.5]), W), InvalidInputError, "one row of integer ids"),
    (lambda X, W: nt.log_prob(X, [[0]], W[:2]), InvalidInputError, r"W must have shape \(4, 4\)"),
    (lambda X, W: nt.log_prob(X, [[0]], -W), InvalidKernelError, "positive semidefinite"),
    (lambda X, W: nt.log_prob(X.log(), [[0]], W), InvalidInputError, "X must be finite"),
    (lambda X, W: nt.log_prob(X[0], [[0]], W), InvalidInputError, r"X must have shape \(n, d\)"),
    (lambda X, W: nt.log_prob(X.long(), [[0]], W), InvalidInputError, "X must be a tensor of real numbers"),
    (lambda X, W: nt.log_prob(X, [[0]], W, size=5), ImpossibleSizeError, "rank of the kernel, 4; size 5"),
    (lambda X, W: nt.log_prob(X, [[0]], W, size=1, given=[0, 1]), InvalidInputError, "size must be at least 2"),
    (lambda X, W: nt.log_prob(X, [[0]], W, size=0, nonempty=True), ImpossibleSizeError, "nonempty"),
    (lambda X, W: nt.log_prob(X, [[0]], W, background=-torch.ones(6)), InvalidInputError, "must not be negative"),
    (lambda X, W: nt.log_prob(X.expand(2, 6, 4), [[0]], W), InvalidInputError, "each of the 2 kernels"),
    (lambda X, W: nt.inclusion_probabilities(0 * X, W, given=[0]), ZeroProbabilityError, "never occur together"),
    (lambda X, W: nt.next_item_log_probs(0 * X, [0], W), ZeroProbabilityError, "never make up a whole set"),
    (lambda X, W: nt.log_normalizer(X, W - torch.eye(4), size=3), ImpossibleSizeError, "no set of size 3 has"),
    (lambda X, W: nt.sample(X.expand(2, 6, 4), W, 3), InvalidInputError, "n must be 1"),
    (lambda X, W: nt.Kernel(torch.nn.Identity(), 3), InvalidInputError, "n_skew must be even"),
    (lambda X, W: nt.Kernel(torch.nn.Identity(), 6).kernel(X), InvalidInputError, "n_skew must be at most 4"),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("call", "error", "match"), WRONG, ids=[match for *_, match in WRONG])
def test_wrong_input_is_refused_in_words(call, error, match):
    with pytest.raises(error, match=match):
        call(*generic())


def test_a_kernel_may_be_valid_where_w_is_not():
    """W + Wᵀ is indefinite, but not on the rows that there are."""
    X, W = tensor([[1.0, 0.0], [2.0, 0.0]]), torch.diag(torch.tensor([1.0, -1.0]))
    wanted = LowRankKernel(X.detach(), W).log_probs([[0], []])
    np.testing.assert_allclose(nt.log_prob(X, [[0], []], W).detach(), wanted, atol=1e-14)


def test_nothing_of_the_size_of_x_is_kept_twice():
    """The Gram matrix keeps X itself for the backward pass."""
    X, _ = generic()
    C = Generating.of(as_rows(X, None), np.empty(0, np.int64)).C
    assert C is not None
    assert C.grad_fn.saved_tensors[0].data_ptr() == X.data_ptr()
