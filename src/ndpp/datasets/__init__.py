"""Synthetic kernels and baskets, the data sets of the literature, and a package of real groceries."""

from ndpp.datasets.loaders import (
    cache_folder,
    fetch,
    load_amazon_registry,
    load_baskets,
    load_book,
    load_complete_journey,
    load_instacart,
    load_million_song,
    load_recipe,
    load_uk_retail,
)
from ndpp.datasets.synthetic import PlantedBaskets, make_baskets, make_kernel, shelf_kernel

__all__ = [
    "PlantedBaskets",
    "cache_folder",
    "fetch",
    "load_amazon_registry",
    "load_baskets",
    "load_book",
    "load_complete_journey",
    "load_instacart",
    "load_million_song",
    "load_recipe",
    "load_uk_retail",
    "make_baskets",
    "make_kernel",
    "shelf_kernel",
]
