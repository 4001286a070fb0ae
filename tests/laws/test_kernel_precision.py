"""LowRankKernel against exact arithmetic: how many digits, and that lost digits are said."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.special import logsumexp

import oracles
from kernels import Case, learned, pair_blocks, random_ndpp, skew
from ndpp.baskets import Baskets
from ndpp.errors import ImpossibleSizeError, PrecisionError, PrecisionWarning, ZeroProbabilityError
from ndpp.inference import next_item_scores
from ndpp.laws.files import load, save
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers import Cholesky, Clock, Exact, Naive, RandomSize, Rejection

coordinates = sys.modules["ndpp.linalg.coordinates"]  # the function of that name hides the module

TOLERANCE = 1e-9
SAID = 50 * TOLERANCE
"""Errors beyond this must have been announced."""


def spread_case(spread: float, n: int, d: int, mixed: bool) -> Case:
    name = f"10^±{spread:g}, n = {n}, d = {d}, {'mixed' if mixed else 'scaled'} columns"
    return Case(name, *random_ndpp(n, d, np.random.default_rng([int(spread), n, d]), spread=spread, mixed=mixed))


SHAPES = [(12, 12), (12, 8), (10, 14)]
MILD = [spread_case(1, *shape, mixed) for shape in SHAPES for mixed in (True, False)]
WIDE = [spread_case(6, *shape, mixed) for shape in SHAPES[:2] for mixed in (True, False)]
MEDIUM = [spread_case(3, *shape, mixed) for shape in SHAPES[:2] for mixed in (True, False)]


def given_sets(n: int) -> list[tuple[int, ...]]:
    """A set of each number of items, 0 to 5."""
    rng = np.random.default_rng(n)
    return [(), *(tuple(rng.permutation(n)[:k].tolist()) for k in range(1, 6))]


def relative_error(log_value: float, exact: mpmath.mpf) -> float:
    with mpmath.workdps(oracles.DIGITS):
        return float(abs(mpmath.expm1(mpmath.mpf(log_value) - exact)))


def inclusion_error(kernel: LowRankKernel, exact: list[mpmath.mpf], size: int | None, given: tuple[int, ...]) -> float:
    return float(np.abs(kernel.inclusion_probabilities(size, given) - np.array(exact, float)).max())


def rank_of(case: Case) -> int:
    return min(case.X.shape)


@pytest.mark.parametrize("case", MILD + MEDIUM + WIDE, ids=str)
def test_normalizers(case: Case):
    """log e_k: all sizes at spread 10^±1, half of them beyond. Any PrecisionWarning here would be an error."""
    most = rank_of(case) if case in MILD else rank_of(case) // 2
    for size in range(most + 1):
        exact = oracles.mp_log_ek(case.X, case.W, size)
        assert relative_error(case.kernel.log_normalizer(size), exact) <= TOLERANCE, size
    with mpmath.workdps(oracles.DIGITS):
        total = mpmath.log(sum(oracles.exact_law(case.X, case.W).ek))
    assert relative_error(case.kernel.log_normalizer(), total) <= TOLERANCE


@pytest.mark.parametrize("dense_entries", [4_000_000, 0])
def test_a_column_does_not_vanish_beside_one_far_larger(dense_entries: int, monkeypatch: pytest.MonkeyPatch):
    """Columns of X may be in any units; whether one depends on the others is judged by its own size, in catalogues of any size."""
    monkeypatch.setattr(coordinates, "DENSE_ENTRIES", dense_entries)
    rng = np.random.default_rng(7)
    X = rng.integers(-8, 9, (6, 4)) * 2.0 ** np.array([-100, -3, 0, 90])
    W = np.eye(4) + skew(rng.integers(-8, 9, (4, 4)) / 8)
    kernel, ek = LowRankKernel(X, W), oracles.exact_law(X, W).ek
    expected = [float(e / sum(ek)) for e in ek[:5]]
    assert kernel.rank == 4
    assert min(expected[1:4]) > 1e-3
    np.testing.assert_allclose(kernel.size_distribution(), expected, atol=1e-12)


@pytest.mark.parametrize("case", MILD + MEDIUM + WIDE, ids=str)
def test_size_distribution(case: Case):
    ek = oracles.exact_law(case.X, case.W).ek
    expected = [float(e / sum(ek)) for e in ek[: case.kernel.rank + 1]]
    np.testing.assert_allclose(case.kernel.size_distribution(), expected, atol=TOLERANCE)


@pytest.mark.parametrize("case", MILD + MEDIUM + WIDE, ids=str)
def test_inclusion_probabilities(case: Case):
    """Up to five given items; all sizes at spread 10^±1, half of them beyond."""
    most = rank_of(case) if case in MILD else rank_of(case) // 2
    exact = oracles.exact_law(case.X, case.W)
    for given in given_sets(case.n_items):
        inclusion = exact.inclusion(given)
        for size in range(len(given), most + 1):
            error = inclusion_error(case.kernel, inclusion[size], size, given)
            assert error <= TOLERANCE, f"size {size}, given {given}: {error:.2g}"
        if case in MILD:
            error = inclusion_error(case.kernel, inclusion[None], None, given)
            assert error <= TOLERANCE, f"given {given}: {error:.2g}"


def pair_error(kernel: LowRankKernel, exact: oracles.ExactLaw, size: int, items: tuple[int, ...]) -> float:
    """The largest error of P(a, b ∈ S | |S| = size)."""
    single = exact.inclusion(())[size]
    expected = [[float(single[a] * exact.inclusion((a,))[size][b]) if single[a] else 0.0 for b in items] for a in items]
    return float(np.abs(kernel.pair_probabilities(items, size=size) - expected).max())


@pytest.mark.parametrize("case", [*MILD[:2], MEDIUM[0], WIDE[2]], ids=str)
def test_pair_probabilities_of_a_size(case: Case):
    exact = oracles.exact_law(case.X, case.W)
    for size in range(1, (rank_of(case) if case in MILD else rank_of(case) // 2) + 1):
        error = pair_error(case.kernel, exact, size, (0, 3, 4, 9))
        assert error <= TOLERANCE, f"size {size}: {error:.2g}"


# ---- never silent ---------------------------------------------------------------------------------------------------


def _orthogonal(d: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def _hard_cases() -> list[Case]:
    """Kernels that double precision cannot carry at some sizes, for all the reasons we could think of."""
    rng = np.random.default_rng(11)
    X = rng.standard_normal((10, 8))
    cases = [spread_case(s, n, d, mixed) for s in (6, 7, 9) for n, d in SHAPES[:2] for mixed in (True, False)]
    for s in (3, 5, 6, 7):
        U = _orthogonal(8, rng)
        W = (U * 10.0 ** np.linspace(s, -s, 8)) @ U.T
        cases.append(Case(f"W symmetric, 10^±{s}", X, (W + W.T) / 2))
    for s in (3, 5):
        U = _orthogonal(8, rng)
        cases.append(Case(f"W skew, 10^±{s}", X, skew(U @ pair_blocks(10.0 ** np.linspace(s, -s, 4)) @ U.T)))
    v, S = rng.standard_normal((8, 3)), skew(rng.standard_normal((8, 8)))
    for e in (1e-4, 1e-8, 1e-12):
        cases.append(Case(f"low rank and {e:g} skew", X, v @ v.T + e * S))
        cases.append(Case(f"skew and {e:g} symmetric", X, e * np.eye(8) + S))
        twins = X.copy()
        twins[1] = twins[0] * (1 + e * rng.standard_normal(8))
        cases.append(Case(f"rows that differ by {e:g}", twins, np.eye(8) + S))
    scaled = X * 10.0 ** np.linspace(6, -6, 10)[:, None]
    cases.append(Case("rows over 10^±6", scaled, np.eye(8) + S))
    return cases


@pytest.mark.parametrize("case", _hard_cases(), ids=str)
def test_lost_digits_are_said(case: Case):
    """Every size, with and without given items: right to 5e-8, or a warning, or an error; never silently wrong."""
    kernel, exact = case.kernel, oracles.exact_law(case.X, case.W)
    silent = []
    for size in range(1, kernel.rank + 1):
        error = _unless_said(_log_error, kernel, exact, size)
        silent += [(f"log e_{size}", error)] if error > SAID else []
    for given in (*given_sets(case.n_items)[::3], (0, 1)):
        inclusion = exact.inclusion(given)
        for size in chain([None], range(max(len(given), 1), kernel.rank + 1)):
            expected = inclusion.get(size, [mpmath.nan] * case.n_items)
            error = _unless_said(inclusion_error, kernel, expected, size, given)
            silent += [(f"inclusion, size {size}, given {given}", error)] if not error <= SAID else []
    assert not silent, f"{len(silent)} silent errors; the worst: {max(silent, key=lambda pair: pair[1])}"


@pytest.mark.parametrize("case", _hard_cases()[::4], ids=str)
def test_lost_digits_of_pairs_are_said(case: Case):
    exact = oracles.exact_law(case.X, case.W)
    sizes = [size for size in exact.inclusion(()) if size is not None and size > 1]
    errors = {size: _unless_said(pair_error, case.kernel, exact, size, (0, 1, 5)) for size in sizes}
    assert not {size: error for size, error in errors.items() if not error <= SAID}


def _log_error(kernel: LowRankKernel, exact: oracles.ExactLaw, size: int) -> float:
    value, true = kernel.log_normalizer(size), exact.ek[size]
    if value == -np.inf:
        # zero, or so far below the neighbouring sizes that rounding has eaten it
        return float(true / max(exact.ek[size - 1 : size + 2])) if true else 0.0
    return relative_error(value, mpmath.log(true)) if true else np.inf


def _unless_said(compute: Callable[..., float], *arguments: Any) -> float:
    """The error, or zero where the library gave a warning or refused."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            error = compute(*arguments)
        except (PrecisionError, ImpossibleSizeError, ZeroProbabilityError):
            return 0.0
    return 0.0 if any(issubclass(w.category, PrecisionWarning) for w in caught) else error


