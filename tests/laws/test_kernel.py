"""What LowRankKernel has beside the face of every law (``test_contract``): its matrix and coordinates, and what it takes and refuses."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

import oracles
from kernels import AWKWARD, BY_NAME, Case, random_ndpp, random_vbd
from ndpp.baskets import Baskets
from ndpp.errors import (
    ImpossibleSizeError,
    InvalidInputError,
    InvalidKernelError,
    NoConditionalKernelError,
    RowsUnavailableError,
    UnknownItemError,
    ZeroProbabilityError,
)
from ndpp.laws.kernel import LowRankKernel

TOLERANCE = 1e-10
every_case = pytest.mark.parametrize("case", AWKWARD, ids=str)


def small_sets(n: int, most: int) -> list[tuple[int, ...]]:
    """All single items, every other pair, one in ten of the larger sets."""
    step = (1, 1, 2, 10)
    return [A for k in range(min(n, most) + 1) for A in list(combinations(range(n), k))[:: step[k]]]


# ---- enumeration ----------------------------------------------------------------------------------------------------


@every_case
def test_log_det_and_normalizers(case: Case):
    sets, minors = oracles.subsets(case.n_items), oracles.exact_law(case.X, case.W).log_minors
    for i in range(0, len(sets), 1 + len(sets) // 100):
        assert case.kernel.log_det(sets[i]) == pytest.approx(minors[i], abs=TOLERANCE)
    assert case.kernel.log_normalizer() == pytest.approx(np.log(oracles.minors(case.L).sum()), abs=TOLERANCE)
    for size in range(case.n_items + 2):
        expected = oracles.log_ek(case.L, size)
        assert case.kernel.log_normalizer(size) == pytest.approx(expected, abs=TOLERANCE)


def _can_occur(minors: np.ndarray, items: tuple[int, ...]) -> bool:
    inside = oracles.mask_of(items)
    return bool(minors[np.arange(len(minors)) & inside == inside].any())


@every_case
def test_dense_form(case: Case):
    np.testing.assert_allclose(case.kernel.to_dense(), case.L, atol=1e-12 * np.abs(case.L).max())
    assert case.kernel.rank == np.linalg.matrix_rank(case.L)
    if case.n_items > 1:
        dense = case.kernel.exclude([0]).to_dense()
        assert not dense[0].any()
        assert not dense[:, 0].any()
        np.testing.assert_allclose(dense[1:, 1:], case.L[1:, 1:], atol=1e-12 * np.abs(case.L).max())


@every_case
def test_coordinates_are_orthonormal_and_give_back_the_kernel(case: Case):
    kernel, coords = case.kernel, case.kernel.coordinates
    Q = np.vstack([block for _, block in kernel.q_blocks()])
    np.testing.assert_allclose(Q.T @ Q, np.eye(kernel.rank), atol=1e-12)
    np.testing.assert_allclose(Q @ coords.B @ Q.T, case.L, atol=1e-11 * np.abs(case.L).max())
    np.testing.assert_allclose(coords.leverage, (Q**2).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(kernel.q_rows(np.array([case.n_items - 1, 0])), Q[[-1, 0]], atol=1e-12)


@every_case
def test_leverage_bounds_every_inclusion_probability(case: Case):
    minors = oracles.minors(case.L)
    for given in small_sets(case.n_items, 2)[::6]:
        if _can_occur(minors, given):
            for size in oracles.possible_sizes(case.L, given):
                inclusion = case.kernel.inclusion_probabilities(size, given)
                free = np.setdiff1d(np.arange(case.n_items), given)
                assert np.all(inclusion[free] <= case.kernel.coordinates.leverage[free] + TOLERANCE)


# ---- invariants -----------------------------------------------------------------------------------------------------


@st.composite
def random_kernels(draw):
    """A random NDPP."""
    n, d_sym, d_skew = draw(st.integers(3, 8)), draw(st.integers(1, 4)), draw(st.integers(0, 4))
    return LowRankKernel.from_vbd(*random_vbd(n, d_sym, d_skew, np.random.default_rng(draw(st.integers(0, 2**32 - 1)))))


def test_the_inner_matrix_is_copied_and_changes_of_X_are_noticed():
    X, W = np.eye(3), np.eye(3)
    kernel = LowRankKernel(X, W)
    before = kernel.log_prob([0, 1])
    W *= 100
    assert kernel.log_prob([0, 1]) == before == kernel.restrict([0, 1, 2]).log_prob([0, 1])
    X[1] *= 10
    assert kernel.log_prob([0, 2]) == before
    for question in (kernel.log_prob, kernel.condition):
        with pytest.raises(RowsUnavailableError, match=r"row 1 of X is not what it was.*the array has changed"):
            question([1])
    np.testing.assert_array_equal(kernel.inclusion_probabilities(), [0.5, 0.5, 0.5])  # those of X as it was


@hypothesis_given(random_kernels(), st.integers(-6, 6))
@settings(max_examples=20)
def test_scaling_the_kernel_tilts_the_law(kernel, power):
    """tL has the same laws of each size; the size law is tilted by t^k."""
    t = 4.0**power
    scaled = LowRankKernel(kernel.X, kernel.W * t)
    tilted = kernel.size_distribution() * t ** np.arange(kernel.rank + 1)
    np.testing.assert_allclose(scaled.size_distribution(), tilted / tilted.sum(), atol=1e-10)
    size = min(2, kernel.rank)
    np.testing.assert_allclose(scaled.inclusion_probabilities(size), kernel.inclusion_probabilities(size), atol=1e-10)


# ---- inputs ---------------------------------------------------------------------------------------------------------


def test_kinds_of_input_are_equivalent():
    X, W = random_ndpp(9, 4, np.random.default_rng(0))
    X, W = X.astype(np.float32).astype(np.float64), W.astype(np.float32).astype(np.float64)
    expected = LowRankKernel(X, W).inclusion_probabilities(2)
    forms = {
        "float32": (X.astype(np.float32), W.astype(np.float32)),
        "Fortran order": (np.asfortranarray(X), np.asfortranarray(W)),
        "lists": (X.tolist(), W.tolist()),
        "strided": (np.repeat(X, 2, axis=0)[::2], W[::-1][::-1]),
    }
    for name, form in forms.items():
        np.testing.assert_allclose(LowRankKernel(*form).inclusion_probabilities(2), expected, atol=1e-6, err_msg=name)
    integers = LowRankKernel([[1, 0], [0, 2], [1, 1]], [[1, 1], [-1, 0]])
    assert integers.log_det([0, 1]) == pytest.approx(np.log(4))


def test_float32_factor_is_used_with_double_arithmetic():
    """Its values are exact in double, so nothing but the input's own rounding is lost."""
    X, W = random_ndpp(9, 4, np.random.default_rng(1))
    single = X.astype(np.float32)
    exact = LowRankKernel(single.astype(np.float64), W)
    np.testing.assert_allclose(
        LowRankKernel(single, W).inclusion_probabilities(3), exact.inclusion_probabilities(3), atol=1e-13
    )


