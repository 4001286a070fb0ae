"""Exact samples of a mixture of kernels, unconstrained or of one size.

Distribution: P(S) = Σ_c w_c P_c(S), with given and excluded items. Exact. A component is drawn, and then a set from it, by the component's
own sampler, which is prepared when it is first needed. The samplers used last stay in memory, at most ``memory`` bytes of them.

Sets of one size of a mixture with shared ties: the probability of the size in each component would take long to compute, and is not
needed. Component c is proposed with probability ∝ w_c ρ_c^(−k) det(I + ρ_c L_c) / Z_c, then a set of the kernel ρ_c L_c, which is accepted
if it has k items (:class:`~ndpp.samplers.background.SizedUnion`); what is rejected includes the component.

Cost per sample: that of its component, whatever n and the number of components. On a GPU, mixtures with shared ties are drawn by an engine
of their own (:mod:`ndpp.samplers.gpu.mixture`), and others component by component (:class:`ComponentEngine`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

from ndpp._types import AnyArray, FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.errors import BudgetExceededError, ImpossibleSizeError
from ndpp.items.base import look_up_cdf
from ndpp.laws.background import BackgroundKernel
from ndpp.laws.families import FamilyMixture
from ndpp.laws.mixture import MEMORY, Mixture
from ndpp.laws.precision import check_given
from ndpp.laws.tied import TiedMixture
from ndpp.samplers._device import cuda_device, with_engine
from ndpp.samplers.background import SizedUnion
from ndpp.samplers.base import Draw, Draws, Engine, Sampler, joined

Tied: TypeAlias = TiedMixture | FamilyMixture
COMPONENT_BYTES, ITEM_BYTES = 2 * 2**20, 100
"""Bytes that a prepared component takes for its cached matrices, and in addition per item."""
MAX_PROPOSALS = 10**5
"""Maximum number of proposals per draw."""
ENGINE_BATCH = 2**17
"""Samples of a mixture that are drawn together on a GPU, component by component."""
COMPONENT_KEY = 0x9E3779B97F4A7C15
"""What tells the random numbers of the components, and of their choice, from one another."""


class Drawer(Protocol):
    """What draws from one component."""

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return a set, or None if it was rejected."""


class Store:
    """What ``make`` gives for each component; the ``most`` used last stay in memory. It is empty when unpickled."""

    def __init__(self, make: Any, most: int) -> None:
        self.make, self.most = make, most
        self._recent: OrderedDict[int, Drawer] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return Store, (self.make, self.most)

    def __getitem__(self, c: int) -> Drawer:
        with self._lock:
            if c in self._recent:
                self._recent.move_to_end(c)
                return self._recent[c]
        made: Drawer = self.make(c)
        with self._lock:
            self._recent[c] = made
            while len(self._recent) > self.most:
                self._recent.popitem(last=False)
        return made


class WholeSets(NamedTuple):
    """Draws with the sampler of a component, which rejects nothing."""

    sampler: Sampler

    def propose(self, rng: np.random.Generator) -> IntArray:
        """Return a set, as items of the catalogue."""
        return self.sampler.kernel.catalogue_ids(self.sampler.draw(rng).rows)


