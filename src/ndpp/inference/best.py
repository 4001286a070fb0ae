"""The best set of one size, and how far from it a set can be: exchanges of single items, exact samples, and upper bounds.

Finding the set of largest det L_S is NP-hard. What is found here is at least as good as the greedy set, and comes with a bound on all
sets of its size that holds given items:

- the weights of all sets sum to e_k(L), so that a set that was not found has at most e_k less the weights of those that were;
- minors of L are at most those of sym(L) + |skew(L)| = Y Yᵀ [Han22, Thm. 1], and these at most the product of its k largest eigenvalues;
- and at most the maximum of the concave function Γ_k(Σ_i z_i y_i y_iᵀ) over 0 ≤ z ≤ 1, Σ z = k, which is log det (Y Yᵀ)_S where z
  indicates S. Any z gives a bound by its supergradient g: Γ_k + the sum of the k largest g − k. [Nikolov, STOC 2015; Li and Xie, 2020]
- in mixtures, and in large kernels with a background, they are at most the product of the k largest entries of the diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Unpack

import numpy as np

from ndpp._types import IntArray, Items, RngLike
from ndpp._validation import check_count, check_items
from ndpp.errors import BudgetExceededError, ImpossibleSizeError
from ndpp.inference.greedy import greedy_map
from ndpp.inference.scores import law_under
from ndpp.laws.ask import Conditions
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit, Limits, listed
from ndpp.linalg.logs import log_row_sums, log_sum

MIN_LOG_GAIN = 1e-9
"""An exchange must raise the log weight by more."""
HIDDEN_SHARE = 1e-9
"""Part of the weight of all sets that rounding may hide."""
MAX_EXCHANGES = 1000
"""Exchanges of single items, after which a set is left as it is."""


class BestSet(NamedTuple):
    """What :func:`best_set` returns: no set of its size has a log weight above ``bound``."""

    items: IntArray
    log_weight: float
    bound: float

    @property
    def gap(self) -> float:
        """Zero if no set is better."""
        return self.bound - self.log_weight


def best_set(  # type: ignore[misc]
    law: object,
    size: int,
    *,
    given: Items = (),
    limits: Limit | Sequence[Limit] = (),
    n_samples: int = 100,
    rng: RngLike = 0,
    **conditions: Unpack[Conditions],
) -> BestSet:
    """Return a set of large P(S), never worse than that of :func:`greedy_map`, and an upper bound on that of every set of its size.

    The greedy set and the best of some exact samples are improved by exchanging one item at a time, as long as that helps. Each exchange
    costs O(n size (r + size)) for a kernel, and ``size`` times :func:`next_item_scores` for a mixture, whose bound takes as long as its
    ``size_distribution()``.

    Parameters
    ----------
    law : LowRankKernel, Mixture or fitted estimator
        The model.
    size : int
        Number of items, the given ones included.
    given : sequence of int
        Items that every set contains.
    limits : Limit or sequence of Limit
        Limits that the set keeps, given items included. The bound is that of all sets of its size, whether they keep them or not.
    n_samples : int
        Number of exact samples; 0 draws none. If they would take too many proposals, the greedy set does without.
    rng : anything ``numpy.random.default_rng`` takes
        For the samples.
    **conditions
        ``candidates``, ``exclude``, ``boost``, ``context``, ``mission`` and ``customer``, as in ``law.ask``.

    Returns
    -------
    BestSet
        ``items``, ascending; ``log_weight``, log det(L_S) of a kernel and log P(S) of a mixture; ``bound``; and ``gap``, their difference:
        the set has at least exp(−gap) times the probability of the best one, which it is if the gap is 0.

    Raises
    ------
    ImpossibleSizeError
        No set of this size contains the given items.
    ImpossibleLimitError
        No set of this size keeps the limits.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel([[2.0, 1.0], [2.0, -1.0], [2.1, 0.0]])
    >>> ndpp.greedy_map(kernel, 2), best_set(kernel, 2).items, best_set(kernel, 2).gap
    (array([0, 1]), array([0, 1]), 0.0)
    """
    among: Law = Law.required(law)
    start = np.sort(check_items(given, among, "given"))
    check_count(n_samples, "n_samples")
    among = law_under(among, start, **conditions)
    among.check_size(check_count(size, "size"), given=start)
    limits = listed(limits)
    kept = Limits.of(limits, among)
    seen: dict[tuple[int, ...], float] = {}

    def weigh(items: Iterable[int]) -> float:
        key = tuple(sorted(map(int, items)))
        if key not in seen:
            seen[key] = log_sum(among._log_weights + among._log_whole_of(np.array(key, np.int64)))
        return seen[key]

    starts = []
    try:
        starts.append(greedy_map(among, size, given=start, limits=limits))
    except ImpossibleSizeError:  # it ends before, or adds two items at once
        n_samples = max(n_samples, 1)
    if n_samples and len(start) < size:
        try:
            drawn = among.sample(n_samples, size=size, given=start, limits=limits, rng=rng)
        except BudgetExceededError:
            if not starts:
                raise
        else:
            weights = log_row_sums(among._log_weights + among._log_whole(drawn))
            seen |= dict(zip(map(tuple, drawn.to_lists()), weights.tolist()))
            starts.append(drawn[int(np.argmax(weights))])
    for items in starts:
        weigh(items)
        if len(start) < size:
            _exchange(among, items, start, kept, weigh)
    key, best = max(seen.items(), key=lambda found: found[1])
    log_mass = among._log_total(start, size)
    left = 1 - float(np.exp(np.array(list(seen.values())) - log_mass).sum())
    bound = min(log_mass + float(np.log(max(left, HIDDEN_SHARE))), among._scoring.bound(start, size))
    return BestSet(np.array(key, np.int64), best, bound if bound > best + MIN_LOG_GAIN else best)


def _exchange(
    law: Law, items: IntArray, given: IntArray, limits: Limits, weigh: Callable[[Iterable[int]], float]
) -> None:
    """Exchange an item for another as long as that raises the weight and keeps the limits."""
    items, value = np.asarray(items), weigh(items)
    for _ in range(MAX_EXCHANGES):
        ratios = law._scoring.swap_ratios(items)
        for values, low, high in zip(limits.values, limits.low, limits.high):
            totals = (values[items].sum() - values[items])[:, None] + values
            ratios[(totals < low) | (totals > high)] = 0.0
        ratios[np.isin(items, given)] = 0.0
        ratios[:, items] = 0.0
        out, into = np.unravel_index(np.argmax(ratios), ratios.shape)
        if not ratios[out, into] > 1 + MIN_LOG_GAIN:
            return
        changed = np.append(np.delete(items, out), into)
        if not (found := weigh(changed)) > value + MIN_LOG_GAIN:
            return
        items, value = changed, found
