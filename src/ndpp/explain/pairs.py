"""Popular items, complements and substitutes.

For a kernel all of it follows from the marginal kernel K = L(I + L)⁻¹ = Q B(I + B)⁻¹ Qᵀ:

    P(a) = K_aa        P(a, b) = K_aa K_bb − K_ab K_ba        P(a, b) − P(a)P(b) = −K_ab K_ba

Items **attract** each other, and are called complements, if K_ab and K_ba have opposite signs, which only a nonsymmetric
kernel allows; they **repel** each other, and are called substitutes, if the signs agree. Pairs are ranked by the
correlation of the indicators of the two items, −K_ab K_ba / √(P(a)(1 − P(a)) P(b)(1 − P(b))): lift would favour rare
items, and covariance popular ones.

In a mixture, two items may also meet because the same missions contain them, as everything does that is bought on large trips. This part
of their lift is Σ_c w_c P_c(a)P_c(b) / P(a)P(b); the rest is due to ties. Complements and substitutes are pairs with ties: they are ranked
by the mean of the covariances inside the components, Σ_c w_c Cov_c(a, b), in place of −K_ab K_ba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ndpp._show import WIDEST, html_table, printable, to_frame
from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items
from ndpp.errors import ZeroProbabilityError
from ndpp.explain._law import Inclusions, Share, label_of, law_of
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.mixture import Mixture

MIN_CORRELATION = 1e-12
"""Smaller correlations are rounding errors."""
CHUNK_PAIRS = 2_000_000
"""Number of pairs in memory at a time."""


class Pair(NamedTuple):
    """Two items, and the probability that a basket contains both; ``by_missions`` is what missions alone would make of their lift."""

    first: Share
    second: Share
    together: float
    correlation: float
    by_missions: float = 1.0

    @property
    def lift(self) -> float:
        """P(b | a) / P(b), which is symmetric in the two items."""
        return self.together / (self.first.probability * self.second.probability)

    @property
    def tie(self) -> float:
        """The part of the lift that missions do not explain; a kernel has no missions."""
        return self.lift / self.by_missions


class Pairs(NamedTuple):
    """Pairs of complements and of substitutes, strongest first. ``print`` shows a table."""

    complements: tuple[Pair, ...]
    substitutes: tuple[Pair, ...]

    def __str__(self) -> str:
        names = ("go together", "stand in for each other")
        return _text(
            *names, self, lambda p: f"{printable(p.first.label, WIDEST)} + {printable(p.second.label, WIDEST)}"
        )

    def __repr__(self) -> str:
        return str(self)

    def _columns(self) -> dict[str, list[Any]]:
        both = [*self.complements, *self.substitutes]
        kinds = ["complement"] * len(self.complements) + ["substitute"] * len(self.substitutes)
        numbers = {name: [getattr(pair, name) for pair in both] for name in ("lift", "together", "correlation", "tie")}
        first, second = ([getattr(pair, name).label for pair in both] for name in ("first", "second"))
        return {"kind": kinds, "first": first, "second": second, **numbers}

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with a row per pair, of pandas, polars or pyarrow."""
        return to_frame(self._columns(), backend)

    def _repr_html_(self) -> str:
        columns = self._columns()
        return html_table(
            "What goes together, and what stands in for what", list(columns), list(zip(*columns.values()))
        )


class Related(NamedTuple):
    """The complements and substitutes of an item, strongest first. ``print`` shows a table."""

    item: Share
    complements: tuple[Pair, ...]
    substitutes: tuple[Pair, ...]

    def __str__(self) -> str:
        head = f"{printable(self.item.label, WIDEST)}: in {self.item.probability:.2%} of baskets\n"
        pairs = Pairs(self.complements, self.substitutes)
        return head + _text("goes with", "instead of it", pairs, lambda pair: printable(pair.second.label, WIDEST))

    def __repr__(self) -> str:
        return str(self)

    def _columns(self) -> dict[str, list[Any]]:
        columns = Pairs(self.complements, self.substitutes)._columns()
        return {"item": columns.pop("second"), **{name: column for name, column in columns.items() if name != "first"}}

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with a row per related item, of pandas, polars or pyarrow."""
        return to_frame(self._columns(), backend)

    def _repr_html_(self) -> str:
        columns = self._columns()
        title = f"{self.item.label}: in {self.item.probability:.2%} of baskets"
        return html_table(title, list(columns), list(zip(*columns.values())))


def popularity(kernel: Any, n: int | None = 10) -> tuple[Share, ...]:
    """Return the ``n`` most popular items of a kernel, mixture or fitted estimator in order, or all of them for None.

    Examples
    --------
    >>> L = [[0.5, 0.8, 0.4], [-0.8, 0.5, 0.0], [0.4, 0.0, 0.5]]
    >>> kernel = LowRankKernel(np.eye(3), L, labels=["bread", "butter", "rolls"])
    >>> [(share.label, round(share.probability, 3)) for share in popularity(kernel, 2)]
    [('butter', 0.49), ('bread', 0.451)]
    """
    law = law_of(kernel)
    p = law.inclusion_probabilities()
    n = len(p) if n is None else check_count(n, "n", least=1)
    return tuple(Share(i, label_of(law, i), float(p[i])) for i in np.argsort(-p, kind="stable")[:n].tolist())


def related(
    kernel: Any, item: int | str, *, n: int = 10, least_probability: float = 0.0, found: Inclusions | None = None
) -> Related:
    """Return up to ``n`` complements and substitutes of an item, given by id or label. O(n_items · r), times C for a mixture.

    Items whose probability is below ``least_probability`` are left out. ``found`` are the inclusion probabilities, if they are known.

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
    marginals, n = _Marginals.of(law_of(kernel), found), check_count(n, "n", least=1)
    own = marginals.law
    a = int(check_items([item], own, "item")[0])
    if marginals.p[a] == 0:
        raise ZeroProbabilityError(f"item {item!r} never occurs, so it has no complements or substitutes")
    others = marginals.occurring(least_probability)
    others = others[others != a]
    ties = marginals.correlations(np.array([a]), others)[0]
    return Related(marginals.share(a), *marginals.strongest(np.full(len(others), a), others, ties, n))


