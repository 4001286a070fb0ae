"""The old name of parts of :mod:`ndpp.answers`, whose records name items by one field. It will be removed in version 0.3."""

from ndpp._lazy import moved

__getattr__ = moved("ndpp.explain", "ndpp.answers", strongest_pairs="pairs", atlas="map_of")
