"""The GPU engine on one device: is its distribution right, how fast is it, and how close is each operation to the device's limits?

``python benchmarks/gpu.py [-o FILE.json]`` checks the distribution by a chi-square test on a kernel small enough to enumerate, and
against the CPU engine on a learned one; times exact samples on several kernels and sizes, including a catalogue of a million items, and
a training step; and replays every step of a sample, operation by operation, against measured limits: bytes per second of a
device-to-device copy, flops of a large product in double precision. ``--reference`` draws the CPU samples to compare with and writes
``results/gpu_reference.json``; it needs no GPU. ``NDPP_DATA`` names the folder of the learned kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from gpu_kernels import Json, ceilings, milliseconds, replay, show
from scipy.stats import chi2

from ndpp import Baskets, LowRankKernel
from ndpp.datasets.synthetic import make_kernel
from ndpp.diagnostics import exact_law
from ndpp.samplers import Exact
from ndpp.samplers.gpu import exact
from ndpp.samplers.gpu.exact import ExactEngine
from ndpp.samplers.gpu.kernels import runtime
from ndpp_experiments.kernels import learned_file

REFERENCE = Path(__file__).parent / "results" / "gpu_reference.json"
LIKELY = 40


# -- the law -----------------------------------------------------------------------------------------------------------------


def law_of_small_kernel(device: str, draws: int = 200_000) -> Json:
    """Return a chi-square test on the counts of all sets of three, with rare ones pooled."""
    kernel = make_kernel(12, 8, rng=1)
    law = exact_law(kernel, size=3)
    baskets = kernel.sample(draws, size=3, rng=0, device=device)
    codes = [(a * 12 + b) * 12 + c for a, b, c in law]
    drawn = baskets.indices.reshape(-1, 3) @ [144, 12, 1]
    counts, expected = np.array([(drawn == code).sum() for code in codes]), draws * np.array(list(law.values()))
    order = np.argsort(expected)
    groups = np.searchsorted(np.cumsum(expected[order]), np.arange(1, 10_000) * 20.0)
    groups = np.unique(groups[groups < len(order)])
    counts, expected = (np.add.reduceat(x[order], np.append(0, groups[groups > 0])) for x in (counts, expected))
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    return {"draws": draws, "cells": len(counts), "p_value": float(chi2.sf(statistic, len(counts) - 1))}


def summary(kernel: LowRankKernel, size: int, baskets: Baskets) -> Json:
    """Return mean log det with its standard error, and the frequencies of the likeliest items."""
    values = kernel.log_dets(baskets)
    likely = np.argsort(-kernel.inclusion_probabilities(size=size))[:LIKELY]
    held = np.bincount(baskets.indices, minlength=kernel.n_items)[likely] / len(baskets)
    return {
        "size": size, "samples": len(baskets), "mean_log_det": float(values.mean()),
        "error": float(values.std() / np.sqrt(len(values))), "items": likely.tolist(), "share": held.tolist(),
    }  # fmt: skip


def write_reference() -> None:
    kernel = learned_file("uk_retail_A")
    assert kernel is not None
    rows = [
        summary(kernel, k, Exact.prepare(kernel, size=k).sample(n, rng=1).baskets) for k, n in ((10, 600), (50, 100))
    ]
    REFERENCE.write_text(json.dumps(rows) + "\n")


def agreement(samplers: dict[int, Exact], counts: dict[int, int]) -> list[Json]:
    """Return differences between the samples of CPU and GPU, in standard errors."""
    rows = []
    for cpu in json.loads(REFERENCE.read_text()):
        size = cpu["size"]
        kernel = samplers[size].kernel
        gpu = summary(kernel, size, samplers[size].sample(counts[size], rng=2).baskets)
        share, other = np.array(cpu["share"]), np.array(gpu["share"])
        chance = kernel.inclusion_probabilities(size=size)[gpu["items"]]
        spread = np.sqrt(chance * (1 - chance))
        between = spread * np.sqrt(1 / cpu["samples"] + 1 / gpu["samples"])
        rows.append({
            "size": size, "cpu_samples": cpu["samples"], "gpu_samples": gpu["samples"],
            "mean_log_det": [cpu["mean_log_det"], gpu["mean_log_det"]],
            "z_mean_log_det": float((gpu["mean_log_det"] - cpu["mean_log_det"]) / np.hypot(cpu["error"], gpu["error"])),
            "largest_z_of_inclusion": float(np.abs((other - share) / between).max()),
            "largest_z_against_probabilities": float(np.abs((other - chance) / spread).max() * np.sqrt(gpu["samples"])),
        })  # fmt: skip
    return rows


# -- rates -------------------------------------------------------------------------------------------------------------------


def rate(sampler: Any, count: int, *, repeats: int = 3) -> Json:
    """Return samples per second of whole calls, including the copy to the host but not preparation and first call."""
    began = time.perf_counter()
    sampler.sample(min(count, 32_768), rng=100)
    warm, seconds, info = time.perf_counter() - began, list[float](), dict[str, list[float]]()
    torch.cuda.reset_peak_memory_stats()
    for repeat in range(repeats):
        began = time.perf_counter()
        draws = sampler.sample(count, rng=repeat)
        seconds.append(time.perf_counter() - began)
        for name, values in draws.info.items():
            info.setdefault(name, []).append(float(np.min(values) if name == "fraction" else np.max(values)))
    monitors = ("trace_error", "fraction", "on_cpu", "recentred")
    return {
        "samples": count, "rate": count / statistics.median(seconds), "rates": [count / s for s in seconds],
        "first_call_s": warm, "peak_GB": torch.cuda.max_memory_allocated() / 2**30,
        "monitors": {name: max(v) if name != "fraction" else min(v) for name, v in info.items() if name in monitors},
    }  # fmt: skip


FORMS = [("A", 10), ("A", 30), ("A", 50), ("A", 100), ("B", 10), ("B", 30), ("S", 10), ("S", 30), ("S", 50)]
"""Kernels and sizes that are timed with both forms of the state."""


def forms(kernels: dict[str, LowRankKernel]) -> list[Json]:
    """Return samples per second with each form of the state of samples, the median of interleaved calls."""
    rows = []
    for name, size in FORMS:
        samplers, rates, count = dict[str, Exact](), dict[str, list[float]](), 2**20 // (size + 6)
        for form, most in (("sides", size), ("coordinates", 0)):
            with patch.object(exact, "SIDES_UP_TO", most):
                samplers[form] = on_device(kernels[name], size)
        for repeat in range(4):
            for form, sampler in samplers.items():
                began = time.perf_counter()
                sampler.sample(count, rng=repeat)
                rates.setdefault(form, []).append(count / (time.perf_counter() - began))
        rank = kernels[name].rank
        rows.append(
            {"kernel": name, "rank": rank, "size": size} | {f: statistics.median(r[1:]) for f, r in rates.items()}
        )
    return rows


def million(kernel: LowRankKernel, n_items: int = 10**6) -> LowRankKernel:
    """Return a catalogue of a million items: the rows of ``kernel``, repeated, with 10 % noise on every entry."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_items, kernel.X.shape[1]), dtype=np.float32)
    X *= 0.1
    X += 1
    X *= np.asarray(kernel.X, np.float32)[rng.integers(0, kernel.n_items, n_items)]
    X *= np.float32(np.sqrt(kernel.n_items / n_items))
    return LowRankKernel(X, kernel.W)


