"""Laws given items, a size or limits: P(S | J ⊆ S, |S| = k, limits), a law like any other.

Unlike ``law.condition(J)``, which is the distribution of the other items, S includes the given ones. Component c keeps the sets that fulfil
the conditions, and its weight becomes ∝ w_c P_c(J ⊆ S, |S| = k, limits).

Limits on counts, and on values with a common step, are exact (:mod:`ndpp.laws.totals`). Where these take too long, sets are drawn instead,
always the same ones, and a :class:`~ndpp.errors.PrecisionWarning` says how far answers may be off.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Unpack

import numpy as np

from ndpp._types import FloatArray, IntArray, RngLike, cached_property
from ndpp._validation import check_items, owned
from ndpp.baskets import Baskets
from ndpp.errors import (
    ImpossibleLimitError,
    ImpossibleSizeError,
    InvalidInputError,
    PrecisionWarning,
    ZeroProbabilityError,
)
from ndpp.laws.ask import NO_ITEMS, Ask, Conditions
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.changes import Alike
from ndpp.laws.frame import Frame
from ndpp.laws.header import ModelHeader
from ndpp.laws.law import Law
from ndpp.laws.limits import Estimate, Limits
from ndpp.laws.precision import REFUSE_ERROR, check_given, say_precision
from ndpp.laws.totals import Totals, sizes_within
from ndpp.linalg import logs
from ndpp.linalg.scaling import EPS

NO_SUCH_SETS = ImpossibleLimitError, ImpossibleSizeError, ZeroProbabilityError
"""What says that there are no such sets."""
RARE = 1e-8
"""Components of a smaller share are not judged by themselves."""
N_DRAWN = 1000
"""Sets that are drawn where limits have no exact answer."""


class Conditioned(Law):
    """What ``law.under(ask)`` returns if items are given, or a size or limits asked for.

    Attributes
    ----------
    whole : Law
        The law without these conditions.
    given : array
        Items that all sets contain.
    size : int, optional
        The size of all sets.
    limits : Limits
        Limits that all sets keep.
    """

    def __init__(self, whole: Law, given: IntArray, size: int | None, limits: Limits) -> None:
        self.whole, self.given, self.size, self.limits = whole, owned(given), size, limits
        self.catalogue, self._known = whole.catalogue, {}

    def __repr__(self) -> str:
        said = [f"{len(self.given)} given"] * bool(len(self.given)) + [f"size={self.size}"] * (self.size is not None)
        return f"<{self.whole!r} with {', '.join([*said, *self.limits.texts]) or 'no conditions'}>"

    # -- conditions on top of conditions ---------------------------------------------------------------------------------------

    def ask(self, **conditions: Unpack[Conditions]) -> Ask:
        """Return what is asked of the whole law: these conditions and those that hold already."""
        size = conditions.get("size")
        if size is not None and self.size not in (None, size):
            raise ZeroProbabilityError(f"all sets have {self.size} items; sets of {size} were asked for")
        given = np.union1d(self.given, check_items(conditions.get("given", ()), self, "given"))
        conditions["given"], conditions["size"] = given, self.size if size is None else size
        ask = self.whole.ask(**conditions)
        return ask._replace(limits=self.limits.joined(ask.limits))

    def under(self, ask: Ask) -> Law:
        """Return the whole law under what was asked of this one."""
        return self.whole.under(ask)

    def _on(self, whole: Law) -> Conditioned:
        """Return another law under the same conditions."""
        return Conditioned(whole, self.given, self.size, self.limits)

    def framed(self, frame: Frame) -> Conditioned:
        """Return the same conditions on the whole law with weights for which those of this law are as wanted."""
        with np.errstate(divide="ignore", invalid="ignore"):
            prior = np.where(frame.weights > 0, frame.weights * self.whole.weights / self.weights, 0.0)
        return self._on(self.whole.framed(self.whole.frame.weighted(prior / prior.sum())._replace(gate=frame.gate)))

    def named(self, catalogue: Catalogue) -> Conditioned:
        """Return the same conditions over a catalogue of as many items."""
        return self._on(self.whole.named(catalogue))

    def _condition(self, ids: IntArray) -> Conditioned:
        given = np.union1d(self.given, ids)
        rest = self.whole.condition(given)
        size = None if self.size is None else check_given(self.size, len(given)) - len(given)
        return Conditioned(rest, NO_ITEMS, size, self.limits.beside(given))

    def _tilt(self, ids: IntArray, factors: FloatArray | None) -> Conditioned:
        if len(gone := np.setdiff1d(self.given, ids)):
            raise ZeroProbabilityError(f"item {gone[0]} is given, so it cannot be excluded")
        return self._on(self.whole._tilted_by(ids, factors))

    def _reweighed(self, made: Conditioned, *, keeps_sets: bool = True) -> Conditioned:
        return made  # the weights are those of the whole law

    def without_empty(self) -> Conditioned:
        """Return the same law given that there is an item."""
        return self if len(self.given) or self.size else self._on(self.whole.without_empty())

    # -- weights -----------------------------------------------------------------------------------------------------------------

    @cached_property
    def frame(self) -> Frame:
        """P(c | conditions), and what else the whole law has."""
        weights, _ = self._weighed  # raises where no set keeps the limits; only then is there something to say
        self._say_estimated()
        return self.whole.frame.weighted(weights, nonempty=False)

    @cached_property
    def _masses(self) -> FloatArray:
        """log of the weight of all sets with the given items and size in each component of the whole law."""
        return self.whole._log_masses(self.given, self.size)

    @cached_property
    def _posterior(self) -> FloatArray:
        """P(c | given, size), before limits; raises if there are no such sets."""
        return self.whole._posterior_of(self.given, self.size)

    @cached_property
    def _exact(self) -> Totals | Apart | None:
        """What limits have for an exact answer that is not lost in rounding; None if they have none, or there are no limits."""
        if not len(self.limits):
            return None
        posterior, found = self._posterior, Apart.of(self)
        if found is not None:
            return found if all(part.chance.exact for part, p in zip(found.parts, posterior) if p > 0) else None
        totals = Totals.of(self.whole, self.limits, self.given, self.size, posterior)
        if totals is None or (posterior @ totals.chances > 0 and totals.error(posterior) > REFUSE_ERROR):
            return None
        return totals

    @cached_property
    def _weighed(self) -> tuple[FloatArray, FloatArray]:
        """P(c | conditions), and log P_c(limits | given, size)."""
        posterior = self._posterior
        if not len(self.limits):
            return posterior, np.zeros(len(posterior))
        if self._exact is not None:
            chances = self._exact.chances
            total = float(posterior @ chances)
        else:
            drawn, total = self._drawn, float(self.chance.value)
            shares = logs.shares(self.whole._log_weights + self.whole._log_whole(drawn)).mean(axis=0)
            chances = np.divide(shares * total, posterior, out=np.zeros_like(shares), where=posterior > 0)
        if not total > 0:
            raise ImpossibleLimitError(
                f"sets that keep these limits have probability zero: {'; '.join(self.limits.texts)}",
                limits=self.limits.texts,
            )
        with np.errstate(divide="ignore"):
            return posterior * chances / total, np.log(chances)

    @property
    def _is_exact(self) -> bool:
        """Whether nothing has to be estimated from samples."""
        return not len(self.limits) or self._exact is not None

    @cached_property
    def chance(self) -> Estimate:
        """P(limits | given, size)."""
        try:
            if self._is_exact:
                chance = 1.0 if self._exact is None else float(self._posterior @ self._exact.chances)
                return Estimate(chance, 0.0, exact=True)
            sampler = self.sampler()
        except ImpossibleLimitError:
            return Estimate(0.0, 0.0, exact=True)
        accepted = sampler.estimate()
        unit = float(np.exp(sampler.log_bound - self.whole._log_total(self.given, self.size) + self.whole._log_unit))
        return Estimate(min(1.0, accepted.value * unit), accepted.error * unit, exact=False)

    @cached_property
    def _drawn(self) -> Baskets:
        """Sets that stand for all where limits have no exact answer."""
        drawn: Baskets = self.sampler().sample(N_DRAWN, rng=0).baskets
        return drawn

    def _log_chances(self) -> FloatArray:
        """Return log P_c(limits | given, size), and say if they are estimated."""
        _, chances = self._weighed
        self._say_estimated()
        return chances

    def _say_estimated(self, found: FloatArray | None = None) -> None:
        """Say how far off answers may be that are estimated from samples: these frequencies of sets, or all probabilities, by a factor.

        Where limits keep few sets, answers that are not estimated may be off by rounding.
        """
        if isinstance(self._exact, Totals):
            say_precision(
                self._exact.error(self._posterior), "the probabilities of sets within these limits", stacklevel=5
            )
        if self._is_exact or self.chance.exact:
            return
        if found is None:
            how_far = f"up to {self.chance.error / max(self.chance.value, EPS):.1g} of their value"
        else:
            how_far = f"up to {Estimate.of_hits(N_DRAWN * found, N_DRAWN * found, N_DRAWN).error.max():.2g}"
        warnings.warn(
            f"probabilities under these limits are estimated from {N_DRAWN} samples, with standard errors {how_far}; "
            "inclusion_estimates() and probability() take as many as you like",
            PrecisionWarning,
            stacklevel=5,
        )

    def _inclusion_estimates(self, n_samples: int, rng: RngLike) -> Estimate:
        if self._is_exact:
            return super()._inclusion_estimates(n_samples, rng)
        drawn = self.sampler().sample(n_samples, rng=rng).baskets
        counts = np.bincount(drawn.indices, minlength=self.n_items)
        return Estimate.of_hits(counts, counts, n_samples)

    # -- hooks of Law: probabilities, as nothing is left out -----------------------------------------------------------------------

    @property
    def _plain_components(self) -> Sequence[Law]:
        return [self._on(part) for part in self.whole.components]

    def log_normalizers(self) -> FloatArray:
        """Return log 1/P_c(∅), infinite where the empty set is not possible."""
        with np.errstate(divide="ignore"):
            return np.asarray(-self._log_whole(self.one_basket(NO_ITEMS))[0])

    @property
    def support(self) -> IntArray:
        """Items that may occur."""
        return self.whole.support

    @property
    def largest(self) -> IntArray:
        """Bounds of the sizes of all sets."""
        return self.whole.largest if self.size is None else np.full(len(self.weights), self.size)

    def _log_whole(self, baskets: Baskets) -> FloatArray:
        found = self._relative(self.whole._log_whole(baskets))
        kept = np.ones(len(baskets), bool)
        if len(self.given):
            kept &= np.asarray(baskets.to_csr()[:, self.given].sum(axis=1)).ravel() == len(self.given)
        if self.size is not None:
            kept &= baskets.sizes == self.size
        elif self.whole.nonempty:
            kept &= baskets.sizes > 0
        if len(self.limits):
            kept &= self.limits.kept_by(baskets)
        found[~kept] = -np.inf
        return found

    def _relative(self, log_weights: FloatArray) -> FloatArray:
        """Return log weights of the whole law relative to those of the sets of this one."""
        mass = self._masses + self._log_chances()
        with np.errstate(invalid="ignore"):
            return np.where(mass > -np.inf, log_weights - mass, -np.inf)

    def _log_started(self, ids: IntArray, size: int | None) -> FloatArray:
        wanted, given = self.size if size is None else size, np.union1d(self.given, ids)
        if (size is not None and self.size not in (None, size)) or (wanted is not None and wanted < len(given)):
            return np.full(len(self.weights), -np.inf)
        if not len(ids) and wanted == self.size:
            return np.zeros(len(self.weights))
        log_masses = self.whole._log_masses(given, wanted)
        if not len(self.limits) or log_masses.max() == -np.inf:
            return self._relative(log_masses)
        further = Conditioned(self.whole, given, wanted, self.limits)
        try:
            return self._relative(log_masses + further._log_chances())
        except NO_SUCH_SETS:
            return np.full(len(self.weights), -np.inf)

    def _mean_inclusions(self, ids: IntArray, size: int | None, active: IntArray, shares: FloatArray) -> FloatArray:
        if len(ids) or size is not None:
            return self.under(self.ask(given=ids, size=size))._mean_inclusions(NO_ITEMS, None, active, shares)
        out = np.zeros(self.n_items)
        if not len(self.limits):
            out = self.whole._mean_inclusions(self.given, self.size, active, shares)
        elif self._exact is not None:
            self._say_estimated()
            for c, share in zip(active.tolist(), shares):
                out += share * self._exact.inclusions(c)
        else:
            found = np.bincount(self._drawn.indices, minlength=self.n_items) / N_DRAWN
            self._say_estimated(found)
            out = shares.sum() * found
        out[self.given] = shares.sum()
        return out

    def _component_inclusions(self) -> FloatArray:
        """Return those of the components that have such sets, and zero for the others."""
        rows = np.zeros((len(self.weights), self.n_items))
        for c in np.flatnonzero(self.weights).tolist():
            rows[c] = self._mean_inclusions(NO_ITEMS, None, np.array([c]), np.ones(1))
        if isinstance(self._exact, Totals):
            worst = self._exact.errors[self.weights > RARE] / self._exact.chances[self.weights > RARE]
            say_precision(float(worst.max()), "the probabilities in single components, of sets within these limits")
        return rows

    def mean_covariances(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return Σ_c w_c Cov_c(a ∈ S, b ∈ S) from P(a ∈ S) P(b ∈ S | a ∈ S): one more item is given for each of the shorter list."""
        if len(first) > len(second):
            return self.mean_covariances(second, first).T
        inside, both = self.inclusion_table, np.zeros((len(first), len(second)))
        if self._is_exact:
            for row, item, p in zip(both, first.tolist(), inside[first] @ self.weights):
                if p > 0:
                    with suppress(*NO_SUCH_SETS):  # then p is rounding
                        row[:] = p * self.inclusion_probabilities(given=[item])[second]
        else:
            drawn = self._drawn.to_csr().astype(float)
            both = (drawn[:, first].T @ drawn[:, second]).toarray() / N_DRAWN
            self._say_estimated(both)
        return np.asarray(both - (inside[first] * self.weights) @ inside[second].T)

    @cached_property
    def _sizes(self) -> FloatArray:
        out, found = np.zeros((len(self.weights), int(self.largest.max()) + 1)), None
        if self.size is not None:
            out[:, self.size] = 1.0
            return out
        if not self._is_exact:
            out[:] = found = np.bincount(self._drawn.sizes, minlength=out.shape[1])[: out.shape[1]] / N_DRAWN
            self._say_estimated(found)
            return out
        ways = out[:, len(self.given) :]
        if len(self.limits):
            found = sizes_within(self.whole, self.limits, self.given, self._posterior)
        if found is None:
            with np.errstate(divide="ignore"):
                found = np.exp([self._log_started(NO_ITEMS, len(self.given) + k) for k in range(ways.shape[1])]).T
        n = min(ways.shape[1], found.shape[1])
        ways[:, :n] = found[:, :n]
        return out

    def _joint_sizes(self, ids: IntArray) -> FloatArray:
        p, out = self.inclusion_probabilities(), np.zeros((len(ids), self.max_size + 1))
        for row, item in zip(out, ids.tolist()):
            if p[item] > 0:
                with suppress(*NO_SUCH_SETS):  # then p is rounding
                    found = self.size_distribution(given=[item])
                    row[: len(found)] = p[item] * found[: len(row)]
        return out

    # -- what a law under conditions cannot do ----------------------------------------------------------------------------------------

    def _with_alike(self, alike: Sequence[Alike]) -> Conditioned:
        raise InvalidInputError("items join a law, not one under conditions")

    def _only_items(self, keep: IntArray) -> Conditioned:
        raise InvalidInputError("items leave a law, not one under conditions")

    def _arrays(self) -> dict[str, Any]:
        raise InvalidInputError("a law under conditions has no file; save the law, and ask again")

    facts = _arrays

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Any], header: ModelHeader) -> Law:
        raise InvalidInputError("a law under conditions has no file")


class Apart(NamedTuple):
    """The components of a mixture of mixtures under the same limits, and P_c(limits | given, size), as :class:`Totals` has them."""

    parts: list[Conditioned]
    chances: FloatArray

    @classmethod
    def of(cls, law: Conditioned) -> Apart | None:
        """Return those of a law; None if its components are no mixtures."""
        if len(law.whole.weights) == 1 or law.whole._parts(NO_ITEMS) is not None:
            return None
        parts = [law._on(part) for part in law.whole.components]
        chances = [part.chance.value if p > 0 else 0.0 for part, p in zip(parts, law._posterior)]
        return cls(parts, np.array(chances))

    def inclusions(self, c: int) -> FloatArray:
        """Return P_c(a ∈ S | limits, given) of all items."""
        return self.parts[c].inclusion_probabilities()
