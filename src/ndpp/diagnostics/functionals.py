"""Functionals of sets to watch along chains: log det, the size, and item indicators."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import BoolArray, FloatArray, Items
from ndpp._validation import check_count, check_items
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, needing
from ndpp.laws.kernel import LowRankKernel


class Functionals(NamedTuple):
    """Values along chains, (n_chains, n_draws, n_functionals), with the names of the functionals; some are of items."""

    names: tuple[str, ...]
    values: FloatArray
    is_item: BoolArray


def log_dets(kernel: LowRankKernel, baskets: Baskets) -> FloatArray:
    """Return log det L_S of each basket S, −inf for zero: log P(S) up to a constant. O(k²r + kr²) per basket.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(2), [[1.0, 2.0], [-2.0, 1.0]])
    >>> np.exp(log_dets(kernel, ndpp.Baskets.from_lists([[], [1], [0, 1]], n_items=2)))
    array([1., 1., 5.])
    """
    if baskets.n_items > kernel.n_items:
        raise InvalidInputError(f"the baskets are over {baskets.n_items} items; the kernel has {kernel.n_items}")
    return kernel.log_dets(baskets)


def item_indicators(baskets: Baskets, items: Items) -> FloatArray:
    """Return 1 where a basket contains an item and 0 elsewhere, shape (len(baskets), len(items)).

    Examples
    --------
    >>> import ndpp
    >>> item_indicators(ndpp.Baskets.from_lists([[0, 2], [1]]), [2, 1])
    array([[1., 0.], [0., 1.]])
    """
    columns = baskets.to_csr().tocsc()[:, check_items(items, baskets.n_items)]
    return np.asarray(columns.toarray(), np.float64)


def functionals(kernel: LowRankKernel, baskets: Baskets, *, n_chains: int = 1, n_items: int = 100) -> Functionals:
    """Return log det, the size (if it varies) and the indicators of ``n_items`` items along chains of sets.

    Chains are interleaved, as ``Walk`` returns them: basket i belongs to chain i mod ``n_chains``. The items are those
    whose frequency over all draws is closest to one half.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), np.eye(3))
    >>> found = functionals(kernel, kernel.sample(40, rng=0), n_chains=4, n_items=2)
    >>> found.names, found.values.shape
    (('log det', 'size', 'item 0', 'item 1'), (4, 10, 4))
    """
    n_chains, n_items = check_count(n_chains, "n_chains", least=1), check_count(n_items, "n_items")
    if not len(baskets) or len(baskets) % n_chains:
        raise InvalidInputError(
            f"the number of baskets must be a multiple of {n_chains}, the number of chains; got {len(baskets)}. "
            "Drop the last few, or check n_chains"
        )
    frequency = np.bincount(baskets.indices, minlength=baskets.n_items) / len(baskets)
    variance = frequency * (1 - frequency)
    watched = np.argsort(-variance, kind="stable")[: min(n_items, np.count_nonzero(variance))]
    labels = baskets.labels or range(baskets.n_items)
    names, columns = ["log det"], [log_dets(kernel, baskets)]
    if np.ptp(baskets.sizes) > 0:
        names, columns = [*names, "size"], [*columns, baskets.sizes.astype(np.float64)]
    is_item = np.arange(len(names) + len(watched)) >= len(names)
    names += [f"item {labels[item]}" for item in watched]
    values = np.column_stack([*columns, item_indicators(baskets, watched)])
    return Functionals(tuple(names), values.reshape(-1, n_chains, values.shape[1]).swapaxes(0, 1), is_item)


def to_arviz(chains: Functionals) -> Any:
    """Return the values as the ``posterior`` group of an ArviZ data tree. Needs the package arviz-base.

    The functions of arviz-stats also take ``chains.values[:, :, j]``.
    """
    with needing("arviz-base", "diag", "Export to ArviZ"):
        arviz_base = importlib.import_module("arviz_base")
    return arviz_base.from_dict({"posterior": dict(zip(chains.names, np.moveaxis(chains.values, 2, 0)))})
