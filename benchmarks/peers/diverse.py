"""Time the choice of k diverse items from embeddings and scores, by several libraries, each in an environment of its own, on one core.

    python benchmarks/peers/diverse.py -o benchmarks/results/diverse.json
    python benchmarks/peers/diverse.py --items 100 1000 --columns 64 --limit 20

Embeddings are normal vectors in single precision with standardised normal scores. NumPy, ndpp and pyversity build the greedy set of the
same kernel, apricot one of another objective, and ndpp and DPPy draw an exact sample. A time is the shortest CPU time of several, with
preparation; log det L_S of all sets is that of the common kernel. What a library cannot do in the time or memory allowed is left out, with
the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from diverse_items import ALPHA, METHODS
from symmetric import ONE_THREAD, environment

from ndpp._atomic import replacing
from ndpp_experiments.record import machine

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "NumPy": ("numpy",),
    "pyversity": ("pyversity==0.2.0",),
    "apricot": ("apricot-select==0.6.1", "scikit-learn"),
    "DPPy, a sample": ("dppy==0.3.3",),
}
"""What is installed for each method; ndpp is there already."""
SQUARE = {"apricot": 10_000}
"""Methods that need an n × n matrix, and the most items for which that is tried."""


def interpreters(methods: list[str], folder: Path) -> dict[str, Path | str]:
    """Return the interpreter of each method, or why there is none."""
    out: dict[str, Path | str] = {}
    for method in methods:
        name = method.partition(",")[0].lower()
        try:
            out[method] = environment(folder, name, PACKAGES[method]) if method in PACKAGES else Path(sys.executable)
        except subprocess.CalledProcessError:
            out[method] = f"{name} could not be installed"
    return out


def chosen_by(
    method: str, python: Path | str, folder: Path, n: int, ks: list[int], limit: float
) -> list[dict[str, Any]]:
    """Return the time and the items of a method for each k, or why there are none."""
    if isinstance(python, str):
        return [{"skipped": python}] * len(ks)
    if n > SQUARE.get(method, n):
        return [{"skipped": f"would need a matrix of {8e-9 * n * n:.3g} GB"}] * len(ks)
    command = [str(python), str(HERE / "diverse_items.py"), method, str(folder), *map(str, ks)]
    try:
        done = subprocess.run(command, env=os.environ | ONE_THREAD, check=True, capture_output=True, timeout=limit)
        output, reason = done.stdout, ""
    except subprocess.TimeoutExpired as late:
        output, reason = late.stdout or b"", f"took more than {limit:g} s"
    except subprocess.CalledProcessError as failed:
        output, reason = failed.stdout, f"failed: {failed.stderr.decode().strip().splitlines()[-1:]}"
    found = [json.loads(line) for line in output.decode().splitlines() if line.startswith("{") and line.endswith("}")]
    return found + [{"skipped": reason}] * (len(ks) - len(found))


def compare(
    pythons: dict[str, Path | str],
    folder: Path,
    *,
    n: int,
    d: int,
    ks: list[int],
    limit: float,
    slow: list[tuple[Any, ...]],
) -> list[dict[str, Any]]:
    """Return a record for each k with all methods; ``slow`` are (method, n, d) that took too long, which this adds to."""
    rng = np.random.default_rng([n, d])
    X, scores = rng.standard_normal((n, d)).astype(np.float32), rng.standard_normal(n)
    scores = (scores - scores.mean()) / scores.std()
    np.save(folder / "X.npy", X)
    np.save(folder / "scores.npy", scores)
    rows = X * (np.exp(ALPHA * scores) / np.linalg.norm(X, axis=1))[:, None]
    records: list[dict[str, Any]] = [{"items": n, "columns": d, "k": k, "methods": {}} for k in ks]
    for method, python in pythons.items():
        smaller = [own for own in slow if own[0] == method and own[1] <= n and own[2] <= d]
        if smaller:
            found: list[dict[str, Any]] = [{"skipped": "took too long with {1:,} × {2}".format(*smaller[0])}] * len(ks)
        else:
            found = chosen_by(method, python, folder, n, ks, limit)
            if any(one.get("skipped", "").startswith("took") for one in found):
                slow.append((method, n, d))
        for record, one in zip(records, found):
            if "items" in one:
                items = one.pop("items")
                one["log det"] = float(np.linalg.slogdet(rows[items] @ rows[items].T)[1])
            record["methods"][method] = one
    return records


def shown(record: dict[str, Any]) -> str:
    return f"{1e3 * record['seconds']:.3g} ms ({record['log det']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", nargs="+", type=int, default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--columns", nargs="+", type=int, default=[64, 256])
    parser.add_argument("-k", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--limit", type=float, default=90.0, help="most seconds of a method, for one set of arrays")
    parser.add_argument("--folder", type=Path, default=Path("build/peers"), help="arrays and environments go there")
    parser.add_argument("-o", "--output", type=Path, default=Path("diverse.json"))
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    pythons, records = interpreters(chosen.methods, chosen.folder), []
    slow: list[tuple[Any, ...]] = []
    for n, d in product(chosen.items, chosen.columns):
        for record in compare(pythons, chosen.folder, n=n, d=d, ks=chosen.k, limit=chosen.limit, slow=slow):
            records.append(record)
            each = (f"{m} {one.get('skipped') or shown(one)}" for m, one in record["methods"].items())
            print(f"{n:,} × {d}, k = {record['k']}: {'; '.join(each)}", flush=True)
        with replacing(chosen.output) as temporary:
            temporary.write_text(
                json.dumps({"machine": machine(), "records": records}, indent=1) + "\n", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
