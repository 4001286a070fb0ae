"""Mixtures over families to test with, and their distributions by enumeration, from the formula with determinants over families."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import oracles
from kernels import BY_NAME
from mixtures import WEIGHTS, N
from ndpp import FamilyMixture


class Case(NamedTuple):
    """Arguments of a mixture over six items."""

    odds: list[list[float]]
    item_odds: list[list[float]]
    families: list[int]
    states: list[int]
    ties: str = "generic"

    def law(self, **options: Any) -> FamilyMixture:
        ties = BY_NAME[self.ties]
        X = ties.X[: max(self.families) + 1]
        weights = WEIGHTS[len(self.odds)]
        return FamilyMixture(self.odds, self.item_odds, self.families, self.states, X, ties.W, weights, **options)


FAMILIES, STATES = [0, 1, 0, 2, 1, 0], [0, 0, 1, 1, 2]
ITEM_ODDS = [[0.2, 3.0], [0.5, 2.0], [1.5, 0.1], [1.0, 0.0], [0.1, 4.0], [0.3, 0.3]]
ODDS = [[0.5, 0.02, 0.3, 0.1, 0.7], [0.1, 0.3, 0.01, 0.2, 0.1], [2.0, 0.05, 0.4, 0.0, 3.0]]
CASES = {
    "several": Case(ODDS, ITEM_ODDS, FAMILIES, STATES),
    "purely skew": Case(ODDS, ITEM_ODDS, FAMILIES, STATES, "purely skew"),
    "badly scaled rows": Case(ODDS, ITEM_ODDS, FAMILIES, STATES, "badly scaled rows"),
    "one component": Case(ODDS[:1], ITEM_ODDS, FAMILIES, STATES),
    "states in any order": Case([row[::-1] for row in ODDS], ITEM_ODDS, FAMILIES, STATES[::-1]),
    "one state": Case([[1.0, 1.0, 1.0]], ITEM_ODDS, FAMILIES, [0, 1, 2]),
    "one family": Case([[0.3, 0.1], [0.0, 0.4]], ITEM_ODDS, [0] * 6, [0, 0]),
    "families of one item": Case([[0.5, 1, 0.25, 0.1, 2, 0.3], [0.1, 0.1, 3, 1, 0, 0.4]], [[1.0]] * 6, [*range(6)], [*range(6)]),
    "zero odds": Case(
        [[0.5, 0.0, 0.3, 0.1, 0.7], [0.0, 0.0, 0.01, 0.2, 0.1]],
        [[0.0, 3.0], [0.5, 0.0], [1.5, 0.0], [1.0, 0.0], [0.1, 0.0], [0.3, 0.3]], FAMILIES, STATES,
    ),
    "in nearly every basket": Case([[500, 0.02, 0.3, 20, 3000], [500, 0.3, 0.01, 2, 1000]], ITEM_ODDS, FAMILIES, STATES),
}  # fmt: skip
every = pytest.mark.parametrize("name", CASES)


@cache
def law_of(name: str) -> FamilyMixture:
    return CASES[name].law()


@cache
def plain(name: str) -> tuple[list[oracles.Law], np.ndarray]:
    """P_c(S) ∝ det(I + X W Xᵀ)_A Π_g Σ_s a_cs Π_{i∈S_g} r_is, summed over all sets."""
    case = CASES[name]
    ties, columns = BY_NAME[case.ties], [case.states[:s].count(g) for s, g in enumerate(case.states)]
    X = ties.X[: max(case.families) + 1]
    G, laws = np.eye(len(X)) + X @ ties.W @ X.T, []
    for odds in case.odds:
        weights = {}
        for S in oracles.subsets(N):
            A = sorted({case.families[i] for i in S})
            weights[S] = float(np.linalg.det(G[np.ix_(A, A)]))
            for g in A:
                own = [i for i in S if case.families[i] == g]
                of = [s for s, family in enumerate(case.states) if family == g]
                weights[S] *= sum(odds[s] * np.prod([case.item_odds[i][columns[s]] for i in own]) for s in of)
        laws.append({S: w / sum(weights.values()) for S, w in weights.items() if w > 0})
    return laws, np.array(WEIGHTS[len(case.odds)])


def masses(name: str, keep=lambda S: True) -> np.ndarray:
    laws, weights = plain(name)
    return weights * [sum(p for S, p in law.items() if keep(S)) for law in laws]


def mixed(name: str, keep=lambda S: True) -> oracles.Law:
    """P(S) = Σ w_c P_c(S), given that S is one to ``keep``."""
    out: oracles.Law = {}
    total = masses(name, keep).sum()
    for law, weight in zip(*plain(name)):
        for S, p in law.items():
            if keep(S):
                out[S] = out.get(S, 0.0) + weight * p / total
    return out
