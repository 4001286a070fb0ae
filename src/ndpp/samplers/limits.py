"""Exact samples under limits: low_j ≤ c_j(S) ≤ high_j for counts or totals c_j(S) = Σ_{i∈S} c_ji (:class:`ndpp.Limit`).

Distribution: P(S | limits, given items ⊆ S), with or without a size. Exact. Each component c has a tilt θ_c; let b_j = low_j where
θ_cj > 0 and high_j where θ_cj < 0. Component c is drawn with probability ∝ w_c A_c, then a set S of the component with the odds of item i
times e^{θ_c·c_i}, which is accepted if it keeps the limits, with probability e^{−θ_c·(c(S) − b)} ≤ 1; otherwise both are drawn again. With

    A_c = Z_c(θ_c) / Z_c · e^{−θ_c·b},        Z_c(θ) the weight of all sets of component c with these odds,

a component and a set are accepted with probability ∝ w_c P_c(S), whatever the θ_c. A_c is Chernoff's bound of P_c(limits), so good θ_c
minimise it; they are found as if items, or families of them, came independently (:mod:`ndpp.linalg.tilts`). With θ_c = 0, A_c = 1:
components that hardly matter stay so.
P(limits) is the acceptance rate times Σ_c w_c A_c.

Given items count, and change nothing else: Z_c(θ_c) is then the weight of the sets that contain them. θ_c aims at what they leave of the
bounds.

Kernels, and mixtures of any kernels, draw from their tilted kernels, of the wanted size if there is one. Mixtures with shared ties take the
size for one more limit, and baskets share what is prepared (:mod:`.limited_ties`).

Cost per sample: that of a set of any size, times the number of proposals. Preparing takes O(C n r²), once for all baskets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import ClassVar, NamedTuple

import numpy as np

from ndpp._memory import Memory, n_bytes_of
from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp.errors import (
    ImpossibleLimitError,
    ImpossibleSizeError,
    InvalidInputError,
    PrecisionError,
    ZeroProbabilityError,
)
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit, Limits
from ndpp.laws.precision import WARN_ERROR
from ndpp.linalg.tilts import MOST_LOG_FACTOR, TINY, towards_limits
from ndpp.samplers.base import Sampler, with_engine
from ndpp.samplers.kernels import ComponentSamplers
from ndpp.samplers.limited_ties import limited_ties
from ndpp.samplers.proposer import Acceptance, Asked, Proposer, of_component
from ndpp.samplers.unions import kernel_bytes

MAX_TILTS = 10
"""Maximum number of times that a kernel is tilted to find its θ."""


def prepare_limited(law: Law, limits: Sequence[Limit], asked: Asked) -> Sampler:
    """Prepare the sampler of a law under limits."""
    if law.nonempty and not len(asked.given) and asked.size is None and (Limits.of(limits, law).low <= 0).all():
        limits = [*limits, Limit(range(law.n_items), least=1, name="at least one item")]
        Limits.of(limits, law).check(~np.isin(np.arange(law.n_items), asked.exclude), law.n_items)
    if law._as_ties is not None:
        made = _ties(law, limits, asked)
    elif is_of_mixtures(law):
        made = _laws(law, limits, asked)
    else:
        made = _kernels(law, limits, asked)
    if made.log_weights.max() == -np.inf:
        if law._log_total(asked.given, asked.size) == -np.inf:
            raise law._impossible(asked.given, asked.size)
        texts = Limits.of(limits, law, asked.size).texts
        raise ImpossibleLimitError(
            f"sets that keep these limits have probability zero: {'; '.join(texts)}", limits=texts
        )
    return with_engine(replace(made, asked=asked), asked.device)


def is_of_mixtures(law: Law) -> bool:
    """Return whether some components of a law are mixtures themselves."""
    return law._as_ties is None and any(len(part.weights) > 1 for part in law._plain_components)


def is_of_ties(law: Law) -> bool:
    """Return whether all components of a law are mixtures with shared ties, or mixtures of these."""
    return is_of_mixtures(law) and all(part._as_ties is not None or is_of_ties(part) for part in law._plain_components)


def _ties(law: Law, limits: Sequence[Limit], asked: Asked) -> Proposer:
    """Take the size and excluded items for further limits."""
    never = [Limit(asked.exclude.tolist(), most=0, name="excluded")] if len(asked.exclude) else []
    whole = Limits.of([*limits, *never], law, asked.size)
    assert law._as_ties is not None
    return limited_ties(law._as_ties, whole, asked.given, asked.memory)


def _kernels(law: Law, limits: Sequence[Limit], asked: Asked) -> Proposer:
    """Tilt each component, a kernel, by itself."""
    whole = Limits.of(limits, law)
    key = (
        law.nonempty,
        law.weights.tobytes(),
        *asked.key,
        whole.values.tobytes(),
        whole.low.tobytes(),
        whole.high.tobytes(),
    )
    found = asked.memory.remember(
        ("limits", blake2b(repr(key).encode()).digest()), lambda: TiltedKernels.of(law, whole, limits, asked)
    )
    drawers = ComponentSamplers(found.kernels, asked._replace(exclude=asked.exclude[:0], memory=found.memory))
    accepted = Acceptance.of(whole, found.theta)
    log_weights = found.log_masses - (accepted.bound * found.theta).sum(axis=1)
    return Proposer(law, asked.given[:0], log_weights, drawers, accepted)


@dataclass(frozen=True, eq=False)
class LimitedLaws:
    """What draws under limits from the components of the components of a mixture of laws, given items included."""

    samplers: tuple[Proposer, ...]

    def __getitem__(self, c: int) -> LimitedSets:
        m = 0
        while c >= len(self.samplers[m].log_weights):
            c, m = c - len(self.samplers[m].log_weights), m + 1
        return LimitedSets(self.samplers[m], c)


class LimitedSets(NamedTuple):
    """What proposes sets of component c of a law under limits."""

    sampler: Proposer
    c: int

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return a set with the given items, which the limits have not accepted yet, or None if it was rejected."""
        found = self.sampler.drawers[self.c].propose(rng)
        return None if found is None else np.concatenate([self.sampler.given, found])


