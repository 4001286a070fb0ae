"""Exact samples under limits: low_j ≤ c_j(S) ≤ high_j for counts or totals c_j(S) = Σ_{i∈S} c_ji (:class:`ndpp.Limit`).

Distribution: P(S | limits, given items ⊆ S), with or without a size. Exact. Each component c has a tilt θ_c; let b_j = low_j where
θ_cj > 0 and high_j where θ_cj < 0. Component c is drawn with probability ∝ w_c A_c, then a set S of the component with the odds of item i
times e^{θ_c·c_i}, which is accepted if it keeps the limits, with probability e^{−θ_c·(c(S) − b)} ≤ 1; otherwise both are drawn again. With

    A_c = Z_c(θ_c) / Z_c · e^{−θ_c·b},        Z_c(θ) the weight of all sets of component c with these odds,

a component and a set are accepted with probability ∝ w_c P_c(S), whatever the θ_c. A_c is Chernoff's bound of P_c(limits), so good θ_c
minimise it; they are found as if items, or families of them, came independently (:mod:`ndpp.linalg.chernoff`). With θ_c = 0, A_c = 1:
components that hardly matter stay so.
P(limits) is the acceptance rate times Σ_c w_c A_c.

Given items count, and change nothing else: Z_c(θ_c) is then the weight of the sets that contain them. θ_c aims at what they leave of the
bounds.

Kernels, and mixtures of any kernels, draw from their tilted kernels, of the wanted size if there is one. Mixtures with shared ties take the
size for one more limit, and baskets share what is prepared (:mod:`.limited_ties`).

Cost per sample: that of a set of any size, times the number of proposals. Preparing takes O(C n r²), once for all baskets.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import FloatArray, Items
from ndpp._validation import check_items
from ndpp.errors import ImpossibleLimitError, InvalidInputError, PrecisionError, ZeroProbabilityError
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law, log_sum
from ndpp.laws.limits import Limit, Limits
from ndpp.laws.precision import WARN_ERROR, check_given
from ndpp.laws.shared import SharedTies
from ndpp.linalg.chernoff import HALVINGS, MOST_LOG_FACTOR, Coins, chernoff_tilts
from ndpp.samplers.base import Sampler, cuda_device, with_engine
from ndpp.samplers.laws import Asked, Store, _prepare, check_size
from ndpp.samplers.limited import LimitedSampler, towards
from ndpp.samplers.limited_ties import limited_ties

LONGEST = 8.0
"""Most by which a step of θ is lengthened for a kernel."""
ROUNDS, NEAR = 8, 0.15
"""How often θ is found for a kernel, each time from the inclusion probabilities under the last, unless it moves c by less than so many
standard deviations."""


def prepare(
    law: Law, *, limits: Any, size: int | None = None, given: Items = (), exclude: Items = (), memory: int,
    device: str | None = None, component: int | None = None,
) -> LimitedSampler:  # fmt: skip
    """Prepare the exact sampler of a distribution under limits. Parameters as in ``law.sampler``; ``component`` is a number."""
    found = cuda_device(device)  # a device that is not there is said once
    device = None if found is None else str(found)
    if component is not None:
        law = law.only([component])  # type: ignore[attr-defined]
    ids, excluded = check_items(given, law, "given"), check_items(exclude, law, "exclude")
    if len(both := np.intersect1d(ids, excluded)):
        raise ZeroProbabilityError(f"item {both[0]} is both given and excluded")
    check_size(law, ids, size)
    if size is not None:
        check_given(size, len(ids))
    limits = [limits] if isinstance(limits, Limit) else list(limits)
    if law.nonempty and not len(ids) and size is None and (Limits.of(limits, law).low <= 0).all():
        limits.append(Limit(range(law.n_items), least=1, name="at least one item"))
        Limits.of(limits, law).check(~np.isin(np.arange(law.n_items), excluded), law.n_items)
    made = _prepare_limited(law, limits, Asked(size, ids, excluded, memory, device))
    if made.log_weights.max() == -np.inf:
        if log_sum(law._log_weights + law._log_masses(ids, size)) == -np.inf:
            raise law._impossible(ids, size)
        texts = Limits.of(limits, law, size).texts
        raise ImpossibleLimitError(
            f"sets that keep these limits have probability zero: {'; '.join(texts)}", limits=texts
        )
    return with_engine(made, device)


@singledispatch
def _prepare_limited(law: Law, limits: Any, asked: Asked) -> LimitedSampler:
    """Tilt each component, a kernel, by itself."""
    whole, ids, size, n = Limits.of(limits, law), np.asarray(asked.given), asked.size, len(law.weights)
    left = whole.beside(ids)
    allowed = left.fitting
    allowed[np.asarray(asked.exclude)], allowed[ids] = False, True
    parts = law._plain_components
    rest = [kernel.tilt(allowed.astype(np.float64)) for kernel in parts]
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
    bound = towards(theta, whole)
    store = Store(TiltedKernels(tuple(rest), asked._replace(exclude=(), memory=asked.memory // n)), n)
    return LimitedSampler(law, ids[:0], whole, theta, bound, log_weights - (theta * bound).sum(axis=1), store)


def _tilted(
    kernel: LowRankKernel, whole: Limits, left: Limits, p: FloatArray, asked: Asked
) -> tuple[FloatArray, LowRankKernel]:
    """Return θ and the kernel under it: several times, as p are inclusion probabilities under the last θ; less, where precision ends.

    Items of a kernel vary less than independent ones, so steps become longer by as much as the means of c fell short of their aim, until
    one goes too far.
    """
    theta, found, stretch, longest = np.zeros((1, len(whole))), kernel, 1.0, LONGEST
    last = theta
    for _ in range(ROUNDS):
        coins = Coins.of(p[None] * left.fitting, left.values)
        step, before = chernoff_tilts(coins, left.low, left.high, theta)[0] - theta, left.values @ p
        is_near = np.max(np.abs(step) * np.sqrt(left.values**2 @ (p * (1 - p)))) < NEAR
        if is_near and (
            theta.any() or np.max(np.abs(step)) < 1
        ):  # what is rare hardly varies, and may be far from what is wanted
            break
        if (step * last).sum() < 0:
            longest = 1.0
        aim = theta + min(stretch, longest) * step
        aim = np.where((aim > 0) & (left.low == -np.inf) | (aim < 0) & (left.high == np.inf), 0.0, aim)
        for _ in range(HALVINGS):
            try:
                tilted = kernel.tilt(np.exp((aim[0] @ whole.values).clip(-MOST_LOG_FACTOR, MOST_LOG_FACTOR)))
                if tilted._free_error > max(WARN_ERROR / 10, 2 * kernel._free_error):
                    raise PrecisionError("the tilt costs too many digits")
                q = tilted.inclusion_probabilities(asked.size, asked.given)
                q[np.asarray(asked.given, np.int64)] = 0.0
                break
            except (PrecisionError, InvalidInputError):
                aim = (aim + theta) / 2
        else:
            break
        wanted = left.values @ (p * (1 - p) * ((aim - theta)[0] @ left.values))
        last, theta, found, p = aim - theta, aim, tilted, q
        moved = float(np.linalg.norm(left.values @ p - before)) / max(float(np.linalg.norm(wanted)), 1e-12)
        stretch = float(np.clip(1 / max(moved, 1e-3), 1.0, LONGEST))
    return theta[0], found


class TiltedKernels(NamedTuple):
    """Makes the samplers of the tilted components of any mixture, or of a kernel."""

    kernels: tuple[LowRankKernel, ...]
    asked: Asked

    def __call__(self, c: int) -> Sampler:
        """Return the sampler of component c, whose sets have the given items."""
        return _prepare(self.kernels[c], self.asked)


@_prepare_limited.register
def _shared(mixture: SharedTies, limits: Any, asked: Asked) -> LimitedSampler:
    ids, excluded = np.asarray(asked.given), np.asarray(asked.exclude)
    never = [Limit(excluded.tolist(), most=0, name="excluded")] if len(excluded) else []
    whole = Limits.of([*([limits] if isinstance(limits, Limit) else limits), *never], mixture, asked.size)
    return limited_ties(mixture, whole, ids, asked.memory)
