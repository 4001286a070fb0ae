"""Weights between pairs of items, all of them from ``ndpp.metrics``: EASE and its relatives, RP³β, and item neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Scores, Split, choose, main
from scipy import sparse

from ndpp import Baskets, metrics
from ndpp.metrics.regression import DROPOUTS, MAX_ITEMS, PENALTIES

PENALTY = {"penalty": PENALTIES}
POWER = PENALTY | {"size_power": (0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0, 1.5)}
FREQUENT = 10_000
NEIGHBOURS = {"neighbours": (20, 50, 100, 200, 500, 1000, 5000)}


def weighing(weights: Any) -> Scores:
    def scores(rest: sparse.csr_matrix) -> np.ndarray:
        found = rest.astype(np.float64) @ weights
        return np.asarray(found.toarray() if sparse.issparse(found) else found)

    return scores


def ease(train: sparse.csr_matrix, *, penalty: float, size_power: float = 0.0, dropout: float = 0.0) -> Scores:
    fitted = metrics.ease(Baskets.from_csr(train), penalty=penalty, size_power=size_power, dropout=dropout)
    return weighing(fitted.weights)


def frequent_ease(train: sparse.csr_matrix, *, penalty: float, size_power: float) -> Scores:
    """EASE of the most frequent items, where the matrix of all pairs is too large; the others score zero."""
    items = np.sort(np.argsort(-np.bincount(train.indices, minlength=train.shape[1]), kind="stable")[:FREQUENT])
    score = ease(sparse.csr_matrix(train[:, items]), penalty=penalty, size_power=size_power)

    def scores(rest: sparse.csr_matrix) -> np.ndarray:
        found = np.zeros(rest.shape)
        found[:, items] = score(rest[:, items])
        return found

    return scores


def nearest(weights: sparse.csr_array, count: int) -> sparse.csr_array:
    """Keep the largest weights into each item, so many of them."""
    columns = sparse.csc_array(weights)
    for begin, end in zip(columns.indptr[:-1], columns.indptr[1:]):
        if end - begin > count:
            least = np.partition(columns.data[begin:end], -count)[-count]
            columns.data[begin:end][columns.data[begin:end] < least] = 0.0
    columns.eliminate_zeros()
    return sparse.csr_array(columns)


def cosine(train: sparse.csr_matrix, *, shrinkage: float, neighbours: int) -> Scores:
    return weighing(nearest(metrics.item_item_cosine(Baskets.from_csr(train), shrinkage=shrinkage).weights, neighbours))


def rp3beta(train: sparse.csr_matrix, *, alpha: float, beta: float, neighbours: int) -> Scores:
    return weighing(nearest(metrics.rp3beta(Baskets.from_csr(train), alpha=alpha, beta=beta).weights, neighbours))


def peers(split: Split) -> list[dict[str, Any]]:
    shrunk = {"shrinkage": (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)} | NEIGHBOURS
    walked = {
        "alpha": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.2, 1.5),
        "beta": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7),
    } | NEIGHBOURS
    found = [
        choose("ItemKNN", split, shrunk, {"shrinkage": 10.0, "neighbours": 200}, cosine),
        choose("RP3beta", split, walked, {"alpha": 0.5, "beta": 0.4, "neighbours": 200}, rp3beta),
    ]
    if split.train.shape[1] <= MAX_ITEMS:
        found.append(choose("EASE", split, PENALTY, {"penalty": 100.0}, ease))
        start = found[-1]["settings"] | {"size_power": 0.25}
        found.append(choose("EASE by basket size", split, POWER, start, ease))
        start = found[-1]["settings"] | {"dropout": 0.2}
        found.append(choose("EDLAE by basket size", split, POWER | {"dropout": DROPOUTS}, start, ease))
    else:
        start = {"penalty": 30.0, "size_power": 0.25}
        found.append(choose("EASE of frequent items", split, POWER, start, frequent_ease))
    return found


if __name__ == "__main__":
    main(peers)
