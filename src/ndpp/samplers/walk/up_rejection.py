"""The up-step of a walk by rejection [Han22, Alg. 2]: complete the items kept, A, by a pair {a, b} ∝ det L_{A ∪ {a, b}}.

Law: exact. In the kernel's coordinates L^A = Q B^A Qᵀ, B^A = B − B Q_Aᵀ (Q_A B Q_Aᵀ)⁻¹ Q_A B (line 2). The proposal is
the symmetric 2-DPP with B̂ = sym(B^A) + |skew(B^A)| (lines 3 and 4; the paper prints (W + W)/2 for the symmetric part),
accepted with probability det L^A_ab / det L̂^A_ab ≤ 1 [Thm. 1].

Cost: O(r³) per step, for two eigendecompositions; O(r² (log n + leaf)) per proposal. The expected number of proposals
is e_2(L̂^A) / e_2(L^A). |skew| is computed in orthonormal coordinates, where it has the smallest trace of all symmetric
matrices that bound the skew part.

If L_A is singular, B^A does not exist although the pair has a distribution; it is then drawn without rejection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.errors import BudgetExceededError
from ndpp.items import ItemIndex, Tree
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg import dominating
from ndpp.samplers.rejection import minor_ratio
from ndpp.samplers.symmetric import SpectralDPP
from ndpp.samplers.walk.bordered import Bordered, condition_bordered, draw_pair
from ndpp.samplers.walk.up import no_pair


@dataclass(frozen=True)
class RejectionUp:
    """The paper's up-step, with at most ``budget`` proposals per pair.

    ``index`` builds what draws single items: the paper's tree, or another index of :mod:`ndpp.items`.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), [[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> up = RejectionUp().prepare(kernel, 3)
    >>> rows, info = up.pair(np.random.default_rng(0), np.array([2]))
    >>> rows, info["proposals"]  # 0 and 1 only come together
    (array([0, 1]), 1)
    """

    index: Callable[[LowRankKernel], ItemIndex] = Tree.prepare
    budget: int = 1_000_000

    def prepare(self, kernel: LowRankKernel, size: int | None = None) -> PreparedRejectionUp:
        """Build the index, for sets of all sizes."""
        return PreparedRejectionUp(kernel, self.index(kernel), check_count(self.budget, "budget", least=1))


class Step(NamedTuple):
    """What the proposals of one step share: B^A, its bound, the 2-DPP of the bound, and the expected number of proposals."""

    inner: FloatArray
    dominating: FloatArray
    proposal: SpectralDPP
    expected_proposals: float


@dataclass(frozen=True, eq=False)
class PreparedRejectionUp:
    """The up-step for one kernel."""

    kernel: LowRankKernel
    index: ItemIndex
    budget: int

    def pair(self, rng: np.random.Generator, kept_rows: IntArray) -> tuple[IntArray, dict[str, float]]:
        """Draw a pair that completes the rows kept, in ascending order, and return it with the counters."""
        law = condition_bordered(self.kernel.coordinates, self.kernel.q_rows(kept_rows))
        if len(law.E):
            return np.sort(draw_pair(rng, law, self.index)), {"proposals": 1, "rejections": 0}
        step = self._step(law)
        if step.expected_proposals > self.budget:
            raise BudgetExceededError(
                f"this step needs {step.expected_proposals:.3g} proposals on average, above its budget of "
                f"{self.budget}. Use DirectUp, which rejects nothing, or raise the budget.",
                count=0,
            )
        for proposals in range(1, self.budget + 1):
            rows = step.proposal.draw(rng).rows
            if rng.random() < minor_ratio(self.kernel.q_rows(rows), step.inner, step.dominating):
                return np.sort(rows), {"proposals": proposals, "rejections": proposals - 1}
        raise BudgetExceededError(
            f"{self.budget} pairs were proposed and rejected; {step.expected_proposals:.3g} are needed on average. "
            "Use DirectUp, which rejects nothing, or raise the budget.",
            count=self.budget,
        )

    def expected_proposals(self, kept_rows: IntArray) -> float:
        """Return the expected number of proposals, e_2(L̂^A) / e_2(L^A); 1 if L_A is singular and nothing is rejected."""
        law = condition_bordered(self.kernel.coordinates, self.kernel.q_rows(kept_rows))
        return 1.0 if len(law.E) else self._step(law).expected_proposals

    def _step(self, law: Bordered) -> Step:
        inner = law.D  # Alg. 2, line 2
        bound = dominating(inner)  # lines 3 and 4
        pairs = (np.trace(inner) ** 2 - np.einsum("ij,ji->", inner, inner)) / 2
        if not pairs > 0:
            raise no_pair()
        proposal = SpectralDPP.prepare(bound, self.index, size=2)
        return Step(inner, bound, proposal, float(np.exp(proposal.choice.log_normalizer) / pairs))
