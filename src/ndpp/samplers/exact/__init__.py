"""The exact sampler.

========================  =======================================================================================
:mod:`.sampler`           :class:`Exact` and the CPU's loop over the items of one sample
:mod:`.ladder`            circles of many radii, computed when first needed and kept within a memory budget
:mod:`.plan`              which radius and how many nodes suit the items still to come
:mod:`.nodes`             the CPU's compiled hot loop on the node matrices
:mod:`.monitors`          tolerances and constants that the CPU and the GPU (:mod:`ndpp.samplers.gpu`) share
========================  =======================================================================================
"""

from ndpp.samplers.exact.sampler import Exact, State

__all__ = ["Exact", "State"]
