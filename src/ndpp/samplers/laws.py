"""Exact samples of every distribution but a kernel without a background, which :class:`Exact` draws from by itself.

Distribution: P(S) = Σ_c w_c P_c(S), with given and excluded items, unconstrained or of one size. Exact. A component is drawn, and then a
set from it (:mod:`.unions`): T, whose items come together, and R, whose items come by themselves; for families a pattern of each. What
draws from a component is prepared when it is first needed. Those used last stay in memory, at most ``memory`` bytes of them.

Sets of one size of a mixture with shared ties: the probability of the size in each component would take long to compute, and is not
needed. Component c is proposed with probability ∝ w_c ρ_c^(−k) det(I + ρ_c L_c) / Z_c, then a set of the kernel ρ_c L_c, which is accepted
if it has k items; what is rejected includes the component.

Cost per sample: that of its component, whatever n and the number of components.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, singledispatch
from typing import Any, NamedTuple, Protocol

import numpy as np

from ndpp._stop import look
from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.errors import BudgetExceededError, ImpossibleSizeError, InvalidInputError
from ndpp.items.base import look_up_cdf
from ndpp.laws.families import FamilyMixture
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.mixture import Mixture
from ndpp.laws.patterns import scaled
from ndpp.laws.precision import check_given
from ndpp.laws.shared import SharedTies
from ndpp.laws.tied import TiedMixture
from ndpp.samplers.base import Draw, Engine, Sampler, cuda_device, with_engine
from ndpp.samplers.exact import Exact
from ndpp.samplers.unions import FamilyUnion, Proposal, SizedUnion, propose_from

COMPONENT_BYTES, ITEM_BYTES = 2 * 2**20, 100
"""Bytes that a prepared component takes for its cached matrices, and in addition per item."""
MAX_PROPOSALS = 10**5
"""Maximum number of proposals per draw."""
MAX_EXPECTED = 1e4
"""Largest acceptable mean number of proposals per draw, where it is known."""
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
        self._recent: Any = None if make is None else lru_cache(most)(make)

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
    store: Store = field(repr=False)
    expected_proposals: float = np.nan
    engine: Engine | None = field(default=None, repr=False)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted items of the catalogue."""
        if not len(self.cdf):
            return Draw(np.sort(self.given), {"proposals": 0, "rejections": 0})
        for proposals in range(1, self._most_proposals + 1):
            look()
            c = int(look_up_cdf(self.cdf, rng.random(1))[0]) if len(self.cdf) > 1 else 0
            ids = self.store[c].propose(rng)
            if ids is not None:
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
        sets = self.store.make
        return sets.proposal.ties.route if isinstance(sets, KernelSets) else "components"

    @property
    def _most_proposals(self) -> int:
        known = not np.isnan(self.expected_proposals)
        return int(GIVE_UP_FACTOR * self.expected_proposals) + 1 if known else MAX_PROPOSALS

    def items_of(self, rows: IntArray) -> IntArray:
        """Return the items of a draw, which are what is drawn."""
        return rows


@singledispatch
def prepare(law: Law, **options: Any) -> Sampler:
    """Prepare the exact sampler of a distribution. Parameters as in ``law.sampler``; ``component`` is a number."""
    raise InvalidInputError(f"samples are drawn from kernels and mixtures; got a {type(law).__name__}")


def _cuda(device: str | None) -> str | None:
    """Return the CUDA device that is there, None for the CPU; what is not there is said once."""
    found = cuda_device(device)
    return None if found is None else str(found)


# -- kernels -----------------------------------------------------------------------------------------------------------------