def _laws(law: Law, limits: Sequence[Limit], asked: Asked) -> Proposer:
    """Propose from the components of all laws of a mixture as each of them proposes under these limits."""
    found, log_weights, refused = [], [], None
    for m in np.flatnonzero(law._log_weights > -np.inf).tolist():
        own = of_component(asked._replace(device=None), m)
        try:
            made = prepare_limited(law._plain_components[m], limits, own)
        except (ImpossibleLimitError, ImpossibleSizeError, ZeroProbabilityError) as reason:
            refused = refused or reason
            continue
        assert isinstance(made, Proposer)
        found.append(made)
        log_weights.append(law._log_weights[m] + made.log_weights)
    if not found:
        assert refused is not None
        raise refused
    # Laws whose samplers keep the size and exclusions by themselves have fewer limits left to accept.
    parts = [made.left for made in found if made.left is not None]
    whole = max((part.limits for part in parts), key=len)
    theta, bound = (
        np.concatenate([np.pad(one, ((0, 0), (0, len(whole) - one.shape[1]))) for one in some])
        for some in zip(*((part.theta, part.bound) for part in parts))
    )
    accepted = Acceptance(whole, theta, bound, is_tilted=True)
    return Proposer(law, asked.given[:0], np.concatenate(log_weights), LimitedLaws(tuple(found)), accepted)


@dataclass(frozen=True, eq=False)
class TiltedKernels:
    """The components of a mixture of any kernels, or a kernel, each under its θ (C, J); log w_c times the weights of their sets."""

    kernels: tuple[LowRankKernel, ...]
    theta: FloatArray
    log_masses: FloatArray
    memory: Memory
    grows: ClassVar[bool] = True

    @property
    def n_bytes(self) -> int:
        """Bytes of the kernels, and of what draws from them."""
        return n_bytes_of((self.theta, self.log_masses, self.memory)) + sum(map(kernel_bytes, self.kernels))

    @classmethod
    def of(cls, law: Law, whole: Limits, limits: Sequence[Limit], asked: Asked) -> TiltedKernels:
        """Choose θ of each component."""
        ids, size, n = asked.given, asked.size, len(law.weights)
        left = whole.beside(ids)
        allowed = left.fitting
        allowed[asked.exclude], allowed[ids] = False, True
        if not allowed.any():  # only the empty set keeps the limits
            Limits.of(limits, law, size).check(allowed, 0)
        parts = law._plain_components
        rest = [kernel.restrict(_left_of(kernel, allowed, asked)) for kernel in parts]
        room = [(kernel.max_size if size is None else size) - len(ids) for kernel in rest]
        chances = np.zeros((n, law.n_items))
        for c in np.flatnonzero(law.weights > 0).tolist():
            if rest[c].log_mass(ids, size) > -np.inf:
                chances[c] = rest[c].inclusion_probabilities(size, ids)
        chances[:, ids] = 0.0
        if chances.any():
            Limits.of(limits, law, size).beside(ids).check(np.asarray((chances > 0).any(axis=0)), max(room))
        theta, log_weights = np.zeros((n, len(whole))), np.full(n, -np.inf)
        for c in np.flatnonzero(law.weights > 0).tolist():
            if (left.reach(chances[c] > 0, room[c]) >= left.low).all():
                theta[c], rest[c] = _tilted(rest[c], whole, left, chances[c], asked)
                mass = rest[c].log_mass(ids, size) - parts[c].log_normalizer()
                log_weights[c] = law._log_weights[c] + mass
        return cls(tuple(rest), theta, log_weights, Memory(asked.memory.budget))


def _left_of(kernel: LowRankKernel, allowed: BoolArray, asked: Asked) -> IntArray:
    """Return the items of a kernel that may be in a set: if only the empty set is left, one that breaks a limit, as a kernel needs one."""
    items = np.setdiff1d(kernel.support, asked.exclude)
    return found if len(found := items[allowed[items]]) else items[:1]


def _tilted(
    kernel: LowRankKernel, whole: Limits, left: Limits, p: FloatArray, asked: Asked
) -> tuple[FloatArray, LowRankKernel]:
    """Return θ and the kernel under it; p are the inclusion probabilities of items that are not given.

    Items are taken to be independent for the variances of c, but not for its means. θ ends where precision ends.
    """
    unit, most_error = left.values.max(axis=1).clip(TINY), max(WARN_ERROR / 10, 2 * kernel._free_error)
    values, found = left.values / unit[:, None], (np.zeros(len(whole)), kernel)

    def moments(scaled: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray]:
        nonlocal found
        theta, q = scaled[0] / unit, p
        if theta.any():
            try:
                tilted = kernel.tilt(np.exp((theta @ whole.values).clip(-MOST_LOG_FACTOR, MOST_LOG_FACTOR)))
                if tilted._free_error > most_error:
                    raise PrecisionError("the tilt costs too many digits")
                q = tilted.inclusion_probabilities(asked.size, asked.given)
                q[asked.given], found = 0.0, (theta, tilted)
            except (PrecisionError, InvalidInputError):
                q = np.full_like(p, np.nan)  # too far
        return (values @ q)[None], ((values * (q * (1 - q))) @ values.T)[None]

    start = np.zeros((1, len(whole)))
    towards_limits(moments, left.low / unit, left.high / unit, start, deviations=0.3, max_steps=MAX_TILTS)
    return found
