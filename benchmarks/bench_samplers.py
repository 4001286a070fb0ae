"""Every sampler on the two learned kernels, and the other numbers of docs/benchmarks.md: one run on one core, one BLAS thread.

``python benchmarks/bench_samplers.py -o results`` runs the experiment ``samplers`` (the table that the README and docs/benchmarks.md
quote) and then measures the rest: proposals of the paper's walk, whole walks of random size, memory, a million items against ten
thousand, two workers against one. ``experiments/publish/figures.py`` writes the pages. ``--quick`` gives a rough impression and is
not published. ``NDPP_DATA`` names the folder of real data; without it, a synthetic kernel is used.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from ndpp import LowRankKernel
from ndpp.datasets.synthetic import make_kernel
from ndpp.items.table import seed_words
from ndpp.samplers import Exact, RandomSize, RejectionUp
from ndpp_experiments.kernels import from_files
from ndpp_experiments.record import load_average, machine, read, report
from ndpp_experiments.registry import EXPERIMENTS
from ndpp_experiments.timing import draw_times, timed

SEED = 0
Json = dict[str, Any]


def rejection_up(kernel: LowRankKernel, size: int, seconds: float) -> Json:
    """Time the first and any further proposal of a step: the first includes the decomposition of the skew part."""
    up, exact, rng = RejectionUp().prepare(kernel), Exact.prepare(kernel, size=size), np.random.default_rng(SEED)
    remaining = [kernel.q_rows(exact.draw(rng).rows[2:]) for _ in range(5)]
    made: list[Any] = [up._step(rows) for rows in remaining]

    def first(i: int) -> None:
        up.propose(seed_words(rng), up._step(remaining[i % 5]), 1)  # type: ignore[arg-type]

    further = timed(lambda i: up.propose(seed_words(rng), made[i % 5], 1), least=20, seconds=seconds)
    return {"size": size, "first": timed(first, least=10, seconds=seconds)._asdict(), "further": further._asdict()}


def catalogue(seconds: float, large: int) -> list[Json]:
    """Time ``Exact`` on ten thousand items and on many more, of the same rank, in turns."""
    kernels = {n: make_kernel(n, 100, rng=SEED, dtype=np.float32) for n in (10_000, large)}
    out = []
    for size in (10, 50):
        prepared = {n: Exact.prepare(kernel, size=size) for n, kernel in kernels.items()}
        rounds = [[draw_times(s, seed=SEED, least=5, seconds=seconds / 4) for s in prepared.values()] for _ in range(4)]
        out.append({
            "size": size, "rank": 100, "n": list(kernels),
            "seconds": np.median([[times.median for times in turn] for turn in rounds], axis=0).tolist(),
            "least": np.min([[times.least for times in turn] for turn in rounds], axis=0).tolist(),
            "nodes": [2 * len(sampler.nodes(size).start().nodes.log_w) for sampler in prepared.values()],
        })  # fmt: skip
    return out


def workers(kernel: LowRankKernel, size: int, n_samples: int) -> Json:
    """Draw the same samples with one worker and with two, in turns, by wall-clock time, which depends on the load.

    The upper limit is measured, too: two processes that share nothing but the machine, against one of them.
    """
    sampler = Exact.prepare(kernel, size=size)
    sampler.sample(64, rng=SEED)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    rates: dict[int, list[float]] = {1: [], 2: []}
    for i in range(7):
        for jobs, times in seconds.items():
            began = time.perf_counter()
            sampler.sample(n_samples, rng=i, n_jobs=jobs)
            times.append(time.perf_counter() - began)
        for programs, found in rates.items() if i % 3 == 0 else ():
            found.append(rate_of_programs(kernel, size, programs))
    return {
        "size": size, "samples": n_samples, "seconds": seconds, "ratio": float(np.median(seconds[1]) / np.median(seconds[2])),
        "ratio_of_programs": float(np.median(rates[2]) / np.median(rates[1])), "load_average": load_average(),
    }  # fmt: skip


def rate_of_programs(kernel: LowRankKernel, size: int, programs: int) -> float:
    """Return the samples per second of this many processes together."""
    with ProcessPoolExecutor(programs, mp_context=multiprocessing.get_context("spawn")) as pool:
        return sum(pool.map(rate_of_one, [kernel.X] * programs, [kernel.W] * programs, [size] * programs))


def rate_of_one(X: np.ndarray, W: np.ndarray, size: int, seconds: float = 2.5) -> float:
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        sampler = Exact.prepare(LowRankKernel(X, W), size=size)
        return 1 / draw_times(sampler, seed=SEED, least=10, seconds=seconds, warm=20).wall


def arrays(value: Any, seen: dict[int, Any]) -> dict[int, np.ndarray]:
    """Return every array that ``value`` holds, by identity; a view counts as its base."""
    if id(value) in seen:
        return {}
    seen[id(value)] = value
    if isinstance(value, np.ndarray):
        return arrays(value.base, seen) if isinstance(value.base, np.ndarray) else {id(value): value}
    parts = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, (list, tuple)) else []
    if type(value).__module__.startswith("ndpp") and hasattr(value, "__dict__"):
        parts += list(vars(value).values())
    return {key: array for part in parts for key, array in arrays(part, seen).items()}


def memory(kernel: LowRankKernel, size: int, samples: int) -> Json:
    """Return the megabytes that a prepared and used sampler holds in addition to the kernel."""
    sampler = Exact.prepare(kernel, size=size)
    sampler.sample(samples, rng=SEED)
    seen: dict[int, Any] = {}
    of_kernel = sum(array.nbytes for array in arrays(kernel, seen).values())
    held = sum(array.nbytes for array in arrays(sampler, seen).values())
    return {"size": size, "samples": samples, "mb": held / 1e6, "kernel_mb": of_kernel / 1e6}


def single(run: str, quick: bool) -> Json:
    """Measure what is not part of the experiment; ``run`` is the date of the table that it belongs to."""
    seconds = 0.3 if quick else 1.5
    kernels = {named.name[-2]: named.kernel for named in from_files(print)}
    out: Json = {"run": run, "quick": quick, "seed": SEED, "machine": machine()}
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        out["rejection_up"] = {name: rejection_up(kernel, 10, seconds) for name, kernel in kernels.items()}
        out["random_size"] = {
            name: draw_times(RandomSize.prepare(kernel), seed=SEED, seconds=seconds, warm=1)._asdict()
            for name, kernel in kernels.items()
        }
        out["memory"] = {name: memory(kernel, 50, 10 if quick else 100) for name, kernel in kernels.items()}
        out["catalogue"] = catalogue(seconds, 100_000 if quick else 1_000_000)
    some = kernels.get("A") or make_kernel(10_000, 100, rng=SEED)
    out["workers"] = [workers(some, size, n) for size, n in ((10, 128 if quick else 256), (50, 32))]
    out["machine"]["load_average_after"] = load_average()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes and draws, 10⁵ items instead of 10⁶")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FOLDER", help="write samplers.csv, .json, … and single.json"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as nowhere:
        folder = given.output or Path(nowhere)
        EXPERIMENTS["samplers"].run(folder, quick=given.quick, seed=SEED, progress=True)
        table = read(folder, "samplers")
        assert table is not None
        print(table["notes"][-1], *(f"{found['what']}: {found['ours']}" for found in table["findings"]), sep="\n")
        result = single(table["machine"]["date"], given.quick)
        (folder / "single.json").write_text(json.dumps(result, indent=1) + "\n")
        report(folder, list(EXPERIMENTS))
    for key, value in result.items():
        print(key, json.dumps(value))


if __name__ == "__main__":
    main()
