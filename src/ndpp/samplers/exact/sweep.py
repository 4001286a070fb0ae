"""Exact samples of any size by one pass over the items with the marginal kernel K itself: :class:`~ndpp.samplers.Cholesky` for large sets.

Law: that of :class:`~ndpp.samplers.Exact` without a size. Item a is in with its probability given what has been decided before it, K_aa,
and K ← K − K_:a K_a: / (K_aa − [a is out]) [Poulson 2020]. In blocks of b items this is an LU decomposition with n³/3 multiplications per
draw, most of them in matrix products. If the rank is near n and sets are large, a clock (:mod:`.eigenclock`) takes O(k³ r).

Monitor: probabilities lie within [0, 1]. A sample that fails it is drawn again by another route.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ndpp._types import FloatArray
from ndpp._validation import PROBABILITY_TOLERANCE
from ndpp.linalg.schur import condition_or_zero
from ndpp.linalg.size_law import resolvent
from ndpp.samplers.cholesky import decide
from ndpp.samplers.exact.node_route import NodesRoute
from ndpp.samplers.exact.routes import Done, Target, Unfinished

BLOCK = 64
"""Items that are decided together."""
LEAST_RANK = 64
"""Up to this rank, a clock is used."""
CLOCK_COST = 4.0
"""A sweep is made if n³ is at most this times k³ r, for sets of k items on average: the costs of both, up to a factor."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """The marginal kernel of the items that are not given."""

    name: ClassVar[str] = "cholesky"

    marginal: FloatArray

    @property
    def n_bytes(self) -> int:
        """Bytes in addition to those of the target."""
        return self.marginal.nbytes

    @classmethod
    def prepare(cls, target: Target, wanted: int | None) -> Sweep | None:
        """Compute K; None for one size, and where a clock takes less time."""
        kernel, Q = target.kernel, target.kernel.coordinates.Q
        if (
            wanted is not None
            or Q is None
            or kernel.rank <= LEAST_RANK
            or 8 * len(Q) ** 2 > target.ladder.memory.budget
        ):
            return None
        mean = float(target.size_law @ np.arange(len(target.size_law)))
        if len(Q) ** 3 > CLOCK_COST * (mean + len(target.given)) ** 3 * kernel.rank:
            return None
        Z = condition_or_zero(resolvent(kernel.coordinates, np.ones(1))[0][0], target.ladder.given)[0]
        K = Q @ Z @ Q.T
        K[target.given], K[:, target.given] = 0.0, 0.0
        return cls(K)

    def draw(self, rng: np.random.Generator) -> Done | Unfinished:
        """Draw the further items of one sample, as rows in any order; none of them if a probability is outside [0, 1]."""
        K, rows, n = self.marginal.copy(), [], len(self.marginal)
        for first in range(0, n, BLOCK):
            own, rest = slice(first, first + BLOCK), slice(first + BLOCK, n)
            G = np.ascontiguousarray(K[own, own])
            taken, worst = decide(G, rng.random(len(G)))
            if worst > PROBABILITY_TOLERANCE:
                return Unfinished(np.empty(0, np.int64), n)
            rows.append(first + np.flatnonzero(taken))
            if rest.start < n:
                K[rest, rest] -= K[rest, own] @ np.linalg.solve(G - np.diag(~taken), K[own, rest])
        return Done(np.concatenate(rows), n)

    def finish(self, target: Target, rng: np.random.Generator, begun: Unfinished) -> Done:
        """Draw the sample again, by node matrices."""
        done = NodesRoute(target, target.draw_count(rng)).draw(rng)
        return done._replace(proposals=begun.proposals + done.proposals)
