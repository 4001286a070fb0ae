"""Fast greedy runs against determinants, step by step."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import ndpp
from ndpp.errors import ImpossibleSizeError, RowsUnavailableError
from ndpp.inference import greedy, pursuit, runs
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.scoring import Factored

NO_ITEMS = np.empty((5, 0), np.int64)


def gain(L: np.ndarray, before: list[int], a: int) -> float:
    whole, part = [*before, a], before
    return float(np.linalg.det(L[np.ix_(whole, whole)]) / (np.linalg.det(L[np.ix_(part, part)]) if part else 1.0))


def reference(
    L: np.ndarray, size: int, *, given: list[int] | None = None, allowed=None, window: int | None = None
) -> list[int]:
    """The best item each time by determinants; of equal ones, the smallest id."""
    chosen = list(given or [])
    while len(chosen) < size:
        before = chosen if window is None else chosen[max(0, len(chosen) - window + 1) :]
        left = [a for a in (range(len(L)) if allowed is None else allowed) if a not in chosen]
        gains = [gain(L, before, a) for a in left]
        chosen.append(next(a for a, g in zip(left, gains) if g >= max(gains) * (1 - 1e-8)))
    return chosen


def symmetric(rng: np.random.Generator, d: int) -> np.ndarray:
    A = rng.standard_normal((d, d))
    return A @ A.T / d


def skewed(rng: np.random.Generator, d: int) -> np.ndarray:
    D = rng.standard_normal((d, d))
    return np.eye(d) + D - D.T


INNER = {"identity": lambda rng, d: None, "symmetric": symmetric, "skew": skewed}


@pytest.fixture(params=[2048, 0], ids=["by items", "by columns"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pursuit, "MAX_ITEMS_BY_ITEMS", request.param)
    monkeypatch.setattr(pursuit, "FIRST_UPDATED", 2)
    monkeypatch.setattr(pursuit, "BLOCK_ENTRIES", 64)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("kind", INNER)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_item_is_the_best_by_determinants(kind: str, dtype: type, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runs.Careful, "best", lambda self: None)  # the careful run is not needed
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = (rng.standard_normal((30, 7)) * rng.uniform(0.3, 2, (30, 1))).astype(dtype)
        kernel = LowRankKernel(X, INNER[kind](rng, 7))
        L = kernel.to_dense()
        assert ndpp.greedy_map(kernel, 6).tolist() == reference(L, 6)
        assert ndpp.greedy_map(kernel, 5, given=[4, 2]).tolist() == reference(L, 5, given=[4, 2])
        some = rng.permutation(30)[:10].tolist()
        found = ndpp.greedy_map(kernel, 4, given=[4], candidates=some).tolist()
        assert found == reference(L, 4, given=[4], allowed=sorted(some))
        part = kernel.restrict(range(5, 25))
        assert ndpp.greedy_map(part, 4).tolist() == reference(L, 4, allowed=range(5, 25))
        for window in (1, 2, 4):
            found = ndpp.greedy_map(kernel, 12, given=[7], window=window).tolist()
            assert found == reference(L, 12, given=[7], window=window)
        assert "coordinates" not in vars(kernel)  # X was never factored


def exact_gains(X: np.ndarray, chosen: list[int]) -> list[Fraction]:
    """The residual of each row after the chosen ones, by elimination in rationals."""
    rows = [[Fraction(int(v)) for v in x] for x in X]
    basis: list[list[Fraction]] = []
    for y in chosen:
        v = rows[y]
        for b in basis:
            t = sum(p * q for p, q in zip(v, b)) / sum(p * p for p in b)
            v = [p - t * q for p, q in zip(v, b)]
        basis.append(v)
    out = []
    for v in rows:
        for b in basis:
            t = sum(p * q for p, q in zip(v, b)) / sum(p * p for p in b)
            v = [p - t * q for p, q in zip(v, b)]
        out.append(sum((p * p for p in v), Fraction(0)))
    return out


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("seed", range(2))
def test_of_equal_gains_the_smallest_id_is_taken(seed: int):
    """Rows of ±1 have many equal gains: 200 × 16, in exact arithmetic."""
    X = np.sign(np.random.default_rng(seed).standard_normal((200, 16)))
    chosen: list[int] = []
    for _ in range(5):
        gains = exact_gains(X, chosen)
        chosen.append(gains.index(max(gains)))
    assert chosen[0] == 0
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((16, 16)))[0]
    for rows in (X, X @ rotation):  # the same kernel, other roundings
        assert ndpp.greedy_map(LowRankKernel(rows), 5).tolist() == chosen
        assert ndpp.greedy_map(LowRankKernel(np.array(rows), 2 * np.eye(16)), 5).tolist() == chosen


def test_where_rounding_matters_the_careful_run_goes_on():
    """Rows of which the later ones are 10⁻⁶ of the first: squares have no digits left."""
    rng = np.random.default_rng(0)
    common = rng.standard_normal(8)
    X = common + 1e-6 * rng.standard_normal((12, 8))
    kernel = LowRankKernel(X)
    run = ndpp.greedy_map(kernel, 4).tolist()
    assert "coordinates" in vars(kernel)
    from mpmath import det, matrix, mp

    with mp.workdps(60):
        exact = lambda Y: det(matrix(X[Y].tolist()) * matrix(X[Y].tolist()).T)  # noqa: E731
        for j in range(4):
            best = max(exact([*run[:j], a]) for a in set(range(12)) - set(run[:j]))
            assert exact(run[: j + 1]) >= best * (1 - mp.mpf(10) ** -5)
    with pytest.raises(ImpossibleSizeError, match="larger than the rank of the kernel, 8; size 9 was asked for"):
        ndpp.greedy_map(kernel, 9)


def test_queries_with_candidates_or_rows_of_their_own():
    rng = np.random.default_rng(3)
    for inner in INNER.values():
        kernel = LowRankKernel(rng.standard_normal((60, 6)), inner(rng, 6), labels=[f"i{a}" for a in range(60)])
        candidates = [rng.permutation(60)[:size] for size in (10, 20, 60, 5)]
        given = [[1], [2, 3], [4, 59], [0, 1, 2]]
        for window in (None, 2):
            for own, some in zip(given, candidates):
                found = ndpp.greedy_map(kernel, 5, given=own, candidates=some, window=window)
                wanted = reference(kernel.to_dense(), 5, given=own, allowed=sorted(some), window=window)
                np.testing.assert_array_equal(found, wanted)
    rows = rng.standard_normal((5, 12, 4))
    rows[2] = rows[2, :1] + 1e-7 * rows[2]  # for the careful run
    found = greedy.greedy_batch(rows, 3, NO_ITEMS)[0]
    np.testing.assert_array_equal(found, [ndpp.greedy_map(LowRankKernel(X), 3) for X in rows])
    found = greedy.greedy_batch(rows, 3, np.arange(5)[:, None])[0]
    wanted = [ndpp.greedy_map(LowRankKernel(X), 3, given=[i]) for i, X in enumerate(rows)]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("window", [None, 2, 1])
def test_tensors_in_batches_agree_with_arrays(window: int | None):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    X = np.sign(rng.standard_normal((4, 40, 6))) * rng.integers(1, 3, (4, 40, 1))
    start = np.zeros((4, 1), np.int64)
    wanted = greedy.greedy_batch(X, 5, start, window)[0]
    found = greedy.greedy_batch(torch.from_numpy(X), 5, start, window)[0]
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found, wanted)
    for some in (slice(4), slice(1)) if window is None else ():  # a GPU has no windows
        on_device = greedy._on_device(torch, torch.from_numpy(X[some]), 5, start[some], None)
        np.testing.assert_array_equal(on_device[0], wanted[some])


@pytest.mark.parametrize("queries", [1, 3])
def test_a_gpu_is_asked_for_a_dozen_operations_per_item(queries: int):
    """And no more, whatever the number of queries: small operations take their time from launch to launch."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        total = 0

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            self.total += not operation.is_view and "empty" not in operation.name()
            return operation(*args, **(kwargs or {}))

    X = torch.from_numpy(np.random.default_rng(9).standard_normal((queries, 60, 20)))
    totals = []
    for size in (5, 15):
        with Count() as count:
            none = torch.empty((queries, 0), dtype=int)
            run = pursuit.OnDevice(torch, X, none, size, (X * X).sum(-1))
            runs.extend(run, size)
            assert run.sure.all()
        totals.append(count.total)
    assert totals[1] - totals[0] <= 120


