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
"""Largest acceptable mean number of proposals per draw."""
MANY = 1000
"""After so many proposals, their mean number is computed where it was not known, and draws that need too many are refused."""
LIKELY = 1e-3
"""Components that are proposed less often than this do not matter to the mean number of proposals."""
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
        self._expected: float | None = None

    def __reduce__(self) -> Any:
        return Store, (self.make, self.most)

    def __getitem__(self, c: int) -> Drawer:
        made: Drawer = self._recent(c)
        return made

    def expected(self, cdf: FloatArray) -> float:
        """Return the mean number of proposals per draw, from the chances of the wanted size in the likely components."""
        if self._expected is None:
            shares, source = np.diff(cdf, prepend=0.0) / cdf[-1], self.make
            likely = np.flatnonzero(shares > LIKELY)
            laws = [source.mixture._tilted(c, float(source.log_tilt[c]), {}).law for c in likely.tolist()]
            chance = sum(share * law.distribution()[source.size] for share, law in zip(shares[likely], laws))
            self._expected = float(1 / max(chance, np.finfo(float).tiny))
        return self._expected


@dataclass(frozen=True, eq=False)
class LawSampler(Sampler):
    """What ``law.sample`` draws with.

    Attributes
    ----------
    given : array
        Items that are in every set, and not drawn.
    cdf : (C,) array
        Of the component to draw from; empty if nothing is left to draw.
    store : Store or tuple
        What draws from each component; of a kernel, its one ``Proposal``.
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
    store: Store | tuple[Proposal, ...] = field(repr=False)
    expected_proposals: float = np.nan
    engine: Engine | None = field(default=None, repr=False)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted items of the catalogue."""
        if not len(self.cdf):
            return Draw(np.sort(self.given), {"proposals": 0, "rejections": 0})
        for proposals in range(1, self._most_proposals + 1):
            look()
            if proposals == MANY and isinstance(self.store, Store):
                check_expected(self.store.expected(self.cdf))
            c = look_up_cdf(self.cdf, rng.random()) if len(self.cdf) > 1 else 0
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
    found = cuda_device(device)  # a device that is not there is said once
    asked = Asked(size, given, exclude, memory, None if found is None else str(found))
    if component is None:
        return _prepare(law, asked)
    if isinstance(law, SharedTies) and asked.device is not None:  # these have an engine of their own
        return _prepare(law.only([component]), asked)
    return _prepare(law.components[component], asked)


@singledispatch
def _prepare(law: Law, asked: Asked) -> Sampler:
    raise InvalidInputError(f"samples are drawn from kernels and mixtures; got a {type(law).__name__}")


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
        return _prepare(self.mixture.components[c], self.asked)


@_prepare.register
def _mixture(mixture: Mixture, asked: Asked) -> Sampler:
    ids, rest = check_items(asked.given, mixture, "given"), mixture.exclude(asked.exclude)
    weights, most = rest.responsibilities(ids, size=asked.size), _most_components(rest, asked.memory)
    source = ComponentSource(rest, asked._replace(given=ids, exclude=(), memory=asked.memory // most))
    return with_engine(LawSampler(mixture, ids[:0], np.cumsum(weights), Store(source, most)), asked.device)


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

    def __call__(self, c: int) -> SizedUnion:
        """Return what draws from component c."""
        union = SizedUnion.of(self.kernel(c), np.empty(0, np.int64), self.size, self.memory)
        return union._replace(by_clock=union.ties.route != "nodes")


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


@_prepare.register
def _shared(mixture: SharedTies, asked: Asked) -> Sampler:
    """Weigh the components; refuse what cannot be drawn."""
    ids, rest = check_items(asked.given, mixture, "given"), mixture.exclude(asked.exclude)
    size = None if asked.size is None else check_given(asked.size, len(ids))
    most = _most_components(rest, asked.memory)
    # Given all items, ties have no conditional; families, given all theirs, still have one.
    if isinstance(rest, TiedMixture) and len(ids) == rest.base.n_rows:
        rest.responsibilities(ids)  # raises if they never occur together
        return _all_given(mixture, ids, size)
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
    store = Store(_source(rest, left, log_tilt, asked.memory // most), most)
    return with_engine(LawSampler(mixture, ids, np.cumsum(weights), store), asked.device)


def _source(mixture: Any, size: int | None, log_tilt: FloatArray | None, memory: int) -> TiedSource | FamilySource:
    """Return what makes the drawers of components."""
    if isinstance(mixture, TiedMixture):
        return TiedSource(mixture, size, log_tilt, memory)
    if log_tilt is None:
        return FamilySource(mixture, mixture.touched, size, np.zeros(len(mixture.odds)), memory)
    return FamilySource(mixture, mixture.tilted(log_tilt), size, log_tilt, memory)
