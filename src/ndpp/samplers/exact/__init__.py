"""The exact sampler.

==================  ================================================================================
:mod:`.sampler`     :class:`Exact` and the CPU's loop over the items of one sample
:mod:`.ladder`      circles of many radii, computed on first use and cached
:mod:`.plan`        the radius and number of nodes for the remaining items
:mod:`.nodes`       the CPU's compiled hot loop on the node matrices
:mod:`.monitors`    tolerances and constants shared by CPU and GPU (:mod:`ndpp.samplers.gpu`)
==================  ================================================================================
"""

from ndpp.samplers.exact.sampler import Exact, State

__all__ = ["Exact", "State"]
