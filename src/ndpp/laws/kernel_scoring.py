"""Scores, gains and bounds of a kernel, from its rows and coordinates rather than set by set."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import scipy.linalg as sl

from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.errors import NoConditionalKernelError, PrecisionError, ZeroProbabilityError
from ndpp.laws.batched import scores
from ndpp.laws.kernel_gains import LowRankGains, completion, gains_after
from ndpp.laws.precision import MARGIN, WARN_ERROR, say_precision
from ndpp.laws.scoring import Best, Factored, Gains, Scoring, impossible
from ndpp.laws.union import WeighedSets
from ndpp.linalg.scaling import ROUNDING, quadratic_forms
from ndpp.linalg.schur import eliminate
from ndpp.linalg.skew import dominating
from ndpp.rows import Rows

CONCAVE_WORK = 1e11
"""Operations that the concave bound may take: some seconds."""
MIN_CONCAVE_STEPS, MAX_CONCAVE_STEPS = 5, 60
"""Steps of the concave bound. If there is no time for the minimum, the bound is that of the diagonal: large catalogues with a background,
where Y has a column per item."""


class KernelScoring(Scoring):
    """Scores, gains and bounds of a kernel."""

    law: WeighedSets

    # -- scores of items -----------------------------------------------------------------------------------------------------

    def next_scores_of(self, ids: IntArray) -> FloatArray:
        """Return L_aa − L_aJ L_J⁻¹ L_Ja of every item, and say if rounding matters. O(n r²)."""
        kernel = self.law
        rows = kernel.rows_of(ids, "basket")
        if kernel.background is not None:
            return _scores_with_background(kernel, rows)
        q = kernel.q_rows(rows)
        given = eliminate(kernel.coordinates, q)
        if given is None or given.null.size:
            raise impossible(kernel.catalogue_ids(rows))
        gains = LowRankGains.fresh(kernel, given)
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

    def next_scores(self, baskets: Baskets) -> FloatArray:
        """Return the scores of all baskets whose L_J is not close to singular."""
        out, is_scored = scores(self.law.form, baskets, self.memory)
        out[~is_scored] = np.nan
        return out

    def begun_scores(self, baskets: Baskets, best: Best | None, weights: FloatArray | None) -> FloatArray:
        """Return the same with the marginal kernel in place of L."""
        out, is_scored = scores(self.law.marginal_form, baskets, self.memory)
        out[~is_scored] = np.nan
        return out

    def swap_ratios(self, items: IntArray) -> FloatArray:
        """Return M_ii (L_aa − L_aS M L_Sa) + (L_aS M)_i (M L_Sa)_i, where M = L_S⁻¹."""
        kernel, out = self.law, np.zeros((len(items), self.law.n_items))
        form, rows = kernel.form, kernel.rows_of(items)
        lines, each = form.lines(rows, self.memory), np.arange(len(rows))
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

    # -- bounds --------------------------------------------------------------------------------------------------------------

    def item_bounds(self) -> FloatArray:
        """Return log (Y Yᵀ)_ii of all items, −inf of those that cannot occur: minors of L are at most those of Y Yᵀ."""
        kernel = self.law
        out, core = np.full((1, kernel.n_items), -np.inf), dominating(kernel.coordinates.B)
        for block, forms in kernel.q_map(partial(quadratic_forms, M=core)):
            rows = np.arange(block.start, block.stop)
            with np.errstate(divide="ignore"):
                out[0, kernel.catalogue_ids(rows)] = np.log(
                    kernel.odds[rows] + (1 + kernel.odds[rows]) * forms.clip(0.0)
                )
        return out

    def bound(self, given: IntArray, size: int) -> float:
        """Return the concave bound, or the product of the largest diagonal entries where that would take too long."""
        kernel, left = self.law, size - len(given)
        log_given = kernel.log_det(given)
        if not left:
            return log_given
        try:
            rest: WeighedSets = kernel.condition(given)
        except (NoConditionalKernelError, PrecisionError):
            return np.inf
        if rest.background is None and rest.rank < left:
            return np.inf
        if _concave_steps(rest.n_rows, rest.rank + (0 if rest.background is None else rest.n_rows)) < MIN_CONCAVE_STEPS:
            logs = KernelScoring(rest).item_bounds()[0]
            return log_given + float(np.partition(logs, -left)[-left:].sum())
        values, vectors = sl.eigh(dominating(rest.coordinates.B))
        Y = rest.q_times(vectors * np.sqrt(values.clip(0.0))) * np.sqrt(1 + rest.odds)[:, None]
        if rest.background is not None:
            Y = np.hstack([Y, np.diag(np.sqrt(rest.odds))])
        return log_given + concave_bound(Y, left)

    # -- greedy runs ---------------------------------------------------------------------------------------------------------

    def gains(self, rows: IntArray, open: BoolArray) -> Gains:
        """Return det L_{Y∪a} / det L_Y of all rows of the support, with estimates of rounding errors."""
        return gains_after(self.law, rows, open)

    def completion(self, rows: IntArray, open: BoolArray) -> tuple[int, ...]:
        """Return the fewest items that give the rows a positive determinant; none with a background, where they have one."""
        return completion(self.law, rows, open) if self.law.background is None else ()

    def factored(self, rows: IntArray | None) -> Factored | None:
        """Return X and W, or L itself where X has rows of the identity; None with a background or if X is in another store."""
        kernel, X = self.law, self.law._factor
        if kernel.background is not None or isinstance(X, Rows):
            return None
        W, magnitudes, columns = np.asarray(kernel.W, np.float64), kernel._magnitudes, kernel.unit_columns
        if columns is not None:
            columns = columns if rows is None else columns[rows]
            scale = kernel.unit_scale if kernel.is_symmetric else magnitudes
            is_part = rows is not None or kernel.n_rows < len(W)
            return Factored(None, W[np.ix_(columns, columns)] if is_part else W, scale[columns], kernel.is_symmetric)
        kernel.check_unchanged()
        X = X if rows is None else X[rows]
        if W[0, 0] == 1 and np.count_nonzero(W) == len(W) and (W.diagonal() == 1).all() and (magnitudes == 1).all():
            return Factored(X)
        return Factored(X, (W + W.T) / 2 if kernel.is_symmetric else W, magnitudes, kernel.is_symmetric)


def _measured_error(kernel: WeighedSets, rows: IntArray, values: FloatArray) -> float:
    """Return how far gains move, times a margin, if the basket's rows of Q and all of B are off by as much as rounding explains."""
    q, coords, rng = kernel.q_rows(rows), kernel.coordinates, np.random.default_rng(0)
    error = ROUNDING * np.outer(coords.excess, coords.excess) * rng.uniform(-1, 1, coords.B.shape)
    nearby = replace(coords, B=coords.B * (1 + error))
    moved = eliminate(nearby, q * (1 + (ROUNDING + coords.noise) * rng.uniform(-1, 1, q.shape)))
    if moved is None or moved.null.size:
        return np.inf
    return MARGIN * float(np.abs(LowRankGains.fresh(kernel, moved).values - values).max())


