"""Samplers behind one interface: ``prepare`` pays what depends on the kernel alone, ``sample`` draws."""

from ndpp.samplers.base import Draw, Draws, Sampler
from ndpp.samplers.exact import Exact

from ndpp import kernel as _kernel

__all__ = ["Draw", "Draws", "Exact", "Sampler"]

_kernel._EXACT[:] = [
    lambda kernel, size, given, exclude, memory: Exact.prepare(
        kernel, size=size, given=given, exclude=exclude, memory=memory
    )
]
