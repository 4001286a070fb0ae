"""What is trained: a loss with its gradient, the constraints on the parameters, and the distribution that comes of them.

:class:`~ndpp.learning.trainer.Trainer` minimises any of them: the kernels of :mod:`~ndpp.learning.kernel_objective`, and the mixtures over
items and over families of :mod:`~ndpp.learning.mixture_objective`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from ndpp._types import FloatArray, IntArray
from ndpp.laws.law import Law
from ndpp.learning.checkpoint import Checkpoint

P = TypeVar("P", bound=NamedTuple)
"""Parameters, or their gradient: a named tuple of tensors."""


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
    """What a :class:`~ndpp.learning.trainer.Trainer` minimises: a mean over ``n_baskets`` training baskets, from ``start`` on.

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
    rank: int

    @abstractmethod
    def loss(self, at: P, which: IntArray, step: int) -> Loss[P]:
        """Return the loss of the training baskets ``which`` after ``step`` steps, and its gradient along the constraints."""

    @abstractmethod
    def log_probs(self, parameters: P) -> FloatArray:
        """Return log P of each validation basket."""

    @abstractmethod
    def law(self, parameters: P, labels: tuple[str, ...] | None) -> Law:
        """Return the distribution, in double precision."""

    @abstractmethod
    def narrower(self) -> Objective[P] | None:
        """Return an objective of about half the rank, perhaps of fewer baskets; None if the rank cannot be smaller."""

    @abstractmethod
    def state(self) -> Checkpoint:
        """Return what changes in training, beside the parameters."""

    @abstractmethod
    def restore(self, saved: Checkpoint) -> None:
        """Restore what :meth:`state` returned."""

    def finish(self, mean: P) -> P:
        """Return a running mean of the parameters in the form that is kept."""
        return clone(mean)

    # What an objective may do between steps and epochs; by default nothing.

    def project(self, now: P) -> None:
        """Impose the constraints, in place, after a step."""

    def begin_epoch(self, now: P) -> None:
        """Prepare for the steps of an epoch."""

    def adapt(self, mean: P, value: float) -> None:
        """Adapt to the validation log-likelihood after an epoch."""
