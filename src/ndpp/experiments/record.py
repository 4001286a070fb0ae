"""What an experiment leaves behind: tables as CSV, pictures as PNG and SVG, everything else as JSON, and one report of all.

The report is written from the JSON files of a folder, so experiments may be run one at a time, on different days: each
section says on which machine, with which versions and seed, and how long it took.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import threadpoolctl

from ndpp._atomic import replacing
from ndpp._json import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
PACKAGES = ("ndpp", "numpy", "scipy", "numba", "torch", "matplotlib", "arviz-stats")
DPI = 150
CPUINFO = Path("/proc/cpuinfo")


class Finding(NamedTuple):
    """One line of the comparison: what the paper says, what came out here, and whether a stated bound holds (if there is one)."""

    what: str
    paper: str
    ours: str
    holds: bool | None = None


@dataclass(frozen=True, eq=False)
class Result:
    """What an experiment found.

    Attributes
    ----------
    settings : mapping
        What it was run with.
    findings : sequence of Finding
        The paper's numbers beside ours.
    tables : mapping of str to rows
        Written as CSV; the key is added to the file's name, "" for the first one.
    figures : mapping of str to matplotlib figure
        Written as PNG and SVG.
    notes : sequence of str
        Paragraphs of Markdown: what to see, what differs and why.
    """

    settings: Mapping[str, Any]
    findings: Sequence[Finding]
    tables: Mapping[str, Sequence[Row]]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    notes: Sequence[str] = ()


def machine() -> Row:
    """Return what a figure in seconds depends on: processor, cores, load, versions, and when it was taken."""
    blas = {f"{p['internal_api']} {p['version']}" for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"}
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "load_average": load_average(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "blas": sorted(blas),
    }


def processor() -> str:
    """Return the name of the processor. Linux has it in /proc/cpuinfo on x86, and only in ``lscpu`` on ARM."""
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines() if CPUINFO.exists() else []
    if models := _values(lines, "model name"):
        return models[0]
    for command in (["lscpu"], ["sysctl", "machdep.cpu.brand_string"]):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            told = subprocess.run(
                command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
            )
            lines = told.stdout.splitlines()
            found = [_values(lines, name) for name in ("Vendor ID", "Model name", "machdep.cpu.brand_string")]
            if found[1] or found[2]:
                return " ".join(values[0] for values in found if values)
    return platform.processor() or platform.machine()


def load_average() -> list[float] | None:
    """Return the load of the last 1, 5 and 15 minutes, None on systems that do not keep it."""
    return [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None


def on_machine(found: Mapping[str, Any]) -> str:
    """Return a record of a machine in words.

    Examples
    --------
    >>> on_machine({"cpu": "ARM Neoverse-N1", "cores": 2, "load_average": [0.5, 1, 1], "python": "3.12", "versions": {"numpy": "2.4"}})
    'ARM Neoverse-N1, 2 cores, load average 0.5; Python 3.12, numpy 2.4'
    """
    loads = [found[key] for key in ("load_average", "load_average_after") if found.get(key) is not None]
    load = " → ".join(str(value[0] if isinstance(value, list) else value) for value in loads)
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    what = [found["cpu"], f"{found['cores']} cores", f"load average {load}" if load else "", found.get("date")]
    return f"{', '.join(filter(None, what))}; Python {found['python']}, {versions}"


def write(name: str, title: str, result: Result, output: Path, *, about: Row) -> None:
    """Write the files of one experiment; the JSON file comes last, so that where it is the others are."""
    output.mkdir(parents=True, exist_ok=True)
    tables = {_file(name, key, "csv"): rows for key, rows in result.tables.items()}
    for file, rows in tables.items():
        with replacing(output / file) as path:
            path.write_text(to_csv(rows), encoding="utf-8", newline="\n")
    pictures = [_file(name, key, "png") for key in result.figures]
    for key, figure in result.figures.items():
        for kind in ("png", "svg"):
            with replacing(output / _file(name, key, kind)) as path:
                figure.savefig(path, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None)
    content = {
        "name": name, "title": title, **about, "settings": dict(result.settings),
        "findings": [finding._asdict() for finding in result.findings], "notes": list(result.notes),
        "tables": list(tables), "figures": pictures,
    }  # fmt: skip
    with replacing(output / f"{name}.json") as path:
        text = json.dumps(content, indent=1, ensure_ascii=False, default=plain) + "\n"
        path.write_text(text, encoding="utf-8", newline="\n")


def read(output: Path, name: str) -> Row | None:
    """Return what was recorded of an experiment in a folder, None where there is nothing."""
    path = output / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def report(output: Path, names: Sequence[str]) -> Path:
    """Write ``report.md`` from what is recorded in a folder of these experiments, and return its path."""
    found = [record for name in names if (record := read(output, name)) is not None]
    quick = sorted({record["quick"] for record in found})
    head = [
        "# The paper's experiments, reproduced",
        "I. Han, M. Gartrell, E. Dohmatob, A. Karbasi, *Scalable MCMC sampling for nonsymmetric determinantal point "
        "processes*, ICML 2022. The paper's numbers stand beside ours; seconds are of different machines and languages, "
        "counts and distances are comparable.",
    ]
    stated = [finding["holds"] for record in found for finding in record["findings"] if finding["holds"] is not None]
    head.append(f"{sum(stated)} of {len(stated)} stated bounds hold; they are marked in the last column.")
    if True in quick:
        head.append(
            "**Quick settings**: smaller than the paper's, to see that everything runs. Full ones: leave `--quick` out."
        )
    path = output / "report.md"
    with replacing(path) as temporary:
        text = "\n\n".join(head + [_section(record) for record in found]) + "\n"
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path


def as_row(record: NamedTuple) -> Row:
    """Return a record as a row of a table: ``kept_by_chance`` becomes the column "kept by chance"."""
    return {name.replace("_", " "): value for name, value in record._asdict().items()}


def to_csv(rows: Sequence[Row]) -> str:
    """Return rows as CSV, a column for every key that occurs, numbers with six digits.

    Examples
    --------
    >>> print(to_csv([{"n": 10, "seconds": 0.12345678}, {"n": 20, "slope": None}]))
    n,seconds,slope
    10,0.123457,
    20,,
    <BLANKLINE>
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = [row.get(name) for name in names]
        writer.writerow(["" if v is None else f"{v:.6g}" if isinstance(v, float | np.floating) else v for v in values])
    return text.getvalue()


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table.

    Examples
    --------
    >>> print(markdown_table(["n", "seconds"], [["10", "0.1"]]))
    | n | seconds |
    | --- | --- |
    | 10 | 0.1 |
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None) -> str:
    """Return a number with three digits, as ``a·10^b`` where it is large or small.

    Examples
    --------
    >>> number(0.0123456), number(4.6e5), number(12.0), number(None)
    ('0.0123', '4.6·10^5', '12', '–')
    """
    if value is None:
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{float(mantissa):g}·10^{int(exponent)}"


