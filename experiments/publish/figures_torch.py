"""The tables of ``docs/torch.md``, from the records of ``benchmarks/bench_torch.py``."""

from __future__ import annotations

from typing import Any

from units import duration

from ndpp_experiments.record import markdown_table, on_machine

Record = dict[str, Any]


def parts(*results: Record) -> dict[str, str]:
    """Return the block of the page: a table for each device."""
    settings = results[0]["settings"]
    about = (
        f"A value and a gradient of the mean log-probability of {settings['sets']} sets of {settings['size']} items, $L = XX^\\top$ with "
        f"{settings['rank']} columns, in double precision. The loop is one of `slogdet` over minors, of the n × n matrix or of rows of X. "
        "TensorFlow Probability takes the eigendecomposition of the n × n matrix."
    )
    return {"torch": "\n\n".join([about, *map(_table, results)]) + "\n"}


def _table(result: Record) -> str:
    names = list(dict.fromkeys(name for record in result["records"] for name in record["methods"]))
    rows = [
        [f"{record['items']:,}", *(_cell(record["methods"].get(name, {})) for name in names)]
        for record in result["records"]
    ]
    machine = result["machine"]
    where = machine["device"] if "device" in machine else on_machine(machine)
    return markdown_table(["items", *names], rows) + f"\n\n{where}{'' if 'device' in machine else ', one thread'}."


def _cell(one: Record) -> str:
    if "seconds" not in one:
        return str(one.get("skipped", "–"))
    off = one.get("gradient off by", 0.0)
    wrong = ", gradient not finite" if off is None else f", gradient off by {off:.0e}" if off > 1e-6 else ""
    return duration(one["seconds"], 3) + wrong
