"""What the model of ``make demo`` shows: ``python experiments/publish/demonstrated.py [MODEL] [-o results/demo.json]``.

Missions, pairs, a recommendation with its reasons as the command prints it, and dinners for a budget, for README.md and docs/mixtures.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ndpp
from ndpp import answers
from ndpp.datasets import load_complete_journey
from ndpp_experiments import demo
from ndpp_experiments.groceries import load_goods
from ndpp_experiments.record import machine

ASKED = 'ndpp recommend groceries.safetensors --given "Spaghetti dry" -n 3 --why'


def shown(path: Path) -> dict[str, Any]:
    """Return what a model of groceries shows."""
    law: Any = ndpp.load(path)
    goods = load_goods(load_complete_journey().labels or ())
    missions = [
        {"share": one.share, "mean_size": one.mean_size, "items": [[str(typical.item), typical.lift] for typical in one.items]}
        for one in answers.missions(law, n_items=4)
    ]  # fmt: skip
    pairs = demo.show_pairs(law)
    kinds = {
        kind: [[str(one.item), str(one.other), one.lift, one.by_ties] for one in getattr(pairs, kind)]
        for kind in ("complements", "substitutes")
    }
    drawn = demo.dinners(law, goods).sample(demo.N_DINNERS, rng=0).baskets
    words = [sys.executable, "-m", "ndpp.cli", "recommend", str(path), "--given", "Spaghetti dry", "-n", "3", "--why"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True, encoding="utf-8").stdout
    return {
        "machine": machine(), "missions": missions, **kinds, "asked": ASKED, "printed": printed,
        "dinners": [list(demo.priced(law, goods, items)) for items in drawn],
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?", default=demo.OUTPUT / "groceries.safetensors")
    parser.add_argument("-o", "--output", type=Path, default=Path("results/demo.json"))
    chosen = parser.parse_args()
    found = shown(chosen.model)
    chosen.output.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
