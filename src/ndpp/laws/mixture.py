"""Mixtures of kernels: P(S) = Σ_c w_c P_c(S). Each component is a reason to shop, a *mission*, with its own popular items.

With a single kernel, one item can say only so much about all others; a mixture has no such limit (``docs/mixtures``). The posterior of the
missions is P(c | S) ∝ w_c P_c(S) if the basket is complete, and P(c | J ⊆ S) ∝ w_c P_c(J ⊆ S) if it has only begun. Conditioned on items,
a mixture is a mixture again. Probabilities are averages over the components, and each sample is drawn from one component.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ndpp._lazy import load
from ndpp._types import AnyArray, FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items, check_matrix, clip_probabilities, frozen
from ndpp.baskets import Baskets
from ndpp.baskets.labels import check_labels
from ndpp.errors import ImpossibleSizeError, InvalidInputError, UnknownLabelError, ZeroProbabilityError
from ndpp.laws.base import Law
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.precision import check_given

WEIGHT_TOLERANCE = 1e-6
"""How far the sum of the weights may be from one."""
NEGLIGIBLE_POSTERIOR = 1e-14
"""Components with a smaller posterior are left out of averages."""
RARE_SIZE = 1e-8
"""Sizes with a smaller probability are computed component by component, to full relative accuracy."""
MEMORY = 2**31
"""Default for the maximum number of bytes of prepared components."""
TIED = "ndpp.laws.tied:TiedMixture"
"""The class of mixtures with shared ties, which builds on this one."""


class Mixture(Law):
    """A mixture of kernels over one catalogue.

    Parameters
    ----------
    components : sequence of LowRankKernel
        The kernels, with or without a background, over the same items with the same labels.
    weights : (C,) array_like
        Their probabilities.
    names : sequence of str, optional
        Names of the components.

    Examples
    --------
    >>> pasta = LowRankKernel(np.zeros((4, 1)), [[1.0]], background=[1.0, 1.0, 0.0, 0.0])
    >>> party = LowRankKernel(np.zeros((4, 1)), [[1.0]], background=[0.0, 0.0, 1.0, 3.0])
    >>> mixture = Mixture([pasta, party], [0.75, 0.25], names=["pasta", "party"])
    >>> mixture.inclusion_probabilities().round(4)
    array([0.375 , 0.375 , 0.125 , 0.1875])
    >>> mixture.responsibilities([3])  # who buys item 3 is having a party
    array([0., 1.])
    >>> mixture.condition([3]).inclusion_probabilities()
    array([0. , 0. , 0.5, 0. ])
    """

    _sampler, _memory = "ndpp.samplers.mixture:MixtureSampler", MEMORY
    components: Sequence[LowRankKernel]
    weights: FloatArray
    names: tuple[str, ...] | None

    def __init__(
        self, components: Sequence[LowRankKernel], weights: Any, *, names: Sequence[str] | None = None
    ) -> None:
        components = tuple(components)
        for i, kernel in enumerate(components):
            if not isinstance(kernel, LowRankKernel):
                raise InvalidInputError(f"components must be kernels; component {i} is a {type(kernel).__name__}")
            if (kernel.n_items, kernel.labels) != (components[0].n_items, components[0].labels):
                raise InvalidInputError(
                    f"components must share one catalogue; component 0 has {components[0].n_items} items, component {i} has "
                    f"{kernel.n_items}" + (", with other labels" if kernel.n_items == components[0].n_items else "")
                )
        self.components = components
        self._set(weights, len(components), names)

    def _set(self, weights: Any, n_components: int, names: Sequence[str] | None) -> None:
        values = check_matrix([weights], "weights", shape=(1, None))[0].astype(np.float64)
        if n_components == 0 or len(values) != n_components:
            raise InvalidInputError(
                f"expected one weight per component; got {len(values)} for {n_components} components"
            )
        if (values < 0).any() or abs(values.sum() - 1) > WEIGHT_TOLERANCE:
            raise InvalidInputError(
                f"weights must be probabilities that sum to one; these sum to {values.sum():.6g}, the least is {values.min():.6g}. "
                "Divide them by their sum"
            )
        total = math.fsum(values)  # exact up to one rounding: weights that were divided once are left as they are
        self.weights = frozen(values if abs(total - 1) <= np.finfo(np.float64).eps else values / total)
        self.names = check_labels(names)
        if self.names is not None and len(self.names) != n_components:
            raise InvalidInputError(f"names must be {n_components}, one per component; got {len(self.names)}")

    @staticmethod
    def tied(
        odds: Any,
        X: Any,
        W: Any,
        weights: Any,
        *,
        names: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
    ) -> Mixture:
        """Return the mixture whose components are diag(√odds_c) (I + X W Xᵀ) diag(√odds_c): own odds, shared ties.

        Parameters
        ----------
        odds : (C, n) array_like
            How popular each item is in each component, ≥ 0.
        X, W : (n, d) and (d, d) array_like
            What ties items together, whatever the component: X W Xᵀ needs a positive semidefinite symmetric part. X is stored once.
        weights, names : as for :class:`Mixture`
        labels : sequence of str, optional
            Names of the items.
        """
        base = LowRankKernel(X, W, labels=labels, background=np.ones(np.shape(X)[0]))
        mixture: Mixture = load(TIED)(odds, base, weights, names=names)
        return mixture

    def __repr__(self) -> str:
        return f"<Mixture of {len(self.weights)} components over {self.n_items} items>"

    # -- the catalogue -------------------------------------------------------------------------------------------------------

    @property
    def _first(self) -> LowRankKernel:
        return self.components[0]

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        return self._first.n_items

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the items."""
        return self._first.labels

    def ids(self, labels: Sequence[str], *, unknown: str = "error") -> IntArray:
        """Return the ids of items named by their labels; ``unknown="skip"`` leaves out those that are not in the catalogue."""
        return self._first.ids(labels, unknown=unknown)

    def catalogue_ids(self, rows: IntArray) -> IntArray:
        """Return the ids themselves: samplers of a mixture speak of items of the catalogue."""
        return rows

    @property
    def max_size(self) -> int:
        """No sample is larger."""
        return max(kernel.max_size for kernel in self.components)

    def component(self, which: int | str) -> int:
        """Return the number of a component, given by number or name."""
        if isinstance(which, str):
            if self.names is None or which not in self.names:
                raise UnknownLabelError(which, self.names or ())
            return self.names.index(which)
        return check_count(which, "component", most=len(self.weights) - 1)

    # -- probabilities -------------------------------------------------------------------------------------------------------

    def log_prob(self, items: Items, size: int | None = None) -> float:
        """Return log P(S), over all sets or over those of one size."""
        ids = check_items(items, self)
        if size is not None and len(ids) != self.check_size(size):
            return -np.inf
        return _log_sum(self._log_weights + self._log_whole(ids)) - (
            self.log_normalizer(size) if size is not None else 0.0
        )

    def log_probs(self, baskets: Baskets) -> FloatArray:
        """Return log P(S) of many sets."""
        return np.asarray(logsumexp(self._log_weights + self.component_log_probs(baskets), axis=1))

    def component_log_probs(self, baskets: Baskets) -> FloatArray:
        """Return log P_c(S) of many sets and all components, shape (len(baskets), C)."""
        return np.stack([kernel.log_probs(baskets) for kernel in self.components], axis=1)

    def log_normalizer(self, size: int | None = None) -> float:
        """Return log P(|S| = size): 0 for all sets, −inf where no set has that size."""
        if size is None:
            return 0.0
        return _log_sum(self._log_weights + self._log_sizes(check_count(size, "size")))

    def check_size(self, size: int) -> int:
        """Return ``size`` if sets of that size can occur; raise a clear error otherwise."""
        if self.log_normalizer(size) == -np.inf:
            raise ImpossibleSizeError(f"sets of size {size} have probability zero; see mixture.size_distribution()")
        return size

    def size_distribution(self) -> FloatArray:
        """Return P(|S| = k) for k = 0, 1, … up to the largest size."""
        return (self.weights @ self._sizes)[: self.max_size + 1]

    @cached_property
    def _sizes(self) -> FloatArray:
        """P_c(|S| = k), shape (C, largest size + 1)."""
        distributions = [kernel.size_distribution() for kernel in self.components]
        out = np.zeros((len(distributions), max(map(len, distributions))))
        for row, distribution in zip(out, distributions):
            row[: len(distribution)] = distribution
        return out

    def _log_sizes(self, size: int) -> FloatArray:
        """Return log P_c(|S| = size) of all components."""
        chances = self._sizes[:, size] if size < self._sizes.shape[1] else np.zeros(len(self.weights))
        if self.weights @ chances > RARE_SIZE:
            with np.errstate(divide="ignore"):
                return np.asarray(np.log(chances))
        return self._log_contained(np.empty(0, np.int64), size)

    def responsibilities(self, items: Items, *, whole: bool = False, size: int | None = None) -> FloatArray:
        """Return the posterior of the components: P(c | items ⊆ S), or P(c | S = items) with ``whole``.

        ``size`` is the size of S, the items included, if it is known.
        """
        ids = check_items(items, self)
        if size is not None and not whole:
            check_given(size, len(ids))
        log_posterior = self._log_weights + (self._log_whole(ids) if whole else self._log_contained(ids, size))
        total = _log_sum(log_posterior)
        if total == -np.inf:
            begun = size is not None and not whole
            if begun and _log_sum(self._log_weights + self._log_contained(ids, None)) > -np.inf:
                raise ImpossibleSizeError(
                    f"sets of size {size} that contain these {len(ids)} items have probability zero"
                )
            raise ZeroProbabilityError(
                f"the {len(ids)} items have probability zero in every component; give fewer or other items"
            )
        return np.exp(log_posterior - total)

    @cached_property
    def _log_weights(self) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.weights))

    def _log_whole(self, ids: IntArray) -> FloatArray:
        """Return log P_c(S = ids) of all components."""
        return np.array([kernel.log_prob(ids) for kernel in self.components])

    def _log_contained(self, ids: IntArray, size: int | None) -> FloatArray:
        """Return log P_c(ids ⊆ S, |S| = size) of all components; of any size if None."""
        return np.array([kernel.log_mass(ids, size) - kernel.log_normalizer() for kernel in self.components])

    def inclusion_probabilities(self, size: int | None = None, given: Items = ()) -> FloatArray:
        """Return P(a ∈ S) for every item of the catalogue, of all sets or of those of one size, given that some items are in."""
        ids = check_items(given, self, "given")
        posterior = self.responsibilities(ids, size=size if size is None else check_count(size, "size"))
        active = np.flatnonzero(posterior > NEGLIGIBLE_POSTERIOR)
        out = self._mean_inclusions(ids, size, active, posterior[active])
        out[ids] = 1.0
        return clip_probabilities(out, "inclusion probabilities")

    def _mean_inclusions(self, ids: IntArray, size: int | None, active: IntArray, shares: FloatArray) -> FloatArray:
        """Return Σ_c P(c | ids ⊆ S) P_c(a ∈ S | ids ⊆ S, |S| = size) over the components with a share, for items beside ``ids``."""
        out = np.zeros(self.n_items)
        for c, share in zip(active.tolist(), shares):
            out += share * self.components[c].inclusion_probabilities(size, ids)
        return out

    def component_inclusions(self) -> FloatArray:
        """Return P_c(a ∈ S) of all components, shape (C, n_items)."""
        return np.stack([kernel.inclusion_probabilities() for kernel in self.components])

    def mean_covariances(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return Σ_c w_c Cov_c(a ∈ S, b ∈ S) for two lists of items, a ≠ b: what ties add to the missions."""
        parts = (w * kernel.mean_covariances(first, second) for w, kernel in zip(self.weights, self.components))
        return np.asarray(sum(parts))

    # -- mixtures again ------------------------------------------------------------------------------------------------------

    def only(self, components: Sequence[int]) -> Mixture:
        """Return the distribution given that the component is one of these."""
        weights = np.zeros(len(self.weights))
        weights[list(components)] = self.weights[list(components)] if len(components) > 1 else 1.0
        if not weights.any():
            raise ZeroProbabilityError("these components have probability zero")
        return self._with(weights / weights.sum(), lambda kernel: kernel)

    def condition(self, items: Items) -> Mixture:
        """Return the distribution of the remaining items, given that these are in: components conditioned, weights P(c | items ⊆ S)."""
        ids = check_items(items, self)
        return self._with(self.responsibilities(ids), lambda kernel: kernel.condition(ids)) if len(ids) else self

    def restrict(self, items: Items) -> Mixture:
        """Return the distribution given that only these items are in; ids stay those of the catalogue."""
        ids = check_items(items, self)
        return self._narrowed(lambda kernel: kernel.restrict(ids))

    def exclude(self, items: Items) -> Mixture:
        """Return the distribution given that these items are not in; ids stay those of the catalogue."""
        ids = check_items(items, self)
        return self._narrowed(lambda kernel: kernel.exclude(ids[kernel.can_occur(ids)]))

    def _narrowed(self, change: Any) -> Mixture:
        changed = [change(kernel) for kernel in self.components]
        log_shares = [new.log_normalizer() - old.log_normalizer() for new, old in zip(changed, self.components)]
        log_weights = self._log_weights + np.array(log_shares)
        return Mixture(changed, np.exp(log_weights - _log_sum(log_weights)), names=self.names)

    def _with(self, weights: FloatArray, change: Any) -> Mixture:
        """Return the changed components of positive weight, and their weights."""
        possible = np.flatnonzero(weights > 0).tolist()
        names = None if self.names is None else [self.names[c] for c in possible]
        return Mixture([change(self.components[c]) for c in possible], weights[possible], names=names)


def _log_sum(values: AnyArray) -> float:
    return float(logsumexp(values)) if np.max(values) > -np.inf else -np.inf
