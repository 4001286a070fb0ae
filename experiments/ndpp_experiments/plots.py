"""Figures of the experiments: how a distance falls with samples, how a time grows, rejections per sampler, estimates with errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ndpp._types import FloatArray
from ndpp.errors import InvalidInputError
from ndpp.plots.maps import ATTRACT, NEUTRAL, figure

if TYPE_CHECKING:
    from collections.abc import Sized

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_WIDTH = 5.2
"""Inches."""
GREY, REPEL = "#9aa3ab", "#E69F00"
COLOURS = (ATTRACT, "#D55E00", "#009E73", "#CC79A7", REPEL, "#56B4E9", "#000000", NEUTRAL, "#332288")
"""The colours of Okabe and Ito, without yellow and with grey and indigo."""
MARKERS = "osD^vPX*p"
Dashes: TypeAlias = str | tuple[float, tuple[float, ...]]
STYLES: tuple[Dashes, ...] = (
    "-", "--", "-.", (0, (1, 1)), (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (8, 2)), ":", (0, (4, 1, 1, 1, 1, 1)),
)  # fmt: skip


class Curve(NamedTuple):
    """The points of a line, and optionally a band around it."""

    label: str
    x: Sequence[float] | FloatArray
    y: Sequence[float] | FloatArray
    low: Sequence[float] | FloatArray | None = None
    high: Sequence[float] | FloatArray | None = None


class Panel(NamedTuple):
    """One pair of axes, logarithmic unless ``log`` is False; ``reference`` is drawn in grey, ``levels`` as lines."""

    title: str
    xlabel: str
    ylabel: str
    curves: Sequence[Curve]
    reference: Curve | None = None
    levels: Mapping[str, float] = {}
    log: bool = True


class Bar(NamedTuple):
    """A number of rejections or seconds; ``expected`` marks a closed form for a run that would not finish.

    Bars with different ``panel`` are drawn next to each other, with a common axis of groups.
    """

    group: str
    series: str
    value: float
    expected: bool = False
    panel: str = ""


def check_any(what: Sized) -> None:
    """Raise if there is nothing to draw."""
    if not len(what):
        raise InvalidInputError("nothing to draw: got no curve or bar")


def line_look(i: int) -> dict[str, Any]:
    """Return the colour, marker and dashes of line i, all different for the first nine."""
    i %= len(COLOURS)
    return {"color": COLOURS[i], "marker": MARKERS[i], "ls": STYLES[i], "ms": 5, "lw": 1.6}


def open_frame(axes: Axes) -> None:
    """Remove the frame except for its lower edge, and the ticks of the bars."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def fitted_slope(x: Any, y: Any) -> float:
    """Return the slope of the least-squares line through (log x, log y): the exponent of a power law.

    Examples
    --------
    >>> round(fitted_slope([1, 10, 100], [3, 300, 30000]), 6)
    2.0
    """
    first, second = (np.asarray(values, np.float64) for values in (x, y))
    if first.shape != second.shape or len(np.unique(first)) < 2 or min(first.min(), second.min()) <= 0:
        raise InvalidInputError("a slope on log-log axes needs positive numbers at two or more different x")
    return float(np.polyfit(np.log(first), np.log(second), 1)[0])


