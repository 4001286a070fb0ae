"""Bar charts: popular items, related items, the strongest pairs, and rejections per sampler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ndpp.answers.records import Mission, Pairs, Related, Relation, Share
from ndpp.plots._base import ATTRACT, COLOURS, GO_TOGETHER, NEUTRAL, REPEL, REPLACE_EACH_OTHER, check_any, figure, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HATCHED: dict[str, Any] = {"hatch": "///", "edgecolor": "white"}
MIN_LIFT = 1 / 64
"""Smaller lifts are drawn as this."""


class Bar(NamedTuple):
    """A number of rejections or seconds; ``expected`` marks a closed form for a run that would not finish.

    Bars with different ``panel`` are drawn next to each other, with a common axis of groups.
    """

    group: str
    series: str
    value: float
    expected: bool = False
    panel: str = ""


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


def rejections(bars: Sequence[Bar], *, xlabel: str = "rejections for one sample (or one step of a walk)") -> Figure:
    """Plot horizontal bars by group on a log axis; expected values are hatched and marked with (*).

    Examples
    --------
    >>> figure = rejections([Bar("k = 10", "walk", 3.5), Bar("k = 10", "exact", 2e13, expected=True)])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['k = 10', '3.5', '2e+13 (*)']
    """
    check_any(bars)
    panels = list(dict.fromkeys(bar.panel for bar in bars))
    colours = dict(zip(dict.fromkeys(bar.series for bar in bars), (ATTRACT, REPEL, *COLOURS[1:4]) * len(bars)))
    positive = [bar.value for bar in bars if bar.value > 0] or [1.0]
    left, right = 10 ** np.floor(np.log10(min(positive)) - 0.3), max(positive)
    heads: dict[str, float] = {}
    places: dict[tuple[str, str], float] = {}
    y = 0.0
    for group in dict.fromkeys(bar.group for bar in bars):
        heads[group] = y
        own = dict.fromkeys(bar.series for bar in bars if bar.group == group)
        places |= {(group, series): y + 1 + j for j, series in enumerate(own)}
        y += len(own) + 1.6
    drawn = figure(8.6 if len(panels) == 1 else 2.0 + 3.4 * len(panels), 1.1 + 0.26 * y)
    columns: Any = drawn.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for group, at in heads.items():
        columns[0].text(0.0, at, group, fontweight="bold", transform=columns[0].get_yaxis_transform(), va="center")
    for axes, panel in zip(columns, panels):
        _open(axes)
        axes.set(xscale="log", xlim=(left, left * (right / left) ** (1.22 if len(panels) == 1 else 1.34)))
        axes.set_ylim(y - 0.8, -0.8)
        if panel:
            axes.set_title(panel, loc="left", fontweight="bold")
        for bar in (bar for bar in bars if bar.panel == panel):
            at, end = places[bar.group, bar.series], max(bar.value, left)  # zero ends at the left edge
            look = HATCHED if bar.expected else {}
            axes.barh(at, end - left, left=left, height=0.75, color=colours[bar.series], lw=0, **look)
            value = f"{bar.value:,.0f}" if 100 <= bar.value < 1e5 else f"{bar.value:.2g}"
            mark = value + " (*)" * bar.expected
            axes.annotate(mark, (end, at), (4, 0), textcoords="offset points", va="center", fontsize=9)
    columns[0].set_yticks(list(places.values()), [series for _, series in places])
    drawn.supxlabel(xlabel, fontsize="medium")
    if any(bar.expected for bar in bars):
        columns[-1].set_title("(*) closed-form expectation, not run", loc="right", fontsize=9)
    return drawn


def _lift_chart(pairs: Pairs | Related, name: Callable[[Relation], str], xlabel: str) -> Figure:
    """Plot complements to the right of 1 and substitutes to the left, on a log axis of lifts."""
    both = pairs.complements + pairs.substitutes
    drawn, axes = _bar_chart([name(pair) for pair in both])
    lengths = np.log2([max(pair.by_ties, MIN_LIFT) for pair in both])  # the lift, apart from missions
    looks = {"color": ATTRACT, "label": GO_TOGETHER}, {"color": REPEL, "label": REPLACE_EACH_OTHER, **HATCHED}
    for kind, look in zip((pairs.complements, pairs.substitutes), looks):
        places = [both.index(pair) for pair in kind]
        if kind:
            bars = axes.barh(places, lengths[places], height=0.7, **look)
            axes.bar_label(bars, [f"{pair.by_ties:.2g}×" for pair in kind], padding=3)
    axes.axvline(0, color="black", lw=0.8)
    low, high = min(lengths.min(), 0.0), max(lengths.max(), 0.0)
    room = 0.2 * max(1.0, high - low)  # for the numbers at the ends of the bars
    axes.set_xlim(low - room * (low < 0), high + room * (high > 0))
    ticks = np.arange(np.ceil(low - room), np.floor(high + room) + 1)[:: max(1, round((high - low) / 5))]
    axes.set_xticks(ticks, [f"{2**tick:g}×" if tick >= 0 else f"1/{2**-tick:g}×" for tick in ticks])
    mixed = any(pair.by_missions != 1.0 for pair in both)
    axes.set_xlabel(xlabel + ", beyond what missions explain" * mixed)
    drawn.legend(loc="outside lower center", ncols=2, frameon=False)
    return drawn


def _bar_chart(names: Sequence[str]) -> tuple[Figure, Any]:
    """Return a figure and its axes, with room for a horizontal bar per name, the first at the top."""
    check_any(names)
    drawn = figure(5.0 + 0.08 * max(map(len, names)), 1.2 + 0.3 * len(names))
    axes = drawn.add_subplot()
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    _open(axes)
    return drawn, axes


def _open(axes: Any) -> None:
    """Remove the frame except for its lower edge, and the ticks of the bars."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