UNITS = (("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("days", 86400.0), ("years", 3.156e7))


def duration(seconds: float, digits: int = 2) -> str:
    """Return a time with its unit, in powers of ten where it is absurd.

    Examples
    --------
    >>> duration(0.0065), duration(1.9), duration(110.0), duration(17_685.0), duration(2.6e13)
    ('6.5 ms', '1.9 s', '110 s', '4.9 h', '10^5 years')
    """
    unit, size = next((u for u in reversed(UNITS) if seconds >= (1 if u[0] == "s" else 2) * u[1]), UNITS[0])
    value = seconds / size
    if value > 1e4:
        return f"10^{len(f'{value:.0f}') - 1} {unit}"
    return f"{value:.{digits}g} {unit}" if value < 100 else f"{value:,.0f} {unit}"


def _values(lines: Sequence[str], name: str) -> list[str]:
    """Return what stands after ``name:``."""
    parts = (line.split(":", 1) for line in lines if ":" in line)
    return [value.strip() for key, value in parts if key.strip() == name and value.strip()]


def _section(record: Row) -> str:
    mark = {True: "yes", False: "**no**", None: ""}
    lines = [[f["what"], f["paper"] or "–", f["ours"], mark[f["holds"]]] for f in record["findings"]]
    settings = ", ".join(f"{key} = {value}" for key, value in record["settings"].items())
    run = (
        f"*{settings}. Seed {record['seed']}, {'quick' if record['quick'] else 'full'} settings, "
        f"{number(record['seconds'])} s on {on_machine(record['machine'])}.*"
    )
    files = ", ".join(f"[{file}](./{file})" for file in [*record["tables"], f"{record['name']}.json"])
    return "\n\n".join(
        [
            f"## {record['title']}",
            *(f"![{record['title']}]({file})" for file in record["figures"]),
            markdown_table(["", "paper", "here", "holds"], lines),
            *record["notes"],
            run,
            f"Data: {files}.",
        ]
    )


def _file(name: str, key: str, kind: str) -> str:
    return f"{name}-{key}.{kind}" if key else f"{name}.{kind}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
