"""Which engine draws the samples of which sampler."""

from __future__ import annotations

import torch

from ndpp.samplers.base import Engine, Sampler
from ndpp.samplers.exact import Exact
from ndpp.samplers.gpu.components import ComponentEngine, UnionEngine
from ndpp.samplers.gpu.exact import ExactEngine
from ndpp.samplers.gpu.families import FamilyEngine
from ndpp.samplers.gpu.mixture import TiedEngine
from ndpp.samplers.laws import ComponentSource, FamilySource, KernelSets, LawSampler, TiedSource
from ndpp.samplers.unions import SizedUnion


def prepare(sampler: Sampler, device: torch.device) -> Engine | None:
    """Return the engine that draws the samples of a prepared sampler on a device; None if there is nothing to draw."""
    if isinstance(sampler, Exact):
        return ExactEngine.prepare(sampler, device)
    assert isinstance(sampler, LawSampler)
    source = sampler.store.make
    if isinstance(source, TiedSource):
        return TiedEngine.prepare(sampler, device)
    if isinstance(source, FamilySource):
        return FamilyEngine.prepare(sampler, device)
    if isinstance(source, ComponentSource):
        return ComponentEngine(sampler)
    assert isinstance(source, KernelSets)
    assert isinstance(source.proposal, SizedUnion)
    return UnionEngine.prepare(sampler, source.proposal)
