"""Training of one objective: Adam on mini-batches, reshuffled every epoch, with early stopping on validation baskets.

An :class:`Objective` is a loss with its gradient, the constraints on the parameters, and the distribution that comes of them: that of
a kernel (:mod:`~ndpp.learning.kernel_objective`), or of a mixture over items or over families (:mod:`~ndpp.learning.mixture_objective`).

A running mean of the parameters is validated and kept. When it has not improved for ``patience`` epochs, the learning rate drops; after the
last drop, training ends with the best parameters. In the second half of ``max_epochs`` the rate decays by the same overall factor, so that
a short run also ends in small steps; with a limit of time the rate decays in the second half of that.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam  # the class Adam would import the compiler of torch, which takes two seconds

from ndpp._types import FloatArray, IntArray
from ndpp.errors import PrecisionError
from ndpp.laws.law import Law
from ndpp.learning.batches import shuffled
from ndpp.learning.checkpoint import Checkpoint
from ndpp.learning.run import Deadline

P = TypeVar("P", bound=NamedTuple)
"""Parameters, or their gradient: a named tuple of tensors."""
MIN_STEPS = 50
"""Least number of steps of an epoch, which repeats passes over the baskets until it has this many."""
PILOT = 3
"""Epochs for which all candidates are trained."""
MAX_HALVINGS = 30
"""How often a step to a loss that is not finite is halved before training gives up."""
RATE_DROPS, RATE_FACTOR = 3, 0.3
"""How often the learning rate drops before training ends, and by what factor."""
TOLERANCE = 1e-4
"""Smallest relative increase of the validation log-likelihood that counts as an improvement."""
WINDOW = 5
"""Number of validation log-likelihoods whose changes may end training."""
MEAN_DECAY = 0.995
"""Decay of the running mean of the parameters, per step."""
ADAM: dict[str, Any] = {"fused": True, "amsgrad": False, "maximize": False, "weight_decay": 0.0}
ADAM |= {"beta1": 0.9, "beta2": 0.999, "eps": 1e-14}
"""Gradients of popular and rare items differ by orders of magnitude, so ε must be negligible for all of them."""
LEAST_LOG = 1e-9
"""Smaller log Z are rounding errors: practically all sets are empty."""
STATE = ("best_value", "rate", "bad", "drops", "step", "history")
"""Attributes of :class:`Trainer` that a checkpoint stores as JSON."""


def chance_of_some(log_z: Tensor) -> Tensor:
    """Return P(S ≠ ∅) = 1 − 1/Z from log Z, the weight of all sets if that of the empty one is 1; positive, whatever rounding does."""
    return -torch.expm1(-log_z.clamp(min=LEAST_LOG))


def clone(parameters: P) -> P:
    """Return a copy that shares no memory."""
    return parameters._make(tensor.clone() for tensor in parameters)


class Loss(NamedTuple, Generic[P]):
    """The loss of a batch, and its gradient in the parameters."""

    value: Tensor
    gradient: P

    def is_finite(self) -> bool:
        """Return whether the value and all entries of the gradient are finite."""
        return bool(torch.isfinite(self.value + sum(tensor.sum() for tensor in self.gradient)))


class Objective(ABC, Generic[P]):
    """What a :class:`Trainer` minimises: a mean over ``n_baskets`` training baskets, from ``start`` on.

    Beyond the parameters it may hold what changes in training, which :meth:`state` returns for checkpoints.
    """

    batch_size: ClassVar[int]
    """Baskets per step, where none are asked for, and ``max_steps`` allows it."""
    max_steps: ClassVar[int]
    """Most steps of a pass over the baskets; batches grow where it would take more."""
    evaluations: ClassVar[int] = 1
    """How often an epoch evaluates the validation baskets."""

    start: P
    rates: tuple[float, ...]
    """Learning rate of each tensor, relative to that of training."""
    n_baskets: int
    validation_weights: FloatArray | None = None
    """How often each validation basket counts, if not once."""
    nonempty: bool = False
    """Whether sets have at least one item, as all baskets do: log P(S) − log P(S ≠ ∅) is what is maximised."""
    pull: Callable[[IntArray], P] | None = None
    """What is subtracted from the gradient of some baskets, if anything: see :mod:`~ndpp.learning.updating`."""

    @abstractmethod
    def loss(self, at: P, which: IntArray, step: int) -> Loss[P]:
        """Return the loss of the training baskets ``which`` after ``step`` steps, and its gradient along the constraints."""

    @abstractmethod
    def log_probs(self, parameters: P) -> FloatArray:
        """Return log P of each validation basket."""

    def validated(self, parameters: P) -> float:
        """Return the mean of :meth:`log_probs`, weighted."""
        return float(np.average(self.log_probs(parameters), weights=self.validation_weights))

    @abstractmethod
    def law(self, parameters: P, labels: tuple[str, ...] | None) -> Law:
        """Return the distribution, in double precision."""

    @abstractmethod
    def state(self) -> Checkpoint:
        """Return what changes in training, beside the parameters."""

    @abstractmethod
    def restore(self, saved: Checkpoint) -> None:
        """Restore what :meth:`state` returned."""

    def finish(self, mean: P) -> P:
        """Return a running mean of the parameters in the form that is kept."""
        return clone(mean)

    def renewed(self, n_items: int) -> float:
        """Return the share of the items for which the expensive step of a catalogue of ``n_items`` is taken; all by default."""
        return 1.0

    # What an objective may do between steps and epochs; by default nothing.

    def project(self, now: P) -> None:
        """Impose the constraints, in place, after a step."""

    def begin_epoch(self, now: P) -> None:
        """Prepare for the steps of an epoch."""

    def adapt(self, mean: P, value: float) -> None:
        """Adapt to the validation log-likelihood after an epoch."""


class Counter(Protocol):
    """What is told about every step."""

    def advance(self) -> None:
        """Count one step."""


class Schedule(NamedTuple):
    """What validation changes: the factor of a drop of the learning rate, how many there may be, and the end of training.

    Values count as better from ``tolerance`` above the best one on, relative to it. Training also ends when the last ``WINDOW`` values
    differ by less than ``change``, relative to them and on average. With ``every_step`` an epoch is one step, all parameters have the same
    learning rate, and they themselves are judged instead of a running mean.
    """

    factor: float = RATE_FACTOR
    drops: float = RATE_DROPS
    tolerance: float = TOLERANCE
    change: float = 0.0
    every_step: bool = False


USUAL = Schedule()
PUBLISHED = Schedule(factor=0.75, drops=float("inf"), tolerance=-1e-4, change=1e-6, every_step=True)
"""That of the code for [Han et al., ICLR 2022], whose settings are ``patience=10``, ``max_epochs=1000``.