def test_inputs_are_left_alone():
    X, W = random_ndpp(8, 4, np.random.default_rng(2))
    X_before, W_before = X.copy(), W.copy()
    kernel = LowRankKernel(X, W)
    given = [3, 1]
    kernel.inclusion_probabilities(3, given)
    kernel.condition(given).exclude([0]).size_distribution()
    assert given == [3, 1]
    np.testing.assert_array_equal(X, X_before)
    np.testing.assert_array_equal(W, W_before)
    assert X.flags.writeable
    assert W.flags.writeable


def test_kernel_cannot_be_changed():
    kernel = BY_NAME["generic"].kernel
    for name in ("X", "W", "labels", "support", "rank", "n_items"):
        with pytest.raises(AttributeError):
            setattr(kernel, name, None)
    for array in (kernel.X, kernel.W, kernel.support):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    before = kernel.inclusion_probabilities(3)
    before[:] = -1  # results are the caller's own
    assert kernel.inclusion_probabilities(3).min() >= 0
    law = kernel.size_distribution()
    law[:] = -1
    assert kernel.size_distribution().min() >= 0


def test_vbd_form():
    V, B, D = random_vbd(7, 3, 2, np.random.default_rng(3))
    kernel = LowRankKernel.from_vbd(V, B, D)
    np.testing.assert_allclose(kernel.to_dense(), V @ V.T + B @ (D - D.T) @ B.T, atol=1e-14)
    assert kernel.rank == 5


def test_labels_name_items():
    kernel = LowRankKernel(np.eye(3), np.eye(3), labels=["tea", "milk", "sugar"])
    assert kernel.labels == ("tea", "milk", "sugar")
    assert kernel.ids(["sugar", "tea"]).tolist() == [2, 0]
    assert kernel.condition([1]).labels == kernel.labels
    assert kernel.exclude([1]).ids(["sugar"]).tolist() == [2]
    with pytest.raises(InvalidInputError, match="unknown label 'salt'"):
        kernel.ids(["salt"])
    with pytest.raises(InvalidInputError, match="no labels"):
        LowRankKernel(np.eye(2), np.eye(2)).ids(["tea"])
    with pytest.raises(InvalidInputError, match=r"expected a list of labels; got 'tea'. For one item, pass \['tea'\]"):
        kernel.ids("tea")


