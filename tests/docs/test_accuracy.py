"""What docs/theory.md says about the errors of a whole sample: its tolerances, and the distributions that the code draws from.

All paths of a sample are followed, with the probabilities that the sampler computes in double precision; the distribution of the sets is
compared with exact minors.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import mpmath
import numpy as np
import pytest

import oracles
from kernels import Case, eighths, skew
from ndpp.linalg.size_law import resolvent
from ndpp.samplers import Exact
from ndpp.samplers.exact import eigenclock, eigenring
from ndpp.samplers.exact.eigenclock import EigenClock

THEORY = (Path(__file__).resolve().parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")
CLAIMED = 1e-11
"""The page's bound for these kernels."""
RNG = np.random.default_rng(8)
GENERIC = Case("generic", eighths(RNG, 7, 5), np.diag([0.5, 0.0, 0.25, 1.0, 0.0]) + skew(eighths(RNG, 5, 5)))
SKEW = Case("skew", eighths(RNG, 7, 4), skew(eighths(RNG, 4, 4)))
both = pytest.mark.parametrize("case", [GENERIC, SKEW], ids=str)


def test_the_tolerances_are_those_of_the_code():
    rows = re.findall(r"^\| `([\w.]+)` \| ([\d.e-]+) \|", THEORY, re.MULTILINE)
    assert len(rows) == 14
    for name, value in rows:
        module, constant = re.split(r"\.(?=[A-Z])", name)
        owner, *fields = constant.split(".")
        found = getattr(import_module(f"ndpp.{module}"), owner)
        for field in fields:
            found = found._field_defaults[field] if isinstance(found, type) else getattr(found, field)
        assert float(value) == found, name


def exact_sets(case: Case, size: int) -> dict[tuple[int, ...], float]:
    """P(S | |S| = size) from exact minors."""
    law = oracles.exact_law(case.X, case.W)
    weights = {S: law.minors[oracles.mask_of(S)] for S in oracles.subsets(case.n_items) if len(S) == size}
    total = sum(weights.values())
    return {S: weight / total for S, weight in weights.items()}


def distance(found: dict[tuple[int, ...], float], right: dict[tuple[int, ...], float]) -> float:
    return sum(abs(found.get(S, 0.0) - right.get(S, 0.0)) for S in found.keys() | right.keys()) / 2


def follow(start, forms, add, size: int) -> dict[tuple[int, ...], float]:
    """Return P(S) of a sampler that accepts items by ``forms(state)`` and goes on to ``add(state, item)``."""
    paths = [((), start, 1.0)]
    for step in range(size):
        paths, before = [], paths
        for items, state, chance in before:
            weights = np.maximum(forms(state), 0.0)
            for a in np.flatnonzero(weights > 1e-13):
                after = add(state, a) if step < size - 1 else None
                paths.append(((*items, int(a)), after, chance * weights[a] / weights.sum()))
    out: dict[tuple[int, ...], float] = {}
    for items, _, chance in paths:
        S = tuple(sorted(items))
        out[S] = out.get(S, 0.0) + chance
    return out


@both
@pytest.mark.parametrize("size", [2, 4])
def test_whole_samples_of_node_matrices(case: Case, size: int):
    sampler = Exact.prepare(case.kernel, size=size)
    nodes, Q = sampler.nodes(size), case.kernel.q_rows(np.arange(case.n_items))

    def add(state, a):
        return nodes.add(state._replace(owned=False), int(a))

    found = follow(nodes.start(), lambda state: np.einsum("ia,ab,ib->i", Q, state.inclusion.M, Q), add, size)
    assert distance(found, exact_sets(case, size)) < CLAIMED


