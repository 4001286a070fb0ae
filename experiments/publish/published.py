"""Learn the kernels of tables 2 and 3 by the paper's recipe, and what its choices change.

    NDPP_DATA=… python experiments/publish/published.py --limit 500 --jobs 6 -o FOLDER    # on a GPU
    python experiments/publish/published.py --keep FOLDER                                 # where the tables are made

The first writes ``published.json``, a record per kernel with its log-likelihoods and the expected proposals of the rejection sampler, and
the kernels in a few compressed files. The second puts these where ``ndpp reproduce table2 table3`` looks for them, and the record into
``results/``. Every fit ends in time with the best kernel so far. ``--data uk_retail --device cpu --steps 5`` is a rehearsal.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from ndpp import LowRankKernel, load, save
from ndpp.datasets import cache_folder
from ndpp.samplers import Rejection
from ndpp_experiments import kernels
from ndpp_experiments.kernels import PAPER, Row
from ndpp_experiments.record import machine

SIZES = (10, 50, None)
RECORD = "published.json"
RESULTS = Path(__file__).resolve().parents[2] / "results"
WHOLE = 7000
"""Kernels of more items are written in half precision, and those of more than ``WHOLE`` × 4 in a file each."""
OURS = {"patience": 2, "max_epochs": 45}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "the learning rate never drops": {"patience": 10**6},
    "the same, four times the steps": {"patience": 10**6, "max_epochs": 4000},
    "five times the steps": {"max_epochs": 5000},
    "another split and start": {},
    "a third split and start": {},
    "our steps and stop": {"init": "literature", **OURS},
    "our steps and stop, learning rate 0.02": {"init": "literature", **OURS, "learning_rate": 0.02},
    "γ = 0, as the public code": {"gamma": 0.0},
    "γ = 1, σ counted twice": {"gamma": 1.0},
}
"""Changes of the recipe, for one data set. Those of γ are for ONDPP."""
SEEDS = {"another split and start": 1, "a third split and start": 2}


class Job(NamedTuple):
    """A kernel to learn: a row of the tables, and what is changed, if anything."""

    row: Row
    variant: str = ""

    @property
    def name(self) -> str:
        """The name of the job in messages."""
        return f"{self.row.data.title} {self.row.model.upper()}{', ' * bool(self.variant)}{self.variant}"


def jobs(data: list[str]) -> list[Job]:
    """Return the kernels of the tables, those of the largest data sets first, and then the variants for UK Retail."""
    rows = [row for one in PAPER for o in (False, True) for row in kernels.rows(one, orthogonal=o) if row.is_published]
    rows = sorted((row for row in rows if row.data.baskets in data), key=lambda row: -row.data.n_items)
    changed = [
        Job(row._replace(settings={**row.settings, **settings}), variant)
        for variant, settings in VARIANTS.items()
        for row in rows
        if row.data is PAPER[0] and (row.model == "ondpp" or "gamma" not in settings)
    ]
    return [*map(Job, rows), *changed]


def work(job: Job, folder: Path, ends: float, minutes: float, more: Mapping[str, Any]) -> dict[str, Any]:
    """Learn one kernel, save it in the folder if it is of the tables, and return its record."""
    path, seed = folder / f"{job.name}.safetensors".replace(" ", "-"), SEEDS.get(job.variant, 0)
    limit = min(minutes, (ends - time.time()) / 60)
    if limit < 0.3:
        raise TimeoutError("no time was left to begin")
    about = kernels.fit(job.row, path, seed=seed, say=lambda _: None, minutes=limit, **more)
    return {
        "data": job.row.data.baskets, "kind": job.row.model, "variant": job.variant, "seed": seed, "file": path.name,
        "settings": dict(job.row.settings), **about, **measured(load(path)),
    }  # fmt: skip


def measured(kernel: LowRankKernel) -> dict[str, Any]:
    """Return the number of items, the mean size of sets, and the logarithm of the expected proposals for each size of the tables."""
    law = kernel.size_distribution()
    proposals = {
        str(k): float(np.log10(Rejection.prepare(kernel, size=k, max_proposals=np.inf).expected_proposals))
        for k in SIZES
        if k is None or k <= kernel.rank
    }
    return {
        "n_items": kernel.n_items,
        "mean_size": float(law @ np.arange(len(law))),
        "log10_proposals": {("any" if k == "None" else k): value for k, value in proposals.items()},
    }


def pack(found: list[dict[str, Any]], scratch: Path, output: Path) -> None:
    """Write the kernels of the tables in few files, and note in the records in which."""
    groups: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
    for record in found:
        if record["variant"]:
            continue
        kernel, n = load(scratch / record["file"]), record["n_items"]
        record["packed"] = record["data"] + (f"-{record['kind']}" if n > 4 * WHOLE else "") + ".npz"
        arrays = groups.setdefault(record["packed"], {})
        arrays[f"{record['kind']}-X"] = np.asarray(kernel.X, np.float16 if n > WHOLE else np.float32)
        arrays[f"{record['kind']}-W"] = np.asarray(kernel.W)
    for name, arrays in groups.items():
        np.savez(output / name, **arrays)  # type: ignore[arg-type]  # of the names


def learn(args: argparse.Namespace) -> None:
    """Learn everything, several kernels at a time, and write the records after each."""
    output, ends = Path(args.output), time.time() + args.limit
    output.mkdir(parents=True, exist_ok=True)
    more = {"device": args.device, **({"max_epochs": args.steps} if args.steps else {})}
    failed: dict[str, str] = {}
    found: list[dict[str, Any]] = []
    workers = ProcessPoolExecutor(args.jobs, mp_context=multiprocessing.get_context("spawn"))
    with TemporaryDirectory() as scratch, workers as pool:
        folder = Path(scratch)
        running = {pool.submit(work, job, folder, ends, args.minutes, more): job for job in jobs(args.data)}
        for done in as_completed(running):
            try:
                record = done.result()
            except Exception as error:  # the others go on
                failed[running[done].name] = "".join(traceback.format_exception(error))
                print(f"{running[done].name}: {error}", flush=True)
            else:
                found.append(record)
                if not record["variant"]:
                    pack(found, folder, output)
                told = ", ".join(f"{k}: 10^{v:.2f}" for k, v in record["log10_proposals"].items())
                test, epochs, ended = record["test"], record["epochs"], record["ended"]
                print(
                    f"{running[done].name}: {epochs} epochs ({ended}), {record['seconds']} s, test {test:.2f}; {told}",
                    flush=True,
                )
            whole = {"machine": machine(), "where": where(args.device), "failed": failed, "kernels": found}
            (output / RECORD).write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def where(device: str) -> str:
    """Return the name of the GPU, or nothing."""
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else ""


def keep(folder: Path) -> None:
    """Put the kernels of a folder into the cache, and its record into the results."""
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    cache_folder().mkdir(parents=True, exist_ok=True)
    for row, about in learned(record):
        with np.load(folder / about["packed"]) as arrays:
            kernel = LowRankKernel(arrays[f"{row.model}-X"].astype(np.float32), arrays[f"{row.model}-W"])
        names = ("model", "device", "epochs", "ended", "seconds", "n_train", "validation", "gamma", "recipe", "test")
        save(kernel, cache_folder() / row.file(about["seed"]), metadata={name: about[name] for name in names})
        print(cache_folder() / row.file(about["seed"]))
    shutil.copyfile(folder / RECORD, RESULTS / RECORD)


def learned(record: Mapping[str, Any]) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yield the rows of the tables, and what is recorded of the kernel of each."""
    rows = [job.row for job in jobs([one.baskets for one in PAPER]) if not job.variant]
    for about in record["kernels"]:
        if not about["variant"]:
            yield next(row for row in rows if (row.data.baskets, row.model) == (about["data"], about["kind"])), about


def main() -> None:
    """Read the options, and learn or keep."""
    names = [one.baskets for one in PAPER]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="build/published", help="folder for records and kernels")
    parser.add_argument("--data", nargs="+", choices=names, default=names)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int, default=6, help="fits at the same time")
    parser.add_argument("--minutes", type=float, default=4, help="most minutes per fit")
    parser.add_argument("--limit", type=float, default=500, help="seconds after which no fit goes on")
    parser.add_argument("--steps", type=int, help="steps of every fit, for a rehearsal")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what was learned, and learn nothing")
    args = parser.parse_args()
    if args.keep:
        keep(args.keep)
    else:
        learn(args)


if __name__ == "__main__":
    main()
