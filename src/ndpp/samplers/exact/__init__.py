"""The exact sampler: ``sampler`` loops over the items, ``ladder`` caches circles, ``plan`` chooses their radius and number of nodes.

On the CPU, the items of a sample are drawn in one compiled call: by ``eigenchain`` on the circles of ``eigenring``, in coordinates in
which resolvents are diagonal (``eigen``), or by ``chain`` with the node matrices of ``nodes``. ``eigenclock`` draws sets of any size.
``monitors`` has what CPU and GPU (:mod:`ndpp.samplers.gpu`) share. ``spectral`` draws from symmetric kernels, which need no circle.
"""

from ndpp.samplers.exact.sampler import Exact
from ndpp.samplers.exact.state import State

__all__ = ["Exact", "State"]
