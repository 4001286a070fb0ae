"""The objective of a mixture with shared ties, over items or over families of items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ndpp._types import FloatArray, IntArray
from ndpp.laws.families import FamilyMixture
from ndpp.laws.frame import FeatureMap
from ndpp.laws.mixture import Mixture
from ndpp.laws.patterns import Patterns
from ndpp.learning import tied
from ndpp.learning.batches import evaluated
from ndpp.learning.checkpoint import Checkpoint
from ndpp.learning.families import FamilyData, PackedFamilies
from ndpp.learning.tied import Expansion, MixtureParameters, Sums
from ndpp.learning.trainer import Loss, Objective, chance_of_some

PATTERNS = "families", "states", "odds"
"""What a checkpoint holds of patterns."""
RENEWAL = 4
"""Steps for which an expansion of the ties' normalisers serves."""
BLOCK = {"cpu": 2**18, "cuda": 2**28}
"""Log-odds that are computed at a time: few enough to stay in the cache."""
PROBE, RAISE = 0.97, 1.5
"""If the validation baskets are more probable with u, or X, times ``PROBE``, its penalty is raised by ``RAISE``."""

PRIOR, COMMON = 2.0, 1.0
"""Average sets that are added to those of each state, as in EM; and for how many states the common part of a family's u counts."""
NEVER = -50.0
"""Log-odds of items that cannot come in a state, and of states that are not there."""


def pattern_tensors(patterns: Patterns) -> dict[str, Tensor]:
    """Return patterns as tensors for checkpoints."""
    return {f"patterns.{name}": torch.from_numpy(np.array(getattr(patterns, name))) for name in PATTERNS}


