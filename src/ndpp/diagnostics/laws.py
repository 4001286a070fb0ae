"""Distributions over sets, as mappings from sorted tuples of items to probabilities, and distances between them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ndpp._types import FloatArray
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel

MAX_SETS = 2**20
"""Maximum number of sets to enumerate."""
SUM_TOLERANCE = 1e-6
"""Allowed deviation of the sum of probabilities from one."""

SetProbabilities: TypeAlias = Mapping[tuple[int, ...], float]
"""Set → probability; missing sets have probability zero."""


def exact_law(kernel: LowRankKernel, size: int | None = None) -> dict[tuple[int, ...], float]:
    """Return P(S) = det L_S / Σ_T det L_T for all possible sets, or for those of one size, by enumeration.

    For tests and small examples: computes 2^n determinants, or n over ``size``, but at most 2^20.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(2), [[0.0, 1.0], [-1.0, 0.0]])
    >>> exact_law(kernel)  # both items or none
    {(): 0.5, (0, 1): 0.5}
    """
    sizes = range(min(kernel.max_size, len(kernel.support)) + 1) if size is None else (kernel.check_size(size),)
    n_sets = sum(math.comb(len(kernel.support), k) for k in sizes)
    if n_sets > MAX_SETS:
        raise InvalidInputError(
            f"{n_sets} sets would have to be enumerated, more than {MAX_SETS}. Restrict the kernel to fewer items, or "
            "use a closed form: size_distribution(), inclusion_probabilities(), log_prob()"
        )
    sets: list[tuple[int, ...]] = [S for k in sizes for S in combinations(kernel.support.tolist(), k)]
    values = kernel.log_dets(Baskets.from_lists(sets, n_items=kernel.n_items))
    probabilities = np.exp(values - values.max())
    probabilities /= probabilities.sum()
    return {sets[i]: float(probabilities[i]) for i in np.flatnonzero(probabilities)}


def empirical_law(baskets: Baskets) -> dict[tuple[int, ...], float]:
    """Return the share of draws equal to each set.

    Examples
    --------
    >>> import ndpp
    >>> empirical_law(ndpp.Baskets.from_lists([[0], [1, 2], [0], [0]]))
    {(0,): 0.75, (1, 2): 0.25}
    """
    if len(baskets) == 0:
        raise InvalidInputError("expected at least one basket; got none")
    counts = Counter(tuple(basket.tolist()) for basket in baskets)
    return {items: count / len(baskets) for items, count in counts.items()}


def total_variation(p: SetProbabilities | npt.ArrayLike, q: SetProbabilities | npt.ArrayLike) -> float:
    """Return ½ Σ_S |p(S) − q(S)|, the largest difference in the probability of any event.

    ``p`` and ``q`` are mappings from sets to probabilities, or arrays of the same shape.

    Examples
    --------
    >>> round(total_variation({(0,): 0.5, (1,): 0.5}, {(1,): 0.8, (0, 1): 0.2}), 12)
    0.5
    """
    return 0.5 * float(np.abs(_difference(p, q)).sum())


def sup_distance(p: SetProbabilities | npt.ArrayLike, q: SetProbabilities | npt.ArrayLike) -> float:
    """Return max_S |p(S) − q(S)|, which the paper calls total variation.

    Examples
    --------
    >>> round(sup_distance([0.5, 0.5, 0.0], [0.0, 0.8, 0.2]), 12)
    0.5
    """
    return float(np.abs(_difference(p, q)).max(initial=0.0))


def _difference(p: SetProbabilities | npt.ArrayLike, q: SetProbabilities | npt.ArrayLike) -> FloatArray:
    if isinstance(p, Mapping) and isinstance(q, Mapping):
        keys = list(dict.fromkeys([*p, *q]))
        first, second = (_check_law([law.get(key, 0.0) for key in keys]) for law in (p, q))
    elif isinstance(p, Mapping) or isinstance(q, Mapping):
        raise InvalidInputError(
            f"both distributions must be mappings, or both arrays; got {type(p).__name__} and {type(q).__name__}"
        )
    else:
        first, second = _check_law(p), _check_law(q)
    if first.shape != second.shape:
        raise InvalidInputError(f"arrays must have the same shape; got {first.shape} and {second.shape}")
    return first - second


def _check_law(values: npt.ArrayLike) -> FloatArray:
    law = np.asarray(values, np.float64)
    if not (law.size and np.all(law >= -SUM_TOLERANCE) and abs(law.sum() - 1) <= SUM_TOLERANCE):
        raise InvalidInputError(
            f"probabilities must sum to one; these {law.size} sum to {law.sum():.6g}. Divide counts by their sum"
        )
    return law
