"""Time of exact samples under limits: ``python benchmarks/bench_limits.py [MODEL] [--samples N] [--device cuda] [--untilted]``.

MODEL is that of ``ndpp demo`` unless another one is given whose items have names of groceries. Groups of items are made by words in the
names, and prices by a fixed rule, so that the limits need no other file. CPU time (set OMP_NUM_THREADS=1); *prepared* is what the first
sampler under the limits and its first sample take, and others are timed once the components that they come from have been prepared. On a
GPU, wall-clock time.

``--untilted`` adds what samples take if sets are drawn until one keeps the limits, from the time of such a set.
``--general`` takes limits that any model has: a count of a hundred items, three such groups, a total over all items. *first* and *warm*
are the times of completing begun baskets under them, 20 at first and the next 20.
``--items 10000 1000000`` draws from synthetic mixtures of equal rank instead, with groups of a tenth of the items each.
``-o`` writes a part of a file, and keeps the others: ``general`` or ``named`` of the model, or ``items``.
"""

from __future__ import annotations

import argparse
import re
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import ndpp
from ndpp import Limit
from ndpp.errors import NDPPError
from ndpp_experiments.record import write_part

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


def prices_of(labels: tuple[str, ...]) -> np.ndarray:
    """Return prices between 1 and 8 dollars."""
    return np.array([1 + zlib.crc32(label.encode()) % 700 / 100 for label in labels])


def limits_on_groceries(law: Any) -> dict[str, list[Limit]]:
    """Return the limits of ``LIMITS``."""
    groups, prices = groups_of(law.labels), prices_of(law.labels)
    return {
        name: [
            Limit(prices, most=most, name="price") if what == "price" else Limit(groups[what], most, most, name=what)
            for what, most in wanted.items()
        ]
        for name, wanted in LIMITS.items()
    }


def limits_on_any(law: Any) -> dict[str, list[Limit]]:
    """Return limits on random items and prices; the most popular items are in every group."""
    chances, rng = law.inclusion_probabilities(), np.random.default_rng(0)
    order = np.argsort(-chances)
    groups = [order[first:300:3].tolist() for first in range(3)]
    prices = np.round(rng.gamma(2.0, 2.0, law.n_items), 2)
    means = [max(1, round(float(chances[own].sum()))) for own in groups]
    total = float(chances @ prices)
    return {
        "a count": [Limit(groups[0], means[0] + 1, means[0] + 1)],
        "three groups": [Limit(own, mean, mean) for own, mean in zip(groups, means)],
        "a total": [Limit(prices, most=total)],
        "a small total": [Limit(prices, most=total / 4)],
        "a large total": [Limit(prices, least=2 * total)],
        "a count and a total": [Limit(groups[0], means[0] + 1, means[0] + 1), Limit(prices, most=total)],
    }


