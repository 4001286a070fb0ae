"""Where the training of a mixture begins: classes of independent items found by EM, and their log-odds as a product of small matrices."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse

from ndpp._stop import look
from ndpp._types import FloatArray
from ndpp.baskets import Baskets
from ndpp.learning.run import OutOfTime
from ndpp.linalg.logs import log_row_sums, shares
from ndpp.metrics.models import independent_items

MAX_BASKETS = 100_000
"""Most baskets that EM looks at; training sees all."""
MAX_ROUNDS, SHRINK = 40, 30.0
"""Most rounds of EM, and the number of average baskets that are added to those of each class."""
LEAST_CLASSES, SPLIT = 25, 4
"""Up to ``SPLIT`` components begin as one class, so EM has more baskets for each, but not with fewer classes than ``LEAST_CLASSES``."""
JITTER, TIE_NOISE = 0.3, 0.3
"""Size of the noise that tells components of one class apart, and of that in which ties begin."""


class Shape(NamedTuple):
    """Number of components C, columns d of X, and columns r of the factors of the log-odds."""

    n_missions: int
    rank: int
    n_factors: int


class Classes(NamedTuple):
    """Log-odds (C, n) of the items in each class, and log shares (C,)."""

    log_odds: FloatArray
    log_shares: FloatArray

    def joint(self, matrix: sparse.csr_array) -> FloatArray:
        """Return log P(class, basket) for each row of a sparse matrix of baskets."""
        constants = self.log_shares - np.logaddexp(0, self.log_odds).sum(axis=1)
        joint: FloatArray = matrix @ self.log_odds.T.astype(np.float32)
        joint += constants.astype(np.float32)
        return joint


def find_classes(
    rng: np.random.Generator, baskets: Baskets, validation: Baskets, n_classes: int, max_rounds: int = MAX_ROUNDS
) -> Classes:
    """Return classes of independent items by EM, ended when the validation baskets become less probable, or out of time."""
    if len(baskets) > MAX_BASKETS:
        baskets = baskets[np.sort(rng.choice(len(baskets), MAX_BASKETS, replace=False))]
    matrix, judged, weights = baskets.to_csr().astype(np.float32), validation.to_csr(), baskets.weights
    average = independent_items(baskets, weights=weights).probabilities
    columns, members = matrix.T.tocsr(), _first_members(rng, matrix, average, n_classes)
    best, best_value, bad = None, -np.inf, 0
    for _ in range(max_rounds):
        if weights is not None:
            members *= np.asarray(weights, np.float32)[:, None]
        sizes = members.sum(axis=0, dtype=np.float64)
        p = ((columns @ members).T + SHRINK * average) / (sizes[:, None] + SHRINK)
        p = np.clip(p, 1e-12, 1 - 1e-9)  # memberships are in single precision
        found = Classes(np.log(p) - np.log1p(-p), np.log(sizes + 1) - np.log((sizes + 1).sum()))
        value = np.average(log_row_sums(found.joint(judged)), weights=validation.weights)
        bad = 0 if value > best_value else bad + 1
        if value > best_value:
            best, best_value = found, value
        try:
            look()
        except OutOfTime:
            break
        if bad == 2:
            break
        members = torch.softmax(torch.from_numpy(found.joint(matrix)), 1).numpy()  # in all threads
    assert best is not None
    return best


def _first_members(
    rng: np.random.Generator, matrix: sparse.csr_array, average: FloatArray, n_classes: int
) -> FloatArray:
    """Return soft memberships by likeness to a random basket for each class, shared rare items counting most."""
    scaled = matrix @ sparse.diags_array((1 / np.sqrt(average)).astype(np.float32))
    norms = np.sqrt(np.maximum(np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel(), 1e-9))
    seeds = rng.choice(len(norms), n_classes, replace=len(norms) < n_classes)
    likeness = (scaled @ scaled[seeds].T).toarray() / norms[:, None] / norms[seeds]
    return np.asarray(shares(10 * (likeness + 0.05 * rng.random(likeness.shape))), np.float32)


def _n_classes(shape: Shape) -> int:
    return min(shape.n_missions, max(LEAST_CLASSES, -(-shape.n_missions // SPLIT)))


def seconds_of_start(baskets: Baskets, validation: Baskets, shape: Shape) -> float:
    """Return about how long :func:`start` takes, from one round with few baskets and one with more."""
    rng, few, took = np.random.default_rng(0), validation[:50], []
    numbers = min(len(baskets), 500), min(len(baskets), 5000)
    for number in numbers:
        began = time.perf_counter()
        find_classes(rng, baskets[:number], few, _n_classes(shape), 1)
        took.append(time.perf_counter() - began)
    each = max(0.0, took[1] - took[0]) / max(1, numbers[1] - numbers[0])
    return MAX_ROUNDS / 2 * (took[0] + each * (min(len(baskets), MAX_BASKETS) - numbers[0]))


def start(rng: np.random.Generator, baskets: Baskets, validation: Baskets, shape: Shape) -> tuple[FloatArray, ...]:
    """Return b, u, X, z, a and log π to begin with: log-odds near those of the classes, and ties near none.

    The log-odds beyond the overall ones, each item weighted with the root of its count, are cut off to ``n_factors`` singular values.
    """
    n_classes = _n_classes(shape)
    classes = find_classes(rng, baskets, validation, n_classes)
    average = independent_items(baskets, weights=baskets.weights).probabilities
    bias, root = np.log(average) - np.log1p(-average), np.sqrt(average)
    left, values, right = np.linalg.svd((classes.log_odds - bias) * root, full_matrices=False)
    r = min(shape.n_factors, len(values))
    factors = 0.02 * rng.standard_normal((baskets.n_items, shape.n_factors))
    factors[:, :r] = right[:r].T * values[:r] / root[:, None] / np.sqrt(n_classes)
    own = np.arange(shape.n_missions) % n_classes  # the class of each component
    codes = rng.standard_normal((shape.n_missions, shape.n_factors))
    jitter = JITTER * (shape.n_missions > n_classes)
    codes[:, :r] = np.sqrt(n_classes) * left[own, :r] + jitter * codes[:, :r]
    X = TIE_NOISE * shape.rank**-0.25 * rng.standard_normal((baskets.n_items, shape.rank))
    shares = classes.log_shares[own] - np.log(np.bincount(own)[own])
    return bias, factors, X, codes, np.zeros(shape.n_missions), shares
