"""Exact samples under limits: low_j ≤ c_j(S) ≤ high_j for counts or totals c_j(S) = Σ_{i∈S} c_ji (:class:`ndpp.Limit`).

Distribution: P(S | limits, given items ⊆ S), with or without a size. Exact. Each component c has a tilt θ_c; let b_j = low_j where
θ_cj > 0 and high_j where θ_cj < 0. Component c is drawn with probability ∝ w_c A_c, then a set S of the component with the odds of item i
times e^{θ_c·c_i}, which is accepted if it keeps the limits, with probability e^{−θ_c·(c(S) − b)} ≤ 1; otherwise both are drawn again. With

    A_c = Z_c(θ_c) / Z_c · e^{−θ_c·b},        Z_c(θ) the weight of all sets of component c with these odds,

a component and a set are accepted with probability ∝ w_c P_c(S), whatever the θ_c. A_c is Chernoff's bound of P_c(limits), so good θ_c
minimise it; they are found as if items came independently (:func:`solve`). With θ_c = 0, A_c = 1: components that hardly matter stay so.
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
from scipy.special import logsumexp

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
from ndpp.laws.families import MOST_LOG
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law, log_sum
from ndpp.laws.limits import Limit, Limits
from ndpp.laws.patterns import Patterns, touch_weights
from ndpp.laws.precision import WARN_ERROR, check_given
from ndpp.laws.shared import SharedTies
from ndpp.laws.tied import MOST_ODDS, TiedMixture
from ndpp.linalg.scaling import EPS
from ndpp.samplers import shared
from ndpp.samplers.base import Draw, Sampler, cuda_device, stream, stream_key
from ndpp.samplers.components import FamilyParts, FurtherItems, GivenFamilies, Union
from ndpp.samplers.exact.ladder import n_bytes_of
from ndpp.samplers.laws import Asked, Store, _prepare
from ndpp.samplers.shared import UNSEEN, _log_posterior, log_weights, products, store_of

MAX_EXPECTED = 1e4
"""Largest acceptable mean number of proposals per draw."""
MANY = 300
"""After so many proposals their mean number is estimated, and draws that need too many are refused."""
PILOT, ENOUGH = 3000, 10
"""Proposals of that estimate, fewer if so many are accepted before."""
MOST_FORMS = 4e9
"""Operations that ties may take where θ is found."""
FEW_ROWS = 4
"""Up to so many times the rank, rows that change are counted as few."""
UNFIT = -12.0
"""Logarithm of the factor of items whose value alone is above a bound."""
LEAST, RELATIVE_ERROR = 1000, 0.03
"""Proposals that an estimate takes, and the standard error at which it ends, within ``MAX_EXPECTED`` proposals."""
GIVE_UP_FACTOR = 50
"""A draw gives up after this many times ``MAX_EXPECTED`` proposals."""
MOST_LOG_FACTOR = 30.0
"""Largest logarithm of a factor e^{θ·c}."""
MOST_STEPS, MAX_STEP, HALVINGS = 30, 4.0, 6
"""Newton steps of θ, the largest of them in units of the largest value, and how often one is halved."""
CLOSE, RIDGE = 0.02, 1e-6
"""A mean that differs from its bound by this part of its standard deviation is close enough; a smaller variance counts as this."""
RATIO, EXACT_UP_TO = 1.25, 12
"""What is left of a bound is rounded to powers of this, unless it is a small whole number."""
ROUNDS, NEAR = 8, 0.15
"""How often θ is found for a kernel, each time from the inclusion probabilities under the last, unless it moves c by less than so many
standard deviations."""


# -- θ -----------------------------------------------------------------------------------------------------------------------


def solve(p: FloatArray, limits: Limits, start: FloatArray | None = None) -> FloatArray:
    """Return θ_c (C, J) that minimises Chernoff's bound A_c if the items of component c come independently with p (C, n).

    log A_c = Σ_i log(1 + p_ci (e^{θ·c_i} − 1)) − θ·b is convex, with a kink at 0, where θ_j stays if the mean of c_j is within the limit.
    Newton steps, projected and halved, for all components at once. O(C n J²) each. ``p`` may be that under ``start``, to go on from.
    """
    which = np.flatnonzero(limits.values.any(axis=0) & limits.fitting & (p > 0).any(axis=0))
    unit = np.where(limits.values[:, which].any(axis=1), limits.values[:, which].max(axis=1, initial=0.0), 1.0)
    V, low, high, p = limits.values[:, which].T / unit, limits.low / unit, limits.high / unit, p[:, which]
    first = np.zeros((len(p), len(limits))) if start is None else start * unit
    theta, moving = first.copy(), np.arange(len(p))

    def bound(theta: FloatArray, at: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return log A and the chances of the items under θ."""
        x = (theta - first[at]) @ V.T
        total = 1 + p[at] * np.expm1(x)
        aim = np.where(theta > 0, low, np.where(theta < 0, high, 0.0))
        return np.log(total).sum(axis=1) - (theta * aim).sum(axis=1), p[at] * np.exp(x) / total

    value, q = bound(theta, moving)
    for _ in range(MOST_STEPS):
        look()
        step, side = _newton(
            theta[moving], q @ V, np.stack([(q * (1 - q)) @ (V * v[:, None]) for v in V.T], axis=1), low, high
        )
        far = side.any(axis=1)
        moving, step, side, value, q = moving[far], step[far], side[far], value[far], q[far]
        left = np.arange(len(moving))
        for _ in range(HALVINGS):  # until it is better
            if not len(left):
                break
            new = (theta[moving[left]] + step[left]).clip(-MOST_LOG_FACTOR, MOST_LOG_FACTOR)
            new = np.where(new * side[left] > 0, new, 0.0)
            found, chances = bound(new, moving[left])
            good = found < value[left]
            theta[moving[left[good]]], value[left[good]], q[left[good]] = new[good], found[good], chances[good]
            left = left[~good]
            step[left] /= 2
        moving, value, q = np.delete(moving, left), np.delete(value, left), np.delete(q, left, axis=0)
        if not len(moving):
            break
    return theta / unit


