"""Limits on sets of mixtures with shared ties: tilts θ_c of all components, prepared once for all baskets (:mod:`.limits`).

What given items leave of the bounds is rounded for θ_c, so that baskets share them. They are found as if items, or families of them, came
independently, and so is a guess of A_c. Only components for which it matters are tilted, and the exact Z_c(θ_c), which takes O(n r²), is
computed for no others: those that are proposed often without a tilt, unless enough proposals are accepted anyway.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ndpp._memory import Memory, n_bytes_of
from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp.laws.limits import Limits
from ndpp.laws.patterns import Patterns
from ndpp.laws.shared import SharedTies
from ndpp.linalg.tilts import GroupedCoins, TotalCumulants, chances_within, chernoff_tilts
from ndpp.samplers.components import FurtherItems
from ndpp.samplers.family_parts import FamilyTotals, GivenFamilies
from ndpp.samplers.proposer import Acceptance, Proposer, towards
from ndpp.samplers.shared import TiedDrawers, TiedParts, Tilt, _log_posterior
from ndpp.samplers.tilted import TiltedComponents

UNFIT = -12.0
"""Logarithm of the factor of items whose value alone is above a bound."""
RATIO, EXACT_UP_TO = 1.5, 12
"""What is left of a bound is rounded to powers of this, unless it is a small whole number."""
MAX_PROPOSAL_RATIO, MAX_PROPOSAL_RATIO_GIVEN = 1.05, 3.0
"""Components stay untilted while the number of proposals is at most this multiple of what it is with all of them tilted. The second ratio
applies if items are given, since other baskets need other components."""
MIN_LIMIT_ACCEPTANCE, ACCEPTANCE_DISCOUNT = 0.25, 0.2
"""Components also stay untilted if at least this share of all proposals is accepted anyway. The share is multiplied by the discount if
items are given, and again if tilting all components takes more than ``MAX_QUICK_OPERATIONS``."""
MAX_QUICK_OPERATIONS = 2e9
"""Number of operations up to which tilting all components counts as quick."""


def limited_ties(mixture: SharedTies, whole: Limits, ids: IntArray, memory: Memory) -> Proposer:
    """Return the sampler of sets that contain given items and keep the limits."""
    left, parts = whole.beside(ids), TiedParts(mixture, memory)
    possible = np.array(memory.remember("possible items", lambda: (mixture.masses() > 0).any(axis=0)))
    possible[ids] = False
    left.check(possible, int(mixture.largest.max()) - len(ids))
    aim = replace(rounded(left), values=whole.values)
    key = hashlib.blake2b(b"|".join(part.tobytes() for part in (aim.values, aim.low, aim.high))).digest()
    tilts = memory.remember(key, lambda: LimitTilts(parts, aim))
    log_weights, is_tilted = tilts.chosen(parts, ids, left)
    drawers = LimitedDrawers(tilts, key, parts, ids, is_tilted, whole.high - whole.totals(ids))
    accepted = Acceptance.of(whole, tilts.theta * is_tilted[:, None])
    return Proposer(mixture, ids, log_weights, drawers, accepted)


def rounded(limits: Limits) -> Limits:
    """Return limits with upper bounds rounded up and lower ones rounded down, so that there are few of them."""
    whole = (limits.values == np.round(limits.values)).all(axis=1)

    def on_grid(bounds: FloatArray, rounding: Any) -> FloatArray:
        positive = bounds > 0
        power = rounding(
            np.log(np.where(positive, bounds, 1.0)) / np.log(RATIO) + 1e-6 * (1 if rounding is np.floor else -1)
        )
        near = np.abs(bounds - np.round(bounds)) < 1e-6
        exact = whole & near & (bounds <= EXACT_UP_TO)
        return np.where(exact, np.round(bounds), np.where(positive, RATIO**power, 0.0))

    low = np.where(limits.low > 0, on_grid(np.where(np.isfinite(limits.low), limits.low, 0.0), np.floor), -np.inf)
    high = np.where(
        np.isfinite(limits.high), on_grid(np.where(np.isfinite(limits.high), limits.high, 0.0), np.ceil), np.inf
    )
    return replace(limits, low=low, high=high)


class LimitTilts:
    """The components of a mixture with shared ties, each tilted by its own θ_c, whatever is given.

    Items whose value alone is above a bound have a small factor rather than none, as they may be given; ``n_unfit`` are their means.
    ``mean`` and ``variance`` are those of c_j without a tilt, and ``log_bound`` is about log E_c e^{θ_c·c(S)}, all as if there were no
    ties, shapes (C, J) and (C,); ``reach`` (C, J) bounds c_j.
    """

    def __init__(self, parts: TiedParts, aim: Limits) -> None:
        mixture, fitting = parts.mixture, aim.fitting
        places = np.flatnonzero(aim.values.any(axis=0))
        alone, _, added, _ = parts.moments
        raised = 1 + added / alone.clip(1e-12)  # ties are taken to add the same to all items
        fit, unfit = places[fitting[places]], places[~fitting[places]]
        self.values, self.unfit = aim.values, np.where(fitting, 0.0, UNFIT)
        self.n_unfit = (mixture.chances_alone(unfit) * raised[:, None]).clip(0.0, 1.0).sum(axis=1)
        law: TotalCumulants
        if mixture.patterns is None:
            law = GroupedCoins.of((mixture.chances_alone(fit) * raised[:, None]).clip(0.0, 1.0), aim.values[:, fit])
        else:
            law = FamilyTotals.of(mixture.patterns, mixture.odds, raised, aim.values, ~fitting)
        nothing = np.zeros((len(raised), len(aim)))
        _, self.mean, covariance = law.cumulants(nothing, np.arange(len(nothing)))
        self.variance = np.einsum("cjj->cj", covariance)
        self.theta, log_mean = chernoff_tilts(law, aim.low, aim.high, nothing)
        self.log_bound = log_mean - self.n_unfit
        is_tilted = (self.theta != 0).any(axis=1) | (self.n_unfit > 0)
        self.components = TiltedComponents(
            mixture, partial(_log_factors, self.theta, aim.values, self.unfit), is_tilted
        )
        self.reach = (mixture.masses() > 0).astype(np.float64) @ (aim.values * fitting).T
        self.takes_long = len(raised) * len(places) * mixture.base.rank**2 > MAX_QUICK_OPERATIONS

    grows: ClassVar[bool] = True

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        own = self.values, self.unfit, self.theta, self.mean, self.variance, self.reach
        return n_bytes_of(own) + self.components.n_bytes

    def chosen(self, parts: TiedParts, ids: IntArray, left: Limits) -> tuple[FloatArray, BoolArray]:
        """Return log w_c A_c given items, which leave ``left`` of the limits, and which components are tilted."""
        found = _log_posterior(parts, ids)
        found[(self.reach < left.low).any(axis=1)] = -np.inf
        top, log_units = found.max(), -(self.theta * towards(self.theta, left)).sum(axis=1)
        is_tilted = np.zeros(len(found), bool)
        if top == -np.inf:
            return found, is_tilted
        plain, bounds = np.exp(found - top), np.exp((self.log_bound + log_units).clip(max=0.0))
        guess = np.where(self.components.is_tilted, plain * bounds, plain)
        within = chances_within(self.mean, self.variance, left.low, left.high).prod(axis=1) * np.exp(-self.n_unfit)
        within = np.minimum(within, bounds)
        share = MIN_LIMIT_ACCEPTANCE * ACCEPTANCE_DISCOUNT ** (int(len(ids) > 0) + self.takes_long)
        ratio = MAX_PROPOSAL_RATIO_GIVEN if len(ids) else MAX_PROPOSAL_RATIO
        enough = max(ratio * guess.sum(), float(plain @ within) / share)
        order = np.argsort(guess - plain, kind="stable")
        still = plain.sum() - np.cumsum((plain - guess)[order])
        which = order[: 0 if plain.sum() <= enough else 1 + int(np.argmax(still <= enough))]
        which = np.sort(which[self.components.is_tilted[which]])
        if len(which):
            of_given = self.components.log_factors(which, ids).sum(axis=1)
            tilted = self.components.log_weights(parts, ids, which) - of_given + log_units[which]
            less = tilted < found[which]
            found[which[less]], is_tilted[which[less]] = tilted[less], True
        return found, is_tilted


class LimitedDrawers(TiedDrawers):
    """What draws the further items of sets from the components of :class:`LimitTilts`; what it prepares stays with the mixture.

    ``room`` is what given items leave of the upper bounds.
    """

    def __init__(
        self, tilts: LimitTilts, key: bytes, parts: TiedParts, ids: IntArray, is_tilted: BoolArray, room: FloatArray
    ) -> None:
        super().__init__(parts, ids, None, np.zeros(len(is_tilted)))
        self.tilts, self.key, self.is_tilted, self.room = tilts, key, is_tilted, room

    def __reduce__(self) -> tuple[type[LimitedDrawers], tuple[object, ...]]:
        return LimitedDrawers, (self.tilts, self.key, self.parts, self.ids, self.is_tilted, self.room)

    def tilt(self, c: int) -> Tilt:
        """Return the key of the limits, if component c is tilted."""
        return self.key if self.is_tilted[c] else 0.0

    def components(self) -> TiltedComponents:
        """Return the tilted components."""
        return self.tilts.components

    def patterns(self, c: int) -> Patterns:
        """Return the patterns of the families of component c."""
        plain, memory = self.parts.mixture.patterns, self.parts.memory
        if plain is None or not self.is_tilted[c]:
            return super().patterns(c)
        return memory.remember((c, self.key, "patterns"), lambda: self.tilts.components.patterns(plain, c))

    def families(self, c: int) -> GivenFamilies:
        """Return the families of the given items, those of component c."""
        return GivenFamilies.of(self.patterns(c), self.touched) if self.is_tilted[c] else super().families(c)

    def _drawer(self, c: int) -> FurtherItems:
        return super()._drawer(c)._replace(values=self.tilts.values, room=self.room)


def _log_factors(theta: FloatArray, values: FloatArray, unfit: FloatArray, which: Any, items: Any) -> FloatArray:
    """Return log s of some components and items."""
    return np.asarray(theta[which] @ values[:, items] + unfit[items])
