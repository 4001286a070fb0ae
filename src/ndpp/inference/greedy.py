"""Greedy MAP: a likely set, built one item at a time.

For a set Y the gain of item a is det L_{Y∪a} / det L_Y = L_aa − L_aY L_Y⁻¹ L_Ya. A run of k items costs O(n d k), straight from the rows of
X (:mod:`ndpp.inference.pursuit`). Where rounding could change a step, it goes on in orthonormal coordinates, O(n r (r + k)): there gains
that have lost too many digits are computed again from scratch, and those within rounding error of zero count as zero.
[Gartrell et al., ICLR 2021; Chen et al., NeurIPS 2018]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any, TypeGuard

import numpy as np

from ndpp._types import AnyArray, BoolArray, FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items, plain_array
from ndpp.errors import ImpossibleSizeError, InvalidInputError
from ndpp.inference.pursuit import LAZY, TIE, Factors, Inner, Pursuit, extend, pursuit, side_by_side
from ndpp.inference.scores import next_item_scores
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.kernel_gains import LowRankGains, completion
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit, Limits
from ndpp.linalg.operations import Array
from ndpp.linalg.schur import MAX_LOSS, eliminate
from ndpp.rows import Rows

DEVICE_ENTRIES = 2**28
"""Entries of X that a GPU works on at a time (2 GB in double precision)."""


def greedy_map(
    kernel: Any,
    size: int,
    *,
    given: Items = (),
    candidates: Items | None = None,
    window: int | None = None,
    limits: Limit | Sequence[Limit] = (),
) -> IntArray:
    """Return ``size`` items of large P(S): the given ones, then, in the order chosen, the best next item each time.

    The sequence is nested: the first j items of a longer run are the run of size j. Items with L_aa = 0 can have no
    gain alone and yet a large one together (in a purely skew kernel all are such); where no single item has a gain, the
    best pair is added, smaller id first: the best of all for up to 1,024 candidates, else the best that contains one of
    the 1,024 items with the largest rows. Given items with det L = 0 are first completed to a set that can occur,
    if the kernel has no background. A gain that is below the best by less than one part in 2³¹ counts as equal to it, and of
    equal gains the smallest id is taken. O(n d size), for a mixture ``size`` times :func:`next_item_scores`.

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
    window : int, optional
        How many items in a row are to be diverse: the gain of an item is that after the last ``window - 1`` items rather than after all
        of them, so that long lists may come back to a topic, and be longer than the rank.
    limits : Limit or sequence of Limit
        Limits that the set keeps, given items included: each time the best item is added with which they can still be kept. Items come
        one at a time.

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
    if window is not None:
        check_count(window, "window", least=1)
    elif size > (kernel.n_items if _is_plain(kernel) else kernel.max_size):
        raise _too_large(kernel, size)
    allowed = np.ones(len(support), bool)
    if candidates is not None:
        allowed = np.isin(support, check_items(candidates, kernel, "candidates"))
    allowed[rows] = False
    chosen: list[int] = rows.tolist()
    group: tuple[int, ...] = ()
    limit = Limits.of(limits, kernel, size) if isinstance(limits, Limit) or len(limits) else None
    for group in (
        _groups(kernel, rows, allowed, size, window)
        if limit is None
        else _within_limits(kernel, rows, allowed, limit, size, window)
    ):
        chosen.extend(group)
        if len(chosen) >= size:
            break
    if len(chosen) != size:
        raise (
            _too_large(kernel, size)
            if window is None and size > kernel.max_size
            else _no_set_of(size, len(chosen), len(group))
        )
    return np.asarray(support[np.array(chosen, np.int64)])


