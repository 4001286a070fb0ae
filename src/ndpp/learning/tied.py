"""The likelihood of a mixture with shared ties, and its gradient.

    L^c = diag(√Δ_c)(I + X W Xᵀ)diag(√Δ_c),    log Δ_ci = b_i + a_c + u_i·z_c,    W = [[0, I], [−I, 0]]

    P(S) = G(S) Σ_c (π_c / Z_c) Π_{i∈S} Δ_ci,    G(S) = det(I + X_S W X_Sᵀ),
    Z_c = Π_i (1 + Δ_ci) · det(I + W M_c),       M_c = Σ_i p_ci x_i x_iᵀ,    p = Δ/(1 + Δ).

Any skew W has this form, its size going into X. With X = [A B], X W Xᵀ = A Bᵀ − B Aᵀ; and det(I + W M) = det(M − W), as W⁻¹ = −W and
det W = 1. All M_c are one matrix product of p with the products of columns of X, O(C n d²), and their gradient two more: by far the most of
the work. So training expands log det(M_c − W) to first order, and renews the expansion every few steps: for the items that matter most to
the M_c every time, for the others in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ndpp._types import FloatArray
from ndpp.learning.batches import PackedBaskets
from ndpp.learning.trainer import chance_of_some

MULTIPLE = 4
"""What sizes of baskets are rounded up to on a CPU: fewer blocks, each a stack of larger matrices."""
CHUNK = {"cpu": 2**22, "cuda": 2**28}
"""Products of columns of X, for some of the items, that are in memory at a time."""
COVERED, TURNS = 0.97, 8
"""Share of the traces of the M_c that is renewed every time, by the items that matter most; the others take this many turns."""
LEAST_HEAD, MOST_HEAD, HEAD_SHARE = 1000, 4000, 16
"""Fewest items that are renewed every time, and most, unless there are ``HEAD_SHARE`` times as many."""

LogOdds = Callable[[Tensor], Tensor]
"""Returns the log-odds (C, m) of some of what is tied, m ids in ascending order."""


class MixtureParameters(NamedTuple):
    """What is trained: b (n,), u (n, r), X (n, d), z (C, r), a (C,), and log π (C,) up to a constant.

    If items have f features, u and X are those that ``in_factors`` (f, r) and ``in_X`` (f, d) times the features are added to. Over
    families of items, ``patterns`` are the log-odds (items, K) of the items in the states of their family. Checkpoints hold the tensors
    under these names.
    """

    bias: Tensor
    factors: Tensor
    X: Tensor
    missions: Tensor
    levels: Tensor
    shares: Tensor
    in_factors: Tensor = torch.empty(0, 0)
    in_X: Tensor = torch.empty(0, 0)
    patterns: Tensor = torch.empty(0, 0)

    def log_odds(self, which: Tensor | slice = slice(None)) -> Tensor:
        """Return log Δ of all or some of the items, shape (C, n)."""
        return torch.addmm(self.bias[which] + self.levels[:, None], self.missions, self.factors[which].T)

    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return Δ, X, W and π in double precision."""
        exact = MixtureParameters(*(tensor.detach().cpu().double() for tensor in self))
        W = skew_pairs(exact.X.shape[1], exact.X.device)
        return exact.log_odds().exp().numpy(), exact.X.numpy(), W.numpy(), exact.shares.softmax(0).numpy()


