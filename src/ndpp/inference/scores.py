"""Scores of all items for a basket J, for one basket or many: P(J ∪ a) / P(J) of *whole* baskets, and P(a ∈ S | J ⊆ S) of begun ones.

Many baskets are scored at once where a law has products that they share (:func:`_at_once`); what these leave out, and single baskets of
kernels, is scored by careful routines, which warn if rounding matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from ndpp._types import BoolArray, FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, NoConditionalKernelError, ZeroProbabilityError
from ndpp.laws.batched import scores
from ndpp.laws.begun import Begun, parts
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import NEGLIGIBLE_POSTERIOR, Law
from ndpp.laws.mixture import Mixture
from ndpp.laws.precision import MARGIN, WARN_ERROR, say_precision
from ndpp.laws.shared import SharedTies
from ndpp.linalg.scaling import EPS, ROUNDING
from ndpp.linalg.schur import Remainder, eliminate


class Best(NamedTuple):
    """How many of the best items matter, which may be among them, the units of their scores, and which of each basket matter besides."""

    n: int
    allowed: BoolArray
    unit: FloatArray
    wanted: Sequence[IntArray] | None = None


class Gains(NamedTuple):
    """The gain det L_{Y∪a} / det L_Y = L^Y_aa of every row a of the support, L^Y = L − L_:Y L_Y⁻¹ L_Y:, and estimates of rounding errors.

    All gains are formed from coordinates in which the items of Y have been eliminated, large directions first; a rank-one update
    follows one more item.
    """

    values: FloatArray
    noise: FloatArray
    given: Remainder
    is_fresh: bool

    @classmethod
    def fresh(cls, kernel: LowRankKernel, given: Remainder) -> Gains:
        """Compute all gains from the remainder of L. O(n r²)."""
        values, noise = np.empty(kernel.n_rows), np.empty(kernel.n_rows)
        size, relative = len(given.M) + 1, (len(given.M) + 1) * ROUNDING + given.noise
        largest = max(np.abs(given.M).max(initial=0.0), given.magnitudes.max(initial=0.0) / size)
        absolute = ROUNDING * np.linalg.norm(given.to_z)
        for block, Q in kernel.q_blocks():
            Z = Q @ given.to_z
            values[block] = np.einsum("ij,ij->i", Z @ given.M, Z)
            error = np.linalg.norm(Z * relative, axis=1) + absolute
            noise[block] = largest * error * (np.linalg.norm(Z, axis=1) + error)
        return cls(values, noise, given, True)

    def after(self, kernel: LowRankKernel, row: int) -> Gains:
        """Return the gains after adding an item, by a rank-one Schur complement. O(n r)."""
        to_z, M = self.given.to_z, self.given.M
        z = kernel.q_rows(np.array([row]))[0] @ to_z
        u, v = M @ z, z @ M
        pivot = float(z @ u)
        both = kernel.q_times(to_z @ np.column_stack([u, v]))
        change = both[:, 0] * (both[:, 1] / pivot)  # the product alone may overflow
        noise = self.noise + (4 * EPS + self.noise[row] / pivot) * np.abs(change)
        return Gains(self.values - change, noise, self.given._replace(M=M - np.outer(u, v / pivot)), False)


def next_item_scores(kernel: Any, basket: Items) -> FloatArray:
    """Return P(J ∪ i) / P(J), J being the basket, for every item i of the catalogue: what completes a basket that lacks one item.

    For a kernel this is det L_{J∪i} / det L_J = L_ii − L_iJ L_J⁻¹ L_Ji. For what else a basket that has begun will hold, see
    :func:`continuation_scores`.

    Items of the basket, and items the kernel excludes, score 0. O(n r²). A distribution that leaves out the empty set scores that as if it
    did not: P(i) of single items, in units in which the empty set has a probability.

    Raises
    ------
    ZeroProbabilityError
        P(J) = 0: the ratio is undefined. ``kernel.inclusion_probabilities(given=basket)`` ranks items even then, if
        the basket can be part of a larger set.

    Examples
    --------
    >>> kernel = LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> next_item_scores(kernel, [0])
    array([0., 5., 1.])
    """
    return _scores_of(Law.required(kernel), basket)


@singledispatch
def _scores_of(law: Law, basket: Items) -> FloatArray:
    """Return the scores of one basket; each kind of law registers its own function."""
    raise InvalidInputError(f"scores are those of a kernel or a mixture; got a {type(law).__name__}")


@_scores_of.register
def _kernel_scores(kernel: LowRankKernel, basket: Items) -> FloatArray:
    rows = kernel.rows_of(basket, "basket")
    if kernel.background is not None:
        return _scores_with_background(kernel, rows)
    q = kernel.q_rows(rows)
    given = eliminate(kernel.coordinates, q)
    if given is None or given.null.size:
        raise _impossible(kernel.catalogue_ids(rows))
    gains = Gains.fresh(kernel, given)
    # A gain is zero if rounding explains it, compared both with all of L and with the bound from the item's own row.
    is_zero = gains.values <= np.minimum(gains.noise, kernel.form.least)
    is_zero[rows] = True
    out = np.zeros(kernel.n_items)
    out[kernel.support] = np.where(is_zero, 0.0, gains.values)
    best = out.max()
    # Relative to the best score. If all are zero, what rounding may hide counts, as a part of the distribution of the next item.
    error = gains.noise[~is_zero].max() / best if best > 0 else gains.noise.max(initial=0.0)
    if best > 0 and error > WARN_ERROR:  # a bound, usually far too high
        error = min(error, _measured_error(kernel, rows, gains.values) / best)
    thin = kernel.row_noise(rows, np.linalg.norm(q * kernel.coordinates.scale, axis=1)).max(initial=0.0)
    say_precision(float(error + 2 * thin) + given.loss, "the scores of items")
    if kernel.coordinates.core.rank > kernel.rank:  # a direction was dropped
        kernel.check_precision()
    return out


def _measured_error(kernel: LowRankKernel, rows: IntArray, values: FloatArray) -> float:
    """Return how far gains move, times a margin, if the basket's rows of Q and all of B are off by as much as rounding explains."""
    q, coords, rng = kernel.q_rows(rows), kernel.coordinates, np.random.default_rng(0)
    error = ROUNDING * np.outer(coords.excess, coords.excess) * rng.uniform(-1, 1, coords.B.shape)
    nearby = replace(coords, B=coords.B * (1 + error))
    moved = eliminate(nearby, q * (1 + (ROUNDING + coords.noise) * rng.uniform(-1, 1, q.shape)))
    if moved is None or moved.null.size:
        return np.inf
    return MARGIN * float(np.abs(Gains.fresh(kernel, moved).values - values).max())


