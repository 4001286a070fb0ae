"""Draws for requests are those of the library, whichever way they are made."""

from __future__ import annotations

from typing import Any

import pytest

import ndpp
from kernels import BY_NAME
from ndpp._stop import stopping
from ndpp.answers import Prepared, complete
from ndpp.datasets import make_kernel
from ndpp.errors import ImpossibleSizeError, ZeroProbabilityError
from ndpp.samplers import Exact


def draw(own: Prepared, n: int, seed: int, *, given: list[int] | None = None, **ask: Any) -> list[list[int]]:
    return [list(one.items) for one in complete(own, given or [], n=n, seed=seed, ids=True, **ask).baskets]


@pytest.mark.parametrize(
    "ask",
    [{}, {"size": 5}, {"given": [3]},
     {"given": [7, 2]}, {"given": [7, 2], "size": 6}, {"given": [7, 2], "size": 2}, {"exclude": [1, 2], "size": 4}],
    ids=str,
)  # fmt: skip
def test_draws_are_those_of_the_library(ask):
    kernel = make_kernel(60, 8, rng=0)
    found = draw(Prepared(kernel), 12, 5, **ask)
    assert found == kernel.sample(12, **ask, rng=5).to_lists()


def test_requests_share_what_is_prepared(monkeypatch):
    kernel = make_kernel(60, 8, rng=0)
    drawer = Prepared(kernel)
    draw(drawer, 1, 0)
    monkeypatch.delattr(Exact, "prepare")
    assert len(draw(drawer, 2, 0, given=[3, 4], size=6)) == 2
    with pytest.raises(AttributeError, match="prepare"):
        draw(drawer, 2, 0, given=[3, 4], size=6, exclude=[1])


@pytest.mark.parametrize(
    "name", ["purely skew", "duplicate rows", "singular L_A", "badly scaled rows", "rank-deficient X", "symmetric"]
)
def test_awkward_kernels(name):
    kernel, compared = BY_NAME[name].kernel, 0
    drawer = Prepared(kernel)
    for given in ([0], [1], [0, 1], [2, 3]):
        for size in (None, 2, 3, 4):
            try:
                expected = kernel.sample(4, given=given, size=size, rng=1).to_lists()
            except (ZeroProbabilityError, ImpossibleSizeError) as error:
                with pytest.raises(type(error)):
                    draw(drawer, 4, 1, given=given, size=size)
                continue
            assert draw(drawer, 4, 1, given=given, size=size) == expected
            compared += 1
    assert compared


def test_a_mixture_draws_by_itself():
    parts = [make_kernel(20, 4, rng=i) for i in range(2)]
    mixture = ndpp.Mixture(parts, [0.3, 0.7])
    drawer = Prepared(mixture)
    for ask in ({}, {"given": [3]}, {"given": [3], "size": 3, "exclude": [1]}):
        assert draw(drawer, 20, 2, **ask) == mixture.sample(20, **ask, rng=2).to_lists()
    only = draw(drawer, 6, 2, given=[3], size=3, candidates=[2, 5, 4])
    assert all(set(items) <= {2, 3, 4, 5} for items in only)


def test_draws_stop_when_they_are_told():
    def stop() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError), stopping(stop):
        draw(Prepared(make_kernel(20, 4, rng=0)), 1, 0, size=2)
