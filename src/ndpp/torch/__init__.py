"""The likelihood as a differentiable function of the rows of a kernel, L = X W Xᵀ, for rows that come from a network.

X is (n, d), or (batch, n, d) with a kernel for each set, in any precision; W (d, d) is the identity by default. Results are in double
precision, and so are all computations, on the device of X. Gradients of gradients are not implemented.
"""

from ndpp.torch.likelihood import inclusion_probabilities, log_normalizer, log_prob, next_item_log_probs
from ndpp.torch.modules import Kernel, sample

__all__ = ["Kernel", "inclusion_probabilities", "log_normalizer", "log_prob", "next_item_log_probs", "sample"]
