"""Time spanning trees of square grids beside DPPy, in turns, on one core.

    python benchmarks/peers/trees.py -o benchmarks/results/trees.json

Both libraries draw uniform spanning trees by Wilson's algorithm, DPPy from a networkx graph and this one from its sparse adjacency matrix.
DPPy has its own environment and process, which waits while this one draws. Times are CPU times per tree, the medians of the rounds. One
tree with its preparation is timed, too, from the graph on. Weights, random here, are drawn by this library alone. The mean number of leaves
shows that both draw from the same distribution.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from symmetric import FIRST, HERE, PACKAGES, Peer, environment

from ndpp._atomic import replacing
from ndpp.samplers import SpanningTrees
from ndpp_experiments.record import machine


def grid(side: int) -> sparse.csr_array:
    """Return the adjacency matrix of a square grid."""
    path = sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(side, side))
    return sparse.csr_array(sparse.kron(path, sparse.eye_array(side)) + sparse.kron(sparse.eye_array(side), path))


def weighted(graph: sparse.csr_array) -> sparse.csr_array:
    """Return the graph with random weights."""
    half = sparse.triu(graph, format="csr")
    half.data = np.random.default_rng(0).exponential(size=half.nnz)
    return sparse.csr_array(half + half.T)


def timed(sampler: SpanningTrees, n_trees: int, seed: int) -> tuple[float, list[int]]:
    """Return the CPU time per tree, and how many leaves each tree has."""
    began = time.process_time()
    draws = sampler.sample(n_trees, rng=seed)
    seconds = (time.process_time() - began) / n_trees
    return seconds, [int((np.bincount(sampler.edges[tree].ravel()) == 1).sum()) for tree in draws.baskets]


def compare(python: Path, *, side: int, rounds: int, trees: tuple[int, int]) -> dict[str, Any]:
    """Return medians and their ratio; ``trees`` are the numbers of trees per round, ours and theirs."""
    graph, first = grid(side), []
    for i in range(FIRST + 1):
        began = time.process_time()
        sampler = SpanningTrees.prepare(graph)
        sampler.sample(1, rng=i)
        first.append(time.process_time() - began)
    uneven = SpanningTrees.prepare(weighted(graph))
    seconds: dict[str, list[float]] = {"ndpp": [], "ndpp, weighted": [], "dppy": []}
    leaves: dict[str, list[int]] = {"ndpp": [], "dppy": []}
    timed(sampler, 20, 0)
    with Peer([str(python), str(HERE / "dppy_trees.py"), str(side)]) as peer:
        firsts = {"ndpp": min(first[1:]), "dppy": float(peer.answer())}  # code was compiled in the first round
        for i in range(rounds):
            own, found = timed(sampler, trees[0], i), json.loads(peer.answer(str(trees[1])))
            seconds["ndpp"].append(own[0])
            seconds["ndpp, weighted"].append(timed(uneven, trees[0], i)[0])
            seconds["dppy"].append(found["seconds"])
            leaves["ndpp"].extend(own[1])
            leaves["dppy"].extend(found["leaves"])
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    means = {name: [float(np.mean(some)), float(np.std(some) / np.sqrt(len(some)))] for name, some in leaves.items()}
    return {
        "side": side, "nodes": side * side, "edges": len(sampler.edges), "seconds": medians,
        "ratio": medians["dppy"] / medians["ndpp"], "with preparation": firsts, "rounds": seconds,
        "mean leaves and its standard error": means,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", nargs="+", type=int, default=[10, 30, 100])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path("build/peers"), help="the environment goes there")
    parser.add_argument("-o", "--output", type=Path, default=Path("trees.json"))
    chosen = parser.parse_args()
    python, records = environment(chosen.folder, "dppy_trees", (*PACKAGES, "networkx==3.6.1")), []
    for side in chosen.sides:
        trees = (max(20, 10**5 // side**2), max(2, 3 * 10**3 // side**2))
        records.append(record := compare(python, side=side, rounds=chosen.rounds, trees=trees))
        own, theirs = (1e3 * record["seconds"][name] for name in ("ndpp", "dppy"))
        print(f"{side} × {side}: ndpp {own:.3g} ms, DPPy {theirs:.3g} ms: {record['ratio']:.3g} times", flush=True)
    with replacing(chosen.output) as temporary:
        temporary.write_text(json.dumps({"machine": machine(), "records": records}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
