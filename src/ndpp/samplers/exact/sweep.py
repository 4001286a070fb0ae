"""Exact samples by one pass over the items with the marginal kernel K itself: :class:`~ndpp.samplers.Cholesky` for large sets.

Law: that of :class:`~ndpp.samplers.Exact`. Item a is in with its probability given what has been decided before it, K_aa, and
K ← K − K_:a K_a: / (K_aa − [a is out]) [Poulson 2020]. In blocks of b items this is an LU decomposition with n³/3 multiplications per
pass, most of them in matrix products. If the rank is near n and sets are large, a clock (:mod:`.eigenclock`) takes O(k³ r).

Sets of one size have the same distribution under every ρL. K is that of the ρ for which this size is the mean, and passes are made until
one of them draws a set of this size. The number of passes is geometric with mean 1/p, for p the probability of the size under ρ: about
2.5 standard deviations of the size, or far more if the size is rare at every ρ, as odd ones of nearly skew kernels are; p tells beforehand.

Monitor: probabilities lie within [0, 1]. A sample that fails it is drawn again by another route.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ndpp._stop import look
from ndpp._types import FloatArray, IntArray
from ndpp._validation import PROBABILITY_TOLERANCE
from ndpp.linalg.schur import condition_or_zero
from ndpp.linalg.size_law import resolvent, tilt_for, tilted_law
from ndpp.samplers.cholesky import decide
from ndpp.samplers.exact.node_route import NodesRoute
from ndpp.samplers.exact.routes import Done, Target, Unfinished

BLOCK = 64
"""Items that are decided together."""
LEAST_RANK = 64
"""Up to this rank, other routes are used."""
CLOCK_COST = 4.0
"""Sets of any size are drawn in a pass if n³ is at most this times k³ r, for k items on average: the costs of both, up to a factor."""
CIRCLE_COST, MOST_CHANCE = 0.5, 0.25
"""Sets of k items are drawn in passes if n / p is at most ``CIRCLE_COST`` k r, with p counted as at most ``MOST_CHANCE``: where measured
times of passes and circles cross."""
PATIENCE = 100
"""Most passes for one sample, times p: all of them fail with probability e⁻¹⁰⁰."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """The marginal kernel of the items that are not given, and the most passes that are made to draw ``wanted`` of them."""

    name: ClassVar[str] = "cholesky"

    marginal: FloatArray
    wanted: int | None = None
    passes: int = 1

    @property
    def n_bytes(self) -> int:
        """Bytes in addition to those of the target."""
        return self.marginal.nbytes

    @classmethod
    def prepare(cls, target: Target, wanted: int | None) -> Sweep | None:
        """Compute K; None where a clock or circles take less time."""
        coords, given = target.kernel.coordinates, target.ladder.given
        Q, r = coords.Q, coords.rank
        if Q is None or r <= LEAST_RANK or 8 * len(Q) ** 2 > target.ladder.memory.budget:
            return None
        if wanted is None:
            mean = float(target.size_law @ np.arange(len(target.size_law)))
            if len(Q) ** 3 > CLOCK_COST * (mean + len(given)) ** 3 * r:
                return None
            Z, chance = condition_or_zero(resolvent(coords, np.ones(1))[0][0], given)[0], 1.0
        else:
            least = len(Q) / (CIRCLE_COST * wanted * r)
            if least > MOST_CHANCE:
                return None
            law, _, Z = tilted_law(coords, tilt_for(coords, len(given) + wanted, given), given)
            chance = float(law[wanted])
            if not chance >= least:
                return None
        K = Q @ Z @ Q.T
        K[target.given], K[:, target.given] = 0.0, 0.0
        return cls(K, wanted, 1 if wanted is None else math.ceil(PATIENCE / chance))

    def draw(self, rng: np.random.Generator) -> Done | Unfinished:
        """Draw the further items of one sample, as rows in any order; none of them if a probability is outside [0, 1]."""
        n, passes = len(self.marginal), 0
        while passes < self.passes:
            look()
            rows, passes = self.sweep(rng), passes + 1
            if rows is None:
                break
            if self.wanted in (None, len(rows)):
                return Done(rows, n * passes)
        return Unfinished(np.empty(0, np.int64), n * passes)

    def sweep(self, rng: np.random.Generator) -> IntArray | None:
        """Decide every item; None if a probability is outside [0, 1]."""
        K, rows, n = self.marginal.copy(), [], len(self.marginal)
        for first in range(0, n, BLOCK):
            own, rest = slice(first, first + BLOCK), slice(first + BLOCK, n)
            G = np.ascontiguousarray(K[own, own])
            taken, worst = decide(G, rng.random(len(G)))
            if worst > PROBABILITY_TOLERANCE:
                return None
            rows.append(first + np.flatnonzero(taken))
            if rest.start < n:
                K[rest, rest] -= K[rest, own] @ np.linalg.solve(G - np.diag(~taken), K[own, rest])
        return np.concatenate(rows)

    def finish(self, target: Target, rng: np.random.Generator, begun: Unfinished) -> Done:
        """Draw the sample again, by node matrices."""
        wanted = target.draw_count(rng) if self.wanted is None else self.wanted
        done = NodesRoute(target, wanted).draw(rng)
        return done._replace(proposals=begun.proposals + done.proposals)
