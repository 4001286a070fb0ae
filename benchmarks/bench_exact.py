"""The exact sampler beside another commit's, and eigencoordinates beside node matrices in double precision.

``python benchmarks/bench_exact.py --against PYTHON`` times ``Exact`` on the learned kernels in turns under this interpreter and under
``PYTHON``, which has another commit installed: least CPU time of each sample over all rounds, and whether the draws are the same.
``--identical N`` draws up to N samples of every kernel of the tests in eigencoordinates and with node matrices, and compares them.
``--threads`` compares two threads with one by wall-clock time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from ndpp.linalg.size_law import tilted_law
from ndpp.samplers import Exact
from ndpp.samplers.base import stream, stream_key
from ndpp_experiments.kernels import from_files

CASES = {10: 24, 50: 5, 100: 2, None: 8}
"""Samples per size and round."""


def one_round(sizes: list[int | None]) -> dict[str, Any]:
    """Return the CPU seconds of each sample and the samples themselves."""
    out: dict[str, Any] = {}
    for named in from_files(lambda *_: None):
        for size in sizes:
            sampler, key = Exact.prepare(named.kernel, size=size), stream_key(0)
            for i in range(CASES[size]):  # circles are computed on first use
                sampler.draw(stream(key, i))
            seconds, rows = [], []
            for i in range(CASES[size]):
                rng, began = stream(key, i), time.process_time()
                rows.append(sampler.draw(rng).rows.tolist())
                seconds.append(time.process_time() - began)
            out[f"{named.name[-2]}, {'any size' if size is None else f'k = {size}'}"] = {
                "seconds": seconds,
                "rows": rows,
            }
    return out


def against(other: str, rounds: int, sizes: list[int | None]) -> None:
    request = json.dumps({"sizes": sizes})
    found: dict[str, list[dict[str, Any]]] = {sys.executable: [], other: []}
    for _ in range(rounds):
        for python, results in found.items():
            run = subprocess.run([python, __file__, "--round", request], capture_output=True, text=True, check=True)
            results.append(json.loads(run.stdout))
    ours, theirs = found[sys.executable], found[other]
    for case in ours[0]:
        least = [float(np.min([r[case]["seconds"] for r in results], axis=0).mean()) for results in (ours, theirs)]
        same = ours[0][case]["rows"] == theirs[0][case]["rows"]
        print(
            f"{case}: {least[0] * 1e3:.2f} ms, {least[1] / least[0]:.2f} times as fast; draws {'equal' if same else 'DIFFER'}"
        )


def identical(n_samples: int, seconds: float) -> None:
    """Draw from every kernel of the tests in eigencoordinates, and with node matrices."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
    from kernels import AWKWARD

    kernels = [(named.name, named.kernel, 10) for named in from_files(print)]
    for case in AWKWARD:
        law = tilted_law(case.kernel.coordinates, 1.0).law if case.kernel.rank else np.ones(1)
        kernels.append((case.name, case.kernel, int(np.argmax(law))))
    for name, kernel, size in kernels:
        sampler = Exact.prepare(kernel, size=size)
        if size == 0 or sampler.route != "ring":
            continue
        key, began, drawn, different, proposals = stream_key(1), time.process_time(), 0, 0, 0.0
        while drawn < n_samples and time.process_time() - began < seconds:
            found = sampler.draw(stream(key, drawn))
            expected = sampler.nodes(size).draw(stream(key, drawn))
            different += not np.array_equal(np.sort(expected.rows), found.rows)
            proposals += found.info["proposals"]
            drawn += 1
        print(
            f"{name}, k = {size}: {different} of {drawn} samples differ ({proposals:.0f} proposals)",
            flush=True,
        )


def threads() -> None:
    for named in from_files(print):
        for size, n_samples in ((10, 1024), (50, 128)):  # seconds: threads take milliseconds to start
            sampler = Exact.prepare(named.kernel, size=size)
            sampler.sample(32, rng=0, n_jobs=2)
            seconds: dict[int, list[float]] = {1: [], 2: []}
            for i in range(5):
                for jobs, times in seconds.items():
                    began = time.perf_counter()
                    sampler.sample(n_samples, rng=i, n_jobs=jobs)
                    times.append(time.perf_counter() - began)
            print(f"{named.name}, k = {size}: two threads {min(seconds[1]) / min(seconds[2]):.2f} times as fast as one")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="PYTHON", help="an interpreter with another commit")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="*", help="sizes to time; all of them and any size by default")
    parser.add_argument("--identical", type=int, metavar="N", help="number of samples per kernel")
    parser.add_argument("--seconds", type=float, default=120, help="most CPU time per kernel of --identical")
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--round", help=argparse.SUPPRESS)
    given = parser.parse_args()
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        if given.round:
            print(json.dumps(one_round(json.loads(given.round)["sizes"])))
        if given.against:
            against(given.against, given.rounds, given.sizes or list(CASES))
        if given.identical:
            identical(given.identical, given.seconds)
        if given.threads:
            threads()


if __name__ == "__main__":
    main()
