"""The exact sampler: every conditional law it draws from against enumeration and exact arithmetic, then the draws themselves."""

from __future__ import annotations

import dataclasses
import pickle
import warnings

import numpy as np
import pytest

import goodness
import oracles
from circles import plain_condition
from kernels import AWKWARD, BY_NAME, Case, learned, random_ndpp
from ndpp import LowRankKernel
from ndpp.errors import (
    ImpossibleSizeError,
    InvalidInputError,
    PrecisionError,
    PrecisionWarning,
    ZeroProbabilityError,
)
from ndpp.items import ItemDraw, LeverageTable
from ndpp.items.table import look_up
from ndpp.samplers.base import stream, stream_key
from ndpp.samplers.exact import Exact, node_route, routes
from ndpp.samplers.exact import nodes as _nodes
from ndpp.samplers.exact import sampler as exact
from ndpp.samplers.exact.node_route import NodesRoute


def probabilities(kernel: LowRankKernel, state: node_route.State) -> np.ndarray:
    """P(a ∈ S | chosen) for every row of the support, from the M the sampler would draw with."""
    Q = kernel.q_rows(np.arange(len(kernel.support)))
    out = np.einsum("ia,ab,ib->i", Q, state.inclusion.M, Q)
    out[state.rows] = 1.0
    return out


def walk_down(sampler: Exact, size: int, rng: np.random.Generator):
    """Yield the state before every draw of one sample."""
    nodes = sampler.nodes(size)
    state = nodes.start()
    while len(state.rows) < size:
        yield state
        state = nodes.add(state, sampler.index.draw(rng, state.inclusion.M))


# -- the laws it draws from --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_every_conditional_law_is_the_enumerated_one(case: Case):
    rng = np.random.default_rng(0)
    for size in oracles.possible_sizes(case.L):
        sampler = Exact.prepare(case.kernel, size=size)
        for _ in range(3):
            for state in walk_down(sampler, size, rng):
                expected = oracles.inclusion_probabilities(case.L, size, given=tuple(state.rows))
                np.testing.assert_allclose(probabilities(case.kernel, state), expected, atol=1e-8)


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_every_conditional_law_with_given_and_excluded_items(case: Case):
    """All sizes; given sets and exclusions by lot, those of probability zero among them, which must be refused."""
    rng, n = np.random.default_rng(1), case.n_items
    for n_given, n_excluded in [(0, 1), (1, 0), (1, 1), (2, 1), (3, 2)]:
        if n_given + n_excluded >= n:
            continue
        items = rng.permutation(n)
        given, excluded = items[:n_given], items[n_given : n_given + n_excluded]
        with np.errstate(invalid="ignore"):  # no set at all: NaN
            sizes = oracles.size_law(case.L, given, excluded)
        if np.all(np.isfinite(sizes)):
            law = Exact.prepare(case.kernel, given=given, exclude=excluded).size_law
            np.testing.assert_allclose(law, np.resize([*sizes[n_given:], *np.zeros(n)], len(law)), atol=1e-10)
        for size in range(n_given, n + 1):
            if not sizes[size] > 0:
                with pytest.raises((ImpossibleSizeError, ZeroProbabilityError)):
                    Exact.prepare(case.kernel, size=size, given=given, exclude=excluded)
                continue
            sampler = Exact.prepare(case.kernel, size=size, given=given, exclude=excluded)
            narrowed = sampler.kernel
            for state in walk_down(sampler, size - n_given, rng):
                chosen = [*given, *narrowed.catalogue_ids(state.rows)]
                expected = oracles.inclusion_probabilities(case.L, size, chosen, excluded)[narrowed.support]
                found = probabilities(narrowed, state)
                found[sampler.given] = 1.0
                np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize(
    ("spread", "mixed", "part"), [(1, True, 1.0), (1, False, 1.0), (6, True, 0.5), (6, False, 0.5)]
)
def test_every_conditional_law_against_exact_arithmetic(spread: int, mixed: bool, part: float):
    """n = 12: all sizes at spreads of 10^±1, up to half the rank at 10^±6."""
    X, W = random_ndpp(12, 12, np.random.default_rng(spread), spread=spread, mixed=mixed)
    kernel, law = LowRankKernel(X, W), oracles.exact_law(X, W)
    rng = np.random.default_rng(1)
    for size in range(1, int(12 * part) + 1):
        sampler = Exact.prepare(kernel, size=size)
        for state in walk_down(sampler, size, rng):
            expected = np.array([float(p) for p in law.inclusion(tuple(state.rows))[size]])
            np.testing.assert_allclose(probabilities(kernel, state), expected, atol=1e-8)


