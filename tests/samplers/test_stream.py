"""Draws that come a few at a time are those of one call."""

from __future__ import annotations

import sys

import joblib
import pytest
import threadpoolctl

from ndpp.datasets import make_kernel
from ndpp.errors import InvalidInputError
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


def test_streams_that_overlap_give_blas_its_threads_back():
    """Each holds BLAS to one thread; the last one to end restores the number, whichever came first."""
    sampler = Exact.prepare(make_kernel(30, 6, rng=0))
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        first, second = sampler.stream(40, rng=0), sampler.stream(40, rng=0)
        next(first), next(second)
        assert blas_threads() == [1] * len(before)
        first.close()
        assert blas_threads() == [1] * len(before)
        second.close()
        assert blas_threads() == before


def test_blas_libraries_are_looked_for_again_only_once_modules_were_imported(monkeypatch):
    """Reading the list of loaded libraries would take longer than many a draw."""
    sampler, find, found = Exact.prepare(make_kernel(30, 6, rng=0)), threadpoolctl.ThreadpoolController, []
    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", lambda: found.append(find()) or found[-1])
    monkeypatch.setitem(sys.modules, "a_new_module", sys)
    for _ in range(3):
        sampler.sample(1, rng=0)
    assert len(found) == 1
    monkeypatch.setitem(sys.modules, "another_new_module", sys)
    sampler.sample(1, rng=0)
    assert len(found) == 2


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]


def test_backends_of_joblib_draw_the_same():
    """That of processes which are started anew is in ``test_scale``, where they have more to do."""
    sampler = Exact.prepare(make_kernel(30, 6, rng=0))
    expected = sampler.sample(20, rng=3).baskets
    for backend in ("threading", "multiprocessing"):
        with joblib.parallel_config(backend=backend):
            assert sampler.sample(20, rng=3, n_jobs=2).baskets == expected


def test_samples_are_numbered_by_64_bits():
    sampler = Exact.prepare(make_kernel(30, 6, rng=0))
    assert len(sampler.sample(2, rng=0, first=2**64 - 2)) == 2
    with pytest.raises(InvalidInputError, match=r"first must be between 0 and 18446744073709551614"):
        sampler.sample(2, rng=0, first=2**64 - 1)
