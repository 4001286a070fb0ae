"""The estimators: NDPP, ONDPP and the symmetric low-rank DPP."""

from __future__ import annotations

from ndpp.learning.base import LowRankDPP, estimator, number
from ndpp.learning.models import FreeSkew, KernelFamily, NoSkew, OrthogonalPairs


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
    init : PopularityStart or LiteratureStart, optional
        The scaling of the rows, and the initial parameters; ``PopularityStart()`` by default.
    learning_rate : float
        Learning rate of Adam.
    batch_size : int, optional
        Baskets per step. By default 100, or more where a pass over the baskets would take more than 200 steps.
    max_epochs : int
        Maximum number of epochs; over the second half the learning rate decays to 1/40.
    patience : int
        Epochs without a better validation log-likelihood before the learning rate drops. The fourth drop ends training.
    validation_fraction : float
        Fraction of the baskets set aside for validation, at most 2,000 baskets.
    oversize : {"drop", "raise"}
        Whether baskets larger than the rank, which have probability zero, are dropped with a warning or raise an error.
    checkpoint : path, optional
        File that stores the state of training after every epoch, for ``fit(..., resume=True)``.
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
    baseline_score_ : float
        Mean log-likelihood of the validation baskets under independent items with the frequencies of the training baskets.
    ended_ : str
        Why training ended: "converged", "max_epochs" or "interrupted".
    n_iter_, n_features_in_, n_dropped_ : int
        Number of epochs, of items, and of baskets dropped because of their size.
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

    def _family(self) -> KernelFamily:
        return FreeSkew(number(self.skew_share, "skew_share", most=1.0))

    def _penalties(self) -> tuple[float, float, float]:
        return number(self.alpha, "alpha"), number(self.beta, "beta"), 0.0


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

    def _family(self) -> KernelFamily:
        return OrthogonalPairs(number(self.skew_share, "skew_share", most=1.0))

    def _penalties(self) -> tuple[float, float, float]:
        return number(self.alpha, "alpha"), number(self.beta, "beta"), number(self.gamma, "gamma")


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

    def _family(self) -> KernelFamily:
        return NoSkew()

    def _penalties(self) -> tuple[float, float, float]:
        return number(self.alpha, "alpha"), 0.0, 0.0
