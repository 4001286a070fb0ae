"""The sampler of most laws: a component by its weight, a set from it, accepted with the chance that is left.

Distribution: P(S) = Σ_c w_c P_c(S), with given and excluded items, of any size or of one, within limits. Exact. Component c is proposed
with probability ∝ w_c A_c, A_c a bound of the probability of what is wanted in it, and then a set of it by what draws from the component,
its drawer. A drawer may use a condition itself: it draws no excluded item, or T first and then R with as many items as are missing
(:mod:`.components`), or R first and T only if it leaves room (:mod:`.limited_ties`). What no drawer has used is left to accept: limits
low_j ≤ c_j(S) ≤ high_j, with probability e^{−θ_c·(c(S) − b)} ≤ 1 if the odds of item i in component c were multiplied by e^{θ_c·c_i}
(:mod:`.limits`). What is rejected includes the component.

Cost per sample: that of a set of its component, times the number of proposals, whatever n and the number of components.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from ndpp._memory import Memory
from ndpp._stop import look
from ndpp._types import FloatArray, IntArray, cached_property
from ndpp.errors import BudgetExceededError, ImpossibleLimitError, ImpossibleSizeError
from ndpp.items.base import look_up_cdf
from ndpp.laws.law import Law
from ndpp.laws.limits import Estimate, Limits
from ndpp.linalg.logs import log_sum
from ndpp.samplers.base import Draw, Engine, Sampler, stream, stream_key

MAX_EXPECTED = 1e4
"""Largest acceptable mean number of proposals per draw."""
GIVE_UP_FACTOR = 50
"""A draw gives up after this many times the expected number of proposals, which has a probability of at most exp(−50)."""
MAX_PROPOSALS = 10**5
"""Maximum number of proposals per draw, if their expected number is not known."""
MAX_LIMITED_PROPOSALS = int(GIVE_UP_FACTOR * MAX_EXPECTED)
"""The same under limits, whose pilot bounds the expected number."""
FINER_AFTER = 1000
"""Proposals after which their mean number is computed. If it is too large, tilts are finer from then on; if it still is, components are
drawn from by themselves, without rejections."""
CHECKED_AFTER = 300
"""Proposals under limits after which their mean number is estimated, and draws that need too many are refused."""
PILOT_PROPOSALS, PILOT_ACCEPTED = 3000, 10
"""Proposals of that estimate; it ends sooner if this many are accepted."""
ESTIMATED_FROM, RELATIVE_ERROR = 1000, 0.03
"""Least proposals for an estimate of P(limits), and the relative standard error at which it ends, within ``MAX_EXPECTED`` proposals."""


class Asked(NamedTuple):
    """What ``law.sampler`` is asked for; ``device`` is a CUDA device that is there, None for the CPU."""

    size: int | None
    given: IntArray
    exclude: IntArray
    memory: Memory
    device: str | None

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What samplers are remembered by."""
        return self.size, self.given.tobytes(), np.sort(self.exclude).tobytes(), self.device


def of_component(asked: Asked, c: int) -> Asked:
    """Return the same of component c, which has its own part of the memory."""
    return asked._replace(memory=asked.memory.remember(("component", c), lambda: Memory(asked.memory.budget)))