def test_beyond_double_precision_it_says_so():
    """Sizes that need directions double precision has lost: a warning, an error, or a right law; never a wrong one in silence."""
    X, W = random_ndpp(12, 12, np.random.default_rng(6), spread=6)
    kernel, law = LowRankKernel(X, W), oracles.exact_law(X, W)
    said = 0
    for size in range(7, 13):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                state = Exact.prepare(kernel, size=size).nodes(size).start()
            except (PrecisionError, ImpossibleSizeError):
                said += 1
                continue
        if any(issubclass(w.category, PrecisionWarning) for w in caught):
            said += 1
            continue
        expected = np.array([float(p) for p in law.inclusion()[size]])
        np.testing.assert_allclose(probabilities(kernel, state), expected, atol=1e-8)
    assert said > 0


@pytest.mark.data
@pytest.mark.parametrize(("name", "size", "samples"), [("A", 50, 2), ("B", 10, 10), ("B", 190, 1)])
def test_monitors_on_learned_kernels(name: str, size: int, samples: int):
    """tr M and the eigenvalues of sym(M) along whole samples at r = 200; ``experiments/publish/monitors.py`` runs 100 of each."""
    sampler, rng = Exact.prepare(learned(name).kernel, size=size), np.random.default_rng(size)
    for _ in range(samples):
        for state in walk_down(sampler, size, rng):
            assert abs(state.inclusion.trace - (size - len(state.rows))) <= 1e-7
            if len(state.rows) % 5 == 0:
                values = np.linalg.eigvalsh((state.inclusion.M + state.inclusion.M.T) / 2)
                assert values.min() >= -1e-8
                assert values.max() <= 1 + 1e-8


# -- the draws ---------------------------------------------------------------------------------------------------------------


DRAWS = 1_000
"""As many as the negative controls below need, other than that of the sizes, which needs ``MANY``."""
MANY = 10_000


@pytest.mark.parametrize(("name", "n_draws"), [("generic", MANY), ("zero diagonal", DRAWS)])
def test_unconstrained_law(name: str, n_draws: int):
    case = BY_NAME[name]
    goodness.assert_law(Exact.prepare(case.kernel).sample(n_draws, rng=1).baskets, oracles.enumerate_law(case.L))


def test_law_of_one_size_with_given_and_excluded_items():
    case = BY_NAME["generic"]
    draws = Exact.prepare(case.kernel, size=4, given=[2], exclude=[0, 6]).sample(DRAWS, rng=2)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, size=4, given=[2], exclude=[0, 6]))


def test_law_given_items_without_a_kernel_of_their_own():
    """det L_A = 0 although A can be part of a sample."""
    case = BY_NAME["singular L_A"]
    given = next(
        (a,) for a in range(case.n_items)
        if case.L[a, a] == 0 and any(a in s for s in oracles.enumerate_law(case.L))
    )  # fmt: skip
    goodness.assert_law(
        Exact.prepare(case.kernel, given=given).sample(DRAWS, rng=3).baskets,
        oracles.enumerate_law(case.L, given=given),
    )


def test_candidates_are_the_only_other_items():
    case = BY_NAME["generic"]
    draws = Exact.prepare(case.kernel, size=3, given=[2], candidates=[0, 1, 5, 7]).sample(DRAWS, rng=4)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, size=3, given=[2], exclude=[3, 4, 6]))


class LeverageAlone(LeverageTable):
    """An index that forgets the acceptance test."""

    def draw_counted(self, rng, M, *, bound=1.0):
        return ItemDraw(int(look_up(self.threshold, self.alias, rng.random((2, 1)))[0]), 1)


def test_negative_control_proposals_without_acceptance(monkeypatch: pytest.MonkeyPatch):
    case = BY_NAME["generic"]
    monkeypatch.setattr(routes, "LeverageTable", LeverageAlone)
    monkeypatch.setattr(exact, "ROUTES", (NodesRoute,))
    draws = Exact.prepare(case.kernel, size=1).sample(DRAWS, rng=6).baskets
    with pytest.raises(AssertionError):
        goodness.assert_law(draws, oracles.enumerate_law(case.L, size=1))


