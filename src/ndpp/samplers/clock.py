"""Exact samples by a clock: items appear one after another as time runs down, all in real arithmetic.

Law: P(S) ∝ det(L_S) over all sets. Exact. :class:`Exact` draws sets of any size by the same clock in eigencoordinates, and falls back
to this one: it checks these coordinates, and the circles of sets of one size, but is no independent check of the clock.

Derivation. Give each item of a sample S an independent uniform time in [0, 1] and let a clock s run from 1 down to 0;
an item appears when the clock passes its time. If the items Y have appeared so far, all others have times below s,
and the weight of this event is

    F_Y(s) = Σ_{S ⊇ Y} s^{|S ∖ Y|} det L_S = s^{−|Y|} det(I + sB) det(Q_Y R(s) Q_Yᵀ),        R(s) = sB(I + sB)⁻¹,

since R(s) is the marginal kernel of sL and w_Y = det(I + sB) det(Q_Y R Q_Yᵀ) sums s^|S| det L_S over S ⊇ Y. So
nothing appears between s and s' < s with probability F_Y(s')/F_Y(s). In x = −log s, the next item appears at the rate

    h_Y(s) = d log F_Y / d log s = E[number of remaining items] = tr Z,        Z = R − R Q_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R,

and is item a with probability F_{Y∪a}(s) / F_Y'(s) = q_aᵀZq_a / tr Z. F_Y is a polynomial with nonnegative
coefficients, hence log F_Y is convex in log s and h_Y decreases as the clock runs down: the current rate bounds all
later rates, and the next time is drawn by thinning [Lewis & Shedler 1979], with no equation to solve. The clock
advances by an exponential time of the current rate, and an item appears there with probability (rate there)/(current
rate). L_Y⁻¹ never occurs. If det L_Y = 0, the rate tends to the least number of items that must still appear, at
least one, so the clock cannot run out before they do. It has run out once h_Y(s) < ``NEGLIGIBLE_RATE``, since the
probability of another item is at most the expected number.

Cost: one inverse of order r per move of the clock, about one move per item: O(r³) each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.errors import BudgetExceededError, PrecisionError
from ndpp.items import LeverageTable
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.schur import condition_on, rank_one_condition, schur_complement
from ndpp.linalg.size_law import resolvent
from ndpp.samplers.base import Draw, Sampler

NEGLIGIBLE_RATE = 1e-16
"""Expected number of remaining items below which the sample is complete."""
MAX_TIME = 500.0
"""−log s beyond which the clock has run out. While an item must appear, the rate is at least one: it has appeared by then."""
RATE_TOLERANCE = 1e-7
"""How far rounding may raise a rate above an earlier one."""


@dataclass(frozen=True, eq=False)
class Clock(Sampler):
    """Items that appear as a clock runs down; with ``given`` rows, those in addition to them.

    Given rows come by themselves with probability ``alone`` > 0: s p is added to the diagonal of
    Q_Y R Q_Yᵀ. If it is zero, they come with the kernel alone, and the formulas are those above.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(2), [[0.0, 1.0], [-1.0, 0.0]])
    >>> draws = Clock.prepare(kernel).sample(50, rng=0)
    >>> sorted({tuple(basket.tolist()) for basket in draws.baskets})
    [(), (0, 1)]
    """

    kernel: LowRankKernel
    index: LeverageTable
    budget: int
    given: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    alone: FloatArray = field(default_factory=lambda: np.empty(0))

    @classmethod
    def prepare(cls, kernel: LowRankKernel, *, index: LeverageTable | None = None, budget: int = 100_000) -> Clock:
        """Build the table of items, unless there is one; ``budget`` is the maximum number of moves of the clock per sample."""
        kernel.without_background()
        kernel.check_precision()
        index = LeverageTable.prepare(kernel) if index is None else index
        return cls(kernel, index, check_count(budget, "budget", least=1))

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set."""
        nothing = np.empty(0, np.int64)
        rate = float(np.trace(self._remaining(0.0, nothing)))
        if rate <= NEGLIGIBLE_RATE:
            return Draw(nothing, {"proposals": 0, "moves": 0})
        return self.resume(rng, nothing, rng.exponential() / rate, rate)

    def draw_all(self, rng: np.random.Generator) -> IntArray:
        """Draw the further items of one sample, as rows."""
        return self.draw(rng).rows

    def resume(self, rng: np.random.Generator, rows: IntArray, x: float, bound: float) -> Draw:
        """Draw one set, given the items that have appeared before time x, which has just been proposed at the rate ``bound``."""
        moves, proposals = 1, 0
        while x <= MAX_TIME:
            Z = self._remaining(x, rows)
            rate = float(np.trace(Z))
            if not rate <= (1 + RATE_TOLERANCE) * bound + RATE_TOLERANCE:
                raise PrecisionError(
                    f"the rate of items rose from {bound:.6g} to {rate:.6g}, although it can only decrease: double "
                    "precision is not enough for this kernel. Rescale X, or drop its smallest directions."
                )
            if rng.random() * bound < rate:
                drawn = self.index.draw_counted(rng, Z, bound=min(1.0, rate))  # 0 ⪯ Z ⪯ tr Z, and ⪯ I
                rows, proposals = np.append(rows, drawn.row), proposals + drawn.proposals
                rate = float(np.trace(rank_one_condition(Z, self.kernel.q_rows(rows[-1:])[0])[0]))
            if rate <= NEGLIGIBLE_RATE:
                break
            if moves == self.budget:
                raise BudgetExceededError(
                    f"the clock moved {moves} times and {rate:.3g} more items are expected; raise the budget",
                    count=moves,
                )
            x, moves, bound = x + rng.exponential() / rate, moves + 1, rate
        return Draw(np.sort(rows), {"proposals": proposals, "moves": moves})

    def _remaining(self, x: float, rows: IntArray) -> FloatArray:
        """Return Z given the items that have appeared, at time s = exp(−x)."""
        Z = resolvent(self.kernel.coordinates, np.exp([-x]))[0][0]
        apart, together = self.given[self.alone > 0], self.given[self.alone == 0]
        if len(apart):
            q, p = self.kernel.q_rows(apart), self.alone[self.alone > 0]
            Z = schur_complement(Z, Z @ q.T, q @ Z @ q.T + np.exp(-x) * np.diag(p), q @ Z)
        return np.asarray(condition_on(Z, self.kernel.q_rows(np.concatenate([together, rows])))[0])
