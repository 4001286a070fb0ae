"""What laws keep for the next call: never more than the budget, counted truly, and freed with the law."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import goodness
import ndpp
from mixtures import dense, enumerate_mixture, parts
from ndpp import Baskets, FamilyMixture, Limit, LowRankKernel, Mixture, Ranking
from ndpp._memory import ENTRY_BYTES, Memory
from ndpp.answers import Prepared, prepared, questions
from ndpp.laws.law import Law

N, RANK, N_COMPONENTS = 400, 24, 10


def ties() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((RANK, RANK)) / 4
    return rng.standard_normal((N, RANK)) / np.sqrt(RANK), np.eye(RANK) + A - A.T


def odds(n: int = N) -> np.ndarray:
    return np.exp(np.random.default_rng(1).normal(-4.5, 1.0, (N_COMPONENTS, n)))


def weights() -> np.ndarray:
    return np.full(N_COMPONENTS, 1 / N_COMPONENTS)


def kernels() -> Mixture:
    X, W = ties()
    return Mixture(
        [LowRankKernel(0.5 * np.sqrt(one)[:, None] * X, W, background=one) for one in odds()[:4]], np.full(4, 0.25)
    )


def families() -> FamilyMixture:
    X, W = ties()
    each = np.random.default_rng(2).uniform(0.2, 1.0, (2 * N, 1))
    return FamilyMixture(odds(), each, np.arange(2 * N) // 2, np.arange(N), X, W, weights())


LAWS: dict[str, Callable[[], Law]] = {
    "symmetric kernel": lambda: LowRankKernel(0.3 * ties()[0]),
    "kernel": lambda: LowRankKernel(0.3 * ties()[0], ties()[1]),
    "kernel with background": lambda: LowRankKernel(0.3 * ties()[0], ties()[1], background=odds()[0]),
    "mixture of kernels": kernels,
    "tied mixture": lambda: Mixture.tied(odds(), *ties(), weights()),
    "families": families,
}
every_law = pytest.mark.parametrize("kind", LAWS)


def ask_much(law: Law, memory: int, first: int = 0) -> None:
    """Draw sets of many kinds, and score items for baskets; those of another ``first`` are others."""
    for i in range(3):
        given = [first + 7 * i, first + 7 * i + 3][: 1 + i % 2]
        law.sample(1, given=given, rng=i, memory=memory)
        law.sample(1, given=given, size=4 + i % 2, rng=i, memory=memory)
    law.sample(1, limits=Limit(range(0, N, 2), most=2), rng=0, memory=memory)
    law.sample(1, exclude=[5], size=3, rng=1, memory=memory)
    baskets = Baskets.from_lists([[item, item + 20] for item in range(first, first + 20)], n_items=law.n_items)
    for ranking in Ranking:
        ndpp.recommend(law, [first], ranking=ranking)
        ndpp.recommend_many(law, baskets, ranking=ranking)
    law.inclusion_probabilities(given=[first])


@every_law
def test_every_byte_is_counted(kind: str):
    """What is freed when the memory is emptied is what it says it keeps, up to a tenth, and nothing else is kept."""
    law = LAWS[kind]()
    for first in (0, 100):  # everything is compiled, and the law knows what it computes once
        ask_much(law, 2**30, first)
    whole = law.memory.n_bytes
    ask_much(law, whole // 2)  # what is kept in less memory may be compiled, too
    law.memory.within(0)
    for first, memory in ((50, 2**30), (0, whole // 2)):
        tracemalloc.start()
        try:
            ask_much(law, memory, first)
            counted = law.memory.n_bytes
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            law.memory.within(0)
            gc.collect()
            left = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert counted <= 1.1 * memory
        assert counted == pytest.approx(before - left, rel=0.1, abs=20_000)
        assert left <= whole / 20


@every_law
def test_a_law_is_freed_with_its_last_user(kind: str):
    """Without waiting for the garbage collector: rows may be large, or in a file that is to be replaced."""
    law = LAWS[kind]()
    gc.collect()
    gc.disable()
    try:
        for options in ({"size": 3}, {"given": [1]}, {"size": 12}, {"limits": Limit([0, 2, 4], least=1)}):
            law.sample(2, rng=0, **options)
        gone, kept = weakref.ref(law), weakref.ref(law.memory)
        del law
        assert gone() is None
        assert kept() is None
    finally:
        gc.enable()


def test_laws_of_the_same_components_share_what_is_kept():
    """Whatever their weights: sets of a size that needs tilted components follow those of the law that is asked."""
    values, X, W, w = parts("several", "generic")
    law = Mixture.tied(values, X, W, w).with_context({"day": ("one", "two")}, [[0.0, 0.0, 0.0], [4.0, -4.0, 0.0]])
    for options in ({"size": 5}, {"limits": Limit([0, 1], least=2)}):
        law.sample(5, rng=0, **options)
    there = law.at(day="two")
    assert there.memory is law.memory
    known = len(law.memory)
    for options, keep in (
        ({"size": 5}, lambda S: len(S) == 5),
        ({"limits": Limit([0, 1], least=2)}, lambda S: {0, 1} <= set(S)),
    ):
        expected = enumerate_mixture(dense("several", "generic")[0], there.weights, keep)
        goodness.assert_law(there.sample(600, rng=1, **options), expected)
    assert len(law.memory) < 2 * known
    assert law.without_empty().memory is law.memory
    assert law.tilt({0: 2.0}).memory is not law.memory


def test_the_laws_of_many_conditions_share_the_memory_of_their_model(monkeypatch: pytest.MonkeyPatch):
    law, budget = LAWS["tied mixture"](), 10**6
    for module in (prepared, questions):
        monkeypatch.setattr(module, "MEMORY", budget)
    model = Prepared(law)
    questions.complete(model, [3], size=6, seed=0)
    alone = law.memory.n_bytes
    for i in range(2 * prepared.KEPT):
        questions.complete(model, [3], size=6, seed=0, boost={i: 2.0})
        laws = [law, *(kept.law for kept in model._laws.values())]
        assert sum({id(vars(one.memory)): one.memory.n_bytes for one in laws}.values()) <= 1.1 * budget
    assert law.memory.n_bytes > 2 * alone
    del model, laws
    gc.collect()
    assert law.memory.n_bytes <= alone


def test_what_was_used_longest_ago_goes():
    memory, made = Memory(2_000 + 2 * ENTRY_BYTES), []

    def value(key: str):
        return memory.remember(key, lambda: made.append(key) or np.zeros(100))

    for key in ("a", "b", "a", "c", "a", "b"):
        value(key)
    assert made == ["a", "b", "c", "b"]
    assert memory.n_bytes == 2 * (800 + ENTRY_BYTES)
    value("large")
    assert memory.remember("large", lambda: None) is not None
    memory.within(900)
    assert len(memory) == 0


def test_values_that_grow_and_what_is_beside_count():
    class Growing:
        n_bytes, grows = 100, True

    fixed, grown = Growing(), Growing()
    memory = Memory(10_000, beside=fixed)
    memory.remember("grown", lambda: grown)
    grown.n_bytes = 5_000
    memory.remember("grown", lambda: None)
    assert memory.n_bytes == 5_100 + ENTRY_BYTES
    fixed.n_bytes = 9_000
    memory.remember("other", lambda: np.zeros(10))
    assert "grown" not in memory
    outer = Memory(10**6)
    inner = outer.remember("inner", lambda: Memory(10**6))
    inner.remember("array", lambda: np.zeros(1000))
    assert outer.n_bytes == 8_000 + 2 * ENTRY_BYTES
    assert ndpp.LowRankKernel(np.eye(2)).memory.n_bytes == 0
