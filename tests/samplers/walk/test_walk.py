"""The down-up walk: one step keeps the law, chains are what they say, and what cannot be is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.linalg import block_diag

import goodness
import oracles
from kernels import BY_NAME, pair_blocks
from ndpp import LowRankKernel
from ndpp.errors import BudgetExceededError, ImpossibleSizeError, InvalidInputError, ZeroProbabilityError
from ndpp.samplers import base
from ndpp.samplers.naive import Naive
from ndpp.samplers.walk import Walk, up_direct
from ndpp.samplers.walk import sampler as walk
from ndpp.samplers.walk.random_size import RandomSize
from ndpp.samplers.walk.up import NaiveUp
from ndpp.samplers.walk.up_direct import DirectUp
from ndpp.samplers.walk.up_rejection import RejectionUp


def exact_counts(case, size, n_draws, seed):
    """How often each set comes among exact draws, as sorted rows."""
    naive = Naive.prepare(case.kernel, size=size)
    counts = np.random.default_rng(seed).multinomial(n_draws, naive.law)
    return [
        (np.array([a for a in range(case.n_items) if mask >> a & 1]), int(c))
        for mask, c in zip(naive.masks, counts)
        if c
    ]


def one_step(case, size, up, n_draws, seed):
    """Sets one step after exact draws."""
    chain, rng = Walk.prepare(case.kernel, size=size, up=up), np.random.default_rng(seed)
    out = []
    for rows, count in exact_counts(case, size, n_draws, seed):
        state = chain.init(rng, start=rows)
        out += [tuple(chain.step(rng, state)[0].items.tolist()) for _ in range(count)]
    return out


# ---- the law ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "up", "n_draws"),
    [
        ("generic", 4, DirectUp(), 1_000),  # as many as the negative controls below
        ("generic", 4, RejectionUp(), 1_000),
        ("broken pairs", 4, DirectUp(), 500),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "prepare") else str(value),
)
def test_one_step_keeps_the_law(name, size, up, n_draws, remembered):
    case = BY_NAME[name]
    goodness.assert_law(one_step(case, size, up, n_draws, 1), oracles.enumerate_law(case.L, size))


@pytest.mark.parametrize(("name", "size"), [("generic", 4), ("broken pairs", 5)])
def test_one_naive_step_keeps_the_law(name, size):
    """50,000 draws; those that keep the same items share the enumeration of the pairs."""
    case, rng = BY_NAME[name], np.random.default_rng(2)
    up, kept_counts, out = NaiveUp().prepare(case.kernel, size), {}, {}
    for rows, count in exact_counts(case, size, 50_000, 2):
        places = np.column_stack(np.triu_indices(size, 1))
        for gone, times in zip(places, rng.multinomial(count, np.full(len(places), 1 / len(places)))):
            kept = tuple(np.delete(rows, gone).tolist())
            kept_counts[kept] = kept_counts.get(kept, 0) + int(times)
    for kept, count in kept_counts.items():
        if count:
            pairs, law = up.law(np.array(kept, np.int64))
            for pair, times in zip(pairs.tolist(), rng.multinomial(count, law)):
                key = tuple(sorted((*kept, *pair)))
                out[key] = out.get(key, 0) + int(times)
    goodness.assert_law({key: count for key, count in out.items() if count}, oracles.enumerate_law(case.L, size))


def test_law_check_rejects_a_wrong_up_step(monkeypatch):
    """Negative control: the first item of the pair is drawn from B^A, as if it came alone."""
    case = BY_NAME["mostly skew"]
    monkeypatch.setattr(
        up_direct,
        "first_probabilities",
        lambda f, given, rows: np.einsum("ij,jk,ik->i", f.Q[rows], given.inner, f.Q[rows]) / given.trace,
    )
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(one_step(case, 4, DirectUp(), 1_000, 3), oracles.enumerate_law(case.L, 4))


def test_law_check_rejects_a_uniform_pair():
    """Negative control: any pair of positive probability is put back."""

    class UniformUp:
        def prepare(self, kernel, size):
            self.up = NaiveUp().prepare(kernel, size)
            return self

        def pair(self, rng, kept_rows):
            pairs, law = self.up.law(kept_rows)
            return rng.choice(pairs[law > 0]), {}

    case = BY_NAME["generic"]
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(one_step(case, 4, UniformUp(), 1_000, 4), oracles.enumerate_law(case.L, 4))


@pytest.mark.parametrize(("name", "size"), [("generic", 0), ("generic", 1), ("singular L_A", 1)])
def test_sizes_zero_and_one_are_exact(name, size):
    case = BY_NAME[name]
    draws = Walk.prepare(case.kernel, size=size).sample(1_000, rng=5)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, size))
    assert draws.totals["steps"] == 0


def test_size_two_is_exact_after_one_step():
    case = BY_NAME["generic"]
    draws = Walk.prepare(case.kernel, size=2, steps=1, start="greedy").sample(1_000, rng=6)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, 2))


def test_chains_reach_the_law(remembered):
    case = BY_NAME["far from normal"]
    draws = Walk.prepare(case.kernel, size=3, start="greedy", steps=12).sample(500, rng=7)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, 3))


# ---- starts -------------------------------------------------------------------------------------------------------


def test_a_uniform_start_is_uniform_over_the_possible_sets():
    case = BY_NAME["broken pairs"]
    chain, rng = Walk.prepare(case.kernel, size=4), np.random.default_rng(8)
    possible = oracles.enumerate_law(case.L, 4)
    assert len(possible) < 35  # of the 35 sets of four items some cannot occur
    draws = [chain.init(rng).items for _ in range(400)]
    goodness.assert_law(draws, dict.fromkeys(possible, 1 / len(possible)))


def test_a_start_where_sets_are_rare(monkeypatch):
    """20 tight pairs, 10 items: a uniform set has five whole pairs once in 50,000 draws."""
    monkeypatch.setattr(walk, "START_BUDGET", 100)
    kernel = LowRankKernel(np.eye(40), pair_blocks((1.0,) * 20))
    chain = Walk.prepare(kernel, size=10)
    with pytest.raises(BudgetExceededError, match="greedy") as caught:
        chain.sample(1, rng=0)
    assert caught.value.count == 100
    greedy = Walk.prepare(kernel, size=10, start="greedy", steps=3).sample(2, rng=0).baskets
    assert all((basket[::2] + 1 == basket[1::2]).all() for basket in greedy)


def test_zero_rows_do_not_spend_the_budget():
    case = BY_NAME["generic"]
    X = np.vstack([case.X, np.zeros((2_000, case.X.shape[1]))])
    state = Walk.prepare(LowRankKernel(X, case.W), size=5).init(0)
    assert state.items.max() < case.n_items


def test_given_starts():
    case = BY_NAME["generic"]
    chain = Walk.prepare(case.kernel, size=3, start=[5, 0, 2], steps=0)
    assert chain.sample(1, rng=0).baskets[0].tolist() == [0, 2, 5]
    assert chain.init(0, start=[1, 2, 3]).items.tolist() == [1, 2, 3]
    assert chain.init(0, start="greedy").items.shape == (3,)
    restricted = Walk.prepare(case.kernel.exclude([0, 3]), size=2, start=[7, 4])
    state = restricted.init(0)
    assert (state.items.tolist(), state.rows.tolist()) == ([4, 7], [2, 5])


@pytest.mark.parametrize(
    ("start", "error", "message"),
    [
        ([0, 1], InvalidInputError, "start must have 3 items"),
        ([0, 2, 4], ZeroProbabilityError, "probability zero"),
        ([0, 1, 1], InvalidInputError, "repeat"),
        ([0, 1, 99], InvalidInputError, "unknown item"),
        ("random", InvalidInputError, "uniform"),
    ],
)
def test_bad_starts(start, error, message):
    kernel = BY_NAME["broken pairs"].kernel
    with pytest.raises(error, match=message):
        Walk.prepare(kernel, size=3, start=start)
    with pytest.raises(error, match=message):
        Walk.prepare(kernel, size=3).init(0, start=start)


def test_a_greedy_start_that_steps_over_the_size():
    """The greedy run takes item 6 first and pairs after it: it has no set of two items."""
    with pytest.raises(InvalidInputError, match="uniform"):
        Walk.prepare(BY_NAME["broken pairs"].kernel, size=2, start="greedy")


# ---- chains -------------------------------------------------------------------------------------------------------


def test_a_chain_is_its_init_and_its_steps():
    chain = Walk.prepare(BY_NAME["generic"].kernel, size=4, steps=5, burn_in=2)
    draws = chain.sample(3, rng=9)
    key = base.stream_key(9)
    for i in range(3):
        rng = base.stream(key, i)
        state = chain.init(rng)
        for _ in range(7):
            state, info = chain.step(rng, state)
            assert info["proposals"] == 1
        assert state.items.tolist() == draws.baskets[i].tolist()
    assert draws.info["steps"].tolist() == [7, 7, 7]


def test_steps_default_to_the_square_of_the_size():
    assert Walk.prepare(BY_NAME["generic"].kernel, size=3).sample(1, rng=0).info["steps"].tolist() == [9]


def test_long_chains_interleave():
    """Sample i is that of chain i mod 3 after burn_in + thin·(1 + i div 3) steps of that chain's own stream."""
    kernel = BY_NAME["generic"].kernel
    chain = Walk.prepare(kernel, size=4, thin=2, chains=3, burn_in=3)
    draws = chain.sample(200, rng=10)
    key = base.stream_key(10)
    for c in range(3):
        rng = base.stream(key, c)
        state = chain.init(rng)
        for step in range(1, 3 + 2 * 67):
            state, _ = chain.step(rng, state)
            i, rest = divmod(step - 3, 2)
            if i >= 1 and rest == 0 and 3 * (i - 1) + c < 200:
                assert state.items.tolist() == draws.baskets[3 * (i - 1) + c].tolist()
    assert draws.info["steps"][:3].tolist() == [5, 5, 5]
    assert set(draws.info["steps"][3:].tolist()) == {2}
    tail = chain.sample(7, rng=10, first=193, n_jobs=2)
    assert [b.tolist() for b in tail.baskets] == [b.tolist() for b in draws.baskets[193:]]


