"""Distributions over sets of items, and their files."""

from ndpp.laws.files import load, load_metadata, save
from ndpp.laws.kernel import LowRankKernel

__all__ = ["LowRankKernel", "load", "load_metadata", "save"]
