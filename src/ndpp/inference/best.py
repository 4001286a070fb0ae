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

from collections.abc import Callable, Sequence
from functools import partial, singledispatch
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sl
from scipy.special import logsumexp

from ndpp._types import FloatArray, IntArray, Items, RngLike
from ndpp._validation import check_count, check_items
from ndpp.baskets import Baskets
from ndpp.errors import ImpossibleSizeError, NoConditionalKernelError, PrecisionError
from ndpp.inference.greedy import greedy_map
from ndpp.inference.scores import scores_or_nan
from ndpp.laws.families import FamilyMixture
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law, log_sum
from ndpp.laws.limits import Limit, Limits
from ndpp.laws.mixture import Mixture
from ndpp.laws.tied import TiedMixture
from ndpp.linalg.scaling import quadratic_forms
from ndpp.linalg.skew import dominating

LEAST_GAIN = 1e-9
"""An exchange must raise the log weight by more."""
ROUNDING = 1e-9
"""Part of the weight of all sets that rounding may hide."""
MOST_SWAPS = 1000
WORK = 1e11
"""Operations that the concave bound may take: some seconds."""
LEAST_STEPS, MOST_STEPS = 5, 60
"""Where there is no time for so many steps, as for many items with a background, of which Y has a column per item, diagonals must do."""


class BestSet(NamedTuple):
    """What :func:`best_set` returns: no set of its size has a log weight above ``bound``."""

    items: IntArray
    log_weight: float
    bound: float

    @property
    def gap(self) -> float:
        """Zero if no set is better."""
        return self.bound - self.log_weight


