"""Catalogues on disk: preparation time, peak memory and time per sample, compared with 10⁴ items in memory, and with the same X in memory.

X is a float32 file, written for the run and removed afterwards, and passed to the kernel as a ``numpy.memmap``. Rows are normal, scaled
so that every catalogue has about the same size distribution: two of them differ only in n. Everything runs in a fresh process with one
BLAS thread; memory is the peak of that process (VmHWM), including imports and compiled code. Run
``python benchmarks/bench_scale.py [--folder FOLDER] [--sizes 10000000x64 …] [-o FILE.json]``, or a small one with
``make bench ARGS="-k scale"``; ``experiments/publish/figures.py`` writes the tables of docs/scale.md from the file.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
from bench_prepare import inner, peak_mb
from pytest_benchmark.fixture import BenchmarkFixture

from ndpp import LowRankKernel
from ndpp.rows import FileRows
from ndpp.samplers import Exact
from ndpp_experiments.record import load_average, machine, measured_here
from ndpp_experiments.timing import Stopwatch

SIZES = ((10_000, 64), (100_000, 64), (1_000_000, 64), (10_000_000, 64), (100_000_000, 16))
SMALL, SIZE, SEED = 10_000, 10, 0
ROUNDS, DRAWS = 15, 20
IN_MEMORY = 2**30
"""Up to this many bytes, X is also read into memory, at the end."""
TARGETS = {"prepare_s": 120.0, "peak_mb": 1500.0, "ratio": 1.5}
"""For 10⁷ items with 64 columns."""


def rows(n: int, d: int, rng: np.random.Generator, n_rows: int) -> np.ndarray:
    return rng.standard_normal((n_rows, d), dtype=np.float32) * np.float32(np.sqrt(1.0 / n))


def write(path: Path, n: int, d: int) -> None:
    rng, step = np.random.default_rng(SEED + 1), 250_000
    with open(path, "wb") as file:
        for start in range(0, n, step):
            file.write(rows(n, d, rng, min(step, n - start)).data)


class Counted(FileRows):
    """Counts the rows that are fetched."""

    fetched = 0

    def rows(self, ids: np.ndarray) -> np.ndarray:
        Counted.fetched += len(ids)
        return super().rows(ids)


def measure(path: str, n: int, d: int) -> dict[str, Any]:
    """Prepare the catalogue of a file and draw from it, in turns with a small one."""
    W = inner(np.random.default_rng(SEED).standard_normal((d // 2, d // 2)))
    small = LowRankKernel(rows(SMALL, d, np.random.default_rng(SEED + 2), SMALL), W)
    near = Exact.prepare(small, size=SIZE)
    near.sample(DRAWS, rng=0)  # excludes imports and compilation
    idle = peak_mb()
    began, cpu = time.perf_counter(), time.process_time()
    X = np.memmap(path, np.float32, "r", shape=(n, d))
    kernel = LowRankKernel(X, W)
    prepared, on_cpu = time.perf_counter() - began, time.process_time() - cpu
    after_kernel = peak_mb()
    began = time.perf_counter()
    far = Exact.prepare(kernel, size=SIZE)
    table = time.perf_counter() - began
    far.sample(DRAWS, rng=0)
    ms = timed(near=near, far=far)
    found = {
        "n_items": n, "width": d, "file_gb": n * d * 4 / 1e9, "rank": kernel.rank, "size": SIZE,
        "prepare_s": prepared, "prepare_cpu_s": on_cpu, "table_s": table,
        "idle_mb": idle, "kernel_mb": after_kernel, "peak_mb": peak_mb(),
        "small_ms": ms["near"].wall, "sample_ms": ms["far"].wall, "ratio": ms["far"].wall / ms["near"].wall,
        "least_small_cpu_ms": ms["near"].least, "least_sample_cpu_ms": ms["far"].least,
        "least_ratio": ms["far"].least / ms["near"].least,
        **_fetched(path, kernel),
    }  # fmt: skip
    if X.nbytes <= IN_MEMORY:  # last, since it takes memory
        ms = timed(memory=Exact.prepare(LowRankKernel(np.array(X), W), size=SIZE), far=far)
        found["memory_ms"], found["memory_ratio"] = ms["memory"].wall, ms["far"].wall / ms["memory"].wall
        found["least_memory_ratio"] = ms["far"].least / ms["memory"].least
    return found


def timed(**samplers: Exact) -> dict[str, Any]:
    """Return the time of each per sample, in ms; they take turns, under the same load."""
    watches = {name: Stopwatch() for name in samplers}
    for key in range(ROUNDS):
        for name, sampler in samplers.items():
            with watches[name]:
                sampler.sample(DRAWS, rng=key)
    return {name: watch.times().scaled(1e3 / DRAWS) for name, watch in watches.items()}


def _fetched(path: str, kernel: LowRankKernel) -> dict[str, float]:
    """Return the rows and bytes that a sample reads."""
    kernel, counted = copy.copy(kernel), Counted(path, kernel.X.shape, np.float32)
    vars(kernel).update(X=counted, _scaled=counted)
    Exact.prepare(kernel, size=SIZE).sample(DRAWS, rng=0)
    return {
        "rows_per_sample": Counted.fetched / DRAWS,
        "bytes_per_sample": Counted.fetched / DRAWS * 4 * kernel.X.shape[1],
    }


def run(n: int, d: int, folder: Path) -> dict[str, Any]:
    """Write X, measure in a fresh process, remove X."""
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        path = Path(inside) / "X.f32"
        write(path, n, d)
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import bench_scale as b; b.child({str(path)!r}, {n}, {d})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout))


def child(path: str, n: int, d: int) -> None:
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        print(json.dumps(measure(path, n, d)))


def test_scale(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    found = benchmark.pedantic(run, args=(1_000_000, 16, tmp_path), rounds=1)
    benchmark.extra_info.update(found)
    assert found["peak_mb"] - found["idle_mb"] <= 300
    assert found["least_memory_ratio"] <= 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="*", default=[f"{n}x{d}" for n, d in SIZES], help="items × columns")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where X is written")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    found = []
    where = machine()
    for n, d in (map(int, size.split("x")) for size in given.sizes):
        found.append(run(n, d, given.folder))
        print(", ".join(f"{key} {value:.4g}" for key, value in found[-1].items()))
    where["load_average_after"] = load_average()
    if given.output:
        old = measured_here(given.output).get("rows", [])
        kept = [row for row in old if (row["n_items"], row["width"]) not in {(f["n_items"], f["width"]) for f in found}]
        found = sorted(kept + found, key=lambda row: row["n_items"])
        result = {"machine": where, "dtype": "float32", "small_items": SMALL, "targets": TARGETS, "rows": found}
        given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
