"""Samplers behind one interface: ``prepare`` computes what depends on the kernel alone, ``sample`` draws."""

from ndpp.samplers.background import ExactUnion
from ndpp.samplers.base import Draw, Draws, Monitor, Sampler
from ndpp.samplers.cholesky import Cholesky
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.families import FamilySampler
from ndpp.samplers.mixture import MixtureSampler
from ndpp.samplers.naive import Naive
from ndpp.samplers.rejection import Rejection
from ndpp.samplers.symmetric import SymmetricTree
from ndpp.samplers.walk import DirectUp, NaiveUp, RandomSize, RejectionUp, Walk

__all__ = [
    "Cholesky",
    "Clock",
    "DirectUp",
    "Draw",
    "Draws",
    "Exact",
    "ExactUnion",
    "FamilySampler",
    "MixtureSampler",
    "Monitor",
    "Naive",
    "NaiveUp",
    "RandomSize",
    "Rejection",
    "RejectionUp",
    "Sampler",
    "SymmetricTree",
    "Walk",
]