def greedy_map_many(
    kernel: Any,
    size: int,
    *,
    given: Sequence[Items] | None = None,
    candidates: Sequence[Items] | None = None,
    window: int | None = None,
) -> Any:
    """Return :func:`greedy_map` of many queries, shape (queries, size): each with its own given items and candidates, or its own rows.

    Parameters
    ----------
    kernel : LowRankKernel, Mixture, fitted estimator, or (queries, n, d) array or tensor
        The model that all queries share; or the rows of each, whose kernel is X Xᵀ. Tensors on a GPU stay there, all queries are
        answered at once, and the result is a tensor.
    size : int
        Number of items, the given ones included.
    given, candidates : sequence of sequences of int, optional
        Of each query, those of :func:`greedy_map`.
    window : int, optional
        As in :func:`greedy_map`.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = LowRankKernel(np.diag([1.0, 3.0, 2.0, 4.0]))
    >>> greedy_map_many(kernel, 2, candidates=[[0, 1, 2], [2, 3]])
    array([[1, 2],
           [3, 2]])
    """
    counts = {len(lists) for lists in (given, candidates) if lists is not None}
    n_items = None
    if getattr(kernel, "ndim", None) == 3:
        counts.add(len(kernel))
        n_items = kernel.shape[1]
    if len(counts) != 1:
        raise InvalidInputError(
            "given and candidates must have one list per query each"
            + (f"; they are for {' and '.join(map(str, sorted(counts)))} queries" if counts else "; got neither")
        )
    queries = [
        (() if given is None else given[i], None if candidates is None else candidates[i]) for i in range(counts.pop())
    ]
    if n_items is not None:
        first, allowed = [check_items(own, n_items, "given") for own, _ in queries], None
        if candidates is not None:
            allowed = np.array(
                [np.isin(np.arange(n_items), check_items(own, n_items, "candidates")) for _, own in queries]
            )
        if len({len(own) for own in first}) > 1:
            raise InvalidInputError("given must have the same number of items for each query with its own rows")
        return greedy_batch(kernel, check_count(size, "size"), np.array(first, np.int64), window, allowed)[0]
    law = Law.required(kernel)
    if _is_plain(law):
        law.check_unchanged()
    found = [_among(law, size, start, own, window) for start, own in queries]
    return np.array(found, np.int64).reshape(len(queries), size)


def _among(law: Law, size: int, given: Items, candidates: Items | None, window: int | None) -> IntArray:
    """Return the greedy run of one query from the rows of its own items, where these are fewer than all."""
    if candidates is not None and _is_plain(law) and not isinstance(law._factor, Rows) and size > 0:
        start, rows = law.rows_of(given, "given"), check_items(candidates, law, "candidates")
        rows = np.union1d(start, law.rows_of(rows[law.can_occur(rows)]))
        open = ~np.isin(rows, start)
        if len(rows) >= size > len(start) and len(rows) < law.n_rows:
            run = _run(law, rows, open, size, window)
            _add(run, np.searchsorted(rows, start))
            picks = [int(pick) for (pick,) in extend(run, size - len(start))[0]]
            if len(picks) == size - len(start):
                return np.concatenate([law.catalogue_ids(start), law.catalogue_ids(rows[picks])])
    return greedy_map(law, size, given=given, candidates=candidates, window=window)


def greedy_batch(
    X: Array,
    size: int,
    given: IntArray,
    window: int | None = None,
    allowed: BoolArray | None = None,
    factors: Factors | None = None,
) -> tuple[Array, Array]:
    """Return the greedy runs of kernels X_b X_bᵀ, X (b, n, d), and the gains of their items, NaN for given ones: tensors for a tensor.

    ``given`` is (b, g), ``allowed`` (b, n); rows are multiplied by ``factors`` of shape (b, n). A tensor on a GPU stays
    there, for as many queries at a time as memory allows.
    """
    (b, n, d), g = X.shape, given.shape[1]
    if allowed is not None or g:
        allowed = np.ones((b, n), bool) if allowed is None else allowed
        np.put_along_axis(allowed, given, False, axis=1)
    torch = None if isinstance(X, np.ndarray) else sys.modules["torch"]
    if torch is not None and X.device.type != "cpu":
        return _on_device(torch, X, size, given, window, allowed, factors)
    all_items, all_gains, rows = list[list[int]](), list[list[float]](), plain_array(X, "X")
    # One for all queries, in double precision: fresh pages would cost more than the copy.
    space = None if b == 1 or rows.dtype == np.float64 or n * d > LAZY else np.empty((n, d))
    for i in range(b):
        own = rows[i]
        if space is not None:
            space[:] = own
            own = space
        open = None if allowed is None else allowed[i].copy()
        of_query = None if factors is None else Factors(factors.f[i], factors.squares[i])
        run = pursuit(own, open, size, Inner(), window=window, factors=of_query)
        if g:
            _add(run, given[i])
        picks, found = extend(run, size - g)
        if len(picks) == size - g:
            all_items.append([*given[i].tolist(), *(int(pick) for (pick,) in picks)])
            all_gains.append([np.nan] * g + [gain for (gain,) in found])
        else:
            careful = _careful(rows[i], size, given[i], window, open, of_query)
            all_items.append(careful[0].tolist())
            all_gains.append([np.nan] * g + careful[1].tolist())
    items, gains = np.array(all_items, np.int64).reshape(b, size), np.array(all_gains, np.float64).reshape(b, size)
    return (items, gains) if torch is None else (torch.from_numpy(items), torch.from_numpy(gains))