def best_set(
    law: Any,
    size: int,
    *,
    given: Items = (),
    candidates: Items | None = None,
    limits: Limit | Sequence[Limit] = (),
    n_samples: int = 100,
    rng: RngLike = 0,
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
    candidates : sequence of int, optional
        The only other items of a set.
    limits : Limit or sequence of Limit
        Limits that the set keeps, given items included. The bound is that of all sets of its size, whether they keep them or not.
    n_samples : int
        Number of exact samples; 0 draws none.
    rng : anything ``numpy.random.default_rng`` takes
        For the samples.

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
    law = Law.required(law)
    start = np.sort(check_items(given, law, "given"))
    check_count(n_samples, "n_samples")
    if candidates is not None:
        law = law.restrict(np.union1d(check_items(candidates, law, "candidates"), start))
    law.check_size(check_count(size, "size"), given=start)
    kept = Limits.of(limits, law)
    seen: dict[tuple[int, ...], float] = {}

    def weigh(items: Any) -> float:
        key = tuple(sorted(map(int, items)))
        if key not in seen:
            seen[key] = log_sum(law._log_weights + law._log_whole_of(np.array(key, np.int64)))
        return seen[key]

    starts = []
    try:
        starts.append(greedy_map(law, size, given=start, limits=limits))
    except ImpossibleSizeError:  # it ends before, or adds two items at once
        n_samples = max(n_samples, 1)
    if n_samples and len(start) < size:
        drawn = law.sample(n_samples, size=size, given=start, limits=limits, rng=rng)
        weights = logsumexp(law._log_weights + law._log_whole(drawn), axis=1)
        seen |= dict(zip(map(tuple, drawn.to_lists()), weights.tolist()))
        starts.append(drawn[int(np.argmax(weights))])
    for items in starts:
        weigh(items)
        if len(start) < size:
            _exchange(law, items, start, kept, weigh)
    key, best = max(seen.items(), key=lambda found: found[1])
    log_mass = log_sum(law._log_weights + law._log_masses(start, size))
    left = 1 - float(np.exp(np.array(list(seen.values())) - log_mass).sum())
    bound = min(log_mass + float(np.log(max(left, ROUNDING))), _relaxed(law, start, size))
    return BestSet(np.array(key, np.int64), best, bound if bound > best + LEAST_GAIN else best)


def _exchange(law: Law, items: IntArray, given: IntArray, limits: Limits, weigh: Callable[[Any], float]) -> None:
    """Exchange an item for another as long as that raises the weight and keeps the limits."""
    items, value = np.asarray(items), weigh(items)
    for _ in range(MOST_SWAPS):
        ratios = _swaps(law, items)
        for values, total, low, high in zip(limits.values, limits.totals(items), limits.low, limits.high):
            totals = (total - values[items])[:, None] + values
            ratios[(totals < low) | (totals > high)] = 0.0
        ratios[np.isin(items, given)] = 0.0
        ratios[:, items] = 0.0
        out, into = np.unravel_index(np.argmax(ratios), ratios.shape)
        if not ratios[out, into] > 1 + LEAST_GAIN:
            return
        changed = np.append(np.delete(items, out), into)
        if not (found := weigh(changed)) > value + LEAST_GAIN:
            return
        items, value = changed, found


@singledispatch
def _swaps(law: Law, items: IntArray) -> FloatArray:
    """Return P(S − i + a) / P(S) of all items i of S and all a, shape (size, n_items)."""
    law = law.with_empty()  # what is left of one item
    rest = Baskets.from_lists([np.delete(items, i).tolist() for i in range(len(items))], n_items=law.n_items)
    scores, log_whole = scores_or_nan(law, rest), law.log_probs(rest)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(scores * np.exp(log_whole - law.log_prob(items))[:, None])


@_swaps.register
def _kernel_swaps(kernel: LowRankKernel, items: IntArray) -> FloatArray:
    """Return the same from M = L_S⁻¹: M_ii (L_aa − L_aS M L_Sa) + (L_aS M)_i (M L_Sa)_i."""
    form, rows, out = kernel.form, kernel.rows_of(items), np.zeros((len(items), kernel.n_items))
    lines, each = form.lines(rows), np.arange(len(rows))
    left, right = lines[:, 0], lines[:, 1]
    inside = left[:, rows].copy()
    inside[each, each] += form.diagonal[rows]
    try:
        M = np.linalg.inv(inside)
    except np.linalg.LinAlgError:
        return out
    toward = M @ left
    gains = form.own[0] - (right * toward).sum(axis=0)
    ratios = M.diagonal()[:, None] * gains + (M.T @ right) * toward
    out[:, kernel.support] = ratios * form.factor / form.factor[rows][:, None]
    return np.nan_to_num(out)


@singledispatch
def _relaxed(law: Law, given: IntArray, size: int) -> float:
    """Return an upper bound on the log weight of sets that contain the given items, by linear algebra; infinite where there is none."""
    return np.inf


@_relaxed.register
def _kernel_relaxed(kernel: LowRankKernel, given: IntArray, size: int) -> float:
    log_given = kernel.log_det(given)
    if len(given) == size:
        return log_given
    try:
        rest = kernel.condition(given)
    except (NoConditionalKernelError, PrecisionError):
        return np.inf
    left = size - len(given)
    if rest.background is None and rest.rank < left:
        return np.inf
    if _steps(rest.n_rows, rest.rank + (0 if rest.background is None else rest.n_rows)) < LEAST_STEPS:
        return log_given + float(_largest(_log_diagonals(rest)[None], given[:0], left)[0])
    values, vectors = sl.eigh(dominating(rest.coordinates.B))
    Y = rest.q_times(vectors * np.sqrt(values.clip(0.0))) * np.sqrt(1 + rest.odds)[:, None]
    if rest.background is not None:
        Y = np.hstack([Y, np.diag(np.sqrt(rest.odds))])
    return log_given + concave_bound(Y, left)


@_relaxed.register
def _mixture_relaxed(mixture: Mixture, given: IntArray, size: int) -> float:
    """Return log Σ_c w_c max_S P_c(S), the maxima bounded by products of diagonals."""
    logs = np.stack([_log_diagonals(kernel) for kernel in mixture.components])
    return log_sum(mixture._log_weights + _largest(logs, given, size) - mixture.log_normalizers())


@_relaxed.register
def _tied_relaxed(mixture: TiedMixture, given: IntArray, size: int) -> float:
    with np.errstate(divide="ignore"):
        logs = np.log(mixture.odds) + _log_diagonals(mixture.base)
    return log_sum(mixture._log_weights + _largest(logs, given, size) - mixture.log_normalizers())


@_relaxed.register
def _families_relaxed(mixture: FamilyMixture, given: IntArray, size: int) -> float:
    return np.inf


def _log_diagonals(kernel: LowRankKernel) -> FloatArray:
    """Return log (Y Yᵀ)_ii of all items, −inf of those that cannot occur. Minors of Y Yᵀ are at most their products."""
    out, core = np.full(kernel.n_items, -np.inf), dominating(kernel.coordinates.B)
    for block, forms in kernel.q_map(partial(quadratic_forms, M=core)):
        rows = np.arange(block.start, block.stop)
        with np.errstate(divide="ignore"):
            out[kernel.catalogue_ids(rows)] = np.log(kernel.odds[rows] + (1 + kernel.odds[rows]) * forms.clip(0.0))
    return out


def _largest(logs: FloatArray, given: IntArray, size: int) -> FloatArray:
    """Return the largest sum over so many items, the given ones included, of each row."""
    fixed, left, others = logs[:, given].sum(axis=1), size - len(given), np.delete(logs, given, axis=1)
    return np.asarray(fixed - np.partition(-others, left - 1, axis=1)[:, :left].sum(axis=1) if left else fixed)


def _steps(n: int, d: int) -> int:
    return int(min(WORK / (n * d * d + d**3), MOST_STEPS))


def concave_bound(Y: FloatArray, size: int) -> float:
    """Return an upper bound on log det (Y Yᵀ)_S of all sets of so many rows, by the Frank–Wolfe method."""
    (n, d), best = Y.shape, np.inf
    z = np.full(n, size / n)
    for step in range(max(LEAST_STEPS, _steps(n, d))):
        used = np.flatnonzero(z)
        values, vectors = sl.eigh((Y[used].T * z[used]) @ Y[used])
        values = values[::-1].clip(np.finfo(float).tiny)
        if step == 0:  # z is the same for all rows
            best = float(np.log(values[:size] * n / size).sum())
        tails = values[::-1].cumsum()[::-1][:size] / np.arange(size, 0, -1)
        level = tails[np.argmax(tails >= values[:size])]
        scaled = np.maximum(values, level)
        gradient = ((Y @ (vectors[:, ::-1] / np.sqrt(scaled))) ** 2).sum(axis=1)
        top = np.argpartition(-gradient, size - 1)[:size]
        best = min(best, float(np.log(scaled[:size]).sum() + gradient[top].sum() - size))
        z *= (step + 1) / (step + 3)
        z[top] += 2 / (step + 3)
    return best
