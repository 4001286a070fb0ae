"""CPU time per sample of a mixture with shared ties, for more and more items and components, with one BLAS thread.

Expected sizes do not depend on the number of items: the odds of each component add up to the same sum, about half of which is that of a
few hundred items of its own. Preparing a component takes time in proportion to the items and is not counted: each sample is drawn twice
with the same seed, and the second time counts. Run ``python benchmarks/bench_mixture.py [-o FILE.json]``.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from ndpp import Mixture
from ndpp_experiments.record import machine

RANK, SUM_OF_ODDS, OWN_ITEMS, SIZE, SEED = 32, 6.0, 300, 10, 0
CASES = (10_000, 8), (100_000, 8), (1_000_000, 8), (10_000, 50), (10_000, 500)
"""Numbers of items and of components."""


def mixture(n_items: int, n_components: int) -> Mixture:
    """Return components with Zipf odds, skew ties between items, and about 12 items per sample."""
    rng = np.random.default_rng(SEED)
    X = 0.3 * rng.standard_normal((n_items, RANK), dtype=np.float32)
    W = np.kron(np.eye(RANK // 2), [[0.0, 1.0], [-1.0, 0.0]])
    common = rng.permutation(1 / np.arange(1.0, n_items + 1))
    odds = np.empty((n_components, n_items), np.float32)
    for row in odds:
        row[:] = common / common.sum() / 2
        row[rng.choice(n_items, OWN_ITEMS, replace=False)] += 0.5 / OWN_ITEMS
    odds *= SUM_OF_ODDS
    return Mixture.tied(odds, X, W, np.full(n_components, 1 / n_components))


def measure(n_items: int, n_components: int, n_samples: int) -> dict[str, Any]:
    law = mixture(n_items, n_components)
    record: dict[str, Any] = {"n_items": n_items, "n_components": n_components, "n_samples": n_samples}
    for name, size in {"any": None, "ten": SIZE}.items():
        sampler = law.sampler(size=size, memory=2**34)
        sampler.sample(n_samples, rng=SEED)
        start = time.process_time()
        drawn = sampler.sample(n_samples, rng=SEED)
        record[name] = (time.process_time() - start) / n_samples
        record[f"{name}_size"] = float(drawn.baskets.sizes.mean())
        del sampler
        gc.collect()
    print({key: round(value, 6) for key, value in record.items()}, flush=True)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2_000, help="sets of any size, and of ten items, per mixture")
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    with threadpoolctl.threadpool_limits(1):
        records = [measure(*case, chosen.samples) for case in CASES]
    if chosen.output:
        found = {"machine": machine(), "rank": RANK, "size": SIZE, "records": records}
        chosen.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
