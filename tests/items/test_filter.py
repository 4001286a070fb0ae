"""The filter in single precision decides every acceptance as double precision does."""

from __future__ import annotations

import numpy as np
import pytest

from ndpp.items import table as table_module


def psd(order: int, rng: np.random.Generator) -> np.ndarray:
    """A positive semidefinite matrix with largest eigenvalue one."""
    A = rng.standard_normal((order, order))
    return A @ A.T / np.linalg.norm(A, 2) ** 2


def test_single_precision_decides_as_double_does():
    """Coins as close to their chances as rounding of single precision, and closer; without the bound, some decisions would be wrong."""
    rng = np.random.default_rng(20)
    Q, M = rng.standard_normal((200, 40)) / 8, psd(40, rng)
    ceiling = np.einsum("ia,ia->i", Q, Q)
    chances = np.einsum("ia,ab,ib->i", Q, M, Q) / ceiling
    wrong = 0
    for distance in (1e-3, 1e-6, 1e-7, 1e-8, 1e-10):
        coins = chances + distance * rng.choice([-1, 1], 200)
        hits = np.flatnonzero(coins < chances)
        accepted, _, doubts = table_module.accept(Q, np.arange(200), M, coins, ceiling, 200, 1.0)
        np.testing.assert_array_equal(accepted, hits)
        assert doubts == 200 if distance < 1e-5 else doubts < 20
        unbounded = table_module.accept(Q, np.arange(200), M, coins, ceiling, 200, 0.0)[0]
        wrong += len(np.setxor1d(unbounded, hits))
    assert wrong > 50


@pytest.mark.parametrize("power", [-60, -20, 0, 20])
def test_single_precision_does_not_depend_on_the_scale_of_rows(power: int):
    """Rows whose squares are beyond the range of single precision are decided like others."""
    rng = np.random.default_rng(21)
    Q, M, coins = rng.standard_normal((90, 6)), psd(6, rng), rng.random(90)
    ceiling = np.einsum("ia,ia->i", Q, Q)
    expected = table_module.accept(Q, np.arange(90), M, coins, ceiling, 90, np.inf)[0]
    scaled, scale = Q * 10.0**power, 10.0 ** (2 * power)
    accepted, _, doubts = table_module.accept(scaled, np.arange(90), M, coins, ceiling * scale, 90, 1.0)
    np.testing.assert_array_equal(accepted, expected)
    assert doubts < 10
