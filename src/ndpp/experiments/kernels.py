"""The kernels of tables 2 and 3: learned ones where there is data, and synthetic ones of the paper's sizes.

``NDPP_DATA`` names a folder of baskets, and in ``kernels/`` of A and B, two kernels learned from UK Retail by prototypes, which
are timed apart (:mod:`ndpp.experiments.samplers`). From each data set a kernel is learned once, with the defaults of
:mod:`ndpp.learning`: training ends when the log-likelihood of baskets set aside no longer rises. Of ONDPP there are two, with
different weights γ of the rejections to come. That takes torch, minutes on a GPU and up to hours without one. The kernel is kept
in :func:`ndpp.datasets.cache_folder` with a note of how it came about, and one that is there is used.

Synthetic NDPP kernels follow the paper's recipe, scaled so that baskets have the mean size of the data set they stand for (the
law of sets of one size does not depend on scale); synthetic ONDPP kernels have BᵀB = I, VᵀB = 0 and σ_j uniform in [0, 0.1].
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from ndpp._types import FloatArray
from ndpp.baskets import Baskets
from ndpp.datasets import cache_folder, load_baskets, make_kernel
from ndpp.errors import DataNotFoundError
from ndpp.laws.files import load, load_metadata, save
from ndpp.laws.kernel import LowRankKernel

RANK = 200
LARGEST_SIGMA = 0.1


class DataSet(NamedTuple):
    """A data set of the paper: its items, the mean size of our copy's baskets, the name of that copy, weights γ to learn with."""

    title: str
    n_items: int
    mean_size: float
    baskets: str
    gammas: tuple[float, ...] = ()


class Named(NamedTuple):
    """A kernel, the data set it stands for, what to call it, and where it comes from."""

    data: DataSet
    name: str
    origin: str
    kernel: LowRankKernel


PAPER = (
    DataSet("UK Retail", 3_941, 18.8, "uk_retail", (0.5,)),
    DataSet("Recipe", 7_993, 9.8, "foodcom", (0.1, 0.5)),
    DataSet("Instacart", 49_677, 10.6, "instacart_train", (0.1, 0.5)),
    DataSet("Million Song", 371_410, 21.7, "millionsong_sample", (0.1, 0.5)),
    DataSet("Book", 1_059_437, 18.7, "goodreads_toread", (0.1, 0.5)),
)


def kernels(*, orthogonal: bool, quick: bool, seed: int, say: Callable[[str], None]) -> Iterator[Named]:
    """Yield the kernels of table 2, or of table 3 if ``orthogonal``, one at a time: a large one is gone before the next comes."""
    if quick:
        small = DataSet("UK Retail", 400, 6.0, "uk_retail")
        yield _synthetic(small, 20, orthogonal=orthogonal, seed=seed)
        return
    for data in PAPER:
        yield from _learned(data, orthogonal=orthogonal, seed=seed, say=say)
        say(f"{data.title}: synthetic kernel of {data.n_items:,} items")
        yield _synthetic(data, RANK, orthogonal=orthogonal, seed=seed)


def _synthetic(data: DataSet, rank: int, *, orthogonal: bool, seed: int) -> Named:
    recipe = "σ_j uniform in [0, 0.1]" if orthogonal else "the paper's recipe"
    kernel = synthetic(data, rank, orthogonal=orthogonal, seed=seed)
    return Named(
        data, f"synthetic, n = {data.n_items:,}", f"{recipe}, scaled to a mean size of {data.mean_size}", kernel
    )


