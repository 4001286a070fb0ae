"""Do two samplers draw from one law, or one sampler from its kernel's?

:func:`compare` and :func:`compare_with_law` look at what a user would see: the size, how often groups of items come, and
mean log det, in standard errors. :func:`energy_test` looks at whole sets, and is consistent against every difference
[Székely & Rizzo, J. Statistical Planning and Inference 143, 2013].
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from ndpp._types import FloatArray, IntArray, RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.diagnostics.functionals import log_dets
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel

PER_BIN = 25
"""Draws expected for each class of sizes, so that its share is nearly normal."""
MOST_BINS = 6
"""Classes of sizes, at most."""
LEAST_DRAWS = 20
"""Draws below which standard errors mean little."""


@dataclass(frozen=True, eq=False)
class Agreement:
    """Differences between two laws, in standard errors. ``str`` says in words whether they agree.

    Attributes
    ----------
    names : tuple of str
        What was compared.
    z : (n,) array
        Difference of the means over its standard error.
    sigmas : float
        What one comparison would be allowed.
    n_draws : tuple of int
        Sizes of the samples.
    """

    names: tuple[str, ...]
    z: FloatArray
    sigmas: float
    n_draws: tuple[int, ...]

    @property
    def limit(self) -> float:
        """Largest |z| allowed: all comparisons together raise a false alarm as seldom as one at ``sigmas``."""
        return float(-ndtri(ndtr(-self.sigmas) / max(1, len(self.z))))

    @property
    def worst(self) -> str:
        """Name of the largest |z|."""
        return self.names[int(np.argmax(np.abs(self.z)))]

    @property
    def agrees(self) -> bool:
        """Whether no difference is larger than chance allows."""
        return bool(np.abs(self.z).max(initial=0.0) <= self.limit)

    def __str__(self) -> str:
        verdict = "No difference was found" if self.agrees else "The laws differ"
        draws = " and ".join(map(str, self.n_draws))
        return (
            f"{verdict}: largest of {len(self.z)} differences {np.abs(self.z).max(initial=0.0):.1f} standard errors "
            f"({self.worst}), {self.limit:.1f} allowed, from {draws} draws."
        )


class EnergyTest(NamedTuple):
    """Energy distance between two samples, and how often relabelled draws are as far apart."""

    statistic: float
    p_value: float
    n_permutations: int


def compare(
    kernel: LowRankKernel, first: Baskets, second: Baskets, *, n_groups: int = 12, sigmas: float = 4.0
) -> Agreement:
    """Compare two samples of independent draws: shares of sizes, items of each group, mean size and mean log det.

    Parameters
    ----------
    kernel : LowRankKernel
        Gives log det, and the groups: items of like inclusion probability, with equal shares of all items drawn.
    first, second : Baskets
        Independent draws; those of a walk must be far enough apart, see :func:`effective_sample_size`.
    n_groups : int
        Groups of items.
    sigmas : float
        Standard errors that a single comparison would be allowed; widened for their number.

    Examples
    --------
    >>> import ndpp
    >>> from ndpp.datasets import make_kernel
    >>> kernel = make_kernel(30, 6, rng=0)
    >>> draws = ndpp.samplers.Cholesky.prepare(kernel).sample(200, rng=1).baskets
    >>> compare(kernel, kernel.sample(200, rng=2), draws, n_groups=5).agrees
    True
    """
    samples = (first, second)
    _check_samples(kernel, samples)
    groups, bins = _groups(kernel, n_groups), _size_bins(kernel, samples)
    features = [_features(baskets, groups, bins) for baskets in samples]
    names = (*_names(groups, bins), "log det")
    values = [np.column_stack([f, log_dets(kernel, baskets)]) for f, baskets in zip(features, samples)]
    for sample in values:
        if not np.isfinite(sample).all():
            raise InvalidInputError("a basket has probability zero under the kernel; the law it came from is another")
    error = np.sqrt(sum(sample.var(axis=0, ddof=1) / len(sample) for sample in values))
    z = _in_errors(values[0].mean(axis=0) - values[1].mean(axis=0), error)
    return Agreement(names, z, sigmas, (len(first), len(second)))


def compare_with_law(
    kernel: LowRankKernel, baskets: Baskets, *, size: int | None = None, n_groups: int = 12, sigmas: float = 4.0
) -> Agreement:
    """Compare independent draws with the closed forms of the kernel: shares of sizes and items of each group.

    Parameters as in :func:`compare`; ``size`` is that of the sampler, None if it draws sets of all sizes.

    Examples
    --------
    >>> import ndpp
    >>> from ndpp.datasets import make_kernel
    >>> kernel = make_kernel(30, 6, rng=0)
    >>> compare_with_law(kernel, kernel.sample(200, size=3, rng=2), size=3, n_groups=5).agrees
    True
    >>> print(compare_with_law(kernel, kernel.sample(200, size=3, rng=2), n_groups=5))
    The laws differ: ...
    """
    _check_samples(kernel, (baskets,))
    groups = _groups(kernel, n_groups)
    expected_items = np.bincount(groups, kernel.inclusion_probabilities(size=size), groups.max() + 1)
    bins = _size_bins(kernel, (baskets,)) if size is None else np.empty(0, np.int64)
    law = kernel.size_distribution()
    shares = np.bincount(np.searchsorted(bins, np.arange(len(law)), side="right"), law, len(bins) + 1)
    if size is not None and np.any(baskets.sizes != size):
        raise InvalidInputError(
            f"sets of {size} items were expected; some have {baskets.sizes[baskets.sizes != size][0]}"
        )
    expected = np.concatenate([shares if len(bins) else [], [expected_items.sum()], expected_items])
    values = _features(baskets, groups, bins)
    # A whole number whose mean is m varies by frac(m)(1 − frac(m)) at least, though all draws of a sample may show the same.
    least = expected % 1 * (1 - expected % 1)
    error = np.sqrt(np.maximum(values.var(axis=0, ddof=1), least) / len(values))
    if len(bins):  # the share of a class has a known error
        error[: len(shares)] = np.sqrt(shares * (1 - shares) / len(values))
    z = _in_errors(values.mean(axis=0) - expected, error)
    return Agreement(_names(groups, bins), z, sigmas, (len(baskets),))


def energy_test(first: Baskets, second: Baskets, *, n_permutations: int = 999, rng: RngLike = None) -> EnergyTest:
    """Test whether two samples of independent sets come from one law, by permutations of the energy distance.

    2·E|S − T| − E|S − S'| − E|T − T'|, where |S − T| = √|S △ T| and S, S' are of one sample, T, T' of the other: zero
    for equal laws and for no others. O((n₁ + n₂)²) memory.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(6), np.eye(6))
    >>> energy_test(kernel.sample(100, rng=0), kernel.sample(100, rng=1), rng=2).p_value > 0.01
    True
    >>> energy_test(kernel.sample(100, rng=0), kernel.sample(100, size=2, rng=1), rng=2).p_value
    0.001
    """
    n_permutations = check_count(n_permutations, "n_permutations", least=1)
    if min(len(first), len(second)) < 2 or first.n_items != second.n_items:
        raise InvalidInputError(
            "two samples of at least two sets each, over the same items, are needed; "
            f"got {len(first)} over {first.n_items} items and {len(second)} over {second.n_items}"
        )
    generator = np.random.default_rng(rng)
    sets = [basket for baskets in (first, second) for basket in baskets]
    rows = Baskets.from_lists(sets, n_items=first.n_items).to_csr().astype(np.float64)
    sizes = np.concatenate([first.sizes, second.sizes])
    distance = np.sqrt(np.maximum(sizes[:, None] + sizes - 2 * (rows @ rows.T).toarray(), 0.0))
    signs = np.concatenate([np.full(len(first), 1 / len(first)), np.full(len(second), -1 / len(second))])
    weights = np.column_stack([signs, *(generator.permutation(signs) for _ in range(n_permutations))])
    energy = -np.einsum("ij,ij->j", weights, distance @ weights)
    exceeded = int(np.count_nonzero(energy[1:] >= energy[0] * (1 - 1e-12)))
    return EnergyTest(float(energy[0]), (1 + exceeded) / (1 + n_permutations), n_permutations)


def _check_samples(kernel: LowRankKernel, samples: tuple[Baskets, ...]) -> None:
    for baskets in samples:
        if len(baskets) < LEAST_DRAWS:
            raise InvalidInputError(f"{len(baskets)} draws show nothing; draw at least {LEAST_DRAWS}")
        if baskets.n_items != kernel.n_items:
            raise InvalidInputError(f"the baskets are over {baskets.n_items} items; the kernel has {kernel.n_items}")


def _groups(kernel: LowRankKernel, n_groups: int) -> IntArray:
    """Return the group of each item: like inclusion probabilities together, equal shares of all items drawn."""
    n_groups = check_count(n_groups, "n_groups", least=1)
    inclusion = kernel.inclusion_probabilities()
    order = np.argsort(-inclusion, kind="stable")
    mass = np.cumsum(inclusion[order]) - inclusion[order] / 2
    groups = np.empty(kernel.n_items, np.int64)
    groups[order] = np.minimum((n_groups * mass / (inclusion.sum() or 1.0)).astype(np.int64), n_groups - 1)
    return np.unique(groups, return_inverse=True)[1]


def _size_bins(kernel: LowRankKernel, samples: tuple[Baskets, ...]) -> IntArray:
    """Return the least sizes of all classes but the first: quantiles of the kernel's law of sizes."""
    n_bins = min(MOST_BINS, min(map(len, samples)) // PER_BIN)
    steps = np.cumsum(kernel.size_distribution())
    return np.unique(np.searchsorted(steps, np.arange(1, n_bins) / max(n_bins, 1)) + 1)


def _features(baskets: Baskets, groups: IntArray, bins: IntArray) -> FloatArray:
    """Return, for each basket: whether its size is in each class, its size, its items of each group."""
    sizes, n_groups = baskets.sizes, int(groups.max()) + 1
    classes = (
        np.eye(len(bins) + 1)[np.searchsorted(bins, sizes, side="right")] if len(bins) else np.empty((len(sizes), 0))
    )
    owner = np.repeat(np.arange(len(baskets)), sizes)
    counts = np.bincount(owner * n_groups + groups[baskets.indices], minlength=len(baskets) * n_groups)
    return np.column_stack([classes, sizes, counts.reshape(-1, n_groups)])


def _names(groups: IntArray, bins: IntArray) -> tuple[str, ...]:
    edges = [0, *bins.tolist(), None]
    classes = [f"size {a}+" if b is None else f"size {a}–{b - 1}" for a, b in pairwise(edges)]
    return (*(classes if len(bins) else ()), "mean size", *(f"items of group {g}" for g in range(groups.max() + 1)))


def _in_errors(difference: FloatArray, error: FloatArray) -> FloatArray:
    """Return differences in standard errors, those that are rounding as zero."""
    difference = np.where(np.abs(difference) < 1e-9, 0.0, difference)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(difference == 0, 0.0, difference / error)
