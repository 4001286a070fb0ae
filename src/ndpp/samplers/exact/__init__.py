"""The exact sampler: ``sampler`` takes the first of the ``routes`` that suits a kernel and a size.

``rows`` has what compiled loops read, ``plan`` the radius and number of nodes of circles and the bounds of monitors, which CPU and GPU
(:mod:`ndpp.samplers.gpu`) share.
"""

from ndpp.samplers.exact.sampler import Exact

__all__ = ["Exact"]