class Drawer(Protocol):
    """What draws from one component."""

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return a set without the given items, as items of the catalogue, or None if it was rejected."""


class Drawers(Protocol):
    """What draws from the components."""

    def __getitem__(self, c: int) -> Drawer:
        """Return what draws from component c."""


class SizedDrawers(Drawers, Protocol):
    """Drawers of sets of one size that know how often a set is accepted."""

    def checked(self, cdf: FloatArray) -> tuple[FloatArray, Drawers]:
        """Return the weights of the components, cumulative, and what draws from them; others if too many proposals are needed."""


class Acceptance(NamedTuple):
    """The limits on whole sets that are left to accept, and the tilts θ (C, J) of the components towards them, and b.

    If not ``is_tilted``, the drawers know nothing of these limits, and θ is zero.
    """

    limits: Limits
    theta: FloatArray
    bound: FloatArray
    is_tilted: bool

    @classmethod
    def of(cls, limits: Limits, theta: FloatArray, *, is_tilted: bool = True) -> Acceptance:
        """Return the acceptance of sets of tilted components."""
        return cls(limits, theta, towards(theta, limits), is_tilted)

    def chances(self, c: int, ids: IntArray) -> FloatArray:
        """Return the probability that each limit accepts a set of component c, 0 where it is broken."""
        totals = self.limits.totals(ids)
        kept = (self.limits.low <= totals) & (totals <= self.limits.high)
        return np.asarray(np.exp(np.where(kept, -self.theta[c] * (totals - self.bound[c]), -np.inf)))


def towards(theta: FloatArray, limits: Limits) -> FloatArray:
    """Return b: the lower bounds where θ is positive, the upper ones where it is negative."""
    return np.where(theta > 0, limits.low, np.where(theta < 0, limits.high, 0.0))


@dataclass(frozen=True, eq=False)
class Proposer(Sampler):
    """What ``law.sample`` draws with.

    Attributes
    ----------
    given : array
        Items that are in every set, and not drawn.
    log_weights : (C,) array
        log w_c A_c of the components, up to a constant without limits; with limits, the sum is a bound of P(given ⊆ S, limits). Empty if
        nothing is left to draw.
    drawers : Drawers
        What draws from each component.
    left : Acceptance, optional
        The limits that are left to accept.
    sized : SizedDrawers, optional
        The drawers, if they draw sets of one size.
    expected_proposals : float
        Mean number of proposals per draw, in closed form, of a kernel; 1 for sets of any size. NaN where it is not known.

    Examples
    --------
    >>> import ndpp
    >>> mixture = ndpp.Mixture.tied([[1.0, 1.0, 0.0], [0.0, 1.0, 9.0]], np.eye(3), np.eye(3), [0.5, 0.5])
    >>> sampler = mixture.sampler(size=2)
    >>> sorted(set(map(tuple, sampler.sample(100, rng=0).baskets.to_lists())))
    [(0, 1), (1, 2)]
    """

    kernel: Law
    given: IntArray
    log_weights: FloatArray = field(repr=False)
    drawers: Drawers = field(repr=False)
    left: Acceptance | None = field(default=None, repr=False)
    sized: SizedDrawers | None = field(default=None, repr=False)
    expected_proposals: float = np.nan
    engine: Engine | None = field(default=None, repr=False)
    asked: Asked | None = field(default=None, repr=False)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted items of the catalogue."""
        if not len(self.log_weights):
            return Draw(np.sort(self.given), {"proposals": 0, "rejections": 0})
        cdf, drawers, is_tilted = self.cdf, self.drawers, self.is_tilted
        for proposals in range(1, self._most_proposals + 1):
            look()
            if proposals == FINER_AFTER and self.sized is not None:
                cdf, drawers = self.sized.checked(cdf)
            if proposals == CHECKED_AFTER and is_tilted:
                self.check_expected(self.pilot)
            c = look_up_cdf(cdf, rng.random()) if len(cdf) > 1 else 0
            found = drawers[c].propose(rng)
            if found is None:
                continue
            ids = np.concatenate([self.given, found])
            chance = 1.0 if self.left is None else float(self.left.chances(c, ids).prod())
            if rng.random() < chance if is_tilted else chance > 0:
                return Draw(np.sort(ids), {"proposals": proposals, "rejections": proposals - 1})
        raise given_up(proposals, is_tilted)

    @property
    def is_tilted(self) -> bool:
        """Whether components are tilted towards limits."""
        return self.left is not None and self.left.is_tilted

    @cached_property
    def cdf(self) -> FloatArray:
        """Of the component to propose from."""
        return np.cumsum(np.exp(self.log_weights - self.log_weights.max()))

    @property
    def route(self) -> str:
        """How T, the part of a sample that costs most, is drawn from a kernel; "components" if each component has its own route."""
        return str(getattr(self.drawers, "route", "components"))

    @property
    def _most_proposals(self) -> int:
        if not np.isnan(self.expected_proposals):
            return int(GIVE_UP_FACTOR * self.expected_proposals) + 1
        return MAX_LIMITED_PROPOSALS if self.is_tilted else MAX_PROPOSALS

    def items_of(self, rows: IntArray) -> IntArray:
        """Return the items of a draw, which are what is drawn."""
        return rows

    # -- limits --------------------------------------------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        """The limits that are left to accept."""
        assert self.left is not None  # asked under limits only
        return self.left.limits

    def propose_one(self, rng: np.random.Generator) -> FloatArray:
        """Propose a set; return the probability that each limit accepts it."""
        assert self.left is not None  # asked under limits only
        c = look_up_cdf(self.cdf, rng.random()) if len(self.cdf) > 1 else 0
        found = self.drawers[c].propose(rng)
        if found is None:
            return np.zeros(len(self.limits))
        return self.left.chances(c, np.concatenate([self.given, found]))

    @cached_property
    def pilot(self) -> Pilot:
        """What some proposals show, in a stream of their own; raises if no set keeps the limits."""
        self.check_possible()
        rng = stream(stream_key(0), 0)
        return Pilot.run(len(self.limits), lambda: self.propose_one(rng)[None])

    def check_possible(self) -> None:
        """Raise if no set keeps the limits, as far as their values show."""
        if self.asked is not None:
            self.limits.check_whole(self.kernel, *self.asked[:3])

    @property
    def log_bound(self) -> float:
        """Log of Σ_c w_c A_c: a bound of P(given ⊆ S, limits)."""
        return log_sum(self.log_weights)

    def estimate(self) -> Estimate:
        """Return the part of the proposals that is accepted, from a stream of its own."""
        rng, n = stream(stream_key(0), 1), 0
        total = squares = most = 0.0
        while n < ESTIMATED_FROM or (n < MAX_EXPECTED and squares > RELATIVE_ERROR**2 * total**2):
            look()
            chance = float(self.propose_one(rng).prod())
            n, total, squares, most = n + 1, total + chance, squares + chance**2, max(most, chance)
        return Estimate.of_hits(total, squares, n, most or 1.0)

    def check_expected(self, pilot: Pilot) -> None:
        """Refuse draws that would take too many proposals."""
        expected = pilot.expected_proposals
        if expected > MAX_EXPECTED:
            if pilot.accepted == 0 and self.asked is not None:
                size, given, exclude, *_ = self.asked
                found = self.kernel.probability(self.limits.records, given=given, size=size, exclude=exclude)
                if found.exact and found.value == 0:
                    texts = self.limits.texts
                    problem = "sets that keep these limits have probability zero to double precision"
                    raise ImpossibleLimitError(f"{problem}: {'; '.join(texts)}", limits=texts)
            worst = self.limits.texts[int(np.argmin(pilot.by_limit))]
            none = "" if pilot.accepted > 0 else f"; none of {pilot.n:,} was accepted, so it may be impossible"
            raise BudgetExceededError(
                f"samples under these limits would need about {expected:.2g} proposals each, above {MAX_EXPECTED:g}; the limit that costs "
                f"most is {worst}{none}. Widen it, or ask for fewer limits at a time",
                count=pilot.n,
            )


