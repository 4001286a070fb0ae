"""The base class of the estimators. As in scikit-learn, constructors only store, and learned attributes end in ``_``."""

from __future__ import annotations

import math
import os
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ndpp._atomic import check_same
from ndpp._types import FloatArray, Items, RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.baskets.labels import many
from ndpp.baskets.orders import in_context, weighted
from ndpp.errors import DataWarning, InvalidInputError
from ndpp.inference import Recommendation, recommend
from ndpp.laws.gate import Gain
from ndpp.learning import checkpoint as checkpoints
from ndpp.learning.contest import Contest, Forecast, announce, duration, measured
from ndpp.learning.run import Deadline, TrainingRun
from ndpp.learning.trainer import Objective, P, Trainer, TrainingSettings
from ndpp.metrics.models import independent_items

PathLike = str | os.PathLike[str]
S = TypeVar("S")

MAX_VALIDATION = 2000
"""Maximum number of baskets set aside for validation."""
SCORE_FLOOR = 1e-6
"""In scores a basket is at least this many times as probable as under independent items."""
MAX_SINGLE_SHARE, MIN_BASKETS_TO_WARN = 0.95, 20
"""Share of baskets with a single item from which on fitting warns, if there are at least this many baskets."""
CONTEXT_SHARE = 0.15
"""Share of the minutes that is kept for learning from context, if there is any."""
UNTOLD = ("checkpoint", "item_features", "minutes", "progress", "random_state")
"""Parameters that do not belong to how a model was made."""

estimator = dataclass(kw_only=True, eq=False, repr=False)
"""Generates the constructor, from whose signature scikit-learn reads the parameters."""


