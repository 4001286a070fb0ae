"""Item neighbours with BM25 weights and ALS, from the library implicit. Each basket is a user."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Scores, Split, choose, main
from implicit.als import AlternatingLeastSquares
from implicit.nearest_neighbours import BM25Recommender
from scipy import sparse


def bm25(train: sparse.csr_matrix, *, K: int, K1: float, B: float) -> Scores:
    model = BM25Recommender(K=K, K1=K1, B=B, num_threads=1)
    model.fit(train, show_progress=False)
    similarity = sparse.csr_matrix(model.similarity)
    ids, values = model.recommend(0, train[0], N=5, filter_already_liked_items=True)
    own = (train[0] @ similarity).toarray()[0]
    assert np.allclose(own[ids], values, rtol=1e-4), "the scores are not those that the library recommends by"
    return lambda rest: (rest @ similarity).toarray()


def als(train: sparse.csr_matrix, *, factors: int, regularization: float, alpha: float) -> Scores:
    model = AlternatingLeastSquares(
        factors=factors, regularization=regularization, alpha=alpha, iterations=15, num_threads=1, random_state=0,
        use_gpu=False,
    )  # fmt: skip
    model.fit(train, show_progress=False)

    def scores(rest: sparse.csr_matrix) -> np.ndarray:
        return np.asarray(model.recalculate_user(np.arange(rest.shape[0]), rest) @ model.item_factors.T)

    return scores


def peers(split: Split) -> list[dict[str, Any]]:
    neighbours = {
        "K": (20, 50, 100, 200, 500, 1000), "K1": (0.1, 0.3, 0.6, 1.2, 2.5, 5.0, 10.0, 20.0), "B": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    }  # fmt: skip
    factors = {
        "regularization": (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0), "alpha": (1.0, 3.0, 10.0, 30.0, 100.0),
        "factors": (16, 32, 64, 128, 256),
    }  # fmt: skip
    return [
        choose("BM25 neighbours", split, neighbours, {"K": 200, "K1": 1.2, "B": 0.4}, bm25),
        choose("ALS", split, factors, {"regularization": 10.0, "alpha": 10.0, "factors": 64}, als),
    ]


if __name__ == "__main__":
    main(peers)
