"""Baskets: many sets of items, their labels and their file formats."""

from ndpp.baskets.baskets import Baskets, Split

__all__ = ["Baskets", "Split"]
