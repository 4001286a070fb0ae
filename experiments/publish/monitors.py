"""Trace and eigenvalues of M during exact samples of the learned kernels: ``python experiments/publish/monitors.py [SAMPLES] [FILE.json]``.

For each kernel and size: the largest |tr M − items still to draw| over all items of all samples, the range of the eigenvalues of sym(M)
at every tenth item, the smallest surviving fraction, and the re-centrings per sample.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ndpp.samplers import Exact
from ndpp.samplers.base import stream, stream_key
from ndpp_experiments.kernels import from_files
from ndpp_experiments.record import machine


def watch(sampler: Exact, size: int, samples: int) -> dict[str, float]:
    key, traces, lowest, highest, fractions, recentred = stream_key(0), [0.0], 0.0, 0.0, [1.0], 0
    for i in range(samples):
        rng, nodes = stream(key, i), sampler.nodes(size)
        state = nodes.start()
        while len(state.rows) < size:
            traces.append(abs(state.inclusion.trace - (size - len(state.rows))))
            if len(state.rows) % 10 == 0:
                values = np.linalg.eigvalsh((state.inclusion.M + state.inclusion.M.T) / 2)
                lowest, highest = min(lowest, values[0]), max(highest, values[-1] - 1)
            state = nodes.add(state, sampler.index.draw(rng, state.inclusion.M))
        fractions.append(state.report.fraction)
        recentred += state.report.recentred
    return {
        "trace_error": max(traces),
        "below_zero": -lowest,
        "above_one": highest,
        "fraction": min(fractions),
        "recentred": recentred / samples,
    }


def main(samples: int, out: Path | None) -> None:
    results: dict[str, Any] = {"machine": machine(), "samples": samples, "rows": []}
    for named in from_files(print):
        for size in (10, 50, 100, 190):
            row = {
                "kernel": named.name[-2],
                "size": size,
                **watch(Exact.prepare(named.kernel, size=size), size, samples),
            }
            results["rows"].append(row)
            print("  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    if out:
        out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    with threadpool_limits(1):
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, Path(sys.argv[2]) if len(sys.argv) > 2 else None)
