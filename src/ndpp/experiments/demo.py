"""A first look, on a shelf of twelve groceries whose kernel can be read by eye, then on a catalogue of 100,000 items.

On the shelf, items of one kind share a direction of V and repel each other (who buys rice seldom buys noodles too); the
skew part links kinds that go together (pasta and sauce, bread and spread), which no symmetric kernel can express.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from ndpp._types import FloatArray
from ndpp.baskets import Baskets
from ndpp.inference import greedy_map
from ndpp.kernel import LowRankKernel
from ndpp.samplers import Exact

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
    _show_shelf(shelf_kernel())
    _show_large()


def _show_shelf(kernel: LowRankKernel) -> None:
    _title(f"A shelf of {kernel.n_items} groceries")
    print("How many items does a basket hold?")
    _bars((str(k) for k in range(kernel.rank + 1)), kernel.size_distribution(), least=0.001)

    bread = kernel.ids(["bread"])
    print("\nHow likely is each item, in any basket, and in one that holds bread?")
    before, after = kernel.inclusion_probabilities(), kernel.inclusion_probabilities(given=bread)
    for label, p, q in zip(kernel.labels or (), before, after):
        print(f"  {label:>13} {p:6.1%}   {q:6.1%}  {'given' if label == 'bread' else _change(q / p)}")

    print("\nFive baskets, drawn exactly:")
    _baskets(kernel.sample(5, rng=0))
    print("\nFive baskets of four items that hold bread:")
    _baskets(kernel.sample(5, size=4, given=bread, rng=0))
    print("\nA likely basket of four, built greedily:")
    _baskets(Baskets.from_lists([greedy_map(kernel, 4)], labels=kernel.labels))


def _show_large() -> None:
    began = time.perf_counter()
    kernel = large_kernel()
    made = time.perf_counter()
    sampler = Exact.prepare(kernel, size=10)
    sampler.sample(1, rng=0)  # compiles, fills the caches
    ready = time.perf_counter()
    draws = sampler.sample(100, rng=1)
    each = (time.perf_counter() - ready) / len(draws)
    _title(f"A catalogue of {kernel.n_items:,} items, rank {kernel.rank}")
    dense = kernel.n_items**2 * 8 / 1e9
    print(f"  the kernel: {made - began:.1f} s; L itself would take {dense:,.0f} GB and is never formed")
    print(f"  the sampler: {ready - made:.1f} s, compilation included")
    print(f"  {len(draws)} exact samples of 10 items: {each * 1e3:.1f} ms each, ", end="")
    print(f"{draws.info['proposals'].mean():.0f} of {kernel.n_items:,} items looked at")


def _baskets(baskets: Baskets) -> None:
    for i in range(len(baskets)):
        print("  " + (", ".join(baskets.labelled(i)) or "(empty)"))


def _title(text: str) -> None:
    print(f"\n{text}\n{'─' * len(text)}")


def _bars(names: Iterable[str], values: FloatArray, *, least: float) -> None:
    for name, value in zip(names, values):
        if value >= least:
            print(f"  {name:>13} {value:6.1%} {'█' * round(60 * value)}")


def _change(ratio: float) -> str:
    return f"{ratio:.1f} times as likely" if abs(np.log(ratio)) > 0.05 else ""


if __name__ == "__main__":
    main()
