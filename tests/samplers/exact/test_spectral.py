"""The exact sampler on symmetric kernels: which kernels take the route by eigenvectors, and the sets that come out of it."""

from __future__ import annotations

import dataclasses
import itertools
import sys

import numpy as np
import pytest

import goodness
import oracles
from kernels import Case, eighths, pair_blocks
from ndpp import LowRankKernel
from ndpp.errors import BudgetExceededError, ImpossibleSizeError, InvalidKernelError, PrecisionError, PrecisionWarning
from ndpp.items import LeverageTable
from ndpp.items.table import seed_words, uniform
from ndpp.linalg.skew import symmetric_part
from ndpp.rows.scaled import Multiplied
from ndpp.samplers import Exact, Naive
from ndpp.samplers.base import stream, stream_key
from ndpp.samplers.exact import spectral
from ndpp.samplers.exact.spectral import choose, heads_table

DRAWS = 1_000
"""As many as the negative controls below need."""


def _cases() -> list[Case]:
    rng = np.random.default_rng(20)
    twins, zeros, deficient = eighths(rng, 8, 4), eighths(rng, 8, 4), eighths(rng, 8, 5)
    twins[5], twins[6], twins[7] = twins[0], twins[0], -2 * twins[1]
    zeros[[0, 4]] = 0.0
    deficient[:, 3], deficient[:, 4] = deficient[:, 0] - deficient[:, 1], deficient[:, 2] / 2
    low_rank = eighths(rng, 6, 3)
    square = np.eye(5) + eighths(rng, 5, 5, most=2)
    return [
        Case("generic", eighths(rng, 8, 4), np.eye(4)),
        Case("duplicate rows", twins, np.diag([1.0, 2.0, 0.5, 1.0])),
        Case("zero rows", zeros, np.eye(4)),
        Case("rank-deficient X", deficient, np.eye(5)),
        Case("singular W", eighths(rng, 8, 6), low_rank @ low_rank.T),
        Case("badly scaled rows", eighths(rng, 7, 4) * 2.0 ** np.array([[-10, 10, 0, 5, -5, 2, 0]]).T, np.eye(4)),
        Case("size is rank", square, np.eye(5)),
        Case("one item", np.array([[1.5]]), np.array([[1.0]])),
        Case("more columns than items", eighths(rng, 4, 7), np.eye(7)),
    ]


CASES = _cases()
GENERIC = CASES[0]
SPREAD = Case(
    "spread", eighths(np.random.default_rng(21), 7, 5), np.diag(10.0 ** np.array([12.0, 6.0, 0.0, -6.0, -12.0]))
)


