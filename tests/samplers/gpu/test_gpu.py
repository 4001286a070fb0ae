"""The GPU engine. Its code runs on CPU tensors here, and again on a CUDA device where there is one (marker ``gpu``).

``TRITON_INTERPRET=1`` with Triton installed runs the fused kernels on CPU tensors as well (Triton 3.6: with NumPy 2.3 or older).
"""

from __future__ import annotations

import dataclasses
from functools import partial
from itertools import cycle

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[gpu]'")

import torch
from scipy.special import bdtr, bdtrc

import goodness
import oracles
from devices import drawn_by, on_devices
from kernels import AWKWARD, BY_NAME, Case, learned
from ndpp import LowRankKernel
from ndpp.datasets import make_kernel
from ndpp.errors import BudgetExceededError, DeviceError, InvalidInputError
from ndpp.samplers import Exact, unions
from ndpp.samplers.base import cuda_device, stream_key
from ndpp.samplers.exact.plan import unbiased_count
from ndpp.samplers.gpu import exact as exact_engine
from ndpp.samplers.gpu import group as group_module
from ndpp.samplers.gpu import laws, memory, proposals, run
from ndpp.samplers.gpu.circles import CircleKey
from ndpp.samplers.gpu.exact import ExactEngine
from ndpp.samplers.gpu.group import Group, Samples
from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.border import border
from ndpp.samplers.gpu.kernels.forms import correction, weighted_rows
from ndpp.samplers.gpu.kernels.invert import invert
from ndpp.samplers.gpu.kernels.nodes import node_forms, node_products, node_rows
from ndpp.samplers.gpu.kernels.propose import AliasTable, philox, propose
from ndpp.samplers.gpu.kernels.runtime import tight
from ndpp.samplers.gpu.laws import UnionEngine
from ndpp.samplers.gpu.proposals import Streams, accept
from ndpp.samplers.gpu.schedule import PILOT_TOLERANCES, Stage
from ndpp.samplers.gpu.sets import DeviceLost

on = partial(drawn_by, ExactEngine)


@on_devices
@pytest.mark.parametrize(("size", "given"), [(None, ()), (4, (0, 4)), (2, (1, 3, 4, 5, 6))])
def test_kernels_with_a_background(
    size: int | None, given: tuple[int, ...], device: str, monkeypatch: pytest.MonkeyPatch
):
    """T ∪ R on the device; items 0, 2 and 7 have no background. A GPU draws T without regard to its size."""
    monkeypatch.setattr(unions, "disjoint_parts", lambda *_: None)
    case, odds = BY_NAME["zero diagonal"], np.array([0.0, 0.5, 0.0, 0.125, 3.0, 1.0, 0.25, 0.0])
    kernel = LowRankKernel(case.X, case.W, background=odds)
    size = None if size is None else max(size, len(given) + 1)
    plain = kernel.sampler(size=size, given=given)
    union = dataclasses.replace(plain.drawers[0], ties=on(device, plain.drawers[0].ties))
    sampler = dataclasses.replace(plain, drawers=(union,))
    sampler = dataclasses.replace(sampler, engine=UnionEngine.prepare(sampler, union, torch.device(device)))
    draws = sampler.sample(1_000, rng=3)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L + np.diag(odds), size, given))
    assert sampler.sample(3, rng=3, first=17).baskets.to_lists() == draws.baskets[17:20].to_lists()
    assert {"proposals", "rejections", "seconds"} <= set(draws.info)


# -- the laws it draws from --------------------------------------------------------------------------------------------------


def conditional_laws(engine: ExactEngine, kernel: LowRankKernel, wanted: int, samples: int):
    """Yield (items chosen, P(a ∈ S | chosen) for every item) along whole samples."""
    context = engine.context(Streams(stream_key(5), engine.device))
    begun = Samples.begin(torch.arange(samples, device=engine.device), wanted, kernel.rank)
    everything = torch.arange(kernel.n_rows, device=engine.device).expand(samples, -1)
    alive = None
    for stage in engine.planner.schedule(wanted):
        group = Group(context, begun, stage.n, engine.circles[stage.circle], wanted, alive)
        while group.n < stage.stop:
            values = group.probabilities(everything, None).cpu().numpy()
            for i in np.flatnonzero(group.trusted.cpu().numpy()):
                yield tuple(begun.rows[i, : group.n].tolist()), values[i]
            group.remove(group.draw())
            if group.n < stage.stop:
                group.condition()
        alive = group.alive


