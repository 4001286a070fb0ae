"""Time exact samples of symmetric kernels beside DPPy, in turns, on one core.

    python benchmarks/peers/symmetric.py -o benchmarks/results/symmetric.json

Both libraries draw sets of one size from the same kernel L = XXᵀ, X random. DPPy has its own environment and process, which waits while
this one draws. Times are CPU times per set, the medians of the rounds; the peer's is that of its fastest mode. One set with its
preparation is timed, too, from X on. The mean of log det L_S shows that both draw from the same distribution. With ``--limit 4``, sets
have exactly four of the first tenth of the items: DPPy draws sets until one does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
import venv
from pathlib import Path
from typing import Any, Self

import numpy as np

from ndpp import Limit, LowRankKernel
from ndpp._atomic import replacing
from ndpp_experiments.record import machine

HERE = Path(__file__).resolve().parent
PACKAGES = ("dppy==0.3.3",)
FIRST = 5
"""How often one set with its preparation is timed."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def environment(folder: Path, name: str, packages: tuple[str, ...]) -> Path:
    """Return the interpreter of a peer's environment, which is made if it is not there."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        venv.create(folder / name, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


class Peer:
    """A program of another library in a process of its own, which answers lines."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=os.environ | ONE_THREAD, stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> Self:
        return self

    def answer(self, line: str | None = None) -> str:
        """Send a line, if there is one, and return the next line of the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if line is not None:
            print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline()

    def __exit__(self, *_: object) -> None:
        with self.process:  # closes the pipes, and waits
            pass


def compare(
    python: Path,
    folder: Path,
    *,
    n: int,
    rank: int,
    size: int,
    rounds: int,
    sets: tuple[int, int],
    limit: int | None = None,
) -> dict[str, Any]:
    """Return medians and ratios of both libraries; ``sets`` are the numbers of sets per round, ours and theirs."""
    X = np.random.default_rng(0).standard_normal((n, rank)) / np.sqrt(rank)
    np.save(folder / "X.npy", X)
    some = n // 10
    limits = [] if limit is None else [Limit(range(some), limit, limit)]
    first = []
    for i in range(FIRST + 1):
        began = time.process_time()
        kernel = LowRankKernel(X, np.eye(rank))
        sampler = kernel.sampler(size=size, limits=limits)
        sampler.sample(1, rng=i)
        first.append(time.process_time() - began)
    sampler.sample(20, rng=0)
    command = [str(python), str(HERE / "dppy_samples.py"), str(folder / "X.npy"), str(size)]
    ours, theirs, n_kept, n_drawn = [], [], 0, 0
    values: tuple[list[float], list[float]] = [], []
    with Peer(command) as peer:
        firsts = {"ndpp": min(first[1:]), "dppy": float(peer.answer())}  # code was compiled in the first round
        for i in range(rounds):
            began = time.process_time()
            draws = sampler.sample(sets[0], rng=i)
            ours.append((time.process_time() - began) / sets[0])
            found = json.loads(peer.answer(str(sets[1])))
            theirs.append({mode: drawn["seconds"] for mode, drawn in found.items()})
            values[0].extend(kernel.log_det(items) for items in draws.baskets[: sets[1]])
            drawn = [np.array(items) for one in found.values() for items in one["sets"]]
            kept = [items for items in drawn if limit is None or (items < some).sum() == limit]
            n_kept, n_drawn = n_kept + len(kept), n_drawn + len(drawn)
            values[1].extend(kernel.log_det(items) for items in kept)
    share = max(n_kept, 1) / n_drawn
    modes = {mode: float(np.median([one[mode] for one in theirs])) / share for mode in theirs[0]}
    best, own = min(modes.values()), float(np.median(ours))
    means = [[float(np.mean(v)), float(np.std(v) / np.sqrt(len(v)))] if v else [] for v in values]
    return {
        "n": n, "rank": rank, "size": size, "limit": limit, "kept": share, "ndpp": own,
        "dppy": modes, "ratio": best / own, "with preparation": firsts,
        "rounds": [ours, theirs], "mean log det and its standard error": dict(zip(("ndpp", "dppy"), means)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", nargs="+", type=int, default=[2_000, 10_000, 100_000])
    parser.add_argument("--rank", type=int, default=100)
    parser.add_argument("--size", type=int, default=10)
    parser.add_argument("--limit", type=int, help="require exactly this many of the first tenth of the items")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path("build/peers"), help="kernels and the environment go there")
    parser.add_argument("-o", "--output", type=Path, default=Path("symmetric.json"))
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    python, records = environment(chosen.folder, "dppy", PACKAGES), []
    for n in chosen.items:
        sets = (200, max(2, 100_000 // n))
        record = compare(
            python,
            chosen.folder,
            n=n,
            rank=chosen.rank,
            size=chosen.size,
            rounds=chosen.rounds,
            sets=sets,
            limit=chosen.limit,
        )
        records.append(record)
        theirs = ", ".join(f"DPPy {mode} {1e3 * seconds:.3g} ms" for mode, seconds in record["dppy"].items())
        print(f"n = {n:,}: ndpp {1e3 * record['ndpp']:.3g} ms, {theirs}: {record['ratio']:.3g} times", flush=True)
        with replacing(chosen.output) as temporary:
            temporary.write_text(
                json.dumps({"machine": machine(), "records": records}, indent=1) + "\n", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
