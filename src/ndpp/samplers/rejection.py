"""Exact sampling by rejection from a symmetric DPP [Han et al., ICLR 2022].

Law: P(S) ∝ det(L_S), over all sets or over those of one size. Exact.

L̂ = Q B̂ Qᵀ with B̂ = sym(B) + |skew(B)| is symmetric and det L_S ≤ det L̂_S for every S [Han22, Thm. 1]. A set drawn from
L̂ is accepted with probability det L_S / det L̂_S. The expected number of proposals is det(I + L̂) / det(I + L), or
e_k(L̂) / e_k(L). It is known before anything is drawn, and exponential in the rank for kernels far from symmetric.

The paper draws the sets of L̂ through a tree over all items, k · O(r² log n) each. Here :class:`~ndpp.samplers.Exact` draws them, whose
cost does not grow with n, so that times of this sampler are, if anything, too good to stand for the published algorithm.

Cost: O(n r²) to prepare, as much again as the kernel; O(k r²) per proposal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndpp._types import FloatArray
from ndpp._validation import check_count, clip_probabilities
from ndpp.errors import BudgetExceededError, InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.skew import dominating
from ndpp.rows import Rows
from ndpp.rows.scaled import Multiplied
from ndpp.samplers.base import Draw, Sampler
from ndpp.samplers.exact import Exact

BUDGET_FACTOR = 50
"""A draw gives up after this many times ``max_proposals``; since the mean is below that, with probability exp(−50) at most."""
RATIO_TOLERANCE = 1e-6
"""How far rounding may raise a ratio of two minors above one."""


@dataclass(frozen=True, eq=False)
class Rejection(Sampler):
    """Draw from L̂, accept with probability det L_S / det L̂_S. ``expected_proposals`` per draw is known in closed form.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(2), [[1.0, 1.0], [-1.0, 1.0]])
    >>> sampler = Rejection.prepare(kernel)
    >>> round(sampler.expected_proposals, 6)  # det(I + L̂) / det(I + L) = 9 / 5
    1.8
    >>> len(sampler.sample(10, rng=0))
    10
    """

    kernel: LowRankKernel
    size: int | None
    proposal: Exact
    dominating: FloatArray
    expected_proposals: float
    max_proposals: float

    @classmethod
    def prepare(cls, kernel: LowRankKernel, *, size: int | None = None, max_proposals: float = 1e6) -> Rejection:
        """Build the proposal distribution.

        Parameters
        ----------
        kernel : LowRankKernel
        size : int, optional
            Number of items per set; any number if None.
        max_proposals : float
            Maximum expected number of proposals per draw.

        Raises
        ------
        BudgetExceededError
            More than ``max_proposals`` are expected per draw.
        """
        if not max_proposals >= 1:
            raise InvalidInputError(f"max_proposals must be at least 1; got {max_proposals}")
        kernel.without_background()
        if size is not None:
            kernel.check_size(check_count(size, "size"))
        B_hat = dominating(kernel.coordinates.B)
        bound = _in_coordinates(kernel, B_hat)
        log_expected = max(0.0, bound.log_normalizer(size) - kernel.log_normalizer(size))
        if log_expected > np.log(max_proposals):
            raise BudgetExceededError(
                f"rejection would need 10^{log_expected / np.log(10):.1f} proposals per draw on average, above "
                f"max_proposals = {max_proposals:.3g}. Use Exact (exact, no rejection constant) or Walk, or a smaller "
                "size.",
                count=0,
            )
        return cls(kernel, size, Exact.prepare(bound, size=size), B_hat, float(np.exp(log_expected)), max_proposals)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set."""
        budget = BUDGET_FACTOR * self.max_proposals
        proposals = 0
        while proposals < budget:
            proposals += 1
            rows = self.proposal.draw(rng).rows
            Q = self.kernel.q_rows(rows)
            if rng.random() < minor_ratio(Q, self.kernel.coordinates.B, self.dominating):
                return Draw(rows, {"proposals": proposals, "rejections": proposals - 1})
        raise BudgetExceededError(
            f"{proposals} proposals were all rejected; {self.expected_proposals:.3g} are needed on average. "
            "Raise max_proposals, or use Exact or Walk.",
            count=proposals,
        )


def _in_coordinates(kernel: LowRankKernel, B: FloatArray) -> LowRankKernel:
    """Return the kernel Q B Qᵀ of the same items."""
    if kernel.rank == 0:
        return kernel
    Q = Multiplied(kernel.X, None, kernel.coordinates.to_q)
    return LowRankKernel(Q if isinstance(kernel.X, Rows) else Q.read(), B, support=kernel.support)


def minor_ratio(Q: FloatArray, B: FloatArray, B_hat: FloatArray) -> float:
    """Return det(Q B Qᵀ) / det(Q B̂ Qᵀ), the probability of accepting the items with rows ``Q``."""
    sign, log_det = np.linalg.slogdet(Q @ B @ Q.T)
    sign_hat, log_det_hat = np.linalg.slogdet(Q @ B_hat @ Q.T)
    if sign <= 0 or sign_hat <= 0:  # a minor of zero, or a set proposed only because of rounding
        return 0.0
    ratio = np.exp(np.array([log_det - log_det_hat]))
    return float(clip_probabilities(ratio, "acceptance of a proposed set", tolerance=RATIO_TOLERANCE)[0])
