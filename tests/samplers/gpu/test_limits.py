"""Limits on a GPU. The engines run on CPU tensors here, and on a CUDA device where there is one (marker ``gpu``)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[gpu]'")

import torch

import ndpp
from devices import drawn_by, on_devices
from goodness import assert_law
from law_table import KIND, KINDS, Kind
from limit_cases import CASES, EVEN, Case, entry_of, is_possible, law_under
from ndpp import Baskets, Limit
from ndpp.errors import BudgetExceededError
from ndpp.samplers.base import Sampler
from ndpp.samplers.gpu import laws, limits
from ndpp.samplers.gpu.limits import LimitedEngine
from ndpp.samplers.kernels import ComponentSamplers

on = partial(drawn_by, laws)
DRAWS = 600
SHARED = [KIND["tied mixture"], KIND["families"]]
MET = [(kind, case) for kind in SHARED for case in CASES if is_possible(kind, case)]
TOTAL, GIVEN = CASES[3], CASES[6]


@pytest.fixture(autouse=True)
def _always_tilted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ndpp.samplers.limited_ties.MIN_LIMIT_ACCEPTANCE", np.inf)
    monkeypatch.setattr("ndpp.samplers.limited_ties.MAX_PROPOSAL_RATIO_GIVEN", 1.05)


def check(sampler: Any, law: dict[tuple[int, ...], float], n: int = DRAWS) -> None:
    """Judge draws, together with as many again while they are too few to see an error."""
    draws = sampler.sample(n, rng=1)
    assert (draws.info["rejections"] == draws.info["proposals"] - 1).all()
    drawn = draws.baskets
    while True:
        try:
            return assert_law(drawn, law)
        except ValueError:
            drawn = Baskets.concat([drawn, sampler.sample(n, rng=1, first=len(drawn)).baskets])


@on_devices
@pytest.mark.parametrize(("kind", "case"), MET[::2], ids=str)
def test_samples_follow_the_law_under_limits(kind: Kind, case: Case, device: str):
    entry = entry_of(kind)
    sampler = on(device, entry.law.sampler(limits=case.limits, **case.options))
    assert isinstance(sampler.engine, LimitedEngine)
    check(sampler, law_under(entry.truth, case))


@on_devices
@pytest.mark.parametrize("kind", [KIND["kernel"], KIND["symmetric kernel"]], ids=str)
def test_kernels_draw_with_engines_of_their_own(kind: Kind, device: str):
    entry = entry_of(kind)
    sampler = entry.law.sampler(limits=TOTAL.limits)

    class WithEngines(ComponentSamplers):
        def __getitem__(self, c: int) -> Sampler:
            return on(device, super().__getitem__(c))

    with_engines = WithEngines(sampler.drawers.laws, sampler.drawers.asked)
    check(on(device, replace(sampler, drawers=with_engines)), law_under(entry.truth, TOTAL))


@on_devices
@pytest.mark.parametrize("kind", [KIND["kernel with background"], KIND["mixture"]], ids=str)
def test_components_without_an_engine_are_drawn_on_the_cpu(kind: Kind, device: str):
    entry = entry_of(kind)
    check(on(device, entry.law.sampler(limits=TOTAL.limits)), law_under(entry.truth, TOTAL), 200)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_device_of_law_sampler(kind: Kind):
    entry = entry_of(kind)
    sampler = entry.law.sampler(limits=GIVEN.limits, device="cuda", **GIVEN.options)
    assert isinstance(sampler.engine, LimitedEngine)
    check(sampler, law_under(entry.truth, GIVEN))


@on_devices
@pytest.mark.parametrize("kind", SHARED, ids=str)
def test_sample_i_depends_on_the_seed_and_i_alone(kind: Kind, device: str):
    sampler = entry_of(kind).law.sampler(limits=[Limit(EVEN, 1, 1)], given=[1])
    whole = on(device, sampler).sample(30, rng=8).baskets.to_lists()
    assert on(device, sampler, 7).sample(30, rng=8).baskets.to_lists() == whole
    assert on(device, sampler).sample(10, rng=8, first=20).baskets.to_lists() == whole[20:]
    assert on(device, sampler).sample(30, rng=9).baskets.to_lists() != whole
    assert all(1 in items and len(set(items) & set(EVEN)) == 1 for items in whole)


@pytest.mark.parametrize("kind", SHARED, ids=str)
def test_leaving_out_the_acceptance_factor_is_seen(kind: Kind):
    entry, case = entry_of(kind), Case("at least four", [Limit(range(6), least=4)])
    sampler = on("cpu", entry.law.sampler(limits=case.limits))
    assert sampler.engine.theta.abs().max() > 0.1
    sampler.engine.theta = 0 * sampler.engine.theta
    with pytest.raises(AssertionError):
        assert_law(sampler.sample(4 * DRAWS, rng=1).baskets, law_under(entry.truth, case))


def test_nothing_left_to_draw():
    law = entry_of(KIND["tied mixture"]).law
    sampler = on("cpu", law.sampler(limits=[Limit(EVEN, 3, 3)], given=range(6)))
    assert sampler.engine is None
    assert sampler.sample(2, rng=0).baskets.to_lists() == [list(range(6))] * 2


def test_too_many_proposals_are_refused_with_their_number(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)
    mixture = ndpp.Mixture.tied(np.full((2, 200), 0.5), rng.normal(size=(200, 2)) / 20, np.eye(2), [0.5, 0.5])
    groups = [Limit(range(10 * g, 10 * g + 10), 3, 3, name=f"group {g}") for g in range(20)]
    sampler = on("cpu", mixture.sampler(limits=groups), 4096)
    with pytest.raises(
        BudgetExceededError, match=r"about \d.*e\+\d+ proposals each, above 10000; .*'group \d+'.*Widen it"
    ):
        sampler.sample(2, rng=0)
    monkeypatch.setattr(limits, "MAX_LIMITED_PROPOSALS", 2)
    with pytest.raises(BudgetExceededError, match="none of them accepted"):
        sampler.sample(2, rng=0)
