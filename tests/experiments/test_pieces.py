"""The parts of the experiments: synthetic kernels, tight pairs, stored draws, timing, records."""

from __future__ import annotations

import json
import subprocess
import warnings
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from ndpp import Baskets, LowRankKernel
from ndpp.datasets import make_kernel
from ndpp.errors import InvalidInputError, TrainingInterruptedWarning
from ndpp.laws import support
from ndpp.samplers import Exact, Rejection, RejectionUp, Walk, registry
from ndpp_experiments import (
    bench,
    beyond,
    fig2,
    kernels,
    map_init,
    record,
    samplers_timed,
    stored_draws,
    table1,
    table2,
    timing,
)
from ndpp_experiments.chains import run_chains
from ndpp_experiments.claims import CLAIMS, Claim, verdicts
from ndpp_experiments.enumerated import enumerate_walk
from ndpp_experiments.record import Finding, Result
from ndpp_experiments.samplers_timed import SamplerTime, time_samplers
from ndpp_experiments.timing import draw_times, step_times, timed
from ndpp_experiments.tree import Tree


class Record(NamedTuple):
    n: float


ABOUT = {"quick": True, "seed": 3, "seconds": 1.0, "machine": record.machine()}


@pytest.mark.parametrize("steps", [1, 5, 40])
def test_pairs_of_the_start_are_kept_as_the_formula_says(steps):
    kernel, size = beyond.pair_kernel(5, epsilon=1e-4), 4
    walk = enumerate_walk(kernel, size)
    law = walk.after(steps, walk.at(np.arange(4)))
    there = (walk.masks & 0b11) == 0b11
    assert law[there].sum() == pytest.approx(beyond.pair_remains(steps, size, 5), abs=1e-5)


def test_greedy_and_uniform_starts_need_a_known_number_of_steps():
    walk = enumerate_walk(make_kernel(7, 4, rng=0), 3)
    for bound in (0.3, 0.05):
        t = map_init.steps_below(walk, bound)
        off = [0.5 * np.abs(walk.after(s) - walk.law).sum() for s in (t - 1, t)]
        assert off[1] <= bound < off[0]


def test_chains_are_looked_at_after_the_steps_that_were_asked_for():
    walk = Walk.prepare(make_kernel(12, 6, rng=0), size=3)
    looks = run_chains(walk, 5, [0, 2, 7], seed=1)
    again = run_chains(walk, 5, [0, 1, 2, 7], seed=1)
    for a, b in ((0, 0), (1, 2), (2, 3)):
        assert looks[a] == again[b]
    starts = Baskets.from_lists([[0, 1, 2]] * 5, n_items=12)
    assert run_chains(walk, 5, [0], seed=1, starts=starts)[0] == starts


@pytest.mark.parametrize("orthogonal", [False, True])
def test_synthetic_kernels_have_their_sizes_and_constraints(orthogonal):
    data = kernels.DataSet("small", 80, 5.0, "")
    kernel = kernels.synthetic(data, 12, orthogonal=orthogonal, seed=0)
    law = kernel.size_distribution()
    assert law @ np.arange(len(law)) == pytest.approx(5.0)
    if orthogonal:
        V, B = kernel.X[:, :6], kernel.X[:, 6:]
        np.testing.assert_allclose(B.T @ B, np.eye(6), atol=1e-12)
        np.testing.assert_allclose(V.T @ B, 0, atol=1e-12)
        sigma = kernel.W[6:, 6:][range(0, 6, 2), range(1, 6, 2)]
        expected = np.prod(1 + 2 * sigma / (1 + sigma**2))  # Han et al., ICLR 2022
        assert Rejection.prepare(kernel).expected_proposals == pytest.approx(expected)


def test_kernels_are_read_from_the_folder_of_data(tmp_path, monkeypatch):
    (tmp_path / "kernels").mkdir()
    made = make_kernel(9, 4, rng=0)
    np.savez(tmp_path / "kernels" / "uk_retail_A.npz", X=made.X, W=made.W)
    monkeypatch.setenv("NDPP_DATA", str(tmp_path))
    found = kernels.learned_file("uk_retail_A")
    assert isinstance(found, LowRankKernel)
    assert found.n_items == 9
    assert kernels.learned_file("uk_retail_B") is None
    monkeypatch.delenv("NDPP_DATA")
    assert kernels.learned_file("uk_retail_A") is None


