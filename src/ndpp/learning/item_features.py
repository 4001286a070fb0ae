"""Features of items in training: rows = free part + features · matrix. Rare items, whose free part is small, follow the features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ndpp._types import FloatArray
from ndpp._validation import check_matrix
from ndpp.errors import InvalidInputError

ARGUMENT = "item_features"
HALFWAY_COUNT = 20.0
"""An item that occurs this often begins half-way between what its features say and what its baskets say."""


def read_features(value: Any, labels: tuple[str, ...] | None, n_items: int) -> FloatArray:
    """Return the features (n_items, f) of all items, from an array, a sparse matrix, a data frame by label or a mapping to vectors."""
    if isinstance(value, Mapping) or hasattr(value, "loc"):
        if labels is None:
            raise InvalidInputError("by label need baskets with labels; pass an array", argument=ARGUMENT)
        known = value if isinstance(value, Mapping) else {str(key): i for i, key in enumerate(value.index)}
        missing = next((label for label in labels if label not in known), None)
        if missing is not None:
            raise InvalidInputError(f"must have a row for every item; {missing!r} has none", argument=ARGUMENT)
        if isinstance(value, Mapping):
            rows = [np.asarray(value[label], np.float64).ravel() for label in labels]
            if len({len(row) for row in rows}) > 1:
                raise InvalidInputError("must be vectors of one length", argument=ARGUMENT)
            value = np.stack(rows)
        else:
            value = value.to_numpy()[[known[label] for label in labels]]
    value = value.toarray() if sparse.issparse(value) else value
    found = check_matrix(value, ARGUMENT, shape=(n_items, None)).astype(np.float64)
    if not found.any():
        raise InvalidInputError("must not be all zero, or have no column", argument=ARGUMENT)
    return found


def scale_of(features: FloatArray) -> float:
    """Return the root mean square of the norms of the rows, in units of which training has them."""
    return float(np.sqrt((features**2).sum(axis=1).mean()))


def regressed(features: Tensor, rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the matrix M that fits rows by features M, and free parts: what is left of the rows, less of it the rarer an item is.

    Rows are weighted by how much their ``counts`` of occurrences tell beside ``HALFWAY_COUNT`` others, and M is penalised as one row is.
    """
    F, Y, weights = features.double(), rows.double(), (counts / (counts + HALFWAY_COUNT)).double()[:, None]
    system = F.T @ (weights * F) + torch.eye(F.shape[1], dtype=F.dtype, device=F.device)
    M = torch.linalg.solve(system, F.T @ (weights * Y))
    return M.to(rows.dtype).contiguous(), (weights * (Y - F @ M)).to(rows.dtype).contiguous()  # Adam goes by memory