def test_a_changed_array_is_noticed():
    X = np.random.default_rng(0).standard_normal((20, 3))
    kernel = LowRankKernel(X)
    X[3] += 1.0
    for call in (lambda: ndpp.greedy_map(kernel, 2), lambda: kernel.log_prob([0])):
        with pytest.raises(RowsUnavailableError, match="the array has changed"):
            call()


def test_limits_and_window_together():
    """At most one even item among six, with a window of two: every step by determinants."""
    rng = np.random.default_rng(5)
    kernel = LowRankKernel(rng.standard_normal((12, 3)))
    L, chosen = kernel.to_dense(), []
    for _ in range(6):
        full = any(a % 2 == 0 for a in chosen)
        left = [a for a in range(12) if a not in chosen and (a % 2 or not full)]
        chosen.append(max(left, key=lambda a: gain(L, chosen[-1:], a)))
    found = ndpp.greedy_map(kernel, 6, window=2, limits=ndpp.Limit(range(0, 12, 2), most=1))
    assert found.tolist() == chosen


def test_kernels_without_w_are_those_of_the_identity():
    X = np.random.default_rng(1).standard_normal((6, 3))
    one, two = LowRankKernel(X), LowRankKernel(X, np.eye(3))
    for items in product(range(6), repeat=2):
        if items[0] < items[1]:
            assert one.log_prob(items) == pytest.approx(two.log_prob(items), abs=1e-12)


