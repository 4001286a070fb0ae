"""Mixtures to test with, and their distributions by enumeration."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

import oracles
from kernels import BY_NAME
from ndpp import Baskets, LowRankKernel, Mixture

TOLERANCE = 1e-10
N = 6
ODDS = {
    "several": [[0.5, 1, 0.25, 0.1, 2, 0.3], [0.1, 0.1, 3, 1, 0.2, 0.4], [1, 0.05, 0.05, 0.6, 0.6, 2]],
    "one mission": [[0.5, 1, 0.25, 0.1, 2, 0.3]],
    "equal missions": [[0.5, 1, 0.25, 0.1, 2, 0.3]] * 3,
    "disjoint items": [[0.5, 1, 0, 0, 0, 0], [0, 0, 3, 1, 0, 0], [0, 0, 0, 0, 0.6, 2]],
    "in nearly every basket": [[500, 1, 0.25, 2000, 0.2, 0.3], [500, 0.1, 300, 0, 0.2, 0.4]],
    "an empty mission": [[0.5, 1, 0.25, 0.1, 2, 0.3], [0, 0, 0, 0, 0, 0]],
}
WEIGHTS = {1: [1.0], 2: [0.75, 0.25], 3: [0.5, 0.125, 0.375]}
TIES = ["generic", "purely skew", "duplicate rows", "badly scaled rows"]
every = pytest.mark.parametrize(
    ("odds", "ties"), [*((odds, "generic") for odds in ODDS), *(("several", ties) for ties in TIES[1:])]
)


def parts(odds: str, ties: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    case = BY_NAME[ties]
    return np.array(ODDS[odds], float), case.X[:N], case.W, np.array(WEIGHTS[len(ODDS[odds])])


@cache
def tied(odds: str, ties: str) -> Mixture:
    values, X, W, weights = parts(odds, ties)
    return Mixture.tied(values, X, W, weights)


@cache
def general(odds: str, ties: str) -> Mixture:
    values, X, W, weights = parts(odds, ties)
    rows = (np.sqrt(one)[:, None] * X for one in values)
    return Mixture([LowRankKernel(x, W, background=one) for x, one in zip(rows, values)], weights)


def dense(odds: str, ties: str) -> tuple[list[np.ndarray], np.ndarray]:
    values, X, W, weights = parts(odds, ties)
    ones = np.eye(N) + X @ W @ X.T
    return [np.sqrt(np.outer(one, one)) * ones for one in values], weights


def enumerate_mixture(kernels: Sequence[np.ndarray], weights: np.ndarray, keep=lambda S: True) -> oracles.Law:
    """P(S) = Σ w_c P_c(S), given that S is one to ``keep``."""
    law: dict[tuple[int, ...], float] = {}
    for L, weight in zip(kernels, weights):
        for S, p in oracles.enumerate_law(L).items():
            if keep(S):
                law[S] = law.get(S, 0.0) + weight * p
    total = sum(law.values())
    return {S: p / total for S, p in law.items() if p > 0}


def enumerated(mixture: Mixture, size: int | None = None) -> oracles.Law:
    sets = [S for S in oracles.subsets(N) if size is None or len(S) == size]
    log_probs = mixture.log_probs(Baskets.from_lists(sets, n_items=N)) - mixture.log_normalizer(size)
    for i in range(0, len(sets), 5):
        assert mixture.log_prob(sets[i], size) == pytest.approx(log_probs[i], abs=1e-9)
    return {S: float(np.exp(value)) for S, value in zip(sets, log_probs)}


def assert_close(law: oracles.Law, expected: oracles.Law) -> None:
    for S in law.keys() | expected.keys():
        assert law.get(S, 0.0) == pytest.approx(expected.get(S, 0.0), abs=TOLERANCE), S


def inclusion(law: oracles.Law) -> np.ndarray:
    return np.array([sum(p for S, p in law.items() if a in S) for a in range(N)])
