"""The value and the gradient of a log-likelihood: ``ndpp.torch`` beside what is written without it, in one run.

    python benchmarks/bench_torch.py -o benchmarks/results/torch.json
    python benchmarks/bench_torch.py --device cuda -o benchmarks/results/torch_gpu.json

The mean log P of 64 sets of 8 items, under L = XXᵀ with random X, n × 64, in double precision, and its gradient in X. ``loop`` is a Python
loop of ``slogdet`` over the minors of the n × n matrix, ``thin loop`` one over those of rows of X with a d × d normaliser. On a CPU,
TensorFlow Probability's ``DeterminantalPointProcess`` follows, in an environment of its own, with the eigendecomposition that it takes.
Methods take turns; a time is the shortest of them: CPU time, or wall-clock time on a GPU. What
would need a matrix of more than 2 GB is left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ndpp.torch

HERE = Path(__file__).resolve().parent
RANK, N_SETS, SIZE = 64, 64, 8
ITEMS = (256, 512, 1024, 2048, 4096, 1_000_000)
MOST_SQUARE = 2**14
MOST_MASKED = 1.0
"""Most GB of what TensorFlow Probability computes determinants of: an n × n matrix for each set."""
PACKAGES = ("tensorflow-cpu==2.21.*", "tensorflow-probability==0.25.*", "tf-keras")
Tensor = torch.Tensor


def own(X: Tensor, sets: Tensor) -> Tensor:
    return ndpp.torch.log_prob(X, sets).mean()


def own_of_size(X: Tensor, sets: Tensor) -> Tensor:
    return ndpp.torch.log_prob(X, sets, size=SIZE).mean()


def loop(X: Tensor, sets: Tensor) -> Tensor:
    L = X @ X.T
    log_z: Tensor = torch.linalg.slogdet(torch.eye(len(X), dtype=X.dtype, device=X.device) + L)[1]
    return torch.stack([torch.linalg.slogdet(L[some][:, some])[1] for some in sets]).mean() - log_z


def thin_loop(X: Tensor, sets: Tensor) -> Tensor:
    log_z: Tensor = torch.linalg.slogdet(torch.eye(X.shape[1], dtype=X.dtype, device=X.device) + X.T @ X)[1]
    return torch.stack([torch.linalg.slogdet(X[some] @ X[some].T)[1] for some in sets]).mean() - log_z


METHODS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "ndpp.torch": own, "ndpp.torch, size=8": own_of_size, "loop": loop, "thin loop": thin_loop,
}  # fmt: skip


def one_turn(method: Callable[[Tensor, Tensor], Tensor], X: Tensor, sets: Tensor) -> tuple[float, float, Tensor]:
    """Return the seconds of a value and a gradient, and both."""
    leaf, cuda = X.clone().requires_grad_(), X.is_cuda
    if cuda:
        torch.cuda.synchronize()
    began = time.perf_counter() if cuda else time.process_time()
    value = method(leaf, sets)
    value.backward()  # type: ignore[no-untyped-call]
    if cuda:
        torch.cuda.synchronize()
    took = (time.perf_counter() if cuda else time.process_time()) - began
    assert leaf.grad is not None
    return took, float(value.detach()), leaf.grad


def measured(n: int, device: str, limit: float) -> dict[str, Any]:
    rng = np.random.default_rng([7, n])
    arrays = rng.standard_normal((n, RANK)) / 8, np.stack([rng.choice(n, SIZE, replace=False) for _ in range(N_SETS)])
    X, sets = (torch.from_numpy(part).to(device) for part in arrays)
    record: dict[str, Any] = {"items": n, "methods": {}}
    left = {name: method for name, method in METHODS.items() if name != "loop" or n <= MOST_SQUARE}
    if "loop" not in left:
        record["methods"]["loop"] = {"skipped": f"would need a matrix of {8e-9 * n * n:,.0f} GB"}
    times: dict[str, list[float]] = {name: [] for name in left}
    gradients: dict[str, Tensor] = {}
    for turn in range(5):
        for name, method in left.items():
            if not turn or sum(times[name]) < limit:
                took, value, gradients[name] = one_turn(method, X, sets)
                times[name].append(took)
                record["methods"][name] = {"seconds": min(times[name]), "value": value}
    reference = gradients["thin loop"]
    for name in left:
        if "size" not in name:
            error = (gradients[name] - reference).abs().max() / reference.abs().max()
            record["methods"][name]["gradient off by"] = float(error)
    if device == "cpu":
        record["methods"]["TensorFlow Probability"] = peer(*arrays, limit, reference.numpy())
    return record


def peer(X: Any, sets: Any, limit: float, reference: Any) -> dict[str, Any]:
    """Return what TensorFlow Probability takes, in an environment of its own."""
    if (gigabytes := 8e-9 * len(sets) * len(X) ** 2) > MOST_MASKED:
        return {"skipped": f"would need masked matrices of {gigabytes:,.2g} GB"}
    sys.path.append(str(HERE / "peers"))
    from symmetric import environment

    folder = Path("build/peers")
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "likelihood.npz", X=X, sets=sets)
    try:
        python = environment(folder, "tfp", PACKAGES)
        command = [str(python), str(HERE / "peers/tfp_likelihood.py"), str(folder / "likelihood.npz")]
        command.append(str(folder / "gradient.npy"))
        done = subprocess.run(command, check=True, capture_output=True, timeout=20 * limit)
    except subprocess.TimeoutExpired:
        return {"skipped": f"took more than {20 * limit:g} s"}
    except subprocess.CalledProcessError as failed:
        return {"skipped": f"failed: {str(failed)[-200:]}"}
    found: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    error = np.abs(np.load(folder / "gradient.npy") - reference).max() / np.abs(reference).max()
    found["gradient off by"] = float(error) if np.isfinite(error) else None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--items", nargs="+", type=int, default=list(ITEMS))
    parser.add_argument(
        "--limit", type=float, default=15.0, help="seconds of a method, after which it has no further turn"
    )
    parser.add_argument("-o", "--output", type=Path)
    chosen, records = parser.parse_args(), []
    for n in chosen.items:
        records.append(measured(n, chosen.device, chosen.limit))
        each = (
            f"{name} {one.get('skipped') or format(1e3 * one['seconds'], '.4g') + ' ms'}"
            for name, one in records[-1]["methods"].items()
        )
        print(f"{n:,}: {'; '.join(each)}", flush=True)
    about = {"device": torch.cuda.get_device_name()} if chosen.device != "cpu" else cpu()
    about |= {"torch": torch.__version__, "versions": {"ndpp": ndpp.__version__}}
    settings = {"rank": RANK, "sets": N_SETS, "size": SIZE, "threads": torch.get_num_threads()}
    if chosen.output:
        text = json.dumps({"machine": about, "settings": settings, "records": records}, indent=1)
        chosen.output.write_text(text + "\n", encoding="utf-8")


def cpu() -> dict[str, Any]:
    from ndpp_experiments.record import machine

    return machine()


if __name__ == "__main__":
    main()
