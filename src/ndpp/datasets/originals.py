"""The data sets of the literature, from the files that their authors publish.

Each loader takes the path of the original file. Without one it looks for prepared baskets, by the name its docstring
gives, in the folder that the environment variable NDPP_DATA names, and otherwise says where the original can be had.

Preprocessing, as in [Han22]: baskets of more than 100 rows are dropped, and an item that a basket names twice is kept
once. Items and baskets are numbered as they first appear. Counts in the docstrings are the paper's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ndpp.baskets import Baskets
from ndpp.datasets._tables import MAX_ROWS, LongTable, PathLike, assemble, read_column, read_header, read_long
from ndpp.datasets.download import fetch
from ndpp.datasets.folder import load_baskets
from ndpp.errors import DataNotFoundError, InvalidInputError

UK_RETAIL_URL = "https://archive.ics.uci.edu/static/public/352/online+retail.zip"
UK_RETAIL_SHA256 = "f5385cbb54bbebf7196389109c6b0621faab0c304e3702548165e71c84aede8b"


class Source(NamedTuple):
    """A data set: its name as prepared baskets, the original file, the page that offers it, and the loader."""

    name: str
    file: str
    page: str
    loader: str


UK_RETAIL = Source(
    "uk_retail", "Online Retail.xlsx or its CSV export", "archive.ics.uci.edu/dataset/352 (CC BY 4.0)", "load_uk_retail"
)
RECIPE = Source(
    "foodcom",
    "RAW_recipes.csv",
    "kaggle.com/datasets/shuyangli94/food-com-recipes-and-user-interactions",
    "load_recipe",
)
INSTACART = Source(
    "instacart_train",
    "the folder of order_products__prior.csv and products.csv",
    'the page "Instacart Market Basket Analysis" on kaggle.com (non-commercial use)',
    "load_instacart",
)
MILLION_SONG = Source(
    "millionsong_sample",
    "train_triplets.txt",
    "millionsongdataset.com/tasteprofile (research use)",
    "load_million_song",
)
BOOK = Source(
    "goodreads_toread",
    "goodreads_interactions.csv",
    'the page "UCSD Book Graph" of its authors, M. Wan and J. McAuley (academic use)',
    "load_book",
)


def load_uk_retail(path: PathLike | None = None, *, download: bool = False) -> Baskets:
    """Return UCI Online Retail, 2010 and 2011 in a British web shop: 20,062 baskets (19,762 + 300), 3,941 items.

    A basket is an invoice, an item a stock code, labelled by code and description; only rows of positive quantity
    count. The catalogue is that of all invoices, the dropped ones included. Prepared baskets: ``uk_retail``.

    Parameters
    ----------
    path : path, optional
        Online Retail.xlsx, the zip archive that holds it, or a CSV file with its columns InvoiceNo, StockCode,
        Description, Quantity.
    download : bool
        Fetch the archive (23 MB) from UCI into the cache, where it is not there yet.
    """
    if path is None and download:
        path = fetch(UK_RETAIL_URL, sha256=UK_RETAIL_SHA256)
    if path is None:
        return _prepared(UK_RETAIL, "load_uk_retail(download=True) fetches it.")
    table = read_long(
        path, basket="InvoiceNo", item="StockCode", title="Description", number="Quantity", keep=lambda q: q > 0
    )
    labels = [f"{code} {table.titles.get(i, '')}" for i, code in enumerate(table.labels)]
    return assemble(table, labels, whole_catalogue=True)


def load_recipe(path: PathLike | None = None) -> Baskets:
    """Return recipes from Food.com as baskets of ingredients: 178,265 baskets, 7,993 items.

    Prepared baskets: ``foodcom`` (a selection of 79,099 recipes).

    Parameters
    ----------
    path : path, optional
        RAW_recipes.csv, whose column ``ingredients`` names them, or PP_recipes.csv, whose column ``ingredient_ids``
        numbers them.
    """
    if path is None:
        return _prepared(RECIPE)
    column = "ingredient_ids" if "ingredient_ids" in read_header(path) else "ingredients"
    recipes = [_ingredients(text, path) for text in read_column(path, column)]
    recipes = [recipe for recipe in recipes if len(recipe) <= MAX_ROWS]
    return Baskets.from_lists(recipes, labels=_in_order(recipes))


def load_instacart(path: PathLike | None = None) -> Baskets:
    """Return orders of the grocery service Instacart: 3.2 million baskets, 49,677 items, labelled by product name.

    Prepared baskets: ``instacart_train`` (131,209 orders).

    Parameters
    ----------
    path : path, optional
        The folder with order_products__prior.csv, the orders that the paper uses, or another file of that kind.
        Names come from products.csv in the same folder, if it is there.
    """
    if path is None:
        return _prepared(INSTACART)
    file = Path(path) / "order_products__prior.csv" if Path(path).is_dir() else Path(path)
    table = read_long(file, basket="order_id", item="product_id")
    products = file.with_name("products.csv")
    names = _names(products, "product_id", "product_name") if products.is_file() else {}
    return assemble(table, [names.get(code, code) for code in table.labels])


def load_million_song(path: PathLike | None = None) -> Baskets:
    """Return what users of Echo Nest listened to: 968,674 baskets, 371,410 songs, labelled by song code.

    Prepared baskets: ``millionsong_sample`` (1,578 users).

    Parameters
    ----------
    path : path, optional
        train_triplets.txt (user, song, count; tabs between), or the zip archive that holds it.
    """
    if path is None:
        return _prepared(MILLION_SONG)
    table = read_long(path, basket="user", item="song", header=("user", "song", "count"), delimiter="\t")
    return assemble(table, table.labels)


def load_book(path: PathLike | None = None) -> Baskets:
    """Return the books that users of Goodreads reviewed: 430,563 baskets, 1,059,437 books, labelled by their numbers.

    Prepared baskets: ``goodreads_toread`` (48,859 to-read shelves of the smaller data set goodbooks-10k).

    Parameters
    ----------
    path : path, optional
        goodreads_interactions.csv, with columns user_id, book_id and is_reviewed. Without the last, all rows count.
    """
    if path is None:
        return _prepared(BOOK)
    table = read_long(path, basket="user_id", item="book_id", number="is_reviewed", keep=lambda reviewed: reviewed == 1)
    return assemble(table, table.labels)


def load_amazon_registry(category: str = "apparel", path: PathLike | None = None) -> Baskets:
    """Return Amazon baby registries of one category: for apparel 14,970 baskets over 100 items.

    Prepared baskets: ``amazon_`` and the category, such as ``amazon_apparel`` or ``amazon_3cat`` (apparel, diaper and
    feeding together: 31,218 baskets over 300 items).

    Parameters
    ----------
    category : str
        The category; with ``path``, only used in labels.
    path : path, optional
        A file such as 1_100_100_100_apparel_regs.csv [Gillenwater et al., NIPS 2014]: one basket a line, item numbers
        from 1, commas between.
    """
    if path is None:
        file = f"1_100_100_100_{category}_regs.csv"
        source = Source(f"amazon_{category}", file, "code.google.com/archive/p/em-for-dpps", "load_amazon_registry")
        return _prepared(source)
    raw = Baskets.read(path, format="text", as_labels=False)
    if np.any(raw.indices == 0):
        raise InvalidInputError(
            f"{path}: expected item numbers from 1; item 0 occurs. Read such a file by Baskets.read."
        )
    labels = [f"{category} item {i + 1}" for i in range(raw.n_items - 1)]
    return Baskets(raw.indptr, raw.indices - 1, len(labels), tuple(labels)).select(min_size=1, max_size=MAX_ROWS)


def _prepared(source: Source, hint: str = "") -> Baskets:
    try:
        return load_baskets(source.name)
    except DataNotFoundError as reason:
        raise DataNotFoundError(
            f"{reason}.\nTo read the original instead, get {source.file} from {source.page} "
            f"and pass its path to ndpp.datasets.{source.loader}. {hint}".rstrip()
        ) from None


def _ingredients(text: str, path: PathLike) -> list[str]:
    try:
        return [str(value) for value in ast.literal_eval(text)]
    except (ValueError, SyntaxError, TypeError):
        raise InvalidInputError(
            f"{path}: expected a list of ingredients such as ['salt', 'flour']; got {text[:80]!r}"
        ) from None


def _in_order(sets: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(item for members in sets for item in members))


def _names(path: Path, code: str, name: str) -> dict[str, str]:
    """Return the names of items by their codes."""
    table: LongTable = read_long(path, basket=code, item=code, title=name)
    return {label: table.titles[i] for i, label in enumerate(table.labels) if i in table.titles}
