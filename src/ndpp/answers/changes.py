"""What has changed since another version of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ndpp._types import IntArray
from ndpp.answers.prepared import Prepared
from ndpp.answers.records import ChangedItem, ChangedMission, Changes, Item, Share
from ndpp.baskets.labels import places
from ndpp.errors import InvalidInputError
from ndpp.laws.law import Law

LEAST_SAME = 0.5
"""Share of the baskets whose components must be most like those of the same number in the old model for missions to be compared."""


def changes(model: object, old: object, *, n: int = 10) -> Changes:
    """Return what has changed since an ``old`` version of a model: of each kind, the ``n`` largest changes.

    Items are matched by their labels, and ordered by the change of √P(a), to which sampling adds the same noise whatever P(a) is. Missions
    are compared where the components of both models correspond, as after :func:`ndpp.learning.update`; a new fit has others.

    Examples
    --------
    >>> from ndpp.datasets import shelf_kernel
    >>> shelf = shelf_kernel()
    >>> found = changes(shelf.remove(["tea"]).tilt({"bread": 2.0}), shelf, n=2)
    >>> found
    item   before      now
    bread  0.4698   0.6393
    rolls  0.1242  0.09069
    >>> [one.item for one in found.left]
    ['tea']
    """
    new, before = Prepared.of(model), Prepared.of(old)
    p, q = _shares(new), _shares(before)
    check_in_common(list(p), list(q))
    items = [ChangedItem(name, q[name], p[name]) for name in p if name in q]
    items.sort(key=lambda one: -abs(np.sqrt(one.now) - np.sqrt(one.before)))
    entered, left = (
        sorted((Share(name, own[name]) for name in own if name not in other), key=lambda one: -one.probability)
        for own, other in ((p, q), (q, p))
    )
    missions: list[ChangedMission] = []
    if _corresponds(new.law, before.law, places(p, q)):
        weights = before.law.weights
        found = ((one.name, float(weights[list(one.components)].sum()), one.share) for one in new.missions)
        missions = sorted((ChangedMission(*one) for one in found), key=lambda one: -abs(one.now - one.before))
    most = tuple(missions[:n]), tuple(items[:n]), tuple(entered[:n]), tuple(left[:n])
    return Changes(*most, len(entered), len(left))


def check_in_common(names: Sequence[Item], known: Sequence[Item]) -> None:
    """Raise unless models of these items, the latter one the old version, have an item in common."""
    if not set(names) & set(known):
        such, others = (f"{', '.join(map(repr, some[:2]))}, …" for some in (known, names))
        raise InvalidInputError(
            f"must be an earlier version of the model, with items in common; it has {such}, the model {others}",
            argument="old",
        )


def _shares(own: Prepared) -> dict[Item, float]:
    return dict(zip(own.names(range(own.law.n_items)), own.law.popularity.clip(0.0, 1.0).tolist()))


def _corresponds(law: Law, old: Law, where: IntArray) -> bool:
    """Return whether components are most like those of the same number in the old law. O(C² n); ``where`` are its ids of the items."""
    if not len(law.weights) == len(old.weights) > 1:
        return False
    both = law.inclusion_table[where >= 0], old.inclusion_table[where[where >= 0]]
    new, before = (np.sqrt(table / np.maximum(table.sum(axis=0), 1e-300)) for table in both)
    same = (new.T @ before).argmax(axis=1) == np.arange(len(law.weights))
    return bool(law.weights @ same >= LEAST_SAME)
