"""AleaCarta of the library choice-learn: utilities of items given the mean embedding of the rest of the basket.

Trained with negative samples, one item of each basket left out in turn, without prices, seasons or users, which the data do not have.
After every epoch, the validation queries decide whether the parameters are kept.
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from choice_learn.basket_models import AleaCarta
from choice_learn.basket_models.data import Trip, TripDataset
from common import Scores, Split, main, ranks, reciprocal_rank
from scipy import sparse

EPOCHS, SECONDS = 20, float(os.environ.get("ALEACARTA_SECONDS", "200"))
"""The limits of one setting: whichever comes first, at the end of an epoch."""


class Settings(NamedTuple):
    """Numbers of latent factors and the step of the optimizer."""

    latent: int
    lr: float


SETTINGS = (Settings(16, 5e-3), Settings(64, 5e-3))


class Fitted(NamedTuple):
    """The best model of one setting."""

    settings: dict[str, Any]
    scores: Scores
    validation: float
    seconds: float


def scores_of(model: AleaCarta) -> Scores:
    """Return the utility of every item given a basket, as ``compute_batch_utility`` has it with one store."""
    gamma, popularity = model.gamma.numpy(), model.alpha.numpy() + model.gamma.numpy() @ model.theta.numpy()[0]

    def scores(rest: sparse.csr_matrix) -> np.ndarray:
        mean = (rest @ gamma) / np.maximum(rest.getnnz(axis=1), 1)[:, None]
        return np.asarray(popularity + mean @ gamma.T)

    return scores


def check(model: AleaCarta, rest: sparse.csr_matrix) -> None:
    """Raise unless the scores of one basket are what the library computes."""
    n, basket = rest.shape[1], rest[0].indices
    theirs = model.compute_batch_utility(
        item_batch=np.arange(n)[None, :], basket_batch=basket[None, :], store_batch=np.zeros(1, int),
        week_batch=np.zeros(1, int), price_batch=np.zeros((1, n)), available_item_batch=None, user_batch=None,
    )  # fmt: skip
    assert np.allclose(theirs.numpy()[0], scores_of(model)(rest[:1])[0], atol=1e-4), "scores differ from the library's"


def fit(split: Split, settings: Settings) -> Fitted:
    tf.random.set_seed(0)
    np.random.seed(0)  # noqa: NPY002 - the library draws from the global state
    n_items = split.train.shape[1]
    everything = np.ones((1, n_items), np.float32)
    trips = [
        Trip(purchases=row.indices, prices=np.zeros(n_items, np.float32), assortment=0)
        for row in split.train
        if row.nnz > 1
    ]
    model = AleaCarta(
        price_effects=False, latent_sizes={"preferences": settings.latent}, n_negative_samples=2, lr=settings.lr, epochs=1, batch_size=128
    )  # fmt: skip
    model.instantiate(n_items=n_items, n_stores=1)
    check(model, split.test.rest)
    began, best, curve = time.perf_counter(), scores_of(model), list[float]()
    for _ in range(EPOCHS):
        model.fit(TripDataset(trips, everything))
        curve.append(reciprocal_rank(scores_of(model), split.validation))
        print(
            f"  AleaCarta, {settings.latent}: epoch {len(curve)}, {time.perf_counter() - began:.0f} s, {curve[-1]:.4f}",
            flush=True,
        )
        if curve[-1] == max(curve):
            best = scores_of(model)
        if time.perf_counter() - began > SECONDS or len(curve) - 1 - int(np.argmax(curve)) >= 3:
            break
    return Fitted(settings._asdict() | {"epochs": len(curve)}, best, max(curve), time.perf_counter() - began)


def peers(split: Split) -> list[dict[str, Any]]:
    found = [fit(split, settings) for settings in SETTINGS]
    best = max(found, key=lambda one: one.validation)
    above, ties = ranks(best.scores, split.test)
    return [{
        "model": "AleaCarta", "settings": best.settings, "validation": best.validation,
        "tried": [[one.settings, one.validation] for one in found],
        "seconds": sum(one.seconds for one in found), "above": above.tolist(), "ties": ties.tolist(),
    }]  # fmt: skip


if __name__ == "__main__":
    main(peers)