@pytest.mark.parametrize("queries", [1, 4])
def test_what_a_gpu_does_agrees_with_arrays(queries: int, monkeypatch: pytest.MonkeyPatch):
    """The same steps on tensors in memory: rows with factors, given items, and a query for the careful run."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(7)
    X = rng.standard_normal((queries, 30, 5)).astype(np.float32)
    X[-1] = X[-1, :1] + 1e-5 * X[-1]
    f = rng.uniform(0.5, 1.0, (queries, 30))
    given = np.tile([[3]], (queries, 1))
    arrays = pursuit.RowFactors(f, pursuit.squares_of(X))
    tensors = pursuit.RowFactors(*map(torch.from_numpy, arrays))
    wanted = greedy.greedy_batch(X, 4, given, None, arrays)
    monkeypatch.setattr(greedy, "DEVICE_ENTRIES", 400)  # two queries at a time
    found = greedy._on_device(torch, torch.from_numpy(X), 4, given, tensors)
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-6)
    assert found[1][:, 0].isnan().all()
    free = greedy._on_device(torch, torch.from_numpy(X[:1]), 3, given[:1, :0], None)
    np.testing.assert_array_equal(free[0], greedy.greedy_batch(X[:1], 3, given[:1, :0])[0])


def test_steps_that_are_not_sure_are_found_at_the_end():
    """A row that is another one up to 10⁻⁷: the run by items ends before it, whatever its length."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((6, 6))
    X[5] = X[0] + 1e-7 * X[1]
    L = X @ X.T
    for start in ([], [2], [2, 0]):
        run = pursuit.pursuit(Factored(X), start, np.isin(range(6), start, invert=True), 6)
        picks = [pick for (pick,) in runs.extend(run, 6 - len(start))[0]]
        assert [*start, *picks] == reference(L, len(start) + len(picks), given=start)
        assert len(start) + len(picks) == 5
        assert not {0, 5} <= {*start, *picks}
    assert runs.extend(pursuit.pursuit(Factored(X), [0, 5], None, 6), 4) == ([], [])
