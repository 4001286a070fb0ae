"""The objectives of mixtures with shared ties: over items, and over families of items."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.laws.families import FamilyMixture
from ndpp.laws.mixture import Mixture
from ndpp.laws.patterns import Patterns
from ndpp.laws.tied import TiedMixture
from ndpp.learning import tied
from ndpp.learning.batches import Batch, BatchSource, evaluated, pack
from ndpp.learning.checkpoint import Checkpoint
from ndpp.learning.families import FamilyBatch, FamilyData
from ndpp.learning.objective import LESS, Loss, Narrower, Objective
from ndpp.learning.tied import Components, Expansion

RENEWAL = 4
"""Steps for which an expansion of the ties' normalisers serves."""
PROBE, RAISE = 0.97, 1.5
"""If the validation baskets are more probable with u, or X, times ``PROBE``, its penalty is raised by ``RAISE``."""

B = TypeVar("B")


class MixtureObjective(Objective[Components], Generic[B]):
    """−mean log P and penalties on u and X, which follow the validation baskets: ``least`` are the lowest, ``penalties`` those in force."""

    batch_size: ClassVar[int] = 300
    max_steps: ClassVar[int] = 100
    evaluations: ClassVar[int] = 3

    def __init__(
        self, least: Sequence[float], start: Components, training: BatchSource[B], validation: BatchSource[B]
    ) -> None:
        self.least, self.penalties, self.start = list(least), list(least), start
        self.training, self.validation = training, validation
        self.rates, self.n_baskets = (1.0,) * len(start), len(training.sizes)
        self.expansion: tuple[int, Expansion] | None = None

    @abstractmethod
    def log_odds(self, at: Components) -> Tensor:
        """Return the log-odds of what is tied, shape (C, rows of X)."""

    @abstractmethod
    def batch_log_probs(self, at: Components, log_z: Tensor, batch: B) -> Tensor:
        """Return log P of each basket of a batch, in its order."""

    @abstractmethod
    def beginning_at(self, start: Components) -> MixtureObjective[B]:
        """Return the same objective with other parameters to begin with."""

    def begin_epoch(self, now: Components) -> None:
        """Drop the expansion, as after a restart."""
        self.expansion = None

    def loss(self, at: Components, which: IntArray, step: int) -> Loss[Components]:
        """Return the mean of −log P over a batch, with penalties and half an occurrence of each item, and its gradient."""
        if self.expansion is None or step >= self.expansion[0] + RENEWAL:
            self.expansion = step, Expansion.at(at, self.log_odds(at))
        ties = self.expansion[1]
        at = Components(*(tensor.detach().requires_grad_() for tensor in at))
        log_z = tied.log_normalizers(self.log_odds(at), at.X, ties)
        batch = self.training.pack(which, at.X)
        likelihood = self.batch_log_probs(at, log_z, batch).mean() - ties.ties(at.X)
        prior = self.penalties[0] * at.factors.square().sum() + self.penalties[1] * at.X.square().sum()
        # Half an occurrence in one basket more: without it an item that never occurs would become impossible.
        prior = prior - (at.bias / 2 - F.softplus(at.bias)).sum()
        value = prior / self.n_baskets - likelihood
        return Loss(value.detach(), Components(*torch.autograd.grad(value, at)))

    def log_probs(self, parameters: Components) -> FloatArray:
        """Return log P of each validation basket."""
        judged, X = self.validation, parameters.X
        with torch.no_grad():
            log_z = tied.log_normalizers(self.log_odds(parameters), X)
            return evaluated(judged.sizes, lambda which: self.batch_log_probs(parameters, log_z, judged.pack(which, X)))

    def adapt(self, mean: Components, value: float) -> None:
        """Raise the penalties of u and of X that should be smaller, and lower the others."""
        for i, part in enumerate(("factors", "X")):
            smaller = mean._replace(**{part: PROBE * getattr(mean, part)})
            better = self.log_probs(smaller).mean() > value
            self.penalties[i] = max(self.least[i], self.penalties[i] * (RAISE if better else 1 / RAISE))

    def narrower(self) -> Narrower[Components] | None:
        """Return the same objective with half the columns of X."""
        rank = 2 * (self.start.X.shape[1] // 4)
        if not rank:
            return None
        return Narrower(rank, self.beginning_at(self.start._replace(X=self.start.X[:, :rank])), LESS)

    def state(self) -> Checkpoint:
        """Return the penalties in force."""
        return Checkpoint({}, {"penalties": list(self.penalties)})

    def restore(self, saved: Checkpoint) -> None:
        """Restore the penalties."""
        self.penalties = list(saved.record["penalties"])


class ItemData(NamedTuple):
    """Baskets as they are."""

    baskets: Baskets

    @property
    def sizes(self) -> IntArray:
        """The sizes of the baskets."""
        return self.baskets.sizes

    def pack(self, which: IntArray, like: Tensor) -> Batch:
        """Return some of the baskets as a batch on the device of ``like``."""
        return pack(self.baskets, which, device=like.device, multiple=tied.MULTIPLE[like.device.type])


class ItemObjective(MixtureObjective[Batch]):
    """The objective of a mixture over items: components have odds of items, which are tied."""

    def log_odds(self, at: Components) -> Tensor:
        """Return the log-odds of the items, shape (C, n)."""
        return at.log_odds()

    def batch_log_probs(self, at: Components, log_z: Tensor, batch: Batch) -> Tensor:
        """Return log P of each basket of a batch, in its order."""
        return tied.log_probs(at, log_z, batch)

    def law(self, parameters: Components, labels: tuple[str, ...] | None) -> Mixture:
        """Return the mixture with its normalizers."""
        mixture = Mixture.tied(*parameters.arrays(), labels=labels)
        assert isinstance(mixture, TiedMixture)
        return mixture.prepared()

    def beginning_at(self, start: Components) -> ItemObjective:
        """Return the same objective with other parameters to begin with."""
        return ItemObjective(self.least, start, self.training, self.validation)


class FamilyObjective(MixtureObjective[FamilyBatch]):
    """The objective of a mixture over families: components have odds of the states of families, which are tied."""

    training: FamilyData
    validation: FamilyData

    def __init__(
        self,
        patterns: Patterns,
        least: Sequence[float],
        start: Components,
        training: FamilyData,
        validation: FamilyData,
    ) -> None:
        super().__init__(least, start, training, validation)
        self.patterns, self.n_single, self.n_states = patterns, training.n_single, patterns.odds.shape[1]

    def log_odds(self, at: Components) -> Tensor:
        """Return the log-odds of the families, shape (C, F)."""
        states = at.log_odds()
        several = states[:, self.n_single :].reshape(len(states), -1, self.n_states)
        return torch.cat([states[:, : self.n_single], several.logsumexp(2)], 1)

    def batch_log_probs(self, at: Components, log_z: Tensor, batch: FamilyBatch) -> Tensor:
        """Return log P of each basket of a batch, in its order. Families of several items have no log-odds of their own, but states."""
        n = self.n_single
        missing = F.pad(at.bias[:n], (0, len(at.X) - n)), F.pad(at.factors[:n], (0, 0, 0, len(at.X) - n))
        states = torch.addmm(at.bias[n:, None], at.factors[n:], at.missions.T).reshape(
            -1, self.n_states, len(at.missions)
        )
        own = torch.logsumexp(states[batch.family] + batch.log_q[:, :, None], 1)  # (pairs, C)
        extra = own.new_zeros(batch.families.n_baskets, len(at.missions)).index_add(0, batch.owner, own)
        return tied.log_probs(at._replace(bias=missing[0], factors=missing[1]), log_z, batch.families, extra)

    def law(self, parameters: Components, labels: tuple[str, ...] | None) -> Mixture:
        """Return the mixture. What is learned are the odds of all non-empty sets of each state."""
        own, (odds, X, W, weights) = self.patterns, parameters.arrays()
        odds = odds / np.expm1(own.log_totals)
        return FamilyMixture(odds, own.odds, own.families, own.states, X, W, weights, labels=labels)

    def beginning_at(self, start: Components) -> FamilyObjective:
        """Return the same objective with other parameters to begin with."""
        return FamilyObjective(self.patterns, self.least, start, self.training, self.validation)
