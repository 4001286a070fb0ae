"""Write ``docs/benchmarks.md`` from the results of the benchmarks, so that no figure of its tables is typed by hand.

Run ``python benchmarks/tables.py`` after ``bench_samplers.py -o benchmarks/results/samplers.json`` and ``bench_prepare.py -o
benchmarks/results/prepare.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TOP = """# Benchmarks

The tables come from one run each of `benchmarks/bench_samplers.py` and `benchmarks/bench_prepare.py`, and this page from their results:

```
python benchmarks/bench_prepare.py -o benchmarks/results/prepare.json
NDPP_DATA=… python benchmarks/bench_samplers.py -o benchmarks/results/samplers.json  # --quick for a rough look
python benchmarks/tables.py
```

`NDPP_DATA` is the folder of real data with the two learned kernels (UK Retail, 3,941 items, rank 200); without it they are left out.
One core, BLAS held to one thread. Times are CPU time of the drawing thread, medians, with the least in brackets. The load average tells
how busy the machine was with other things, which lengthens wall-clock time most, and CPU time too.
"""


def digits(value: float, most: int) -> str:
    """Return a number with this many digits, or as a whole one."""
    return f"{value:.{most}g}" if value < 100 else f"{value:,.0f}"


def duration(ms: float) -> str:
    for unit, size in (("years", 3.156e10), ("days", 8.64e7), ("h", 3.6e6), ("min", 6e4), ("s", 1e3)):
        if ms >= 2 * size or (unit == "s" and ms >= size):
            value = ms / size
            return f"{digits(value, 2)} {unit}" if value < 1e4 else f"10^{len(str(int(value))) - 1} {unit}"
    return f"{ms:.3g} ms"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def about(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    load = " → ".join(str(machine[key][0]) for key in ("load_average", "load_average_after") if key in machine)
    return f"{machine['cpu']}, {machine['cores']} cores, load average {load}; Python {machine['python']}, {versions}.\n"


def cell(row: dict[str, Any]) -> list[str]:
    if row.get("published"):
        return [duration(row["wall_ms"]) + " (published, same kind of machine)", "", digits(row["ratio"], 3)]
    note = " (expected)" if row.get("expected") else ""
    ratio = digits(row["ratio"], 3) if row["ratio"] < 1e4 else f"{row['ratio']:.0e}"
    return [f"{duration(row['cpu_ms'])} ({duration(row['least_cpu_ms'])}){note}", duration(row["wall_ms"]), ratio]


def samplers(result: dict[str, Any]) -> str:
    rows = [
        [row["kernel"], "any" if row["size"] is None else str(row["size"]), f"`{row['sampler']}`" if "cpu_ms" in row else row["sampler"],
         *cell(row), f"≤ {row['target_ms']} ms" if "target_ms" in row else ""]
        for row in result["samplers"]
    ]  # fmt: skip
    return table(["kernel", "size", "sampler", "CPU time per sample", "wall-clock", "ratio to `Exact`", "target"], rows)


def brief(times: dict[str, float]) -> str:
    return f"{times['cpu_ms']:.2f} ms ({times['least_cpu_ms']:.2f})"


def single(result: dict[str, Any]) -> str:
    direct = [row for row in result["samplers"] if row["sampler"] == "Walk(DirectUp)" and row["size"] == 10]
    rows = [[f"`DirectUp`, a step at size 10, kernel {r['kernel']}", brief(r["step"]), "≤ 1.5 ms"] for r in direct]
    for name in "AB":
        if up := result.get(f"rejection_up {name}"):
            for which in ("first", "further"):
                what = f"`RejectionUp`, {which} proposal of a step at size 10, kernel {name}"
                rows.append([what, brief(up[which]), f"≤ {up[f'target_{which}_ms']} ms"])
        if held := result.get(f"memory {name}"):
            what = f"memory of a prepared `Exact` at size {held['size']}, kernel {name}, beside the kernel"
            rows.append([what, f"{held['mb']:.0f} MB", f"≤ {held['target_mb']} MB"])
    for size in (10, 50):
        found = result["catalogue"][f"size {size}"]
        small, large = found["cpu_ms"]
        nodes = f"{found['nodes'][large]} and {found['nodes'][small]} nodes"
        what = f"`Exact`, {int(large):,} items against {int(small):,}, rank 100, size {size}"
        rows.append([what, f"{found['ratio']:.2f} × (least {found['least_ratio']:.2f}), {nodes}", "≤ 1.3 ×"])
    for workers in result["workers"]:
        what = (
            f"two workers against one, size {workers['size']}, wall-clock, load average {workers['load_average']:.1f}"
        )
        ceiling = f"two programs that share nothing: {workers['ratio_of_programs']:.2f} ×"
        rows.append([what, f"{workers['ratio']:.2f} × the throughput ({ceiling})", "≥ 1.8 ×"])
    return table(["", "measured", "target"], rows)


def prepare(result: dict[str, Any]) -> str:
    header = ["condition of X", "`LowRankKernel(X, W)`", "XᵀX, single", "XᵀX, double", "one read"]
    header += ["ratio, single", "ratio, double", "extra memory"]
    rows = []
    for row in result["rows"]:
        times = [f"{row[f'{name}_cpu_ms']:.0f} ms" for name in ("kernel", "product_single", "product_double", "read")]
        ratios = [f"{row[f'ratio_{kind}']:.2f}" for kind in ("single", "double")]
        rows.append([f"{row['condition']:g}", *times, *ratios, f"{row['extra_mb']:.0f} MB"])
    return table(header, rows)


WALKS = """Walks are timed by the step and counted with the $k^2$ steps of the paper; their samples are approximate. `Rejection` is drawn
where that takes a second or so; elsewhere its figure is the time of a proposal times the known mean number of proposals.
"""
WORKERS = """Two workers need two idle cores, and share caches and memory. What two programs that share nothing else get from the
machine is the ceiling; it stands beside, and like all wall-clock times of a shared machine it moves by a tenth from run to run.
What workers lose is the interpreter's lock: counted once by hand, with `getrusage`, 12 waits in a sample of 10 items (some 7 ms) and
35 in one of 50 (some 100 ms), where a single worker has none, and 2.4 ms of system time for memory in the latter.
"""
PREPARE = """X is {n_items:,} × {width}, {dtype}. The baseline is one product XᵀX in row blocks plus one read of X, the product in single
precision (as X is stored) or in double precision (as the coordinates are computed). The target is {target_ratio:g} times the baseline
and 1 GB. Preparing is a read that checks X, one product XᵀX in double precision, where an operation takes twice as long, and one
triangular product of the same number of operations for the leverages: in single precision where X is, since all that leverages have to
be is a bound. An X whose condition exceeds about 65 takes one more pass (CholeskyQR2). Times are the least of {rounds} rounds.
"""


def main() -> None:
    found, prepared = (json.loads((HERE / "results" / f"{name}.json").read_text()) for name in ("samplers", "prepare"))
    page = [
        TOP, "## Samplers on the learned kernels\n", WALKS, samplers(found), about(found["machine"]),
        "## Single figures\n", single(found), WORKERS,
        "## Preparing a million items\n", PREPARE.format(**prepared, rounds=prepared["rows"][0]["rounds"]),
        prepare(prepared), about(prepared["machine"]),
    ]  # fmt: skip
    (HERE.parent / "docs" / "benchmarks.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
