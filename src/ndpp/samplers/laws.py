"""Exact samples of every distribution but a kernel without a background, which :class:`Exact` draws from by itself.

Distribution: P(S) = Σ_c w_c P_c(S), with given and excluded items, unconstrained or of one size. Exact. A component is drawn, and then a
set from it (:mod:`.unions`): T, whose items come together, and R, whose items come by themselves; for families a pattern of each. What
draws from a component is prepared when it is first needed. Those used last stay in memory, at most ``memory`` bytes of them; for mixtures
with shared ties they stay with the mixture, whatever is given (:mod:`.shared`).

Cost per sample: that of its component, whatever n and the number of components.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial, singledispatch
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import numpy as np

from ndpp._stop import look
from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.errors import BudgetExceededError, ImpossibleSizeError
from ndpp.items.base import look_up_cdf
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.limits import Limits
from ndpp.laws.mixture import Mixture
from ndpp.laws.precision import check_given
from ndpp.laws.shared import SharedTies
from ndpp.samplers.base import Draw, Engine, Sampler, cuda_device, with_engine
from ndpp.samplers.exact import Exact
from ndpp.samplers.exact.ladder import Cache
from ndpp.samplers.item_by_item import ItemByItem
from ndpp.samplers.shared import Begun, begin
from ndpp.samplers.unions import Proposal, propose_from

COMPONENT_BYTES, ITEM_BYTES = 2 * 2**20, 100
"""Bytes that a prepared component takes for its cached matrices, and in addition per item."""
MAX_PROPOSALS = 10**5
"""Maximum number of proposals per draw."""
MAX_EXPECTED = 1e4
"""Largest acceptable mean number of proposals per draw."""
MANY = 1000
"""After so many proposals, their mean number is computed where it was not known. If it is too large, tilts are finer from then on, and if
it still is, the draw is refused."""
AVOIDED = 0.7
"""Largest mean number of excluded items in a set at which sets that have one are rejected."""
GIVE_UP_FACTOR = 50
"""A draw gives up after this many times the expected number of proposals, which has a probability of at most exp(−50)."""


class Drawer(Protocol):
    """What draws from one component."""

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return a set, as items of the catalogue, or None if it was rejected."""


class Store:
    """What ``make`` gives for each component; the ``most`` used last stay in memory. It is empty when unpickled."""

    def __init__(self, make: Any, most: int) -> None:
        self.make, self.most = make, most
        self._recent = lru_cache(most)(make)

    def __reduce__(self) -> Any:
        return Store, (self.make, self.most)

    def __getitem__(self, c: int) -> Drawer:
        made: Drawer = self._recent(c)
        return made


