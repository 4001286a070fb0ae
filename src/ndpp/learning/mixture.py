"""A mixture of missions with shared ties, as an estimator."""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ndpp._types import FloatArray, IntArray
from ndpp._validation import by_name, check_count, check_matrix
from ndpp.baskets import Baskets
from ndpp.baskets.orders import Orders
from ndpp.errors import InvalidInputError
from ndpp.laws.gate import Gain
from ndpp.laws.patterns import Patterns
from ndpp.learning.average import fit_each, keep_average
from ndpp.learning.base import BasketModel, estimator, number
from ndpp.learning.checkpoint import Checkpoint
from ndpp.learning.classes import Shape, seconds_of_start, start
from ndpp.learning.context import check_context, learn_context
from ndpp.learning.families import FamilyData, find_families, find_patterns
from ndpp.learning.mixture_objective import PATTERNS, MixtureObjective, pattern_tensors
from ndpp.learning.run import OutOfTime, TrainingRun
from ndpp.learning.tied import MixtureParameters
from ndpp.learning.trainer import PILOT, Trainer, TrainingSettings
from ndpp.metrics.models import occurrences

OCCURRENCES, MAX_COMPONENTS, MAX_RANK, MAX_FACTORS = 150, 400, 128, 48
"""By default there is a component for this many occurrences of items; maximum numbers of components, columns of ties, and factors."""
LEAST_MISSIONS, LEAST_RANK = 8, 4
"""Least numbers of components and columns that are chosen where there is little time."""
TRIAL = {"cpu": 500, "cuda": 50_000}
"""Items of the catalogue on which steps are timed: seconds of work, and on a GPU enough of it."""
FAMILIES_SHARE, START_SHARE = 0.15, 0.3
"""Shares of the minutes that training may take after which the search for families is given up, and that for classes ends."""
MAX_CLOSE_CALL = 0.05
"""Relative difference of log-likelihoods that decides at once whether families are used; below it, both are trained for some epochs."""
KINDS_OF_FAMILIES = (12, 0.08), (12, 0.05), (10, 0.1)
"""Most items of a family and least mean cosine of these, for one fit after the other."""
HALFWAY_COUNT = 20.0
"""An item that occurs this often begins half-way between what its features say and what its baskets say."""


OPTIONAL = "in_factors", "in_X", "patterns"
"""Parameters that not every mixture has."""


FamilyParts = tuple[FamilyData, FamilyData]
"""The training and the validation baskets."""