class TiedSets(NamedTuple):
    """Draws from a component of a mixture with shared ties."""

    mixture: TiedMixture
    union: SizedUnion

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return a set, as items of the catalogue, or None."""
        rows = self.union.propose(rng)
        return None if rows is None else self.mixture.base.catalogue_ids(rows)


class KernelSource(NamedTuple):
    """Makes what draws from a component of any mixture."""

    mixture: Mixture
    size: int | None
    given: IntArray
    memory: int
    device: str | None = None

    def sampler(self, c: int) -> Sampler:
        """Return the sampler of a component."""
        kernel = self.mixture.components[c]
        made: Sampler = kernel.sampler(size=self.size, given=self.given, memory=self.memory, device=self.device)
        return made

    def __call__(self, c: int) -> WholeSets:
        """Return what draws from component c."""
        return WholeSets(self.sampler(c))


class TiedSource(NamedTuple):
    """Makes what draws from a component of a mixture with shared ties: from ρ_c L_c, sets of ``size`` items (None: of any size)."""

    mixture: TiedMixture
    size: int | None
    log_tilt: FloatArray | None
    memory: int

    def kernel(self, c: int) -> BackgroundKernel:
        """Return ρ_c L_c."""
        return self.mixture.single(c, 0.0 if self.log_tilt is None else float(self.log_tilt[c]))

    def __call__(self, c: int) -> TiedSets:
        """Return what draws from component c."""
        union = SizedUnion.of(self.kernel(c), np.empty(0, np.int64), self.size, self.memory)
        return TiedSets(self.mixture, union._replace(by_clock=union.ties.route != "nodes"))


@dataclass(frozen=True, eq=False)
class MixtureSampler(Sampler):
    """What ``mixture.sample`` draws with.

    Attributes
    ----------
    given : array
        Items that are in every set, and not drawn.
    cdf : (C,) array
        Of the component to draw from; empty if nothing is left to draw.

    Examples
    --------
    >>> import ndpp
    >>> mixture = ndpp.Mixture.tied([[1.0, 1.0, 0.0], [0.0, 1.0, 9.0]], np.eye(3), np.eye(3), [0.5, 0.5])
    >>> sampler = mixture.sampler(size=2)
    >>> sorted(set(map(tuple, sampler.sample(100, rng=0).baskets.to_lists())))
    [(0, 1), (1, 2)]
    """

    kernel: Mixture  # type: ignore[assignment]
    given: IntArray
    cdf: FloatArray = field(repr=False)
    store: Store = field(repr=False)
    engine: Engine | None = field(default=None, repr=False)
    _engine: ClassVar[str] = "ndpp.samplers.gpu.mixture:TiedEngine"  # imports this module, so it is loaded by name

    @classmethod
    def prepare(
        cls,
        mixture: Mixture,
        *,
        size: int | None = None,
        given: Items = (),
        exclude: Items = (),
        memory: int = MEMORY,
        device: str | None = None,
        component: int | None = None,
    ) -> Sampler:
        """Weigh the components; refuse what cannot be drawn. Parameters as in ``mixture.sample``; ``component`` is a number."""
        found = cuda_device(device)
        device = None if found is None else str(found)
        if component is not None:
            if device is None or not isinstance(mixture, TiedMixture):
                kernel = mixture.components[component]
                made: Sampler = kernel.sampler(size=size, given=given, exclude=exclude, memory=memory, device=device)
                return made
            mixture = mixture.only([component])
        excluded, ids = check_items(exclude, mixture, "exclude"), check_items(given, mixture, "given")
        size = None if size is None else check_given(size, len(ids))
        rest = mixture.exclude(excluded) if len(excluded) else mixture
        n_recent = max(1, min(len(rest.weights), memory // (COMPONENT_BYTES + ITEM_BYTES * rest.n_items)))
        if isinstance(rest, (TiedMixture, FamilyMixture)):
            sampler = cls._shared(mixture, rest, size, ids, memory // n_recent, n_recent)
            return with_engine(sampler, device, cls._engine)
        weights = rest.responsibilities(ids, size=size)
        source = KernelSource(rest, size, ids, memory // n_recent, device)
        sampler = cls(mixture, ids[:0], np.cumsum(weights), Store(source, n_recent))
        return sampler if device is None else replace(sampler, engine=ComponentEngine(sampler))

    @classmethod
    def _shared(
        cls, mixture: Mixture, rest: Tied, size: int | None, ids: IntArray, memory: int, n_recent: int
    ) -> MixtureSampler:
        if isinstance(rest, TiedMixture) and len(ids) == rest.base.n_rows:
            rest.responsibilities(ids)  # raises if they never occur together
            if size not in (None, len(ids)):
                raise ImpossibleSizeError(f"all {len(ids)} items are given; no set is larger")
            return cls(mixture, ids, np.empty(0), Store(cls._source(rest, None, None, memory), 1))
        rest = rest.condition(ids)  # type: ignore[assignment]
        left, log_tilt, log_mass = None, None, np.zeros(len(rest.weights))
        if size is not None:
            left = size - len(ids)
            if left > rest.max_size:
                raise ImpossibleSizeError(f"no set is larger than {rest.max_size + len(ids)} items; got size {size}")
            log_tilt = rest.tilts(left)
            log_mass = rest.log_normalizers(log_tilt) - rest.log_normalizers() - left * log_tilt
            log_mass[rest.largest < left] = -np.inf
        weights = rest.weights * np.exp(log_mass - log_mass[rest.weights > 0].max())
        return cls(mixture, ids, np.cumsum(weights), Store(cls._source(rest, left, log_tilt, memory), n_recent))

    @classmethod
    def _source(cls, mixture: Any, size: int | None, log_tilt: FloatArray | None, memory: int) -> Any:
        """Return what makes the drawer of a component."""
        return TiedSource(mixture, size, log_tilt, memory)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted items of the catalogue."""
        if not len(self.cdf):
            return Draw(np.sort(self.given), {"proposals": 0, "rejections": 0})
        for proposals in range(1, MAX_PROPOSALS + 1):
            c = int(look_up_cdf(self.cdf, rng.random(1))[0])
            ids = self.store[c].propose(rng)
            if ids is not None:
                return Draw(
                    np.sort(np.concatenate([self.given, ids])), {"proposals": proposals, "rejections": proposals - 1}
                )
        raise BudgetExceededError(
            f"{proposals} sets were proposed, none of them of the wanted size. Ask for another size, see "
            "mixture.size_distribution(), or draw from one component",
            count=proposals,
        )


