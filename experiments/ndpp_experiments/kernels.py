"""The kernels of tables 2 and 3: learned ones where there is data, and synthetic ones of the paper's sizes.

``NDPP_DATA`` names a folder of baskets; its subfolder ``kernels/`` holds A and B, two kernels learned from UK Retail by prototypes,
which are timed separately (:mod:`ndpp_experiments.samplers`). From each data set kernels are learned once, by the rows of
:func:`rows`: with the defaults of :mod:`ndpp.learning`, for ONDPP with several weights γ of the rejections, and by the recipe of the
paper. The first need torch, and take minutes on a GPU and up to hours without one; the others are learned together by
``experiments/publish/published.py``. Kernels are cached in :func:`ndpp.datasets.cache_folder`, with a record of their training.

Synthetic NDPP kernels follow the paper's recipe, scaled to the mean basket size of the data set they represent (scale does not affect
the distribution of sets of one size). Synthetic ONDPP kernels have BᵀB = I, VᵀB = 0 and σ_j uniform in [0, 0.1].
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from ndpp.baskets import Baskets
from ndpp.datasets import cache_folder, load_baskets, make_kernel
from ndpp.errors import DataNotFoundError, TrainingInterruptedWarning
from ndpp.laws.files import load, load_metadata, save
from ndpp.laws.kernel import LowRankKernel
from ndpp_experiments.record import Say

RANK = 200
LARGEST_SIGMA = 0.1


class DataSet(NamedTuple):
    """A data set of the paper: its items; name and mean basket size of our copy; weights γ to learn with.

    ``penalties`` are the paper's α = β and γ for ONDPP; ``n_test`` baskets are for the test where it sets some aside.
    """

    title: str
    n_items: int
    mean_size: float
    baskets: str
    gammas: tuple[float, ...] = ()
    penalties: tuple[float, float] = (0.01, 0.0)
    n_test: int = 2000


class Row(NamedTuple):
    """A kernel to learn: the data set, the kind of model, its settings, and what is added to the names of the file and of the kernel."""

    data: DataSet
    model: str
    settings: Mapping[str, Any]
    suffix: str = ""
    note: str = ""

    @property
    def is_published(self) -> bool:
        """Whether it is learned as in the paper, whose splits have validation and test baskets."""
        return "init" in self.settings

    def file(self, seed: int) -> str:
        """Return the name of the file."""
        return f"{self.data.baskets}-{self.model}-{RANK}-{seed}{self.suffix}.safetensors"


class Named(NamedTuple):
    """A kernel, the data set it represents, its name, its origin, and whether it was learned."""

    data: DataSet
    name: str
    origin: str
    kernel: LowRankKernel
    learned: bool


PAPER = (
    DataSet("UK Retail", 3_941, 18.8, "uk_retail", (0.5,), (0.01, 0.5)),
    DataSet("Recipe", 7_993, 9.8, "foodcom", (0.1, 0.5), (0.01, 0.1)),
    DataSet("Instacart", 49_677, 10.6, "instacart_train", (0.1, 0.5), (0.001, 0.001)),
    DataSet("Million Song", 371_410, 21.7, "millionsong_sample", (0.1, 0.5), (0.01, 0.2), n_test=300),
    DataSet("Book", 1_059_437, 18.7, "goodreads_toread", (0.1, 0.5), (0.01, 0.1)),
)
N_VALIDATION = 300
JITTER = 1e-5
PUBLISHED: Mapping[str, Any] = {
    "init": "published", "skew_share": 0.5, "noise": 0.0, "alpha": 0.01, "beta": 0.01, "learning_rate": 0.1, "batch_size": 200,
    "patience": 10, "max_epochs": 1000,
}  # fmt: skip
"""The paper's recipe, and what its code adds: V, B ~ U(0, 1), D ~ N(0, 1), equal shares, no noise, steps and end of training."""


def rows(data: DataSet, *, orthogonal: bool) -> list[Row]:
    """Return the kernels to learn from a data set: ours, and that of the paper's recipe."""
    note = ", the paper's recipe"
    if not orthogonal:
        return [Row(data, "ndpp", {}), Row(data, "ndpp", PUBLISHED, "-published", note)]
    ours = [
        Row(data, "ondpp", {"gamma": g}, f"-gamma-{g:g}" if g in data.gammas[1:] else "", f", γ = {g:g}")
        for g in data.gammas
    ]
    alpha, gamma = data.penalties
    settings = {**PUBLISHED, "alpha": alpha, "beta": alpha, "gamma": gamma}
    return [*ours, Row(data, "ondpp", settings, "-published", f", γ = {gamma:g}{note}")]


