"""Samplers behind one interface: ``prepare`` pays what depends on the kernel alone, ``sample`` draws."""

from ndpp.samplers.base import Draw, Draws, Sampler
from ndpp.samplers.exact import Exact

__all__ = ["Draw", "Draws", "Exact", "Sampler"]
