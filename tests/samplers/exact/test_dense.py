"""Kernels whose rank is near the number of items: one eigendecomposition, all items at a time, and the sweep."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from itertools import combinations

import numpy as np
import pytest

import goodness
import ndpp
from ndpp import LowRankKernel
from ndpp.linalg.coordinates import coordinates
from ndpp.linalg.size_law import tilt_for, tilted_law
from ndpp.samplers import Cholesky
from ndpp.samplers.exact import spectral, sweep
from ndpp.samplers.exact.routes import Unfinished

N = 80


def gaussian(n: int, gamma: float = 0.3, d: int = 3) -> np.ndarray:
    points = np.random.default_rng(0).standard_normal((n, d))
    return np.exp(-gamma * ((points[:, None] - points[None]) ** 2).sum(axis=2))


def skew(n: int) -> np.ndarray:
    D = np.random.default_rng(1).standard_normal((n, n))
    return D - D.T


def normalised(law: dict[tuple[int, ...], float]) -> dict[tuple[int, ...], float]:
    total = sum(law.values())
    return {S: p / total for S, p in law.items() if p > 1e-14}


def elementary(values: np.ndarray, k: int) -> np.ndarray:
    """Return e_0, …, e_k of the values: the textbook recursion."""
    e = np.zeros(k + 1)
    e[0] = 1.0
    for value in values:
        e[1:] += value * e[:-1].copy()
    return e


@pytest.fixture(scope="module")
def L() -> np.ndarray:
    return gaussian(N) + 0.01 * np.eye(N)


def test_a_dense_symmetric_kernel_keeps_its_matrix_and_is_diagonal(L: np.ndarray):
    kernel = LowRankKernel.from_dense(L)
    coords = kernel.coordinates
    np.testing.assert_array_equal(kernel.W, L)
    assert coords.eigenvalues is not None
    np.testing.assert_allclose(coords.eigenvalues, np.linalg.eigvalsh(L), atol=1e-12)
    np.testing.assert_allclose(coords.Q @ coords.B @ coords.Q.T, L, atol=1e-12)
    assert LowRankKernel.from_dense(gaussian(N, 0.01, 1)).X.shape[1] < N / 4  # of small rank


@pytest.mark.parametrize("size", [1, 3, 10])
def test_sizes_and_inclusion_from_eigenvalues_are_those_of_plain_recursions(L: np.ndarray, size: int):
    kernel, (values, V) = LowRankKernel.from_dense(L), np.linalg.eigh(L)
    e = elementary(values, size)
    assert kernel.log_normalizer(size) == pytest.approx(np.log(e[size]), abs=1e-9)
    share = [value * elementary(np.delete(values, i), size)[size - 1] / e[size] for i, value in enumerate(values)]
    np.testing.assert_allclose(kernel.inclusion_probabilities(size), V**2 @ share, atol=1e-10)
    np.testing.assert_allclose(kernel.inclusion_probabilities(), V**2 @ (values / (1 + values)), atol=1e-12)
    law = elementary(values / (1 + values) / (1 - values / (1 + values)), 20) / np.prod(1 + values)
    np.testing.assert_allclose(kernel.size_distribution()[:21], law, atol=1e-11)


def test_given_excluded_and_conditional_agree_with_factored_rows(L: np.ndarray):
    dense, factored = LowRankKernel.from_dense(L), LowRankKernel(np.linalg.cholesky(L))
    assert dense.unit_columns is not None
    assert factored.unit_columns is None
    for one, other in zip(*([k, k.exclude([1, 70]), k.condition([1, 70])] for k in (dense, factored))):
        for size in (None, 5):
            for given in ((), (4, 7)):
                np.testing.assert_allclose(
                    one.inclusion_probabilities(size, given), other.inclusion_probabilities(size, given), atol=1e-10
                )
    assert dense.exclude([1]).unit_columns is not None
    assert ndpp.greedy_map(dense, 9, given=[5]).tolist() == ndpp.greedy_map(factored, 9, given=[5]).tolist()
    assert ndpp.greedy_map(dense, 30).tolist() == ndpp.greedy_map(factored, 30).tolist()
    some = range(0, N, 3)
    assert ndpp.greedy_map(dense, 9, candidates=some).tolist() == ndpp.greedy_map(factored, 9, candidates=some).tolist()
    narrow, rows = dense.exclude([0, 2]), factored.exclude([0, 2])
    assert ndpp.greedy_map(narrow, 9).tolist() == ndpp.greedy_map(rows, 9).tolist()


def test_uneven_and_cancelling_matrices_are_not_diagonalised(L: np.ndarray):
    scale = np.geomspace(1e-6, 1e6, N)
    uneven = L * np.outer(scale, scale)
    assert coordinates(np.eye(N), uneven).eigenvalues is None
    terms = np.full(N, 1e12)
    assert coordinates(np.eye(N), L, magnitudes=terms).eigenvalues is None


@pytest.mark.parametrize("wanted", [None, 2])
@pytest.mark.parametrize("given", [(), (3,)])
def test_draws_among_all_items_have_the_law(monkeypatch, wanted: int | None, given: tuple[int, ...]):
    """Against enumeration: with few items, the way of many is forced."""
    monkeypatch.setattr(spectral, "LEAST_RANK", 0)
    L = gaussian(6, 0.2)
    kernel = LowRankKernel.from_dense(L)
    size = None if wanted is None else wanted + len(given)
    sampler = kernel.sampler(size=size, given=given)
    assert sampler.route == "projection"
    assert sampler.route_for(wanted).among_all
    law = {
        S: np.linalg.det(L[np.ix_(S, S)])
        for k in range(7)
        for S in combinations(range(6), k)
        if set(given) <= set(S) and size in (None, k)
    }
    goodness.assert_law(sampler.sample(1000, rng=0).baskets, normalised(law))


@pytest.fixture
def swept(monkeypatch) -> np.ndarray:
    """A small dense L, in blocks of four items, from which samples are drawn in passes."""
    for name, value in {"LEAST_RANK": 0, "CLOCK_COST": np.inf, "CIRCLE_COST": np.inf, "BLOCK": 4}.items():
        monkeypatch.setattr(sweep, name, value)
    pairs = np.kron(np.eye(3), [[0.0, 2.0], [-2.0, 0.0]])
    return 0.3 * np.eye(6) + 0.2 * skew(6) + pairs


def enumerated(L: np.ndarray, given: tuple[int, ...], size: int | None) -> dict[tuple[int, ...], float]:
    sizes = range(len(L) + 1) if size is None else [size]
    sets = (S for k in sizes for S in combinations(range(len(L)), k) if set(given) <= set(S))
    return normalised({S: max(np.linalg.det(L[np.ix_(S, S)]), 0.0) for S in sets})


@pytest.mark.parametrize(("given", "size"), [((), None), ((3,), None), ((), 3), ((3,), 4), ((), 1), ((), 6)])
def test_sweeps_have_the_law(swept: np.ndarray, given: tuple[int, ...], size: int | None):
    sampler = LowRankKernel.from_dense(swept).sampler(given=given, size=size)
    assert sampler.route == "cholesky"
    goodness.assert_law(sampler.sample(1000, rng=1).baskets, enumerated(swept, given, size))


def test_sweeps_of_one_size_are_not_those_of_items_by_themselves(monkeypatch, swept: np.ndarray):
    """Negative control: decisions that do not update K."""
    monkeypatch.setattr(sweep, "decide", lambda G, uniforms: (uniforms < np.diag(G), 0.0))
    draws = LowRankKernel.from_dense(swept).sampler(size=3).sample(1000, rng=1)
    with pytest.raises(AssertionError):
        goodness.assert_law(draws.baskets, enumerated(swept, (), 3))


def test_passes_are_made_until_the_size_is_right(swept: np.ndarray):
    """As many as the probability of the size says; a sample depends on the seed and its index."""
    kernel = LowRankKernel.from_dense(swept)
    sampler, coords = kernel.sampler(size=3), kernel.coordinates
    draws = sampler.sample(300, rng=0)
    assert set(draws.baskets.sizes) == {3}
    chance = tilted_law(coords, tilt_for(coords, 3)).law[3]
    goodness.assert_mean(draws.info["proposals"] / 6, 1 / chance)
    assert sampler.sample(300, rng=0, n_jobs=2).baskets == draws.baskets
    assert sampler.sample(5, rng=0, first=295).baskets == draws.baskets[295:]


def test_sizes_are_drawn_in_passes_where_that_takes_less_time():
    """Large sets of dense kernels, but not odd sizes of one that is nearly skew."""
    kernel = LowRankKernel.from_dense(np.eye(N) + 0.3 * skew(N))
    assert kernel.sampler(size=N // 2).route == "cholesky"
    assert kernel.sampler(size=5).route == "ring"
    pairs = LowRankKernel.from_dense(1e-4 * np.eye(N) + skew(N))
    assert [pairs.sampler(size=k).route for k in (60, 61)] == ["cholesky", "nodes"]
    assert kernel.sampler(size=N // 2, memory=8 * N * N - 1).route != "cholesky"


def test_a_sample_that_takes_too_many_passes_is_drawn_by_another_route(swept: np.ndarray):
    sampler = LowRankKernel.from_dense(swept).sampler(size=3)
    route = dataclasses.replace(sampler.route_for(3), passes=1)
    begun = [route.draw(np.random.default_rng(seed)) for seed in range(20)]
    left = [one for one in begun if isinstance(one, Unfinished)]
    assert 0 < len(left) < 20
    done = route.finish(sampler, np.random.default_rng(0), left[0])
    assert len(done.rows) == 3
    assert done.proposals > left[0].proposals == 6


def test_a_sweep_is_that_of_the_one_pass_sampler():
    """The same random numbers decide the same items."""
    kernel = LowRankKernel.from_dense(np.eye(N) + 0.3 * skew(N))
    sampler, plain = kernel.sampler(), Cholesky.prepare(kernel)
    assert sampler.route == "cholesky"
    for seed in range(5):
        drawn = [s.draw(np.random.default_rng(seed)).rows.tolist() for s in (sampler, plain)]
        assert drawn[0] == drawn[1]
    assert kernel.rescale(3).sampler().route == "clock"  # small sets
    assert kernel.sampler(size=5).route == "ring"


def test_a_sweep_that_fails_its_monitor_is_drawn_by_another_route(monkeypatch):
    kernel = LowRankKernel.from_dense(np.eye(N) + 0.3 * skew(N))
    sampler, sized = kernel.sampler(), kernel.sampler(size=N // 2)
    assert sized.route == "cholesky"
    monkeypatch.setattr(sweep, "PROBABILITY_TOLERANCE", -1.0)
    assert set(sized.sample(2, rng=0).baskets.sizes) == {N // 2}
    mean = float(sampler.size_law @ np.arange(len(sampler.size_law)))
    assert abs(sampler.sample(20, rng=0).baskets.sizes.mean() - mean) < 5


# -- what stays with a law ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [None, np.full(6, 0.2)], ids=["kernel", "background"])
def test_a_sampler_is_prepared_once(background):
    kernel = LowRankKernel(np.eye(6), np.eye(6) + 0.2 * skew(6), background=background, labels=list("abcdef"))
    limit = ndpp.Limit([0, 3, 4], most=2)
    first, limited = kernel.sampler(size=3, given=["b"], exclude=["c", "a"]), kernel.sampler(limits=limit)
    known = kernel.memory._kept.copy()
    again, also = kernel.sampler(size=3, given=[1], exclude=[0, 2]), kernel.sampler(limits=[limit])
    assert kernel.memory._kept == known
    if background is None:
        assert again is first
    else:
        assert again.drawers is first.drawers
    assert also.drawers.laws is limited.drawers.laws
    for number, other in enumerate(
        ({"size": 2}, {"given": [1]}, {"exclude": [1]}, {"limits": ndpp.Limit([0], most=0)})
    ):
        kernel.sampler(**other)
        assert len(kernel.memory) > len(known) + number
    drawn = kernel.sample(20, size=3, rng=0).to_lists()
    assert LowRankKernel(kernel.X, kernel.W, background=background).sample(20, size=3, rng=0).to_lists() == drawn
    for other in (pickle.loads(pickle.dumps(kernel)), copy.copy(kernel), copy.deepcopy(kernel)):
        assert other.memory is not kernel.memory
        assert other.sample(20, size=3, rng=0).to_lists() == drawn


def test_what_does_not_depend_on_given_items_is_prepared_once():
    kernel = LowRankKernel(np.random.default_rng(0).standard_normal((60, 20)), np.eye(20) + 0.2 * skew(20))
    asked = [{"size": 3, "given": [1]}, {"given": [2, 5]}, {"size": 4}]
    samplers = [kernel.sampler(**options) for options in asked]
    for sampler, options in zip(samplers, asked):
        assert (
            sampler.sample(20, rng=1).baskets
            == ndpp.samplers.Exact.prepare(kernel, **options).sample(20, rng=1).baskets
        )
        assert sampler.eigen is samplers[0].eigen
        assert sampler.index is samplers[0].index


def test_what_is_remembered_is_bounded():
    kernel = LowRankKernel(np.random.default_rng(0).standard_normal((60, 20)), np.eye(20) + 0.2 * skew(20))
    memory = 3 * 2**14
    samplers = [kernel.sampler(size=k, memory=memory) for k in range(1, 13)]
    for k, sampler in enumerate(samplers, 1):
        sampler.sample(5, rng=0)
        assert kernel.sampler(size=k, memory=memory).size == k
    assert kernel.memory.n_bytes <= memory or len(kernel.memory) == 1
    assert kernel.sampler(size=1, memory=memory) is not samplers[0]


def test_threads_share_what_is_remembered():
    kernel = LowRankKernel(np.eye(8), np.eye(8) + 0.2 * skew(8))
    wanted, found = kernel.sample(30, size=3, rng=0).to_lists(), []
    kernel = copy.copy(kernel)

    def work() -> None:
        found.append(kernel.sample(30, size=3, rng=0).to_lists())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4
