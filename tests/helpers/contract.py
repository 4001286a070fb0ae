"""What every sampler promises, checked on every awkward kernel in one pass: :func:`check`.

A pass prepares the sampler once per kernel. Sets are sorted catalogue ids of the size asked for; a draw depends on the
seed and its index alone; counters are there; the kernel's arrays and the global random state are untouched; and the sets
follow the law, by enumeration. Each kernel is judged by itself and all of them together: a fault that shows a little
everywhere is seen in the sum.

``variants`` says what is checked of an entry of the registry: sets of any size, of at most three items, and of as many as
can occur, each where the sampler draws them.

An approximate sampler is judged where it must be exact. A chain on sets of one size begins at draws from the law itself,
which a step leaves unchanged. A walk of random size draws its size exactly, and after one step sets of two items too.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import goodness
import oracles
from kernels import AWKWARD, Case
from ndpp import LowRankKernel
from ndpp.samplers.base import Draws, Sampler, stream, stream_key
from ndpp.samplers.registry import Request, SamplerSpec
from ndpp.samplers.walk import RandomSize

DRAWS = 200
"""Draws per kernel whose law is judged; ``test_contract`` shows what they can tell apart."""
FEWER = {"exact": 100}
FEWER |= dict.fromkeys(("rejection", "clock", "walk", "naive-walk", "rejection-walk"), 60)
"""The same of samplers that take a millisecond or so per draw or step on these kernels."""
SHOWN = 5
"""Draws that are made again, in other numbers and from the middle."""
SHARED = ("generic", "broken pairs")
"""Kernels on which two workers draw as well."""


class Table(NamedTuple):
    """How often each outcome came, and its probability. Sets of which the size alone counts are ``(-size,)``."""

    outcomes: list[tuple[int, ...]]
    counts: list[int]
    probabilities: list[float]

    def summed(self, feature: Callable[[tuple[int, ...]], Hashable]) -> Table:
        """The same of what ``feature`` makes of the outcomes."""
        counts, probabilities = Counter(), Counter()
        for outcome, count, p in zip(*self):
            counts[feature(outcome)] += count
            probabilities[feature(outcome)] += p
        return Table(list(counts), list(counts.values()), list(probabilities.values()))


@dataclass(frozen=True)
class Variant:
    """One way to prepare a sampler: ``make(kernel, size)``, with the size that ``size_of`` finds in a kernel."""

    name: str
    spec: SamplerSpec
    size_of: Callable[[LowRankKernel], int | None]
    make: Callable[[LowRankKernel, int | None], Sampler]
    n_draws: int
    independent: bool = True
    """False: its draws come from one chain, whose law no test here can judge."""
    symmetric: bool = False
    """It draws from the symmetric part of every kernel."""

    def __str__(self) -> str:
        return self.name

    def prepare(self, kernel: LowRankKernel) -> Sampler:
        return self.make(kernel, self.size_of(kernel))

    def kernel(self, X: Any, W: Any, **settings: Any) -> LowRankKernel:
        """The kernel, or its symmetric part."""
        return LowRankKernel(X, self.inner(W), **settings)

    def inner(self, W: Any) -> Any:
        return (np.asarray(W) + np.asarray(W).T) / 2 if self.symmetric else np.array(W)


def any_size(kernel: LowRankKernel) -> None:
    """Sets of any size."""


def some_size(kernel: LowRankKernel) -> int:
    """The largest size up to three that can occur; a purely skew kernel has only even ones."""
    return int(np.flatnonzero(kernel.size_distribution()[:4] > 1e-12).max())


def full_size(kernel: LowRankKernel) -> int:
    return int(np.flatnonzero(kernel.size_distribution() > 1e-12).max())


def variants(spec: SamplerSpec, *, symmetric: bool = False) -> list[Variant]:
    """What is checked of a sampler: every kind of size it draws."""

    def make(kernel: LowRankKernel, size: int | None) -> Sampler:
        return spec.prepare(kernel, Request(size, steps=1 if spec.is_chain else None))

    sizes = {"any size": any_size} if spec.draws(None) else {}
    sizes |= {"some size": some_size, "full size": full_size} if spec.draws(3) else {}
    n_draws = FEWER.get(spec.name, DRAWS)
    return [
        Variant(f"{spec.name}, {name}", spec, size_of, make, n_draws, symmetric=symmetric)
        for name, size_of in sizes.items()
    ]


def check(variant: Variant, cases: Iterable[Case] = AWKWARD) -> None:
    """Fail unless the sampler keeps all its promises on these kernels."""
    tables = []
    for case in cases:
        try:
            tables.append(check_on(variant, case))
        except AssertionError as error:
            error.add_note(f"{variant}, on the kernel {str(case)!r}")
            raise
    if variant.independent:
        judge(tables)


def judge(tables: Sequence[Table]) -> None:
    """Fail unless draws on several kernels follow their laws together: sets, their sizes, and their even-numbered items.

    The last two have few outcomes, in which a small error shows sooner.
    """
    for summary in (tables, [table.summed(size) for table in tables], [table.summed(evens) for table in tables]):
        goodness.assert_together((table.counts, table.probabilities) for table in summary)


def size(outcome: tuple[int, ...]) -> int:
    return -outcome[0] if outcome and outcome[0] < 0 else len(outcome)


def evens(outcome: tuple[int, ...]) -> int:
    return outcome[0] if outcome and outcome[0] < 0 else goodness.evens(outcome)


def check_on(variant: Variant, case: Case) -> Table:
    """Fail unless the sampler keeps its promises on this kernel; return what was drawn."""
    X, W, state = case.X.copy(), variant.inner(case.W), random.getstate()
    W_before = W.copy()
    kernel = LowRankKernel(X, W)
    parts = [kernel.coordinates.B, kernel.coordinates.leverage, kernel.q_rows(np.arange(case.n_items))]
    before = [part.copy() for part in parts]

    sampler = variant.prepare(kernel)
    law = law_of(case, variant.symmetric, variant.size_of(kernel))
    draws = sampler.sample(n_independent(variant, sampler) or SHOWN, rng=seed_of(case))
    check_sets(draws, case, law)
    check_repeats(sampler, draws, seed_of(case), n_jobs=2 if case.name in SHARED else None)
    if variant.independent:
        check_draw(sampler, draws, seed_of(case))
    check_counters(draws, chain=variant.spec.is_chain)
    table = tabled(variant, sampler, law, draws, seed_of(case))
    if variant.independent:
        goodness.assert_counts(table.counts, table.probabilities, names=table.outcomes)

    assert (X == case.X).all()
    assert (W_before == W).all()
    assert X.flags.writeable
    assert W.flags.writeable
    assert all((part == copy).all() for part, copy in zip(parts, before))
    assert random.getstate() == state, "Python's global random state was changed"  # conftest watches numpy's
    return table


def seed_of(case: Case) -> int:
    """A seed of the kernel's own: with one seed for all, draws on different kernels would not be independent."""
    return zlib.crc32(case.name.encode())