class KernelSets(NamedTuple):
    """Draws from a kernel with a background."""

    kernel: LowRankKernel
    proposal: Proposal

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return a set, as items of the catalogue, or None."""
        rows = self.proposal.propose(rng)
        return None if rows is None else self.kernel.catalogue_ids(rows)

    def __call__(self, c: int) -> KernelSets:
        """Return what draws from the only component."""
        return self


@prepare.register
def _kernel(
    kernel: LowRankKernel, *, size: int | None = None, given: Items = (), exclude: Items = (), memory: int,
    device: str | None = None, component: int | None = None,
) -> Sampler:  # fmt: skip
    """Prepare a kernel; refuse sets of a size that would take more than ``MAX_EXPECTED`` proposals on average."""
    if kernel.background is None:
        return Exact.prepare(kernel, size=size, given=given, exclude=exclude, memory=memory, device=device)
    device = _cuda(device)
    narrowed = kernel.exclude(exclude)
    ids = narrowed.catalogue_ids(narrowed.rows_of(given, "given"))
    rest, tied = narrowed.given_alone(ids)
    alone = np.setdiff1d(ids, tied)
    if size is not None:
        size = check_given(size, len(ids)) - len(alone)
    if rest is None and size in (None, 0):
        return LawSampler(kernel, alone, np.empty(0), Store(None, 1), 0.0)
    if rest is None:
        raise ImpossibleSizeError(f"all {len(ids)} items are given; no set is larger")
    proposal = propose_from(rest, tied, size, memory, device)
    expected = float(np.exp(proposal.log_mass - rest.log_mass(tied, size)))
    if expected > MAX_EXPECTED:
        raise BudgetExceededError(
            f"sets of this size would need {expected:.3g} proposals per draw on average, above {MAX_EXPECTED:g}; "
            "ask for another size, see kernel.size_distribution(), or draw sets of any size",
            count=0,
        )
    sampler = LawSampler(kernel, alone, np.ones(1), Store(KernelSets(rest, proposal), 1), expected)
    return with_engine(sampler, device)


# -- mixtures of any kernels -------------------------------------------------------------------------------------------------


class WholeSets(NamedTuple):
    """Draws with the sampler of a component, which rejects nothing."""

    sampler: Sampler

    def propose(self, rng: np.random.Generator) -> IntArray:
        """Return a set, as items of the catalogue."""
        return self.sampler.items_of(self.sampler.draw(rng).rows)


class ComponentSource(NamedTuple):
    """Makes what draws from a component of any mixture."""

    mixture: Mixture
    size: int | None
    given: IntArray
    memory: int
    device: str | None = None

    def sampler(self, c: int) -> Sampler:
        """Return the sampler of a component."""
        options: dict[str, Any] = {"memory": self.memory, "device": self.device}
        return prepare(self.mixture.components[c], size=self.size, given=self.given, **options)

    def __call__(self, c: int) -> WholeSets:
        """Return what draws from component c."""
        return WholeSets(self.sampler(c))


@prepare.register
def _mixture(
    mixture: Mixture, *, size: int | None = None, given: Items = (), exclude: Items = (), memory: int,
    device: str | None = None, component: int | None = None,
) -> Sampler:  # fmt: skip
    if component is not None:
        kernel = mixture.components[component]
        return prepare(kernel, size=size, given=given, exclude=exclude, memory=memory, device=device)
    ids, rest, device = check_items(given, mixture, "given"), mixture.exclude(exclude), _cuda(device)
    weights = rest.responsibilities(ids, size=size)
    most = _most_components(rest, memory)
    source = ComponentSource(rest, size, ids, memory // most, device)
    return with_engine(LawSampler(mixture, ids[:0], np.cumsum(weights), Store(source, most)), device)


def _most_components(law: Law, memory: int) -> int:
    return max(1, min(len(law.weights), memory // (COMPONENT_BYTES + ITEM_BYTES * law.n_items)))


# -- mixtures with shared ties -----------------------------------------------------------------------------------------------


class TiedSource(NamedTuple):
    """Makes what draws from a component of a mixture with shared ties: from ρ_c L_c, sets of ``size`` items (None: of any size)."""

    mixture: TiedMixture
    size: int | None
    log_tilt: FloatArray | None
    memory: int

    def kernel(self, c: int) -> LowRankKernel:
        """Return ρ_c L_c."""
        return self.mixture.single(c, 0.0 if self.log_tilt is None else float(self.log_tilt[c]))

    def __call__(self, c: int) -> KernelSets:
        """Return what draws from component c."""
        union = SizedUnion.of(self.kernel(c), np.empty(0, np.int64), self.size, self.memory)
        return KernelSets(self.mixture.base, union._replace(by_clock=union.ties.route != "nodes"))


class FamilySource(NamedTuple):
    """Makes what draws from a component: with item odds ρ_c r, sets of ``size`` items; ``touched`` is the mixture of their families."""

    mixture: FamilyMixture
    touched: TiedMixture
    size: int | None
    log_tilt: FloatArray
    memory: int

    def __call__(self, c: int) -> FamilyUnion:
        """Return what draws from component c."""
        patterns = self.mixture.patterns.with_odds(self.mixture.patterns.odds * np.exp(self.log_tilt[c]))
        totals = patterns.log_totals
        with np.errstate(divide="ignore"):
            logs = np.append(np.log(self.mixture.odds[c]) + totals + np.log(-np.expm1(-totals)), -np.inf)
        union = SizedUnion.of(self.touched.single(c), np.empty(0, np.int64), None, self.memory)
        cumulated = np.cumsum(scaled(logs[patterns.slots]), axis=1)
        return FamilyUnion(union, patterns, cumulated, np.log1p(patterns.odds), self.size)


@prepare.register
def _shared(
    mixture: SharedTies, *, size: int | None = None, given: Items = (), exclude: Items = (), memory: int,
    device: str | None = None, component: int | None = None,
) -> Sampler:  # fmt: skip
    """Weigh the components; refuse what cannot be drawn."""
    device = _cuda(device)
    if component is not None:
        one = mixture.only([component]) if device is not None else mixture.single(component)
        return prepare(one, size=size, given=given, exclude=exclude, memory=memory, device=device)
    ids, rest = check_items(given, mixture, "given"), mixture.exclude(exclude)
    size = None if size is None else check_given(size, len(ids))
    most = _most_components(rest, memory)
    # Given all items, ties have no conditional; families, given all theirs, still have one.
    if isinstance(rest, TiedMixture) and len(ids) == rest.base.n_rows:
        rest.responsibilities(ids)  # raises if they never occur together
        if size not in (None, len(ids)):
            raise ImpossibleSizeError(f"all {len(ids)} items are given; no set is larger")
        return LawSampler(mixture, ids, np.empty(0), Store(None, 1))
    rest = rest.condition(ids)
    left, log_tilt, log_mass = None, None, np.zeros(len(rest.weights))
    if size is not None:
        left = size - len(ids)
        if left > rest.max_size:
            raise ImpossibleSizeError(f"no set is larger than {rest.max_size + len(ids)} items; got size {size}")
        log_tilt = rest.tilts(left)
        log_mass = rest.log_normalizers(log_tilt) - rest.log_normalizers() - left * log_tilt
        log_mass[rest.largest < left] = -np.inf
    weights = rest.weights * np.exp(log_mass - log_mass[rest.weights > 0].max())
    sampler = LawSampler(mixture, ids, np.cumsum(weights), Store(_source(rest, left, log_tilt, memory // most), most))
    return with_engine(sampler, device)


@singledispatch
def _source(mixture: Any, size: int | None, log_tilt: FloatArray | None, memory: int) -> Any:
    """Return what makes the drawers of components: of ties; families register their own function."""
    return TiedSource(mixture, size, log_tilt, memory)


@_source.register
def _family_source(mixture: FamilyMixture, size: int | None, log_tilt: FloatArray | None, memory: int) -> FamilySource:
    touched = mixture.touched if log_tilt is None else mixture.tilted(log_tilt)
    return FamilySource(mixture, touched, size, np.zeros(len(mixture.odds)) if log_tilt is None else log_tilt, memory)
