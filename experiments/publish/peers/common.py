"""What every peer needs: a split to read, ranks to compute, results to write. Only numpy and scipy are imported."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

Scores = Callable[[sparse.csr_matrix], np.ndarray]
"""From baskets, one per row, to the scores of all items."""
CHUNK, LARGE = 4_000_000, 3000
SECONDS = float(os.environ.get("PEER_SECONDS", "inf"))
"""When the search for settings of one model ends, if it has not ended before."""


class Queries(NamedTuple):
    """Baskets without one item, that item, and the weight of each in means."""

    rest: sparse.csr_matrix
    held: np.ndarray
    weight: np.ndarray


class Split(NamedTuple):
    """Training baskets as a matrix of zeros and ones, and what to rank."""

    train: sparse.csr_matrix
    validation: Queries
    test: Queries


def matrix(baskets: list[list[int]], n_items: int) -> sparse.csr_matrix:
    indptr = np.concatenate([[0], np.cumsum([len(basket) for basket in baskets])])
    indices = np.array([item for basket in baskets for item in basket], np.int32)
    return sparse.csr_matrix((np.ones(len(indices), np.float32), indices, indptr), shape=(len(baskets), n_items))


def read_split(path: str | Path) -> Split:
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    parts = [
        Queries(matrix(part["rest"], data["n_items"]), np.array(part["held"]), np.array(part["weight"], float))
        for part in (data["validation"], data["test"])
    ]
    return Split(matrix(data["train"], data["n_items"]), *parts)


def ranks(scores: Scores, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
    """Return how many items score more than the held-out one, and how many others the same."""
    step = max(1, CHUNK // queries.rest.shape[1])
    found = []
    for i in range(0, len(queries.held), step):
        rest, held = queries.rest[i : i + step], queries.held[i : i + step]
        values = np.array(scores(rest), np.float64)
        own = values[np.arange(len(held)), held][:, None]
        values[rest.nonzero()] = -np.inf
        found.append([(values > own).sum(axis=1), (values == own).sum(axis=1) - 1])
    above, ties = np.concatenate(found, axis=1)
    return above, ties


def reciprocal_rank(scores: Scores, queries: Queries) -> float:
    """Return the weighted mean of 1 / rank, ties in the middle."""
    above, ties = ranks(scores, queries)
    return float(np.average(1 / (1 + above + ties / 2), weights=queries.weight))


def choose(
    model: str, split: Split, grid: dict[str, tuple[Any, ...]], start: dict[str, Any], fit: Callable[..., Scores]
) -> dict[str, Any]:
    """Change one setting at a time to one nearby, as long as the ranks of the validation queries improve; rank the test queries.

    Nearby is up to two steps away in the grid, or one in large catalogues, where a fit may take a minute. ``SECONDS`` end the search.
    """
    steps = (1, -1, 2, -2) if split.train.shape[1] <= LARGE else (1, -1)
    began, tried = time.perf_counter(), list[tuple[dict[str, Any], float]]()

    def value(settings: dict[str, Any]) -> float:
        known = [found for one, found in tried if one == settings]
        if not known:
            tried.append((settings, reciprocal_rank(fit(split.train, **settings), split.validation)))
            print(f"  {model} {settings}: {tried[-1][1]:.4f}, {time.perf_counter() - began:.0f} s", flush=True)
        return known[0] if known else tried[-1][1]

    def better(one: dict[str, Any]) -> bool:
        return time.perf_counter() - began < SECONDS and value(one) > value(best)

    here: dict[str, Any] | None = start
    while here is not None:
        best = here
        beside = [
            best | {name: choices[i]}
            for name, choices in grid.items()
            for i in (choices.index(best[name]) + step for step in steps)
            if 0 <= i < len(choices)
        ]
        here = next((one for one in beside if better(one)), None)
    best, reached = max(tried, key=lambda row: row[1])
    above, ties = ranks(fit(split.train, **best), split.test)
    return {
        "model": model, "settings": best, "validation": reached, "tried": tried, "seconds": time.perf_counter() - began,
        "above": above.tolist(), "ties": ties.tolist(),
    }  # fmt: skip


def main(peers: Callable[[Split], list[dict[str, Any]]]) -> None:
    """Read the split that the first argument names, and write the results to the second."""
    Path(sys.argv[2]).write_text(json.dumps(peers(read_split(sys.argv[1]))), encoding="utf-8")
