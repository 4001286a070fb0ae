"""Limits that every kind of law is drawn under, and what enumeration says of them."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import oracles
from law_table import BASES, Entry, Kind, Truth, entries
from ndpp import Limit

PRICES = np.array([2.5, 1.1, 3.2, 0.7, 1.9, 4.0])
EVEN, ODD = [0, 2, 4], [1, 3, 5]


class Case(NamedTuple):
    """What is asked for."""

    name: str
    limits: list[Limit]
    options: Any = MappingProxyType({})

    def __str__(self) -> str:
        return self.name


CASES = (
    Case("one count", [Limit(EVEN, 2, 2)]),
    Case("range", [Limit([0, 1, 2, 3], 2, 3)]),
    Case("several groups", [Limit([0, 2], 1, 1), Limit(ODD, least=2)]),
    Case("total", [Limit(PRICES, most=5.0)]),
    Case("count and total", [Limit(EVEN, least=1), Limit(dict(enumerate(PRICES)), 3.0, 6.0)]),
    Case("with size", [Limit(EVEN, 1, 1)], {"size": 3}),
    Case("with given", [Limit(EVEN, 2, 2), Limit(PRICES, most=9.0)], {"given": [2]}),
    Case("size, given and excluded", [Limit(PRICES, most=7.2)], {"size": 3, "given": [1], "exclude": [0]}),
    Case("nearly impossible", [Limit(range(6), least=5)]),
)


def truth_under(truth: Truth, case: Case) -> np.ndarray:
    """P(c, S) of sets that keep the limits and contain what is given, not normalised."""
    size, given, exclude = (
        case.options.get(name, default) for name, default in (("size", None), ("given", ()), ("exclude", ()))
    )
    chosen = truth.containing(given, size) & (np.arange(len(truth.sets)) & oracles.mask_of(exclude) == 0)
    for limit in case.limits:
        values = np.zeros(6)
        table = limit.values if isinstance(limit.values, dict) else dict.fromkeys(limit.values, 1.0)
        for item, value in enumerate(limit.values) if isinstance(limit.values, np.ndarray) else table.items():
            values[item] = value
        totals = np.array([values[list(S)].sum() for S in truth.sets])
        chosen &= (totals >= (limit.least or 0) - 1e-6) & (
            totals <= (np.inf if limit.most is None else limit.most) + 1e-6
        )
    return np.where(chosen, truth.joint, 0.0)


def law_under(truth: Truth, case: Case) -> dict[tuple[int, ...], float]:
    p = truth_under(truth, case).sum(axis=0)
    return {S: float(x) for S, x in zip(truth.sets, p / p.sum()) if x > 0}


@cache
def entry_of(kind: Kind) -> Entry:
    return entries(kind, BASES[0])[0]


def is_possible(kind: Kind, case: Case) -> bool:
    return bool(truth_under(entry_of(kind).truth, case).sum() > 1e-9)
