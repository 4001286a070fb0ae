"""Samples of an NDPP by the code that Han et al. published with their two papers of 2022, which a folder holds.

    python han_samples.py walk FOLDER kernel.npz        # insuhan/ndpp-mcmc-sampling
    python han_samples.py cholesky FOLDER kernel.npz    # insuhan/nonsymmetric-dpp-sampling, as is the next one
    python han_samples.py rejection FOLDER kernel.npz

The kernel is L = X W Xᵀ with W = diag(I, C), C skew. The first line written is the CPU time of the preparation; then each line of standard
input, {"seed", "count", "start"}, is answered by {"seconds": CPU time of ``count`` units, "sizes", "rejections"}. A unit is a step of the
walk from ``start``, a sample, or a proposal that is accepted whatever its probability. Functions are called as the authors' own programs
call them, in double precision.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

os.environ["TQDM_DISABLE"] = "1"  # no progress bars
import numpy as np
import torch


class Request(TypedDict):
    """A line of standard input."""

    seed: int
    count: int
    start: list[int]


Draw = Callable[[Request], tuple[list[int], list[int]]]
"""From a request to the sizes of the sets and the rejections of the steps."""


class Started(np.random.RandomState):
    """Random numbers for a walk whose first set is the head of a permutation: the first permutation is ``start``."""

    start: np.ndarray | None = None

    def permutation(self, x: Any) -> np.ndarray:
        start, self.start = self.start, None
        return super().permutation(x) if start is None else start


def walk(X: torch.Tensor, W: torch.Tensor) -> Draw:
    from kndpp import kndpp_mcmc
    from tree_based_sampling import construct_tree

    tree = construct_tree(np.arange(len(X)), X.T)

    def steps(request: Request) -> tuple[list[int], list[int]]:
        rng = Started(request["seed"])
        rng.start = np.array(request["start"])
        items, rejections = kndpp_mcmc(tree, X, W, len(request["start"]), request["count"], rng)
        return [len(items)], rejections

    return steps


def cholesky(X: torch.Tensor, W: torch.Tensor) -> Draw:
    from cholesky_sampling import cholesky_based_sampling

    K = W @ (torch.eye(len(W), dtype=X.dtype) + X.T @ X @ W).inverse()

    def samples(request: Request) -> tuple[list[int], list[int]]:
        rng = np.random.RandomState(request["seed"])
        return [len(cholesky_based_sampling(X, K, rng)) for _ in range(request["count"])], []

    return samples


def rejection(X: torch.Tensor, W: torch.Tensor) -> Draw:
    from rejection_sampling import decompose_proposal_dpp, rejection_sampling_ndpp
    from tree_sampling import construct_tree

    half = int((torch.diag(W) == 1).sum())
    V, B, C = X[:, :half], X[:, half:], W[half:, half:]
    values, vectors, _ = decompose_proposal_dpp(V, B, C)
    tree = construct_tree(np.arange(len(X)), vectors.T)

    def minor(items: list[int]) -> float:
        torch.det(V[items] @ V[items].T + B[items] @ C @ B[items].T).item()
        return np.inf

    def bound(items: list[int]) -> float:
        return torch.det((vectors[items] * values) @ vectors[items].T).item()

    def proposals(request: Request) -> tuple[list[int], list[int]]:
        rng = np.random.RandomState(request["seed"])
        made = [rejection_sampling_ndpp(tree, vectors, values, minor, bound, rng) for _ in range(request["count"])]
        assert not any(rejected for _, rejected in made)
        return [len(items) for items, _ in made], []

    return proposals


def main() -> None:
    torch.set_num_threads(1)
    code, folder, path = sys.argv[1:]
    sys.path.insert(0, str(Path(folder) / ("" if code == "walk" else "sampling")))
    with np.load(path) as kernel:
        X, W = (torch.from_numpy(kernel[name].astype(np.float64)) for name in ("X", "W"))
    began = time.process_time()
    draw = {"walk": walk, "cholesky": cholesky, "rejection": rejection}[code](X, W)
    print(json.dumps(time.process_time() - began), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        began = time.process_time()
        sizes, rejections = draw(request)
        seconds = time.process_time() - began
        print(json.dumps({"seconds": seconds, "sizes": sizes, "rejections": [int(n) for n in rejections]}), flush=True)


if __name__ == "__main__":
    main()
