"""The objective of a mixture with shared ties, over items or over families of items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ndpp._types import FloatArray, IntArray
from ndpp.laws.families import FamilyMixture
from ndpp.laws.mixture import Mixture
from ndpp.laws.patterns import Patterns
from ndpp.laws.tied import TiedMixture
from ndpp.learning import tied
from ndpp.learning.batches import evaluated, total_weight, weights_of
from ndpp.learning.checkpoint import Checkpoint
from ndpp.learning.families import FamilyBatch, FamilyData
from ndpp.learning.tied import Components, Expansion
from ndpp.learning.trainer import Loss, Objective

RENEWAL = 4
"""Steps for which an expansion of the ties' normalisers serves."""
PROBE, RAISE = 0.97, 1.5
"""If the validation baskets are more probable with u, or X, times ``PROBE``, its penalty is raised by ``RAISE``."""


@dataclass(eq=False)
class MixtureObjective(Objective[Components]):
    """−mean log P and penalties on u and X, which follow the validation baskets: ``least`` are the lowest, ``penalties`` those in force.

    With ``patterns`` components have odds of the states of families, and families are tied; without them every item is a family, in its
    only state.
    """

    batch_size: ClassVar[int] = 300
    max_steps: ClassVar[int] = 100
    evaluations: ClassVar[int] = 3

    patterns: Patterns | None
    least: Sequence[float]
    start: Components
    training: FamilyData
    validation: FamilyData

    def __post_init__(self) -> None:
        self.penalties = list(self.least)
        self.rates, self.n_baskets = (1.0,) * len(self.start), len(self.training.touched)
        self.rank = self.start.X.shape[1]
        self.expansion: tuple[int, Expansion] | None = None
        self.total, self.validation_weights = total_weight(self.training.touched), weights_of(self.validation.touched)

    def log_odds(self, at: Components) -> Tensor:
        """Return the log-odds of the families, shape (C, F)."""
        states, n_single = at.log_odds(), self.training.n_single
        if self.patterns is None:
            return states
        several = states[:, n_single:].reshape(len(states), -1, self.training.n_states)
        return torch.cat([states[:, :n_single], several.logsumexp(2)], 1)

    def batch_log_probs(self, at: Components, log_z: Tensor, batch: FamilyBatch) -> Tensor:
        """Return log P of each basket of a batch, in its order. Families of several items have no log-odds of their own, but states."""
        if self.patterns is None:
            return tied.log_probs(at, log_z, batch.families)
        n, n_components = self.training.n_single, len(at.missions)
        missing = F.pad(at.bias[:n], (0, len(at.X) - n)), F.pad(at.factors[:n], (0, 0, 0, len(at.X) - n))
        states = torch.addmm(at.bias[n:, None], at.factors[n:], at.missions.T)
        states = states.reshape(-1, self.training.n_states, n_components)
        own = torch.logsumexp(states[batch.family] + batch.log_q[:, :, None], 1)  # (pairs, C)
        extra = own.new_zeros(batch.families.n_baskets, n_components).index_add(0, batch.owner, own)
        return tied.log_probs(at._replace(bias=missing[0], factors=missing[1]), log_z, batch.families, extra)

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
        log_probs, weights = self.batch_log_probs(at, log_z, batch), batch.families.weights
        if weights is None:
            likelihood = log_probs.mean() - ties.ties(at.X)
        else:
            likelihood = (weights * log_probs).mean() - weights.mean() * ties.ties(at.X)
        prior = self.penalties[0] * at.factors.square().sum() + self.penalties[1] * at.X.square().sum()
        # Half an occurrence in one basket more: without it an item that never occurs would become impossible.
        prior = prior - (at.bias / 2 - F.softplus(at.bias)).sum()
        value = prior / self.total - likelihood
        return Loss(value.detach(), Components(*torch.autograd.grad(value, at)))

    def log_probs(self, parameters: Components) -> FloatArray:
        """Return log P of each validation basket."""
        judged, X = self.validation, parameters.X
        with torch.no_grad():
            log_z = tied.log_normalizers(self.log_odds(parameters), X)
            return evaluated(
                judged.touched.sizes, lambda which: self.batch_log_probs(parameters, log_z, judged.pack(which, X))
            )

    def adapt(self, mean: Components, value: float) -> None:
        """Raise the penalties of u and of X that should be smaller, and lower the others."""
        for i, part in enumerate(("factors", "X")):
            smaller = mean._replace(**{part: PROBE * getattr(mean, part)})
            better = self.validated(smaller) > value
            self.penalties[i] = max(self.least[i], self.penalties[i] * (RAISE if better else 1 / RAISE))

    def law(self, parameters: Components, labels: tuple[str, ...] | None) -> Mixture:
        """Return the mixture. With families, what is learned are the odds of all non-empty sets of each state."""
        own, (odds, X, W, weights) = self.patterns, parameters.arrays()
        if own is not None:
            odds = odds / np.expm1(own.log_totals)
            return FamilyMixture(odds, own.odds, own.families, own.states, X, W, weights, labels=labels)
        mixture = Mixture.tied(odds, X, W, weights, labels=labels)
        assert isinstance(mixture, TiedMixture)  # for the type checker: `tied` is declared to return a Mixture
        return mixture.normalized()

    def narrower(self) -> MixtureObjective | None:
        """Return the same objective with half the columns of X."""
        rank = 2 * (self.rank // 4)
        return replace(self, start=self.start._replace(X=self.start.X[:, :rank])) if rank else None

    def state(self) -> Checkpoint:
        """Return the penalties in force."""
        return Checkpoint({}, {"penalties": list(self.penalties)})

    def restore(self, saved: Checkpoint) -> None:
        """Restore the penalties."""
        self.penalties = list(saved.record["penalties"])