def test_order_of_items_does_not_matter():
    kernel = BY_NAME["generic"].kernel
    assert kernel.log_prob([4, 1, 2]) == pytest.approx(kernel.log_prob([1, 2, 4]))
    np.testing.assert_allclose(
        kernel.inclusion_probabilities(4, [5, 1]), kernel.inclusion_probabilities(4, [1, 5]), atol=1e-12
    )
    assert kernel.restrict([3, 1, 2]).support.tolist() == [1, 2, 3]


def test_rows_and_catalogue_ids():
    kernel = BY_NAME["generic"].kernel.exclude([0, 3])
    assert kernel.support.tolist() == [1, 2, 4, 5, 6, 7]
    assert kernel.catalogue_ids(np.array([2, 0])).tolist() == [4, 1]
    assert kernel.rows_of([4, 1]).tolist() == [2, 0]
    assert kernel.log_det([0]) == -np.inf
    assert kernel.exclude([1]).support.tolist() == [2, 4, 5, 6, 7]
    with pytest.raises(InvalidInputError, match="item 3"):
        kernel.rows_of([3])


# ---- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: LowRankKernel(np.eye(2), [[1, 0], [0, -0.25]]), InvalidKernelError, r"positive semidefinite.*-0\.25"),
        (lambda: LowRankKernel([[np.nan, 1]], np.eye(2)), InvalidInputError, r"X must be finite.*\[0, 0\]"),
        (lambda: LowRankKernel(np.eye(2), [[1, np.inf], [0, 1]]), InvalidInputError, r"W must be finite.*\[0, 1\]"),
        (lambda: LowRankKernel(np.eye(3), np.eye(2)), InvalidInputError, r"W must have shape \(3, 3\).*\(2, 2\)"),
        (lambda: LowRankKernel(np.eye(3), np.ones((3, 2))), InvalidInputError, r"W must have shape \(3, 3\).*\(3, 2\)"),
        (lambda: LowRankKernel(np.ones(3), np.eye(3)), InvalidInputError, r"X must have 2 dimensions.*1"),
        (lambda: LowRankKernel(np.ones((2, 2, 2)), np.eye(2)), InvalidInputError, r"X must have 2 dimensions.*3"),
        (lambda: LowRankKernel(np.empty((0, 3)), np.eye(3)), InvalidInputError, r"at least one item.*\(0, 3\)"),
        (lambda: LowRankKernel(np.empty((3, 0)), np.empty((0, 0))), InvalidInputError, r"one column.*\(3, 0\)"),
        (lambda: LowRankKernel([["a"]], [[1]]), InvalidInputError, "X must be a matrix of real numbers"),
        (lambda: LowRankKernel([[1j]], [[1]]), InvalidInputError, "X must be a matrix of real numbers"),
        (lambda: LowRankKernel([[1, 2], [3]], np.eye(2)), InvalidInputError, "X must be a matrix"),
        (lambda: LowRankKernel(np.eye(2), np.eye(2), labels=["a"]), InvalidInputError, "labels must be 2.*got 1"),
        (lambda: LowRankKernel(np.eye(2), np.eye(2), labels=["a", "a"]), InvalidInputError, "distinct"),
        (lambda: LowRankKernel.from_vbd(np.ones((3, 1)), np.ones((2, 2)), np.eye(2)), InvalidInputError, "3 rows.* 2"),
        (lambda: LowRankKernel.from_vbd(np.ones((3, 1)), np.ones((3, 2)), np.eye(3)), InvalidInputError, "D must have"),
    ],
)
def test_bad_kernels_are_refused(build, error, words):
    with pytest.raises(error, match=words):
        build()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda k: k.log_det([8]), InvalidInputError, r"0\.\.7.*unknown item id 8"),
        (lambda k: k.log_det([-1]), InvalidInputError, r"0\.\.7.*unknown item id -1"),
        (lambda k: k.log_prob([2, 2]), InvalidInputError, "item 2 occurs 2 times"),
        (lambda k: k.log_det([0.5]), InvalidInputError, "integer item ids"),
        (lambda k: k.log_det([[0, 1]]), InvalidInputError, "flat sequence"),
        (lambda k: k.log_det([[0], [0, 1]]), InvalidInputError, "flat sequence"),
        (lambda k: k.log_det(["tea"]), InvalidInputError, "has no labels"),
        (lambda k: k.log_det([True, False]), InvalidInputError, "integer item ids"),
        (lambda k: k.condition([9]), InvalidInputError, "unknown item id 9"),
        (lambda k: k.restrict([9]), InvalidInputError, "unknown item id 9"),
        (lambda k: k.exclude([1, 1]), InvalidInputError, "item 1 occurs 2 times"),
        (lambda k: k.restrict([]), InvalidInputError, "at least one item"),
        (lambda k: k.exclude(range(8)), InvalidInputError, "at least one item"),
        (lambda k: k.inclusion_probabilities(3, [9]), InvalidInputError, "given.*unknown item id 9"),
        (lambda k: k.inclusion_probabilities(3, [1, 1]), InvalidInputError, "given.*item 1 occurs 2 times"),
        (lambda k: k.inclusion_probabilities(-1), InvalidInputError, "size must be at least 0; got -1"),
        (lambda k: k.inclusion_probabilities(2.5), InvalidInputError, "size must be an integer; got 2.5"),
        (lambda k: k.inclusion_probabilities(True), InvalidInputError, "size must be an integer"),
        (lambda k: k.inclusion_probabilities(8), ImpossibleSizeError, "rank of the kernel, 7; size 8"),
        (lambda k: k.inclusion_probabilities(1, [0, 1]), ImpossibleSizeError, "at least 2"),
        (lambda k: k.log_prob([0], size=-1), InvalidInputError, "size must be at least 0; got -1"),
        (lambda k: k.log_prob([0], size=8), ImpossibleSizeError, "rank of the kernel, 7; size 8"),
        (lambda k: k.log_normalizer(-2), InvalidInputError, "size must be at least 0; got -2"),
        (lambda k: k.exclude([2]).condition([2]), ZeroProbabilityError, "item 2"),
        (lambda k: k.exclude([2]).inclusion_probabilities(given=[2]), ZeroProbabilityError, "item 2"),
        (lambda k: k.condition([2]).condition([2]), ZeroProbabilityError, "item 2"),
    ],
)
def test_bad_questions_are_refused(call, error, words):
    kernel = BY_NAME["generic"].kernel
    before = kernel.inclusion_probabilities(3)
    with pytest.raises(error, match=words):
        call(kernel)
    np.testing.assert_array_equal(kernel.inclusion_probabilities(3), before)


