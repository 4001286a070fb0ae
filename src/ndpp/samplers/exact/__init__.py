"""The exact sampler: ``sampler`` loops over the items, ``ladder`` caches circles, ``plan`` chooses their radius and number of nodes.

``chain`` draws the items of a sample in one compiled call on the CPU, and ``nodes`` is its hot loop; ``monitors`` has what CPU and GPU
(:mod:`ndpp.samplers.gpu`) share. ``spectral`` draws from symmetric kernels, which need no circle.
"""

from ndpp.samplers.exact.sampler import Exact, State

__all__ = ["Exact", "State"]