def _on_device(
    torch: Any, X: Array, size: int, given: IntArray, window: int | None, allowed: BoolArray | None, factors: Any
) -> tuple[Array, Array]:
    """Return the same for a tensor on a GPU, which is waited for once per part."""
    (b, n, d), g, device = X.shape, given.shape[1], X.device
    plain_array(X[:0], "X")  # raises for gradients
    items = torch.empty((b, size), dtype=torch.int64, device=device)
    gains = torch.full((b, size), np.nan, dtype=torch.float64, device=device)
    step = max(1, DEVICE_ENTRIES // (n * d))
    for part in (slice(start, min(start + step, b)) for start in range(0, b, step)):
        f = None if factors is None else factors.f[part]
        rows = X[part].to(torch.float64) if f is None else X[part] * f[..., None]  # in double precision, as f is
        own = torch.linalg.vector_norm(rows, dim=-1) ** 2 if f is None else factors.squares[part] * f * f
        open = None if allowed is None else torch.tensor(allowed[part], device=device)
        start = torch.tensor(given[part], device=device)
        if window is None:
            items[part], found, sure = side_by_side(torch, rows, own, start, open, size)
            gains[part, g:] = found[:, g:]
        else:
            open = torch.ones(rows.shape[:2], dtype=torch.bool, device=device) if open is None else open
            run = Pursuit(torch, rows, open, window=window, own=own)
            _add(run, start.T)
            picks, values = extend(run, size - g)
            items[part] = torch.cat([start, torch.stack(picks, 1)] if picks else [start], 1)
            if picks:
                gains[part, g:] = torch.stack(values, 1)
            sure = run.sure
        for i in np.arange(b)[part][~sure.cpu().numpy()]:
            own = None if f is None else Factors(factors.f[i].cpu().numpy(), factors.squares[i].cpu().numpy())
            of = None if allowed is None else allowed[i]
            careful = _careful(plain_array(X[i], "X"), size, given[i], window, of, own)
            items[i], gains[i, g:] = (torch.from_numpy(values).to(device) for values in careful)
    return items, gains


def _careful(
    X: AnyArray, size: int, given: IntArray, window: int | None, open: BoolArray | None, factors: Factors | None
) -> tuple[IntArray, FloatArray]:
    """Return the run of one query that is not sure, and its gains."""
    kernel = LowRankKernel(X if factors is None else X * factors.f[:, None])
    candidates = None if open is None else np.flatnonzero(open)
    items = greedy_map(kernel, size, given=given, candidates=candidates, window=window)
    return items, gains_of(kernel, items, len(given), window)


def gains_of(kernel: LowRankKernel, run: IntArray, n_given: int, window: int | None) -> FloatArray:
    """Return the gain of each item of a run after the given ones, from determinants."""
    gains = [
        kernel.log_det([*(before := _last(run[:j].tolist(), window)), run[j]]) - kernel.log_det(before)
        for j in range(n_given, len(run))
    ]
    return np.exp(gains)


def _add(run: Any, rows: Any) -> None:
    with np.errstate(all="ignore"):  # what is not sure is computed again
        for row in rows:
            run.add(row if row.ndim else np.array([row]))


def _is_plain(law: Law) -> TypeGuard[LowRankKernel]:
    """Return whether this is a kernel without a background: its size is known only once X is factored, which a run need not wait for."""
    return isinstance(law, LowRankKernel) and law.background is None


def _too_large(law: Law, size: int) -> ImpossibleSizeError:
    return ImpossibleSizeError(f"no set is larger than {law.size_bound}; got size {size}")


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


def _within_limits(
    law: Law, rows: IntArray, allowed: BoolArray, limits: Limits, size: int, window: int | None
) -> Iterator[tuple[int, ...]]:
    """Yield nothing for the given items, and then the best next item with which the limits can still be kept, as far as sums show."""
    yield ()
    support, chosen, left = law.support, law.support[rows].tolist(), np.zeros(law.n_items, bool)
    left[support] = allowed
    limits.beside(np.array(chosen, np.int64)).check(left, size - len(chosen))
    run = _begun(law, rows, allowed, size, window, lazy=False)
    while len(chosen) < law.n_items:
        if run is not None:
            run.best()
        if run is not None and run.sure[0]:
            gains = np.zeros(law.n_items)
            gains[support] = run.gains[0]
        else:
            gains, run = next_item_scores(law, _last(chosen, window)), None
        gains = np.where(left, gains, 0.0)
        while (best := _first_best(gains)) is not None:
            left[best] = gains[best] = False
            if limits.can_hold(np.array([*chosen, best]), left, size):
                break
        else:
            return
        row = int(np.searchsorted(support, best))
        yield (row,)
        chosen.append(best)
        if run is not None:
            run.add(np.array([row]))


def _first_best(gains: FloatArray) -> int | None:
    """Return the item with the largest gain, the first of those that are equal up to rounding; None if there is no gain."""
    top = gains.max(initial=0.0)
    return int(np.argmax(gains >= top * (1 - TIE))) if top > 0 else None


def _last(chosen: list[int], window: int | None) -> list[int]:
    return chosen if window is None else chosen[max(0, len(chosen) - window + 1) :]


@singledispatch
def _groups(law: Law, rows: IntArray, allowed: BoolArray, size: int, window: int | None) -> Iterator[tuple[int, ...]]:
    """Yield nothing for the given items, and then the best next item as long as one has a gain."""
    yield ()
    chosen, allowed = rows.tolist(), allowed.copy()
    while len(chosen) < law.n_items:
        best = _first_best(
            np.where(allowed, next_item_scores(law, law.support[_last(chosen, window)])[law.support], 0.0)
        )
        if best is None:
            return
        yield (best,)
        chosen.append(best)
        allowed[best] = False


@_groups.register
def _kernel_groups(
    kernel: LowRankKernel, rows: IntArray, allowed: BoolArray, size: int, window: int | None
) -> Iterator[tuple[int, ...]]:
    """Yield the items of a run from the rows of X as long as it is sure, and then those of a careful one."""
    if kernel.background is not None:
        by_scores = _groups.dispatch(object)(kernel, rows, allowed, size, window)
        yield from _sequence_with_background(kernel, rows, allowed) if window is None else by_scores
        return
    run = _begun(kernel, rows, allowed, size, window)
    if run is None or not run.sure[0]:
        yield from _sequence(kernel, rows, allowed, window)
        return
    yield ()
    picks = [int(pick) for (pick,) in extend(run, min(size, kernel.n_rows) - len(rows))[0]]
    yield from ((pick,) for pick in picks)
    allowed[picks] = False
    yield from _sequence(kernel, np.array([*rows, *picks], np.int64), allowed, window)


def _begun(law: Law, rows: IntArray, allowed: BoolArray, size: int, window: int | None, *, lazy: bool = True) -> Any:
    """Return a run from the rows of X to which the given ones have been added; None where there are no such rows in memory."""
    if not _is_plain(law) or isinstance(law._factor, Rows):
        return None
    run = _run(law, None, allowed.copy(), size, window, lazy=lazy)
    _add(run, rows)
    return run


def _run(
    law: LowRankKernel, rows: IntArray | None, open: BoolArray, size: int, window: int | None, *, lazy: bool = True
) -> Any:
    """Return the run of some rows of the support, None for all, before any item is added."""
    columns, X = law.unit_columns, law._factor
    if columns is None:
        assert isinstance(X, np.ndarray)
        law.check_unchanged()
        return pursuit(X if rows is None else X[rows], open, size, _inner(law), window=window, lazy=lazy)
    columns, L = columns if rows is None else columns[rows], np.asarray(law.W, np.float64)
    scale = law.unit_scale if law.is_symmetric and window is None else law._magnitudes
    if rows is not None or law.n_rows < len(L):
        L = L[np.ix_(columns, columns)]
    return pursuit(None, open, size, Inner(L, scale[columns], law.is_symmetric), window=window, lazy=lazy)


def _inner(kernel: LowRankKernel) -> Inner:
    W, m = np.asarray(kernel.W, np.float64), kernel._magnitudes
    if W[0, 0] == 1 and np.count_nonzero(W) == len(W) and (W.diagonal() == 1).all() and (m == 1).all():
        return Inner()
    if kernel.is_symmetric:
        return Inner((W + W.T) / 2, m)
    return Inner(W, m, is_symmetric=False)


def _sequence(
    kernel: LowRankKernel, rows: IntArray, allowed: BoolArray, window: int | None = None
) -> Iterator[tuple[int, ...]]:
    """Yield what the greedy run adds: first what completes the given rows, then an item or a pair at a time."""
    allowed = allowed.copy()
    start = completion(kernel, np.array(_last(rows.tolist(), window), np.int64), allowed)
    yield start
    chosen = [*rows, *start]
    gains: LowRankGains | None = None
    while True:
        allowed[chosen] = False
        if gains is None:
            given = eliminate(kernel.coordinates, kernel.q_rows(np.array(_last(chosen, window), np.int64)))
            if given is None or given.null.size:
                return
            gains = LowRankGains.fresh(kernel, given)
        certain = np.where(allowed & (gains.values > gains.noise), gains.values, 0.0)
        best = _first_best(certain)
        if not gains.is_fresh and gains.noise[allowed].max(initial=0.0) > MAX_LOSS * certain.max():
            gains = None
            continue
        group = (best,) if best is not None else gains.best_pair(allowed)
        if not group:
            return
        yield group
        chosen.extend(group)
        gains = gains.after(group[0], allowed) if len(group) == 1 and window is None else None


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
            best = _first_best(np.where(allowed[at], (1 + odds) * gains, 0.0))
            assert best is not None
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