def kernels(*, orthogonal: bool, quick: bool, seed: int, say: Say) -> Iterator[Named]:
    """Yield the kernels of table 2, or of table 3 if ``orthogonal``, one at a time to save memory."""
    for data in (DataSet("UK Retail", 400, 6.0, "uk_retail"),) if quick else PAPER:
        if not quick:
            yield from _learned(data, orthogonal=orthogonal, seed=seed, say=say)
        name, size = f"synthetic, n = {data.n_items:,}", data.mean_size
        recipe = "σ_j uniform in [0, 0.1]" if orthogonal else "random, as in Section 6.1"
        say(f"{data.title}: {name}")
        kernel = synthetic(data, 20 if quick else RANK, orthogonal=orthogonal, seed=seed)
        yield Named(data, name, f"{recipe}, scaled to a mean size of {size}", kernel, learned=False)


def synthetic(data: DataSet, rank: int, *, orthogonal: bool, seed: int) -> LowRankKernel:
    """Return a random kernel as in the paper's Section 6.1, or one that meets the constraints of ONDPP, with the data set's mean size.

    Examples
    --------
    >>> kernel = synthetic(DataSet("small", 60, 3.0, ""), 8, orthogonal=True, seed=0)
    >>> round(float(kernel.size_distribution() @ np.arange(9)), 6)
    3.0
    """
    made = make_kernel(data.n_items, rank, rng=seed, dtype=np.float32 if data.n_items > 10**5 else np.float64)
    if not orthogonal:
        return LowRankKernel(made.X, _scale_for(made, data.mean_size) * made.W)
    half = rank // 2
    X = np.asarray(made.X)
    V, B = X[:, :half], np.linalg.qr(X[:, half:])[0]
    X = np.hstack([V - B @ (B.T @ V), B]).astype(X.dtype, copy=False)
    sigma = np.random.default_rng([seed, 1]).uniform(0, LARGEST_SIGMA, half // 2)
    skew = np.zeros((half, half))
    skew[range(0, 2 * (half // 2), 2), range(1, half, 2)] = sigma
    skew -= skew.T
    symmetric = LowRankKernel(X[:, :half], np.eye(half))
    W = np.zeros((rank, rank))
    W[:half, :half] = np.eye(half) * _scale_for(symmetric, data.mean_size - _mean_size(np.linalg.eigvals(skew)))
    W[half:, half:] = skew
    return LowRankKernel(X, W)


def _scale_for(kernel: LowRankKernel, mean_size: float) -> float:
    """Return the factor c at which sets of cL have this many items on average: Σ cλ/(1 + cλ) = mean_size."""
    values = np.linalg.eigvals(kernel.coordinates.B)
    return float(np.exp(brentq(lambda log_c: _mean_size(np.exp(log_c) * values) - mean_size, -60.0, 60.0)))


def _mean_size(eigenvalues: Any) -> float:
    return float((eigenvalues / (1 + eigenvalues)).real.sum())


def learned_file(name: str) -> LowRankKernel | None:
    """Return a kernel learned from UK Retail from the file ``NDPP_DATA``/kernels/``name``.npz, None if it is missing."""
    folder = os.environ.get("NDPP_DATA")
    path = Path(folder) / "kernels" / f"{name}.npz" if folder else None
    if path is None or not path.is_file():
        return None
    with np.load(path) as arrays:
        return LowRankKernel(arrays["X"], arrays["W"])


def from_files(say: Say = lambda _: None) -> Iterator[Named]:
    """Yield the kernels A and B, learned from UK Retail; ``say`` reports a missing file."""
    for name, how in {"A": "the literature's start", "B": "a start scaled by popularity"}.items():
        if (kernel := learned_file(f"uk_retail_{name}")) is None:
            say(f"skipped learned kernel {name}: set NDPP_DATA to the folder that holds kernels/uk_retail_{name}.npz")
        else:
            yield Named(PAPER[0], f"learned ({name})", f"by a prototype, with {how}", kernel, learned=True)


def _learned(data: DataSet, *, orthogonal: bool, seed: int, say: Say) -> Iterator[Named]:
    for row in rows(data, orthogonal=orthogonal):
        if (path := learn(row, seed=seed, say=say)) is not None:
            kernel = load(path)
            name = f"learned, n = {kernel.n_items:,}{row.note}"
            yield Named(data, name, _origin(data.baskets, load_metadata(path)), kernel, learned=True)


def missing(*, orthogonal: bool, seed: int) -> list[str]:
    """Return the data sets for which there is no kernel of the paper's recipe."""
    published = [row for data in PAPER for row in rows(data, orthogonal=orthogonal) if row.is_published]
    return [row.data.title for row in published if not (cache_folder() / row.file(seed)).is_file()]


def learn(row: Row, *, seed: int, say: Say) -> Path | None:
    """Return the file of a kernel learned from the data set's baskets.

    Returns None if there is no file, and the baskets or torch are missing, or the recipe is the paper's.
    """
    path = cache_folder() / row.file(seed)
    if path.is_file():
        return path
    if row.is_published or importlib.util.find_spec("torch") is None:
        return None
    try:
        load_baskets(row.data.baskets)
    except DataNotFoundError:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    fit(row, path, seed=seed, say=say)
    return path


def fit(row: Row, path: Path, *, seed: int, say: Say, **more: Any) -> dict[str, Any]:
    """Learn a kernel, save it with a record of its training, and return that; ``more`` are settings of the estimator.

    By the paper's recipe 300 baskets validate, and 2,000 are for the test; elsewhere an interrupted training continues from its checkpoint.
    """
    import torch

    from ndpp.learning.fitting import make_estimator

    data, checkpoint = row.data, path.with_suffix(".checkpoint")
    baskets, held_out = load_baskets(data.baskets).select(min_size=1, max_size=100), None
    if row.is_published:
        baskets, held_out, test = baskets.split(N_VALIDATION, data.n_test, rng=seed)
    settings: dict[str, Any] = {
        "rank": RANK, "random_state": seed, "checkpoint": None if row.is_published else checkpoint,
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "progress": sys.stderr.isatty() and importlib.util.find_spec("rich") is not None, **row.settings, **more,
    }  # fmt: skip
    model: Any = make_estimator(row.model, **settings)
    name, began = type(model).__name__, time.perf_counter()
    wait = "minutes" if model.device == "cuda" else "minutes to hours"
    say(f"{data.title}: learning an {name} from {len(baskets):,} baskets on {model.device}, once; this takes {wait}")
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainingInterruptedWarning)
        try:
            model.fit(baskets, validation=held_out, resume=not row.is_published)
        except TrainingInterruptedWarning:
            raise KeyboardInterrupt from None
    seconds = time.perf_counter() - began
    about = {
        "model": name, "device": model.device, "epochs": model.n_iter_, "ended": model.ended_, "seconds": round(seconds),
        "n_train": len(baskets), "validation": model.validation_score_,
        "gamma": settings.get("gamma"),
    }  # fmt: skip
    if row.is_published:
        about |= {"recipe": "the paper's", "test": _mean_log_likelihood(model.kernel_, test)}
    save(model.kernel_, path, metadata=about)
    checkpoint.unlink(missing_ok=True)
    say(f"{data.title}: learned in {seconds:.0f} s, {model.n_iter_} epochs; saved to {path}")
    return about


def _mean_log_likelihood(kernel: LowRankKernel, baskets: Baskets) -> float:
    """Return the mean log-likelihood of baskets as the published code has it, with ``JITTER`` on the diagonal of L_Y.

    Examples
    --------
    >>> kernel = LowRankKernel(np.eye(2), np.eye(2))
    >>> round(_mean_log_likelihood(kernel, Baskets.from_lists([[0], [0, 1]], n_items=2)) + float(np.log(4)), 6)
    1.5e-05
    """
    X = np.asarray(kernel.X)
    minors = (X[items] @ kernel.W @ X[items].T + JITTER * np.eye(len(items)) for items in baskets)
    return float(np.mean([np.linalg.slogdet(minor)[1] for minor in minors]) - kernel.log_normalizer())


def _origin(baskets: str, about: Mapping[str, Any]) -> str:
    """Return the origin of a learned kernel, as far as its file records it.

    Examples
    --------
    >>> _origin("uk_retail", {"model": "ONDPP", "epochs": 12, "ended": "converged", "validation": -99.81, "gamma": 0.5})
    'ONDPP of `uk_retail`, γ = 0.5, 12 epochs (converged), validation log-likelihood -99.81'
    >>> _origin("uk_retail", {})
    'kernel of `uk_retail`'
    """
    ended = {"converged": " (converged)", "max_epochs": " (the maximum)"}.get(about.get("ended", ""), "")
    parts = [
        f"{about.get('model', 'kernel')} of `{baskets}`",
        f"{about['recipe']} recipe" if "recipe" in about else "",
        f"γ = {about['gamma']:g}" if about.get("gamma") is not None else "",
        f"{about['epochs']} {'steps' if 'recipe' in about else 'epochs'}{ended}" if "epochs" in about else "",
        f"validation log-likelihood {about['validation']:.2f}" if "validation" in about else "",
        f"test log-likelihood {about['test']:.2f}" if "test" in about else "",
    ]
    return ", ".join(filter(None, parts))
