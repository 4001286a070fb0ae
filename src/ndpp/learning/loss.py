"""The objective on a mini-batch, and its gradient.

    −mean log det(L_Y) + log det(L + I) + α Σ ‖v_i‖²/μ_i + β Σ ‖b_i‖²/μ_i + γ Σ log(1 + 2σ_j/(σ_j² + 1))

with μ_i the count of item i [Han et al., ICLR 2022, appendix].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.learning.batches import Batch, pack
from ndpp.learning.models import Family, Parameters
from ndpp.learning.objective import Likelihood

EVALUATED = 2000
"""Baskets whose likelihood is computed at a time."""
CUDA_MULTIPLE = 16
"""What sizes of baskets are rounded up to on a GPU."""


def pack_for(baskets: Baskets, which: IntArray, device: torch.device) -> Batch:
    """Return a batch as suits the device."""
    return pack(baskets, which, device=device, multiple=1 if device.type == "cpu" else CUDA_MULTIPLE)


def log_probs(likelihood: Likelihood, X: Tensor, A: Tensor, baskets: Baskets) -> FloatArray:
    """Return log P of each basket, in order; −inf where it is zero."""
    out = np.empty(len(baskets))
    order = np.argsort(baskets.sizes, kind="stable")
    for start in range(0, len(baskets), EVALUATED):
        which = order[start : start + EVALUATED]
        out[which] = likelihood.log_probs(X, A, pack_for(baskets, which, X.device)).cpu().numpy()
    return out


@dataclass(frozen=True)
class Settings:
    """How to train; :class:`ndpp.learning.NDPP` explains each."""

    learning_rate: float
    batch_size: int | None
    max_epochs: int
    patience: int


@dataclass(frozen=True)
class Problem:
    """A family, its likelihood, ``weights`` (n, d) α s_i²/μ_i and β s_i²/μ_i, relative sizes r_i (n, 1) of the noise, and γ."""

    family: Family
    likelihood: Likelihood
    weights: Tensor
    noise: Tensor | None
    gamma: float = 0.0


class Loss(NamedTuple):
    """The objective on a batch, and its gradient, a named tuple like the parameters."""

    value: Tensor
    gradient: Any

    def is_finite(self) -> bool:
        """Tell whether the value and every entry of the gradient are finite."""
        return bool(torch.isfinite(sum((tensor.sum() for tensor in self.gradient), self.value)))


def loss_and_gradient(
    problem: Problem, parameters: Parameters, batch: Batch, *, noise: Tensor | None = None
) -> Loss:
    """Return the objective and its gradient at x̂_i or, with ``noise`` of relative size r_i, at (x̂_i + noise)/√(1 + r_i²).

    The noise may be in single precision.
    """
    family, likelihood = problem.family, problem.likelihood
    X, A = parameters.X, family.matrix(parameters.skew)
    shrink = X.new_ones(1) if noise is None or problem.noise is None else (1 + problem.noise**2).rsqrt()
    at = X if noise is None else (X + noise).mul_(shrink)
    above, below = likelihood.log_normalizer_gradient(at, A), likelihood.log_dets_gradient(at, A, batch)
    decay = problem.weights * X
    in_X = above.X.sub_(below.X, alpha=1 / batch.n_baskets).mul_(shrink).add_(decay, alpha=2.0)
    penalty, in_penalty = family.penalty(parameters.skew)
    in_skew = family.pull_back(parameters.skew, above.A - below.A / batch.n_baskets) + problem.gamma * in_penalty
    value = above.value - (below.value + likelihood.log_scales(batch).sum()) / batch.n_baskets
    value = value + torch.dot(decay.view(-1), X.reshape(-1)) + problem.gamma * penalty
    return Loss(value, Parameters(in_X.contiguous(), in_skew.contiguous()))