class Pilot(NamedTuple):
    """The number of proposals, the sum of the probabilities with which they are accepted, and those of each limit by itself."""

    n: int
    accepted: float
    by_limit: FloatArray

    @classmethod
    def run(cls, n_limits: int, propose: Callable[[], FloatArray]) -> Pilot:
        """Propose sets, more of them if it is in doubt whether draws need too many; ``propose()`` returns the chances of some, (m, J)."""
        found = cls(0, 0.0, np.zeros(n_limits))
        while found.n < PILOT_PROPOSALS or (found.n < MAX_EXPECTED and found.is_in_doubt):
            look()
            chances = propose()
            accepted = found.accepted + float(chances.prod(axis=1).sum())
            found = cls(found.n + len(chances), accepted, found.by_limit + chances.sum(axis=0))
            if found.n >= CHECKED_AFTER and found.accepted >= PILOT_ACCEPTED:
                break
        return found

    @property
    def guess(self) -> float:
        """The mean number of proposals per draw, if limits were independent of each other."""
        return float(np.prod((self.n + 1) / (self.by_limit + 0.5)))

    @property
    def is_in_doubt(self) -> bool:
        """Whether hardly any proposal was accepted, but the guess is not that far too many are needed."""
        return self.accepted < PILOT_ACCEPTED / 4 and self.guess < 10 * MAX_EXPECTED

    @property
    def expected_proposals(self) -> float:
        """The mean number of proposals per draw."""
        is_counted = self.accepted >= PILOT_ACCEPTED / 4 or self.is_in_doubt
        return self.n / max(self.accepted, 0.5) if is_counted else self.guess


def all_given(law: Law, ids: IntArray, size: int | None) -> Proposer:
    """Return the sampler of the only set that is left: all items."""
    if size not in (None, len(ids)):
        raise ImpossibleSizeError(f"all {len(ids)} items are given; no set is larger")
    return Proposer(law, ids, np.empty(0), (), expected_proposals=0.0)


def given_up(proposals: int, within_limits: bool) -> BudgetExceededError:
    """Return the error for a draw that took far more proposals than are needed on average."""
    if within_limits:
        return BudgetExceededError(f"{proposals:,} sets were proposed, none of them accepted", count=proposals)
    return BudgetExceededError(
        f"{proposals} sets were proposed, none of them of the wanted size. Ask for another size, see "
        "law.size_distribution(), or draw from one component",
        count=proposals,
    )
