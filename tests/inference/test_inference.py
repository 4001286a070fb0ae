"""Greedy MAP, next-item scores and recommendations against enumeration."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

import numpy as np
import pytest

import oracles
from kernels import AWKWARD, BY_NAME, Case, learned, pair_blocks, random_ndpp
from ndpp.baskets import Baskets
from ndpp.errors import ImpossibleSizeError, InvalidInputError, ZeroProbabilityError
from ndpp.inference import Ranking, greedy_map, next_item_scores, recommend
from ndpp.laws import batched, kernel_gains
from ndpp.laws.kernel import LowRankKernel

cases = pytest.mark.parametrize("case", AWKWARD, ids=str)


def det(minors: np.ndarray, items: Iterable[int]) -> float:
    return float(minors[oracles.mask_of(items)])


def greedy_steps(minors: np.ndarray, sequence: list[int], given: list[int]) -> list[list[int]]:
    """The sequence after the given items, cut wherever the determinant is positive."""
    steps, start = [], len(given)
    for end in range(len(given), len(sequence) + 1):
        if det(minors, sequence[:end]) > 0:
            steps.append(sequence[start:end])
            start = end
    return steps


def assert_greedy(minors: np.ndarray, sequence: list[int], given: list[int], allowed: set[int]) -> None:
    """No other item, or where no item has a gain no other pair, would have been better at any step."""
    assert sequence[: len(given)] == given
    assert len(set(sequence)) == len(sequence)
    first, *steps = greedy_steps(minors, sequence, given)
    done = given + first
    for step in steps:
        left = allowed - set(done)
        single = max((det(minors, [*done, a]) for a in left), default=0.0)
        pair = max((det(minors, [*done, a, b]) for a in left for b in left if a < b), default=0.0)
        assert len(step) == (1 if single > 0 else 2)
        assert det(minors, done + step) >= (1 - 1e-9) * (single if single > 0 else pair)
        done += step
    assert done == sequence


def longest(kernel: LowRankKernel, **arguments: object) -> list[int]:
    """The longest greedy run; shorter ones are its beginnings, or fall within one of its pairs."""
    best: list[int] = []
    for size in range(kernel.rank, -1, -1):
        try:
            run = greedy_map(kernel, size, **arguments).tolist()  # type: ignore[arg-type]
        except (ImpossibleSizeError, InvalidInputError):
            continue
        best = best or run
        assert run == best[:size]
    return best


@cases
def test_every_step_is_the_best_one(case: Case) -> None:
    minors = oracles.minors(case.L)
    run = longest(case.kernel)
    assert_greedy(minors, run, [], set(range(case.n_items)))
    left = set(range(case.n_items)) - set(run)
    assert all(det(minors, [*run, a]) == 0 for a in left)
    assert all(det(minors, [*run, a, b]) == 0 for a in left for b in left if a < b)


@cases
def test_every_step_after_given_items_is_the_best_one(case: Case) -> None:
    minors = oracles.minors(case.L)
    rng = np.random.default_rng(0)
    for _ in range(6):
        given = rng.permutation(case.n_items)[: rng.integers(1, 4)].tolist()
        candidates = rng.permutation(case.n_items)[: rng.integers(1, case.n_items + 1)]
        allowed = set(candidates.tolist()) - set(given)
        if det(minors, given) == 0:
            continue
        run = longest(case.kernel, given=given, candidates=candidates)
        assert_greedy(minors, run, given, allowed)
        assert set(run[len(given) :]) <= allowed


@cases
def test_given_items_that_cannot_occur_alone_are_completed(case: Case) -> None:
    """Where one more item makes the determinant positive, it is the best one; where nothing does, it is said."""
    minors = oracles.minors(case.L)
    for given in [list(S) for S in oracles.subsets(case.n_items) if 1 <= len(S) <= 3 and det(minors, S) == 0]:
        possible = [S for S in oracles.subsets(case.n_items) if set(given) <= set(S) and det(minors, S) > 0]
        if not possible:
            with pytest.raises((ZeroProbabilityError, ImpossibleSizeError)):
                greedy_map(case.kernel, min(case.kernel.rank, len(given)), given=given)
            continue
        run = longest(case.kernel, given=given)
        first = greedy_steps(minors, run, given)[0]
        assert len(first) == min(map(len, possible)) - len(given)
        if len(first) == 1:
            best = max(det(minors, S) for S in possible if len(S) == len(given) + 1)
            assert det(minors, given + first) >= (1 - 1e-9) * best


def test_completion_needs_room_and_candidates() -> None:
    kernel = BY_NAME["broken pairs"].kernel
    assert greedy_map(kernel, 2, given=[0]).tolist() == [0, 1]
    assert sorted(greedy_map(kernel, 4, given=[0, 2]).tolist()[2:]) == [1, 3]
    with pytest.raises(ImpossibleSizeError, match=r"after 2 items no single one has a gain, and 2 are added at once"):
        greedy_map(kernel, 3, given=[0, 2])
    with pytest.raises(ZeroProbabilityError, match=r"given items \[0\] have det L = 0, and no candidates change that"):
        greedy_map(kernel, 2, given=[0], candidates=[2, 3, 6])


def test_purely_skew_kernels_grow_by_pairs() -> None:
    kernel = LowRankKernel(np.eye(6), pair_blocks((1.0, 3.0, 2.0)))
    assert greedy_map(kernel, 6).tolist() == [2, 3, 4, 5, 0, 1]
    with pytest.raises(ImpossibleSizeError, match="size 3 falls between two steps"):
        greedy_map(kernel, 3)


def test_pairs_are_of_candidates_alone() -> None:
    """Item 4 has an empty row, and reaches no other; items 0 and 1 reach each other, and are no candidates both."""
    X = np.vstack([8 * np.eye(4)[:2], np.eye(4)[2:], np.zeros((1, 4)), [[0.5, 0, 0, 0]]])
    kernel = LowRankKernel(X, pair_blocks([1.0, 1.0]))
    assert greedy_map(kernel, 2, candidates=[1, 4, 5]).tolist() == [1, 5]
    for candidates in ([0, 2, 4], [1, 2, 4], [2, 4, 5]):
        with pytest.raises(ImpossibleSizeError, match="ends after 0 items"):
            greedy_map(kernel, 2, candidates=candidates)


@pytest.mark.parametrize("seed", range(20))
def test_a_double_makes_no_pair(seed: int) -> None:
    """Item 3 is twice item 0. Of the items 0 to 3 no four can occur; what rounding says of the second pair is noise."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-8, 9, (5, 4)) / 8
    X[3] = 2 * X[0]
    D = rng.integers(-8, 9, (4, 4)) / 8
    for W in (D - D.T, np.outer(D[0], D[0]) + D - D.T):
        kernel = LowRankKernel(X, W)
        with pytest.raises(ImpossibleSizeError):
            greedy_map(kernel, 4, candidates=[0, 1, 2, 3])
        with pytest.raises(ImpossibleSizeError):
            greedy_map(kernel, 3, candidates=[0, 3, 1])  # no item is its own partner


