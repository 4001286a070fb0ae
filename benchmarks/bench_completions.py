"""Time of completions by a learned mixture: the first after loading, a new basket each time, a thousand by the command.

    python benchmarks/bench_completions.py MODEL BASKETS.gz [--against SRC] [-o FILE.json]
    python benchmarks/bench_completions.py MODEL BASKETS.gz --memory 10000 [-o FILE.json]
    python benchmarks/bench_completions.py MODEL BASKETS.gz --lists [--against SRC] [-o FILE.json]
    python benchmarks/bench_completions.py MODEL BASKETS.gz --everyday [-o FILE.json]
    python benchmarks/bench_completions.py --flat [-o FILE.json]

The baskets, one per line as item ids, are begun ones: one to three items of each are given. CPU time with one BLAS thread. *Cold* is what
the first completion takes after the model was loaded, compiled code being there; *warm* are baskets that come after as many others. The
peak memory of the process is that of all of it. ``--against`` measures the package in another folder in turns with this one. The command
completes with a file that ``ndpp prepare`` has written.
``--memory`` completes this many different baskets, and reports by how much the process and its cached components have grown.
``--lists`` measures ``recommend`` in all rankings: the first from the file and from a prepared one, single baskets, and in bulk;
and ``inclusion_probabilities(given=)``. It counts the lists that differ from those of the full sum.
``--everyday`` measures what a user meets first: samples, completions by a new server, its start, and reasons in bulk.
``--flat`` completes baskets of synthetic mixtures of one rank over 10⁴, 10⁵ and 10⁶ items.
``-o`` writes a part of a file, and keeps the others: ``completions``, ``lists``, ``memory`` or ``everyday`` of the model, or ``flat``.
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
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ndpp_experiments.record import write_part

GIVEN, SIZES, SEED = (1, 2, 3), (None, 8), 0
FLAT_MEMORY = 2**33
"""Bytes for 20 components of 10⁶ items; with less, components are prepared again and again."""


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


def lists(model: Path, baskets: Path, count: int) -> dict[str, Any]:
    """Return CPU milliseconds of lists of ten, and how many of them are not those of the scores of all items."""
    import ndpp
    from ndpp.inference.ranking import Rule

    def timed(ask: Callable[..., Any], *asked: Any, **how: Any) -> float:
        start = time.process_time()
        ask(*asked, **how)
        return 1e3 * (time.process_time() - start)

    def full(basket: list[int]) -> Any:
        scores = law.inclusion_probabilities(given=basket)
        scores[basket] = 0.0
        return scores

    law, sets = ndpp.load(model), {n: begun(baskets, n, count) for n in GIVEN}
    record: dict[str, Any] = {"model": model.stem, "baskets": count, "first_ms": timed(ndpp.recommend, law, sets[2][0])}
    with tempfile.TemporaryDirectory() as folder:
        ndpp.save(law.prepared(), Path(folder) / "prepared.safetensors")
        prepared = ndpp.load(Path(folder) / "prepared.safetensors")
        record["first_prepared_ms"] = timed(ndpp.recommend, prepared, sets[2][0])
    for ranking in ndpp.Ranking:
        for n, chosen in sets.items():
            each = [timed(ndpp.recommend, law, basket, ranking=ranking) for basket in chosen]
            record[f"{ranking}_given_{n}_ms"] = float(np.median(each))
        together = ndpp.Baskets.from_lists(
            [basket for chosen in sets.values() for basket in chosen], n_items=law.n_items
        )
        record[f"{ranking}_bulk_ms"] = timed(ndpp.recommend_many, law, together, ranking=ranking) / len(together)
    few = sets[2][:20]
    record["inclusions_given_2_ms"] = float(np.median([timed(law.inclusion_probabilities, given=one) for one in few]))
    rules = [Rule.of(law, ranking=ranking) for ranking in ndpp.Ranking if not ranking.is_whole]
    pairs = [(rule, np.array(one), full(one)) for one in [*sets[1], *sets[2], *sets[3]] for rule in rules]
    record["lists"] = len(pairs)
    record["differ"] = sum(
        ndpp.recommend(law, one, ranking=rule.ranking).items.tolist() != rule.best(scores, one).items.tolist()
        for rule, one, scores in pairs
    )
    return record


def grown(model: Path, baskets: Path, count: int) -> Iterator[dict[str, Any]]:
    """Yield the megabytes by which the process has grown, and those that are kept, while different baskets are completed to eight."""
    import ndpp

    law = ndpp.load(model)
    lists = {tuple(sorted(basket)) for n in GIVEN for basket in begun(baskets, n, count)}
    chosen = [list(basket) for basket in sorted(lists)[:: max(1, len(lists) // count)]][:count]
    np.random.default_rng(SEED).shuffle(chosen)
    law.sample(1, rng=0)
    start, kept, cpu = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0, time.process_time()
    for i, basket in enumerate(chosen):
        law.sample(1, given=basket, size=8, rng=i)
        kept = max(kept, law.memory.n_bytes)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield {
        "model": model.stem,
        "different_baskets": len(chosen),
        "bound_mb": law._memory / 2**20,
        "kept_mb": kept / 2**20,
        "grown_mb": (after - start) / 1024,
        "mean_ms": 1e3 * (time.process_time() - cpu) / len(chosen),
    }


def flat(n: int, *, rank: int = 64, n_components: int = 20, count: int = 200) -> dict[str, Any]:
    """Return milliseconds of completions by a synthetic mixture with skew ties over ``n`` items: 10 to 30 items in a set."""
    import ndpp

    rng, half = np.random.default_rng(SEED), rank // 2
    X = rng.standard_normal((n, rank)).astype(np.float32) / np.sqrt(rank)
    W = np.zeros((rank, rank))
    W[np.arange(half), np.arange(half) + half] = np.linspace(2.0, 0.2, half)
    popularity = (1 + np.arange(n)) ** -0.8
    odds = rng.gamma(0.3, size=(n_components, n)) * popularity
    odds *= np.linspace(10, 30, n_components)[:, None] / odds.sum(axis=1, keepdims=True)
    law = ndpp.Mixture.tied(odds, X, W - W.T, np.full(n_components, 1 / n_components))
    given = [rng.choice(n, 2, replace=False, p=popularity / popularity.sum()) for _ in range(2 * count)]
    record: dict[str, Any] = {"n_items": n, "rank": rank, "components": n_components}
    for size in SIZES:
        times = []
        for i, basket in enumerate(given):
            start = time.process_time()
            law.sample(1, given=basket, size=size, rng=i, memory=FLAT_MEMORY)
            times.append(1e3 * (time.process_time() - start))
        name = "any" if size is None else str(size)
        record[f"first_{name}_s"], record[f"warm_{name}_ms"] = times[0] / 1e3, float(np.median(times[count:]))
    return record


def command(model: Path, baskets: Path, count: int) -> dict[str, Any]:
    """Return CPU and wall seconds that ``ndpp complete`` takes to complete this many baskets to eight items."""
    from ndpp import load, save

    lists = [basket for n in GIVEN for basket in begun(baskets, n, -(-count // len(GIVEN)))][:count]
    with tempfile.TemporaryDirectory() as folder:
        prepared, law = Path(folder) / "prepared.safetensors", load(model)
        save(law.prepared(), prepared)
        cpu, wall = run("complete", prepared, law.labels, lists, "--size", "8")
    return {"command_baskets": count, "command_cpu_s": cpu, "command_wall_s": wall}


def run(name: str, model: Path, labels: Any, lists: list[list[int]], *options: str) -> tuple[float, float]:
    """Return CPU and wall seconds of a command that answers for all these baskets."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "begun.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["basket", "item"])
            rows.writerows([i, labels[item]] for i, basket in enumerate(lists) for item in basket)
        words = [name, str(model), str(path), *options, "-o", str(Path(folder) / "out.csv")]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "ndpp.cli", *words], check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime, wall