def test_one_long_chain_reaches_the_law():
    """Thinned so far that its sets are all but independent: size 2 is exact after one step."""
    case = BY_NAME["generic"]
    draws = Walk.prepare(case.kernel, size=2, thin=1).sample(1_000, rng=11)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, 2))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"size": 9}, ImpossibleSizeError, "rank"),
        ({"size": -1}, InvalidInputError, "size"),
        ({"size": 3, "steps": -1}, InvalidInputError, "steps"),
        ({"size": 3, "thin": 0}, InvalidInputError, "thin"),
        ({"size": 3, "thin": 2, "steps": 4}, InvalidInputError, "give one"),
        ({"size": 3, "chains": 4}, InvalidInputError, "thin"),
        ({"size": 3, "burn_in": 1.5}, InvalidInputError, "burn_in"),
    ],
)
def test_bad_settings(arguments, error, message):
    with pytest.raises(error, match=message):
        Walk.prepare(BY_NAME["generic"].kernel, **arguments)


def test_odd_sizes_of_a_skew_kernel_are_impossible():
    with pytest.raises(ImpossibleSizeError, match="even size"):
        Walk.prepare(BY_NAME["purely skew"].kernel, size=3)


def test_a_spent_budget_carries_what_was_done(monkeypatch):
    chain = Walk.prepare(BY_NAME["generic"].kernel, size=3, steps=2)
    draw, seen = Walk.draw, []

    def spent(self, rng):
        if len(seen) == 2:
            raise BudgetExceededError("spent", count=7)
        seen.append(draw(self, rng))
        return seen[-1]

    monkeypatch.setattr(Walk, "draw", spent)
    with pytest.raises(BudgetExceededError) as caught:
        chain.sample(5, rng=0)
    assert len(caught.value.partial) == 2