def symmetric(n_items: int = 4000, rank: int = 100) -> LowRankKernel:
    """Return a symmetric kernel of this rank, whose directions differ by a factor of 50 in scale."""
    rng = np.random.default_rng(0)
    return LowRankKernel(rng.standard_normal((n_items, rank)) * np.geomspace(1, 0.02, rank) / 8, np.eye(rank))


def training_step(device: str, n_items: int = 10**6, rank: int = 200, batch: int = 400) -> Json:
    """Time whole steps: batch, noise, loss, gradient, Adam, running mean."""
    from ndpp.learning import NDPP
    from ndpp.learning.run import TrainingRun
    from ndpp.learning.trainer import Trainer

    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 30, 20_000)
    ids = (n_items * rng.random(sizes.sum()) ** 3).astype(np.int64)
    baskets = Baskets.from_lists(np.split(ids, np.cumsum(sizes)[:-1]), n_items=n_items)
    model = NDPP(rank, batch_size=batch, random_state=0, device=device)
    objective = model._objectives(rank, baskets, baskets[:300], TrainingRun(0))["kernel"]
    run, times = Trainer(objective, model._settings(), 0), []
    objective.begin_epoch(run.now)
    for i in range(13):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run.take_step(np.arange(i * batch, (i + 1) * batch))
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    X = run.now.X
    again = [milliseconds(lambda: X.T @ X) for _ in range(5)]
    return {
        "n_items": n_items, "rank": rank, "batch": batch, "ms": statistics.median(times[3:]), "least_ms": min(times[3:]),
        "gram_ms": min(again), "dtype": str(X.dtype), "peak_GB": torch.cuda.max_memory_allocated() / 2**30,
    }  # fmt: skip


# -- all of it ---------------------------------------------------------------------------------------------------------------


