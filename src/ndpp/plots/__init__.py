"""Plots. Each function takes the results of another module and returns a matplotlib ``Figure``; none is shown or saved.

Figures do not use pyplot, so the backend, style and open figures of the process are untouched. Save one with
``figure.savefig("name.png")`` or ``.svg``. Attraction is blue and solid, repulsion orange and hatched or dashed. Curves
differ in colour, dashes and markers, which also works for colour-blind readers and in print [Okabe & Ito 2008].
"""

from typing import TYPE_CHECKING

from ndpp._lazy import renamed
from ndpp.plots.bars import Bar, mission_chart, pair_chart, popularity_chart, rejections, related_chart
from ndpp.plots.curves import Curve, Panel, convergence_curves, fitted_slope, runtimes, size_distributions
from ndpp.plots.maps import embedding_map, pair_graph

__all__ = [
    "Bar",
    "Curve",
    "Panel",
    "convergence_curves",
    "embedding_map",
    "fitted_slope",
    "mission_chart",
    "pair_chart",
    "pair_graph",
    "popularity_chart",
    "rejections",
    "related_chart",
    "runtimes",
    "size_distributions",
]

if not TYPE_CHECKING:  # type checkers see the new names only
    __getattr__ = renamed(
        __name__,
        convergence="convergence_curves",
        popularity="popularity_chart",
        related="related_chart",
        size_law="size_distributions",
        strongest_pairs="pair_chart",
    )