class Expansion:
    """t_c = log det(I + W M_c) of each component near some p and X, to first order in p; Σ_c π_c t_c to first order in X.

    If no basket is empty, π_c stands for π_c / P_c(S ≠ ∅), which the derivative of −log(Z_c − 1) has.

    With R_c the symmetric part of (M_c − W)⁻¹ the slope of t_c is x_iᵀR_c x_i in p_ci and 2 p_ci R_c x_i in x_i; ``curvature`` is the mean
    of the second derivatives of Σ_c π_c t_c in the entries of x_i, with R_c held. An item that was not renewed has the p and x, and the
    slopes, of the time when it was. ``level`` (C,) is t_c − Σ_i (slope in p_ci) p_ci there, so that t_c = ``level`` + Σ_i (slope) p_ci.
    """

    def __init__(self, parameters: MixtureParameters, log_odds: LogOdds, nonempty: bool = False) -> None:
        X, C, self.nonempty = parameters.X, len(parameters.missions), nonempty
        self.X, self.in_X, self.curvature = X.clone(), torch.empty_like(X), torch.empty_like(X[:, :1])
        self.in_p = X.new_empty(C, len(X))
        self.parts, self.turn = _parts(parameters, log_odds), 0
        self.sums = X.new_empty(len(self.parts), C, X.shape[1] * (X.shape[1] + 1) // 2)
        self.offsets, self.free = X.new_empty(2, len(self.parts), C, dtype=torch.float64)
        self._renew(parameters, log_odds, range(len(self.parts)))

    def renew(self, parameters: MixtureParameters, log_odds: LogOdds) -> None:
        """Move to these parameters for the first part of the items, and for the next one in turn."""
        own = [1 + self.turn] if len(self.parts) > 1 else []
        self._renew(parameters, log_odds, [0, *own])
        self.turn = (self.turn + 1) % max(1, len(self.parts) - 1)

    def _renew(self, parameters: MixtureParameters, log_odds: LogOdds, parts: Sequence[int]) -> None:
        with torch.no_grad():
            shares, chances = parameters.shares.softmax(0)[:, None], {}
            for part in parts:
                which = self.parts[part]
                self.X[which], odds = parameters.X[which], log_odds(which)
                chances[part], self.free[part] = torch.sigmoid(odds), F.softplus(odds).sum(1, dtype=torch.float64)
                self.sums[part] = _second_moments(chances[part], self.X[which])
            LU, pivots = _factorized(self.sums.sum(0), self.X.shape[1])
            self.value = _log_dets(LU)
            if self.nonempty:
                shares = shares / chance_of_some(self.free.sum(0) + self.value).to(shares.dtype)[:, None]
            eye = torch.eye(self.X.shape[1], dtype=self.X.dtype, device=self.X.device)
            row, column = torch.triu_indices(*eye.shape, device=eye.device)
            inverse = torch.linalg.lu_solve(LU.to(eye.dtype), pivots, eye.expand_as(LU))
            R = ((inverse + inverse.mT) / 2).flatten(1).index_select(1, row * len(eye) + column)
            twice = R * torch.where(row == column, 1, 2).to(R.dtype)  # both triangles
            for part in parts:
                which, p = self.parts[part], chances[part]
                for some in _chunks(len(which), self.X):
                    own = self.X[which[some]]
                    self.in_p[:, which[some]] = slopes = twice @ _products(own).T
                    total = (shares * p[:, some]).T @ R
                    self.in_X[which[some]] = 2 * _apply(total, own)
                    self.curvature[which[some]] = 2 * total[:, row == column].mean(1, keepdim=True)
                    p[:, some] *= slopes
                self.offsets[part] = p.sum(1, dtype=torch.float64)
            self.level = self.value - self.offsets.sum(0)

    def ties(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return by how much Σ_c π_c t_c differs from its value at the X of the expansion, and its gradient."""
        move = X - self.X
        gradient = self.curvature * move + self.in_X
        return ((gradient + self.in_X) * move).sum() / 2, gradient


def _parts(parameters: MixtureParameters, log_odds: LogOdds) -> list[Tensor]:
    """Return ids of the items that matter most to the M_c, and of the others in ``TURNS`` parts, all ascending."""
    n, device = len(parameters.X), parameters.X.device
    if n <= LEAST_HEAD:
        return [torch.arange(n, device=device)]
    with torch.no_grad():
        shares, ids = parameters.shares.softmax(0), torch.arange(n, device=device)
        p = torch.cat([shares @ torch.sigmoid(log_odds(ids[some])) for some in _chunks(n, parameters.X)])
    weight, order = (p * parameters.X.square().sum(1)).sort(descending=True, stable=True)
    covering = int((weight.cumsum(0) < COVERED * weight.sum()).sum()) + 1
    head = min(n, max(LEAST_HEAD, min(covering, max(MOST_HEAD, n // HEAD_SHARE))))
    parts = order[:head], *(order[head + turn :: TURNS] for turn in range(TURNS))
    return [part.sort()[0] for part in parts if len(part)]


class Sums(NamedTuple):
    """Σ_i log(1 + Δ_ci) of each component, and the upper triangles of all M_c, for d columns of X."""

    free: Tensor
    moments: Tensor
    d: int

    @classmethod
    def of(cls, parameters: MixtureParameters, log_odds: LogOdds) -> Sums:
        """Return them, some items at a time."""
        X, C = parameters.X, len(parameters.missions)
        free = torch.zeros(C, dtype=torch.float64, device=X.device)
        moments = X.new_zeros(C, X.shape[1] * (X.shape[1] + 1) // 2)
        for some in _chunks(len(X), X):
            odds = log_odds(torch.arange(len(X), device=X.device)[some])
            free += F.softplus(odds).sum(1, dtype=torch.float64)
            moments.addmm_(torch.sigmoid(odds), _products(X[some]))
        return cls(free, moments, X.shape[1])

    def log_normalizers(self, scale: float = 1.0) -> Tensor:
        """Return log Z_c of each component in double precision, with X times ``scale``."""
        return self.free + _log_dets(_factorized(scale**2 * self.moments, self.d)[0])


def log_probs(
    parameters: MixtureParameters, log_z: Tensor, batch: PackedBaskets, extra: Tensor | None = None
) -> Tensor:
    """Return log P of each basket in double precision, in the order of the batch; ``extra`` (baskets, C) is added to the log-odds.

    ``log_z`` are the logarithms of the weights of all sets that a component may have.
    """
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
        A, B = X.double().chunk(2, dim=2)  # stacks of small products in single precision are slow on some CPUs
        products = A @ B.mT
        matrix = products - products.mT + torch.eye(X.shape[1], dtype=products.dtype, device=X.device)
    else:
        matrix = X.double().mT @ X.double() - skew_pairs(X.shape[2], X.device)
    log_abs: Tensor = torch.linalg.slogdet(matrix)[1]  # the sign is +: the symmetric part is positive definite
    return log_abs


def skew_pairs(d: int, device: torch.device) -> Tensor:
    """Return W = [[0, I], [−I, 0]]."""
    eye = torch.eye(d // 2, dtype=torch.float64, device=device)
    return torch.cat([torch.cat([0 * eye, eye], 1), torch.cat([-eye, 0 * eye], 1)])


def _second_moments(p: Tensor, X: Tensor) -> Tensor:
    """Return the upper triangles of Σ_i p_ci x_i x_iᵀ, which is half of the work for all of it."""
    out = p.new_zeros(len(p), X.shape[1] * (X.shape[1] + 1) // 2)
    for some in _chunks(len(X), X):
        out.addmm_(p[:, some], _products(X[some]))
    return out


def _factorized(upper: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """Return the LU decompositions of all M_c − W in double precision, from the upper triangles of the M_c."""
    row, column = torch.triu_indices(d, d, device=upper.device)
    place = torch.empty(d, d, dtype=torch.int64, device=upper.device)
    place[row, column] = place[column, row] = torch.arange(len(row), device=upper.device)
    full = upper.index_select(1, place.ravel()).view(-1, d, d).double()
    LU, pivots, _ = torch.linalg.lu_factor_ex(full - skew_pairs(d, upper.device))
    return LU, pivots


def _log_dets(LU: Tensor) -> Tensor:
    return LU.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)


def _chunks(n: int, X: Tensor) -> Iterator[slice]:
    step = max(1, CHUNK[X.device.type] // (X.shape[1] * (X.shape[1] + 1) // 2))
    yield from (slice(start, start + step) for start in range(0, n, step))


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
