"""Time of exact samples under limits: ``python benchmarks/bench_limits.py [MODEL] [--samples N]``.

MODEL is that of ``ndpp demo`` unless another one is given whose items have names of groceries. Groups of items are made by words in the
names, and prices by a fixed rule, so that the limits need no other file. CPU time (set OMP_NUM_THREADS=1); *prepared* is what the first
sampler under the limits takes, and samples are timed once the components that they come from have been prepared.
"""

from __future__ import annotations

import argparse
import re
import time
import zlib
from pathlib import Path

import numpy as np

import ndpp
from ndpp import Limit

WORDS = {
    "dairy": "milk|cheese|yogurt|butter(?!fly| spray)|cream(?!er)|egg",
    "meat": "beef|pork|chicken|turkey|sausage|bacon|ham|steak|meat|lamb|franks",
    "vegetables": "veget|tomato|onion|potato|carrot|lettuce|pepper|broccoli|celery|cucumber|corn|beans|mushroom|cabbage|spinach|salad",
}
"""Words in the names of each group; an item is of the first that fits, and of "others" if none does."""
LIMITS = {
    "2 dairy, 1 meat": {"dairy": 2, "meat": 1},
    "1 dairy, 1 meat, 2 vegetables": {"dairy": 1, "meat": 1, "vegetables": 2},
    "3 dairy, 2 meat, 5 vegetables": {"dairy": 3, "meat": 2, "vegetables": 5},
    "2 dairy, 1 meat, 2 vegetables, exactly 3 others": {"dairy": 2, "meat": 1, "vegetables": 2, "others": 3},
    "at most 20 dollars": {"price": 20},
    "2 meat, at most 15 dollars": {"meat": 2, "price": 15},
    "exactly 10 meat": {"meat": 10},
}


def groups_of(labels: tuple[str, ...]) -> dict[str, list[int]]:
    """Return the items of each group."""
    found: dict[str, list[int]] = {name: [] for name in (*WORDS, "others")}
    for item, label in enumerate(labels):
        own = (name for name, words in WORDS.items() if re.search(words, label, re.IGNORECASE))
        found[next(own, "others")].append(item)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", default=Path("demo-output/groceries.safetensors"))
    parser.add_argument("--samples", type=int, default=100)
    chosen = parser.parse_args()
    law = ndpp.load(chosen.model)
    groups = groups_of(law.labels)
    prices = np.array([1 + zlib.crc32(label.encode()) % 700 / 100 for label in law.labels])
    law.sample(20, rng=0)  # compiles, and prepares components without a tilt
    print(f"{law.n_items:,} items, {len(law.weights)} components")
    print("| limits | P(limits) | accepted | ms per sample | prepared |\n|---|---|---|---|---|")
    for name, wanted in LIMITS.items():
        limits = [
            Limit(prices, most=most, name="price") if what == "price" else Limit(groups[what], most, most, name=what)
            for what, most in wanted.items()
        ]
        start = time.process_time()
        sampler = law.sampler(limits=limits)
        prepared = time.process_time() - start
        sampler.sample(chosen.samples, rng=1)
        start = time.process_time()
        proposals = sampler.sample(chosen.samples, rng=0).totals["proposals"]
        each, accepted = (time.process_time() - start) / chosen.samples, chosen.samples / proposals
        chance = accepted * np.exp(sampler.log_bound)
        print(f"| {name} | {chance:.2g} | {accepted:.1%} | {1e3 * each:.2g} | {prepared:.2g} s |", flush=True)


if __name__ == "__main__":
    main()
