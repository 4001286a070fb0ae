"""The base class of the estimators. As in scikit-learn, constructors only store, and learned attributes end in ``_``."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted

from ndpp._json import check_same
from ndpp._progress import say_line
from ndpp._types import FloatArray, Items, RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.inference import Ranking, Recommendation, recommend
from ndpp.laws.kernel import LowRankKernel
from ndpp.learning import checkpoint as checkpoints
from ndpp.learning.data import keep_possible, read_baskets, set_aside
from ndpp.learning.fit import TrainingRun, train
from ndpp.learning.loss import TrainingProblem, TrainingSettings
from ndpp.learning.models import KernelFamily, Parameters, PopularityStart, TrainingStart, inner_matrix
from ndpp.learning.objective import Likelihood
from ndpp.learning.progress import LESS, estimates
from ndpp.metrics.models import independent_items

DEFAULT_RANK = 200
PathLike = str | os.PathLike[str]


estimator = dataclass(kw_only=True, eq=False, repr=False)
"""Generates the constructor, from whose signature scikit-learn reads the parameters."""


@estimator
class BasketModel(DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base class: a distribution of baskets, learned from baskets. See :class:`NDPP` for the parameters."""

    learning_rate: float = 0.02
    batch_size: int | None = None
    max_epochs: int = 100
    patience: int = 2
    validation_fraction: float = 0.1
    checkpoint: PathLike | None = None
    device: str = "cpu"
    dtype: str | None = None
    random_state: Any = None
    progress: bool | Callable[[str], None] = False

    @abstractmethod
    def _shape(self, baskets: Baskets) -> Any:
        """Return the sizes of the parameters, checked."""

    @abstractmethod
    def _own_settings(self, shape: Any) -> dict[str, Any]:
        """Return the settings of this model that a resumed run must share with its checkpoint."""

    @abstractmethod
    def _run(self, shape: Any, settings: TrainingSettings, training: Baskets, held_out: Baskets, seed: int) -> Any:
        """Return a :class:`TrainingRun` before its first step."""

    @abstractmethod
    def _law(self, run: Any, parameters: Any) -> Any:
        """Return the learned distribution."""

    @abstractmethod
    def _described(self, shape: Any) -> str:
        """Return the sizes of the parameters in words."""

    @abstractmethod
    def _narrower(self, run: Any) -> tuple[int, Any, str] | None:
        """Return about half the rank, a run with it, to be timed, and what it costs; None if the rank cannot be smaller."""

    def _possible(self, baskets: Baskets, shape: Any, what: str) -> Baskets:
        """Return the baskets that the model can give a probability above zero."""
        return baskets

    def fit(self, X: Any, y: Any = None, *, validation: Any = None, resume: bool | PathLike = False) -> Self:
        """Learn from baskets.

        Parameters
        ----------
        X : Baskets, iterable of sets, sparse or dense matrix of zeros and ones
            Training baskets. Empty baskets count as well.
        y : ignored
            For compatibility with scikit-learn.
        validation : like X, optional
            Validation baskets; by default, a fraction ``validation_fraction`` of X.
        resume : bool or path
            Resume from this checkpoint. ``True`` means ``checkpoint``, if that file exists. The result is the same as
            that of an uninterrupted run.
        """
        baskets = read_baskets(self, X, reset=True)
        held_out = None if validation is None else read_baskets(self, validation, reset=False)
        settings, shape, source = self._settings(), self._shape(baskets), self._source(resume)
        self._check_device()
        made_with = self._made_with(baskets, held_out, shape, settings)
        saved = None if source is None else checkpoints.read(source)
        if source is not None and saved is not None:
            check_same(source, saved.record["made_with"], made_with)
        seed = _seed(self.random_state) if saved is None else int(saved.record["seed"])
        possible = self._possible(baskets, shape, "baskets")
        training, held_out = self._parts(possible, held_out, shape, np.random.default_rng([seed, 0]))
        about = (
            f"{type(self).__name__}, {self._described(shape)}: {len(training):,} baskets over {baskets.n_items:,} items"
        )
        say_line(f"{about}, and {len(held_out):,} to validate", self.progress)
        run = self._run(shape, settings, training, held_out, seed)
        if saved is not None:
            run.restore(saved)
        for line in estimates(run, self._narrower) if self.progress else ():
            say_line(line, self.progress)
        outcome = train(run, made_with=made_with, path=self.checkpoint, progress=self.progress)
        self.law_ = self._law(run.lead, outcome.parameters)
        self.history_, self.ended_ = outcome.history, outcome.ended
        self.n_iter_, self.n_dropped_ = len(outcome.history), len(baskets) - len(possible)
        self.baseline_score_ = float(independent_items(training).log_likelihoods(held_out).mean())
        return self

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log-probability of each basket, −inf for impossible ones, such as those larger than a kernel's rank."""
        check_is_fitted(self, "law_")
        return np.asarray(self.law_.log_probs(read_baskets(self, X, reset=False)))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-probability of the baskets."""
        return float(np.mean(self.score_samples(X)))

    def sample(
        self,
        n_samples: int = 1,
        *,
        size: int | None = None,
        given: Items = (),
        exclude: Items = (),
        rng: RngLike = None,
        n_jobs: int | None = None,
        progress: bool = False,
    ) -> Baskets:
        """Draw exact samples from the learned distribution; see :meth:`ndpp.LowRankKernel.sample`."""
        check_is_fitted(self, "law_")
        drawn: Baskets = self.law_.sample(
            n_samples, size=size, given=given, exclude=exclude, rng=rng, n_jobs=n_jobs, progress=progress
        )
        return drawn

    def recommend(self, basket: Items, n: int = 10, *, ranking: str = "continuation") -> Recommendation:
        """Return the ``n`` best items for a basket of ids or labels; see :func:`ndpp.recommend`."""
        check_is_fitted(self, "law_")
        return recommend(self.law_, basket, n=n, ranking=Ranking(ranking))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    def _settings(self) -> TrainingSettings:
        return TrainingSettings(
            gamma=0.0,
            learning_rate=number(self.learning_rate, "learning_rate", above_zero=True),
            batch_size=None if self.batch_size is None else check_count(self.batch_size, "batch_size", least=1),
            max_epochs=check_count(self.max_epochs, "max_epochs", least=1),
            patience=check_count(self.patience, "patience", least=1),
        )

    def _made_with(
        self, baskets: Baskets, held_out: Baskets | None, shape: Any, settings: TrainingSettings
    ) -> dict[str, Any]:
        """Return the settings that a resumed run must share with its checkpoint."""
        kept = {name: value for name, value in asdict(settings).items() if name != "max_epochs"}
        data = {
            "data": checkpoints.fingerprint(baskets),
            "validation": self.validation_fraction if held_out is None else checkpoints.fingerprint(held_out),
        }
        own = {"model": type(self).__name__} | self._own_settings(shape)
        return own | kept | data | {"dtype": str(self._dtype())}

    def _parts(
        self, baskets: Baskets, held_out: Baskets | None, shape: Any, rng: np.random.Generator
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
            raise InvalidInputError(f"dtype must be 'float32', 'float64' or None; got {self.dtype!r}")
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

    def _tensor(self, values: FloatArray | torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(values).to(self.device, self._dtype()).contiguous()

    def _source(self, resume: bool | PathLike) -> PathLike | None:
        """Return the checkpoint to resume from, or None to start afresh."""
        if not isinstance(resume, bool):
            return resume
        if resume and self.checkpoint is None:
            raise InvalidInputError("resume=True reads the file named by checkpoint=, which is None")
        return self.checkpoint if resume and Path(self.checkpoint or "").exists() else None


@estimator
class LowRankDPP(BasketModel):
    """Base class: a DPP with a low-rank kernel, learned from baskets. See :class:`NDPP` for the parameters."""

    rank: int | None = field(default=None, kw_only=False)
    alpha: float = 0.01
    noise: float = 0.7
    init: TrainingStart | None = None
    oversize: Literal["drop", "raise"] = "drop"

    @abstractmethod
    def _family(self) -> KernelFamily:
        """Return the family of kernels."""

    @abstractmethod
    def _penalties(self) -> tuple[float, float, float]:
        """Return α, β and γ."""

    @property
    def kernel_(self) -> LowRankKernel:
        """The learned kernel, which is also ``law_``."""
        check_is_fitted(self, "law_")
        kernel: LowRankKernel = self.law_
        return kernel

    def _shape(self, baskets: Baskets) -> int:
        least, most = self._family().ranks(baskets.n_items)
        if self.rank is not None:
            return check_count(self.rank, "rank", least=least, most=most)
        if most is not None and most < least:
            raise InvalidInputError(
                f"{type(self).__name__} needs a catalogue of at least {least} items; got {baskets.n_items} feature(s)"
            )
        return max(min(DEFAULT_RANK, baskets.n_items), least)

    def _settings(self) -> TrainingSettings:
        return replace(super()._settings(), gamma=self._penalties()[2])

    def _own_settings(self, shape: int) -> dict[str, Any]:
        alpha, beta, _ = self._penalties()
        own = {"rank": shape, "family": repr(self._family()), "init": repr(self._start())}
        return own | {"alpha": alpha, "beta": beta, "noise": self.noise}

    def _possible(self, baskets: Baskets, shape: int, what: str) -> Baskets:
        return keep_possible(baskets, shape, self.oversize, what)

    def _run(
        self, shape: int, settings: TrainingSettings, training: Baskets, held_out: Baskets, seed: int
    ) -> TrainingRun:
        problem, start = self._problem(training, shape, np.random.default_rng([seed, 1]))
        return TrainingRun(problem, settings, start, training, held_out, seed)

    def _described(self, shape: int) -> str:
        return f"rank {shape}"

    def _narrower(self, run: TrainingRun) -> tuple[int, TrainingRun, str] | None:
        full, rank = run.now.X.shape[1], max(run.now.X.shape[1] // 2, self._family().ranks(run.baskets.n_items)[0])
        baskets, held_out = (part.select(max_size=rank) for part in (run.baskets, run.validation))
        if rank >= full or not len(baskets) or not len(held_out):
            return None
        lost = len(run.baskets) - len(baskets)
        cost = f"it would drop {lost:,} of {len(run.baskets):,} baskets, which are larger" if lost else LESS
        return rank, self._run(rank, run.settings, baskets, held_out, run.seed), cost

    def _law(self, run: TrainingRun, parameters: Parameters) -> LowRankKernel:
        return _kernel(run.problem, parameters, self.labels_)

    def _start(self) -> TrainingStart:
        start = PopularityStart() if self.init is None else self.init
        if not isinstance(start, TrainingStart):
            raise InvalidInputError(f"init must be PopularityStart(), LiteratureStart() or None; got {start!r}")
        return start

    def _problem(self, baskets: Baskets, rank: int, rng: np.random.Generator) -> tuple[TrainingProblem, Parameters]:
        counts = np.bincount(baskets.indices, minlength=baskets.n_items).astype(float)
        scale, family = self._start().scale(counts, len(baskets)), self._family()
        start = self._start().parameters(rng, family, scale, rank, float(baskets.sizes.mean()))
        alpha, beta, _ = self._penalties()
        n_sym, n_skew = family.columns(rank)
        # Every count is raised by a half, as in the scales, so that the penalty of an item that never occurs is finite.
        penalties = np.outer(scale**2 / (counts + 0.5), np.repeat([alpha, beta], [n_sym, n_skew]))
        # Noise regularizes items with fewer occurrences than parameters; others do not need it.
        noise = number(self.noise, "noise") / (1 + (counts[:, None] / rank) ** 2)
        tensor = self._tensor
        likelihood = Likelihood(tensor(scale), n_sym)
        problem = TrainingProblem(family, likelihood, tensor(penalties), tensor(noise) if noise.any() else None)
        return problem, Parameters(tensor(start.X), tensor(start.skew))


def number(value: Any, name: str, *, most: float = np.inf, above_zero: bool = False) -> float:
    """Return ``value`` as a finite float in [0, most], or in (0, most] with ``above_zero``."""
    valid = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not valid or not (0 <= value <= most and np.isfinite(value)) or (above_zero and not value):
        bounds = "above 0" if above_zero else "at least 0" if most == np.inf else f"between 0 and {most:g}"
        raise InvalidInputError(f"must be a number, {bounds}; got {value!r}", argument=name)
    return float(value)


def _seed(random_state: Any) -> int:
    if isinstance(random_state, np.random.RandomState):  # scikit-learn passes these
        return int(random_state.randint(2**31))
    return int(np.random.default_rng(random_state).integers(2**62))


def _kernel(problem: TrainingProblem, parameters: Parameters, labels: tuple[str, ...] | None) -> LowRankKernel:
    """Return the learned kernel, with the family's constraints imposed in double precision."""
    exact = Parameters(*(tensor.detach().cpu().double() for tensor in parameters)).clone()
    scale, n_sym = problem.likelihood.scale.cpu().double(), problem.likelihood.n_sym
    problem.family.constrain(exact, scale, n_sym)
    return LowRankKernel(
        (exact.X * scale[:, None]).numpy(), inner_matrix(problem.family, exact.skew, n_sym), labels=labels
    )
