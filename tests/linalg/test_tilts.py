"""The search for a tilt: expected sizes are met, on a grid and off it, whatever the start."""

from __future__ import annotations

import numpy as np
import pytest

from ndpp.linalg.tilts import solve_each, solve_tilt, tilt_of_coins, tilt_to_size


def coins(log_odds: np.ndarray, x: float) -> tuple[float, float]:
    p = 1 / (1 + np.exp(-(log_odds + x)))
    return float(p.sum()), float((p * (1 - p)).sum())


@pytest.mark.parametrize("start", [-60.0, 0.0, 45.0])
@pytest.mark.parametrize("target", [0.5, 3.0, 9.5])
def test_the_mean_is_met_from_any_start(start, target):
    log_odds = np.linspace(-20.0, 20.0, 10)
    x = solve_tilt(lambda x: coins(log_odds, x), target, start, within=1e-6)
    assert abs(coins(log_odds, x)[0] - target) <= 1e-6


def test_a_tolerance_in_standard_deviations_ends_the_search_earlier():
    log_odds, calls = np.zeros(1000), []

    def moments(x: float) -> tuple[float, float]:
        calls.append(x)
        return coins(log_odds, x)

    x = solve_tilt(moments, 600.0, deviations=0.5)
    assert x == calls[-1]
    mean, variance = coins(log_odds, x)
    assert 0.3 < abs(mean - 600) <= 0.5 * np.sqrt(variance)


def test_many_distributions_at_once_stop_each_by_itself():
    spreads, asked = np.array([0.0, 1.0, 30.0]), []

    def moments(x, which):
        asked.append(which)
        both = np.array([coins(np.linspace(-s, s, 8), at) for s, at in zip(spreads[which], x)])
        return both[:, 0], both[:, 1]

    found = solve_each(moments, 2.0, np.zeros(3))
    assert len(asked[-1]) < 3
    assert np.all(np.abs(moments(found, np.arange(3))[0] - 2.0) <= 0.3)


def test_steps_on_a_grid_stay_on_it_and_end_beside_the_root():
    unit, log_odds = 0.35, np.linspace(-9.0, 9.0, 12)

    def moments(x, which):
        both = np.array([coins(log_odds, at) for at in x])
        return both[:, 0], both[:, 1]

    found = solve_each(moments, 7.3, np.array([-40 * unit, 90 * unit]), within=0.0, unit=unit)
    on_grid = found / unit
    np.testing.assert_allclose(on_grid, np.round(on_grid), atol=1e-9)
    exact = solve_tilt(lambda x: coins(log_odds, x), 7.3, within=1e-9)
    assert np.all(np.abs(found - exact) <= unit)


def test_moments_that_are_no_numbers_end_the_search():
    assert solve_tilt(lambda x: (np.nan, np.nan), 2.0, 1.5) == 1.5


@pytest.mark.parametrize("target", [0.3, 1.0, 2.5])
def test_coins_of_any_spread(target):
    log_odds = np.array([-300.0, 0.0, 300.0])
    assert abs(coins(log_odds, tilt_of_coins(log_odds, target))[0] - target) <= 0.1


@pytest.mark.parametrize("share", [1e-6, 0.1, 0.5, 0.99, 1 - 1e-6])
def test_expected_sizes_of_eigenvalues_are_met(share: float):
    """Of many scales, of nonsymmetric kernels and of purely skew ones: Σ Re ρλ/(1 + ρλ) itself."""
    rng = np.random.default_rng(0)
    A, D = rng.standard_normal((12, 12)), rng.standard_normal((12, 12))
    for values in (
        10 ** rng.uniform(-12, 12, 20),
        np.linalg.eigvals(1e-6 * A @ A.T + D - D.T),
        np.linalg.eigvals(1e5 * (D - D.T)),
    ):
        target = share * len(values)
        found = np.exp(tilt_to_size(values, target))
        mean = (1 / (1 + 1 / (found * values))).real.sum()
        assert mean == pytest.approx(target, rel=1e-9, abs=1e-9 * (len(values) - target))
