"""Sets of mixtures with shared ties, whatever is given: what draws from a component is prepared once, for all given items and sizes.

Given items J, the component is drawn by P(c | J), and a set from it (:class:`~ndpp.samplers.unions.Union`); neither touches all n items.

Sets of k items: the probability of this size in each component would take long to compute, and is not needed. Component c is proposed
with probability ∝ w_c ρ_c^(−k) Z_c(ρ_c, J) / Z_c, where Z(ρ, J) is the weight of all sets that contain J with all odds times ρ, and then a
set of the component with these odds, which is accepted if it has k items; what is rejected includes the component. This is exact for every
ρ_c, and fast if about k items are expected. Where k is a common size, ρ_c = 1 serves. Otherwise all components are tilted, once for each
number of further items; the ρ_c are on a grid, so that several sizes share what draws from a component.

Of a set S = T ∪ R, T is drawn first, and accepted by the chance that R has as many other items as are missing. Let b_c be a bound of these
chances (:meth:`Store.bounds`): T is accepted with probability chance / b_c, and component c proposed b_c times as often. Components whose
sets are mostly too large have a small b_c, and are hardly ever proposed. For families b_c = 1: S is drawn whole, R first.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ive
from scipy.stats import nbinom

from ndpp._types import FloatArray, IntArray
from ndpp.errors import ImpossibleSizeError
from ndpp.laws.families import FamilyMixture
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.shared import SharedTies
from ndpp.laws.tied import TiedMixture
from ndpp.samplers.exact.ladder import Cache, n_bytes_of
from ndpp.samplers.unions import Counts, FamilyParts, FamilySets, GivenFamilies, SizedSets, Union

RUNG = 0.25
"""log ρ is a multiple of this."""
COMMON = 0.02
"""If this part of the proposals without a tilt is accepted, no component is tilted."""
FAR = 3.0
"""Standard deviations from its mean up to which the chance of a size is guessed."""
LOG_S = (0.0, -0.35, -0.7, -1.05, -1.4, -2.1, -2.8)
"""log s of the bounds."""
MOST_REMOVED = 64
"""Most items that are given or wanted for which there are bounds."""
LIKELY = 1e-3
"""Components that are proposed less often than this do not matter to the mean number of proposals."""


def store_of(mixture: SharedTies, memory: int) -> Store:
    """Return what is prepared of a mixture. It stays with the mixture, until another ``memory`` is asked for."""
    store: Store | None = mixture._drawers
    if store is None or store.unions.memory != memory:
        store = mixture._drawers = Store(mixture, memory)
    return store


class Tilted(NamedTuple):
    """A mixture whose components are tilted, each to its rung, and weighed for sets of one size.

    ``touched`` is that of its rows; ``log_ratio`` is log w_c Z_c(ρ_c) / Z_c ρ_c^(−left), minus the ``variance`` of |R|, with the
    sums of its largest terms as in :func:`_with_least`, and ``log_totals`` (M + 1, C), for families, log Π (1 + ρ_c r) of their states.
    """

    mixture: SharedTies
    rungs: IntArray
    touched: TiedMixture
    log_ratio: FloatArray
    variance: tuple[FloatArray, FloatArray]
    log_totals: FloatArray | None

    @classmethod
    def of(cls, mixture: SharedTies, left: int) -> Tilted:
        """Choose the rungs on which about ``left`` items are expected."""
        rungs = np.round(mixture.tilts(left, unit=RUNG) / RUNG).astype(np.int64)
        log_tilt, log_totals = rungs * RUNG, None
        if isinstance(mixture, FamilyMixture):
            touched, log_z = mixture.tilted(log_tilt), mixture.log_normalizers(log_tilt)
            totals = mixture.patterns.log_totals_at(np.exp(log_tilt))
            log_totals = np.vstack([totals, np.zeros((1, len(rungs)))])
        else:
            odds = mixture.touched.odds * np.exp(log_tilt)[:, None]
            touched = TiedMixture(odds, mixture.base, mixture.weights)
            log_z = touched.log_normalizers()
        log_ratio = mixture._log_weights + log_z - mixture.log_normalizers() - left * log_tilt
        odds = touched.tilted_odds(0.0)
        return cls(mixture, rungs, touched, log_ratio, _with_least(-odds / (1 + odds) ** 2), log_totals)

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return n_bytes_of((self.touched.odds, self.touched._state, self.variance, self.log_ratio)) + n_bytes_of(
            () if self.log_totals is None else self.log_totals
        )

    def log_weights(self, ids: IntArray) -> FloatArray:
        """Return log w_c ρ_c^(−k) Z_c(ρ_c, J) / Z_c for given items J and sets of k items, |J| of them given."""
        out, rows = self.log_ratio - len(ids) * self.rungs * RUNG, ids
        if isinstance(self.mixture, FamilyMixture) and len(ids):
            patterns, one = self.mixture.patterns, self.mixture.patterns.touched(self.mixture.one_basket(ids))
            assert self.log_totals is not None
            rows, slots = one.families, patterns.slots[one.families]
            with np.errstate(divide="ignore"):
                odds = patterns.odds[ids][:, :, None] * np.exp(self.rungs * RUNG)  # (items, K, C)
                logs = self.log_totals[slots]
                np.add.at(logs, np.searchsorted(rows, patterns.families[ids]), np.log(odds) - np.log1p(odds))
                top = logs.max(axis=1, keepdims=True)
                top[top == -np.inf] = 0.0
                within = np.log((self.mixture._by_state[slots] * np.exp(logs - top)).sum(axis=1)) + top[:, 0]
                out = out + (within - np.log(self.touched.odds[:, rows].T)).sum(axis=0)
        out = out + self.touched._log_contained(rows)
        return np.asarray(np.where(np.isnan(out), -np.inf, out))

    def bounds(self, n_without: int) -> FloatArray:
        """Return a bound of the probability of any number of items of R without so many rows, as in :meth:`Store.bounds`."""
        if n_without > MOST_REMOVED or isinstance(self.mixture, FamilyMixture):
            return np.ones(len(self.rungs))
        minus, removed = self.variance
        return np.asarray(ive(0, (removed[:, min(n_without, removed.shape[1] - 1)] - minus).clip(0.0)))


class Store:
    """What draws from the components of a mixture: prepared when first needed; the last used stay in memory, at most ``memory`` bytes."""

    def __init__(self, mixture: SharedTies, memory: int) -> None:
        self.mixture, self.unions = mixture, Cache(memory)

    def __reduce__(self) -> Any:
        return store_of, (self.mixture, self.unions.memory)

    def union(self, c: int, rung: int) -> Union:
        """Return what draws from component c, with the odds of its items times exp(rung · RUNG)."""
        return self.unions.remember((c, rung), lambda: Union.prepare(self._kernel(c, rung * RUNG), self.unions.memory))

    def parts(self, c: int, rung: int) -> FamilyParts:
        """Return the patterns of the families of component c."""
        mixture = self.mixture
        assert isinstance(mixture, FamilyMixture)

        def make() -> FamilyParts:
            patterns = mixture.patterns.with_odds(mixture.patterns.odds * np.exp(rung * RUNG))
            return FamilyParts.of(patterns, mixture.odds[c])

        return self.unions.remember((c, rung, "parts"), make)

    def counts(self, c: int, rung: int) -> Counts:
        """Return the number of items of component c that come by themselves."""
        return self.unions.remember((c, rung, "counts"), lambda: Counts.of(self.union(c, rung).alone.odds))

    def _kernel(self, c: int, log_tilt: float) -> LowRankKernel:
        """Return the kernel of a component: of its items, or of the families that its sets touch."""
        if isinstance(self.mixture, FamilyMixture):
            return self.mixture.tilted(log_tilt, [c]).single(0)
        found: LowRankKernel = self.mixture.touched.single(c, log_tilt)
        return found

    def tilted(self, left: int) -> Tilted:
        """Return all components, tilted towards ``left`` items. O(C n r²), once for all baskets."""
        return self.unions.remember(("tilted", left), lambda: Tilted.of(self.mixture, left))

    @cached_property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Guesses of the mean and the variance of the size of each component."""
        return self.mixture.size_moments(np.zeros(len(self.mixture.weights)), np.arange(len(self.mixture.weights)))

    @cached_property
    def _tails(self) -> list[tuple[float, FloatArray, FloatArray, FloatArray, FloatArray]]:
        """For some s ≤ 1: log s, log E s^|R|, and minus the variance of |R| under odds times s; of each component.

        Of both, also the sums over the 0, 1, … items without which they are largest, and smallest.
        """
        ties, found = self.mixture.touched, []
        base = np.log1p(ties.tilted_odds(0.0))
        for log_s in LOG_S:
            odds = ties.tilted_odds(log_s)
            found.append((log_s, *_with_least(np.log1p(odds) - base), *_with_least(-odds / (1 + odds) ** 2)))
        return found

    def bounds(self, left: int, n_given: int) -> FloatArray:
        """Return a bound of P_c(|R ∖ T ∖ J| = m) of every component, for all m ≤ ``left``, sets T of up to ``left`` rows, and given rows J.

        For every s ≤ 1, P(|R| = m) ≤ s^(−m) E s^|R| · max_m P_s(|R| = m), P_s with odds times s; and the largest probability of a sum of
        independent items of variance v is at most e^(−v) I₀(v), as |1 + p(e^it − 1)| ≤ exp(−p(1 − p)(1 − cos t)).
        """
        at = left + n_given
        if at > MOST_REMOVED or isinstance(self.mixture, FamilyMixture):
            return np.ones(len(self.mixture.weights))
        out = np.zeros(len(self.mixture.weights))
        for log_s, logs, least, minus, removed in self._tails:
            variance = -(minus - removed[:, min(at, removed.shape[1] - 1)])
            log_bound = logs - least[:, min(at, least.shape[1] - 1)] - left * log_s
            out = np.minimum(out, log_bound.clip(max=0.0) + np.log(ive(0, variance.clip(0.0))))
        return np.asarray(np.exp(out))


