"""Distributions over sets of items, and their files."""

from ndpp.laws.conditioned import Conditioned
from ndpp.laws.families import FamilyMixture
from ndpp.laws.files import load, load_metadata, save
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit
from ndpp.laws.mixture import Mixture
from ndpp.laws.pooled import PooledMixture
from ndpp.laws.tied import TiedMixture

__all__ = ["FamilyMixture", "Law", "Limit", "LowRankKernel", "Mixture", "load", "load_metadata", "save"]

Mixture._make_tied, Mixture._make_pooled, Law._conditioned = TiedMixture, PooledMixture, Conditioned
