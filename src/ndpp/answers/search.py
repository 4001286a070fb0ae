"""Search in the names of a catalogue: by prefix, by part of a word, and with typing errors.

Names and query are cut into trigrams of their words, "  pe", " pes", "pest", …; an item scores the share of the query's trigrams that
its name has. All names together are one array of characters, so that building the index and asking it are a few passes of numpy.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

from ndpp._types import FloatArray, IntArray

LEAST_SHARE = 0.4
"""Names that share fewer of the query's trigrams are no match."""
RANKED = 200
"""Names that are compared with the query letter by letter."""


def folded(text: str) -> str:
    """Return a text without case, accents and repeated spaces.

    Examples
    --------
    >>> folded("  Crème  BRÛLÉE ")
    'creme brulee'
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    return " ".join(plain.split())


class LabelIndex:
    """The names of a catalogue, ready to be searched.

    Parameters
    ----------
    labels : sequence of str
        The names.
    weights : (n,) array
        Popularity of the items; among equally good matches the most popular comes first.

    Examples
    --------
    >>> index = LabelIndex(["tomato sauce", "pesto", "potato"], np.array([0.5, 0.2, 0.3]))
    >>> index.search("tomatoe", 5), index.search("pes", 5)
    (([0], 1), ([1], 1))
    """

    def __init__(self, labels: Sequence[str], weights: FloatArray) -> None:
        self.names = [folded(label) for label in labels]
        self.weights = weights
        self.popular = np.argsort(-weights, kind="stable")
        grams, owners = _trigrams(self.names)
        order = np.lexsort((owners, grams))
        grams, owners = grams[order], owners[order]
        first = np.ones(len(grams), bool)
        first[1:] = (grams[1:] != grams[:-1]) | (owners[1:] != owners[:-1])  # each name once for each trigram
        self._owners = owners[first]
        self._grams, starts = np.unique(grams[first], return_index=True)
        self._ends = np.append(starts, len(self._owners))

    def search(self, query: str, limit: int, offset: int = 0) -> tuple[list[int], int]:
        """Return the items that match, best first, and how many do; all of them, the most popular first, if the query is empty."""
        wanted = folded(query)
        if not wanted:
            return self.popular[offset : offset + limit].tolist(), len(self.names)
        shares = self._shares(wanted)
        matching = np.flatnonzero(shares >= LEAST_SHARE)
        order = matching[np.lexsort((-self.weights[matching], -shares[matching]))]
        head = sorted(order[:RANKED].tolist(), key=lambda item: self._key(item, wanted, float(shares[item])))
        return [*head, *order[RANKED:].tolist()][offset : offset + limit], len(order)

    def _shares(self, wanted: str) -> FloatArray:
        """Return the share of the query's trigrams that each name has; at least a half where it has all that begin no word."""
        grams = np.unique(_trigrams([wanted], end=False)[0])
        inner = grams >> 42 != ord(" ")
        counts = self._count(grams)
        shares = counts / max(1, len(grams))
        if inner.any():
            shares[(self._count(grams[inner]) == inner.sum()) & (shares < 0.5)] = 0.5
        return shares

    def _count(self, grams: IntArray) -> IntArray:
        """Return how many of these trigrams each name has."""
        places = np.searchsorted(self._grams, grams)
        known = places[places < len(self._grams)]
        known = known[np.isin(self._grams[known], grams)]
        lists = [self._owners[self._ends[i] : self._ends[i + 1]] for i in known.tolist()]
        return np.bincount(np.concatenate([*lists, self._owners[:0]]), minlength=len(self.names))

    def _key(self, item: int, wanted: str, share: float) -> tuple[int, float, float]:
        """Sort by kind of match, then by similarity of the letters where some differ, then by popularity."""
        name = self.names[item]
        kinds = (name == wanted, name.startswith(wanted), f" {wanted}" in name, wanted in name)
        kind = next((i for i, holds in enumerate(kinds) if holds), len(kinds))
        similar = SequenceMatcher(None, wanted, name[: 2 * len(wanted)]).ratio() if kind == len(kinds) else 1.0
        return kind, -round(similar + share, 6), -float(self.weights[item])


def _trigrams(names: Sequence[str], *, end: bool = True) -> tuple[IntArray, IntArray]:
    """Return the trigrams of the words of all names as numbers, and the name that each belongs to; a word may be left open at its end."""
    words = ["".join(f"  {word} " if end else f"  {word}" for word in name.split()) for name in names]
    text = np.frombuffer("".join(words).encode("utf-32-le", "replace"), np.uint32).astype(np.int64)
    owners = np.repeat(np.arange(len(names)), [len(word) for word in words])
    if len(text) < 3:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    grams = (text[:-2] << 42) | (text[1:-1] << 21) | text[2:]
    space = text == ord(" ")
    keep = (owners[:-2] == owners[2:]) & ~(space[1:-1] & space[2:]) & (~space[2:] | ~space[:-2])
    return grams[keep], owners[:-2][keep]