def strongest_pairs(
    kernel: Any,
    *,
    n: int = 10,
    among: Items | None = None,
    least_probability: float = 0.0,
    found: Inclusions | None = None,
) -> Pairs:
    """Return up to ``n`` pairs of complements and of substitutes of a kernel, mixture or fitted estimator.

    O(m² r) for m items, times C for a mixture of C components.

    ``among`` restricts the search to these items, and ``least_probability`` to items of at least this probability. ``found``
    are the inclusion probabilities, if they are known.

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
    marginals, n = _Marginals.of(law_of(kernel), found), check_count(n, "n", least=1)
    items = marginals.occurring(least_probability)
    if among is not None:
        items = np.intersect1d(items, check_items(among, marginals.law, "among"))
    step = max(1, CHUNK_PAIRS // max(1, len(items)))
    parts = [(items[:0], items[:0], np.empty(0))]
    for start in range(0, len(items), step):
        block, others = items[start : start + step], items[start:]
        rows, columns = np.triu_indices(len(block), 1, len(others))  # each pair once
        ties = marginals.correlations(block, others)[rows, columns]
        order = np.argpartition(ties, [n - 1, -n]) if len(ties) > 2 * n else np.arange(len(ties))
        kept = np.r_[order[:n], order[n:][-n:]]
        parts.append((block[rows[kept]], others[columns[kept]], ties[kept]))
    first, second, correlation = map(np.concatenate, zip(*parts))
    return marginals.strongest(first, second, correlation, n)


class _Marginals(NamedTuple):
    """The inclusion probabilities of a law, by component and overall."""

    law: LowRankKernel | Mixture
    found: Inclusions
    p: FloatArray

    @classmethod
    def of(cls, law: LowRankKernel | Mixture, found: Inclusions | None) -> _Marginals:
        found = found or Inclusions.of(law)
        return cls(law, found, found.overall)

    def share(self, item: int) -> Share:
        """Return an item with its label and probability."""
        return Share(item, label_of(self.law, item), float(self.p[item]))

    def occurring(self, least_probability: float) -> IntArray:
        """Return the items of positive probability that reach this bound."""
        return np.flatnonzero((self.p > 0) & (self.p >= least_probability))

    def correlations(self, block: IntArray, others: IntArray) -> FloatArray:
        """Return the correlations between the items of ``block`` and of ``others``, apart from those that missions make."""
        covariance = self.law.mean_covariances(block, others)
        scale = np.outer(self._spread(block), self._spread(others))
        return np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0)

    def strongest(self, first: IntArray, second: IntArray, correlation: FloatArray, n: int) -> Pairs:
        """Return the n pairs with the largest positive and the n with the smallest negative correlations."""
        weighted, inside = self.found.weights[:, None] * self.found.by_component[:, first], self.found.by_component
        expected = (weighted * inside[:, second]).sum(axis=0)
        together = expected + correlation * self._spread(first) * self._spread(second)
        lift = expected / (self.p[first] * self.p[second])
        order, kinds = np.argsort(-correlation, kind="stable"), []
        for side, sign in ((order[:n], 1), (order[::-1][:n], -1)):
            chosen = side[sign * correlation[side] > MIN_CORRELATION]
            columns = (
                values[chosen].tolist() for values in (first, second, np.maximum(together, 0.0), correlation, lift)
            )
            kinds.append(tuple(Pair(self.share(a), self.share(b), *values) for a, b, *values in zip(*columns)))
        return Pairs(*kinds)

    def _spread(self, items: IntArray) -> FloatArray:
        return np.sqrt(self.p[items] * (1 - self.p[items]))


def _text(attracting: str, repelling: str, pairs: Pairs, name: Callable[[Pair], str]) -> str:
    """Return a table of complements and substitutes."""
    width = max(map(len, [attracting, repelling, *map(name, pairs.complements + pairs.substitutes)]))
    lines, mixed = [], any(pair.by_missions != 1.0 for pair in pairs.complements + pairs.substitutes)
    for title, kind in ((attracting, pairs.complements), (repelling, pairs.substitutes)):
        lines.append(f"  {title.ljust(width + 2)} {'lift':>6}{' by ties' if mixed else ''} {'together':>9}")
        for pair in kind:
            tie = f" {pair.tie:7.2f}" if mixed else ""
            lines.append(f"    {name(pair).ljust(width)} {pair.lift:6.2f}{tie} {pair.together:9.3%}")
        lines += [] if kind else ["    –"]
    return "\n".join(lines)