def test_sizes_and_sets_that_cannot_occur_are_refused():
    skew = BY_NAME["purely skew"].kernel
    assert skew.log_normalizer(3) == -np.inf
    with pytest.raises(ImpossibleSizeError, match=r"size 3.*probability zero.*skew"):
        skew.inclusion_probabilities(3)
    with pytest.raises(NoConditionalKernelError, match="given="):
        skew.condition([0])
    with pytest.raises(ZeroProbabilityError, match="probability zero"):
        BY_NAME["duplicate rows"].kernel.condition([0, 5])
    with pytest.raises(ZeroProbabilityError, match="item 0 was given, and it can never occur"):
        BY_NAME["zero rows"].kernel.inclusion_probabilities(3, [0])
    with pytest.raises(ImpossibleSizeError):
        BY_NAME["broken pairs"].kernel.inclusion_probabilities(3, [0, 2])  # needs both partners, so at least 4
    with pytest.raises(ImpossibleSizeError, match="rank of the kernel, 3"):
        BY_NAME["singular W"].kernel.inclusion_probabilities(4)


def test_kernel_of_zeros_has_only_the_empty_set():
    kernel = LowRankKernel(np.zeros((3, 2)), np.eye(2))
    assert kernel.rank == 0
    assert kernel.size_distribution().tolist() == [1.0]
    assert kernel.log_prob([]) == 0
    assert kernel.log_prob([1]) == -np.inf
    assert kernel.inclusion_probabilities().tolist() == [0, 0, 0]
    assert kernel.inclusion_probabilities(0).tolist() == [0, 0, 0]
    with pytest.raises(ImpossibleSizeError):
        kernel.inclusion_probabilities(1)
    with pytest.raises(ZeroProbabilityError):
        kernel.condition([0])


def test_typos_are_type_errors():
    with pytest.raises(TypeError):
        LowRankKernel(np.eye(2), np.eye(2), label=["a", "b"])  # type: ignore[call-arg]


def test_weights_is_the_old_name_of_magnitudes():
    magnitudes = np.array([4.0, 2.0])
    new = LowRankKernel(np.eye(2), np.eye(2), magnitudes=magnitudes)
    with pytest.warns(DeprecationWarning, match="weights= is now magnitudes="):
        old = LowRankKernel(np.eye(2), np.eye(2), weights=magnitudes)
    np.testing.assert_array_equal(old._magnitudes, new._magnitudes)
    np.testing.assert_array_equal(new._magnitudes, magnitudes)


def test_log_probs_take_lists_of_items_and_labels():
    kernel = LowRankKernel(np.eye(3), labels=("a", "b", "c"))
    expected = kernel.log_probs(Baskets.from_lists([[0], [1, 2]], n_items=3))
    assert np.array_equal(kernel.log_probs([[0], [1, 2]]), expected)
    assert np.array_equal(kernel.log_probs([["a"], ["b", "c"]]), expected)
    with pytest.raises(InvalidInputError, match="over the 3 items of the model; they are over 4"):
        kernel.log_probs(Baskets.from_lists([[0]], n_items=4))
    with pytest.raises(UnknownItemError, match="unknown item id 7"):
        kernel.log_probs([[7]])
