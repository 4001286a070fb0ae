"""``ndpp.select.subset`` beside a plain greedy: time, memory and the objective.

Vectors are random, single precision, with columns of unequal variance and lengths of unequal size; the objective is log det(I + FᵀF / δ) of
the chosen ones. Run ``OPENBLAS_NUM_THREADS=1 python benchmarks/bench_subset.py [--sizes ITEMSxCOLUMNSxK …] [--device cuda]
[--disk FOLDER ITEMSxCOLUMNSxK CHUNKS] [--plain] [-o FILE.json]``. Each case has a process of its own, whose peak memory is its own.
``--disk`` writes vectors to a file and chooses from it in one pass; ``--plain`` runs the plain greedy, too, on the device if there is one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from ndpp.select import subset
from ndpp_experiments.record import machine

BLOCK = 100_000
Size = tuple[int, int, int]


def size_of(text: str) -> Size:
    n, d, k = (int(float(part)) for part in text.split("x"))
    return n, d, k


def block_of(start: int, count: int, d: int) -> Any:
    """Return some vectors, which depend on the number of the first alone."""
    rng = np.random.default_rng([7, start])
    F = rng.standard_normal((count, d), np.float32)
    F *= np.linspace(0.3, 1.7, d, dtype=np.float32)
    F *= rng.gamma(8.0, 1 / 8, size=(count, 1)).astype(np.float32)
    return F


def vectors(n: int, d: int) -> Any:
    F = np.empty((n, d), np.float32)
    for start in range(0, n, BLOCK):
        F[start : start + BLOCK] = block_of(start, min(BLOCK, n - start), d)
    return F


def value(F: Any, ridge: float) -> float:
    G = F.astype(np.float64)
    return float(np.linalg.slogdet(np.eye(F.shape[1]) + G.T @ G / ridge)[1])


def plain(F: Any, k: int, ridge: float, device: str | None) -> Any:
    """The plain greedy: every gain after every item."""
    xp: Any = np
    if device:
        import torch

        xp, F = torch, torch.as_tensor(F, device=device)
    d = F.shape[1]
    gains, chosen = (F * F).sum(1), []
    W = xp.eye(d, dtype=xp.float64) if xp is np else xp.eye(d, dtype=xp.float64, device=device)
    for _ in range(k):
        j = int(gains.argmax())
        x = F[j].astype(np.float64) if xp is np else F[j].double()
        u = W @ x
        u = u / (ridge + float(x @ u)) ** 0.5
        W = W - xp.outer(u, u)
        gains -= (F @ (u.astype(np.float32) if xp is np else u.float())) ** 2
        gains[j] = -np.inf
        chosen.append(j)
    return np.array(chosen)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one(size: Size, device: str | None, folder: str | None, chunks: int | None, with_plain: bool) -> dict[str, Any]:
    """Return what one case took."""
    n, d, k = size
    record: dict[str, Any] = {"items": n, "columns": d, "k": k, "device": device, "chunks": chunks}
    if folder is None:
        F = vectors(n, d)
    else:
        path = Path(folder) / f"F-{n}-{d}.npy"
        if not path.exists():
            with open(path, "wb") as file:  # not a memory map, which would count as memory of this process
                header = {"descr": "<f4", "fortran_order": False, "shape": (n, d)}
                np.lib.format.write_array_header_1_0(file, header)
                for start in range(0, n, BLOCK):
                    block_of(start, min(BLOCK, n - start), d).tofile(file)
        F = np.load(path, mmap_mode="r")
        record["gigabytes"] = path.stat().st_size / 1e9
    ridge = float((block_of(0, min(n, BLOCK), d) ** 2).mean())
    if device:
        import torch

        torch.zeros(1, device=device)
    record["memory before, MB"] = peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    items = subset(F, k, ridge=ridge, device=device, chunks=chunks)
    record["seconds"], record["CPU seconds"] = time.perf_counter() - wall, time.process_time() - cpu
    record["peak memory, MB"] = peak_mb()
    if device:
        record["GPU memory, MB"] = torch.cuda.max_memory_allocated() / 2**20
    record["objective"] = value(F[np.sort(items)], ridge)
    record["random"] = value(F[np.sort(np.random.default_rng(0).choice(n, k, replace=False))], ridge)
    if with_plain:
        wall, cpu = time.perf_counter(), time.process_time()
        same = plain(np.asarray(F), k, ridge, device)
        record["plain seconds"], record["plain CPU seconds"] = time.perf_counter() - wall, time.process_time() - cpu
        record["plain objective"] = value(F[np.sort(same)], ridge)
        record["same items"] = len(np.intersect1d(same, items)) / k
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", type=size_of, default=[])
    parser.add_argument("--chunked", nargs="*", type=size_of, default=[], help="the same in one pass, in 20 chunks")
    parser.add_argument("--device")
    parser.add_argument("--disk", nargs=3, metavar=("FOLDER", "SIZE", "CHUNKS"))
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    cases: list[tuple[Any, ...]] = [(size, asked.device, None, None, asked.plain) for size in asked.sizes]
    cases += [(size, None, None, 20, asked.plain) for size in asked.chunked]
    if asked.disk:
        folder, size, chunks = asked.disk
        cases.append((size_of(size), None, folder, int(chunks), False))
    about = machine()
    if asked.device:
        import torch

        about["device"] = torch.cuda.get_device_name()
    found: dict[str, Any] = {"machine": about, "records": []}
    spawn = multiprocessing.get_context("spawn")
    for case in cases:
        with spawn.Pool(1) as process:
            found["records"].append(process.apply(one, case))
        print(json.dumps(found["records"][-1]), flush=True)
        if asked.output:
            asked.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
