"""Mixtures over families on a GPU. The engine runs on CPU tensors here, and on a CUDA device where there is one (marker ``gpu``)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[gpu]'")

import torch

import goodness
from devices import drawn_by, on_devices
from families import CASES, N, law_of, mixed, plain
from ndpp import FamilyMixture
from ndpp.samplers.gpu import laws
from ndpp.samplers.gpu.laws import TiedEngine

on = partial(drawn_by, laws)
DRAWS = 800


@on_devices
@pytest.mark.parametrize("name", ["several", "one family", "zero odds", "in nearly every basket"])
def test_sets_of_any_size(name: str, device: str):
    goodness.assert_law(on(device, law_of(name).sampler()).sample(DRAWS, rng=1).baskets, mixed(name))


@on_devices
@pytest.mark.parametrize("name", ["several", "one family", "zero odds"])
def test_sets_of_one_size(name: str, device: str):
    size = 2 if name in ("zero odds", "one family") else 4
    draws = on(device, law_of(name).sampler(size=size)).sample(DRAWS, rng=2)
    goodness.assert_law(draws.baskets, mixed(name, lambda S: len(S) == size))
    assert (draws.info["rejections"] == draws.info["proposals"] - 1).all()


@on_devices
@pytest.mark.parametrize(("given", "exclude", "size"), [((2, 0), (4,), None), ((3,), (0,), 3)])
def test_given_and_excluded_items(given: tuple[int, ...], exclude: tuple[int, ...], size: int | None, device: str):
    sampler = law_of("several").exclude(exclude).sampler(given=given, size=size)
    expected = mixed("several", lambda S: set(given) <= set(S) and not set(exclude) & set(S) and size in (None, len(S)))
    goodness.assert_law(on(device, sampler).sample(DRAWS, rng=3).baskets, expected)


@on_devices
def test_nothing_left_to_draw(device: str):
    for sampler, expected in (
        (law_of("several").sampler(given=range(N)), list(range(N))),
        (law_of("several").sampler(exclude=range(N)), []),
    ):
        assert on(device, sampler).sample(2, rng=0).baskets.to_lists() == [expected] * 2


@on_devices
@pytest.mark.parametrize("size", [None, 3])
def test_sample_i_depends_on_the_seed_and_i_alone(size: int | None, device: str, monkeypatch: pytest.MonkeyPatch):
    """Not on batches, nor on which families are drawn together."""
    sampler = law_of("several").sampler(size=size)
    whole = on(device, sampler).sample(30, rng=8).baskets.to_lists()
    assert on(device, sampler, 7).sample(30, rng=8).baskets.to_lists() == whole
    assert on(device, sampler).sample(10, rng=8, first=20).baskets.to_lists() == whole[20:]
    assert on(device, sampler).sample(30, rng=9).baskets.to_lists() != whole
    monkeypatch.setattr(laws, "MAX_ENTRIES", 9)
    monkeypatch.setattr(laws, "GROWTH", 100)
    together = on(device, sampler)
    assert [items.shape[1] for _, items in together.engine.patterns.members] == [1, 3]
    assert together.sample(30, rng=8).baskets.to_lists() == whole


@on_devices
def test_many_families_of_many_widths(device: str):
    """Inclusion probabilities of a mixture too large to enumerate."""
    rng = np.random.default_rng(0)
    families = np.repeat(np.arange(40), rng.integers(1, 9, size=40))
    states, n = np.repeat(np.arange(40), 2), len(families)
    X, W = rng.normal(size=(40, 8)) / 3, np.kron(np.eye(4), [[0.2, 1.0], [-1.0, 0.2]])
    law = FamilyMixture(
        rng.gamma(0.5, 0.2, (5, 80)), rng.gamma(0.5, 1.0, (n, 2)), families, states, X, W, np.full(5, 0.2)
    )
    sampler = on(device, law.sampler())
    assert len(sampler.engine.patterns.members) == 3
    draws = sampler.sample(2000, rng=6)
    chances, held = law.inclusion_probabilities(), np.zeros((2000, n))
    held[np.repeat(np.arange(2000), draws.baskets.sizes), draws.baskets.indices] = 1
    goodness.assert_mean(held @ chances, chances @ chances)
    goodness.assert_mean(draws.baskets.sizes.astype(float), chances.sum())


def test_the_road_from_a_law_to_its_engine():
    assert isinstance(laws.prepare(law_of(next(iter(CASES))).sampler(), torch.device("cpu")), TiedEngine)


def test_control_a_family_that_is_touched_shows_an_item(monkeypatch: pytest.MonkeyPatch):
    """Items of the families drawn without the condition that there is one follow another distribution."""
    monkeypatch.setattr(laws, "look_up_cdf", lambda cdf, u: (cdf <= u).sum(1, keepdim=True).clamp(max=cdf.shape[1] - 1))
    with pytest.raises(AssertionError):
        goodness.assert_law(on("cpu", law_of("several").sampler()).sample(DRAWS, rng=1).baskets, mixed("several"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("options", [{}, {"component": 1}])
def test_without_a_gpu_a_warning_and_the_cpu(options: dict[str, int]):
    law = law_of("several")
    with pytest.warns(RuntimeWarning, match="finds no CUDA device"):
        draws = law.sample(5, rng=0, device="cuda", **options)
    assert draws == law.sample(5, rng=0, **options)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_by_name():
    goodness.assert_law(law_of("several").sample(DRAWS, component=1, rng=4, device="cuda"), plain("several")[0][1])
