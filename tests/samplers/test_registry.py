"""The registry says what samplers are: each claim is held against the sampler itself, and against the tables made from it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import ndpp.samplers
from kernels import BY_NAME
from ndpp import LowRankKernel
from ndpp.errors import ImpossibleSizeError, InvalidInputError, NDPPError
from ndpp.samplers import FromFunction, SpanningTrees, registry
from ndpp.samplers.base import Sampler
from ndpp.samplers.registry import SAMPLERS, Request, SetSizes

ROOT = Path(__file__).resolve().parents[2]
every_sampler = pytest.mark.parametrize("spec", SAMPLERS, ids=lambda spec: spec.name)


def test_every_sampler_of_the_package_is_there_once():
    exported = {value for name in ndpp.samplers.__all__ if isinstance(value := getattr(ndpp.samplers, name), type)}
    classes = {cls for spec in SAMPLERS for cls in (spec.cls, spec.any_size_cls, *spec.other_laws) if cls}
    others = {Sampler, FromFunction, SpanningTrees}  # the last two take no kernel
    assert {cls for cls in exported if issubclass(cls, Sampler)} - others == classes
    ups = {cls for cls in exported if hasattr(cls, "prepare") and not issubclass(cls, Sampler)}
    assert {type(spec.up) for spec in SAMPLERS if spec.up is not None} == ups
    for field in ("name", "label", "expression", "summary"):
        values = [getattr(spec, field) for spec in SAMPLERS]
        assert len(set(values)) == len(values)
        assert all(values)


def test_names_are_made_of_the_classes():
    assert (registry.WALK.label, registry.WALK.expression) == ("Walk(DirectUp)", "Walk(up=DirectUp())")
    assert (registry.CLOCK.label, registry.CLOCK.expression) == ("Clock", "Clock")
    assert registry.WALK.law == "size k (`RandomSize`: any)"
    assert registry.EXACT.law == "size k, or any"


@every_sampler
@pytest.mark.parametrize("size", [None, 2])
def test_sizes_are_those_it_draws(spec, size):
    """What it is said to draw it draws, with the class that is named."""
    if not spec.draws(size):
        assert spec.sizes is (SetSizes.ANY if size else SetSizes.FIXED)
        return
    sampler = spec.prepare(BY_NAME["generic"].kernel, Request(size, steps=1))
    assert type(sampler) is (spec.cls if size or spec.any_size_cls is None else spec.any_size_cls)
    assert getattr(sampler, "size", None) == size
    assert hasattr(sampler, "step") == (spec.is_chain and size is not None)
    if size is not None:
        with pytest.raises(ImpossibleSizeError):
            spec.prepare(BY_NAME["generic"].kernel, Request(99))


@every_sampler
def test_given_items_are_in_where_they_are_taken(spec):
    sampler = spec.prepare(BY_NAME["generic"].kernel, Request(3 if spec.draws(3) else None, given=[5], steps=1))
    held = all(5 in basket for basket in sampler.sample(30, rng=0).baskets)
    assert held == spec.takes_given


@every_sampler
def test_settings_of_chains_arrive(spec):
    size = 3 if spec.draws(3) else None
    kernel = BY_NAME["generic"].kernel
    one, three = (spec.prepare(kernel, Request(size, steps=steps)).sample(1, rng=0).info for steps in (1, 3))
    assert (one.get("steps", 0), three.get("steps", 0)) == ((1, 3) if spec.is_chain else (0, 0))
    if spec.is_chain:
        start = spec.prepare(kernel, Request(size, steps=0, start="greedy")).sample(5, rng=0).baskets
        assert start.to_lists() == [sorted(ndpp.greedy_map(kernel, 3).tolist())] * 5


def test_settings_of_rejection_arrive():
    kernel = BY_NAME["generic"].kernel
    with pytest.raises(NDPPError, match="max_proposals"):
        registry.REJECTION.prepare(kernel, Request(4, max_proposals=1.0))


@every_sampler
def test_what_serves_every_kernel_is_offered(spec):
    large = LowRankKernel(np.random.default_rng(0).standard_normal((600, 3)), np.eye(3))
    skewed = BY_NAME["generic"].kernel
    request = Request(2 if spec.draws(2) else None, steps=0)
    if spec.max_items is not None:
        with pytest.raises(InvalidInputError, match=f"at most {spec.max_items} items"):
            spec.prepare(large, request)
        spec.prepare(LowRankKernel(np.eye(spec.max_items, 3), np.eye(3)), request)
    else:
        assert spec.is_offered
        spec.prepare(skewed, request)


def test_where_a_gpu_draws():
    assert [spec.name for spec in SAMPLERS if spec.on_gpu] == ["exact"]


def test_names_are_found_and_others_refused():
    assert registry.find("clock") is registry.CLOCK
    with pytest.raises(InvalidInputError, match=r"no sampler 'gibbs'; choose from exact, walk, .*naive"):
        registry.find("gibbs")
    assert [spec.name for spec in registry.offered(None)][-2:] == ["cholesky", "clock"]


@pytest.mark.parametrize(("page", "cells"), [("README.md", (0, 1, 2, 3)), ("docs/theory.md", (0, 1, 2, 5))])
def test_tables_of_the_documentation_are_those_of_the_registry(page, cells):
    """``python experiments/publish/figures.py`` writes them."""
    rows = [line.strip("| ").split(" | ") for line in (ROOT / page).read_text().splitlines() if line.startswith("| `")]
    found = {tuple(cell.strip() for cell in (row[i] for i in cells)) for row in rows if len(row) > max(cells)}
    for spec in SAMPLERS:
        name = f"`{spec.expression}`" + f", {spec.remark}" * bool(spec.remark)
        assert ((name, spec.law, "yes" if spec.exact else "no", spec.cost) in found) == spec.pictured


def test_every_field_is_documented():
    for cls, fields in ((registry.SamplerSpec, dataclasses.fields(registry.SamplerSpec)), (Request, Request._fields)):
        documented = re.findall(r"^    (\w+): .*  #: [A-Z].*\.$", inspect.getsource(cls), re.MULTILINE)
        assert documented == [getattr(field, "name", field) for field in fields]