def _scores_with_background(kernel: WeighedSets, rows: IntArray) -> FloatArray:
    """Return δ_i + x_iᵀW'x_i, the diagonal of the kernel given the basket."""
    out = np.zeros(kernel.n_items)
    if len(rows) == kernel.n_rows:
        return out
    try:
        rest = kernel.condition(kernel.catalogue_ids(rows))
    except (ZeroProbabilityError, NoConditionalKernelError):
        raise impossible(kernel.catalogue_ids(rows)) from None
    form = rest.form
    found = form.factor * form.own[0]
    out[rest.support] = np.where(found > form.least, found, 0.0)
    say_precision(form.blur / max(out.max(), np.finfo(float).tiny), "the scores of items")
    if rest.coordinates.core.rank > rest.rank:  # a direction was dropped
        rest.check_precision()
    return out


def _concave_steps(n: int, d: int) -> int:
    return int(min(CONCAVE_WORK / (n * d * d + d**3), MAX_CONCAVE_STEPS))


def concave_bound(Y: FloatArray, size: int) -> float:
    """Return an upper bound on log det (Y Yᵀ)_S over all sets of ``size`` rows, by the Frank–Wolfe method."""
    (n, d), best = Y.shape, np.inf
    z = np.full(n, size / n)
    for step in range(max(MIN_CONCAVE_STEPS, _concave_steps(n, d))):
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