Its tolerance is below zero: the ReduceLROnPlateau of torch multiplies the best value by 1 + 10⁻⁴, and log-likelihoods are negative."""


@dataclass(frozen=True)
class TrainingSettings:
    """Options of training; see :class:`ndpp.learning.NDPP`."""

    learning_rate: float
    batch_size: int | None
    max_epochs: int
    patience: int
    schedule: Schedule = USUAL

    @property
    def pilot(self) -> int:
        """Epochs for which all candidates are trained, where there are several."""
        return min(PILOT * (MIN_STEPS if self.schedule.every_step else 1), self.max_epochs)


class Trainer(Generic[P]):
    """The state that changes while an objective is trained: the parameters now, one step ago, on average, and at their best."""

    def __init__(
        self, objective: Objective[P], settings: TrainingSettings, seed: int, clock: Deadline | None = None
    ) -> None:
        self.objective, self.settings, self.seed = objective, settings, seed
        self.clock, self.slowest = clock or Deadline(), 0.0
        self.now, self.before, self.mean, self.best = (clone(objective.start) for _ in range(4))
        self.adam: dict[str, dict[str, Tensor]] = {}
        for part, tensor in self._optimized():
            step = tensor.new_zeros((), dtype=torch.float32)
            moments = {"exp_avg": torch.zeros_like(tensor), "exp_avg_sq": torch.zeros_like(tensor)}
            self.adam[part] = {"step": step, **moments}
        self.rng = np.random.default_rng(seed)
        self.best_value, self.rate, self.bad, self.drops, self.step = -np.inf, 1.0, 0, 0, 0
        self.history: list[dict[str, float]] = []
        n_baskets = objective.n_baskets
        self.batch_size = settings.batch_size or max(objective.batch_size, -(-n_baskets // objective.max_steps))
        steps_per_pass = max(1, round(n_baskets / self.batch_size))
        self.passes = -(-MIN_STEPS // steps_per_pass)
        self.n_steps = 1 if settings.schedule.every_step else self.passes * steps_per_pass

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        late = max(0.0, 2 * max(self.step / (self.settings.max_epochs * self.n_steps), self.clock.passed) - 1)
        late *= not self.settings.schedule.every_step
        return float(self.settings.learning_rate * self.rate * RATE_FACTOR ** (RATE_DROPS * late))

    @property
    def has_converged(self) -> bool:
        """Whether the learning rate has dropped for the last time, or the validation log-likelihood hardly changes any more."""
        last, schedule = np.array([record["validation"] for record in self.history[-WINDOW:]]), self.settings.schedule
        with np.errstate(invalid="ignore"):  # values may be −inf
            still = len(last) == WINDOW and np.mean(np.abs(np.diff(last) / last[:-1])) < schedule.change
        return bool(still or self.drops > schedule.drops)

    @property
    def is_out_of_time(self) -> bool:
        """Whether another step, if it takes as long as the slowest so far, would end too late."""
        return self.clock.left() < self.slowest

    def epoch(self, bar: Counter) -> None:
        """Train for one epoch, or the part of it for which there is time, validate, and adapt the learning rate and the objective."""
        began, losses = time.perf_counter(), []
        self.objective.begin_epoch(self.now)
        for which in self.batches():
            if self.is_out_of_time:
                break
            step_began = time.perf_counter()
            losses.append(self.take_step(which))
            self.slowest = max(self.slowest, time.perf_counter() - step_began)
            bar.advance()
        if not losses:
            return
        needed = self.best_value + self.settings.schedule.tolerance * abs(self.best_value) if self.history else -np.inf
        value = self.validate()
        self.bad = 0 if value > needed else self.bad + 1
        record = {
            "epoch": len(self.history) + 1,
            "step": self.step,
            "loss": float(torch.stack(losses).mean()),
            "validation": value,
            "learning_rate": self.learning_rate,
            "seconds": time.perf_counter() - began,
        }
        self.history.append(record)
        if self.bad >= self.settings.patience:
            self.rate, self.drops, self.bad = self.rate * self.settings.schedule.factor, self.drops + 1, 0
        if not self.is_out_of_time:
            self.objective.adapt(self.mean, value)
        record["seconds"] = time.perf_counter() - began

    def batches(self) -> Iterator[IntArray]:
        """Yield the batches of one epoch."""
        if self.settings.schedule.every_step:
            n, size = self.objective.n_baskets, min(self.batch_size, self.objective.n_baskets)
            yield self.rng.choice(n, size, replace=False, shuffle=False)
            return
        for _ in range(self.passes):
            yield from shuffled(self.rng, self.objective.n_baskets, self.batch_size)

    def validate(self) -> float:
        """Return the mean validation log-likelihood of the running mean; keep the mean if it is the best so far."""
        mean = self.objective.finish(self.mean)
        value = self.objective.validated(mean)
        if value > self.best_value:
            self.best, self.best_value = mean, value
        return value

    def take_step(self, which: IntArray) -> Tensor:
        """Take one step and return the previous loss, as a tensor: converting it would synchronise the GPU."""
        loss = self._finite_loss(which)
        for now, before in zip(self.now, self.before):
            before.copy_(now)
        gradients = loss.gradient
        if self.objective.pull is not None:
            gradients = gradients._make(map(torch.sub, gradients, self.objective.pull(which)))
        rates = dict(zip(gradients._fields, zip(gradients, self.objective.rates)))
        for part, tensor in self._optimized():
            gradient, rate = rates[part]
            step, mean, square = ([state] for state in self.adam[part].values())
            rate = self.learning_rate * (1.0 if self.settings.schedule.every_step else rate)
            adam([tensor], [gradient], mean, square, [], step, lr=rate, **ADAM)
        self.objective.project(self.now)
        self.step += 1
        weight = max(1 - MEAN_DECAY, 9 / (self.step + 9))  # larger at first, to forget the start sooner
        weight = 1.0 if self.settings.schedule.every_step else weight
        for mean, now in zip(self.mean, self.now):
            mean.lerp_(now, weight)
        return loss.value

    def _finite_loss(self, which: IntArray) -> Loss[P]:
        """Return the loss; while it is not finite, undo half of the last step and try again."""
        for halvings in range(MAX_HALVINGS + 1):
            loss = self.objective.loss(self.now, which, self.step)
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
                stacklevel=7,  # where fit was called
            )
        raise PrecisionError(
            f"the loss is not finite at step {self.step}, however small the step. Use a smaller learning_rate, "
            "dtype='float64', or another init."
        )

    def state(self) -> Checkpoint:
        """Return all that changes in training, the objective's own state included."""
        own = self.objective.state()
        record = {"rng": self.rng.bit_generator.state, "seed": self.seed} | {
            name: getattr(self, name) for name in STATE
        }
        return Checkpoint(self._tensors() | own.tensors, record | own.record)

    def restore(self, saved: Checkpoint) -> None:
        """Restore what :meth:`state` returned."""
        if missing := self.state().tensors.keys() - saved.tensors.keys():
            raise saved.unusable(f"it has no {min(missing)}")
        self.objective.restore(saved)
        self.rng.bit_generator.state = saved.record["rng"]
        for name in STATE:
            setattr(self, name, saved.record[name])
        for name, tensor in self._tensors().items():
            tensor.copy_(saved.tensors[name])

    def _tensors(self) -> dict[str, Tensor]:
        groups: dict[str, dict[str, Tensor]] = {f"adam.{part}": moments for part, moments in self.adam.items()}
        groups |= {name: getattr(self, name)._asdict() for name in ("now", "before", "mean", "best")}
        return {f"{group}.{name}": tensor for group, own in groups.items() for name, tensor in own.items()}

    def _optimized(self) -> list[tuple[str, Tensor]]:
        """Return the tensors that Adam updates, which must not be empty."""
        return [(name, tensor) for name, tensor in self.now._asdict().items() if tensor.numel()]
