"""Which route a sampler takes, what it says of it, and the memory that all of its caches take."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernels import BY_NAME, Case, eighths, skew
from ndpp import LowRankKernel
from ndpp.linalg import coordinates
from ndpp.samplers import Exact
from ndpp.samplers.exact.routes import Done, Unfinished

RNG = np.random.default_rng(30)
GENERIC = Case("generic", eighths(RNG, 8, 4), np.eye(4) + skew(eighths(RNG, 4, 4)))
DEFECTIVE = Case("defective", np.eye(3), np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))


@pytest.mark.parametrize(
    ("kernel", "size", "route"),
    [
        (BY_NAME["symmetric"].kernel, None, "projection"),
        (BY_NAME["symmetric"].kernel, 2, "projection"),
        (GENERIC.kernel, None, "clock"),
        (GENERIC.kernel, 2, "ring"),
        (DEFECTIVE.kernel, None, "nodes"),
        (DEFECTIVE.kernel, 2, "nodes"),
        (GENERIC.kernel, 0, "nodes"),
        (LowRankKernel(np.zeros((3, 1)), np.eye(1)), None, "nodes"),
    ],
)
def test_the_first_route_that_suits(kernel, size, route):
    sampler = Exact.prepare(kernel, size=size)
    assert sampler.route == route
    sampler.sample(3, rng=0)
    assert sampler.route == route


@pytest.mark.parametrize("size", [None, 3])
def test_routes_draw_further_items_or_say_what_they_have(size):
    sampler = Exact.prepare(GENERIC.kernel, size=size, given=[2])
    route = sampler.route_for(None if size is None else size - 1)
    assert route is not None
    done = route.draw(np.random.default_rng(0))
    assert isinstance(done, Done)
    assert 2 not in done.rows
    assert done.proposals >= len(done.rows)


def test_nodes_finish_what_another_route_has_begun():
    nodes = Exact.prepare(GENERIC.kernel, size=3).nodes(3)
    done = nodes.finish(nodes.target, np.random.default_rng(0), Unfinished(np.array([5]), 4))
    assert done.rows[0] == 5
    assert len(set(done.rows.tolist())) == 3
    assert done.proposals >= 6


# -- memory ----------------------------------------------------------------------------------------------------------------------


def arrays_in(value, seen: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Collect all arrays that can be reached from a value, each once."""
    if id(value) in seen:
        return seen
    if isinstance(value, np.ndarray):
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        seen[id(owner)] = owner
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in vars(value).values():
            arrays_in(field, seen)
    elif isinstance(value, tuple | list):
        for part in value:
            arrays_in(part, seen)
    elif isinstance(value, dict):
        for part in value.values():
            arrays_in(part, seen)
    return seen


def plain(n: int, rank: int) -> LowRankKernel:
    rng = np.random.default_rng(3)
    A = rng.standard_normal((rank, rank)) / 8
    return LowRankKernel(rng.standard_normal((n, rank)), np.eye(rank) + A - A.T)


@pytest.mark.parametrize("given", [(), (1, 2, 3)], ids=str)
def test_every_byte_of_the_cache_is_counted(given):
    """Also those of rings and of rows in eigencoordinates; not those that the kernel has anyway."""
    kernel = plain(200, 40)
    sampler = Exact.prepare(kernel, given=given)
    for wanted in (3, 10, 30):
        sampler.draw_rows(np.random.default_rng(0), wanted)
    sampler.draw(np.random.default_rng(0))
    memory, others = sampler.ladder.memory, {}
    for value in (kernel, sampler.given, sampler.size_law, sampler.ladder.coords, sampler.ladder.given):
        arrays_in(value, others)
    arrays_in(vars(kernel), others)
    held = arrays_in([memory._kept, vars(memory.beside)], {})
    n_bytes = sum(array.nbytes for key, array in held.items() if key not in others)
    assert len(memory) > 4
    assert n_bytes <= memory.n_bytes <= 1.1 * n_bytes + 10_000


def test_a_ring_keeps_only_the_dyads_of_given_items():
    kernel = plain(200, 40)
    sampler = Exact.prepare(kernel, size=15)
    route = sampler.route_for(15)
    assert sampler.route == "ring"
    assert len(route.ring.zeta) == 0
    assert route.n_bytes < 200_000


def test_caches_stay_within_their_memory():
    kernel = plain(200, 40)
    sampler, least = Exact.prepare(kernel, memory=2**20), Exact.prepare(kernel, memory=0)
    for wanted in range(1, 39):
        rows = sampler.draw_rows(np.random.default_rng(wanted), wanted)
        np.testing.assert_array_equal(least.draw_rows(np.random.default_rng(wanted), wanted), rows)
        assert sampler.ladder.memory.n_bytes <= 2**20 or len(sampler.ladder.memory) == 1
    assert len(least.ladder.memory) == 1


def test_rows_in_eigencoordinates_are_not_kept_without_the_memory():
    kernel = plain(200, 40)
    kept, not_kept = Exact.prepare(kernel), Exact.prepare(kernel, memory=16 * 200 * 40 - 1)
    assert kept.sample(20, rng=0).baskets == not_kept.sample(20, rng=0).baskets
    assert len(kept.route_for(None).eigen.source.kept) == kept.kernel.n_rows
    assert len(not_kept.route_for(None).eigen.source.kept) == 0
    assert not_kept.route_for(None).eigen.n_bytes < 30_000


def test_sides_of_the_items_proposed_most_often_are_kept_beside_X(monkeypatch):
    monkeypatch.setattr(coordinates, "DENSE_ENTRIES", 1_000)
    even, table = plain(200, 40), 12 * 200
    memory = 2 * 16 * 40 * 50 + table
    scales = np.where(np.arange(200) % 5 == 1, 100.0, 1.0)
    uneven = LowRankKernel(even.X * scales[:, None], even.W)
    sampler, others = Exact.prepare(uneven, size=10, memory=memory), Exact.prepare(uneven, size=10, memory=0)
    assert uneven.coordinates.Q is None
    assert len(sampler.eigen.source.kept) == 50
    assert (sampler.eigen.source.place[scales > 1] >= 0).all()
    assert len(others.eigen.source.kept) == len(Exact.prepare(even, size=10, memory=memory).eigen.source.kept) == 0
    assert sampler.sample(20, rng=0).baskets == others.sample(20, rng=0).baskets
