"""Which items of a catalogue a new one is like: by the letters of its name, by category, or by features."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from ndpp._types import FloatArray
from ndpp._validation import check_count
from ndpp.errors import InvalidInputError
from ndpp.laws.law import Law

GRAMS = 3, 4, 5
"""Lengths of the pieces of words, with a blank before and after each word."""


def text_features(labels: Sequence[str], n_features: int = 256) -> FloatArray:
    """Return features of names, for ``item_features=`` and ``add_items(features=…)``: counts of pieces of their words, hashed.

    Every piece of three to five letters adds ±1 to one of the columns, whatever the other names are; rows have norm one.

    Examples
    --------
    >>> F = text_features(["oat milk 1 l", "oat milk 2 l", "rye bread"])
    >>> F.shape, (F @ F[0]).round(1).tolist()
    ((3, 256), [1.0, 0.9, -0.0])
    """
    check_count(n_features, "n_features", least=1)
    out = np.zeros((len(labels), n_features))
    for row, label in zip(out, labels):
        for gram, count in _grams(label).items():
            code = zlib.crc32(gram.encode())
            row[(code >> 1) % n_features] += np.sqrt(count) * (1 if code & 1 else -1)
    return np.asarray(out / np.linalg.norm(out, axis=1, keepdims=True).clip(np.finfo(float).tiny))


def similar_items(model: object, new: Sequence[str], by: Any = "text", *, n: int = 5) -> dict[str, dict[str, float]]:
    """Return the items that new ones are like, with weights: what ``law.add_items`` takes.

    Parameters
    ----------
    model : Law or fitted estimator
        The model, with labels.
    new : sequence of str
        Labels of the new items.
    by : "text", mapping or pandas Series
        "text" finds the names that share most pieces of words, rare pieces counting most. A mapping from labels, of old and new items, to
        categories finds all items of the category; to vectors of features, the items whose vectors have the largest cosines.
    n : int
        Most items that a new one is like, by text or features. Weights are the squares of the cosines.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), labels=["oat milk 1 l", "soy milk 1 l", "rye bread"])
    >>> similar_items(kernel, ["oat milk 2 l"], n=1)
    {'oat milk 2 l': {'oat milk 1 l': 1.0}}
    >>> similar_items(kernel, ["wheat bread"], by={"rye bread": "bakery", "wheat bread": "bakery", "oat milk 1 l": "dairy"})
    {'wheat bread': {'rye bread': 1.0}}
    """
    law, new = Law.required(model), list(new)
    check_count(n, "n", least=1)
    if law.labels is None:
        raise InvalidInputError("the model has no labels to compare with; build it with labels=")
    if isinstance(by, str) and by == "text":
        cosines = _text_cosines(law.labels, new)
    elif hasattr(by, "items"):
        table = {str(label): value for label, value in by.items()}
        if (missing := next((label for label in new if label not in table), None)) is not None:
            raise InvalidInputError(f"must have an entry for every new item; {missing!r} has none", argument="by")
        if not new or np.ndim(table[new[0]]) == 0:
            cosines = np.array(
                [[table.get(old, NOTHING) == table[label] for old in law.labels] for label in new], float
            )
            n = law.n_items
        else:
            cosines = _vector_cosines(law.labels, new, table)
    else:
        problem = f"must be 'text', or a mapping from labels to categories or features; got {by!r:.60}"
        raise InvalidInputError(problem, argument="by")
    out = {}
    for label, row in zip(new, cosines):
        best = np.argsort(-row, kind="stable")[:n]
        best = best[row[best] > 0]
        if not len(best):
            problem = f"no item is like {label!r} by {by if isinstance(by, str) else 'these values'}"
            raise InvalidInputError(problem, advice="Name some yourself, or leave it out.")
        weights = row[best] ** 2
        out[label] = {law.labels[i]: float(w) for i, w in zip(best.tolist(), weights / weights.sum())}
    return out


NOTHING = object()


def _text_cosines(old: Sequence[str], new: Sequence[str]) -> FloatArray:
    """Return the cosines of new names and old ones, pieces of words being weighted by how rare they are."""
    columns: dict[str, int] = {}
    counts = [_grams(label) for label in (*old, *new)]
    entries = [
        (i, columns.setdefault(gram, len(columns)), count)
        for i, own in enumerate(counts)
        for gram, count in own.items()
    ]
    row, column, count = np.array(entries, np.float64).reshape(-1, 3).T
    seen = np.bincount(column[row < len(old)].astype(int), minlength=len(columns))
    values = np.sqrt(count) * np.log((1 + len(old)) / (0.5 + seen))[column.astype(int)]
    table = sparse.csr_array((values, (row.astype(int), column.astype(int))), shape=(len(counts), len(columns)))
    return _cosines(table, len(old))


def _vector_cosines(old: Sequence[str], new: Sequence[str], table: dict[str, Any]) -> FloatArray:
    """Return the cosines of vectors; 0 for old items without one."""
    width = len(table[new[0]])
    vectors = np.array([table.get(label, np.zeros(width)) for label in (*old, *new)], np.float64)
    if not np.isfinite(vectors).all():
        raise InvalidInputError("must hold finite numbers", argument="by")
    return _cosines(sparse.csr_array(vectors), len(old))


def _cosines(table: sparse.csr_array, n_old: int) -> FloatArray:
    """Return the cosines of the last rows and the first ones."""
    norms = np.sqrt(table.multiply(table).sum(axis=1)).clip(np.finfo(float).tiny)
    table = sparse.csr_array(table / norms[:, None])
    return np.asarray((table[n_old:] @ table[:n_old].T).toarray())


def _grams(label: str) -> Counter[str]:
    """Return the pieces of the words of a name."""
    words = [f" {word} " for word in label.casefold().split()]
    return Counter(word[i : i + k] for word in words for k in GRAMS for i in range(max(1, len(word) - k + 1)))
