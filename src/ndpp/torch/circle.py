"""Generating functions of the size of sets that contain J, and their coefficients, those of one size, from a circle.

With a_i(t) = 1/(1 + tδ_i), C(t) = Xᵀ diag(a) X and S(t) = (I + tWC)⁻¹ tW, the marginal kernel of tL is
K(t) = diag(1 − a) + diag(a) X S Xᵀ diag(a), and

    Σ_{S ⊇ J} t^|S| det L_S = Π(1 + tδ_i) · det(I + tWC) · det K_J(t).

The coefficient of t^k is the mean of w(t) t^(−k) over the points of a circle whose radius makes k the mean size
(:mod:`ndpp.linalg.size_law`). The gradient of its log is a mean of those of log w(t) with weights w(t) t^(−k), which is the inclusion
matrix of sets of that size: no eigenvectors, and nothing that two equal eigenvalues would break.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.errors import ImpossibleSizeError, InvalidInputError, ZeroProbabilityError
from ndpp.linalg.size_law import ZERO_WEIGHT
from ndpp.linalg.tilts import TINY, solve_each
from ndpp.torch.autograd import gram, log_det
from ndpp.torch.inputs import TensorKernel

EPS = torch.finfo(torch.float64).eps
STEP = 0.1
"""Of log t, in finite differences for the mean and variance of the size. They plan the circle, and need few digits."""
LOG_ROOM = 36.0
"""Largest log of the radius times the smallest direction."""
RANK_TOLERANCE = 1e-12
"""Directions of L that are smaller than this part of the largest one, when all columns have one scale, are rounding."""


class Generating(NamedTuple):
    """The generating function of a kernel and given items J (g,); C (B, 1, d, d), None with a background."""

    rows: TensorKernel
    given: IntArray
    C: Tensor | None

    @classmethod
    def of(cls, rows: TensorKernel, given: IntArray) -> Generating:
        """Multiply the rows."""
        return cls(rows, given, gram(rows.X) if rows.background is None else None)

    def at(self, t: Tensor, *, inclusion: bool = False) -> tuple[Tensor, Tensor | None]:
        """Return log w(t) (B, N) at real or complex points t and, for ``inclusion``, S(t) given J (B, N, d, d)."""
        X, W, background, _ = self.rows
        a, C = None, self.C
        if background is not None:
            a = 1 / (1 + t[..., None] * background[:, None])
            C = gram(X, a)
        assert C is not None
        identity = torch.eye(X.shape[2], dtype=t.dtype, device=t.device)
        system = identity + t[..., None, None] * (C if W is None else W.to(C.dtype) @ C)
        log_weight = log_det(system) if a is None else log_det(system) - a.log().sum(-1)
        if not inclusion and not len(self.given):
            return log_weight, None
        S = torch.linalg.solve(system, t[..., None, None] * (identity if W is None else W))
        if not len(self.given):
            return log_weight, S
        some = torch.from_numpy(self.given).to(X.device)
        Y = X.index_select(1, some).to(t.dtype)[:, None]
        Y = Y if a is None else a[..., some, None] * Y
        own = torch.zeros_like(Y[..., 0]) if a is None else 1 - a[..., some]
        left = Y @ S
        K = left @ Y.mT + torch.diag_embed(own)
        of_given = log_det(K) if t.is_complex() else log_minors(K, (left * Y).abs().sum(-1) + own)
        if inclusion:
            S = S - (S @ Y.mT) @ torch.linalg.solve_ex(K, left)[0]
        return log_weight + of_given, S

    def weighed(self, size: int | None = None, *, inclusion: bool = False) -> tuple[Tensor, Tensor | None]:
        """Return the log weight (B,) of sets that contain J, of one size or all, and their inclusion matrix M (B, d, d)."""
        total, M = self.at(torch.ones_like(self.rows.X[:, :1, 0], dtype=torch.float64), inclusion=inclusion)
        if not torch.isfinite(total).all():
            raise ZeroProbabilityError(f"the given items {self.given.tolist()} never occur together")
        if size is None:
            return total[:, 0], None if M is None else M[:, 0]
        with torch.no_grad():
            log_radius, log_at_radius, N = self._circle(size)
        angles = (torch.arange(N // 2, device=log_radius.device, dtype=torch.float64) + 0.5) * (2 * torch.pi / N)
        log_t = torch.complex(log_radius[:, None], angles.expand(len(log_radius), -1))
        values, matrices = self.at(log_t.exp(), inclusion=inclusion)
        terms = values - size * log_t
        largest = terms.real.detach().amax(1, keepdim=True)
        terms = (terms - largest).exp()
        total = terms.real.mean(1, keepdim=True)  # the other half of the circle is conjugate
        chance = total[:, 0] * (largest[:, 0] + size * log_radius - log_at_radius).exp()
        if not (chance > ZERO_WEIGHT).all():
            that = f" with the given items {self.given.tolist()}" if len(self.given) else ""
            raise ImpossibleSizeError(f"no set of size {size}{that} has positive probability")
        if matrices is not None and inclusion:
            M = ((terms / total)[..., None, None] * matrices).real.mean(1)
        return (total.log() + largest)[:, 0], M

    def _circle(self, size: int) -> tuple[Tensor, Tensor, int]:
        """Return log ρ and log w(ρ) (B,) where the mean size is about k, and an even number of points that aliases less than rounding."""
        (X, _, background, _), n_given = self.rows, len(self.given)
        check_count(size, "size")
        if size < n_given:
            problem = f"must be at least {n_given}, the number of given items; got {size}"
            raise InvalidInputError(problem, argument="size")
        C = gram(X) if self.C is None else self.C
        scale = C[:, 0].diagonal(dim1=-2, dim2=-1)
        most = X.shape[1] if background is not None else min(X.shape[1], _rank(self.rows, C[:, 0], scale))
        if size > most:
            whose = "the number of items" if background is not None else "the rank of the kernel"
            raise ImpossibleSizeError(f"no set is larger than {whose}, {most}; size {size} was asked for")
        typical = scale.sort(descending=True)[0][:, min(max(size, 1), X.shape[2]) - 1]
        if background is not None:
            typical, scale = typical + background.sum(1) / max(size, 1), torch.cat([scale, background], 1)
        end = LOG_ROOM - float(scale.where(scale > 0, 1 / TINY).min().log())
        log_radius = np.minimum(-typical.clamp(min=TINY).log().cpu().numpy(), end)
        logs, variances = np.zeros(len(X)), np.zeros(len(X))
        steps = STEP * torch.tensor([-1.0, 0.0, 1.0], dtype=C.dtype, device=X.device)

        def moments(at: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray]:
            log_radius[which] = at
            t = (torch.from_numpy(log_radius).to(X.device)[:, None] + steps).exp()
            below, here, above = self.at(t)[0].cpu().numpy().T
            logs[which], variances[which] = here[which], (above - 2 * here + below)[which] / STEP**2
            return (above - below)[which] / (2 * STEP), variances[which]

        solve_each(moments, float(size), log_radius.copy(), most_tilt=end)
        count = _node_count(float(np.nanmax(variances)), max(size - n_given, most - size))
        return torch.from_numpy(log_radius).to(X.device), torch.from_numpy(logs).to(X.device), count


def log_minors(G: Tensor, terms: Tensor) -> Tensor:
    """Return log det G of real minors, −inf where rounding leaves no more of it; ``terms`` are the magnitudes behind the diagonal."""
    scale = torch.where(terms > 0, terms, 1).detach().sqrt()
    value = log_det(G / (scale[..., :, None] * scale[..., None, :]), least=8 * EPS * G.shape[-1])
    return value + 2 * scale.log().sum(-1)


def _rank(rows: TensorKernel, C: Tensor, scale: Tensor) -> int:
    """Return the least rank of L in the batch, up to rounding, from C = XᵀX and its diagonal."""
    unit = scale.where(scale > 0, 1).sqrt()
    values, vectors = torch.linalg.eigh(C / (unit[:, :, None] * unit[:, None, :]))
    kept = values > RANK_TOLERANCE * values[:, -1:]
    if rows.W is None:
        return int(kept.sum(1).min())
    root = unit[:, :, None] * vectors * values.where(kept, 0).sqrt()[:, None]
    inner = rows.W if kept.all() else root.mT @ rows.W @ root
    height = inner.abs().amax(-1).clamp(min=TINY).sqrt()
    ranks = torch.linalg.matrix_rank(inner / (height[..., :, None] * height[..., None, :]), rtol=RANK_TOLERANCE)
    return int(ranks.min())


def _node_count(variance: float, reach: int) -> int:
    """Return N such that sizes N away from the mean are rounding, by Bennett's inequality for sums of {0, 1, 2}, or impossible."""
    variance = max(variance, 1e-3)
    for count in range(2, reach + 1, 2):
        u = 2 * (count - 0.5) / variance
        if variance / 4 * ((1 + u) * math.log1p(u) - u) > 2 - math.log(EPS):
            return count
    return reach + 2 - reach % 2