def sizes_of(case: Case, given=(), exclude=()) -> list[int | None]:
    """Any size, one item more than given, and the middling and largest sizes that can occur."""
    sizes = oracles.possible_sizes(case.L, given, exclude)
    return [None, *dict.fromkeys([sizes[min(1, len(sizes) - 1)], sizes[len(sizes) // 2], sizes[-1]])]


def exact_minors(case: Case, size: int | None) -> dict[tuple[int, ...], float]:
    """P(S) in exact arithmetic: floating-point minors of a wide spread are rounding."""
    log_minors = np.array(oracles.exact_law(case.X, case.W).log_minors)
    sets = [s for s in oracles.subsets(case.n_items) if size in (None, len(s))]
    found = np.array([log_minors[oracles.mask_of(s)] for s in sets])
    weights = np.exp(found - found.max())
    return {s: float(w) for s, w in zip(sets, weights / weights.sum()) if w > 0}


def without(sampler: Exact) -> Exact:
    """The same sampler on the general route."""
    return dataclasses.replace(sampler, symmetric=False)


# ---- the sets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [*CASES[1:3], *CASES[4:]], ids=str)
def test_law(case):
    for size in sizes_of(case):
        sampler = Exact.prepare(case.kernel, size=size)
        assert sampler.symmetric
        draws = sampler.sample(DRAWS, rng=1).baskets
        goodness.assert_law(draws, oracles.enumerate_law(case.L, size))


@pytest.mark.parametrize(("given", "exclude"), [((2,), ()), ((2, 1), (3,))], ids=str)
@pytest.mark.parametrize("case", [CASES[0], CASES[3]], ids=str)
def test_law_with_given_and_excluded_items(case, given, exclude):
    for size in sizes_of(case, given, exclude):
        sampler = Exact.prepare(case.kernel, size=size, given=given, exclude=exclude)
        assert sampler.symmetric
        goodness.assert_law(
            sampler.sample(DRAWS, rng=2).baskets, oracles.enumerate_law(case.L, size, given=given, exclude=exclude)
        )


@pytest.mark.parametrize("size", [None, 1, 3, 5])
def test_law_at_a_spread_of_24_orders_of_magnitude(size):
    sampler = Exact.prepare(SPREAD.kernel, size=size)
    assert sampler.symmetric
    goodness.assert_law(sampler.sample(DRAWS, rng=3).baskets, exact_minors(SPREAD, size))


def test_larger_sets_by_their_inclusion_probabilities():
    """60 items, rank 20: one size, any size, and given items, beside the circle of :func:`inclusion_matrix`."""
    rng = np.random.default_rng(4)
    kernel = LowRankKernel(rng.standard_normal((60, 20)), np.diag(rng.uniform(0.1, 2.0, 20)))
    for settings in ({"size": 8}, {"size": 20}, {"size": 6, "given": [3, 5]}):
        hits = np.zeros((3_000, 60))
        for hit, basket in zip(hits, Exact.prepare(kernel, **settings).sample(3_000, rng=5).baskets):
            hit[basket] = 1.0
        goodness.assert_mean(hits, kernel.inclusion_probabilities(**settings))


@pytest.mark.parametrize("size", [None, 2])
def test_agrees_with_enumeration_and_with_the_general_route(size):
    sampler = Exact.prepare(GENERIC.kernel, size=size)
    draws = sampler.sample(DRAWS, rng=6).baskets
    goodness.assert_same_law(draws, Naive.prepare(GENERIC.kernel, size=size).sample(2_000, rng=7).baskets)
    goodness.assert_same_law(draws, without(sampler).sample(1_000, rng=8).baskets)


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize(
    ("kind", "kept"),  # where Q is kept, it is read, and never X
    [("F", True), (np.float32, False), ("F", False), ("memory map", False)],
)
def test_rows_of_any_kind(kind, kept, size, monkeypatch, tmp_path):
    if not kept:
        monkeypatch.setattr(sys.modules["ndpp.linalg.coordinates"], "DENSE_ENTRIES", 0)
    X = GENERIC.X
    if kind == "memory map":
        np.save(tmp_path / "X.npy", X)
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
    else:
        X = X.astype(kind) if kind is np.float32 else np.asfortranarray(X)
    kernel = LowRankKernel(X, GENERIC.W)
    assert (kernel.coordinates.Q is not None) == kept
    sampler = Exact.prepare(kernel, size=size)
    assert sampler.symmetric
    goodness.assert_law(sampler.sample(DRAWS, rng=9).baskets, oracles.enumerate_law(GENERIC.L, size))


@pytest.mark.parametrize("size", [None, 3])
def test_a_symmetric_kernel_with_a_background(size):
    odds = np.array([0.0, 0.5, 0.25, 0.0, 1.0, 2.0, 0.125, 0.5])
    kernel = LowRankKernel(GENERIC.X, GENERIC.W, background=odds)
    draws = kernel.sample(1_200, size=size, rng=10)
    goodness.assert_law(draws, oracles.enumerate_law(GENERIC.L + np.diag(odds), size))


@pytest.mark.parametrize("size", [None, 0, 1, 2, 4, 5])
def test_sets_of_eigenvectors(size):
    values = np.array([0.0, 1e-3, 0.5, 0.5, 2.0, 30.0])
    sets = [E for k in range(6) for E in itertools.combinations(range(6), k) if size in (None, k)]
    weight = {E: float(np.prod(values[list(E)])) for E in sets}
    law = {E: w / sum(weight.values()) for E, w in weight.items() if w}
    p, seed = values / (1 + values), seed_words(np.random.default_rng(5))
    heads = np.empty((0, 0)) if size is None else heads_table(p, 1 - p, size)
    goodness.assert_law([choose(seed, p, heads) for _ in range(2_000)], law)


# ---- negative controls ----------------------------------------------------------------------------------------------


def tampered(monkeypatch, change) -> Exact:
    """The sampler of three items whose spectrum went through ``change``."""
    of = spectral.Spectrum.of
    monkeypatch.setattr(spectral.Spectrum, "of", lambda *arguments: change(of(*arguments)))
    return Exact.prepare(GENERIC.kernel, size=3)


def plainly(monkeypatch) -> None:
    """Leave the loop of the sampler to the interpreter."""
    for name in ("_draw", "_advance", "_reflect"):
        monkeypatch.setattr(spectral, name, getattr(spectral, name).py_func)


def test_negative_control_eigenvectors_chosen_independently(monkeypatch):
    sampler = tampered(monkeypatch, lambda s: s._replace(heads=np.empty((0, 0))))
    with pytest.raises(AssertionError, match="probability zero were drawn"):
        goodness.assert_law(sampler.sample(DRAWS, rng=11).baskets, oracles.enumerate_law(GENERIC.L, 3))


def test_negative_control_eigenvectors_of_the_right_number_with_equal_chances(monkeypatch):
    half = np.full(4, 0.5)
    sampler = tampered(monkeypatch, lambda s: s._replace(chance=half, heads=heads_table(half, half, 3)))
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(sampler.sample(DRAWS, rng=12).baskets, oracles.enumerate_law(GENERIC.L, 3))


def test_negative_control_a_projection_that_is_not_updated(monkeypatch):
    """Without the reflection, items come twice; the sets without repetition do not follow the law either."""
    plainly(monkeypatch)
    monkeypatch.setattr(spectral, "_reflect", lambda *_: None)
    sampler, key, drawn = Exact.prepare(GENERIC.kernel, size=3), stream_key(13), []
    for i in range(3_000):
        try:
            drawn.append(sampler.draw(stream(key, i)).rows)
        except PrecisionError as error:
            assert "twice" in str(error)  # noqa: PT017 - some draws are right, and counted below
    assert 500 < len(drawn) < 3_000
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(drawn, oracles.enumerate_law(GENERIC.L, 3))


def test_compiled_draws_equal_plain_ones(monkeypatch):
    sampler = Exact.prepare(GENERIC.kernel, size=3)
    compiled = sampler.sample(100, rng=14).baskets
    plainly(monkeypatch)
    assert sampler.sample(100, rng=14).baskets == compiled


# ---- which kernels are symmetric ------------------------------------------------------------------------------------


def test_symmetric_up_to_rounding():
    rng = np.random.default_rng(15)
    A, X = rng.standard_normal((40, 60)), rng.standard_normal((50, 40))
    W = A @ A.T
    W[np.tril_indices(40, -1)] *= 1 + 2e-16 * rng.integers(-1, 2, 780)
    assert (W != W.T).any()
    kernel = LowRankKernel(X, W)
    for settings in ({}, {"size": 5}, {"size": 5, "given": [1, 7]}, {"exclude": [2]}, {"candidates": range(45)}):
        assert Exact.prepare(kernel, **settings).symmetric
    assert Exact.prepare(GENERIC.kernel.condition([2])).symmetric
    assert "symmetric=True" in repr(Exact.prepare(GENERIC.kernel))


@pytest.mark.parametrize("skew", [1e-14, 1e-12, 1e-3])
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20])
def test_a_skew_part_that_is_small_but_real_counts(skew, scale):
    """Relative to the entries of W: at any scale, also of one direction alone."""
    W = np.eye(4) + skew * np.pad(pair_blocks((1.0,)), (0, 2))
    for scales in (np.full(4, scale), np.array([scale, scale, 1.0, 1.0])):
        kernel = LowRankKernel(GENERIC.X, W * np.sqrt(np.outer(scales, scales)))
        assert not Exact.prepare(kernel, size=2).symmetric


def test_sets_that_only_a_tiny_skew_part_makes_possible():
    """Items 1 and 2 have L_aa = 0; the only set of three items has det L = 10⁻²⁴."""
    W = np.diag([1.0, 0.0, 0.0]) + 1e-12 * np.pad(pair_blocks((1.0,)), ((1, 0), (1, 0)))
    sampler = Exact.prepare(LowRankKernel(np.eye(3), W), size=3)
    assert not sampler.symmetric
    assert sampler.sample(2, rng=0).baskets.to_lists() == [[0, 1, 2]] * 2


def test_negative_eigenvalues_are_refused_when_the_kernel_is_made():
    with pytest.raises(InvalidKernelError, match="positive semidefinite"):
        LowRankKernel(GENERIC.X, np.diag([1.0, 1.0, 1.0, -1e-6]))


def test_negative_eigenvalues_that_rounding_explains():
    """A W in single precision: small ones count as zero, with a warning."""
    turn = np.linalg.qr(np.random.default_rng(25).standard_normal((4, 4)))[0]
    W, zero = (symmetric_part((turn * [1.0, 1.0, 0.5, last]) @ turn.T) for last in (-1e-6, 0.0))
    kernel = LowRankKernel(GENERIC.X, W.astype(np.float32))
    with pytest.warns(PrecisionWarning, match="sets of size 2"):
        sampler = Exact.prepare(kernel, size=2)
    assert sampler.symmetric
    goodness.assert_law(sampler.sample(DRAWS, rng=24).baskets, oracles.enumerate_law(GENERIC.X @ zero @ GENERIC.X.T, 2))
    with (
        pytest.warns(PrecisionWarning),
        pytest.raises(ImpossibleSizeError, match="larger than the rank of the kernel, 3"),
    ):
        Exact.prepare(kernel, size=4)
    with pytest.warns(PrecisionWarning, match="sets of any size"):
        kernel.size_distribution()


def test_negative_eigenvalues_that_rounding_does_not_explain(monkeypatch):
    """A Z that is off by one per cent is not drawn from."""
    sampler, given_none = (
        Exact.prepare(LowRankKernel(GENERIC.X, np.diag([1.0, 1.0, 0.5, 0.25])), size=3),
        spectral.condition_or_zero,
    )
    assert len(sampler.sample(1, rng=0).baskets) == 1

    def off(R, given):
        Z, log_minor = given_none(R, given)
        return Z - (np.linalg.eigvalsh(Z)[0] + 0.01) * np.eye(len(Z)), log_minor

    monkeypatch.setattr(spectral, "condition_or_zero", off)
    with pytest.raises(PrecisionError, match="choice of an eigenvector"):
        Exact.prepare(LowRankKernel(GENERIC.X, np.diag([1.0, 1.0, 0.5, 0.25])), size=3).sample(1, rng=0)


# ---- what it promises -----------------------------------------------------------------------------------------------


def test_proposals_are_those_of_the_theory_whatever_the_number_of_items():
    """r(1 + 1/2 + … + 1/k) on average."""
    rng = np.random.default_rng(16)
    for n in (50, 5_000):
        draws = Exact.prepare(LowRankKernel(rng.standard_normal((n, 20)), np.eye(20)), size=6).sample(2_000, rng=17)
        goodness.assert_mean(draws.info["proposals"], 20 * sum(1 / i for i in range(1, 7)))
        np.testing.assert_array_equal(draws.info["rejections"], draws.info["proposals"] - 6)


def test_draws_depend_on_seed_and_index_alone():
    sampler = Exact.prepare(GENERIC.kernel, size=3)
    whole = sampler.sample(200, rng=18).baskets
    assert sampler.sample(150, rng=18, first=50).baskets == whole[50:]
    assert sampler.sample(200, rng=18, n_jobs=2).baskets == whole
    assert Exact.prepare(GENERIC.kernel, size=3, memory=0).sample(200, rng=18).baskets == whole
    assert GENERIC.kernel.sample(200, size=3, rng=18) == whole


def test_rows_in_a_store_give_the_same_draws(monkeypatch):
    """Also where Q is not kept, so that rows are fetched as they are needed."""
    monkeypatch.setattr(sys.modules["ndpp.linalg.coordinates"], "DENSE_ENTRIES", 0)
    rng = np.random.default_rng(19)
    X, scale = rng.standard_normal((40, 6)), np.ones(40)
    here, there = LowRankKernel(X, np.eye(6)), LowRankKernel(Multiplied(X, scale), np.eye(6))
    for size in (None, 4):
        assert here.sample(100, size=size, rng=20) == there.sample(100, size=size, rng=20)


@pytest.mark.parametrize("bits", [np.random.MT19937, np.random.PCG64])
def test_a_generator_of_any_kind_will_do(bits):
    """Mersenne twisters have words of 32 bits."""
    sampler, rng = Exact.prepare(GENERIC.kernel, size=2), np.random.Generator(bits(23))
    goodness.assert_law([sampler.draw(rng).rows for _ in range(DRAWS)], oracles.enumerate_law(GENERIC.L, 2))


def test_sizes_that_are_certain():
    assert GENERIC.kernel.sample(2, size=0, rng=0).to_lists() == [[], []]
    assert GENERIC.kernel.sample(2, size=2, given=[4, 1], rng=0).to_lists() == [[1, 4], [1, 4]]


def test_a_budget_that_is_used_up_is_told():
    """One item of rank 20 takes twenty proposals on average; a budget counts whole blocks of them."""
    kernel = LowRankKernel(np.random.default_rng(22).standard_normal((200, 20)), np.eye(20))
    sampler = Exact.prepare(kernel, size=1)
    sampler.ladder.parts.table = LeverageTable.prepare(kernel, budget=1)
    with pytest.raises(BudgetExceededError, match="proposed by their leverage and rejected; 20 proposals") as caught:
        sampler.sample(100, rng=0)
    assert caught.value.count == spectral.BLOCK


@pytest.mark.parametrize("factor", [2.0, np.nan])
def test_probabilities_outside_their_range_are_told(factor, monkeypatch):
    sampler = tampered(monkeypatch, lambda s: s._replace(vectors=factor * s.vectors))
    with pytest.raises(PrecisionError, match="outside"):
        sampler.sample(100, rng=0)


def test_a_spectrum_that_cannot_give_the_size_is_told(monkeypatch):
    monkeypatch.setattr(spectral, "tilt_for", lambda *_: 1e-30)
    with pytest.raises(PrecisionError, match="3 further items"):
        Exact.prepare(GENERIC.kernel, size=3).sample(1, rng=0)


def test_random_numbers_are_those_of_xoshiro256pp():
    """The first words from the state 1, 2, 3, 4, by the arithmetic of whole numbers of any length."""
    mask, words = 2**64 - 1, [1, 2, 3, 4]

    def rotated(x: int, k: int) -> int:
        return (x << k | x >> (64 - k)) & mask

    state = np.array(words, np.uint64)
    for _ in range(100):
        word = (rotated((words[0] + words[3]) & mask, 23) + words[0]) & mask
        a, b, c, d = words
        c, d = c ^ a, d ^ b
        words = [a ^ d, b ^ c, c ^ (b << 17 & mask), rotated(d, 45)]
        assert uniform(state) == (word >> 11) / 2**53
    assert words == state.tolist()
    first = np.array([1, 2, 3, 4], np.uint64)
    assert [int(uniform(first) * 2**53) for _ in range(2)] == [41943041 >> 11, 58720359 >> 11]
