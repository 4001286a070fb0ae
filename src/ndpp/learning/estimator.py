"""The estimators of single kernels: NDPP, ONDPP and the symmetric low-rank DPP."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.learning.base import BasketModel, estimator, number
from ndpp.learning.contest import RandomStarts
from ndpp.learning.kernel_objective import KernelObjective
from ndpp.learning.models import (
    FreeSkew,
    KernelForm,
    NoSkew,
    OrthogonalPairs,
    Parameters,
    PopularityStart,
    TrainingStart,
)
from ndpp.learning.run import TrainingRun
from ndpp.learning.trainer import Objective, TrainingSettings

DEFAULT_RANK = 200


@estimator
class LowRankDPP(BasketModel[int, Parameters]):
    """Base class: a DPP with a low-rank kernel, learned from baskets. See :class:`NDPP` for the parameters."""

    rank: int | None = field(default=None, kw_only=False)
    alpha: float = 0.01
    noise: float = 0.7
    init: TrainingStart | None = None
    oversize: Literal["drop", "raise"] = "drop"
    n_restarts: int = 1

    _contest = RandomStarts

    @abstractmethod
    def _form(self) -> KernelForm:
        """Return the form of the kernel."""

    def _penalties(self) -> tuple[float, float, float]:
        """Return α, β and γ, of which those that the model does not have are zero."""
        alpha, beta, gamma = (number(getattr(self, name, 0.0), name) for name in ("alpha", "beta", "gamma"))
        return alpha, beta, gamma

    @property
    def kernel_(self) -> LowRankKernel:
        """The learned kernel, which is also ``law_``."""
        check_is_fitted(self, "law_")
        kernel: LowRankKernel = self.law_
        return kernel

    def _shape(self, baskets: Baskets) -> int:
        form = self._form()
        least, most = form.least_rank, baskets.n_items if form.is_orthogonal else None
        if self.rank is None and most is not None and most < least:
            raise InvalidInputError(
                f"{type(self).__name__} needs a catalogue of at least {least} items; got {baskets.n_items} feature(s)"
            )
        return self._count("rank", max(min(DEFAULT_RANK, baskets.n_items), least), least=least, most=most)

    def _own_settings(self, shape: int) -> dict[str, Any]:
        alpha, beta, gamma = self._penalties()
        own: dict[str, Any] = {"rank": shape, "family": repr(self._form()), "init": repr(self._start())}
        own |= {"n_restarts": self._restarts()} if self._restarts() > 1 else {}
        return own | {"alpha": alpha, "beta": beta, "noise": self.noise, "gamma": gamma}

    def _settings(self) -> TrainingSettings:
        return replace(super()._settings(), schedule=self._start().schedule)

    def _possible(self, baskets: Baskets, shape: int, what: str) -> Baskets:
        """Return the baskets of at most ``shape`` items; larger ones are dropped with a warning, or raise an error."""
        if self.oversize not in ("drop", "raise"):
            raise InvalidInputError(f"must be 'drop' or 'raise'; got {self.oversize!r}", argument="oversize")
        n_large = int(np.sum(baskets.sizes > shape))
        if not n_large:
            return baskets
        text = (
            f"{n_large} of {len(baskets)} {what} have more items than the rank of the kernel, {shape}, and so probability "
            f"zero; the largest has {baskets.sizes.max()}. "
        )
        if self.oversize == "raise":
            raise InvalidInputError(text + "Choose a larger rank, or oversize='drop'.")
        warnings.warn(text + "They were dropped; a larger rank would keep them.", stacklevel=2)
        return baskets.select(max_size=shape)

    def _described(self, shape: int) -> str:
        return f"rank {shape}"

    def _objectives(
        self, shape: int, training: Baskets, held_out: Baskets, run: TrainingRun
    ) -> Mapping[str, Objective[Parameters]]:
        settings = (*self._penalties(), number(self.noise, "noise"), self.device, self._dtype())
        n = self._restarts()
        parts = self._form(), self._start(), *settings, shape, training, held_out
        names = ["kernel"] if n == 1 else [f"start {i + 1}" for i in range(n)]
        return {name: KernelObjective(*parts, run.seed + i) for i, name in enumerate(names)}

    def _restarts(self) -> int:
        return check_count(self.n_restarts, "n_restarts", least=1)

    def _start(self) -> TrainingStart:
        start = PopularityStart() if self.init is None else self.init
        if not isinstance(start, TrainingStart):
            raise InvalidInputError(
                f"init must be PopularityStart(), LiteratureStart(), PublishedTraining() or None; got {start!r}"
            )
        return start


@estimator
class NDPP(LowRankDPP):
    """A nonsymmetric DPP, L = VVᵀ + B(D − Dᵀ)Bᵀ, with V, B and D learned [Gartrell et al., ICLR 2021].

    The defaults are meant to work on new data without tuning. An epoch is one pass over the baskets, or as many passes
    as make 50 steps.

    Parameters
    ----------
    rank : int, optional
        Number of columns of V and B together, and the largest size of a set. Default: the number of items, at most 200.
    skew_share : float
        Fraction of the columns that belong to B. The literature uses one half; on most data more is better, since
        baskets hold more items that go together than items that replace each other.
    alpha, beta : float
        Coefficients of the penalties Σ ‖v_i‖²/μ_i and Σ ‖b_i‖²/μ_i, where μ_i is the count of item i.
    noise : float
        Scale of the Gaussian noise that each step adds to the rows of V and B, relative to their RMS. It keeps the
        model from memorising the training baskets. For an item that occurs μ_i times it is divided by
        1 + (μ_i/rank)², since frequent items do not need it. 0 disables it.
    init : PopularityStart, LiteratureStart or PublishedTraining, optional
        The scaling of the rows, and the initial parameters; ``PopularityStart()`` by default. The last also trains as the published code.
    learning_rate : float
        Learning rate of Adam.
    batch_size : int, optional
        Baskets per step. By default 100, or more where a pass over the baskets would take more than 200 steps.
    max_epochs : int
        Maximum number of epochs; over the second half the learning rate decays to 1/40.
    minutes : float, optional
        Most minutes that training may take, from the call of ``fit`` on. In the second half of them the learning rate decays; then training
        ends with the best so far. The last steps, such as the normalisers of a mixture, are counted in as far as they can be foreseen.
    patience : int
        Epochs without a better validation log-likelihood before the learning rate drops. The fourth drop ends training.
    validation_fraction : float
        Fraction of the baskets set aside for validation, at most 2,000 baskets.
    n_restarts : int
        Number of random starts. With more than one, all are trained for three epochs, and the one with the best validation log-likelihood
        goes on. Where the rank is low, starts end in different optima; {doc}`fitting` has an example.
    oversize : {"drop", "raise"}
        Whether baskets larger than the rank, which have probability zero, are dropped with a warning or raise an error.
    checkpoint : path, optional
        File that stores the state of training from the beginning, and after every epoch, for ``fit(..., resume=True)``.
    device : str
        "cpu" or "cuda".
    dtype : {"float32", "float64"}, optional
        Type of the parameters. Default: float64 on the CPU, float32 on a GPU. Determinants always use float64.
    random_state : int, numpy.random.Generator, or RandomState, optional
        Seed.
    progress : bool or callable
        Say how long training takes at most, from some steps that are timed and undone, and show a progress bar. A function, such as
        ``print``, is called with a line of text per epoch instead.

    Attributes
    ----------
    kernel_ : LowRankKernel
        The learned kernel.
    history_ : list of dict
        For each epoch: epoch, step, loss, validation (mean log-likelihood), learning_rate, seconds.
    baseline_ : ndpp.metrics.IndependentItems
        Independent items with the frequencies of the training baskets.
    baseline_score_ : float
        Mean log-likelihood of the validation baskets under them.
    ended_ : str
        Why training ended: "converged", "max_epochs", "minutes" or "interrupted".
    validation_score_ : float
        Mean log-likelihood of the validation baskets under the learned distribution.
    reached_ : dict
        The best validation log-likelihood of each start, by name: of all but the best one, after the epochs that it was trained.
    n_iter_, n_features_in_, n_baskets_, n_dropped_ : int
        Number of epochs, of items, of baskets, and of baskets dropped because of their size.
    total_weight_ : float
        Sum of the weights of the baskets, their number without ``sample_weight``.
    labels_ : tuple of str or None
        Labels of the items.

    Examples
    --------
    >>> from ndpp import Baskets
    >>> baskets = Baskets.from_lists([["bread", "butter"], ["bread", "butter"], ["tea"], []] * 20)
    >>> model = NDPP(rank=3, max_epochs=5, random_state=0).fit(baskets)
    >>> model.recommend(["bread"], n=1).items  # butter
    array([1])
    >>> bool(model.score([["bread", "butter"]]) > model.score([["bread", "tea"]]))
    True
    """

    skew_share: float = 0.9
    beta: float = 0.01

    def _form(self) -> KernelForm:
        return FreeSkew(number(self.skew_share, "skew_share", most=1.0))


@estimator
class ONDPP(LowRankDPP):
    """An orthogonal NDPP: D block diagonal with σ_j > 0, BᵀB = I, VᵀB = 0 [Han et al., ICLR 2022].

    The rejection sampler then needs Π (1 + 2σ_j/(σ_j² + 1)) proposals per sample on average. ``gamma`` penalizes the
    logarithm of this number: larger values make that sampler faster. ``rank`` is at most the number of items.
    ``skew_share`` defaults to the literature's half, since every pair of skew columns costs proposals. The other
    parameters are those of :class:`NDPP`.

    Examples
    --------
    >>> from ndpp import Baskets
    >>> baskets = Baskets.from_lists([[0, 1], [0, 1], [2], [3]] * 20)
    >>> ONDPP(rank=4, gamma=0.1, max_epochs=3, random_state=0).fit(baskets).kernel_.X.shape
    (4, 4)
    """

    skew_share: float = 0.5
    beta: float = 0.01
    gamma: float = 0.0

    def _form(self) -> KernelForm:
        return OrthogonalPairs(number(self.skew_share, "skew_share", most=1.0))


@estimator
class SymmetricDPP(LowRankDPP):
    """A symmetric low-rank DPP, L = VVᵀ: items only repel each other [Gartrell, Paquet & Koenigstein, AAAI 2017].

    The parameters are those of :class:`NDPP`, without ``skew_share`` and ``beta``.

    Examples
    --------
    >>> from ndpp import Baskets
    >>> baskets = Baskets.from_lists([[0, 2], [1, 2], [0], [1]] * 20)
    >>> model = SymmetricDPP(rank=3, max_epochs=5, random_state=0).fit(baskets)
    >>> bool(model.score([[0, 2]]) > model.score([[0, 1]]))
    True
    """

    def _form(self) -> KernelForm:
        return NoSkew()
