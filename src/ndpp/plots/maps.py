"""Items in the plane: a graph of the strongest pairs, and a map.

The places of items are those of :func:`ndpp.answers.map_of`; lines join complements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ndpp._types import FloatArray
from ndpp.answers import Prepared, map_of
from ndpp.answers.records import Item, Pairs, Relation
from ndpp.errors import InvalidInputError
from ndpp.plots._base import ATTRACT, NEUTRAL, REPEL, check_any, figure, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOLID, DASHED = (0, ()), (0, (2, 1))
"""Lines of the graph: where the pattern begins, and lengths of dashes and gaps."""
LABELLED = 60
"""Items of a map that have labels: more would hide each other."""


def pair_graph(pairs: Pairs) -> Figure:
    """Plot the result of :func:`ndpp.answers.pairs` on a circle; wider lines are stronger correlations."""
    both = pairs.complements + pairs.substitutes
    check_any(both)
    labels = {item: short(str(item), 26) for pair in both for item in (pair.item, pair.other)}
    reach = 1.1 + 0.031 * max(map(len, labels.values()))  # the circle, and labels all around it
    drawn = figure(9.0, 9.0)  # says what to install without matplotlib

    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    axes = drawn.add_subplot(aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
    axes.axis("off")
    items = _neighbours_first(both)
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(items)) / len(items)
    places = dict(zip(items, np.column_stack([np.cos(angles), np.sin(angles)])))
    strongest = max(abs(pair.correlation) for pair in both)
    for kind, color, dashes, label in (
        (pairs.complements, ATTRACT, SOLID, "go together"),
        (pairs.substitutes, REPEL, DASHED, "stand in for each other"),
    ):
        for pair in kind:  # a curve bent towards the centre
            start, end = places[pair.item], places[pair.other]
            path = Path([start, 0.35 * (start + end), end], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
            width = 0.8 + 4.2 * abs(pair.correlation) / strongest
            axes.add_patch(PathPatch(path, fill=False, color=color, ls=dashes, lw=width, capstyle="butt"))
        if kind:
            axes.plot([], [], color=color, ls=dashes, lw=3, label=label)
    axes.plot(*np.array(list(places.values())).T, "o", color=NEUTRAL, ms=6)
    for item, angle in zip(items, np.degrees(angles)):
        left, (x, y) = angle < -90 - 1e-6, 1.05 * places[item]
        axes.text(
            x, y, labels[item], va="center", ha="right" if left else "left", fontsize=9,
            rotation=angle + 180 * left, rotation_mode="anchor",
        )  # fmt: skip
    drawn.legend(loc="outside lower center", ncols=2, frameon=False)
    return drawn


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
            short(str(one.item), 22), (x, y), (0, 6), textcoords="offset points", fontsize=8, ha="center", zorder=3
        )
    axes.margins(0.1)
    near = "of the same missions" if len(own.law.weights) > 1 else "go with the same items"
    notes = [f"labels: the {LABELLED} in most baskets"] if n > LABELLED else []
    notes += [f"near each other: {near}", "larger: in more baskets"]
    notes += ["blue line: go together"] if pairs else []
    drawn.supxlabel("    ·    ".join(notes), fontsize=9)
    return drawn


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


def _neighbours_first(pairs: Sequence[Relation]) -> list[Item]:
    """Return the items in depth-first order along the pairs, which puts most paired items next to each other."""
    friends: dict[Item, list[Item]] = {}
    for pair in pairs:
        friends.setdefault(pair.item, []).append(pair.other)
        friends.setdefault(pair.other, []).append(pair.item)
    order: dict[Item, None] = {}
    for start in friends:
        stack = [start]
        while stack:
            item = stack.pop()
            if item not in order:
                order[item] = None
                stack += reversed(friends[item])
    return list(order)
