"""Learning, exact and MCMC sampling, and inference for low-rank nonsymmetric determinantal point processes."""

from ndpp import samplers
from ndpp.baskets import Baskets
from ndpp.inference import greedy_map, next_item_scores, next_item_scores_many, recommend
from ndpp.io import load, load_metadata, save
from ndpp.kernel import LowRankKernel

__version__ = "0.1.0"

__all__ = [
    "Baskets",
    "LowRankKernel",
    "greedy_map",
    "load",
    "load_metadata",
    "next_item_scores",
    "next_item_scores_many",
    "recommend",
    "samplers",
    "save",
]
