"""Matrices after a change of low rank, beside those that are inverted anew."""

from __future__ import annotations

import numpy as np
import pytest

from ndpp.linalg.updates import LowRankChange


@pytest.mark.parametrize("m", [0, 1, 3, 5])
def test_they_are_the_inverses_of_the_changed_ones(m: int):
    rng = np.random.default_rng(m)
    C, r = 9, 5
    before = np.eye(r) + rng.normal(size=(C, r, r)) / 4
    Q, D, q = rng.normal(size=(m, r)), rng.uniform(0, 1, (C, m)), rng.normal(size=(2, r))
    after = before + np.einsum("ma,cm,mb->cab", Q, D, Q)
    found, wanted = LowRankChange(np.linalg.inv(before), Q, D), np.linalg.inv(after)
    close = {"rtol": 1e-9, "atol": 1e-11}
    np.testing.assert_allclose(np.asarray(found), wanted, **close)
    np.testing.assert_allclose(found[[7, 0]], wanted[[7, 0]], **close)
    np.testing.assert_allclose(found[3:], wanted[3:], **close)
    np.testing.assert_allclose(found[2], wanted[2], **close)
    np.testing.assert_allclose(found.products(q), np.einsum("cab,kb->kca", wanted, q), **close)
    np.testing.assert_allclose(found.log_det, np.linalg.slogdet(after)[1] - np.linalg.slogdet(before)[1], **close)
    assert (len(found), found.shape) == (C, (C, r, r))