@estimator
class BasketModel(DensityMixin, BaseEstimator, Generic[S, P]):  # type: ignore[misc]  # scikit-learn has no types
    """Base class: a distribution of baskets, learned from baskets. See :class:`NDPP` for the parameters."""

    learning_rate: float = 0.02
    batch_size: int | None = None
    max_epochs: int = 100
    minutes: float | None = None
    patience: int = 2
    validation_fraction: float = 0.1
    checkpoint: PathLike | None = None
    device: str = "cpu"
    dtype: str | None = None
    random_state: RngLike | np.random.RandomState = None
    progress: bool | Callable[[str], None] = False

    _contest: ClassVar[type[Contest[Any]]] = Contest
    """How candidates are chosen among, where there are several."""

    @abstractmethod
    def _shape(self, baskets: Baskets) -> S:
        """Return the sizes of the parameters, checked."""

    @abstractmethod
    def _described(self, shape: S) -> str:
        """Return the sizes of the parameters in words."""

    @abstractmethod
    def _own_settings(self, shape: S) -> dict[str, Any]:
        """Return the settings of this model that a resumed run must share with its checkpoint."""

    @abstractmethod
    def _objectives(
        self, shape: S, training: Baskets, held_out: Baskets, run: TrainingRun
    ) -> Mapping[str, Objective[P]]:
        """Return what may be trained, by name: several if only training can tell which is best, the first where it cannot."""

    def _trial(
        self, shape: S, training: Baskets, held_out: Baskets, run: TrainingRun
    ) -> tuple[Objective[P], float, int]:
        """Return an objective to time, quickly made, the seconds before training begins, and how many candidates there may be."""
        found = self._objectives(shape, training, held_out, run)
        return next(iter(found.values())), 0.0, len(found)

    def _smaller(self, shape: S) -> S | None:
        """Return the next smaller shape for a model that has to be trained in less time, None if there is none."""
        return None

    def _continued(self, shape: S, made_with: Mapping[str, Any]) -> S:
        """Return the shape of the run that goes on, which may have chosen its own by the time."""
        return shape

    def _in_time(
        self, shape: S, training: Baskets, held_out: Baskets, run: TrainingRun, settings: TrainingSettings
    ) -> tuple[S, Forecast, dict[str, Any] | None]:
        """Return the shape to train, smaller if there is no time for enough epochs, how long it takes, and what was chosen, if it was."""

        def forecast(one: S) -> Forecast:
            return measured(*self._trial(one, training, held_out, run), settings, run.seed, training.n_items)

        wanted, whole = shape, forecast(shape)
        found = whole
        while not run.done and not run.saved.candidates() and (least := found.least(settings)) > run.clock.left():
            before, halvings = shape, max(1, int(math.log2(least / max(run.clock.left(), 1e-3))))
            for _ in range(halvings):
                shape = self._smaller(shape) or shape
            if shape == before:
                break
            found = forecast(shape)
        if shape == wanted:
            return shape, found, None
        seconds, (own, all_) = whole.total(settings, 0), map(self._described, (shape, wanted))
        run.say(f"chosen for the time: {own}; {all_} would take about {duration(seconds)}")
        return shape, found, {"chosen": own, "instead_of": all_, "minutes": round(seconds / 60, 1)}

    def _possible(self, baskets: Baskets, shape: S, what: str) -> Baskets:
        """Return the baskets that the model can give a probability above zero."""
        return baskets

    def fit(
        self,
        X: object,
        y: object = None,
        sample_weight: object = None,
        *,
        validation: object = None,
        validation_weight: object = None,
        context: object = None,
        validation_context: object = None,
        resume: bool | PathLike = False,
    ) -> Self:
        """Learn from baskets.

        Parameters
        ----------
        X : Baskets, iterable of sets, sparse or dense matrix of zeros and ones
            Training baskets. Empty ones count as well; if there are none, here and in ``validation``, the learned distribution leaves
            out the empty set, and its likelihood is what is maximised.
        y : ignored
            For compatibility with scikit-learn.
        sample_weight : array_like of float, mapping or pandas Series, optional
            How often each basket counts: a weight of 2 is the basket twice, 0 leaves it out, and old orders may count less than one.
            A mapping or Series is looked up by the ids of the baskets, if they have any. Baskets set aside for validation keep theirs.
        validation : like X, optional
            Validation baskets; by default, a fraction ``validation_fraction`` of X.
        validation_weight : like sample_weight, optional
            How often each basket of ``validation`` counts.
        context, validation_context : mapping or data frame, optional
            For mixtures: what else is known about each basket of X and of ``validation``, as columns with a value per basket, such as the
            store and the weekday: see :func:`ndpp.fit`.
        resume : bool or path
            Resume from this checkpoint. ``True`` means ``checkpoint``, if that file exists. The result is the same as
            that of an uninterrupted run.
        """
        clock = Deadline() if self.minutes is None else Deadline(60 * number(self.minutes, "minutes"))
        baskets = in_context(self._read(X, reset=True), context, "context")
        baskets, held_out = weighted(baskets, sample_weight, "sample_weight"), None
        if validation is not None:
            held_out = in_context(self._read(validation, reset=False), validation_context, "validation_context")
            held_out = weighted(held_out, validation_weight, "validation_weight")
        if baskets.context:
            self._check_context(baskets, held_out)
            clock.reserve = CONTEXT_SHARE * clock.limit if self.minutes is not None else 0.0
        _warn_of_odd_sizes(baskets)
        settings, shape, source = self._settings(), self._shape(baskets), self._source(resume)
        self._check_device()
        saved = checkpoints.FRESH if source is None else checkpoints.read(source)
        shape = self._continued(shape, saved.record.get("made_with", {}))
        made_with = self._made_with(baskets, held_out, shape, settings)
        if source is not None:
            check_same(source, saved.record["made_with"], made_with)
        seed = _seed(self.random_state) if source is None else int(saved.record["seed"])
        possible = self._possible(baskets, shape, "baskets")
        training, held_out = self._parts(possible, held_out, shape, np.random.default_rng([seed, 0]))
        about = (
            f"{type(self).__name__}, {self._described(shape)}: {len(training):,} baskets over {baskets.n_items:,} items"
        )
        run = TrainingRun(seed, clock, self.progress, self.checkpoint, made_with, saved)
        if source is None:
            run.keep(saved)  # from here on there is something to resume
        run.say(f"{about}, and {len(held_out):,} to validate")
        self._train(shape, training, held_out, settings, run)
        self.context_: Sequence[Gain] = ()
        if training.context and self.ended_ != "interrupted":
            run.clock.reserve = 0.0
            with run.stage(f"context: {', '.join(training.context)}", 1.0):
                self.context_ = self._learn_context(training, held_out)
            for gain in self.context_:
                run.say(f"context {gain}")
        self.n_baskets_, self.n_dropped_ = len(baskets), len(baskets) - len(possible)
        self.total_weight_ = baskets.total_weight
        self.baseline_ = independent_items(training, weights=training.weights)
        values = self.baseline_.log_likelihoods(held_out)
        self.baseline_score_ = float(np.average(values, weights=held_out.weights))
        return self

    def _train(
        self, shape: S, training: Baskets, held_out: Baskets, settings: TrainingSettings, run: TrainingRun
    ) -> None:
        """Train one law, and keep it with the record of its training."""
        clock = run.clock
        self.in_time_: dict[str, Any] | None = None
        if run.done < settings.max_epochs and clock.left() > 0 and (self.progress or self.minutes is not None):
            shape, found, self.in_time_ = self._in_time(shape, training, held_out, run, settings)
            announce(found, self._contest.told, settings, run)
            clock.spent = min(
                time.monotonic() - clock.began, (clock.limit - clock.reserve) / 2
            )  # half is for the stages
            if self.in_time_ is not None:
                run.made_with = {**run.made_with, **self._own_settings(shape)}
                run.keep(run.saved)
        objectives = self._objectives(shape, training, held_out, run)
        contest = self._contest({name: Trainer(goal, settings, run.seed, clock) for name, goal in objectives.items()})
        if run.done or run.saved.candidates():
            contest.restore(run.saved)
        else:
            run.keep(contest.state())
        self.ended_ = contest.train(run)
        with run.stage("finishing", float("inf")):
            self._keep(contest.lead)
        self.reached_ = contest.reached

    def _check_context(self, baskets: Baskets, held_out: Baskets | None) -> None:
        """Raise if the distribution cannot depend on this context."""
        raise InvalidInputError(
            f"is for mixtures, whose missions depend on it; {type(self).__name__} has none", argument="context",
            advice="Fit with {model:'mixture'}",
        )  # fmt: skip

    def _learn_context(self, training: Baskets, held_out: Baskets) -> Sequence[Gain]:
        """Learn how the distribution depends on the context of the baskets; return what each column gained."""
        return ()

    def _keep(self, trained: Trainer[P]) -> None:
        law: Any = trained.objective.law(trained.best, self.labels_)
        self.law_ = law.framed(law.frame._replace(nonempty=trained.objective.nonempty))
        self.history_, self.n_iter_, self.validation_score_ = trained.history, len(trained.history), trained.best_value

    def score_samples(self, X: object) -> FloatArray:
        """Return the log-probability of each basket, −inf for impossible ones, such as those larger than a kernel's rank."""
        check_is_fitted(self, "law_")
        return np.asarray(self.law_.log_probs(self._read(X, reset=False)))

    def score(self, X: object, y: object = None, sample_weight: object = None) -> float:
        """Return the mean log-probability of the baskets, in which no basket counts for less than a stated floor.

        The floor of a basket is log(10⁻⁶ Q(S)), Q being independent items with the frequencies of the training baskets (``baseline_``):
        as if one basket in a million came from there. It makes the score of every model finite, so that searches can compare models that
        call different baskets impossible. A :class:`~ndpp.errors.DataWarning` says how many baskets were below it, if any. The exact mean
        is that of :meth:`score_samples`, −inf as soon as one basket is impossible. ``sample_weight`` is that of :meth:`fit`.
        """
        check_is_fitted(self, "law_")
        baskets = weighted(self._read(X, reset=False), sample_weight, "sample_weight")
        values = self.score_samples(baskets)
        floors = np.log(SCORE_FLOOR) + self.baseline_.log_likelihoods(baskets)
        if n_low := int(np.sum(values < floors)):
            warnings.warn(
                f"{n_low:,} of {len(values):,} baskets are less probable than {SCORE_FLOOR:g} times independent items, "
                f"{int(np.sum(values == -np.inf)):,} of them impossible; they count as that in the score",
                DataWarning,
                stacklevel=2,
            )
        return float(np.average(np.maximum(values, floors), weights=baskets.weights))

    def sample(self, n_samples: int = 1, **options: Any) -> Baskets:
        """Draw exact samples from the learned distribution; the options are those of :meth:`ndpp.LowRankKernel.sample`."""
        check_is_fitted(self, "law_")
        drawn: Baskets = self.law_.sample(n_samples, **options)
        return drawn

    @wraps(recommend)  # and so its signature
    def recommend(self, basket: Items, n: int = 10, **options: Any) -> Recommendation:  # noqa: D102
        check_is_fitted(self, "law_")
        return recommend(self.law_, basket, n, **options)

    def about(self) -> dict[str, Any]:
        """Return how the model was made, for JSON: what :func:`ndpp.save` writes with it and ``ndpp info`` shows."""
        check_is_fitted(self, "law_")
        own = self.get_params(deep=False)
        weight = {} if self.total_weight_ == self.n_baskets_ else {"weight": self.total_weight_}
        seed = own["random_state"] if isinstance(own["random_state"], (int, np.integer)) else None
        about = {
            "model": type(self).__name__,
            "baskets": {"number": self.n_baskets_, "dropped": self.n_dropped_} | weight,
            "seed": seed,
            "settings": {name: _plain(value) for name, value in own.items() if name not in UNTOLD},
            "epochs": self.n_iter_,
            "ended": self.ended_,
            "validation_log_likelihood": self.validation_score_,
            "independent_log_likelihood": self.baseline_score_,
        }
        about |= {"candidates": self.reached_} if len(self.reached_) > 1 else {}
        about |= {} if self.in_time_ is None else {"in_time": self.in_time_}
        return about | ({"context": [gain._asdict() for gain in self.context_]} if self.context_ else {})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    def _read(self, X: object, *, reset: bool) -> Baskets:
        """Return X as baskets: with ``reset`` their catalogue is adopted, otherwise it must be that of the model."""
        n_items, labels = (None, None) if reset else (self.n_features_in_, self.labels_)
        if isinstance(X, Baskets):
            baskets = X
        elif sparse.issparse(X) or (hasattr(X, "__array__") and getattr(X, "ndim", 2) != 1):
            baskets = _of_matrix(self, X, reset=reset)
        else:
            if not isinstance(X, Iterable):
                raise InvalidInputError(f"expected Baskets, sets of items or a matrix of zeros and ones; got {X!r:.60}")
            sets = list(X)
            named = any(isinstance(item, str) for members in sets if hasattr(members, "__len__") for item in members)
            if named and not reset and labels is None:
                raise InvalidInputError(f"the model has no labels; give items as ids below {n_items}. Got {X!r:.60}")
            baskets = Baskets.from_lists(sets, n_items=n_items, labels=labels)
        if reset:
            self.n_features_in_: int = baskets.n_items
            self.labels_: tuple[str, ...] | None = baskets.labels
        elif baskets.n_items != n_items:
            raise InvalidInputError(
                f"the model has {n_items} items; these baskets have {baskets.n_items}. "
                "Pass the n_items= or labels= of the training baskets when you create them."
            )
        elif baskets.labels is not None and labels is not None and baskets.labels != labels:
            raise InvalidInputError(
                "these baskets and the model have different labels, or a different order of labels; "
                "create the baskets with labels=model.labels_"
            )
        return baskets

    def _count(self, name: str, default: int, *, least: int = 1, most: int | None = None) -> int:
        """Return a parameter that is a whole number, or the default if it is None."""
        value = getattr(self, name)
        return default if value is None else check_count(value, name, least=least, most=most)

    def _settings(self) -> TrainingSettings:
        return TrainingSettings(
            learning_rate=number(self.learning_rate, "learning_rate", above_zero=True),
            batch_size=None if self.batch_size is None else check_count(self.batch_size, "batch_size", least=1),
            max_epochs=check_count(self.max_epochs, "max_epochs", least=1),
            patience=check_count(self.patience, "patience", least=1),
        )

    def _made_with(
        self, baskets: Baskets, held_out: Baskets | None, shape: S, settings: TrainingSettings
    ) -> dict[str, Any]:
        """Return the settings that a resumed run must share with its checkpoint."""
        kept = {name: value for name, value in asdict(settings).items() if name not in ("max_epochs", "schedule")}
        data = {
            "data": checkpoints.fingerprint(baskets),
            "validation": self.validation_fraction if held_out is None else checkpoints.fingerprint(held_out),
            "nonempty": bool(baskets.sizes.all() and (held_out is None or held_out.sizes.all())),
        }
        own = {"model": type(self).__name__} | self._own_settings(shape)
        return own | kept | data | {"dtype": str(self._dtype())}

    def _parts(
        self, baskets: Baskets, held_out: Baskets | None, shape: S, rng: np.random.Generator
    ) -> tuple[Baskets, Baskets]:
        """Return the training and the validation baskets."""
        if not baskets.sizes.any():
            raise InvalidInputError("nothing to learn from: expected at least one basket that is not empty")
        if held_out is None:
            return set_aside(baskets, number(self.validation_fraction, "validation_fraction", most=0.9), rng)
        held_out = self._possible(held_out, shape, "validation baskets")
        if not len(held_out):
            raise InvalidInputError("no validation basket is left")
        return baskets, held_out

    def _dtype(self) -> torch.dtype:
        single, double = torch.float32, torch.float64
        kinds = {None: double if self.device == "cpu" else single, "float32": single, "float64": double}
        if self.dtype not in kinds:
            raise InvalidInputError(f"must be 'float32', 'float64' or None; got {self.dtype!r}", argument="dtype")
        return kinds[self.dtype]

    def _check_device(self) -> None:
        try:
            torch.device(self.device)
        except RuntimeError:
            raise InvalidInputError(
                f"must be 'cpu', 'cuda' or 'cuda:1'; got {self.device!r}", argument="device"
            ) from None
        if str(self.device).startswith("cuda") and not torch.cuda.is_available():
            raise InvalidInputError(
                f"is {self.device!r}, but torch finds no CUDA", argument="device", advice="Use {device:'cpu'}."
            )

    def _source(self, resume: bool | PathLike) -> PathLike | None:
        """Return the checkpoint to resume from, or None to start afresh."""
        if not isinstance(resume, bool):
            return resume
        if resume and self.checkpoint is None:
            raise InvalidInputError("resume=True reads the file named by checkpoint=, which is None")
        return self.checkpoint if resume and Path(self.checkpoint or "").exists() else None


