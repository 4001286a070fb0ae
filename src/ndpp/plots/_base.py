"""Shared by all plots: figures without pyplot, colours, and labels of limited length."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from ndpp.errors import InvalidInputError, needing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ATTRACT, REPEL, NEUTRAL = "#0072B2", "#E69F00", "#5B6770"
COLOURS = (ATTRACT, "#D55E00", "#009E73", "#CC79A7", REPEL, "#56B4E9", "#000000", NEUTRAL, "#332288")
"""The colours of Okabe and Ito, without yellow and with grey and indigo."""
MARKERS = "osD^vPX*p"
Dashes: TypeAlias = str | tuple[float, tuple[float, ...]]
STYLES: tuple[Dashes, ...] = (
    "-", "--", "-.", (0, (1, 1)), (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (8, 2)), ":", (0, (4, 1, 1, 1, 1, 1)),
)  # fmt: skip


class LineLook(TypedDict):
    """How a line looks, as matplotlib takes it."""

    color: str
    marker: str
    ls: Dashes
    ms: float
    lw: float


def figure(width: float, height: float) -> Figure:
    """Return an empty figure of this width and height in inches."""
    with needing("matplotlib", "plot", "A picture"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def short(label: str, most: int = 36) -> str:
    """Return a label, cut to at most ``most`` characters."""
    return label if len(label) <= most else label[: most - 1].rstrip() + "…"


def check_any(what: Sized) -> None:
    """Raise if there is nothing to draw."""
    if not len(what):
        raise InvalidInputError("nothing to draw: got no item, pair, curve or bar")


def line_look(i: int) -> LineLook:
    """Return the colour, marker and dashes of line i, all different for the first nine."""
    i %= len(COLOURS)
    return {"color": COLOURS[i], "marker": MARKERS[i], "ls": STYLES[i], "ms": 5, "lw": 1.6}


def open_frame(axes: Axes) -> None:
    """Remove the frame except for its lower edge, and the ticks of the bars."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
