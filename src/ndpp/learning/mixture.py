"""A mixture of missions with shared ties, as an estimator."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ndpp._progress import ProgressBar
from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.families import FamilyMixture
from ndpp.laws.mixture import Mixture
from ndpp.laws.patterns import Patterns
from ndpp.laws.tied import TiedMixture
from ndpp.learning import tied
from ndpp.learning.base import BasketModel, estimator, number
from ndpp.learning.batches import pack
from ndpp.learning.classes import Shape, start
from ndpp.learning.contest import Contest
from ndpp.learning.families import FamilyBatch, FamilyData, find_families, find_patterns, law_arguments
from ndpp.learning.fit import TrainingRun
from ndpp.learning.loss import Loss, TrainingSettings
from ndpp.learning.progress import LESS
from ndpp.learning.tied import Expansion, Missions

OCCURRENCES, MAX_MISSIONS, MAX_RANK, MAX_FACTORS = 150, 400, 128, 48
"""By default a mission for so many occurrences of items, and at most so many missions, columns of ties, and factors."""
BATCH_SIZE, MAX_STEPS = 300, 100
"""Baskets per step, and more where a pass over the baskets would take more steps than this."""
RENEWAL = 4
"""Steps for which an expansion of the ties' normalisers serves."""
PROBE, RAISE = 0.97, 1.5
"""If the validation baskets are more probable with u, or X, times ``PROBE``, its penalty is raised by ``RAISE``."""

PLAIN, PILOT = 0.05, 3
"""Relative difference of log-likelihoods that decides at once whether families are used; below it, both are trained for some epochs."""


