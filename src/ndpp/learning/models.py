"""The parameters of each model: X̂ = [V̂ B̂] and the skew-symmetric matrix A of W = Diag(I, A).

    FreeSkew         A = D − Dᵀ, D any matrix                        NDPP [Gartrell et al., ICLR 2021]
    OrthogonalPairs  A = ⊕ σ_j [[0, 1], [−1, 0]], σ_j > 0,           ONDPP [Han et al., ICLR 2022]
                     BᵀB = I and VᵀB = 0
    NoSkew           no B                                            symmetric low-rank DPP

A :class:`TrainingStart` sets the row scales s_i of X, x_i = s_i x̂_i, and the initial parameters.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from scipy.linalg import block_diag
from torch import Tensor

from ndpp._types import FloatArray
from ndpp.learning.trainer import PUBLISHED, USUAL, Schedule
from ndpp.linalg.tilts import tilt_to_size

JITTER = 1e-5
"""Added to the diagonal of G in training, so that a nearly impossible basket still has a finite gradient."""


class Parameters(NamedTuple):
    """X̂ (n, d) and the parameters of A: D (h, h), log σ (h/2,), or an empty tensor."""

    X: Tensor
    skew: Tensor


class KernelForm:
    """How many columns are skew, by default none; the parametrization of A, by default A = D − Dᵀ; constraints on the columns of X."""

    skew_rate: ClassVar[float] = 1.0
    """Learning rate of the parameters of A, relative to that of X̂."""
    least_rank: ClassVar[int] = 1
    is_orthogonal: ClassVar[bool] = False
    """Whether columns are orthogonal, so that there are no more of them than items."""

    def columns(self, rank: int) -> tuple[int, int]:
        """Return the numbers of symmetric and skew columns of a kernel of this rank; the second is even."""
        return rank, 0

    def matrix(self, skew: Tensor) -> Tensor:
        """Return A."""
        return skew - skew.T

    def pull_back(self, skew: Tensor, in_A: Tensor) -> Tensor:
        """Convert a skew-symmetric gradient in A into the gradient in its parameters."""
        return 2 * in_A

    def random(self, rng: np.random.Generator, n_skew: int, spread: float) -> FloatArray:
        """Return Gaussian parameters of A with standard deviation ``spread``."""
        return spread * rng.standard_normal((n_skew, n_skew))

    def constrain(self, parameters: Parameters, scale: Tensor, n_sym: int) -> None:
        """Project X onto the constraints, in place."""
        return

    def tangent(self, parameters: Parameters, in_X: Tensor, scale: Tensor, n_sym: int) -> Tensor:
        """Return the gradient in X̂ along the constraints."""
        return in_X

    def free_gradient(self, X: Tensor, in_X: Tensor, n_sym: int) -> Tensor:
        """Return the gradient in parameters that the constraints are imposed on in the loss alone, for rows without scales."""
        return in_X

    def rescale(self, parameters: Parameters, factor: float, n_sym: int) -> None:
        """Multiply L by ``factor``, in place."""
        parameters.X.mul_(math.sqrt(factor))

    def correct_for_noise(self, parameters: Parameters, noise: Tensor, scale: Tensor, n_sym: int) -> None:
        """Correct X, in place, for the bias of training with noise of relative scales r_i (n, 1)."""
        return  # no correction

    def penalty(self, skew: Tensor) -> tuple[Tensor, Tensor]:
        """Return the term that γ multiplies, and its gradient."""
        return torch.zeros((), dtype=skew.dtype, device=skew.device), torch.zeros_like(skew)


@dataclass(frozen=True)
class FreeSkew(KernelForm):
    """A fraction ``share`` of the columns is skew; no constraints."""

    share: float = 0.5

    least_rank: ClassVar[int] = 3
    skew_rate: ClassVar[float] = 0.1  # B̂ can absorb changes of D, item by item; at the full rate D overshoots

    def columns(self, rank: int) -> tuple[int, int]:
        """Return the split: at least one symmetric column, without which no set of odd size could occur."""
        n_skew = min(max(2, 2 * int(rank * self.share / 2 + 1e-9)), (rank - 1) // 2 * 2)
        return rank - n_skew, n_skew

    def correct_for_noise(self, parameters: Parameters, noise: Tensor, scale: Tensor, n_sym: int) -> None:
        """Multiply V by (1 + r̄²)², with r̄² the mean of r_i² over occurrences, and b_i by (1 + r_i²)^−¼.

        Noise weakens the interaction of b_i and b_j by ((1 + r_i²)(1 + r_j²))^½. It also makes all pairs attract each
        other slightly, which raises the probability of single items, as V does. Without noise, smaller b_i and a
        larger V are equally likely, and rank held-out items higher. The exponents were chosen on validation baskets.
        """
        mean = (scale[:, None] ** 2 * noise**2).sum() / (scale**2).sum()
        parameters.X[:, :n_sym].mul_((1 + mean) ** 2)
        parameters.X[:, n_sym:].mul_((1 + noise**2) ** -0.25)


@dataclass(frozen=True)
class OrthogonalPairs(FreeSkew):
    """A block diagonal with σ_j > 0 (stored as log σ_j), BᵀB = I, VᵀB = 0."""

    skew_rate: ClassVar[float] = 1.0
    is_orthogonal: ClassVar[bool] = True

    def matrix(self, skew: Tensor) -> Tensor:
        """Return ⊕ σ_j [[0, 1], [−1, 0]]."""
        A = skew.new_zeros(2 * len(skew), 2 * len(skew))
        A.diagonal(1)[::2] = skew.exp()
        A.diagonal(-1)[::2] = -skew.exp()
        return A

    def pull_back(self, skew: Tensor, in_A: Tensor) -> Tensor:
        """Return the gradient in log σ."""
        return 2 * in_A.diagonal(1)[::2] * skew.exp()

    def random(self, rng: np.random.Generator, n_skew: int, spread: float) -> FloatArray:
        """Return a Gaussian log σ."""
        return spread * rng.standard_normal(n_skew // 2)

    def constrain(self, parameters: Parameters, scale: Tensor, n_sym: int) -> None:
        """Replace B by the Q of its QR decomposition, and V by its projection on the complement of B."""
        X = parameters.X * scale[:, None]
        V, B = X[:, :n_sym], _orthonormal(X[:, n_sym:])
        torch.div(torch.cat([V - B @ (B.T @ V), B], 1), scale[:, None], out=parameters.X)

    def tangent(self, parameters: Parameters, in_X: Tensor, scale: Tensor, n_sym: int) -> Tensor:
        """Return the gradient in (V, B) of the loss at (V − BBᵀV, qr(B)); B also moves V's projection."""
        X, G = parameters.X * scale[:, None], in_X / scale[:, None]
        V, B, in_V, in_B = X[:, :n_sym], X[:, n_sym:], G[:, :n_sym], G[:, n_sym:]
        in_B = in_B - V @ (in_V.T @ B)
        M = B.T @ in_B
        return torch.cat([in_V - B @ (B.T @ in_V), in_B - B @ ((M + M.T) / 2)], 1).mul_(scale[:, None])

    def free_gradient(self, X: Tensor, in_X: Tensor, n_sym: int) -> Tensor:
        """Return the gradient in (V, B), any matrices, of a loss whose gradient at (V − QQᵀV, Q) is ``in_X``, with B = QR."""
        with torch.enable_grad():
            X = X.detach().requires_grad_()
            Q, R = torch.linalg.qr(X[:, n_sym:])
            Q = Q * R.diagonal().sign()
            at = torch.cat([X[:, :n_sym] - Q @ (Q.T @ X[:, :n_sym]), Q], 1)
            return torch.autograd.grad(at, X, in_X)[0]

    def correct_for_noise(self, parameters: Parameters, noise: Tensor, scale: Tensor, n_sym: int) -> None:
        """Do nothing: scaling single rows would break the orthonormality of B."""

    def rescale(self, parameters: Parameters, factor: float, n_sym: int) -> None:
        """Multiply L by ``factor``: V by its square root and σ by ``factor``, since B stays orthonormal."""
        parameters.X[:, :n_sym].mul_(math.sqrt(factor))
        parameters.skew.add_(math.log(factor))

    def penalty(self, skew: Tensor) -> tuple[Tensor, Tensor]:
        """Return Σ log(1 + 2σ_j/(σ_j² + 1)), the log of a rejection sampler's expected proposals, and its gradient."""
        u = skew.cosh()  # 2σ/(σ² + 1) = 1/cosh(log σ)
        return torch.log1p(1 / u).sum(), -skew.sinh() / (u * (u + 1))


