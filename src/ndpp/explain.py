"""A kernel in words: how popular its items are, which go together, and which stand in for each other.

All of it lies in the marginal kernel K = L(I + L)⁻¹ = Q B(I + B)⁻¹ Qᵀ:

    P(a) = K_aa        P(a, b) = K_aa K_bb − K_ab K_ba        P(a, b) − P(a)P(b) = −K_ab K_ba

Items **attract** each other, and are called complements, where K_ab and K_ba differ in sign, which takes a nonsymmetric
kernel; they **repel** each other, and are called substitutes, where the signs agree. Pairs are ranked by the
correlation −K_ab K_ba / √(P(a)(1 − P(a)) P(b)(1 − P(b))) of the two items' presence: ranking by lift would bring rare
items to the top, by covariance popular ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items
from ndpp.errors import InvalidInputError, ZeroProbabilityError
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg import tilted_law

ZERO = 1e-12
"""Correlations up to this size are rounding."""
BLOCK_PAIRS = 2_000_000
"""Pairs that are looked at at a time."""


class Share(NamedTuple):
    """An item and the probability that a basket holds it."""

    item: int
    label: str
    probability: float


class Pair(NamedTuple):
    """Two items, and the probability that a basket holds both."""

    first: Share
    second: Share
    together: float
    correlation: float

    @property
    def lift(self) -> float:
        """How many times as likely one is where the other is in: P(b | a) / P(b)."""
        return self.together / (self.first.probability * self.second.probability)


class Pairs(NamedTuple):
    """Pairs that attract each other, strongest first, and pairs that repel each other. ``print`` shows a table."""

    complements: tuple[Pair, ...]
    substitutes: tuple[Pair, ...]

    def __str__(self) -> str:
        def name(pair: Pair) -> str:
            return f"{pair.first.label} + {pair.second.label}"

        return _text("go together", "stand in for each other", self, name)


class Related(NamedTuple):
    """What goes with an item, strongest first, and what stands in for it. ``print`` shows a table."""

    item: Share
    complements: tuple[Pair, ...]
    substitutes: tuple[Pair, ...]

    def __str__(self) -> str:
        head = f"{self.item.label}: in {self.item.probability:.2%} of baskets\n"
        pairs = Pairs(self.complements, self.substitutes)
        return head + _text("goes with", "instead of it", pairs, lambda pair: pair.second.label)


def popularity(kernel: Any, n: int | None = 10) -> tuple[Share, ...]:
    """Return the ``n`` most popular items of a kernel or fitted estimator, or all of them, most popular first.

    Examples
    --------
    >>> L = [[0.5, 0.8, 0.4], [-0.8, 0.5, 0.0], [0.4, 0.0, 0.5]]
    >>> kernel = LowRankKernel(np.eye(3), L, labels=["bread", "butter", "rolls"])
    >>> [(share.label, round(share.probability, 3)) for share in popularity(kernel, 2)]
    [('butter', 0.49), ('bread', 0.451)]
    """
    kernel = _kernel(kernel)
    probabilities = kernel.inclusion_probabilities()
    n = len(probabilities) if n is None else check_count(n, "n", least=1)
    return tuple(_share(kernel, i, probabilities) for i in np.argsort(-probabilities, kind="stable")[:n].tolist())


def related(kernel: Any, item: int | str, *, n: int = 10, least_probability: float = 0.0) -> Related:
    """Return the strongest complements and substitutes of an item. O(n_items · r).

    Parameters
    ----------
    kernel : LowRankKernel or fitted estimator
        The model.
    item : int or str
        An item's id or label.
    n : int
        Most complements, and most substitutes, to return.
    least_probability : float
        Leave out items that fewer baskets hold.

    Examples
    --------
    >>> L = [[0.5, 0.8, 0.4], [-0.8, 0.5, 0.0], [0.4, 0.0, 0.5]]
    >>> kernel = LowRankKernel(np.eye(3), L, labels=["bread", "butter", "rolls"])
    >>> print(related(kernel, "bread", n=2))
    bread: in 45.05% of baskets
      goes with         lift  together
        butter          1.39   30.647%
      instead of it     lift  together
        rolls           0.84   11.111%
    """
    kernel = _kernel(kernel)
    a = int(kernel.ids([item])[0] if isinstance(item, str) else check_items([item], kernel.n_items, "item")[0])
    probabilities = kernel.inclusion_probabilities()
    if probabilities[a] == 0:
        raise ZeroProbabilityError(f"item {item!r} never occurs, so nothing goes with it or instead of it")
    others = _occurring(probabilities, least_probability)
    found = _hold_against(kernel, probabilities, np.array([a]), others[others != a])
    return Related(_share(kernel, a, probabilities), *_pairs(kernel, probabilities, found, n))


def strongest_pairs(kernel: Any, *, n: int = 10, among: Items | None = None, least_probability: float = 0.0) -> Pairs:
    """Return the pairs of items that attract and that repel each other most. O(m² r) for m items.

    Parameters
    ----------
    kernel : LowRankKernel or fitted estimator
        The model.
    n : int
        Most pairs of each kind to return.
    among : sequence of int, optional
        Look at pairs of these items only.
    least_probability : float
        Leave out items that fewer baskets hold.

    Examples
    --------
    >>> L = [[0.5, 0.8, 0.4], [-0.8, 0.5, 0.0], [0.4, 0.0, 0.5]]
    >>> kernel = LowRankKernel(np.eye(3), L, labels=["bread", "butter", "rolls"])
    >>> print(strongest_pairs(kernel, n=2))
      go together                 lift  together
        bread + butter            1.39   30.647%
        butter + rolls            1.04   15.018%
      stand in for each other     lift  together
        bread + rolls             0.84   11.111%
    """
    kernel, n = _kernel(kernel), check_count(n, "n", least=1)
    probabilities = kernel.inclusion_probabilities()
    items = _occurring(probabilities, least_probability)
    if among is not None:
        items = np.intersect1d(items, check_items(among, kernel.n_items, "among"))
    step = max(1, BLOCK_PAIRS // max(1, len(items)))
    parts = [_hold_against(kernel, probabilities, items[:0], items)]
    for start in range(0, len(items), step):
        found = _hold_against(kernel, probabilities, items[start : start + step], items[start:])
        parts.append(_extremes(found.take(found.first < found.second), n))  # each pair once
    return _pairs(kernel, probabilities, _Found(*map(np.concatenate, zip(*parts))), n)


class _Found(NamedTuple):
    """Pairs as columns: two items, P(a, b) − P(a)P(b), and the correlation."""

    first: IntArray
    second: IntArray
    covariance: FloatArray
    correlation: FloatArray

    def take(self, which: Any) -> _Found:
        """Return some of the pairs."""
        return _Found(self.first[which], self.second[which], self.covariance[which], self.correlation[which])


def _hold_against(kernel: LowRankKernel, probabilities: FloatArray, block: IntArray, others: IntArray) -> _Found:
    """Return all pairs of an item of the block with one of the others."""
    R = tilted_law(kernel.ties.coordinates, 1.0).marginal
    q, rest = (kernel.ties.q_rows(kernel.rows_of(items)) for items in (block, others))
    covariance = -((q @ R) @ rest.T) * ((q @ R.T) @ rest.T)
    if kernel.background is not None:  # K_ab = √((1 − p_a)(1 − p_b)) q_a R q_b
        covariance /= np.outer(1 + kernel.background[block], 1 + kernel.background[others])
    spread = np.sqrt(probabilities * (1 - probabilities))
    sizes = np.outer(spread[block], spread[others])
    correlation = np.divide(covariance, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    first, second = np.repeat(block, len(others)), np.tile(others, len(block))
    return _Found(first, second, covariance.ravel(), correlation.ravel())


def _extremes(found: _Found, n: int) -> _Found:
    """Return the pairs of the n largest and the n smallest correlations, and perhaps some between."""
    if len(found.first) > 2 * n:
        order = np.argpartition(found.correlation, [n - 1, len(found.first) - n])
        return found.take(np.r_[order[:n], order[-n:]])
    return found


def _pairs(kernel: LowRankKernel, probabilities: FloatArray, found: _Found, n: int) -> Pairs:
    """Return the n pairs of the largest correlation above zero, and the n of the smallest below."""
    n = check_count(n, "n", least=1)
    order = np.argsort(-found.correlation, kind="stable")
    kinds = []
    for side, sign in ((order, 1), (order[::-1], -1)):
        chosen = side[:n][sign * found.correlation[side[:n]] > ZERO]
        kinds.append(tuple(_pair(kernel, probabilities, *(column[i].item() for column in found)) for i in chosen))
    return Pairs(*kinds)


def _pair(kernel: LowRankKernel, p: FloatArray, a: int, b: int, covariance: float, correlation: float) -> Pair:
    together = max(0.0, float(p[a] * p[b]) + covariance)
    return Pair(_share(kernel, a, p), _share(kernel, b, p), together, correlation)


def _share(kernel: LowRankKernel, item: int, probabilities: FloatArray) -> Share:
    label = str(item) if kernel.labels is None else kernel.labels[item]
    return Share(item, label, float(probabilities[item]))


def _occurring(probabilities: FloatArray, least: float) -> IntArray:
    return np.flatnonzero((probabilities > 0) & (probabilities >= least))


def _kernel(model: Any) -> LowRankKernel:
    kernel = getattr(model, "kernel_", model)
    if not isinstance(kernel, LowRankKernel):
        raise InvalidInputError(f"expected a kernel or a fitted estimator; got {type(model).__name__}")
    return kernel


def _text(attracting: str, repelling: str, pairs: Pairs, name: Callable[[Pair], str]) -> str:
    """Return a table of both kinds of pairs."""
    width = max(map(len, [attracting, repelling, *map(name, pairs.complements + pairs.substitutes)]))
    lines = []
    for title, kind in ((attracting, pairs.complements), (repelling, pairs.substitutes)):
        lines.append(f"  {title.ljust(width + 2)} {'lift':>6} {'together':>9}")
        lines += [f"    {name(pair).ljust(width)} {pair.lift:6.2f} {pair.together:9.3%}" for pair in kind] or ["    –"]
    return "\n".join(lines)