def convergence_curves(panels: Sequence[Panel]) -> Figure:
    """Plot distances against numbers of samples or steps, with the noise of a perfect sampler as reference.

    Curves with the same label look the same in all panels.

    Examples
    --------
    >>> curve = Curve("walk", [10, 100, 1000], [0.3, 0.1, 0.05])
    >>> perfect = Curve("perfect sampler", [10, 1000], [0.3, 0.03], low=[0.2, 0.02], high=[0.4, 0.04])
    >>> panel = Panel("k = 5", "samples", "distance", [curve], perfect, {"limit of the walk": 0.04})
    >>> [line.get_label() for line in convergence_curves([panel]).axes[0].get_lines()]
    ['perfect sampler', 'limit of the walk', 'walk']
    """
    drawn = _draw(panels, lambda curve: curve.label, extra_height=0.9)
    shown = {name: line for axes in drawn.axes for line, name in zip(*axes.get_legend_handles_labels())}
    fitting = max(1, int(drawn.get_figwidth() / (0.6 + 0.075 * max(map(len, shown)))))
    columns = -(-len(shown) // -(-len(shown) // min(4, fitting)))  # as few rows as fit, evenly filled
    drawn.legend(shown.values(), shown, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    return drawn


def runtimes(panels: Sequence[Panel], *, slopes: bool = True) -> Figure:
    """Plot times against problem sizes on log-log axes; each panel has a legend with fitted slopes.

    Examples
    --------
    >>> curve = Curve("preparation", [100, 1000, 10000], [0.1, 1.0, 10.0])
    >>> figure = runtimes([Panel("d = 100", "items", "seconds", [curve])])
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['preparation (slope 1.00)']
    """

    def name(curve: Curve) -> str:
        fitted = slopes and len(curve.x) > 1
        return f"{curve.label} (slope {fitted_slope(curve.x, curve.y):z.2f})" if fitted else curve.label

    longest = max((len(name(curve)) for panel in panels for curve in panel.curves), default=0)
    columns = 2 if 2 * (0.5 + 0.06 * longest) <= PANEL_WIDTH else 1
    lines = max((-(-len(panel.curves) // columns) for panel in panels), default=0)
    drawn = _draw(panels, name, extra_height=0.22 * lines * -(-len(panels) // 2))
    for axes in drawn.axes:
        axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns)
    return drawn


def rejections(
    bars: Sequence[Bar],
    *,
    xlabel: str = "rejections for one sample (or one step of a walk)",
    note: str = "(*) closed-form expectation, not run",
) -> Figure:
    """Plot horizontal bars by group on a log axis; expected values are hatched and marked with (*), which ``note`` explains.

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
        open_frame(axes)
        axes.set(xscale="log", xlim=(left, left * (right / left) ** (1.22 if len(panels) == 1 else 1.34)))
        axes.set_ylim(y - 0.8, -0.8)
        if panel:
            axes.set_title(panel, loc="left", fontweight="bold")
        for bar in (bar for bar in bars if bar.panel == panel):
            at, end = places[bar.group, bar.series], max(bar.value, left)  # zero ends at the left edge
            look = {"hatch": "///", "edgecolor": "white"} if bar.expected else {}
            axes.barh(at, end - left, left=left, height=0.75, color=colours[bar.series], lw=0, **look)
            value = f"{bar.value:,.0f}" if 100 <= bar.value < 1e5 else f"{bar.value:.2g}"
            mark = value + " (*)" * bar.expected
            axes.annotate(mark, (end, at), (4, 0), textcoords="offset points", va="center", fontsize=9)
    columns[0].set_yticks(list(places.values()), [series for _, series in places])
    drawn.supxlabel(xlabel, fontsize="medium")
    if any(bar.expected for bar in bars):
        columns[-1].set_title(note, loc="right", fontsize=9)
    return drawn


def effects(rows: Sequence[tuple[str, float, float]], *, xlabel: str) -> Figure:
    """Plot estimates, one below the other, with two standard errors to either side, and a line at zero.

    Examples
    --------
    >>> drawn = effects([("price alone", -1.8, 0.1), ("next week's price", 0.0, 0.05)], xlabel="effect")
    >>> [label.get_text() for label in drawn.axes[0].get_yticklabels()]
    ['price alone', "next week's price"]
    """
    check_any(rows)
    drawn = figure(8.6, 0.9 + 0.4 * len(rows))
    axes = drawn.subplots()
    open_frame(axes)
    names, values, errors = zip(*rows)
    at = np.arange(len(rows))
    axes.axvline(0.0, color=GREY, lw=1)
    axes.errorbar(values, at, xerr=2 * np.array(errors), fmt="o", color=ATTRACT)
    axes.set(xlabel=xlabel, ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(at, names)
    return drawn


def _draw(panels: Sequence[Panel], name: Callable[[Curve], str], *, extra_height: float) -> Figure:
    """Plot the panels in two columns, with the names of curves by ``name``."""
    check_any(panels)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    drawn = figure(PANEL_WIDTH * columns, 3.9 * rows + extra_height)
    for i, panel in enumerate(panels):
        scale = "log" if panel.log else "linear"
        axes: Any = drawn.add_subplot(rows, columns, i + 1, xscale=scale, yscale=scale)
        axes.set_title(panel.title, fontsize=11)
        axes.set(xlabel=panel.xlabel, ylabel=panel.ylabel, axisbelow=True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(which="major", color="#e4e7ea", lw=0.8)
        if panel.reference is not None:
            _plot(axes, panel.reference, 0.25, color=GREY, lw=6, alpha=0.35, solid_capstyle="butt")
        for (label, level), style in zip(panel.levels.items(), (":", "--", "-.") * len(panel.levels)):
            axes.axhline(level, color=NEUTRAL, ls=style, lw=1.2, label=label)
        for curve in panel.curves:
            _plot(axes, curve._replace(label=name(curve)), 0.15, **line_look(labels.index(curve.label)))
        _readable_scales(axes, panel)
    return drawn


def _plot(axes: Any, curve: Curve, opacity: float, **look: Any) -> None:
    """Plot a curve, and the band around it with this opacity."""
    axes.plot(curve.x, curve.y, label=curve.label, **look)
    if curve.low is not None and curve.high is not None:
        axes.fill_between(curve.x, curve.low, curve.high, color=look["color"], alpha=opacity, lw=0)


def _readable_scales(axes: Any, panel: Panel) -> None:
    """Show at least one decade, so that noise does not look like a trend; label few and close x as plain numbers."""
    low, high = axes.get_ylim()
    room = max(1.0, np.sqrt(10 * low / high)) if panel.log else 1.0
    axes.set_ylim(low / room if panel.log else 0.0, high * room)
    x = np.unique(np.concatenate([np.asarray(curve.x, np.float64) for curve in panel.curves]))
    if len(x) <= 12 and x[-1] < 100 * x[0]:
        axes.set_xticks(x, [f"{value:g}" for value in x])
        axes.set_xticks([], minor=True)
