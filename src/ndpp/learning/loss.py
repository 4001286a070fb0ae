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
from ndpp.learning.models import KernelFamily, Parameters
from ndpp.learning.objective import Likelihood

CHUNK_BASKETS = 2000
"""Number of baskets per call of the likelihood."""
CUDA_MULTIPLE = 16
"""On a GPU, basket sizes are rounded up to a multiple of this."""


def pack_for(baskets: Baskets, which: IntArray, device: torch.device) -> Batch:
    """Return a batch with the padding that suits the device."""
    return pack(baskets, which, device=device, multiple=1 if device.type == "cpu" else CUDA_MULTIPLE)


def log_probs(likelihood: Likelihood, X: Tensor, A: Tensor, baskets: Baskets) -> FloatArray:
    """Return log P of each basket, in order; −inf for impossible baskets."""
    out = np.empty(len(baskets))
    order = np.argsort(baskets.sizes, kind="stable")
    for start in range(0, len(baskets), CHUNK_BASKETS):
        which = order[start : start + CHUNK_BASKETS]
        out[which] = likelihood.log_probs(X, A, pack_for(baskets, which, X.device)).cpu().numpy()
    return out


@dataclass(frozen=True)
class TrainingSettings:
    """Options of training; see :class:`ndpp.learning.NDPP`."""

    gamma: float
    learning_rate: float
    batch_size: int | None
    max_epochs: int
    patience: int


@dataclass(frozen=True)
class TrainingProblem:
    """The model to train: ``penalties`` (n, d) are α s_i²/μ_i and β s_i²/μ_i, ``noise`` (n, 1) the relative scales r_i."""

    family: KernelFamily
    likelihood: Likelihood
    penalties: Tensor
    noise: Tensor | None


class Loss(NamedTuple):
    """The objective on a batch, and its gradient, a named tuple of tensors as the parameters are."""

    value: Tensor
    gradient: Any

    def is_finite(self) -> bool:
        """Return whether the value and all entries of the gradient are finite."""
        return bool(torch.isfinite(self.value + sum(tensor.sum() for tensor in self.gradient)))


def loss_and_gradient(
    problem: TrainingProblem,
    settings: TrainingSettings,
    parameters: Parameters,
    batch: Batch,
    *,
    noise: Tensor | None = None,
) -> Loss:
    """Return the objective and its gradient at x̂_i or, with ``noise`` of relative scale r_i, at (x̂_i + noise)/√(1 + r_i²).

    The noise may be in single precision.
    """
    family, likelihood = problem.family, problem.likelihood
    X, A = parameters.X, family.matrix(parameters.skew)
    shrink = X.new_ones(1) if noise is None or problem.noise is None else (1 + problem.noise**2).rsqrt()
    at = X if noise is None else (X + noise).mul_(shrink)
    above, below = likelihood.log_normalizer_gradient(at, A), likelihood.log_dets_gradient(at, A, batch)
    decay = problem.penalties * X
    in_X = above.X.sub_(below.X, alpha=1 / batch.n_baskets).mul_(shrink).add_(decay, alpha=2.0)
    penalty, in_penalty = family.penalty(parameters.skew)
    in_skew = family.pull_back(parameters.skew, above.A - below.A / batch.n_baskets) + settings.gamma * in_penalty
    value = above.value - (below.value + likelihood.log_scales(batch).sum()) / batch.n_baskets
    value = value + torch.dot(decay.view(-1), X.reshape(-1)) + settings.gamma * penalty
    return Loss(value, Parameters(in_X.contiguous(), in_skew.contiguous()))
