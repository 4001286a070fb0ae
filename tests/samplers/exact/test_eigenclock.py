"""Samples of any size by a clock in eigencoordinates: which kernels have one, its algebra, and the sets that come out of it."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

import goodness
import oracles
from kernels import AWKWARD, Case, eighths, skew
from ndpp import LowRankKernel
from ndpp._validation import frozen
from ndpp.errors import PrecisionError
from ndpp.linalg.schur import condition_on
from ndpp.linalg.size_law import resolvent
from ndpp.rows.scaled import Multiplied
from ndpp.samplers import Exact
from ndpp.samplers.exact import eigenclock
from ndpp.samplers.exact.eigenclock import EigenClock
from ndpp.samplers.exact.routes import Unfinished

DRAWS = 1_000
RNG = np.random.default_rng(30)
GENERIC = Case("generic", eighths(RNG, 8, 4), np.eye(4) + skew(eighths(RNG, 4, 4)))
SKEW = Case("skew", eighths(RNG, 8, 4), skew(eighths(RNG, 4, 4)))
DEFECTIVE = Case("defective", np.eye(3), np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
both = pytest.mark.parametrize("case", [GENERIC, SKEW], ids=str)


def clock_of(case: Case, given=()) -> tuple[Exact, EigenClock]:
    sampler = Exact.prepare(case.kernel, given=given)
    assert sampler.route == "clock"
    return sampler, sampler.route_for(None)


def test_most_kernels_have_one():
    """The clock is the usual route for any size, so that the contract tests run on it. Of the awkward kernels, some need circles."""
    have = [Exact.prepare(case.kernel).route == "clock" for case in AWKWARD if case.kernel.rank]
    assert np.mean(have) > 0.7


@both
@pytest.mark.parametrize("given", [(), (2,), (5, 0)], ids=str)
def test_the_algebra(case, given):
    """Rates and quadratic forms are those of Z, computed as :class:`Clock` does."""
    sampler, clock = clock_of(case)
    kernel, rows = case.kernel, np.array(given, np.int64)
    left, right = clock.eigen.sides(rows)
    m, Q, every = len(rows), kernel.q_rows(np.arange(case.n_items)), clock.eigen.sides(np.arange(case.n_items))
    for x in (0.0, 0.7, 5.0):
        R = resolvent(kernel.coordinates, np.exp([-x]))[0][0]
        Z = condition_on(R, kernel.q_rows(rows))[0] if m else R
        f, H, f_right, rate = eigenclock.remaining(x, *clock.eigen[:2], left, right, np.zeros(len(left)))
        K = len(clock.eigen.values)
        bound = 1e-12 * (1 + np.linalg.cond(kernel.q_rows(rows) @ R @ kernel.q_rows(rows).T) if m else 1)
        assert abs(rate - np.trace(Z)) <= bound
        for a in range(case.n_items):
            forms = _form(f, K, every[0][a], every[1][a]) - (f_right @ every[0][a]) @ (H @ every[1][a])
            assert abs(forms - Q[a] @ Z @ Q[a]) <= bound
            if a not in given and Q[a] @ Z @ Q[a] > 1e-3:
                after = Z - np.outer(Z @ Q[a], Q[a] @ Z) / (Q[a] @ Z @ Q[a])
                found = eigenclock._rate_given(f, K, H, f_right, rate, every[0][a], every[1][a])
                assert abs(found - np.trace(after)) <= 1e3 * bound
    assert clock.suits(sampler.size_law)
    assert not clock.suits(sampler.size_law + 1e-5 * (np.arange(len(sampler.size_law)) == 1))


def _form(f, K, left, right):
    """l f r in complex numbers; real eigenvalues come last and have no imaginary part."""
    f, left, right = (part[:K] + 1j * np.resize([*part[K:], *np.zeros(K)], K) for part in (f, left, right))
    return (left * f * right.conj()).sum().real


@both
@pytest.mark.parametrize(("given", "exclude"), [((2,), ()), ((2, 1), (3,))], ids=str)
def test_law(case, given, exclude):
    sampler = Exact.prepare(case.kernel, given=given, exclude=exclude)
    assert sampler.route == "clock"
    draws = sampler.sample(DRAWS, rng=2).baskets
    goodness.assert_law(draws, oracles.enumerate_law(case.L, None, given=given, exclude=exclude))


@pytest.mark.parametrize("kind", ["array", "scaled", "memory map"])
def test_rows_that_are_not_kept(kind, monkeypatch, tmp_path):
    """Rows in single precision are read as those of a ring, in ``test_eigenchain``: to compile the clock for them takes seconds."""
    for case in (GENERIC, SKEW):
        kept = Exact.prepare(case.kernel).sample(DRAWS, rng=3).baskets
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules["ndpp.linalg.coordinates"], "DENSE_ENTRIES", 0)
            X = case.X
            if kind == "memory map":
                np.save(tmp_path / "X.npy", X)
                X = np.load(tmp_path / "X.npy", mmap_mode="r")
            kernel = LowRankKernel(Multiplied(X / 2, np.full(len(X), 2.0)) if kind == "scaled" else X, case.W)
            sampler = Exact.prepare(kernel)
            assert sampler.route == "clock"
            assert isinstance(sampler.route_for(None).eigen.source.rows, LowRankKernel) == (kind == "memory map")
            draws = sampler.sample(DRAWS, rng=3).baskets
        assert np.mean([a == b for a, b in zip(draws.to_lists(), kept.to_lists())]) > 0.999
        goodness.assert_law(draws, oracles.enumerate_law(case.L))


def drawn(clock: EigenClock, seed: int):
    rng = np.random.default_rng(seed)
    found = clock.draw(rng)
    return clock.finish(None, rng, found) if isinstance(found, Unfinished) else found


@pytest.mark.parametrize("broken", ["ties left out", "counted once"])
def test_wrong_clocks_are_rejected(broken):
    _, clock = clock_of(GENERIC)
    if broken == "counted once":
        eigen = clock.eigen._replace(multiplicity=np.ones_like(clock.eigen.multiplicity))
    else:  # the imaginary parts of f attract
        eigen = clock.eigen._replace(values=np.abs(clock.eigen.values).astype(complex))
    clock = replace(clock, eigen=eigen)
    with pytest.raises(
        (AssertionError, PrecisionError)
    ):  # the second by the clock that completes what a monitor refused
        goodness.assert_law(
            [np.sort(drawn(clock, i).rows) for i in range(DRAWS)],
            oracles.enumerate_law(GENERIC.L),
        )


def test_a_kernel_without_eigenvectors_needs_circles():
    sampler = Exact.prepare(DEFECTIVE.kernel)
    assert sampler.route != "clock"
    goodness.assert_law(sampler.sample(DRAWS, rng=4).baskets, oracles.enumerate_law(DEFECTIVE.L))


def test_given_items_that_disagree_need_circles(monkeypatch):
    monkeypatch.setattr(EigenClock, "suits", lambda *_: False)
    assert Exact.prepare(GENERIC.kernel).route != "clock"


def test_a_sample_that_fails_a_monitor_is_completed(monkeypatch):
    """As if the first move of every clock had failed: the rest is drawn by :class:`Clock`, and the law stays."""
    case = SKEW
    sampler, _ = clock_of(case)
    rate = float(sampler.size_law @ np.arange(len(sampler.size_law)))

    def failing(seed, *_):
        return sampler.given, 3, True, -np.log1p(-eigenclock.uniform(seed)) / rate, rate

    monkeypatch.setattr(eigenclock, "_run", failing)
    draws = sampler.sample(DRAWS, rng=5)
    assert (draws.info["proposals"] >= 3).all()
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L))


def test_a_rate_that_is_not_a_number_is_an_error(monkeypatch):
    _, clock = clock_of(GENERIC)
    monkeypatch.setattr(eigenclock, "_run", lambda *_: (np.array([1]), 1, True, 1.0, np.nan))
    with pytest.raises(PrecisionError, match="after 1 of them"):
        drawn(clock, 0)


def test_too_small_a_leverage_fails_the_monitor():
    sampler, clock = clock_of(GENERIC)
    wrong = replace(clock, index=replace(sampler.index, leverage=frozen(sampler.index.leverage / 1e6)))
    runs = [wrong.draw(np.random.default_rng(i)) for i in range(50)]
    unfinished = [run for run in runs if isinstance(run, Unfinished)]
    assert unfinished
    assert all(np.isfinite(run.moment).all() for run in unfinished)


def test_many_items():
    """More items than there is space for at first."""
    case = Case("many", np.eye(40) + 0.1, 50 * np.eye(40) + skew(np.triu(np.ones((40, 40)))))
    sampler = Exact.prepare(case.kernel)
    assert sampler.route == "clock"
    hits = np.zeros((1_000, 40))
    for hit, basket in zip(hits, sampler.sample(1_000, rng=6).baskets):
        hit[basket] = 1.0
    assert hits.sum(axis=1).max() > 32
    goodness.assert_mean(hits, case.kernel.inclusion_probabilities())