def check_sets(draws: Draws, case: Case, law: oracles.Law) -> None:
    """Sorted ids of the catalogue that can occur together; sizes among those of the law."""
    baskets = draws.baskets
    assert len(draws) == len(baskets)
    assert baskets.n_items == case.n_items
    assert baskets.indices.dtype == np.int64
    for items in baskets:
        assert (np.diff(items) > 0).all()
        assert tuple(items.tolist()) in law


def check_repeats(sampler: Sampler, draws: Draws, seed: int, *, n_jobs: int | None) -> None:
    """A draw depends on the seed and its index alone: not on how many are drawn, from where, or by how many workers."""
    whole = draws.baskets[:SHOWN].to_lists()
    told = "a draw depends on more than seed and index"
    assert sampler.sample(3, rng=seed).baskets.to_lists() == whole[:3], told
    assert sampler.sample(1, rng=seed, first=SHOWN - 1).baskets.to_lists() == whole[-1:], told
    if n_jobs is not None:
        assert sampler.sample(SHOWN, rng=seed, n_jobs=n_jobs).baskets.to_lists() == whole, told


def check_draw(sampler: Sampler, draws: Draws, seed: int) -> None:
    """``draw`` returns sorted rows of the support; ``sample`` makes ids of them."""
    for i in range(3):
        rows = sampler.draw(stream(stream_key(seed), i)).rows
        assert rows.dtype == np.int64
        assert (np.diff(rows) > 0).all()
        assert sampler.kernel.catalogue_ids(rows).tolist() == draws.baskets[i].tolist()


def check_counters(draws: Draws, *, chain: bool) -> None:
    assert {"proposals", "seconds"} | ({"rejections", "steps"} if chain else set()) <= set(draws.info)
    for counter, values in draws.info.items():
        assert values.shape == (len(draws),)
        assert np.isfinite(values).all()
        assert (values >= 0).all()
        if counter in draws.worst:
            assert draws.worst[counter] in (values.min(), values.max())
        else:
            assert abs(draws.totals[counter] - values.sum()) <= 1e-9 * values.sum()
    assert not set(draws.totals) & set(draws.worst)


def n_independent(variant: Variant, sampler: Sampler) -> int:
    """How many of its own draws are judged: those of a chain on sets of one size follow the law in a limit only."""
    return variant.n_draws if variant.spec.exact or isinstance(sampler, RandomSize) else 0


def tabled(variant: Variant, sampler: Sampler, law: oracles.Law, draws: Draws, seed: int) -> Table:
    """Outcomes that follow a known law exactly, counted, and that law."""
    if n_independent(variant, sampler):
        counts = goodness.count_sets(draws.baskets)
    else:
        counts = one_step_later(sampler, law, variant.n_draws, seed)
    table = Table(list(law), [counts[items] for items in law], list(law.values()))
    return table.summed(coarse) if isinstance(sampler, RandomSize) else table


def coarse(items: tuple[int, ...]) -> tuple[int, ...]:
    """A set of at most two items; of a larger one its size alone."""
    return items if len(items) <= 2 else (-len(items),)


def one_step_later(chain: Any, law: oracles.Law, n_draws: int, seed: int) -> Counter[tuple[int, ...]]:
    """Count the sets that one step makes of independent draws from the law."""
    rng, found = np.random.default_rng(seed), Counter()
    for items, count in zip(law, rng.multinomial(n_draws, np.array(list(law.values())))):
        if count:
            state = chain.init(rng, start=items)
            found.update(tuple(chain.step(rng, state)[0].items.tolist()) for _ in range(count))
    return found


@cache
def law_of(case: Case, symmetric: bool, size: int | None) -> oracles.Law:
    """P(S) of the case, or of its symmetric part, for every S of positive probability."""
    return oracles.enumerate_law((case.L + case.L.T) / 2 if symmetric else case.L, size)
