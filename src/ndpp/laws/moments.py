"""Numbers of a whole distribution: pairs of items, entropy, and divergence from another distribution.

:class:`~ndpp.laws.law.Law`, which is built upon this module, has the public functions as methods.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, Unpack

import numpy as np

from ndpp._types import FloatArray, IntArray, RngLike
from ndpp._validation import check_count, check_items
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.ask import Conditions
from ndpp.laws.limits import Estimate

FEW_ITEMS = 12
"""Means over all sets of up to 12 items are sums over at most 4,096 sets."""
PAIRS = 128
"""Pairs of items that are looked up at a time, in a square of all of their items."""


def pair_probabilities(self: Any, items: Any, **conditions: Unpack[Conditions]) -> FloatArray:
    """Return P(a ∈ S, b ∈ S) of all pairs of some items, or of the pairs that are listed.

    P(a ∈ S, b ∈ S) = Σ_c w_c (P_c(a ∈ S) P_c(b ∈ S) + Cov_c(a, b)). Under a size, limits or given items it is P(a ∈ S) P(b ∈ S | a ∈ S),
    which costs the inclusion probabilities of each item of the shorter list. Errors are about 1e-15; ``log_containment([a, b])`` keeps the
    digits of far smaller probabilities.

    Parameters
    ----------
    items : (m,) or (m, 2) array_like
        Items, by id or label, for a matrix (m, m) with P(a ∈ S) on its diagonal; or pairs of them, for an array (m,).

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    >>> kernel.pair_probabilities([0, 2]).round(4), kernel.pair_probabilities([[0, 2], [1, 2]]).round(4)
    (array([[0.3529, 0.2353],
           [0.2353, 0.7059]]), array([0.2353, 0.2353]))
    >>> kernel.pair_probabilities([[0, 2], [1, 2], [0, 1]], size=2).round(4)  # det L_S in proportion: 4, 4 and 1
    array([0.4444, 0.4444, 0.1111])
    """
    try:
        shape = np.shape(items)
    except ValueError:  # rows of several lengths
        shape = ()
    if len(shape) != 1 and shape[1:] != (2,):
        problem = f"must be a flat sequence of items, or pairs of them; got {items!r:.60}"
        raise InvalidInputError(problem, argument="items")
    law = self._under(**conditions)
    each = law.inclusion_table.T
    if len(shape) == 1:
        ids = check_items(items, law)
        out = _both_in(law, ids, ids, each)
        np.fill_diagonal(out, law._free_weights @ each[:, ids])
        return np.asarray(out)
    names, at = np.unique(np.asarray(items).ravel(), return_inverse=True)
    pairs, out = check_items(names.tolist(), law)[at.reshape(shape)], np.empty(len(at) // 2)
    for start in range(0, len(out), PAIRS):
        part = slice(start, start + PAIRS)
        (first, i), (second, j) = (np.unique(side, return_inverse=True) for side in pairs[part].T)
        out[part] = _both_in(law, first, second, each)[i, j]
    same = pairs[:, 0] == pairs[:, 1]
    out[same] = law._free_weights @ each[:, pairs[same, 0]]
    return out


def entropy(self: Any, n_samples: int = 1000, rng: RngLike = 0, **conditions: Unpack[Conditions]) -> Estimate:
    """Return −E log P(S), in nats, of the sets under conditions such as ``size``.

    Exact for up to 12 items that can occur, by enumeration; otherwise the mean over exact samples, with its standard error.

    Examples
    --------
    >>> import ndpp
    >>> found = ndpp.LowRankKernel(np.eye(3)).entropy()
    >>> round(found.value, 6), found.exact  # 3 log 2
    (2.079442, True)
    """
    return _mean(self._under(**conditions), lambda baskets, own: -own, n_samples, rng)


def kl(self: Any, other: object, n_samples: int = 1000, rng: RngLike = 0, **conditions: Unpack[Conditions]) -> Estimate:
    """Return E log P(S) / Q(S), the divergence of this distribution from another, Q, over the same items; see :meth:`entropy`.

    Infinite if a set is possible here and not there.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(2))
    >>> round(kernel.kl(kernel.tilt([3.0, 1.0])).value, 6)  # log 2 − ½ log 3
    0.143841
    """
    wanted = self.required(other)
    if wanted.n_items != self.n_items or (self.labels is not None and wanted.labels not in (None, self.labels)):
        raise InvalidInputError(
            f"must have the same items; this distribution has {self.n_items}, the other {wanted.n_items}"
            + (", with other labels" if wanted.n_items == self.n_items else ""),
            argument="other",
        )
    there = wanted._under(**conditions)
    return _mean(self._under(**conditions), lambda sets, own: own - there.log_probs(sets), n_samples, rng)


def _both_in(law: Any, first: IntArray, second: IntArray, each: FloatArray) -> FloatArray:
    """Return P(a ∈ S, b ∈ S) for two lists of items, a ≠ b, given P_c(a ∈ S) with the empty set."""
    out, chances = np.zeros((len(first), len(second))), law._free_weights @ each
    rows, columns = (np.flatnonzero(chances[ids] > 0) for ids in (first, second))
    first, second = first[rows], second[columns]
    both = (law._free_weights[:, None] * each[:, first]).T @ each[:, second] + law.mean_covariances(first, second)
    out[np.ix_(rows, columns)] = both.clip(0.0, np.minimum.outer(chances[first], chances[second]))
    return out


def _mean(law: Any, values: Callable[[Baskets, FloatArray], FloatArray], n_samples: int, rng: RngLike) -> Estimate:
    """Return the mean of a function of sets and their log-probabilities: over all sets, where these are few, or over samples."""
    check_count(n_samples, "n_samples", least=2)
    if len(law.support) <= FEW_ITEMS:
        subsets = [list(S) for k in range(len(law.support) + 1) for S in combinations(law.support.tolist(), k)]
        sets = Baskets.from_lists(subsets, n_items=law.n_items)
        own = law.log_probs(sets)
        possible = np.flatnonzero(own > -np.inf)
        found = values(sets[possible], own[possible])
        mean = float(np.exp(own[possible]) @ found) if np.isfinite(found).all() else np.inf
        return Estimate(mean, 0.0, exact=True)
    drawn = law.sample(n_samples, rng=rng)
    found = values(drawn, law.log_probs(drawn))
    if not np.isfinite(found).all():
        return Estimate(np.inf, 0.0, exact=True)
    return Estimate(float(found.mean()), float(found.std(ddof=1) / np.sqrt(n_samples)), exact=False)
