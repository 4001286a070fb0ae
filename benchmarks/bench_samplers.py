"""Every sampler on the same kernels in one run: milliseconds per sample on one core, BLAS pinned, and ratios to ``Exact``.

The kernels are the two learned from UK Retail (n = 3,941, rank 200; ``NDPP_DATA`` points at their folder, without it they are left
out) and synthetic ones of rank 100. Walks are timed by the step and counted with the k² steps of the paper. ``Rejection`` would take
years on the learned kernels: its figure is the time of a proposal times the known mean number of them, and marked as expected. Run
``python benchmarks/bench_samplers.py [--quick] [-o FILE.json]``; ``python benchmarks/tables.py`` writes the page of the documentation.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
from _machine import machine, timed

from ndpp import LowRankKernel
from ndpp.datasets.synthetic import make_kernel
from ndpp.samplers.base import Sampler, stream, stream_key
from ndpp.samplers.cholesky import Cholesky
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.rejection import Rejection, minor_ratio
from ndpp.samplers.walk import Walk
from ndpp.samplers.walk.bordered import condition_bordered
from ndpp.samplers.walk.random_size import RandomSize
from ndpp.samplers.walk.up_rejection import RejectionUp

FOLDER = Path(os.environ.get("NDPP_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data") / "kernels"
SEED = 0
SIZES = (10, 50, 100, None)
PUBLISHED_MS = {("A", 10): 12_500, ("B", 10): 99_000, ("A", 50): 400_000, ("B", 50): 783_000}
"""The published code of the paper's walk, k² steps, as measured before on the same kind of machine; not part of this run."""
TARGET_MS = {("A", 10): 12, ("B", 10): 22, ("A", 50): 150, ("B", 50): 150, ("A", 100): 450, ("B", 100): 450}

Row = dict[str, Any]


def learned(name: str) -> LowRankKernel | None:
    path = FOLDER / f"uk_retail_{name}.npz"
    if not path.exists():
        print(f"learned kernel {name} is not at {path} and is left out; point NDPP_DATA at the folder of real data")
        return None
    with np.load(path) as arrays:
        return LowRankKernel(arrays["X"], arrays["W"])


def draws(sampler: Sampler, *, least: int, seconds: float, warm: int = 3) -> Row:
    """Time single draws, after ``warm`` others that fill caches and compile."""
    key = stream_key(SEED)
    for i in range(warm):
        sampler.draw(stream(key, 10**6 + i))
    return timed(lambda i: sampler.draw(stream(key, i)), least=least, seconds=seconds)


def steps(walk: Walk, exact: Exact, *, least: int, seconds: float) -> Row:
    """Time steps of the walk from an exact draw, which is to say at stationarity, and scale to the steps of a sample."""
    rng = np.random.default_rng(SEED)
    state = [walk._state(exact.draw(rng).rows)]
    counts: list[float] = []

    def step(_: int) -> None:
        state[0], info = walk.step(rng, state[0])
        counts.append(info["proposals"])

    for i in range(5):
        step(i)
    per_step = timed(step, least=least, seconds=seconds)
    sample = {key: value * walk.steps for key, value in per_step.items() if key.endswith("_ms")}
    return {**sample, "steps": walk.steps, "step": {**per_step, "proposals": float(np.mean(counts))}}


def rejection(kernel: LowRankKernel, size: int | None, *, least: int, seconds: float) -> Row:
    """Time draws where they take a second or so, otherwise proposals: a draw takes the known mean number of them."""
    sampler, rng = Rejection.prepare(kernel, size=size, max_proposals=np.inf), np.random.default_rng(SEED)

    def propose(_: int) -> None:
        rows = sampler.proposal.draw(rng).rows
        minor_ratio(kernel.q_rows(rows), kernel.coordinates.B, sampler.dominating)

    propose(0)
    one = timed(propose, least=least, seconds=seconds)
    if one["cpu_ms"] * sampler.expected_proposals < 1000:
        return {**draws(sampler, least=least, seconds=seconds), "expected_proposals": sampler.expected_proposals}
    ms = {key: value * sampler.expected_proposals for key, value in one.items() if key.endswith("_ms")}
    return {**ms, "expected": True, "expected_proposals": sampler.expected_proposals, "proposal": one}


