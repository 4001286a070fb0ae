"""Kernels and baskets made up by known recipes, to try things out where the truth is known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ndpp._types import FloatArray, IntArray, RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel


class PlantedBaskets(NamedTuple):
    """Synthetic baskets, the kernel they were drawn from, and the pairs planted in it, each of shape (n_pairs, 2)."""

    baskets: Baskets
    kernel: LowRankKernel
    complements: IntArray
    substitutes: IntArray


def make_kernel(n_items: int, rank: int, *, rng: RngLike = None, dtype: Any = np.float64) -> LowRankKernel:
    """Return a random kernel by the recipe of [Han22], L = VVᵀ + B(D − Dᵀ)Bᵀ.

    V and B, of rank/2 columns each, have normal entries of variance 2/rank, D standard normal ones. (The paper writes
    N(0, √(2/d)); we read √(2/d) as the standard deviation, which keeps L_aa near 1 whatever the rank.) Where rank/2 is
    odd, D − Dᵀ is singular, and the kernel's rank is ``rank`` − 1. O(n_items · rank²).

    Parameters
    ----------
    n_items, rank : int
        Size of the catalogue, and d, an even number.
    rng : anything ``numpy.random.default_rng`` takes
        The source of randomness.
    dtype : numpy.float64 or numpy.float32
        Of X. Single precision halves the memory of a large catalogue.

    Examples
    --------
    >>> make_kernel(1000, 20, rng=0)
    LowRankKernel(n_items=1000, rank=20)
    """
    n_items, rank = check_count(n_items, "n_items", least=1), check_count(rank, "rank", least=2)
    if rank % 2:
        raise InvalidInputError(f"rank must be even, half of it for V and half for B; got {rank}")
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise InvalidInputError(f"dtype must be numpy.float32 or numpy.float64; got {dtype!r}")
    rng, half = np.random.default_rng(rng), rank // 2
    D = rng.standard_normal((half, half))
    W = np.zeros((rank, rank))
    W[:half, :half], W[half:, half:] = np.eye(half), D - D.T
    X = rng.standard_normal((n_items, rank), dtype=dtype)  # a row is [v_a, b_a]
    X *= np.sqrt(2 / rank)
    return LowRankKernel(X, W)


def make_baskets(
    n_baskets: int,
    n_items: int = 40,
    *,
    mean_size: float | None = None,
    n_pairs: int = 5,
    complement_lift: float = 3.0,
    substitute_lift: float = 0.2,
    rng: RngLike = None,
) -> PlantedBaskets:
    """Return baskets from a kernel in which some pairs of items are complements, some substitutes, others independent.

    Popularities differ by a factor of up to four. In a planted pair P(a, b) = lift · P(a) P(b), and pairs do not know
    of each other: L is block diagonal, with L_ab = −L_ba for complements and L_ab = L_ba for substitutes, and each
    block is drawn for all baskets at once. O(n_baskets · n_items).

    Parameters
    ----------
    n_baskets, n_items : int
        How many baskets, over how many items.
    mean_size : float, optional
        Expected number of items in a basket; a tenth of the catalogue by default.
    n_pairs : int
        How many pairs of complements, and as many of substitutes.
    complement_lift, substitute_lift : float
        How many times as likely an item is where its partner is in: above 1, and from 0 to below 1.
    rng : anything ``numpy.random.default_rng`` takes
        The source of randomness.

    Examples
    --------
    >>> made = make_baskets(1000, rng=0)
    >>> made.baskets
    <Baskets: 1000 baskets over 40 items, sizes 0 to 11, mean 4.04>
    >>> a, b = made.complements[0]
    >>> before, after = (made.kernel.inclusion_probabilities(given=given)[b] for given in ([], [a]))
    >>> round(float(after / before), 6)
    3.0
    """
    n_baskets, n_items = check_count(n_baskets, "n_baskets"), check_count(n_items, "n_items", least=1)
    n_pairs = check_count(n_pairs, "n_pairs", most=n_items // 4)
    if not 0 <= substitute_lift < 1 < complement_lift:
        raise InvalidInputError(
            "expected 0 ≤ substitute_lift < 1 < complement_lift; "
            f"got substitute_lift={substitute_lift}, complement_lift={complement_lift}"
        )
    rng, mean_size = np.random.default_rng(rng), n_items / 10 if mean_size is None else mean_size
    popularity = 4 ** rng.random(n_items)
    popularity *= mean_size / popularity.sum()
    if mean_size <= 0 or complement_lift * popularity.max() >= 1:
        raise InvalidInputError(
            f"mean_size must be positive and complement_lift · popularity below 1; with mean_size={mean_size} over "
            f"{n_items} items the most popular one has {popularity.max():.3g}, and complement_lift is "
            f"{complement_lift}. Take fewer items per basket, more items, or a smaller lift."
        )
    pairs = rng.permutation(n_items)[: 4 * n_pairs].reshape(2, n_pairs, 2)
    lifts = np.repeat([complement_lift, substitute_lift], n_pairs)
    cells = _pair_cells(popularity[pairs.reshape(-1, 2)], lifts)
    drawn = rng.random((n_baskets, n_items)) < popularity
    for (a, b), edges in zip(pairs.reshape(-1, 2), np.cumsum(cells, axis=1)):
        cell = np.searchsorted(edges[:3], rng.random(n_baskets), side="right")  # none, a, b, both
        drawn[:, a], drawn[:, b] = cell % 2 == 1, cell >= 2
    baskets = Baskets.from_csr(sparse.csr_array(drawn.astype(np.int8)))
    return PlantedBaskets(baskets, _pair_kernel(popularity, pairs, cells), pairs[0], pairs[1])


def _pair_cells(p: FloatArray, lifts: FloatArray) -> FloatArray:
    """Return the probabilities of none, a alone, b alone and both, a row for each pair."""
    both = lifts * p[:, 0] * p[:, 1]
    alone = p - both[:, None]
    return np.column_stack([1 - alone.sum(axis=1) - both, alone, both])


def _pair_kernel(popularity: FloatArray, pairs: IntArray, cells: FloatArray) -> LowRankKernel:
    """Return the kernel of these probabilities: L_aa = P(a alone)/P(none), and det L_ab = P(both)/P(none)."""
    L = np.diag(popularity / (1 - popularity))
    for (a, b), (none, a_alone, b_alone, both) in zip(pairs.reshape(-1, 2), cells):
        L[a, a], L[b, b] = a_alone / none, b_alone / none
        product = L[a, a] * L[b, b] - both / none  # L_ab · L_ba
        L[a, b], L[b, a] = np.sqrt(abs(product)), np.sign(product) * np.sqrt(abs(product))
    return LowRankKernel(np.eye(len(L)), L)
