"""Exact samples under limits: low_j ≤ c_j(S) ≤ high_j for counts or totals c_j(S) = Σ_{i∈S} c_ji (:class:`ndpp.Limit`).

Distribution: P(S | limits, given items ⊆ S), with or without a size. Exact. Each component c has a tilt θ_c; let b_j = low_j where
θ_cj > 0 and high_j where θ_cj < 0. Component c is drawn with probability ∝ w_c A_c, then a set S of the component with the odds of item i
times e^{θ_c·c_i}, which is accepted if it keeps the limits, with probability e^{−θ_c·(c(S) − b)} ≤ 1; otherwise both are drawn again. With

    A_c = Z_c(θ_c) / Z_c · e^{−θ_c·b},        Z_c(θ) the weight of all sets of component c with these odds,

a component and a set are accepted with probability ∝ w_c P_c(S), whatever the θ_c. A_c is Chernoff's bound of P_c(limits), so good θ_c
minimise it; they are found as if items came independently (:mod:`ndpp.linalg.chernoff`). With θ_c = 0, A_c = 1: components that hardly
matter stay so.
P(limits) is the acceptance rate times Σ_c w_c A_c.

Given items count, and change nothing else: Z_c(θ_c) is then the weight of the sets that contain them. θ_c aims at what they leave of the
bounds.

Kernels, and mixtures of any kernels, draw from their tilted kernels, of the wanted size if there is one. Mixtures with shared ties take the
size for one more limit, and baskets share what is prepared (:class:`Tilts`): what is left of the bounds is rounded for θ_c.

Cost per sample: that of a set of any size, times the number of proposals. Preparing takes O(C n r²), once for all baskets.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property, singledispatch
from typing import Any, NamedTuple, Protocol

import numpy as np

from ndpp._stop import look
from ndpp._types import BoolArray, FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.errors import (
    BudgetExceededError,
    ImpossibleLimitError,
    InvalidInputError,
    PrecisionError,
    ZeroProbabilityError,
)
from ndpp.items.base import look_up_cdf
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law, log_sum
from ndpp.laws.limits import Limit, Limits
from ndpp.laws.precision import WARN_ERROR, check_given
from ndpp.laws.shared import SharedTies
from ndpp.linalg.chernoff import HALVINGS, MOST_LOG_FACTOR, chernoff_tilts
from ndpp.samplers import shared
from ndpp.samplers.base import Draw, Sampler, cuda_device, stream, stream_key
from ndpp.samplers.components import FamilyParts, FurtherItems, GivenFamilies, Union
from ndpp.samplers.exact.ladder import Cache
from ndpp.samplers.laws import GIVE_UP_FACTOR, MAX_EXPECTED, Asked, Store, _prepare
from ndpp.samplers.shared import _log_posterior, store_of
from ndpp.samplers.tilted import TiltedComponents

MANY = 300
"""After so many proposals their mean number is estimated, and draws that need too many are refused."""
PILOT, ENOUGH = 3000, 10
"""Proposals of that estimate, fewer if so many are accepted before."""
MOST_FORMS = 4e9
"""Operations that ties may take where θ is found."""
UNFIT = -12.0
"""Logarithm of the factor of items whose value alone is above a bound."""
LEAST, RELATIVE_ERROR = 1000, 0.03
"""Proposals that an estimate takes, and the standard error at which it ends, within ``MAX_EXPECTED`` proposals."""
RATIO, EXACT_UP_TO = 1.25, 12
"""What is left of a bound is rounded to powers of this, unless it is a small whole number."""
LONGEST = 8.0
"""Most by which a step of θ is lengthened for a kernel."""
ROUNDS, NEAR = 8, 0.15
"""How often θ is found for a kernel, each time from the inclusion probabilities under the last, unless it moves c by less than so many
standard deviations."""


# -- what draws --------------------------------------------------------------------------------------------------------------


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
    """

    kernel: Law
    given: IntArray
    limits: Limits
    theta: FloatArray = field(repr=False)
    bound: FloatArray = field(repr=False)
    log_weights: FloatArray = field(repr=False)
    store: Drawers = field(repr=False)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted items of the catalogue."""
        for proposals in range(1, int(GIVE_UP_FACTOR * MAX_EXPECTED) + 1):
            look()
            if proposals == MANY:
                self.check_expected()
            ids, chances = self.propose_one(rng)
            if rng.random() < chances.prod():
                return Draw(np.sort(ids), {"proposals": proposals, "rejections": proposals - 1})
        raise BudgetExceededError(f"{proposals:,} sets were proposed, none of them accepted", count=proposals)

    def propose_one(self, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
        """Propose a set; return it, and the probability that each limit accepts it, 0 where it is broken."""
        c = look_up_cdf(self._cdf, rng.random()) if len(self._cdf) > 1 else 0
        ids = np.concatenate([self.given, self.store[c].propose(rng)])
        totals = self.limits.totals(ids)
        kept = (self.limits.low <= totals) & (totals <= self.limits.high)
        return ids, np.exp(np.where(kept, -self.theta[c] * (totals - self.bound[c]), -np.inf))

    @cached_property
    def _cdf(self) -> FloatArray:
        return np.cumsum(np.exp(self.log_weights - self.log_weights.max()))

    @cached_property
    def pilot(self) -> Pilot:
        """What some proposals show, in a stream of their own: more of them, if it is in doubt whether draws need too many."""
        rng, found = stream(stream_key(0), 0), Pilot(0, 0.0, np.zeros(len(self.limits)))
        while found.n < PILOT or (found.n < MAX_EXPECTED and found.is_in_doubt):
            look()
            chances = self.propose_one(rng)[1]
            found = Pilot(found.n + 1, found.accepted + float(chances.prod()), found.by_limit + chances)
            if found.n >= MANY and found.accepted >= ENOUGH:
                break
        return found

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

    def check_expected(self) -> None:
        """Refuse draws that would take too many proposals."""
        expected = self.pilot.expected_proposals
        if expected > MAX_EXPECTED:
            worst = self.limits.texts[int(np.argmin(self.pilot.by_limit))]
            none = (
                "" if self.pilot.accepted > 0 else f"; none of {self.pilot.n:,} was accepted, so it may be impossible"
            )
            raise BudgetExceededError(
                f"samples under these limits would need about {expected:.2g} proposals each, above {MAX_EXPECTED:g}; the limit that costs "
                f"most is {worst}{none}. Widen it, or ask for fewer limits at a time",
                count=self.pilot.n,
            )

    def items_of(self, rows: IntArray) -> IntArray:
        """Return the items of a draw, which are what is drawn."""
        return rows


class Pilot(NamedTuple):
    """The number of proposals, the sum of the probabilities with which they are accepted, and those of each limit by itself."""

    n: int
    accepted: float
    by_limit: FloatArray

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


def prepare(
    law: Law, *, limits: Any, size: int | None = None, given: Items = (), exclude: Items = (), memory: int,
    device: str | None = None, component: int | None = None,
) -> LimitedSampler:  # fmt: skip
    """Prepare the exact sampler of a distribution under limits. Parameters as in ``law.sampler``; ``component`` is a number."""
    if cuda_device(device) is not None:
        raise InvalidInputError("samples under limits are drawn on the CPU; leave it out", argument="device")
    if component is not None:
        law = law.only([component])  # type: ignore[attr-defined]
    ids, excluded = check_items(given, law, "given"), check_items(exclude, law, "exclude")
    if len(both := np.intersect1d(ids, excluded)):
        raise ZeroProbabilityError(f"item {both[0]} is both given and excluded")
    if size is not None:
        check_given(size, len(ids))
    made = _prepare_limited(law, limits, Asked(size, ids, excluded, memory, None))
    if made.log_weights.max() == -np.inf:
        if log_sum(law._log_weights + law._log_started(ids, size)) == -np.inf:
            raise law._impossible(ids, size)
        texts = Limits.of(limits, law, size).texts
        raise ImpossibleLimitError(
            f"sets that keep these limits have probability zero: {'; '.join(texts)}", limits=texts
        )
    return made


def towards(theta: FloatArray, limits: Limits) -> FloatArray:
    """Return b: the lower bounds where θ is positive, the upper ones where it is negative."""
    return np.where(theta > 0, limits.low, np.where(theta < 0, limits.high, 0.0))


@singledispatch
def _prepare_limited(law: Law, limits: Any, asked: Asked) -> LimitedSampler:
    """Tilt each component, a kernel, by itself."""
    whole, ids, size, n = Limits.of(limits, law), np.asarray(asked.given), asked.size, len(law.weights)
    left = whole.beside(ids)
    allowed = left.fitting
    allowed[np.asarray(asked.exclude)], allowed[ids] = False, True
    rest = [kernel.tilt(allowed.astype(np.float64)) for kernel in law.components]
    room = [(kernel.max_size if size is None else size) - len(ids) for kernel in rest]
    chances = np.zeros((n, law.n_items))
    for c in np.flatnonzero(law.weights > 0).tolist():
        if rest[c].log_mass(ids, size) > -np.inf:
            chances[c] = rest[c].inclusion_probabilities(size, ids)
    chances[:, ids] = 0.0
    if chances.any():
        Limits.of(limits, law, size).beside(ids).check(np.asarray((chances > 0).any(axis=0)), max(room))
    theta, log_weights = np.zeros((n, len(whole))), np.full(n, -np.inf)
    for c in np.flatnonzero(law.weights > 0).tolist():
        if (left.reach(chances[c] > 0, room[c]) >= left.low).all():
            theta[c], rest[c] = _tilted(rest[c], whole, left, chances[c], asked)
            mass = rest[c].log_mass(ids, size) - law.components[c].log_normalizer()
            log_weights[c] = law._log_weights[c] + mass
    bound = towards(theta, whole)
    store = Store(TiltedKernels(tuple(rest), asked._replace(exclude=(), memory=asked.memory // n)), n)
    return LimitedSampler(law, ids[:0], whole, theta, bound, log_weights - (theta * bound).sum(axis=1), store)


def _tilted(
    kernel: LowRankKernel, whole: Limits, left: Limits, p: FloatArray, asked: Asked
) -> tuple[FloatArray, LowRankKernel]:
    """Return θ and the kernel under it: several times, as p are inclusion probabilities under the last θ; less, where precision ends.

    Items of a kernel vary less than independent ones, so steps become longer by as much as the means of c fell short of their aim, until
    one goes too far.
    """
    theta, found, stretch, longest = np.zeros((1, len(whole))), kernel, 1.0, LONGEST
    last = theta
    for _ in range(ROUNDS):
        step, before = (
            chernoff_tilts(p[None] * left.fitting, left.values, left.low, left.high, theta) - theta,
            left.values @ p,
        )
        if np.max(np.abs(step) * np.sqrt(left.values**2 @ (p * (1 - p)))) < NEAR:
            break
        if (step * last).sum() < 0:
            longest = 1.0
        aim = theta + min(stretch, longest) * step
        aim = np.where((aim > 0) & (left.low == -np.inf) | (aim < 0) & (left.high == np.inf), 0.0, aim)
        for _ in range(HALVINGS):
            try:
                tilted = kernel.tilt(np.exp((aim[0] @ whole.values).clip(-MOST_LOG_FACTOR, MOST_LOG_FACTOR)))
                if tilted._free_error > max(WARN_ERROR / 10, 2 * kernel._free_error):
                    raise PrecisionError("the tilt costs too many digits")
                q = tilted.inclusion_probabilities(asked.size, asked.given)
                q[np.asarray(asked.given, np.int64)] = 0.0
                break
            except (PrecisionError, InvalidInputError):
                aim = (aim + theta) / 2
        else:
            break
        wanted = left.values @ (p * (1 - p) * ((aim - theta)[0] @ left.values))
        last, theta, found, p = aim - theta, aim, tilted, q
        moved = float(np.linalg.norm(left.values @ p - before)) / max(float(np.linalg.norm(wanted)), 1e-12)
        stretch = float(np.clip(1 / max(moved, 1e-3), 1.0, LONGEST))
    return theta[0], found


class TiltedKernels(NamedTuple):
    """Makes the samplers of the tilted components of any mixture, or of a kernel."""

    kernels: tuple[LowRankKernel, ...]
    asked: Asked

    def __call__(self, c: int) -> Sampler:
        """Return the sampler of component c, whose sets have the given items."""
        return _prepare(self.kernels[c], self.asked)


# -- mixtures with shared ties -----------------------------------------------------------------------------------------------


@_prepare_limited.register
def _shared(mixture: SharedTies, limits: Any, asked: Asked) -> LimitedSampler:
    ids, excluded = np.asarray(asked.given), np.asarray(asked.exclude)
    never = [Limit(excluded.tolist(), most=0, name="excluded")] if len(excluded) else []
    whole = Limits.of([*([limits] if isinstance(limits, Limit) else limits), *never], mixture, asked.size)
    left, store = whole.beside(ids), store_of(mixture, asked.memory)  # it stays with the mixture
    possible = np.array(store.unions.remember("possible items", lambda: (mixture.masses() > 0).any(axis=0)))
    possible[ids] = False
    left.check(possible, int(mixture.largest.max()) - len(ids))
    aim = replace(rounded(left), values=whole.values)
    key = hashlib.blake2b(b"|".join(part.tobytes() for part in (aim.values, aim.low, aim.high))).digest()
    tilts = store.unions.remember(key, lambda: Tilts(mixture, aim, store.rows))
    bound = towards(tilts.theta, whole)
    log_weights, is_tilted = tilts.chosen(store, ids, (tilts.theta * bound).sum(axis=1))
    drawers = TiltedDrawers(tilts, key, store, ids, is_tilted, whole.high - whole.totals(ids))
    return LimitedSampler(mixture, ids, whole, tilts.theta * is_tilted[:, None], bound, log_weights, drawers)


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


class Tilts:
    """The components of a mixture with shared ties, each tilted by its own θ_c, whatever is given.

    Items whose value alone is above a bound have a small factor rather than none, as they may be given.
    """

    def __init__(self, mixture: SharedTies, aim: Limits, sides: Cache) -> None:
        chances = _chances(mixture, aim) * aim.fitting
        self.values, self.unfit = aim.values, np.where(aim.fitting, 0.0, UNFIT)
        self.theta = chernoff_tilts(chances, aim.values, aim.low, aim.high)
        is_tilted = (self.theta != 0).any(axis=1) | (self.unfit != 0).any()
        self.components = TiltedComponents(mixture, self.log_factors, is_tilted, sides)

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.values.nbytes + self.components.n_bytes

    def log_factors(self, which: Any, items: Any) -> FloatArray:
        """Return those of some components and items."""
        return np.asarray(self.theta[which] @ self.values[:, items] + self.unfit[items])

    def chosen(self, store: shared.Store, ids: IntArray, log_units: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Return log w_c A_c given items, from θ_c · b, and which components are tilted."""
        return self.components.choose(ids, _log_posterior(store, ids), -log_units - self.unfit[ids].sum())


