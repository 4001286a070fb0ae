"""How probable baskets are: mean log-likelihood, the gain over another model, and AUC against random sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from ndpp._types import FloatArray, IntArray, RngLike
from ndpp.baskets import Baskets
from ndpp.metrics.estimates import Bootstrap, Estimate, mean_estimate
from ndpp.metrics.models import log_likelihoods

SETS_PER_BASKET, SET_ITEMS = 10, 20_000
"""Random sets for each basket; fewer, but at least one, where those of one size would hold more items than this."""


def mean_log_likelihood(
    kernel: Any, baskets: Baskets, *, level: float = 0.95, n_boot: int = 1000, rng: RngLike = None
) -> Estimate:
    """Return the mean log-probability of the baskets, in nats per basket.

    Baskets of probability zero, such as those larger than the rank of the kernel, would make it −∞; they are left out,
    and counted in ``n_zero``.

    Parameters
    ----------
    kernel : LowRankKernel, fitted estimator or baseline
        The model.
    baskets : Baskets
        Baskets that it was not fitted on.
    level, n_boot : float, int
        Of the bootstrap interval; ``n_boot=0`` for none.
    rng : anything ``numpy.random.default_rng`` takes
        For the bootstrap.

    Examples
    --------
    >>> from ndpp import LowRankKernel
    >>> kernel = LowRankKernel(np.eye(2), [[1.0, 1.0], [-1.0, 1.0]])  # weights 1, 1, 1, 2
    >>> print(mean_log_likelihood(kernel, Baskets.from_lists([[0, 1], [0]]), n_boot=0))
    log-likelihood -1.263 on 2 baskets
    """
    bootstrap = Bootstrap(level, n_boot, np.random.default_rng(rng)).checked()
    values = log_likelihoods(kernel, baskets)
    return _mean_of_possible("log-likelihood", values, baskets, bootstrap)


def log_likelihood_gain(
    kernel: Any, floor: Any, baskets: Baskets, *, level: float = 0.95, n_boot: int = 1000, rng: RngLike = None
) -> Estimate:
    """Return by how much ``kernel`` beats ``floor`` in mean log-likelihood, in nats per basket.

    The two are compared basket by basket, so that the interval is far narrower than that of either. Baskets to which
    either gives probability zero are left out, and counted in ``n_zero``. Parameters as in
    :func:`mean_log_likelihood`.
    """
    bootstrap = Bootstrap(level, n_boot, np.random.default_rng(rng)).checked()
    ours, theirs = log_likelihoods(kernel, baskets), log_likelihoods(floor, baskets)
    possible = (ours > -np.inf) & (theirs > -np.inf)
    values = np.where(possible, ours, -np.inf) - np.where(possible, theirs, 0.0)
    return _mean_of_possible("log-likelihood gain", values, baskets, bootstrap)


def auc(kernel: Any, baskets: Baskets, *, level: float = 0.95, n_boot: int = 1000, rng: RngLike = None) -> Estimate:
    """Return how often a basket is more probable than a uniform random set of the same size: 0.5 is blind, 1 at best.

    All baskets of a size are held against up to ten times as many random sets; ties count half. (Held against sets of
    all sizes, small baskets would win for being small.) Empty baskets do not count; those of probability zero do.
    Parameters as in :func:`mean_log_likelihood`; ``rng`` draws the random sets, too.

    Examples
    --------
    >>> from ndpp.datasets import make_baskets
    >>> made = make_baskets(500, rng=0)
    >>> print(auc(made.kernel, made.baskets, rng=0))
    AUC 0.7515 (95% interval 0.7307 to 0.7725) on 494 baskets
    """
    rng = np.random.default_rng(rng)
    bootstrap = Bootstrap(level, n_boot, rng).checked()
    baskets = baskets.select(min_size=1)
    sizes, counts = np.unique(baskets.sizes, return_counts=True)
    n_sets = np.maximum(np.minimum(SETS_PER_BASKET * counts, SET_ITEMS // np.maximum(sizes, 1)), counts)
    sets = random_sets(rng, np.repeat(sizes, n_sets), baskets.n_items)
    ours, theirs = log_likelihoods(kernel, baskets), log_likelihoods(kernel, sets)
    values = np.empty(len(baskets))
    for size in sizes:
        mine, others = baskets.sizes == size, np.sort(theirs[sets.sizes == size])
        ranks = [np.searchsorted(others, ours[mine], side=side) for side in ("left", "right")]
        values[mine] = np.mean(ranks, axis=0) / len(others)
    return mean_estimate("AUC", values, baskets.sizes, int(np.sum(ours == -np.inf)), bootstrap)


def random_sets(rng: np.random.Generator, sizes: IntArray, n_items: int) -> Baskets:
    """Return uniform random sets of these sizes, by Floyd's algorithm for all sets of a size at once."""
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


def _mean_of_possible(name: str, values: FloatArray, baskets: Baskets, bootstrap: Bootstrap) -> Estimate:
    possible = values > -np.inf
    return mean_estimate(name, values[possible], baskets.sizes[possible], int(np.sum(~possible)), bootstrap)