@on_devices
@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_every_conditional_law_is_the_enumerated_one(case: Case, form: str, device: str):
    for size in oracles.possible_sizes(case.L)[form == "sides" :: 2]:  # a size in one form, a form in every other size
        if size:
            sampler, seen = on(device, Exact.prepare(case.kernel, size=size)), 0
            for chosen, values in conditional_laws(sampler.engine, case.kernel, size, 4):
                expected = oracles.inclusion_probabilities(case.L, size, given=chosen)
                expected[list(chosen)] = 0.0
                np.testing.assert_allclose(values, expected, atol=3e-8)
                seen += 1
            assert seen >= size  # of 4·size laws most are trusted on the common circles


FORMS = ("sides", "coordinates")


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether samples store their sides, or rows in coordinates in which Z is diagonal, as samples of many items do."""
    monkeypatch.setattr(exact_engine, "SIDES_UP_TO", 64 if request.param == "sides" else 0)
    return request.param


@on_devices
def test_weights_and_traces_along_a_circle_are_those_on_entering_it(form: str, device: str):
    """Wrong ones are refused by the monitors, so that no distribution shows them: samples would only take longer."""
    kernel = make_kernel(60, 12, rng=0)
    engine = on(device, Exact.prepare(kernel, size=6)).engine
    context = engine.context(Streams(stream_key(5), engine.device))
    samples, circle = Samples.begin(torch.arange(8, device=engine.device), 6, 12), engine.circles[CircleKey(0, 24)]
    group = Group(context, samples, 0, circle, 6)
    for n in range(1, 6):
        assert not group.draw().any()
        group.condition()
        entered = Group(context, samples, n, circle, 6)
        for name in ("log_w", "removed_trace"):
            along, entering = getattr(group, name).cpu(), getattr(entered, name).cpu()
            if name == "log_w":  # up to multiples of 2πi
                along, entering = along.exp(), entering.exp()
            torch.testing.assert_close(along, entering, rtol=1e-9, atol=1e-9 * float(entering.abs().max()))


DRAWS = 1000
"""As many as the negative control needs."""


@on_devices
@pytest.mark.parametrize(("case", "form"), [*zip(AWKWARD[::3], cycle(FORMS))], ids=str, indirect=["form"])
def test_law_of_the_draws(case: Case, form: str, device: str):
    """Forms take every third kernel in turn: the conditional laws of both are compared on every kernel above."""
    for size in [None, max(oracles.possible_sizes(case.L))]:
        draws = on(device, Exact.prepare(case.kernel, size=size)).sample(DRAWS, rng=1)
        goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, size=size))
        assert "trace_error" not in draws.info or draws.info["trace_error"].max() <= 2e-8


@on_devices
def test_law_given_and_without_items(device: str):
    case = BY_NAME["generic"]
    draws = on(device, Exact.prepare(case.kernel, size=4, given=[2], exclude=[0, 6])).sample(DRAWS, rng=2)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, size=4, given=[2], exclude=[0, 6]))


@on_devices
@pytest.mark.parametrize("given", [(), (1, 3)])
@pytest.mark.parametrize("name", ["generic", "badly scaled rows"])
def test_circles_are_those_of_the_ladder(name: str, given: tuple[int, ...], device: str):
    sampler = on(device, Exact.prepare(BY_NAME[name].kernel, given=given))
    for rung in (-20, 0, 6):
        expected, actual = sampler.ladder.circle(rung, 8), sampler.engine.circles[CircleKey(rung, 8)]
        q = sampler.engine.device_rows.take(torch.arange(3, device=device))
        Z = expected.Z[0] + 1j * expected.Z[1]
        forms = np.einsum("ia,jab,ib->ij", q.cpu(), Z, q.cpu())
        np.testing.assert_allclose(torch.view_as_complex(actual.forms(q).view(3, -1, 2)).cpu(), forms, atol=1e-12)
        np.testing.assert_allclose(np.exp(actual.log_w.cpu().numpy() - expected.log_w), 1, rtol=1e-9)


def test_negative_control_every_candidate_is_taken(monkeypatch: pytest.MonkeyPatch):
    case = BY_NAME["generic"]
    monkeypatch.setattr(proposals, "propose", lambda *args: (propose(*args)[0], -propose(*args)[1] - 1))
    with pytest.raises(AssertionError):
        goodness.assert_law(
            on("cpu", Exact.prepare(case.kernel, size=2)).sample(DRAWS, rng=3).baskets,
            oracles.enumerate_law(case.L, size=2),
        )


@pytest.mark.parametrize("widest", [True, False])
def test_monitors_mend_a_poor_schedule(monkeypatch: pytest.MonkeyPatch, widest: bool):
    """Circles with two nodes: samples are grouped anew on circles of their own; where none suits them, the CPU finishes them."""
    case = BY_NAME["generic"]
    sampler = on("cpu", Exact.prepare(case.kernel, size=4))
    first = sampler.engine.planner.schedule(4)[0].circle
    sampler.engine.planner.schedules[4] = [Stage(0, 1, first), Stage(1, 4, CircleKey(first.rung, 2))]
    if not widest:
        monkeypatch.setattr(run, "unbiased_count", lambda rank: 2)
    draws = sampler.sample(550 if not widest else DRAWS, rng=4)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, size=4))
    assert draws.info["recentred"].mean() > 1.5
    assert (draws.info["on_cpu"].mean() > 0.5) == (not widest)


def test_what_is_tried_for_samples_that_no_circle_suits():
    """More nodes until the rule has no bias, then two other radii, then the CPU; every try ends, whatever it began with."""
    kernel = BY_NAME["generic"].kernel
    engine, full = on("cpu", Exact.prepare(kernel, size=3)).engine, unbiased_count(kernel.rank)
    assert full == 8
    trying = run.GroupRun(engine.context(Streams(stream_key(0), engine.device)), np.random.default_rng, 3, [])
    samples = Samples.begin(torch.arange(2), 3, kernel.rank)
    task, seen = run.Task(samples, 0, CircleKey(6, 2)), []
    while task.circle is not None:
        (task,) = trying._retries(task, task.circle)
        seen.append(task.circle)
    assert seen == [CircleKey(6, 4), CircleKey(6, full), CircleKey(8, full), CircleKey(4, full), None]
    samples.basis[:, 0] = engine.device_rows.take(torch.tensor([0, 3]))
    samples.basis[:, 0] /= samples.basis[:, 0].norm(dim=1, keepdim=True)
    planned = trying._retries(run.Task(samples, 1, CircleKey(6, 4), after=2), CircleKey(6, 4))
    assert {task.after for task in planned} == {3}
    assert sorted(number for task in planned for number in task.samples.numbers.tolist()) == [0, 1]


def test_chances_outside_the_tolerance_end_on_the_cpu():
    """A tolerance that no rounding meets: every circle is refused, none is tried for ever, and the law is right."""
    case = BY_NAME["generic"]
    sampler = on("cpu", Exact.prepare(case.kernel, size=3))
    sampler.engine.planner.schedule(3)
    sampler.engine.tolerances = sampler.engine.tolerances._replace(chance=-1e-3)
    draws = sampler.sample(550, rng=4)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, size=3))
    assert draws.info["on_cpu"].sum() > 0


@pytest.mark.data
@on_devices
@pytest.mark.parametrize("name", ["B"])
def test_agrees_with_the_cpu_on_learned_kernels(name: str, device: str):
    """Mean log det of two independent samples, and inclusion frequencies of likely items against their probabilities."""
    kernel = learned(name).kernel
    size, count = (3, 250) if device == "cpu" else (10, 20_000)  # planning takes a second per item
    baskets = on(device, Exact.prepare(kernel, size=size)).sample(count, rng=6).baskets
    other = Exact.prepare(kernel, size=size).sample(60, rng=7).baskets
    values, others = ([kernel.log_det(basket) for basket in draws] for draws in (baskets, other))
    spread = np.sqrt(np.var(values) / len(values) + np.var(others) / len(others))
    assert abs(np.mean(values) - np.mean(others)) <= 4 * spread
    chances = kernel.inclusion_probabilities(size=size)
    likely = np.argsort(-chances)[:40]
    drawn = np.bincount(baskets.indices, minlength=kernel.n_items)[likely]
    assert are_counts_of(drawn, count, chances[likely])
    assert not are_counts_of(drawn, count, np.sqrt(chances[likely]))
    # How likely the items of a set are, all items together: a flatter law must show.
    flatter = chances**0.8
    scores = [chances[basket].sum() for basket in baskets]
    goodness.assert_mean(scores, chances @ chances)
    with pytest.raises(AssertionError):
        goodness.assert_mean(scores, chances @ (size * flatter / flatter.sum()))


def are_counts_of(drawn: np.ndarray, count: int, chances: np.ndarray) -> bool:
    """Whether items with these chances may be in ``drawn`` of ``count`` sets: no binomial tail is too small."""
    tails = np.minimum(bdtr(drawn, count, chances), bdtrc(drawn - 1, count, chances))
    return bool(tails.min() * 2 * len(chances) >= goodness.ALPHA)


# -- what it promises --------------------------------------------------------------------------------------------------------


def test_rounding_calls_for_no_more_nodes(monkeypatch: pytest.MonkeyPatch):
    """Errors a little above what a plan aims at, and a little below with all nodes: those would cost time and mend nothing."""
    engine, weigh = on("cpu", Exact.prepare(make_kernel(100, 40, rng=0), size=8)).engine, Group._weigh
    aim, full = PILOT_TOLERANCES.trace, unbiased_count(40)

    def noisy(group: Group):
        weights, trusted = weigh(group)
        error = torch.full_like(weights.trace_error, 0.9 * aim if 2 * group.circle.half >= full else 1.5 * aim)
        return weights._replace(trace_error=error), trusted

    monkeypatch.setattr(Group, "_weigh", noisy)
    assert max(stage.circle.n_nodes for stage in engine.planner.schedule(8)) < full


def test_sizes_share_plans_where_the_size_is_free():
    """A circle belongs to a number of items still to come; a plan begins with no items, and moves on with more of them."""
    engine = on("cpu", Exact.prepare(BY_NAME["generic"].kernel)).engine
    plan, shared = engine.planner.schedule(4), engine.planner.schedule(3)
    assert [stage.circle for stage in shared] == [stage.circle for stage in plan][-len(shared) :]
    assert [stage.n for stage in shared] == sorted({max(0, stage.n - 1) for stage in plan})
    assert [stage.stop for stage in shared] == [stage.n for stage in shared[1:]] + [3]
    assert on("cpu", Exact.prepare(BY_NAME["generic"].kernel, size=3)).engine.planner.schedule(3)[0].n == 0


@on_devices
def test_forms_are_tabulated_once_that_pays_which_changes_no_draw(device: str):
    sampler = on(device, Exact.prepare(make_kernel(50_000, 8, rng=0), size=3))
    few = sampler.sample(10, rng=0).baskets
    circle = sampler.engine.circles[sampler.engine.planner.schedule(3)[0].circle]
    assert "table" not in vars(circle)
    for i in range(3):
        sampler.sample(200, rng=i)
    assert vars(circle)["table"].shape == (50_000, 2 * circle.half)
    assert sampler.sample(10, rng=0).baskets == few


def test_forms_are_tabulated_only_where_memory_allows():
    circle = on("cpu", Exact.prepare(BY_NAME["generic"].kernel, size=3)).engine.circles[CircleKey(0, 8)]
    room = 8 * 2 * circle.half * circle.device_rows.kernel.n_rows
    assert dataclasses.replace(circle, memory=room).table.nbytes == room
    assert dataclasses.replace(circle, memory=room - 1).table is None


def test_a_catalogue_that_does_not_fit_is_read_from_the_host(monkeypatch: pytest.MonkeyPatch):
    """Rows of Q may take a third of the memory that is free."""
    kernel, rows = BY_NAME["generic"].kernel, torch.tensor([[5, 0], [3, 3], [7, 1]])
    room = kernel.n_rows * kernel.rank * 8
    for free, kept in ((3 * room, True), (3 * room - 1, False)):
        monkeypatch.setattr(memory, "free_memory", lambda device, free=free: free)
        items = memory.DeviceRows(kernel, torch.device("cpu"))
        assert (items.q is not None) == kept
        np.testing.assert_allclose(items.take(rows), kernel.q_rows(rows.numpy().ravel()).reshape(3, 2, -1))


@on_devices
@pytest.mark.parametrize("size", [None, 3])
def test_sample_i_depends_on_the_seed_and_i_alone(size: int | None, device: str):
    sampler = Exact.prepare(BY_NAME["generic"].kernel, size=size)
    whole = on(device, sampler).sample(60, rng=8).baskets.to_lists()
    assert on(device, sampler, max_samples=7).sample(60, rng=8).baskets.to_lists() == whole
    assert on(device, sampler).sample(20, rng=8, first=40).baskets.to_lists() == whole[40:]
    parts = [draws.baskets.to_lists() for draws in on(device, sampler, max_samples=7).stream(60, rng=8)]
    assert [basket for part in parts for basket in part] == whole
    assert len(parts) > 1
    assert on(device, sampler).sample(60, rng=9).baskets.to_lists() != whole


def test_nothing_to_draw():
    sampler = Exact.prepare(BY_NAME["generic"].kernel, size=2, given=[1, 2])
    assert on("cpu", sampler).sample(3, rng=0).baskets.to_lists() == [[1, 2]] * 3
    assert len(on("cpu", sampler).sample(0, rng=0).baskets) == 0


class Broken:
    """Stands between an engine and its draws, and breaks."""

    def __init__(self, engine, error, when) -> None:
        self.draws, self.error, self.when, self.calls = engine._draws, error, when, []
        engine._draws = self

    def __call__(self, streams, key, samples):
        self.calls.append(len(samples))
        if self.when(self):
            raise self.error
        return self.draws(streams, key, samples)


@pytest.mark.parametrize("size", [None, 3])
def test_memory_exhausted_halves_the_batch(size: int | None):
    sampler = Exact.prepare(BY_NAME["generic"].kernel, size=size)
    whole, small = on("cpu", sampler).sample(50, rng=1), on("cpu", sampler)
    broken = Broken(small.engine, torch.cuda.OutOfMemoryError("no room"), lambda it: it.calls[-1] > 20)
    assert small.sample(50, rng=1).baskets.to_lists() == whole.baskets.to_lists()
    assert broken.calls == [50, 25, 12, 12, 12, 12, 2]


def test_memory_for_not_even_one_sample_is_a_clear_error():
    sampler = on("cpu", Exact.prepare(BY_NAME["generic"].kernel, size=3), max_samples=10)
    broken = Broken(sampler.engine, torch.cuda.OutOfMemoryError("no room"), lambda it: len(it.calls) > 1)
    with pytest.raises(DeviceError, match=r"does not hold one sample\. .*draw on the CPU with device='cpu'") as caught:
        sampler.sample(30, rng=1)
    assert len(caught.value.partial.baskets) == 10
    assert broken.calls == [10, 10, 5, 2, 1]


def test_device_lost_keeps_what_was_drawn():
    sampler = on("cpu", Exact.prepare(BY_NAME["generic"].kernel, size=3), max_samples=10)
    whole = sampler.sample(30, rng=1).baskets.to_lists()
    Broken(sampler.engine, DeviceLost("CUDA error: gone"), lambda it: len(it.calls) > 2)
    with pytest.raises(DeviceError, match=r"was lost: .*first=20 continues") as caught:
        sampler.sample(30, rng=1)
    assert caught.value.partial.baskets.to_lists() == whole[:20]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_a_warning_and_the_cpu():
    kernel = BY_NAME["generic"].kernel
    expected = kernel.sample(20, size=3, rng=0).to_lists()
    with pytest.warns(RuntimeWarning, match="finds no CUDA device. Drawing on the CPU"):
        assert kernel.sample(20, size=3, rng=0, device="cuda").to_lists() == expected


@pytest.mark.parametrize("size", [None, 3])
def test_the_road_from_a_kernel_to_its_engine(size: int | None):
    """Nothing on it is loaded by a name: the engine is connected where the package of samplers is imported."""
    sampler = BY_NAME["generic"].kernel.sampler(size=size)
    assert isinstance(sampler, Exact)
    assert isinstance(laws.prepare(sampler, torch.device("cpu")), ExactEngine)


def test_refusals():
    kernel = BY_NAME["generic"].kernel
    for device in ("gpu", "cuda:x", "cuda:", "mps"):
        with pytest.raises(InvalidInputError, match="device must be None, 'cpu', 'cuda' or 'cuda:1'"):
            Exact.prepare(kernel, size=2, device=device)


def test_devices_are_counted_from_zero(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert cuda_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(InvalidInputError, match="device must be a CUDA device from 0 to 1; got 'cuda:2'"):
        cuda_device("cuda:2")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_by_name():
    kernel = BY_NAME["generic"].kernel
    goodness.assert_law(
        kernel.sample(20_000, size=3, rng=0, device="cuda"), oracles.enumerate_law(BY_NAME["generic"].L, size=3)
    )
    with pytest.raises(InvalidInputError, match="device must be a CUDA device from 0 to"):
        kernel.sample(1, device=f"cuda:{torch.cuda.device_count()}")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_memory_runs_out():
    """A real shortage, not a staged one."""
    rng = np.random.default_rng(0)
    skew = np.triu(rng.standard_normal((60, 60)))
    kernel = LowRankKernel(rng.standard_normal((500, 60)), np.eye(60) + skew - skew.T)
    sampler = Exact.prepare(kernel, size=20, device="cuda")
    whole = sampler.sample(3000, rng=0).baskets.to_lists()
    torch.cuda.empty_cache()
    share = (torch.cuda.memory_allocated() + 300e6) / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(share)
    try:
        assert sampler.sample(3000, rng=0).baskets.to_lists() == whole
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert sampler.engine.max_samples < 3000


# -- streams and kernels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, expected):
    """The vectors of Random123."""
    words = philox(tuple(torch.tensor(word) for word in counter), key)
    assert tuple(int(word) for word in words) == expected


def test_rounds_have_a_budget():
    samples = torch.arange(3)
    table = AliasTable(torch.ones(4, dtype=torch.float64), torch.arange(4), torch.ones(4, dtype=torch.float64), 4)
    streams = Streams(stream_key(0), torch.device("cpu"))
    with pytest.raises(BudgetExceededError, match=r"8128 items were proposed .* rejected in 256 rounds"):
        accept(streams, table, samples, samples, 0, 8, 1e-8, lambda rows, which: torch.zeros(rows.shape))


def numbers(*shape: int, seed: int = 0, device: str = "cpu"):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(device)


def _bordered(inverse, inner, parts, squares):
    outcome, n = border(inverse, inner, parts, squares), parts.shape[2]
    return tight(inverse, n), inner[:, :, :n, :n], *outcome


def _bordered_alone(inverse, parts):
    pivots, trace = border(inverse, None, parts, None)
    assert trace is None
    return tight(inverse, parts.shape[2]), pivots


def _inverted(n):
    def call(parts):
        tight(parts, n)[:, 0] += 3 * n**0.5 * torch.eye(n, device=parts.device)
        log_det = invert(parts, n)
        return tight(parts, n), log_det.real, torch.exp(log_det - log_det.real)

    return call


def _corrected(products, inverse, w):
    which = torch.arange(len(w), device=w.device)
    return correction(products[:, :, :, :2], products[:, :, :, 2:], inverse, torch.view_as_complex(w), which)


def _corrected_apart(x, y, inverse, w):
    return correction(x, y, inverse, torch.view_as_complex(w), torch.arange(len(w), device=w.device).flip(0))


def _rows_at_nodes(factors, rows):
    return node_rows(factors, rows, left=True), node_rows(factors, rows, left=False)


def _products_at_nodes(factors, rows, items):
    (sides, P, c, _), n, h = rows.shape, items.shape[2], factors.shape[1]
    out, which = items.new_empty(sides, P, n, h, 2, c), torch.arange(P, device=items.device) * 2 % items.shape[1]
    node_products(factors, rows, items, None if items.shape[1] == P else which, out)
    return out


def _minors_at_nodes(factors, items):
    (_, S, n, _), h = items.shape, factors.shape[1]
    out = items.new_zeros(S, h, 2, n + 1, n + 2)
    node_products(factors, items[:1], items, None, out[..., :n, :n].mT.permute(0, 3, 1, 2, 4)[None])
    return out


def _weighted(table, rows, w, minus=None):
    return weighted_rows(table, (rows.abs() * 10).long() % len(table), w, minus)


FUSED = {
    "correction a few": (_corrected, [(3, 3, 2, 4, 72), (6, 2, 4, 4), (3, 2, 2)]),
    "correction": (_corrected, [(3, 7, 2, 4, 40), (6, 2, 10, 10), (3, 2, 2)]),
    "correction a tile": (_corrected, [(2, 16, 2, 4, 8), (4, 2, 18, 18), (2, 2, 2)]),
    "correction three tiles": (_corrected, [(2, 41, 1, 4, 24), (2, 2, 42, 42), (2, 1, 2)]),
    "correction more tiles than fit": (_corrected, [(1, 67, 1, 4, 8), (1, 2, 68, 68), (1, 1, 2)]),
    "correction in two turns": (_corrected, [(2, 99, 2, 4, 24), (4, 2, 100, 100), (2, 2, 2)]),
    "correction of products apart": (_corrected_apart, [(2, 21, 3, 2, 4), (2, 21, 3, 2, 4), (6, 2, 22, 22), (2, 3, 2)]),
    "correction of few products apart": (_corrected_apart, [(2, 5, 3, 2, 4), (2, 5, 3, 2, 4), (6, 2, 6, 6), (2, 3, 2)]),
    "node_rows": (_rows_at_nodes, [(4, 3, 32), (2, 5, 32)]),
    "node_rows of other widths": (_rows_at_nodes, [(4, 9, 48), (3, 8, 48)]),
    "node_products": (_products_at_nodes, [(4, 3, 32), (2, 3, 5, 32), (2, 3, 7, 32)]),
    "node_products of some samples": (_products_at_nodes, [(4, 5, 48), (2, 3, 8, 48), (2, 5, 50, 48)]),
    "node_products of one row": (_products_at_nodes, [(4, 7, 16), (2, 2, 1, 16), (2, 2, 17, 16)]),
    "node_products of more columns than one program": (_products_at_nodes, [(4, 9, 32), (2, 2, 6, 32), (2, 2, 32, 32)]),
    "node_products of minors": (_minors_at_nodes, [(4, 3, 32), (2, 3, 11, 32)]),
    "node_products of large minors": (_minors_at_nodes, [(4, 2, 48), (2, 2, 40, 48)]),
    "weighted_rows": (_weighted, [(50, 6), (3, 40), (3, 6)]),
    "weighted_rows minus a correction": (_weighted, [(50, 6), (3, 40), (3, 6), (3, 3, 40)]),
    "invert": (_inverted(7), [(5, 2, 8, 8)]),
    "invert by blocks": (_inverted(45), [(2, 2, 50, 50)]),
    "invert whole blocks": (_inverted(32), [(2, 2, 32, 32)]),
    "invert more blocks": (_inverted(99), [(2, 2, 100, 100)]),
    "border the first": (_bordered, [(5, 2, 10, 10), (5, 2, 10, 10), (5, 4, 1), (5, 4, 1)]),
    "border": (_bordered, [(5, 2, 10, 10), (5, 2, 10, 10), (5, 4, 7), (5, 4, 7)]),
    "border by one tile": (_bordered, [(3, 2, 16, 16), (3, 2, 16, 16), (3, 4, 16), (3, 4, 16)]),
    "border a large one": (_bordered, [(2, 2, 40, 40), (2, 2, 40, 40), (2, 4, 39), (2, 4, 39)]),
    "border up to the capacity": (_bordered, [(2, 2, 64, 64), (2, 2, 64, 64), (2, 4, 64), (2, 4, 64)]),
    "border without a trace": (_bordered_alone, [(5, 2, 10, 10), (5, 4, 7)]),
    "border more than 64 rows without a trace": (_bordered_alone, [(2, 2, 100, 100), (2, 4, 99)]),
    "node_forms": (node_forms, [(4, 3, 32), (5, 3, 2, 32), (5, 3, 2, 32)]),
    "node_forms of other widths": (node_forms, [(4, 2, 48), (2, 2, 2, 48), (2, 2, 2, 48)]),
    "border more than 64 rows": (_bordered, [(2, 2, 100, 100), (2, 2, 100, 100), (2, 4, 99), (2, 4, 99)]),
}


@on_devices
@pytest.mark.parametrize("name", FUSED)
def test_fused_kernels_equal_their_plain_twins(name: str, device: str, monkeypatch: pytest.MonkeyPatch):
    if not runtime.usable(torch.device(device)):
        pytest.skip("no Triton for this device")
    function, shapes = FUSED[name]
    arrays = [numbers(*shape, seed=i, device=device) for i, shape in enumerate(shapes)]
    fast = function(*(array.clone() for array in arrays))
    monkeypatch.setattr(runtime, "usable", lambda _: False)
    plain = function(*(array.clone() for array in arrays))
    for one, other in zip(*((out,) if isinstance(out, torch.Tensor) else out for out in (fast, plain))):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@on_devices
def test_bordering_item_by_item_equals_the_plain_twin(device: str, monkeypatch: pytest.MonkeyPatch):
    """Rows move as a matrix grows, in programs that run side by side: every step of many matrices is compared."""
    if not runtime.usable(torch.device(device)):
        pytest.skip("no Triton for this device")
    count, most = (5000, runtime.LARGEST_MATRIX) if device == "cuda" else (2, 18)
    fast = [torch.zeros(count, 2, most, most, dtype=torch.float64, device=device) for _ in range(2)]
    plain = [part.clone() for part in fast]
    for n in range(1, most + 1):
        parts, squares = numbers(count, 4, n, seed=n, device=device), numbers(count, 4, n, seed=100 + n, device=device)
        parts[:, 0, n - 1] += 20
        results = [_bordered(*fast, parts, squares)]
        with monkeypatch.context() as patch:
            patch.setattr(runtime, "usable", lambda _: False)
            results.append(_bordered(*plain, parts, squares))
        for one, other in zip(*results):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@on_devices
def test_fused_proposals_equal_plain_ones(device: str, monkeypatch: pytest.MonkeyPatch):
    if not runtime.usable(torch.device(device)):
        pytest.skip("no Triton for this device")
    streams = Streams(np.array([2**63 + 12345, 2**64 - 7], np.uint64), torch.device(device))
    leverage = numbers(74, device=device).abs()  # two tables of 37 rows
    alias = torch.cat([torch.arange(36, -1, -1, device=device), torch.arange(73, 36, -1, device=device)])
    table = AliasTable(leverage.clamp(max=1), alias, leverage, 37)
    samples = torch.arange(2**33, 2**33 + 5, device=device)
    starts = torch.tensor([0, 37, 37, 0, 37], device=device)
    fast = propose(table, starts, *streams.counters(samples), 3, 2, 24)
    assert ((fast[0] >= 37) == (starts == 37)[:, None]).all()
    monkeypatch.setattr(runtime, "usable", lambda _: False)
    for one, other in zip(fast, propose(table, starts, *streams.counters(samples), 3, 2, 24)):
        assert torch.equal(one, other)
    parts = [
        propose(table, starts, *streams.counters(samples), 3, first, count)[0] for first, count in ((2, 10), (12, 14))
    ]
    assert torch.equal(torch.cat(parts, 1), fast[0])  # how many are proposed at a time changes nothing


@on_devices
def test_samples_are_the_same_without_sides(device: str, monkeypatch: pytest.MonkeyPatch):
    """Proposals that are rejected by the leverage that items leave over would be rejected anyway."""
    kernel, drawn = make_kernel(300, 40, rng=0), []
    for most in (64, 0):
        monkeypatch.setattr(exact_engine, "SIDES_UP_TO", most)
        sampler = on(device, Exact.prepare(kernel, size=15))
        assert (sampler.engine.circles.diagonal is None) == (most == 64)
        assert sampler.engine.route == ("nodes" if most == 64 else "ring")
        drawn.append(sampler.sample(60, rng=1))
    assert drawn[0].baskets.to_lists() == drawn[1].baskets.to_lists()
    np.testing.assert_array_equal(drawn[0].info["proposals"], drawn[1].info["proposals"])


@on_devices
def test_how_many_are_judged_together_changes_nothing(device: str, monkeypatch: pytest.MonkeyPatch):
    """Two are judged together, then more; or all at once."""
    monkeypatch.setattr(exact_engine, "SIDES_UP_TO", 0)
    drawn, calls, judge = [], [], Group.probabilities
    for judged in (0.01, 100.0):
        monkeypatch.setattr(proposals, "JUDGED_FACTOR", judged)
        sampler = on(device, Exact.prepare(make_kernel(300, 40, rng=0), size=15))
        sampler.engine.planner.schedule(15)
        monkeypatch.setattr(Group, "probabilities", lambda *args: calls.append(args[1].shape[1]) or judge(*args))
        drawn.append(sampler.sample(30, rng=1))
        monkeypatch.setattr(Group, "probabilities", judge)
    assert {2, 4, 8} <= set(calls)
    assert drawn[0].baskets.to_lists() == drawn[1].baskets.to_lists()


@on_devices
@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_no_probability_exceeds_its_bound(case: Case, device: str, monkeypatch: pytest.MonkeyPatch):
    """The bounds of every item, along whole samples; and a fifth of the ceiling is too low for some."""
    monkeypatch.setattr(exact_engine, "SIDES_UP_TO", 0)
    monkeypatch.setattr(group_module, "ceiling_pays", lambda *args: True)
    exceeded, most = [], max(oracles.possible_sizes(case.L))
    engine = on(device, Exact.prepare(case.kernel, size=most)).engine if most else None
    if engine is None or engine.circles.diagonal is None:
        pytest.skip("has no items, or hardly any eigenvectors")
    judge = Group.probabilities

    def judge_and_compare(group: Group, rows: torch.Tensor, which: torch.Tensor | None) -> torch.Tensor:
        values, bounds = judge(group, rows, which), group.bounds(rows, which) if group.n else None
        if bounds is not None:
            good = group.trusted if which is None else group.trusted[which]
            assert (values <= bounds + 1e-7)[good].all()
            assert group.ceiling_factor is not None
            factor = group.ceiling_factor if which is None else group.ceiling_factor[which]
            lower = group.state.bounds(rows, factor / 5, group._places(which), group.n)
            exceeded.append(bool((values > lower + 1e-7)[good].any()))
        return values

    monkeypatch.setattr(Group, "probabilities", judge_and_compare)
    for _ in conditional_laws(engine, case.kernel, most, 4):
        pass
    assert any(exceeded) or most == 1


@on_devices
def test_a_ceiling_that_is_too_low_is_noticed(device: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exact_engine, "SIDES_UP_TO", 0)
    kernel, factor = make_kernel(300, 40, rng=0), Group._ceiling_factor
    expected = on(device, Exact.prepare(kernel, size=6)).sample(40, rng=1)
    assert expected.info["on_cpu"].sum() == 0
    monkeypatch.setattr(Group, "_ceiling_factor", lambda *args: None if factor(*args) is None else factor(*args) / 5)
    assert on(device, Exact.prepare(kernel, size=6)).sample(40, rng=1).info["on_cpu"].any()


@on_devices
def test_a_kernel_with_hardly_any_eigenvectors_stores_sides(device: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exact_engine, "SIDES_UP_TO", 0)
    X = np.linalg.qr(np.random.default_rng(0).standard_normal((9, 2)))[0]
    kernel = LowRankKernel(X, np.array([[1.0, 1.0], [-1.0, 3.0]]))  # a Jordan block
    sampler = on(device, Exact.prepare(kernel, size=2))
    assert sampler.engine.circles.diagonal is None
    goodness.assert_law(sampler.sample(DRAWS, rng=1).baskets, oracles.enumerate_law(X @ kernel.W @ X.T, size=2))


@on_devices
def test_scaling_the_kernel_changes_no_draw(device: str):
    kernel = BY_NAME["generic"].kernel
    draws = [
        on(device, Exact.prepare(LowRankKernel(kernel.X, scale * kernel.W), size=3)).sample(20, rng=4)
        for scale in (1.0, 2.0**-600, 2.0**600)
    ]
    assert draws[0].baskets == draws[1].baskets == draws[2].baskets