def _of_matrix(estimator: BaseEstimator, X: object, *, reset: bool) -> Baskets:
    """Return the baskets of a sparse or dense matrix or data frame of zeros and ones, with a row per basket and a column per item."""
    try:
        matrix = validate_data(estimator, X, accept_sparse="csr", dtype="numeric", reset=reset)
    except ValueError as reason:
        if not hasattr(X, "columns") or np.asarray(X).dtype.kind in "biuf":
            raise
        raise InvalidInputError(
            f"a data frame of baskets must hold zeros and ones, with a column per item: {reason}. "
            "Convert a long table with `Baskets.from_frame(frame, basket=…, item=…)`."
        ) from None
    if (matrix.data if sparse.issparse(matrix) else matrix).min(initial=0) < 0:
        raise InvalidInputError("Negative values in data: a matrix of baskets must hold zeros and ones")
    names = getattr(estimator, "feature_names_in_", None)
    return Baskets.from_csr(sparse.csr_array(matrix), labels=None if names is None else list(map(str, names)))


def _warn_of_odd_sizes(baskets: Baskets) -> None:
    """Warn of data that hold nothing about which items go together, as if the wrong column had been taken for the baskets."""
    n_filled, n_single = int(np.sum(baskets.sizes > 0)), int(np.sum(baskets.sizes == 1))
    what = ""
    if n_filled == 1:
        what = f"there is one basket, of {many(len(baskets.indices), 'item')}, so there is nothing to learn from"
    elif n_filled >= MIN_BASKETS_TO_WARN and n_single >= MAX_SINGLE_SHARE * n_filled and baskets.n_items > 1:
        what = f"{n_single:,} of {n_filled:,} baskets hold a single item, so there is little to learn about what goes together"
    if what:
        advice = "Is the column of the baskets (basket=…, or --basket) the one of the orders, with a row for each item of an order?"
        warnings.warn(f"{what}. {advice}", DataWarning, stacklevel=3)


