"""The three models as estimators: NDPP, ONDPP and the symmetric low-rank DPP."""

from __future__ import annotations

from ndpp.learning.base import LowRankDPP, estimator, number
from ndpp.learning.models import Family, FreeSkew, NoSkew, OrthogonalPairs


@estimator
class NDPP(LowRankDPP):
    """A nonsymmetric DPP, L = VVᵀ + B(D − Dᵀ)Bᵀ with V, B and D all learned [Gartrell et al., ICLR 2021].

    The defaults are meant to work on new data untuned. An epoch is one pass over the baskets, or 50 steps if that is
    more.

    Parameters
    ----------
    rank : int, optional
        Columns of V and B together. No set larger than this can occur. By default the number of items, at most 200.
    skew_share : float
        Share of the columns that are B's. The literature's is a half; baskets hold items that go together more than
        items that replace each other, so more is better on most data.
    alpha, beta : float
        Weights of Σ ‖v_i‖²/μ_i and Σ ‖b_i‖²/μ_i, with μ_i the count of item i.
    noise : float
        Size of the Gaussian noise that each step adds to the rows of V and B, relative to theirs. It keeps the model
        from memorising the training baskets. For an item that occurs μ_i times it is divided by 1 + (μ_i/rank)²: with
        many more occurrences than parameters there is no need for it. 0 switches it off.
    init : PopularityStart or LiteratureStart, optional
        How rows are scaled and where training begins; ``PopularityStart()`` by default.
    learning_rate : float
        Of Adam.
    batch_size : int, optional
        Baskets per step. By default 100, or as many as make 200 steps of a pass over the baskets.
    max_epochs : int
        When to stop at the latest. In the second half of them the learning rate falls to a fortieth.
    patience : int
        Epochs without a better validation log-likelihood after which the learning rate drops. It drops three times;
        the fourth ends training.
    validation_fraction : float
        Part of the baskets that is set aside to judge on, 2,000 at most.
    oversize : {"drop", "raise"}
        What to do with baskets larger than the rank, whose probability is zero: drop them with a warning, or refuse.
    checkpoint : path, optional
        A file that receives the state of training after every epoch, for ``fit(..., resume=True)``.
    device : str
        "cpu" or "cuda".
    dtype : {"float32", "float64"}, optional
        Of the parameters; by default float64 on the CPU, float32 on a GPU. Determinants are always taken in float64.
    random_state : int, numpy.random.Generator, or RandomState, optional
        The seed.
    progress : bool
        Show a progress bar.

    Attributes
    ----------
    kernel_ : LowRankKernel
        The learned kernel.
    history_ : list of dict
        For each epoch: epoch, step, loss, validation (mean log-likelihood), learning_rate, seconds.
    ended_ : str
        Why training ended: "converged", "max_epochs" or "interrupted".
    n_iter_, n_features_in_, n_dropped_ : int
        Epochs, items, and baskets dropped for their size.
    labels_ : tuple of str or None
        Names of the items.

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

    def _family(self) -> Family:
        return FreeSkew(number(self.skew_share, "skew_share", most=1.0))

    def _penalties(self) -> tuple[float, float, float]:
        return number(self.alpha, "alpha"), number(self.beta, "beta"), 0.0


@estimator
class ONDPP(LowRankDPP):
    """An orthogonal NDPP: D block diagonal with σ_j > 0, BᵀB = I, VᵀB = 0 [Han et al., ICLR 2022].

    The exact rejection sampler then expects Π (1 + 2σ_j/(σ_j² + 1)) proposals, and ``gamma`` weighs the logarithm of
    that number: the larger it is, the faster that sampler. ``rank`` is at most the number of items, and ``skew_share``
    the literature's half: each further pair of skew columns costs that sampler proposals. The other parameters are
    those of :class:`NDPP`.

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

    def _family(self) -> Family:
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

    def _family(self) -> Family:
        return NoSkew()

    def _penalties(self) -> tuple[float, float, float]:
        return number(self.alpha, "alpha"), 0.0, 0.0