@pytest.mark.parametrize("power", [-498, 498])
def test_greedy_does_not_see_the_scale(power: int) -> None:
    for case in (case for case in AWKWARD if 0.01 < np.abs(case.X).max() < 100):
        scaled = LowRankKernel(case.X * 2.0**power, case.W)
        for size in range(4):
            try:
                wanted = greedy_map(case.kernel, size).tolist()
            except ImpossibleSizeError:
                continue
            found = greedy_map(scaled, size).tolist()
            np.testing.assert_allclose(case.kernel.log_det(found), case.kernel.log_det(wanted), atol=1e-9)


@pytest.mark.parametrize("rows", [2, 5, 40])
def test_pair_search_reads_the_largest_rows_only(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 6)) * rng.uniform(0.1, 3, (40, 1))
    kernel = LowRankKernel(X, pair_blocks((1.0, 0.3, 2.0)))
    entries = np.abs(kernel.to_dense())
    monkeypatch.setattr(kernel_gains, "PAIR_BLOCK", 3)
    monkeypatch.setattr(kernel_gains, "PAIR_ROWS", rows)
    read = np.argsort(-np.linalg.norm(_skew_rows(kernel), axis=1))[:rows]
    a, b = greedy_map(kernel, 2)
    assert entries[a, b] == pytest.approx(entries[read].max(), rel=1e-12)
    if rows == 40:
        assert entries[a, b] == pytest.approx(entries.max(), rel=1e-12)


