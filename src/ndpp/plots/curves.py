"""Curves on logarithmic scales: how a distance falls with the number of samples, how a time grows with the size of a problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ndpp._types import FloatArray
from ndpp.errors import InvalidInputError
from ndpp.plots._base import NEUTRAL, check_any, figure, line_look, open_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Curve(NamedTuple):
    """Points of a line, and optionally a band around it."""

    label: str
    x: Sequence[float] | FloatArray
    y: Sequence[float] | FloatArray
    low: Sequence[float] | FloatArray | None = None
    high: Sequence[float] | FloatArray | None = None


class Panel(NamedTuple):
    """One pair of axes, logarithmic unless ``log`` is False. ``floor`` is a grey band behind the curves, ``levels`` are lines."""

    title: str
    xlabel: str
    ylabel: str
    curves: Sequence[Curve]
    floor: Curve | None = None
    levels: Mapping[str, float] = {}
    log: bool = True


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


def convergence(panels: Sequence[Panel]) -> Figure:
    """Return distances against numbers of samples or steps, beside the noise floor of a perfect sampler.

    Curves of one label look the same in all panels.

    Examples
    --------
    >>> curve = Curve("walk", [10, 100, 1000], [0.3, 0.1, 0.05])
    >>> floor = Curve("perfect sampler", [10, 1000], [0.3, 0.03], low=[0.2, 0.02], high=[0.4, 0.04])
    >>> figure = convergence([Panel("k = 5", "samples", "distance", [curve], floor, {"limit of the walk": 0.04})])
    >>> [line.get_label() for line in figure.axes[0].get_lines()]
    ['perfect sampler', 'limit of the walk', 'walk']
    """
    return _draw(panels, lambda curve: curve.label)


def runtimes(panels: Sequence[Panel], *, slopes: bool = True) -> Figure:
    """Return times against sizes of a problem, on log-log axes, each panel with its own legend and fitted slopes.

    Examples
    --------
    >>> curve = Curve("preparation", [100, 1000, 10000], [0.1, 1.0, 10.0])
    >>> figure = runtimes([Panel("d = 100", "items", "seconds", [curve])])
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['preparation (slope 1.00)']
    """
    return _draw(panels, _with_slope if slopes else lambda curve: curve.label, own_legends=True)


def _with_slope(curve: Curve) -> str:
    return f"{curve.label} (slope {fitted_slope(curve.x, curve.y):z.2f})" if len(curve.x) > 1 else curve.label


def _draw(panels: Sequence[Panel], name: Any, *, own_legends: bool = False) -> Figure:
    check_any(panels)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    below = max(len(panel.curves) for panel in panels) * 0.11 * rows if own_legends else 0.9
    drawn = figure(5.2 * columns, 3.9 * rows + below)
    for i, panel in enumerate(panels):
        scale = "log" if panel.log else "linear"
        axes = drawn.add_subplot(rows, columns, i + 1, xscale=scale, yscale=scale)
        axes.set_title(panel.title, fontsize=11)
        _panel(axes, panel, labels, name)
        if own_legends:
            axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    if not own_legends:
        shown = {name: line for axes in drawn.axes for line, name in zip(*axes.get_legend_handles_labels())}
        fitting = max(1, int(drawn.get_figwidth() / (0.6 + 0.075 * max(map(len, shown)))))
        columns = -(-len(shown) // -(-len(shown) // min(4, fitting)))  # as few rows as fit, evenly filled
        drawn.legend(shown.values(), shown, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    return drawn


def _panel(axes: Any, panel: Panel, labels: Sequence[str], name: Any) -> None:
    open_axes(axes)
    axes.grid(which="major", color="#e4e7ea", lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(panel.xlabel)
    axes.set_ylabel(panel.ylabel)
    if panel.floor is not None:
        floor = panel.floor
        axes.plot(floor.x, floor.y, color="#9aa3ab", lw=6, alpha=0.35, label=floor.label, solid_capstyle="butt")
        if floor.low is not None and floor.high is not None:
            axes.fill_between(floor.x, floor.low, floor.high, color="#9aa3ab", alpha=0.25, lw=0)
    for (label, level), style in zip(panel.levels.items(), (":", "--", "-.") * len(panel.levels)):
        axes.axhline(level, color=NEUTRAL, ls=style, lw=1.2, label=label)
    for curve in panel.curves:
        look = line_look(labels.index(curve.label))
        axes.plot(curve.x, curve.y, label=name(curve), **look)
        if curve.low is not None and curve.high is not None:
            axes.fill_between(curve.x, curve.low, curve.high, color=look["color"], alpha=0.15, lw=0)
    _readable_scales(axes, panel)


def _readable_scales(axes: Any, panel: Panel) -> None:
    """Show a decade at least, so that noise does not look like a trend; name few and near sizes as they are."""
    low, high = axes.get_ylim()
    room = max(1.0, np.sqrt(10 * low / high)) if panel.log else 1.0
    axes.set_ylim(low / room if panel.log else 0.0, high * room)
    sizes = np.unique(np.concatenate([np.asarray(curve.x, np.float64) for curve in panel.curves]))
    if len(sizes) <= 12 and sizes[-1] < 100 * sizes[0]:
        axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
        axes.set_xticks([], minor=True)
