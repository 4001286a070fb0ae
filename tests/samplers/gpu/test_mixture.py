"""Mixtures on a GPU. The engines run on CPU tensors here, and again on a CUDA device where there is one (marker ``gpu``)."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[gpu]'")

import torch

import goodness
from devices import drawn_by, on_devices
from mixtures import ODDS, N, dense, enumerate_mixture, every, general, tied
from ndpp import LowRankKernel, Mixture
from ndpp.errors import BudgetExceededError
from ndpp.laws.tied import TiedMixture
from ndpp.samplers.base import stream_key
from ndpp.samplers.clock import Clock
from ndpp.samplers.gpu import clock, laws, sets, spectra
from ndpp.samplers.gpu.clock import ClockGroup
from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.forms import Forms, remaining_forms, remaining_forms_plain
from ndpp.samplers.gpu.kernels.invert import invert_pivoted, invert_pivoted_plain
from ndpp.samplers.gpu.laws import ComponentEngine, TiedEngine
from ndpp.samplers.gpu.proposals import Streams, look_up_cdf
from ndpp.samplers.proposer import Proposer

on = partial(drawn_by, laws)
DRAWS = 800


@on_devices
@every
def test_sets_of_any_size(odds: str, ties: str, device: str):
    draws = on(device, tied(odds, ties).sampler()).sample(DRAWS, rng=1)
    goodness.assert_law(draws.baskets, enumerate_mixture(*dense(odds, ties)))
    assert not draws.info["on_cpu"].any()


@on_devices
@pytest.mark.parametrize(("odds", "size"), [("several", 3), ("disjoint items", 2), ("in nearly every basket", 4)])
def test_sets_of_one_size(odds: str, size: int, device: str):
    draws = on(device, tied(odds, "purely skew").sampler(size=size)).sample(DRAWS, rng=2)
    goodness.assert_law(draws.baskets, enumerate_mixture(*dense(odds, "purely skew"), lambda S: len(S) == size))
    assert (draws.info["rejections"] == draws.info["proposals"] - 1).all()
    assert draws.info["rejections"].max() > 0


@on_devices
def test_sets_of_one_size_one_at_a_time(device: str):
    """The first proposals may all be smaller."""
    sampler = tied("several", "generic").sampler(size=4)
    draws = on(device, sampler, 1).sample(8, rng=2)
    assert set(draws.baskets.sizes) == {4}
    assert draws.info["rejections"].max() > 0


@on_devices
@pytest.mark.parametrize(("given", "exclude", "size"), [((1,), (), None), ((2, 0), (4,), None), ((3,), (0,), 3)])
def test_given_and_excluded_items(given: tuple[int, ...], exclude: tuple[int, ...], size: int | None, device: str):
    sampler = tied("several", "generic").exclude(exclude).sampler(given=given, size=size)
    expected = enumerate_mixture(
        *dense("several", "generic"),
        lambda S: set(given) <= set(S) and not set(exclude) & set(S) and size in (None, len(S)),
    )
    goodness.assert_law(on(device, sampler).sample(DRAWS, rng=3).baskets, expected)


@on_devices
def test_one_component(device: str):
    kernels, _ = dense("several", "generic")
    mixture = tied("several", "generic")
    assert isinstance(mixture, TiedMixture)
    draws = on(device, mixture.only([1]).sampler()).sample(DRAWS, rng=4)
    goodness.assert_law(draws.baskets, enumerate_mixture([kernels[1]], [1.0]))


@on_devices
@pytest.mark.parametrize("size", [None, 3])
def test_sample_i_depends_on_the_seed_and_i_alone(size: int | None, device: str, monkeypatch: pytest.MonkeyPatch):
    """Not on batches, groups, the width of rounds, nor on which components are in memory."""
    sampler = tied("several", "generic").sampler(size=size)
    whole = on(device, sampler).sample(30, rng=8).baskets.to_lists()
    assert on(device, sampler, 7).sample(30, rng=8).baskets.to_lists() == whole
    assert on(device, sampler).sample(10, rng=8, first=20).baskets.to_lists() == whole[20:]
    assert on(device, sampler).sample(30, rng=9).baskets.to_lists() != whole
    monkeypatch.setattr(clock, "ROUND_FACTOR", 0.1)
    monkeypatch.setattr(runtime, "MAX_ENTRIES", 100)
    monkeypatch.setattr(clock, "samples_that_fit", lambda *_: 4)
    monkeypatch.setattr(laws, "n_bytes", lambda *_: 2**60)
    small = on(device, sampler)
    assert len(small.engine.blocks) == 3
    assert small.sample(30, rng=8).baskets.to_lists() == whole


@on_devices
def test_many_items_and_components(device: str):
    """Inclusion probabilities of a mixture too large to enumerate; space for items grows."""
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(300, 40)) / 4, np.kron(np.eye(20), [[0.0, 1.0], [-1.0, 0.0]])
    mixture = Mixture.tied(rng.gamma(0.5, 0.4, size=(8, 300)), X, W, np.full(8, 1 / 8))
    draws = on(device, mixture.sampler()).sample(250, rng=5)
    counts, p = np.bincount(draws.baskets.indices, minlength=300), mixture.inclusion_probabilities()
    goodness.assert_together(([count, 250 - count], [one, 1 - one]) for count, one in zip(counts, p))
    sizes = mixture.size_distribution()
    goodness.assert_counts(np.bincount(draws.baskets.sizes, minlength=len(sizes)), sizes)
    assert not draws.info["on_cpu"].any()


# -- negative controls -------------------------------------------------------------------------------------------------------


def fails(sampler: Proposer, draws: int = DRAWS) -> None:
    with pytest.raises(AssertionError):
        goodness.assert_law(
            on("cpu", sampler).sample(draws, rng=1).baskets, enumerate_mixture(*dense("several", "generic"))
        )


def test_negative_control_no_background(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        sets.AloneTables, "draw", lambda it, _, which, index: torch.full((len(index), 1), it.table.n_rows)
    )
    fails(tied("several", "generic").sampler())


def test_negative_control_ties_not_rescaled(monkeypatch: pytest.MonkeyPatch):
    """T with rows √o x in place of √(o / (1 + o)) x."""
    of_components = spectra.of_components

    def unscaled(q, core, odds):
        return of_components(q, core, np.minimum(odds / (1 - np.minimum(odds, 0.9)), 1e3))

    monkeypatch.setattr(laws, "of_components", unscaled)
    fails(tied("several", "generic").sampler(), 10 * DRAWS)


def test_negative_control_every_time_is_accepted(monkeypatch: pytest.MonkeyPatch):
    uniforms = clock.uniforms
    monkeypatch.setattr(
        clock, "uniforms", lambda *args: tuple(u if i != 1 else 0 * u for i, u in enumerate(uniforms(*args)))
    )
    fails(tied("several", "generic").sampler())


def test_negative_control_one_component_for_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sets, "look_up_cdf", lambda cdf, u: torch.zeros_like(look_up_cdf(cdf, u)))
    fails(tied("several", "generic").sampler())


# -- resolvents and monitors -------------------------------------------------------------------------------------------------


@on_devices
@pytest.mark.parametrize("ties", ["generic", "purely skew", "duplicate rows"])
def test_remaining_items_are_those_of_the_clock(ties: str, device: str):
    """tr Z and q_aᵀZq_a at any time, given the items that have appeared."""
    mixture = tied("several", ties)
    engine = on(device, mixture.sampler()).engine
    tables, which = engine.tables(0)[0], torch.tensor([0, 1, 2], device=device)
    for Y in ([], [1], [2, 4]):
        group = ClockGroup(tables, Streams(stream_key(0), engine.device), which, which, which[:0])
        for m, a in enumerate(Y):
            left, right, _ = tables.rows[which * N + a].unbind(1)
            group._append(which * N + a, left, right, torch.ones(3, dtype=torch.bool, device=device), m)
        x = torch.tensor([0.1, 1.0, 3.0], device=device, dtype=torch.float64)
        _, rates = group._remaining(x)
        for c in range(3):
            kernel = mixture.components[c].low_rank
            Z = Clock.prepare(kernel)._remaining(float(x[c]), np.array(Y, np.int64))
            assert float(rates[c]) == pytest.approx(np.trace(Z), abs=1e-9)


@on_devices
def test_inverses_with_row_exchanges(device: str):
    """Nearly skew matrices, whose diagonals are no pivots."""
    G = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 40, 40))).to(device)
    G = G - G.mT + 1e-6 * torch.eye(40, dtype=G.dtype, device=device)
    n = torch.arange(50, device=device).clamp(max=40)
    n -= n % 2  # odd ones are nearly singular
    inverse = invert_pivoted(G, n)
    torch.testing.assert_close(inverse, invert_pivoted_plain(G, n), rtol=1e-9, atol=1e-9)
    for i in range(0, 50, 7):
        k = int(n[i])
        eye = torch.eye(k, dtype=G.dtype, device=device)
        torch.testing.assert_close(G[i, :k, :k] @ inverse[i, :k, :k], eye, rtol=0, atol=1e-9)
        assert not inverse[i, k:].any()
        assert not inverse[i, :, k:].any()


@on_devices
def test_fused_forms_equal_plain_ones(device: str):
    if not runtime.usable(torch.device(device)):
        pytest.skip("no Triton for this device")
    rng = np.random.default_rng(1)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.normal(size=shape)).to(device)

    for m, width in ((0, 16), (1, 16), (17, 48), (40, 128)):
        forms, table = Forms(numbers(6, width), numbers(6, m, width), numbers(6, m, width)), numbers(30, 3, width)
        rows = torch.from_numpy(rng.integers(30, size=(4, 37))).to(device)
        which = torch.tensor([5, 0, 2, 2], device=device)
        expected = remaining_forms_plain(forms, table, rows, which)
        torch.testing.assert_close(remaining_forms(forms, table, rows, which), expected, rtol=1e-11, atol=1e-9)


@on_devices
def test_components_without_eigenvectors_are_drawn_on_the_cpu(device: str):
    """W = I + a nilpotent part and equal odds: B has one eigenvalue and one eigenvector."""
    W = np.eye(3) + np.triu(np.ones((3, 3)), 1)
    odds, weights = np.array([np.ones(3), [0.5, 2.0, 1.0]]), [0.5, 0.5]
    mixture = Mixture.tied(odds, np.eye(3), W, weights)
    sampler = on(device, mixture.sampler())
    assert sampler.engine.tables(0)[0].diagonal.tolist() == [False, True]
    draws = sampler.sample(400, rng=6)
    kernels = [np.sqrt(np.outer(one, one)) * (np.eye(3) + W) for one in odds]
    goodness.assert_law(draws.baskets, enumerate_mixture(kernels, weights))
    assert 0.4 < draws.info["on_cpu"].mean() < 0.6
    sized = on(device, mixture.sampler(size=2)).sample(400, rng=6)
    goodness.assert_law(sized.baskets, enumerate_mixture(kernels, weights, lambda S: len(S) == 2))


@pytest.mark.parametrize("monitor", ["RATE_TOLERANCE", "PROBABILITY_TOLERANCE"])
def test_samples_that_fail_a_monitor_are_completed_by_the_cpu(monitor: str, monkeypatch: pytest.MonkeyPatch):
    """Bounds so strict that many samples fail change no distribution."""
    monkeypatch.setattr(clock, monitor, -0.3)
    draws = on("cpu", tied("several", "generic").sampler()).sample(600, rng=7)
    goodness.assert_law(draws.baskets, enumerate_mixture(*dense("several", "generic")))
    assert draws.info["on_cpu"].mean() > 0.1


def test_budgets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clock, "MAX_MOVES", 1)
    with pytest.raises(BudgetExceededError, match="clocks moved 1 times"):
        on("cpu", tied("several", "generic").sampler()).sample(50, rng=0)
    monkeypatch.undo()
    monkeypatch.setattr(sets, "MAX_PROPOSALS", 1)
    with pytest.raises(BudgetExceededError, match="1 sets were proposed"):
        on("cpu", tied("several", "generic").sampler(size=3)).sample(50, rng=0)


def test_nothing_to_draw():
    sampler = tied("one mission", "generic").sampler(given=range(N))
    assert on("cpu", sampler).engine is None
    no_ties = Mixture.tied(ODDS["several"], np.zeros((N, 2)), np.eye(2), [0.25, 0.25, 0.5])
    draws = on("cpu", no_ties.sampler()).sample(DRAWS, rng=3)
    kernels = [np.diag(one) for one in ODDS["several"]]
    goodness.assert_law(draws.baskets, enumerate_mixture(kernels, [0.25, 0.25, 0.5]))
    assert len(on("cpu", no_ties.sampler()).sample(0, rng=0).baskets) == 0


# -- mixtures of any kernels, and the public face ----------------------------------------------------------------------------


@on_devices
@pytest.mark.parametrize(("size", "given"), [(None, ()), (3, ()), (None, (1,))])
def test_mixtures_of_any_kernels(size: int | None, given: tuple[int, ...], device: str):
    """Component by component; the order of the samples is that of their indices."""
    sampler = general("several", "generic").sampler(size=size, given=given)
    if device == "cuda":
        store = dataclasses.replace(sampler.drawers, asked=sampler.drawers.asked._replace(device="cuda"))
        sampler = dataclasses.replace(sampler, drawers=store)
    sampler = dataclasses.replace(sampler, engine=laws.prepare(sampler, torch.device(device)))
    draws = sampler.sample(DRAWS, rng=4)
    expected = enumerate_mixture(
        *dense("several", "generic"), lambda S: set(given) <= set(S) and size in (None, len(S))
    )
    goodness.assert_law(draws.baskets, expected)
    assert sampler.sample(20, rng=4, first=700).baskets.to_lists() == draws.baskets[700:720].to_lists()
    assert {"proposals", "rejections", "seconds"} <= set(draws.info)


def test_batches_of_any_kernels_change_no_draw(monkeypatch: pytest.MonkeyPatch):
    kernels = [LowRankKernel(np.eye(3) * scale, np.eye(3)) for scale in (0.5, 2.0)]
    sampler = Mixture(kernels, [0.5, 0.5]).sampler()
    sampler = dataclasses.replace(sampler, engine=laws.prepare(sampler, torch.device("cpu")))
    whole = sampler.sample(50, rng=1).baskets.to_lists()
    sampler.engine.max_samples = 7
    assert [one for part in sampler.stream(50, rng=1) for one in part.baskets.to_lists()] == whole


@pytest.mark.parametrize(("kind", "engine"), [(tied, TiedEngine), (general, ComponentEngine)])
def test_the_road_from_a_mixture_to_its_engine(kind: Any, engine: type):
    assert isinstance(laws.prepare(kind("several", "generic").sampler(), torch.device("cpu")), engine)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("kind", [tied, general])
def test_without_a_gpu_a_warning_and_the_cpu(kind):
    mixture = kind("several", "generic")
    for options in ({}, {"component": 1}, {"size": 3}):
        expected = mixture.sample(20, rng=0, **options).to_lists()
        with pytest.warns(RuntimeWarning, match="finds no CUDA device. Drawing on the CPU") as caught:
            assert mixture.sample(20, rng=0, device="cuda", **options).to_lists() == expected
        assert len(caught) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", [tied, general])
def test_the_public_face_on_a_gpu(kind):
    mixture, (kernels, weights) = kind("several", "generic"), dense("several", "generic")
    goodness.assert_law(mixture.sample(DRAWS, rng=0, device="cuda"), enumerate_mixture(kernels, weights))
    one = enumerate_mixture([kernels[1]], [1.0], lambda S: 2 in S and 4 not in S and len(S) == 3)
    goodness.assert_law(mixture.sample(DRAWS, size=3, given=[2], exclude=[4], component=1, rng=0, device="cuda"), one)
