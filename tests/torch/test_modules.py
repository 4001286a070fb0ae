"""Samples with log-probabilities, and kernels whose rows come from an encoder."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import torch

import ndpp.torch as nt
import oracles
from ndpp import NDPP, Baskets, LowRankKernel, save


def rows(seed: int = 0, n: int = 5, d: int = 3) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d))).requires_grad_()


def test_samples_are_those_of_the_law():
    X = rows()
    found = nt.sample(X, n=20, size=2, rng=3)
    assert found.sets.to_lists() == LowRankKernel(X.detach().numpy()).sample(20, size=2, rng=3).to_lists()
    torch.testing.assert_close(found.log_probs, nt.log_prob(X, found.sets, size=2), rtol=0, atol=0)


def test_each_kernel_of_a_batch_gives_a_set():
    X = torch.stack([rows(1), rows(2), rows(3)])
    found = nt.sample(X, size=2, rng=0)
    torch.testing.assert_close(found.log_probs, nt.log_prob(X, found.sets, size=2), rtol=0, atol=0)
    assert found.sets.to_lists() == nt.sample(X, size=2, rng=0).sets.to_lists()


def test_the_score_function_estimates_the_gradient_of_an_expectation():
    """∇E f = E f ∇log P: the exact sum over all sets, and the mean over samples within five standard errors."""
    X, value = rows(), np.random.default_rng(5).standard_normal(2**5)
    sets = [list(one) for one in oracles.subsets(5)]
    log_probs = nt.log_prob(X, sets)
    (exact,) = torch.autograd.grad((log_probs.exp() * torch.from_numpy(value)).sum(), X, retain_graph=True)
    scores = torch.stack([torch.autograd.grad(one, X, retain_graph=True)[0] for one in log_probs])
    weights = (log_probs.exp() * torch.from_numpy(value)).detach()
    torch.testing.assert_close((weights[:, None, None] * scores).sum(0), exact, rtol=0, atol=1e-12)
    n = 1000
    drawn = nt.sample(X, n=n, rng=1)
    f = torch.from_numpy(value[[oracles.mask_of(one) for one in drawn.sets]])
    (estimate,) = torch.autograd.grad((f * drawn.log_probs).mean(), X)
    second = (log_probs.exp().detach()[:, None, None] * (torch.from_numpy(value)[:, None, None] * scores) ** 2).sum(0)
    deviation = ((second - exact**2) / n).sqrt()
    assert ((estimate - exact).abs() < 5 * deviation).all()
    assert not ((estimate + exact).abs() < 5 * deviation).all()  # a control: another gradient is refused


def test_a_module_becomes_a_law(tmp_path):
    torch.manual_seed(0)
    features = torch.randn(8, 5)
    model = nt.Kernel(torch.nn.Linear(5, 6), n_skew=2)
    sets = [[0, 3], [1, 2, 4]]
    law = model.kernel(features)
    np.testing.assert_allclose(model.log_prob(features, sets).detach(), law.log_probs(sets), atol=1e-10)
    save(law, tmp_path / "law.safetensors")
    assert not np.allclose(law.W, law.W.T)
    model.log_prob(features, sets, size=None, given=None).sum().backward()
    assert all(part.grad is not None and torch.isfinite(part.grad).all() for part in model.parameters())
    drawn = model.sample(features, 4, size=3, rng=0)
    assert drawn.sets.sizes.tolist() == [3] * 4
    again = nt.Kernel(torch.nn.Linear(5, 6), n_skew=2, rng=1)
    again.load_state_dict(model.state_dict())
    np.testing.assert_array_equal(again.kernel(features).W, law.W)


def test_a_kernel_without_skew_columns_is_symmetric():
    model = nt.Kernel(torch.nn.Linear(5, 4))
    law = model.kernel(torch.eye(5))
    np.testing.assert_array_equal(law.W, np.eye(4))


def planted() -> tuple[Baskets, Baskets]:
    rng = np.random.default_rng(0)
    D = rng.standard_normal((4, 4))
    kernel = LowRankKernel(0.6 * rng.standard_normal((12, 8)), np.pad(np.eye(4), (0, 4)) + np.pad(D - D.T, (4, 0)))
    drawn = kernel.sample(900, rng=1)
    drawn = drawn[drawn.sizes > 0]
    return drawn[:600], drawn[600:]


def test_ndpp_fitted_through_it_reaches_the_same_likelihood():
    train, test = planted()
    theirs = NDPP(rank=8, noise=0.0, max_epochs=60, random_state=0).fit(train, validation=test)
    torch.manual_seed(0)
    model = nt.Kernel(torch.nn.Embedding(12, 8).double(), n_skew=4)
    with torch.no_grad():
        model.encoder.weight.mul_(0.3)
    ids, step = torch.arange(12), torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(150):
        step.zero_grad()
        loss = -model.log_prob(ids, train, nonempty=True).mean()
        loss.backward()
        step.step()
    laws = [model.kernel(ids).without_empty(), theirs.law_]
    ours, one = (float(law.log_probs(test).mean()) for law in laws)
    # Three standard errors of the mean of their differences, and a tenth of a nat, for regularisation.
    error = float((laws[0].log_probs(test) - laws[1].log_probs(test)).std()) / len(test) ** 0.5
    assert abs(ours - one) < 3 * error + 0.1
    shares = np.bincount(train.indices, minlength=12) / len(train)
    plain = LowRankKernel(np.diag((shares / (1 - shares)) ** 0.5)).without_empty()
    assert min(ours, one) > float(plain.log_probs(test).mean()) + 0.1  # a control: items by themselves are worse
