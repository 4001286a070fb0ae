"""How probable baskets are: mean log-likelihood, the gain over another model, and AUC against random sets."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from ndpp._types import IntArray
from ndpp.baskets import Baskets
from ndpp.baskets.orders import Orders
from ndpp.metrics.estimates import Bootstrap, Metric, PerBasket, Resampling, difference, mean_estimate, mean_estimates
from ndpp.metrics.models import log_likelihoods

SETS_PER_BASKET, SET_ITEMS = 10, 20_000
"""Random sets per basket: ten, or fewer (at least one) if all sets of one size would hold more than SET_ITEMS items."""


def mean_log_likelihood(kernel: object, baskets: Baskets, **options: Unpack[Resampling]) -> Metric:
    """Return the mean log-probability of the baskets, in nats per basket.

    Baskets of probability zero, such as those larger than the rank of the kernel, are excluded and counted in
    ``n_zero``.

    ``kernel`` is a law, a fitted estimator or a baseline, ``baskets`` are some that it was not fitted on. The bootstrap interval has the
    ``level`` 0.95 by default, from ``n_boot`` = 1000 resamples; 0 for no interval. ``rng`` is the source of randomness.

    Examples
    --------
    >>> from ndpp import LowRankKernel
    >>> kernel = LowRankKernel(np.eye(2), [[1.0, 1.0], [-1.0, 1.0]])  # minors 1, 1, 1, 2
    >>> print(mean_log_likelihood(kernel, Baskets.from_lists([[0, 1], [0]]), n_boot=0))
    log-likelihood -1.263 on 2 baskets
    """
    return mean_estimate("log-likelihood", log_likelihoods(kernel, baskets), Bootstrap(**options))


def log_likelihood_gain(kernel: object, baseline: object, baskets: Baskets, **options: Unpack[Resampling]) -> Metric:
    """Return the mean log-likelihood of ``kernel`` minus that of ``baseline``, in nats per basket.

    The difference is taken basket by basket, so the interval is much narrower than that of either model. Baskets of
    probability zero under either model are excluded and counted in ``n_zero``. Parameters as in
    :func:`mean_log_likelihood`.
    """
    values = difference(log_likelihoods(kernel, baskets), log_likelihoods(baseline, baskets))
    return mean_estimate("log-likelihood gain", values, Bootstrap(**options))


def auc(kernel: object, baskets: Baskets, **options: Unpack[Resampling]) -> Metric:
    """Return the probability that a basket is more probable than a uniform random set of its size; 0.5 is chance.

    The baskets of each size are compared with up to ten times as many random sets, in their contexts; ties count half. (Among sets of all
    sizes, small baskets would win because they are small.) Empty baskets are excluded, baskets of probability zero are
    not. Parameters as in :func:`mean_log_likelihood`; ``rng`` also draws the random sets.

    Examples
    --------
    >>> from ndpp.datasets import make_baskets
    >>> made = make_baskets(500, rng=0)
    >>> print(auc(made.kernel, made.baskets, rng=0))
    AUC 0.7515 (95% interval 0.7307 to 0.7725) on 494 baskets
    """
    bootstrap, baskets = Bootstrap(**options), baskets.select(min_size=1)
    sizes, counts = np.unique(baskets.sizes, return_counts=True)
    n_sets = np.maximum(np.minimum(SETS_PER_BASKET * counts, SET_ITEMS // np.maximum(sizes, 1)), counts)
    sets = random_sets(bootstrap.generator, np.repeat(sizes, n_sets), baskets.n_items)
    # Sets are in the contexts of the baskets of their size.
    like = [np.resize(np.flatnonzero(baskets.sizes == size), n) for size, n in zip(sizes, n_sets)]
    of = np.concatenate([np.zeros(0, np.int64), *like])
    sets = Orders(sets, context={name: words[of] for name, words in baskets.context.items()})
    ours, theirs = log_likelihoods(kernel, baskets), log_likelihoods(kernel, sets)
    values = np.empty(len(baskets))
    for size in sizes:
        mine, others = baskets.sizes == size, np.sort(theirs[sets.sizes == size])
        ranks = [np.searchsorted(others, ours[mine], side=side) for side in ("left", "right")]
        values[mine] = np.mean(ranks, axis=0) / len(others)
    (found,) = mean_estimates([PerBasket("AUC", values, int(np.sum(ours == -np.inf)))], bootstrap)
    return found


def random_sets(rng: np.random.Generator, sizes: IntArray, n_items: int) -> Baskets:
    """Return uniform random sets of these sizes; Floyd's algorithm, vectorized over the sets of each size."""
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    indices = np.empty(indptr[-1], np.int64)
    for size in np.unique(sizes):
        starts = indptr[:-1][sizes == size]
        chosen = np.empty((len(starts), size), np.int64)
        for j, largest in enumerate(range(n_items - size, n_items)):
            drawn = rng.integers(largest + 1, size=len(starts))
            known = (chosen[:, :j] == drawn[:, None]).any(axis=1)
            chosen[:, j] = np.where(known, largest, drawn)
        indices[starts[:, None] + np.arange(size)] = np.sort(chosen, axis=1)
    return Baskets(indptr, indices, n_items)
