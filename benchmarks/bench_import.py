"""Time of ``import ndpp``, compared with importing its dependencies, each in a fresh interpreter.

The ratio matters, not the seconds; it should stay below ``TARGET``. Run ``python benchmarks/bench_import.py``, or
``make bench ARGS="-k import"``.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

FLOOR = "import numpy, scipy.linalg"
TARGET = 1.3
ROUNDS = 11


def seconds(statement: str) -> float:
    """Return the time a fresh interpreter takes to run ``statement``, without its own start."""
    code = f"import time\nbegan = time.perf_counter()\n{statement}\nprint(time.perf_counter() - began)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def ratio(rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Return the ratio of the minimum times, and both times; other load on the machine only ever lengthens a time."""
    pairs = [(seconds(FLOOR), seconds("import ndpp")) for _ in range(rounds)]
    floor, ours = (min(column) for column in zip(*pairs))
    return ours / floor, floor, ours


@pytest.mark.parametrize("statement", [FLOOR, "import ndpp"], ids=["floor", "ndpp"])
def test_import_time(benchmark: BenchmarkFixture, statement: str) -> None:
    benchmark.pedantic(lambda: seconds(statement), rounds=5, warmup_rounds=1)


def test_import_ratio(benchmark: BenchmarkFixture) -> None:
    value, floor, ours = benchmark.pedantic(ratio, rounds=1)
    benchmark.extra_info.update(ratio=value, floor_s=floor, ndpp_s=ours)
    assert value <= TARGET


if __name__ == "__main__":
    value, floor, ours = ratio()
    print(f"import ndpp {ours * 1e3:.0f} ms, {FLOOR!r} {floor * 1e3:.0f} ms, ratio {value:.2f} (target {TARGET})")
