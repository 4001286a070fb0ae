"""Every operation of the GPU engine against the device's limits: bytes per second of a copy, flops of a large product."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ndpp.samplers.gpu.exact import ExactEngine
from ndpp.samplers.gpu.kernels.border import border
from ndpp.samplers.gpu.kernels.forms import correction, weighted_rows
from ndpp.samplers.gpu.kernels.invert import invert
from ndpp.samplers.gpu.kernels.runtime import even, tight
from ndpp.samplers.gpu.proposals import first_round

Json = dict[str, Any]


def milliseconds(call: Callable[[], Any], repeats: int = 3) -> float:
    call()
    start, end = (torch.Event("cuda", enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / repeats


def ceilings() -> Json:
    x = torch.randn(2**28, dtype=torch.float64, device="cuda")
    y = torch.empty_like(x)
    copy = max(2 * x.nbytes / milliseconds(lambda: y.copy_(x)) * 1e-9 for _ in range(3))
    a = torch.randn(8192, 8192, dtype=torch.float64, device="cuda")
    return {"copy_TB_s": copy, "fp64_TFLOP_s": max(2 * 8192**3 / milliseconds(lambda: a @ a) * 1e-9 for _ in range(2))}


Part = tuple[str, Callable[[], Any], float, float]  # name, call, bytes, flops


def parts(engine: ExactEngine, S: int, wanted: int, n: int, half: int, capacity: int, entering: bool) -> Iterator[Part]:
    """Yield the operations of the step after n items, on random numbers of the same shapes; each byte counts once."""
    r, c, h = engine.sampler.kernel.rank, first_round(engine.sampler.kernel.rank, wanted - n), half
    item = 8

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, device=engine.device)

    rows = torch.randint(0, engine.sampler.kernel.n_rows, (S, c), device=engine.device)
    table, w = normal(engine.sampler.kernel.n_rows, 2 * h), normal(S, h, 2)
    w_parts = w.view(S, 2 * h)
    own = S * c * (item * (2 * h + 1) + 8)
    if n == 0:
        yield "own forms qᵀZq", lambda: weighted_rows(table, rows, w_parts), own, 0
        return
    yield "gather rows of Q", lambda: engine.device_rows.take(rows), 2 * item * S * c * r, 0
    F, q = normal(S, capacity, h * 4, r), normal(S, c, r)
    lines = 4 * h * n
    used = F[:, :n].view(S, lines, r)
    yield (
        "products F·Qᵀ",
        lambda: torch.bmm(used, q.mT),
        item * S * (lines * r + c * r + lines * c),
        2 * S * lines * r * c,
    )
    inverse, minus = normal(S * h, 2, even(capacity), even(capacity)), normal(S, h, c)
    products = torch.bmm(used, q.mT).view(S, n, h, 4, c)
    wide = torch.view_as_complex(w)
    traffic = item * S * h * (4 * n * c + 2 * n * n + c)
    x, y, everyone = products[:, :, :, :2], products[:, :, :, 2:], torch.arange(S, device=engine.device)
    yield "correction", lambda: correction(x, y, inverse, wide, everyone), traffic, 8 * S * h * n * n * c
    yield "own forms qᵀZq", lambda: weighted_rows(table, rows, w_parts, minus), own + item * S * h * c, 0
    sides, new = normal(r, 4 * h * r), normal(S, r)
    if entering:
        basis = normal(S * capacity, r)
        yield (
            "another circle q̂·Z",
            lambda: basis @ sides,
            item * S * capacity * (4 * h + 1) * r,
            2 * S * capacity * r * 4 * h * r,
        )
        columns, some = normal(r, 2 * h * r), basis[: S * n]
        yield "another circle q̂·Z", lambda: some @ columns, item * S * n * (2 * h + 1) * r, 2 * S * n * r * 2 * h * r
        tight(inverse, n)[:, 0] += 4 * n**0.5 * torch.eye(n, device=engine.device)
        yield "invert G", lambda: invert(inverse, n), 4 * item * S * h * n * n, 8 * S * h * n**3
    else:
        to = F[:, n - 1].flatten(1)
        traffic = item * (4 * h * r * (S + r) + S * r)
        yield "one item more q̂·Z", lambda: torch.mm(new, sides, out=to), traffic, 2 * S * r * 4 * h * r
        yield "one item more q̂·Z", lambda: torch.mm(new, sides), traffic, 2 * S * r * 4 * h * r
        inner, four = torch.randn_like(inverse), normal(S * h, 4, n)
        small = item * S * h * n
        yield "border G⁻¹, trace", lambda: border(inverse, inner, four, four), small * (6 * n + 12), 0


def replay(engine: ExactEngine, wanted: int, ceiling: Json, S: int, stride: int) -> list[Json]:
    """Add up the times of every operation of a sample: all changes of circle, and every ``stride``-th other step."""
    total: dict[str, list[float]] = {}
    for first, stop, circle in engine.planner.schedule(wanted):
        steps = [(first, True, 1.0)]
        rest = list(range(first + 1, stop))
        steps += [(n, False, len(rest) / len(rest[::stride])) for n in rest[::stride]]
        for n, entering, weight in steps:
            for name, call, traffic, flops in parts(engine, S, wanted, n, circle.halves[0], max(1, stop - 1), entering):
                ms = milliseconds(call, 2)
                ideal = 1e3 * max(traffic / ceiling["copy_TB_s"], flops / ceiling["fp64_TFLOP_s"]) * 1e-12
                for i, value in enumerate((ms, traffic, flops, ideal)):
                    total.setdefault(name, [0.0] * 4)[i] += weight * value
            torch.cuda.empty_cache()
    return [
        {
            "kernel": name, "us_per_sample": 1e3 * ms / S, "TB_s": traffic / ms * 1e-9, "TFLOP_s": flops / ms * 1e-9,
            "bound": "copy" if traffic / ceiling["copy_TB_s"] > flops / ceiling["fp64_TFLOP_s"] else "fp64",
            "of_ceiling": ideal / ms,
        }
        for name, (ms, traffic, flops, ideal) in sorted(total.items(), key=lambda pair: -pair[1][0])
    ]  # fmt: skip


def show(rows: list[Json]) -> None:
    for row in rows:
        print(
            f"{row['kernel']:22}{row['us_per_sample']:9.2f} µs{row['TB_s']:7.2f} TB/s{row['TFLOP_s']:7.1f} TFLOP/s"
            f"{100 * row['of_ceiling']:6.0f} % of {row['bound']}", flush=True
        )  # fmt: skip
