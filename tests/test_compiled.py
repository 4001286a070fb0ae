"""Samplers before their code is compiled: the same draws in Python, and nothing is compiled for a few of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndpp
from ndpp import _compiled
from ndpp.samplers import unions
from ndpp.samplers.exact import eigenchain, eigenclock, plan, rows


def kernels() -> list[Any]:
    """Return a symmetric kernel and two others, one of them with a background."""
    rng = np.random.default_rng(0)
    X, S = rng.normal(size=(40, 6)), rng.normal(size=(6, 6))
    W = S - S.T + 0.2 * np.eye(6)
    return [
        ndpp.LowRankKernel(X, np.eye(6)),
        ndpp.LowRankKernel(X, W),
        ndpp.LowRankKernel(X, W, background=np.full(40, 0.1)),
    ]


def drawn(asked: dict[str, Any]) -> list[list[int]]:
    return [items.tolist() for kernel in kernels() for items in kernel.sample(5, rng=1, **asked)]


@pytest.mark.parametrize("asked", [{}, {"given": [3, 7]}, {"size": 4}, {"size": 4, "given": [2]}], ids=str)
def test_draws_in_python_are_those_of_compiled_code(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    compiled = drawn(asked)
    called = []

    def in_python(function: Any, steps: float) -> Any:
        called.append(function.__name__)
        return _compiled._in_python(function)

    for module in (eigenchain, eigenclock, plan, rows, unions):
        monkeypatch.setattr(module, "soon", in_python)
    assert drawn(asked) == compiled
    assert {"_draw", "_run"} <= set(called)


def test_python_runs_no_more_than_it_can_in_a_second(monkeypatch: pytest.MonkeyPatch):
    @_compiled.njit()
    def double(x: float) -> float:
        return 2 * x

    monkeypatch.setattr(_compiled, "_is_cached", lambda function: False)
    assert _compiled.soon(double, 2 * _compiled.INTERPRETED_STEPS) is double
    n_in_python = 0
    while _compiled.soon(double, _compiled.INTERPRETED_STEPS / 10) is not double:
        n_in_python += 1
        assert n_in_python <= 10
    assert n_in_python > 5


CODE = """
import test_compiled
from ndpp.samplers.exact import eigenchain, eigenclock, spectral
test_compiled.drawn({}), test_compiled.drawn({"size": 4})
for function in (eigenchain._run, eigenchain._first, eigenclock._run, eigenclock.remaining, spectral._draw):
    assert not function.overloads, function
"""


def test_nothing_is_compiled_for_a_few_samples(tmp_path: Path):
    """In a new installation, whose compiled code is not on disk yet."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-c", CODE], env=environment, check=True)