@estimator
class MixtureNDPP(BasketModel[Shape, MixtureParameters]):
    """A mixture of shopping missions whose items are tied by one skew kernel: see :class:`ndpp.Mixture`.

    Each mission c has its own log-odds of the items, log Δ_ci = b_i + a_c + u_i·z_c, and all share the ties X:
    L^c = diag(√Δ_c)(I + X W Xᵀ)diag(√Δ_c) with W skew. Baskets of any size have a probability, and items may be tied to more others
    than one kernel allows. The defaults are meant to work on new data untuned. An epoch is one pass over the baskets, or 50 steps if that
    is more.

    Parameters
    ----------
    n_missions : int, optional
        Number of missions. By default one for every 150 occurrences of items, at most 400; fewer if there is no time for six epochs.
    rank : int, optional
        Columns of X, an even number. By default three times the root of the number of items, at most 128; fewer likewise.
    n_factors : int, optional
        Length of u_i and z_c. By default one and a half times the root of the number of items, at most 48 and at most ``n_missions``.
    penalty, tie_penalty : float
        Weights of Σ ‖u_i‖² and Σ ‖x_i‖² beside the log-likelihood of all baskets: inverse variances, halved. Training raises either as
        soon as the validation baskets would be more probable with smaller u or X, and lowers it again, though never below the value
        given here.
    batch_size : int, optional
        Baskets per step. By default 300, or as many as make 100 steps of a pass over the baskets.
    max_epochs : int
        Maximum number of epochs. In the second half of them the learning rate falls to a fortieth.
    families : "auto", None, (n_items,) array_like, mapping or pandas Series
        Whether to learn a mixture over families of items, variants that are bought together, instead (:class:`ndpp.FamilyMixture`). With
        "auto" families are found in the baskets, and used if the validation baskets are more probable with them: when training begins,
        or, if the difference is small, by one percent or more after three epochs of both, or fewer if families are behind. An array names
        the family of each item; a mapping or Series does so by label, and items that it lacks are alone in theirs.
    item_features : (n_items, f) array_like, sparse matrix, pandas DataFrame or mapping, optional
        Features of the items, such as their categories or words of their names; a data frame, by its index, and a mapping hold them by
        label. The u_i and x_i are then free parts, which the penalties are on, plus the features times matrices that all items share: what
        is known about rare items comes from items with similar features, and ``law_.add_items(features=…)`` adds items that nobody has
        bought yet. Over families, features are means over their items.
    n_fits : int
        Number of fits, from other starts and over other families, of which ``law_`` is the average: a mixture of the missions of all of
        them. It is better than any one fit, and takes as many times as long to train and to answer; ``minutes`` are for all fits together.
    learning_rate, minutes, patience, validation_fraction, checkpoint, device, random_state, progress
        As in :class:`NDPP`.
    dtype : {"float32", "float64"}, optional
        Of the parameters; float32 by default. Determinants are always taken in float64.

    Attributes
    ----------
    law_ : Mixture
        The learned mixture: a :class:`ndpp.FamilyMixture` if families are used.
    context_ : tuple of Gain
        What each column of context gained, in log-likelihood per validation basket, and whether it was kept; empty without context.
    penalties_ : tuple of float
        What ``penalty`` and ``tie_penalty`` were raised to.
    in_time_ : dict or None
        What was chosen by ``minutes`` instead of the defaults, and how many these would take; None if there was time for them.
    history_, validation_score_, reached_, baseline_, baseline_score_, ended_, n_iter_, n_features_in_, n_baskets_, labels_
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
    item_features: Any = None
    n_fits: int = 1
    max_epochs: int = 12

    _number = 0  # of several fits

    def _train(
        self, shape: Shape, training: Baskets, held_out: Baskets, settings: TrainingSettings, run: TrainingRun
    ) -> None:
        if check_count(self.n_fits, "n_fits", least=1) == 1:
            super()._train(shape, training, held_out, settings, run)
            return
        if self.item_features is not None:
            problem = f"must be 1 with features of items, whose matrices belong to one fit; got {self.n_fits}"
            raise InvalidInputError(problem, argument="n_fits", advice="Leave out {item_features}, or fit once.")
        members = [copy.copy(self) for _ in range(self.n_fits)]
        for k, member in enumerate(members):
            member.n_fits, member._number = 1, k
        members = list(fit_each(members, shape, training, held_out, settings, run))
        keep_average(self, members, held_out)
        self.penalties_: tuple[float, ...] = members[0].penalties_

    def _shape(self, baskets: Baskets) -> Shape:
        """Return the shape, from the number of items and of their occurrences where it is not given."""
        if self.item_features is not None:
            read_features(self.item_features, baskets.labels, baskets.n_items)  # raises early
        root, n_occurrences = math.sqrt(baskets.n_items), occurrences(baskets, baskets.weights).sum()
        n_missions = self._count("n_missions", min(MAX_COMPONENTS, max(1, int(n_occurrences // OCCURRENCES))))
        rank = self._count("rank", min(MAX_RANK, 2 * max(1, int(1.5 * root))), least=2)
        if rank % 2:
            raise InvalidInputError(f"must be even, since ties are pairs of columns; got {rank}", argument="rank")
        return Shape(n_missions, rank, self._count("n_factors", min(MAX_FACTORS, max(8, int(1.5 * root)), n_missions)))

    def _smaller(self, shape: Shape) -> Shape | None:
        """Return half as many missions, and two thirds of the rank, as far as they were not given; that takes half the time or less."""
        missions, rank, _ = shape
        if self.n_missions is None:
            missions = max(min(LEAST_MISSIONS, missions), missions // 2)
        if self.rank is None:
            rank = max(min(LEAST_RANK, rank), 2 * round(rank / 3))
        if (missions, rank) == shape[:2]:
            return None
        return Shape(missions, rank, shape.n_factors if self.n_factors is not None else min(shape.n_factors, missions))

    def _continued(self, shape: Shape, made_with: Mapping[str, Any]) -> Shape:
        own = {
            name: int(made_with[name]) for name in Shape._fields if getattr(self, name) is None and name in made_with
        }
        return shape._replace(**own)

    def _own_settings(self, shape: Shape) -> dict[str, Any]:
        penalties = dict(zip(("penalty", "tie_penalty"), self._penalties()))
        families = self.families
        if hasattr(families, "items"):
            families = {str(item): str(family) for item, family in families.items()}
        own = {"families": np.asarray(families).tolist()}
        if self.item_features is not None:
            own["item_features"] = zlib.crc32(self._features().tobytes())
        return shape._asdict() | penalties | own

    def _features(self) -> FloatArray:
        return read_features(self.item_features, self.labels_, self.n_features_in_)

    def _penalties(self) -> tuple[float, float]:
        return number(self.penalty, "penalty"), number(self.tie_penalty, "tie_penalty")

    def _dtype(self) -> torch.dtype:
        return torch.float32 if self.dtype is None else super()._dtype()

    def _described(self, shape: Shape) -> str:
        return f"{shape.n_missions} missions, ties of rank {shape.rank}"

    def _trial(
        self, shape: Shape, training: Baskets, held_out: Baskets, run: TrainingRun
    ) -> tuple[MixtureObjective, float, int]:
        """Return an objective over at most ``TRIAL`` items, as some of which all others are counted, without any classes to begin with."""
        n, rng = min(TRIAL[torch.device(self.device).type], training.n_items), np.random.default_rng(0)
        r, C = shape.n_factors, shape.n_missions
        values = [0.01 * rng.standard_normal(size) for size in ((n,), (n, r), (n, shape.rank), (C, r), (C,), (C,))]
        values[0] += math.log(max(1.0, float(training.sizes.mean())) / training.n_items)

        def folded(part: Baskets) -> FamilyData:
            baskets = Baskets._trusted(part.indptr, part.indices % n, n, None, None)
            return FamilyData.of(None, Orders(baskets, weights=part.weights))

        goal = self._objective(None, (folded(training), folded(held_out)), values, is_trial=True)
        saved = run.saved.candidates()
        pilots = len(saved) or (2 if isinstance(self.families, str) else 1)
        seconds = 0.0 if saved else pilots * seconds_of_start(training, held_out, shape)
        return goal, seconds, pilots

    def _objectives(
        self, shape: Shape, training: Baskets, held_out: Baskets, run: TrainingRun
    ) -> Mapping[str, MixtureObjective]:
        """Return the objectives over items, over families, or both; what a checkpoint has is not sought again."""

        def read(patterns: Patterns | None) -> FamilyParts:
            return FamilyData.of(patterns, training), FamilyData.of(patterns, held_out)

        goals = {}
        for name, part in run.saved.candidates().items():
            patterns = _saved_patterns(part)
            goals[name] = self._objective(patterns, read(patterns), part.named("now", MixtureParameters._fields))
        if goals:
            return goals
        found = self._patterns(training, run)
        for patterns in [found] if found is None or not isinstance(self.families, str) else [None, found]:
            data, learned, judged, what = read(patterns), training, held_out, "items"
            if patterns is not None:
                learned, judged, what = data[0].states(patterns), data[1].states(patterns), "families"
            with run.stage(f"start: classes of {what}", START_SHARE):
                values = start(np.random.default_rng([run.seed, 1]), learned, judged, shape)
            goals[what] = self._objective(patterns, data, values)
        return _likely(goals, run)

    def _objective(
        self, patterns: Patterns | None, data: FamilyParts, values: Sequence[Any], *, is_trial: bool = False
    ) -> MixtureObjective:
        """Return the objective over the training and the validation baskets from these parameters on."""
        begin = MixtureParameters(*(torch.as_tensor(one).to(self.device, self._dtype()).contiguous() for one in values))
        begin = begin._replace(X=begin.X[: data[0].touched.n_items].clone())
        begin = begin._replace(**{name: getattr(begin, name).to(begin.X) for name in OPTIONAL})
        if self.item_features is None or is_trial:
            return MixtureObjective(patterns, self._penalties(), begin, *data)
        F = self._features()
        F /= scale_of(F)
        rows = F
        if patterns is not None:
            sizes = np.bincount(patterns.families, minlength=patterns.n_families)
            rows = np.stack([np.bincount(patterns.families, column) for column in F.T], axis=1) / sizes[:, None]
            F = rows[patterns.states]
        features = torch.as_tensor(F).to(begin.X), torch.as_tensor(rows).to(begin.X)
        if not begin.in_X.numel():
            counts = np.bincount(data[0].touched.indices, minlength=len(rows))
            counts = counts if patterns is None else counts[patterns.states]
            matrix, free = regressed(features[0], begin.factors, torch.as_tensor(counts, device=begin.X.device))
            begin = begin._replace(
                factors=free, in_factors=matrix, in_X=begin.X.new_zeros(F.shape[1], begin.X.shape[1])
            )
        return MixtureObjective(patterns, self._penalties(), begin, *data, features)

    def _patterns(self, baskets: Baskets, run: TrainingRun) -> Patterns | None:
        """Return families and their states; None if there are none, or no time to find them."""
        if self.families is None:
            return None
        if (found := _saved_patterns(run.saved)) is not None:
            return found
        rng = np.random.default_rng([run.seed, 2])
        try:
            with run.stage("families: items that come together", FAMILIES_SHARE):
                families = self._families(rng, baskets)
                patterns = find_patterns(rng, baskets, families) if families.max() + 1 < baskets.n_items else None
        except OutOfTime:
            return None
        if patterns is not None:
            run.keep(Checkpoint(pattern_tensors(patterns), {"history": []}))
        return patterns

    def _families(self, rng: np.random.Generator, baskets: Baskets) -> IntArray:
        """Return the family of each item."""
        if isinstance(self.families, str):
            if self.families != "auto":
                raise InvalidInputError(
                    f"must be 'auto', None or the family of each item; got {self.families!r}", argument="families"
                )
            return find_families(rng, baskets, *KINDS_OF_FAMILIES[self._number % len(KINDS_OF_FAMILIES)])
        if not np.ndim(self.families) and not hasattr(self.families, "items"):
            raise InvalidInputError(f"must be one per item; got {self.families!r}", argument="families")
        given, has = by_name(self.families, baskets.labels, baskets.n_items, "families")
        numbers: dict[Any, int] = {}
        keys = [(True, name) if known else (False, i) for i, (name, known) in enumerate(zip(given, has.tolist()))]
        return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)

    def _check_context(self, baskets: Baskets, held_out: Baskets | None) -> None:
        fraction = number(self.validation_fraction, "validation_fraction", most=0.9)
        if held_out is None and round(fraction * len(baskets)) < 1:
            raise InvalidInputError(
                "is judged by validation baskets",
                argument="context",
                advice="Give {validation}, or {validation_fraction:0.1}.",
            )
        check_context(baskets, held_out)

    def _learn_context(self, training: Baskets, held_out: Baskets) -> Sequence[Gain]:
        gate, gains = learn_context(self.law_, training, held_out)
        if gate is not None:
            self.law_ = self.law_.with_context(gate.levels, gate.shifts)
        return gains

    def _keep(self, trained: Trainer[MixtureParameters]) -> None:
        super()._keep(trained)
        assert isinstance(trained.objective, MixtureObjective)
        self.penalties_ = tuple(trained.objective.penalties)
        if self.item_features is not None:
            features = trained.objective.feature_map(trained.best, scale_of(self._features()))
            self.law_ = self.law_.with_features(features)
        if self.ended_ != "interrupted":
            self.law_ = self.law_.normalized()


def _saved_patterns(saved: Checkpoint) -> Patterns | None:
    """Return the patterns of a checkpoint, None if it has none."""
    if "patterns.families" not in saved.tensors:
        return None
    families, states, odds = (tensor.numpy() for tensor in saved.named("patterns", PATTERNS))
    return Patterns(families, states, odds, int(families.max()) + 1)


def _likely(candidates: dict[str, MixtureObjective], run: TrainingRun) -> dict[str, MixtureObjective]:
    """Return the candidate under which the validation baskets are more probable, if that is plain or time is short, or else all of them."""
    if len(candidates) == 1 or run.clock.left() <= 0:
        return dict(list(candidates.items())[:1])
    values = {name: goal.validated(goal.start) for name, goal in candidates.items()}
    best = max(values, key=lambda name: values[name])
    is_plain = values[best] - min(values.values()) >= MAX_CLOSE_CALL * abs(values[best])
    if is_plain or 2 * PILOT * run.epoch_seconds * len(values) > run.clock.left():
        return {best: candidates[best]}
    return candidates


# -- features of items: rows = free part + features · matrix; rare items, whose free part is small, follow the features ------------------


def read_features(value: Any, labels: tuple[str, ...] | None, n_items: int) -> FloatArray:
    """Return the features (n_items, f) of all items, from an array, a sparse matrix, a data frame by label or a mapping to vectors."""
    if hasattr(value, "loc"):
        value = dict(zip(map(str, value.index), value.to_numpy()))
    if isinstance(value, Mapping):
        if labels is None:
            raise InvalidInputError("by label need baskets with labels; pass an array", argument="item_features")
        if missing := [label for label in labels if label not in value]:
            raise InvalidInputError(
                f"must have a row for every item; {missing[0]!r} has none", argument="item_features"
            )
        rows = [np.asarray(value[label], np.float64).ravel() for label in labels]
        if len({len(row) for row in rows}) > 1:
            raise InvalidInputError("must be vectors of one length", argument="item_features")
        value = np.stack(rows)
    value = value.toarray() if sparse.issparse(value) else value
    found = check_matrix(value, "item_features", shape=(n_items, None)).astype(np.float64)
    if not found.any():
        raise InvalidInputError("must not be all zero, or have no column", argument="item_features")
    return found


def scale_of(features: FloatArray) -> float:
    """Return the root mean square of the norms of the rows, in units of which training has them."""
    return float(np.sqrt((features**2).sum(axis=1).mean()))


def regressed(features: Tensor, rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the matrix M that fits rows by features M, and free parts: what is left of the rows, less of it the rarer an item is.

    Rows are weighted by how much their ``counts`` of occurrences tell beside ``HALFWAY_COUNT`` others, and M is penalised as one row is.
    """
    F, Y, weights = features.double(), rows.double(), (counts / (counts + HALFWAY_COUNT)).double()[:, None]
    system = F.T @ (weights * F) + torch.eye(F.shape[1], dtype=F.dtype, device=F.device)
    M = torch.linalg.solve(system, F.T @ (weights * Y))
    return M.to(rows.dtype).contiguous(), (weights * (Y - F @ M)).to(rows.dtype).contiguous()  # Adam goes by memory
