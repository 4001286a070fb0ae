"""The likelihood of a mixture with shared ties, and its gradient.

    L^c = diag(√Δ_c)(I + X W Xᵀ)diag(√Δ_c),    log Δ_ci = b_i + a_c + u_i·z_c,    W = [[0, I], [−I, 0]]

    P(S) = G(S) Σ_c (π_c / Z_c) Π_{i∈S} Δ_ci,    G(S) = det(I + X_S W X_Sᵀ),
    Z_c = Π_i (1 + Δ_ci) · det(I + W M_c),       M_c = Σ_i p_ci x_i x_iᵀ,    p = Δ/(1 + Δ).

Any skew W has this form, its size going into X. With X = [A B], X W Xᵀ = A Bᵀ − B Aᵀ; and det(I + W M) = det(M − W), as W⁻¹ = −W and
det W = 1. All M_c are one matrix product of p with the products of columns of X, O(C n d²), and their gradient two more: by far the most of
the work. So training expands log det(M_c − W) to first order, and renews the expansion every few steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ndpp._types import FloatArray
from ndpp.learning.batches import Batch

MULTIPLE = 4
"""What sizes of baskets are rounded up to on a CPU: fewer blocks, each a stack of larger matrices."""
CHUNK = {"cpu": 2**22, "cuda": 2**28}
"""Products of columns of X, for some of the items, that are in memory at a time."""


class Components(NamedTuple):
    """What is trained: b (n,), u (n, r), X (n, d), z (C, r), a (C,), and log π (C,) up to a constant.

    Checkpoints hold the tensors under these names.
    """

    bias: Tensor
    factors: Tensor
    X: Tensor
    missions: Tensor
    levels: Tensor
    shares: Tensor

    def log_odds(self) -> Tensor:
        """Return log Δ, shape (C, n)."""
        return torch.addmm(self.bias + self.levels[:, None], self.missions, self.factors.T)

    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return Δ, X, W and π in double precision."""
        exact = Components(*(tensor.detach().cpu().double() for tensor in self))
        W = skew_pairs(exact.X.shape[1], exact.X.device)
        return exact.log_odds().exp().numpy(), exact.X.numpy(), W.numpy(), exact.shares.softmax(0).numpy()


class Expansion(NamedTuple):
    """t_c = log det(I + W M_c) of each component (C,) near some p and X, to first order in p; Σ_c π_c t_c to first order in X.

    With R_c the symmetric part of (M_c − W)⁻¹ the slope of t_c is x_iᵀR_c x_i in p_ci and 2 p_ci R_c x_i in x_i; ``curvature`` is the mean
    of the second derivatives of Σ_c π_c t_c in the entries of x_i, with R_c held.
    """

    value: Tensor
    p: Tensor
    in_p: Tensor
    X: Tensor
    in_X: Tensor
    curvature: Tensor

    @classmethod
    def at(cls, parameters: Components, log_odds: Tensor) -> Expansion:
        """Return the expansion at the X and the shares π of these parameters, and log-odds (C, n) of what is tied."""
        with torch.no_grad():
            p, X, shares = torch.sigmoid(log_odds), parameters.X.detach(), parameters.shares.softmax(0)
            LU, pivots = _factorized(p, X)
            d, (row, column) = X.shape[1], _upper(X)
            inverse = torch.linalg.lu_solve(LU, pivots, torch.eye(d, dtype=LU.dtype, device=LU.device).expand_as(LU))
            R = ((inverse + inverse.mT) / 2)[:, row, column].to(X.dtype)
            twice = R * torch.where(row == column, 1, 2).to(X.dtype)  # both triangles
            in_p, in_X, curvature = torch.empty_like(p), torch.empty_like(X), torch.empty_like(X[:, :1])
            for items in _chunks(X):
                in_p[:, items] = twice @ _products(X[items]).T
                total = (shares[:, None] * p[:, items]).T @ R
                in_X[items] = 2 * _apply(total, X[items])
                curvature[items] = 2 * total[:, row == column].mean(1, keepdim=True)
            return cls(_log_dets(LU), p, in_p, X, in_X, curvature)

    def components(self, p: Tensor) -> Tensor:
        """Return t_c near the p of the expansion."""
        return self.value + (self.in_p * (p - self.p)).sum(1, dtype=torch.float64)

    def ties(self, X: Tensor) -> Tensor:
        """Return by how much Σ_c π_c t_c differs from its value at the X of the expansion."""
        move = X - self.X
        return ((self.in_X + self.curvature / 2 * move) * move).sum()


