"""Synthetic kernels and baskets, for experiments with a known truth."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ndpp._types import FloatArray, IntArray, RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel

SHELF = {
    "starch": ("pasta", "rice", "noodles"),
    "sauce": ("tomato sauce", "pesto", "curry paste"),
    "bread": ("bread", "rolls"),
    "spread": ("butter", "jam"),
    "drink": ("coffee", "tea"),
}
GO_TOGETHER = {("starch", "sauce"): 0.8, ("bread", "spread"): 1.0}
POPULARITY = (0.9, 0.7, 0.5, 0.8, 0.5, 0.4, 1.0, 0.5, 0.9, 0.5, 1.0, 0.7)


class PlantedBaskets(NamedTuple):
    """Synthetic baskets, the kernel they were drawn from, and the pairs planted in it, of shape (n_pairs, 2)."""

    baskets: Baskets
    kernel: LowRankKernel
    complements: IntArray
    substitutes: IntArray


def make_kernel(n_items: int, rank: int, *, rng: RngLike = None, dtype: Any = np.float64) -> LowRankKernel:
    """Return a random kernel as in [Han22], L = VVᵀ + B(D − Dᵀ)Bᵀ.

    V and B have rank/2 columns each, with normal entries of variance 2/rank; D is standard normal. (The paper writes
    N(0, √(2/d)); we read √(2/d) as the standard deviation, which keeps L_aa near 1 for any rank.) ``rank`` must be even;
    if rank/2 is odd, D − Dᵀ is singular, and the rank is one less. ``dtype`` is that of X, numpy.float64 or
    numpy.float32, which halves the memory. O(n_items · rank²).

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
    """Draw baskets from a kernel in which some pairs of items are complements, some substitutes, the rest independent.

    P(a, b) = lift · P(a) P(b) for ``n_pairs`` disjoint pairs of complements, with ``complement_lift`` > 1, and as many of
    substitutes, with 0 ≤ ``substitute_lift`` < 1: L is block diagonal, with L_ab = −L_ba for complements and L_ab = L_ba
    for substitutes. Popularities differ by a factor of up to four; ``mean_size``, the expected number of items in a
    basket, is a tenth of the catalogue by default. O(n_baskets · n_items).

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
            f"mean_size must be positive and complement_lift · popularity below 1; got mean_size={mean_size}, "
            f"complement_lift={complement_lift} and a largest popularity of {popularity.max():.3g}. "
            "Use smaller baskets, more items, or a smaller lift."
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


def shelf_kernel() -> LowRankKernel:
    """Return a kernel of twelve groceries that is small enough to read by eye.

    VVᵀ makes items of a kind repel each other: whoever buys rice seldom buys noodles. D − Dᵀ makes two kinds attract each
    other, pasta and sauce, or bread and butter, which no symmetric kernel can express.

    Examples
    --------
    >>> kernel = shelf_kernel()
    >>> pair = kernel.ids(["bread", "butter"])
    >>> alone = kernel.inclusion_probabilities()[pair[1]]
    >>> bool(kernel.inclusion_probabilities(given=pair[:1])[pair[1]] > alone)
    True
    """
    kinds = list(SHELF)
    labels = [item for items in SHELF.values() for item in items]
    kind = np.repeat(np.arange(len(kinds)), [len(items) for items in SHELF.values()])
    popularity = np.asarray(POPULARITY)[:, None]
    of_kind = popularity * (kind[:, None] == np.arange(len(kinds)))
    V = np.hstack([0.5 * of_kind, 0.2 * popularity * np.eye(len(labels))])
    D = np.zeros((len(kinds), len(kinds)))
    for (first, second), strength in GO_TOGETHER.items():
        D[kinds.index(first), kinds.index(second)] = strength
    return LowRankKernel.from_vbd(V, of_kind, D, labels=labels)


def _pair_cells(p: FloatArray, lifts: FloatArray) -> FloatArray:
    """Return the probabilities of none, a alone, b alone and both, one row per pair."""
    both = lifts * p[:, 0] * p[:, 1]
    alone = p - both[:, None]
    return np.column_stack([1 - alone.sum(axis=1) - both, alone, both])


def _pair_kernel(popularity: FloatArray, pairs: IntArray, cells: FloatArray) -> LowRankKernel:
    """Return the kernel with these probabilities: L_aa = P(a alone)/P(none), and det L_ab = P(both)/P(none)."""
    L = np.diag(popularity / (1 - popularity))
    for (a, b), (none, a_alone, b_alone, both) in zip(pairs.reshape(-1, 2), cells):
        L[a, a], L[b, b] = a_alone / none, b_alone / none
        product = L[a, a] * L[b, b] - both / none  # L_ab · L_ba
        L[a, b], L[b, a] = np.sqrt(abs(product)), np.sign(product) * np.sqrt(abs(product))
    return LowRankKernel(np.eye(len(L)), L)
