"""The GPU engine on one device: is the law right, how fast, and how close is each hot kernel to what the device can do.

``python benchmarks/gpu.py [-o FILE.json]`` checks the law by chi-square on a kernel small enough to enumerate, and against the CPU
engine on a learned one; times exact samples on several kernels and sizes, a catalogue of a million items and a training
step on one; and replays every step of a sample, operation by operation, beside the measured ceilings: bytes by a device-to-device
copy, flops by a large product in double precision. ``--reference`` draws what the CPU engine is compared by, and writes
``results/gpu_reference.json``; it needs no GPU. ``NDPP_DATA`` points at the folder of the learned kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_samplers import learned
from scipy.stats import chi2

from ndpp import Baskets, LowRankKernel
from ndpp.datasets.synthetic import make_kernel
from ndpp.diagnostics import exact_law
from ndpp.diagnostics.functionals import log_dets
from ndpp.samplers import Exact
from ndpp.samplers.gpu.accept import first_round
from ndpp.samplers.gpu.exact import ExactEngine
from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.border import border
from ndpp.samplers.gpu.kernels.invert import invert
from ndpp.samplers.gpu.kernels.judge import judge
from ndpp.samplers.gpu.kernels.layout import even, tight
from ndpp.samplers.gpu.kernels.weighed_rows import weighed_rows

REFERENCE = Path(__file__).parent / "results" / "gpu_reference.json"
LIKELY = 40

Row = dict[str, Any]


# -- the law -----------------------------------------------------------------------------------------------------------------


def law_of_small_kernel(device: str, draws: int = 200_000) -> Row:
    """Chi-square on counts of all sets of three, rare ones pooled."""
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


def summary(kernel: LowRankKernel, size: int, baskets: Baskets) -> Row:
    """Mean log det with its standard error, and how often the likeliest items are in."""
    values = log_dets(kernel, baskets)
    likely = np.argsort(-kernel.inclusion_probabilities(size=size))[:LIKELY]
    held = np.bincount(baskets.indices, minlength=kernel.n_items)[likely] / len(baskets)
    return {
        "size": size, "samples": len(baskets), "mean_log_det": float(values.mean()),
        "error": float(values.std() / np.sqrt(len(values))), "items": likely.tolist(), "share": held.tolist(),
    }  # fmt: skip


def write_reference() -> None:
    kernel = learned("A")
    assert kernel is not None
    rows = [
        summary(kernel, k, Exact.prepare(kernel, size=k).sample(n, rng=1).baskets) for k, n in ((10, 600), (50, 100))
    ]
    REFERENCE.write_text(json.dumps(rows) + "\n")


def agreement(samplers: dict[int, Exact], counts: dict[int, int]) -> list[Row]:
    """Distances between the CPU's draws and ours, in standard errors."""
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


def rate(sampler: Any, count: int, *, repeats: int = 3) -> Row:
    """Samples a second of whole calls, results on the host included; preparing and the first call apart."""
    began = time.perf_counter()
    sampler.sample(min(count, 32_768), rng=100)
    warm, seconds, info = time.perf_counter() - began, [], {}
    torch.cuda.reset_peak_memory_stats()
    for repeat in range(repeats):
        began = time.perf_counter()
        draws = sampler.sample(count, rng=repeat)
        seconds.append(time.perf_counter() - began)
        for name, values in draws.info.items():
            info.setdefault(name, []).append(float(np.min(values) if name == "fraction" else np.max(values)))
    keep = ("trace_error", "fraction", "on_cpu", "recentred")
    return {
        "samples": count, "rate": count / statistics.median(seconds), "rates": [count / s for s in seconds],
        "first_call_s": warm, "peak_GB": torch.cuda.max_memory_allocated() / 2**30,
        "monitors": {name: max(v) if name != "fraction" else min(v) for name, v in info.items() if name in keep},
    }  # fmt: skip


