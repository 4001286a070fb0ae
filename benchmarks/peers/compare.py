"""Compare with other libraries, and write docs/compare.md: ``make compare``, or

    python benchmarks/peers/compare.py                  # what is missing, or was run with another version of ndpp
    python benchmarks/peers/compare.py diverse dense    # these, whatever is there
    python benchmarks/peers/compare.py --list

Each peer has an environment of its own in ``--folder``, which is made if it is not there. A comparison that cannot be run here is left
out with the reason, and its older results stay.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PUBLISH = "experiments/publish"


class Part(NamedTuple):
    """A comparison: its script and arguments, the file it writes, minutes on an idle core, and why it cannot be run here, if so."""

    command: tuple[str, ...]
    result: str
    minutes: float
    missing: Callable[[], str] = str


def checkouts() -> str:
    names = [name for name in ("NDPP_MCMC_SAMPLING", "NONSYMMETRIC_DPP_SAMPLING") if name not in os.environ]
    return data() or f"{' and '.join(names)} must name checkouts of the published code" * bool(names)


def data() -> str:
    return "" if os.environ.get("NDPP_DATA") else "NDPP_DATA must name the folder of learned kernels and baskets"


def cuda() -> str:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return "" if torch.cuda.is_available() else "there is no CUDA device"


def script(path: str, result: str, minutes: float, *arguments: str, missing: Callable[[], str] = str) -> Part:
    return Part((path, *arguments, "-o", result), result, minutes, missing)


def parts(folder: str) -> dict[str, Part]:
    peers, results, here = ("--folder", folder), "benchmarks/results", "benchmarks/peers"
    reproduce = ("-m", "ndpp.cli", "reproduce")
    return {
        "symmetric": script(f"{here}/symmetric.py", f"{results}/symmetric.json", 1, *peers),
        "trees": script(f"{here}/trees.py", f"{results}/trees.json", 1, *peers),
        "functions": script(f"{here}/functions.py", f"{results}/functions.json", 3, *peers),
        "nonsymmetric": script(f"{here}/nonsymmetric.py", f"{results}/nonsymmetric.json", 5, *peers, missing=checkouts),
        "dense": script("benchmarks/bench_dense.py", f"{results}/dense.json", 1),
        "diverse": script(f"{here}/diverse.py", f"{results}/diverse.json", 5, *peers),
        "diverse_gpu": script(
            "benchmarks/bench_diversify.py", f"{results}/diverse_gpu.json", 1, "--device", "cuda", missing=cuda
        ),
        "torch": script("benchmarks/bench_torch.py", f"{results}/torch.json", 5),
        "torch_gpu": script(
            "benchmarks/bench_torch.py", f"{results}/torch_gpu.json", 1, "--device", "cuda", missing=cuda
        ),
        "models": script(f"{PUBLISH}/peers/run.py", "results/peers.json", 40, *peers, missing=data),
        "next_basket": Part((*reproduce, "next_basket", "-o", "results"), "results/next_basket.json", 30, data),
        "registries": Part((*reproduce, "registries", "-o", "results"), "results/registries.json", 10, data),
    }


def due(part: Part) -> bool:
    """Return whether the results of a comparison are missing or of another version."""
    path = ROOT / part.result
    if not path.exists():
        return True
    then = json.loads(path.read_text(encoding="utf-8"))["machine"]["versions"].get("ndpp")
    return bool(then != version("ndpp"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="run these, whatever is there")
    parser.add_argument("--folder", default="build/peers", help="environments, kernels and splits go there")
    parser.add_argument("--list", action="store_true", help="list the comparisons and which are due, and run none")
    chosen = parser.parse_args()
    known = parts(chosen.folder)
    if unknown := [name for name in chosen.parts if name not in known]:
        parser.error(f"unknown {', '.join(unknown)}; choose from {', '.join(known)}")
    for name, part in known.items():
        wanted = name in chosen.parts if chosen.parts else due(part)
        reason = part.missing()
        if chosen.list:
            print(
                f"{name:13} about {part.minutes:g} min, {'due' if due(part) else 'up to date'}"
                + f"; {reason}" * bool(reason)
            )
        elif wanted and reason:
            print(f"{name} is left out: {reason}", flush=True)
        elif wanted:
            print(f"{name}, about {part.minutes:g} min", flush=True)
            subprocess.run([sys.executable, *part.command], cwd=ROOT, env=os.environ | ONE_THREAD, check=True)
    if not chosen.list:
        subprocess.run([sys.executable, f"{PUBLISH}/figures.py"], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
