"""``ndpp.diversify`` and ``greedy_map`` compared with a plain fast greedy in NumPy [Chen et al., NeurIPS 2018], in one run.

Embeddings are random vectors of norm one with normal scores, n × d for n = 100 … 10⁵ and d = 64, 256, 384, k = 10 and 50, and 1,000
queries of 500 × 128 as one batch. Ratios above 1 mean that ndpp is faster. Run
``OPENBLAS_NUM_THREADS=1 python benchmarks/bench_diversify.py``. With ``--device cuda -o FILE.json``, tensors of 10⁴ and 10⁶ rows on a GPU,
beside the same plain greedy in torch, in single precision as the tensors are, and in double as ``diversify`` works.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ndpp

sys.path.append(str(Path(__file__).parent / "peers"))
from diverse_items import plain_greedy


def best_of(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the shortest time in milliseconds, and the result."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        found = call()
        times.append(1e3 * (time.perf_counter() - start))
    return min(times), found


def plain_torch(X: Any, scores: Any, k: int) -> list[int]:
    """The plain greedy of ``diverse_items`` in torch, with one transfer at the end."""
    import torch

    X = X * (torch.exp(0.5 * scores) / torch.linalg.vector_norm(X, dim=1))[:, None]
    gains, C, chosen = (X * X).sum(dim=1), X.new_zeros((k, len(X))), []
    for j in range(k):
        best = torch.argmax(gains)
        chosen.append(best)
        C[j] = (X @ X[best] - C[:j].T @ C[:j, best]) / torch.sqrt(gains[best])
        gains = gains - C[j] ** 2
        gains[best] = -torch.inf
    return torch.stack(chosen).tolist()


def on_device(name: str) -> dict[str, Any]:
    """Print a table of both on a device, and return it."""
    import torch

    def timed(call: Callable[[], Any]) -> tuple[float, Any]:
        def whole() -> Any:
            found = call()
            torch.cuda.synchronize()
            return found

        call()
        return best_of(whole, 10)

    records = []
    for n, d, k in (
        (10_000, 64, 10),
        (10_000, 64, 50),
        (1_000_000, 64, 10),
        (1_000_000, 64, 50),
        (1_000_000, 256, 10),
        (1_000_000, 256, 50),
    ):
        rng = torch.Generator(name).manual_seed(0)
        X, scores = (torch.randn(shape, generator=rng, device=name) for shape in ((n, d), (n,)))
        plain, wanted = timed(partial(plain_torch, X, scores, k))
        double, _ = timed(partial(plain_torch, X.double(), scores.double(), k))
        own, found = timed(partial(ndpp.diversify, X, scores, k))
        same = found.items.tolist() == wanted
        seconds = {"torch": plain / 1e3, "torch in double precision": double / 1e3, "ndpp": own / 1e3}
        records.append({"items": n, "columns": d, "k": k, **seconds, "same": same})
        print(
            f"{n:8} {d:7} {k:3} plain {plain:7.2f} ms, in double {double:7.2f} ms, diversify {own:7.2f} ms  {same}",
            flush=True,
        )
    return {"machine": {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "versions": {"ndpp": ndpp.__version__}},
            "records": records}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device")
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    if not chosen.device:
        return on_one_core()
    found = on_device(chosen.device)
    if chosen.output:
        chosen.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def on_one_core() -> None:
    """Print a table."""
    rng = np.random.default_rng(0)
    print(f"{'items':>8} {'columns':>7} {'k':>3} {'scores':>7} {'plain':>9} {'diversify':>9} {'ratio':>6}  same items")
    for n in (100, 1000, 10_000, 100_000):
        for d in (64, 256, 384):
            X, drawn = rng.standard_normal((n, d)), rng.standard_normal(n)
            for name, scores in (("normal", drawn), ("equal", np.zeros(n))):
                for k in (10, 50):
                    repeats = 20 if n * d < 10**6 else 3
                    plain, wanted = best_of(partial(plain_greedy, X, scores, k), repeats)
                    own, found = best_of(partial(ndpp.diversify, X, scores, k), repeats)
                    same = found.items.tolist() == wanted
                    print(
                        f"{n:8} {d:7} {k:3} {name:>7} {plain:7.2f}ms {own:7.2f}ms {plain / own:6.2f}  {same}",
                        flush=True,
                    )
    X, scores = rng.standard_normal((1000, 500, 128)), rng.standard_normal((1000, 500))
    plain, wanted = best_of(lambda: [plain_greedy(x, s, 10) for x, s in zip(X, scores)], 2)
    own, found = best_of(lambda: ndpp.diversify(X, scores, 10), 2)
    print(f"1,000 queries of 500 × 128, k = 10: plain {plain:.0f} ms, diversify {own:.0f} ms, ratio {plain / own:.2f}, "
          f"same items: {found.items.tolist() == wanted}")  # fmt: skip


if __name__ == "__main__":
    main()
