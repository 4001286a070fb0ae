"""Mixtures of kernels: P(S) = Σ_c w_c P_c(S). Each component is a reason to shop, a *mission*, with its own popular items.

With a single kernel, one item can say only so much about all others; a mixture has no such limit (``docs/mixtures``). The posterior of the
missions is P(c | S) ∝ w_c P_c(S) if the basket is complete, and P(c | J ⊆ S) ∝ w_c P_c(J ⊆ S) if it has only begun. Conditioned on items,
a mixture is a mixture again. Probabilities are averages over the components, and each sample is drawn from one component.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_matrix, check_odds, frozen
from ndpp.baskets import Baskets
from ndpp.baskets.labels import check_labels
from ndpp.errors import InvalidInputError, NoConditionalKernelError, PrecisionError
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.changes import KEEP, Alike, with_items
from ndpp.laws.frame import Frame, of_components
from ndpp.laws.header import ModelHeader
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.mixture_scoring import MixtureScoring
from ndpp.laws.part import Part, Parts
from ndpp.laws.scoring import Scoring
from ndpp.linalg.sizes import ROUNDED
from ndpp.rows import Rows

WEIGHT_TOLERANCE = 1e-6
"""How far the sum of the weights may be from one."""
RARE_SIZE = 1e-4
"""Sizes with a smaller probability are computed component by component, to full relative accuracy."""
NO_WEIGHT = 1e-20
"""A component of this weight that could not have the given items by themselves cannot have them at all, up to rounding."""
MEMORY = 2**31
"""Default for the maximum number of bytes of prepared components."""


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

    parametrisation = "mixture"
    stored = {"component_weights", "{c}.X", "{c}.W"}, {"{c}.support", "{c}.weights", "{c}.background"}
    _fields: ClassVar[tuple[str, ...]] = ("_plain_components", "catalogue", "frame")
    _memory = MEMORY
    _plain_components: Any = ()
    _make_tied: ClassVar[Callable[..., Mixture]]
    _make_pooled: ClassVar[Callable[..., Mixture]]
    """The classes of mixtures with shared ties and of averages, which build on this one; ``ndpp/laws/__init__.py`` connects them."""

    @property
    def format_version(self) -> int:  # type: ignore[override]
        """The first version of the file format that holds such a mixture."""
        return max(8, *(part.format_version for part in self.components)) if "components" in self.facts() else 3

    def __init__(self, components: Sequence[Law], weights: Any, *, names: Sequence[str] | None = None) -> None:
        components = tuple(components)
        for i, law in enumerate(components):
            if not isinstance(law, Law):
                raise InvalidInputError(f"components must be laws; component {i} is a {type(law).__name__}")
            if law.catalogue != components[0].catalogue:
                raise InvalidInputError(
                    f"components must share one catalogue; component 0 has {components[0].n_items} items, component {i} has "
                    f"{law.n_items}" + (", with other labels" if law.n_items == components[0].n_items else "")
                )
        nonempty = any(law.nonempty for law in components)
        if nonempty and not all(law.nonempty for law in components):
            raise InvalidInputError("all components must leave out the empty set, or none; make them without_empty()")
        frame = checked_frame(weights, len(components), names)._replace(nonempty=nonempty)
        self._plain_components, self._known = tuple(law.with_empty() for law in components), {}
        self.catalogue, self.frame = components[0].catalogue, frame

    def named(self, catalogue: Catalogue) -> Self:
        """Return the same mixture over a catalogue of as many items."""
        return self._again(
            catalogue=catalogue, _plain_components=tuple(law.named(catalogue) for law in self._plain_components)
        )

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
        odds = check_odds(odds, "odds", of=("component", "item"))
        return Mixture._make_tied(odds, base, weights, names=names)

    @staticmethod
    def pooled(laws: Sequence[Law], weights: Any) -> Mixture:
        """Return the average Σ_m w_m P_m of laws, such as several fits, as a mixture of the components of all of them.

        :class:`Mixture` of the same laws is the same distribution; its components are the laws themselves, and missions, reasons and
        context are about them.

        Parameters
        ----------
        laws : sequence of Law
            Over the same items with the same labels.
        weights : (M,) array_like
            Their probabilities.

        Examples
        --------
        >>> from ndpp import Mixture
        >>> odds = [[0.5, 0.1], [0.1, 0.5]]
        >>> fits = [Mixture.tied(odds, [[x], [x]], [[0.0]], [0.5, 0.5]) for x in (0.0, 1.0)]
        >>> average = Mixture.pooled(fits, [0.75, 0.25])
        >>> average.weights
        array([0.375, 0.375, 0.125, 0.125])
        >>> bool(np.isclose(np.exp(average.log_prob([0])), 0.75 * np.exp(fits[0].log_prob([0])) + 0.25 * np.exp(fits[1].log_prob([0]))))
        True
        """
        return Mixture._make_pooled(laws, weights)

    def __repr__(self) -> str:
        return f"<Mixture of {len(self.weights)} components over {self.n_items} items>"

    @property
    def _made_of(self) -> Sequence[Law]:
        """The laws that its file holds: the components."""
        laws: Sequence[Law] = self._plain_components
        return laws

    @property
    def members(self) -> Sequence[Law]:
        """The laws that are averaged, as distributions of their own: the components, but for averages of mixtures."""
        return self.components

    @property
    def shares(self) -> FloatArray:
        """Their probabilities."""
        return self.weights

    def averaging(self, laws: Sequence[Law], shares: FloatArray) -> Self:
        """Return the average of other versions of the same laws, of as many components each; names and context stay."""
        made = type(self)(laws, shares)
        return made.framed(self.frame.weighted(made.weights, nonempty=made.nonempty))

    # -- hooks of Law --------------------------------------------------------------------------------------------------------

    @of_components
    def largest(self) -> IntArray:
        """The size of the largest set of each component."""
        return np.array([kernel.max_size for kernel in self._plain_components])

    @of_components
    def _some(self) -> FloatArray:
        return np.array([law.weights @ law._some for law in self._plain_components])

    @of_components
    def _sizes(self) -> FloatArray:
        distributions = [kernel.size_distribution() for kernel in self._plain_components]
        out = np.zeros((len(distributions), max(map(len, distributions))))
        for row, distribution in zip(out, distributions):
            row[: len(distribution)] = distribution
        return out

    def _joint_sizes(self, ids: IntArray) -> FloatArray:
        parts = [
            weight * kernel._joint_sizes(ids) for weight, kernel in zip(self._free_weights, self._plain_components)
        ]
        out = np.zeros((len(ids), max(part.shape[1] for part in parts)))
        for part in parts:
            out[:, : part.shape[1]] += part
        return out

    def _log_sizes(self, size: int) -> FloatArray:
        chances = self._sizes[:, size] if size < self._sizes.shape[1] else np.zeros(len(self.weights))
        if self.weights @ chances > RARE_SIZE:
            with np.errstate(divide="ignore"):
                return np.asarray(np.log(np.where(chances > ROUNDED, chances, 0.0)))
        return self._log_started(np.empty(0, np.int64), size)

    def _log_whole(self, baskets: Baskets) -> FloatArray:
        return np.stack([kernel.log_probs(baskets) for kernel in self._plain_components], axis=1)

    def _log_whole_of(self, ids: IntArray) -> FloatArray:
        return np.array([kernel.log_prob(ids) for kernel in self._plain_components])

    @property
    def _scoring(self) -> Scoring:
        return MixtureScoring(self)

    def _log_started(self, ids: IntArray, size: int | None) -> FloatArray:
        return np.array([self._log_started_in(law, ids, size) for law in self._plain_components])

    def _log_started_in(self, law: Law, ids: IntArray, size: int | None) -> float:
        """Return log P_c(ids ⊆ S, |S| = size); −inf if it is lost in rounding, and counts for nothing beside other components."""
        try:
            return law._log_total(ids, size) - law._log_unit
        except PrecisionError:
            if size is None or len(ids) or law.size_distribution()[size] > ROUNDED * self.size_distribution()[size]:
                raise
            return -np.inf

    def _parts(self, ids: IntArray) -> Parts | None:
        laws = self._plain_components
        if any(len(law.weights) > 1 for law in laws):
            return None
        parts: dict[int, Parts] = {}

        def at(c: int, log_tilt: float) -> Part:
            if c not in parts:
                parts[c] = laws[c]._parts(ids)
            return parts[c].at(0, log_tilt)

        return Parts(at, lambda size: np.zeros(len(laws)))

    def _mean_inclusions(self, ids: IntArray, size: int | None, active: IntArray, shares: FloatArray) -> FloatArray:
        out = np.zeros(self.n_items)
        for c, share in zip(active.tolist(), shares):
            out += share * self._plain_components[c].inclusion_probabilities(size, ids)
        return out

    def mean_covariances(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return Σ_c w_c Cov_c(a ∈ S, b ∈ S) for two lists of items, a ≠ b: what ties add to the missions.

        If the empty set is left out, Cov_c is that before, divided by P_c(S ≠ ∅).
        """
        parts = (w * _covariances(law, first, second) for w, law in zip(self._free_weights, self._plain_components))
        return np.asarray(sum(parts))

    # -- files ---------------------------------------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, Any]:
        arrays: dict[str, Any] = {"component_weights": self.weights}
        for c, law in enumerate(self._made_of):
            own = {
                name: array.read() if isinstance(array, Rows) else array for name, array in law.stored_arrays().items()
            }
            arrays |= {f"{c}.{name}": array for name, array in own.items()}
        return arrays

    def facts(self) -> dict[str, Any]:
        """Return what its file says of it and, if they are not all kernels, of its components."""
        parts = [law.facts() for law in self._made_of]
        plain = all(part["parametrisation"] == LowRankKernel.parametrisation for part in parts)
        found = super().facts() | {"n_components": str(len(parts)), "names": self.names}
        return found if plain else found | {"components": [_texts(part) for part in parts]}

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Any], header: ModelHeader) -> Mixture:
        parts: list[dict[str, Any]] = [{} for _ in header.components or range(header.n_components)]
        weights = arrays.pop("component_weights")
        for name, array in arrays.items():
            c, _, own = name.partition(".")
            parts[int(c)][own] = array
        headers = header.components or [
            header._replace(parametrisation=LowRankKernel.parametrisation, context=None)
        ] * len(parts)
        plain = (Law.from_stored(part, own._replace(nonempty=False)) for part, own in zip(parts, headers, strict=True))
        return Mixture(list(plain), weights, names=header.names)

    # -- mixtures again ------------------------------------------------------------------------------------------------------

    def only(self, components: Sequence[int]) -> Mixture:
        """Return the distribution given that the component is one of these."""
        weights = self.ask(mission=components).weights
        assert weights is not None
        return self._weighed(weights)

    def _condition(self, ids: IntArray) -> Mixture:
        """Return the components conditioned, with weights P(c | ids ⊆ S)."""
        rest = self._weighed(self.responsibilities(ids))
        return rest.framed(rest.frame._replace(nonempty=False))._given(ids)

    def _weighed(self, weights: FloatArray) -> Mixture:
        """Return the components of positive weight, with these weights."""
        possible = np.flatnonzero(weights > 0)
        return self._chosen(possible).framed(self.frame.of(possible, weights[possible]))

    def log_normalizers(self) -> FloatArray:
        """Return the log weight of all sets of each component."""
        return np.array([law.log_all for law in self._plain_components])

    def _chosen(self, which: IntArray) -> Mixture:
        """Return some of the components, in any frame."""
        return Mixture([self._plain_components[c] for c in which], np.full(len(which), 1 / len(which)))

    def _given(self, ids: IntArray) -> Mixture:
        """Return all components given items, with the weights that they had; without those that have them by rounding alone."""
        laws: dict[int, Law] = {}
        for c, law in enumerate(self._plain_components):
            try:
                laws[c] = law.condition(ids)
            except NoConditionalKernelError:
                if self.weights[c] > NO_WEIGHT:
                    raise
        which = np.array(list(laws), np.int64)
        made = Mixture(list(laws.values()), np.full(len(laws), 1 / len(laws)))
        return made.framed(self.frame.of(which, self.weights[which]))

    def _tilt(self, ids: IntArray, factors: FloatArray | None) -> Mixture:
        return self._each(law._tilted_by(ids, factors) for law in self._made_of)

    def _with_alike(self, alike: Sequence[Alike]) -> Mixture:
        return self._each(law._with_alike(alike) for law in self._made_of)

    def _with_items(
        self, alike: list[Alike], known: Any, features: Any, wanted: FloatArray, catalogue: Catalogue, keeps_sets: bool
    ) -> Any:  # fmt: skip
        """Return the distribution with new items; if mixtures are averaged, each of them has the new items as often."""
        members = self.members
        if all(len(law.weights) == 1 for law in members):
            return with_items(self, alike, known, features, wanted, catalogue, keeps_sets)
        names = (catalogue.labels or ())[self.n_items :]
        like = {name: dict(zip(one.ids.tolist(), one.weights.tolist())) for name, one in zip(names, alike)}
        found = [law.add_items(like, dict(zip(names, wanted.tolist())), keep=KEEP[not keeps_sets]) for law in members]
        made = self.averaging(found, self.shares)
        if not keeps_sets:
            return made
        # What sets without new items lose, as the empty one does.
        kept = np.array(
            [new.with_empty().log_prob([]) - old.with_empty().log_prob([]) for new, old in zip(found, members)]
        )
        free = made.with_empty()
        shares = self.with_empty().shares * np.exp(kept.min() - kept)
        free = free.averaging(free.members, shares / shares.sum())
        return free.without_empty() if self.nonempty else free

    def _only_items(self, keep: IntArray) -> Mixture:
        return self._each(law._reweighed(law._only_items(keep)) for law in self._made_of)

    def _each(self, components: Iterable[Law]) -> Mixture:
        """Return a mixture of these components instead."""
        return Mixture(list(components), self.weights, names=self.names)


