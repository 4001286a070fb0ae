"""Pictures. Each function takes what another room computed and returns a matplotlib ``Figure``; nothing is shown or saved.

Figures are made without pyplot: no backend, style or list of figures of the process is touched. They are saved by
``figure.savefig("name.png")``, or ``.svg``. Attraction is blue and solid, repulsion orange and hatched or dashed; curves
differ in colour, dashes and markers: colour-blind eyes and black-and-white printers tell them apart [Okabe & Ito 2008].
"""

from ndpp.plots.curves import Curve, Panel, convergence, fitted_slope, runtimes
from ndpp.plots.items import pair_graph, popularity, related, strongest_pairs
from ndpp.plots.maps import embedding_map
from ndpp.plots.sizes import Bar, rejections, size_law

__all__ = [
    "Bar",
    "Curve",
    "Panel",
    "convergence",
    "embedding_map",
    "fitted_slope",
    "pair_graph",
    "popularity",
    "rejections",
    "related",
    "runtimes",
    "size_law",
    "strongest_pairs",
]
