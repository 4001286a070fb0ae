"""Numbers to watch: log det, the size, whether an item is in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.batched import log_dets as _log_dets
from ndpp.laws.kernel import LowRankKernel


class Functionals(NamedTuple):
    """Values of some functionals along chains: (n_chains, n_draws, n_functionals), their names, and which of them tell of an item."""

    names: tuple[str, ...]
    values: FloatArray
    is_item: BoolArray


def log_dets(kernel: LowRankKernel, baskets: Baskets) -> FloatArray:
    """Return log det L_S of each basket S, −inf where it is zero: log P(S), up to a constant. O(k²r + kr²) each.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(2), [[1.0, 2.0], [-2.0, 1.0]])
    >>> np.exp(log_dets(kernel, ndpp.Baskets.from_lists([[], [1], [0, 1]], n_items=2)))
    array([1., 1., 5.])
    """
    if baskets.n_items > kernel.n_items:
        raise InvalidInputError(f"the baskets are over {baskets.n_items} items; the kernel has {kernel.n_items}")
    return _log_dets(kernel, baskets)


def item_indicators(baskets: Baskets, items: Items) -> FloatArray:
    """Return one where an item is in a basket, zero where not: shape (len(baskets), len(items)).

    Examples
    --------
    >>> import ndpp
    >>> item_indicators(ndpp.Baskets.from_lists([[0, 2], [1]]), [2, 1])
    array([[1., 0.], [0., 1.]])
    """
    columns = baskets.to_csr().tocsc()[:, check_items(items, baskets.n_items)]
    return np.asarray(columns.toarray(), np.float64)


def functionals(kernel: LowRankKernel, baskets: Baskets, *, n_chains: int = 1, n_items: int = 100) -> Functionals:
    """Return log det, the size (if it varies) and the most telling item indicators of chains of sets.

    Parameters
    ----------
    kernel : LowRankKernel
    baskets : Baskets
        Sets of the chains in turn, as ``Walk`` gives them: basket i is of chain i mod ``n_chains``.
    n_chains : int
        How many chains.
    n_items : int
        How many items are watched: those whose frequency over all draws is nearest to one half.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), np.eye(3))
    >>> found = functionals(kernel, kernel.sample(40, rng=0), n_chains=4, n_items=2)
    >>> found.names, found.values.shape
    (('log det', 'size', 'item 1', 'item 2'), (4, 10, 4))
    """
    n_chains = check_count(n_chains, "n_chains", least=1)
    if not len(baskets) or len(baskets) % n_chains:
        raise InvalidInputError(
            f"{n_chains} chains need a number of baskets that is a multiple of {n_chains}; got {len(baskets)}. "
            "Drop the last few, or check n_chains"
        )
    watched = _telling(baskets, check_count(n_items, "n_items"))
    names, columns = ["log det"], [log_dets(kernel, baskets)[:, None]]
    if np.ptp(baskets.sizes) > 0:
        names, columns = [*names, "size"], [*columns, baskets.sizes[:, None].astype(np.float64)]
    n_others = len(names)
    names += [f"item {_name(baskets, item)}" for item in watched]
    values = np.hstack([*columns, item_indicators(baskets, watched)])
    by_chain = values.reshape(-1, n_chains, values.shape[1]).swapaxes(0, 1)
    return Functionals(tuple(names), by_chain, np.arange(len(names)) >= n_others)


def _telling(baskets: Baskets, n_items: int) -> IntArray:
    frequency = np.bincount(baskets.indices, minlength=baskets.n_items) / len(baskets)
    variance = frequency * (1 - frequency)
    return np.argsort(-variance, kind="stable")[: min(n_items, np.count_nonzero(variance))]


def _name(baskets: Baskets, item: int) -> str:
    return str(item) if baskets.labels is None else baskets.labels[item]