def _texts(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return facts as a header writes them."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()}


def _covariances(law: Law, first: IntArray, second: IntArray) -> FloatArray:
    """Return Cov(a ∈ S, b ∈ S) of a law, which may be a mixture itself."""
    found = law.mean_covariances(first, second)
    if len(law.weights) > 1:
        each = law._component_inclusions()
        mean = law.weights @ each
        found = (
            found + (law.weights[:, None] * each[:, first]).T @ each[:, second] - np.outer(mean[first], mean[second])
        )
    return found


def checked_frame(weights: Any, n_components: int, names: Sequence[str] | None) -> Frame:
    """Return the frame with these weights and names, checked."""
    values = check_matrix([weights], "weights", shape=(1, None))[0].astype(np.float64)
    if n_components == 0 or len(values) != n_components:
        raise InvalidInputError(f"expected one weight per component; got {len(values)} for {n_components} components")
    if (values < 0).any() or abs(values.sum() - 1) > WEIGHT_TOLERANCE:
        raise InvalidInputError(
            f"weights must be probabilities that sum to one; these sum to {values.sum():.6g}, the least is {values.min():.6g}. "
            "Divide them by their sum"
        )
    total = math.fsum(values)  # exact up to one rounding: weights that were divided once are left as they are
    weights = frozen(values if abs(total - 1) <= np.finfo(np.float64).eps else values / total)
    return Frame(weights, check_labels(names, n_components, name="names", of="component"))
