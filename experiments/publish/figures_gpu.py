"""The text of ``docs/gpu.md``, from ``benchmarks/results/gpu.json`` and ``gpu_counters.json``; ``python experiments/publish/figures.py`` writes it."""

# ruff: noqa: E501  (prose)

from __future__ import annotations

from typing import Any

from ndpp_experiments.record import markdown_table

TOP = """# On a GPU

`device="cuda"` draws exact samples on a CUDA device, thousands side by side; `"cuda:1"` names one of several.

```python
import ndpp

kernel = ndpp.datasets.make_kernel(2000, 20, rng=0)
kernel.sample(100, size=5, rng=0, device="cuda")
sampler = ndpp.samplers.Exact.prepare(kernel, size=5, device="cuda")
```

Mixtures take it, too ({doc}`mixtures`), and so do estimators: `ndpp.NDPP(rank=200, device="cuda").fit(baskets)`. Walks run on the CPU.

It needs torch with CUDA (`pip install 'ndpp[gpu]'`); Triton, which comes with it on Linux, makes it faster and is not required. Without a
CUDA device there is a warning, and the CPU draws.

The distribution is that of the CPU engine, the draws are not: each sample has its own stream on the device, Philox4x32 as a function of
seed, sample, step and proposal. Sample $i$ depends on the seed and on $i$ alone, for any batch size. If a batch does not fit into the memory
of the device, it is halved; if not even one sample fits, or the device is lost, {py:class}`ndpp.errors.DeviceError` says so and carries the
draws so far, and `first=` continues from there.

## How it works

All samples on a circle share the matrices $Z_j$ at its nodes. A sample with items $Y$ carries an orthonormal basis $\\hat q$ of their
rows, the sides $U_j = Z_j \\hat q^\\top$ and $V_j = \\hat q Z_j$, and the inverse of $G_j = \\hat q Z_j \\hat q^\\top$. A proposal with row
$q$, proposed by its leverage, is accepted with probability $q^\\top M q / \\lVert q \\rVert^2$, computed by {eq}`gpu-form` of {doc}`gpu-internals`;
$M$ is never formed. Complex numbers are kept as pairs of real ones, so that nearly all of the work is real matrix products in double
precision. As a sample fills, fewer nodes suffice: moving to another circle rebuilds $U$, $V$ and $G^{-1}$ from the basis, which is cheap
here. Which circles samples go through is planned once, on a few samples of a fixed stream.

Two kinds of samples need no circle. If the size is free, items appear as a clock runs down ({py:class}`ndpp.samplers.Clock`), which takes
one real matrix per sample and no size in advance. It needs an eigenbasis of the kernel; where there is none, sizes are drawn
first, and circles are planned for every fourth size. A symmetric kernel is drawn by its eigenvectors, as on the CPU, for one size or any.

The monitors are those of the CPU: $\\operatorname{tr} M$ on every item, the surviving fraction, acceptance probabilities within $[0, 1]$,
$M\\hat q^\\top = 0$ before the last item. If they object to a sample, it moves to a circle of its own, with more nodes or another radius, and
as a last resort to the CPU, with the items it has; no item is drawn from a distribution in doubt. The monitors of clocks and eigenvectors
are rates that never rise and acceptance probabilities within $[0, 1]$. {doc}`gpu-internals` has the details.
"""


LARGE_SETS = """The tables are of samples that store their sides. Sets of more than 32 items do without, and few of their proposals reach all nodes
({doc}`gpu-internals`). Rates on this page are medians of three to seven calls, all from one run, after every setting had been chosen in earlier
ones; only the hardware counters below are older. Beside a checkout of 57f4955, in turns on one device, sets of 10 items of A come at 0.98 and
0.99 times its rate, where calls differ by 5 % and more, and those of B at 1.09 and 1.14 times. Some calls are slower
than others: the third of 10 items of A, 78,729 per second, probably since Triton compiles a kernel for the first sample that needs another circle,
and two of seven of the symmetric kernel, whose calls take a fraction of a second: 201,430 and 211,755 per second.
"""


def table(header: list[str], rows: list[list[str]]) -> str:
    return markdown_table(header, rows) + "\n"


def rates(rows: list[dict[str, Any]]) -> str:
    header = ["kernel", "items", "size", "samples/s", "worst tr M", "least fraction", "GB", "first call"]
    targets = {10: 50_000, 50: 5_000}
    lines = []
    for row in rows:
        asked = row["kernel"] == "A" and row["size"] in targets
        target = f" (target {targets[row['size']]:,})" if asked else ""
        seen = row["monitors"]
        lines.append([
            row["kernel"].split(",")[0], f"{row['n_items']:,}", str(row["size"] or "any"),
            f"{row['rate']:,.0f}{target}", *(f"{seen[name]:.0e}" if seen.get("recentred") else "–" for name in ("trace_error", "fraction")),
            f"{row['peak_GB']:.0f}", f"{row['first_call_s']:.1f} s",
        ])  # fmt: skip
    return table(header, lines)


HOT = 0.02
"""Share of a sample's time from which on an operation is hot."""


def kernels(rows: list[dict[str, Any]], wall: float) -> str:
    header = ["operation", "µs per sample", "share of its time", "TB/s", "TFLOP/s", "of its ceiling"]
    return table(header, [
        [row["kernel"], f"{row['us_per_sample']:.2f}", f"{100 * row['us_per_sample'] / wall:.1f} %", f"{row['TB_s']:.2f}",
         f"{row['TFLOP_s']:.1f}", f"{100 * row['of_ceiling']:.0f} % of {row['bound']}"]
        for row in rows
    ])  # fmt: skip


