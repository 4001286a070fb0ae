"""Node matrices of the exact sampler in plain array code: the oracle of the compiled loops."""

from __future__ import annotations

import numpy as np

from ndpp.linalg.schur import rank_one_condition
from ndpp.samplers.exact.nodes import Inclusion, Nodes


def plain_condition(nodes: Nodes, q: np.ndarray) -> tuple[Nodes, Inclusion]:
    """What ``nodes.condition(q)`` returns."""
    Z, pivots = rank_one_condition(nodes.Z[0] + 1j * nodes.Z[1], q)
    found = Nodes(np.stack([Z.real, Z.imag]), nodes.log_w + np.log(pivots))
    return found, found.inclusion()
