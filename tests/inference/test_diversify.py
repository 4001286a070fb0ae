"""Diverse items from embeddings and scores, against determinants and enumeration."""

from __future__ import annotations

import importlib
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import sparse

import ndpp
from ndpp import Limit
from ndpp.errors import ImpossibleLimitError, ImpossibleSizeError, InvalidInputError
from ndpp.inference.diversify import _rows, _scaled


def dense(x: np.ndarray, s: np.ndarray | None, diversity: float) -> np.ndarray:
    x = x / np.linalg.norm(x, axis=1)[:, None]
    q = np.ones(len(x)) if s is None else np.exp((1 - diversity) / (2 * diversity) * (s - s.max()))
    return np.outer(q, q) * (x @ x.T)


def det(L: np.ndarray, items: list[int]) -> float:
    return float(np.linalg.det(L[np.ix_(items, items)])) if items else 1.0


@pytest.mark.parametrize("diversity", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("window", [None, 3])
def test_every_item_is_the_best(diversity: float, window: int | None):
    rng = np.random.default_rng(0)
    x, s = rng.standard_normal((3, 30, 6)), rng.standard_normal((3, 30))
    whole = ndpp.diversify(x, s, 5, diversity=diversity, given=[[1], [2], [3]], window=window)
    for b in range(3):
        one = ndpp.diversify(x[b], s[b], 5, diversity=diversity, given=[b + 1], window=window)
        np.testing.assert_array_equal(one.items, whole.items[b])
        L, chosen = dense(x[b], s[b], diversity), [b + 1]
        for item, gain in zip(one.items.tolist(), one.gains):
            before = chosen if window is None else chosen[-(window - 1) :]
            gains = {a: det(L, [*before, a]) / det(L, before) for a in range(30) if a not in chosen}
            assert item == max(gains, key=gains.__getitem__)
            assert gain == pytest.approx(gains[item], rel=1e-9)
            chosen.append(item)


def test_queries_of_a_batch_are_drawn_independently():
    """The same query many times, with one seed: as different from each other as samples of one are."""
    x = np.random.default_rng(0).normal(size=(30, 8))
    one = ndpp.diversify(np.stack([x] * 40), k=3, method="sample", rng=0).items[:, 0]
    assert len({tuple(sorted(items)) for items in one.tolist()}) > 20
    np.testing.assert_array_equal(ndpp.diversify(np.stack([x] * 40), k=3, method="sample", rng=0).items[:, 0], one)


def test_a_sample_depends_on_the_seed_its_query_and_its_number_alone():
    x = np.random.default_rng(0).normal(size=(4, 30, 8))
    whole = ndpp.diversify(x, k=3, method="sample", n_samples=5, rng=0).items
    np.testing.assert_array_equal(ndpp.diversify(x[:2], k=3, method="sample", n_samples=2, rng=0).items, whole[:2, :2])


def test_samples_have_their_law():
    rng = np.random.default_rng(1)
    x, s = rng.standard_normal((6, 3)), rng.standard_normal(6)
    L = dense(x, s, 0.5)
    found = ndpp.diversify(x, s, 2, given=[4], method="sample", n_samples=600, rng=0)
    sets = list(combinations([0, 1, 2, 3, 5], 2))
    weights = np.array([det(L, [4, *S]) for S in sets])
    law = dict(zip(sets, weights / weights.sum()))
    wanted = [law[tuple(sorted(S))] for S in found.items.tolist()]
    np.testing.assert_allclose(found.probabilities, wanted, rtol=1e-9)
    np.testing.assert_allclose(
        found.gains.prod(axis=1), [det(L, [4, *S]) / L[4, 4] for S in found.items.tolist()], rtol=1e-9
    )
    counts = np.array([sum(tuple(sorted(S)) == T for S in found.items.tolist()) for T in sets])
    expected = 600 * np.array([law[T] for T in sets])
    assert ((counts - expected) ** 2 / expected).sum() < 35  # 9 degrees of freedom: p < 1e-4
    limited = ndpp.diversify(x, s, 2, method="sample", n_samples=5, rng=0, limits=ndpp.Limit([0, 1], most=0))
    assert not np.isin(limited.items, [0, 1]).any()
    kept = {S: det(L, list(S)) for S in combinations(range(2, 6), 2)}
    wanted = [kept[tuple(sorted(S))] / sum(kept.values()) for S in limited.items.tolist()]
    np.testing.assert_allclose(limited.probabilities, wanted, rtol=0.1)  # an estimate


@pytest.mark.parametrize("method", ["map", "sample"])
def test_many_small_catalogues_against_enumeration(method: str):
    """Gains, and probabilities of samples with given items and limits."""
    rng, n_met = np.random.default_rng(3), 0
    for _ in range(60):
        n, d = rng.integers(3, 7), rng.integers(2, 5)
        x, s, diversity = (
            rng.standard_normal((2, n, d)),
            rng.standard_normal((2, n)),
            float(rng.choice([0.3, 0.5, 1.0])),
        )
        k = int(rng.integers(1, min(n - 1, d - 1) + 1))
        given, limit = [[0], [n - 1]], ndpp.Limit([0, 1], most=1) if rng.random() < 0.5 else None
        try:
            found = ndpp.diversify(x, s, k, diversity=diversity, given=given, method=method, limits=limit, rng=1)
        except ImpossibleLimitError:
            continue
        n_met += 1
        for q in range(2):
            L, chosen = dense(x[q], s[q], diversity), list(given[q])
            items, gains = (np.reshape(part[q], -1) for part in found[:2])
            for item, gain in zip(items.tolist(), gains):
                assert gain == pytest.approx(det(L, [*chosen, item]) / det(L, chosen), rel=1e-6)
                chosen.append(item)
            if method == "sample":
                sets = [list(S) for S in combinations(range(n), k + 1) if given[q][0] in S]
                kept = [det(L, S) for S in sets if limit is None or not {0, 1} <= set(S)]
                assert found.probabilities[q] == pytest.approx(det(L, chosen) / sum(kept), rel=1e-6)
    assert n_met > 40


def test_limits_hold():
    x = np.random.default_rng(2).standard_normal((12, 5))
    found = ndpp.diversify(x, k=4, limits=ndpp.Limit(range(6), most=1))
    assert (found.items < 6).sum() <= 1
    assert found.gains.shape == (4,)


def test_tensors_come_back_as_tensors():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    x, s = rng.standard_normal((2, 20, 4)).astype(np.float32), rng.standard_normal((2, 20))
    wanted = ndpp.diversify(x, s, 3)
    found = ndpp.diversify(torch.from_numpy(x), torch.from_numpy(s), 3)
    assert isinstance(found.items, torch.Tensor)
    np.testing.assert_array_equal(found.items, wanted.items)
    np.testing.assert_allclose(found.gains, wanted.gains)
    assert found.items.dtype == torch.int64
    assert (x[0][found.items[0]] == x[0][wanted.items[0]]).all()  # items are indices
    assert ndpp.diversify(torch.tensor([[1, 0], [1, 2]]), [0.0, -0.5], k=2).gains.dtype == torch.float64
    with pytest.raises(InvalidInputError, match="without gradients"):
        ndpp.diversify(torch.from_numpy(x).requires_grad_(), k=3)


@pytest.mark.parametrize("shape", [(20, 4), (2, 20, 4)])
def test_what_a_gpu_is_given_agrees_with_arrays(shape: tuple[int, ...]):
    """The same preparation by torch, in memory."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    x, s = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape[:-1])
    for scores in (None, s, torch.from_numpy(s)):
        _, wanted = _rows(x, None if scores is None else s, 0.5, None, is_tensor=False)
        tensor, found = _rows(x, scores, 0.5, "cpu:0", is_tensor=False)
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_allclose(found.f, wanted.f, rtol=1e-12)
        np.testing.assert_allclose(found.squares, wanted.squares, rtol=1e-12)
    with pytest.raises(InvalidInputError, match="scores must be"):
        _rows(x, torch.from_numpy(s * np.inf), 0.5, "cpu:0", is_tensor=False)
    with pytest.raises(InvalidInputError, match="item 3 is zero"):
        _rows(x * (np.arange(20) != 3)[:, None], None, 0.5, "cpu:0", is_tensor=False)


def test_equal_scores_and_vectors():
    """Vectors of one length: the first item is the first, in either precision."""
    x = np.random.default_rng(4).standard_normal((50, 8))
    for kind in (np.float32, np.float64):
        assert ndpp.diversify(x.astype(kind), k=3).items[0] == 0


def test_nothing_is_compiled():
    code = "import numpy as np, ndpp, sys; ndpp.diversify(np.eye(8), k=3); print('numba' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"embeddings": np.zeros((4, 2))}, InvalidInputError, "item 0 is zero"),
        ({"embeddings": np.full((4, 2), np.nan)}, InvalidInputError, "NaN or infinite"),
        ({"embeddings": np.ones(4)}, InvalidInputError, r"shape \(n, d\) or \(batch, n, d\)"),
        ({"embeddings": [["a"]]}, InvalidInputError, "array of real numbers"),
        (
            {"embeddings": np.ones((4, 2)) * 1j},
            InvalidInputError,
            "embeddings must be an array of real numbers.*complex",
        ),
        (
            {"embeddings": sparse.csr_array(np.eye(4))},
            InvalidInputError,
            r"embeddings must be an array.*embeddings\.toarray\(\)",
        ),
        ({"scores": ["a", "b", "c", "d"]}, InvalidInputError, "scores must be an array of real numbers"),
        ({"scores": np.ones(4) * 1j}, InvalidInputError, "scores must be an array of real numbers.*complex"),
        ({"scores": [1.0]}, InvalidInputError, "scores must be"),
        ({"scores": [1.0, np.nan, 0, 0]}, InvalidInputError, "scores must be"),
        ({"k": 5}, InvalidInputError, "k must be at most 4"),
        ({"k": 0}, InvalidInputError, "k must be at least 1"),
        (
            {"embeddings": np.array([[1.0, 1, 1], [0, 1, 0], [1, 2, 1], [1, 3, 1]]), "k": 3},
            ImpossibleSizeError,
            "rank of the kernel, 2",
        ),
        ({"diversity": 0.0}, InvalidInputError, "diversity must be above 0"),
        ({"diversity": "high"}, InvalidInputError, "diversity must be above 0"),
        ({"window": 0}, InvalidInputError, "window must be at least 1"),
        ({"method": "best"}, InvalidInputError, "method must be one of map, sample"),
        ({"given": [9]}, InvalidInputError, "unknown item id 9"),
        ({"method": "sample", "window": 2}, InvalidInputError, "window is for"),
        ({"method": "mmr", "window": 2}, InvalidInputError, "window is for"),
        ({"method": "mmr", "limits": Limit([0], most=1)}, InvalidInputError, "limits are for"),
        ({"scores": 1.0, "standardise": True}, InvalidInputError, "scores must be"),
    ],
)
def test_bad_input(arguments: dict, error: type[Exception], message: str):
    given = {"embeddings": np.array([[1.0, 0], [0, 1], [1, 1], [1, 2]]), "k": 2} | arguments
    with pytest.raises(error, match=message):
        ndpp.diversify(**given)


# -- more items than columns ----------------------------------------------------------------------------------------------


def beyond(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """Return embeddings, scores, and the ridge for a diversity of 0.5."""
    x, s = rng.standard_normal((40, 3)), rng.standard_normal(40)
    q = np.exp(0.5 * (s - s.max()))
    return x, s, float((q**2).mean() / 3)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_more_items_than_columns(kind):
    x, s, ridge = beyond(np.random.default_rng(5))
    f = x / np.linalg.norm(x, axis=1)[:, None] * np.exp(0.5 * (s - s.max()))[:, None]
    L = ridge * np.eye(40) + f @ f.T
    found = ndpp.diversify(kind(x), kind(s), 12, given=[7])
    chosen, gains = [7], []
    for _ in range(12):
        dets = [0.0 if a in chosen else np.linalg.det(L[np.ix_([*chosen, a], [*chosen, a])]) for a in range(40)]
        gains.append(max(dets) / np.linalg.det(L[np.ix_(chosen, chosen)]))
        chosen.append(int(np.argmax(dets)))
    assert found.items.tolist() == chosen[1:]
    np.testing.assert_allclose(np.asarray(found.gains), gains, rtol=1e-9)
    assert len(set(ndpp.diversify(x, s, 40).items.tolist())) == 40


def test_limits_and_samples_of_more_items_than_columns():
    x, s, ridge = beyond(np.random.default_rng(5))
    limit = Limit(range(10), most=2)
    found = ndpp.diversify(x, s, 12, limits=limit)
    assert len(set(found.items.tolist())) == 12
    assert np.count_nonzero(found.items < 10) <= 2
    drawn = ndpp.diversify(x, s, 6, method="sample", n_samples=4, given=[3], limits=limit, rng=0)
    q = np.exp(0.5 * (s - s.max()))
    kernel = ndpp.LowRankKernel(x / np.linalg.norm(x, axis=1)[:, None] * q[:, None], background=np.full(40, ridge))
    of_size = np.exp([kernel.log_det([3, *items]) for items in drawn.items])
    np.testing.assert_allclose(drawn.probabilities / drawn.probabilities[0], of_size / of_size[0], rtol=1e-6)
    np.testing.assert_allclose(np.log(drawn.gains).sum(axis=1) + kernel.log_det([3]), np.log(of_size), rtol=1e-9)


@pytest.mark.parametrize("method", ["mmr", "max-sum"])
def test_other_rules(method):
    """What their formulas say, item by item."""
    rng = np.random.default_rng(6)
    x, s = rng.standard_normal((2, 30, 4)), rng.standard_normal((2, 30))
    found = ndpp.diversify(x, s, 8, diversity=0.7, method=method, given=[[1, 2], [3, 4]])
    for b, chosen in enumerate(([1, 2], [3, 4])):
        u = x[b] / np.linalg.norm(x[b], axis=1)[:, None]
        for item, gain in zip(found.items[b].tolist(), found.gains[b].tolist()):
            if method == "mmr":
                values = 0.3 * s[b] - 0.7 * (u @ u[chosen].T).max(axis=1)
            else:
                values = 0.3 * s[b] + 1.4 / 9 * np.linalg.norm(u[:, None] - u[chosen], axis=2).sum(axis=1)
            values[chosen] = -np.inf
            assert item == values.argmax()
            assert gain == pytest.approx(values.max())
            chosen.append(item)


def test_scores_are_standardised_on_request():
    rng = np.random.default_rng(7)
    x, s = rng.standard_normal((20, 8)), rng.standard_normal(20)
    same = ndpp.diversify(x, (s - s.mean()) / s.std(), 5)
    for given in (100 * s + 3, torch.from_numpy(100 * s + 3)):
        assert ndpp.diversify(x, given, 5, standardise=True).items.tolist() == same.items.tolist()
    assert (
        ndpp.diversify(x, np.full(20, 7.0), 5, standardise=True).items.tolist() == ndpp.diversify(x, k=5).items.tolist()
    )


def test_samples_of_vectors_in_single_precision(monkeypatch):
    """Large arrays stay in single precision, unless scores make rows too short for it; samples are the same."""
    monkeypatch.setattr(importlib.import_module("ndpp.inference.diversify"), "DOUBLED_ENTRIES", 0)
    rng = np.random.default_rng(8)
    x, s = rng.standard_normal((60, 5)).astype(np.float32), rng.standard_normal(60)
    options = {"k": 4, "method": "sample", "n_samples": 5, "rng": 0}
    single, double = ndpp.diversify(x, s, **options), ndpp.diversify(x.astype(np.float64), s, **options)
    assert single.items.tolist() == double.items.tolist()
    np.testing.assert_allclose(single.probabilities, double.probabilities, rtol=1e-4)
    for least, kind in ((1e-10, np.float32), (1e-30, np.float64)):
        assert _scaled(x, np.full(60, least), "sample").dtype == kind
