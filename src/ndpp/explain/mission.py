"""The missions of a mixture: how many baskets each explains, how large they are, what is typical of them, and a name.

A learned mixture may have hundreds of components. For reading, similar ones are merged, step by step, those first whose merger loses
least: Ward's method, weighted by the shares of the components, on the square roots of their compositions, that is, of the expected number
of each item per item bought [Ward, JASA 58, 1963].

An item is typical of a mission by what it contributes to the divergence of the mission from all baskets, p log(p/q) with p the probability
of the item in baskets of the mission and q that in all baskets: lift alone would favour items that nobody buys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import IntArray
from ndpp._validation import check_count
from ndpp.explain._law import Inclusions, label_of, law_of

NAMED = 6
"""Typical items in which a name looks for a common word."""
SHORTEST = 3
"""Letters of a word that may name a mission, at least."""


class Typical(NamedTuple):
    """An item of a mission: the probability that a basket of the mission contains it, and how many times that of all baskets it is."""

    item: int
    label: str
    probability: float
    lift: float


class Mission(NamedTuple):
    """A mission: its share of all baskets, their mean size, and its most typical items. ``print`` shows a line."""

    name: str
    share: float
    mean_size: float
    items: tuple[Typical, ...]
    components: tuple[int, ...]

    def __str__(self) -> str:
        typical = ", ".join(f"{one.label} ({one.lift:.1f}×)" for one in self.items)
        return f"{self.name}: {self.share:.1%} of baskets, {self.mean_size:.1f} items on average. Typical: {typical}"


def missions(model: Any, *, n: int | None = 12, n_items: int = 6) -> tuple[Mission, ...]:
    """Return at most ``n`` missions of a mixture or fitted estimator, largest first: its components, similar ones merged.

    With ``n=None`` every component is a mission. Components that have names keep them, as long as they are not merged. A kernel is one
    mission. ``mixture.only(mission.components)`` is the distribution of the baskets of a mission.

    Examples
    --------
    >>> odds = [[3.0, 1.0, 0.1, 0.1], [2.0, 1.5, 0.1, 0.1], [0.1, 0.2, 2.0, 2.0]]
    >>> labels = ["pasta", "pesto", "beer", "crisps"]
    >>> from ndpp import Mixture
    >>> mixture = Mixture.tied(odds, np.zeros((4, 2)), np.zeros((2, 2)), [0.3, 0.3, 0.4], labels=labels)
    >>> for mission in missions(mixture, n=2, n_items=2):
    ...     print(mission)
    pasta and pesto: 60.0% of baskets, 1.4 items on average. Typical: pasta (1.5×), pesto (1.4×)
    beer and crisps: 40.0% of baskets, 1.6 items on average. Typical: beer (2.1×), crisps (2.1×)
    """
    law, n_items = law_of(model), check_count(n_items, "n_items", least=1)
    found = Inclusions.of(law)
    n_groups = len(found.weights) if n is None else check_count(n, "n", least=1)
    groups = merged(found, n_groups)
    shares = np.array([found.weights[group].sum() for group in groups])
    own = [_mission(law, found, groups[g], n_items) for g in np.argsort(-shares, kind="stable") if shares[g] > 0]
    return tuple(mission._replace(name=name) for mission, name in zip(own, _distinct(own)))


def merged(found: Inclusions, n_groups: int) -> list[IntArray]:
    """Return the components in at most ``n_groups`` groups of similar ones. O(C² n + C³)."""
    rows = np.sqrt(found.by_component / np.maximum(found.by_component.sum(axis=1, keepdims=True), 1e-300))
    groups = [np.array([c]) for c in range(len(rows))]
    w, squares = found.weights + 1e-300, (rows**2).sum(axis=1)
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


def _mission(law: Any, found: Inclusions, group: IntArray, n_items: int) -> Mission:
    share = float(found.weights[group].sum())
    inside = found.weights[group] @ found.by_component[group] / share
    ratio = np.divide(inside, found.overall, out=np.ones_like(inside), where=found.overall > 0)
    gain = inside * np.log(np.maximum(ratio, 1e-300))
    best = np.argsort(-gain, kind="stable")[: max(n_items, NAMED)]
    best = best[(gain[best] > 0) | (best == best[0])]
    typical = [Typical(i, label_of(law, i), float(inside[i]), float(ratio[i])) for i in best.tolist()]
    given = law.names[group[0]] if law.names is not None and len(group) == 1 else None
    name = name_of(one.label for one in typical[:NAMED]) if given is None else given
    return Mission(name, share, float(inside.sum()), tuple(typical[:n_items]), tuple(np.sort(group).tolist()))


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
        longer = [
            f"{mission.name}: {one.label.strip()}" for one in mission.items if one.label.strip() not in mission.name
        ]
        tries = chain([mission.name], longer, (f"{mission.name} ({i})" for i in count(2)))
        names.append(next(name for name in tries if name not in names))
    return names