@estimator
class MixtureNDPP(BasketModel):
    """A mixture of shopping missions whose items are tied by one skew kernel: see :class:`ndpp.Mixture`.

    Each mission c has its own log-odds of the items, log Δ_ci = b_i + a_c + u_i·z_c, and all share the ties X:
    L^c = diag(√Δ_c)(I + X W Xᵀ)diag(√Δ_c) with W skew. Baskets of any size have a probability, and items may be tied to more others
    than one kernel allows. The defaults are meant to work on new data untuned. An epoch is one pass over the baskets, or 50 steps if that
    is more.

    Parameters
    ----------
    n_missions : int, optional
        Number of missions. By default one for every 150 occurrences of items, at most 400.
    rank : int, optional
        Columns of X, an even number. By default three times the root of the number of items, at most 128.
    n_factors : int, optional
        Length of u_i and z_c. By default one and a half times the root of the number of items, at most 48 and at most ``n_missions``.
    penalty, tie_penalty : float
        Weights of Σ ‖u_i‖² and Σ ‖x_i‖² beside the log-likelihood of all baskets: inverse variances, halved. Training raises either as
        soon as the validation baskets would be more probable with smaller u or X, and lowers it again, though never below the value
        given here.
    learning_rate : float
        Of Adam.
    batch_size : int, optional
        Baskets per step. By default 300, or as many as make 100 steps of a pass over the baskets.
    max_epochs : int
        Maximum number of epochs. In the second half of them the learning rate falls to a fortieth.
    families : "auto", None or (n_items,) array_like
        Whether to learn a mixture over families of items, variants that are bought together, instead (:class:`ndpp.FamilyMixture`). With
        "auto" families are found in the baskets, and used if the validation baskets are more probable with them: when training begins,
        or, if the difference is small, by one percent or more after three epochs of both. An array names the family of each item.
    patience, validation_fraction, checkpoint, device, random_state, progress
        As in :class:`NDPP`.
    dtype : {"float32", "float64"}, optional
        Of the parameters; float32 by default. Determinants are always taken in float64.

    Attributes
    ----------
    law_ : Mixture
        The learned mixture: a :class:`ndpp.FamilyMixture` if families are used.
    penalties_ : tuple of float
        What ``penalty`` and ``tie_penalty`` were raised to.
    history_, baseline_score_, ended_, n_iter_, n_features_in_, labels_
        As in :class:`NDPP`.

    Examples
    --------
    >>> from ndpp import Baskets
    >>> baskets = Baskets.from_lists([["bread", "butter"], ["bread", "butter", "jam"], ["tea", "milk"], ["tea"]] * 50)
    >>> model = MixtureNDPP(n_missions=2, max_epochs=4, random_state=0).fit(baskets)
    >>> bool(model.score([["bread", "butter"]]) > model.score([["bread", "tea"]]))
    True
    """

    n_missions: int | None = field(default=None, kw_only=False)
    rank: int | None = None
    n_factors: int | None = None
    penalty: float = 10.0
    tie_penalty: float = 2.0
    families: Any = "auto"
    max_epochs: int = 12

    def _shape(self, baskets: Baskets) -> Shape:
        """Return the shape, from the number of items and of their occurrences where it is not given."""
        root = math.sqrt(baskets.n_items)
        n_missions = min(MAX_MISSIONS, max(1, len(baskets.indices) // OCCURRENCES))
        if self.n_missions is not None:
            n_missions = check_count(self.n_missions, "n_missions", least=1)
        rank = min(MAX_RANK, 2 * max(1, int(1.5 * root)))
        if self.rank is not None:
            rank = check_count(self.rank, "rank", least=2)
        if rank % 2:
            raise InvalidInputError(f"must be even, since ties are pairs of columns; got {rank}", argument="rank")
        n_factors = min(MAX_FACTORS, max(8, int(1.5 * root)), n_missions)
        if self.n_factors is not None:
            n_factors = check_count(self.n_factors, "n_factors", least=1)
        return Shape(n_missions, rank, n_factors)

    def _own_settings(self, shape: Shape) -> dict[str, Any]:
        own = {"penalty": self.penalty, "tie_penalty": self.tie_penalty, "families": np.asarray(self.families).tolist()}
        return shape._asdict() | own

    def _dtype(self) -> torch.dtype:
        return torch.float32 if self.dtype is None else super()._dtype()

    def _run(
        self, shape: Shape, settings: TrainingSettings, training: Baskets, held_out: Baskets, seed: int
    ) -> MixtureRun | Contest:
        penalties = [number(self.penalty, "penalty"), number(self.tie_penalty, "tie_penalty")]
        patterns = self._patterns(training, np.random.default_rng([seed, 2]))
        if patterns is not None:
            data = [FamilyData.of(patterns, baskets) for baskets in (training, held_out)]
            states, judged = (part.states(patterns) for part in data)
            begin = start(np.random.default_rng([seed, 1]), states, judged, shape)
            tensors = Missions(*map(self._tensor, begin))
            tensors = tensors._replace(X=tensors.X[: patterns.n_families].clone())
            families = FamilyRun(patterns, data, penalties, settings, tensors, training, held_out, seed)
            if not isinstance(self.families, str):
                return families
        begin = start(np.random.default_rng([seed, 1]), training, held_out, shape)
        run = MixtureRun(penalties, settings, Missions(*map(self._tensor, begin)), training, held_out, seed)
        return run if patterns is None else self._better(run, families)

    def _better(self, *runs: MixtureRun) -> MixtureRun | Contest:
        """Return the run under which the validation baskets are more probable, if that is plain, or else a contest of some epochs."""
        values = [float(run.log_probs(run.now, run.validation).mean()) for run in runs]
        if max(values) - min(values) < PLAIN * abs(max(values)):
            return Contest(runs, min(PILOT, runs[0].settings.max_epochs))
        return runs[int(np.argmax(values))]

    def _described(self, shape: Shape) -> str:
        return f"{shape.n_missions} missions, ties of rank {shape.rank}"

    def _narrower(self, run: MixtureRun) -> tuple[int, MixtureRun, str] | None:
        rank = 2 * (run.now.X.shape[1] // 4)
        if not rank:
            return None
        other = copy.copy(run)
        other.expansion = None
        start = run.now._replace(X=run.now.X[:, :rank])
        TrainingRun.__init__(other, run.problem, run.settings, start, run.baskets, run.validation, run.seed)
        return rank, other, LESS

    def _patterns(self, baskets: Baskets, rng: np.random.Generator) -> Patterns | None:
        """Return families and their states; None if there are none."""
        if self.families is None:
            return None
        if isinstance(self.families, str):
            if self.families != "auto":
                raise InvalidInputError(
                    f"must be 'auto', None or the family of each item; got {self.families!r}", argument="families"
                )
            families = find_families(rng, baskets)
        else:
            families = np.unique(np.asarray(self.families), return_inverse=True)[1].ravel()
            if len(families) != baskets.n_items:
                raise InvalidInputError(
                    f"must be one per item; got {len(families)} for {baskets.n_items} items", argument="families"
                )
        return find_patterns(rng, baskets, families) if families.max() + 1 < baskets.n_items else None

    def _law(self, run: MixtureRun, parameters: Missions) -> Mixture:
        self.penalties_ = tuple(run.penalties)
        exact = Missions(*(tensor.detach().cpu().double() for tensor in parameters))
        W = tied.skew_pairs(exact.X.shape[1], torch.device("cpu"))
        weights = torch.softmax(exact.shares, 0)
        odds, X = exact.log_odds().exp().numpy(), exact.X.numpy()
        if isinstance(run, FamilyRun):
            own = law_arguments(run.patterns, odds)
            return FamilyMixture(**own, X=X, W=W.numpy(), weights=weights.numpy(), labels=self.labels_)
        mixture = Mixture.tied(odds, X, W.numpy(), weights.numpy(), labels=self.labels_)
        assert isinstance(mixture, TiedMixture)
        return mixture.prepared()


class MixtureRun(TrainingRun):
    """Training of a mixture; ``problem`` holds the least penalties, ``penalties`` those in force."""

    state: ClassVar[tuple[str, ...]] = (*TrainingRun.state, "penalties")
    evaluations: ClassVar[int] = 3

    def __init__(
        self,
        problem: list[float],
        settings: TrainingSettings,
        start: Missions,
        baskets: Baskets,
        validation: Baskets,
        seed: int,
    ) -> None:
        super().__init__(problem, settings, start, baskets, validation, seed)
        self.penalties = list(problem)
        self.expansion: tuple[int, Expansion] | None = None

    def epoch(self, bar: ProgressBar) -> dict[str, float]:
        """Make one epoch's steps, judge the result, and adapt the penalties to it."""
        self.expansion = None  # as after a restart
        began, record = time.perf_counter(), super().epoch(bar)
        for i, part in enumerate(("factors", "X")):
            smaller = self.mean._replace(**{part: PROBE * getattr(self.mean, part)})
            better = self.log_probs(smaller, self.validation).mean() > record["validation"]
            self.penalties[i] = max(self.problem[i], self.penalties[i] * (RAISE if better else 1 / RAISE))
        record["seconds"] = time.perf_counter() - began
        return record

    def default_batch_size(self) -> int:
        """Return the number of baskets per step where none is asked for."""
        return max(BATCH_SIZE, -(-len(self.baskets) // MAX_STEPS))

    def pack(self, which: IntArray) -> Any:
        """Return the training baskets numbered ``which`` as a batch."""
        return pack(self.baskets, which, device=self.device, multiple=tied.MULTIPLE[self.device.type])

    def loss(self, batch: Any, scales: Tensor) -> Loss:
        """Return the mean of −log P over a batch, with penalties and half an occurrence of each item, and its gradient."""
        if self.expansion is None or self.step >= self.expansion[0] + RENEWAL:
            self.expansion = self.step, Expansion.at(self.now, self.log_odds(self.now))
        ties = self.expansion[1]
        at = Missions(*(tensor.detach().requires_grad_() for tensor in self.now))
        log_z = tied.log_normalizers(at, ties, self.log_odds(at))
        likelihood = self.batch_log_probs(at, log_z, batch).mean() - ties.ties(at.X)
        prior = self.penalties[0] * at.factors.square().sum() + self.penalties[1] * at.X.square().sum()
        # Half an occurrence in one basket more: without it an item that never occurs would become impossible.
        prior = prior - (at.bias / 2 - F.softplus(at.bias)).sum()
        value = prior / len(self.baskets) - likelihood
        return Loss(value.detach(), Missions(*torch.autograd.grad(value, at)))

    def log_odds(self, at: Missions) -> Tensor:
        """Return the log-odds of what is tied, shape (C, rows of X)."""
        return at.log_odds()

    def batch_log_probs(self, at: Missions, log_z: Tensor, batch: Any) -> Tensor:
        """Return log P of each basket of a batch, in its order."""
        return tied.log_probs(at, log_z, batch)

    def relative_rates(self) -> tuple[float, ...]:
        """Return one rate for all."""
        return (1.0,) * len(self.now)

    def descent(self, gradient: Missions) -> Missions:
        """Return the gradient: there are no constraints."""
        return gradient

    def constrain(self) -> None:
        """Leave everything as it is."""

    def finished(self) -> Missions:
        """Return the running mean."""
        mean: Missions = self.mean
        return mean.clone()

    def log_probs(self, parameters: Missions, baskets: Baskets) -> FloatArray:
        """Return log P of each basket."""
        return tied.evaluate(parameters, baskets)

    def _noise_scales(self) -> Tensor:
        return torch.zeros(1, device=self.device)


class FamilyRun(MixtureRun):
    """Training of a mixture over families: missions have odds of states, and ties are between families."""

    def __init__(self, patterns: Patterns, data: Sequence[FamilyData], *arguments: Any) -> None:
        self.patterns, (self.data, self.held_out) = patterns, data
        self.n_single, self.n_states = data[0].n_single, patterns.odds.shape[1]
        super().__init__(*arguments)

    def pack(self, which: IntArray) -> Any:
        """Return the training baskets numbered ``which`` as a batch."""
        return self.data.pack(which, self.now.X)

    def log_odds(self, at: Missions) -> Tensor:
        """Return the log-odds of the families, shape (C, F)."""
        states = at.log_odds()
        several = states[:, self.n_single :].reshape(len(states), -1, self.n_states)
        return torch.cat([states[:, : self.n_single], several.logsumexp(2)], 1)

    def batch_log_probs(self, at: Missions, log_z: Tensor, batch: FamilyBatch) -> Tensor:
        """Return log P of each basket of a batch, in its order. Families of several items have no log-odds of their own, but states."""
        n = self.n_single
        missing = F.pad(at.bias[:n], (0, len(at.X) - n)), F.pad(at.factors[:n], (0, 0, 0, len(at.X) - n))
        states = torch.addmm(at.bias[n:, None], at.factors[n:], at.missions.T).reshape(
            -1, self.n_states, len(at.missions)
        )
        own = torch.logsumexp(states[batch.family] + batch.log_q[:, :, None], 1)  # (pairs, C)
        extra = own.new_zeros(batch.families.n_baskets, len(at.missions)).index_add(0, batch.owner, own)
        return tied.log_probs(at._replace(bias=missing[0], factors=missing[1]), log_z, batch.families, extra)

    def log_probs(self, parameters: Missions, baskets: Baskets) -> FloatArray:
        """Return log P of each basket."""
        data = self.held_out if baskets is self.validation else FamilyData.of(self.patterns, baskets)
        out, order = np.empty(len(baskets)), np.argsort(data.touched.sizes, kind="stable")
        with torch.no_grad():
            log_z = tied.log_normalizers(parameters, log_odds=self.log_odds(parameters))
            for begin in range(0, len(out), tied.EVALUATED):
                which = order[begin : begin + tied.EVALUATED]
                batch = data.pack(which, parameters.X)
                out[which] = self.batch_log_probs(parameters, log_z, batch).cpu().numpy()
        return out
