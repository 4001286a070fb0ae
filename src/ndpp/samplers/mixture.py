"""Exact samples of a mixture of kernels, unconstrained or of one size.

Law: P(S) = Σ_c w_c P_c(S), given items and exclusions allowed. Exact. A component is drawn, and then a set of it: by the component's own
sampler, which is prepared when it is first needed. At most ``memory`` bytes of prepared components are kept, those used last.

Sets of one size of a mixture with shared ties: the probability of the size in each component would take long to compute, and is not
needed. Component c is proposed with probability ∝ w_c ρ_c^(−k) det(I + ρ_c L_c) / Z_c, then a set of the kernel ρ_c L_c, which is accepted
if it has k items (:class:`~ndpp.samplers.background.SizedUnion`); what is rejected includes the component.

Cost of a sample: that of its component, whatever n and the number of components.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.errors import BudgetExceededError, ImpossibleSizeError, InvalidInputError
from ndpp.items.base import look_up_cdf
from ndpp.laws.background import check_given
from ndpp.laws.mixture import MEMORY, Mixture
from ndpp.laws.tied import TiedMixture
from ndpp.samplers.background import SizedUnion
from ndpp.samplers.base import Draw, Sampler

COMPONENT_BYTES, ITEM_BYTES = 2 * 2**20, 100
"""Memory that a prepared component takes for its cached matrices, and per item."""
MAX_PROPOSALS = 10**5
"""A draw gives up after so many proposals."""


class Drawer(Protocol):
    """What draws from one component."""

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return a set, or None if it was rejected."""


class Store:
    """What ``make`` gives for each component, the last ``most`` of them kept. It forgets when pickled."""

    def __init__(self, make: Callable[[int], Drawer], most: int) -> None:
        self.make, self.most = make, most
        self._kept: OrderedDict[int, Drawer] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return Store, (self.make, self.most)

    def __getitem__(self, c: int) -> Drawer:
        with self._lock:
            if c in self._kept:
                self._kept.move_to_end(c)
                return self._kept[c]
        made = self.make(c)
        with self._lock:
            self._kept[c] = made
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return made


class Whole(NamedTuple):
    """The sampler of a component, which rejects nothing."""

    sampler: Sampler

    def propose(self, rng: np.random.Generator) -> IntArray:
        """Return a set, as items of the catalogue."""
        return self.sampler.kernel.catalogue_ids(self.sampler.draw(rng).rows)


class Tied(NamedTuple):
    """A component of a mixture with shared ties."""

    mixture: TiedMixture
    union: SizedUnion

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return a set, as items of the catalogue, or None."""
        rows = self.union.propose(rng)
        return None if rows is None else self.mixture.base.catalogue_ids(rows)


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
    ) -> MixtureSampler:
        """Weigh the components; refuse what cannot be drawn. Parameters as in ``mixture.sample``."""
        if device not in (None, "cpu"):
            raise InvalidInputError(
                f"mixtures are drawn on the CPU; got device={device!r}. A component may be drawn there: mixture.sample(component=…)"
            )
        excluded, ids = check_items(exclude, mixture, "exclude"), check_items(given, mixture, "given")
        size = None if size is None else check_given(size, len(ids))
        rest = mixture.exclude(excluded) if len(excluded) else mixture
        n_kept = max(1, min(len(rest.weights), memory // (COMPONENT_BYTES + ITEM_BYTES * rest.n_items)))
        if not isinstance(rest, TiedMixture):
            weights = rest.responsibilities(ids, size=size)
            make = partial(_whole, rest, size, ids, memory // n_kept)
            return cls(mixture, ids[:0], np.cumsum(weights), Store(make, n_kept))
        return cls._tied(mixture, rest, size, ids, memory // n_kept, n_kept)

    @classmethod
    def _tied(
        cls, mixture: Mixture, rest: TiedMixture, size: int | None, ids: IntArray, memory: int, n_kept: int
    ) -> MixtureSampler:
        if len(ids):
            rest.responsibilities(ids)  # raises if they never occur together
        if len(ids) == rest.base.n_rows:
            if size not in (None, len(ids)):
                raise ImpossibleSizeError(f"all {len(ids)} items are given; no set is larger")
            return cls(mixture, ids, np.empty(0), Store(partial(_tied, rest, None, None, memory), 1))
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
        return cls(mixture, ids, np.cumsum(weights), Store(partial(_tied, rest, left, log_tilt, memory), n_kept))

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


def _whole(mixture: Mixture, size: int | None, ids: IntArray, memory: int, c: int) -> Whole:
    return Whole(mixture.components[c].sampler(size=size, given=ids, memory=memory))


def _tied(mixture: TiedMixture, size: int | None, log_tilt: FloatArray | None, memory: int, c: int) -> Tied:
    kernel = mixture.components.tilted(c, 0.0 if log_tilt is None else float(log_tilt[c]))
    return Tied(mixture, SizedUnion.of(kernel, np.empty(0, np.int64), size, memory))