def _chances(mixture: SharedTies, aim: Limits) -> FloatArray:
    """Return P_c(a ∈ S) of the items that limits are on, shape (C, n); as if there were no ties, where those would take long."""
    ties, p = mixture.touched, mixture.masses()
    rest = 1 / (1 + ties.tilted_odds(0.0))
    places = np.flatnonzero(aim.values.any(axis=0))
    rows = np.unique(places if mixture.row_of is None else mixture.row_of[places])
    if len(p) * len(rows) * ties.base.rank**2 <= MOST_FORMS:
        q = ties.base.q_rows(rows)
        forms = np.stack([((q @ N) * q).sum(axis=1) for N in ties._state.N])
        rest[:, rows] *= 1 + forms * rest[:, rows]
    return (p * mixture.by_item(rest)).clip(0.0, 1.0)


class Apart(NamedTuple):
    """Further items of sets whose rows are items: R is drawn first, and T, which costs most, only if R leaves room within the limits."""

    union: Union
    values: FloatArray
    room: FloatArray

    def propose(self, rng: np.random.Generator) -> IntArray:
        """Return the further items, or too many of them."""
        catalogue_ids, apart = self.union.clock.index.kernel.catalogue_ids, self.union.draw_apart(rng)
        found = catalogue_ids(apart)
        if (self.values[:, found].sum(axis=1) > self.room).any():
            return found
        return catalogue_ids(np.union1d(self.union.draw_tied(rng), apart))


