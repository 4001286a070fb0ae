"""What every benchmark records of the machine, and how it takes the time.

Other work on a shared machine adds to wall-clock time, and less to the CPU time of the thread; both are kept, with their medians and
minima, and the load average says how much to believe the former.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import threadpoolctl


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    models = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        if info.exists()
        else []
    )
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("ndpp", "numpy", "scipy", "numba")},
        "blas": sorted({f"{p['internal_api']} {p['version']}" for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"}),
        "blas_threads": 1,
    }  # fmt: skip


def timed(call: Callable[[int], Any], *, least: int, seconds: float, most: int = 1000) -> dict[str, float]:
    """Return milliseconds of ``call(0)``, ``call(1)``, …: at least ``least`` calls, and more while ``seconds`` last."""
    cpu, wall, began = [], [], time.perf_counter()
    while len(cpu) < least or (len(cpu) < most and time.perf_counter() - began < seconds):
        on_clock, on_cpu = time.perf_counter(), time.thread_time()
        call(len(cpu))
        cpu.append(1e3 * (time.thread_time() - on_cpu))
        wall.append(1e3 * (time.perf_counter() - on_clock))
    return {
        "cpu_ms": statistics.median(cpu), "least_cpu_ms": min(cpu),
        "wall_ms": statistics.median(wall), "least_wall_ms": min(wall), "calls": len(cpu),
    }  # fmt: skip