@both
@pytest.mark.parametrize("size", [2, 4])
def test_whole_samples_of_rings(case: Case, size: int):
    sampler = Exact.prepare(case.kernel, size=size)
    chain = sampler.route_for(size)
    assert sampler.route == "ring"
    sides = chain.eigen.sides(np.arange(case.n_items))

    def forms(state):
        items, ring, weights = state
        return eigenring.forms_of(ring, weights, len(items), *sides)[0]

    def add(state, a):
        items, ring, weights = state
        ring, rows = eigenring.with_space(ring, len(items), size), np.append(items, a)
        _, u, x = eigenring.forms_of(ring, weights, len(items), *(side[[a]] for side in sides))
        left, right = (np.ascontiguousarray(side[rows]) for side in sides)
        ring, weights, good, _ = eigenring.advance(
            chain.eigen.values, chain.request, ring, left, right, u[0], x[0], len(rows)
        )
        assert good
        return rows, ring, weights

    ring = eigenring.with_space(chain.ring, 0, size)
    start = np.empty(0, np.int64), ring, eigenring.weigh(ring)
    assert distance(follow(start, forms, add, size), exact_sets(case, size)) < CLAIMED


@both
def test_the_integrand_of_clocks(case: Case):
    """Σ|q_aᵀ(Z̃ − Z)q_a| against Z in 30 digits, relative to the rate."""
    clock = Exact.prepare(case.kernel).route_for(None)
    assert isinstance(clock, EigenClock)
    Q, B = case.kernel.q_rows(np.arange(case.n_items)), case.kernel.coordinates.B
    every = clock.eigen.sides(np.arange(case.n_items))
    K = len(clock.eigen.values)
    for x in (0.0, 1.0, 20.0):
        with mpmath.workdps(30):
            s, core = mpmath.exp(-x), mpmath.matrix(B.tolist())
            R = s * core * (mpmath.eye(len(B)) + s * core) ** -1
        for Y in ((), (2,), (5, 0)):
            with mpmath.workdps(30):
                q = mpmath.matrix(Q[list(Y)].tolist()) if Y else None
                Z = R - R * q.T * (q * R * q.T) ** -1 * q * R if Y else R
                right = np.array([float((mpmath.matrix([q_a]) * Z * mpmath.matrix([q_a]).T)[0]) for q_a in Q.tolist()])
                rate = float(sum(Z[i, i] for i in range(len(B))))
            left_right = [np.ascontiguousarray(side[list(Y)]) for side in every]
            f, H, f_right, found = eigenclock.remaining(x, *clock.eigen[:2], *left_right, np.zeros(len(Y)))
            parts = [part[:K] + 1j * np.resize([*part[K:], *np.zeros(K)], K) for part in (f, *every[0], *every[1])]
            n = case.n_items
            forms = [(parts[1 + a] * parts[0] * parts[1 + n + a].conj()).sum().real for a in range(n)]
            forms = np.array(forms) - ((every[0] @ f_right.T) * (every[1] @ H.T)).sum(axis=1)
            # An item must still follow Y if det L_Y = 0, which it rarely does at a late time.
            L_Y = Q[list(Y)] @ B @ Q[list(Y)].T
            reached = min(1.0, len(B) * np.exp(-x)) if Y and abs(np.linalg.det(L_Y)) < 1e-12 else 1.0
            assert reached * abs(found - rate) <= CLAIMED * rate + 1e-20
            assert reached * np.abs(forms - right).sum() <= CLAIMED * rate + 1e-20  # over times up to 500


def test_wrong_probabilities_are_seen():
    """A negative control: a circle with too few nodes is far from the right distribution, and no further than its bound."""
    case, size = GENERIC, 2
    coords, Q = case.kernel.coordinates, case.kernel.q_rows(np.arange(case.n_items))
    t = 0.2 * np.exp(2j * np.pi * (np.arange(2) + 0.5) / 2)
    R, log_det = resolvent(coords, t)
    weights = np.exp(log_det - size * np.log(t))
    M = (weights[:, None, None] * R).sum(axis=0).real / weights.sum().real
    first = np.einsum("ia,ab,ib->i", Q, M, Q).clip(0)
    exact = exact_sets(case, size)
    right = np.array([sum(p for S, p in exact.items() if a in S) for a in range(case.n_items)]) / size
    assert np.abs(first / first.sum() - right).sum() / 2 > 100 * CLAIMED