@pytest.mark.parametrize("wrong", [{"given": [3], "exclude": [0, 6]}, {"given": [2], "exclude": [0, 5]}], ids=str)
def test_negative_control_another_item_given_or_excluded(wrong: dict):
    """Rows of items 2 and 3, or 5 and 6, change places: the sets are possible, their probabilities wrong."""
    case = BY_NAME["generic"]
    swapped = np.arange(8)
    swapped[[2, 3, 5, 6]] = [3, 2, 5, 6] if wrong["given"] == [3] else [2, 3, 6, 5]
    kernel = LowRankKernel(case.X[swapped], case.W)
    draws = Exact.prepare(kernel, size=4, given=[2], exclude=[0, 6]).sample(DRAWS, rng=8).baskets
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(draws, oracles.enumerate_law(case.L, size=4, given=[2], exclude=[0, 6]))


def test_negative_control_sizes_off_by_a_tenth():
    case = BY_NAME["generic"]
    sampler = Exact.prepare(case.kernel)
    wrong = dataclasses.replace(sampler, size_law=sampler.size_law * 1.1 ** np.arange(len(sampler.size_law)))
    with pytest.raises(AssertionError):
        goodness.assert_law(wrong.sample(MANY, rng=7).baskets, oracles.enumerate_law(case.L))


def test_monitors_widen_a_rule_with_too_few_nodes(monkeypatch: pytest.MonkeyPatch):
    """The same poor plan with the monitors on: the sampler mends it."""
    case = BY_NAME["generic"]
    monkeypatch.setattr(node_route, "plan_next", lambda *_: (0, 2))
    sampler = Exact.prepare(case.kernel, size=3)
    for state in walk_down(sampler, 3, np.random.default_rng(0)):
        expected = oracles.inclusion_probabilities(case.L, 3, given=tuple(state.rows))
        np.testing.assert_allclose(probabilities(case.kernel, state), expected, atol=1e-8)


def test_gives_up_with_an_error_when_no_circle_will_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exact, "ROUTES", (NodesRoute,))
    monkeypatch.setattr(node_route, "_trustworthy", lambda *_: False)
    monkeypatch.setattr(node_route, "REFUSE_ERROR", 1e-20)
    with pytest.raises(PrecisionError, match=r"too large to draw from"):
        Exact.prepare(BY_NAME["generic"].kernel, size=3).sample(1, rng=0)


# -- what it promises --------------------------------------------------------------------------------------------------------