@dataclass(frozen=True, eq=False)
class ComponentEngine:
    """Draws on a GPU from a mixture of any kernels: the samples of each component together, by the component's own engine.

    Sample i is number j of its component, where j of the samples before i have the same component; so it depends on seed and i alone.
    """

    sampler: MixtureSampler

    def draws(self, key: AnyArray, first: int, n_samples: int) -> Iterator[Draws]:
        """Yield the samples first, first + 1, … in order, some at a time."""
        uniforms = np.random.Generator(np.random.Philox(key=_flipped(key, 0))).random(first + n_samples)
        which, drawn = look_up_cdf(self.sampler.cdf, uniforms), np.zeros(len(self.sampler.cdf), np.int64)
        np.add.at(drawn, which[:first], 1)
        for start in range(first, first + n_samples, ENGINE_BATCH):
            yield self._together(key, which[start : min(start + ENGINE_BATCH, first + n_samples)], drawn)

    def _together(self, key: AnyArray, which: IntArray, drawn: IntArray) -> Draws:
        """Draw a sample of each of these components, of which as many as ``drawn`` says were drawn before; count them there."""
        source = self.sampler.store.make
        assert isinstance(source, KernelSource)
        parts: list[Draws] = []
        present, counts = np.unique(which, return_counts=True)
        for c, count in zip(present.tolist(), counts.tolist()):
            sampler, own_key, before = source.sampler(c), _flipped(key, c + 1), int(drawn[c])
            if sampler.engine is not None:
                parts += sampler.engine.draws(own_key, before, count)
            else:
                parts.append(sampler._collect(sampler.draw_batch(own_key, range(before, before + count))))
            drawn[c] += count
        names = set.intersection(*(set(part.info) for part in parts))
        together = joined([Draws(part.baskets, {name: part.info[name] for name in names}) for part in parts])
        order = np.argsort(np.argsort(which, kind="stable"), kind="stable")
        return Draws(together.baskets[order], {name: values[order] for name, values in together.info.items()})


def _flipped(key: AnyArray, number: int) -> AnyArray:
    """Return the key of a family of streams of their own."""
    return np.asarray(key, np.uint64) ^ np.array([0, (number + 1) * COMPONENT_KEY % 2**64], np.uint64)