def _newton(
    theta: FloatArray, mean: FloatArray, H: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return Newton steps from the means and covariances of c, and the sides of 0 on which θ may be: all 0 where it is good enough."""
    more, less = (theta > 0) | ((theta == 0) & (mean < low)), (theta < 0) | ((theta == 0) & (mean > high))
    gap, active = np.where(more, mean - low, np.where(less, mean - high, 0.0)), more | less
    far = (np.abs(gap) > CLOSE * np.sqrt(np.einsum("cjj->cj", H) + RIDGE)).any(axis=1, keepdims=True)
    H = np.where(active[:, :, None] & active[:, None, :], H, 0.0) + (RIDGE + ~active)[:, :, None] * np.eye(len(low))
    step = np.asarray(-np.linalg.solve(H, gap[:, :, None])[:, :, 0], np.float64)
    step *= np.minimum(1.0, MAX_STEP / np.abs(step).max(axis=1, keepdims=True).clip(MAX_STEP / 2))
    return step, np.asarray((more.astype(np.float64) - less) * far, np.float64)


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

    Items of a kernel vary less than independent ones, so steps become longer by as much as the means of c fell short of their aim.
    """
    theta, found, stretch = np.zeros((1, len(whole))), kernel, 1.0
    for _ in range(ROUNDS):
        step, before = solve(p[None], left, theta) - theta, left.values @ p
        if np.max(np.abs(step) * np.sqrt(left.values**2 @ (p * (1 - p)))) < NEAR:
            break
        aim = theta + stretch * step
        aim = np.where((aim > 0) & (left.low == -np.inf) | (aim < 0) & (left.high == np.inf), 0.0, aim)
        for _ in range(HALVINGS):
            try:
                tilted = kernel.tilt(np.exp((aim[0] @ whole.values).clip(-MOST_LOG_FACTOR, MOST_LOG_FACTOR)))
                if tilted._free_error > max(WARN_ERROR / 10, 2 * kernel._free_error):
                    raise PrecisionError("the tilt costs too many digits")
                q = tilted.inclusion_probabilities(asked.size, asked.given)
                break
            except (PrecisionError, InvalidInputError):
                aim = (aim + theta) / 2
        else:
            break
        wanted = left.values @ (p * (1 - p) * ((aim - theta)[0] @ left.values))
        theta, found, p = aim, tilted, q
        moved = float(np.linalg.norm(left.values @ p - before)) / max(float(np.linalg.norm(wanted)), 1e-12)
        stretch = float(np.clip(1 / max(moved, 1e-3), 1.0, 8.0))
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
    tilts = store.unions.remember(key, lambda: Tilts(mixture, aim))
    bound = towards(tilts.theta, whole)
    log_weights, is_tilted = tilts.chosen(store, ids, (tilts.theta * bound).sum(axis=1))
    begun = Begun(tilts, key, store, ids, is_tilted, whole.high - whole.totals(ids))
    return LimitedSampler(mixture, ids, whole, tilts.theta * is_tilted[:, None], bound, log_weights, begun)


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
    """The components of a mixture with shared ties, each tilted by its own θ_c, whatever is given; computed when first looked at.

    Of the rows that sets touch, ``odds`` (C, rows) are those under θ_c, N and ``errors`` as in :mod:`ndpp.laws.tied`, ``log_change`` is
    log Z_c(θ_c) / Z_c, and ``log_totals`` (M + 1, C), for families, log Π (1 + s r) of their states. Items whose value alone is above a
    bound have a small factor rather than none, as they may be given.
    """

    def __init__(self, mixture: SharedTies, aim: Limits) -> None:
        self.mixture, self.values, ties = mixture, aim.values, mixture.touched
        C, r = len(mixture.weights), ties.base.rank
        self.theta, self.unfit = solve(_chances(mixture, aim), aim), np.where(aim.fitting, 0.0, UNFIT)
        self.is_tilted = (self.theta != 0).any(axis=1) | (self.unfit != 0).any()
        self.is_known, self.log_change, self.errors = np.zeros(C, bool), np.zeros(C), np.zeros(C)
        self.odds, self.N = np.empty((C, ties.base.n_items)), np.empty((C, r, r))
        n_states = 0 if mixture.patterns is None else len(mixture.patterns.states)
        self.log_totals = np.zeros((n_states + 1, C))

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return n_bytes_of((self.values, self.odds, self.N, self.log_totals))

    def log_factors(self, which: Any) -> FloatArray:
        """Return those of all items in some components."""
        return np.asarray(self.theta[which] @ self.values + self.unfit)

    def _know(self, which: IntArray) -> None:
        """Compute what is not yet known of these components. O(n r²) each, and less if the limits are on few rows."""
        new, mixture, ties = which[~self.is_known[which]], self.mixture, self.mixture.touched
        if not len(new):
            return
        factors, beyond = np.exp(self.log_factors(new)), 0.0
        if mixture.patterns is None:
            odds = np.minimum(mixture.odds[new] * factors, MOST_ODDS)
        else:
            slots = mixture.patterns.slots
            self.log_totals[:-1, new] = mixture.patterns.log_totals_at(factors.T)
            logs = touch_weights(self.log_totals[:, new][slots], mixture._by_state[:, new][slots])[0].T
            odds = np.expm1(logs.clip(0.0, MOST_LOG))
            beyond = (logs - np.log1p(odds)).sum(axis=1)
        rows, before = ties.base.support, ties.tilted_odds(0.0, new)
        changed = np.flatnonzero((odds[:, rows] != before).any(axis=0))
        if len(changed) <= FEW_ROWS * ties.base.rank:
            found = _updated(ties, new, changed, before[:, changed], odds[:, rows[changed]])
        else:
            state = TiedMixture(odds, ties.base, np.full(len(new), 1 / len(new)))._state
            found = state.N, state.log_z - ties.log_normalizers()[new], state.errors
        self.odds[new], self.N[new], self.errors[new] = odds, found[0], found[2]
        self.log_change[new] = found[1] + beyond  # the same, if two threads do it
        self.is_known[new] = True

    def log_weights(self, ids: IntArray, which: IntArray) -> FloatArray:
        """Return log w_c Z_c(θ_c, J) / Z_c, where Z(θ, J) is the weight of all sets that contain J, of some components."""
        self._know(which)
        at, within = self._within_rows(ids, which)
        base = self.mixture.touched.base
        out = self.mixture._log_weights[which] + self.log_change[which] + within - self.unfit[ids].sum()
        q = base.q_rows(base.rows_of(at))
        return log_weights(out, q, self.odds[np.ix_(which, at)], products(self.N, which, q), self.errors[which])

    def _within_rows(self, ids: IntArray, which: IntArray) -> tuple[IntArray, Any]:
        """Return the rows that given items touch, and log P_c(J ⊆ S | these rows are touched) of some components."""
        patterns = self.mixture.patterns
        if patterns is None or not len(ids):
            return ids, 0.0
        one = patterns.touched(self.mixture.one_basket(ids))
        slots = patterns.slots[one.families]
        with np.errstate(divide="ignore"):
            factors = np.exp(self.theta[which] @ self.values[:, one.items] + self.unfit[one.items])
            odds = patterns.odds[one.items][:, :, None] * factors.T[:, None]
            logs = self.log_totals[slots][:, :, which] + np.add.reduceat(
                np.log(odds) - np.log1p(odds), one.first, axis=0
            )
            total = logsumexp(logs, axis=1, b=self.mixture._by_state[slots][:, :, which])
            return one.families, (total - np.log(self.odds[np.ix_(which, one.families)].T)).sum(axis=0)

    def chosen(self, store: shared.Store, ids: IntArray, log_units: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Return log w_c A_c given items, from θ_c · b, and which components are tilted.

        A component is tilted if that makes it proposed less often; some that hardly ever are proposed stay as they are.
        """
        log_posterior = _log_posterior(store, ids)
        top, seen, tilted = log_posterior.max(), ~self.is_tilted, np.zeros(len(log_posterior), bool)
        if top == -np.inf:
            return log_posterior, tilted
        weights = np.exp(log_posterior - top)
        while weights[~seen].sum() > UNSEEN * weights.sum():
            order = np.flatnonzero(~seen)[np.argsort(-weights[~seen])]
            which = order[: 1 + np.searchsorted(np.cumsum(weights[order]), (1 - UNSEEN) * weights[order].sum())]
            found = self.log_weights(ids, which) - log_units[which]
            is_less = found < log_posterior[which]
            tilted[which[is_less]], seen[which] = True, True
            log_posterior[which] = np.minimum(found, log_posterior[which])
            weights[which] = np.exp(log_posterior[which] - top)
        return log_posterior, tilted

    def single(self, c: int) -> TiedMixture:
        """Return the rows of component c under θ_c."""
        made = TiedMixture(self.odds[[c]], self.mixture.touched.base, np.ones(1))
        state = self.N[[c]], np.zeros(1), self.errors[[c]], None  # nobody asks for its normalizer
        vars(made)["_state"] = type(self.mixture.touched._state)(*state)
        return made

    def patterns(self, c: int) -> Patterns:
        """Return the patterns of families under the factors of component c."""
        found = self.mixture.patterns
        assert found is not None  # asked for families only
        found.members  # noqa: B018  all components share them
        return found.with_odds(found.odds * np.exp(self.log_factors(c))[:, None])


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


def _updated(
    ties: TiedMixture, which: IntArray, rows: IntArray, before: FloatArray, after: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return N, the change of log Z and an estimate of its error of some components whose odds change in a few rows.

    A changes by QᵀDQ with the changes D of p, so det(I + WA) is multiplied by det(I + Q N Qᵀ D) = det(I + N Qᵀ D Q), and N becomes
    N − N Qᵀ D (I + Q N Qᵀ D)⁻¹ Q N = (I + N Qᵀ D Q)⁻¹ N: the smaller of these matrices is taken.
    """
    Q, N, errors = ties.base.q_rows(rows), ties._state.N[which], ties._state.errors[which]
    change = (after - before) / ((1 + after) * (1 + before))
    m, r = Q.shape
    if m <= r:
        left = Q @ N
        system = np.eye(m) + left @ (Q.T * change[:, None, :])
        inverse = np.linalg.inv(system)
        N = N - (N @ Q.T * change[:, None, :]) @ inverse @ left
    else:
        pairs = (Q[:, :, None] * Q[:, None]).reshape(m, r * r)
        system = np.eye(r) + N @ (change @ pairs).reshape(len(N), r, r)
        inverse = np.linalg.inv(system)
        N = inverse @ N
    log_z = np.linalg.slogdet(system)[1] + (np.log1p(after) - np.log1p(before)).sum(axis=1)
    lost = np.einsum("cij,cji->c", np.abs(inverse), np.abs(system))
    return N, log_z, errors * (1 + np.abs(inverse).sum(axis=(1, 2))) + EPS * lost


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


class Begun:
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
        return Begun, (self.tilts, self.key, self.store, self.ids, self.is_tilted, self.room)

    def __getitem__(self, c: int) -> Apart | FurtherItems:
        if c not in self._made:
            self._made[c] = self._make(c)
        return self._made[c]

    def _make(self, c: int) -> Apart | FurtherItems:
        tilts, mixture, keep = self.tilts, self.tilts.mixture, self.store.unions.remember
        if not self.is_tilted[c]:
            return (
                self.others[c]
                if mixture.patterns is not None
                else Apart(self.others.given(c)[0], tilts.values, self.room)
            )
        union = keep((self.key, c), lambda: Union.prepare(tilts.single(c), 0, self.store.memory))
        if mixture.patterns is None:
            return Apart(union.given(mixture.base.rows_of(self.ids)), tilts.values, self.room)
        parts = keep((self.key, c, "parts"), lambda: FamilyParts.of(tilts.patterns(c), mixture.odds[c]))
        families = GivenFamilies.of(parts.patterns, self.ids).weighed(mixture.odds[c])
        return FurtherItems(union.given(families.families), None, _no_counts, 1.0, parts, families)


def _no_counts(count: int, removed: IntArray) -> Any:
    raise AssertionError("sets of any size need no counts")
