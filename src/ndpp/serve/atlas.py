"""A map of the catalogue: the most popular items in the plane, items of a kind next to each other.

Two items are of a kind where they go with, and stand in for, the same items: their rows and columns of L point the same way. In a
mixture, they are of a kind where the same missions contain them. The places are those of t-SNE [van der Maaten & Hinton, JMLR 9,
2008] with neighbours weighted by their cosines, from a spectral start: no randomness.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.laws.mixture import Mixture

PLACED = 300
"""Most items on the map."""
STEPS = 250
"""Steps of the layout."""
WIDTH = 0.1
"""Difference of cosines by which a neighbour counts e times less."""


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
    if isinstance(law, Mixture):
        shares = law.weights[:, None] * law.component_inclusions()[:, items]
        return np.asarray(np.sqrt(shares.T / popularity[items, None]))
    W, X = (
        np.asarray(law.W, np.float64),
        np.asarray(law.X[items] if isinstance(law.X, np.ndarray) else law.X.take(items), np.float64),
    )
    values, vectors = np.linalg.eigh(X.T @ X)
    root = vectors * np.sqrt(np.maximum(values, 0.0))  # ‖x W root‖ is the norm of a row of L among these items
    return np.hstack([X @ W @ root, X @ W.T @ root])


def _layout(cosines: FloatArray) -> FloatArray:
    """Return places in the unit square. O(m³) for the start, O(m²) for each of the steps."""
    P = np.exp((cosines - 1.0) / WIDTH)
    np.fill_diagonal(P, 0.0)
    degree = P.sum(axis=1) + 1e-12
    start = np.linalg.eigh(P / np.sqrt(degree[:, None] * degree))[1][:, -3:-1]
    start *= np.sign(start[np.abs(start).argmax(axis=0), [0, 1]])  # eigenvectors have no sign of their own
    P = P / degree[:, None]
    P = (P + P.T) / (2 * len(P))
    places, speed = 1e-2 * start / np.abs(start).max(axis=0), np.zeros_like(start)
    for step in range(STEPS):
        near = 1.0 / (1.0 + ((places[:, None] - places) ** 2).sum(axis=2))
        np.fill_diagonal(near, 0.0)
        pull = ((4.0 if step < STEPS // 4 else 1.0) * P - near / near.sum()) * near
        slope = pull.sum(axis=1)[:, None] * places - pull @ places
        speed = (0.5 if step < STEPS // 4 else 0.8) * speed - len(P) / 3 * slope
        places = places + speed
    low, high = places.min(axis=0), places.max(axis=0)
    return np.asarray((places - low) / np.maximum(high - low, 1e-12))