@dataclass(frozen=True)
class NoSkew(KernelForm):
    """A symmetric kernel: no skew columns, and an empty D."""


class TrainingStart(ABC):
    """The row scales, and the initial parameters."""

    schedule: ClassVar[Schedule] = USUAL
    is_free: ClassVar[bool] = False
    """Whether steps leave the constraints, which the loss then imposes."""
    jitter: ClassVar[float] = 0.0
    """Added to the diagonal of G in validation, where the published code has ``JITTER``, too."""

    @abstractmethod
    def scale(self, counts: FloatArray, n_baskets: float) -> FloatArray:
        """Return s_i for items that occur ``counts`` times."""

    @abstractmethod
    def parameters(
        self, rng: np.random.Generator, form: KernelForm, scale: FloatArray, rank: int, mean_size: float
    ) -> Parameters:
        """Return the initial parameters in double precision, on the CPU."""


@dataclass(frozen=True)
class PopularityStart(TrainingStart):
    """Rows scaled by popularity, s_i² = p_i/(1 − p_i), with p_i the smoothed frequency of item i; Gaussian X̂.

    The rows x̂_i of rare and popular items then have similar norms, so one learning rate suits them all. Initially, sets
    have the mean size of the baskets. ``spread`` is the standard deviation of the parameters of A.
    """

    spread: float = 0.1

    def scale(self, counts: FloatArray, n_baskets: float) -> FloatArray:
        """Return the square root of the odds."""
        return np.sqrt((counts + 0.5) / (n_baskets + 0.5 - counts))

    def parameters(
        self, rng: np.random.Generator, form: KernelForm, scale: FloatArray, rank: int, mean_size: float
    ) -> Parameters:
        """Return Gaussian parameters, rescaled so that sets have the mean size of the baskets."""
        n_sym, n_skew = form.columns(rank)
        X = rng.standard_normal((len(scale), rank))
        X[:, :n_sym] /= np.sqrt(n_sym)
        X[:, n_sym:] /= np.sqrt(max(n_skew, 1))
        start = Parameters(torch.from_numpy(X), torch.from_numpy(form.random(rng, n_skew, self.spread)))
        rows = torch.from_numpy(scale)
        form.constrain(start, rows, n_sym)
        form.rescale(start, _factor_for_size(start, form, rows, n_sym, mean_size), n_sym)
        return start


