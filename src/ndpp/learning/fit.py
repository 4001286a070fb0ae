"""The training loop: Adam on mini-batches, reshuffled every epoch, with early stopping on validation baskets.

Gradients are evaluated at X̂ plus fresh Gaussian noise, which is larger for rare items: it suppresses fine structure that
would only memorise the training baskets. A running mean of the parameters is validated and kept. When it has not
improved for ``patience`` epochs, the learning rate drops; after the last drop, training ends with the best parameters.
In the second half of ``max_epochs`` the rate decays by the same overall factor, so that a short run also ends in small
steps.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam  # the class Adam would import the compiler of torch, which takes two seconds

from ndpp._progress import ProgressBar, progress_bar
from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.errors import PrecisionError, TrainingInterruptedWarning
from ndpp.learning import checkpoint
from ndpp.learning.batches import Batch, shuffled
from ndpp.learning.loss import Loss, TrainingSettings, log_probs, loss_and_gradient, pack_for
from ndpp.learning.progress import epochs_run, remaining

BATCH_SIZE, MIN_STEPS, MAX_STEPS = 100, 50, 200
"""Default number of baskets per step, and bounds on the steps per epoch. An epoch repeats passes over the baskets until it
has MIN_STEPS. Batches grow where a pass would take more than MAX_STEPS: in large catalogues most items are so rare that
Adam, which normalises each gradient, would follow every single occurrence."""
MAX_HALVINGS = 30
"""How often a step to a loss that is not finite is halved before training gives up."""
RATE_DROPS, RATE_FACTOR = 3, 0.3
"""How often the learning rate drops before training ends, and by what factor."""
TOLERANCE = 1e-4
"""Smallest relative increase of the validation log-likelihood that counts as an improvement."""
MEAN_DECAY = 0.995
"""Decay of the running mean of the parameters, per step."""
PARAMETERS = ("now", "before", "mean", "best")
"""Attributes of :class:`TrainingRun` that hold parameters."""


class TrainingOutcome(NamedTuple):
    """The best parameters, a record per epoch, and why training ended: "converged", "max_epochs" or "interrupted"."""

    parameters: Any
    history: list[dict[str, float]]
    ended: str


def train(
    run: Any,
    *,
    made_with: Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[str], None] = False,
) -> TrainingOutcome:
    """Train a :class:`TrainingRun`, or a contest of several, until the validation log-likelihood no longer rises.

    Every epoch writes a checkpoint to ``path`` that includes ``made_with``. Ctrl-C ends training with the best
    parameters so far.
    """
    ended, max_epochs = run.ended, run.settings.max_epochs
    total, done = (run.n_steps * epochs_run(run, epochs) for epochs in (max_epochs, len(run.history)))
    try:
        with progress_bar(total, "epoch 1", done=done, show=progress, left="at most") as bar:
            while ended is None:
                if len(run.history) >= max_epochs:
                    ended = "max_epochs"
                    break
                now = run.epoch(bar)
                ended = run.ended
                if path is not None:
                    checkpoint.write(path, run.tensors(), {**run.record(), "made_with": dict(made_with)})
                told = f"epoch {now['epoch']}, loss {now['loss']:.3f}, validation {now['validation']:.3f}"
                bar.tell(told, told + remaining(run, ended))
    except KeyboardInterrupt:
        ended = "interrupted"
        if not run.history:
            run.validate()
        warnings.warn(
            f"training was interrupted in epoch {len(run.history) + 1}; the best kernel so far is kept "
            f"(validation log-likelihood {run.best_value:.4g})",
            TrainingInterruptedWarning,
            stacklevel=4,
        )
    return TrainingOutcome(run.best, run.history, ended)


class _Moments(NamedTuple):
    """The state of Adam for one tensor."""

    step: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor

    @classmethod
    def of(cls, tensor: Tensor) -> _Moments:
        """Return the state before the first step."""
        return cls(tensor.new_zeros((), dtype=torch.float32), torch.zeros_like(tensor), torch.zeros_like(tensor))

    def move(self, tensor: Tensor, gradient: Tensor, rate: float) -> None:
        """Take one step, in place."""
        # Gradients of popular and rare items differ by orders of magnitude, so ε must be negligible for all of them.
        adam(
            [tensor], [gradient], [self.exp_avg], [self.exp_avg_sq], [], [self.step],
            fused=True, amsgrad=False, maximize=False, lr=rate, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-14,
        )  # fmt: skip


class TrainingRun:
    """The state that changes during training.

    Parameters are named tuples of tensors. This class trains a kernel; a subclass for another model overrides the public
    methods from :meth:`default_batch_size` to :meth:`log_probs`.
    """

    state: ClassVar[tuple[str, ...]] = ("best_value", "rate", "bad", "drops", "step", "history")
    """Attributes that a checkpoint stores as JSON."""
    evaluations: ClassVar[int] = 1
    """How often an epoch evaluates the validation baskets."""
    pilot: ClassVar[int] = 0
    """Epochs for which several runs are trained: none."""

    def __init__(
        self, problem: Any, settings: TrainingSettings, start: Any, baskets: Baskets, validation: Baskets, seed: int
    ) -> None:
        self.problem, self.settings, self.baskets, self.validation = problem, settings, baskets, validation
        self.seed, self.device = seed, start[0].device
        self.now, self.before, self.mean, self.best = (start.clone() for _ in PARAMETERS)
        self.adam = {part: _Moments.of(tensor) for part, tensor in self._optimized()}
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator(device=self.device).manual_seed(seed)
        self.best_value, self.rate, self.bad, self.drops, self.step = -np.inf, 1.0, 0, 0, 0
        self.history: list[dict[str, float]] = []
        self.batch_size = settings.batch_size or self.default_batch_size()
        steps_per_pass = max(1, round(len(baskets) / self.batch_size))
        self.passes = -(-MIN_STEPS // steps_per_pass)
        self.n_steps = self.passes * steps_per_pass

    @property
    def runs(self) -> list[TrainingRun]:
        """The runs that are trained: this one."""
        return [self]

    @property
    def lead(self) -> TrainingRun:
        """The run whose parameters are kept: this one."""
        return self

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        late = max(0.0, 2 * self.step / (self.settings.max_epochs * self.n_steps) - 1)
        return float(self.settings.learning_rate * self.rate * RATE_FACTOR ** (RATE_DROPS * late))

    @property
    def ended(self) -> str | None:
        """``"converged"`` after the last drop of the learning rate, None before."""
        return "converged" if self.drops > RATE_DROPS else None

    def epoch(self, bar: ProgressBar) -> dict[str, float]:
        """Run one epoch, validate, and adapt the learning rate."""
        began, losses = time.perf_counter(), []
        scales = self._noise_scales()
        for _ in range(self.passes):
            for which in shuffled(self.rng, len(self.baskets), self.batch_size):
                losses.append(self._step(self.pack(which), scales))
                bar.advance()
        needed = self.best_value + TOLERANCE * abs(self.best_value) if self.history else -np.inf
        value = self.validate()
        self.bad = 0 if value > needed else self.bad + 1
        self.history.append(
            {
                "epoch": len(self.history) + 1,
                "step": self.step,
                "loss": float(torch.stack(losses).mean()),
                "validation": value,
                "learning_rate": self.learning_rate,
                "seconds": time.perf_counter() - began,
            }
        )
        if self.bad >= self.settings.patience:
            self.rate, self.drops, self.bad = self.rate * RATE_FACTOR, self.drops + 1, 0
        return self.history[-1]

    def validate(self) -> float:
        """Return the mean validation log-likelihood of the running mean; keep the mean if it is the best so far."""
        mean = self.finished()
        value = float(self.log_probs(mean, self.validation).mean())
        if value > self.best_value:
            self.best, self.best_value = mean, value
        return value

    def _step(self, batch: Batch, scales: Tensor) -> Tensor:
        """Take one step and return the previous loss, as a tensor: converting it would synchronise the GPU."""
        loss = self._finite_loss(batch, scales)
        for now, before in zip(self.now, self.before):
            before.copy_(now)
        for (part, tensor), gradient, rate in zip(
            self._optimized(), self.descent(loss.gradient), self.relative_rates()
        ):
            self.adam[part].move(tensor, gradient, self.learning_rate * rate)
        self.constrain()
        self.step += 1
        weight = max(1 - MEAN_DECAY, 9 / (self.step + 9))  # larger at first, to forget the start sooner
        for mean, now in zip(self.mean, self.now):
            mean.lerp_(now, weight)
        return loss.value

    def _finite_loss(self, batch: Batch, scales: Tensor) -> Loss:
        """Return the loss; while it is not finite, undo half of the last step and try again."""
        for halvings in range(MAX_HALVINGS + 1):
            loss = self.loss(batch, scales)
            if loss.is_finite():
                return loss
            if self.step == 0 or halvings == MAX_HALVINGS:
                break
            self.rate /= 2
            for now, before in zip(self.now, self.before):
                now.copy_(torch.where(torch.isfinite(now), now, before)).lerp_(before, 0.5)
            warnings.warn(
                f"step {self.step} led to a loss or gradient that is not finite; the step and the learning rate were "
                f"halved (rate {self.learning_rate:.3g})",
                RuntimeWarning,
                stacklevel=7,
            )
        raise PrecisionError(
            f"the loss is not finite at step {self.step}, however small the step. Use a smaller learning_rate, "
            "dtype='float64', or another init."
        )

    def default_batch_size(self) -> int:
        """Return the number of baskets per step."""
        return max(BATCH_SIZE, -(-len(self.baskets) // MAX_STEPS))

    def pack(self, which: IntArray) -> Batch:
        """Return the training baskets at the indices ``which`` as a batch."""
        return pack_for(self.baskets, which, self.device)

    def loss(self, batch: Batch, scales: Tensor) -> Loss:
        """Return the objective on a batch and its gradient, with noise of these standard deviations."""
        return loss_and_gradient(self.problem, self.settings, self.now, batch, noise=self._noise(scales))

    def relative_rates(self) -> tuple[float, ...]:
        """Return the learning rate of each tensor, relative to that of the run."""
        return 1.0, self.problem.family.skew_rate

    def descent(self, gradient: Any) -> Any:
        """Return the gradient along the constraints."""
        likelihood = self.problem.likelihood
        in_X = self.problem.family.tangent(self.now, gradient.X, likelihood.scale, likelihood.n_sym)
        return gradient._replace(X=in_X)

    def constrain(self) -> None:
        """Impose the constraints on the parameters."""
        likelihood = self.problem.likelihood
        self.problem.family.constrain(self.now, likelihood.scale, likelihood.n_sym)

    def finished(self) -> Any:
        """Return the running mean in the form that is kept."""
        mean, family, likelihood = self.mean.clone(), self.problem.family, self.problem.likelihood
        if self.problem.noise is not None:
            family.correct_for_noise(mean, self.problem.noise, likelihood.scale, likelihood.n_sym)
        family.constrain(mean, likelihood.scale, likelihood.n_sym)
        return mean

    def log_probs(self, parameters: Any, baskets: Baskets) -> FloatArray:
        """Return log P of each basket."""
        return log_probs(self.problem.likelihood, parameters.X, self.problem.family.matrix(parameters.skew), baskets)

    def _noise_scales(self) -> Tensor:
        """Return the standard deviations (n, d) of the noise, proportional to the RMS of V̂ and of B̂."""
        if self.problem.noise is None:
            return torch.zeros(1, device=self.device)
        h: int = self.problem.likelihood.n_sym
        X: Tensor = self.now.X
        blocks = [X[:, :h], X[:, h:]]
        scales = [block.square().mean().sqrt().expand(block.shape[1]) for block in blocks if block.shape[1]]
        noise: Tensor = self.problem.noise
        return (noise * torch.cat(scales)).float()

    def _noise(self, scales: Tensor) -> Tensor | None:
        if self.problem.noise is None:
            return None
        X = self.now.X
        # Single precision is enough for noise, and about forty times faster to draw.
        noise = torch.empty(X.shape, dtype=torch.float32, device=X.device).normal_(generator=self.generator)
        return noise.mul_(scales)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint."""
        out = {"generator": self.generator.get_state()}
        for name in PARAMETERS:
            out |= {f"{name}.{part}": tensor for part, tensor in getattr(self, name)._asdict().items()}
        for part, moments in self.adam.items():
            out |= {f"adam.{part}.{name}": tensor for name, tensor in moments._asdict().items()}
        return out

    def record(self) -> dict[str, Any]:
        """Return the rest of a checkpoint, as JSON can hold it."""
        state = {name: getattr(self, name) for name in self.state}
        return {"rng": self.rng.bit_generator.state, "seed": self.seed} | state

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Restore the state from a checkpoint."""
        tensors, record = saved
        self.generator.set_state(tensors["generator"])
        self.rng.bit_generator.state = record["rng"]
        for name in self.state:
            setattr(self, name, record[name])
        for name in PARAMETERS:
            for part, tensor in getattr(self, name)._asdict().items():
                tensor.copy_(tensors[f"{name}.{part}"])
        for part, moments in self.adam.items():
            for name, tensor in moments._asdict().items():
                tensor.copy_(tensors[f"adam.{part}.{name}"])

    def _optimized(self) -> list[tuple[str, Tensor]]:
        """Return the tensors that Adam updates, which must not be empty."""
        return [(name, tensor) for name, tensor in self.now._asdict().items() if tensor.numel()]