def _plain(value: object) -> object:
    """Return the value of a parameter as JSON can hold it."""
    if isinstance(value, (str, int, float, list, tuple, np.ndarray, type(None))):
        return value
    return {str(key): entry for key, entry in value.items()} if hasattr(value, "items") else repr(value)


def set_aside(baskets: Baskets, fraction: float, rng: np.random.Generator) -> tuple[Baskets, Baskets]:
    """Return training and validation baskets; if there are too few to split, all baskets serve as both."""
    n_val = min(round(fraction * len(baskets)), MAX_VALIDATION, len(baskets) - 1)
    if n_val < 1:
        return baskets, baskets
    parts = baskets.split(n_val, 0, rng=rng)
    return parts.train, parts.val


def number(value: float | None, name: str, *, most: float = np.inf, above_zero: bool = False) -> float:
    """Return ``value`` as a finite float in [0, most], or in (0, most] with ``above_zero``."""
    valid = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if value is None or not valid or not (0 <= value <= most and np.isfinite(value)) or (above_zero and not value):
        bounds = "above 0" if above_zero else "at least 0" if most == np.inf else f"between 0 and {most:g}"
        raise InvalidInputError(f"must be a number, {bounds}; got {value!r}", argument=name)
    return float(value)


def _seed(random_state: RngLike | np.random.RandomState) -> int:
    if isinstance(random_state, np.random.RandomState):  # scikit-learn passes these
        return int(random_state.randint(2**31))
    return int(np.random.default_rng(random_state).integers(2**62))
