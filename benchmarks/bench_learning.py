"""A training step compared with a plain one in the same run, and the time to train on real baskets, on one core.

The plain step pads the batch to its largest basket and leaves gradients to autograd, as public code does. Run
``python benchmarks/bench_learning.py`` for the steps, ``--train`` for a single kernel of UK Retail (300 validation baskets; the 2,000 test
baskets stay unused), ``--default`` for the model of ``ndpp fit`` there, ``--large`` for the peak memory at n = 39,123 (instacart_train).
``-o benchmarks/results/learning.json`` records the results. ``NDPP_DATA`` names the folder of real baskets; without it, steps are timed
on random ones.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from ndpp import Baskets, metrics
from ndpp.datasets import load_baskets
from ndpp.errors import DataNotFoundError
from ndpp.learning import NDPP, ONDPP, MixtureNDPP, SymmetricDPP
from ndpp.learning.run import TrainingRun
from ndpp.learning.trainer import Counter, Trainer
from ndpp_experiments.record import machine, measured_here
from ndpp_experiments.timing import Times, timed

TARGET_MS = 120
TARGET_GAIN, TARGET_SECONDS = 1.4, 20
RANK, BATCH = 200, 200


def uk_retail() -> Baskets:
    try:
        return load_baskets("uk_retail").select(min_size=1, max_size=100)
    except DataNotFoundError:
        rng = np.random.default_rng(0)
        popularity = rng.dirichlet(np.full(3941, 0.3))
        sizes = np.clip(rng.lognormal(2.4, 1.1, 5000).astype(int), 1, 100)
        return Baskets.from_lists([rng.choice(3941, k, replace=False, p=popularity) for k in sizes], n_items=3941)


def run_of(estimator: Any, baskets: Baskets) -> Any:
    model = estimator(RANK, batch_size=BATCH, random_state=0)
    run = Trainer(model._objectives(RANK, baskets, baskets[:300], TrainingRun(0))["kernel"], model._settings(), 0)
    run.objective.begin_epoch(run.now)
    return run


def steps(estimator: Any, baskets: Baskets) -> Times:
    """Time whole steps: batch, noise, loss, gradient, Adam, constraints, running mean."""
    run = run_of(estimator, baskets)
    order = np.random.default_rng(0).permutation(len(baskets))

    def step(i: int) -> None:
        run.take_step(order[(i * BATCH) % (len(baskets) - BATCH) :][:BATCH])

    for i in range(3):
        step(i)
    return timed(step, least=20, seconds=5)


def plain_steps(baskets: Baskets) -> Times:
    """Time the same steps with padding and autograd."""
    run = run_of(NDPP, baskets)
    order, h = np.random.default_rng(0).permutation(len(baskets)), run.objective.n_sym
    X, D = (tensor.clone().requires_grad_() for tensor in run.now)
    scale = run.objective.scale[:, None]
    optimizer = torch.optim.Adam([X, D], lr=0.02)

    def step(i: int) -> None:
        sets = [baskets[int(j)] for j in order[(i * BATCH) % (len(baskets) - BATCH) :][:BATCH]]
        k = max(map(len, sets))
        index = torch.from_numpy(np.stack([np.pad(items, (0, k - len(items))) for items in sets]))
        mask = torch.arange(k) < torch.tensor([len(items) for items in sets])[:, None]
        W = torch.eye(RANK, dtype=X.dtype)
        W[h:, h:] = D - D.T
        rows = X[index] * mask[..., None]
        G = rows @ W @ rows.mT + torch.diag_embed(torch.where(mask, 1e-5, 1.0).to(X.dtype))
        C = (scale * X).T @ (scale * X)
        inner = torch.eye(RANK, dtype=X.dtype) + W @ C
        loss = torch.linalg.slogdet(inner)[1] - torch.linalg.slogdet(G)[1].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step(0)
    return timed(step, least=5, seconds=5)


def report_steps() -> dict[str, Any]:
    baskets = uk_retail()
    times = {kind.__name__: steps(kind, baskets) for kind in (NDPP, ONDPP, SymmetricDPP)}
    times["plain NDPP"] = plain_steps(baskets)
    for name, own in times.items():
        ms = own.scaled(1e3)
        print(
            f"{name:>12}: {ms.least_wall:6.1f} ms per step (median {ms.wall:.1f}, CPU {ms.median:.1f}), "
            f"{own.least / times['NDPP'].least:.2f} × NDPP, {own.calls} steps"
        )
    print(f"n = {baskets.n_items}, d = {RANK}, batch {BATCH}; target {TARGET_MS} ms")
    return {"steps": {name: own._asdict() for name, own in times.items()}, "target_ms": TARGET_MS}


def report_training() -> dict[str, Any]:
    """Print the gain over independent items on validation baskets, epoch by epoch."""
    train, val, _ = uk_retail().split(300, 2000, rng=0)
    baseline = float(metrics.independent_items(train).log_likelihoods(val).mean())
    began, spent, epoch, curve = time.perf_counter(), time.process_time(), Trainer.epoch, []

    def watched(run: Trainer[Any], bar: Counter) -> None:
        epoch(run, bar)
        record = run.history[-1]
        times = [time.perf_counter() - began, time.process_time() - spent]
        curve.append([record["epoch"], record["step"], record["validation"] - baseline, *(round(t, 1) for t in times)])
        print("epoch {:3.0f}  step {:5.0f}  gain {:6.3f}  {:6.1f} s  (CPU {:6.1f} s)".format(*curve[-1]), flush=True)

    with patch.object(Trainer, "epoch", watched):
        model = NDPP(RANK, random_state=0).fit(train, validation=val)
    print(f"{model.ended_}: gain {model.score(val) - baseline:.3f}; target {TARGET_GAIN} within {TARGET_SECONDS} s")
    return {"training": curve, "ended": model.ended_, "threads": torch.get_num_threads()}


def report_default() -> dict[str, Any]:
    train, val, _ = uk_retail().split(300, 2000, rng=0)
    began, spent = time.perf_counter(), time.process_time()
    model = MixtureNDPP(random_state=0).fit(train, validation=val)
    cpu, wall = time.process_time() - spent, time.perf_counter() - began
    print(f"{model!r}: {model.n_iter_} epochs, {wall:.0f} s (CPU {cpu:.0f} s)")
    return {"default": {"epochs": model.n_iter_, "cpu": cpu, "wall": wall}}


def report_memory() -> dict[str, Any]:
    baskets = load_baskets("instacart_train").select(min_size=1, max_size=100)
    run = run_of(NDPP, baskets)
    order = np.random.default_rng(0).permutation(len(baskets))
    step = timed(lambda i: run.take_step(order[i * BATCH :][:BATCH]), least=5, seconds=1)
    run.validate()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"n = {baskets.n_items}, d = {RANK}: {1e3 * step.least_wall:.0f} ms per step, peak memory {peak:.2f} GiB; target 8"
    )
    return {"large": {"n_items": baskets.n_items, **step._asdict(), "peak_gib": peak}}


def record(path: Path, found: dict[str, Any]) -> None:
    """Merge the results into the file."""
    path.write_text(json.dumps(measured_here(path) | found | {"machine": machine()}, indent=1) + "\n")


def test_step(benchmark: BenchmarkFixture) -> None:
    torch.set_num_threads(1)
    baskets = uk_retail()
    run = run_of(NDPP, baskets)
    benchmark.pedantic(lambda: run.take_step(np.arange(BATCH)), rounds=20, warmup_rounds=3)
    assert benchmark.stats.stats.min * 1e3 <= TARGET_MS


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--train", dest="report", action="store_const", const=report_training, default=report_steps)
    kinds.add_argument("--default", dest="report", action="store_const", const=report_default)
    kinds.add_argument("--large", dest="report", action="store_const", const=report_memory)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    figures = chosen.report()
    if chosen.output:
        record(chosen.output, figures)