def _skew_rows(kernel: LowRankKernel) -> np.ndarray:
    coords = kernel.coordinates
    assert coords.Q is not None
    scale = coords.scale
    return (coords.Q * scale) @ (coords.B / np.outer(scale, scale))


@pytest.mark.parametrize("spread", [0, 1, 3, 6])
@pytest.mark.parametrize("seed", range(3))
def test_wide_spreads_against_exact_minors(spread: float, seed: int) -> None:
    X, W = random_ndpp(8, 6, np.random.default_rng(seed), spread=spread)
    kernel = LowRankKernel(X, W)
    law = oracles.exact_law(X, W)
    run = greedy_map(kernel, kernel.rank).tolist()
    for j in range(kernel.rank):
        value = law.minors[oracles.mask_of(run[: j + 1])]
        others = [law.minors[oracles.mask_of([*run[:j], a])] for a in set(range(8)) - set(run[:j])]
        assert value * 10**6 >= max(others) * (10**6 - 1)  # integers of thousands of digits


def test_learned_kernel_to_full_rank() -> None:
    kernel = learned("B").kernel
    run = greedy_map(kernel, kernel.rank)
    assert len(set(run.tolist())) == kernel.rank
    L = kernel.to_dense()
    for j in (0, 1, 10, 60, 150):
        Y = run[:j]
        gains = np.diag(L) - np.einsum("ij,ji->i", L[:, Y], np.linalg.solve(L[np.ix_(Y, Y)], L[Y]))
        gains[Y] = 0
        assert gains[run[j]] >= gains.max() * (1 - 1e-6)
    assert greedy_map(kernel, 20).tolist() == run[:20].tolist()


def test_streamed_kernels_agree_with_stored_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    X, W = random_ndpp(60, 8, rng)
    X[:, -1] = 0
    whole = LowRankKernel(X.astype(np.float32), W)
    part = whole.restrict(np.arange(5, 50))
    skew = LowRankKernel(rng.standard_normal((60, 6)), pair_blocks((1.0, 3.0, 2.0)))
    wanted = [greedy_map(kernel, 6, given=[7]).tolist() for kernel in (whole, part, skew)]
    module = importlib.import_module("ndpp.linalg.coordinates")
    monkeypatch.setattr(module, "DENSE_ENTRIES", 0)
    monkeypatch.setattr(importlib.import_module("ndpp.linalg.factor"), "BLOCK_BYTES", 1024)
    whole = LowRankKernel(X.astype(np.float32), W)
    streamed = [whole, whole.restrict(np.arange(5, 50)), LowRankKernel(skew.X, skew.W)]
    assert all(kernel.coordinates.Q is None for kernel in streamed)
    assert [greedy_map(kernel, 6, given=[7]).tolist() for kernel in streamed] == wanted
    np.testing.assert_allclose(next_item_scores(streamed[1], [7, 9]), next_item_scores(part, [7, 9]), rtol=1e-8)


