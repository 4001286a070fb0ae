"""Diagnostics that the library has no use for: a test of whole sets, and small functions that it had under these names in 0.1.0.

:func:`energy_test` detects any difference of two distributions, given enough draws [Székely & Rizzo, J. Statistical Planning and
Inference 143, 2013]. ``ndpp.diagnostics`` finds them all here, with a DeprecationWarning.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import FloatArray, Items, RngLike
from ndpp._validation import check_count, check_items
from ndpp.baskets import Baskets
from ndpp.diagnostics.chains import Functionals, autocovariance
from ndpp.errors import InvalidInputError, needing
from ndpp.laws.kernel import LowRankKernel


class EnergyTest(NamedTuple):
    """Energy distance between two samples, and the share of permutations with at least this distance."""

    statistic: float
    p_value: float
    n_permutations: int


def energy_test(first: Baskets, second: Baskets, *, n_permutations: int = 999, rng: RngLike = None) -> EnergyTest:
    """Test whether two samples of independent sets have one distribution, by permutations of the energy distance.

    2·E|S − T| − E|S − S'| − E|T − T'|, where |S − T| = √|S △ T|, S and S' are from one sample, T and T' from the other.
    It is zero for equal distributions only. O((n₁ + n₂)²) memory.

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
            "expected two samples of at least two sets each, over the same items; "
            f"got {len(first)} over {first.n_items} items and {len(second)} over {second.n_items}"
        )
    generator = np.random.default_rng(rng)
    sets = [basket for baskets in (first, second) for basket in baskets]
    matrix = Baskets.from_lists(sets, n_items=first.n_items).to_csr().astype(np.float64)
    sizes = np.concatenate([first.sizes, second.sizes])
    distance = np.sqrt(np.maximum(sizes[:, None] + sizes - 2 * (matrix @ matrix.T).toarray(), 0.0))
    signs = np.concatenate([np.full(len(first), 1 / len(first)), np.full(len(second), -1 / len(second))])
    signs = np.column_stack([signs, *(generator.permutation(signs) for _ in range(n_permutations))])
    energy = -np.einsum("ij,ij->j", signs, distance @ signs)
    exceeded = int(np.count_nonzero(energy[1:] >= energy[0] * (1 - 1e-12)))
    return EnergyTest(float(energy[0]), (1 + exceeded) / (1 + n_permutations), n_permutations)


def autocorrelation(x: Any) -> FloatArray:
    """Return the autocorrelation of a series at lags 0..n−1, along the last axis. O(n log n).

    ρ_t = Σ_i (x_i − x̄)(x_{i+t} − x̄) / Σ_i (x_i − x̄)²; a constant series has ρ_t = 1.

    Examples
    --------
    >>> autocorrelation([1.0, -1.0, 1.0, -1.0])
    array([ 1.  , -0.75,  0.5 , -0.25])
    """
    covariance = autocovariance(np.asarray(x, np.float64))
    variance = covariance[..., :1]
    return np.divide(covariance, variance, out=np.ones_like(covariance), where=variance > 0)


def log_dets(kernel: LowRankKernel, baskets: Baskets) -> FloatArray:
    """Return log det L_S of each basket S, −inf for zero: log P(S) up to a constant. O(k²r + kr²) per basket.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(2), [[1.0, 2.0], [-2.0, 1.0]])
    >>> np.exp(log_dets(kernel, ndpp.Baskets.from_lists([[], [1], [0, 1]], n_items=2)))
    array([1., 1., 5.])
    """
    if baskets.n_items > kernel.n_items:
        raise InvalidInputError(f"the baskets are over {baskets.n_items} items; the kernel has {kernel.n_items}")
    return kernel.log_dets(baskets)


def item_indicators(baskets: Baskets, items: Items) -> FloatArray:
    """Return 1 where a basket contains an item and 0 elsewhere, shape (len(baskets), len(items)).

    Examples
    --------
    >>> import ndpp
    >>> item_indicators(ndpp.Baskets.from_lists([[0, 2], [1]]), [2, 1])
    array([[1., 0.], [0., 1.]])
    """
    columns = baskets.to_csr().tocsc()[:, check_items(items, baskets.n_items)]
    return np.asarray(columns.toarray(), np.float64)


def to_arviz(chains: Functionals) -> Any:
    """Return the values as the ``posterior`` group of an ArviZ data tree. Needs the package arviz-base.

    The functions of arviz-stats also take ``chains.values[:, :, j]``.
    """
    with needing("arviz-base", "diag", "Export to ArviZ"):
        arviz_base = importlib.import_module("arviz_base")
    return arviz_base.from_dict({"posterior": dict(zip(chains.names, np.moveaxis(chains.values, 2, 0)))})
