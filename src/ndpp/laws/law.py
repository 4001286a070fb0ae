"""Every distribution over sets of items, P = Σ_c w_c P_c, and all that can be asked of it.

A kernel has one component; a mixture has several. The public methods are written here, once, in terms of a few hooks that each kind of
distribution has (:mod:`ndpp.laws.hooks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from ndpp._show import html_table, some
from ndpp._types import FloatArray, IntArray, Items, Jobs, RngLike, cached_property
from ndpp._validation import check_choice, check_count, check_items, check_values, clip_probabilities, frozen
from ndpp.baskets import Baskets
from ndpp.errors import (
    ImpossibleSizeError,
    InvalidInputError,
    UnknownLabelError,
    ZeroProbabilityError,
)
from ndpp.laws.ask import NO_ITEMS, Ask, Conditions, Factors
from ndpp.laws.changes import add_items, remove, rename, tilt_to, with_items
from ndpp.laws.gate import Gate
from ndpp.laws.header import ModelHeader
from ndpp.laws.hooks import Hooks
from ndpp.laws.limits import Estimate, Limit
from ndpp.laws.moments import entropy, kl, pair_probabilities
from ndpp.laws.precision import check_given, never_together
from ndpp.linalg.logs import log_row_sums, log_sum
from ndpp.linalg.sizes import ROUNDED

VANISHING = 1e-28
"""Probabilities up to this may be what rounding left of zero, squared."""
NEGLIGIBLE_POSTERIOR = 1e-14
"""Components with a smaller posterior are left out of averages."""
KINDS: dict[str, type[Law]] = {}
"""The kinds of laws that files can hold, by what they call them. A class that names its ``parametrisation`` is one of them."""


class Law(Hooks):
    """A distribution over sets of items."""

    _conditioned: ClassVar[Callable[..., Any]]
    """The class of laws given items, a size or limits, which builds on this one; ``ndpp/laws/__init__.py`` connects it."""
    recommend: ClassVar[Callable[..., Any]]
    """:func:`ndpp.recommend`, which ``ndpp/__init__.py`` connects, as it does the next."""
    _prepare_sampler: ClassVar[Callable[..., Any]]

    @staticmethod
    def of(model: object) -> Law | None:
        """Return the law of a fitted estimator, or the model itself if it is a law; None for anything else."""
        law = getattr(model, "law_", getattr(model, "kernel_", model))
        return law if isinstance(law, Law) else None

    @staticmethod
    def required(model: object) -> Law:
        """Return the law of a fitted estimator, or the model itself if it is a law; raise for anything else."""
        law = Law.of(model)
        if law is None:
            raise InvalidInputError(
                f"expected a kernel, a mixture or a fitted estimator; got {type(model).__name__}",
                advice="Call its fit first." if hasattr(model, "fit") else "",
            )
        return law

    # -- probabilities of sets -------------------------------------------------------------------------------------------------

    def log_prob(  # type: ignore[misc]  # size is also taken by position
        self, items: Items, size: int | None = None, **conditions: Unpack[Conditions]
    ) -> float:
        """Return log P(S), or under conditions log P(S | conditions): with ``size`` log P(S | |S| = size)."""
        law = self._under(size=size, **conditions)
        ids = check_items(items, law)
        log_weight = -np.inf if law._is_left_out(ids) else log_sum(law._log_weights + law._log_whole_of(ids))
        return log_weight - law._log_unit if log_weight > -np.inf else -np.inf

    def log_probs(  # type: ignore[misc]
        self,
        baskets: Baskets | Sequence[Items],
        size: int | None = None,
        *,
        context: Mapping[str, object] | None = None,
        **conditions: Unpack[Conditions],
    ) -> FloatArray:
        """Return log P(S) of many sets, or under conditions, such as their size, log P(S | conditions): −inf for sets that break one.

        ``context`` holds columns, as in :meth:`at`, with one value for all baskets or the value of each: log P(S | x). Values that were
        not learned, and columns without effect, are ignored.
        """
        baskets = self._sets(baskets)
        law = self._under(size=size, **conditions)
        with np.errstate(divide="ignore"):
            log_weights = np.log(law.weights)
        if context and law.gate is not None:
            columns = {name: each(values, len(baskets)) for name, values in context.items()}
            log_weights = law.gate.log_weights(log_weights, law.gate.rows(columns, len(baskets), unknown="skip"))
        return log_row_sums(log_weights + law.component_log_probs(baskets))

    def component_log_probs(self, baskets: Baskets | Sequence[Items], **conditions: Unpack[Conditions]) -> FloatArray:
        """Return log P_c(S) of many sets and all components, shape (len(baskets), C)."""
        law, baskets = self._under(**conditions), self._sets(baskets)
        found = law._log_whole(baskets) - law._log_unit
        if law.nonempty:
            found -= np.log(law.kept)
            found[baskets.sizes == 0] = -np.inf
        return found

    def log_containment(self, items: Items, **conditions: Unpack[Conditions]) -> float:
        """Return log P(items ⊆ S): the items are in, whatever else is."""
        law = self._under(**conditions)
        return law._log_total(check_items(items, law), None) - law._log_unit

    def log_normalizer(self, size: int | None = None) -> float:
        """Return the log weight of all sets, or of those of one size (−inf if there is none).

        For a kernel these are log det(I + L) and log e_k, the sums of det(L_S). The weights of a mixture are probabilities.
        """
        return self._log_unit if size is None else self._log_total(NO_ITEMS, check_count(size, "size"))

    def probability(  # type: ignore[misc]
        self,
        limits: Limit | Sequence[Limit],
        given: Items = (),
        **conditions: Unpack[Conditions],
    ) -> Estimate:
        """Return P(limits | given items ⊆ S), where given items count.

        It is exact for counts, and for values that are multiples of a step, such as prices in cents, unless there are too many steps.
        Otherwise it is estimated from proposals of the sampler under limits, always the same ones, with its standard error.

        Examples
        --------
        >>> import ndpp
        >>> kernel = ndpp.LowRankKernel(np.eye(3), np.eye(3))
        >>> estimate = kernel.probability(ndpp.Limit([0, 1], least=1))
        >>> round(estimate.value, 12), estimate.exact
        (0.75, True)
        """
        return self._under(limits=limits, given=given, **conditions).chance

    def responsibilities(  # type: ignore[misc]
        self,
        items: Items,
        *,
        whole: bool = False,
        size: int | None = None,
        **conditions: Unpack[Conditions],
    ) -> FloatArray:
        """Return the posterior of the components: P(c | items ⊆ S), or P(c | S = items) with ``whole``.

        ``size`` is the size of S, the items included, if it is known.
        """
        law = self._under(**conditions)
        return law._posterior_of(check_items(items, law), None if whole else size, whole=whole)

    # -- sizes, items and pairs ------------------------------------------------------------------------------------------------

    def size_distribution(self, **conditions: Unpack[Conditions]) -> FloatArray:
        """Return P(|S| = k) for k = 0, 1, … up to the largest size."""
        law = self._under(**conditions)
        mean, found = law._free_weights @ law._sizes, np.zeros(law.max_size + 1)
        found[: len(mean)] = mean[: len(found)]
        found[0] = 0.0 if law.nonempty else found[0]
        return found

    def sizes_with(self, items: Items, **conditions: Unpack[Conditions]) -> FloatArray:
        """Return P(|S| = k | a ∈ S) of each of these items a, a row for each, for k = 0, 1, …; 0 for items that never occur, up to 1e-28.

        For a mixture of C components O(C (n r² + K r³)) in all, where sizes vary by K, and little more for all items than for one.
        """
        law = self._under(**conditions)
        ids = check_items(items, law)
        order = np.argsort(ids, kind="stable")
        joint = law._joint_sizes(ids[order])
        total, out = joint.sum(axis=1, keepdims=True), np.zeros_like(joint)
        out[order] = np.divide(joint, total, out=np.zeros_like(joint), where=total > VANISHING)
        return out

    def check_size(self, size: int, *, given: Items = ()) -> int:
        """Return ``size`` if some set of that size contains the given items; raise a clear error otherwise."""
        ids = check_items(given, self, "given")
        check_given(size, len(ids))
        if self._is_left_out(ids, size) or not self._has_sets(ids, size):
            raise self._impossible(ids, size)
        return size

    def inclusion_probabilities(  # type: ignore[misc]
        self,
        size: int | None = None,
        given: Items = (),
        **conditions: Unpack[Conditions],
    ) -> FloatArray:
        """Return P(a ∈ S) for every item of the catalogue, given that S contains some items and, with ``size``, given its size.

        ``size`` includes the given items, which have probability one. With ``limits``, the same given that S keeps them: what else fits.
        Exact where :meth:`probability` is; otherwise from :meth:`inclusion_estimates`, which a
        :class:`~ndpp.errors.PrecisionWarning` says.
        """
        law = self._under(size=size, given=given, **conditions)
        unit = law._free_weights.sum()
        shares = law._free_weights / unit
        active = np.flatnonzero(shares > NEGLIGIBLE_POSTERIOR)
        out = unit * law._mean_inclusions(NO_ITEMS, None, active, shares[active])
        out[law.given] = 1.0  # and not up to rounding
        return clip_probabilities(out, "inclusion probabilities")

    def inclusion_estimates(  # type: ignore[misc]
        self,
        limits: Limit | Sequence[Limit],
        *,
        n_samples: int = 1000,
        rng: RngLike = 0,
        **conditions: Unpack[Conditions],
    ) -> Estimate:
        """Return P(a ∈ S | limits, given) for every item, as arrays: exactly if that can be, and otherwise from samples."""
        return self._under(limits=limits, **conditions)._inclusion_estimates(n_samples, rng)

    @cached_property
    def popularity(self) -> FloatArray:
        """P(a ∈ S) of every item, which the law keeps."""
        return frozen(self.inclusion_probabilities())

    def component_inclusions(self, items: IntArray | None = None, **conditions: Unpack[Conditions]) -> FloatArray:
        """Return P_c(a ∈ S) of all components and of all or some items, shape (C, items), from a table that the law keeps."""
        law = self._under(**conditions)
        table = law.inclusion_table if items is None else law.inclusion_table[items]
        return clip_probabilities(table.T / law.kept[:, None], "inclusion probabilities")

    pair_probabilities, entropy, kl = pair_probabilities, entropy, kl

    # -- under conditions, and in a context ------------------------------------------------------------------------------------

    def ask(self, **conditions: Unpack[Conditions]) -> Ask:
        """Return what is asked about sets of this law, checked: ``ndpp.laws.ask.Conditions`` says what can be.

        Examples
        --------
        >>> import ndpp
        >>> kernel = ndpp.LowRankKernel(np.eye(3), labels=["tea", "milk", "jam"])
        >>> ask = kernel.ask(given=["tea"], exclude=["jam"], size=2)
        >>> ask.given, ask.excluded, ask.size
        (array([0]), array([2]), 2)
        """
        return Ask.of(self, **conditions)

    def under(self, ask: Ask) -> Law:
        """Return the law of the sets that are asked about: P(S | ask). It answers whatever a law answers.

        If nothing is given, and no size or limit asked for, it is a law of the same kind. Asking nothing returns the law itself.

        Examples
        --------
        >>> import ndpp
        >>> kernel = ndpp.LowRankKernel(np.eye(3))
        >>> kernel.under(kernel.ask(given=[0], exclude=[2])).inclusion_probabilities()
        array([1. , 0.5, 0. ])
        """
        law: Law = self
        if ask.weights is not None and not ask.keeps_weights:
            law = law._in_context(ask.weights, ask.columns)
        law = law if ask.factors is None else law.tilt(ask.factors)
        if ask.weights is not None and ask.keeps_weights:
            law = law._in_context(ask.weights, ask.columns)
        law = law.exclude(ask.excluded)
        return law if ask.is_closed else law._conditioned(law, ask.given, ask.size, ask.limits)

    @property
    def context(self) -> dict[str, tuple[str, ...]]:
        """The columns of context that the weights depend on, and the values of each that :meth:`at` takes."""
        return {} if self.gate is None else dict(self.gate.levels)

    def at(self, context: Mapping[str, object] | None = None, /, *, unknown: str = "error", **columns: object) -> Self:
        """Return the distribution in a context: w_c(x) ∝ w_c exp(Σ β_c(x)), as learned by ``ndpp.fit(orders, context=[…])``.

        Parameters
        ----------
        context : mapping, optional
            Columns and their values, if there are names among them that Python does not take as ``columns``.
        unknown : {"error", "skip"}
            What to do about columns and values that the model does not know; "skip" takes the plain weights.
        **columns
            The value of each column, such as ``store=3, weekday="Sunday"``. Others may follow: ``law.at(store=3).at(weekday="Sunday")``.

        Examples
        --------
        >>> import ndpp
        >>> odds, ties = [[1.0, 0.0], [0.0, 1.0]], [[0.0], [0.0]]
        >>> law = ndpp.Mixture.tied(odds, ties, [[0.0]], [0.5, 0.5], labels=["croissant", "beer"])
        >>> law = law.with_context({"hour": ("8", "20")}, np.log([[4.0, 1.0], [1.0, 4.0]]))
        >>> law.inclusion_probabilities(), law.at(hour=8).inclusion_probabilities().round(3)
        (array([0.25, 0.25]), array([0.4, 0.1]))
        """
        known = {**(context or {}), **columns}
        if not known or (self.gate is None and check_choice(unknown, "unknown", ("error", "skip")) == "skip"):
            return self
        return self._in_context(self.weights_at(known, unknown=unknown), tuple(known))

    def with_context(self, levels: Mapping[str, Sequence[str]], shifts: ArrayLike) -> Self:
        """Return the same components with weights that depend on context: w_c(x) ∝ w_c exp(Σ_f β_f[x_f, c]). See :meth:`at`.

        ``levels`` names the values of each column f, and ``shifts`` holds β, with a row for each value of the first column, then of the
        second, …, and a column for each component.
        """
        gate = Gate({str(name): tuple(map(str, words)) for name, words in levels.items()}, np.asarray(shifts))
        if gate.shifts.shape[1] != len(self.weights):
            raise InvalidInputError(
                f"gate should have {len(self.weights)} columns, one per component; it has {gate.shifts.shape[1]}"
            )
        return self.framed(self.frame._replace(gate=gate))

    def weights_at(self, context: Mapping[str, object], *, unknown: str = "error") -> FloatArray:
        """Return the weights of the components in a context."""
        if self.gate is None:
            raise InvalidInputError(
                f"this model has no context, so {next(iter(context))!r} has no effect",
                advice="Fit one with context, or take the plain weights with {unknown:'skip'}",
            )
        rows = self.gate.rows({name: [value] for name, value in context.items()}, 1, unknown=unknown)
        with np.errstate(divide="ignore"):
            return np.asarray(np.exp(self.gate.log_weights(np.log(self.weights), rows)[0]))

    def without_empty(self) -> Self:
        """Return the distribution given that there is at least one item: P(S) / (1 − P(∅)) for all other sets.

        Distributions learned from baskets none of which is empty are of this kind (``law.nonempty``). What is changed of one leaves out
        the empty set again, but for :meth:`condition`: the other items may be none.

        Examples
        --------
        >>> import ndpp
        >>> kernel = ndpp.LowRankKernel(np.eye(2), np.eye(2))
        >>> kernel.without_empty().size_distribution().round(4), kernel.without_empty().inclusion_probabilities().round(4)
        (array([0.    , 0.6667, 0.3333]), array([0.6667, 0.6667]))
        """
        if self.nonempty:
            return self
        weights = self.weights * self._some
        if not weights.any():
            raise ZeroProbabilityError("no item can occur, so the only set is empty, and it cannot be left out")
        return self._remembering(self.framed(self.frame.weighted(weights / weights.sum(), nonempty=True)))

    def with_empty(self) -> Self:
        """Return the distribution of which this one leaves out the empty set; itself, if it does not."""
        if not self.nonempty:
            return self
        weights = self._free_weights / self._free_weights.sum()
        return self._remembering(self.framed(self.frame.weighted(weights, nonempty=False)))

    # -- distributions of the same kind ----------------------------------------------------------------------------------------

    def condition(self, items: Items) -> Self:
        """Return the distribution of the remaining items of a sample that contains these.

        Raises
        ------
        ZeroProbabilityError
            The items never occur together.
        NoConditionalKernelError
            They do, but a kernel gives them by themselves probability zero, so that the others have no kernel; use ``given=`` instead.
        """
        ids = check_items(items, self)
        return self._condition(ids) if len(ids) else self

    def restrict(self, items: Items) -> Self:
        """Return the distribution given that only these items are in; ids stay those of the catalogue."""
        return self._tilted_by(np.sort(check_items(items, self)), None)

    def exclude(self, items: Items) -> Self:
        """Return the distribution given that these items are not in; ids stay those of the catalogue."""
        ids = check_items(items, self)
        return self._tilted_by(np.delete(np.arange(self.n_items), ids), None) if len(ids) else self

    def tilt(self, factors: Factors) -> Self:
        """Return the distribution P(S) Π_{i∈S} s_i, normalised: the odds of every item times its factor, and ties as they were.

        Parameters
        ----------
        factors : (n_items,) array_like, mapping or pandas Series
            s ≥ 0 of every item, or of items by id or label; others have 1. An item with 0 never occurs: to restrict and to exclude are
            tilts with 0 and 1.

        Examples
        --------
        >>> import ndpp
        >>> kernel = ndpp.LowRankKernel(np.eye(2), np.eye(2), labels=["milk", "oats"])
        >>> kernel.inclusion_probabilities(), kernel.tilt({"oats": 3}).inclusion_probabilities()
        (array([0.5, 0.5]), array([0.5 , 0.75]))
        """
        found = check_values(factors, self, "factors", default=1.0)
        ids = np.flatnonzero(found)
        if (found[ids] != 1).any():
            return self._tilted_by(ids, found[ids])
        return self._tilted_by(ids, None) if len(ids) < self.n_items else self

    add_items, remove, rename, tilt_to = add_items, remove, rename, tilt_to

    # -- samples ---------------------------------------------------------------------------------------------------------------

    def sampler(
        self,
        *,
        memory: int | None = None,
        device: str | None = None,
        component: int | str | None = None,
        **conditions: Unpack[Conditions],
    ) -> Any:
        """Return the exact sampler that :meth:`sample` draws with, prepared: its ``sample`` draws again and again.

        Parameters as in :meth:`sample`. The samplers asked for last stay with the distribution, at most ``memory`` bytes of them, so that
        to ask again for the same size, items and limits takes no time.
        """
        if component is not None:
            conditions["mission"] = component
        ask = self.ask(**conditions)
        law = self.under(ask.of_law)
        options: dict[str, Any] = {"limits": ask.limits.records} if len(ask.limits) else {}
        memory = law._memory if memory is None else memory
        return law._prepare_sampler(
            size=ask.size, given=ask.given, exclude=ask.excluded, memory=memory, device=device, **options
        )

    def sample(
        self,
        n_samples: int = 1,
        *,
        rng: RngLike = None,
        n_jobs: Jobs = None,
        device: str | None = None,
        memory: int | None = None,
        progress: bool = False,
        component: int | str | None = None,
        **conditions: Unpack[Conditions],
    ) -> Baskets:
        """Draw exact samples.

        Parameters
        ----------
        n_samples : int
            Number of sets.
        rng : anything ``numpy.random.default_rng`` takes
            Sample i depends on it and on i alone, whatever ``n_jobs``.
        n_jobs : int or distributed.Client, optional
            Workers, as joblib counts them, or a dask cluster; each holds BLAS to one thread.
        device : str, optional
            None or "cpu"; "cuda" or "cuda:1" draws on a GPU, thousands at a time.
        memory : int, optional
            Maximum bytes of cached matrices, by default 256 MB, of a mixture 2 GB. Peak memory in addition to X is this, a table of
            20n bytes, and about 130 r² √size bytes per worker.
        progress : bool
            Show a progress bar.
        component : int or str, optional
            Another word for ``mission``.
        **conditions
            Which sets to draw (``ndpp.laws.ask.Conditions``): their ``size``, ``given`` items included; items that are ``given`` and
            items to ``exclude``, by id or label; the only ``candidates``; ``limits`` on counts of items or totals of prices, exact as well
            (``docs/limits``); a ``boost`` of the odds of items; the ``context``; the ``mission``; the ``customer``.

        Examples
        --------
        >>> import ndpp, numpy as np
        >>> kernel = ndpp.LowRankKernel(np.eye(4), np.eye(4))
        >>> kernel.sample(3, size=2, given=[1], rng=0).to_lists()
        [[0, 1], [1, 2], [0, 1]]
        >>> odds, ties = [[1.0, 9.0], [0.0, 1.0]], [[1.0], [1.0]]
        >>> mixture = ndpp.Mixture.tied(odds, ties, [[0.5]], [0.5, 0.5], names=["a", "b"])
        >>> mixture.sample(3, mission="b", rng=0).to_lists()
        [[], [1], []]
        """
        sampler = self.sampler(memory=memory, device=device, component=component, **conditions)
        baskets: Baskets = sampler.sample(n_samples, rng=rng, n_jobs=n_jobs, progress=progress).baskets
        return baskets

    # -- components ------------------------------------------------------------------------------------------------------------

    def component(self, which: int | str) -> int:
        """Return the number of a component, given by number or name."""
        if type(self)._plain_components is Law._plain_components:
            raise InvalidInputError(
                f"is for mixtures, and this is a single kernel; got {which!r}", argument="component"
            )
        if isinstance(which, str):
            if self.names is None or which not in self.names:
                raise UnknownLabelError(which, self.names or ())
            return self.names.index(which)
        return check_count(which, "component", most=len(self.weights) - 1)

    @property
    def components(self) -> Sequence[Any]:
        """The components, as distributions of their own."""
        if not self.nonempty:
            return self._plain_components
        return [part.without_empty() if most else part for part, most in zip(self._plain_components, self.largest)]

    def _repr_html_(self) -> str:
        facts: list[tuple[str, Any]] = [("items", self.n_items), ("largest sample", self.max_size)]
        facts += [("empty set", "left out")] if self.nonempty else []
        if len(self.weights) > 1:
            by_weight = sorted(zip(self.weights, self.names or count()), reverse=True)
            facts += [(f"component {name}", f"{weight:.1%}") for weight, name in by_weight]
        return html_table(repr(self).strip("<>"), ["labels", some(self.labels)], facts)

    # -- files -----------------------------------------------------------------------------------------------------------------

    def __init_subclass__(cls) -> None:
        if "parametrisation" in vars(cls):
            KINDS[cls.parametrisation] = cls

    def stored_arrays(self) -> dict[str, Any]:
        """Return all arrays of its file."""
        gate = {} if self.gate is None else {"gate": self.gate.shifts}
        return {name: array for name, array in self._arrays().items() if array is not None} | gate

    def facts(self) -> dict[str, Any]:
        """Return what its file says of it beside arrays and labels; what is not text becomes JSON."""
        nonempty, context = (
            {"nonempty": "True"} if self.nonempty else {},
            {"context": self.context} if self.context else {},
        )
        return {"parametrisation": self.parametrisation, **nonempty, **context}

    @staticmethod
    def from_stored(arrays: dict[str, Any], header: ModelHeader) -> Law:
        """Return the law of a file from its arrays and its header."""
        shifts = arrays.pop("gate", None)
        law: Law = KINDS[header.parametrisation]._from_arrays(arrays, header)
        law = law.framed(law.frame._replace(nonempty=header.nonempty or law.nonempty))
        return law if header.context is None else law.with_context(header.context, shifts)

    # -- what the verbs share --------------------------------------------------------------------------------------------------

    def _under(self, **conditions: Unpack[Conditions]) -> Law:
        """Return the law under conditions; itself, if none is said."""
        said = {name: value for name, value in conditions.items() if name == "candidates" or not is_nothing(value)}
        said = {name: value for name, value in said.items() if value is not None}
        return self.under(self.ask(**said)) if said else self  # type: ignore[arg-type]

    def _in_context(self, weights: FloatArray, columns: Sequence[str]) -> Self:
        """Return the same components with these weights, and other columns of context left to be known."""
        gate = self.gate and self.gate.without(columns)
        return self._remembering(self.framed(self.frame.weighted(weights)._replace(gate=gate)))

    def _tilted_by(self, ids: IntArray, factors: FloatArray | None) -> Self:
        """Return the tilted distribution, with weights ∝ w_c Z_c(s) / Z_c, which leaves out the empty set if this one does."""
        return self._reweighed(self._tilt(ids, factors))

    def _tilted_odds(self, ids: IntArray, factors: FloatArray, *, keeps_sets: bool = True) -> Self:
        """Return the distribution with tilted odds of some items, and weights that follow from it, or as they were."""
        s = np.ones(self.n_items)
        s[ids] = factors
        return self._reweighed(self._tilt(np.arange(self.n_items), s), keeps_sets=keeps_sets)

    def _reweighed(self, made: Self, *, keeps_sets: bool = True) -> Self:
        """Return ``made``, these components over other odds or items, with weights ∝ w_c Z'_c / Z_c: sets keep theirs; or with w_c."""
        weights = self.weights
        if len(weights) > 1:
            growth = made.log_normalizers() - self.log_normalizers() if keeps_sets else 0.0
            log_weights = self._log_weights + growth
            weights = np.exp(log_weights - log_sum(log_weights))
        made = made.framed(self.frame.weighted(weights, nonempty=False))
        return made.without_empty() if self.nonempty else made

    def _tilted_near(self, ids: IntArray, factors: FloatArray, *, keeps_sets: bool = True) -> tuple[Self, IntArray]:
        """Return a distribution that gives some items the same P(a ∈ S) as the tilted one does, and their ids in it."""
        return self._tilted_odds(ids, factors, keeps_sets=keeps_sets), ids

    _with_items = with_items

    @property
    def _plain_components(self) -> Sequence[Any]:
        """The components, as distributions of their own that may be empty."""
        return (self.with_empty(),)

    def _posterior_of(self, ids: IntArray, size: int | None = None, *, whole: bool = False) -> FloatArray:
        if size is not None:
            check_given(size, len(ids))
        log_posterior = self._log_weights + (self._log_whole_of(ids) if whole else self._log_masses(ids, size))
        total = -np.inf if whole and self._is_left_out(ids) else log_sum(log_posterior)
        if total == -np.inf and whole:
            raise ZeroProbabilityError(f"the set of these {len(ids)} items has probability zero")
        if total == -np.inf:
            raise self._impossible(ids, size)
        return np.exp(log_posterior - total)

    def _impossible(self, ids: IntArray, size: int | None) -> ImpossibleSizeError | ZeroProbabilityError:
        """Return the error for sets that have probability zero."""
        if size is None or log_sum(self._log_weights + self._log_started(ids, None)) == -np.inf:
            for item in ids:
                if log_sum(self._log_weights + self._log_started(np.array([item]), None)) == -np.inf:
                    return ZeroProbabilityError(f"item {item} was given, and it can never occur; leave it out")
            return never_together(len(ids))
        if self._is_left_out(ids, size):
            return ImpossibleSizeError("this distribution leaves out the empty set; ask for at least one item")
        if size > self.max_size:
            return self._too_large(size)
        among = f" that contain the {len(ids)} given items" if len(ids) else ""
        even = (
            " (a purely skew kernel has sets of even size only)"
            if self.size_distribution()[1::2].max(initial=0.0) < ROUNDED
            else ""
        )
        return ImpossibleSizeError(
            f"sets of size {size}{among} have probability zero{even}; choose another size, see size_distribution()"
        )

    def _too_large(self, size: int) -> ImpossibleSizeError:
        """Return the error for a size that is larger than all sets."""
        return ImpossibleSizeError(f"no set is larger than {self.max_size} items; size {size} was asked for")

    @property
    def chance(self) -> Estimate:
        """P(limits | given, size), of a law under limits; 1 of any other."""
        return Estimate(1.0, 0.0, exact=True)

    def _inclusion_estimates(self, n_samples: int, rng: RngLike) -> Estimate:
        """Return P(a ∈ S) of every item, exactly if that can be, and otherwise from samples."""
        return Estimate(self.inclusion_probabilities(), np.zeros(self.n_items), exact=True)

    def _sets(self, baskets: Baskets | Sequence[Items]) -> Baskets:
        """Return sets of items of this catalogue as baskets."""
        if not isinstance(baskets, Baskets):
            return Baskets.from_lists([check_items(items, self, "baskets") for items in baskets], n_items=self.n_items)
        if baskets.n_items != self.n_items:
            raise InvalidInputError(
                f"must be over the {self.n_items} items of the model; they are over {baskets.n_items}. Create them with n_items= or "
                "the labels of the model",
                argument="baskets",
            )
        return baskets


def is_nothing(value: object) -> bool:
    """Return whether a condition is an empty list."""
    return hasattr(value, "__len__") and not len(value)


def each(values: object, n: int) -> list[object]:
    """Return one value for each of n baskets: those of a column, or the same for all."""
    return list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values] * n
