"""Item indexes: what preparing costs beside one pass over X, and what a draw costs as n grows.

Ratios inside one run are of interest, not seconds. Run ``make bench ARGS="-k items"`` or
``python -m pytest benchmarks/bench_items.py``.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from ndpp import LowRankKernel
from ndpp.items import LeverageTable, Scan, Tree
from ndpp.samplers.walk.up_rejection import RejectionUp

RANK = 100
INDEXES = {"table": LeverageTable, "tree": Tree, "scan": Scan}


@lru_cache(maxsize=1)
def kernel(n_items: int, rank: int = RANK) -> LowRankKernel:
    """A synthetic kernel of the paper's form, X = [V B], standard normal entries scaled to size."""
    rng = np.random.default_rng(0)
    V, B = rng.standard_normal((2, n_items, rank // 2), dtype=np.float32) / np.float32(np.sqrt(n_items))
    D = rng.standard_normal((rank // 2, rank // 2), dtype=np.float32)
    return LowRankKernel.from_vbd(V, B, D)


def projection(rank: int, directions: int) -> np.ndarray:
    V = np.linalg.qr(np.random.default_rng(1).standard_normal((rank, directions)))[0]
    return V @ V.T


@pytest.mark.parametrize("n_items", [10_000, 100_000])
@pytest.mark.parametrize("name", ["pass", "table", "tree"])
def test_items_prepare(benchmark, n_items, name):
    """Preparing the tree is a pass that forms Q and its Gram matrices by leaves; the table only needs the leverages."""
    k = kernel(n_items)
    prepare = (lambda: sum(Q.T @ Q for _, Q in k.q_blocks())) if name == "pass" else lambda: INDEXES[name].prepare(k)
    benchmark.pedantic(prepare, rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("n_items", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("name", ["table", "tree"])
@pytest.mark.parametrize("directions", [2, 50])
def test_items_draw(benchmark, n_items, name, directions):
    k, rng = kernel(n_items), np.random.default_rng(2)
    index, M = INDEXES[name].prepare(k), projection(k.rank, directions)
    benchmark(index.draw, rng, M)


@pytest.mark.parametrize("n_draws", [1, 100, 10_000])
@pytest.mark.parametrize("name", list(INDEXES))
def test_items_many_draws(benchmark, n_draws, name):
    """Draws of one call share nodes of the tree, blocks of the table, the pass of the scan."""
    k, rng = kernel(10_000), np.random.default_rng(3)
    index, M = INDEXES[name].prepare(k), projection(k.rank, 2)
    benchmark.pedantic(index.draw, args=(rng, M, n_draws), rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("n_items", [1_000, 10_000, 100_000])
def test_items_up_step_is_flat_in_n(benchmark, n_items):
    """One up-step by rejection at size 10: its time and its proposals hardly depend on n."""
    k, rng = kernel(n_items), np.random.default_rng(4)
    up, kept = RejectionUp().prepare(k), np.sort(rng.choice(n_items, 8, replace=False))
    proposals = []
    benchmark.pedantic(lambda: proposals.append(up.pair(rng, kept)[1]["proposals"]), rounds=20, warmup_rounds=1)
    benchmark.extra_info.update(proposals=float(np.mean(proposals)), expected=up.expected_proposals(kept))
