"""Markov chains on sets: :class:`Walk` on sets of one size, :class:`RandomSize` on sets of any size, and their up-steps.

:class:`NaiveUp` is the oracle of the other up-steps.
"""

from ndpp.samplers.walk.random_size import RandomSize
from ndpp.samplers.walk.sampler import Walk, WalkState
from ndpp.samplers.walk.up import NaiveUp, PreparedUp, UpStep
from ndpp.samplers.walk.up_direct import DirectUp
from ndpp.samplers.walk.up_rejection import RejectionUp

__all__ = ["DirectUp", "NaiveUp", "PreparedUp", "RandomSize", "RejectionUp", "UpStep", "Walk", "WalkState"]
