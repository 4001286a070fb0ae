"""What mixtures over shared ties have in common, whether the ties are between items or between families of items."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy import sparse

from ndpp._types import AnyArray, FloatArray, IntArray, Which
from ndpp._validation import clip_probabilities, frozen
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, PrecisionError
from ndpp.laws.begun import Begun, rounded_up
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.changes import Alike, solved
from ndpp.laws.frame import FeatureMap, of_components
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.mixture import Mixture
from ndpp.laws.mixture_scoring import SharedTiesScoring
from ndpp.laws.part import Parts
from ndpp.laws.patterns import Patterns
from ndpp.laws.precision import say_precision
from ndpp.linalg.scaling import inverses, inverted
from ndpp.linalg.tilts import solve_each

KEPT = "marginals", "log_touched", "rounding", "size_moments"
"""N_c, log Z_c and its rounding error of the rows that sets touch, and the moments of sizes: what a file may keep."""

TABLES = "forms", "gaps"
"""x_aᵀ N_c x_a and the gaps of its bounds, in single precision: what lists of the best items need, which files keep since version 9."""

SIZES = "sizes", "sizes_with", "sized_by"
"""P_c(|S| = k), which take longest; P(a ∈ S, |S| = k), in single precision, and the ``_free_weights`` under which it is that."""

MOST_SIZED = 10_000
"""Most items for which files keep that."""

SINGLE = TABLES[1], SIZES[1]
"""What is kept in single precision."""

NORMALIZERS = "log_normalizers"
"""log Z_c alone: what a file keeps at least of a mixture whose rows are items."""

FEATURES = "feature_ties", "feature_log_odds"
"""What a file has of :class:`~ndpp.laws.changes.FeatureMap`."""

MOST_LOG = 600.0
"""Largest logarithm of odds; beyond it, an item or a family is in for certain."""

BLOCK_ROWS = 256
"""Rows whose covariances with an item are computed at a time, in the cache."""


class Components(Sequence[Any]):
    """The components of a mixture with shared ties as distributions of their own; each is built when it is requested."""

    def __init__(self, mixture: SharedTies, nonempty: bool = False) -> None:
        self.mixture, self.nonempty = mixture, nonempty

    def __len__(self) -> int:
        return len(self.mixture.odds)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return [self[c] for c in range(len(self))[which]]
        c = range(len(self))[which]
        single = self.mixture.single(c)
        return single.without_empty() if self.nonempty and self.mixture.largest[c] else single


class SharedTies(Mixture):
    """Base class: components with odds of their own, rows of ``odds``, and the ties of one ``base`` for all."""

    odds: AnyArray
    base: LowRankKernel
    patterns: Patterns | None = None
    """Which items of a row come together; None if every row is an item."""
    _kept: Mapping[str, FloatArray] = {}
    """What was computed before, by the names of ``KEPT``, ``TABLES`` and ``NORMALIZERS``."""

    @property
    def format_version(self) -> int:  # type: ignore[override]
        """The first version of the file format that holds such a mixture."""
        return 9 if TABLES[0] in self._kept else 7 if self.features is not None else 5 if self._is_prepared else 3

    def facts(self) -> dict[str, Any]:
        """Return what its file says of it."""
        return Law.facts(self) | {"n_components": str(len(self.weights)), "names": self.names}

    def prepared(self) -> Self:
        """Return the same mixture with N_c, x_aᵀ N_c x_a, and the moments and the distributions of sizes of all components at hand.
        Nothing then takes O(C n r²) before the first answer. Files keep them, 8 C r² + 12 C n bytes and those of the sizes.
        """
        made, kept = self._ready(), {}
        with suppress(PrecisionError):  # answers that need sizes say so
            every = np.arange(self.n_items if self.n_items <= MOST_SIZED else 0)
            found = made._sizes, made._joint_sizes(every), made._free_weights
            kept = dict(zip(SIZES, (found[0][:, : 1 + int(np.flatnonzero(found[0].any(axis=0))[-1])], *found[1:])))
        return made._keeping(
            {name: values.astype(np.float32 if name in SINGLE else np.float64) for name, values in kept.items()}
        )

    @property
    def sizes_at_hand(self) -> bool:
        """Whether the file keeps them, for these weights."""
        return len(self._kept.get(SIZES[1], ())) == self.n_items and self._is_sized

    @property
    def _is_sized(self) -> bool:
        return SIZES[2] in self._kept and np.allclose(self._kept[SIZES[2]], self._free_weights, rtol=1e-9, atol=0)

    def _ready(self) -> Self:
        """Return the same mixture with all of that but the distributions of sizes."""
        ties, C = self.touched, len(self.odds)
        state, moments = ties._state, self.size_moments(np.zeros(C), np.arange(C))
        found = np.asarray(state.N), state.log_z, state.errors, np.stack(moments), ties._forms, rounded_up(ties.gaps)
        return self._keeping(dict(zip(KEPT + TABLES, found)))

    @property
    def _is_prepared(self) -> bool:
        """Whether the file keeps all of ``KEPT``."""
        return KEPT[0] in self._kept

    @abstractmethod
    def _only_items(self, keep: IntArray) -> Self:
        """Return the components over the items ``keep`` alone, in any frame."""

    @abstractmethod
    def _tilt(self, ids: IntArray, factors: FloatArray | None) -> Self:
        """Return the components with tilted odds, in any frame."""

    def _over(self, base: LowRankKernel) -> Self:
        """Return the same odds over other ties."""
        return self._again(base=base, _kept={})

    def _keeping(self, kept: Mapping[str, FloatArray]) -> Self:
        """Return the same mixture, whose file keeps this, too, of what was computed before."""
        known = {name: self._known[name] for name in ("_by_state",) if name in self._known}  # the memory of the odds
        both = {**self._kept, **{name: frozen(values) for name, values in kept.items()}}
        return self._again(_kept=both, _known=known)

    def _keep(self, arrays: dict[str, Any]) -> Self:
        """Return the same mixture with what a file has of what was computed before, and of features."""
        C, known = len(self.odds), dict[str, tuple[int, ...]]()
        if any(name in arrays for name in KEPT):
            known |= dict(zip(KEPT, ((C, self.base.rank, self.base.rank), (C,), (C,), (4, C))))
        if any(name in arrays for name in TABLES):
            known |= dict.fromkeys(TABLES, (C, self.base.n_rows))
        if NORMALIZERS in arrays:
            known[NORMALIZERS] = (C,)
        if any(name in arrays for name in SIZES):
            width, n_sized = (arrays[name].shape for name in SIZES[:2])
            known |= dict(zip(SIZES, ((C, width[-1]), (n_sized[0], n_sized[-1]), (C,))))
        for name, shape in known.items():
            if name not in arrays or arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
                raise InvalidInputError(f"{name} should be {shape} finite numbers; prepare the model again")
        made = self._keeping(
            {name: np.asarray(arrays[name], np.float32 if name in SINGLE else np.float64) for name in known}
        )
        if any(name in arrays for name in FEATURES):
            ties, log_odds = (np.atleast_2d(arrays.get(name, 0.0)) for name in FEATURES)
            shapes = (len(ties), self.base.X.shape[1]), (len(ties) + 1, len(self.odds))
            if (ties.shape, log_odds.shape) != shapes or not all(np.isfinite(one).all() for one in (ties, log_odds)):
                raise InvalidInputError(f"{' and '.join(FEATURES)} should be {shapes} finite numbers")
            made = made.with_features(FeatureMap(frozen(ties.astype(np.float64)), frozen(log_odds.astype(np.float64))))
        return made

    def with_features(self, features: FeatureMap) -> Self:
        """Return the same mixture with what features of items say about new ones."""
        return self.framed(self.frame._replace(features=features))

    @property
    def _as_ties(self) -> SharedTies:
        return self

    @property
    def _plain_components(self) -> Components:
        return Components(self)

    @property
    def _scoring(self) -> SharedTiesScoring:
        return SharedTiesScoring(self)

    @property
    def components(self) -> Components:
        """The components."""
        return Components(self, self.nonempty)

    @abstractmethod
    def _parts(self, ids: IntArray) -> Parts:
        """Return the components given items as parts."""

    @abstractmethod
    def single(self, c: int) -> Law:
        """Return component c."""

    def _arrays(self) -> dict[str, Any]:
        own = {"background": None, "odds": self.odds, "component_weights": self.weights}  # the background is all ones
        return self.base._arrays() | own | dict(self._kept) | dict(zip(FEATURES, self.features or ()))

    # -- other items -----------------------------------------------------------------------------------------------------------

    def _as_ready(self, made: Self) -> Self:
        return made._ready() if self._is_prepared else made

    def _inclusions_of(self, ids: IntArray) -> FloatArray:
        if "inclusion_table" in vars(self):
            return self.inclusion_table[ids].T
        rows = ids if self.row_of is None else self.row_of[ids]
        rest = 1 / (1 + self.touched.tilted_odds(0.0, rows=rows))
        found = self.masses()[:, ids] * rest * (1 + self.touched._forms_of(self.base.q_rows(rows)) * rest)
        return clip_probabilities(found, "inclusion probabilities")

    def _with_items(
        self, alike: list[Alike], known: Any, features: Any, wanted: FloatArray, catalogue: Catalogue, keeps_sets: bool
    ) -> Self:  # fmt: skip
        """Return the distribution with new items that have no ties of their own: given the component, they are independent.

        The log-odds of a new item are means of those of P_c(a ∈ S), in which ties are counted, or by features log o_c + log(1 + xᵀ N_c x),
        what they would be with the row x. With odds o_ca and v_c the weights of the components beside the empty set, which grow
        by Π_a (1 + o_ca) if sets keep their probabilities, P(a ∈ S) = Σ_c v_c p_ca / Σ_c v_c P_c(S ≠ ∅).
        """
        parts = [one.mean(known.log_odds(one.ids))[:, None] for one in alike]
        if features is not None:
            q = features[0] @ self.base.coordinates.to_q / np.sqrt(2)
            parts.append(features[1] + np.log1p(self.touched._forms_of(q).clip(0.0)))
        logs, log_z = np.hstack(parts), self.touched.log_normalizers()
        weights = self._free_weights / self._free_weights.sum()
        most = np.where(weights[:, None] > 0, logs, -np.inf).max(axis=0)
        logs -= np.where(most > -np.inf, most, 0.0)

        def at(log_factors: FloatArray) -> tuple[FloatArray, Callable[[], FloatArray]]:
            odds = np.exp((logs + log_factors).clip(max=MOST_LOG))
            p, growth = odds / (1 + odds), np.log1p(odds).sum(axis=1)
            v = weights * np.exp(growth - growth.max()) if keeps_sets else weights
            total = v @ -np.expm1(-log_z - growth) if self.nonempty else v.sum()
            shares = v @ p / total

            def derivatives() -> FloatArray:
                alone = v @ (p * (1 - p)) / total
                if not keeps_sets:
                    return np.asarray(alone)
                both = (v[:, None] * p).T @ p / total - np.outer(shares, shares)
                both[np.diag_indices(len(alone))] += alone
                return np.asarray(both)

            return shares, derivatives

        factors = solved(wanted, at, (catalogue.labels or ())[self.n_items :])
        odds = np.exp((logs + factors).clip(max=MOST_LOG))
        made: Self = self._reweighed(self._with_new(odds), keeps_sets=keeps_sets).named(catalogue)
        return made

    def _beside(self, made: Self, odds: FloatArray) -> Self:
        """Take over what was computed before, for components with new items of these odds (C, m), which have no ties."""
        growth = np.log1p(odds).sum(axis=1)
        if NORMALIZERS in self._kept:
            made = made._keeping({NORMALIZERS: self._kept[NORMALIZERS] + growth})
        state = self.touched._state if self._is_prepared or "_state" in vars(self.touched) else None
        if state is None:
            return made
        before, now = (one.base.coordinates.to_q for one in (self, made))
        if before.shape != now.shape or not np.allclose(
            now, before, rtol=1e-9, atol=1e-9 * np.abs(before).max(initial=0.0)
        ):
            return self._as_ready(made)
        if self._is_prepared:
            p, moments = odds / (1 + odds), np.array(self._kept["size_moments"])
            moments[:2] += p.sum(axis=1), (p * (1 - p)).sum(axis=1)
            tables = {name: np.pad(self._kept[name], ((0, 0), (0, len(p.T)))) for name in TABLES if name in self._kept}
            return made._keeping(
                tables | dict(zip(KEPT, (np.asarray(state.N), state.log_z + growth, state.errors, moments)))
            )
        made.touched._known["_state"] = state._replace(log_z=state.log_z + growth)
        return made

    def _tilted_near(self, ids: IntArray, factors: FloatArray, *, keeps_sets: bool = True) -> tuple[Self, IntArray]:
        """Return the distribution of the items in the rows of some items, with tilted odds, over these rows alone.

        The other rows are in it by N_c, which changes with Σ p q qᵀ of these rows.
        """
        rows = np.unique(ids if self.row_of is None else self.row_of[ids])
        keep = ids if self.patterns is None else np.flatnonzero(np.isin(self.patterns.families, rows))
        before = self._only_items(keep)
        at, Q, coords = np.searchsorted(keep, ids), self.base.q_rows(rows), self.base.coordinates
        before = before._over(
            before.base._again(_known={"coordinates": replace(coords, Q=Q, leverage=coords.leverage[rows])})
        )
        s = np.ones(len(keep))
        s[at] = factors
        after, state = before._tilt(np.arange(len(keep)), s), self.touched._state
        old, new = before.touched.odds, after.touched.odds
        change = np.stack([(Q.T * c) @ Q for c in new / (1 + new) - old / (1 + old)])
        system = np.eye(Q.shape[1]) + change @ state.N
        inverse, log_det = inverses(system)
        growth = np.log1p(new).sum(axis=1) - np.log1p(old).sum(axis=1) + log_det
        nothing = np.zeros(len(growth))
        found = state.N @ inverse, state.log_z + growth, nothing, np.stack([nothing] * 4)
        log_weights = self._log_weights + growth
        weights = np.exp(log_weights - log_weights.max())
        after = after._keeping(dict(zip(KEPT, found)))
        after = after.framed(self.frame.weighted(weights / weights.sum(), nonempty=False))
        return (after.without_empty() if self.nonempty else after), at

    # -- hooks: every item has a row of ties of its own, unless a subclass has items share them ---------------------------------

    @abstractmethod
    def _with_new(self, odds: FloatArray) -> Self:
        """Return the mixture with new items without ties, given by their odds (C, m)."""

    @property
    def touched(self) -> Any:
        """The :class:`~ndpp.laws.tied.TiedMixture` of the rows that a set touches: of items, or of families of them."""
        return self

    @property
    def _by_state(self) -> FloatArray:
        """The weights of states in each component, shape (states, C): an item has one."""
        return np.asarray(self.odds).T

    @abstractmethod
    def tilted(self, log_tilt: float | FloatArray) -> Any:
        """Return :attr:`touched` with the odds of items times ρ, one for all components or one for each."""

    @of_components
    def row_of(self) -> IntArray | None:
        """The position, in the support of the base, of the row of every item that can occur; None if it is that of the item."""
        if self.base.n_rows == self.n_items:
            return None
        return np.searchsorted(self.base.support, np.arange(self.n_items)).clip(max=self.base.n_rows - 1)

    def touched_rows(self, baskets: Baskets) -> tuple[Baskets, Any]:
        """Return the rows that baskets J touch, as baskets, and log P_c(J ⊆ S | these rows are touched)."""
        return baskets, 0.0

    def masses(self, components: Which = slice(None)) -> FloatArray:
        """Return the weight of the sets of its row that contain an item, relative to none of the row, shape (C, n_items)."""
        odds = np.asarray(self.odds[components], np.float64)
        return odds if self.row_of is None else np.where(self.base.can_occur(np.arange(self.n_items)), odds, 0.0)

    def chances_alone(self, items: IntArray) -> FloatArray:
        """Return about P_c(a ∈ S) of some items, as it were without ties, shape (C, items)."""
        rows = items if self.row_of is None else self.row_of[items]
        return np.asarray(self.masses()[:, items] / (1 + self.touched.tilted_odds(0.0, rows=rows)))

    @of_components
    def odds_alone(self) -> FloatArray:
        """The odds of each item without others of its row in each component, shape (C, n_items)."""
        return self.masses()

    def within_rows(
        self, baskets: Baskets, posterior: FloatArray, *, whole: bool = False
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return baskets J, items a whose row they touch, and P(a ∈ S | J ⊆ S), or with ``whole`` P(J ∪ a) / P(J), from P(c | J)."""
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)

    def log_rows(self, log_tilt: float | FloatArray) -> FloatArray:
        """Return log(1 + o) of all rows in all components, with the odds of items times ρ_c; shape (C, rows)."""
        return np.asarray(np.log1p(self.touched.tilted_odds(log_tilt)))

    @property
    def lone_odds(self) -> FloatArray:
        """The weight of exactly one item of a row in each component, shape (C, rows)."""
        if self.row_of is None:
            return self.odds_alone
        of_rows = np.ones(self.n_items), (np.arange(self.n_items), self.row_of)
        return np.asarray(self.odds_alone @ sparse.csr_array(of_rows, shape=(self.n_items, self.base.n_rows)))

    def by_item(self, values: FloatArray) -> FloatArray:
        """Return values of items (…, n_items) from those of rows."""
        return values if self.row_of is None else values[:, self.row_of]

    # -- inclusions ------------------------------------------------------------------------------------------------------------

    def _log_contained(self, ids: IntArray) -> FloatArray:
        """Return log P_c(ids ⊆ S)."""
        begun = Begun(self, self.one_basket(ids))
        say_precision(float(begun.wrong[0]), "probabilities given these items")
        return np.asarray(begun.log_mass[0])

    def _mean_inclusions(self, ids: IntArray, size: int | None, active: IntArray, shares: FloatArray) -> FloatArray:
        if size is not None:
            return super(Mixture, self)._mean_inclusions(ids, size, active, shares)
        law: SharedTies = self
        if len(ids) and len(active) == 1:  # of one component alone
            law = self.framed(self.frame.weighted(np.eye(len(self.weights))[active[0]]))
        return np.asarray(Begun(law, self.one_basket(ids)).chances()[0])

    def _component_inclusions(self) -> FloatArray:
        """O(C n r²), once."""
        self.touched.check_precision(factor=10.0)
        rest = 1 / (1 + self.touched.tilted_odds(0.0))
        found = self.masses() * self.by_item(rest * (1 + self.touched._forms * rest))
        return clip_probabilities(found, "inclusion probabilities")

    # What begun baskets look up for every item and component; see ndpp.laws.begun.

    @of_components
    def slope_table(self) -> FloatArray:
        """The derivative of P_c(a ∈ S) by x_aᵀ N_c x_a, (n_items, C)."""
        return np.ascontiguousarray((self.masses() / self.by_item((1 + self.touched.tilted_odds(0.0)) ** 2)).T)

    @of_components
    def bound_tables(self) -> FloatArray:
        """P_c(a ∈ S), by how much it may grow given items that do not pull a, and ``slope_table``, (3, n_items, C).

        They are in single precision, rounded up, so that they serve bounds.
        """
        p, slopes, gaps = self.inclusion_table, self.slope_table, self.by_item(self.touched.gaps).T.clip(0.0)
        return np.stack([rounded_up(values) for values in (p, np.minimum(slopes * gaps, 1 - p), slopes)])

    @of_components
    def growth(self) -> FloatArray:
        """The largest ratios over the components of what P_c(a ∈ S) may grow by, and of ``slope_table``, to it, (2, n_items)."""
        p, room, slopes = self.bound_tables
        with np.errstate(over="ignore"):
            ratios = [np.divide(part, p, out=np.zeros_like(p), where=p > 0).max(axis=1) for part in (room, slopes)]
        return np.asarray((1 + 2.0**-20) * np.stack(ratios, dtype=np.float64))

    def mean_covariances(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return Σ_c w_c Cov_c(a ∈ S, b ∈ S) for two lists of items that can occur, a ≠ b: what ties add to the missions."""
        self.touched.check_precision(factor=10.0)
        if len(first) == 1:  # all components at once
            return self._covariances_with(int(first[0]), second)[None]
        at = [items if self.row_of is None else self.row_of[items] for items in (first, second)]
        (q, other), out = (self.base.q_rows(rows) for rows in at), np.zeros((len(first), len(second)))
        for c, (weight, N) in enumerate(zip(self._free_weights, self.touched._state.N)):
            mass, rest = self.masses([c])[0], 1 / (1 + self.touched.tilted_odds(0.0, [c])[0])
            sides = (mass[items] * rest[rows] ** 2 for items, rows in zip((first, second), at))
            out -= np.multiply.outer(*sides) * weight * ((q @ N) @ other.T) * ((q @ N.T) @ other.T)
        return out

    def _covariances_with(self, item: int, others: IntArray) -> FloatArray:
        row, at = (item, others) if self.row_of is None else (self.row_of[item], self.row_of[others])
        rows, at = np.unique(at, return_inverse=True)
        order, out = np.argsort(at, kind="stable"), np.empty(len(others))
        (q,), N, slopes = self.base.q_rows(np.array([row])), self.touched._state.N, self.slope_table
        left, right = (self._free_weights * slopes[item])[:, None] * (q @ N), N @ q
        starts = np.arange(0, len(rows), BLOCK_ROWS)
        for start, members in zip(starts, np.split(order, np.searchsorted(at, starts[1:], sorter=order))):
            x = self.base.q_rows(rows[start : start + BLOCK_ROWS])
            forms = (x @ left.T) * (x @ right.T)
            out[members] = -np.einsum("ic,ic->i", forms[at[members] - start], slopes[others[members]])
        return out

    # -- sizes -----------------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _untied(self, log_tilt: FloatArray, which: IntArray) -> Iterator[tuple[FloatArray, ...]]:
        """Yield all rows of ties, some at a time: Q (m, r), and what they are without ties, shape (components, m), if the odds are ρ_c o_c.

        These are the probability that a row is touched, and the mean and the variance of its number of items.
        """

    def size_moments(self, log_tilt: FloatArray, which: IntArray) -> tuple[FloatArray, ...]:
        """Return mean and variance of |R|, and guesses of those of what T adds, of some components with odds ρ_c o_c; they serve proposals.

        Σ p q qᵀ under ρ is taken for a multiple of that under ρ = 1, and what ties add to an item for the same as to all others.
        """
        if self._is_prepared and not np.any(log_tilt):
            return tuple(self._kept["size_moments"][:, which])
        ties, tiny, sums = self.touched, np.finfo(float).tiny, np.zeros((4, len(which)))
        for Q, p, mean, variance in self._untied(log_tilt, which):
            weight = (Q**2).sum(axis=1)
            sums += mean.sum(axis=1), variance.sum(axis=1), p @ weight, ((1 - p) * mean) @ weight
        alone, variance, together, added = sums
        A = ties.sums(which)
        scale, share = together / np.trace(A, axis1=1, axis2=2).clip(tiny), added / together.clip(tiny)
        if np.any(log_tilt):
            R = np.eye(A.shape[1]) - inverted(ties._system(scale[:, None, None] * A))
        else:
            R = A @ ties._state.N[which]
        tied = np.trace(R, axis1=1, axis2=2)
        return alone, variance, share * tied, share**2 * (tied - np.einsum("cij,cji->c", R, R))

    def tilts(self, size: float) -> FloatArray:
        """Return log ρ_c under which about ``size`` items are expected of each component, as far as is guessed."""
        wanted = min(max(size, 0.3), int(self.largest.max()) - 0.3)

        def moments(log_tilt: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray]:
            alone, variance, added, more = self.size_moments(log_tilt, which)
            return alone + added, variance + more

        return solve_each(moments, wanted, np.zeros(len(self.odds)), max_step=10.0)

    def largest_of_rows(self, rows: IntArray, c: int) -> IntArray:
        """Return the largest number of items that some rows have in component c, where they can occur."""
        return np.ones(len(rows), np.int64)

    def _has_sets(self, ids: IntArray, size: int) -> bool:
        """Return whether a component has the items and is large enough: it has sets of all sizes in between."""
        has_them = self._log_weights + self._log_contained(ids) > -np.inf
        return bool((has_them & (self.largest_given(ids) >= size - len(ids))).any())

    def largest_given(self, ids: IntArray) -> IntArray:
        """Return the largest number of items in addition to the given ones in each component."""
        return self.largest - len(ids)

    # All components at once, and not one by one.
    _some, _log_whole_of = Law._some, Law._log_whole_of

    @of_components
    def _sizes(self) -> FloatArray:
        known = self._kept.get(SIZES[0])
        return Law._sizes.compute(self) if known is None else known

    def _joint_sizes(self, ids: IntArray) -> FloatArray:
        return self._kept[SIZES[1]][ids].astype(np.float64) if self.sizes_at_hand else Law._joint_sizes(self, ids)
