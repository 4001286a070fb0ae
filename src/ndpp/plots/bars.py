"""Bar charts: popular items, related items, the strongest pairs, missions, and sizes of baskets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ndpp._types import FloatArray, IntArray
from ndpp.answers.records import Mission, Pairs, Related, Relation, Share
from ndpp.plots._base import ATTRACT, COMPLEMENTS, NEUTRAL, SUBSTITUTES, check_any, figure, line_look, open_frame, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIN_LIFT = 1 / 64
"""Smaller lifts are drawn as this."""
MIN_SHARE = 1e-4
"""Sizes of smaller probability are left out at both ends."""


def popularity_chart(shares: Sequence[Share]) -> Figure:
    """Plot the popular items of :func:`ndpp.answers.describe`: the share of baskets that contain each item.

    Examples
    --------
    >>> figure = popularity_chart([Share("bread", 0.35), Share("butter", 0.31)])
    >>> figure.axes[0].get_xlabel()
    'baskets that contain the item'
    """
    drawn, axes = _bar_chart([short(str(share.item)) for share in shares])
    values = [share.probability for share in shares]
    bars = axes.barh(range(len(shares)), values, color=NEUTRAL, height=0.7)
    axes.bar_label(bars, [f"{value:.1%}" for value in values], padding=3)
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("baskets that contain the item")
    return drawn


def related_chart(found: Related) -> Figure:
    """Plot the result of :func:`ndpp.answers.related`: how the item changes the probability of others."""
    drawn = _lift_chart(found, lambda pair: short(str(pair.other)), "how many times as likely with the item (lift)")
    title = f"{short(str(found.item), 50)}: in {found.probability:.1%} of baskets"
    drawn.suptitle(title, x=0.01, ha="left", fontsize=11)
    return drawn


def pair_chart(pairs: Pairs) -> Figure:
    """Plot the result of :func:`ndpp.answers.pairs`: how often two items occur together, relative to chance."""

    def name(pair: Relation) -> str:
        return f"{short(str(pair.item), 26)} + {short(str(pair.other), 26)}"

    return _lift_chart(pairs, name, "how often together, relative to chance (lift)")


def mission_chart(found: Sequence[Mission]) -> Figure:
    """Plot the result of :func:`ndpp.answers.missions`: the share of each mission, its mean size and its most typical items.

    Examples
    --------
    >>> from ndpp.answers.records import Typical
    >>> beer = Typical("beer", 0.6, 2.5)
    >>> figure = mission_chart([Mission("beer and crisps", 0.35, 2.1, (beer,), (0,))])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['35.0%, 2.1 items: beer 2.5×']
    """
    drawn, axes = _bar_chart([short(mission.name) for mission in found])
    typical = (
        ", ".join(f"{short(str(one.item), 22)} {one.lift:.1f}×" for one in mission.items[:3]) for mission in found
    )
    notes = [f"{own.share:.1%}, {own.mean_size:.1f} items: {items}" for own, items in zip(found, typical)]
    room = 1 + 0.03 * max(map(len, notes))  # of the notes, in lengths of the longest bar
    drawn.set_figwidth(drawn.get_figwidth() - 3.0 + 2.4 * room)
    bars = axes.barh(range(len(found)), [mission.share for mission in found], color=ATTRACT, height=0.7)
    axes.bar_label(bars, notes, padding=4, fontsize=8)
    axes.set_xlim(0, room * max(mission.share for mission in found))
    axes.set_xticks([])
    axes.set_xlabel("share of baskets, mean size, and typical items with their lift", loc="left")
    return drawn


def size_distributions(
    distributions: Mapping[str, npt.ArrayLike], *, observed: Sequence[int] | IntArray | None = None
) -> Figure:
    """Plot size distributions as lines, by name, over the shares of ``observed`` basket sizes as bars.

    ``distributions`` are arrays of the probabilities of sizes 0, 1, …, as ``kernel.size_distribution()`` returns them.

    Examples
    --------
    >>> figure = size_distributions({"kernel": [0.2, 0.5, 0.3]}, observed=[1, 1, 2, 0])
    >>> figure.axes[0].get_ylabel()
    'share of baskets'
    """
    check_any(distributions)
    shares: FloatArray = np.empty(0) if observed is None else np.bincount(observed) / len(observed)
    arrays = {name: np.asarray(values, np.float64) for name, values in distributions.items()}
    shown = np.concatenate([np.flatnonzero(values > MIN_SHARE) for values in [*arrays.values(), shares]])
    low, high = int(shown.min()), int(shown.max())
    drawn = figure(6.4, 3.8)
    axes = drawn.add_subplot(xlabel="items in a basket", ylabel="share of baskets")
    axes.spines[["top", "right"]].set_visible(False)
    if shares.size:
        axes.bar(np.arange(len(shares)), shares, color="#c9cfd4", width=0.85, label="baskets")
    for i, (name, values) in enumerate(arrays.items()):
        look = {**line_look(i), "ms": 4}
        axes.plot(np.arange(len(values)), values, label=name, markevery=max(1, (high - low) // 30), **look)
    axes.set_xlim(low - 0.7, high + 0.7)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}" if value == 0 or value >= 0.01 else f"{value:.1%}")
    axes.legend(frameon=False)
    return drawn


def _lift_chart(pairs: Pairs | Related, name: Callable[[Relation], str], xlabel: str) -> Figure:
    """Plot complements to the right of 1 and substitutes to the left, on a log axis of lifts."""
    both = pairs.complements + pairs.substitutes
    drawn, axes = _bar_chart([name(pair) for pair in both])
    lengths = np.log2([max(pair.times, MIN_LIFT) for pair in both])
    for kind, look in ((pairs.complements, COMPLEMENTS), (pairs.substitutes, SUBSTITUTES)):
        places = [both.index(pair) for pair in kind]
        if kind:
            bars = axes.barh(places, lengths[places], height=0.7, **look)
            axes.bar_label(bars, [f"{pair.times:.2g}×" for pair in kind], padding=3)
    axes.axvline(0, color="black", lw=0.8)
    low, high = min(lengths.min(), 0.0), max(lengths.max(), 0.0)
    room = 0.2 * max(1.0, high - low)  # for the numbers at the ends of the bars
    axes.set_xlim(low - room * (low < 0), high + room * (high > 0))
    ticks = np.arange(np.ceil(low - room), np.floor(high + room) + 1)[:: max(1, round((high - low) / 5))]
    axes.set_xticks(ticks, [f"{2**tick:g}×" if tick >= 0 else f"1/{2**-tick:g}×" for tick in ticks])
    mixed = any(pair.by_missions != 1.0 for pair in pairs.substitutes)
    axes.set_xlabel(xlabel + "; substitutes: as their missions explain" * mixed)
    drawn.legend(loc="outside lower center", ncols=2, frameon=False)
    return drawn


def _bar_chart(names: Sequence[str]) -> tuple[Figure, Axes]:
    """Return a figure and its axes, with room for a horizontal bar per name, the first at the top."""
    check_any(names)
    drawn = figure(5.0 + 0.08 * max(map(len, names)), 1.2 + 0.3 * len(names))
    axes = drawn.add_subplot()
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    open_frame(axes)
    return drawn, axes
