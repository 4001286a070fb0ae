"""Tests of whether two samplers draw from one distribution, or one sampler from that of its kernel.

They compare what a user would see: sizes, how often groups of items occur, and mean log det.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel

MIN_DRAWS = 20
"""With fewer draws, standard errors mean little."""
N_GROUPS, SIGMAS = 12, 4.0
"""Number of groups of items, and the limit for a single comparison, in standard errors."""
MAX_CLASSES, DRAWS_PER_CLASS = 6, 25
"""Maximum number of classes of sizes, and draws expected in each, enough for its share to be nearly normal."""


@dataclass(frozen=True, eq=False)
class Agreement:
    """Differences between two distributions in several statistics. ``str`` says in words whether they agree.

    ``z`` holds the differences in standard errors, ``names`` the statistics, ``n_draws`` the number of draws of each sample.
    """

    names: tuple[str, ...]
    z: FloatArray
    n_draws: tuple[int, ...]

    @property
    def limit(self) -> float:
        """Largest |z| allowed, which keeps the false-alarm rate of all comparisons at that of one at four standard errors."""
        return float(-ndtri(ndtr(-SIGMAS) / max(1, len(self.z))))

    @property
    def largest(self) -> float:
        """Largest |z|."""
        return float(np.abs(self.z).max(initial=0.0))

    @property
    def worst(self) -> str:
        """Name of the statistic with the largest |z|."""
        return self.names[int(np.argmax(np.abs(self.z)))]

    @property
    def agrees(self) -> bool:
        """Whether all differences are within the limit."""
        return self.largest <= self.limit

    def __str__(self) -> str:
        verdict = "No difference found" if self.agrees else "The distributions differ"
        return (
            f"{verdict}: the largest of {len(self.z)} differences is {self.largest:.1f} standard errors ({self.worst}); "
            f"the limit is {self.limit:.1f}, for {' and '.join(map(str, self.n_draws))} draws."
        )


def compare_samples(kernel: LowRankKernel, first: Baskets, second: Baskets) -> Agreement:
    """Compare two samples of independent draws: size distribution, items of each group, mean size and mean log det.

    The kernel defines log det, and groups of items with similar inclusion probabilities and equal shares of all items drawn. Draws of a
    walk must be far enough apart; see :func:`effective_sample_size`.

    Examples
    --------
    >>> import ndpp
    >>> from ndpp.datasets import make_kernel
    >>> kernel = make_kernel(30, 6, rng=0)
    >>> draws = ndpp.samplers.Cholesky.prepare(kernel).sample(200, rng=1).baskets
    >>> compare_samples(kernel, kernel.sample(200, rng=2), draws).agrees
    True
    """
    samples = (first, second)
    _check_samples(kernel, samples)
    groups, edges = _groups(kernel), _size_edges(kernel, samples)
    values = [np.column_stack([_statistics(baskets, groups, edges), kernel.log_dets(baskets)]) for baskets in samples]
    if not all(np.isfinite(sample).all() for sample in values):
        raise InvalidInputError("a basket has probability zero under the kernel, so it was drawn from another one")
    error = np.sqrt(sum(sample.var(axis=0, ddof=1) / len(sample) for sample in values))
    z = _in_errors(values[0].mean(axis=0) - values[1].mean(axis=0), error)
    return Agreement((*_names(groups, edges), "log det"), z, (len(first), len(second)))


def compare_with_law(kernel: LowRankKernel, baskets: Baskets, *, size: int | None = None) -> Agreement:
    """Compare independent draws with the closed forms of the kernel: size distribution, and items of each group.

    ``size`` is that of the sampler, None for sets of all sizes; the other parameters are those of
    :func:`compare_samples`.

    Examples
    --------
    >>> import ndpp
    >>> from ndpp.datasets import make_kernel
    >>> kernel = make_kernel(30, 6, rng=0)
    >>> compare_with_law(kernel, kernel.sample(200, size=3, rng=2), size=3).agrees
    True
    >>> print(compare_with_law(kernel, kernel.sample(200, size=3, rng=2)))
    The distributions differ: ...
    """
    _check_samples(kernel, (baskets,))
    if size is not None and np.any(baskets.sizes != size):
        raise InvalidInputError(f"expected sets of {size} items; one has {baskets.sizes[baskets.sizes != size][0]}")
    groups = _groups(kernel)
    edges = _size_edges(kernel, (baskets,)) if size is None else np.empty(0, np.int64)
    tails = np.cumsum(kernel.size_distribution()[::-1])[::-1][edges]
    items = np.bincount(groups, kernel.inclusion_probabilities(size=size), groups.max() + 1)
    expected = np.concatenate([tails, [items.sum()], items])
    values = _statistics(baskets, groups, edges)
    # The variance of an integer with mean m is at least frac(m)(1 − frac(m)), even if all draws of a sample are equal.
    least = expected % 1 * (1 - expected % 1)
    variance = np.maximum(values.var(axis=0, ddof=1), least)
    variance[: len(edges)] = least[: len(edges)]  # exact for indicators
    error = np.sqrt(variance / len(values))
    z = _in_errors(values.mean(axis=0) - expected, error)
    return Agreement(_names(groups, edges), z, (len(baskets),))


def _check_samples(kernel: LowRankKernel, samples: tuple[Baskets, ...]) -> None:
    for baskets in samples:
        if len(baskets) < MIN_DRAWS:
            raise InvalidInputError(f"{len(baskets)} draws are too few; draw at least {MIN_DRAWS}")
        if baskets.n_items != kernel.n_items:
            raise InvalidInputError(f"the baskets are over {baskets.n_items} items; the kernel has {kernel.n_items}")


def _groups(kernel: LowRankKernel) -> IntArray:
    """Return the group of each item: similar inclusion probabilities, equal shares of all items drawn."""
    inclusion = kernel.inclusion_probabilities()
    order = np.argsort(-inclusion, kind="stable")
    mass = np.cumsum(inclusion[order]) - inclusion[order] / 2
    groups = np.empty(kernel.n_items, np.int64)
    groups[order] = np.minimum((N_GROUPS * mass / (inclusion.sum() or 1.0)).astype(np.int64), N_GROUPS - 1)
    return np.unique(groups, return_inverse=True)[1]


def _size_edges(kernel: LowRankKernel, samples: tuple[Baskets, ...]) -> IntArray:
    """Return the smallest size of each class but the first: quantiles of the kernel's size distribution."""
    n_classes = max(1, min(MAX_CLASSES, min(map(len, samples)) // DRAWS_PER_CLASS))
    steps = np.cumsum(kernel.size_distribution())
    edges = np.unique(np.searchsorted(steps, np.arange(1, n_classes) / n_classes) + 1)
    return edges[edges < len(steps)]


def _statistics(baskets: Baskets, groups: IntArray, edges: IntArray) -> FloatArray:
    """Return, for each basket, whether its size reaches each edge, the size, and the number of items of each group."""
    sizes, n_groups = baskets.sizes, int(groups.max()) + 1
    owner = np.repeat(np.arange(len(baskets)), sizes)
    counts = np.bincount(owner * n_groups + groups[baskets.indices], minlength=len(baskets) * n_groups)
    return np.column_stack([sizes[:, None] >= edges, sizes, counts.reshape(-1, n_groups)]).astype(np.float64)


def _names(groups: IntArray, edges: IntArray) -> tuple[str, ...]:
    reached, members = (f"size ≥ {edge}" for edge in edges), (f"items of group {g}" for g in range(groups.max() + 1))
    return (*reached, "mean size", *members)


def _in_errors(difference: FloatArray, error: FloatArray) -> FloatArray:
    """Return differences in standard errors; rounding errors count as zero."""
    difference = np.where(np.abs(difference) < 1e-9, 0.0, difference)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(difference == 0, 0.0, difference / error)
