"""A picture of a model as a matplotlib ``Figure``, which is neither shown nor saved.

Figures do not use pyplot, so the backend, style and open figures of the process are untouched. Save one with
``figure.savefig("name.png")`` or ``.svg``. ``ndpp report`` makes a page with all that can be drawn of a model.
"""

from ndpp.plots.maps import embedding_map

__all__ = ["embedding_map"]
