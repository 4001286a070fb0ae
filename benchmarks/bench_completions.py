"""Time of completions by a learned mixture: the first after loading, a new basket each time, a thousand by the command.

    python benchmarks/bench_completions.py MODEL BASKETS.gz [--against SRC] [-o FILE.json]

The baskets, one per line as item ids, are begun ones: one to three items of each are given. CPU time with one BLAS thread. *Cold* is what
the first completion takes after the model was loaded, compiled code being there; *warm* are baskets that come after as many others. The
peak memory of the process is that of all of it. ``--against`` measures the package in another folder in turns with this one.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

GIVEN, SIZES, SEED = (1, 2, 3), (None, 8), 0


def begun(path: Path, n_given: int, count: int) -> list[list[int]]:
    """Return the first items, in random order, of ``count`` baskets with at least one item more."""
    rng = np.random.default_rng([SEED, n_given])
    with gzip.open(path, "rt") as file:
        baskets = [line.split() for line in file]
    long_enough = [basket for basket in baskets if len(basket) > n_given]
    chosen = rng.permutation(len(long_enough))[:count]
    return [[int(item) for item in rng.permutation(long_enough[i])[:n_given]] for i in chosen]


def measure(model: Path, baskets: Path, count: int, most: int) -> dict[str, Any]:
    """Return milliseconds of single completions, and seconds of the first."""
    import ndpp

    ndpp.load(model).sample(1, rng=0)  # compiles
    record: dict[str, Any] = {"model": model.stem, "baskets": count}
    for size in SIZES:
        law = ndpp.load(model)
        sets = {n: begun(baskets, n, 2 * count) for n in GIVEN}
        start = time.process_time()
        law.sample(1, given=sets[2][0], size=size, rng=0)
        name = "any" if size is None else str(size)
        record[f"cold_{name}_s"] = time.process_time() - start
        times: dict[int, list[float]] = {n: [] for n in GIVEN}
        end = time.process_time() + most
        for i in range(2 * count):
            for n in GIVEN:
                start = time.process_time()
                law.sample(1, given=sets[n][i % len(sets[n])], size=size, rng=i)
                times[n].append(time.process_time() - start)
            if time.process_time() > end:
                break
        for n in GIVEN:
            warm = 1e3 * np.array(times[n][len(times[n]) // 2 :])
            record[f"warm_{name}_given_{n}_ms"] = {
                "median": float(np.median(warm)),
                "p99": float(np.percentile(warm, 99)),
            }
    record["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return record


def command(model: Path, baskets: Path, count: int) -> dict[str, Any]:
    """Return CPU and wall seconds in which ``ndpp complete`` completes so many baskets to eight items."""
    from ndpp import load

    lists = [basket for n in GIVEN for basket in begun(baskets, n, -(-count // len(GIVEN)))][:count]
    with tempfile.TemporaryDirectory() as folder:
        path, labels = Path(folder) / "begun.csv", load(model).labels
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["basket", "item"])
            rows.writerows([i, labels[item]] for i, basket in enumerate(lists) for item in basket)
        words = ["complete", str(model), str(path), "--size", "8", "-o", str(Path(folder) / "out.csv")]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "ndpp.cli", *words], check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"command_baskets": count, "command_cpu_s": after.ru_utime - before.ru_utime, "command_wall_s": wall}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("baskets", type=Path)
    parser.add_argument("--count", type=int, default=300, help="baskets measured for each number of given items")
    parser.add_argument("--most", type=float, default=240.0, help="most CPU seconds for each size")
    parser.add_argument(
        "--command", type=int, default=1000, metavar="BASKETS", help="baskets that the command completes"
    )
    parser.add_argument("--against", metavar="SRC", help="folder of another version of the package")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    if chosen.one:
        record = measure(chosen.model, chosen.baskets, chosen.count, chosen.most)
        print(json.dumps(record | (command(chosen.model, chosen.baskets, chosen.command) if chosen.command else {})))
        return
    records = []
    for version, source in {"before": chosen.against, "now": None}.items():
        if version == "before" and source is None:
            continue
        words = [
            sys.executable,
            __file__,
            "--one",
            str(chosen.model),
            str(chosen.baskets),
            "--count",
            str(chosen.count),
        ]
        words += ["--command", str(chosen.command), "--most", str(chosen.most)]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment = os.environ | threads | ({"PYTHONPATH": source} if source else {})
        done = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        records.append({"version": version, **json.loads(done.stdout)})
        print(json.dumps(records[-1], indent=1), flush=True)
    if chosen.output:
        from ndpp_experiments.record import machine

        chosen.output.write_text(json.dumps({"machine": machine(), "runs": records}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