def samplers(kernel: LowRankKernel, size: int | None, seconds: float) -> dict[str, Callable[[], Row]]:
    """Return what to time for one kernel and size, ``Exact`` first."""
    exact = Exact.prepare(kernel, size=size)
    warm = 40 if size == 10 else 20  # draws after which nearly every circle they may want is cached
    calls = {"Exact": lambda: draws(exact, least=5, seconds=2 * seconds, warm=warm)}
    if size is None:
        calls["RandomSize(DirectUp)"] = lambda: draws(RandomSize.prepare(kernel), least=3, seconds=seconds, warm=1)
        calls["Cholesky"] = lambda: draws(Cholesky.prepare(kernel), least=3, seconds=seconds)
        calls["Clock"] = lambda: draws(Clock.prepare(kernel), least=3, seconds=seconds)
    else:
        calls["Walk(DirectUp)"] = lambda: steps(Walk.prepare(kernel, size=size), exact, least=20, seconds=seconds)
        by_rejection = lambda: Walk.prepare(kernel, size=size, up=RejectionUp())  # noqa: E731
        calls["Walk(RejectionUp)"] = lambda: steps(by_rejection(), exact, least=10, seconds=seconds)
    calls["Rejection"] = lambda: rejection(kernel, size, least=3, seconds=seconds / 2)
    return calls


def table(kernels: dict[str, LowRankKernel], seconds: float) -> list[Row]:
    rows = []
    for name, kernel in kernels.items():
        for size in SIZES:
            reference = 1.0
            for sampler, call in samplers(kernel, size, seconds).items():
                found = call()
                reference = found["cpu_ms"] if sampler == "Exact" else reference
                row = {"kernel": name, "size": size, "sampler": sampler, **found, "ratio": found["cpu_ms"] / reference}
                if sampler == "Exact" and (name, size) in TARGET_MS:
                    row["target_ms"] = TARGET_MS[name, size]
                rows.append(row)
                print(f"{name} {size!s:>4} {sampler:21} {row['cpu_ms']:10.4g} ms CPU (least {row['least_cpu_ms']:.4g}), "
                      f"{row['wall_ms']:.4g} ms wall, {row['ratio']:.3g} × Exact", flush=True)  # fmt: skip
            if (name, size) in PUBLISHED_MS:
                ms = PUBLISHED_MS[name, size]
                rows.append({"kernel": name, "size": size, "sampler": "published walk", "wall_ms": ms,
                             "ratio": ms / reference, "published": True})  # fmt: skip
    return rows


def rejection_up(kernel: LowRankKernel, size: int, seconds: float) -> Row:
    """Time the first and any further proposal of a step: the first pays the eigendecompositions."""
    up, exact, rng = RejectionUp().prepare(kernel), Exact.prepare(kernel, size=size), np.random.default_rng(SEED)
    kept = [exact.draw(rng).rows[2:] for _ in range(5)]
    made = [up._step(condition_bordered(kernel.coordinates, kernel.q_rows(rows))) for rows in kept]

    def propose(step: Any) -> None:
        minor_ratio(kernel.q_rows(step.proposal.draw(rng).rows), step.inner, step.dominating)

    def first(i: int) -> None:
        propose(up._step(condition_bordered(kernel.coordinates, kernel.q_rows(kept[i % 5]))))

    return {
        "first": timed(first, least=10, seconds=seconds), "further": timed(lambda i: propose(made[i % 5]), least=20, seconds=seconds),
        "target_first_ms": 20, "target_further_ms": 3,
    }  # fmt: skip


def catalogue(seconds: float, large: int) -> Row:
    """Time ``Exact`` on ten thousand items and on many more, at equal rank, in turns."""
    kernels = {n: make_kernel(n, 100, rng=SEED, dtype=np.float32) for n in (10_000, large)}
    out: Row = {"rank": 100, "target_ratio": 1.3}
    for size in (10, 50):
        prepared = {n: Exact.prepare(kernel, size=size) for n, kernel in kernels.items()}
        parts: dict[int, list[Row]] = {n: [] for n in prepared}
        for _ in range(4):
            for n, sampler in prepared.items():
                parts[n].append(draws(sampler, least=5, seconds=seconds / 4))
        ms = {n: float(np.median([part["cpu_ms"] for part in rounds])) for n, rounds in parts.items()}
        least = {n: min(part["least_cpu_ms"] for part in rounds) for n, rounds in parts.items()}
        out[f"size {size}"] = {
            "cpu_ms": ms, "least_cpu_ms": least,
            "ratio": ms[large] / ms[10_000], "least_ratio": least[large] / least[10_000],
            "nodes": {n: 2 * len(sampler.start(size).nodes.log_w) for n, sampler in prepared.items()},
        }  # fmt: skip
    return out