def test_greedy_speaks_in_catalogue_ids() -> None:
    kernel = LowRankKernel(np.diag([1.0, 3.0, 2.0, 4.0]), np.eye(4)).restrict([0, 2, 1])
    assert greedy_map(kernel, 3).tolist() == [1, 2, 0]
    assert greedy_map(kernel, 2, candidates=[0, 3, 2]).tolist() == [2, 0]
    with pytest.raises(ZeroProbabilityError, match="item 3, which this kernel excludes"):
        greedy_map(kernel, 2, given=[3])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"size": 5}, ImpossibleSizeError, "larger than the rank of the kernel, 4; size 5 was asked for"),
        ({"size": -1}, InvalidInputError, "size must be at least 0; got -1"),
        ({"size": 2.0}, InvalidInputError, "size must be an integer"),
        ({"size": 1, "given": [0, 1]}, ImpossibleSizeError, "2 are given, but size is 1"),
        ({"size": 3, "given": [0, 0]}, InvalidInputError, "given must not repeat an item; item 0"),
        ({"size": 3, "given": [9]}, InvalidInputError, "unknown item id 9"),
        ({"size": 3, "candidates": [0, 9]}, InvalidInputError, "candidates must lie in .*unknown item id 9"),
        ({"size": 3, "candidates": [1, 2]}, ImpossibleSizeError, "ends after 2 items"),
        ({"size": 3, "candidates": []}, ImpossibleSizeError, "ends after 0 items"),
    ],
)
def test_greedy_errors(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    kernel = LowRankKernel(np.diag([1.0, 3.0, 2.0, 4.0]), np.eye(4))
    with pytest.raises(error, match=message):
        greedy_map(kernel, **arguments)  # type: ignore[arg-type]


def test_nothing_to_choose() -> None:
    kernel = LowRankKernel(np.eye(3), np.eye(3))
    assert greedy_map(kernel, 0).tolist() == []
    assert greedy_map(kernel, 2, given=[2, 0]).tolist() == [2, 0]
    zero = LowRankKernel(np.zeros((3, 2)), np.eye(2))
    assert greedy_map(zero, 0).tolist() == []


@pytest.mark.parametrize("name", ["generic", "purely skew", "duplicate rows", "far from normal"])
def test_scores_of_many_baskets_are_those_of_each(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they are computed in several chunks."""
    case = BY_NAME[name]
    minors = oracles.minors(case.L)
    lists = [list(S) for S in oracles.subsets(case.n_items) if len(S) <= 4 and det(minors, S) > 0]
    monkeypatch.setattr(batched, "CHUNK_ITEMS", 20)
    scores = next_item_scores(case.kernel, Baskets.from_lists(lists, n_items=case.n_items))
    assert scores.shape == (len(lists), case.n_items)
    for J, row in zip(lists, scores):
        np.testing.assert_allclose(row, next_item_scores(case.kernel, J), rtol=1e-7, atol=1e-9 * np.abs(case.L).max())


def test_baskets_that_never_occur_are_refused() -> None:
    kernel = BY_NAME["duplicate rows"].kernel
    with pytest.raises(ZeroProbabilityError, match="probability zero"):
        next_item_scores(kernel, [0, 5])
    with pytest.raises(ZeroProbabilityError, match="probability zero"):
        next_item_scores(kernel, Baskets.from_lists([[], [0, 5]], n_items=kernel.n_items))


def test_scores_on_a_restricted_kernel() -> None:
    kernel = BY_NAME["generic"].kernel.restrict([1, 2, 4, 6])
    L = kernel.to_dense()
    scores = next_item_scores(kernel, [2])
    wanted = np.diag(L) - L[:, 2] * L[2] / L[2, 2]
    np.testing.assert_allclose(scores, np.where(np.arange(8) == 2, 0, wanted), atol=1e-12)
    many = next_item_scores(kernel, Baskets.from_lists([[2], []], n_items=8))
    np.testing.assert_allclose(many, [scores, np.diag(L)], atol=1e-12)
    with pytest.raises(ZeroProbabilityError, match="item 3, which this kernel excludes"):
        next_item_scores(kernel, Baskets.from_lists([[2], [3]], n_items=8))


def test_near_singular_baskets_are_scored_with_care() -> None:
    """Items 0 and 1 are all but the same; their Schur complement loses every digit in the plain formula."""
    X = np.array([[1.0, 0, 0], [1.0, 1e-7, 0], [0.3, 0.4, 1.0], [0.5, 0.5, 0.5]])
    W = np.eye(3) + np.array([[0, 0.5, 0], [-0.5, 0, 0], [0, 0, 0]])
    law = oracles.exact_law(X, W)
    det_J = law.minors[0b11]
    wanted = [0, 0] + [float(law.minors[0b11 | 1 << i] / det_J / 2.0**law.shift) for i in (2, 3)]
    kernel = LowRankKernel(X, W)
    np.testing.assert_allclose(next_item_scores(kernel, [0, 1]), wanted, rtol=1e-7)
    np.testing.assert_allclose(next_item_scores(kernel, Baskets.from_lists([[0, 1]], n_items=4))[0], wanted, rtol=1e-7)


def test_scores_far_below_the_largest_entries_are_scored_with_care() -> None:
    """One column dwarfs the others, and is gone once an item is in: the plain formula has nothing left but its rounding."""
    rng = np.random.default_rng(0)
    X = rng.integers(-8, 9, (6, 4)) * 2.0 ** np.array([-20, -3, 0, 20])
    A, D = rng.integers(-8, 9, (2, 4, 4)) / 8
    kernel, law = LowRankKernel(X, A @ A.T + D - D.T), oracles.exact_law(X, A @ A.T + D - D.T)
    many = next_item_scores(kernel, Baskets.from_lists([[a] for a in range(6)], n_items=6))
    for a, row in enumerate(many):
        wanted = [0 if i == a else law.minors[1 << a | 1 << i] / law.minors[1 << a] / 2.0**law.shift for i in range(6)]
        np.testing.assert_allclose(row, np.array(wanted, float), rtol=1e-8)


def test_learned_kernel_scores() -> None:
    kernel = learned("B").kernel
    L = kernel.to_dense()
    rng = np.random.default_rng(0)
    lists = [rng.permutation(kernel.n_items)[: rng.integers(0, 30)] for _ in range(60)]
    baskets = Baskets.from_lists(lists, n_items=kernel.n_items)
    scores = next_item_scores(kernel, baskets)
    for J, row in zip(baskets, scores):
        wanted = np.diag(L) - np.einsum("ij,ji->i", L[:, J], np.linalg.solve(L[np.ix_(J, J)], L[J]))
        wanted[J] = 0
        np.testing.assert_allclose(row, wanted, atol=1e-7 * wanted.max())


def test_baskets_of_another_catalogue() -> None:
    with pytest.raises(InvalidInputError, match="the kernel has 8 items, the baskets have 3"):
        next_item_scores(BY_NAME["generic"].kernel, Baskets.from_lists([[2]]))
    assert next_item_scores(BY_NAME["generic"].kernel, Baskets.from_lists([], n_items=8)).shape == (0, 8)


def test_recommend() -> None:
    kernel = LowRankKernel(np.diag([1.0, 3.0, 2.0, 0.0, 2.0]), np.eye(5))
    best = recommend(kernel, [1], n=3, ranking=Ranking.COMPLETION)
    assert best.items.tolist() == [2, 4, 0]
    assert best.scores.tolist() == [4, 4, 1]
    best = recommend(kernel, [1], n=3)
    assert best.items.tolist() == [2, 4, 0]
    assert best.scores == pytest.approx([0.8, 0.8, 0.5])
    assert recommend(kernel, []).items.tolist() == [1, 2, 4, 0]
    assert recommend(kernel, [1], candidates=[0, 1, 3]).items.tolist() == [0]
    with pytest.raises(InvalidInputError, match="n must be at least 1"):
        recommend(kernel, [1], n=0)
    with pytest.raises(InvalidInputError, match="basket must not repeat"):
        recommend(kernel, [1, 1])