@dataclass(frozen=True, eq=False)
class LawSampler(Sampler):
    """What ``law.sample`` draws with.

    Attributes
    ----------
    given : array
        Items that are in every set, and not drawn.
    cdf : (C,) array
        Of the component to draw from; empty if nothing is left to draw.
    store : Store, Begun or tuple
        What draws from each component; of a kernel, its one ``Proposal``.
    avoid : array
        Items with which a set is rejected.
    expected_proposals : float
        Mean number of proposals per draw, in closed form, of a kernel; 1 for sets of any size. NaN where it is not known.

    Examples
    --------
    >>> import ndpp
    >>> mixture = ndpp.Mixture.tied([[1.0, 1.0, 0.0], [0.0, 1.0, 9.0]], np.eye(3), np.eye(3), [0.5, 0.5])
    >>> sampler = mixture.sampler(size=2)
    >>> sorted(set(map(tuple, sampler.sample(100, rng=0).baskets.to_lists())))
    [(0, 1), (1, 2)]
    """

    kernel: Law
    given: IntArray
    cdf: FloatArray = field(repr=False)
    store: Store | Begun | tuple[Proposal, ...] = field(repr=False)
    expected_proposals: float = np.nan
    engine: Engine | None = field(default=None, repr=False)
    avoid: IntArray = field(default_factory=lambda: np.empty(0, np.int64), repr=False)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted items of the catalogue."""
        if not len(self.cdf):
            return Draw(np.sort(self.given), {"proposals": 0, "rejections": 0})
        cdf, store = self.cdf, self.store
        for proposals in range(1, self._most_proposals + 1):
            look()
            if proposals == MANY and isinstance(store, Begun):
                if store.expected(cdf) > MAX_EXPECTED:
                    cdf, store = store.finer
                check_expected(store.expected(cdf))
            c = look_up_cdf(cdf, rng.random()) if len(cdf) > 1 else 0
            ids = store[c].propose(rng)
            if ids is not None and not (len(self.avoid) and np.isin(ids, self.avoid).any()):
                return Draw(
                    np.sort(np.concatenate([self.given, ids])), {"proposals": proposals, "rejections": proposals - 1}
                )
        raise BudgetExceededError(
            f"{proposals} sets were proposed, none of them of the wanted size. Ask for another size, see "
            "law.size_distribution(), or draw from one component",
            count=proposals,
        )

    @property
    def route(self) -> str:
        """How T, the part of a sample that costs most, is drawn from a kernel; "components" if each component has its own route."""
        return self.store[0].ties.route if isinstance(self.store, tuple) and self.store else "components"

    @property
    def _most_proposals(self) -> int:
        known = not np.isnan(self.expected_proposals)
        return int(GIVE_UP_FACTOR * self.expected_proposals) + 1 if known else MAX_PROPOSALS

    def items_of(self, rows: IntArray) -> IntArray:
        """Return the items of a draw, which are what is drawn."""
        return rows


def check_expected(expected: float) -> None:
    """Refuse draws that would take too many proposals."""
    if expected > MAX_EXPECTED:
        raise BudgetExceededError(
            f"sets of this size would need {expected:.3g} proposals per draw on average, above {MAX_EXPECTED:g}; "
            "ask for another size, see size_distribution(), or draw sets of any size",
            count=0,
        )


class Asked(NamedTuple):
    """What ``law.sampler`` is asked for; ``device`` is a CUDA device that is there, None for the CPU."""

    size: int | None
    given: Items
    exclude: Items
    memory: int
    device: str | None


def prepare(
    law: Law, *, size: int | None = None, given: Items = (), exclude: Items = (), memory: int,
    device: str | None = None, component: int | None = None,
) -> Sampler:  # fmt: skip
    """Prepare the exact sampler of a distribution. Parameters as in ``law.sampler``; ``component`` is a number."""
    check_size(law, given, size)
    found = cuda_device(device)  # a device that is not there is said once
    asked = Asked(size, given, exclude, memory, None if found is None else str(found))
    if component is None:
        return _prepare(law, asked)
    if isinstance(law, SharedTies) and asked.device is not None:  # these have an engine of their own
        return _prepare(law.only([component]), asked)
    return _prepare(law.components[component], asked)


def check_size(law: Law, given: Items, size: int | None) -> None:
    """Raise if only the empty set is asked for, and that is left out."""
    if law._is_left_out(ids := check_items(given, law, "given"), size):
        raise law._impossible(ids, size)


def remembered(law: Law, prepare: Callable[..., Sampler], options: dict[str, Any]) -> Sampler:
    """Return the sampler of ``prepare(law, **options)``, which stays with the law for the next call, within ``options["memory"]`` bytes.

    Not on a GPU; and mixtures with shared ties keep what draws from their components instead (:mod:`.shared`).
    """
    size, memory = options["size"], options["memory"]
    is_number = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
    if (
        isinstance(law, SharedTies)
        or options["device"] not in (None, "cpu")
        or not (size is None or is_number)
        or not isinstance(memory, int)
    ):
        return prepare(law, **options)
    given, excluded = check_items(options["given"], law, "given"), check_items(options["exclude"], law, "exclude")
    key: list[Any] = [size, memory, options.get("component"), given.tobytes(), np.sort(excluded).tobytes()]
    if "limits" in options:
        limits = Limits.of(options["limits"], law)
        key += [blake2b(part.tobytes()).digest() for part in (limits.values, limits.low, limits.high)] + [limits.texts]
    cache: Cache | None = law._drawers
    if cache is None or cache.memory != memory:
        cache = Cache(memory)
        object.__setattr__(law, "_drawers", cache)  # with two threads, one of their caches stays

    def make(prepare: Callable[..., Sampler] = prepare, **options: Any) -> Kept:
        # The sampler has a twin of the law: what the law keeps does not refer to it, so that it is freed with its last user.
        twin = object.__new__(type(law))
        vars(twin).update((name, value) for name, value in vars(law).items() if name != "_drawers")
        found = Kept(twin, prepare(twin, **options))
        for name, value in vars(twin).items():  # what was computed on the way
            vars(law).setdefault(name, value)
        return found

    def complete() -> Kept:
        # What does not depend on the given items is prepared once.
        check_size(law, given, size)
        any_set: Any = cache.remember("any set", partial(make, Exact.prepare, memory=memory), pinned=True).sampler
        return Kept(any_set.kernel, any_set.to_complete(given, size), any_set.index, any_set.ladder.shared)

    is_whole = options.get("component") is None and "limits" not in options and not len(excluded)
    is_plain = is_whole and isinstance(law, LowRankKernel) and law.background is None
    return cache.remember(tuple(key), complete if is_plain else partial(make, **options)).sampler


class Kept:
    """A sampler that stays with its law. What it caches while it draws counts, too, but not what it shares with others."""

    def __init__(self, law: Law, sampler: Sampler, *shared: Any) -> None:
        self.sampler, self._caches = sampler, list[Cache]()
        seen = {id(law), *(id(_owner(part)) for part in [*vars(law).values(), *shared])}
        self._fixed = _bytes_of(sampler, seen, self._caches)

    @property
    def n_bytes(self) -> int:
        """Bytes of the sampler, in addition to those of the law."""
        return self._fixed + sum(cache.own_bytes for cache in self._caches)


def _owner(array: Any) -> Any:
    return array if not isinstance(array, np.ndarray) or array.base is None else array.base


def _bytes_of(value: Any, seen: set[int], caches: list[Cache]) -> int:
    """Return the bytes of all arrays that a part of a sampler holds and that have not been seen yet; list its caches instead."""
    value = _owner(value)
    if id(value) in seen or isinstance(value, (str, Catalogue)):
        return 0
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Store):
        return value.most * COMPONENT_BYTES
    if isinstance(value, Cache):
        caches.append(value)
        return 0
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    if type(value).__module__.startswith("ndpp") and hasattr(value, "__dict__"):
        parts = [*parts, *vars(value).values()]
    return sum(_bytes_of(part, seen, caches) for part in parts)


@singledispatch
def _prepare(law: Law, asked: Asked) -> Sampler:
    ids, excluded = check_items(asked.given, law, "given"), check_items(asked.exclude, law, "exclude")
    return ItemByItem.prepare(law, size=asked.size, given=ids, exclude=excluded)


def _all_given(law: Law, ids: IntArray, size: int | None) -> LawSampler:
    """Return the sampler of the only set that is left: all items."""
    if size not in (None, len(ids)):
        raise ImpossibleSizeError(f"all {len(ids)} items are given; no set is larger")
    return LawSampler(law, ids, np.empty(0), (), 0.0)


@_prepare.register
def _kernel(kernel: LowRankKernel, asked: Asked) -> Sampler:
    """Prepare a kernel; refuse sets of a size that would take more than ``MAX_EXPECTED`` proposals on average."""
    if kernel.background is None:
        return Exact.prepare(kernel, **asked._asdict())
    narrowed, size = kernel.exclude(asked.exclude), asked.size
    ids = narrowed.catalogue_ids(narrowed.rows_of(asked.given, "given"))
    rest, tied = narrowed.given_alone(ids)
    if size is not None:
        check_given(size, len(ids))
    if rest is None:
        return _all_given(kernel, ids, size)
    alone = np.setdiff1d(ids, tied)
    size = None if size is None else size - len(alone)
    proposal = propose_from(rest, tied, size, asked.memory, asked.device)
    expected = float(np.exp(proposal.log_mass - rest.log_mass(tied, size)))
    check_expected(expected)
    return with_engine(LawSampler(kernel, alone, np.ones(1), (proposal,), expected), asked.device)


def _most_components(law: Law, memory: int) -> int:
    return max(1, min(len(law.weights), memory // (COMPONENT_BYTES + ITEM_BYTES * law.n_items)))


# -- mixtures of any kernels -------------------------------------------------------------------------------------------------


class ComponentSource(NamedTuple):
    """Makes the samplers of the components of any mixture."""

    mixture: Mixture
    asked: Asked

    def __call__(self, c: int) -> Sampler:
        """Return the sampler of component c, which rejects nothing."""
        return _prepare(self.mixture._plain_components[c], self.asked)


@_prepare.register
def _mixture(mixture: Mixture, asked: Asked) -> Sampler:
    ids, rest = check_items(asked.given, mixture, "given"), mixture.exclude(asked.exclude)
    rest.responsibilities(ids, size=asked.size)  # raises if there is no such set
    log_weights, most = rest._log_weights + rest._log_started(ids, asked.size), _most_components(rest, asked.memory)
    weights = np.exp(log_weights - log_weights.max())
    source = ComponentSource(rest, asked._replace(given=ids, exclude=(), memory=asked.memory // most))
    return with_engine(LawSampler(mixture, ids[:0], np.cumsum(weights), Store(source, most)), asked.device)


# -- mixtures with shared ties -----------------------------------------------------------------------------------------------


@_prepare.register
def _shared(mixture: SharedTies, asked: Asked) -> Sampler:
    """Weigh the components; refuse what cannot be drawn.

    Sets with excluded items are rejected if there are few of them, so that nothing has to be prepared for the others.
    """
    ids, excluded = check_items(asked.given, mixture, "given"), check_items(asked.exclude, mixture, "exclude")
    size = None if asked.size is None else check_given(asked.size, len(ids))
    left = mixture.largest_given(ids).max() - len(excluded)
    is_few = asked.device is None and left >= (size or 0) and not len(np.intersect1d(ids, excluded))
    if len(excluded) and is_few:
        weights, begun = begin(mixture, ids, size, asked.memory)
        if weights @ mixture.chances_alone(excluded).sum(axis=1) <= AVOIDED * weights.sum():
            return LawSampler(mixture, ids, np.cumsum(weights), begun, avoid=excluded)
    rest = mixture.exclude(excluded)
    # Given all items, ties have no conditional; families, given all theirs, still have one.
    if rest.patterns is None and len(ids) == rest.base.n_rows:
        rest.responsibilities(ids)  # raises if they never occur together
        return _all_given(mixture, ids, size)
    weights, begun = begin(rest, ids, size, asked.memory)
    return with_engine(LawSampler(mixture, ids, np.cumsum(weights), begun), asked.device)
