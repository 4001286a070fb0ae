"""What weights of baskets change: ``NDPP_DATA=… python experiments/publish/weights.py [--device cuda] [-o results/weights.json]``.

The default model is fitted with the weights size ** -power. All baskets are training baskets of ``quality.py``: 300 of them end training,
and 2,000 others are judged.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from quality import evaluate, load

from ndpp import metrics
from ndpp.learning import MixtureNDPP

DATA, POWERS = ("uk_retail", "goodreads_toread", "complete_journey"), (0.0, 0.3, 0.5)
GROUPS = {"1-4": (1, 4), "5-10": (5, 10), "11-": (11, 10**6)}
"""The smallest and the largest size of a group of baskets."""


def judged(data: str, power: float, device: str) -> dict[str, Any]:
    """Return the metrics of one model, and its log-likelihood by the size of baskets."""
    train, validation, others = load(data).split(300, 2000, rng=0)[0].split(300, 2000, rng=1)
    began = time.perf_counter()
    model = MixtureNDPP(random_state=0, device=device)
    model.fit(train, validation=validation, sample_weight=train.sizes**-power)
    seconds, values, sizes = time.perf_counter() - began, model.law_.log_probs(others), others.sizes
    by_size = {name: float(values[(sizes >= low) & (sizes <= high)].mean()) for name, (low, high) in GROUPS.items()}
    found = evaluate(model.law_, metrics.independent_items(train), others)
    return {"data": data, "power": power, "by_size": by_size, "metrics": found, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-o", "--output", type=Path, default=Path("weights.json"))
    chosen = parser.parse_args()
    records = [judged(data, power, chosen.device) for data in DATA for power in POWERS]
    chosen.output.write_text(json.dumps({"records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
