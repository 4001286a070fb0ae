"""The models that metrics accept: kernels, mixtures, fitted estimators, and two simple baselines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from scipy import sparse

from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, PrecisionError
from ndpp.inference.scores import scores_or_nan
from ndpp.laws.law import Law

RARE_SIZE = 1e-12
"""Size distributions have an absolute error of about 1e-15; probabilities below this are computed to full relative accuracy."""


class Scorer(Protocol):
    """A model that is no law: it scores items, and may have ``log_likelihoods`` and ``log_size_probabilities``, too."""

    @property
    def n_items(self) -> int:
        """Number of items."""

    def scores(self, baskets: Baskets) -> FloatArray:
        """Return the score of each item, one row per basket."""


@dataclass(frozen=True, eq=False)
class IndependentItems:
    """Items occur independently, each with its own probability. Ranks items by popularity."""

    probabilities: FloatArray

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.probabilities)

    def log_likelihoods(self, baskets: Baskets) -> FloatArray:
        """Return the log-probability of each basket."""
        absent = np.log1p(-self.probabilities)
        return np.asarray(absent.sum() + baskets.to_csr() @ (np.log(self.probabilities) - absent))

    def log_size_probabilities(self, sizes: IntArray) -> FloatArray:
        """Return log P(|S| = size) of each size, to full relative accuracy. O(n · largest size)."""
        log_p = np.full(int(sizes.max(initial=0)) + 1, -np.inf)
        log_p[0] = 0.0
        for present, absent in zip(np.log(self.probabilities), np.log1p(-self.probabilities)):
            log_p[1:] = np.logaddexp(log_p[1:] + absent, log_p[:-1] + present)
            log_p[0] += absent
        return log_p[sizes]

    def scores(self, baskets: Baskets) -> FloatArray:
        """Return the popularity of each item, one row per basket."""
        return np.tile(self.probabilities, (len(baskets), 1))


@dataclass(frozen=True, eq=False)
class ItemWeights:
    """Scores an item by the sum of its weights from the items of the basket. Has no probabilities."""

    weights: FloatArray | sparse.csr_array

    @property
    def n_items(self) -> int:
        """Number of items."""
        return int(self.weights.shape[0])

    def scores(self, baskets: Baskets) -> FloatArray:
        """Return the score of each item, one row per basket."""
        found = baskets.to_csr().astype(np.float64) @ self.weights
        return np.asarray(found.toarray() if sparse.issparse(found) else found)


def independent_items(
    baskets: Baskets, *, smoothing: float = 0.5, weights: FloatArray | None = None
) -> IndependentItems:
    """Fit independent items to baskets: p = (count + s)/(n_baskets + 2s), where s is ``smoothing``.

    Baskets count as often as their ``weights`` say, by default once.

    Examples
    --------
    >>> baseline = independent_items(Baskets.from_lists([[0, 1], [0], [0]]))
    >>> baseline.probabilities
    array([0.875, 0.375])
    >>> baseline.log_likelihoods(Baskets.from_lists([[0]], n_items=2)).round(4)
    array([-0.6035])
    """
    if not smoothing > 0:
        raise InvalidInputError(f"smoothing must be positive, or unseen items would be impossible; got {smoothing}")
    total = len(baskets) if weights is None else float(weights.sum())
    return IndependentItems((occurrences(baskets, weights) + smoothing) / (total + 2 * smoothing))


def occurrences(baskets: Baskets, weights: FloatArray | None = None) -> FloatArray:
    """Return how often each item occurs in baskets, which count as often as their ``weights`` say."""
    each = None if weights is None else np.repeat(weights, baskets.sizes)
    return np.bincount(baskets.indices, each, baskets.n_items).astype(np.float64)


def independent_margins(kernel: Law) -> IndependentItems:
    """Return independent items with the kernel's inclusion probabilities: the kernel without its interactions.

    A baseline for when there are no training baskets. Probabilities are clipped to [1e-12, 1 − 1e-12].

    Examples
    --------
    >>> import ndpp
    >>> independent_margins(ndpp.LowRankKernel(np.eye(2), [[0.0, 1.0], [-1.0, 0.0]])).probabilities
    array([0.5, 0.5])
    """
    return IndependentItems(np.clip(kernel.inclusion_probabilities(), 1e-12, 1 - 1e-12))


def item_item_cosine(baskets: Baskets, *, shrinkage: float = 0.0) -> ItemWeights:
    """Fit cosine similarities to baskets: (baskets with both items) / √(baskets with one · baskets with the other).

    With ``shrinkage`` s they are multiplied by c/(c + s), where c is the number of baskets with both: pairs that are rarely seen count
    for less.

    Examples
    --------
    >>> model = item_item_cosine(Baskets.from_lists([[0, 1], [0], [1, 2], [1, 2]]))
    >>> model.scores(Baskets.from_lists([[2]], n_items=3)).round(4)
    array([[0.    , 0.8165, 0.    ]])
    """
    if not shrinkage >= 0:
        raise InvalidInputError(f"shrinkage must be at least zero; got {shrinkage}")
    similarity = cosines(baskets)
    if shrinkage:
        counts = occurrences(baskets)
        pairs = similarity.tocoo()
        both = pairs.data * np.sqrt(counts[pairs.row] * counts[pairs.col])
        similarity.data = similarity.data * both / (both + shrinkage)
    return ItemWeights(similarity)


def rp3beta(baskets: Baskets, *, alpha: float = 1.0, beta: float = 0.5) -> ItemWeights:
    """Fit RP³β to baskets: random walks from an item to a basket with it and on to an item there.

    The probabilities of both steps are raised to the power ``alpha``, so that large baskets and frequent items pass on less, and weights
    are divided by the frequency of the item they end at to the power ``beta`` [Paudel et al., ACM TiiS 2016].

    Examples
    --------
    >>> model = rp3beta(Baskets.from_lists([[0, 1], [0], [1, 2], [1, 2]]))
    >>> model.scores(Baskets.from_lists([[2]], n_items=3)).round(4)
    array([[0.    , 0.2887, 0.    ]])
    """
    counts, sizes = np.maximum(occurrences(baskets), 1.0), np.maximum(baskets.sizes, 1.0)
    matrix = baskets.to_csr().astype(np.float64)
    walked = matrix.T @ sparse.diags_array(sizes**-alpha) @ matrix
    weights = sparse.csr_array(sparse.diags_array(counts**-alpha) @ walked @ sparse.diags_array(counts**-beta))
    weights.setdiag(0.0)
    weights.eliminate_zeros()
    return ItemWeights(weights)


def cosines(baskets: Baskets, *, extra: float = 0.0, weights: FloatArray | None = None) -> sparse.csr_array:
    """Return the cosines of all pairs of items, with ``extra`` added to the counts of items, as a CSR array."""
    counts = occurrences(baskets, weights) + extra
    scaled = baskets.to_csr().astype(np.float64) @ sparse.diags_array(1 / np.sqrt(np.maximum(counts, 1)))
    if weights is not None:
        scaled = sparse.diags_array(np.sqrt(weights)) @ scaled
    similarity = sparse.csr_array(scaled.T @ scaled)
    similarity.setdiag(0.0)
    similarity.eliminate_zeros()
    return similarity


def log_likelihoods(kernel: object, baskets: Baskets) -> FloatArray:
    """Return the log-probability of each basket, −inf for impossible baskets.

    ``kernel`` is a :class:`ndpp.LowRankKernel`, a fitted estimator, or a model with a method ``log_likelihoods``. Baskets in context, as
    ``Orders.in_context`` returns them, are judged in it.
    """
    law, _ = _model(kernel, baskets)
    if law is not None:
        return np.asarray(law.log_probs(baskets, context=baskets.context))
    found = getattr(kernel, "log_likelihoods", None)
    if found is None:
        raise InvalidInputError(f"{type(kernel).__name__} ranks items but has no probabilities")
    return np.asarray(found(baskets), np.float64)


def log_size_probabilities(kernel: object, baskets: Baskets) -> FloatArray | None:
    """Return log P(|S| = k) for the size k of each basket; None if the model cannot say, or not precisely."""
    law, _ = _model(kernel, baskets)
    if law is None:
        found = getattr(kernel, "log_size_probabilities", None)
        return None if found is None else np.asarray(found(baskets.sizes), np.float64)
    out = np.full(len(baskets), -np.inf)
    if baskets.context:
        law.size_distribution()  # those of the components are kept for all contexts
    try:
        for own, which in _in_contexts(law, baskets):
            (sizes, where), chances = np.unique(baskets.sizes[which], return_inverse=True), own.size_distribution()
            log_p, total = np.full(len(sizes), -np.inf), own.log_normalizer()
            for i, size in enumerate(sizes[sizes <= own.max_size].tolist()):
                log_p[i] = np.log(chances[size]) if chances[size] > RARE_SIZE else own.log_normalizer(size) - total
            out[which] = log_p[where]
    except PrecisionError:
        return None
    return out


def _in_contexts(law: Law, baskets: Baskets) -> Iterator[tuple[Law, IntArray]]:
    """Yield the law in each context that some of the baskets are in, and their numbers."""
    known = {name: words for name, words in baskets.context.items() if name in law.context}
    if law.gate is None or not known or not len(baskets):
        yield law, np.arange(len(baskets))
        return
    _, first, which = np.unique(
        law.gate.rows(known, len(baskets), unknown="skip"), axis=1, return_index=True, return_inverse=True
    )
    for i, start in enumerate(first.tolist()):
        yield (
            law.at({name: words[start] for name, words in known.items()}, unknown="skip"),
            np.flatnonzero(which.ravel() == i),
        )


def has_probabilities(kernel: object) -> bool:
    """Return whether the model assigns probabilities to baskets."""
    return Law.of(kernel) is not None or getattr(kernel, "log_likelihoods", None) is not None


def scores(kernel: object, baskets: Baskets) -> FloatArray:
    """Return the score of each item as the next one of each basket, shape (len(baskets), n_items).

    For a kernel these are :func:`ndpp.next_item_scores`, or NaN for impossible baskets; other models have a method
    ``scores``.
    """
    law, scorer = _model(kernel, baskets)
    if scorer is not None:
        return np.asarray(scorer.scores(baskets), np.float64)
    out = np.empty((len(baskets), baskets.n_items))
    for own, which in _in_contexts(cast(Law, law), baskets):
        out[which] = scores_or_nan(own, baskets[which])
    return out


def _model(kernel: object, baskets: Baskets) -> tuple[Law | None, Scorer | None]:
    """Return the law of a kernel, mixture or fitted estimator, or else the model as a scorer; raise unless it matches the baskets."""
    law: Law | None = Law.of(kernel)
    scorer = cast(Scorer, kernel) if law is None and getattr(kernel, "scores", None) is not None else None
    model = law if scorer is None else scorer
    if model is None:
        raise InvalidInputError(
            f"expected a kernel, a fitted estimator or a baseline of ndpp.metrics; got {type(kernel).__name__}. "
            "An estimator must be fitted first."
        )
    if model.n_items != check_baskets(baskets).n_items:
        raise InvalidInputError(
            f"model and baskets must have the same items; the model has {model.n_items}, "
            f"the baskets have {baskets.n_items}. Create the baskets with n_items= or the model's labels."
        )
    return law, scorer


def check_baskets(baskets: object) -> Baskets:
    """Return the baskets; raise unless they are ``Baskets``."""
    if not isinstance(baskets, Baskets):
        raise InvalidInputError(
            f"expected Baskets; got {type(baskets).__name__}. Convert sets with `Baskets.from_lists(sets, n_items=…)`."
        )
    return baskets
