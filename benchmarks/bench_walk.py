"""Milliseconds per step of the walk with ``DirectUp``, and steps until chains forget where they began.

The kernels are the two learned from UK Retail (n = 3,941, rank 200); ``NDPP_DATA`` points at their folder. Target: at
most 1.5 ms a step at size 10 on one core, BLAS pinned. Run ``python benchmarks/bench_walk.py [results.json]``, or
``make bench ARGS="-k walk"``.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl

from ndpp import LowRankKernel
from ndpp.samplers.exact import Exact
from ndpp.samplers.walk import Walk

FOLDER = Path(os.environ.get("NDPP_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data") / "kernels"
TARGET_MS = 1.5
REPEATS = 9


def learned(name: str) -> LowRankKernel:
    path = FOLDER / f"uk_retail_{name}.npz"
    if not path.exists():
        pytest.skip(f"learned kernel {name} is not at {path}; point NDPP_DATA at the folder of real data")
    with np.load(path) as arrays:
        return LowRankKernel(arrays["X"], arrays["W"])


def run(walk: Walk, rng: np.random.Generator, state, steps: int):
    for _ in range(steps):
        state, _ = walk.step(rng, state)
    return state


def step_ms(kernel: LowRankKernel, size: int, *, steps: int = 200, repeats: int = REPEATS) -> tuple[float, float]:
    """Return the median and the least milliseconds per step of runs of ``steps`` steps, after a warm-up."""
    walk, rng = Walk.prepare(kernel, size=size), np.random.default_rng(0)
    state, times = run(walk, rng, walk.init(rng), steps), []
    for _ in range(repeats):
        began = time.perf_counter()
        state = run(walk, rng, state, steps)
        times.append(1e3 * (time.perf_counter() - began) / steps)
    return statistics.median(times), min(times)


def steps_to_stationarity(
    kernel: LowRankKernel, size: int, start: str, *, chains: int, most: int, seed: int = 0
) -> int:
    """Return after how many steps the mean log det over chains is, and stays for five looks, that of exact draws.

    "Is" means within two standard errors of the difference. Chains are looked at on a grid that grows by a tenth.
    """
    exact = [kernel.log_det(basket) for basket in Exact.prepare(kernel, size=size).sample(400, rng=0).baskets]
    walk, rngs = Walk.prepare(kernel, size=size, start=start), np.random.default_rng(1).spawn(chains)
    states, done, reached, looks = [walk.init(rng) for rng in rngs], 0, 0, 0
    while done < most:
        now = [kernel.log_det(state.items) for state in states]
        error = np.sqrt(np.var(exact) / len(exact) + max(np.var(now), np.var(exact)) / chains)
        if abs(np.mean(now) - np.mean(exact)) > 2 * error:
            looks = 0
        else:
            reached, looks = (done if looks == 0 else reached), looks + 1
        if looks == 5:
            return reached
        more = max(1, done // 10)
        states, done = [run(walk, rng, state, more) for rng, state in zip(rngs, states)], done + more
    return most


@pytest.mark.parametrize("size", [10, 50])
@pytest.mark.parametrize("name", ["A", "B"])
def test_walk_step(benchmark, name, size):
    walk, rng = Walk.prepare(learned(name), size=size), np.random.default_rng(0)
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        state = run(walk, rng, walk.init(rng), 50)
        benchmark.pedantic(lambda: run(walk, rng, state, 50), rounds=5)
    benchmark.extra_info.update(ms_per_step=1e3 * benchmark.stats.stats.median / 50, target_ms=TARGET_MS)


def main() -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, float]] = {}
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        for name in "AB":
            kernel = learned(name)
            for size in (10, 50):
                median, least = step_ms(kernel, size)
                row = {"ms_per_step": median, "least_ms_per_step": least}
                for start in ("uniform", "greedy"):
                    row[f"steps_from_{start}"] = steps_to_stationarity(kernel, size, start, chains=48, most=size**2)
                results[f"kernel {name}, size {size}"] = row
                print(f"kernel {name}, size {size}: " + ", ".join(f"{key} {value:.4g}" for key, value in row.items()))
    return results


if __name__ == "__main__":
    found = main()
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(found, indent=1))
