"""What every sampler promises, on the awkward kernels; ``contract`` has the promises, the registry the samplers."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

import contract
import goodness
from contract import Variant, any_size, some_size
from kernels import AWKWARD, BY_NAME, Case
from ndpp import LowRankKernel
from ndpp.samplers import (
    Cholesky,
    Exact,
    Naive,
    NaiveUp,
    RandomSize,
    Rejection,
    RejectionUp,
    Walk,
)
from ndpp.samplers.base import Draw, Sampler
from ndpp.samplers.registry import CHOLESKY, EXACT, NAIVE, SAMPLERS, WALK

VARIANTS = [
    *(variant for spec in SAMPLERS for variant in contract.variants(spec)),
    *contract.variants(replace(EXACT, name="exact, by eigenvectors"), symmetric=True),
    Variant(
        "walk, thin",
        WALK,
        some_size,
        lambda kernel, size: Walk.prepare(kernel, size=size, thin=2, chains=3, burn_in=1),
        contract.SHOWN,
        independent=False,
    ),
    Variant(
        "walk, any size, greedy",
        WALK,
        any_size,
        lambda kernel, _: RandomSize.prepare(kernel, steps=2, start="greedy"),
        contract.FEWER["walk"],
    ),
    Variant(
        "cholesky, blocks", CHOLESKY, any_size, lambda kernel, _: Cholesky.prepare(kernel, block=3), contract.DRAWS
    ),
]

every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


@cache
def prepared(variant: Variant):
    """The sampler on the generic kernel."""
    case = BY_NAME["generic"]
    return variant.prepare(variant.kernel(case.X, case.W))


def sets(draws):
    return draws.baskets.to_lists()


@every_variant
def test_every_promise(variant):
    """On every third kernel, the variants in turn, and on those that are shared: every kernel is met by eight of them or more."""
    turn = VARIANTS.index(variant)
    contract.check(variant, [c for i, c in enumerate(AWKWARD) if (i + turn) % 3 == 0 or c.name in contract.SHARED])


# ---- the contract can fail ------------------------------------------------------------------------------------------


def drawn_from_tilted(variant: Variant, cases: Iterable[Case], tilt: float) -> list[contract.Table]:
    """As many draws as the contract makes, of kernels in which every other item has a row ``tilt`` times as long."""
    tables = []
    for case in cases:
        kernel = variant.kernel(case.X * np.where(np.arange(case.n_items) % 2, 1.0, tilt)[:, None], case.W)
        size = variant.size_of(kernel)
        sampler = variant.make(kernel, size)
        law, seed = contract.law_of(case, variant.symmetric, size), contract.seed_of(case)
        draws = sampler.sample(contract.n_independent(variant, sampler), rng=seed)
        tables.append(contract.tabled(variant, sampler, law, draws, seed))
    return tables


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.independent], ids=str)
def test_tilted_kernels_are_rejected(variant):
    """Negative control of every sampler, on three kinds of kernels."""
    cases = [BY_NAME[name] for name in ("generic", "purely skew", "symmetric")]
    with pytest.raises(AssertionError, match="do not follow the laws"):
        contract.judge(drawn_from_tilted(variant, cases, 2.0 if variant.spec.exact else 4.0))


@pytest.mark.parametrize("variant", contract.variants(CHOLESKY), ids=str)
def test_a_small_tilt_is_seen_on_all_kernels_together(variant):
    """Rows longer by a sixth: none of the twenty kernels shows it alone."""
    tables = drawn_from_tilted(variant, AWKWARD, 7 / 6)
    for table in tables:
        goodness.assert_counts(table.counts, table.probabilities)
    with pytest.raises(AssertionError, match="20 samples together"):
        contract.judge(tables)


@dataclass(frozen=True)
class Faulty(Sampler):
    """Enumeration, with a fault that leaves the law as it is."""

    kernel: LowRankKernel
    inner: Naive
    fault: str

    def draw(self, rng):
        rng = np.random.default_rng() if self.fault == "its own randomness" else rng
        rows, info = self.inner.draw(rng)
        if self.fault == "unsorted rows":
            rows = rows[::-1]
        elif self.fault == "other sets":
            rows = rows[:-1]
        elif self.fault == "no counters":
            info = {}
        elif self.fault == "a counter that is no number":
            info = {**info, "moves": np.nan}
        elif self.fault == "a global seed":
            random.seed(0)
        return Draw(rows, info)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("none", ""),
        ("unsorted rows", "np.diff"),
        ("other sets", "tuple|do not follow the law"),
        ("its own randomness", "seed and index"),
        ("no counters", "proposals"),
        ("a counter that is no number", "isfinite"),
        ("a global seed", "global random state"),
    ],
)
def test_a_broken_promise_is_noticed(fault, told):
    """Negative controls of the other promises."""
    spec = replace(
        NAIVE, prepare=lambda kernel, request: Faulty(kernel, Naive.prepare(kernel, size=request.size), fault)
    )
    state = random.getstate()
    for variant in contract.variants(spec):
        if fault == "none":
            contract.check(variant, [BY_NAME["generic"]])
        else:
            with pytest.raises(AssertionError, match=told):
                contract.check(variant, [BY_NAME["generic"]])
        random.setstate(state)


# ---- what needs no pass over all kernels ----------------------------------------------------------------------------


@pytest.mark.parametrize("X", [np.zeros((3, 2)), np.ones((3, 2))], ids=["no rows", "no W"])
@every_variant
def test_a_kernel_of_rank_zero_gives_empty_sets(variant, X):
    kernel = LowRankKernel(X, np.eye(2) if not X.any() else np.zeros((2, 2)))
    assert sets(variant.prepare(kernel).sample(2, rng=0)) == [[], []]


OF_SIZE_3 = {
    "Exact": lambda kernel: Exact.prepare(kernel, size=3),
    "Rejection": lambda kernel: Rejection.prepare(kernel, size=3),
    "Naive": lambda kernel: Naive.prepare(kernel, size=3),
    "DirectUp": lambda kernel: Walk.prepare(kernel, size=3, steps=2),
    "RejectionUp": lambda kernel: Walk.prepare(kernel, size=3, up=RejectionUp(), steps=2),
    "NaiveUp": lambda kernel: Walk.prepare(kernel, size=3, up=NaiveUp(), steps=2),
}


@pytest.mark.parametrize("name", OF_SIZE_3)
@pytest.mark.parametrize(("power", "case"), [(-498, BY_NAME["generic"]), (498, BY_NAME["singular L_A"])], ids=str)
def test_sets_of_one_size_do_not_see_the_scale(name, power, case):
    """10^±150 times the rows: entries of L next to what doubles hold, whose products are beyond it."""
    kernel = LowRankKernel(case.X * 2.0**power, case.W)
    assert sets(OF_SIZE_3[name](kernel).sample(8, rng=6)) == sets(OF_SIZE_3[name](case.kernel).sample(8, rng=6))


def test_enumeration_of_all_sets_at_any_scale():
    huge, tiny = (Naive.prepare(LowRankKernel(2.0**power * np.eye(3), np.eye(3))) for power in (498, -498))
    assert (huge.masks[-1], huge.law[-1]) == (0b111, 1.0)
    assert (tiny.masks[0], tiny.law[0]) == (0, 1.0)


@every_variant
def test_seeds_matter_and_a_generator_moves_on(variant):
    sampler = prepared(variant)
    assert sets(sampler.sample(20, rng=3)) != sets(sampler.sample(20, rng=4))
    rng = np.random.default_rng(5)
    first = sets(sampler.sample(20, rng=rng))
    assert first != sets(sampler.sample(20, rng=rng))
    assert first == sets(sampler.sample(20, rng=np.random.default_rng(5)))


@every_variant
@pytest.mark.parametrize("case", ["generic", "broken pairs", "singular L_A"])
def test_restricted_kernels_return_catalogue_ids(variant, case):
    kernel = variant.kernel(BY_NAME[case].X, BY_NAME[case].W).exclude([0])
    draws = variant.prepare(kernel).sample(10, rng=7)
    drawn = {int(a) for basket in draws.baskets for a in basket}
    assert drawn
    assert 0 not in drawn
    assert drawn <= set(kernel.support.tolist())
    assert draws.baskets.n_items == BY_NAME[case].n_items


@every_variant
def test_labels_travel(variant):
    case = BY_NAME["generic"]
    labels = [f"item {a}" for a in range(case.n_items)]
    kernel = variant.kernel(case.X, case.W, labels=labels)
    assert variant.prepare(kernel).sample(1, rng=0).baskets.labels == tuple(labels)


@every_variant
def test_no_draws_and_bad_counts(variant):
    sampler = prepared(variant)
    assert len(sampler.sample(0, rng=0)) == 0
    with pytest.raises(ValueError, match="n_samples"):
        sampler.sample(-1)
    with pytest.raises(ValueError, match="n_samples"):
        sampler.sample(2.5)