def million(kernel: LowRankKernel, n_items: int = 10**6) -> LowRankKernel:
    """A catalogue of a million items like those of ``kernel``: its rows, each many times, a tenth of noise on every entry."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_items, kernel.X.shape[1]), dtype=np.float32)
    X *= 0.1
    X += 1
    X *= np.asarray(kernel.X, np.float32)[rng.integers(0, kernel.n_items, n_items)]
    X *= np.float32(np.sqrt(kernel.n_items / n_items))
    return LowRankKernel(X, kernel.W)


def training_step(device: str, n_items: int = 10**6, rank: int = 200, batch: int = 400) -> Row:
    """Milliseconds of whole steps: batch, noise, loss, gradient, Adam, running mean."""
    from ndpp.learning import NDPP, fit

    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 30, 20_000)
    ids = (n_items * rng.random(sizes.sum()) ** 3).astype(np.int64)
    baskets = Baskets.from_lists(np.split(ids, np.cumsum(sizes)[:-1]), n_items=n_items)
    model = NDPP(rank, batch_size=batch, random_state=0, device=device)
    problem, start = model._problem(baskets, rank, rng)
    run = fit._Run(problem, model._settings(), start, baskets, baskets[:300], 0)
    noise, times = run._noise_sizes(), []
    for i in range(13):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run._step(fit.pack_for(baskets, np.arange(i * batch, (i + 1) * batch), torch.device(device)), noise)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    X = run.now.X
    again = [milliseconds(lambda: X.T @ X) for _ in range(5)]
    return {
        "n_items": n_items, "rank": rank, "batch": batch, "ms": statistics.median(times[3:]), "least_ms": min(times[3:]),
        "gram_ms": min(again), "dtype": str(X.dtype), "peak_GB": torch.cuda.max_memory_allocated() / 2**30,
    }  # fmt: skip


# -- kernels beside their ceilings -------------------------------------------------------------------------------------------


def milliseconds(call: Callable[[], Any], repeats: int = 3) -> float:
    call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats


def ceilings() -> Row:
    x = torch.randn(2**28, dtype=torch.float64, device="cuda")
    y = torch.empty_like(x)
    copy = max(2 * x.nbytes / milliseconds(lambda: y.copy_(x)) * 1e-9 for _ in range(3))
    a = torch.randn(8192, 8192, dtype=torch.float64, device="cuda")
    return {"copy_TB_s": copy, "fp64_TFLOP_s": max(2 * 8192**3 / milliseconds(lambda: a @ a) * 1e-9 for _ in range(2))}


Part = tuple[str, Callable[[], Any], float, float]  # name, call, bytes, flops


def parts(engine: ExactEngine, S: int, wanted: int, n: int, half: int, room: int, entering: bool) -> Iterator[Part]:
    """The operations of the step after n items, on random numbers of the shapes it has; bytes are counted once each."""
    r, c, h = engine.sampler.kernel.rank, first_round(engine.sampler.kernel.rank, wanted - n), half
    real = {"dtype": torch.float64, "device": engine.device}
    item = 8
    rows = torch.randint(0, engine.sampler.kernel.n_rows, (S, c), device=engine.device)
    table, w = torch.randn(engine.sampler.kernel.n_rows, 2 * h, **real), torch.randn(S, h, 2, **real)
    weights = w.view(S, 2 * h)
    own = S * c * (item * (2 * h + 1) + 8)
    if n == 0:
        yield "own forms qᵀZq", lambda: weighed_rows(table, rows, weights), own, 0
        return
    yield "gather rows of Q", lambda: engine.catalogue.rows(rows), 2 * item * S * c * r, 0
    F, q = torch.randn(S, room, h * 4, r, **real), torch.randn(S, c, r, **real)
    lines = 4 * h * n
    used = F[:, :n].view(S, lines, r)
    yield (
        "products F·Qᵀ",
        lambda: torch.bmm(used, q.mT),
        item * S * (lines * r + c * r + lines * c),
        2 * S * lines * r * c,
    )
    inverse, less = torch.randn(S * h, 2, even(room), even(room), **real), torch.randn(S, h, c, **real)
    products = torch.bmm(used, q.mT).view(S, n, h, 4, c)
    wide = torch.view_as_complex(w)
    traffic = item * S * h * (4 * n * c + 2 * n * n + c)
    yield "judge", lambda: judge(products, inverse, wide), traffic, 8 * S * h * n * n * c
    yield "own forms qᵀZq", lambda: weighed_rows(table, rows, weights, less), own + item * S * h * c, 0
    sides, new = torch.randn(r, 4 * h * r, **real), torch.randn(S, r, **real)
    if entering:
        basis = torch.randn(S * room, r, **real)
        yield (
            "another circle q̂·Z",
            lambda: basis @ sides,
            item * S * room * (4 * h + 1) * r,
            2 * S * room * r * 4 * h * r,
        )
        columns, some = torch.randn(r, 2 * h * r, **real), basis[: S * n]
        yield "another circle q̂·Z", lambda: some @ columns, item * S * n * (2 * h + 1) * r, 2 * S * n * r * 2 * h * r
        tight(inverse, n)[:, 0] += 4 * n**0.5 * torch.eye(n, device=engine.device)
        yield "invert G", lambda: invert(inverse, n), 4 * item * S * h * n * n, 8 * S * h * n**3
    else:
        to = F[:, n - 1].flatten(1)
        traffic = item * (4 * h * r * (S + r) + S * r)
        yield "one item more q̂·Z", lambda: torch.mm(new, sides, out=to), traffic, 2 * S * r * 4 * h * r
        yield "one item more q̂·Z", lambda: torch.mm(new, sides), traffic, 2 * S * r * 4 * h * r
        inner, four = torch.randn_like(inverse), torch.randn(S * h, 4, n, **real)
        small = item * S * h * n
        yield "border G⁻¹, trace", lambda: border(inverse, inner, four, four), small * (6 * n + 12), 0


def replay(engine: ExactEngine, wanted: int, ceiling: Row, S: int, stride: int) -> list[Row]:
    """Time every operation of a sample's steps (each ``stride``-th of them, and all changes of circle), and add up."""
    total: dict[str, list[float]] = {}
    for first, stop, circle in engine.schedule(wanted):
        steps = [(first, True, 1.0)]
        rest = list(range(first + 1, stop))
        steps += [(n, False, len(rest) / len(rest[::stride])) for n in rest[::stride]]
        for n, entering, weight in steps:
            for name, call, traffic, flops in parts(
                engine, S, wanted, n, circle.n_nodes // 2, max(1, stop - 1), entering
            ):
                ms = milliseconds(call, 2)
                ideal = 1e3 * max(traffic / ceiling["copy_TB_s"], flops / ceiling["fp64_TFLOP_s"]) * 1e-12
                for i, value in enumerate((ms, traffic, flops, ideal)):
                    total.setdefault(name, [0.0] * 4)[i] += weight * value
            torch.cuda.empty_cache()
    return [
        {
            "kernel": name, "us_per_sample": 1e3 * ms / S, "TB_s": traffic / ms * 1e-9, "TFLOP_s": flops / ms * 1e-9,
            "bound": "copy" if traffic / ceiling["copy_TB_s"] > flops / ceiling["fp64_TFLOP_s"] else "fp64",
            "of_ceiling": ideal / ms,
        }
        for name, (ms, traffic, flops, ideal) in sorted(total.items(), key=lambda pair: -pair[1][0])
    ]  # fmt: skip


