"""The tables of ``docs/gpu.md`` and ``docs/gpu-internals.md``, from ``benchmarks/results/gpu.json`` and ``gpu_counters.json``."""

# ruff: noqa: E501  (prose)

from __future__ import annotations

from typing import Any

from ndpp_experiments.record import markdown_table


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


def forms(rows: list[dict[str, Any]]) -> str:
    header = ["kernel", "rank", "size", "samples/s with sides", "with coordinates"]
    return "Medians of interleaved calls; S is a synthetic kernel of 10,000 items.\n\n" + table(header, [
        [row["kernel"], str(row["rank"]), str(row["size"]), f"{row['sides']:,.0f}", f"{row['coordinates']:,.0f}"] for row in rows
    ])  # fmt: skip


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


def parts(out: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of ``docs/gpu.md`` by name."""
    machine, top, law, training = out["machine"], out["ceilings"], out["law"], out["training"]
    large = {row["size"]: row["rate"] for row in out["rates"] if row["kernel"] == "A, 10⁶"}
    double = {row["size"]: row for row in out["rates"] if row["kernel"] == "A"}
    return {
        "rates": f"`benchmarks/gpu.py` on an {machine['device']}, torch {machine['torch']}, Triton {machine['triton']}; whole calls, results "
        f"on the host included, medians. A and B are the kernels learned from UK Retail (3,941 items, rank 200); the million items are A's, each "
        f"many times with a tenth of noise; the symmetric kernel has rank 100. Measured ceilings: {top['copy_TB_s']:.2f} TB/s copy (bytes read and written), "
        f"{top['fp64_TFLOP_s']:.0f} TFLOP/s product in double precision.\n\n" + rates(out["rates"]) + "\n"
        f"A million items cost {double[10]['rate'] / large[10]:.2f} and {double[50]['rate'] / large[50]:.2f} times as much per sample as 3,941 "
        "(target: at most 1.3). The first call plans the circles and loads kernels; where Triton has not compiled them yet, that comes "
        "on top, some seconds once.\n",
        "law": f"Chi-square of {law['draws']:,} draws on a kernel that can be enumerated, {law['cells']} cells: p = {law['p_value']:.2f}. Against the CPU "
        "engine on kernel A, differences in standard errors:\n\n" + agreement(out["agreement"]),
        "training": f"A whole step at n = {training['n_items']:,}, rank {training['rank']}, batch {training['batch']} takes {training['ms']:.1f} ms (target: at most 60"
        f"); $X^\\top X$ alone takes {training['gram_ms']:.1f} ms, and a step has two products of that size in addition to noise, Adam and "
        "the running mean, each a few passes over X.\n",
    }  # fmt: skip


def agreement(rows: list[dict[str, Any]]) -> str:
    header = ["size", "CPU, GPU samples", "mean log det, CPU and GPU", "difference"]
    header += ["largest of 40 inclusion frequencies", "largest against the exact probabilities"]
    return table(header, [
        [str(row["size"]), f"{row['cpu_samples']:,}, {row['gpu_samples']:,}", "{:.3f}, {:.3f}".format(*row["mean_log_det"]),
         f"{row['z_mean_log_det']:+.2f}", f"{row['largest_z_of_inclusion']:.2f}", f"{row['largest_z_against_probabilities']:.2f}"]
        for row in rows
    ])  # fmt: skip


def internals(out: dict[str, Any], counted: list[dict[str, Any]]) -> dict[str, str]:
    """Return the blocks of ``docs/gpu-internals.md`` by name."""
    walls = {str(row["size"]): 1e6 / row["rate"] for row in out["rates"] if row["kernel"] == "A"}
    operations = [
        f"Size {size}: {sum(row['us_per_sample'] for row in rows):.1f} µs of these in {walls[size]:.1f} µs per sample.\n\n{kernels(rows, walls[size])}"
        for size, rows in out["kernels"].items()
    ]
    return {
        "forms": forms(out["forms"]), "operations": "\n".join([*operations, verdict(out["kernels"], walls)]),
        "counters": counters(counted),
    }  # fmt: skip
