"""The leverage table: the cost of preparation compared with one pass over X, and the cost of a draw as n grows.

Ratios within one run matter, not seconds. Steps of a walk over n are in the experiment ``fig2``. Run ``make bench ARGS="-k items"``
or ``python -m pytest benchmarks/bench_items.py``.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ndpp import LowRankKernel
from ndpp.datasets import make_kernel
from ndpp.items import LeverageTable

RANK = 100


@lru_cache(maxsize=1)
def kernel(n_items: int) -> LowRankKernel:
    return make_kernel(n_items, RANK, rng=0, dtype=np.float32)


def projection(rank: int, directions: int) -> np.ndarray:
    V = np.linalg.qr(np.random.default_rng(1).standard_normal((rank, directions)))[0]
    return np.asarray(V @ V.T)


@pytest.mark.parametrize("n_items", [10_000, 100_000])
@pytest.mark.parametrize("name", ["pass", "table"])
def test_items_prepare(benchmark: BenchmarkFixture, n_items: int, name: str) -> None:
    """The table only needs the leverages."""
    k = kernel(n_items)
    prepare = (lambda: sum(Q.T @ Q for _, Q in k.q_blocks())) if name == "pass" else lambda: LeverageTable.prepare(k)
    benchmark.pedantic(prepare, rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("n_items", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("directions", [2, 50])
def test_items_draw(benchmark: BenchmarkFixture, n_items: int, directions: int) -> None:
    k, rng = kernel(n_items), np.random.default_rng(2)
    index, M = LeverageTable.prepare(k), projection(k.rank, directions)
    benchmark(index.draw, rng, M)
