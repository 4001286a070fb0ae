"""Time the choice of k diverse items from embeddings and scores, by several libraries, each in an environment of its own, on one core.

    python benchmarks/peers/diverse.py -o benchmarks/results/diverse.json
    python benchmarks/peers/diverse.py --items 100 1000 --columns 64 --limit 20

Embeddings are normal vectors in single precision with standardised normal scores. NumPy, ndpp and pyversity build the greedy set of the
same kernel, apricot one of another objective, and ndpp and DPPy draw an exact sample. A time is the shortest of several, preparation
included; log det L_S of all sets is that of the common kernel. What a library cannot do in the time or memory allowed is left out, with
the reason. The table is written as Markdown beside the JSON.
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
    "pyversity": ("pyversity",),
    "apricot": ("apricot-select", "scikit-learn"),
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


def chosen_by(method: str, python: Path | str, folder: Path, n: int, k: int, limit: float) -> dict[str, Any]:
    """Return the time and the items of a method, or why there are none."""
    if isinstance(python, str):
        return {"skipped": python}
    if n > SQUARE.get(method, n):
        return {"skipped": f"would need a matrix of {8e-9 * n * n:.3g} GB"}
    command = [str(python), str(HERE / "diverse_items.py"), method, str(folder), str(k)]
    try:
        done = subprocess.run(
            command, env=os.environ | ONE_THREAD, check=True, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return {"skipped": f"took more than {limit:g} s"}
    except subprocess.CalledProcessError as failed:
        return {"skipped": f"failed: {failed.stderr.strip().splitlines()[-1:]}"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(
    pythons: dict[str, Path | str], folder: Path, *, n: int, d: int, k: int, limit: float, slow: list[tuple[Any, ...]]
) -> dict[str, Any]:
    """Return a record of all methods; ``slow`` are (method, n, d, k) that took too long, which this adds to: larger ones are not tried."""
    rng = np.random.default_rng([n, d])
    X, scores = rng.standard_normal((n, d)).astype(np.float32), rng.standard_normal(n)
    scores = (scores - scores.mean()) / scores.std()
    np.save(folder / "X.npy", X)
    np.save(folder / "scores.npy", scores)
    rows = X * (np.exp(ALPHA * scores) / np.linalg.norm(X, axis=1))[:, None]
    found: dict[str, Any] = {}
    for method, python in pythons.items():
        smaller = [own for own in slow if own[0] == method and own[1] <= n and own[2] <= d and own[3] <= k]
        if smaller:
            found[method] = {"skipped": "took too long with {1:,} × {2}, k = {3}".format(*smaller[0])}
            continue
        found[method] = record = chosen_by(method, python, folder, n, k, limit)
        if "items" in record:
            items = record.pop("items")
            record["log det"] = float(np.linalg.slogdet(rows[items] @ rows[items].T)[1])
        elif record["skipped"].startswith("took"):
            slow.append((method, n, d, k))
    return {"items": n, "columns": d, "k": k, "methods": found}


def shown(record: dict[str, Any]) -> str:
    if "skipped" in record:
        return "–"
    return f"{1e3 * record['seconds']:.3g} ms ({record['log det']:.2f})"


def table(records: list[dict[str, Any]]) -> str:
    """Return all records as a Markdown table, with notes on what was left out."""
    methods = list(records[0]["methods"])
    lines = [f"| items | columns | k | {' | '.join(methods)} |", "|---" * (3 + len(methods)) + "|"]
    lines += [
        f"| {r['items']:,} | {r['columns']} | {r['k']} | {' | '.join(shown(r['methods'][m]) for m in methods)} |"
        for r in records
    ]
    notes = {
        f"- {m}, {r['items']:,} × {r['columns']}, k = {r['k']}: {r['methods'][m]['skipped']}"
        for r in records
        for m in methods
        if "skipped" in r["methods"][m]
    }
    note = "In brackets: log det L_S of the set. Left out:" if notes else "In brackets: log det L_S of the set."
    return "\n".join([*lines, "", note, *sorted(notes)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", nargs="+", type=int, default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--columns", nargs="+", type=int, default=[64, 256, 384])
    parser.add_argument("-k", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--limit", type=float, default=60.0, help="most seconds of a method, for one set of arrays")
    parser.add_argument("--folder", type=Path, default=Path("build/peers"), help="arrays and environments go there")
    parser.add_argument("-o", "--output", type=Path, default=Path("diverse.json"))
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    pythons, records = interpreters(chosen.methods, chosen.folder), []
    slow: list[tuple[Any, ...]] = []
    for n, d, k in product(chosen.items, chosen.columns, chosen.k):
        record = compare(pythons, chosen.folder, n=n, d=d, k=k, limit=chosen.limit, slow=slow)
        records.append(record)
        each = (f"{m} {one.get('skipped') or shown(one)}" for m, one in record["methods"].items())
        print(f"{n:,} × {d}, k = {k}: {'; '.join(each)}", flush=True)
        with replacing(chosen.output) as temporary:
            temporary.write_text(
                json.dumps({"machine": machine(), "records": records}, indent=1) + "\n", encoding="utf-8"
            )
        with replacing(chosen.output.with_suffix(".md")) as temporary:
            temporary.write_text(table(records), encoding="utf-8")


if __name__ == "__main__":
    main()
