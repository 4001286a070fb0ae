"""What the estimators share, in the manner of scikit-learn: constructors only store, what is learned ends in ``_``."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted

from ndpp._json import check_same
from ndpp._types import FloatArray, Items, RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.inference import Recommendation, recommend
from ndpp.laws.batched import log_dets
from ndpp.laws.kernel import LowRankKernel
from ndpp.learning import checkpoint as checkpoints
from ndpp.learning.data import keep_possible, read_baskets, set_aside
from ndpp.learning.fit import Run, train
from ndpp.learning.loss import Problem, Settings
from ndpp.learning.models import Family, Parameters, PopularityStart, Start, inner_matrix
from ndpp.learning.objective import Likelihood

DEFAULT_RANK = 200
PathLike = str | os.PathLike[str]


estimator = dataclass(kw_only=True, eq=False, repr=False)
"""Writes the constructor, which only stores: scikit-learn reads the parameters from its signature."""


@estimator
class BasketModel(DensityMixin, BaseEstimator):
    """A distribution over baskets, learned from them. See :class:`NDPP` for the parameters."""

    learning_rate: float = 0.02
    batch_size: int | None = None
    max_epochs: int = 100
    patience: int = 2
    validation_fraction: float = 0.1
    checkpoint: PathLike | None = None
    device: str = "cpu"
    dtype: str | None = None
    random_state: Any = None
    progress: bool = False

    @abstractmethod
    def _shape(self, baskets: Baskets) -> Any:
        """Return how large the parameters are, checked."""

    @abstractmethod
    def _own(self, shape: Any) -> dict[str, Any]:
        """Return the parameters of this model that decide what is learned."""

    @abstractmethod
    def _run(self, shape: Any, settings: Settings, fitted: Baskets, judged: Baskets, seed: int) -> Run:
        """Return training at its start."""

    @abstractmethod
    def _law(self, run: Any, parameters: Any) -> Any:
        """Return the learned distribution."""

    @abstractmethod
    def _log_probs(self, baskets: Baskets) -> FloatArray:
        """Return the log-probability of each basket."""

    def _possible(self, baskets: Baskets, shape: Any, what: str) -> Baskets:
        """Return the baskets that can have a probability above zero."""
        return baskets

    def fit(self, X: Any, y: Any = None, *, validation: Any = None, resume: bool | PathLike = False) -> Self:
        """Learn from baskets.

        Parameters
        ----------
        X : Baskets, iterable of sets, sparse or dense matrix of zeros and ones
            The baskets. Empty ones are sets like any other.
        y : ignored
            Here for scikit-learn's sake.
        validation : like X, optional
            Baskets to judge on; without it, ``validation_fraction`` of X is set aside.
        resume : bool or path
            Continue from a checkpoint, ``True`` meaning ``checkpoint`` if that file exists, to the same result as if
            training had never stopped.
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
        fitted, judged = self._parts(possible, held_out, shape, np.random.default_rng([seed, 0]))
        run = self._run(shape, settings, fitted, judged, seed)
        outcome = train(run, made_with=made_with, path=self.checkpoint, resume=saved, progress=self.progress)
        self.law_ = self._law(run, outcome.parameters)
        self.history_, self.ended_ = outcome.history, outcome.ended
        self.n_iter_, self.n_dropped_ = len(outcome.history), len(baskets) - len(possible)
        return self

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log-probability of each basket; −inf where it is zero."""
        check_is_fitted(self, "law_")
        return self._log_probs(read_baskets(self, X, reset=False))

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
        """Draw exact samples from what was learned; see :meth:`ndpp.LowRankKernel.sample`."""
        check_is_fitted(self, "law_")
        return self.law_.sample(
            n_samples, size=size, given=given, exclude=exclude, rng=rng, n_jobs=n_jobs, progress=progress
        )

    def recommend(self, basket: Any, n: int = 10) -> Recommendation:
        """Return the ``n`` items that go best with a basket of ids or labels; see :func:`ndpp.inference.recommend`."""
        check_is_fitted(self, "law_")
        items = list(basket)
        if items and all(isinstance(item, str) for item in items):
            items = self.law_.ids(items).tolist()
        return recommend(self.law_, items, n=n)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    # -- what fit needs ------------------------------------------------------------------------------------------------

    def _settings(self) -> Settings:
        return Settings(
            learning_rate=number(self.learning_rate, "learning_rate", above_zero=True),
            batch_size=None if self.batch_size is None else check_count(self.batch_size, "batch_size", least=1),
            max_epochs=check_count(self.max_epochs, "max_epochs", least=1),
            patience=check_count(self.patience, "patience", least=1),
        )

    def _made_with(self, baskets: Baskets, held_out: Baskets | None, shape: Any, settings: Settings) -> dict[str, Any]:
        """Return what must be the same for a checkpoint to be continued to the same result."""
        kept = {name: value for name, value in asdict(settings).items() if name != "max_epochs"}
        data = {
            "data": checkpoints.fingerprint(baskets),
            "validation": self.validation_fraction if held_out is None else checkpoints.fingerprint(held_out),
        }
        return {"model": type(self).__name__} | self._own(shape) | kept | data | {"dtype": str(self._dtype())}

    def _parts(
        self, baskets: Baskets, held_out: Baskets | None, shape: Any, rng: np.random.Generator
    ) -> tuple[Baskets, Baskets]:
        """Return the baskets to fit and those to judge on."""
        if not baskets.sizes.any():
            raise InvalidInputError("there is nothing to learn from: no basket with at least one item was given")
        if held_out is None:
            return set_aside(baskets, number(self.validation_fraction, "validation_fraction", most=0.9), rng)
        judged = self._possible(held_out, shape, "validation baskets")
        if not len(judged):
            raise InvalidInputError("there is nothing to judge on: no validation basket is left")
        return baskets, judged

    def _dtype(self) -> torch.dtype:
        names = {None: "float64" if self.device == "cpu" else "float32", "float32": "float32", "float64": "float64"}
        if self.dtype not in names:
            raise InvalidInputError(f"dtype must be 'float32', 'float64' or None; got {self.dtype!r}")
        return getattr(torch, names[self.dtype])

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

    def _tensor(self, array: FloatArray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device, self._dtype()).contiguous()

    def _source(self, resume: bool | PathLike) -> PathLike | None:
        """Return the checkpoint to continue from, None to begin anew."""
        if resume is False:
            return None
        if resume is not True:
            return resume
        if self.checkpoint is None:
            raise InvalidInputError("resume=True continues from the file that checkpoint= names, and it names none")
        return self.checkpoint if Path(self.checkpoint).exists() else None


@estimator
class LowRankDPP(BasketModel):
    """A DPP with a low-rank kernel, learned from baskets. See :class:`NDPP` for the parameters."""

    rank: int | None = field(default=None, kw_only=False)
    alpha: float = 0.01
    noise: float = 0.7
    init: Start | None = None
    oversize: Literal["drop", "raise"] = "drop"

    @abstractmethod
    def _family(self) -> Family:
        """Return the family of kernels."""

    @abstractmethod
    def _penalties(self) -> tuple[float, float, float]:
        """Return α, β and γ."""

    @property
    def kernel_(self) -> LowRankKernel:
        """The learned kernel."""
        check_is_fitted(self, "law_")
        return self.law_

    def _shape(self, baskets: Baskets) -> int:
        least, most = self._family().ranks(baskets.n_items)
        if self.rank is not None:
            return check_count(self.rank, "rank", least=least, most=most)
        if most is not None and most < least:
            raise InvalidInputError(
                f"{type(self).__name__} needs a catalogue of at least {least} items; got {baskets.n_items} feature(s)"
            )
        return max(min(DEFAULT_RANK, baskets.n_items), least)

    def _own(self, shape: int) -> dict[str, Any]:
        own = {"rank": shape, "family": repr(self._family()), "init": repr(self._start()), "noise": self.noise}
        return own | dict(zip(("alpha", "beta", "gamma"), self._penalties()))

    def _possible(self, baskets: Baskets, shape: int, what: str) -> Baskets:
        return keep_possible(baskets, shape, self.oversize, what)

    def _run(self, shape: int, settings: Settings, fitted: Baskets, judged: Baskets, seed: int) -> Run:
        problem, start = self._problem(fitted, shape, np.random.default_rng([seed, 1]))
        return Run(problem, settings, start, fitted, judged, seed)

    def _log_probs(self, baskets: Baskets) -> FloatArray:
        return log_dets(self.kernel_, baskets) - self.kernel_.log_normalizer()

    def _law(self, run: Run, parameters: Parameters) -> LowRankKernel:
        return _kernel(run.problem, parameters, self.labels_)

    def _start(self) -> Start:
        start = PopularityStart() if self.init is None else self.init
        if not isinstance(start, Start):
            raise InvalidInputError(f"init must be PopularityStart(), LiteratureStart() or None; got {start!r}")
        return start

    def _problem(self, baskets: Baskets, rank: int, rng: np.random.Generator) -> tuple[Problem, Parameters]:
        counts = np.bincount(baskets.indices, minlength=baskets.n_items).astype(float)
        scale, family = self._start().scale(counts, len(baskets)), self._family()
        X, skew = self._start().parameters(rng, family, scale, rank, float(baskets.sizes.mean()))
        alpha, beta, gamma = self._penalties()
        n_sym, n_skew = family.columns(rank)
        # Half a count for every item, as in the scales: an item that never occurs has no weight of its own.
        weights = np.outer(scale**2 / (counts + 0.5), np.repeat([alpha, beta], [n_sym, n_skew]))

        # Noise is for items with fewer occurrences than parameters; with many it would only blur what they say.
        noise = number(self.noise, "noise") / (1 + (counts[:, None] / rank) ** 2)
        tensor = self._tensor
        problem = Problem(
            family, Likelihood(tensor(scale), n_sym), tensor(weights), tensor(noise) if noise.any() else None, gamma
        )
        return problem, Parameters(tensor(X), tensor(skew))


def number(value: Any, name: str, *, most: float = np.inf, above_zero: bool = False) -> float:
    """Return ``value`` as a finite float in 0..most, zero itself being left out where it makes no sense."""
    valid = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not valid or not (0 <= value <= most and np.isfinite(value)) or (above_zero and not value):
        bounds = "above 0" if above_zero else "at least 0" if most == np.inf else f"between 0 and {most:g}"
        raise InvalidInputError(f"must be a number, {bounds}; got {value!r}", argument=name)
    return float(value)


def _seed(random_state: Any) -> int:
    if isinstance(random_state, np.random.RandomState):  # scikit-learn hands these out
        return int(random_state.randint(2**31))
    return int(np.random.default_rng(random_state).integers(2**62))


def _kernel(problem: Problem, parameters: Parameters, labels: tuple[str, ...] | None) -> LowRankKernel:
    """Return the learned kernel in double precision, in which the family's constraints then hold."""
    exact = Parameters(*(tensor.detach().cpu().double() for tensor in parameters)).clone()
    scale, n_sym = problem.likelihood.scale.cpu().double(), problem.likelihood.n_sym
    problem.family.constrain(exact, scale, n_sym)
    return LowRankKernel(
        (exact.X * scale[:, None]).numpy(), inner_matrix(problem.family, exact.skew, n_sym), labels=labels
    )
