"""Many sets of items: the record, its labels and its files."""

from ndpp.baskets.baskets import Baskets, Split

__all__ = ["Baskets", "Split"]
