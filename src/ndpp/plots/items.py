"""A kernel in pictures: popular items, what goes with what, and a graph of the strongest pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ndpp._types import FloatArray
from ndpp.explain import Pair, Pairs, Related, Share
from ndpp.plots._base import ATTRACT, NEUTRAL, REPEL, check_any, figure, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHES = (0, (2, 1))
LEAST_LIFT = 1 / 64
"""Smaller lifts are drawn as this."""


def popularity(shares: Sequence[Share]) -> Figure:
    """Return a bar chart of :func:`ndpp.explain.popularity`: the part of baskets that hold each item.

    Examples
    --------
    >>> figure = popularity([Share(0, "bread", 0.35), Share(1, "butter", 0.31)])
    >>> figure.axes[0].get_xlabel()
    'baskets that hold the item'
    """
    axes = _bar_chart([short(share.label) for share in shares])
    values = [share.probability for share in shares]
    bars = axes.barh(range(len(shares)), values, color=NEUTRAL, height=0.7)
    axes.bar_label(bars, [f"{value:.1%}" for value in values], padding=3)
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("baskets that hold the item")
    return axes.figure


def related(found: Related) -> Figure:
    """Return a bar chart of :func:`ndpp.explain.related`: how many times as likely others are where the item is in."""
    pairs = found.complements + found.substitutes
    axes = _lift_chart(pairs, [short(pair.second.label) for pair in pairs])
    title = f"{short(found.item.label, 50)}: in {found.item.probability:.1%} of baskets"
    axes.figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    axes.set_xlabel("how many times as likely where it is in (lift)")
    return axes.figure


def strongest_pairs(pairs: Pairs) -> Figure:
    """Return a bar chart of :func:`ndpp.explain.strongest_pairs`: how many times as often as by chance two items meet."""
    both = pairs.complements + pairs.substitutes
    axes = _lift_chart(both, [f"{short(pair.first.label, 26)} + {short(pair.second.label, 26)}" for pair in both])
    axes.set_xlabel("how often together, relative to chance (lift)")
    return axes.figure


def pair_graph(pairs: Pairs) -> Figure:
    """Return a graph of :func:`ndpp.explain.strongest_pairs`: items on a circle, wider lines for stronger correlation."""
    both = pairs.complements + pairs.substitutes
    check_any(both)
    labels = {share.item: short(share.label, 26) for pair in both for share in pair[:2]}
    reach = 1.1 + 0.031 * max(map(len, labels.values()))  # the circle, and labels all around it
    axes = figure(9.0, 9.0).add_subplot(aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
    axes.axis("off")
    items = _neighbours_first(both)
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(items)) / len(items)
    places = dict(zip(items, np.column_stack([np.cos(angles), np.sin(angles)])))
    strongest = max(abs(pair.correlation) for pair in both)
    for pair in both:
        _curve(axes, places[pair.first.item], places[pair.second.item], pair.correlation / strongest)
    axes.plot(*np.array(list(places.values())).T, "o", color=NEUTRAL, ms=6)
    for item, angle in zip(items, np.degrees(angles)):
        left = angle < -90 - 1e-6
        turn = {"rotation": angle + 180 * left, "rotation_mode": "anchor", "ha": "right" if left else "left"}
        axes.text(*(1.05 * places[item]), labels[item], va="center", fontsize=9, **turn)
    _legend(axes, both, patches=False)
    return axes.figure


def _curve(axes: Any, start: FloatArray, end: FloatArray, strength: float) -> None:
    """Draw a line bent towards the middle, its width and colour by the strength between −1 and 1."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    path = Path([start, 0.35 * (start + end), end], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
    colour, style = (ATTRACT, "solid") if strength > 0 else (REPEL, DASHES)
    width = 0.8 + 4.2 * abs(strength)
    axes.add_patch(PathPatch(path, fill=False, edgecolor=colour, linestyle=style, linewidth=width, capstyle="butt"))


def _lift_chart(pairs: Sequence[Pair], names: Sequence[str]) -> Any:
    """Return axes with a bar for each pair, to the right of 1 for attraction and to the left for repulsion."""
    axes = _bar_chart(names)
    lengths = np.log2([max(pair.lift, LEAST_LIFT) for pair in pairs])
    for i, (pair, length) in enumerate(zip(pairs, lengths)):
        look = {"color": ATTRACT} if length > 0 else {"color": REPEL, "hatch": "///", "edgecolor": "white"}
        axes.bar_label(axes.barh(i, length, height=0.7, **look), [f"{pair.lift:.2g}×"], padding=3)
    axes.axvline(0, color="black", lw=0.8)
    low, high = min(lengths.min(), 0.0), max(lengths.max(), 0.0)
    room = 0.2 * max(1.0, high - low)  # for the numbers at the ends of the bars
    axes.set_xlim(low - room * (low < 0), high + room * (high > 0))
    ticks = np.arange(np.ceil(low - room), np.floor(high + room) + 1)[:: max(1, round((high - low) / 5))]
    axes.set_xticks(ticks, [f"{2**tick:g}×" if tick >= 0 else f"1/{2**-tick:g}×" for tick in ticks])
    _legend(axes, pairs, patches=True)
    return axes


def _bar_chart(names: Sequence[str]) -> Any:
    """Return axes with room for a horizontal bar by each name, the first at the top."""
    check_any(names)
    longest = max(map(len, names))
    axes = figure(5.0 + 0.08 * longest, 1.2 + 0.3 * len(names)).add_subplot()
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return axes


def _legend(axes: Any, pairs: Sequence[Pair], *, patches: bool) -> None:
    """Say what the colours of the pairs mean."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    kinds: list[Any] = [
        Patch(facecolor=ATTRACT) if patches else Line2D([], [], color=ATTRACT, lw=3),
        Patch(facecolor=REPEL, hatch="///", edgecolor="white")
        if patches
        else Line2D([], [], color=REPEL, ls=DASHES, lw=3),
    ]
    here = [any(pair.correlation > 0 for pair in pairs), any(pair.correlation < 0 for pair in pairs)]
    names = ["go together", "stand in for each other"]
    shown = [(kind, name) for kind, name, there in zip(kinds, names, here) if there]
    axes.figure.legend(*zip(*shown), loc="outside lower center", ncols=2, frameon=False)


def _neighbours_first(pairs: Sequence[Pair]) -> list[int]:
    """Return the items in an order in which those of a pair tend to be near each other: depth first along pairs."""
    friends: dict[int, list[int]] = {}
    for pair in pairs:
        friends.setdefault(pair.first.item, []).append(pair.second.item)
        friends.setdefault(pair.second.item, []).append(pair.first.item)
    order: dict[int, None] = {}
    for start in friends:
        stack = [start]
        while stack:
            item = stack.pop()
            if item not in order:
                order[item] = None
                stack += reversed(friends[item])
    return list(order)
