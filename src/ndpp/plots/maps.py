"""Items in the plane: their places are those of :func:`ndpp.answers.map_of`, and lines join complements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ndpp._show import called
from ndpp._types import FloatArray
from ndpp.answers import Prepared, map_of
from ndpp.answers.records import Pairs
from ndpp.errors import InvalidInputError, needing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ATTRACT, NEUTRAL = "#0072B2", "#5B6770"
"""Colours that also work for colour-blind readers and in print [Okabe & Ito 2008]."""
LABELLED, LABEL_LENGTH = 60, 22
"""Maximum number of labelled items on a map, and maximum length of a label; more would overlap."""


def figure(width: float, height: float) -> Figure:
    """Return an empty figure of this width and height in inches."""
    with needing("matplotlib", "plot", "A picture"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def embedding_map(model: object, *, n: int = 60, pairs: Pairs | None = None) -> Figure:
    """Plot a map of the ``n`` most popular items, with lines between the complements in ``pairs``. O(n_items · r² + n³).

    ``model`` is what :mod:`ndpp.answers` takes. The 60 most popular items are labelled; the others are points.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> figure = embedding_map(make_kernel(100, 10, rng=0), n=12)
    >>> len(figure.axes[0].texts)
    12
    """
    own = Prepared.of(model)
    if not 4 <= n <= own.law.n_items:
        raise InvalidInputError(f"n must be between 4 and {own.law.n_items}, the number of items; got {n}")
    found = map_of(own, n=n).items
    points, shares = np.array([(one.x, one.y) for one in found]), np.array([one.probability for one in found])
    points[:LABELLED] = _spread(points[:LABELLED])
    places = dict(zip((one.item for one in found), points))
    drawn = figure(9.5, 8.0)
    axes = drawn.add_subplot()
    axes.axis("off")
    for pair in pairs.complements if pairs else ():
        if pair.item in places and pair.other in places:
            ends = np.transpose([places[pair.item], places[pair.other]])
            axes.plot(*ends, color=ATTRACT, lw=1.2, alpha=0.6, zorder=1)
    area = 200 * shares / shares.max()
    for part, opacity in ((slice(LABELLED), 0.75), (slice(LABELLED, None), 0.3)):
        axes.scatter(points[part, 0], points[part, 1], s=area[part] + 8, color=NEUTRAL, alpha=opacity, lw=0, zorder=2)
    for one, (x, y) in zip(found[:LABELLED], points):
        axes.annotate(
            _short(called(one.item)), (x, y), (0, 6), textcoords="offset points", fontsize=8, ha="center", zorder=3
        )
    axes.margins(0.1)
    near = "of the same missions" if len(own.law.weights) > 1 else "go with the same items"
    notes = [f"labels: the {LABELLED} in most baskets"] if n > LABELLED else []
    notes += [f"near each other: {near}", "larger: in more baskets"]
    notes += ["blue line: go together"] if pairs else []
    drawn.supxlabel("    ·    ".join(notes), fontsize=9)
    return drawn


def _short(label: str) -> str:
    return label if len(label) <= LABEL_LENGTH else label[: LABEL_LENGTH - 1].rstrip() + "…"


def _spread(places: FloatArray, *, width: float = 0.17, height: float = 0.032, rounds: int = 80) -> FloatArray:
    """Return places moved up and down until labels, boxes of this width and height, do not overlap."""
    order = np.arange(len(places))
    for _ in range(rounds):
        across, up = (places[:, None, axis] - places[:, axis] for axis in (0, 1))
        up = np.where(up == 0, 1e-9 * (order[:, None] - order), up)
        over = (np.abs(across) < width) & (np.abs(up) < height)
        push = np.where(over, np.sign(up) * (height - np.abs(up)), 0.0)
        places = places + np.column_stack([np.zeros(len(places)), 0.3 * push.sum(axis=1)])
    return places
