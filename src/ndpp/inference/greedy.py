"""Greedy MAP: a likely set, built one item at a time.

For a set Y the gain of item a is det L_{Y∪a} / det L_Y = L_aa − L_aY L_Y⁻¹ L_Ya. A run of k items costs O(n d k), straight from the rows of
X (:mod:`ndpp.inference.pursuit`). Where rounding could change a step, it goes on in orthonormal coordinates, O(n r (r + k))
(:mod:`ndpp.inference.runs`). [Gartrell et al., ICLR 2021; Chen et al., NeurIPS 2018]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from types import ModuleType
from typing import Unpack

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray, Items, RealArray
from ndpp._validation import check_count, check_items, plain_array
from ndpp.errors import ImpossibleSizeError
from ndpp.inference.pursuit import OnDevice, RowFactors, pursuit
from ndpp.inference.runs import Careful, GreedyState, extend, last
from ndpp.inference.scores import law_under
from ndpp.laws.ask import Conditions
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit, Limits, listed
from ndpp.laws.scoring import Factored
from ndpp.linalg.operations import Array

DEVICE_ENTRIES = 2**28
"""Entries of X that a GPU works on at a time (2 GB in double precision)."""


def greedy_map(  # type: ignore[misc]
    kernel: object,
    size: int,
    *,
    given: Items = (),
    candidates: Items | None = None,
    window: int | None = None,
    limits: Limit | Sequence[Limit] = (),
    **conditions: Unpack[Conditions],
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
    **conditions
        ``exclude``, ``boost``, ``context``, ``mission`` and ``customer``, as in ``law.ask``.

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
    law: Law = Law.required(kernel)
    law = law_under(law, check_items(given, law, "given"), **conditions)
    chosen, support = law.rows_of(given, "given").tolist(), law.support
    if check_count(size, "size") < len(chosen):
        raise ImpossibleSizeError(f"size counts the given items; {len(chosen)} are given, but size is {size}")
    if window is not None:
        check_count(window, "window", least=1)
    elif size > law.n_items:
        raise law._too_large(size)
    open = np.ones(len(support), bool)
    if candidates is not None:
        open = np.isin(support, check_items(candidates, law, "candidates"))
    open[chosen] = False
    accepts = None
    if limits := listed(limits):
        accepts = _Within(Limits.of(limits, law, size), law, chosen, open, size)
    groups: list[Sequence[int]] = []
    for state, rows in _states(law, chosen, open, size, window, accepts):
        groups, _ = extend(state, size - len(chosen), accepts)
        picks = list(chain.from_iterable(groups))
        chosen += picks if rows is None else rows[picks].tolist()
        if len(chosen) >= size:
            break
    if len(chosen) != size:
        if window is None and size > law.max_size:
            raise law._too_large(size)
        raise _no_set_of(size, len(chosen), len(groups[-1]) if groups else 0)
    return np.asarray(support[np.array(chosen, np.int64)])


def _states(
    law: Law, chosen: list[int], open: BoolArray, size: int, window: int | None, accepts: _Within | None
) -> Iterator[tuple[GreedyState, IntArray | None]]:
    """Yield states that begin with what was ``chosen`` by the time, the fastest first, and the rows that theirs are; None if all."""
    rows = None
    if accepts is None and 2 * np.count_nonzero(open) < len(open):
        used = open.copy()
        used[chosen] = True
        rows = np.flatnonzero(used)
    if size > len(chosen) and open.any() and (kernel := law._scoring.factored(rows)) is not None:
        start = chosen if rows is None else np.searchsorted(rows, chosen).tolist()
        own = open if rows is None else open[rows]
        yield pursuit(kernel, start, own, size, window=window, at_once=accepts is not None), rows
    open[chosen] = False
    if accepts is not None:
        open &= accepts.left[law.support]
    yield Careful(law, chosen, open, window, singly=accepts is not None), None


class _Within:
    """Limits on a run: whether they can still be kept with one more item, as far as sums show. Items that are refused stay out."""

    def __init__(self, limits: Limits, law: Law, chosen: list[int], open: BoolArray, size: int) -> None:
        self.limits, self.support, self.size, self.left = limits, law.support, size, np.zeros(law.n_items, bool)
        self.chosen, self.left[law.support] = law.support[chosen].tolist(), open
        limits.beside(np.array(self.chosen, np.int64)).check(self.left, size - len(chosen))

    def __call__(self, group: Sequence[int]) -> bool:
        item = int(self.support[group[0]])
        self.left[item] = False
        fits = self.limits.can_hold(np.array([*self.chosen, item]), self.left, self.size)
        if fits:
            self.chosen.append(item)
        return fits


def greedy_batch(
    X: Array,
    size: int,
    given: IntArray,
    window: int | None = None,
    factors: RowFactors | None = None,
) -> tuple[Array, Array]:
    """Return the greedy runs of kernels X_b X_bᵀ, X (b, n, d), and the gains of their items, NaN for given ones: tensors for a tensor.

    ``given`` is (b, g); rows are multiplied by ``factors`` of shape (b, n). A GPU works on as many queries at a time as memory allows;
    windows are for the CPU.
    """
    b, g = len(X), given.shape[1]
    torch = None if isinstance(X, np.ndarray) else sys.modules["torch"]
    if torch is not None and X.device.type != "cpu" and window is None:
        return _on_device(torch, X, size, given, factors)
    items, gains, rows = np.empty((b, size), np.int64), np.full((b, size), np.nan), plain_array(X, "X")
    items[:, :g] = given
    for i in range(b):
        own = _of_query(factors, i)
        state = pursuit(Factored(rows[i]), given[i].tolist(), None, size, window=window, factors=own)
        picks, found = extend(state, size - g)
        if len(picks) == size - g:
            items[i, g:], gains[i, g:] = [row for (row,) in picks], found
        else:
            items[i], gains[i, g:] = _careful(rows[i], size, given[i], window, own)
    return (items, gains) if torch is None else tuple(torch.from_numpy(part).to(X.device) for part in (items, gains))


def _on_device(
    torch: ModuleType,
    X: Array,
    size: int,
    given: IntArray,
    factors: RowFactors | None,
) -> tuple[Array, Array]:
    """Return the same for a tensor on a GPU, which is waited for once per part."""
    (b, n, d), g, device = X.shape, given.shape[1], X.device
    plain_array(X[:0], "X")  # raises for gradients
    items = torch.empty((b, size), dtype=torch.int64, device=device)
    gains = torch.full((b, size), np.nan, dtype=torch.float64, device=device)
    step = max(1, DEVICE_ENTRIES // (n * d))
    for part in (slice(start, min(start + step, b)) for start in range(0, b, step)):
        if factors is None:
            rows = X[part].to(torch.float64)
            own = torch.linalg.vector_norm(rows, dim=-1) ** 2
        else:
            f = factors.f[part]
            rows, own = X[part] * f[..., None], factors.squares[part] * f * f  # in double precision, as f is
        start = torch.tensor(given[part], device=device)
        state = OnDevice(torch, rows, start, size, own)
        picks, found = extend(state, size - g)
        items[part] = torch.cat([start, *chain.from_iterable(picks)], 1)
        if picks:
            gains[part, g:] = torch.cat(found, 1)
        for i in np.arange(b)[part][~state.sure.cpu().numpy()]:
            careful = _careful(plain_array(X[i], "X"), size, given[i], None, _of_query(factors, i))
            items[i], gains[i, g:] = (torch.from_numpy(values).to(device) for values in careful)
    return items, gains


def _of_query(factors: RowFactors | None, i: int) -> RowFactors | None:
    return None if factors is None else RowFactors(*(plain_array(part[i], "factors") for part in factors))


def _careful(
    X: RealArray, size: int, given: IntArray, window: int | None, factors: RowFactors | None
) -> tuple[IntArray, FloatArray]:
    """Return the run of one query that is not sure, and its gains."""
    kernel = LowRankKernel(X if factors is None else X * factors.f[:, None])
    items = greedy_map(kernel, size, given=given, window=window)
    return items, gains_of(kernel, items, len(given), window)


def gains_of(kernel: LowRankKernel, run: IntArray, n_given: int, window: int | None) -> FloatArray:
    """Return the gain of each item of a run after the given ones, from determinants."""
    gains = [
        kernel.log_det([*(before := last(run[:j].tolist(), window)), run[j]]) - kernel.log_det(before)
        for j in range(n_given, len(run))
    ]
    return np.exp(gains)


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
