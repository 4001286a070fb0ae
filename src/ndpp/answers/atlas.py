"""A map of the catalogue: the most popular items in the plane, items of a kind next to each other.

Two items are of a kind if they go with, and stand in for, the same items: their rows and columns of L point in similar directions. In a
mixture, they are of a kind if they belong to the same missions: their profiles √P(component | item) do. The places are those of t-SNE
[van der Maaten & Hinton, JMLR 9, 2008] with neighbours weighted by their cosines, from a spectral start: no randomness.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.answers.records import Map, Mission, Place, names_of
from ndpp.laws.law import Law

STEPS = 250
"""Steps of the layout."""
WIDTH = 0.1
"""Difference of cosines by which a neighbour counts e times less."""


def draw_map(law: Law, n: int, missions: tuple[Mission, ...], labels: Sequence[str] | None) -> Map:
    """Return a map of the ``n`` most popular items, by these labels. O(n_items · r² + n³)."""
    p = law.popularity
    items = np.argsort(-p, kind="stable")[: check_count(n, "n", least=1)]
    items = items[p[items] > 0]
    inclusions = law.component_inclusions(items)
    if len(items) < 4:  # too few eigenvectors: in a row
        places = np.column_stack([np.arange(1, len(items) + 1) / (len(items) + 1), np.full(len(items), 0.5)])
    else:
        rows = _features(law, inclusions, items)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows / np.where(norms > 0, norms, 1.0)
        places = _layout(rows @ rows.T).round(4)
    columns = p[items].clip(0.0, 1.0).tolist(), *places.T.tolist(), _typical_of(law, inclusions, missions)
    return Map(tuple(map(Place, names_of(labels, items), *columns)))


def _typical_of(law: Law, inclusions: FloatArray, missions: tuple[Mission, ...]) -> list[str | None]:
    """Return the mission whose baskets contain an item most often, for each item; None where there are no missions."""
    groups = [list(mission.components) for mission in missions]
    inside = [law.weights[own] @ inclusions[own] / law.weights[own].sum() for own in groups]
    return [missions[best].name for best in np.argmax(inside, axis=0)] if missions else [None] * inclusions.shape[1]


def _features(law: Law, inclusions: FloatArray, items: IntArray) -> FloatArray:
    """Return one row for each item; items of a kind have rows of similar directions."""
    kernel = law.as_kernel
    if kernel is None:
        return np.asarray(np.sqrt(law.weights[:, None] * inclusions).T)
    ties = kernel.low_rank
    q, B = ties.q_rows(law.rows_of(items)), ties.coordinates.B
    if kernel.background is not None:  # rows of X, which a background scales
        q = q * np.sqrt(1 + kernel.background[items])[:, None]
    values, vectors = np.linalg.eigh(q.T @ q)
    root = vectors * np.sqrt(np.maximum(values, 0.0))  # ‖q B root‖ is the norm of a row of L among these items
    return np.hstack([q @ B @ root, q @ B.T @ root])


def _layout(cosines: FloatArray) -> FloatArray:
    """Return places in the unit square, halfway to their ranks to make room for labels. O(m³) for the start, O(m²) for each step."""
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
    ranks = np.argsort(np.argsort(places, axis=0, kind="stable"), axis=0) / (len(places) - 1)
    return np.asarray(((places - low) / np.maximum(high - low, 1e-12) + ranks) / 2)