def test_compiled_conditioning_equals_plain():
    rng = np.random.default_rng(0)
    nodes = _nodes.Nodes(rng.standard_normal((2, 5, 17, 17)), rng.standard_normal(5) + 1j * rng.standard_normal(5))
    q = rng.standard_normal(17)
    expected, inclusion = plain_condition(nodes, q)
    untouched = nodes.Z.copy()
    only_m = nodes.condition(q, keep=False)[1]
    np.testing.assert_array_equal(nodes.Z, untouched)
    actual, kept = nodes.condition(q, keep=True)
    for got in (only_m, kept):
        np.testing.assert_allclose(got.M, inclusion.M, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(actual.Z, expected.Z, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(np.exp(actual.log_w), np.exp(expected.log_w), rtol=1e-10)


def test_building_with_given_items_equals_conditioning_one_by_one():
    rng = np.random.default_rng(1)
    R, q = rng.standard_normal((2, 4, 9, 9)), rng.standard_normal((3, 9))
    log_w = np.zeros(4, complex)
    built = _nodes.given_items(R, log_w, q)
    nodes = _nodes.Nodes(R, log_w)
    for row in q:
        nodes = plain_condition(nodes, row)[0]
    np.testing.assert_allclose(built.Z, nodes.Z, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(np.exp(built.log_w - built.log_w[0]), np.exp(nodes.log_w - nodes.log_w[0]), rtol=1e-8)


@pytest.mark.data
def test_a_sample_depends_on_the_seed_and_its_index_alone():
    """Whatever was drawn before, and however little may be cached."""
    kernel = learned("B").kernel
    roomy, tight = Exact.prepare(kernel, size=12), Exact.prepare(kernel, size=12, memory=1)
    key = stream_key(7)
    late = roomy.draw(stream(key, 5)).rows
    for i in (0, 3):
        roomy.draw(stream(key, i))
    np.testing.assert_array_equal(roomy.draw(stream(key, 5)).rows, late)
    np.testing.assert_array_equal(tight.draw(stream(key, 5)).rows, late)
    assert tight.ladder.memory.n_bytes < roomy.ladder.memory.n_bytes / 2


def test_a_ladder_in_another_process_has_the_same_rungs():
    ladder = Exact.prepare(BY_NAME["generic"].kernel, size=3, given=[1]).ladder
    copy = pickle.loads(pickle.dumps(ladder))
    np.testing.assert_array_equal(copy.circle(2, 4).Z, ladder.circle(2, 4).Z)
    assert copy.memory.budget == ladder.memory.budget


def test_kernel_sample_is_the_exact_sampler():
    kernel = BY_NAME["generic"].kernel
    direct = Exact.prepare(kernel, size=3, given=[1], exclude=[0]).sample(20, rng=9).baskets
    assert kernel.sample(20, size=3, given=[1], exclude=[0], rng=9) == direct
    assert kernel.sample(200, size=3, given=[1], exclude=[0], rng=9, n_jobs=2)[:20] == direct


def test_size_zero_and_whole_given_sets():
    kernel = BY_NAME["generic"].kernel
    assert kernel.sample(3, size=0, rng=0).to_lists() == [[], [], []]
    assert kernel.sample(2, size=2, given=[4, 1], rng=0).to_lists() == [[1, 4], [1, 4]]


def test_a_kernel_of_rank_zero_gives_empty_sets():
    kernel = LowRankKernel(np.zeros((3, 2)), np.eye(2))
    assert kernel.sample(2, rng=0).to_lists() == [[], []]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"size": -1}, InvalidInputError, "at least 0; got -1"),
        ({"size": 9}, ImpossibleSizeError, "rank of the kernel, 7; size 9"),
        ({"size": 1, "given": [0, 1]}, ImpossibleSizeError, "2 are given"),
        ({"size": 3, "given": [0, 0]}, InvalidInputError, "item 0 occurs 2 times"),
        ({"size": 3, "given": [99]}, InvalidInputError, "unknown item id 99"),
        ({"size": 3, "given": [1], "exclude": [1]}, ZeroProbabilityError, "item 1, which this kernel excludes"),
        ({"size": 4, "candidates": [0, 1]}, ImpossibleSizeError, "rank of the kernel, 2; size 4"),
        ({"candidates": [True, False, True]}, InvalidInputError, "candidates must be a flat sequence of integer"),
        ({"candidates": [0.5, 1.5]}, InvalidInputError, "candidates must be a flat sequence of integer"),
        ({"candidates": [1, 1]}, InvalidInputError, "candidates must not repeat"),
        ({"exclude": range(8)}, InvalidInputError, "none is left"),
        ({"memory": -1}, InvalidInputError, "memory must be at least 0"),
    ],
)
def test_bad_input_is_refused_before_any_work(arguments: dict, error: type, message: str):
    with pytest.raises(error, match=message):
        Exact.prepare(BY_NAME["generic"].kernel, **arguments)


def test_impossible_sizes_and_sets_are_refused():
    with pytest.raises(ImpossibleSizeError, match="even size only"):
        Exact.prepare(BY_NAME["purely skew"].kernel, size=3)
    with pytest.raises(ZeroProbabilityError, match="together"):
        Exact.prepare(BY_NAME["duplicate rows"].kernel, given=[0, 5])
    with pytest.raises(InvalidInputError, match="device"):
        BY_NAME["generic"].kernel.sample(1, device="abacus")


@pytest.mark.parametrize("epsilon", [1e-6, 1e-9])
@pytest.mark.filterwarnings("ignore::ndpp.errors.PrecisionWarning")
def test_single_items_of_a_nearly_skew_kernel(epsilon: float):
    """P(a) ∝ L_aa, although sets of one item hardly ever occur: no circle can tell them from the others."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((6, 6))
    kernel = LowRankKernel(rng.standard_normal((10, 6)), epsilon * np.eye(6) + A - A.T)
    draws = Exact.prepare(kernel, size=1).sample(4000, rng=1).baskets
    diagonal = np.diag(kernel.to_dense())
    expected = 4000 * diagonal / diagonal.sum()
    counts = np.bincount(draws.indices, minlength=10)
    assert ((counts - expected) ** 2 / expected).sum() < 27.9  # one in a thousand, for 9 degrees of freedom
