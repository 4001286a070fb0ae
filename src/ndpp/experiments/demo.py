"""A first look, on a shelf of twelve groceries whose kernel can be read by eye, then on a catalogue of 100,000 items.

On the shelf, items of one kind share a direction of V and repel each other (who buys rice seldom buys noodles too); the
skew part links kinds that go together (pasta and sauce, bread and spread), which no symmetric kernel can express.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from ndpp._types import FloatArray
from ndpp.kernel import LowRankKernel

SHELF = {
    "starch": ("pasta", "rice", "noodles"),
    "sauce": ("tomato sauce", "pesto", "curry paste"),
    "bread": ("bread", "rolls"),
    "spread": ("butter", "jam"),
    "drink": ("coffee", "tea"),
}
GO_TOGETHER = {("starch", "sauce"): 0.8, ("bread", "spread"): 1.0}
POPULARITY = (0.9, 0.7, 0.5, 0.8, 0.5, 0.4, 1.0, 0.5, 0.9, 0.5, 1.0, 0.7)


def shelf_kernel() -> LowRankKernel:
    """Return the kernel of the shelf: VVᵀ makes items of a kind repel, D − Dᵀ makes two kinds attract.

    Examples
    --------
    >>> kernel = shelf_kernel()
    >>> pair = kernel.ids(["bread", "butter"])
    >>> alone = kernel.inclusion_probabilities()[pair[1]]
    >>> bool(kernel.inclusion_probabilities(given=pair[:1])[pair[1]] > alone)
    True
    """
    kinds = list(SHELF)
    labels = [item for items in SHELF.values() for item in items]
    kind = np.repeat(np.arange(len(kinds)), [len(items) for items in SHELF.values()])
    popularity = np.asarray(POPULARITY)[:, None]
    of_kind = popularity * (kind[:, None] == np.arange(len(kinds)))
    V = np.hstack([0.5 * of_kind, 0.2 * popularity * np.eye(len(labels))])
    D = np.zeros((len(kinds), len(kinds)))
    for (first, second), strength in GO_TOGETHER.items():
        D[kinds.index(first), kinds.index(second)] = strength
    return LowRankKernel.from_vbd(V, of_kind, D, labels=labels)


def large_kernel(n_items: int = 100_000, rank: int = 60) -> LowRankKernel:
    """Return a random kernel by the paper's recipe: V, B of standard deviation √(2/d), D standard normal [Han22]."""
    rng = np.random.default_rng(0)
    V, B = rng.normal(scale=np.sqrt(2 / rank), size=(2, n_items, rank // 2))
    return LowRankKernel.from_vbd(V, B, rng.normal(size=(rank // 2, rank // 2)))


def main() -> None:
    """Print the demonstration. Nothing is saved."""
    kernel = shelf_kernel()
    _show_shelf(kernel)
    _show_large()


def _show_shelf(kernel: LowRankKernel) -> None:
    _title(f"A shelf of {kernel.n_items} groceries")
    print("How many items does a basket hold?")
    _bars((str(k) for k in range(kernel.rank + 1)), kernel.size_distribution(), least=0.001)

    bread = kernel.ids(["bread"])
    print("\nHow likely is each item, in any basket, and in one that holds bread?")
    before, after = kernel.inclusion_probabilities(), kernel.inclusion_probabilities(given=bread)
    for label, p, q in zip(kernel.labels or (), before, after):
        print(f"  {label:>13} {p:6.1%}   {q:6.1%}  {_arrow(q - p) if label != 'bread' else 'given'}")


def _show_large() -> None:
    kernel, seconds = _timed(large_kernel)
    _title(f"A catalogue of {kernel.n_items:,} items, rank {kernel.rank}")
    print(
        f"  prepared in {seconds:.1f} s; L itself would take {kernel.n_items**2 * 8 / 1e9:,.0f} GB and is never formed"
    )
    law = kernel.size_distribution()
    print(f"  mean size of a set {law @ np.arange(len(law)):.1f}, most likely size {law.argmax()}")


def _timed(make: object) -> tuple[LowRankKernel, float]:
    began = time.perf_counter()
    made = make()  # type: ignore[operator]
    return made, time.perf_counter() - began


def _title(text: str) -> None:
    print(f"\n{text}\n{'─' * len(text)}")


def _bars(names: Iterable[str], values: FloatArray, *, least: float) -> None:
    for name, value in zip(names, values):
        if value >= least:
            print(f"  {name:>13} {value:6.1%} {'█' * round(60 * value)}")


def _arrow(change: float) -> str:
    return "more likely" if change > 0.02 else "less likely" if change < -0.02 else ""


if __name__ == "__main__":
    main()
