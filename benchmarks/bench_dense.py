"""Dense kernels compared with plain NumPy, in one run, by CPU time: ratios above 1 mean that ndpp is faster.

A Gaussian similarity of N points (2,000 by default): the time until the first set of 10 items, the time per set, and inclusion
probabilities, beside one eigendecomposition with textbook recursions [Kulesza & Taskar 2012]; the first set of a projection, beside the
chain rule, which decomposes nothing; the greedy set of 500 items; sets of any size and of one size of a dense nonsymmetric kernel, beside
the one-pass sampler and the circles of node matrices.
Run ``OPENBLAS_NUM_THREADS=1 python benchmarks/bench_dense.py [N] [-o FILE.json]``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ndpp
from ndpp._atomic import replacing
from ndpp_experiments.record import machine

K = 10


def gaussian(n: int, d: int = 20, gamma: float = 0.025) -> np.ndarray:
    """Return exp(−γ ‖x − y‖²) of normal points."""
    points = np.random.default_rng(0).standard_normal((n, d))
    squares = (points**2).sum(axis=1)
    return np.asarray(np.exp(-gamma * np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0.0)))


def timed(call: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Return the shortest CPU time in seconds, and the result."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        found = call()
        times.append(time.process_time() - start)
    return min(times), found


def row(records: list[dict[str, Any]], name: str, plain: float, own: float) -> None:
    """Print one line and keep it."""
    records.append({"what": name, "plain": plain, "ndpp": own})
    print(f"{name:74} {1e3 * plain:12.2f} ms {1e3 * own:12.2f} ms {plain / own:8.2f}", flush=True)


def elementary(values: np.ndarray) -> np.ndarray:
    """Return e_j of the first i values."""
    e = np.zeros((len(values) + 1, K + 1))
    e[:, 0] = 1.0
    for i, value in enumerate(values):
        e[i + 1, 1:] = e[i, 1:] + value * e[i, :-1]
    return e


def plain_draw(values: np.ndarray, V: np.ndarray, e: np.ndarray, rng: np.random.Generator) -> list[int]:
    """Return a set of K items: choose eigenvectors, then items by the chain rule."""
    chosen, left = [], K
    for i in range(len(values), 0, -1):
        if left and rng.random() * e[i, left] < values[i - 1] * e[i - 1, left - 1]:
            chosen.append(i - 1)
            left -= 1
    own = V[:, chosen]
    p, C, items = (own**2).sum(axis=1), np.zeros((K, len(V))), []
    for j in range(K):
        p = np.maximum(p, 0)
        item = int(rng.choice(len(p), p=p / p.sum()))
        items.append(item)
        C[j] = (own @ own[item] - C[:j].T @ C[:j, item]) / np.sqrt(p[item])
        p = p - C[j] ** 2
        p[item] = 0
    return items


def plain_projection(P: np.ndarray, rank: int, rng: np.random.Generator) -> list[int]:
    """Return a set of the projection DPP with kernel P by the chain rule, without a decomposition."""
    p, C, items = P.diagonal().copy(), np.zeros((rank, len(P))), []
    for j in range(rank):
        item = int(rng.choice(len(p), p=p / p.sum()))
        items.append(item)
        C[j] = (P[item] - C[:j].T @ C[:j, item]) / np.sqrt(p[item])
        p = np.maximum(p - C[j] ** 2, 0)
        p[item] = 0
    return items


def plain_inclusion(L: np.ndarray) -> np.ndarray:
    """Return the inclusion probabilities of sets of K items from the eigenvectors."""
    values, V = np.linalg.eigh(L)
    first, last = elementary(values), elementary(values[::-1])[::-1]
    without = [first[i, :K] @ last[i + 1, K - 1 :: -1][:K] for i in range(len(values))]
    return np.asarray(V**2 @ (values * without / first[-1, K]))


def plain_greedy(L: np.ndarray) -> list[int]:
    """Return the greedy set of K items."""
    gains, C, items = L.diagonal().copy(), np.zeros((K, len(L))), []
    for j in range(K):
        best = int(np.argmax(gains))
        items.append(best)
        C[j] = (L[best] - C[:j].T @ C[:j, best]) / np.sqrt(gains[best])
        gains -= C[j] ** 2
        gains[best] = -np.inf
    return items


def of_one_size(kernel: ndpp.LowRankKernel, size: int) -> tuple[float, float]:
    """Return the time per set by circles of node matrices, and by what ``Exact`` takes."""
    exact = ndpp.samplers.Exact.prepare(kernel, size=size)
    circles, rng = exact.nodes(size), np.random.default_rng(0)
    circles.draw(rng)
    exact.sample(1)
    plain, own = timed(lambda: [circles.draw(rng) for _ in range(3)])[0], timed(lambda: exact.sample(20, rng=0))[0]
    return plain / 3, own / 20


def compare(n: int) -> list[dict[str, Any]]:
    """Print a table and return its rows."""
    ndpp.LowRankKernel.from_dense(gaussian(100)).sample(1, size=2)  # imports
    ndpp.LowRankKernel.from_dense(
        np.eye(100) + np.triu(np.ones((100, 100)), 1) - np.tril(np.ones((100, 100)), -1)
    ).sample(1)
    L, rng, records = gaussian(n), np.random.default_rng(1), list[dict[str, Any]]()
    print(f"{'':74} {'plain':>15} {'ndpp':>15} {'ratio':>8}")

    def begin() -> Any:
        values, V = np.linalg.eigh(L)
        e = elementary(values)
        return values, V, e, plain_draw(values, V, e, rng)

    plain, (values, V, e, _) = timed(begin, 3)
    kernel = ndpp.LowRankKernel.from_dense(L)
    own, _ = timed(lambda: ndpp.LowRankKernel.from_dense(L).sample(1, size=K, rng=0), 3)
    row(records, f"{n:,} items, symmetric: the first set of {K}, from the matrix", plain, own)
    plain, _ = timed(lambda: [plain_draw(values, V, e, rng) for _ in range(20)], 3)
    kernel.sample(1, size=K)
    own, _ = timed(lambda: kernel.sample(20, size=K, rng=0), 3)
    row(records, f"{n:,} items, symmetric: each further set", plain / 20, own / 20)
    plain, wanted = timed(lambda: plain_inclusion(L))
    own, found = timed(lambda: ndpp.LowRankKernel.from_dense(L).inclusion_probabilities(K))
    assert np.abs(found - wanted).max() < 1e-8
    row(records, f"{n:,} items, symmetric: inclusion probabilities", plain, own)
    U = np.linalg.qr(rng.standard_normal((600, 50)))[0]
    P, ones = U @ U.T, np.ones(50)
    plain, _ = timed(lambda: plain_projection(P, 50, rng), 10)
    own, _ = timed(lambda: ndpp.LowRankKernel.from_marginal(P).sample(1, rng=0), 10)
    row(records, "600 items, a projection of rank 50: the first set, from the matrix", plain, own)
    own, _ = timed(lambda: ndpp.LowRankKernel.from_marginal(U, ones).sample(1, rng=0), 10)
    row(records, "600 items, a projection of rank 50: the first set, from its eigenvectors", plain, own)
    small = gaussian(500)
    dense = ndpp.LowRankKernel.from_dense(small)
    plain, wanted = timed(lambda: plain_greedy(small), 50)
    own, found = timed(lambda: ndpp.greedy_map(dense, K), 50)
    assert found.tolist() == wanted
    row(records, "500 items, symmetric: the greedy set", plain, own)
    D = np.random.default_rng(2).standard_normal((200, 200))
    sampler = ndpp.samplers.Cholesky.prepare(general := ndpp.LowRankKernel.from_dense(np.eye(200) + D - D.T))
    plain, _ = timed(lambda: sampler.sample(20, rng=0))
    general.sample(1)
    own, _ = timed(lambda: general.sample(20, rng=0))
    row(records, "200 items, nonsymmetric: a set of any size", plain / 20, own / 20)
    for size in (90, 120, 150):
        row(records, f"200 items, nonsymmetric: a set of {size}, beside circles", *of_one_size(general, size))
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n", type=int, nargs="?", default=2000, metavar="N")
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    found = {"machine": machine(), "records": compare(chosen.n)}
    if chosen.output:
        with replacing(chosen.output) as temporary:
            temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