class TiltedDrawers:
    """What draws the further items of sets from the components of :class:`Tilts`; what it prepares stays with the mixture.

    ``room`` is what given items leave of the upper bounds.
    """

    def __init__(
        self, tilts: Tilts, key: bytes, store: shared.Store, ids: IntArray, is_tilted: BoolArray, room: FloatArray
    ) -> None:
        self.tilts, self.key, self.store, self.ids, self.is_tilted, self.room = tilts, key, store, ids, is_tilted, room
        self.others = shared.Begun(store, ids, None, np.zeros(len(is_tilted), np.int64))
        self._made: dict[int, Apart | FurtherItems] = {}

    def __reduce__(self) -> Any:
        return TiltedDrawers, (self.tilts, self.key, self.store, self.ids, self.is_tilted, self.room)

    def __getitem__(self, c: int) -> Apart | FurtherItems:
        if c not in self._made:
            self._made[c] = self._make(c)
        return self._made[c]

    def _make(self, c: int) -> Apart | FurtherItems:
        tilts, mixture, keep = self.tilts, self.store.mixture, self.store.unions.remember
        if not self.is_tilted[c]:
            return (
                self.others[c]
                if mixture.patterns is not None
                else Apart(self.others.given(c)[0], tilts.values, self.room)
            )
        union = keep((self.key, c), lambda: Union.prepare(tilts.components.single(c), 0, self.store.memory))
        if mixture.patterns is None:
            return Apart(union.given(mixture.base.rows_of(self.ids)), tilts.values, self.room)
        patterns = keep((self.key, c, "patterns"), lambda: tilts.components.patterns(c))
        parts = keep((self.key, c, "parts"), lambda: FamilyParts.of(patterns, mixture.odds[c]))
        families = GivenFamilies.of(parts.patterns, self.ids).weighed(mixture.odds[c])
        return FurtherItems(union.given(families.families), None, _no_counts, 1.0, parts, families)


def _no_counts(count: int, removed: IntArray, is_fine: bool) -> Any:
    raise AssertionError("sets of any size need no counts")
