"""How long the default model takes to learn from a large shop, stage by stage, and how much memory.

Orders are synthetic: items have Zipf popularity, and most items of an order come from one of the missions, each of which is about some of
the departments. ``python benchmarks/bench_large_fit.py --items 200000 --orders 1000000 --device cuda`` fits them; ``--items 20000
--orders 100000 --max-epochs 1`` is a smaller one. ``--minutes 15`` ends the fit in time. ``-o FILE.json`` records the stages.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from ndpp import Baskets
from ndpp.learning import MixtureNDPP
from ndpp_experiments.record import machine

N_MISSIONS, N_DEPARTMENTS, MEAN_SIZE, FOCUS = 200, 1000, 10.0, 0.7


def make_orders(n_items: int, n_orders: int, seed: int = 0) -> Baskets:
    """Return orders of about ten items, ``FOCUS`` of them from three departments of the order's mission, the others from anywhere."""
    rng = np.random.default_rng(seed)
    popularity = 1 / np.arange(10, n_items + 10)
    departments = rng.integers(min(N_DEPARTMENTS, max(3, n_items // 20)), size=n_items)
    order = np.argsort(departments, kind="stable")
    cumulated = np.cumsum(popularity[order])
    edges = np.searchsorted(departments[order], np.arange(departments.max() + 2))
    low, high = (np.concatenate([[0.0], cumulated])[edges[side : len(edges) - 1 + side]] for side in (0, 1))
    missions = rng.integers(departments.max() + 1, size=(N_MISSIONS, 3))
    share = 1 / np.arange(3, N_MISSIONS + 3)
    mission = rng.choice(N_MISSIONS, n_orders, p=share / share.sum())
    sizes = 1 + rng.poisson(MEAN_SIZE - 1, n_orders)
    owner = np.repeat(np.arange(n_orders), sizes)
    about = missions[mission[owner], rng.integers(3, size=len(owner))]
    begin, end = low[about], high[about]
    anywhere = rng.random(len(owner)) > FOCUS
    begin[anywhere], end[anywhere] = 0.0, cumulated[-1]
    place = np.searchsorted(cumulated, begin + (end - begin) * rng.random(len(owner)), side="right")
    pairs = np.unique(owner * n_items + order[np.minimum(place, n_items - 1)])  # an item comes once in an order
    indptr = np.searchsorted(pairs, np.arange(n_orders + 1) * n_items)
    return Baskets._trusted(indptr, pairs % n_items, n_items, None)


class Stages:
    """Prints each line of the fit with the time, and keeps when each stage began."""

    def __init__(self) -> None:
        self.began, self.lines = time.perf_counter(), list[tuple[float, str]]()

    def __call__(self, line: str) -> None:
        now = time.perf_counter() - self.began
        self.lines.append((round(now, 1), line))
        print(f"{now:8.1f} s  {peak():6.2f} GiB  {line}", flush=True)


def peak() -> float:
    """Return the peak memory of the process in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main(chosen: argparse.Namespace) -> dict[str, Any]:
    say = Stages()
    baskets = make_orders(chosen.items, chosen.orders)
    say(f"{len(baskets):,} orders over {baskets.n_items:,} items, {len(baskets.indices):,} occurrences")
    settings = {"max_epochs": chosen.max_epochs} if chosen.max_epochs else {}
    model = MixtureNDPP(device=chosen.device, minutes=chosen.minutes, random_state=0, progress=say, **settings)
    model.fit(baskets)
    gain = model.validation_score_ - model.baseline_score_
    say(f"{model.ended_} after {model.n_iter_} epochs; {gain:.3f} nats better than independent items")
    return {
        "items": chosen.items, "orders": chosen.orders, "device": chosen.device, "minutes": chosen.minutes,
        "stages": say.lines, "epochs": model.history_, "gain": gain, "peak_gib": peak(), "machine": machine(),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--orders", type=int, default=1_000_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--max-epochs", type=int)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    figures = main(arguments)
    if arguments.output:
        arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
