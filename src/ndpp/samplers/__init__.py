"""Samplers behind one interface: ``prepare`` computes what depends on the kernel alone, ``sample`` draws."""

from typing import TYPE_CHECKING

from ndpp.samplers.base import Draw, Draws, Engines, Monitor, Sampler
from ndpp.samplers.cholesky import Cholesky
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.from_function import FromFunction
from ndpp.samplers.naive import Naive
from ndpp.samplers.proposer import Proposer
from ndpp.samplers.rejection import Rejection
from ndpp.samplers.trees import SpanningTrees
from ndpp.samplers.walk import DirectUp, NaiveUp, RandomSize, RejectionUp, Walk

__all__ = [
    "Cholesky",
    "Clock",
    "DirectUp",
    "Draw",
    "Draws",
    "Exact",
    "FromFunction",
    "Monitor",
    "Naive",
    "NaiveUp",
    "Proposer",
    "RandomSize",
    "Rejection",
    "RejectionUp",
    "Sampler",
    "SpanningTrees",
    "Walk",
]

if TYPE_CHECKING:
    import torch

    from ndpp.samplers.base import Engine


def _prepare_engine(sampler: Sampler, device: "torch.device") -> "Engine | None":
    """Prepare the engine of a sampler on a device; torch is imported on first use."""
    from ndpp.samplers.gpu.laws import prepare

    return prepare(sampler, device)


Engines.prepare = staticmethod(_prepare_engine)
