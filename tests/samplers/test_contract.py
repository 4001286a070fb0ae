"""What every sampler promises, on every awkward kernel. A new sampler is one more line of ``SAMPLERS``."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from kernels import AWKWARD, BY_NAME, Case
from ndpp import LowRankKernel
from ndpp.items import Tree
from ndpp.samplers import base
from ndpp.samplers.cholesky import Cholesky
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.naive import Naive
from ndpp.samplers.random_size import RandomSize
from ndpp.samplers.rejection import Rejection
from ndpp.samplers.symmetric import SymmetricTree
from ndpp.samplers.up_direct import DirectUp
from ndpp.samplers.up_naive import NaiveUp
from ndpp.samplers.up_rejection import RejectionUp
from ndpp.samplers.walk import Walk


def some_size(kernel):
    """The largest size up to three that can occur; a purely skew kernel has only even ones."""
    return int(np.flatnonzero(kernel.size_distribution()[:4] > 1e-12).max())


def full_size(kernel):
    return int(np.flatnonzero(kernel.size_distribution() > 1e-12).max())


def symmetric_tree(kernel, size=None):
    B = kernel.coordinates.B
    inner = (B + B.T) / 2 if np.abs(B + B.T).max(initial=0) > 1e-12 else np.eye(kernel.rank)
    size = None if size is None else min(size, np.linalg.matrix_rank(inner) if inner.size else 0)
    return SymmetricTree.prepare(kernel, inner=inner, size=size)


SAMPLERS = {
    "Exact": Exact.prepare,
    "Exact, size": lambda kernel: Exact.prepare(kernel, size=some_size(kernel)),
    "Exact, full size": lambda kernel: Exact.prepare(kernel, size=full_size(kernel)),
    "Walk, DirectUp": lambda kernel: Walk.prepare(kernel, size=some_size(kernel), steps=2),
    "Walk, RejectionUp": lambda kernel: Walk.prepare(kernel, size=some_size(kernel), up=RejectionUp(), steps=2),
    "Walk, NaiveUp": lambda kernel: Walk.prepare(kernel, size=some_size(kernel), up=NaiveUp(), steps=2),
    "Walk, full size": lambda kernel: Walk.prepare(kernel, size=full_size(kernel), steps=2),
    "Walk, thin": lambda kernel: Walk.prepare(kernel, size=some_size(kernel), thin=2, chains=3, burn_in=1),
    "RandomSize": lambda kernel: RandomSize.prepare(kernel, steps=2),
    "RandomSize, greedy": lambda kernel: RandomSize.prepare(kernel, steps=2, start="greedy"),
    "Rejection": Rejection.prepare,
    "Rejection, size": lambda kernel: Rejection.prepare(kernel, size=some_size(kernel)),
    "SymmetricTree": symmetric_tree,
    "SymmetricTree, size": lambda kernel: symmetric_tree(kernel, some_size(kernel)),
    "Cholesky": lambda kernel: Cholesky.prepare(kernel, block=3),
    "Clock": Clock.prepare,
    "Naive": Naive.prepare,
    "Naive, size": lambda kernel: Naive.prepare(kernel, size=some_size(kernel)),
}
CHAINS = ("Walk, DirectUp", "Walk, RejectionUp", "Walk, NaiveUp", "Walk, full size", "Walk, thin")
COUNTERS = {name: {"proposals", "seconds"} for name in SAMPLERS} | {
    name: {"proposals", "rejections", "steps", "seconds"} for name in CHAINS
}

every_sampler = pytest.mark.parametrize("name", SAMPLERS)
every_kernel = pytest.mark.parametrize("case", AWKWARD, ids=str)


@cache
def prepared(name: str, case: Case):
    return SAMPLERS[name](case.kernel)


def sets(draws):
    return [basket.tolist() for basket in draws.baskets]


@every_kernel
@every_sampler
def test_sets_are_sorted_and_can_occur(name, case):
    sampler = prepared(name, case)
    draws = sampler.sample(5, rng=1)
    assert len(draws) == len(draws.baskets) == 5
    assert draws.baskets.n_items == case.n_items
    for items in draws.baskets:
        assert items.dtype == np.int64
        assert (np.diff(items) > 0).all()
        assert items.size == 0 or (items[0] >= 0 and items[-1] < case.n_items)
        assert getattr(sampler, "size", None) in (None, len(items))
        assert "SymmetricTree" in name or case.kernel.log_det(items) > -np.inf


@every_kernel
@every_sampler
def test_a_draw_depends_on_seed_and_index_alone(name, case, monkeypatch):
    sampler = prepared(name, case)
    whole = sets(sampler.sample(5, rng=2))
    assert whole[:3] == sets(sampler.sample(3, rng=2))
    assert whole[4:] == sets(sampler.sample(1, rng=2, first=4))
    monkeypatch.setattr(base, "BATCH", 2)
    assert whole == sets(sampler.sample(5, rng=2, n_jobs=2))


@pytest.mark.parametrize("X", [np.zeros((3, 2)), np.ones((3, 2))], ids=["no rows", "no W"])
@every_sampler
def test_a_kernel_of_rank_zero_gives_empty_sets(name, X):
    kernel = LowRankKernel(X, np.eye(2) if not X.any() else np.zeros((2, 2)))
    assert sets(SAMPLERS[name](kernel).sample(2, rng=0)) == [[], []]


OF_SIZE_3 = {
    "Exact": lambda kernel: Exact.prepare(kernel, size=3),
    "Rejection": lambda kernel: Rejection.prepare(kernel, size=3),
    "Naive": lambda kernel: Naive.prepare(kernel, size=3),
    "DirectUp": lambda kernel: Walk.prepare(kernel, size=3, steps=2),
    "DirectUp, tree": lambda kernel: Walk.prepare(kernel, size=3, up=DirectUp(index=Tree.prepare), steps=2),
    "RejectionUp": lambda kernel: Walk.prepare(kernel, size=3, up=RejectionUp(), steps=2),
    "NaiveUp": lambda kernel: Walk.prepare(kernel, size=3, up=NaiveUp(), steps=2),
}


@pytest.mark.parametrize("power", [-498, 498])
@pytest.mark.parametrize("name", OF_SIZE_3)
@pytest.mark.parametrize("case", [BY_NAME["generic"], BY_NAME["singular L_A"]], ids=str)
def test_sets_of_one_size_do_not_see_the_scale(name, power, case):
    """10^±150 times the rows: entries of L next to what doubles hold, whose products are beyond it."""
    kernel = LowRankKernel(case.X * 2.0**power, case.W)
    assert sets(OF_SIZE_3[name](kernel).sample(20, rng=6)) == sets(OF_SIZE_3[name](case.kernel).sample(20, rng=6))


def test_enumeration_of_all_sets_at_any_scale():
    huge, tiny = (Naive.prepare(LowRankKernel(2.0**power * np.eye(3), np.eye(3))) for power in (498, -498))
    assert (huge.masks[-1], huge.law[-1]) == (0b111, 1.0)
    assert (tiny.masks[0], tiny.law[0]) == (0, 1.0)


@every_sampler
def test_seeds_matter_and_a_generator_moves_on(name):
    sampler = prepared(name, BY_NAME["generic"])
    assert sets(sampler.sample(20, rng=3)) != sets(sampler.sample(20, rng=4)) or "full size" in name
    rng = np.random.default_rng(5)
    first = sets(sampler.sample(20, rng=rng))
    assert first != sets(sampler.sample(20, rng=rng))
    assert first == sets(sampler.sample(20, rng=np.random.default_rng(5)))


@every_kernel
@every_sampler
def test_inputs_and_global_state_are_untouched(name, case):
    X, W, state = case.X.copy(), case.W.copy(), random.getstate()
    kernel = LowRankKernel(X, W)
    parts = [kernel.coordinates.B, kernel.coordinates.leverage, kernel.q_rows(np.arange(case.n_items))]
    before = [part.copy() for part in parts]
    SAMPLERS[name](kernel).sample(3, rng=0)  # conftest watches numpy's global state
    assert (X == case.X).all()
    assert (W == case.W).all()
    assert X.flags.writeable
    assert W.flags.writeable
    assert all((part == copy).all() for part, copy in zip(parts, before))
    assert random.getstate() == state


@every_kernel
@every_sampler
def test_counters(name, case):
    draws = prepared(name, case).sample(4, rng=6)
    assert COUNTERS[name] <= set(draws.info)
    for counter, values in draws.info.items():
        assert values.shape == (4,)
        assert np.isfinite(values).all()
        assert (values >= 0).all()
        if counter in draws.worst:
            assert draws.worst[counter] in (values.min(), values.max())
        else:
            assert draws.totals[counter] == pytest.approx(values.sum())
    assert not set(draws.totals) & set(draws.worst)


@every_sampler
@pytest.mark.parametrize("case", ["generic", "broken pairs", "singular L_A"])
def test_restricted_kernels_return_catalogue_ids(name, case):
    kernel = BY_NAME[case].kernel.exclude([0])
    draws = SAMPLERS[name](kernel).sample(10, rng=7)
    drawn = {int(a) for basket in draws.baskets for a in basket}
    assert drawn
    assert 0 not in drawn
    assert drawn <= set(kernel.support.tolist())
    assert draws.baskets.n_items == BY_NAME[case].n_items


@every_sampler
def test_labels_travel(name):
    case = BY_NAME["generic"]
    labels = [f"item {a}" for a in range(case.n_items)]
    assert SAMPLERS[name](LowRankKernel(case.X, case.W, labels=labels)).sample(1, rng=0).baskets.labels == tuple(labels)


@every_sampler
def test_no_draws_and_bad_counts(name):
    sampler = prepared(name, BY_NAME["generic"])
    assert len(sampler.sample(0, rng=0)) == 0
    with pytest.raises(ValueError, match="n_samples"):
        sampler.sample(-1)
    with pytest.raises(ValueError, match="n_samples"):
        sampler.sample(2.5)
