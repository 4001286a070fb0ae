"""Sums of numbers given by their logarithms, beside those of SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from ndpp.linalg import logs

ROWS = np.array([[0.0, -1.5, 2.0], [-800.0, -801.0, -np.inf], [900.0, 899.0, -np.inf], [-np.inf, 3.0, -np.inf]])


def test_sums_and_shares_of_rows_of_any_magnitude():
    assert logs.log_row_sums(ROWS) == pytest.approx(special.logsumexp(ROWS, axis=1), rel=1e-14)
    assert [logs.log_sum(row) for row in ROWS] == pytest.approx(logs.log_row_sums(ROWS), rel=1e-14)
    assert logs.shares(ROWS) == pytest.approx(special.softmax(ROWS, axis=1), rel=1e-12)
    assert logs.log_shares(ROWS) == pytest.approx(special.log_softmax(ROWS, axis=1), rel=1e-12)


def test_nothing_sums_to_nothing():
    nothing = np.full((2, 3), -np.inf)
    assert logs.log_row_sums(nothing).tolist() == [-np.inf, -np.inf]
    assert logs.log_sum(nothing[0]) == -np.inf


def test_odds_of_the_impossible_and_the_certain_are_infinite():
    p = np.array([0.0, 1e-300, 0.25, 1 - 1e-12, 1.0])
    assert logs.logit(p) == pytest.approx(special.logit(p), rel=1e-14)


def test_logarithms_near_one_are_as_exact_for_complex_numbers():
    z = np.array([1e-17, 1e-10 + 1e-9j, -2 + 0j, -0.5 + 1e-20j])
    assert logs.log1p(z) == pytest.approx(special.log1p(z), rel=1e-15)
    assert logs.log1p(z.real[:2]).tolist() == np.log1p(z.real[:2]).tolist()
