"""The tables of ``docs/subsets.md``, from the records of ``benchmarks/bench_subset.py`` and ``subset_quality.py``."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

from units import duration

from ndpp_experiments.record import markdown_table, on_machine

Record = dict[str, Any]
TITLES = {
    "uniform": "uniform draws",
    "k-means++": "k-means++ seeds",
    "k-centre": "k-centre",
    "MMR": "MMR, without scores",
    "apricot": "apricot, facility location",
    "log det": "`subset`",
    "log det, length one": "`subset`, rows of length one",
    "log det, Gaussian": "`subset`, features of a Gaussian kernel",
    "coverage": '`subset(objective="coverage")`',
    "sample": '`subset(method="sample")`',
}
MODELS = {"probe": "linear probe", "ridge": "kernel ridge regression"}


def parts(speeds: list[Record], quality: Record) -> dict[str, str]:
    """Return the blocks of the page by name; ``speeds`` are from one machine each."""
    return {
        "speed": "\n".join(map(times, speeds)),
        "accuracy": "\n".join(accuracy(quality, data) for data in quality["data"]),
    }


def times(found: Record) -> str:
    rows, device = [], found["machine"].get("device")
    unit = "seconds" if device else "CPU seconds"
    for row in found["records"]:
        has_plain = "plain seconds" in row
        rows.append([
            f"{row['items']:,} × {row['columns']}", f"{row['k']:,}",
            f"in one pass, {row['chunks']} parts" + ", from disk" * ("gigabytes" in row) if row["chunks"] else "exact",
            duration(row[unit], 3), duration(row[f"plain {unit}"], 3) if has_plain else "–",
            f"{row['GPU memory, MB']:,.0f} MB, vectors included" if row.get("device") else
            f"{row['peak memory, MB'] - row['memory before, MB']:.0f} MB",
            f"{100 * (row['objective'] / row['plain objective'] - 1):+.3f} %" if has_plain else "–",
            f"{100 * (row['random'] / row['objective'] - 1):+.0f} %",
        ])  # fmt: skip
    header = [
        "vectors",
        "k",
        "",
        "`subset`",
        "plain greedy",
        "memory more",
        "objective, to plain",
        "random sets, to ours",
    ]
    about = f"{device}: time" if device else "CPU time"
    about += " and memory of the process in addition to the vectors. "
    about += "The plain greedy computes every gain after every item, in single precision."
    return f"{markdown_table(header, rows)}\n\n{about} {on_machine(found['machine'])}.\n"


def accuracy(found: Record, data: str) -> str:
    """Return the accuracies of both models on one data set; those that may be the best of their column in bold."""
    record = found["data"][data]
    tables = [_of_model(record, found["shares"], model) for model in MODELS]
    about = (
        f"{data.capitalize()}: {record['rows']:,} × {record['columns']}, {record['classes']} classes, {record['splits']} splits; "
        f"the largest class alone has {_percent(record['largest'])}. Accuracies in percent, ± half of a 95 % interval over the splits; "
        "bold are the highest and those whose intervals reach it."
    )
    return about + "\n\n" + "\n\n".join(tables) + "\n"


def _of_model(record: Record, shares: list[float], model: str) -> str:
    methods = [name for name in TITLES if name in record["methods"]]
    columns = []
    for share in shares:
        cells = {name: record["methods"][name][str(share)][model] for name in methods}
        top = max(cells.values(), key=fmean)
        least = fmean(top) - _half(top)
        columns.append(
            {name: _cell(values, is_best=fmean(values) + _half(values) >= least) for name, values in cells.items()}
        )
    rows = [[TITLES[name], *(column[name] for column in columns)] for name in methods]
    return markdown_table([MODELS[model], *(f"{share:.0%} of the rows" for share in shares)], rows)


def _half(values: list[float]) -> float:
    return float(1.96 * stdev(values) / len(values) ** 0.5)


def _percent(values: list[float]) -> str:
    return f"{100 * fmean(values):.1f} ± {100 * _half(values):.1f}"


def _cell(values: list[float], *, is_best: bool) -> str:
    return f"**{_percent(values)}**" if is_best else _percent(values)
