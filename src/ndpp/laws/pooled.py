"""Averages of laws, such as several fits to the same baskets, whose components are all of theirs.

P(S) = Σ_m w_m P_m(S) = Σ_m w_m Σ_c w_mc P_mc(S) is a mixture of mixtures. As a :class:`~ndpp.laws.mixture.Mixture` of laws its components
are the laws; here they are the missions of all of them, with the weights w_m w_mc, so that reasons, missions, context and maps are about
these. Hooks ask every law about its own components; sets are drawn from the mixture of laws.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import numpy as np

from ndpp._memory import Memory
from ndpp._types import FloatArray, IntArray, cached_property
from ndpp._validation import frozen
from ndpp.baskets import Baskets
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.frame import of_components
from ndpp.laws.header import ModelHeader
from ndpp.laws.law import Law
from ndpp.laws.mixture import Mixture, checked_frame
from ndpp.laws.mixture_scoring import PooledScoring
from ndpp.laws.part import Part, Parts
from ndpp.laws.scoring import Scoring


@dataclass(frozen=True, eq=False)
class Chained(Sequence[Any]):
    """Several sequences as one."""

    parts: tuple[Sequence[Any], ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return [self[c] for c in range(len(self))[which]]
        starts = np.cumsum([0, *map(len, self.parts)])
        c = range(len(self))[which]
        m = bisect_right(starts, c) - 1
        return self.parts[m][c - int(starts[m])]


class PooledMixture(Mixture):
    """An average of laws over one catalogue, whose components are those of all of them: see :meth:`Mixture.pooled`.

    Attributes
    ----------
    laws : tuple of Law
        What is averaged. Their weights do not matter: those of the components are in ``weights``.
    """

    laws: tuple[Any, ...]
    parametrisation = "pooled"
    format_version = 9
    _fields = "laws", "catalogue", "frame"

    def __init__(self, laws: Sequence[Law], weights: Any) -> None:
        mixture = Mixture(laws, weights)
        parts = [law.with_empty() for law in laws]
        self.laws, self._known, self.catalogue = tuple(parts), {}, mixture.catalogue
        whole = mixture.with_empty()
        own = np.concatenate([weight * part.weights for weight, part in zip(whole.weights, parts)])
        names = None
        if all(part.names for part in parts):
            names = tuple(chain.from_iterable(part.names or () for part in parts))
        names = names if names and len(set(names)) == len(names) else None
        self.frame = whole.frame._replace(weights=frozen(own), names=names)
        if mixture.nonempty:
            self.frame = self.without_empty().frame

    def __repr__(self) -> str:
        return f"<PooledMixture of {len(self.laws)} laws over {self.n_items} items, {len(self.weights)} components>"

    # -- the laws --------------------------------------------------------------------------------------------------------------

    @property
    def _starts(self) -> IntArray:
        """Where the components of each law begin, and their number."""
        return np.cumsum([0, *(len(law.weights) for law in self.laws)])

    @cached_property
    def _own(self) -> list[tuple[float, Law]]:
        """The weight of each law, and the law with its own weights; the laws as they are where that is zero."""
        out: list[tuple[float, Law]] = []
        for law, own in zip(self.laws, np.split(self._free_weights / self._free_weights.sum(), self._starts[1:-1])):
            total = float(own.sum())
            out.append((total, law._remembering(law.framed(law.frame.weighted(own / total))) if total else law))
        return out

    @cached_property
    def nested(self) -> Mixture:
        """The same distribution as a mixture of laws."""
        shares, laws = zip(*self._own)
        made = Mixture(laws, np.array(shares) / sum(shares))
        made = made.without_empty() if self.nonempty else made
        key = "nested", self.nonempty, self.weights.tobytes()
        vars(made)["_remembered"] = self.memory.remember(key, lambda: Memory(self.memory.budget))
        return made

    @property
    def members(self) -> list[Law]:
        """The laws with their own weights, as distributions of their own."""
        return [law.without_empty() if self.nonempty else law for _, law in self._own]

    @property
    def shares(self) -> FloatArray:
        """The probabilities of the laws."""
        return np.asarray(np.add.reduceat(self.weights, self._starts[:-1]))

    @property
    def drawn_from(self) -> Law:
        """The mixture of laws: each of them has a sampler of its own."""
        return self.nested

    @property
    def _made_of(self) -> Sequence[Law]:
        return self.laws

    def _all(self, found: Iterable[FloatArray]) -> FloatArray:
        return np.concatenate(list(found), axis=-1)

    # -- hooks of Law ----------------------------------------------------------------------------------------------------------

    @property
    def _plain_components(self) -> Sequence[Any]:
        return Chained(tuple(law._plain_components for law in self.laws))

    @of_components
    def largest(self) -> IntArray:
        """The size of the largest set of each component."""
        return np.concatenate([law.largest for law in self.laws])

    @of_components
    def _some(self) -> FloatArray:
        return self._all(law._some for law in self.laws)

    @of_components
    def _sizes(self) -> FloatArray:
        found = [law._sizes for law in self.laws]
        most = max(one.shape[1] for one in found)
        return np.concatenate([np.pad(one, ((0, 0), (0, most - one.shape[1]))) for one in found])

    def _joint_sizes(self, ids: IntArray) -> FloatArray:
        return np.asarray(self._free_weights.sum() * self.nested.with_empty()._joint_sizes(ids))

    def _log_sizes(self, size: int) -> FloatArray:
        return self._all(law._log_sizes(size) - law._log_unit for law in self.laws)

    def log_normalizers(self) -> FloatArray:
        """Return the log weight of all sets of each component."""
        return self._all(law.log_normalizers() for law in self.laws)

    def _log_whole(self, baskets: Baskets) -> FloatArray:
        return self._all(law._log_whole(baskets) - law._log_unit for law in self.laws)

    def _log_whole_of(self, ids: IntArray) -> FloatArray:
        return self._all(law._log_whole_of(ids) - law._log_unit for law in self.laws)

    def _log_started(self, ids: IntArray, size: int | None) -> FloatArray:
        return self._all(law._log_started(ids, size) - law._log_unit for law in self.laws)

    def _parts(self, ids: IntArray) -> Parts | None:
        found, starts = [law._parts(ids) for law in self.laws], self._starts
        parts = [one for one in found if one is not None]
        if len(parts) < len(found):
            return None

        def at(c: int, log_tilt: float) -> Part:
            m = bisect_right(starts, c) - 1
            found: Part = parts[m].at(c - int(starts[m]), log_tilt)
            return found

        return Parts(at, lambda size: self._all(one.starts(size) for one in parts), min(one.max_step for one in parts))

    def _mean_inclusions(self, ids: IntArray, size: int | None, active: IntArray, shares: FloatArray) -> FloatArray:
        out, starts = np.zeros(self.n_items), self._starts
        for (_, law), first, end in zip(self._own, starts, starts[1:]):
            if (own := (active >= first) & (active < end)).any():
                total = shares[own].sum()
                out += total * law._mean_inclusions(ids, size, active[own] - first, shares[own] / total)
        return out

    def _component_inclusions(self) -> FloatArray:
        return np.concatenate([law._component_inclusions() for law in self.laws])

    def mean_covariances(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return Σ_c w_c Cov_c(a ∈ S, b ∈ S) for two lists of items, a ≠ b: what ties add to the missions."""
        parts = (share * law.mean_covariances(first, second) for share, law in self._own if share)
        return np.asarray(self._free_weights.sum() * sum(parts))

    @property
    def _scoring(self) -> Scoring:
        return PooledScoring(self)

    # -- laws again ------------------------------------------------------------------------------------------------------------

    def _made(self, laws: Iterable[Law], **changes: object) -> Self:
        return self._again(laws=tuple(laws), **changes)

    def named(self, catalogue: Catalogue) -> Self:
        """Return the same average over a catalogue of as many items."""
        return self._made((law.named(catalogue) for law in self.laws), catalogue=catalogue)

    def _each(self, components: Iterable[Law]) -> Self:
        """Return the average of these laws instead, with any weights."""
        laws = tuple(components)
        return self._made(laws, catalogue=laws[0].catalogue)

    def _chosen(self, which: IntArray) -> Self:
        """Return some of the components, ascending, in any frame."""
        return self._made(law._chosen(own) for law, own in self._of_laws(which))

    def _of_laws(self, which: IntArray) -> Iterator[tuple[Any, IntArray]]:
        """Yield the laws of these components, and which of theirs they are."""
        starts = self._starts
        for law, first, end in zip(self.laws, starts, starts[1:]):
            if len(own := which[(which >= first) & (which < end)]):
                yield law, own - first

    def _given(self, ids: IntArray) -> Self:
        """Return all components given items, with the weights that they had."""
        return self._each(law._given(ids) for law in self.laws)

    def prepared(self) -> Self:
        """Return the same average of laws with what their first answers need at hand, for its file to keep."""
        return self._made(law.prepared() for law in self.laws)

    def normalized(self) -> Self:
        """Return the same average of laws with their normalisers at hand, as files keep them."""
        return self._made(law.normalized() for law in self.laws)

    def _as_ready(self, made: Any) -> Any:
        return made._each(law._as_ready(other) for law, other in zip(self.laws, made.laws))

    # -- files -----------------------------------------------------------------------------------------------------------------

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Any], header: ModelHeader) -> PooledMixture:
        weights, n_laws = arrays["component_weights"], len(header.components)
        found = Mixture._from_arrays(
            arrays | {"component_weights": np.full(n_laws, 1 / n_laws)}, header._replace(names=None)
        )
        made = cls(found._plain_components, found.weights)
        return made.framed(checked_frame(weights, len(made.weights), header.names))
