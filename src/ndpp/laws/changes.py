"""Catalogues that change: new items that behave like others, items that leave, and other names.

:class:`~ndpp.laws.law.Law`, which is built upon this module, has the public functions as methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.baskets.labels import check_labels
from ndpp.errors import InvalidInputError, ZeroProbabilityError
from ndpp.laws.catalogue import Catalogue
from ndpp.linalg.logs import logit

NEAR, MOST_STEPS, LONGEST = 1e-11, 60, 4.0
"""Tolerance of the log-odds of shares, maximum number of Newton steps, and largest change of a log-factor in a step."""
SLOW = 0.2
"""Derivatives are computed again if a step leaves more than this part of the largest difference."""
KEEP = "sets", "shares"
"""What may stay as it was when items join."""
CERTAIN = 1 - 2.0**-53
"""Larger probabilities count as this one."""


class Alike(NamedTuple):
    """Items that a new one behaves like, and their weights, which sum to one."""

    ids: IntArray
    weights: FloatArray

    def mean(self, logs: FloatArray) -> FloatArray:
        """Return the weighted mean of numbers, the last axis; −inf if one of them is."""
        return np.asarray(logs @ self.weights)

    def row(self, rows: FloatArray) -> FloatArray:
        """Return the weighted mean of rows. The sign of a row of ties means nothing, so each has the one that it shares most with."""
        side = np.linalg.svd(rows * np.sqrt(self.weights)[:, None], full_matrices=False)[2][0]
        return np.asarray((self.weights * np.where(rows @ side < 0, -1.0, 1.0)) @ rows)


class Known(NamedTuple):
    """Some items of a catalogue, ascending, and P_c(a ∈ S) of them, shape (C, items)."""

    ids: IntArray
    chances: FloatArray

    def log_odds(self, items: IntArray) -> FloatArray:
        """Return the log-odds of P_c(a ∈ S), shape (C, items)."""
        return logit(self.chances[:, np.searchsorted(self.ids, items)].clip(max=CERTAIN))


def add_items(
    self: Any,
    like: Mapping[str, Any] | None = None,
    popularity: float | Mapping[str, float] | None = None,
    *,
    features: Mapping[str, ArrayLike] | None = None,
    keep: str = "shares",
) -> Any:
    """Return the distribution with new items at the end of the catalogue, which behave like others.

    The log-odds of a new item in each component are weighted means of those of the items it is like, and one number for all
    components, found exactly, sets how often it occurs. In mixtures with shared ties, it has no ties of its own: what it comes with
    follows from the missions. In kernels, its row is the mean of theirs.

    Parameters
    ----------
    like : mapping
        For each new label the items that it behaves like: a list of ids or labels, or a mapping from these to weights > 0.
        :func:`ndpp.similar_items` finds them by name, category or features.
    popularity : float or mapping, optional
        P(a ∈ S), the expected share of baskets with the item, for all new items or by label. By default, and for labels that a
        mapping lacks, the weighted mean of the shares of the items it is like. Items by features need one.
    features : mapping, optional
        Features of further new items by label, if the model was fitted with ``item_features``: their log-odds are then what the
        features of all items say.
    keep : {"shares", "sets"}
        What stays as it was. "shares": what baskets have of the other items, if they have any, and so how often these occur beside
        each other, in mixtures with shared ties; in other mixtures, the weights of the components. "sets": the probabilities of sets
        without new items relative to each other, so that ``extended.restrict(old_items)`` is the distribution as it was. Missions
        that suit many new items then become more frequent, and with them their other items, which ranks all of them worse. For a
        single kernel both are the same.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(2), np.eye(2), labels=["oat milk 1 l", "oats"])
    >>> kernel.add_items({"oat milk 2 l": ["oat milk 1 l"]}, popularity=0.2).inclusion_probabilities().round(4)
    array([0.4, 0.5, 0.2])
    """
    like, features = {} if like is None else like, {} if features is None else features
    for name, value in (("like", like), ("features", features)):
        if not isinstance(value, Mapping):
            raise InvalidInputError(f"must be a mapping from new labels; got {value!r:.60}", argument=name)
    if keep not in KEEP:
        raise InvalidInputError(f"must be {KEEP[0]!r} or {KEEP[1]!r}; got {keep!r:.60}", argument="keep")
    labels = _new_labels(self.labels, [*like, *features])
    if features and self.features is None:
        raise InvalidInputError("are not known to this model; fit it with item_features=", argument="features")
    by_features = self.features.of(features) if features and self.features else None
    alike = [_alike(label, items, self) for label, items in like.items()]
    ids = np.unique(np.concatenate([one.ids for one in alike])) if alike else np.empty(0, np.int64)
    each = self._inclusions_of(ids)
    chances = self._free_weights @ each
    for label, one in zip(like, alike):
        never = one.ids[chances[np.searchsorted(ids, one.ids)] == 0]
        if len(never):
            raise ZeroProbabilityError(f"{label!r} cannot be like {labels[never[0]]!r}, which never occurs")
    usual = {label: float(one.mean(chances[np.searchsorted(ids, one.ids)])) for label, one in zip(like, alike)}
    wanted = _wanted(popularity, usual | dict.fromkeys(features))
    if len(labels) == self.n_items:
        return self
    catalogue = Catalogue(len(labels), labels)
    return self._with_items(alike, Known(ids, each), by_features, wanted, catalogue, keep == "sets")


def remove(self: Any, items: Items) -> Any:
    """Return the distribution given that these items are not in, over a catalogue without them: ids of others may change.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), np.eye(3), labels=["tea", "milk", "jam"])
    >>> kernel.remove(["milk"]).labels
    ('tea', 'jam')
    """
    gone = check_items(items, self)
    if len(gone) == self.n_items:
        raise InvalidInputError("must leave at least one item; these are all of them", argument="items")
    if not len(gone):
        return self
    keep = np.delete(np.arange(self.n_items), gone)
    labels = None if self.labels is None else tuple(self.labels[i] for i in keep)
    return self._as_ready(self._reweighed(self._only_items(keep)).named(Catalogue(len(keep), labels)))


def rename(self: Any, names: Mapping[str, str]) -> Any:
    """Return the same distribution with new labels for some items, given by their old ones.

    Examples
    --------
    >>> import ndpp
    >>> ndpp.LowRankKernel(np.eye(2), labels=["tea", "milk"]).rename({"tea": "green tea"}).labels
    ('green tea', 'milk')
    """
    self.ids(list(names))  # raises for unknown ones
    labels = [names.get(label, label) for label in self.labels or ()]
    twice = next((label for label in names.values() if labels.count(label) > 1), None)
    if twice is not None:
        problem = f"must leave the labels distinct; two items would be called {twice!r}"
        raise InvalidInputError(problem, argument="names")
    return self.named(Catalogue(self.n_items, check_labels(labels)))


def tilt_to(self: Any, shares: Mapping[Any, float]) -> Any:
    """Return the distribution with tilted odds of some items, so that P(a ∈ S) of these are as wanted; see :meth:`tilt`.

    Parameters
    ----------
    shares : mapping
        Above 0 and below 1, by id or label; the odds of other items stay as they are.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], labels=["tea", "milk", "jam"])
    >>> kernel.tilt_to({"tea": 0.2, "jam": 0.5}).inclusion_probabilities().round(4)
    array([0.2   , 0.5205, 0.5   ])
    """
    ids = check_items(list(shares), self, "shares")
    if not len(ids):
        return self
    wanted, order = _checked(shares, "shares"), np.argsort(ids)
    chances = self._free_weights @ self._inclusions_of(ids)
    never = next((key for key, chance in zip(shares, chances) if not chance), None)
    if never is not None:
        raise ZeroProbabilityError(f"item {never!r} never occurs, so it cannot have another share")
    return _with_shares(self, ids[order], wanted[order])


def with_items(
    self: Any, alike: list[Alike], known: Known, features: object, wanted: FloatArray, catalogue: Catalogue, keeps_sets: bool
) -> Any:  # fmt: skip
    """Return the distribution with new items of these shares: those that are like others, then those by features."""
    made = self._reweighed(self._with_alike(alike), keeps_sets=keeps_sets).named(catalogue)
    return self._as_ready(_with_shares(made, np.arange(self.n_items, made.n_items), wanted, keeps_sets=keeps_sets))


def _with_shares(self: Any, ids: IntArray, wanted: FloatArray, *, keeps_sets: bool = True) -> Any:
    """Return the distribution with tilted odds of some items, so that P(a ∈ S) of these are as wanted; see :func:`solved`."""

    def at(log_factors: FloatArray) -> tuple[FloatArray, Callable[[], FloatArray]]:
        law, places = self._tilted_near(ids, np.exp(log_factors), keeps_sets=keeps_sets)
        shares = law.inclusion_probabilities()[places]

        def covariances() -> FloatArray:
            return np.asarray(law.pair_probabilities(places) - np.outer(shares, shares))

        return shares, covariances

    factors = np.exp(solved(wanted, at, [self.labels[i] for i in ids] if self.labels else ids.tolist()))
    return self._tilted_odds(ids, factors, keeps_sets=keeps_sets)


def solved(
    wanted: FloatArray, at: Callable[[FloatArray], tuple[FloatArray, Callable[[], FloatArray]]], labels: Sequence[Any]
) -> FloatArray:
    """Return log-factors of the odds of items under which their shares of baskets are as wanted.

    ``at`` returns the shares under log-factors, and a function for their derivatives, a matrix, or a vector if it is nearly diagonal.
    If tilts keep sets, the factors are the minimum of a convex function, as log Σ_S P(S) Π s_a is one of log s. What Newton's method
    solves are the log-odds of the shares: it takes one step for a single item, and few for items that hardly depend on each other.
    Derivatives, which take most of the time, are those of an earlier step as long as they serve.
    """
    log_factors, step, last = np.zeros(len(wanted)), np.zeros(len(wanted)), np.inf
    for _ in range(MOST_STEPS):
        shares, derivatives = at(log_factors)
        shares = shares.clip(max=CERTAIN)
        if not shares.all():
            problem = f"{labels[int(np.argmin(shares))]!r} would never occur: no component has all of the items that it is like"
            raise ZeroProbabilityError(problem, advice="Name fewer of them")
        gaps = logit(wanted) - logit(shares)
        gap = np.abs(gaps).max()
        if gap < NEAR:
            return log_factors
        if gap > last:  # too far: go back
            step = step / 2
            log_factors = log_factors - step
            continue
        scale = np.sqrt(shares * (1 - shares))
        if gap > SLOW * last or last == np.inf:
            found = derivatives()
            inverse = (
                scale**2 / found if found.ndim == 1 else np.linalg.pinv(found / np.outer(scale, scale), hermitian=True)
            )
        last = gap
        step = inverse * gaps if inverse.ndim == 1 else inverse @ (scale * gaps) / scale
        step *= min(1.0, LONGEST / np.abs(step).max())
        log_factors = log_factors + step
    raise InvalidInputError(
        f"these shares cannot be had together, as far as {MOST_STEPS} steps show; the log-odds of one are still off by {last:.2g}"
    )


def _alike(label: str, items: object, law: Any) -> Alike:
    """Return what a new item is like, checked."""
    names, weights = items, None
    if isinstance(items, Mapping):
        names, weights = list(items), np.array(list(items.values()), np.float64)
    ids = check_items([names] if isinstance(names, str) else names, law, f"like[{label!r}]")
    if not len(ids):
        raise InvalidInputError(f"must name at least one item that {label!r} is like; got none", argument="like")
    weights = np.ones(len(ids)) if weights is None else weights
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise InvalidInputError(f"must have weights > 0; those of {label!r} are {weights.tolist()}", argument="like")
    return Alike(ids, weights / weights.sum())


def _wanted(popularity: float | Mapping[str, float] | None, default: Mapping[str, float | None]) -> FloatArray:
    """Return the wanted share of each new item."""
    if isinstance(popularity, Mapping):
        unknown = next((label for label in popularity if label not in default), None)
        if unknown is not None:
            problem = f"must be by label of the new items; {unknown!r} is none of them"
            raise InvalidInputError(problem, argument="popularity")
        default = {**default, **popularity}
    elif popularity is not None:
        default = dict.fromkeys(default, popularity)
    return _checked(default, "popularity")


def _checked(shares: Mapping[Any, Any], argument: str) -> FloatArray:
    """Return shares of baskets as numbers above 0 and below 1."""
    for label, share in shares.items():
        is_number = isinstance(share, (int, float, np.number)) and not isinstance(share, bool)
        if not is_number or not 0 < share < 1:
            problem = f"must be shares of baskets, above 0 and below 1; that of {label!r} is {share!r:.60}"
            raise InvalidInputError(problem, argument=argument)
    return np.array(list(shares.values()), np.float64)


def _new_labels(old: tuple[str, ...] | None, new: list[str]) -> tuple[str, ...]:
    """Return old and new labels; raise if one is there already."""
    if old is None:
        raise InvalidInputError("the model has no labels, so new items cannot have any; build it with labels=")
    known = set(old)
    if twice := next((label for label in new if label in known), None):
        raise InvalidInputError(
            f"must name new items; {twice!r} is in the catalogue already",
            argument="like",
            advice="tilt() changes how often it occurs",
        )
    return check_labels([*old, *new]) or ()
