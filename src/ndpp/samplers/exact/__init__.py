"""The exact sampler: ``sampler`` takes the first of the ``routes`` that suits a kernel and a size.

``spectral`` draws from symmetric kernels; ``eigenclock`` sets of any size and ``eigenchain``, on the circles of ``eigenring``, sets of one
size, both in eigencoordinates; ``node_route`` everything else, with the matrices of ``nodes``, and what other routes leave unfinished.
``rows`` and ``generator`` have what compiled loops read, ``ladder`` and ``cache`` the circles, ``plan`` their radius and number of nodes.
``monitors`` has what CPU and GPU (:mod:`ndpp.samplers.gpu`) share.
"""

from ndpp.samplers.exact.sampler import Exact
from ndpp.samplers.exact.state import State

__all__ = ["Exact", "State"]
