"""Samples by enumeration of all sets and their probabilities: the reference for all other samplers.

Law: P(S) ∝ det(L_S), over all sets or over those of one size. Exact. Cost: O(2ⁿ n³) to prepare, O(n) per draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.scaling import EPS, unit_of
from ndpp.samplers.base import Draw, Sampler

ROUNDING = 1e-13
"""A minor below this fraction of Hadamard's bound is zero."""
MAX_ERROR = 1e-8
"""Largest error of dense minors, relative to their sum; beyond it, they are computed from the factors of the kernel."""
CHUNK = 1 << 22
"""Maximum number of matrix entries formed at once."""


@dataclass(frozen=True, eq=False)
class Naive(Sampler):
    """All sets of positive probability: bit masks over the rows of the kernel's support, and their probabilities ``law``.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(2), [[0.0, 1.0], [-1.0, 0.0]])
    >>> sampler = Naive.prepare(kernel)
    >>> sampler.masks, sampler.law  # the empty set and {0, 1}
    (array([0, 3]), array([0.5, 0.5]))
    """

    kernel: LowRankKernel
    size: int | None
    masks: IntArray
    law: FloatArray

    @classmethod
    def prepare(cls, kernel: LowRankKernel, *, size: int | None = None, max_items: int = 18) -> Naive:
        """Enumerate all sets, or those of ``size`` items, of a kernel with at most ``max_items`` items."""
        n = len(kernel.support)
        if n > check_count(max_items, "max_items", most=62):
            raise InvalidInputError(
                f"Naive enumerates all sets and takes at most {max_items} items; this kernel has {n}. "
                "Use Exact, restrict the kernel, or raise max_items (time and memory double with each item)."
            )
        if size is None:
            kernel.check_precision()
        sizes = range(kernel.max_size + 1) if size is None else [kernel.check_size(size)]
        sets = [np.array(list(combinations(range(n), k)), np.int64) for k in sizes]
        values = weights(kernel, dense(kernel), sets)
        masks = np.concatenate([(1 << members).sum(axis=1) for members in sets])
        possible = values > 0
        return cls(kernel, size, masks[possible], values[possible] / values.sum())

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set."""
        mask = int(self.masks[rng.choice(len(self.masks), p=self.law)])
        return Draw(np.array([a for a in range(len(self.kernel.support)) if mask >> a & 1], np.int64), {"proposals": 1})


def dense(kernel: LowRankKernel) -> FloatArray:
    """Return L on the support, as a dense matrix."""
    return np.asarray(kernel.to_dense()[np.ix_(kernel.support, kernel.support)])


def weights(kernel: LowRankKernel, L: FloatArray, sets: Sequence[IntArray]) -> FloatArray:
    """Return det L_S of sets of rows, in groups of one size, shapes (p, k), up to a common factor; zeros if no set is possible.

    If the sets are so close to dependent that minors of the dense L are rounding, they are computed from the factors of L.
    """
    # det L_S = unit^|S| · det(L/unit)_S: the powers of two are restored relative to the largest of them.
    unit = unit_of(L)
    scaled, powers = L / unit, round(np.log2(unit)) * np.array([members.shape[1] for members in sets])
    parts = [
        np.ldexp(minors(scaled, chunk), power - powers.max())
        for members, power in zip(sets, powers)
        for chunk in np.array_split(members, max(1, members.size * members.shape[1] // CHUNK))
    ]
    values, errors = np.concatenate(parts, axis=1)
    if errors.sum() <= MAX_ERROR * values.sum():
        return np.asarray(values)
    ids = [kernel.catalogue_ids(rows) for members in sets for rows in members]
    values = kernel.log_dets(Baskets.from_lists(ids, n_items=kernel.n_items))
    return np.asarray(np.exp(values - max(values.max(initial=-np.inf), np.finfo(float).min)))


def minors(L: FloatArray, sets: IntArray) -> FloatArray:
    """Return det L_S for each row of ``sets``, exactly zero if it is zero up to rounding, and about its error, shape (2, p). O(p k³)."""
    k = sets.shape[1]
    if k == 0:
        return np.ones((2, len(sets))) * [[1.0], [0.0]]
    scale = _even_scale(L)
    blocks = (L * scale[:, None] * scale)[sets[:, :, None], sets[:, None, :]]
    bound = np.minimum(*(np.linalg.norm(blocks, axis=axis).prod(axis=-1) for axis in (1, 2)))
    values = np.linalg.det(blocks)
    values = np.where(values > ROUNDING * k * bound, values, 0.0)
    return np.asarray(np.stack([values, EPS * k * bound]) / (scale[sets] ** 2).prod(axis=1))


def _even_scale(L: FloatArray) -> FloatArray:
    """Return powers of two s that balance the rows of diag(s) L diag(s), so that Hadamard's bound is not far off."""
    scale = np.ones(len(L))
    for _ in range(10):
        A = np.abs(L * scale[:, None] * scale)
        largest = np.maximum(A.max(axis=0), A.max(axis=1))
        scale /= np.sqrt(np.where(largest > 0, largest, 1.0))
    return np.exp2(np.round(np.log2(scale)))
