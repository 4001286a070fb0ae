"""Kernels that break careless code, and recipes for random ones.

Entries of the small kernels are multiples of 1/8 wherever the case allows it, so that L = X W Xᵀ is exact in double
precision, and a minor that ought to be zero is zero.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import block_diag

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel L = X W Xᵀ by name; ``pytest.mark.parametrize("case", AWKWARD, ids=str)`` runs over the table."""

    name: str
    X: Array
    W: Array

    def __str__(self) -> str:
        return self.name

    @property
    def n_items(self) -> int:
        return len(self.X)

    @cached_property
    def L(self) -> Array:
        return self.X @ self.W @ self.X.T

    @cached_property
    def kernel(self) -> Any:
        """The case as a ``LowRankKernel`` (frozen, hence shared)."""
        from ndpp.laws.kernel import LowRankKernel

        return LowRankKernel(self.X, self.W)


def skew(D: Array) -> Array:
    return D - D.T


def from_vbd(V: Array, B: Array, D: Array) -> tuple[Array, Array]:
    """(X, W) of L = VVᵀ + B(D − Dᵀ)Bᵀ."""
    return np.hstack([V, B]), block_diag(np.eye(V.shape[1]), skew(D))


def pair_blocks(sigma: Any) -> Array:
    """⊕ [[0, σ], [−σ, 0]]."""
    return block_diag(*([[0.0, s], [-s, 0.0]] for s in sigma))


def nearly_skew(part: float, n: int = 9, rank: int = 6, seed: int = 0) -> Case:
    """A skew W with ``part`` on its diagonal: sets of odd size are about so rare, whatever the scale of L."""
    rng = np.random.default_rng(seed)
    X, D = rng.standard_normal((n, rank)), rng.standard_normal((rank, rank))
    return Case(f"nearly skew, {part:g}", X, skew(D) + part * np.eye(rank))


def uneven_pairs(*strengths: float, seed: int = 0) -> Case:
    """Pairs of these strengths and one item by itself: with (σ, 1/σ), at most 1/(2σ) of all sets have size 4, whatever the scale of L."""
    X = np.random.default_rng(seed).standard_normal((2 * len(strengths) + 5, 2 * len(strengths) + 1))
    return Case(f"pairs of {strengths}", X, block_diag(pair_blocks(strengths), np.eye(1)))


def eighths(rng: np.random.Generator, *shape: int, most: int = 8) -> Array:
    """Random multiples of 1/8 in [−most/8, most/8]."""
    return rng.integers(-most, most + 1, shape) / 8.0


