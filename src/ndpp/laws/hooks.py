"""What each kind of law says for itself, the *hooks*, and the numbers that follow from them for all kinds.

Hooks answer for all components at a time. Those with a default have a faster or better one in some kinds of laws.

Weights are relative to one unit per distribution: log det(I + L) is the weight of all sets of a kernel, and one that of a mixture.

A distribution may leave out the empty set, as those learned from baskets do (``nonempty``): P_c(S) is then that of the hooks divided by
P_c(S ≠ ∅) = 1 − 1/Z_c, where Z_c is the weight of all sets relative to the empty one. The hooks know nothing of it; with
w_c / P_c(S ≠ ∅) in place of the weights (``_free_weights``, ``_log_weights``) they are right for all sets but the empty one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np

from ndpp._memory import Memory
from ndpp._types import BoolArray, FloatArray, IntArray, Items, cached_property
from ndpp._validation import check_items, frozen
from ndpp.baskets import Baskets
from ndpp.laws.ask import NO_ITEMS
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.changes import Alike
from ndpp.laws.frame import FeatureMap, Frame, of_components
from ndpp.laws.gate import Gate
from ndpp.laws.header import ModelHeader
from ndpp.laws.part import Part, Parts, SizedPart
from ndpp.laws.precision import say_precision
from ndpp.laws.scoring import Scoring
from ndpp.linalg.logs import log_sum
from ndpp.linalg.scaling import EPS
from ndpp.linalg.schur import MAX_LOSS

MIN_NONEMPTY_PROBABILITY = 1e-3
"""The sizes of a component with a smaller P_c(S ≠ ∅) are computed with raised odds, as 1 − P_c(∅) has lost digits."""
RARE_NONEMPTY = "the probabilities of sets that are not empty, which are rare,"
NEGLIGIBLE_FOR_SIZES = 1e-9
"""Components of a smaller posterior given an item do not count for the sizes of its sets; those left out have C times as much."""


class Hooks(ABC):
    """The part of :class:`~ndpp.laws.law.Law` that kinds of laws implement, and what follows from it."""

    catalogue: Catalogue
    frame: Frame
    _known: dict[str, Any]
    """What was computed of the components (:class:`~ndpp.laws.frame.of_components`)."""
    given: IntArray = NO_ITEMS
    """Items that all sets contain."""
    _memory: ClassVar[int] = 256 * 2**20
    """Default for the budget of :attr:`memory`."""

    # -- the frame: what a law has beside its components -----------------------------------------------------------------------

    @property
    def weights(self) -> FloatArray:
        """The probabilities of the components."""
        return self.frame.weights

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the components, if they have any."""
        return self.frame.names

    @property
    def nonempty(self) -> bool:
        """Whether the empty set is left out."""
        return self.frame.nonempty

    @property
    def gate(self) -> Gate | None:
        """How the weights depend on context, if they do; see :meth:`at`."""
        return self.frame.gate

    @property
    def features(self) -> FeatureMap | None:
        """What features of items say about new ones, if it was learned."""
        return self.frame.features

    _fields: ClassVar[tuple[str, ...]]
    """Names of all that a law of this kind is made of, ``catalogue`` and ``frame`` among them."""

    def _again(self, **changes: object) -> Self:
        """Return a law with the fields of this one, but for some, which need no checks; what is known of the same components stays."""
        made, same = object.__new__(type(self)), changes.keys() <= {"frame", "catalogue"}
        known = {"_known": self._known if same else {}}
        vars(made).update({name: getattr(self, name) for name in self._fields} | known | changes)
        return made

    def framed(self, frame: Frame) -> Self:
        """Return the same components in another frame."""
        return self._again(frame=frame)

    def named(self, catalogue: Catalogue) -> Self:
        """Return the same law over a catalogue of as many items."""
        return self._again(catalogue=catalogue)

    @property
    def memory(self) -> Memory:
        """What is kept for the next call. Laws of the same components share it; files, pickles and copies do not have it."""
        found: Memory | None = vars(self).get("_remembered")
        return vars(self).setdefault("_remembered", Memory(self._memory)) if found is None else found

    def _remembering(self, made: Self, memory: Memory | None = None) -> Self:
        """Return a law of the same components, which shares the memory of this one; one of others has a part of it."""
        vars(made)["_remembered"] = self.memory if memory is None else memory
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_remembered"}

    # -- the items -------------------------------------------------------------------------------------------------------------

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        return self.catalogue.n_items

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the items."""
        return self.catalogue.labels

    def ids(self, labels: Sequence[str], *, unknown: str = "error") -> IntArray:
        """Return the ids of items named by their labels; ``unknown="skip"`` leaves out those that are not in the catalogue."""
        return self.catalogue.ids(labels, unknown=unknown)

    @property
    def support(self) -> IntArray:
        """Items that may occur, ascending; others never do."""
        return np.arange(self.n_items)

    def rows_of(self, items: Items, name: str = "items") -> IntArray:
        """Return the positions of items in the support."""
        return check_items(items, self, name)

    def one_basket(self, ids: IntArray) -> Baskets:
        """Return distinct items of the catalogue as a batch of one basket."""
        return Baskets._trusted(np.array([0, len(ids)]), np.sort(ids), self.n_items, None)

    # -- hooks: weights of sets, for all components at a time ------------------------------------------------------------------

    @abstractmethod
    def _log_whole(self, baskets: Baskets) -> FloatArray:
        """Return the log weight of each set in each component, shape (len(baskets), C)."""

    @abstractmethod
    def _log_started(self, ids: IntArray, size: int | None) -> FloatArray:
        """Return the log weight, in each component, of all sets that contain ``ids``, of one size or of any."""

    def log_normalizers(self) -> FloatArray:
        """Return log Z_c of each component: the log weight of all sets, relative to that of the empty one."""
        return self._log_started(NO_ITEMS, None) - self._log_whole_of(NO_ITEMS)

    @property
    def _log_unit(self) -> float:
        """Log of the weight of all sets of a component, the empty one included."""
        return 0.0

    def _log_whole_of(self, ids: IntArray) -> FloatArray:
        """Return the log weight of one set in each component."""
        return np.asarray(self._log_whole(self.one_basket(ids))[0])

    def _log_sizes(self, size: int) -> FloatArray:
        """Return the log weight of all sets of one size in each component."""
        return self._log_started(NO_ITEMS, size)

    @property
    def largest(self) -> IntArray:
        """The size of the largest set of each component, or a bound of it."""
        return np.full(len(self.weights), self.n_items)

    @property
    def max_size(self) -> int:
        """No sample is larger."""
        return int(self.largest[self.weights > 0].max())

    # -- hooks: other distributions of the same kind ---------------------------------------------------------------------------

    @abstractmethod
    def _condition(self, ids: IntArray) -> Self:
        """Return the distribution of the remaining items, given that ``ids``, at least one, are in."""

    @abstractmethod
    def _tilt(self, ids: IntArray, factors: FloatArray | None) -> Self:
        """Return P_c(S) Π_{i∈S} s_i, normalised, of sets of the items ``ids``, ascending, with factors s > 0 (None: 1), in any frame."""

    @abstractmethod
    def _with_alike(self, alike: Sequence[Alike]) -> Self:
        """Return the components with a new item for each of these at the end, at the level of those it is like, and any weights."""

    @abstractmethod
    def _only_items(self, keep: IntArray) -> Self:
        """Return the components over the items ``keep`` alone, ascending, given that no others are in, with any weights."""

    def prepared(self) -> Self:
        """Return the same distribution with what its first answers need at hand, for its file to keep: itself, if that is nothing."""
        return self

    @property
    def sizes_at_hand(self) -> bool:
        """Whether the distributions of sizes, also those of sets with an item, were computed before."""
        return False

    def normalized(self) -> Self:
        """Return the same distribution with its normalisers at hand, as files keep them; itself, if they are cheap."""
        return self

    def _as_ready(self, made: Self) -> Self:
        """Return another distribution with at hand what this one has, for its file to keep."""
        return made

    # -- hooks: files ----------------------------------------------------------------------------------------------------------

    parametrisation: ClassVar[str]
    """What files call distributions of this kind."""
    stored: ClassVar[tuple[set[str], set[str]]]
    """The arrays that their files must hold, and those that they may; {c} stands for the number of each component."""
    format_version = 8
    """The first version of the file format that holds such a distribution."""

    @abstractmethod
    def _arrays(self) -> dict[str, Any]:
        """Return the arrays of its file; those that are None are not written."""

    @classmethod
    @abstractmethod
    def _from_arrays(cls, arrays: dict[str, Any], header: ModelHeader) -> Any:
        """Return the distribution with these arrays; raise if there is none."""

    # -- hooks: faster ways, where there are any -------------------------------------------------------------------------------

    def _parts(self, ids: IntArray) -> Parts | None:
        """Return the components given items as parts, from which sizes, totals and inclusions follow; None if they have none."""
        return None

    def mean_covariances(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return Σ_c w_c Cov_c(a ∈ S, b ∈ S) for two lists of items that can occur, a ≠ b; if the empty set is left out, before that."""
        each, out = self._component_inclusions(), np.empty((len(first), len(second)))
        for (i, a), (j, b) in product(enumerate(first.tolist()), enumerate(second.tolist())):
            both = np.exp(self._log_started(np.unique([a, b]), None) - self._log_unit)
            out[i, j] = self._free_weights @ (both - each[:, a] * each[:, b])
        return out

    @property
    def _scoring(self) -> Scoring:
        """How items are scored, for a basket and in greedy runs: from probabilities, where there is no faster way."""
        return Scoring(self)

    @property
    def _as_ties(self) -> Any:
        """This law, if its components share ties, so that samplers share what they prepare of them; otherwise None."""
        return None

    @property
    def drawn_from(self) -> Any:
        """The law whose samplers draw from this one: itself, unless the same sets come faster from another form of it."""
        return self

    @property
    def as_kernel(self) -> Any:
        """This distribution, if it is that of a single kernel; None if not."""
        return None

    # -- what follows: weights -------------------------------------------------------------------------------------------------

    @cached_property
    def kept(self) -> FloatArray:
        """P_c(S ≠ ∅) of each component, were the empty set not left out; ones if it is not, and of components that have no other set."""
        found = self._some if self.nonempty else np.ones(len(self.weights))
        return frozen(np.where(found > 0, found, 1.0))

    @of_components
    def _some(self) -> FloatArray:
        """P_c(S ≠ ∅)."""
        found, parts = -np.expm1(-self.log_normalizers()), self._parts(NO_ITEMS) if self._is_rare.any() else None
        for c in np.flatnonzero(self._is_rare).tolist():
            if parts is None:
                say_precision(4 * EPS / max(float(found[c]), EPS), RARE_NONEMPTY)
            else:
                found[c] = float(self._typical(c, parts).size_distribution()[1:].sum())
        return found

    @of_components
    def _is_rare(self) -> BoolArray:
        """Whether a component is hardly ever not empty."""
        found = -np.expm1(-self.log_normalizers()) < MIN_NONEMPTY_PROBABILITY
        return found & (self.largest > 0) if found.any() else found

    def _typical(self, c: int, parts: Parts) -> Part | SizedPart:
        """Return component c, if it is hardly ever not empty with odds raised so that it has about one item."""
        return parts.sized(c, 1, float(parts.starts(1)[c])) if self._is_rare[c] else parts.at(c, 0.0)

    @cached_property
    def _free_weights(self) -> FloatArray:
        """w_c / P_c(S ≠ ∅)."""
        return self.weights / self.kept

    @cached_property
    def _log_weights(self) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self._free_weights))

    @property
    def log_all(self) -> float:
        """Log of the weight of all sets relative to that of the empty one, which counts."""
        return -log_sum(self._log_weights - self.log_normalizers())

    def _is_left_out(self, ids: IntArray, size: int | None = 0) -> bool:
        """Return whether all sets that contain ``ids``, of this size, are the empty set, and that is left out."""
        return self.nonempty and not len(ids) and size == 0

    def _log_masses(self, ids: IntArray, size: int | None) -> FloatArray:
        """Return the log weight, in each component, of all sets that contain ``ids``, of one size or of any, the empty set left out."""
        if self._is_left_out(ids, size):
            return np.full(len(self.weights), -np.inf)
        found = self._log_started(ids, size) if len(ids) or size is None else self._log_sizes(size)
        return found + np.log(self.kept) if self.nonempty and not len(ids) and size is None else found

    def _log_total(self, ids: IntArray, size: int | None) -> float:
        """Return the log weight of all sets that contain ``ids``, of one size or of any."""
        return log_sum(self._log_weights + self._log_masses(ids, size))

    def _has_sets(self, ids: IntArray, size: int) -> bool:
        """Return whether some set of that size, which may be the empty one, contains the items."""
        return self._log_total(ids, size) > -np.inf

    # -- what follows: sizes and inclusions ------------------------------------------------------------------------------------

    @of_components
    def _sizes(self) -> FloatArray:
        """P_c(|S| = k), shape (C, largest size + 1), the empty set included."""
        out, parts = np.zeros((len(self.weights), int(self.largest.max()) + 1)), self._parts(NO_ITEMS)
        if parts is None:
            return np.exp([self._log_started(NO_ITEMS, k) - self._log_unit for k in range(out.shape[1])]).T
        for c, row in enumerate(out):
            found = self._typical(c, parts).size_distribution()
            row[: len(found)] = found[: len(row)]
        return out

    def _joint_sizes(self, ids: IntArray) -> FloatArray:
        """Return P(a ∈ S, |S| = k) of each of these items a, ascending, for k = 0, 1, … as far as it matters.

        Of each item, components of negligible posterior are left out.
        """
        inside, parts = self._free_weights[:, None] * self._inclusions_of(ids), self._parts(NO_ITEMS)
        counted, out = inside > NEGLIGIBLE_FOR_SIZES * inside.sum(axis=0), np.zeros((len(ids), 1))
        for c in np.flatnonzero(counted.any(axis=1)).tolist():
            which = np.flatnonzero(counted[c])
            low, found = self._joint_of(c, ids[which], parts)
            out = np.pad(out, ((0, 0), (0, max(0, low + found.shape[1] - out.shape[1]))))
            out[which, low : low + found.shape[1]] += self._free_weights[c] * found
        return out

    def _joint_of(self, c: int, ids: IntArray, parts: Parts | None) -> tuple[int, FloatArray]:
        """Return the first size that matters, and P_c(a ∈ S, |S| = k) of some items for the sizes from it on."""
        if parts is not None:
            return self._typical(c, parts).joint(ids)
        sizes = range(int(self.largest[c]) + 1)
        found = [[self._log_started(np.array([a]), k)[c] if k else -np.inf for k in sizes] for a in ids.tolist()]
        return 0, np.exp(np.array(found) - self._log_unit)

    def _mean_inclusions(self, ids: IntArray, size: int | None, active: IntArray, shares: FloatArray) -> FloatArray:
        """Return Σ_c share_c P_c(a ∈ S | ids ⊆ S, |S| = size) over the ``active`` components, for items other than ``ids``."""
        out, left = np.zeros(self.n_items), None if size is None else size - len(ids)
        parts = self._parts(ids) if left else None
        if left == 0:
            return out
        if parts is None or left is None:
            return self._plain_inclusions(ids, size, active, shares)
        starts = parts.starts(left)
        for c, share in zip(active.tolist(), shares):
            sized = parts.sized(c, left, float(starts[c]))
            chances = sized.law.inclusions(left)
            if abs(chances.sum() - left) > MAX_LOSS * left:  # rounding matters: with more care
                out += share * self._careful_inclusions(c, ids, left + len(ids))
            else:
                out[sized.part.items] += share * chances
        return out

    def _careful_inclusions(self, c: int, ids: IntArray, size: int) -> FloatArray:
        """Return P_c(a ∈ S | ids ⊆ S, |S| = size) where rounding matters."""
        return self._plain_inclusions(ids, size, np.array([c]), np.ones(1))

    def _plain_inclusions(self, ids: IntArray, size: int | None, active: IntArray, shares: FloatArray) -> FloatArray:
        """Return the same item by item: P_c(ids ∪ a ⊆ S) / P_c(ids ⊆ S)."""
        out, before = np.zeros(self.n_items), self._log_started(ids, size)[active]
        for a in np.setdiff1d(np.arange(self.n_items), ids).tolist():
            out[a] = shares @ np.exp(self._log_started(np.append(ids, a), size)[active] - before)
        return out

    @of_components
    def inclusion_table(self) -> FloatArray:
        """P_c(a ∈ S), the empty set included, shape (n_items, C)."""
        return np.ascontiguousarray(self._component_inclusions().T)

    def _inclusions_of(self, ids: IntArray) -> FloatArray:
        """Return P_c(a ∈ S) of some items, shape (C, items), the empty set included."""
        return np.asarray(self._component_inclusions()[:, ids])

    def _component_inclusions(self) -> FloatArray:
        rows = [self._mean_inclusions(NO_ITEMS, None, np.array([c]), np.ones(1)) for c in range(len(self.weights))]
        return np.stack(rows)
