"""Markov chains on sets.

========================  =======================================================================================
:mod:`.sampler`           :class:`Walk`, chains on the sets of one size
:mod:`.random_size`       :class:`RandomSize`, a size and then a chain
:mod:`.up`                what an up-step is: how a chain puts two items back
:mod:`.up_direct`         :class:`DirectUp`, two draws of one item
:mod:`.up_rejection`      :class:`RejectionUp`, the paper's; :mod:`.bordered` serves it where L_A is singular
:mod:`.up_naive`          :class:`NaiveUp`, all pairs: the oracle of the others
========================  =======================================================================================
"""

from ndpp.samplers.walk.random_size import RandomSize
from ndpp.samplers.walk.sampler import Walk, WalkState
from ndpp.samplers.walk.up import PreparedUp, UpStep
from ndpp.samplers.walk.up_direct import DirectUp
from ndpp.samplers.walk.up_naive import NaiveUp
from ndpp.samplers.walk.up_rejection import RejectionUp

__all__ = ["DirectUp", "NaiveUp", "PreparedUp", "RandomSize", "RejectionUp", "UpStep", "Walk", "WalkState"]
