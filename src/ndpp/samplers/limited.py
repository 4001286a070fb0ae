"""The sampler under limits: proposes sets of tilted components, and accepts those that keep the limits (:mod:`.limits`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from ndpp._stop import look
from ndpp._types import FloatArray, IntArray
from ndpp.errors import BudgetExceededError
from ndpp.items.base import look_up_cdf
from ndpp.laws.law import Law, log_sum
from ndpp.laws.limits import Limits
from ndpp.samplers.base import Draw, Engine, Sampler, stream, stream_key
from ndpp.samplers.laws import GIVE_UP_FACTOR, MAX_EXPECTED

MANY = 300
"""After so many proposals their mean number is estimated, and draws that need too many are refused."""
PILOT, ENOUGH = 3000, 10
"""Proposals of that estimate, fewer if so many are accepted before."""
LEAST, RELATIVE_ERROR = 1000, 0.03
"""Proposals that an estimate takes, and the standard error at which it ends, within ``MAX_EXPECTED`` proposals."""
MOST_PROPOSALS = int(GIVE_UP_FACTOR * MAX_EXPECTED)
"""A draw gives up after so many proposals."""


class Drawers(Protocol):
    """What draws from the tilted components."""

    def __getitem__(self, c: int) -> Any:
        """Return what proposes sets of component c."""


@dataclass(frozen=True, eq=False)
class LimitedSampler(Sampler):
    """What ``law.sample(limits=…)`` draws with.

    Attributes
    ----------
    given : array
        Items that are in every set, and not drawn.
    limits : Limits
        The limits on whole sets.
    theta, bound : (C, J) arrays
        The tilts of the components, and b.
    log_weights : (C,) array
        log w_c A_c of the components, given items included: the sum is a bound of P(given ⊆ S, limits).
    store : Drawers
        What draws from each component.
    engine : Engine, optional
        Draws on a GPU.
    """

    kernel: Law
    given: IntArray
    limits: Limits
    theta: FloatArray = field(repr=False)
    bound: FloatArray = field(repr=False)
    log_weights: FloatArray = field(repr=False)
    store: Drawers = field(repr=False)
    engine: Engine | None = field(default=None, repr=False)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted items of the catalogue."""
        for proposals in range(1, MOST_PROPOSALS + 1):
            look()
            if proposals == MANY:
                self.check_expected(self.pilot)
            ids, chances = self.propose_one(rng)
            if rng.random() < chances.prod():
                return Draw(np.sort(ids), {"proposals": proposals, "rejections": proposals - 1})
        raise given_up(proposals)

    def propose_one(self, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
        """Propose a set; return it, and the probability that each limit accepts it, 0 where it is broken."""
        c = look_up_cdf(self.cdf, rng.random()) if len(self.cdf) > 1 else 0
        ids = np.concatenate([self.given, self.store[c].propose(rng)])
        totals = self.limits.totals(ids)
        kept = (self.limits.low <= totals) & (totals <= self.limits.high)
        return ids, np.exp(np.where(kept, -self.theta[c] * (totals - self.bound[c]), -np.inf))

    @cached_property
    def cdf(self) -> FloatArray:
        """Of the component to propose from."""
        return np.cumsum(np.exp(self.log_weights - self.log_weights.max()))

    @cached_property
    def pilot(self) -> Pilot:
        """What some proposals show, in a stream of their own."""
        rng = stream(stream_key(0), 0)
        return Pilot.run(len(self.limits), lambda: self.propose_one(rng)[1][None])

    @property
    def log_bound(self) -> float:
        """Log of Σ_c w_c A_c: a bound of P(given ⊆ S, limits)."""
        return log_sum(self.log_weights)

    def estimate(self) -> tuple[float, float]:
        """Return the part of the proposals that is accepted, and its standard error, from a stream of its own."""
        rng, chances = stream(stream_key(0), 1), list[float]()
        total = squares = 0.0
        while len(chances) < LEAST or (len(chances) < MAX_EXPECTED and squares > RELATIVE_ERROR**2 * total**2):
            look()
            chances.append(float(self.propose_one(rng)[1].prod()))
            total, squares = total + chances[-1], squares + chances[-1] ** 2
        return float(np.mean(chances)), float(np.std(chances) / np.sqrt(len(chances)))

    def check_expected(self, pilot: Pilot) -> None:
        """Refuse draws that would take too many proposals."""
        expected = pilot.expected_proposals
        if expected > MAX_EXPECTED:
            worst = self.limits.texts[int(np.argmin(pilot.by_limit))]
            none = "" if pilot.accepted > 0 else f"; none of {pilot.n:,} was accepted, so it may be impossible"
            raise BudgetExceededError(
                f"samples under these limits would need about {expected:.2g} proposals each, above {MAX_EXPECTED:g}; the limit that costs "
                f"most is {worst}{none}. Widen it, or ask for fewer limits at a time",
                count=pilot.n,
            )

    def items_of(self, rows: IntArray) -> IntArray:
        """Return the items of a draw, which are what is drawn."""
        return rows


class Pilot(NamedTuple):
    """The number of proposals, the sum of the probabilities with which they are accepted, and those of each limit by itself."""

    n: int
    accepted: float
    by_limit: FloatArray

    @classmethod
    def run(cls, n_limits: int, propose: Callable[[], FloatArray]) -> Pilot:
        """Propose sets, more of them if it is in doubt whether draws need too many; ``propose()`` returns the chances of some, (m, J)."""
        found = cls(0, 0.0, np.zeros(n_limits))
        while found.n < PILOT or (found.n < MAX_EXPECTED and found.is_in_doubt):
            look()
            chances = propose()
            accepted = found.accepted + float(chances.prod(axis=1).sum())
            found = cls(found.n + len(chances), accepted, found.by_limit + chances.sum(axis=0))
            if found.n >= MANY and found.accepted >= ENOUGH:
                break
        return found

    @property
    def guess(self) -> float:
        """The mean number of proposals per draw, if limits were independent of each other."""
        return float(np.prod((self.n + 1) / (self.by_limit + 0.5)))

    @property
    def is_in_doubt(self) -> bool:
        """Whether hardly any proposal was accepted, but the guess is not that far too many are needed."""
        return self.accepted < ENOUGH / 4 and self.guess < 10 * MAX_EXPECTED

    @property
    def expected_proposals(self) -> float:
        """The mean number of proposals per draw."""
        is_counted = self.accepted >= ENOUGH / 4 or self.is_in_doubt
        return self.n / max(self.accepted, 0.5) if is_counted else self.guess


def towards(theta: FloatArray, limits: Limits) -> FloatArray:
    """Return b: the lower bounds where θ is positive, the upper ones where it is negative."""
    return np.where(theta > 0, limits.low, np.where(theta < 0, limits.high, 0.0))


def given_up(proposals: int) -> BudgetExceededError:
    """Return the error for a draw that took far more proposals than are needed on average."""
    return BudgetExceededError(f"{proposals:,} sets were proposed, none of them accepted", count=proposals)