def random_vbd(n: int, d_sym: int, d_skew: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """V (n, d_sym), B (n, d_skew), D (d_skew, d_skew): the paper's parametrisation, Gaussian entries."""
    scale = 1.0 / np.sqrt(d_sym + d_skew)
    return (
        rng.standard_normal((n, d_sym)) * scale,
        rng.standard_normal((n, d_skew)) * scale,
        rng.standard_normal((d_skew, d_skew)),
    )


def random_ondpp(n: int, d_sym: int, sigma: Any, rng: np.random.Generator) -> tuple[Array, Array]:
    """(X, W) of an ONDPP: BᵀB = I, VᵀB = 0, one value σ per pair of columns of B."""
    d_skew = 2 * len(sigma)
    basis = np.linalg.qr(rng.standard_normal((n, d_sym + d_skew)))[0]
    V = basis[:, :d_sym] * rng.uniform(0.5, 2.0, d_sym)
    V = V @ np.linalg.qr(rng.standard_normal((d_sym, d_sym)))[0]
    return np.hstack([V, basis[:, d_sym:]]), block_diag(np.eye(d_sym), pair_blocks(sigma))


def random_ndpp(
    n: int, d: int, rng: np.random.Generator, *, spread: float = 0.0, mixed: bool = True
) -> tuple[Array, Array]:
    """(X, W) with singular values of X log-spaced over 10^±spread and W random, accretive, well conditioned.

    ``mixed`` rotates the columns (X = U diag(s) Vᵀ); otherwise they are only scaled (X = U diag(s)), in random order.
    """
    r = min(n, d)
    s = 10.0 ** np.linspace(spread, -spread, r)
    U = np.linalg.qr(rng.standard_normal((n, r)))[0]
    V = np.linalg.qr(rng.standard_normal((d, r)))[0] if mixed else np.eye(d)[:, rng.permutation(d)[:r]]
    G = rng.standard_normal((d, d)) / np.sqrt(d)
    return (U * s) @ V.T, np.eye(d) / 2 + G @ G.T + skew(rng.standard_normal((d, d)))


def data_folder() -> Path:
    """Where real data lies: NDPP_DATA, or ``shared/data`` beside the repository."""
    return Path(os.environ.get("NDPP_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


@cache
def learned(name: str) -> Case:
    """The learned UK Retail kernel "A" or "B" (n = 3,941, d = 200), read and prepared once; skips the test where the file is absent."""
    path = data_folder() / "kernels" / f"uk_retail_{name}.npz"
    if not path.exists():
        pytest.skip(f"learned kernel {name} is not at {path}; point NDPP_DATA at the folder of real data")
    with np.load(path) as arrays:
        return Case(f"learned {name}", np.asarray(arrays["X"], np.float64), np.asarray(arrays["W"], np.float64))


def _generic() -> Case:
    rng = np.random.default_rng(1)
    return Case("generic", *from_vbd(eighths(rng, 8, 3), eighths(rng, 8, 4), eighths(rng, 4, 4, most=16)))


def _ondpp() -> Case:
    return Case("ondpp", *random_ondpp(8, 3, (2.0, 0.5), np.random.default_rng(2)))


def _symmetric() -> Case:
    return Case("symmetric", eighths(np.random.default_rng(3), 8, 4), np.eye(4))


def _skew() -> Case:
    """All samples have an even size; every item has L_aa = 0."""
    rng = np.random.default_rng(4)
    return Case("purely skew", eighths(rng, 8, 4), pair_blocks((2.0, 0.75)))


def _mostly_skew() -> Case:
    rng = np.random.default_rng(5)
    V, B = eighths(rng, 8, 4, most=2), eighths(rng, 8, 4)
    return Case("mostly skew", *from_vbd(V, B, 16 * eighths(rng, 4, 4)))


def _equal_sigma() -> Case:
    """Repeated σ: the Youla form is not unique. Skew part of odd order, so one of its directions is null."""
    X = eighths(np.random.default_rng(6), 7, 5)
    return Case("repeated sigma", X, block_diag(0.0, pair_blocks((1.0, 1.0))) + np.diag([1.0, 0, 0, 0, 0.25]))


def _zero_diagonal() -> Case:
    """Items 0, 1, 2, 5 have L_aa = 0 and occur only beside others."""
    rng = np.random.default_rng(7)
    V, B = eighths(rng, 8, 2), eighths(rng, 8, 4)
    V[[0, 1, 2, 5]] = 0.0
    return Case("zero diagonal", *from_vbd(V, B, eighths(rng, 4, 4, most=16)))


def _duplicates() -> Case:
    rng = np.random.default_rng(8)
    X, W = from_vbd(eighths(rng, 8, 3), eighths(rng, 8, 2), 2 * eighths(rng, 2, 2))
    X[5], X[6] = X[0], X[0]
    X[7] = -2 * X[1]
    return Case("duplicate rows", X, W)


def _zero_rows() -> Case:
    rng = np.random.default_rng(9)
    X, W = from_vbd(eighths(rng, 8, 3), eighths(rng, 8, 2), 2 * eighths(rng, 2, 2))
    X[[0, 4, 7]] = 0.0
    return Case("zero rows", X, W)


def _rank_deficient() -> Case:
    """d = 6, rank 4: two columns of X are combinations of the others."""
    rng = np.random.default_rng(10)
    X = eighths(rng, 8, 6)
    X[:, 4], X[:, 5] = X[:, 0] - X[:, 1], X[:, 2] / 2
    return Case("rank-deficient X", X, np.eye(6) + skew(eighths(rng, 6, 6)))


def _few_items() -> Case:
    rng = np.random.default_rng(11)
    return Case("fewer items than columns", eighths(rng, 4, 7), np.eye(7) + skew(eighths(rng, 7, 7)))


def _singular_w() -> Case:
    """X has rank 6; W, and so L, only 3: sizes 4 to 6 are impossible although they do not exceed X's rank."""
    rng = np.random.default_rng(12)
    W = block_diag([[0.5]], pair_blocks((1.25,)), np.zeros((3, 3)))
    return Case("singular W", eighths(rng, 8, 6), W)


def _badly_scaled() -> Case:
    """Norms of rows spread over 2^±10."""
    rng = np.random.default_rng(13)
    X = eighths(rng, 8, 5) * 2.0 ** np.array([[-10, 10, 0, 5, -5, 2, -2, 0]]).T
    return Case("badly scaled rows", X, np.eye(5) + skew(eighths(rng, 5, 5)))


def _far_from_normal() -> Case:
    """W is one Jordan block in disguise: all eigenvalues 1, one eigenvector; symmetric part of rank 1."""
    X = np.vstack([np.eye(5), eighths(np.random.default_rng(14), 3, 5, most=4)])
    return Case("far from normal", X, np.eye(5) + 2 * np.triu(np.ones((5, 5)), 1))


def _block_pairs() -> Case:
    """⊕ [[ε, 1], [−1, ε]], ε = 1/8: pairs come and go together; the walk mixes slowly here."""
    return Case("block pairs", np.eye(8), pair_blocks((1.0,) * 4) + np.eye(8) / 8)


def _broken_pairs() -> Case:
    """L_A = 0 for A = {0, 2}, {0, 4}, {2, 4}, …, each part of larger samples: no L-kernel is left for the rest."""
    return Case("broken pairs", np.eye(7), block_diag(pair_blocks((1.0, 2.0, 0.5)), [[1.0]]))


def _singular_given() -> Case:
    """L_A is singular though its diagonal is not zero: items 0 and 1 repel fully unless 2 and 3 come along."""
    L = block_diag(np.ones((2, 2)), np.zeros((2, 2)), [[0.5]])
    L += skew(np.pad(np.array([[0, 0, 1.0, 0], [0, 0, 0, 1.0], [0, 0, 0, 0.5], [0, 0, 0, 0]]), (0, 1)))
    return Case("singular L_A", np.eye(5), L)


def _full_size() -> Case:
    """n = rank: at size = rank one set has all the probability."""
    rng = np.random.default_rng(15)
    return Case("size is rank", np.eye(5) + eighths(rng, 5, 5, most=2), np.eye(5) + skew(eighths(rng, 5, 5)))


AWKWARD: tuple[Case, ...] = (
    _generic(),
    _ondpp(),
    _symmetric(),
    _skew(),
    _mostly_skew(),
    _equal_sigma(),
    Case("one item", np.array([[1.5]]), np.array([[1.0]])),
    Case("two items", np.eye(2), np.array([[0.5, 1.0], [-1.0, 0.25]])),
    _zero_diagonal(),
    _duplicates(),
    _zero_rows(),
    _rank_deficient(),
    _few_items(),
    _singular_w(),
    _badly_scaled(),
    _far_from_normal(),
    _block_pairs(),
    _broken_pairs(),
    _singular_given(),
    _full_size(),
)

BY_NAME: dict[str, Case] = {case.name: case for case in AWKWARD}
