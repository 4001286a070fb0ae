"""A map of the catalogue: the most popular items in the plane, items of a kind next to each other.

Two items are of a kind where they stand in for each other: their rows point the same way in the symmetric part of L (as in
:func:`ndpp.plots.embedding_map`). In a mixture, they are of a kind where the same missions contain them. The places are the two
smoothest eigenvectors of the graph whose weights are squared positive cosines, by rank, so that the plane is evenly filled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray

PLACED = 400
"""Most items on the map."""


class Atlas(NamedTuple):
    """Items, most popular first, and their places in the unit square."""

    items: list[int]
    places: list[tuple[float, float]]

    @classmethod
    def of(cls, law: Any, popularity: FloatArray) -> Atlas:
        """Return the map of a law. O(n + m³) for the m items shown."""
        items = np.argsort(-popularity, kind="stable")[:PLACED]
        items = items[popularity[items] > 0]
        if len(items) < 4:  # no eigenvectors to speak of: in a row
            return cls(items.tolist(), [((i + 1) / (len(items) + 1), 0.5) for i in range(len(items))])
        rows = _features(law, items, popularity)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows / np.where(norms > 0, norms, 1.0)
        return cls(items.tolist(), [(round(x, 4), round(y, 4)) for x, y in _layout(rows @ rows.T).tolist()])


def _features(law: Any, items: IntArray, popularity: FloatArray) -> FloatArray:
    """Return one row for each item; items of a kind have rows of one direction."""
    components = getattr(law, "components", None)
    if components is not None:
        shares = [c.inclusion_probabilities()[items] * w for c, w in zip(components, law.weights)]
        return np.sqrt(np.maximum(np.transpose(shares), 0.0) / popularity[items, None])
    W = np.asarray(law.W, np.float64)
    values, vectors = np.linalg.eigh((W + W.T) / 2)
    X = np.asarray(law.X[items] if isinstance(law.X, np.ndarray) else law.X.take(items), np.float64)
    return np.asarray(X @ (vectors * np.sqrt(np.maximum(values, 0.0))))


def _layout(cosines: FloatArray) -> FloatArray:
    weights = np.maximum(cosines, 0.0) ** 2 + 1e-6
    np.fill_diagonal(weights, 0.0)
    degree = weights.sum(axis=1)
    walk = weights / np.sqrt(degree[:, None] * degree)
    vectors = np.linalg.eigh(walk)[1][:, -3:-1] / np.sqrt(degree)[:, None]
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), [0, 1]])  # eigenvectors have no sign of their own
    return np.asarray(np.argsort(np.argsort(vectors, axis=0, kind="stable"), axis=0) / (len(vectors) - 1))