def log_normalizers(log_odds: Tensor, X: Tensor, ties: Expansion | None = None) -> Tensor:
    """Return log Z_c of each component in double precision: exactly, but without a gradient in X, or near an expansion."""
    free, p = F.softplus(log_odds).sum(1, dtype=torch.float64), torch.sigmoid(log_odds)
    return free + (_log_dets(_factorized(p, X)[0]) if ties is None else ties.components(p))


def log_probs(parameters: Components, log_z: Tensor, batch: Batch, extra: Tensor | None = None) -> Tensor:
    """Return log P of each basket in double precision, in the order of the batch; ``extra`` (baskets, C) is added to the log-odds."""
    prior = torch.log_softmax(parameters.shares.double(), 0) - log_z
    ones = torch.ones_like(parameters.bias)
    table = torch.cat([parameters.X, parameters.factors, ones[:, None], parameters.bias[:, None]], 1)
    rows = F.embedding(batch.items, F.pad(table, (0, 0, 0, 1)))  # padding is a row of zeros
    codes = torch.cat([parameters.missions, parameters.levels[:, None]], 1)
    n_empty, d = batch.n_baskets - sum(m for _, m, _ in batch.blocks), parameters.X.shape[1]
    sums, ties = [rows.new_zeros(n_empty, table.shape[1] - d)], [prior.new_zeros(n_empty)]
    for start, m, k in batch.blocks:
        block = rows[start : start + m * k].view(m, k, -1)
        sums.append(block[..., d:].sum(1))
        ties.append(_log_ties(block[..., :d]))
    total = torch.cat(sums)
    weights = (total[:, :-1] @ codes.T if extra is None else torch.addmm(extra, total[:, :-1], codes.T)).double()
    weights = weights + prior
    return torch.logsumexp(weights, 1) + total[:, -1].double() + torch.cat(ties)


def _log_ties(X: Tensor) -> Tensor:
    """Return log G of baskets of one size, from their rows (m, k, d); zeros are rows of padding."""
    if X.shape[1] <= X.shape[2]:
        A, B = X.chunk(2, dim=2)
        products = A @ B.mT
        skew = (products - products.mT).double()
        matrix = skew + torch.eye(X.shape[1], dtype=skew.dtype, device=X.device)
    else:
        matrix = (X.mT @ X).double() - skew_pairs(X.shape[2], X.device)
    log_abs: Tensor = torch.linalg.slogdet(matrix)[1]  # the sign is +: the symmetric part is positive definite
    return log_abs


def skew_pairs(d: int, device: torch.device) -> Tensor:
    """Return W = [[0, I], [−I, 0]]."""
    eye = torch.eye(d // 2, dtype=torch.float64, device=device)
    return torch.cat([torch.cat([0 * eye, eye], 1), torch.cat([-eye, 0 * eye], 1)])


def _factorized(p: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return the LU decompositions of all M_c − W. Only the upper triangles of the M_c are computed, at half the cost."""
    d, (row, column) = X.shape[1], _upper(X)
    M = p.new_zeros(len(p), len(row))
    for items in _chunks(X):
        M += p[:, items] @ _products(X[items])
    full = torch.empty(len(p), d, d, dtype=torch.float64, device=X.device)
    full[:, row, column] = full[:, column, row] = M.double()
    LU, pivots, _ = torch.linalg.lu_factor_ex(full - skew_pairs(d, X.device))
    return LU, pivots


def _log_dets(LU: Tensor) -> Tensor:
    return LU.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)


def _upper(X: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and columns of the entries of an upper triangle."""
    row, column = torch.triu_indices(X.shape[1], X.shape[1], device=X.device)
    return row, column


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
