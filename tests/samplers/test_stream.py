"""Draws that come a few at a time are those of one call."""

from __future__ import annotations

import pytest

from ndpp.datasets import make_kernel
from ndpp.samplers import Cholesky, Exact, Walk


@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize(
    "prepare",
    [
        Exact.prepare,
        Cholesky.prepare,
        lambda kernel: Walk.prepare(kernel, size=3, steps=2),
        lambda kernel: Walk.prepare(kernel, size=3, thin=2, chains=3),
    ],
    ids=["exact", "cholesky", "walk", "long chains"],
)
def test_a_stream_gives_the_draws_of_one_call(prepare, n_jobs):
    sampler = prepare(make_kernel(30, 6, rng=0))
    whole = sampler.sample(40, rng=5).baskets.to_lists()
    parts = [part.baskets.to_lists() for part in sampler.stream(33, rng=5, n_jobs=n_jobs, first=7)]
    assert [basket for part in parts for basket in part] == whole[7:]


def test_nothing_is_drawn_before_it_is_asked_for():
    stream = Exact.prepare(make_kernel(30, 6, rng=0)).stream(10**5, rng=0)
    assert len(next(stream)) == 16
