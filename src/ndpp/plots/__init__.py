"""Plots. Each function takes the results of another module and returns a matplotlib ``Figure``; none is shown or saved.

Figures do not use pyplot, so the backend, style and open figures of the process are untouched. Save one with
``figure.savefig("name.png")`` or ``.svg``. Attraction is blue and solid, repulsion orange and dashed. Colours
and dashes also work for colour-blind readers and in print [Okabe & Ito 2008].
"""

from ndpp.plots.bars import mission_chart, size_distributions
from ndpp.plots.maps import embedding_map, pair_graph

__all__ = ["embedding_map", "mission_chart", "pair_graph", "size_distributions"]