@pytest.fixture
def mini(tmp_path, monkeypatch, short_epochs):
    """A data set small enough to learn from in a test, and an empty cache."""
    pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")
    (tmp_path / "mini.baskets").write_text("0 1\n1 2\n0 1 2\n3\n" * 30)
    monkeypatch.setenv("NDPP_DATA", str(tmp_path))
    monkeypatch.setattr(kernels, "RANK", 4)
    monkeypatch.setattr(kernels, "cache_folder", lambda: tmp_path / "cache")
    return kernels.DataSet("Recipe", 4, 2.0, "mini", gammas=(0.1, 0.5), penalties=(0.03, 0.2), n_test=20)


def test_kernels_are_learned_once(mini, monkeypatch):
    said = []
    row, *_ = kernels.rows(mini, orthogonal=True)
    first = kernels.learn(row, seed=0, say=said.append)
    assert [text.split(" in ")[0] for text in said] == [
        "Recipe: learning an ONDPP from 120 baskets on cpu, once; this takes minutes to hours", "Recipe: learned"
    ]  # fmt: skip
    assert [file.name for file in first.parent.iterdir()] == ["mini-ondpp-4-0.safetensors"]  # no checkpoint is left
    named, other = kernels._learned(mini, orthogonal=True, seed=0, say=said.append)
    assert len(said) == 4  # another weight, another kernel
    assert (named.name, other.name) == ("learned, n = 4, γ = 0.1", "learned, n = 4, γ = 0.5")
    assert (first.parent / "mini-ondpp-4-0-gamma-0.5.safetensors").is_file()
    assert named.origin.startswith("ONDPP of `mini`, γ = 0.1, ")
    monkeypatch.delenv("NDPP_DATA")
    assert kernels.learn(row, seed=0, say=said.append) == first  # a file needs no baskets
    assert kernels.learn(row, seed=1, say=said.append) is None


def test_the_papers_recipe_is_another_row(mini, monkeypatch):
    said = []
    monkeypatch.setattr(kernels, "N_VALIDATION", 20)
    monkeypatch.setattr(kernels, "PAPER", (mini,))
    *_, row = kernels.rows(mini, orthogonal=True)
    assert row.file(0) == "mini-ondpp-4-0-published.safetensors"
    assert {name: row.settings[name] for name in ("alpha", "beta", "gamma")} == {
        "alpha": 0.03,
        "beta": 0.03,
        "gamma": 0.2,
    }
    assert kernels.learn(row, seed=0, say=said.append) is None  # learned elsewhere
    assert kernels.missing(orthogonal=True, seed=0) == ["Recipe"]
    kernels.cache_folder().mkdir()
    about = kernels.fit(row, kernels.cache_folder() / row.file(0), seed=0, say=said.append, max_epochs=7, rank=4)
    assert (about["epochs"], about["n_train"]) == (7, 80)
    assert kernels.missing(orthogonal=True, seed=0) == []
    *_, named = kernels._learned(mini, orthogonal=True, seed=0, say=said.append)
    assert named.name == "learned, n = 4, γ = 0.2, the paper's recipe"
    assert named.origin.startswith("ONDPP of `mini`, the paper's recipe, γ = 0.2, 7 steps")
    assert np.allclose(named.kernel.X[:, 2:].T @ named.kernel.X[:, 2:], np.eye(2))