def verdict(tables: dict[str, list[dict[str, Any]]], walls: dict[str, float]) -> str:
    """Which hot operations are below three fifths of their ceiling, and which operations are not hot."""
    low, cool = [], set()
    for size, rows in tables.items():
        for row in rows:
            if row["us_per_sample"] < HOT * walls[size]:
                cool.add(row["kernel"])
            elif row["of_ceiling"] < 0.6:
                low.append(f"{row['kernel']} at size {size}, {100 * row['of_ceiling']:.0f} %")
    said = f"below it: {'; '.join(low)}" if low else "all reach it"
    return (
        f"An operation is hot if it takes {100 * HOT:.0f} % of a sample's time or more. Target: 60 % of its ceiling for every hot operation; {said}. "
        f"Not hot, at one size at least: {', '.join(sorted(cool))}.\n"
    )


def counters(rows: list[dict[str, Any]]) -> str:
    header = ["kernel", "rows", "registers per thread", "occupancy", "DRAM", "L2", "multiprocessors"]
    return table(header, [
        [row["kernel"], str(row["items"]), str(row["registers"]), *(f"{row[name]:.0f} %" for name in ("occupancy", "dram", "l2", "sm"))]
        for row in rows
    ])  # fmt: skip


def page(out: dict[str, Any], counted: list[dict[str, Any]]) -> str:
    machine, top, law, training = out["machine"], out["ceilings"], out["law"], out["training"]
    large = {row["size"]: row["rate"] for row in out["rates"] if row["kernel"] == "A, 10⁶"}
    double = {row["size"]: row for row in out["rates"] if row["kernel"] == "A"}
    total = {size: sum(row["us_per_sample"] for row in rows) for size, rows in out["kernels"].items()}
    parts = [
        TOP,
        "## What one device gave\n",
        f"`benchmarks/gpu.py` on an {machine['device']}, torch {machine['torch']}, Triton {machine['triton']}; whole calls, results "
        f"on the host included, medians. A and B are the kernels learned from UK Retail (3,941 items, rank 200); the million items are A's, each "
        f"many times with a tenth of noise; the symmetric kernel has rank 100 and 53 items per set on average. Measured ceilings: {top['copy_TB_s']:.2f} TB/s copy (bytes read and written), "
        f"{top['fp64_TFLOP_s']:.0f} TFLOP/s product in double precision.\n",
        rates(out["rates"]),
        f"A million items cost {double[10]['rate'] / large[10]:.2f} and {double[50]['rate'] / large[50]:.2f} times as much per sample as 3,941 "
        "(target: at most 1.3). The first call plans the circles and loads kernels; where Triton has not compiled them yet, that comes "
        "on top, some seconds once.\n",
    ]
    parts += [
        "### Is it right\n",
        f"Chi-square of {law['draws']:,} draws on a kernel that can be enumerated, {law['cells']} cells: p = {law['p_value']:.2f}. Against the CPU "
        "engine on kernel A, differences in standard errors:\n",
        table(
            ["size", "CPU, GPU samples", "mean log det, CPU and GPU", "difference", "largest of 40 inclusion frequencies", "of those against their probabilities"],
            [
                [str(row["size"]), f"{row['cpu_samples']:,}, {row['gpu_samples']:,}", "{:.3f}, {:.3f}".format(*row["mean_log_det"]),
                 f"{row['z_mean_log_det']:+.2f}", f"{row['largest_z_of_inclusion']:.2f}", f"{row['largest_z_against_probabilities']:.2f}"]
                for row in out["agreement"]
            ],
        ),
        "### How close to what the device can do\n",
        "Every operation of a sample's steps, replayed alone on arrays of the same shapes. The ceiling of an operation is the longer of its bytes "
        "at the copy rate and its flops at the product rate.\n",
    ]  # fmt: skip
    walls = {size: 1e6 / double[int(size)]["rate"] for size in out["kernels"]}
    for size, rows in out["kernels"].items():
        parts += [
            f"Kernel A, size {size}: {total[size]:.1f} µs of these in {walls[size]:.1f} µs per sample.\n",
            kernels(rows, walls[size]),
        ]
    parts += [
        LARGE_SETS,
        verdict(out["kernels"], walls),
        "Rows of Q of a small catalogue come from the cache, hence more than the copy rate. The tables leave out second rounds, "
        "for samples that accept none of their first proposals, launches, orthonormal bases and monitors.\n",
        "Hardware counters of the three kernels that are not matrix products (`ncu --clock-control none`), in percent of the device's peaks:\n",
        counters(counted),
        "Judging keeps the second-level cache nine tenths busy; with 49 rows, which tiles of 16 pad to 64, arithmetic takes over. Bordering moves "
        "bytes and little else: it fetches three tiles ahead, and rows of the inverse, which is written anew at every step, follow each other "
        "without gaps, so that no line of memory is read in part. Inverting is a chain of n pivots, each of which waits for the one before: "
        "neither memory nor arithmetic is busy.\n",
        "### Training\n",
        f"A whole step at n = {training['n_items']:,}, rank {training['rank']}, batch {training['batch']} takes {training['ms']:.1f} ms (target: at most 60"
        f"); $X^\\top X$ alone takes {training['gram_ms']:.1f} ms, and a step has two products of that size in addition to noise, Adam and "
        "the running mean, each a few passes over X. Parameters and their products are in single precision, determinants and the inner matrix in "
        "double: `tests/learning/test_kernel_objective.py` compares value and gradient with those of double precision.\n",
    ]  # fmt: skip
    return "\n".join(parts)