def workers(kernel: LowRankKernel, size: int, n_samples: int) -> Row:
    """Draw the same samples with one worker and with two, in turns; wall-clock time, so it shows the load of the machine.

    Beside it the ceiling: two programs that share nothing but the machine, against one of them alone.
    """
    sampler = Exact.prepare(kernel, size=size)
    sampler.sample(64, rng=SEED)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    rates: dict[int, list[float]] = {1: [], 2: []}
    for i in range(9):
        for jobs, times in seconds.items():
            began = time.perf_counter()
            sampler.sample(n_samples, rng=i, n_jobs=jobs)
            times.append(time.perf_counter() - began)
        for programs, found in rates.items() if i % 3 == 0 else ():
            found.append(rate_of_programs(kernel, size, programs))
    ratio = float(np.median(seconds[1]) / np.median(seconds[2]))
    return {
        "size": size, "samples": n_samples, "seconds": seconds, "ratio": ratio, "target_ratio": 1.8,
        "ratio_of_programs": float(np.median(rates[2]) / np.median(rates[1])), "load_average": os.getloadavg()[0],
    }  # fmt: skip


def rate_of_programs(kernel: LowRankKernel, size: int, programs: int) -> float:
    """Return the samples a second of so many processes at once."""
    with ProcessPoolExecutor(programs, mp_context=multiprocessing.get_context("spawn")) as pool:
        return sum(pool.map(rate_of_one, [kernel.X] * programs, [kernel.W] * programs, [size] * programs))


def rate_of_one(X: np.ndarray, W: np.ndarray, size: int, seconds: float = 4.0) -> float:
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        sampler = Exact.prepare(LowRankKernel(X, W), size=size)
        return 1000 / draws(sampler, least=10, seconds=seconds, warm=40)["wall_ms"]


def arrays(value: Any, seen: dict[int, Any]) -> dict[int, np.ndarray]:
    """Return every array that ``value`` holds, by identity; views count as what they look at."""
    if id(value) in seen:
        return {}
    seen[id(value)] = value
    if isinstance(value, np.ndarray):
        return arrays(value.base, seen) if isinstance(value.base, np.ndarray) else {id(value): value}
    parts = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, (list, tuple)) else []
    if type(value).__module__.startswith("ndpp") and hasattr(value, "__dict__"):
        parts += list(vars(value).values())
    return {key: array for part in parts for key, array in arrays(part, seen).items()}


def memory(kernel: LowRankKernel, size: int, samples: int) -> Row:
    """Return the megabytes that a prepared and used sampler holds beside the kernel."""
    sampler = Exact.prepare(kernel, size=size)
    sampler.sample(samples, rng=SEED)
    seen: dict[int, Any] = {}
    of_kernel = sum(array.nbytes for array in arrays(kernel, seen).values())
    held = sum(array.nbytes for array in arrays(sampler, seen).values())
    return {
        "rank": kernel.rank,
        "size": size,
        "samples": samples,
        "mb": held / 1e6,
        "kernel_mb": of_kernel / 1e6,
        "target_mb": 300,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer draws, and a hundred thousand items instead of a million"
    )
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    seconds = 0.3 if arguments.quick else 1.5
    about = {**machine(), "quick": arguments.quick, "seed": SEED}
    kernels = {name: kernel for name in "AB" if (kernel := learned(name)) is not None}
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        result: Row = {"machine": about, "samplers": table(kernels, seconds)}
        for name, kernel in kernels.items():
            result[f"rejection_up {name}"] = rejection_up(kernel, 10, seconds)
            result[f"memory {name}"] = memory(kernel, 50, 10 if arguments.quick else 100)
        result["catalogue"] = catalogue(seconds, 100_000 if arguments.quick else 1_000_000)
    some = kernels.get("A") or make_kernel(10_000, 100, rng=SEED)
    result["workers"] = [workers(some, size, n) for size, n in ((10, 128 if arguments.quick else 256), (50, 32))]
    result["machine"]["load_average_after"] = [round(value, 2) for value in os.getloadavg()]
    for key in result.keys() - {"samplers", "machine"}:
        print(key, json.dumps(result[key]))
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
