"""The clock: rates and items against enumeration for every set that has appeared, and the law of its sets."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import goodness
import oracles
from kernels import AWKWARD, BY_NAME, learned
from ndpp.errors import BudgetExceededError, InvalidInputError, PrecisionError
from ndpp.items import LeverageTable
from ndpp.linalg.scaling import quadratic_forms
from ndpp.samplers.clock import Clock


@pytest.mark.parametrize("case", AWKWARD, ids=str)
@pytest.mark.parametrize("s", [1.0, 1e-3])
def test_rates_and_items(case, s):
    """tr Z = s F'/F and q_aᵀZq_a = s F_{Y∪a}/F_Y with F_Y(s) = Σ_{S ⊇ Y} s^{|S∖Y|} det L_S, for every possible Y."""
    minors, n = oracles.minors(case.L), case.n_items
    masks = np.arange(1 << n)
    weights = minors * s ** np.bitwise_count(masks).astype(float)
    clock, Q = Clock.prepare(case.kernel), case.kernel.q_rows(np.arange(n))
    for Y in (Y for k in range(min(n, 4)) for Y in combinations(range(n), k)):
        above = np.where(masks & oracles.mask_of(Y) == oracles.mask_of(Y), weights, 0.0)
        if above.sum() < 1e-9 * weights.sum():  # the clock has such a Y once in a thousand million samples
            continue
        Z = clock._remaining(-np.log(s), np.array(Y, np.int64))
        inclusion = np.array([above[masks >> a & 1 == 1].sum() for a in range(n)]) / above.sum()
        inclusion[list(Y)] = 0.0
        np.testing.assert_allclose(quadratic_forms(Q, Z), inclusion, atol=1e-8, err_msg=f"Y = {Y}")
        np.testing.assert_allclose(np.trace(Z), inclusion.sum(), atol=1e-8, err_msg=f"Y = {Y}")


def test_rates_fall_as_the_clock_runs_down():
    for case in AWKWARD:
        clock = Clock.prepare(case.kernel)
        for Y in (np.empty(0, np.int64), np.argmax(case.kernel.inclusion_probabilities(), keepdims=True)):
            rates = [np.trace(clock._remaining(x, Y)) for x in np.linspace(0, 12, 30)]
            assert (np.diff(rates) < 1e-9).all(), case


DRAWS = 600
"""As many as the negative control needs."""


def test_law():
    case = BY_NAME["singular L_A"]
    draws = Clock.prepare(case.kernel).sample(DRAWS, rng=1)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L))


def test_law_check_rejects_a_clock_that_is_slow(monkeypatch):
    """Negative control: the clock begins late, at s = exp(−0.3)."""
    case, coming = BY_NAME["generic"], Clock._remaining
    monkeypatch.setattr(Clock, "_remaining", lambda self, x, rows: coming(self, x + 0.3, rows))
    draws = Clock.prepare(case.kernel).sample(DRAWS, rng=4)
    with pytest.raises(AssertionError, match="do not follow the law"):
        goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L))


def test_items_that_appear_late_are_drawn_as_fast():
    """Where few are still to come, rates are tiny; the index is told so, and needs r proposals, not r / rate."""
    kernel, seen = BY_NAME["generic"].kernel, []

    class Late(LeverageTable):
        def draw_counted(self, rng, M, *, bound=1.0):
            seen.append(bound / np.trace(M))
            return super().draw_counted(rng, M, bound=bound)

    table = LeverageTable.prepare(kernel)
    Clock.prepare(kernel, index=Late(**vars(table))).sample(50, rng=5)
    assert max(seen) <= 1 + 1e-12


@pytest.mark.data
def test_about_one_move_per_item_on_a_learned_kernel():
    draws = Clock.prepare(learned("B").kernel).sample(10, rng=3)
    assert draws.totals["moves"] < 2 * draws.baskets.sizes.sum() + 50


def test_budget_and_precision(monkeypatch):
    kernel = BY_NAME["generic"].kernel
    with pytest.raises(BudgetExceededError, match="clock") as caught:
        Clock.prepare(kernel, budget=1).sample(20, rng=0)
    assert caught.value.count == 1
    with pytest.raises(InvalidInputError, match="budget"):
        Clock.prepare(kernel, budget=0)
    rates = iter([1.0, 2.0])
    monkeypatch.setattr(Clock, "_remaining", lambda self, x, rows: next(rates) * np.eye(7))
    with pytest.raises(PrecisionError, match="rose"):
        Clock.prepare(kernel).draw(np.random.default_rng(0))