def everyday(model: Path, baskets: Path, count: int) -> Iterator[dict[str, Any]]:
    """Yield seconds of what a user meets first, more each time: CPU seconds here, and those of the wall clock of a server."""
    import ndpp

    def timed(**asked: Any) -> float:
        start = time.process_time()
        law.sample(**asked)
        return time.process_time() - start

    ndpp.load(model).sample(1, rng=0)  # compiles
    law, lists = ndpp.load(model), begun(baskets, 1, count)
    record: dict[str, Any] = {"model": model.stem}
    record["sample_to_8_s"] = [timed(n_samples=1, given=one, size=8, rng=0) for one in lists]
    law = ndpp.load(model)
    record["sample_100_s"] = [timed(n_samples=100, rng=seed) for seed in range(3)]
    yield record
    record |= served(model, lists)
    yield record
    many = [basket for n in GIVEN for basket in begun(baskets, n, count)]
    record |= {"recommend_baskets": len(many), "recommend_s": run("recommend", model, law.labels, many)[0]}
    record["recommend_why_s"] = run("recommend", model, law.labels, many, "--why")[0]
    yield record


def served(model: Path, lists: list[list[int]]) -> dict[str, Any]:
    """Return seconds of a new server: until it listens and is ready, and of completions to eight items and of any size."""
    start, record = time.perf_counter(), dict[str, Any]()

    def ask(path: str, **asked: Any) -> tuple[float, int]:
        began = time.perf_counter()
        data = json.dumps(asked).encode() if asked else None
        request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
                status = answer.status
        except urllib.error.HTTPError as error:
            status = error.code
        return time.perf_counter() - began, status

    words = [sys.executable, "-m", "ndpp.cli", "serve", str(model), "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = json.loads(server.stderr.readline())["url"]
            subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)  # it ends when the log does
            record["listens_s"], record["health_s"] = time.perf_counter() - start, ask("health")[0]
            while ask("ready")[1] != 200:
                time.sleep(0.05)
            record["ready_s"] = time.perf_counter() - start
            for name, size in (("api_to_8_s", {"size": 8}), ("api_any_s", {})):
                found = [ask("api/complete", basket=one, **size) for one in lists]
                record[name] = [seconds for seconds, _ in found]
                record[name.replace("_s", "_refused")] = sum(status != 200 for _, status in found)
        finally:
            server.terminate()
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("baskets", type=Path, nargs="?")
    parser.add_argument(
        "--memory", type=int, default=0, metavar="BASKETS", help="measure the memory of this many baskets"
    )
    parser.add_argument("--lists", action="store_true", help="measure recommendations")
    parser.add_argument("--everyday", action="store_true", help="measure what a user meets first")
    parser.add_argument("--flat", action="store_true", help="measure synthetic mixtures of 10⁴ to 10⁶ items")
    parser.add_argument("--count", type=int, default=300, help="baskets measured for each number of given items")
    parser.add_argument("--most", type=float, default=240.0, help="most CPU seconds for each size")
    parser.add_argument(
        "--command", type=int, default=1000, metavar="BASKETS", help="baskets that the command completes"
    )
    parser.add_argument("--against", metavar="SRC", help="folder of another version of the package")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    if chosen.flat:
        runs = list[dict[str, Any]]()
        for n in (10**4, 10**5, 10**6):
            runs.append(flat(n))
            print(json.dumps(runs[-1]), flush=True)
            write_part(chosen.output, ["flat"], {"runs": runs})
        return
    if chosen.memory or chosen.everyday:
        part, measured = ("everyday", everyday) if chosen.everyday else ("memory", grown)
        for one in measured(chosen.model, chosen.baskets, chosen.memory or chosen.count):
            write_part(chosen.output, [part, chosen.model.stem], one)
        print(json.dumps(one, indent=1))
        return
    if chosen.one and chosen.lists:
        print(json.dumps(lists(chosen.model, chosen.baskets, chosen.count)))
        return
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
        words += ["--command", str(chosen.command), "--most", str(chosen.most), *["--lists"] * chosen.lists]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment = os.environ | threads | ({"PYTHONPATH": source} if source else {})
        done = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        records.append({"version": version, **json.loads(done.stdout)})
        print(json.dumps(records[-1], indent=1), flush=True)
    write_part(chosen.output, ["lists" if chosen.lists else "completions", chosen.model.stem], {"runs": records})


if __name__ == "__main__":
    main()
