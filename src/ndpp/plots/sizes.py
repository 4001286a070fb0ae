"""The law of the size, and how often a sampler rejects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ndpp._types import FloatArray
from ndpp.plots._base import ATTRACT, COLOURS, REPEL, check_any, figure, line_look, open_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL = 1e-4
"""Sizes with less than this are left out at both ends."""


class Bar(NamedTuple):
    """A number of rejections or seconds; ``expected`` if it is computed because the sampler cannot finish.

    Bars of different ``panel`` are drawn beside each other, with one axis for the groups.
    """

    group: str
    series: str
    value: float
    expected: bool = False
    panel: str = ""


def size_law(laws: Mapping[str, Any], *, observed: Any = None) -> Figure:
    """Return P(|S| = k) as lines, one for each law, with the shares of observed basket sizes as bars behind them.

    Parameters
    ----------
    laws : mapping of str to array
        Name → probabilities of sizes 0, 1, …, as ``kernel.size_distribution()`` gives them.
    observed : array of int, optional
        Sizes of baskets, as ``baskets.sizes``.

    Examples
    --------
    >>> figure = size_law({"kernel": [0.2, 0.5, 0.3]}, observed=[1, 1, 2, 0])
    >>> figure.axes[0].get_ylabel()
    'share of baskets'
    """
    check_any(laws)
    shares: FloatArray = np.empty(0) if observed is None else np.bincount(observed) / len(observed)
    arrays = {name: np.asarray(law, np.float64) for name, law in laws.items()}
    shown = [np.flatnonzero(law > SMALL) for law in [*arrays.values(), shares]]
    low, high = min(k.min() for k in shown if k.size), max(k.max() for k in shown if k.size)
    drawn = figure(6.4, 3.8)
    axes = drawn.add_subplot(xlabel="items in a basket", ylabel="share of baskets")
    open_axes(axes)
    if shares.size:
        axes.bar(np.arange(len(shares)), shares, color="#c9cfd4", width=0.85, label="baskets")
    for i, (name, law) in enumerate(arrays.items()):
        look = {**line_look(i), "ms": 4}
        axes.plot(np.arange(len(law)), law, label=name, markevery=max(1, (high - low) // 30), **look)
    axes.set_xlim(low - 0.7, high + 0.7)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}" if value == 0 or value >= 0.01 else f"{value:.1%}")
    axes.legend(frameon=False)
    return drawn


def rejections(bars: Sequence[Bar], *, xlabel: str = "rejections for one sample (or one step of a walk)") -> Figure:
    """Return horizontal bars on a log axis, by group; hatched, with (*), where a number is expected, not measured.

    Zero is drawn as a bar that ends at the left edge, with its number.

    Examples
    --------
    >>> figure = rejections([Bar("k = 10", "walk", 3.5), Bar("k = 10", "exact", 2e13, expected=True)])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['k = 10', '3.5', '2e+13 (*)']
    """
    check_any(bars)
    panels = list(dict.fromkeys(bar.panel for bar in bars))
    positive = [bar.value for bar in bars if bar.value > 0]
    left = 10 ** np.floor(np.log10(min(positive, default=1.0)) - 0.3)
    right = max(positive, default=1.0)
    heads: dict[str, float] = {}
    places: dict[tuple[str, str], float] = {}
    y = 0.0
    for group in dict.fromkeys(bar.group for bar in bars):
        heads[group] = y
        own = dict.fromkeys(bar.series for bar in bars if bar.group == group)
        places |= {(group, series): y + 1 + j for j, series in enumerate(own)}
        y += len(own) + 1.6
    drawn = figure(8.6 if len(panels) == 1 else 2.0 + 3.4 * len(panels), 1.1 + 0.26 * y)
    all_axes = drawn.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for group, at in heads.items():
        all_axes[0].text(0.0, at, group, fontweight="bold", transform=all_axes[0].get_yaxis_transform(), va="center")
    for axes, panel in zip(all_axes, panels):
        axes.set(xscale="log", xlim=(left, left * (right / left) ** (1.22 if len(panels) == 1 else 1.34)))
        axes.set_ylim(y - 0.8, -0.8)
        if panel:
            axes.set_title(panel, loc="left", fontweight="bold")
        _bars(axes, [bar for bar in bars if bar.panel == panel], places, left)
    all_axes[0].set_yticks(list(places.values()), [series for _, series in places])
    drawn.supxlabel(xlabel, fontsize="medium")
    if any(bar.expected for bar in bars):
        all_axes[-1].set_title("(*) expected, in closed form: not run", loc="right", fontsize=9)
    return drawn


def _bars(axes: Any, bars: Sequence[Bar], places: Mapping[tuple[str, str], float], left: float) -> None:
    """Draw the bars of one panel at their places, each with its number."""
    series = list(dict.fromkeys(name for _, name in places))
    open_axes(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    for bar in bars:
        at = places[bar.group, bar.series]
        colour = (ATTRACT, REPEL, *COLOURS[1:4])[series.index(bar.series) % 5]
        look = {"hatch": "///", "edgecolor": "white"} if bar.expected else {}
        axes.barh(at, max(bar.value, left) - left, left=left, height=0.75, color=colour, lw=0, **look)
        value = f"{bar.value:,.0f}" if 100 <= bar.value < 1e5 else f"{bar.value:.2g}"
        mark = value + " (*)" * bar.expected
        axes.annotate(mark, (max(bar.value, left), at), (4, 0), textcoords="offset points", va="center", fontsize=9)