def continuation_scores(law: Any, basket: Items) -> FloatArray:
    """Return P(a ∈ S | basket ⊆ S) for every item a of the catalogue: what else a basket that has begun will contain.

    Items of the basket score 0. For what completes a basket that lacks one item, see :func:`next_item_scores`.

    Examples
    --------
    >>> kernel = LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> continuation_scores(kernel, [0]).round(4)
    array([0.    , 0.8333, 0.5   ])
    """
    law = Law.required(law)
    ids = check_items(basket, law, "basket")
    out: FloatArray = law.inclusion_probabilities(given=ids)
    out[ids] = 0.0
    return out


def next_item_scores_many(kernel: Any, baskets: Baskets) -> FloatArray:
    """Return :func:`next_item_scores` of each basket as an array of shape (len(baskets), n_items).

    Baskets share the products with the rows of the kernel, O(n r) per distinct item in them. Those whose L_J is close to
    singular are scored one by one.
    """
    return scores_of_each(Law.required(kernel), baskets, whole=True)


def continuation_scores_many(law: Any, baskets: Baskets) -> FloatArray:
    """Return :func:`continuation_scores` of each basket, shape (len(baskets), n_items).

    Kernels score all baskets in stacked products, as in :func:`next_item_scores_many`. Mixtures with shared ties do so component by
    component (``ndpp.laws.begun``), with an error of at most 1e-12 for components that are left out, and other mixtures score one
    basket after another. For the best items only, :func:`recommend_many` is several times as fast.
    """
    return scores_of_each(Law.required(law), baskets, whole=False)


def scores_of_each(law: Law, baskets: Baskets, *, whole: bool) -> FloatArray:
    """Return the scores of each basket; raise for baskets that never occur."""
    out = scores_or_nan(law, baskets, whole=whole)
    for i in np.flatnonzero(np.isnan(out[:, 0])):
        scores_of_one(law, baskets[i], whole=whole)  # raises, and says why
    return out


def scores_of_one(law: Law, basket: Items, *, whole: bool) -> FloatArray:
    """Return the scores of one basket."""
    return next_item_scores(law, basket) if whole else continuation_scores(law, basket)


def scores_or_nan(
    law: Law, baskets: Baskets, *, whole: bool = True, best: Best | None = None, weights: FloatArray | None = None
) -> FloatArray:
    """Return the scores of each basket, shape (len(baskets), n_items); NaN for baskets that never occur.

    Where only the ``best`` so many of some items matter, in these units, those of others may be 0. ``weights`` are those of the components
    for each begun basket, shape (len(baskets), C), where they are not those of the law.
    """
    if baskets.n_items != law.n_items:
        raise InvalidInputError(
            f"baskets and kernel must share one catalogue; the kernel has {law.n_items} items, "
            f"the baskets have {baskets.n_items}. Give the baskets n_items= or the kernel's labels."
        )
    free = None if weights is None else weights / law.kept
    out = _at_once(law, baskets, whole, best, free)
    if law.nonempty and not whole:
        blank = baskets.sizes == 0  # P(S ≠ ∅) becomes one
        out[blank] *= law._free_weights.sum() if free is None else free[blank].sum(axis=1, keepdims=True)
    for i in np.flatnonzero(np.isnan(out[:, 0])):
        with suppress(ZeroProbabilityError):
            own = law if weights is None else law._leaving_out(weights[i], law.nonempty)
            out[i] = scores_of_one(own, baskets[i], whole=whole)
    return out


