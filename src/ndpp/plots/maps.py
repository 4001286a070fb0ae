"""Items on a map: those that stand in for each other lie close together, and lines join those that go together.

Where two items repel each other their rows point the same way in the symmetric part of L: with sym(B) = F Fᵀ, the angle
between Fᵀq_a and Fᵀq_b does not depend on how X and W were written. The map is a spectral layout of these angles, the two
smoothest eigenvectors of the graph whose weights are squared positive cosines [Belkin & Niyogi, Neural Computation 15, 2003].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.errors import InvalidInputError
from ndpp.explain import Pairs
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg import symmetric_part
from ndpp.plots._base import ATTRACT, NEUTRAL, figure, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def embedding_map(kernel: LowRankKernel, *, n: int = 60, pairs: Pairs | None = None) -> Figure:
    """Return a map of the ``n`` most popular items. O(n_items · r² + n³).

    Parameters
    ----------
    kernel : LowRankKernel
        With labels, if items are to be named by them.
    n : int
        How many items, at least four.
    pairs : Pairs, optional
        Of :func:`ndpp.explain.strongest_pairs`; complements that are both on the map are joined by a line.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> figure = embedding_map(make_kernel(100, 10, rng=0), n=12)
    >>> len(figure.axes[0].texts)
    12
    """
    if not 4 <= n <= kernel.n_items:
        raise InvalidInputError(f"a map shows from 4 items to all {kernel.n_items}; n={n} was asked for")
    popularity = kernel.inclusion_probabilities()
    items = np.argsort(-popularity, kind="stable")[:n]
    places = dict(zip(items.tolist(), _layout(_similarity(kernel, items))))
    drawn = figure(9.5, 8.0)
    axes = drawn.add_subplot()
    axes.axis("off")
    for pair in pairs.complements if pairs else ():
        if pair.first.item in places and pair.second.item in places:
            ends = np.transpose([places[pair.first.item], places[pair.second.item]])
            axes.plot(*ends, color=ATTRACT, lw=1.2, alpha=0.6, zorder=1)
    points = np.array(list(places.values()))
    area = 200 * popularity[items] / popularity[items].max()
    axes.scatter(*points.T, s=area + 8, color=NEUTRAL, alpha=0.75, lw=0, zorder=2)
    for item, (x, y) in places.items():
        label = str(item) if kernel.labels is None else short(kernel.labels[item], 22)
        axes.annotate(label, (x, y), (0, 6), textcoords="offset points", fontsize=8, ha="center", zorder=3)
    axes.margins(0.1)
    notes = ["near each other: stand in for each other", "larger: in more baskets"]
    notes += ["blue line: go together"] if pairs else []
    drawn.supxlabel("    ·    ".join(notes), fontsize=9)
    return drawn


def _similarity(kernel: LowRankKernel, items: IntArray) -> FloatArray:
    """Return cosines between items in the symmetric part of L; zero for items that have none."""
    values, vectors = np.linalg.eigh(symmetric_part(kernel.coordinates.B))
    rows = kernel.q_rows(kernel.rows_of(items)) @ (vectors * np.sqrt(np.maximum(values, 0.0)))
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / np.where(norms > 0, norms, 1.0)
    return np.asarray(rows @ rows.T)


def _layout(cosines: FloatArray) -> FloatArray:
    """Return places in the plane, evened out so that labels have room: in each direction, ranks in place of values."""
    weights = np.maximum(cosines, 0.0) ** 2 + 1e-6
    np.fill_diagonal(weights, 0.0)
    degree = weights.sum(axis=1)
    walk = weights / np.sqrt(degree[:, None] * degree)
    vectors = np.linalg.eigh(walk)[1][:, -3:-1] / np.sqrt(degree)[:, None]
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), [0, 1]])  # eigenvectors have no sign of their own
    return _spread(np.argsort(np.argsort(vectors, axis=0), axis=0) / (len(vectors) - 1))


def _spread(places: FloatArray, *, width: float = 0.17, height: float = 0.032, rounds: int = 80) -> FloatArray:
    """Return places moved up and down until no two labels, boxes of this size, lie over each other."""
    order = np.arange(len(places))
    for _ in range(rounds):
        across, up = (places[:, None, axis] - places[:, axis] for axis in (0, 1))
        up = np.where(up == 0, 1e-9 * (order[:, None] - order), up)
        over = (np.abs(across) < width) & (np.abs(up) < height)
        push = np.where(over, np.sign(up) * (height - np.abs(up)), 0.0)
        places = places + np.column_stack([np.zeros(len(places)), 0.3 * push.sum(axis=1)])
    return places
