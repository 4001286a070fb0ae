"""Greedy MAP: a likely set, built one item at a time.

For a set Y the gain of item a is det L_{Y∪a} / det L_Y = L_aa − L_aY L_Y⁻¹ L_Ya. Adding an item updates all gains in
O(n r), so a greedy run of k items costs O(n r k) after one pass of O(n r²). Gains that have lost too many digits are computed
again from scratch; those within rounding error of zero count as zero. [Gartrell et al., ICLR 2021]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any

import numpy as np

from ndpp._types import BoolArray, IntArray, Items
from ndpp._validation import check_count, check_items
from ndpp.errors import ImpossibleSizeError, ZeroProbabilityError
from ndpp.inference.scores import Gains, next_item_scores
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit, Limits
from ndpp.linalg.schur import MAX_LOSS, ROUNDING, eliminate

TINY = float(np.finfo(np.float64).tiny)
PAIR_ROWS, PAIR_BLOCK = 1024, 256
"""The search for the best pair reads at most this many rows of L, largest first, and this many at a time."""


def greedy_map(
    kernel: Any,
    size: int,
    *,
    given: Items = (),
    candidates: Items | None = None,
    limits: Limit | Sequence[Limit] = (),
) -> IntArray:
    """Return ``size`` items of large P(S): the given ones, then, in the order chosen, the best next item each time.

    The sequence is nested: the first j items of a longer run are the run of size j. Items with L_aa = 0 can have no
    gain alone and yet a large one together (in a purely skew kernel all are such); where no single item has a gain, the
    best pair is added, smaller id first: the best of all for up to 1,024 candidates, else the best that contains one of
    the 1,024 items with the largest rows. Given items with det L = 0 are first completed to a set that can occur,
    if the kernel has no background. Ties go to the smaller id. O(n r (r + size)), for a mixture ``size`` times
    :func:`next_item_scores`.

    Parameters
    ----------
    kernel : LowRankKernel, Mixture or fitted estimator
        The model.
    size : int
        Number of items, the given ones included.
    given : sequence of int
        Items that are in from the start, in this order.
    candidates : sequence of int, optional
        The only items that may be added.
    limits : Limit or sequence of Limit
        Limits that the set keeps, given items included: each time the best item is added with which they can still be kept. ``size``
        times :func:`next_item_scores`; items come one at a time.

    Raises
    ------
    ImpossibleSizeError
        The sequence ends before, or a pair would carry it beyond, ``size``.
    ImpossibleLimitError
        No set of this size keeps the limits.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = LowRankKernel(np.diag([1.0, 3.0, 2.0]), np.eye(3))
    >>> greedy_map(kernel, 2), greedy_map(kernel, 2, given=[0])
    (array([1, 2]), array([0, 1]))
    """
    kernel = Law.required(kernel)
    rows, support = kernel.rows_of(given, "given"), kernel.support
    if check_count(size, "size") < len(rows):
        raise ImpossibleSizeError(f"size counts the given items; {len(rows)} are given, but size is {size}")
    if size > kernel.max_size:
        raise ImpossibleSizeError(f"no set is larger than {kernel.size_bound}; got size {size}")
    allowed = np.ones(len(support), bool)
    if candidates is not None:
        allowed = np.isin(support, check_items(candidates, kernel, "candidates"))
    allowed[rows] = False
    chosen: list[int] = rows.tolist()
    group: tuple[int, ...] = ()
    if isinstance(limits, Limit) or len(limits):
        groups = _within_limits(kernel, rows, allowed, Limits.of(limits, kernel, size))
    else:
        groups = _groups(kernel, rows, allowed)
    for group in groups:
        chosen.extend(group)
        if len(chosen) >= size:
            break
    if len(chosen) != size:
        raise _no_set_of(size, len(chosen), len(group))
    return np.asarray(support[np.array(chosen, np.int64)])


def _no_set_of(size: int, found: int, last: int) -> ImpossibleSizeError:
    """Return the error for a sequence that ends with ``found`` items, the last ``last`` of them added at once."""
    if found > size:
        return ImpossibleSizeError(
            f"size {size} falls between two steps of the greedy sequence: after {found - last} items no "
            f"single one has a gain, and {last} are added at once. Ask for size {found}."
        )
    return ImpossibleSizeError(
        f"size {size} was asked for, but the greedy sequence ends after {found} items: no candidate left has "
        f"a gain that double precision can tell from zero. Ask for size {found}, or allow more candidates."
    )


def _within_limits(law: Law, rows: IntArray, allowed: BoolArray, limits: Limits) -> Iterator[tuple[int, ...]]:
    """Yield nothing for the given items, and then the best next item with which the limits can still be kept, as far as sums show."""
    yield ()
    support, chosen, left = law.support, law.support[rows].tolist(), np.zeros(law.n_items, bool)
    left[support] = allowed
    limits.beside(np.array(chosen, np.int64)).check(left, law.max_size - len(chosen))
    while len(chosen) < law.n_items:
        gains = np.where(left, next_item_scores(law, chosen), 0.0)
        for best in np.argsort(-gains, kind="stable").tolist():
            if not gains[best] > 0:
                return
            left[best] = False
            if limits.can_hold(np.array([*chosen, best]), left, law.max_size):
                break
        else:
            return
        yield (int(np.searchsorted(support, best)),)
        chosen.append(best)


@singledispatch
def _groups(law: Law, rows: IntArray, allowed: BoolArray) -> Iterator[tuple[int, ...]]:
    """Yield nothing for the given items, and then the best next item as long as one has a gain."""
    yield ()
    chosen = rows.tolist()
    while len(chosen) < law.n_items:
        gains = np.where(allowed, next_item_scores(law, chosen), 0.0)
        best = int(np.argmax(gains))
        if not gains[best] > 0:
            return
        yield (best,)
        chosen.append(best)


@_groups.register
def _kernel_groups(kernel: LowRankKernel, rows: IntArray, allowed: BoolArray) -> Iterator[tuple[int, ...]]:
    return (_sequence if kernel.background is None else _sequence_with_background)(kernel, rows, allowed)


def _sequence(kernel: LowRankKernel, rows: IntArray, allowed: BoolArray) -> Iterator[tuple[int, ...]]:
    """Yield what the greedy run adds: first what completes the given rows, then an item or a pair at a time."""
    allowed = allowed.copy()
    start = _completion(kernel, rows, allowed)
    yield start
    chosen = [*rows, *start]
    gains: Gains | None = None
    while True:
        allowed[chosen] = False
        if gains is None:
            given = eliminate(kernel.coordinates, kernel.q_rows(np.array(chosen, np.int64)))
            if given is None or given.null.size:
                return
            gains = Gains.fresh(kernel, given)
        certain = np.where(allowed & (gains.values > gains.noise), gains.values, 0.0)
        best = int(np.argmax(certain))
        if not gains.is_fresh and gains.noise[allowed].max(initial=0.0) > MAX_LOSS * certain[best]:
            gains = None
            continue
        group = (best,) if certain[best] > 0 else _best_pair(kernel, gains, allowed)
        if not group:
            return
        yield group
        chosen.extend(group)
        gains = gains.after(kernel, best) if len(group) == 1 else None


def _sequence_with_background(kernel: LowRankKernel, rows: IntArray, allowed: BoolArray) -> Iterator[tuple[int, ...]]:
    """Yield the items of the greedy run: gains are (1 + δ)(p + qᵀCq), and adding an item changes C by rank one.

    Items with δ > 0 always have a gain. Once none of them is left, what follows is the run of the low-rank kernel of the others.
    """
    yield ()
    allowed = allowed.copy()
    rest = kernel.condition(kernel.catalogue_ids(rows)) if len(rows) < kernel.n_rows else kernel
    chosen = rows.tolist()
    if rest.background is not None:
        at = np.searchsorted(kernel.support, rest.support)
        odds, C, p, gains = rest.odds, rest.coordinates.B, rest.form.diagonal, rest.form.own[0]
        while (allowed[at] & (odds > 0)).any():
            best = int(np.argmax(np.where(allowed[at], (1 + odds) * gains, -1.0)))
            yield (int(at[best]),)
            chosen.append(int(at[best]))
            allowed[at[best]] = False
            q = rest.q_rows(np.array([best]))[0]
            u, v, pivot = C @ q, q @ C, float(p[best] + q @ C @ q)
            both = rest.q_times(np.column_stack([u, v]))
            gains = np.maximum(gains - both[:, 0] * both[:, 1] / pivot, p)
            C = C - np.outer(u, v / pivot)
    if not allowed.any():
        return
    last = kernel.condition(kernel.catalogue_ids(np.array(chosen, np.int64))).restrict(kernel.support[allowed])
    for group in _sequence(last, np.empty(0, np.int64), np.ones(last.n_rows, bool)):
        yield tuple(np.flatnonzero(allowed)[list(group)].tolist())


def _completion(kernel: LowRankKernel, rows: IntArray, allowed: BoolArray) -> tuple[int, ...]:
    """Return the fewest items that give the given rows a positive determinant, the most strongly coupled first.

    L_Y x = 0 means that x has no symmetric part, so that L_aY x = −xᵀL_Ya for every a: adding a removes from the null
    space of L_Y the direction it is coupled to, and with one direction left det L_{Y∪a} is the square of that coupling.
    """
    added: list[int] = []
    while True:
        given = eliminate(kernel.coordinates, kernel.q_rows(np.array([*rows, *added], np.int64)))
        if given is not None and not given.null.size:
            return tuple(added)
        coupling = np.zeros(len(allowed))
        if given is not None:
            coupling = np.where(allowed, np.linalg.norm(kernel.q_times(given.null), axis=1), 0.0)
            coupling[coupling <= ROUNDING * np.abs(given.null).max()] = 0.0
        best = int(np.argmax(coupling))
        if not coupling[best]:
            raise ZeroProbabilityError(
                f"the given items {kernel.catalogue_ids(rows).tolist()} have det L = 0, and no candidates change that; "
                "give fewer or other items, or allow more candidates"
            )
        added.append(best)
        allowed[best] = False


def _best_pair(kernel: LowRankKernel, gains: Gains, allowed: BoolArray) -> tuple[int, ...]:
    """Return the pair with the largest det L^Y_ab = (L^Y_ab)², none having a gain alone; () where all are zero."""
    to_z, skew, scale = gains.given.to_z, (gains.given.M - gains.given.M.T) / 2, np.abs(gains.given.M).max(initial=0.0)
    reach, norms = np.zeros(len(allowed)), np.zeros(len(allowed))
    for block, Q in kernel.q_blocks():
        Z = Q @ to_z
        norms[block], reach[block] = np.linalg.norm(Z, axis=1), np.linalg.norm(Z @ skew, axis=1)
    noise = gains.noise / (scale or 1.0)  # e(‖z‖ + e) for an error e of z
    error = 2 * noise / np.maximum(norms + np.sqrt(norms**2 + 4 * noise), TINY)
    norms, reach = norms * allowed, reach * allowed
    order = np.argsort(-reach, kind="stable")[: min(PAIR_ROWS, np.count_nonzero(reach))]
    pair: tuple[int, ...] = ()
    largest = 0.0
    for start in range(0, len(order), PAIR_BLOCK):
        rows = order[start : start + PAIR_BLOCK]
        if reach[rows[0]] * norms.max() <= largest:  # |z_a S z_b| ≤ ‖z_a S‖ ‖z_b‖: no later row can do better
            break
        left = kernel.q_rows(rows) @ to_z @ skew
        for block, Q in kernel.q_blocks():
            entries = np.abs(left @ (Q @ to_z).T) * allowed[block]
            doubt = np.outer(error[rows], norms[block] + error[block]) + np.outer(norms[rows], error[block])
            entries[(entries <= scale * doubt) | (rows[:, None] == np.arange(block.start, block.stop))] = 0.0
            i, j = np.unravel_index(np.argmax(entries), entries.shape)
            if entries[i, j] > largest:
                largest, pair = float(entries[i, j]), tuple(sorted((int(rows[i]), block.start + int(j))))
    return pair
