"""SANSA, EASE with a sparse approximate inverse, from the library of its authors: for catalogues whose n × n matrix is too large.

An incomplete factorization, since an exact one fills in. The library scales the columns of the matrix for it, so l2 has another scale
than the penalty of EASE.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from common import Scores, Split, choose, main
from sansa import SANSA, ICFGramianFactorizerConfig, SANSAConfig, UMRUnitLowerTriangleInverterConfig
from scipy import sparse

logging.disable(logging.INFO)
GRID = {
    "l2": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0), "size_power": (0.0, 0.125, 0.25, 0.375, 0.5, 0.75),
    "density": (0.0001, 0.0003, 0.001, 0.003, 0.01),
}  # fmt: skip


def sansa(train: sparse.csr_matrix, *, l2: float, density: float, size_power: float) -> Scores:
    sizes = np.maximum(train.getnnz(axis=1), 1).astype(float)
    rows = sizes**-size_power  # as metrics.ease has them: the trace of the Gram matrix stays as it is
    rows *= np.sqrt(sizes.sum() / (sizes @ rows**2))
    config = SANSAConfig(l2, density, ICFGramianFactorizerConfig(), UMRUnitLowerTriangleInverterConfig())
    model = SANSA(config).fit(sparse.csr_matrix(sparse.diags(rows) @ train, dtype=np.float32))

    def scores(rest: sparse.csr_matrix) -> np.ndarray:
        return np.asarray(model.forward(rest).toarray())

    return scores


def peers(split: Split) -> list[dict[str, Any]]:
    return [choose("SANSA", split, GRID, {"l2": 10.0, "size_power": 0.25, "density": 0.0003}, sansa)]


if __name__ == "__main__":
    main(peers)
