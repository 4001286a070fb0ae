"""A million customers on disk, on this machine: ``python benchmarks/bench_customers.py [--customers 1000000] [--items 5000]``.

Each customer has bought 40 items of a catalogue with a power law of popularity. Another process loads the file, asks for the next basket
of customers here and there, makes next baskets in bulk with one thread and with two, adds one night's orders of one customer in fifty,
and saves. It shows seconds, CPU seconds where the load of the machine would matter, and memory: what the process owns, and with the
pages of the file that the system keeps for it as long as it has room.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import ndpp
from ndpp.baskets.orders import Orders
from ndpp.customers import Habits
from ndpp.customers.store import NEVER, Layers, Store

OWN = 40
"""Items of a customer."""


def law(n_items: int) -> ndpp.Mixture:
    """Return a mixture of 20 missions."""
    rng = np.random.default_rng(0)
    popularity = 0.5 / np.arange(1, n_items + 1) ** 0.8
    odds = popularity * rng.gamma(0.5, 2.0, (20, n_items)) + 1e-6
    return ndpp.Mixture.tied(
        odds, rng.normal(size=(n_items, 8)) / 10, np.eye(8) / 10, np.full(20, 0.05)
    ).without_empty()


def write(path: Path, n_customers: int, n_items: int) -> None:
    """Write a file of customers."""
    rng, n = np.random.default_rng(0), n_customers
    items = np.minimum(rng.pareto(0.6, n * OWN), n_items - OWN - 1).astype(np.int32)
    items += np.tile(np.arange(OWN, dtype=np.int32), n)  # distinct within a customer
    counts = rng.uniform(0.2, 4.0, n * OWN).astype(np.float32)
    store = Store(
        np.array([b"%09d" % i for i in range(n)]), np.arange(n + 1) * OWN, items, counts, np.full(n, 8.0, np.float32),
        np.full(n, 1_700_000_000), np.zeros(n, np.uint64), np.zeros((n, 0), np.float32),
    )  # fmt: skip
    none = Store.blank(np.empty(0, "S1"))
    ndpp.Customers(law(n_items), Habits(), clock=1_700_000_000 if n else NEVER, layers=Layers(store, none)).save(path)


def memory() -> str:
    """Return what this process holds, in MB."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own, whole = (int(status[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS"))
    return f"{own:5.0f} MB own, {whole:5.0f} MB with pages of the file"


def measure(path: Path, n_customers: int, n_items: int) -> None:
    """Print what a process that loads the file needs."""
    shop, rng = law(n_items), np.random.default_rng(1)
    shop.inclusion_probabilities()
    print(f"before                                       {memory()}")
    start = time.perf_counter()
    customers = ndpp.Customers.load(path, shop)
    print(f"load                      {time.perf_counter() - start:8.3f} s        {memory()}")
    customers.next_basket("000000007")
    chosen = [f"{i:09d}" for i in rng.integers(n_customers, size=1000)]
    start = time.perf_counter()
    for name in chosen:
        customers.next_basket(name)
    print(f"next_basket, each         {(time.perf_counter() - start):8.3f} ms       {memory()}")
    chosen = [f"{i:09d}" for i in rng.integers(n_customers, size=50_000)]
    for n_jobs in (1, 2):
        start, cpu = time.perf_counter(), time.process_time()
        customers.recommend_many(chosen, n_jobs=n_jobs)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        print(
            f"recommend_many, {n_jobs} threads {50_000 / seconds:8.0f} per second {memory()} ({50_000 / cpu:,.0f} per CPU second)"
        )
    n_orders = n_customers // 50
    sets = [np.unique(rng.integers(n_items, size=8)) for _ in range(n_orders)]
    who = np.array([f"{i:09d}" for i in rng.integers(n_customers + n_orders // 10, size=n_orders)])  # some are new
    when = np.datetime64("2026-01-01", "s") + rng.integers(86400, size=n_orders).astype("timedelta64[s]")
    night = Orders(ndpp.Baskets.from_lists(sets, n_items=n_items, basket_ids=range(n_orders)), who, when)
    start = time.perf_counter()
    customers = customers.update(night)
    print(f"update, {n_orders:,} orders    {time.perf_counter() - start:8.3f} s        {memory()}")
    start = time.perf_counter()
    customers.save(path)
    print(f"save, {len(customers):,}         {time.perf_counter() - start:8.3f} s        {memory()}")


def main() -> None:
    """Write a file and measure in another process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--customers", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    found = parser.parse_args()
    if found.file is not None:
        measure(found.file, found.customers, found.items)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.customers"
        start = time.perf_counter()
        write(path, found.customers, found.items)
        seconds = time.perf_counter() - start
        print(f"made {found.customers:,} customers in {seconds:.1f} s: {path.stat().st_size / 2**20:,.0f} MB")
        again = ["--file", str(path), "--customers", str(found.customers), "--items", str(found.items)]
        subprocess.run([sys.executable, __file__, *again], check=True)


if __name__ == "__main__":
    main()
