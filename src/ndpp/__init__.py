"""Learning, exact and MCMC sampling, and inference for low-rank nonsymmetric determinantal point processes."""

from ndpp import samplers
from ndpp.baskets import Baskets
from ndpp.kernel import LowRankKernel

__version__ = "0.1.0"

__all__ = ["Baskets", "LowRankKernel", "samplers"]
