"""The tables of ``docs/scale.md``, from the record of ``benchmarks/bench_scale.py``."""

from __future__ import annotations

from typing import Any

from units import duration

from ndpp_experiments.record import markdown_table, on_machine

Record = dict[str, Any]
ROW_BYTES = 64 * 4


def parts(result: Record) -> dict[str, str]:
    """Return the blocks of the page by name: what was measured, and what follows for other numbers of items."""
    header = ["X", "on disk", "prepared in (CPU)", "peak memory (before)"]
    header += ["sample of 10", "ratio to 10⁴ items", "ratio to memory", "read per sample"]
    aims = (
        "Targets for 10,000,000 × 64: prepared within {prepare_s:.0f} s, peak memory within {peak_mb:.0f} MB, a sample within {ratio} "
        "times that of 10,000 items in memory."
    ).format(**result["targets"])
    measured = [
        markdown_table(header, [line(row) for row in result["rows"]]),
        aims,
        on_machine(result["machine"]) + ".",
    ]
    header = ["items", "X", "table", "while preparing", "preparing, one core", "read per sample of 10", ""]
    known = {row["n_items"]: row for row in result["rows"] if row["width"] == 64}
    return {"measured": "\n\n".join(measured) + "\n", "computed": markdown_table(header, computed(known)) + "\n"}  # fmt: skip


def line(row: Record) -> list[str]:
    read = f"{row['rows_per_sample']:.0f} rows, {size(row['bytes_per_sample'])}"
    read = read if row["rows_per_sample"] else "kept in memory"
    return [
        f"{row['n_items']:,} × {row['width']}", f"{row['file_gb']:.2g} GB",
        f"{row['prepare_s']:.3g} s ({row['prepare_cpu_s']:.3g} s)", f"{row['peak_mb']:.0f} MB ({row['idle_mb']:.0f} MB)",
        f"{row['sample_ms']:.2g} ms", f"{row['ratio']:.2f} ({row['least_ratio']:.2f})",
        f"{row['memory_ratio']:.2f} ({row['least_memory_ratio']:.2f})" if "memory_ratio" in row else "–", read,
    ]  # fmt: skip


def computed(known: dict[int, Record]) -> list[list[str]]:
    """Return a line for each number of items: what was measured, and what is proportional to it."""
    largest, lines = known[max(known)], []
    for power in range(4, 10):
        n = 10**power
        row = known.get(n, largest)
        seconds, read = row["prepare_s"] * n / row["n_items"], size(row["bytes_per_sample"])
        origin = "measured" if n in known else "computed"
        lines.append(
            [f"$10^{power}$", size(ROW_BYTES * n), size(20 * n), size(24 * n), duration(seconds), read, origin]
        )
    return lines


def size(n_bytes: float) -> str:
    for unit, one in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= one:
            return f"{n_bytes / one:.3g} {unit}"
    return f"{n_bytes:.0f} B"
