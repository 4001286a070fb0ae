"""A test of whole sets: it detects any difference of two distributions, given enough draws.

[Székely & Rizzo, J. Statistical Planning and Inference 143, 2013]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpp._types import RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError


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
