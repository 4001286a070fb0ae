"""Exact samples by one pass over the items, each in or out given those before it [Poulson 2020].

Law: P(S) ∝ det(L_S) over all sets. Exact. K = L(I + L)⁻¹ = Q R Qᵀ with R = B(I + B)⁻¹ is the marginal kernel. Item a
is in with probability p = q_aᵀRq_a, and then R ← R − (R q_a)(q_aᵀR) / p; it is out with probability 1 − p, and then
the divisor is p − 1.

Cost: O(n r²) per draw, in blocks of b items: G = Q_b R Q_bᵀ is processed item by item (compiled, O(b³)), and the
effect of the block on all later items is one update of rank b, R ← R − R Q_bᵀ (G − I_out)⁻¹ Q_b R. Only R is
prepared. The low-rank form is that of Han et al. [ICLR 2022].
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ndpp._compiled import njit
from ndpp._types import BoolArray, FloatArray
from ndpp._validation import PROBABILITY_TOLERANCE, check_count
from ndpp.errors import PrecisionError
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.size_law import resolvent
from ndpp.samplers.base import Draw, Sampler


@dataclass(frozen=True, eq=False)
class Cholesky(Sampler):
    """One pass over the items of a kernel; ``marginal`` is R, which is updated after every ``block`` items.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(2), [[0.0, 1.0], [-1.0, 0.0]])
    >>> draws = Cholesky.prepare(kernel).sample(50, rng=0)
    >>> sorted({tuple(basket.tolist()) for basket in draws.baskets})
    [(), (0, 1)]
    """

    kernel: LowRankKernel
    marginal: FloatArray = field(repr=False)
    block: int

    @classmethod
    def prepare(cls, kernel: LowRankKernel, *, block: int = 64) -> Cholesky:
        """Compute R, in O(r³). ``block`` affects only speed and rounding."""
        kernel.without_background()
        kernel.check_precision()
        return cls(kernel, resolvent(kernel.coordinates, np.ones(1))[0][0], check_count(block, "block", least=1))

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set."""
        R, rows = self.marginal, []
        for span, Q in self.kernel.q_blocks():
            for first in range(0, len(Q), self.block):
                q = Q[first : first + self.block]
                before, after = q @ R, R @ q.T
                G = before @ q.T
                taken, worst = decide(G, rng.random(len(q)))
                if worst > PROBABILITY_TOLERANCE:
                    raise PrecisionError(
                        f"an inclusion probability came out {worst:.3g} outside [0, 1] in the block of items from "
                        f"row {span.start + first}: double precision is not enough for this kernel. "
                        "Rescale X, drop its smallest directions, or use Exact."
                    )
                rows.append(span.start + first + np.flatnonzero(taken))
                R = R - after @ np.linalg.solve(G - np.diag(~taken), before)
        return Draw(np.concatenate(rows), {"proposals": len(self.kernel.support)})


@njit()
def decide(G: FloatArray, uniforms: FloatArray) -> tuple[BoolArray, float]:
    """Return which items of a block with marginal kernel ``G`` are in the set, and how far a probability left [0, 1]."""
    K = G.copy()
    n = len(K)
    taken = np.zeros(n, np.bool_)
    worst = 0.0
    for i in range(n):
        p = K[i, i]
        worst = max(worst, -p, p - 1.0)
        taken[i] = uniforms[i] < p
        pivot = p if taken[i] else p - 1.0
        for j in range(i + 1, n):
            factor = K[j, i] / pivot
            for m in range(i + 1, n):
                K[j, m] -= factor * K[i, m]
    return taken, worst
