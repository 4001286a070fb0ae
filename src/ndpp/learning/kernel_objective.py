"""The objective of a single kernel: :class:`~ndpp.learning.likelihood.KernelLoss` with noise.

Gradients are evaluated at X̂ plus fresh Gaussian noise, which is larger for rare items: it suppresses fine structure that would only
memorise the training baskets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.laws.kernel import LowRankKernel
from ndpp.learning.checkpoint import Checkpoint
from ndpp.learning.likelihood import KernelLoss, packed
from ndpp.learning.models import KernelForm, Parameters, TrainingStart, inner_matrix
from ndpp.learning.objective import Loss, Objective, clone


@dataclass(eq=False)
class KernelObjective(Objective[Parameters]):
    """The objective of a kernel of some rank, with its noise; see :class:`ndpp.learning.NDPP` for the settings."""

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
        counts = np.bincount(self.training.indices, minlength=self.training.n_items).astype(float)
        scale = self.init.scale(counts, len(self.training))
        rng, mean_size = np.random.default_rng([self.seed, 1]), float(self.training.sizes.mean())
        self.start = Parameters(*map(self._tensor, self.init.parameters(rng, self.form, scale, self.rank, mean_size)))
        self._scale, (self._n_sym, n_skew) = self._tensor(scale), self.form.columns(self.rank)
        # Every count is raised by a half, as in the scales, so that the penalty of an item that never occurs is finite.
        penalties = np.outer(scale**2 / (counts + 0.5), np.repeat([self.alpha, self.beta], [self._n_sym, n_skew]))
        # Noise regularizes items with fewer occurrences than parameters; others do not need it.
        noise = self.noise / (1 + (counts[:, None] / self.rank) ** 2)
        self.function = KernelLoss(
            self.form,
            self._scale,
            self._n_sym,
            self._tensor(penalties),
            self._tensor(noise) if noise.any() else None,
            self.gamma,
        )
        self.rates, self.n_baskets = (1.0, self.form.skew_rate), len(self.training)
        self.generator = torch.Generator(device=self.start.X.device).manual_seed(self.seed)
        self.deviations: Tensor | None = None

    def _tensor(self, values: FloatArray | Tensor) -> Tensor:
        return torch.as_tensor(values).to(self.device, self.dtype).contiguous()

    def begin_epoch(self, now: Parameters) -> None:
        """Set the standard deviations (n, d) of the noise, proportional to the RMS of V̂ and of B̂."""
        if self.function.noise is None:
            return
        blocks = [now.X[:, : self._n_sym], now.X[:, self._n_sym :]]
        scales = [block.square().mean().sqrt().expand(block.shape[1]) for block in blocks if block.shape[1]]
        self.deviations = (self.function.noise * torch.cat(scales)).float()

    def loss(self, at: Parameters, which: IntArray, step: int) -> Loss[Parameters]:
        """Return the loss with fresh noise, and its gradient along the constraints."""
        loss = self.function.at(at, packed(self.training, which, at.X), noise=self.draw_noise(at.X))
        in_X = self.form.tangent(at, loss.gradient.X, self._scale, self._n_sym)
        return loss._replace(gradient=loss.gradient._replace(X=in_X))

    def draw_noise(self, X: Tensor) -> Tensor | None:
        """Return noise of the standard deviations of this epoch."""
        if self.deviations is None:
            return None
        # Single precision is enough for noise, and about forty times faster to draw.
        noise = torch.empty(X.shape, dtype=torch.float32, device=X.device).normal_(generator=self.generator)
        return noise.mul_(self.deviations)

    def project(self, now: Parameters) -> None:
        """Impose the constraints of the form."""
        self.form.constrain(now, self._scale, self._n_sym)

    def finish(self, mean: Parameters) -> Parameters:
        """Return the mean, corrected for the noise, with the constraints imposed."""
        mean = clone(mean)
        if self.function.noise is not None:
            self.form.correct_for_noise(mean, self.function.noise, self._scale, self._n_sym)
        self.project(mean)
        return mean

    def log_probs(self, parameters: Parameters) -> FloatArray:
        """Return log P of each validation basket."""
        return self.function.log_probs(parameters, self.validation)

    def law(self, parameters: Parameters, labels: tuple[str, ...] | None) -> LowRankKernel:
        """Return the kernel, with the constraints imposed in double precision."""
        exact = clone(Parameters(*(tensor.detach().cpu().double() for tensor in parameters)))
        scale = self._scale.cpu().double()
        self.form.constrain(exact, scale, self._n_sym)
        W = inner_matrix(self.form, exact.skew, self._n_sym)
        return LowRankKernel((exact.X * scale[:, None]).numpy(), W, labels=labels)

    def narrower(self) -> KernelObjective | None:
        """Return an objective of about half the rank, for the baskets that are small enough."""
        rank = max(self.rank // 2, self.form.ranks(self.training.n_items)[0])
        training, validation = (part.select(max_size=rank) for part in (self.training, self.validation))
        if rank >= self.rank or not len(training) or not len(validation):
            return None
        return replace(self, rank=rank, training=training, validation=validation)

    def state(self) -> Checkpoint:
        """Return the state of the generator of noise."""
        return Checkpoint({"generator": self.generator.get_state()}, {})

    def restore(self, saved: Checkpoint) -> None:
        """Restore the generator of noise."""
        self.generator.set_state(saved.tensors["generator"])
