"""A million customers on disk, on this machine: ``python benchmarks/bench_customers.py [--customers N] [--items N] [-o FILE.json]``.

Each customer has bought 40 items of a catalogue with a power law of popularity. Another process loads the file, asks for the next basket
of customers here and there, makes next baskets in bulk with one thread and with two, adds one night's orders of one customer in fifty,
and saves. Then a law as fits have by default completes baskets of new customers. It records seconds, CPU seconds where the load of the
machine would matter, and memory: what the process owns, and with the pages of the file that the system keeps for it as long as it has room.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import ndpp
from ndpp.baskets.orders import Orders
from ndpp.customers import Habits
from ndpp.customers.store import NEVER, CustomerCounts, Layers
from ndpp.laws import Law
from ndpp_experiments.record import machine

OWN, ASKED = 40, 50_000
"""Items of a customer; next baskets that are made in bulk."""
LARGE, COMPLETED = (400, 128), 20
"""Missions and rank of a law as fits have by default, and new customers whose baskets it completes, after three baskets of ten items."""


def law(n_items: int, missions: int = 20, rank: int = 8) -> Law:
    """Return a mixture of missions."""
    rng = np.random.default_rng(0)
    popularity = 0.5 / np.arange(1, n_items + 1) ** 0.8
    odds = popularity * rng.gamma(0.5, 2.0, (missions, n_items)) + 1e-6
    ties, weights = rng.normal(size=(n_items, rank)) / 10, np.full(missions, 1 / missions)
    found: Law = ndpp.Mixture.tied(odds, ties, np.eye(rank) / 10, weights).without_empty()
    return found


def write(path: Path, n_customers: int, n_items: int) -> None:
    """Write a file of customers."""
    rng, n = np.random.default_rng(0), n_customers
    items = np.minimum(rng.pareto(0.6, n * OWN), n_items - OWN - 1).astype(np.int32)
    items += np.tile(np.arange(OWN, dtype=np.int32), n)  # distinct within a customer
    counts = rng.uniform(0.2, 4.0, n * OWN).astype(np.float32)
    store = CustomerCounts(
        np.array([b"%09d" % i for i in range(n)]), np.arange(n + 1) * OWN, items, counts, np.full(n, 8.0, np.float32),
        np.full(n, 1_700_000_000), np.arange(n + 1), np.ones(n, np.uint64), np.zeros((n, 0), np.float32),
    )  # fmt: skip
    none = CustomerCounts.blank(np.empty(0, "S1"))
    ndpp.Customers(law(n_items), Habits(), clock=1_700_000_000 if n else NEVER, layers=Layers(store, none)).save(path)


class Steps:
    """What each step takes: its time since the last one, and what the process holds after it, in MB."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        """Begin another step."""
        self.began, self.cpu = time.perf_counter(), time.process_time()

    def keep(self, what: str, **more: float) -> None:
        """End a step."""
        seconds, cpu = time.perf_counter() - self.began, time.process_time() - self.cpu
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        own, whole = (int(status[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS"))
        self.rows.append(
            {"what": what, "seconds": seconds, "cpu_seconds": cpu, "own_mb": own, "whole_mb": whole, **more}
        )
        print(
            f"{what:45} {seconds:8.3f} s, CPU {cpu:8.3f} s, {own:5.0f} MB, {whole:5.0f} MB with pages of the file",
            flush=True,
        )
        self.restart()


def measure(path: Path, n_customers: int, n_items: int) -> list[dict[str, Any]]:
    """Return what a process that loads the file needs."""
    shop, rng, steps = law(n_items), np.random.default_rng(1), Steps()
    shop.inclusion_probabilities()
    steps.keep(f"the process, with a law of {len(shop.weights)} missions")
    customers = ndpp.Customers.load(path, shop)
    steps.keep("load")
    customers.next_basket("000000007")
    chosen = [f"{i:09d}" for i in rng.integers(n_customers, size=1000)]
    steps.restart()
    for name in chosen:
        customers.next_basket(name)
    steps.keep("a next basket, one after another", times=len(chosen))
    chosen = [f"{i:09d}" for i in rng.integers(n_customers, size=ASKED)]
    steps.restart()
    customers.recommend_many(chosen)
    steps.keep("a next basket, in bulk", times=ASKED)
    n_orders = n_customers // 50
    sets = [np.unique(rng.integers(n_items, size=8)) for _ in range(n_orders)]
    who = np.array([f"{i:09d}" for i in rng.integers(n_customers + n_orders // 10, size=n_orders)])  # some are new
    when = np.datetime64("2026-01-01", "s") + rng.integers(86400, size=n_orders).astype("timedelta64[s]")
    night = Orders(ndpp.Baskets.from_lists(sets, n_items=n_items, basket_ids=range(n_orders)), who, when)
    steps.restart()
    customers = customers.update(night)
    steps.keep(f"update with one night, {n_orders:,} orders")
    customers.save(path)
    steps.keep("save")
    large = law(n_items, *LARGE)
    new = ndpp.Customers(large)
    for i in range(1 + COMPLETED):  # the first one prepares what all share
        history = [np.unique(rng.integers(n_items, size=10)).tolist() for _ in range(3)]
        large.sample(given=rng.integers(n_items, size=1), customer=new.person(history=history), rng=i)
        if i == 0:
            steps.restart()
    steps.keep(
        f"an exact completion for a new customer, law of {LARGE[0]} missions and rank {LARGE[1]}", times=COMPLETED
    )
    return steps.rows


def main() -> None:
    """Write a file and measure in another process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--customers", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    found = parser.parse_args()
    if found.file is not None:
        found.output.write_text(json.dumps(measure(found.file, found.customers, found.items)), encoding="utf-8")
        return
    with tempfile.TemporaryDirectory() as folder:
        path, steps = Path(folder) / "shop.customers", Path(folder) / "steps.json"
        before = machine()
        write(path, found.customers, found.items)
        record = {
            "machine": before, "customers": found.customers, "items": found.items, "own": OWN, "file_mb": path.stat().st_size / 2**20,
        }  # fmt: skip
        again = [
            "--file",
            str(path),
            "--customers",
            str(found.customers),
            "--items",
            str(found.items),
            "-o",
            str(steps),
        ]
        subprocess.run([sys.executable, __file__, *again], check=True)
        record["rows"] = json.loads(steps.read_text(encoding="utf-8"))
    if found.output is not None:
        found.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
