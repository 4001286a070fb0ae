"""Conversion and splitting of the input of estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError

MAX_VALIDATION = 2000
"""Maximum number of baskets set aside for validation."""


def read_baskets(estimator: Any, X: Any, *, reset: bool) -> Baskets:
    """Return X as baskets.

    X is :class:`ndpp.Baskets`, a sparse or dense matrix or data frame of zeros and ones (a row per basket, a column per
    item), or an iterable of sets of ids or labels. With ``reset``, the estimator adopts its catalogue; otherwise the
    catalogues must match.
    """
    n_items, labels = (None, None) if reset else (estimator.n_features_in_, estimator.labels_)
    if isinstance(X, Baskets):
        baskets = X
    elif sparse.issparse(X) or (hasattr(X, "__array__") and getattr(X, "ndim", 2) != 1):
        try:
            matrix = validate_data(estimator, X, accept_sparse="csr", dtype="numeric", reset=reset)
        except ValueError as reason:
            if not hasattr(X, "columns") or np.asarray(X).dtype.kind in "biuf":
                raise
            raise InvalidInputError(
                f"a data frame of baskets must hold zeros and ones, with a column per item: {reason}. "
                "Convert a long table with `Baskets.from_frame(frame, basket=…, item=…)`."
            ) from None
        if (matrix.data if sparse.issparse(matrix) else matrix).min(initial=0) < 0:
            raise InvalidInputError("Negative values in data: a matrix of baskets must hold zeros and ones")
        names = getattr(estimator, "feature_names_in_", None)
        baskets = Baskets.from_csr(sparse.csr_array(matrix), labels=None if names is None else list(map(str, names)))
    else:
        sets = list(X)
        named = any(isinstance(item, str) for members in sets if hasattr(members, "__len__") for item in members)
        if named and not reset and labels is None:
            raise InvalidInputError(f"the model has no labels; give items as ids below {n_items}. Got {X!r:.60}")
        baskets = Baskets.from_lists(sets, n_items=n_items, labels=labels)
    if reset:
        estimator.n_features_in_, estimator.labels_ = baskets.n_items, baskets.labels
    elif baskets.n_items != n_items:
        raise InvalidInputError(
            f"the model has {n_items} items; these baskets have {baskets.n_items}. "
            "Pass the n_items= or labels= of the training baskets when you create them."
        )
    elif baskets.labels is not None and labels is not None and baskets.labels != labels:
        raise InvalidInputError(
            "these baskets and the model have different labels, or a different order of labels; "
            "create the baskets with labels=model.labels_"
        )
    return baskets


def set_aside(baskets: Baskets, fraction: float, rng: np.random.Generator) -> tuple[Baskets, Baskets]:
    """Return training and validation baskets; if there are too few to split, all baskets serve as both."""
    n_val = min(round(fraction * len(baskets)), MAX_VALIDATION, len(baskets) - 1)
    if n_val < 1:
        return baskets, baskets
    parts = baskets.split(n_val, 0, rng=rng)
    return parts.train, parts.val
