"""Kernels of the paper's recipe and of ours on the same test baskets, with a random item held out, and with the largest id as in the paper.

    NDPP_DATA=… python experiments/publish/holdouts.py --kernels FOLDER --jobs 2 -o results/holdouts.json

Those of the paper's recipe are what ``published.py --keep`` kept. ``--kernels`` is the folder of ``quality.py``: kernels that it does not
hold yet are learned, and saved there. ``--data uk_retail`` does a part of the work; a new record replaces an old one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import quality
import threadpoolctl

from ndpp import load, metrics
from ndpp._atomic import replacing
from ndpp.datasets import cache_folder
from ndpp_experiments.kernels import N_VALIDATION, PAPER, DataSet, rows
from ndpp_experiments.record import machine

RULES = {"random": "MPR", "largest-id": "MPR, largest id"}
SHOWN = ("log-likelihood", "AUC")
INDEPENDENT, PUBLISHED, OURS = "independent items", "the paper's recipe", "ours"


def evaluated(model: Any, baseline: Any, test: Any) -> dict[str, list[float]]:
    """Return each metric as [value, low, high, number of baskets of probability zero], which are in no mean."""
    compared, found = {"": model, INDEPENDENT: baseline}, dict[str, list[float]]()
    for rule, name in RULES.items():
        by_rule = metrics.compare_models(compared, test, holdout=rule, rng=0, by_size=False)  # type: ignore[arg-type]
        each = {one.name: [one.value, one.low, one.high, one.n_zero] for one in by_rule.rows[0].estimates}
        found |= {metric: each[metric] for metric in SHOWN} | {name: each["MPR"]}
    return found


def work(data: DataSet, kind: str, recipe: str, folder: Path) -> dict[str, Any]:
    """Evaluate the kernel of one recipe, or independent items."""
    threadpoolctl.threadpool_limits(1)
    train, validation, test = quality.load(data.baskets).split(N_VALIDATION, data.n_test, rng=0)
    baseline = metrics.independent_items(train)
    about: dict[str, Any] = {"data": data.baskets, "model": kind, "recipe": recipe}
    gamma = max(data.gammas[:1]) if kind == "ONDPP" else None
    model: Any = baseline
    if recipe == PUBLISHED:
        row = next(row for row in rows(data, orthogonal=kind == "ONDPP") if row.is_published)
        model, about["gamma"] = load(cache_folder() / row.file(0)), row.settings.get("gamma")
    elif recipe == OURS:
        job = quality.Job(data.baskets, kind, gamma, 0)
        model, about["gamma"] = quality.fitted(job, train, validation, "cpu", 100, folder)[0], gamma
    return about | {"n_test": len(test), "metrics": evaluated(model, baseline, test)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=[one.baskets for one in PAPER])
    parser.add_argument("--recipes", nargs="+", choices=[PUBLISHED, OURS], default=[PUBLISHED, OURS])
    parser.add_argument("--kernels", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=Path("holdouts.json"))
    args = parser.parse_args()
    args.kernels.mkdir(parents=True, exist_ok=True)
    chosen = [one for one in PAPER if one.baskets in args.data]
    jobs = [(one, INDEPENDENT, "") for one in chosen]
    jobs += [(one, kind, recipe) for one in chosen for kind in ("NDPP", "ONDPP") for recipe in args.recipes]
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(work, *job, args.kernels): job for job in jobs}
        for done in as_completed(waiting):
            if reason := done.exception():
                print(f"{waiting[done]}: {reason!r}", flush=True)
                continue
            record = done.result()
            there = json.loads(args.output.read_text())["records"] if args.output.exists() else []
            keys = ("data", "model", "recipe")
            records = {tuple(one[key] for key in keys): one for one in [*there, record]}
            with replacing(args.output) as temporary:
                temporary.write_text(
                    json.dumps({"machine": machine(), "records": list(records.values())}, indent=1) + "\n"
                )
            told = "  ".join(f"{name} {value[0]:.4g}" for name, value in record["metrics"].items())
            print(f"{record['data']} {record['model']} {record['recipe']}: {told}", flush=True)


if __name__ == "__main__":
    main()