def versions() -> Json:
    return {
        "device": torch.cuda.get_device_name(0), "torch": torch.__version__, "cuda": torch.version.cuda,
        "triton": None if runtime.triton is None else runtime.triton.__version__,
    }  # fmt: skip


PARTS = ("law", "small", "forms", "kernels", "agreement", "million", "training", "others")


class Report:
    """The results so far, written to a file after every part; new results replace old ones."""

    def __init__(self, to: Path | None, again: bool) -> None:
        self.to = to
        self.out: Json = {"rates": [], "kernels": {}}
        if again and to is not None and to.exists():
            self.out = json.loads(to.read_text())

    def add(self, **parts: Any) -> None:
        self.out |= parts
        print(parts, flush=True)
        self.save()

    def save(self) -> None:
        if self.to is not None:
            self.to.write_text(json.dumps(self.out, indent=1, ensure_ascii=False) + "\n")

    def rate(self, name: str, make: Callable[[], Exact], count: int, repeats: int = 3) -> None:
        """Time exact samples of the sampler that ``make`` prepares."""
        sampler = make()
        size = sampler.size
        row: Json = {"kernel": name, "size": size, "n_items": sampler.kernel.n_items}
        rates = self.out["rates"]
        same = [i for i, old in enumerate(rates) if all(old[key] == value for key, value in row.items())]
        row |= rate(sampler, count, repeats=repeats)
        rates[slice(same[0], same[0] + 1) if same else slice(len(rates), None)] = [row]
        self.save()
        print(f"{name:8} k={size!s:5} {row['rate']:10,.0f}/s  first call {row['first_call_s']:.1f} s", flush=True)
        print("    ", row["monitors"], f"{row['peak_GB']:.0f} GB", [round(x) for x in row["rates"]], flush=True)
        torch.cuda.empty_cache()


def on_device(kernel: LowRankKernel, size: int | None) -> Exact:
    return Exact.prepare(kernel, size=size, device="cuda")


def run(arguments: argparse.Namespace) -> None:
    chosen: list[str] = arguments.only or list(PARTS)
    report = Report(arguments.output, bool(arguments.only))
    report.add(machine=versions(), ceilings=ceilings())
    if "law" in chosen:
        report.add(law=law_of_small_kernel("cuda"))
    A, B = learned_file("uk_retail_A"), learned_file("uk_retail_B")
    if A is None or B is None:
        print(
            "nothing else is timed: set NDPP_DATA to the folder that holds kernels/uk_retail_A.npz and uk_retail_B.npz"
        )
        return
    samplers = {size: on_device(A, size) for size in (10, 30, 50)}  # planned once, for all that follows
    if "small" in chosen:
        for size, count, repeats in ((10, 131_072, 7), (30, 32_768, 5), (50, 16_384, 5)):
            report.rate("A", partial(samplers.__getitem__, size), count, repeats)
    if "forms" in chosen:
        report.add(forms=forms({"A": A, "B": B, "S": make_kernel(10_000, 100, rng=0)}))
    if "kernels" in chosen:  # of samples that store their sides
        for size, (S, stride) in {10: (32_768, 1), 30: (16_384, 4)}.items():
            engine = samplers[size].engine
            assert isinstance(engine, ExactEngine)
            report.out["kernels"][str(size)] = replay(engine, size, report.out["ceilings"], S, stride)
            show(report.out["kernels"][str(size)])
        report.save()
    if "agreement" in chosen:
        report.add(agreement=agreement(samplers, {10: 20_000, 50: 5_000}))
    samplers.clear()
    if "million" in chosen:
        large = million(A)
        for size, count in ((10, 131_072), (50, 16_384)):
            report.rate("A, 10⁶", partial(on_device, large, size), count)
        del large
    if "training" in chosen:
        report.add(training=training_step("cuda"))
    if "others" in chosen:
        for name, kernel, wanted, count, repeats in (
            ("B", B, 10, 65_536, 5), ("B", B, 50, 16_384, 5), ("A", A, 100, 16_384, 5), ("B", B, 100, 16_384, 5),
            ("A", A, None, 131_072, 3), ("B", B, None, 131_072, 3),
            ("symmetric", symmetric(), 10, 131_072, 7), ("symmetric", symmetric(), None, 131_072, 3),
        ):  # fmt: skip
            report.rate(name, partial(on_device, kernel, wanted), count, repeats)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these parts again, and update the file")
    parser.add_argument("--reference", action="store_true", help="draw the CPU samples to compare with")
    chosen = parser.parse_args()
    if chosen.reference:
        write_reference()
    else:
        run(chosen)
