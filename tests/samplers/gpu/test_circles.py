"""Re-centring: the rung of the ladder on which about as many items are expected as are missing."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[gpu]'")

import torch

from devices import drawn_by, on_devices
from kernels import BY_NAME, Case
from ndpp.linalg.schur import condition_on, row_basis
from ndpp.linalg.size_law import resolvent
from ndpp.samplers import Exact
from ndpp.samplers.exact.plan import RUNG_STEP
from ndpp.samplers.gpu import circles as circles_module
from ndpp.samplers.gpu.circles import Circles, moments
from ndpp.samplers.gpu.exact import ExactEngine


def conditional(case: Case, radius: float, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """R at a radius, an orthonormal basis (1, i, r) of some rows of Q, and Z given these rows."""
    coords = case.kernel.coordinates
    R, q = resolvent(coords, np.array([radius]))[0][0], case.kernel.q_rows(np.array(rows, np.int64))
    return torch.from_numpy(R), torch.from_numpy(row_basis(q)[0])[None], condition_on(R, q)[0]


def circles_of(case: Case, device: str) -> Circles:
    return drawn_by(ExactEngine, device, Exact.prepare(case.kernel, size=4)).engine.circles


@pytest.mark.parametrize("rows", [[], [1], [0, 3]])
@pytest.mark.parametrize("name", ["generic", "badly scaled rows"])
def test_moments_are_those_of_the_conditional_matrix(name: str, rows: list[int]):
    R, basis, Z = conditional(BY_NAME[name], 0.7, rows)
    mean, variance = moments(R, basis)
    np.testing.assert_allclose(mean, [np.trace(Z)], atol=1e-9)
    np.testing.assert_allclose(variance, [np.trace(Z) - np.trace(Z @ Z)], atol=1e-9)


@on_devices
@pytest.mark.parametrize("start", [-30, 0, 5, 40])
@pytest.mark.parametrize("givens", [[[]], [[1], [2], [6]], [[0, 3], [2, 5]]], ids=str)
def test_centring_many_samples_is_centring_each(givens: list[list[int]], start: int, device: str):
    """Each ends where about as many items are expected as are missing, and where it would have ended alone."""
    case = BY_NAME["generic"]
    circles = circles_of(case, device)
    q = torch.cat([conditional(case, 1.0, given)[1] for given in givens]).to(device)
    rungs, mean, variance = circles.centre(q, 2, start)
    assert (variance > 0).all()
    for i, given in enumerate(givens):
        alone = circles.centre(q[i : i + 1], 2, start)
        assert alone[0][0] == rungs[i]
        np.testing.assert_allclose(alone[1][0], mean[i], rtol=1e-12)
        here = abs(mean[i] - 2)
        for beside in (-2, 2):
            R, basis, _ = conditional(case, np.exp((rungs[i] + beside) * RUNG_STEP), given)
            assert here < abs(moments(R, basis)[0][0] - 2)


def test_centring_stops_where_the_moments_are_no_numbers(monkeypatch: pytest.MonkeyPatch):
    nan = torch.full((1,), np.nan)
    monkeypatch.setattr(circles_module, "moments", lambda R, basis: (nan, nan))
    case = BY_NAME["generic"]
    rungs, mean, variance = circles_of(case, "cpu").centre(conditional(case, 1.0, [1])[1], 2, 7)
    assert (rungs[0], mean[0], variance[0]) == (7, 1.0, 1.0)
