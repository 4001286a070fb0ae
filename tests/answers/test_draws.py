"""Draws for requests are those of the library, whichever way they are made."""

from __future__ import annotations

import time

import numpy as np
import pytest

import ndpp
from kernels import BY_NAME
from ndpp._stop import stopping
from ndpp.answers.draws import Drawer, Wanted
from ndpp.datasets import make_kernel
from ndpp.errors import ImpossibleSizeError, ZeroProbabilityError
from ndpp.samplers import Exact

NOTHING = np.empty(0, np.int64)


def wanted(given=(), size=None, exclude=(), candidates=None) -> Wanted:
    listed = None if candidates is None else np.array(candidates)
    return Wanted(np.array(given, np.int64), np.array(exclude, np.int64), listed, size)


@pytest.mark.parametrize(
    "ask",
    [{}, {"size": 5}, {"given": [3]},
     {"given": [7, 2]}, {"given": [7, 2], "size": 6}, {"given": [7, 2], "size": 2}, {"exclude": [1, 2], "size": 4}],
    ids=str,
)  # fmt: skip
def test_draws_are_those_of_the_library(ask):
    kernel = make_kernel(60, 8, rng=0)
    found = Drawer(kernel).draw(wanted(**ask), 12, 5)
    assert found == kernel.sample(12, **ask, rng=5).to_lists()


def test_requests_share_what_is_prepared(monkeypatch):
    kernel = make_kernel(60, 8, rng=0)
    drawer = Drawer(kernel)
    monkeypatch.delattr(Exact, "prepare")
    assert len(drawer.draw(wanted([3, 4], 6), 2, 0)) == 2
    with pytest.raises(AttributeError, match="prepare"):
        drawer.draw(wanted([3, 4], 6, exclude=[1]), 2, 0)


@pytest.mark.parametrize(
    "name", ["purely skew", "duplicate rows", "singular L_A", "badly scaled rows", "rank-deficient X", "symmetric"]
)
def test_awkward_kernels(name):
    kernel, compared = BY_NAME[name].kernel, 0
    drawer = Drawer(kernel)
    for given in ([0], [1], [0, 1], [2, 3]):
        for size in (None, 2, 3, 4):
            try:
                expected = kernel.sample(4, given=given, size=size, rng=1).to_lists()
            except (ZeroProbabilityError, ImpossibleSizeError) as error:
                with pytest.raises(type(error)):
                    drawer.draw(wanted(given, size), 4, 1)
                continue
            assert drawer.draw(wanted(given, size), 4, 1) == expected
            compared += 1
    assert compared


def test_a_mixture_draws_by_itself():
    parts = [make_kernel(20, 4, rng=i) for i in range(2)]
    mixture = ndpp.Mixture(parts, [0.3, 0.7])
    drawer = Drawer(mixture)
    drawer.warm(3)
    for ask in ({}, {"given": [3]}, {"given": [3], "size": 3, "exclude": [1]}):
        assert drawer.draw(wanted(**ask), 20, 2) == mixture.sample(20, **ask, rng=2).to_lists()
    only = drawer.draw(wanted([3], 3, candidates=[2, 5, 4]), 6, 2)
    assert all(set(items) <= {2, 3, 4, 5} for items in only)


def test_the_first_request_finds_everything_compiled():
    drawer = Drawer(make_kernel(60, 8, rng=0))
    drawer.warm(5)
    began = time.process_time()
    drawer.draw(wanted([3, 4], 6), 1, 0)
    assert time.process_time() - began < 1.0  # compiling takes ten times as long
    Drawer(BY_NAME["zero rows"].kernel).warm(0)  # an item that never occurs is no failure


def test_draws_stop_when_they_are_told():
    def stop() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError), stopping(stop):
        Drawer(make_kernel(20, 4, rng=0)).draw(wanted(size=2), 1, 0)
