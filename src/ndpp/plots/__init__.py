"""Plots. Each function takes the results of another module and returns a matplotlib ``Figure``; none is shown or saved.

Figures do not use pyplot, so the backend, style and open figures of the process are untouched. Save one with
``figure.savefig("name.png")`` or ``.svg``. Attraction is blue and solid, repulsion orange and hatched or dashed. Colours
and dashes also work for colour-blind readers and in print [Okabe & Ito 2008].
"""

from typing import TYPE_CHECKING

from ndpp._lazy import renamed
from ndpp.plots.bars import mission_chart, pair_chart, popularity_chart, related_chart, size_distributions
from ndpp.plots.maps import embedding_map, pair_graph

__all__ = [
    "embedding_map",
    "mission_chart",
    "pair_chart",
    "pair_graph",
    "popularity_chart",
    "related_chart",
    "size_distributions",
]

_OF_EXPERIMENTS = ("Bar", "Curve", "Panel", "convergence_curves", "fitted_slope", "rejections", "runtimes")

if not TYPE_CHECKING:  # type checkers see the new names only
    __getattr__ = renamed(
        __name__,
        **{name: f"ndpp_experiments.plots.{name}" for name in _OF_EXPERIMENTS},
        convergence="ndpp_experiments.plots.convergence_curves",
        popularity="popularity_chart",
        related="related_chart",
        size_law="size_distributions",
        strongest_pairs="pair_chart",
    )