@dataclass(eq=False)
class MixtureObjective(Objective[MixtureParameters]):
    """−mean log P and penalties on u and X, which follow the validation baskets: ``least`` are the lowest, ``penalties`` those in force.

    With ``features``, those of states and of what is tied, u and X are free parts beside the features, and penalties are on these.
    With ``patterns`` components have odds of the states of families, and families are tied; without them every item is a family, in its
    only state. How many states a family has matters little: half an occurrence and the common part of their u count once for all of them.
    """

    batch_size: ClassVar[int] = 300
    max_steps: ClassVar[int] = 100
    evaluations: ClassVar[int] = 2  # a third one, with less of X, reuses the sums of the first

    patterns: Patterns | None
    least: Sequence[float]
    start: MixtureParameters
    training: FamilyData
    validation: FamilyData
    features: tuple[Tensor, Tensor] | None = None
    is_update: bool = False

    def __post_init__(self) -> None:
        self.penalties = list(self.least)
        self.rates, self.n_baskets = (1.0,) * len(self.start), len(self.training.touched)
        if self.features is not None:  # a step moves rows about as far by their features as by themselves
            rates = (1 / max(1.0, float(one.abs().sum(1).mean())) for one in self.features)
            self.rates = (*self.rates[:-3], *rates, self.rates[-1])
        self.once = torch.ones_like(self.start.bias)
        for block in self.training.blocks:
            self.once[block.states] /= block.each
        if self.patterns is not None:
            self.families = torch.tensor(self.patterns.families, device=self.start.bias.device)
            log_odds = torch.as_tensor(self.patterns.log_odds.clip(min=NEVER))
            log_odds = log_odds.to(self.start.bias).contiguous()
            self.usual = log_odds.sigmoid()
            if not self.start.patterns.numel():
                self.start = self.start._replace(patterns=log_odds)
        self.expansion: tuple[int, Expansion] | None = None
        self.total, self.validation_weights = self.training.touched.total_weight, self.validation.touched.weights
        self.nonempty = all(part.touched.sizes.all() for part in (self.training, self.validation))
        self.sums: Sums | None = None

    def whole(self, at: MixtureParameters) -> MixtureParameters:
        """Return the parameters with u and X as they are with their features, and no more features to add."""
        if self.features is None or not at.in_X.numel():
            return at
        factors, X = at.factors + self.features[0] @ at.in_factors, at.X + self.features[1] @ at.in_X
        return at._replace(factors=factors, X=X, in_factors=at.in_factors[:0], in_X=at.in_X[:0])

    def log_odds(self, at: MixtureParameters, which: Tensor) -> Tensor:
        """Return the log-odds (C, m) of m families, their ids ascending."""
        parts = []
        for block in self.training.blocks:
            own = which[(which >= block.first) & (which < block.end)] - block.first
            states = block.state + (own[:, None] * block.each + torch.arange(block.each, device=which.device)).ravel()
            parts.append(at.log_odds(states).reshape(len(at.missions), -1, block.each).logsumexp(2))
        return torch.cat(parts, 1)

    def normalizers(self, at: MixtureParameters, ties: Expansion) -> tuple[Tensor, Tensor]:
        """Return log Z_c near an expansion (C,), in double precision, and their slopes in the log-odds of the states (C, M)."""
        C, M = len(at.missions), len(at.bias)
        log_z, slopes = ties.level.clone(), at.bias.new_empty(C, M)
        for first, end, state, each in self.training.blocks:
            step = max(1, BLOCK[at.bias.device.type] // (C * each))
            for start in range(first, end, step):
                stop = min(end, start + step)
                states = slice(state + (start - first) * each, state + (stop - first) * each)
                own = at.log_odds(states).view(C, -1, each)
                odds = own[..., 0] if each == 1 else own.logsumexp(2)
                p, in_p = torch.sigmoid(odds), ties.in_p[:, start:stop]
                log_z += F.softplus(odds).addcmul_(in_p, p).sum(1).double()
                slope = torch.addcmul(p, p * in_p, 1 - p)
                slopes[:, states] = (
                    slope if each == 1 else (slope[..., None] * (own - odds[..., None]).exp_()).flatten(1)
                )
        return log_z, slopes

    def batch_log_probs(self, at: MixtureParameters, log_z: Tensor, batch: PackedFamilies) -> Tensor:
        """Return log P of each basket of a batch, in its order. Families of several items have no log-odds of their own, but states."""
        if self.nonempty:
            log_z = log_z + chance_of_some(log_z).log()
        if self.patterns is None:
            return tied.log_probs(at, log_z, batch.families)
        n = self.training.n_single
        missing = F.pad(at.bias[:n], (0, len(at.X) - n)), F.pad(at.factors[:n], (0, 0, 0, len(at.X) - n))
        extra, log_totals = at.bias.new_zeros(batch.families.n_baskets, len(at.missions)), self._log_totals(at)
        for block, owner, family, items, pair in batch.sets:
            own, each = block.states, block.each
            states = torch.addmm(at.bias[own, None], at.factors[own], at.missions.T).view(-1, each, len(at.missions))
            log_q = at.bias.new_zeros(len(owner), each).index_add(0, pair, at.patterns[items, :each])
            log_q = log_q - log_totals[block.first + family, :each]
            extra = extra.index_add(0, owner, torch.logsumexp(states[family] + log_q[:, :, None], 1))
        return tied.log_probs(at._replace(bias=missing[0], factors=missing[1]), log_z, batch.families, extra)

    def _log_totals(self, at: MixtureParameters) -> Tensor:
        """Return the log weight of the non-empty sets of each family in its states."""
        totals = at.patterns.new_zeros(len(at.X), at.patterns.shape[1]).index_add(
            0, self.families, F.softplus(at.patterns)
        )
        return totals + (-torch.expm1(-totals)).log()

    def begin_epoch(self, now: MixtureParameters) -> None:
        """Drop the expansion, as after a restart."""
        self.expansion = None

    def loss(self, at: MixtureParameters, which: IntArray, step: int) -> Loss[MixtureParameters]:
        """Return the mean of −log P over a batch, with penalties and half an occurrence of each family, and its gradient."""
        free, at = at, self.whole(at)
        ties = self._expanded(at, step)
        log_z, slopes = self.normalizers(at, ties)
        leaves = MixtureParameters(*(tensor.detach().requires_grad_() for tensor in at))
        log_z.requires_grad_()
        batch = self.training.pack(which, at.X)
        log_probs, weights = self.batch_log_probs(leaves, log_z, batch), batch.families.weights
        likelihood = log_probs.mean() if weights is None else (weights * log_probs).mean()
        *found, in_z = torch.autograd.grad(-likelihood, (*leaves, log_z), materialize_grads=True)
        gradient = MixtureParameters(*(one.contiguous() for one in found))  # some are columns of a table
        in_z = in_z.to(slopes.dtype)
        # What depends on all items, by hand. Half an occurrence in one basket more: without it an item that never occurs would
        # become impossible.
        (of_ties, in_X), n, (first, second) = ties.ties(at.X), self.total, self.penalties
        if weights is not None:  # every basket counts its own log Z
            of_ties, in_X = weights.mean() * of_ties, in_X.mul_(weights.mean())
        # Of an update, penalties are on what changes, and no item is given half an occurrence: the start has been through both.
        u, X = (at.factors - self.start.factors, at.X - self.start.X) if self.is_update else (free.factors, free.X)
        apart = self._apart(u)
        prior = first * (u * apart).sum() + second * X.square().sum()
        gradient.bias.add_(in_z @ slopes)
        if not self.is_update:
            prior -= (self.once * (at.bias / 2 - F.softplus(at.bias))).sum()
            gradient.bias.add_(self.once * (torch.sigmoid(at.bias) - 0.5), alpha=1 / n)
        gradient.factors.addmm_(slopes.T, in_z[:, None] * at.missions)
        gradient.missions.add_(in_z[:, None] * (slopes @ at.factors))
        gradient.levels.add_(in_z * slopes.sum(1))
        gradient.X.add_(in_X)
        if self.features is not None:
            prior += first * free.in_factors.square().sum() + second * free.in_X.square().sum()
            gradient = gradient._replace(
                in_factors=self.features[0].T @ gradient.factors + 2 * first / n * free.in_factors,
                in_X=self.features[1].T @ gradient.X + 2 * second / n * free.in_X,
            )
        if self.patterns is not None:
            prior += PRIOR * (F.softplus(at.patterns) - self.usual * at.patterns).sum()
            gradient.patterns.add_(torch.sigmoid(at.patterns) - self.usual, alpha=PRIOR / n)
        gradient.factors.add_(apart, alpha=2 * first / n)
        gradient.X.add_(X, alpha=2 * second / n)
        return Loss(prior / n + of_ties - likelihood.detach(), gradient)

    def _apart(self, u: Tensor) -> Tensor:
        """Return half the gradient of the penalty on u: Σ_s (1 + κ)/κ ‖u_s − w‖² + (1 + κ) ‖w‖² of each family, at the w where it is least.

        What all states of a family have in common counts once, however many there are; one state by itself has ‖u_s‖².
        """
        parts = []
        for block in self.training.blocks:
            own = u[block.states].view(-1, block.each, u.shape[1])
            common = own.sum(1, keepdim=True) / (block.each + COMMON)
            parts.append(((1 + COMMON) / COMMON * (own - common)).flatten(0, 1))
        return torch.cat(parts)

    def _expanded(self, at: MixtureParameters, step: int) -> Expansion:
        """Return the expansion of the ties' normalisers, renewed every few steps."""
        log_odds = partial(self.log_odds, at)
        if self.expansion is None:
            self.expansion = step, Expansion(at, log_odds, self.nonempty)
        elif step >= self.expansion[0] + RENEWAL:
            self.expansion[1].renew(at, log_odds)
            self.expansion = step, self.expansion[1]
        return self.expansion[1]

    def log_probs(self, parameters: MixtureParameters) -> FloatArray:
        """Return log P of each validation basket."""
        parameters = self.whole(parameters)
        with torch.no_grad():
            self.sums = Sums.of(parameters, partial(self.log_odds, parameters))
        return self._log_probs(parameters, self.sums.log_normalizers())

    def _log_probs(self, at: MixtureParameters, log_z: Tensor) -> FloatArray:
        judged = self.validation
        with torch.no_grad():
            return evaluated(
                judged.touched.sizes, lambda which: self.batch_log_probs(at, log_z, judged.pack(which, at.X))
            )

    def adapt(self, mean: MixtureParameters, value: float) -> None:
        """Raise the penalties of u and of X that should be smaller, and lower the others; ``value`` is what :meth:`log_probs` came to."""
        assert self.sums is not None
        mean = self.whole(mean)
        tied_less = self._log_probs(mean._replace(X=PROBE * mean.X), self.sums.log_normalizers(PROBE))
        varied_less = self.log_probs(mean._replace(factors=PROBE * mean.factors))
        for i, smaller in enumerate((varied_less, tied_less)):
            better = np.average(smaller, weights=self.validation_weights) > value
            self.penalties[i] = max(self.least[i], self.penalties[i] * (RAISE if better else 1 / RAISE))

    def law(self, parameters: MixtureParameters, labels: tuple[str, ...] | None) -> Mixture:
        """Return the mixture. With families, what is learned are the odds of all non-empty sets of each state."""
        own, (odds, X, W, weights) = self.patterns, self.whole(parameters).arrays()
        if own is not None:
            log_odds = parameters.patterns.detach().cpu().double().numpy()
            own = own.with_odds(np.where(own.odds > 0, np.exp(log_odds), 0.0))
            odds = odds / np.expm1(own.log_totals)
            return FamilyMixture(odds, own.odds, own.families, own.states, X, W, weights, labels=labels)
        return Mixture.tied(odds, X, W, weights, labels=labels)

    def feature_map(self, parameters: MixtureParameters, scale: float) -> FeatureMap:
        """Return what the features of an item, whose unit here is ``scale``, make of its ties and log-odds."""
        exact = MixtureParameters(*(tensor.detach().cpu().double() for tensor in parameters))
        odds = torch.cat([exact.in_factors @ exact.missions.T / scale, exact.levels[None]])
        return FeatureMap((exact.in_X / scale).numpy(), odds.numpy())

    def renewed(self, n_items: int) -> float:
        """Return about what share of the items a renewal of the expansion is about, after the first one of an epoch."""
        covering = min(n_items // 4, max(tied.MOST_HEAD, n_items // tied.HEAD_SHARE))
        head = min(n_items, max(tied.LEAST_HEAD, covering))
        return (head + (n_items - head) / tied.TURNS) / n_items

    def state(self) -> Checkpoint:
        """Return the penalties in force, and the patterns, so that nobody has to find them again."""
        tensors = {} if self.patterns is None else pattern_tensors(self.patterns)
        return Checkpoint(tensors, {"penalties": list(self.penalties)})

    def restore(self, saved: Checkpoint) -> None:
        """Restore the penalties."""
        self.penalties = list(saved.record["penalties"])