@dataclass(frozen=True)
class LiteratureStart(TrainingStart):
    """No scaling; V, B ~ U(0, 1), D ~ N(0, 1), σ = exp(N(0, 1)), as in the published experiments."""

    def scale(self, counts: FloatArray, n_baskets: float) -> FloatArray:
        """Return ones."""
        return np.ones(len(counts))

    def parameters(
        self, rng: np.random.Generator, form: KernelForm, scale: FloatArray, rank: int, mean_size: float
    ) -> Parameters:
        """Return uniform X and Gaussian parameters of A."""
        n_sym, n_skew = form.columns(rank)
        X, skew = rng.uniform(size=(len(scale), rank)), form.random(rng, n_skew, 1.0)
        start = Parameters(torch.from_numpy(X), torch.from_numpy(skew))
        if not self.is_free:
            form.constrain(start, torch.from_numpy(scale), n_sym)
        return start


@dataclass(frozen=True)
class PublishedTraining(LiteratureStart):
    """``LiteratureStart``, and the steps of the published code [Han et al., ICLR 2022] as well, for comparison with its results.

    Every step is an epoch, after which the parameters are validated. The learning rate is multiplied by 0.75 after ``patience`` steps
    without anything better, and training ends when the validation log-likelihood of the last five changes by less than a millionth on
    average. No basket is impossible there. D learns as fast as V and B, and nothing is averaged. In ONDPP, V and B move freely, and the
    kernel is that of (V − QQᵀV, Q), B = QR.
    The other published settings are ``skew_share=0.5, noise=0, learning_rate=0.1, batch_size=200, patience=10, max_epochs=1000``.
    """

    schedule: ClassVar[Schedule] = PUBLISHED
    is_free: ClassVar[bool] = True
    jitter: ClassVar[float] = JITTER


def inner_matrix(form: KernelForm, skew: Tensor, n_sym: int) -> FloatArray:
    """Return W = Diag(I, A)."""
    return np.asarray(block_diag(np.eye(n_sym), form.matrix(skew.double()).cpu().numpy()))


def _orthonormal(B: Tensor) -> Tensor:
    """Return Q of B = QR with R_jj > 0, the Q nearest to B, so that averages over steps make sense.

    Two Cholesky QR passes give full accuracy, since a step leaves B nearly orthonormal, and are much faster than
    Householder QR, which is the fallback.
    """
    Q, failures = B, []
    for _ in range(2):
        L, failed = torch.linalg.cholesky_ex(Q.T @ Q)
        Q = torch.linalg.solve_triangular(L.T, Q, upper=True, left=False)
        failures.append(failed)
    if torch.stack(failures).any():  # one check for both passes: it synchronises the GPU
        Q, R = torch.linalg.qr(B)
        Q = Q * R.diagonal().sign()
    return Q


def _factor_for_size(parameters: Parameters, form: KernelForm, scale: Tensor, n_sym: int, mean_size: float) -> float:
    """Return the t for which sets drawn with tL have this mean size, Σ tλ/(1 + tλ)."""
    X = (parameters.X * scale[:, None]).numpy()
    values = np.linalg.eigvals(inner_matrix(form, parameters.skew, n_sym) @ (X.T @ X))
    values = values[np.abs(values) > 1e-12 * np.abs(values).max()]
    wanted = min(max(mean_size, 1e-3), 0.9 * len(values))  # the mean size is below the rank
    return math.exp(tilt_to_size(values, wanted))