def test_learning_that_is_interrupted_goes_on(mini, monkeypatch):
    from ndpp.learning import NDPP

    fit = NDPP.fit

    def interrupted(self, *args, **more):
        fit(self, *args, **more)
        warnings.warn("training was interrupted", TrainingInterruptedWarning, stacklevel=1)

    row, _ = kernels.rows(mini, orthogonal=False)
    monkeypatch.setattr(NDPP, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kernels.learn(row, seed=0, say=lambda text: None)
    (left,) = kernels.cache_folder().iterdir()
    assert left.suffix == ".checkpoint"
    monkeypatch.setattr(NDPP, "fit", fit)
    path = kernels.learn(row, seed=0, say=lambda text: None)
    assert list(kernels.cache_folder().iterdir()) == [path]


def test_draws_are_kept_and_not_made_again(tmp_path, monkeypatch):
    kernel, file = make_kernel(8, 6, rng=0), tmp_path / "cache" / "draws.npy"
    sampler, other = Exact.prepare(kernel, size=3), Exact.prepare(make_kernel(8, 6, rng=1), size=3)
    monkeypatch.setattr(stored_draws, "BLOCK", 40)
    monkeypatch.setattr(stored_draws, "PROBE", 10)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    whole = stored_draws.masks_of(sampler.sample(100, rng=5).baskets)
    heard = []
    assert np.array_equal(stored_draws.draw_masks(sampler, 50, seed=5, file=file), whole[:50])
    assert np.array_equal(stored_draws.draw_masks(sampler, 100, seed=5, file=file, say=heard.append), whole)
    assert heard == [90, 100]  # the first fifty were there
    assert np.array_equal(stored_draws.draw_masks(sampler, 30, seed=5, file=file), whole[:30])
    assert len(np.load(file)) == 100  # asking for fewer loses none
    drawn = stored_draws.draw_masks(other, 60, seed=5, file=file)
    assert np.array_equal(drawn, stored_draws.masks_of(other.sample(60, rng=5).baskets))  # another sampler begins anew


def test_timed_calls_as_often_as_it_must():
    seen = []
    assert timed(seen.append, seconds=0.0, least=4).calls == 4
    assert seen == [0, 1, 2, 3]


def test_preparing_takes_the_least_of_its_times(monkeypatch):
    ticks = iter([0.0, 5.0, 5.0, 6.0, 6.0, 9.0])
    monkeypatch.setattr(timing, "clock", lambda: next(ticks))
    assert timing.prepared(lambda: "made", repeats=3) == ("made", 1.0)


def test_times_are_of_the_thread_and_of_the_clock(monkeypatch):
    cpu, clock = iter([0.0, 1.0, 1.0, 4.0]), iter([0.0, 0.0, 2.0, 2.0, 2.0, 7.0, 7.0])
    monkeypatch.setattr(timing, "clock", lambda: next(cpu))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    found = timed(lambda i: None, seconds=6.0, least=1)  # at 7 the six seconds are over
    assert found == timing.Times(2.0, 1.0, 3.5, 2.0, 2)
    assert found.scaled(10) == timing.Times(20.0, 10.0, 35.0, 20.0, 2)


def test_whole_calls_grow_until_they_are_long_enough(monkeypatch):
    now, asked = [0.0], []

    class Slow:
        def sample(self, count, *, rng, first):
            asked.append((count, first))
            now[0] += count * 0.25

    monkeypatch.setattr(timing.time, "thread_time", lambda: 0.0)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    times, draws = timing.sample_times(Slow(), seed=0, seconds=10.0)
    assert asked[:4] == [(1, 0), (1, 0), (2, 0), (4, 0)]  # one to compile; 4 take a tenth of ten seconds
    assert asked[4:] == [(4, 4 * i) for i in range(8)]  # the eight seconds that are left
    assert (times.wall, draws) == (0.25, 32)
    assert timing.sample_times(Slow(), seed=0, seconds=0.1)[1] == 1


def test_a_warm_up_is_cut_short_only_where_draws_take_long(monkeypatch):
    now, drawn = [0.0], []

    class Sampler:
        def draw(self, rng):
            drawn.append(now[0])
            now[0] += 1.0

    monkeypatch.setattr(timing.time, "thread_time", lambda: now[0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    assert timing.draw_times(Sampler(), seed=0, seconds=2.0, least=3, warm=12).calls == 3
    assert len(drawn) == 12 + 3  # within the limit of twenty seconds
    drawn.clear()
    timing.draw_times(Sampler(), seed=0, seconds=0.5, least=3, warm=12)
    assert len(drawn) == 6 + 3  # five seconds, and the draw under way


ARM = "Architecture: aarch64\nVendor ID:   ARM\n  Model name:  Neoverse-N1\nModel: 1\n"


@pytest.mark.parametrize(
    ("cpuinfo", "told", "name"),
    [
        ("processor\t: 0\nmodel name\t: Some Xeon\nmodel name\t: Some Xeon\n", ARM, "Some Xeon"),
        ("processor\t: 0\nBogoMIPS\t: 243.75\n", ARM, "ARM Neoverse-N1"),
        (None, "machdep.cpu.brand_string: Apple M1\n", "Apple M1"),
        ("processor\t: 0\n", None, "chip"),
    ],
)
def test_the_processor_has_a_name_on_every_machine(monkeypatch, tmp_path, cpuinfo, told, name):
    file = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        file.write_text(cpuinfo)

    def run(command, **options):
        if told is None:
            raise FileNotFoundError(command[0])
        return subprocess.CompletedProcess(command, 0, told)

    monkeypatch.setattr(record, "CPUINFO", file)
    monkeypatch.setattr(record.subprocess, "run", run)
    monkeypatch.setattr(record.platform, "processor", lambda: "chip")
    assert record.processor() == name


@pytest.mark.parametrize("changed", [{}, {"cpu": "Some Xeon"}, {"cores": 999}, {"versions": {"ndpp": "0.0.1"}}])
def test_what_another_machine_or_version_measured_is_not_added_to(tmp_path, changed):
    file, found = tmp_path / "scale.json", {"machine": record.machine() | changed, "rows": [1]}
    assert record.measured_here(file) == {}
    file.write_text(json.dumps(found))
    assert record.measured_here(file) == ({} if changed else found)


def test_a_bench_holds_all_against_the_first_that_works(monkeypatch):
    def refuses():
        raise InvalidInputError("not of this size")

    def took(sampler, *, seed, seconds):
        return timing.Times(0.0, 0.0, sampler.wall, sampler.wall, 7), 7

    def sampler(wall):
        return SimpleNamespace(wall=wall, sample=lambda count, rng: None)

    monkeypatch.setattr(bench, "sample_times", took)
    found = bench.measure({"none": refuses, "first": lambda: sampler(2.0), "slow": lambda: sampler(6.0)})
    assert [(row.sampler, row.ratio, row.note) for row in found] == [
        ("none", None, "not of this size"), ("first", 1.0, ""), ("slow", 3.0, "")
    ]  # fmt: skip


@pytest.fixture
def computed(monkeypatch):
    """The shapes of the kernels whose coordinates are computed while something is timed."""
    found, inside = [], []
    enter, leave, compute = timing.Stopwatch.__enter__, timing.Stopwatch.__exit__, support.coordinates

    def recording(X, *args, **settings):
        if inside:
            found.append(X.shape)
        return compute(X, *args, **settings)

    monkeypatch.setattr(timing.Stopwatch, "__enter__", lambda self: (inside.append(self), enter(self))[1])
    monkeypatch.setattr(timing.Stopwatch, "__exit__", lambda self, *error: (inside.pop(), leave(self, *error))[1])
    monkeypatch.setattr(support, "coordinates", recording)
    return found


def test_a_preparation_starts_from_the_factors(computed):
    """A kernel computes its coordinates when they are first needed; whoever prepares first would pay for all."""
    fig2.prepare(30, 4, 2, seed=0)
    assert len(computed) == 12  # coordinates, Exact and both trees, three times each
    computed.clear()
    table1.unit_times(make_kernel(31, 4, rng=0), 2, seed=0, seconds=0.0, only_of_size=False)
    assert computed.count((31, 4)) == 3
    computed.clear()
    kernel = make_kernel(32, 4, rng=0)
    kernel.coordinates  # noqa: B018
    bench.measure_all(kernel, 2, device="cpu", seconds=0.0, seed=0, say=lambda text: None)
    assert computed.count((32, 4)) >= len(registry.offered(2)) == 4


def test_steps_are_counted_with_their_closed_form():
    kernel = make_kernel(40, 8, rng=0)
    start = kernel.sample(1, size=4, rng=0)[0]
    walk = Walk.prepare(kernel, size=4, up=RejectionUp(), start=start)
    found = step_times(walk, start, seed=0, seconds=0.0, least=400)
    assert found.expected_proposals is not None
    assert abs(found.proposals - found.expected_proposals) < 5 * found.standard_error
    assert found.times.least <= found.times.median


@pytest.mark.parametrize(("seconds", "draws"), [(0.0, 1 + 2), (60.0, 4 + 1000)])
def test_warming_up_takes_no_longer_than_timing(monkeypatch, seconds, draws):
    sampler, made = Exact.prepare(make_kernel(30, 6, rng=0), size=2), []
    monkeypatch.setattr(Exact, "draw", lambda self, rng: made.append(rng))
    draw_times(sampler, seed=0, seconds=seconds, least=2, warm=4)
    assert len(made) == draws


@pytest.mark.parametrize("size", [3, None])
def test_a_time_for_every_sampler(size):
    kernel = make_kernel(30, 6, rng=0)
    times = list(time_samplers(kernel, Tree.prepare(kernel), size, seed=0, seconds=0.0))
    assert [time.sampler for time in times] == [spec.label for spec in registry.offered(size)]
    assert all(time.seconds > 0 for time in times)
    expected = Rejection.prepare(kernel, size=size).expected_proposals - 1
    assert times[3].rejections == pytest.approx(expected)
    law = kernel.size_distribution()
    assert times[1].steps == pytest.approx(9 if size else law @ np.arange(len(law)) ** 2)  # k², or its mean


def test_a_sampler_that_cannot_finish_is_expected_not_run(monkeypatch):
    kernel = make_kernel(30, 6, rng=0)
    monkeypatch.setattr(samplers_timed, "FEASIBLE", 0.0)
    monkeypatch.setattr(Rejection, "draw", lambda self, rng: pytest.fail("it was run"))
    time = list(time_samplers(kernel, Tree.prepare(kernel), 3, seed=0, seconds=0.0))[3]
    assert time.expected
    assert time.rejections == pytest.approx(Rejection.prepare(kernel, size=3).expected_proposals - 1)


def test_records_are_read_back_and_reported(tmp_path):
    found = [Finding("slope", "linear", "1.02", True, Claim.FLAT), Finding("error", "", "0.2", False)]
    result = Result({"n": (1, 2)}, found, {"": [Record(1)], "more": [Record(2.5)]}, notes=("A note.",))
    record.write("fig9", "Figure 9", result, tmp_path, about=ABOUT)
    assert (tmp_path / "fig9-more.csv").read_text() == "n\n2.5\n"
    back = record.read(tmp_path, "fig9")
    assert back is not None
    assert json.dumps(back["settings"]) == '{"n": [1, 2]}'
    text = record.report(tmp_path, ["fig8", "fig9"]).read_text(encoding="utf-8")
    assert "| slope | linear | 1.02 | yes |" in text
    assert "| error | – | 0.2 | **no** |" in text
    assert "A note." in text
    assert "1 of 1 on claims of the paper hold, listed below, and 0 of 1 on this library" in text
    assert "| preparation takes time linear in n | not measured in this folder |  |" in text
    assert "Seed 3, quick settings" in text


def test_a_claim_holds_only_if_everything_that_tests_it_does():
    def verdict(*held):
        findings = [Finding("", "", "", holds, claim)._asdict() for holds, claim in held]
        records = [
            {"title": "A: a", "quick": False, "findings": findings},
            {"title": "B", "quick": False, "findings": [{"holds": False}]},
            {"title": "C", "quick": True, "findings": [{"holds": False, "claim": "few"}]},
        ]
        lines = verdicts(records)
        return next(line for stated, line in zip(CLAIMS, lines) if stated.key is Claim.FEW)[2:]

    assert verdict((True, Claim.FEW), (None, Claim.FEW), (False, Claim.FLAT)) == ["holds", "A, 1 of 1"]
    assert verdict((True, Claim.FEW), (False, Claim.FEW)) == ["**does not hold**", "A, 1 of 2"]
    assert verdict((None, Claim.FEW)) == ["not measured in this folder", ""]
    assert {stated.key for stated in CLAIMS} == {None, *Claim}
    assert all(bool(stated.verdict and stated.why) is (stated.key is None) for stated in CLAIMS)


def test_the_papers_numbers_stand_beside_kernels_of_its_data_alone():
    """And what it claims of all catalogues is judged on large ones."""

    def found(n):
        times = [
            SamplerTime("UK Retail", "some", n, 9, f"k = {k}", k, sampler, seconds, rejections=4.0)
            for k, sampler, seconds in (
                (10, "Exact", 0.1), (10, "Walk(RejectionUp)", 2.0),
                (50, "Exact", 0.1), (50, "Walk(RejectionUp)", 700.0), (50, "Rejection", 1e9),
            )
        ]  # fmt: skip
        return list(table2._findings(times, table2.PAPER_TABLE))

    assert [finding.paper for finding in found(3941)][:2] == ["25.4", "7.8"]
    assert [finding.paper for finding in found(400)][:2] == ["", ""]
    assert not [finding for finding in found(400) if finding.claim]
    judged = {finding.claim: finding.holds for finding in found(3941) if finding.claim}
    assert judged == {Claim.FEW: True, Claim.MINUTES: False, Claim.INFEASIBLE: True}


def test_a_run_that_fails_leaves_the_old_record(tmp_path):
    result = Result({}, [], {"": [Record(1)]})
    record.write("fig9", "Figure 9", result, tmp_path, about=ABOUT)
    broken = Result({"x": object()}, [], {"": [Record(2)]})
    with pytest.raises(TypeError):
        record.write("fig9", "Figure 9", broken, tmp_path, about=ABOUT)
    assert record.read(tmp_path, "fig9")["settings"] == {}
    assert not list(tmp_path.glob("*.tmp"))