def synthetic(n_items: int, n_components: int = 5, rank: int = 20) -> Any:
    """Return a mixture whose sets have about ten items, however many there are to choose from."""
    rng = np.random.default_rng(0)
    odds = rng.gamma(0.5, 2.0, (n_components, n_items)) * 10 / n_items
    X = rng.normal(size=(n_items, rank)) / np.sqrt(rank)
    W = np.kron(np.eye(rank // 2), [[0.1, 1.0], [-1.0, 0.1]])
    return ndpp.Mixture.tied(odds, X, W, np.full(n_components, 1 / n_components))


def limits_on_tenths(law: Any) -> dict[str, list[Limit]]:
    """Return exact counts in two tenths of the items, and a total."""
    n = law.n_items
    groups = [range(n // 10), range(n // 10, n // 5)]
    return {
        "2 and 1 of two tenths of the items": [Limit(groups[0], 2, 2), Limit(groups[1], 1, 1)],
        "at most 30 dollars": [Limit(np.random.default_rng(0).uniform(1, 8, n), most=30.0)],
    }


def timed(law: Any, limits: list[Limit], n_samples: int, device: str | None) -> tuple[float, float, float, float]:
    """Return P(limits), the part that is accepted, seconds per sample and those to the first sample."""
    clock = time.perf_counter if device else time.process_time
    start = clock()
    sampler = law.sampler(limits=limits, device=device)
    sampler.sample(1, rng=2)
    prepared = clock() - start
    sampler.sample(n_samples, rng=1)
    start = clock()
    proposals = sampler.sample(n_samples, rng=0).totals["proposals"]
    each, accepted = (clock() - start) / n_samples, n_samples / proposals
    return accepted * float(np.exp(sampler.log_bound)), accepted, each, prepared


def completed(law: Any, limits: list[Limit], n_baskets: int = 40) -> tuple[list[float], list[float]]:
    """Return the seconds of completing each of some begun baskets, each with a new sampler, and how long preparing them took."""
    given = [items[:2] for items in law.sample(8 * n_baskets, rng=3) if len(items) >= 3]
    times, prepared = list[float](), list[float]()
    for number, ids in enumerate(given):
        start = time.process_time()
        try:
            sampler = law.sampler(limits=limits, given=ids)
            prepared.append(time.process_time() - start)
            sampler.sample(1, rng=number)
        except NDPPError:  # a limit that these items break
            continue
        times.append(time.process_time() - start)
        if len(times) == n_baskets:
            break
    return times, prepared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", default=Path("demo-output/groceries.safetensors"))
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--device")
    parser.add_argument("--untilted", action="store_true")
    parser.add_argument("--general", action="store_true")
    parser.add_argument("--items", type=int, nargs="+", help="numbers of items of synthetic mixtures")
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    laws = [synthetic(n) for n in chosen.items] if chosen.items else [ndpp.load(chosen.model)]
    find = limits_on_tenths if chosen.items else limits_on_any if chosen.general else limits_on_groceries
    runs = list[dict[str, Any]]()
    for law in laws:
        if chosen.device is None:
            law.sample(20, rng=0)  # compiles, and prepares components without a tilt
        plain = law.sampler(device=chosen.device)
        plain.sample(100, rng=1)
        start = time.process_time()
        plain.sample(100, rng=2)
        free = (time.process_time() - start) / 100
        runs.append({"n_items": law.n_items, "components": len(law.weights), "free_ms": 1e3 * free, "limits": []})
        print(f"{law.n_items:,} items, {len(law.weights)} components; {1e3 * free:.2g} ms per sample without limits")
        more = (" without tilts |" if chosen.untilted else "") + (" first | warm |" if chosen.general else "")
        print(f"| limits | P(limits) | accepted | ms per sample | samples per second | prepared |{more}")
        print("|---" * (more.count("|") + 6) + "|")
        for name, limits in find(law).items():
            chance, accepted, each, prepared = timed(law, limits, chosen.samples, chosen.device)
            row: dict[str, Any] = {"name": name, "probability": chance, "accepted": accepted}
            row |= {"sample_ms": 1e3 * each, "prepared_s": prepared}
            line = f"| {name} | {chance:.2g} | {accepted:.1%} | {1e3 * each:.2g} | {1 / each:,.0f} | {prepared:.2g} s |"
            if chosen.untilted:
                row["untilted_ms"] = 1e3 * free / chance
                line += f" {row['untilted_ms']:.2g} ms |"
            if chosen.general:
                fresh = ndpp.load(chosen.model)
                fresh.sample(20, rng=0)
                times, own = (1e3 * np.array(part) for part in completed(fresh, limits))
                row["first_ms"] = {
                    "median": np.median(times[:20]),
                    "most": times[:20].max(),
                    "prepared": own[:20].max(),
                }
                row["warm_ms"] = {"median": np.median(times[20:]), "most": times[20:].max(initial=0.0)}
                line += (
                    f" {row['first_ms']['median']:.0f} ms, at most {row['first_ms']['most']:.0f} "
                    f"(prepared {row['first_ms']['prepared']:.0f}) |"
                    f" {row['warm_ms']['median']:.0f} ms, at most {row['warm_ms']['most']:.0f} |"
                )
            runs[-1]["limits"].append(row)
            print(line, flush=True)
    names = ["items"] if chosen.items else ["general" if chosen.general else "named", chosen.model.stem]
    write_part(chosen.output, names, {"samples": chosen.samples, "device": chosen.device, "runs": runs})


if __name__ == "__main__":
    main()
