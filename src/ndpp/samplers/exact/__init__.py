"""The exact sampler: ``sampler`` loops over the items, ``ladder`` caches circles, ``plan`` chooses their radius and number of nodes.

``nodes`` is the CPU's compiled hot loop; ``monitors`` has what CPU and GPU (:mod:`ndpp.samplers.gpu`) share. ``spectral`` draws from
symmetric kernels, which need no circle.
"""

from ndpp.samplers.exact.sampler import Exact, State

__all__ = ["Exact", "State"]
