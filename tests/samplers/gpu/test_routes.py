"""The routes of the GPU engine without circles: clocks for any size, eigenvectors for symmetric kernels.

They run on CPU tensors here, and again on a CUDA device where there is one (marker ``gpu``).
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[gpu]'")

import torch

import goodness
import oracles
from devices import drawn_by, on_devices
from kernels import AWKWARD, BY_NAME, Case, nearly_skew, uneven_pairs
from ndpp import LowRankKernel
from ndpp.errors import PrecisionError
from ndpp.linalg.coordinates import Coordinates
from ndpp.samplers import Exact
from ndpp.samplers.base import stream_key
from ndpp.samplers.exact.spectral import Spectrum, given_heads, heads_table
from ndpp.samplers.gpu import clock, exact, schedule, spectra
from ndpp.samplers.gpu.circles import CircleKey
from ndpp.samplers.gpu.exact import ExactEngine
from ndpp.samplers.gpu.group import Group, Samples
from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.propose import choose, choose_plain, uniforms
from ndpp.samplers.gpu.proposals import Streams
from ndpp.samplers.gpu.schedule import Stage

on = partial(drawn_by, ExactEngine)
DRAWS = 1000
SYMMETRIC = [case for case in AWKWARD if np.array_equal(case.W, case.W.T)]


# -- sizes that are rare at every scale of a kernel ------------------------------------------------------------------------------


@on_devices
@pytest.mark.parametrize(("case", "size"), [(nearly_skew(1e-6), 3), (uneven_pairs(1e5, 1e-5), 4)], ids=str)
def test_rare_sizes_are_drawn(case: Case, size: int, device: str):
    """The CPU completes samples that no circle of the device suits."""
    draws = on(device, Exact.prepare(case.kernel, size=size)).sample(DRAWS, rng=3)
    goodness.assert_law(draws.baskets, oracles.exact_law(case.X, case.W).of_size(size))
    assert draws.info["on_cpu"].any()


# -- any size, by clocks -----------------------------------------------------------------------------------------------------


@on_devices
@pytest.mark.parametrize(("given", "exclude"), [((2,), (0, 6)), ((), (5,))])
def test_any_size_given_and_without_items(given, exclude, device: str):
    case = BY_NAME["generic"]
    sampler = on(device, Exact.prepare(case.kernel, given=given, exclude=exclude))
    assert sampler.engine.spectra is not None
    assert sampler.engine.route == sampler.route == "clock"
    draws = sampler.sample(DRAWS, rng=2)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, given=given, exclude=exclude))
    assert not draws.info["on_cpu"].any()
    assert (draws.info["rejections"] == draws.info["proposals"] - draws.baskets.sizes + len(given)).all()


def test_negative_control_a_clock_that_runs_too_fast(monkeypatch: pytest.MonkeyPatch):
    case, factors = BY_NAME["generic"], spectra.Spectra.factors
    monkeypatch.setattr(spectra.Spectra, "factors", lambda it, which, x: factors(it, which, 2 * x))
    with pytest.raises(AssertionError):
        goodness.assert_law(
            on("cpu", Exact.prepare(case.kernel, given=(1,))).sample(DRAWS, rng=2).baskets,
            oracles.enumerate_law(case.L, given=(1,)),
        )


def test_any_size_without_eigenvectors_draws_the_size_first(monkeypatch: pytest.MonkeyPatch):
    """A kernel that is far from having eigenvectors, and one without space for their tables."""
    block = Case("Jordan", np.eye(3), np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]))
    sampler = on("cpu", Exact.prepare(block.kernel))
    assert sampler.engine.spectra is None
    goodness.assert_law(sampler.sample(DRAWS, rng=1).baskets, oracles.enumerate_law(block.L))
    case = BY_NAME["generic"]
    monkeypatch.setattr(spectra, "n_bytes", lambda n_rows, rank: 2**60)
    sampler = on("cpu", Exact.prepare(case.kernel, given=(2,)))
    assert sampler.engine.spectra is None
    goodness.assert_law(sampler.sample(DRAWS, rng=1).baskets, oracles.enumerate_law(case.L, given=(2,)))


@pytest.mark.parametrize(("name", "value"), [("RATE_TOLERANCE", -0.3), ("PROBABILITY_TOLERANCE", -1e-3)])
def test_clocks_that_fail_a_monitor_are_completed_on_the_cpu(name: str, value: float, monkeypatch: pytest.MonkeyPatch):
    """Tolerances that most samples fail, before the first item or later."""
    case = BY_NAME["generic"]
    sampler = on("cpu", Exact.prepare(case.kernel, given=(2,)))
    monkeypatch.setattr(clock, name, value)
    draws = sampler.sample(650, rng=5)
    assert draws.info["on_cpu"].sum() > 100
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, given=(2,)))
    assert sampler.sample(5, rng=5, first=90).baskets.to_lists() == draws.baskets[90:95].to_lists()


# -- symmetric kernels, by eigenvectors --------------------------------------------------------------------------------------


@on_devices
@pytest.mark.parametrize("case", SYMMETRIC, ids=str)
def test_symmetric_kernels(case: Case, device: str):
    for size in [None, *oracles.possible_sizes(case.L)[-1:]]:
        sampler = on(device, Exact.prepare(case.kernel, size=size))
        assert sampler.symmetric
        goodness.assert_law(sampler.sample(DRAWS, rng=1).baskets, oracles.enumerate_law(case.L, size=size))


@on_devices
@pytest.mark.parametrize("size", [None, 3])
def test_symmetric_given_and_without_items(size: int | None, device: str):
    case = BY_NAME["symmetric"]
    draws = on(device, Exact.prepare(case.kernel, size=size, given=[2], exclude=[0, 5])).sample(DRAWS, rng=2)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, size=size, given=[2], exclude=[0, 5]))
    assert not draws.info["on_cpu"].any()


@on_devices
@pytest.mark.parametrize("size", [None, 3])
def test_symmetric_draws_depend_on_seed_and_index_alone(size: int | None, device: str):
    sampler = Exact.prepare(BY_NAME["symmetric"].kernel, size=size)
    whole = on(device, sampler).sample(60, rng=8).baskets.to_lists()
    assert on(device, sampler, max_samples=7).sample(60, rng=8).baskets.to_lists() == whole
    assert on(device, sampler).sample(20, rng=8, first=40).baskets.to_lists() == whole[40:]
    assert on(device, sampler).sample(60, rng=9).baskets.to_lists() != whole


@on_devices
def test_larger_symmetric_sets_by_their_inclusion_probabilities(device: str):
    rng = np.random.default_rng(0)
    kernel = LowRankKernel(rng.standard_normal((300, 30)) * np.geomspace(1, 0.01, 30), np.eye(30))
    sampler = on(device, Exact.prepare(kernel, size=12))
    draws = sampler.sample(DRAWS, rng=4)
    chances = kernel.inclusion_probabilities(size=12)
    held = np.zeros((DRAWS, 300))
    held[np.repeat(np.arange(DRAWS), 12), draws.baskets.indices] = 1
    goodness.assert_mean(held @ chances, chances @ chances)
    goodness.assert_mean(held[:, np.argsort(-chances)[:40]].sum(1), np.sort(chances)[-40:].sum())
    goodness.assert_mean(draws.info["proposals"], sum(30 / left for left in range(1, 13)))


@pytest.mark.parametrize("chance", ["equal", "complementary"])
def test_negative_control_eigenvectors_chosen_by_other_weights(chance: str, monkeypatch: pytest.MonkeyPatch):
    case, of = BY_NAME["symmetric"], Spectrum.of.__func__

    def tampered(cls, coords: Coordinates, given, wanted):
        found = of(cls, coords, given, wanted)
        p = np.full_like(found.chance, 0.5) if chance == "equal" else 1 - found.chance
        return Spectrum(found.vectors, p, heads_table(p, 1 - p, wanted))

    monkeypatch.setattr(Spectrum, "of", classmethod(tampered))
    with pytest.raises(AssertionError):
        goodness.assert_law(
            on("cpu", Exact.prepare(case.kernel, size=3)).sample(DRAWS, rng=3).baskets,
            oracles.enumerate_law(case.L, size=3),
        )


def test_a_symmetric_sample_that_draws_an_item_twice_is_refused(monkeypatch: pytest.MonkeyPatch):
    """A projection that is not updated."""
    monkeypatch.setattr(exact, "orthonormal", lambda y, basis: torch.zeros_like(y[:, 0]))
    with pytest.raises(PrecisionError, match="drew an item twice"):
        on("cpu", Exact.prepare(BY_NAME["symmetric"].kernel, size=3)).sample(200, rng=3)


def test_symmetric_chances_outside_the_tolerance_end_on_the_cpu():
    case = BY_NAME["symmetric"]
    sampler = on("cpu", Exact.prepare(case.kernel, size=3))
    sampler.engine.tolerances = sampler.engine.tolerances._replace(chance=-1e-3)
    draws = sampler.sample(500, rng=4)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, size=3))
    assert draws.info["on_cpu"].sum() > 0


@on_devices
@pytest.mark.parametrize("k", [1, 4, 9])
def test_eigenvectors_are_chosen_as_on_the_cpu(k: int, device: str):
    chance = np.random.default_rng(k).random(9)
    heads = heads_table(chance, 1 - chance, k)
    index, key = Streams(stream_key(3), torch.device(device)).counters(torch.arange(50, device=device))
    arrays = [torch.from_numpy(part).to(device) for part in (chance, heads)]
    chosen = choose_plain(*arrays, index, key, 7)
    u = uniforms(index, key, 7, 0, 9)[0].cpu().numpy()
    assert chosen.tolist() == [given_heads(chance, heads, row).tolist() for row in u]
    if runtime.usable(torch.device(device)):
        assert torch.equal(choose(*arrays, index, key, 7), chosen)


# -- circles without negligible nodes ----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def few_dropped_nodes_suffice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schedule, "WITH_SIDES", schedule.WITH_SIDES._replace(min_dropped=3))


@cache
def wide_kernel() -> LowRankKernel:
    """Sizes vary enough that the weights of many nodes are negligible."""
    rng = np.random.default_rng(1)
    skew = 0.05 * np.triu(rng.standard_normal((60, 60)))
    return LowRankKernel(rng.standard_normal((90, 60)), np.eye(60) + skew - skew.T)


@cache
def engine_of_30(device: str) -> ExactEngine:
    """Its plan, which takes a second, is kept; tests ask for it under the fixture above."""
    return on(device, Exact.prepare(wide_kernel(), size=30)).engine


@on_devices
def test_nodes_that_are_dropped_change_no_probability(device: str):
    """The circle with and without them, before the first item and later."""
    kernel = wide_kernel()
    engine = engine_of_30(device)
    context = engine.context(Streams(stream_key(5), engine.device))
    stage = next(stage for stage in engine.planner.schedule(30) if stage.circle.kept)
    items = torch.arange(90, device=device).expand(8, -1)
    for begun in (0, stage.n, stage.n + 3):
        samples = Samples.begin(torch.arange(8, device=device), 30, kernel.rank)
        group = Group(context, samples, 0, engine.circles[stage.circle._replace(kept=0)], 30)
        for _ in range(begun):
            group.remove(group.draw())
            group.condition()
        fewer = Group(context, samples, begun, engine.circles[stage.circle], 30)
        assert fewer.circle.half < group.circle.half
        good = fewer.trusted & group.trusted
        assert good.any()
        values = [it.probabilities(items, None)[good].cpu().numpy() for it in (group, fewer)]
        np.testing.assert_allclose(*values, atol=1e-9)


@pytest.mark.parametrize("monitor", ["log_dropped", "edge"])
def test_nodes_that_matter_and_are_dropped_are_noticed(monitor: str, monkeypatch: pytest.MonkeyPatch):
    """With half of the nodes that are needed, no sample is trusted: either monitor alone suffices."""
    kernel = wide_kernel()
    engine = engine_of_30("cpu")
    if monitor == "edge":
        monkeypatch.setattr(Group, "_log_dropped", lambda group: None)
    else:
        monkeypatch.setattr(engine, "tolerances", engine.tolerances._replace(trace=1e9))
    context = engine.context(Streams(stream_key(5), engine.device))
    circle = engine.planner.schedule(30)[0].circle
    assert circle.kept
    samples = Samples.begin(torch.arange(4), 30, kernel.rank)
    assert Group(context, samples, 0, engine.circles[circle], 30).trusted.all()
    assert not Group(context, samples, 0, engine.circles[circle._replace(kept=circle.kept // 2)], 30).trusted.any()


def test_samples_that_need_dropped_nodes_are_drawn_with_them():
    """A schedule that drops too many: every sample leaves its circle, and the set sizes and probabilities are right."""
    kernel = wide_kernel()
    sampler = on("cpu", Exact.prepare(kernel, size=8))
    first = sampler.engine.planner.schedule(8)[0].circle
    sampler.engine.planner.schedules[8] = [Stage(0, 8, CircleKey(first.rung, max(first.n_nodes, 12), 2))]
    draws = sampler.sample(150, rng=3)
    chances = kernel.inclusion_probabilities(size=8)
    held = np.zeros((150, 90))
    held[np.repeat(np.arange(150), 8), draws.baskets.indices] = 1
    goodness.assert_mean(held @ chances, chances @ chances)
    assert draws.info["trace_error"].max() <= 2e-8
    assert draws.info["recentred"].min() >= 2
