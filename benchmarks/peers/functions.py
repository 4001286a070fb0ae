"""Time exact samples of a Gaussian function on points beside DPPy's mode "alpha", in turns, on one core.

    python benchmarks/peers/functions.py -o benchmarks/results/functions.json

Neither library forms the matrix of all points. Times are CPU times: of the first set from nothing, the least of the rounds, and of each
further set, their median. DPPy has its own environment and process, which waits while this one draws; what takes it longer than
``--limit`` seconds is left out.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from symmetric import HERE, PACKAGES, Peer, environment

from ndpp._atomic import replacing
from ndpp.samplers import FromFunction
from ndpp_experiments.record import machine

CASES = ((2, 10), (2, 50), (2, None), (10, 10))
"""Dimensions of normal points, and sizes."""
FURTHER = 20
"""Further sets per round, of 10 items; otherwise a tenth of that."""


def ours(points: Any, gamma: float, size: int | None, count: int, seed: int) -> tuple[float, float]:
    """Return the CPU times of the first set and of each further one."""
    began = time.process_time()
    sampler = FromFunction.prepare(partial(rbf_kernel, gamma=gamma), points, size=size)
    sampler.sample(1, rng=seed)
    first = time.process_time() - began
    began = time.process_time()
    sampler.sample(count, rng=seed, first=1)
    return first, (time.process_time() - began) / count


def compare(
    python: Path, folder: Path, *, n: int, dim: int, size: int | None, rounds: int, limit: float
) -> dict[str, Any]:
    """Return the times of both libraries."""
    points, gamma = np.random.default_rng(0).standard_normal((n, dim)), 1 / dim
    np.save(folder / "points.npy", points)
    count = FURTHER if size == 10 else FURTHER // 10
    ours(points[:100], gamma, 3, 3, 0)  # code is compiled
    own, theirs, problem = [], [], None
    with Peer(
        [str(python), str(HERE / "dppy_functions.py"), str(folder / "points.npy"), str(gamma), str(limit)]
    ) as peer:
        for i in range(rounds):
            own.append(ours(points, gamma, size, count, i))
            if problem is None:
                found = json.loads(peer.answer(f"{size or 0} {count}"))
                if isinstance(found, list):
                    theirs.append(found)
                else:
                    problem = found or f"more than {limit:g} s"
    first, further = float(np.min(own, axis=0)[0]), float(np.median(own, axis=0)[1])
    record = {"n": n, "dim": dim, "size": size, "ndpp": [first, further], "rounds": [own, theirs], "problem": problem}
    if theirs:
        record["dppy"] = [float(np.min(theirs, axis=0)[0]), float(np.median(theirs, axis=0)[1])]
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds for the sets of a round, for the peer")
    parser.add_argument("--folder", type=Path, default=Path("build/peers"), help="points and the environment go there")
    parser.add_argument("-o", "--output", type=Path, default=Path("functions.json"))
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    python, records = environment(chosen.folder, "dppy", PACKAGES), []
    for dim, size in CASES:
        record = compare(
            python, chosen.folder, n=chosen.points, dim=dim, size=size, rounds=chosen.rounds, limit=chosen.limit
        )
        records.append(record)
        print({name: record.get(name) for name in ("dim", "size", "ndpp", "dppy", "problem")}, flush=True)
        with replacing(chosen.output) as temporary:
            text = json.dumps({"machine": machine(), "records": records}, indent=1)
            temporary.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
