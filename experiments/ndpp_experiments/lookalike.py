"""Do sampled baskets look like real ones? A classifier two-sample test.

A classifier learns to tell real baskets from sampled ones by simple features. Its AUC on baskets that it has not seen is 0.5 if the
features have the same distribution, and 1 if every basket gives itself away [Lopez-Paz & Oquab, ICLR 2017]. The features of a basket are
its size, the log-frequencies of its items (mean, least, largest), and the log-lifts of its pairs (mean, least, largest, and the share of
pairs that never occur in the reference). Frequencies and lifts are those of reference baskets, such as the training baskets, so that
neither side has an advantage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import ndtri
from scipy.stats import rankdata

from ndpp._types import BoolArray, FloatArray, IntArray, RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, needing

FEATURES = (
    "size", "mean log-frequency", "least log-frequency", "largest log-frequency",
    "mean log-lift", "least log-lift", "largest log-lift", "pairs never seen",
)  # fmt: skip
PAIRS_AT_ONCE = 2_000_000
MISSING = -1000.0
"""What the trees see instead of NaN, below every feature."""


class FeatureAuc(NamedTuple):
    """How well one feature alone tells real from sampled baskets: 0.5 not at all, 1 perfectly, in either direction."""

    name: str
    auc: float


class ClassifierTest(NamedTuple):
    """AUC of a classifier between real and sampled baskets; 0.5 means that it cannot tell them apart.

    ``low`` and ``high`` are a confidence interval at ``level`` for the classifiers that were trained, and ``features`` the AUC of each
    feature alone, largest first.
    """

    auc: float
    low: float
    high: float
    level: float
    n_real: int
    n_sampled: int
    features: tuple[FeatureAuc, ...]

    def __str__(self) -> str:
        best = self.features[0]
        return (
            f"AUC {self.auc:.3f} ({self.level:.0%} interval {self.low:.3f} to {self.high:.3f}) between {self.n_real:,} real and "
            f"{self.n_sampled:,} sampled baskets; {best.name} alone: {best.auc:.3f}"
        )


def classifier_test(
    real: Baskets, sampled: Baskets, reference: Baskets, *, n_folds: int = 5, level: float = 0.95, rng: RngLike = None
) -> ClassifierTest:
    """Return how well gradient-boosted trees tell real from sampled baskets.

    Needs scikit-learn (``pip install 'ndpp[learn]'``).

    Parameters
    ----------
    real, sampled : Baskets
        The two samples. Real baskets that the model was not fitted on show how well it generalises.
    reference : Baskets
        Baskets that frequencies and lifts are computed from; none of ``real``.
    n_folds : int
        Every basket is scored by a classifier that was trained on the other folds.
    level : float
        Level of the interval, which is DeLong's.
    rng : anything ``numpy.random.default_rng`` takes
        Source of randomness: the folds.

    Examples
    --------
    >>> from ndpp.datasets import make_baskets
    >>> made = make_baskets(3000, rng=0)
    >>> reference, real = made.baskets[:2000], made.baskets[2000:]
    >>> print(classifier_test(real, made.kernel.sample(1000, rng=2), reference, rng=0))
    AUC 0... (95% interval 0.4... to 0.5...) between 1,000 real and 1,000 sampled baskets; least log-frequency alone: 0.5...
    """
    if not real.n_items == sampled.n_items == reference.n_items:
        raise InvalidInputError(
            f"the baskets must share one catalogue; they have {real.n_items}, {sampled.n_items} and {reference.n_items} items"
        )
    n_folds = check_count(n_folds, "n_folds", least=2)
    if not 0 < level < 1:
        raise InvalidInputError(f"level must lie between 0 and 1, such as 0.95; got {level}")
    if min(len(real), len(sampled)) < n_folds or not len(reference):
        raise InvalidInputError(
            f"expected reference baskets and at least n_folds={n_folds} of each kind; got {len(reference)} reference, "
            f"{len(real)} real and {len(sampled)} sampled baskets"
        )
    X = np.concatenate([basket_features(baskets, reference) for baskets in (real, sampled)])
    y = np.arange(len(X)) < len(real)
    scores = _out_of_fold(X, y, n_folds, np.random.default_rng(rng))
    real_wins, sampled_loses = _placements(scores, y)
    value = float(real_wins.mean())
    error = np.sqrt(real_wins.var(ddof=1) / len(real_wins) + sampled_loses.var(ddof=1) / len(sampled_loses))
    width = float(ndtri((1 + level) / 2) * error)
    alone = [FeatureAuc(name, _auc_alone(column, y)) for name, column in zip(FEATURES, X.T)]
    alone.sort(key=lambda feature: -feature.auc)
    return ClassifierTest(
        value, max(0.0, value - width), min(1.0, value + width), level, len(real), len(sampled), tuple(alone)
    )


def basket_features(baskets: Baskets, reference: Baskets) -> FloatArray:
    """Return the features of each basket, shape (len(baskets), 8), NaN where a basket has no item or no pair.

    Half an occurrence is added to every count, and half a pair to every number of pairs.
    """
    n = len(reference)
    counts = np.bincount(reference.indices, minlength=reference.n_items) + 0.5
    log_frequency = np.log(counts / (n + 1))
    matrix = reference.to_csr().astype(np.float64)
    together = sparse.csr_array(matrix.T @ matrix)
    out = np.full((len(baskets), len(FEATURES)), np.nan)
    out[:, 0] = baskets.sizes
    out[baskets.sizes > 0, 1:4] = _summaries(log_frequency[baskets.indices], baskets.sizes[baskets.sizes > 0])
    for chosen, first, second in _pairs(baskets):
        seen = np.asarray(together[first, second]).ravel()
        lift = np.log((seen + 0.5) / (n + 1)) - log_frequency[first] - log_frequency[second]
        n_pairs = baskets.sizes[chosen] * (baskets.sizes[chosen] - 1) // 2
        out[chosen, 4:7] = _summaries(lift, n_pairs)
        out[chosen, 7] = _summaries((seen == 0).astype(np.float64), n_pairs)[:, 0]
    return out


def _summaries(values: FloatArray, lengths: IntArray) -> FloatArray:
    """Return mean, minimum and maximum of consecutive parts of these lengths."""
    if not len(lengths):
        return np.empty((0, 3))
    starts = np.cumsum(lengths) - lengths
    parts = [ufunc.reduceat(values, starts) for ufunc in (np.add, np.minimum, np.maximum)]
    return np.stack([parts[0] / lengths, *parts[1:]], axis=1)


def _pairs(baskets: Baskets) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Yield the numbers of some baskets of one size, and the first and the second items of all their pairs."""
    for size in np.unique(baskets.sizes[baskets.sizes > 1]):
        numbers = np.flatnonzero(baskets.sizes == size)
        a, b = np.triu_indices(size, 1)
        step = max(1, PAIRS_AT_ONCE // len(a))
        for chosen in (numbers[i : i + step] for i in range(0, len(numbers), step)):
            items = baskets.indices[baskets.indptr[chosen][:, None] + np.arange(size)]
            yield chosen, items[:, a].ravel(), items[:, b].ravel()


def _out_of_fold(X: FloatArray, y: BoolArray, n_folds: int, rng: np.random.Generator) -> FloatArray:
    """Return for each basket the probability to be real, by a classifier of the other folds."""
    with needing("scikit-learn", "learn", "The classifier test"):
        from sklearn.ensemble import HistGradientBoostingClassifier
    fold, scores = np.empty(len(y), np.int64), np.empty(len(y))
    for kind in (y, ~y):
        fold[kind] = rng.permutation(np.arange(kind.sum()) % n_folds)
    X = np.where(np.isnan(X), MISSING, X)
    weight = np.where(y, 0.5 / y.mean(), 0.5 / (~y).mean())
    for i in range(n_folds):
        inside = fold == i
        model = HistGradientBoostingClassifier(random_state=0, max_iter=50, learning_rate=0.1, min_samples_leaf=20)
        model.fit(X[~inside], y[~inside], sample_weight=weight[~inside])
        scores[inside] = model.predict_proba(X[inside])[:, 1]
    return scores


def _placements(scores: FloatArray, y: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return for each real basket the share of sampled ones with a lower score, and for each sampled one that of higher real ones."""
    ranks, n_real, n_sampled = rankdata(scores), int(y.sum()), int((~y).sum())
    return (ranks[y] - rankdata(scores[y])) / n_sampled, 1 - (ranks[~y] - rankdata(scores[~y])) / n_real


def _auc_alone(values: FloatArray, y: BoolArray) -> float:
    known = ~np.isnan(values)
    if not (known & y).any() or not (known & ~y).any():
        return 0.5
    value = float(_placements(values[known], y[known])[0].mean())
    return max(value, 1 - value)