@singledispatch
def _at_once(law: Law, baskets: Baskets, whole: bool, best: Best | None, weights: FloatArray | None) -> FloatArray:
    """Return the scores of baskets in products that they share, NaN for baskets that never occur or to which rounding matters.

    ``weights`` are w_c / P_c(S ≠ ∅) where they differ between baskets.
    """
    return np.full((len(baskets), law.n_items), np.nan)


@_at_once.register
def _(
    kernel: LowRankKernel, baskets: Baskets, whole: bool, best: Best | None, weights: FloatArray | None
) -> FloatArray:
    out, is_scored = scores(kernel.form if whole else kernel.marginal_form, baskets)
    out[~is_scored] = np.nan
    return out


@_at_once.register
def _(mixture: SharedTies, baskets: Baskets, whole: bool, best: Best | None, weights: FloatArray | None) -> FloatArray:
    if whole:
        return _popularity_times_ties(mixture, baskets)
    out = np.empty((len(baskets), mixture.n_items))
    for part in parts(mixture, baskets):
        begun = Begun(mixture, baskets[part], None if weights is None else weights[part])
        wanted = None if best is None or best.wanted is None else [best.wanted[i] for i in part]
        out[part] = begun.scores() if best is None else begun.best(best.n, best.allowed, best.unit, wanted)
    return out


@_scores_of.register
def _mixture_scores(mixture: Mixture, basket: Items) -> FloatArray:
    """Return Σ_c P(c | basket) P_c(basket ∪ a) / P_c(basket)."""
    ids = check_items(basket, mixture, "basket")
    mixture = mixture.with_empty()
    posterior = mixture.responsibilities(ids, whole=True)
    out, log_total = np.zeros(mixture.n_items), mixture.log_prob(ids)
    others = np.setdiff1d(np.arange(mixture.n_items), ids)
    for kernel, weight, share in zip(mixture.components, mixture.weights, posterior):
        with suppress(ZeroProbabilityError):
            if share > 0:
                out += share * next_item_scores(kernel, ids)
                continue
        if weight > 0:  # one that lacks the basket, up to rounding, may hold it with one more item
            more = Baskets.from_lists([[*ids, a] for a in others], n_items=mixture.n_items)
            out[others] += weight * np.exp(kernel.log_probs(more) - log_total)
    return out


def _popularity_times_ties(mixture: SharedTies, baskets: Baskets) -> FloatArray:
    """Return Σ_c P(c | J) o_ca · G(J ∪ a) / G(J), NaN for impossible baskets.

    G is that of the rows, and items of rows that the basket touches already do not change it.
    """
    log_posterior = mixture._log_weights + mixture._log_whole(baskets)
    total = logsumexp(log_posterior, axis=1, keepdims=True)
    out, possible = np.full((len(baskets), mixture.n_items), np.nan), np.flatnonzero(total[:, 0] > -np.inf)
    posterior, rest = np.exp(log_posterior[possible] - total[possible]), baskets[possible]
    ties = next_item_scores_many(mixture.base, mixture.touched_rows(rest)[0])[:, mixture.base.support]
    probable = (posterior > NEGLIGIBLE_POSTERIOR).any(axis=0)
    found = posterior[:, probable] @ mixture.odds_alone[probable] * mixture.by_item(ties)
    at, items, scores = mixture.within_rows(rest, posterior, whole=True)
    found[at, items] = scores
    found[np.repeat(np.arange(len(rest)), rest.sizes), rest.indices] = 0.0
    out[possible] = found
    return out


@_scores_of.register
def _shared_scores(mixture: SharedTies, basket: Items) -> FloatArray:
    ids = check_items(basket, mixture, "basket")
    out: FloatArray = _popularity_times_ties(mixture, mixture.one_basket(ids))[0]
    if np.isnan(out[0]):
        raise _impossible(ids)
    return out


def _scores_with_background(kernel: LowRankKernel, rows: IntArray) -> FloatArray:
    """Return δ_i + x_iᵀW'x_i, the diagonal of the kernel given the basket."""
    out = np.zeros(kernel.n_items)
    if len(rows) == kernel.n_rows:
        return out
    try:
        rest = kernel.condition(kernel.catalogue_ids(rows))
    except (ZeroProbabilityError, NoConditionalKernelError):
        raise _impossible(kernel.catalogue_ids(rows)) from None
    form = rest.form
    found = form.factor * form.own[0]
    out[rest.support] = np.where(found > form.least, found, 0.0)
    say_precision(form.blur / max(out.max(), np.finfo(float).tiny), "the scores of items")
    if rest.coordinates.core.rank > rest.rank:  # a direction was dropped
        rest.check_precision()
    return out


def _impossible(ids: IntArray) -> ZeroProbabilityError:
    return ZeroProbabilityError(
        f"scores are relative to the basket, and {ids.tolist()} has probability zero: it never occurs by itself. Drop an item, "
        "or use law.inclusion_probabilities(given=…), which tells whether it can be part of a larger set."
    )
