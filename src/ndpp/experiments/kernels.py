"""The kernels of tables 2 and 3: learned ones where there is data, synthetic ones of the paper's sizes where there is none.

``NDPP_DATA`` names a folder of baskets (and, in ``kernels/``, of kernels learned from UK Retail). Kernels of other data sets
are learned once, in a minute each, and kept in :func:`ndpp.datasets.cache_folder`; that takes torch. Synthetic NDPP kernels
follow the paper's recipe, scaled so that baskets have the mean size of the data set they stand for (the law of sets of one
size does not depend on scale); synthetic ONDPP kernels have BᵀB = I, VᵀB = 0 and σ_j uniform in [0, 0.1].
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from ndpp._types import FloatArray
from ndpp.datasets import cache_folder, load_baskets, make_kernel
from ndpp.errors import DataNotFoundError
from ndpp.io import load, save
from ndpp.kernel import LowRankKernel

RANK = 200
LARGEST_SIGMA = 0.1


class DataSet(NamedTuple):
    """A data set of the paper: its items, the mean size of our copy's baskets, and the name of that copy."""

    title: str
    n_items: int
    mean_size: float
    baskets: str | None


class Named(NamedTuple):
    """A kernel, the data set it stands for, and where it comes from."""

    data: DataSet
    origin: str
    kernel: LowRankKernel


PAPER = (
    DataSet("UK Retail", 3_941, 18.8, "uk_retail"),
    DataSet("Recipe", 7_993, 9.8, "foodcom"),
    DataSet("Instacart", 49_677, 10.6, None),
    DataSet("Million Song", 371_410, 21.7, None),
    DataSet("Book", 1_059_437, 18.7, None),
)


def kernels(*, orthogonal: bool, quick: bool, seed: int, say: Callable[[str], None]) -> Iterator[Named]:
    """Yield the kernels of table 2, or of table 3 if ``orthogonal``, one at a time: a large one is gone before the next comes."""
    if quick:
        small = DataSet("UK Retail", 400, 6.0, None)
        yield Named(small, "synthetic, n = 400, d = 20", synthetic(small, 20, orthogonal=orthogonal, seed=seed))
        return
    for data in PAPER:
        yield from _learned(data, orthogonal=orthogonal, seed=seed, say=say)
        say(f"{data.title}: synthetic kernel of {data.n_items:,} items")
        kernel = synthetic(data, RANK, orthogonal=orthogonal, seed=seed)
        yield Named(data, f"synthetic, n = {data.n_items:,}, d = {RANK}", kernel)
        del kernel


def synthetic(data: DataSet, rank: int, *, orthogonal: bool, seed: int) -> LowRankKernel:
    """Return a kernel by the paper's recipe, or one with the constraints of ONDPP, with the data set's mean size of baskets.

    Examples
    --------
    >>> kernel = synthetic(DataSet("small", 60, 3.0, None), 8, orthogonal=True, seed=0)
    >>> round(float(kernel.size_distribution() @ np.arange(9)), 6)
    3.0
    """
    made = make_kernel(data.n_items, rank, rng=seed, dtype=np.float32 if data.n_items > 10**5 else np.float64)
    if not orthogonal:
        return LowRankKernel(made.X, _tilt(made, data.mean_size) * made.W)
    half = rank // 2
    X = np.asarray(made.X)
    V, B = X[:, :half], np.linalg.qr(X[:, half:])[0]
    X = np.hstack([V - B @ (B.T @ V), B]).astype(X.dtype, copy=False)
    sigma = np.random.default_rng([seed, 1]).uniform(0, LARGEST_SIGMA, half // 2)
    skew = np.zeros((half, half))
    skew[range(0, 2 * (half // 2), 2), range(1, half, 2)] = sigma
    symmetric = LowRankKernel(X[:, :half], np.eye(half))
    W = np.zeros((rank, rank))
    W[:half, :half] = np.eye(half) * _tilt(symmetric, data.mean_size - _expected_size(skew - skew.T))
    W[half:, half:] = skew - skew.T
    return LowRankKernel(X, W)


def learned_file(name: str) -> LowRankKernel | None:
    """Return a kernel learned from UK Retail, of the file ``NDPP_DATA``/kernels/``name``.npz, or None without it."""
    folder = os.environ.get("NDPP_DATA")
    path = Path(folder) / "kernels" / f"{name}.npz" if folder else None
    if path is None or not path.is_file():
        return None
    with np.load(path) as arrays:
        return LowRankKernel(arrays["X"], arrays["W"])


def _learned(data: DataSet, *, orthogonal: bool, seed: int, say: Callable[[str], None]) -> Iterator[Named]:
    if data.title == "UK Retail" and not orthogonal:
        for name in "AB":
            if (kernel := learned_file(f"uk_retail_{name}")) is not None:
                yield Named(data, f"learned ({name})", kernel)
    elif (kernel := learn(data, orthogonal=orthogonal, seed=seed, say=say)) is not None:
        yield Named(data, f"learned (here, n = {kernel.n_items:,})", kernel)


def learn(data: DataSet, *, orthogonal: bool, seed: int, say: Callable[[str], None]) -> LowRankKernel | None:
    """Return a kernel learned from the data set's baskets, or None where they or torch are missing. A minute, the first time."""
    if data.baskets is None or importlib.util.find_spec("torch") is None:
        return None
    try:
        baskets = load_baskets(data.baskets).select(min_size=1, max_size=100)
    except DataNotFoundError:
        return None
    path = cache_folder() / f"{data.baskets}-{'ondpp' if orthogonal else 'ndpp'}-{RANK}-{seed}.safetensors"
    if path.is_file():
        return load(path)
    say(f"{data.title}: learning from {len(baskets):,} baskets")
    from ndpp.learning import NDPP, ONDPP

    settings: dict[str, Any] = {"rank": RANK, "max_epochs": 2, "batch_size": 200, "random_state": seed}
    some = baskets[np.sort(np.random.default_rng(seed).permutation(len(baskets))[:20_000])]
    model = ONDPP(**settings, gamma=0.5 if data.title == "UK Retail" else 0.1) if orthogonal else NDPP(**settings)
    kernel = model.fit(some).kernel_
    path.parent.mkdir(parents=True, exist_ok=True)
    save(kernel, path)
    return kernel


def _tilt(kernel: LowRankKernel, mean_size: float) -> float:
    """Return the factor of L at which sets have this many items on average: Σ cλ/(1 + cλ) = mean_size."""
    values = np.linalg.eigvals(kernel.coordinates.B)

    def excess(log_scale: float) -> float:
        return _mean(np.exp(log_scale) * values) - mean_size

    return float(np.exp(brentq(excess, -60.0, 60.0)))


def _expected_size(W: FloatArray) -> float:
    return _mean(np.linalg.eigvals(W))


def _mean(values: Any) -> float:
    return float((values / (1 + values)).real.sum())
