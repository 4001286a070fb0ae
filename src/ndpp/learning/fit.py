"""The training loop: Adam on mini-batches, reshuffled every epoch, judged on validation baskets.

Gradients are taken at X̂ plus Gaussian noise, drawn anew in each step, and larger for rare items: fine structure that
only memorises the training baskets does not survive it. What is judged and kept is a running mean of the parameters.
When it has not improved for ``patience`` epochs the learning rate drops; after the last drop training ends with the
best parameters seen. In the second half of ``max_epochs`` the rate falls by as much in any case: a short training, too,
ends in small steps.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam  # the class Adam would import the compiler of torch, which takes two seconds

from ndpp._progress import Bar, progress_bar
from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.errors import PrecisionError, TrainingInterruptedWarning
from ndpp.learning import checkpoint
from ndpp.learning.batches import Batch, shuffled
from ndpp.learning.loss import Loss, Settings, log_probs, loss_and_gradient, pack_for

BATCH_SIZE, MIN_STEPS, MAX_STEPS = 100, 50, 200
"""Baskets per step where nothing else is asked for, and more where a pass over the baskets would take more than
``MAX_STEPS``: in large catalogues most items are so rare that Adam, which makes each gradient one size, would follow
every single occurrence. An epoch is one pass over the baskets, or as many passes as make ``MIN_STEPS``."""
MAX_HALVINGS = 30
"""How often a step that leads to no finite loss is halved before training gives up."""
DROPS, DROP = 3, 0.3
"""How often the learning rate drops before training ends, and by what factor."""
TOLERANCE = 1e-4
"""Relative rise of the validation log-likelihood that counts as one."""
AVERAGE = 0.995
"""Decay of the running mean of the parameters, per step."""


class Outcome(NamedTuple):
    """The best parameters, a record per epoch, and why training ended: "converged", "max_epochs" or "interrupted"."""

    parameters: Any
    history: list[dict[str, float]]
    ended: str


def train(
    run: Run,
    *,
    made_with: Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    resume: checkpoint.Checkpoint | None = None,
    progress: bool = False,
) -> Outcome:
    """Train until the validation log-likelihood no longer rises, from a checkpoint if there is one to resume.

    ``made_with`` is kept in every checkpoint written to ``path``. Ctrl-C ends training with the best parameters so far.
    """
    if resume is not None:
        run.restore(resume)
    ended, settings = run.ended, run.settings
    try:
        total, done = settings.max_epochs * run.n_steps, len(run.history) * run.n_steps
        with progress_bar(total, "epoch 1", done=done, show=progress, left="at most") as bar:
            while ended is None:
                if len(run.history) >= settings.max_epochs:
                    ended = "max_epochs"
                    break
                now = run.epoch(bar)
                bar.tell(f"epoch {now['epoch']}, loss {now['loss']:.3f}, validation {now['validation']:.3f}")
                ended = run.ended
                if path is not None:
                    checkpoint.write(path, run.tensors(), {**run.record(), "made_with": dict(made_with)})
    except KeyboardInterrupt:
        ended = "interrupted"
        if not run.history:
            run.judge()
        warnings.warn(
            f"training was interrupted in epoch {len(run.history) + 1}; the best kernel so far is kept "
            f"(validation log-likelihood {run.best_value:.4g})",
            TrainingInterruptedWarning,
            stacklevel=4,
        )
    return Outcome(run.best, run.history, ended)


class _Moments(NamedTuple):
    """What Adam knows of the gradients so far."""

    step: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor

    @classmethod
    def of(cls, tensor: Tensor) -> _Moments:
        """Return those before the first step."""
        return cls(tensor.new_zeros((), dtype=torch.float32), torch.zeros_like(tensor), torch.zeros_like(tensor))

    def move(self, tensor: Tensor, gradient: Tensor, rate: float) -> None:
        """Take one step, in place."""
        # The gradients span many orders of magnitude between popular and rare items: ε must not blunt the small ones.
        constants = {
            "beta1": 0.9,
            "beta2": 0.999,
            "weight_decay": 0.0,
            "eps": 1e-14,
            "amsgrad": False,
            "maximize": False,
        }
        moments: tuple[list[Tensor], ...] = [self.exp_avg], [self.exp_avg_sq], [], [self.step]
        adam([tensor], [gradient], *moments, fused=True, lr=rate, **constants)


class Run:
    """Everything that changes while training goes on.

    ``now``, ``before``, ``mean`` and ``best`` are named tuples of tensors, the first of which tells the device. Other models than kernels
    override the methods under "what is trained".
    """

    kept: ClassVar[tuple[str, ...]] = ("seed", "best_value", "rate", "bad", "drops", "step", "history")
    """What a checkpoint holds beside tensors and the state of ``rng``."""

    def __init__(
        self, problem: Any, settings: Settings, start: Any, baskets: Baskets, validation: Baskets, seed: int
    ) -> None:
        self.problem, self.settings, self.baskets, self.validation = problem, settings, baskets, validation
        self.now, self.before, self.mean, self.best = (start.clone() for _ in range(4))
        self.adam = {part: _Moments.of(tensor) for part, tensor in self._optimized()}
        self.rng = np.random.default_rng(seed)
        self.device, self.seed = start[0].device, seed
        self.generator = torch.Generator(device=self.device).manual_seed(seed)
        self.best_value, self.rate, self.bad, self.drops, self.step = -np.inf, 1.0, 0, 0, 0
        self.history: list[dict[str, float]] = []
        self.batch_size = settings.batch_size or self.default_batch_size()
        a_pass = max(1, round(len(baskets) / self.batch_size))
        self.passes = -(-MIN_STEPS // a_pass)
        self.n_steps = self.passes * a_pass

    @property
    def learning_rate(self) -> float:
        """The rate of the next step."""
        late = max(0.0, 2 * self.step / (self.settings.max_epochs * self.n_steps) - 1)
        return float(self.settings.learning_rate * self.rate * DROP ** (DROPS * late))

    @property
    def ended(self) -> str | None:
        return "converged" if self.drops > DROPS else None

    def epoch(self, bar: Bar) -> dict[str, float]:
        """Make one epoch's steps, judge the result, and adapt the learning rate."""
        began, losses = time.perf_counter(), []
        sizes = self._noise_sizes()
        for _ in range(self.passes):
            for which in shuffled(self.rng, len(self.baskets), self.batch_size):
                losses.append(self._step(self.pack(which), sizes))
                bar.advance()
        needed = self.best_value + TOLERANCE * abs(self.best_value) if self.history else -np.inf
        value = self.judge()
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
            self.rate, self.drops, self.bad = self.rate * DROP, self.drops + 1, 0
        return self.history[-1]

    def judge(self) -> float:
        """Return the mean validation log-likelihood of the running mean, which is kept if it is the best so far."""
        mean = self.finished()
        value = float(self.log_probs(mean, self.validation).mean())
        if value > self.best_value:
            self.best, self.best_value = mean, value
        return value

    def _step(self, batch: Batch, sizes: Tensor) -> Tensor:
        """Take one step, and return the loss before it: as a tensor, since a GPU would be waited for to make it a number."""
        loss = self._finite_loss(batch, sizes)
        for now, before in zip(self.now, self.before):
            before.copy_(now)
        for (part, tensor), gradient, rate in zip(self._optimized(), self.descent(loss.gradient), self.rates()):
            self.adam[part].move(tensor, gradient, self.learning_rate * rate)
        self.constrain()
        self.step += 1
        weight = max(1 - AVERAGE, 9 / (self.step + 9))  # a plain mean at first, so that the start is soon forgotten
        for mean, now in zip(self.mean, self.now):
            mean.lerp_(now, weight)
        return loss.value

    def _finite_loss(self, batch: Batch, sizes: Tensor) -> Loss:
        """Return the loss; where it is not finite, take half of the last step back, and try again."""
        for halvings in range(MAX_HALVINGS + 1):
            loss = self.loss(batch, sizes)
            if loss.is_finite():
                return loss
            if self.step == 0 or halvings == MAX_HALVINGS:
                break
            self.rate /= 2
            for now, before in zip(self.now, self.before):
                now.copy_(torch.where(torch.isfinite(now), now, before)).lerp_(before, 0.5)
            warnings.warn(
                f"step {self.step} led to a loss or gradient that is not finite; the step was halved, and the learning "
                f"rate is now {self.learning_rate:.3g}",
                RuntimeWarning,
                stacklevel=7,
            )
        raise PrecisionError(
            f"the loss is not finite at step {self.step}, however small the step. Choose a smaller learning_rate, "
            "dtype='float64', or another init."
        )

    # -- what is trained: here, a kernel -------------------------------------------------------------------------------

    def default_batch_size(self) -> int:
        """Return the number of baskets per step where none is asked for."""
        return max(BATCH_SIZE, -(-len(self.baskets) // MAX_STEPS))

    def pack(self, which: IntArray) -> Batch:
        """Return the training baskets numbered ``which`` as a batch."""
        return pack_for(self.baskets, which, self.device)

    def loss(self, batch: Batch, sizes: Tensor) -> Loss:
        """Return the objective on a batch and its gradient, with noise of these sizes."""
        return loss_and_gradient(self.problem, self.now, batch, noise=self._noise(sizes))

    def rates(self) -> tuple[float, ...]:
        """Return the learning rate of each tensor, relative to that of the first."""
        return 1.0, self.problem.family.skew_rate

    def descent(self, gradient: Any) -> Any:
        """Return the gradient along the constraints."""
        likelihood = self.problem.likelihood
        in_X = self.problem.family.tangent(self.now, gradient.X, likelihood.scale, likelihood.n_sym)
        return gradient._replace(X=in_X)

    def constrain(self) -> None:
        """Bring the parameters to where their constraints hold."""
        likelihood = self.problem.likelihood
        self.problem.family.constrain(self.now, likelihood.scale, likelihood.n_sym)

    def finished(self) -> Any:
        """Return the running mean as it would be kept."""
        mean, family, likelihood = self.mean.clone(), self.problem.family, self.problem.likelihood
        if self.problem.noise is not None:
            family.calm(mean, self.problem.noise, likelihood.scale, likelihood.n_sym)
        family.constrain(mean, likelihood.scale, likelihood.n_sym)
        return mean

    def log_probs(self, parameters: Any, baskets: Baskets) -> FloatArray:
        """Return log P of each basket."""
        return log_probs(self.problem.likelihood, parameters.X, self.problem.family.matrix(parameters.skew), baskets)

    def _noise_sizes(self) -> Tensor:
        """Return the size (n, d) of the noise: that of an item, relative to all symmetric or all skew columns."""
        h, X = self.problem.likelihood.n_sym, self.now.X
        if self.problem.noise is None:
            return X.new_zeros(1)
        blocks = [X[:, :h], X[:, h:]]
        sizes = [block.square().mean().sqrt().expand(block.shape[1]) for block in blocks if block.shape[1]]
        return (self.problem.noise * torch.cat(sizes)).float()

    def _noise(self, sizes: Tensor) -> Tensor | None:
        if self.problem.noise is None:
            return None
        X = self.now.X
        # Single precision is drawn some forty times faster, and is enough for noise.
        noise = torch.empty(X.shape, dtype=torch.float32, device=X.device).normal_(generator=self.generator)
        return noise.mul_(sizes)

    # -- on disk -------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor that the next step depends on."""
        out = {"generator": self.generator.get_state()}
        for name in ("now", "before", "mean", "best"):
            out |= {f"{name}.{part}": tensor for part, tensor in getattr(self, name)._asdict().items()}
        for part, moments in self.adam.items():
            out |= {f"adam.{part}.{name}": tensor for name, tensor in moments._asdict().items()}
        return out

    def record(self) -> dict[str, Any]:
        """Return everything else that the next step depends on."""
        return {"rng": self.rng.bit_generator.state} | {name: getattr(self, name) for name in self.kept}

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Go to where a checkpoint was written."""
        tensors, record = saved
        self.generator.set_state(tensors["generator"])
        self.rng.bit_generator.state = record["rng"]
        for name in self.kept:
            setattr(self, name, record[name])
        for name in ("now", "before", "mean", "best"):
            for part, tensor in getattr(self, name)._asdict().items():
                tensor.copy_(tensors[f"{name}.{part}"])
        for part, moments in self.adam.items():
            for name, tensor in moments._asdict().items():
                tensor.copy_(tensors[f"adam.{part}.{name}"])

    def _optimized(self) -> list[tuple[str, Tensor]]:
        """Return what Adam works on; it knows no empty tensors."""
        return [(name, tensor) for name, tensor in self.now._asdict().items() if tensor.numel()]
