"""What all pictures share: a figure without pyplot, colours, labels that are not too long."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from ndpp.errors import InvalidInputError, MissingExtraError

ATTRACT, REPEL, NEUTRAL = "#0072B2", "#E69F00", "#5B6770"
COLOURS = (ATTRACT, "#D55E00", "#009E73", "#CC79A7", REPEL, "#56B4E9", "#000000", NEUTRAL, "#332288")
"""Okabe and Ito's, which colour-blind eyes tell apart; the pale yellow is left out, grey and indigo are added."""
MARKERS = "osD^vPX*p"
STYLES: tuple[Any, ...] = (
    "-",
    "--",
    "-.",
    (0, (1, 1)),
    (0, (5, 1)),
    (0, (3, 1, 1, 1)),
    (0, (8, 2)),
    ":",
    (0, (4, 1, 1, 1, 1, 1)),
)
LABEL_LENGTH = 36
"""Longer labels are cut."""


def figure(width: float, height: float) -> Any:
    """Return an empty figure, or say what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "A picture") from None
    return Figure(figsize=(width, height), layout="constrained")


def short(label: str, most: int = LABEL_LENGTH) -> str:
    """Return a label, cut if it is too long."""
    return label if len(label) <= most else label[: most - 1].rstrip() + "…"


def check_any(what: Sized) -> None:
    """Refuse to draw nothing."""
    if not len(what):
        raise InvalidInputError("there is nothing to draw: no item, pair, curve or bar was given")


def open_axes(axes: Any) -> None:
    """Take away the frame above and to the right."""
    axes.spines[["top", "right"]].set_visible(False)


def line_look(i: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the i-th line, all different for the first nine."""
    i %= len(COLOURS)
    return {"color": COLOURS[i], "marker": MARKERS[i], "ls": STYLES[i], "ms": 5, "lw": 1.6}
