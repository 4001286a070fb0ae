"""Bar charts: missions, and sizes of baskets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ndpp._types import FloatArray, IntArray
from ndpp.answers.records import Mission
from ndpp.plots._base import ATTRACT, check_any, figure, line_look, open_frame, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_SHARE = 1e-4
"""Sizes of smaller probability are left out at both ends."""


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
    check_any(found)
    names = [short(mission.name) for mission in found]
    typical = (
        ", ".join(f"{short(str(one.item), 22)} {one.lift:.1f}×" for one in mission.items[:3]) for mission in found
    )
    notes = [f"{own.share:.1%}, {own.mean_size:.1f} items: {items}" for own, items in zip(found, typical)]
    room = 1 + 0.03 * max(map(len, notes))  # of the notes, in lengths of the longest bar
    drawn = figure(2.0 + 0.08 * max(map(len, names)) + 2.4 * room, 1.2 + 0.3 * len(names))
    axes = drawn.add_subplot(ylim=(len(names) - 0.4, -0.6))
    axes.set_yticks(range(len(names)), names)
    open_frame(axes)
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
        look = line_look(i)
        look["ms"] = 4
        axes.plot(np.arange(len(values)), values, label=name, markevery=max(1, (high - low) // 30), **look)
    axes.set_xlim(low - 0.7, high + 0.7)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}" if value == 0 or value >= 0.01 else f"{value:.1%}")
    axes.legend(frameon=False)
    return drawn