def synthetic(data: DataSet, rank: int, *, orthogonal: bool, seed: int) -> LowRankKernel:
    """Return a kernel by the paper's recipe, or one with the constraints of ONDPP, with the data set's mean size of baskets.

    Examples
    --------
    >>> kernel = synthetic(DataSet("small", 60, 3.0, ""), 8, orthogonal=True, seed=0)
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


def from_files(say: Callable[[str], None] = lambda _: None) -> Iterator[Named]:
    """Yield the kernels A and B, learned from UK Retail, as far as their files are there; ``say`` is told of one that is not."""
    for name, how in {"A": "the literature's start", "B": "a start scaled by popularity"}.items():
        if (kernel := learned_file(f"uk_retail_{name}")) is None:
            say(
                f"left out: learned kernel {name}; NDPP_DATA should name the folder that holds kernels/uk_retail_{name}.npz"
            )
        else:
            yield Named(PAPER[0], f"learned ({name})", f"by a prototype, with {how}", kernel)


def _learned(data: DataSet, *, orthogonal: bool, seed: int, say: Callable[[str], None]) -> Iterator[Named]:
    for gamma in data.gammas if orthogonal else (None,):
        if (path := learn(data, gamma=gamma, seed=seed, say=say)) is not None:
            kernel = load(path)
            name = f"learned, n = {kernel.n_items:,}" + (f", γ = {gamma:g}" if gamma is not None else "")
            yield Named(data, name, _told(data.baskets, load_metadata(path)), kernel)


def learn(data: DataSet, *, gamma: float | None, seed: int, say: Callable[[str], None]) -> Path | None:
    """Return the file of a kernel learned from the data set's baskets, an NDPP if γ is None and else an ONDPP.

    None where there is no file, and baskets or torch are missing to make it.
    """
    further = f"-gamma-{gamma:g}" if gamma in data.gammas[1:] else ""
    name = f"{data.baskets}-{'ndpp' if gamma is None else 'ondpp'}-{RANK}-{seed}{further}.safetensors"
    path = cache_folder() / name
    if path.is_file():
        return path
    if importlib.util.find_spec("torch") is None:
        return None
    try:
        baskets = load_baskets(data.baskets).select(min_size=1, max_size=100)
    except DataNotFoundError:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    _fit(data, baskets, path, gamma=gamma, seed=seed, say=say)
    return path


def _fit(
    data: DataSet, baskets: Baskets, path: Path, *, gamma: float | None, seed: int, say: Callable[[str], None]
) -> None:
    """Learn a kernel and write it, with what is to be known of it; training that is interrupted goes on from its checkpoint."""
    import torch

    from ndpp.learning import NDPP, ONDPP

    checkpoint = path.with_suffix(".checkpoint")
    shared: dict[str, Any] = {
        "rank": RANK, "random_state": seed, "checkpoint": checkpoint,
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "progress": sys.stderr.isatty() and importlib.util.find_spec("rich") is not None,
    }  # fmt: skip
    model = NDPP(**shared) if gamma is None else ONDPP(**shared, gamma=gamma)
    name, began = type(model).__name__, time.perf_counter()
    wait = "minutes" if model.device == "cuda" else "minutes to hours"
    say(f"{data.title}: learning an {name} from {len(baskets):,} baskets on {model.device}, once; this takes {wait}")
    model.fit(baskets, resume=True)
    if model.ended_ == "interrupted":
        raise KeyboardInterrupt
    seconds = time.perf_counter() - began
    about = {
        "model": name,
        "device": model.device,
        "epochs": model.n_iter_,
        "ended": model.ended_,
        "seconds": round(seconds),
    }
    about |= {"n_train": len(baskets), "validation": max(record["validation"] for record in model.history_)}
    save(model.kernel_, path, metadata=about | {"gamma": gamma})
    checkpoint.unlink(missing_ok=True)
    say(f"{data.title}: learned in {seconds:.0f} s, {model.n_iter_} epochs; kept in {path}")


def _told(baskets: str, about: Mapping[str, Any]) -> str:
    """Return where a learned kernel comes from, as far as its file says.

    Examples
    --------
    >>> _told("uk_retail", {"model": "ONDPP", "epochs": 12, "ended": "converged", "validation": -99.81, "gamma": 0.5})
    'ONDPP of `uk_retail`, γ = 0.5, 12 epochs (converged), validation log-likelihood -99.81'
    >>> _told("uk_retail", {})
    'kernel of `uk_retail`'
    """
    ended = {"converged": "converged", "max_epochs": "as many as allowed"}.get(about.get("ended", ""), "")
    parts = [
        f"{about.get('model', 'kernel')} of `{baskets}`",
        f"γ = {about['gamma']:g}" if about.get("gamma") is not None else "",
        f"{about['epochs']} epochs" + f" ({ended})" * bool(ended) if "epochs" in about else "",
        f"validation log-likelihood {about['validation']:.2f}" if "validation" in about else "",
    ]
    return ", ".join(part for part in parts if part)


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
