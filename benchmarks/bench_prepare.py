"""Preparing a kernel of a million items, compared with ``X.T @ X`` in row blocks plus one read of X, with one BLAS thread.

X is float32, 10⁶ × 100. ``LowRankKernel(X, W).coordinates`` checks that X is finite, sums XᵀX in double precision, and bounds all leverages
in the precision of X. There are two baselines: the product in single precision, as X is stored, and in double, as the result is needed.
Target: at most ``TARGET`` times the baseline, and at most 1 GB of memory in addition to X. Run
``python benchmarks/bench_prepare.py [-o FILE.json]``, or ``make bench ARGS="-k prepare"``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from pytest_benchmark.fixture import BenchmarkFixture
from scipy.linalg import block_diag

from ndpp import LowRankKernel
from ndpp_experiments.record import load_average, machine
from ndpp_experiments.timing import Stopwatch

N_ITEMS, WIDTH, SEED = 1_000_000, 100, 0
BLOCK_ROWS = 1000
TARGET, TARGET_MB = 3.0, 1000.0
MEMORY = """
import sys
sys.path.insert(0, {folder!r})
import bench_prepare as bench
X, W = bench.factors({condition})
bench.LowRankKernel(X[:50_000], W)  # excludes imports and compilation
before = bench.peak_mb()
bench.LowRankKernel(X, W).coordinates
print(bench.peak_mb() - before)
"""


def peak_mb() -> float:
    """Return the peak memory of this process. (``getrusage`` would include that of its parent before the start.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


@lru_cache(maxsize=1)
def factors(condition: float) -> tuple[np.ndarray, np.ndarray]:
    """Return X with normal entries of variance 2/d and this condition number, and W of rank d."""
    rng, half = np.random.default_rng(SEED), WIDTH // 2
    X = rng.standard_normal((N_ITEMS, WIDTH), dtype=np.float32)
    X *= np.float32(np.sqrt(2 / WIDTH))
    if condition > 1:
        turn = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
        spread = (turn * np.geomspace(1, 1 / condition, WIDTH)) @ turn.T
        for start in range(0, N_ITEMS, BLOCK_ROWS):
            X[start : start + BLOCK_ROWS] = X[start : start + BLOCK_ROWS] @ spread.astype(np.float32)
    return X, inner(rng.standard_normal((half, half)))


def inner(D: np.ndarray) -> np.ndarray:
    """Return W of L = VVᵀ + B(D − Dᵀ)Bᵀ, X = [V B]."""
    return np.asarray(block_diag(np.eye(len(D)), D - D.T))


def product(X: np.ndarray, dtype: type[np.floating[Any]]) -> np.ndarray:
    """Return XᵀX by row blocks that stay in cache."""
    total: np.ndarray = np.zeros((X.shape[1],) * 2, dtype)
    for start in range(0, len(X), BLOCK_ROWS):
        block: np.ndarray = np.asarray(X[start : start + BLOCK_ROWS], dtype)
        total += block.T @ block
    return total


def extra_mb(condition: float) -> float:
    """Return the megabytes by which preparation raises the peak memory of a fresh process that already holds X."""
    code = MEMORY.format(folder=str(Path(__file__).parent), condition=condition)
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def compare(condition: float, rounds: int = 3) -> dict[str, Any]:
    """Time everything in turns, under the same load, and return the minimum CPU times and their ratios."""
    X, W = factors(condition)
    calls: dict[str, Callable[[], object]] = {
        "kernel": lambda: LowRankKernel(X, W).coordinates, "product_single": lambda: product(X, np.float32),
        "product_double": lambda: product(X, np.float64), "read": lambda: X.sum(),
    }  # fmt: skip
    watches = {name: Stopwatch() for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            with watches[name]:
                call()
    ms = {f"{name}_cpu_ms": 1e3 * min(watch.cpu) for name, watch in watches.items()}
    wall = {f"{name}_wall_ms": 1e3 * min(watch.wall) for name, watch in watches.items()}
    ratios = {
        f"ratio_{kind}": ms["kernel_cpu_ms"] / (ms[f"product_{kind}_cpu_ms"] + ms["read_cpu_ms"])
        for kind in ("single", "double")
    }
    return {"condition": condition, **ratios, "extra_mb": extra_mb(condition), **ms, **wall, "rounds": rounds}


@pytest.mark.parametrize("condition", [1.0, 100.0])
def test_prepare(benchmark: BenchmarkFixture, condition: float) -> None:
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        found = benchmark.pedantic(compare, args=(condition,), rounds=1)
    benchmark.extra_info.update(found)
    assert found["extra_mb"] <= TARGET_MB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    output = parser.parse_args().output
    about = machine()
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        rows = [compare(condition) for condition in (1.0, 100.0)]
    about["load_average_after"] = load_average()
    for row in rows:
        print(", ".join(f"{key} {value:.4g}" for key, value in row.items()))
    result = {
        "machine": about, "n_items": N_ITEMS, "width": WIDTH, "dtype": "float32", "seed": SEED,
        "target_ratio": TARGET, "target_mb": TARGET_MB, "rows": rows,
    }  # fmt: skip
    if output:
        output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
