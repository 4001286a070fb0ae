"""The exact sampler: ``sampler`` takes the first of the ``routes`` that suits a kernel and a size.

``rows`` has what compiled loops read, ``ladder`` the circles, ``plan`` their radius and number of nodes and the bounds of monitors, which
CPU and GPU (:mod:`ndpp.samplers.gpu`) share.
"""

from ndpp.samplers.exact.sampler import Exact

__all__ = ["Exact"]
