"""The likelihood of a mixture of missions with shared ties, and its gradient.

    L^c = diag(√Δ_c)(I + X W Xᵀ)diag(√Δ_c),    log Δ_ci = b_i + a_c + u_i·z_c,    W = [[0, I], [−I, 0]]

    P(S) = G(S) Σ_c (π_c / Z_c) Π_{i∈S} Δ_ci,    G(S) = det(I + X_S W X_Sᵀ),
    Z_c = Π_i (1 + Δ_ci) · det(I + W M_c),       M_c = Σ_i p_ci x_i x_iᵀ,    p = Δ/(1 + Δ).

Any skew W has this form, its size going into X. With X = [A B], X W Xᵀ = A Bᵀ − B Aᵀ; and det(I + W M) = det(M − W), as W⁻¹ = −W and
det W = 1. A step costs O(C n d²) for all M_c, a matrix product of p with the products of columns of X, and as much twice for the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ndpp._types import FloatArray
from ndpp.baskets import Baskets
from ndpp.learning.batches import Batch, pack

EVALUATED = 2000
"""Baskets whose likelihood is computed at a time."""
MULTIPLE = {"cpu": 4, "cuda": 16}
"""What sizes of baskets are rounded up to: fewer blocks, each a stack of larger matrices."""
CHUNK = {"cpu": 2**22, "cuda": 2**28}
"""Products of columns of X, for some of the items, that are in memory at a time."""


class Missions(NamedTuple):
    """What is trained: b (n,), u (n, r), X (n, d), z (C, r), a (C,), and log π (C,) up to a constant."""

    bias: Tensor
    factors: Tensor
    X: Tensor
    missions: Tensor
    levels: Tensor
    shares: Tensor

    def clone(self) -> Missions:
        """Return a copy that shares no memory."""
        return Missions(*(tensor.clone() for tensor in self))

    def log_odds(self) -> Tensor:
        """Return log Δ, shape (C, n)."""
        return torch.addmm(self.bias + self.levels[:, None], self.missions, self.factors.T)


def log_normalizers(parameters: Missions) -> Tensor:
    """Return log Z_c of each mission in double precision."""
    log_odds = parameters.log_odds()
    free = F.softplus(log_odds).sum(1, dtype=torch.float64)
    return free + _LogDets.apply(torch.sigmoid(log_odds), parameters.X)  # type: ignore[no-untyped-call]


def log_probs(parameters: Missions, log_z: Tensor, batch: Batch) -> Tensor:
    """Return log P of each basket in double precision, in the order of the batch."""
    prior = torch.log_softmax(parameters.shares.double(), 0) - log_z
    ones = torch.ones_like(parameters.bias)
    table = torch.cat([parameters.X, parameters.factors, ones[:, None], parameters.bias[:, None]], 1)
    rows = F.embedding(batch.rows, F.pad(table, (0, 0, 0, 1)))  # padding is a row of zeros
    missions = torch.cat([parameters.missions, parameters.levels[:, None]], 1)
    n_empty, d = batch.n_baskets - sum(m for _, m, _ in batch.blocks), parameters.X.shape[1]
    sums, ties = [rows.new_zeros(n_empty, table.shape[1] - d)], [prior.new_zeros(n_empty)]
    for start, m, k in batch.blocks:
        block = rows[start : start + m * k].view(m, k, -1)
        sums.append(block[..., d:].sum(1))
        ties.append(_log_ties(block[..., :d]))
    total = torch.cat(sums)
    weights = (total[:, :-1] @ missions.T).double() + prior
    return torch.logsumexp(weights, 1) + total[:, -1].double() + torch.cat(ties)


def evaluate(parameters: Missions, baskets: Baskets) -> FloatArray:
    """Return log P of each basket, in order."""
    out, order = np.empty(len(baskets)), np.argsort(baskets.sizes, kind="stable")
    device = parameters.X.device
    with torch.no_grad():
        log_z = log_normalizers(parameters)
        for start in range(0, len(baskets), EVALUATED):
            which = order[start : start + EVALUATED]
            batch = pack(baskets, which, device=device, multiple=MULTIPLE[device.type])
            out[which] = log_probs(parameters, log_z, batch).cpu().numpy()
    return out


def _log_ties(X: Tensor) -> Tensor:
    """Return log G of baskets of one size, from their rows (m, k, d); zeros are rows of padding."""
    h = X.shape[2] // 2
    A, B = X[..., :h], X[..., h:]
    if X.shape[1] <= X.shape[2]:
        products = A @ B.mT
        skew = (products - products.mT).double()
        return torch.linalg.slogdet(skew + torch.eye(X.shape[1], dtype=skew.dtype, device=X.device))[1]
    return torch.linalg.slogdet((X.mT @ X).double() - skew_pairs(X.shape[2], X.device))[1]


def skew_pairs(d: int, device: torch.device) -> Tensor:
    """Return W."""
    eye = torch.eye(d // 2, dtype=torch.float64, device=device)
    return torch.cat([torch.cat([0 * eye, eye], 1), torch.cat([-eye, 0 * eye], 1)])


class _LogDets(torch.autograd.Function):
    """log det(M_c − W) of all missions from p (C, n) and X (n, d).

    Symmetric matrices are kept as their upper triangles, so that each product costs half. With R_c the symmetric part of (M_c − W)⁻¹
    the gradient is x_iᵀR_c x_i in p_ci and 2 Σ_c p_ci R_c x_i in x_i.
    """

    @staticmethod
    def forward(ctx: Any, p: Tensor, X: Tensor) -> Tensor:
        d = X.shape[1]
        upper = torch.triu_indices(d, d, device=X.device)
        M = sum(p[:, items] @ _products(X[items]) for items in _chunks(X))
        full = torch.zeros(len(p), d, d, dtype=torch.float64, device=X.device)
        full[:, upper[0], upper[1]] = full[:, upper[1], upper[0]] = M.double()  # type: ignore[union-attr]
        LU, pivots, _ = torch.linalg.lu_factor_ex(full - skew_pairs(d, X.device))
        ctx.save_for_backward(p, X, LU, pivots)
        return LU.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        p, X, LU, pivots = ctx.saved_tensors
        d, (gradient,) = X.shape[1], gradients
        upper = torch.triu_indices(d, d, device=X.device)
        inverse = torch.linalg.lu_solve(LU, pivots, torch.eye(d, dtype=LU.dtype, device=LU.device).expand_as(LU))
        R = ((inverse + inverse.mT) * (gradient[:, None, None] / 2))[:, upper[0], upper[1]].to(X.dtype)
        twice = torch.where(upper[0] == upper[1], 1, 2).to(X.dtype)
        in_p, in_X = torch.empty_like(p), torch.empty_like(X)
        for items in _chunks(X):
            in_p[:, items] = (R * twice) @ _products(X[items]).T
            in_X[items] = 2 * _apply(p[:, items].T @ R, X[items])
        return in_p, in_X


def _chunks(X: Tensor) -> Iterator[slice]:
    step = max(1, CHUNK[X.device.type] // (X.shape[1] * (X.shape[1] + 1) // 2))
    yield from (slice(start, start + step) for start in range(0, len(X), step))


def _products(X: Tensor) -> Tensor:
    """Return the upper triangle of x_i x_iᵀ of each item, row after row."""
    n, d = X.shape
    out, start = X.new_empty(n, d * (d + 1) // 2), 0
    for a in range(d):
        torch.mul(X[:, a:], X[:, a : a + 1], out=out[:, start : start + d - a])
        start += d - a
    return out


def _apply(R: Tensor, X: Tensor) -> Tensor:
    """Return R_i x_i of each item, R_i symmetric and given by its upper triangle."""
    out, start, d = torch.zeros_like(X), 0, X.shape[1]
    for a in range(d):
        row = R[:, start : start + d - a]
        out[:, a] += (row * X[:, a:]).sum(1)
        out[:, a + 1 :] += row[:, 1:] * X[:, a : a + 1]
        start += d - a
    return out