# -- all of it ---------------------------------------------------------------------------------------------------------------


def versions() -> Row:
    return {
        "device": torch.cuda.get_device_name(0), "torch": torch.__version__, "cuda": torch.version.cuda,
        "triton": None if runtime.triton is None else runtime.triton.__version__,
    }  # fmt: skip


PARTS = ("law", "small", "kernels", "agreement", "million", "training", "others")


def run(arguments: argparse.Namespace) -> None:
    chosen: list[str] = arguments.only or list(PARTS)
    out: Row = {"rates": [], "kernels": {}}
    if arguments.only and arguments.output is not None and arguments.output.exists():
        out = json.loads(arguments.output.read_text())
    out |= {"machine": versions(), "ceilings": ceilings()}

    def save() -> None:  # after every part: what was measured is kept
        if arguments.output is not None:
            arguments.output.write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")

    def note(name: str, size: Any, make: Callable[[], Any], count: int, repeats: int = 3) -> Any:
        began = time.perf_counter()
        sampler = make()
        row = {"kernel": name, "size": size, "n_items": sampler.kernel.n_items}
        same = [i for i, old in enumerate(out["rates"]) if all(old[key] == value for key, value in row.items())]
        row |= {"prepare_s": time.perf_counter() - began} | rate(sampler, count, repeats=repeats)
        out["rates"][slice(same[0], same[0] + 1) if same else slice(len(out["rates"]), None)] = [row]
        save()
        print(
            f"{name:8} k={size!s:5} {row['rate']:10,.0f}/s  first call {row['first_call_s']:.1f} s",
            flush=True,
        )
        print("    ", row["monitors"], f"{row['peak_GB']:.0f} GB", [round(x) for x in row["rates"]], flush=True)
        torch.cuda.empty_cache()
        return sampler

    def exact(kernel: LowRankKernel, size: int | None) -> Callable[[], Exact]:
        return lambda: Exact.prepare(kernel, size=size, device="cuda")

    print(out["machine"], out["ceilings"], flush=True)
    A, B = learned("A"), learned("B")
    if "law" in chosen:
        out["law"] = law_of_small_kernel("cuda")
        print("law", out["law"], flush=True)
    if A is None or B is None:
        return
    samplers = {10: exact(A, 10)(), 50: exact(A, 50)()}
    if "small" in chosen:
        note("A", 10, lambda: samplers[10], 131_072, 5)
        note("A", 50, lambda: samplers[50], 16_384)
    if "kernels" in chosen:
        for size, (S, stride) in {10: (32_768, 1), 50: (8192, 6)}.items():
            out["kernels"][str(size)] = replay(samplers[size].engine, size, out["ceilings"], S, stride)
            show(out["kernels"][str(size)])
    if "agreement" in chosen:
        out["agreement"] = agreement(samplers, {10: 20_000, 50: 5_000})
        print("agreement", out["agreement"], flush=True)
    samplers.clear()
    save()
    if "million" in chosen:
        large = million(A)
        for size, count in ((10, 131_072), (50, 16_384)):
            note("A, 10⁶", size, exact(large, size), count)
        del large
    if "training" in chosen:
        out["training"] = training_step("cuda")
        print("training", out["training"], flush=True)
        save()
    if "others" in chosen:
        note("B", 10, exact(B, 10), 65_536)
        note("B", 50, exact(B, 50), 8_192)
        note("A", 100, exact(A, 100), 2_048, 2)
        note("B", 100, exact(B, 100), 2_048, 2)
        note("B", None, exact(B, None), 32_768, 2)


def show(rows: list[Row]) -> None:
    for row in rows:
        print(
            f"{row['kernel']:22}{row['us_per_sample']:9.2f} µs{row['TB_s']:7.2f} TB/s{row['TFLOP_s']:7.1f} TFLOP/s"
            f"{100 * row['of_ceiling']:6.0f} % of {row['bound']}", flush=True
        )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="take these parts anew, into the file that is there")
    parser.add_argument("--reference", action="store_true", help="draw the CPU's samples that ours are compared with")
    chosen = parser.parse_args()
    if chosen.reference:
        write_reference()
    else:
        run(chosen)
