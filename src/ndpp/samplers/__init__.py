"""Samplers behind one interface: ``prepare`` pays what depends on the kernel alone, ``sample`` draws."""

from ndpp.samplers.base import Draw, Draws, Monitor, Sampler
from ndpp.samplers.cholesky import Cholesky
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.naive import Naive
from ndpp.samplers.random_size import RandomSize
from ndpp.samplers.rejection import Rejection
from ndpp.samplers.symmetric import SymmetricTree
from ndpp.samplers.up_direct import DirectUp
from ndpp.samplers.up_naive import NaiveUp
from ndpp.samplers.up_rejection import RejectionUp
from ndpp.samplers.walk import Walk

__all__ = [
    "Cholesky",
    "Clock",
    "DirectUp",
    "Draw",
    "Draws",
    "Exact",
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
