"""The missions of a mixture: how many baskets each explains, how large they are, what is typical of them, and a name.

A learned mixture may have hundreds of components. For reading, similar ones are merged, step by step, those first whose merger loses
least: Ward's method, weighted by the shares of the components, on the square roots of their compositions, that is, of the expected number
of each item per item bought [Ward, JASA 58, 1963].

An item is typical of a mission by what it contributes to the divergence of the mission from all baskets, p log(p/q) with p the probability
of the item in baskets of the mission and q that in all baskets: lift alone would favour items that nobody buys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, count

import numpy as np

from ndpp._show import called
from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.answers.records import Mission, Typical, names_of
from ndpp.laws.law import Law

NAMED = 6
"""Typical items in which a name looks for a common word."""
SHORTEST = 3
"""Letters of a word that may name a mission, at least."""


def find_missions(law: Law, n: int | None, n_items: int, labels: Sequence[str] | None) -> tuple[Mission, ...]:
    """Return at most ``n`` missions of a law, with items by these labels; see :func:`ndpp.answers.missions`."""
    n_items = check_count(n_items, "n_items", least=1)
    n_groups = len(law.weights) if n is None else check_count(n, "n", least=1)
    inclusions = law.component_inclusions()
    groups = merged(law.weights, inclusions, n_groups)
    shares = np.array([law.weights[group].sum() for group in groups])
    own = [
        _mission(law, inclusions, groups[g], n_items, labels)
        for g in np.argsort(-shares, kind="stable")
        if shares[g] > 0
    ]
    return tuple(replace(mission, name=name) for mission, name in zip(own, _distinct(own)))


def merged(weights: FloatArray, inclusions: FloatArray, n_groups: int) -> list[IntArray]:
    """Return the components in at most ``n_groups`` groups of similar ones. O(C² n + C³)."""
    rows = np.sqrt(inclusions / np.maximum(inclusions.sum(axis=1, keepdims=True), 1e-300))
    groups = [np.array([c]) for c in range(len(rows))]
    w, squares = weights + 1e-300, (rows**2).sum(axis=1)
    apart = np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0.0)
    cost = apart * (w[:, None] * w) / (w[:, None] + w)  # what merging two groups adds to the variance inside groups
    np.fill_diagonal(cost, np.inf)
    for _ in range(len(rows) - n_groups):
        i, j = sorted(map(int, np.unravel_index(np.argmin(cost), cost.shape)))
        new = ((w[i] + w) * cost[i] + (w[j] + w) * cost[j] - w * cost[i, j]) / (w[i] + w[j] + w)
        cost[i], cost[:, i] = new, new
        cost[i, i] = np.inf
        w[i] += w[j]
        groups[i] = np.concatenate([groups[i], groups[j]])
        cost, w = np.delete(np.delete(cost, j, 0), j, 1), np.delete(w, j)
        del groups[j]
    return groups


def _mission(law: Law, inclusions: FloatArray, group: IntArray, n_items: int, labels: Sequence[str] | None) -> Mission:
    share, overall = float(law.weights[group].sum()), law.popularity
    inside = law.weights[group] @ inclusions[group] / share
    ratio = np.divide(inside, overall, out=np.ones_like(inside), where=overall > 0)
    gain = inside * np.log(np.maximum(ratio, 1e-300))
    best = np.argsort(-gain, kind="stable")[: max(n_items, NAMED)]
    best = best[(gain[best] > 0) | (best == best[0])]
    typical = tuple(map(Typical, names_of(labels, best), inside[best].clip(0.0, 1.0).tolist(), ratio[best].tolist()))
    given = law.names[group[0]] if law.names is not None and len(group) == 1 else None
    name = name_of(called(one.item) for one in typical[:NAMED]) if given is None else given
    components = tuple(np.sort(group).tolist())
    return Mission(name, min(share, 1.0), float(inside.sum()), typical[:n_items], components)


def name_of(labels: Iterable[str]) -> str:
    """Return a name for typical items, most typical first: the words that half of them share, or else the first two.

    Examples
    --------
    >>> name_of(["Lunch bag red", "Lunch bag black", "Lunch box"]), name_of(["beer", "crisps", "nuts"])
    ('Lunch bag', 'beer and crisps')
    """
    labels = list(labels)
    words = Counter(word.casefold() for label in labels for word in set(label.split()) if len(word) >= SHORTEST)
    common = [word for word in labels[0].split() if words[word.casefold()] >= max(2, (len(labels) + 1) // 2)]
    name = " ".join(common) if common else " and ".join(label.strip() for label in labels[:2])
    return name[:1].upper() + name[1:] if labels[0][:1].isupper() else name


def _distinct(found: list[Mission]) -> list[str]:
    """Return the names; one that was taken is followed by another item or, if all are taken, a number."""
    names: list[str] = []
    for mission in found:
        items = [called(one.item).strip() for one in mission.items]
        longer = [f"{mission.name}: {item}" for item in items if item not in mission.name]
        tries = chain([mission.name], longer, (f"{mission.name} ({i})" for i in count(2)))
        names.append(next(name for name in tries if name not in names))
    return names