# ---- random size --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tilt", [1.0, 1.2])
def test_random_size_over_many_draws(tilt, remembered):
    """Sizes 0 to 2: the chain is exact after one step. Negative control: sizes off by a fifth."""
    case = BY_NAME["two items"]
    sampler = RandomSize.prepare(case.kernel, start="greedy", steps=1)
    sampler = dataclasses.replace(sampler, law=sampler.law * tilt ** np.arange(3))
    draws, law = sampler.sample(5_000, rng=12), oracles.enumerate_law(case.L)
    if tilt == 1.0:
        goodness.assert_law(draws.baskets, law)
    else:
        with pytest.raises(AssertionError, match="do not follow the law"):
            goodness.assert_law(draws.baskets, law)


def test_random_size(remembered):
    case = BY_NAME["zero rows"]
    draws = RandomSize.prepare(case.kernel, start="greedy").sample(500, rng=13)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L))


def test_greedy_starts_are_nested():
    sampler = RandomSize.prepare(BY_NAME["generic"].kernel, start="greedy")
    for size in range(2, sampler.kernel.rank):
        smaller, larger = (set(sampler.walks[k].init(0).items.tolist()) for k in (size, size + 1))
        assert smaller < larger


def test_greedy_runs_that_step_over_sizes():
    """Sizes 2, 4 and 6 have no greedy set and begin at a uniform one."""
    sampler = RandomSize.prepare(BY_NAME["broken pairs"].kernel, start="greedy")
    assert [walk.start is None for walk in sampler.walks] == [False, False, True, False, True, False, True, False]
    assert sampler.walks[4].init(0).items.shape == (4,)


def test_random_size_refuses_bad_settings():
    kernel = LowRankKernel(np.eye(3), block_diag(np.eye(1), pair_blocks((1.0,))))
    with pytest.raises(InvalidInputError, match="start"):
        RandomSize.prepare(kernel, start="other")
    with pytest.raises(InvalidInputError, match="steps"):
        RandomSize.prepare(kernel, steps=-1)


def test_counters_that_a_draw_does_not_have_are_zero():
    """Sets of fewer than two items need no chain, and so no candidates for a pair."""
    case = BY_NAME["generic"]
    draws = RandomSize.prepare(LowRankKernel(case.X, 0.05 * case.W), steps=1).sample(40, rng=0)
    small = draws.baskets.sizes < 2
    assert 0 < small.sum() < 40
    assert not draws.info["item_proposals"][small].any()
    assert draws.info["item_proposals"][~small].all()


@pytest.mark.filterwarnings("ignore::ndpp.errors.PrecisionWarning")
def test_the_naive_step_takes_items_that_nearly_depend_on_each_other():
    """All minors of size 6 are below rounding of the dense kernel, but not of its factors."""
    kernel = LowRankKernel(np.vander(np.linspace(1, 1.1, 8), 6), np.eye(6))
    pairs, law = NaiveUp().prepare(kernel, 6).law(np.arange(4))
    log_dets = np.array([kernel.log_det([0, 1, 2, 3, *pair]) for pair in pairs])
    assert (log_dets < -90).all()
    np.testing.assert_allclose(law, np.exp(log_dets - log_dets.max()) / np.exp(log_dets - log_dets.max()).sum())