def test_warnings_say_what_to_expect():
    case = spread_case(7, 12, 12, True)
    with pytest.warns(PrecisionWarning, match="relative error"):
        case.kernel.log_normalizer(8)
    with pytest.raises(PrecisionError, match=r"double precision.*smaller size"):
        LowRankKernel(*random_ndpp(12, 12, np.random.default_rng(0), spread=7.4)).inclusion_probabilities(12)


# ---- sets of any size, and conditionals -----------------------------------------------------------------------------


def identity_by_cancellation(bits: int) -> LowRankKernel:
    """X W Xᵀ is the identity, exactly, as a difference of terms of order 2^(2·bits)."""
    d = 2.0**-bits
    W = np.array([[(1 + d) ** 2 + 1, -(2 + d)], [-(2 + d), 2.0]]) / d**2
    return LowRankKernel(np.array([[1.0, 1.0], [1.0, 1.0 + d]]), W)


QUESTIONS: dict[str, Callable[[LowRankKernel], Any]] = {
    "size_distribution": lambda kernel: kernel.size_distribution(),
    "log_normalizer": lambda kernel: kernel.log_normalizer(),
    "log_normalizer of a size": lambda kernel: kernel.log_normalizer(2),
    "log_prob": lambda kernel: kernel.log_prob([0, 1]),
    "log_probs": lambda kernel: kernel.log_probs(Baskets.from_lists([[0, 1]], n_items=2)),
    "log_det": lambda kernel: kernel.log_det([0, 1]),
    "log_mass": lambda kernel: kernel.log_mass([0, 1]),
    "inclusion_probabilities": lambda kernel: kernel.inclusion_probabilities(),
    "next_item_scores": lambda kernel: next_item_scores(kernel, [0]),
    "sample": lambda kernel: kernel.sample(1, rng=0),
    "sample of a size": lambda kernel: kernel.sample(1, size=2, rng=0),
    **{
        sampler.__name__: lambda kernel, sampler=sampler: sampler.prepare(kernel)
        for sampler in (Cholesky, Clock, Exact, Naive, RandomSize, Rejection)
    },
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("bits", [20, 22, 24])
def test_large_terms_that_cancel_are_refused(bits: int, question: str):
    with pytest.raises(PrecisionError, match="too small for double precision"):
        QUESTIONS[question](identity_by_cancellation(bits))


@pytest.mark.parametrize("question", QUESTIONS)
def test_terms_that_cancel_by_little_are_not(question: str):
    QUESTIONS[question](identity_by_cancellation(6))


GRADES = [(12, 8, 4, 0), (9, 6, 3, 0), (0, 4, 8, 12), (8, -8, 4, -4)]


@pytest.mark.parametrize("grades", GRADES, ids=str)
@pytest.mark.parametrize("given", [(0,), (0, 1), (0, 1, 2), (5, 3, 6)], ids=str)
def test_conditioning_keeps_directions_of_every_scale(grades: tuple[int, ...], given: tuple[int, ...]):
    """Right to ten digits, of any size, and without a warning: as with given=."""
    X = np.random.default_rng(0).integers(-9, 10, (8, 4)).astype(float)
    W = np.diag(10.0 ** np.array(grades))
    kernel = LowRankKernel(X, W)
    rest, inclusion = kernel.condition(given), oracles.exact_law(X, W).inclusion(given)
    assert rest.rank == 4 - len(given)
    sizes = [None, *range(len(given) + 1, 5)]
    for size in sizes:
        expected = np.array(inclusion[size], float)
        expected[list(given)] = 0.0
        found = rest.inclusion_probabilities(None if size is None else size - len(given))
        np.testing.assert_allclose(found, expected, atol=1e-10, err_msg=str(size))
    for a in set(range(8)) - set(given):
        expected = kernel.log_prob([*given, a]) - kernel.log_mass(given) + kernel.log_normalizer()
        assert rest.log_prob([a]) == pytest.approx(expected, abs=1e-9)
    draws = rest.sample(200, rng=1)
    assert not set(draws.indices.tolist()) & set(given)


def test_conditionals_of_other_columns_are_kernels_like_others(tmp_path: Path):
    """They are saved, loaded, restricted and conditioned again, and X may be a row source."""
    X = np.random.default_rng(0).integers(-9, 10, (8, 4)).astype(float)
    W = np.diag([1e12, 1e8, 1e4, 1.0])
    np.save(tmp_path / "X.npy", X)
    on_disk = LowRankKernel(np.load(tmp_path / "X.npy", mmap_mode="r"), W).condition([0, 1])
    rest = LowRankKernel(X, W).condition([0, 1])
    np.testing.assert_allclose(on_disk.size_distribution(), rest.size_distribution(), atol=1e-12)
    save(rest, tmp_path / "rest")
    again = load(tmp_path / "rest")
    np.testing.assert_array_equal(again.inclusion_probabilities(), rest.inclusion_probabilities())
    twice = rest.condition([2])
    np.testing.assert_allclose(
        twice.inclusion_probabilities(), LowRankKernel(X, W).condition([0, 1, 2]).inclusion_probabilities(), atol=1e-10
    )
    np.testing.assert_allclose(
        rest.restrict([3, 4, 5]).size_distribution(), rest.exclude([2, 6, 7]).size_distribution(), atol=1e-12
    )


def test_items_without_a_background_are_conditioned_on_by_scale_too():
    """L = diag(δ) + X W Xᵀ given items with δ = 0, whose conditional may have other columns than X."""
    X = np.random.default_rng(0).integers(-9, 10, (6, 3)).astype(float)
    odds = np.array([0.0, 0.0, 1.0, 2.0, 0.5, 1.0])
    kernel = LowRankKernel(X, np.diag([1e12, 1e6, 1.0]), background=odds)
    expected = kernel.inclusion_probabilities(given=[0, 1])
    expected[[0, 1]] = 0.0
    np.testing.assert_allclose(kernel.condition([0, 1]).inclusion_probabilities(), expected, atol=1e-9)


# ---- large ----------------------------------------------------------------------------------------------------------


def test_large_catalogue_at_every_size():
    """n = 50,000, d = 100, sizes 0..100: finite, consistent with each other, no warning."""
    rng = np.random.default_rng(12)
    X = rng.standard_normal((50_000, 100), np.float32) * np.geomspace(1, 0.01, 100, dtype=np.float32)
    kernel = LowRankKernel(X, np.eye(100) / 10 + skew(rng.standard_normal((100, 100))))
    assert X.size > coordinates.DENSE_ENTRIES  # the route of large catalogues
    log_e = np.array([kernel.log_normalizer(size) for size in range(101)])
    assert np.isfinite(log_e).all()
    assert logsumexp(log_e) == pytest.approx(kernel.log_normalizer(), rel=1e-12)
    law = kernel.size_distribution()
    assert law.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(law, np.exp(log_e - kernel.log_normalizer()), atol=1e-10)
    # e_1 = tr L, e_2 = (tr² L − tr L²)/2, from the d × d side
    A = kernel.W @ (X.astype(np.float64).T @ X.astype(np.float64))
    assert log_e[1] == pytest.approx(np.log(np.trace(A)), abs=1e-11)
    assert log_e[2] == pytest.approx(np.log((np.trace(A) ** 2 - np.sum(A * A.T)) / 2), abs=1e-11)
    assert log_e[100] == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-9)
    for size, given in ((1, ()), (50, ()), (99, ()), (25, (0, 7, 49_999))):
        inclusion = kernel.inclusion_probabilities(size, given)
        assert inclusion.sum() == pytest.approx(size, rel=1e-9)
        assert np.all(inclusion[list(given)] == 1)
    # Of full size every item is in as often as its row of Q is long; leverages of single precision are bounds on that.
    lengths = np.concatenate([np.einsum("ij,ij->i", Q, Q) for _, Q in kernel.q_blocks()])
    np.testing.assert_allclose(kernel.inclusion_probabilities(100), lengths, atol=1e-9)
    assert np.all((kernel.coordinates.leverage >= lengths) & (kernel.coordinates.leverage <= 1.04 * lengths))