def _with_least(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the sums of rows of values ≤ 0, and those of their 0, 1, … smallest values, shapes (C,) and (C, …)."""
    most = min(MOST_REMOVED, values.shape[1])
    least = np.sort(np.partition(values, most - 1, axis=1)[:, :most], axis=1)
    return values.sum(axis=1), np.pad(np.cumsum(least, axis=1), ((0, 0), (1, 0)))


class Begun:
    """What draws the further items of sets of a mixture: from component c on rung ``rungs[c]``, ``left`` items (None: any number)."""

    def __init__(
        self, store: Store, ids: IntArray, left: int | None, rungs: IntArray, bounds: FloatArray | None = None
    ) -> None:
        self.store, self.ids, self.left, self.rungs = store, ids, left, rungs
        self.bounds = np.ones(len(rungs)) if bounds is None else bounds
        self._made: dict[int, Any] = {}
        self._expected: float | None = None

    def __reduce__(self) -> Any:
        return Begun, (self.store, self.ids, self.left, self.rungs, self.bounds)

    def __getitem__(self, c: int) -> SizedSets | FamilySets:
        if c not in self._made:
            union, given = self.given(c)
            rung, bound = int(self.rungs[c]), float(self.bounds[c])
            if given is not None:
                self._made[c] = FamilySets(union, self.store.parts(c, rung), given, self.left)
            else:
                counts = None if bound == 1 else self.store.counts(c, rung)
                self._made[c] = SizedSets(union, self.left, counts, bound)
        return self._made[c]  # type: ignore[no-any-return]

    def given(self, c: int) -> tuple[Union, GivenFamilies | None]:
        """Return component c given the items, and their families."""
        rung, mixture = int(self.rungs[c]), self.store.mixture
        union = self.store.union(c, rung)
        if not isinstance(mixture, FamilyMixture):
            return union.given(mixture.base.rows_of(self.ids)), None
        patterns = mixture.patterns if rung == 0 else self.store.parts(c, rung).patterns
        given = GivenFamilies.of(patterns, mixture.odds[c], self.ids)
        return union.given(given.families), given

    def expected(self, cdf: FloatArray) -> float:
        """Return the mean number of proposals per draw, from the chances of the wanted size in the likely components."""
        if self._expected is None and self.left is not None:
            rest = self.store.mixture.condition(self.ids)
            shares = np.diff(cdf, prepend=0.0) / cdf[-1]
            likely = np.flatnonzero(shares > LIKELY).tolist()
            chance = 0.0
            for c in likely:
                sizes = rest._tilted(c, float(self.rungs[c] * RUNG), {}).law.distribution()
                chance += shares[c] * sizes[self.left] / self.bounds[c]
            self._expected = float(1 / max(chance, np.finfo(float).tiny))
        return self._expected or 1.0


def begin(mixture: SharedTies, ids: IntArray, size: int | None, memory: int) -> tuple[FloatArray, Begun]:
    """Return the weights by which components are proposed, and what draws from them."""
    store, posterior = store_of(mixture, memory), mixture.responsibilities(ids)
    rungs = np.zeros(len(posterior), np.int64)
    if size is None:
        return posterior, Begun(store, ids, None, rungs)
    left, most = size - len(ids), mixture.largest_given(ids)
    posterior[most < left] = 0.0
    if not posterior.any():
        bound = int(most.max()) + len(ids)
        raise ImpossibleSizeError(f"no set is larger than {bound} items; got size {size}")
    bounds, chances = store.bounds(left, len(ids)), _size_chances(*store.moments, left)
    if posterior @ chances >= COMMON * (posterior @ bounds):
        return posterior * bounds, Begun(store, ids, left, rungs, bounds)
    tilted = store.tilted(left)
    log_weights = tilted.log_weights(ids)
    log_weights[most < left] = -np.inf
    bounds = tilted.bounds(left + len(ids))
    return np.exp(log_weights - log_weights.max()) * bounds, Begun(store, ids, left, tilted.rungs, bounds)


def _size_chances(mean: FloatArray, variance: FloatArray, size: int) -> FloatArray:
    """Return about P_c(|S| = size) from the moments of the sizes, and 0 where it is in doubt: more than ``FAR`` deviations from the mean.

    Sizes that vary more than independent items do are taken to have a negative binomial distribution, and others a normal one.
    """
    spread, excess = np.sqrt(variance + 1 / 12), np.maximum(variance - mean, 0.05 * mean + 1e-12)
    normal = np.exp(-(((size - mean) / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))
    wide = nbinom.pmf(size, mean**2 / excess, mean / (mean + excess))
    return np.where(abs(size - mean) <= FAR * spread, np.where(variance > 1.05 * mean, wide, normal), 0.0)
