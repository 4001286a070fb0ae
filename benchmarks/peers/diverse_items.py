"""Choose k items of some embeddings with one library, and print {"seconds": the shortest CPU time of the repeats, "items": […]} for each k.

    python diverse_items.py pyversity FOLDER 10 50

The folder holds ``X.npy`` and ``scores.npy``, the latter with mean zero and variance one. Each method is a function that returns what is
timed: everything from the arrays to the items. Only numpy and the library of the method are imported.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ALPHA = 0.5
"""Exponent of the scores: that of diversity = 0.5 in ndpp and in pyversity."""
LEAST_SECONDS, MOST_REPEATS = 0.5, 20
Choose = Callable[[np.ndarray, np.ndarray, int], Any]


def plain_greedy(X: np.ndarray, scores: np.ndarray, k: int) -> list[int]:
    """The fast greedy algorithm of Chen et al. (NeurIPS 2018), as its authors state it, in plain NumPy."""
    X = X * (np.exp(ALPHA * scores) / np.linalg.norm(X, axis=1))[:, None]
    gains, C, chosen = np.einsum("ij,ij->i", X, X), np.zeros((k, len(X))), []
    for j in range(k):
        best = int(np.argmax(gains))
        chosen.append(best)
        C[j] = (X @ X[best] - C[:j].T @ C[:j, best]) / np.sqrt(gains[best])
        gains -= C[j] ** 2
        gains[best] = -np.inf
    return chosen


def ndpp_greedy() -> Choose:
    import ndpp

    return lambda X, scores, k: ndpp.diversify(X, scores, k).items


def ndpp_sample() -> Choose:
    import ndpp

    return lambda X, scores, k: ndpp.diversify(X, scores, k, method="sample", rng=0).items[0]


def pyversity() -> Choose:
    from pyversity import Strategy, diversify

    return lambda X, scores, k: diversify(X, scores, k, strategy=Strategy.DPP, diversity=0.5).indices


def dppy_sample() -> Choose:
    from dppy.finite_dpps import FiniteDPP

    def choose(X: np.ndarray, scores: np.ndarray, k: int) -> Any:
        rows = X * (np.exp(ALPHA * scores) / np.linalg.norm(X, axis=1))[:, None]
        dpp = FiniteDPP("likelihood", L_gram_factor=rows.T.astype(np.float64))
        return dpp.sample_exact_k_dpp(k, random_state=np.random.RandomState(0))

    return choose


def apricot() -> Choose:
    """Facility location, which has no scores and another objective."""
    from apricot import FacilityLocationSelection

    def choose(X: np.ndarray, scores: np.ndarray, k: int) -> Any:
        return FacilityLocationSelection(k, metric="cosine", optimizer="lazy", verbose=False).fit(X).ranking

    return choose


METHODS = {
    "NumPy": lambda: plain_greedy, "ndpp": ndpp_greedy, "pyversity": pyversity, "apricot": apricot,
    "ndpp, a sample": ndpp_sample, "DPPy, a sample": dppy_sample,
}  # fmt: skip


def main() -> None:
    method, folder = sys.argv[1], Path(sys.argv[2])
    choose, X, scores = METHODS[method](), np.load(folder / "X.npy"), np.load(folder / "scores.npy")
    choose(X[:100], scores[:100], 2)  # what is compiled at first use is not timed
    for k in map(int, sys.argv[3:]):
        times: list[float] = []
        while len(times) < 2 or (sum(times) < LEAST_SECONDS and len(times) < MOST_REPEATS):
            began = time.process_time()
            items = choose(X, scores, k)
            times.append(time.process_time() - began)
        print(json.dumps({"seconds": min(times), "items": [int(i) for i in items]}), flush=True)


if __name__ == "__main__":
    main()