@pytest.mark.data
@pytest.mark.parametrize("name", ["A", "B"])
def test_learned_kernels(name: str):
    kernel = learned(name).kernel
    assert kernel.rank == 200
    law, total = kernel.size_distribution(), kernel.log_normalizer()
    assert law.sum() == pytest.approx(1, abs=1e-12)
    for size in (1, 2, 10, 20, 35, 50, 100, 150, 190):
        value = kernel.log_normalizer(size)
        assert np.isfinite(value)
        assert np.exp(value - total) == pytest.approx(law[size], abs=1e-10)
    for size in (10, 190):
        assert kernel.inclusion_probabilities(size).sum() == pytest.approx(size, rel=1e-9)


def of_size(kernel: LowRankKernel, size: int) -> list[Callable[[], Any]]:
    """All ways to ask for sets of a size."""
    return [
        lambda: kernel.log_normalizer(size),
        lambda: kernel.log_mass(size=size),
        lambda: kernel.inclusion_probabilities(size),
        lambda: kernel.log_prob(list(range(size)), size),
        lambda: kernel.sample(size=size, rng=0),
    ]


@pytest.mark.parametrize(
    ("exponent", "background"),
    [(6, 1), (9, 1), (11, 1), (12, 1), (13, 1), *((k, 0) for k in (6, 9, 11, 12, 14, 16, 20, 100))],
)
def test_rare_sizes_are_computed_or_beyond_precision_but_not_impossible(exponent: int, background: int):
    """W is skew but for a tiny multiple of I, and so are its sets of odd size."""
    rng, tiny = np.random.default_rng(0), 10.0**-exponent
    W = skew(rng.normal(size=(6, 6))) + tiny * np.eye(6)
    delta = np.full(6, background * tiny)
    kernel = LowRankKernel(np.eye(6), W, background=delta if background else None)
    for size in (1, 3, 5):
        expected = oracles.mp_log_ek(np.eye(6), W + np.diag(delta), size)
        refused = 0
        for ask in of_size(kernel, size):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrecisionWarning)
                try:
                    ask()
                except PrecisionError:
                    refused += 1
        assert refused in (0, 5) or 9 < exponent < 13  # each judges its own rounding
        if not refused:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrecisionWarning)
                assert kernel.log_normalizer(size) == pytest.approx(float(expected), abs=1e-3)
        assert refused == 0 or exponent > 9
    for size in (2, 4, 6):
        found = float(oracles.mp_log_ek(np.eye(6), W + np.diag(delta), size))
        assert kernel.log_normalizer(size) == pytest.approx(found, rel=1e-9)


def test_impossible_sizes_stay_impossible():
    """Purely skew W, sizes beyond the rank, and given items that leave a purely skew rest."""
    rng = np.random.default_rng(0)
    W = skew(rng.normal(size=(6, 6)))
    X = rng.normal(size=(8, 6))
    for kernel, size in ((LowRankKernel(np.eye(6), W), 3), (LowRankKernel(X, W), 5), (LowRankKernel(X, np.eye(6)), 7)):
        assert kernel.log_normalizer(size) == -np.inf
        for ask in of_size(kernel, size)[2:]:
            with pytest.raises(ImpossibleSizeError):
                ask()
    W = np.zeros((5, 5))
    W[:4, :4] = skew(rng.normal(size=(4, 4)))
    for tiny, error in ((0.0, ImpossibleSizeError), (1e-15, PrecisionError)):
        W[4, 4] = tiny or 1.0
        W[0, 0] = tiny
        kernel = LowRankKernel(np.eye(5), W)
        asked = (lambda k: k.inclusion_probabilities(2, [4]), lambda k: k.sample(given=[4], size=2, rng=0))
        for ask in asked:
            with pytest.raises(error):
                ask(kernel)
