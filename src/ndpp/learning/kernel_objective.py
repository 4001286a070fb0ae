"""The objective of a single kernel L = X W Xᵀ, W = Diag(I, A), A skew, and its gradient, written out.

    −mean log det(L_Y) + log det(L + I) + α Σ ‖v_i‖²/μ_i + β Σ ‖b_i‖²/μ_i + γ Σ log(1 + 2σ_j/(σ_j² + 1))

with μ_i the count of item i [Han et al., ICLR 2022, appendix]. Rows are scaled, x_i = s_i x̂_i, with larger s_i for popular items, so that
all x̂_i have similar norms. All functions here take X̂. For a basket Y and C = Σ s_i² x̂_i x̂_iᵀ

    log P(Y) = Σ_{i∈Y} 2 log s_i + log det(X̂_Y W X̂_Yᵀ) − log det(I + W C).

With G = X̂_Y W X̂_Yᵀ, S = G⁻¹ + G⁻ᵀ and T = G⁻¹ − G⁻ᵀ the gradient of log det G is S V̂_Y in the symmetric columns,
T B̂_Y A in the skew ones, and −½ B̂_Yᵀ T B̂_Y in A. A step costs O(n d²) for C and its gradient, two matrix products,
and O(Σ k² d + k³) for the baskets. [Gartrell et al., ICLR 2021; Han et al., ICLR 2022]

Training adds fresh Gaussian noise to X̂ in every step, which is larger for rare items: it suppresses fine structure that would only memorise
the training baskets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.laws.kernel import LowRankKernel
from ndpp.learning.batches import PackedBaskets, evaluated, pack
from ndpp.learning.checkpoint import Checkpoint
from ndpp.learning.determinants import log_det_inverse, minors
from ndpp.learning.models import JITTER, KernelForm, Parameters, TrainingStart, inner_matrix
from ndpp.learning.trainer import Loss, Objective, chance_of_some, clone
from ndpp.metrics.models import occurrences


@dataclass(eq=False)
class KernelObjective(Objective[Parameters]):
    """The objective of a kernel of some rank, with its noise; see :class:`ndpp.learning.NDPP` for the settings.

    Rows have the scales ``scale`` (n,), and ``n_sym`` symmetric columns come first in X̂. ``penalties`` (n, d) are α s_i²/μ_i and
    β s_i²/μ_i, ``noise_scales`` (n, 1) the relative scales r_i of the noise, None for no noise.
    """

    batch_size: ClassVar[int] = 100
    max_steps: ClassVar[int] = 200
    """In large catalogues most items are so rare that Adam, which normalises each gradient, would follow every single occurrence in small
    batches."""

    form: KernelForm
    init: TrainingStart
    alpha: float
    beta: float
    gamma: float
    noise: float
    device: str
    dtype: torch.dtype
    rank: int
    training: Baskets
    validation: Baskets
    seed: int

    def __post_init__(self) -> None:
        counts, total = occurrences(self.training, self.training.weights), self.training.total_weight
        scale = self.init.scale(counts, total)
        rng, mean_size = np.random.default_rng([self.seed, 1]), float(counts.sum() / total)
        self.start = Parameters(*map(self._tensor, self.init.parameters(rng, self.form, scale, self.rank, mean_size)))
        self.scale, (self.n_sym, n_skew) = self._tensor(scale), self.form.columns(self.rank)
        # Every count is raised by a half, as in the scales, so that the penalty of an item that never occurs is finite.
        penalties = np.outer(scale**2 / (counts + 0.5), np.repeat([self.alpha, self.beta], [self.n_sym, n_skew]))
        # Noise regularizes items with fewer occurrences than parameters; others do not need it.
        noise = self.noise / (1 + (counts[:, None] / self.rank) ** 2)
        self.penalties = self._tensor(penalties)
        self.noise_scales = self._tensor(noise) if noise.any() else None
        self.rates, self.n_baskets = (1.0, self.form.skew_rate), len(self.training)
        self.generator = torch.Generator(device=self.start.X.device).manual_seed(self.seed)
        self.deviations: Tensor | None = None
        self.validation_weights = self.validation.weights
        self.nonempty = bool(self.training.sizes.all() and self.validation.sizes.all())

    def _tensor(self, values: FloatArray | Tensor) -> Tensor:
        return torch.as_tensor(values).to(self.device, self.dtype).contiguous()

    def at(self, parameters: Parameters, batch: PackedBaskets, *, noise: Tensor | None = None) -> Loss[Parameters]:
        """Return the loss and its gradient at x̂_i or, with ``noise`` of relative scale r_i, at (x̂_i + noise)/√(1 + r_i²).

        The noise may be in single precision.
        """
        X, A = parameters.X, self.form.matrix(parameters.skew)
        shrink = X.new_ones(1) if noise is None or self.noise_scales is None else (1 + self.noise_scales**2).rsqrt()
        at = X if noise is None else (X + noise).mul_(shrink)
        above, above_X, above_A = self.log_normalizer_gradient(at, A)
        scales, weights = self._log_scales(batch), batch.entry_weights()
        if batch.weights is not None and weights is not None:  # every basket counts its own log Z
            share = batch.weights.mean()
            above, above_X, above_A, scales = share * above, above_X.mul_(share), share * above_A, weights * scales
        below, below_X, below_A = self.log_dets_gradient(at, A, batch)
        decay = self.penalties * X
        in_X = above_X.sub_(below_X, alpha=1 / batch.n_baskets).mul_(shrink).add_(decay, alpha=2.0)
        penalty, in_penalty = self.form.penalty(parameters.skew)
        in_skew = self.form.pull_back(parameters.skew, above_A - below_A / batch.n_baskets) + self.gamma * in_penalty
        value = above - (below + scales.sum()) / batch.n_baskets
        value = value + torch.dot(decay.view(-1), X.reshape(-1)) + self.gamma * penalty
        return Loss(value, Parameters(in_X.contiguous(), in_skew.contiguous()))

    def log_probs(self, parameters: Parameters) -> FloatArray:
        """Return log P of each validation basket, −inf for impossible ones."""
        X, A = parameters.X, self.form.matrix(parameters.skew)
        log_normalizer: Tensor = torch.linalg.slogdet(self._inner(self._gram(X)[1], A))[1]
        if self.nonempty:
            log_normalizer = log_normalizer + chance_of_some(log_normalizer).log()

        def log_probs(which: IntArray) -> Tensor:
            return self._log_dets(X, A, pack(self.validation, which, device=X.device)) - log_normalizer

        return evaluated(self.validation.sizes, log_probs)

    def _log_dets(self, X: Tensor, A: Tensor, batch: PackedBaskets) -> Tensor:
        """Return log det L_Y of each basket, in the order of the batch; with the jitter of the start, if it validates with one."""
        shifts = self._log_scales(batch)
        n_empty = batch.n_baskets - sum(m for _, m, _ in batch.blocks)
        out = [torch.zeros(n_empty, dtype=torch.float64, device=X.device)]
        for here, G in self._minors(_rows(X, batch), A, batch, self.init.jitter):
            sign, log_abs = torch.linalg.slogdet(G)
            # A determinant of zero may come out as a small number of either sign.
            out.append(torch.where(sign > 0, log_abs, -torch.inf) + shifts[here].view(G.shape[:2]).sum(1))
        return torch.cat(out)

    def log_normalizer_gradient(self, X: Tensor, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log Z = log det(I + W C), or log(Z − 1), and its gradients in X̂ and A, as a skew matrix: Σ_ij A'_ij dA_ij for skew dA."""
        h = self.n_sym
        scaled, C = self._gram(X)
        log_z, inverse, _ = log_det_inverse(self._inner(C, A))
        K = torch.cat([inverse[:, :h], inverse[:, h:] @ A.double()], 1)  # (I + WC)⁻¹ W
        in_A = (C.double() @ inverse)[h:, h:].T
        in_X = (scaled @ (K + K.T).to(X.dtype)).mul_(self.scale[:, None])
        in_A = ((in_A - in_A.T) / 2).to(X.dtype)
        if not self.nonempty:
            return log_z, in_X, in_A
        chance = chance_of_some(log_z)  # and log(Z − 1) has the derivative 1 / chance in log Z
        return log_z + chance.log(), in_X.div_(chance), in_A.div_(chance)

    def log_dets_gradient(
        self, X: Tensor, A: Tensor, batch: PackedBaskets, *, jitter: float = JITTER
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return Σ_Y log det(G + jitter I) over the batch, weighted, and its gradients, without the constant row scales."""
        h, rows, weights = self.n_sym, _rows(X, batch), batch.entry_weights()
        total = torch.zeros((), dtype=torch.float64, device=X.device)
        SV, TB = torch.empty_like(rows[:, :h]), torch.empty_like(rows[:, h:])
        for here, G in self._minors(rows, A, batch, jitter):
            m, k, _ = G.shape
            logs, inverse, _ = log_det_inverse(G)
            if weights is not None:
                own = weights[here].view(m, k)[:, 0]
                logs, inverse = own * logs, own[:, None, None] * inverse
            total, inverse = total + logs.sum(), inverse.to(X.dtype)
            Y = rows[here].view(m, k, -1)
            SV[here] = ((inverse + inverse.mT) @ Y[..., :h]).view(m * k, -1)
            TB[here] = ((inverse - inverse.mT) @ Y[..., h:]).view(m * k, -1)
        in_X = X.new_zeros(len(X) + batch.padded, X.shape[1]).index_add_(0, batch.items, torch.cat([SV, TB @ A], 1))
        return total, in_X[: len(X)], -(rows[:, h:].T @ TB) / 2

    def _log_scales(self, batch: PackedBaskets) -> Tensor:
        """Return 2 log s_i of each entry of the batch in double precision, and zero for padding."""
        return 2 * torch.log(F.pad(self.scale, (0, 1), value=1.0)[batch.items].double())

    def _minors(self, rows: Tensor, A: Tensor, batch: PackedBaskets, jitter: float) -> Iterator[tuple[slice, Tensor]]:
        """Yield the place of the baskets of each size in the batch, and their G + jitter I in double precision; padding is an identity."""
        left = torch.cat([rows[:, : self.n_sym], rows[:, self.n_sym :] @ A], 1)
        return minors(left, rows, batch, len(self.scale), jitter)

    def _gram(self, X: Tensor) -> tuple[Tensor, Tensor]:
        scaled = X * self.scale[:, None]
        return scaled, scaled.T @ scaled

    def _inner(self, C: Tensor, A: Tensor) -> Tensor:
        """Return I + W C in double precision."""
        C = C.double()
        M = torch.cat([C[: self.n_sym], A.double() @ C[self.n_sym :]])
        M.diagonal().add_(1.0)
        return M

    def begin_epoch(self, now: Parameters) -> None:
        """Set the standard deviations (n, d) of the noise, proportional to the RMS of V̂ and of B̂."""
        if self.noise_scales is None:
            return
        blocks = [now.X[:, : self.n_sym], now.X[:, self.n_sym :]]
        scales = [block.square().mean().sqrt().expand(block.shape[1]) for block in blocks if block.shape[1]]
        self.deviations = (self.noise_scales * torch.cat(scales)).float()

    def loss(self, at: Parameters, which: IntArray, step: int) -> Loss[Parameters]:
        """Return the loss with fresh noise, and its gradient along the constraints."""
        batch, free = pack(self.training, which, device=at.X.device), at.X
        if self.init.is_free:
            at = clone(at)
            self.form.constrain(at, self.scale, self.n_sym)
        loss = self.at(at, batch, noise=self.draw_noise(at.X))
        if self.init.is_free:
            in_X = self.form.free_gradient(free, loss.gradient.X, self.n_sym)
        else:
            in_X = self.form.tangent(at, loss.gradient.X, self.scale, self.n_sym)
        return loss._replace(gradient=loss.gradient._replace(X=in_X))

    def draw_noise(self, X: Tensor) -> Tensor | None:
        """Return noise of the standard deviations of this epoch."""
        if self.deviations is None:
            return None
        # Single precision is enough for noise, and about forty times faster to draw.
        noise = torch.empty(X.shape, dtype=torch.float32, device=X.device).normal_(generator=self.generator)
        return noise.mul_(self.deviations)

    def project(self, now: Parameters) -> None:
        """Impose the constraints of the form, unless the loss does."""
        if not self.init.is_free:
            self.form.constrain(now, self.scale, self.n_sym)

    def finish(self, mean: Parameters) -> Parameters:
        """Return the mean, corrected for the noise, with the constraints imposed."""
        mean = clone(mean)
        if self.noise_scales is not None:
            self.form.correct_for_noise(mean, self.noise_scales, self.scale, self.n_sym)
        self.form.constrain(mean, self.scale, self.n_sym)
        return mean

    def law(self, parameters: Parameters, labels: tuple[str, ...] | None) -> LowRankKernel:
        """Return the kernel, with the constraints imposed in double precision."""
        exact = clone(Parameters(*(tensor.detach().cpu().double() for tensor in parameters)))
        scale = self.scale.cpu().double()
        self.form.constrain(exact, scale, self.n_sym)
        W = inner_matrix(self.form, exact.skew, self.n_sym)
        return LowRankKernel((exact.X * scale[:, None]).numpy(), W, labels=labels)

    def state(self) -> Checkpoint:
        """Return the state of the generator of noise."""
        return Checkpoint({"generator": self.generator.get_state()}, {})

    def restore(self, saved: Checkpoint) -> None:
        """Restore the generator of noise."""
        self.generator.set_state(saved.tensors["generator"])


def _rows(X: Tensor, batch: PackedBaskets) -> Tensor:
    """Return the rows of X̂ for each entry of the batch, of zeros for padding."""
    return (F.pad(X, (0, 0, 0, 1)) if batch.padded else X)[batch.items]
