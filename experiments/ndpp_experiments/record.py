"""What an experiment writes: tables as CSV, figures as PNG and SVG, the rest as JSON, and one report for the whole folder.

The report is built from the JSON files, so experiments can run one at a time, on different days. Each section names the machine,
the versions, the seed and the run time.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import threadpoolctl

from ndpp._atomic import replacing, write_text
from ndpp._show import Table, plain
from ndpp_experiments.claims import Claim, verdicts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

R = TypeVar("R")
K = TypeVar("K", bound=Hashable)
Say = Callable[[str], None]
"""Reports progress."""

PACKAGES = ("ndpp", "numpy", "scipy", "numba", "torch", "matplotlib", "arviz-stats")
DPI = 150
CPUINFO = Path("/proc/cpuinfo")


class Finding(NamedTuple):
    """One line of the comparison with the paper; ``holds`` says whether a stated bound is met, None if there is no bound.

    ``claim`` is the claim of the paper that the bound tests, None if it is about this library.
    """

    what: str
    paper: str
    ours: str
    holds: bool | None = None
    claim: Claim | None = None


@dataclass(frozen=True, eq=False)
class Result:
    """What an experiment found.

    Attributes
    ----------
    settings : mapping
        What it was run with.
    findings : sequence of Finding
        The paper's numbers and ours.
    tables : mapping of str to records
        Written as CSV. The key is appended to the name of the file; the main table has the key "".
    figure : matplotlib figure, optional
        Written as PNG and SVG.
    notes : sequence of str
        Paragraphs of Markdown.
    """

    settings: Mapping[str, Any]
    findings: Sequence[Finding]
    tables: Mapping[str, Sequence[NamedTuple]]
    figure: Figure | None = None
    notes: Sequence[str] = ()


def grouped(records: Iterable[R], key: Callable[[R], K]) -> dict[K, list[R]]:
    """Return the records by key, in order of appearance.

    Examples
    --------
    >>> grouped([1, 2, 3, 4], key=lambda n: n % 2)
    {1: [1, 3], 0: [2, 4]}
    """
    groups: dict[K, list[R]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def machine() -> dict[str, Any]:
    """Describe the machine: processor, cores, load, date and versions."""
    blas = {f"{p['internal_api']} {p['version']}" for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"}
    return {
        "cpu": processor(), "cores": os.cpu_count(), "load_average": load_average(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))}, "blas": sorted(blas),
    }  # fmt: skip


def processor() -> str:
    """Return the name of the processor. Linux lists it in /proc/cpuinfo on x86, but only in ``lscpu`` on ARM."""
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines() if CPUINFO.exists() else []
    if name := _value(lines, "model name"):
        return name
    environment = {**os.environ, "LC_ALL": "C"}
    for command in (["lscpu"], ["sysctl", "machdep.cpu.brand_string"]):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            lines = done.stdout.splitlines()
            if model := _value(lines, "Model name") or _value(lines, "machdep.cpu.brand_string"):
                return " ".join(filter(None, [_value(lines, "Vendor ID"), model]))
    return platform.processor() or platform.machine()


def _value(lines: Sequence[str], name: str) -> str | None:
    """Return the first value in lines of the form ``name: value``."""
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return next((value.strip() for key, value in pairs if key.strip() == name and value.strip()), None)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def load_average() -> list[float] | None:
    """Return the load over the last 1, 5 and 15 minutes, None where the system does not record it."""
    return [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None


def measured_here(path: Path) -> dict[str, Any]:
    """Return what a file of measurements holds, if it was measured on such a machine by this version; else nothing.

    What a script adds to it stands under one description of the machine.
    """
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    then, now = found.get("machine", {}), machine()
    same = all(then.get(name) == now[name] for name in ("cpu", "cores"))
    return found if same and then["versions"].get("ndpp") == now["versions"].get("ndpp") else {}


def on_machine(found: Mapping[str, Any]) -> str:
    """Return the record of a machine as text.

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


def table_of(records: Sequence[Any]) -> Table:
    """Return named tuples of one type as a table with a column per field."""
    return Table(records[0]._fields if records else (), records)


def write(name: str, title: str, result: Result, output: Path, *, about: Mapping[str, Any]) -> None:
    """Write the files of one experiment; the JSON file comes last, so that it exists only if the others do."""
    output.mkdir(parents=True, exist_ok=True)
    tables = {f"{name}-{key}.csv" if key else f"{name}.csv": records for key, records in result.tables.items()}
    for file, records in tables.items():
        write_text(output / file, table_of(records).to_csv())
    figure = result.figure
    if figure is not None:
        for kind in ("png", "svg"):
            with replacing(output / f"{name}.{kind}") as path:
                figure.savefig(path, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None)
            figure.set_layout_engine("none")  # the second kind has the layout of the first
    content = {
        "name": name, "title": title, **about, "settings": dict(result.settings),
        "findings": [finding._asdict() for finding in result.findings], "notes": list(result.notes),
        "tables": list(tables), "figures": [] if figure is None else [f"{name}.png"],
    }  # fmt: skip
    write_text(output / f"{name}.json", json.dumps(content, indent=1, ensure_ascii=False, default=plain) + "\n")


def write_part(path: Path | None, names: Sequence[str], record: Mapping[str, Any]) -> None:
    """Write what was measured, and the machine, under these names of a file of results, one in the other; what else is there stays."""
    if path is None:
        return
    whole = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    part = whole
    for name in names[:-1]:
        part = part.setdefault(name, {})
    part[names[-1]] = {"machine": machine(), **record}
    write_text(path, json.dumps(whole, indent=1, ensure_ascii=False, default=plain) + "\n")


def read(output: Path, name: str) -> dict[str, Any] | None:
    """Return the record of an experiment in a folder, None if there is none."""
    path = output / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def report(output: Path, names: Sequence[str]) -> Path:
    """Write ``report.md`` from the records of these experiments in a folder, and return its path."""
    write_text(output / "report.md", report_text(output, names))
    return output / "report.md"


def report_text(output: Path, names: Sequence[str]) -> str:
    """Return the text of ``report.md``."""
    found = [record for name in names if (record := read(output, name)) is not None]
    bounds = [finding for record in found for finding in record["findings"] if finding["holds"] is not None]
    on_claims, others = ([f["holds"] for f in bounds if bool(f.get("claim")) is wanted] for wanted in (True, False))
    head = [
        "# The paper's experiments, reproduced",
        "I. Han, M. Gartrell, E. Dohmatob, A. Karbasi, *Scalable MCMC sampling for nonsymmetric determinantal point "
        "processes*, ICML 2022. The tables list the paper's numbers and ours. Counts and distances are comparable; seconds come "
        "from different machines and languages.",
        f"The last column marks stated bounds. {sum(on_claims)} of {len(on_claims)} on claims of the paper hold, listed below, and "
        f"{sum(others)} of {len(others)} on this library and its own experiments.",
    ]
    if any(record["quick"] for record in found):
        head.append(
            "**Quick settings**, smaller than the paper's, to check that everything runs: they decide none of the paper's claims. "
            "Omit `--quick` for full ones."
        )
    claims = ["## The paper's claims", markdown_table(["where", "claim", "here", "by"], verdicts(found))]
    return "\n\n".join(head + claims + [_section(record) for record in found]) + "\n"


def _section(record: Mapping[str, Any]) -> str:
    mark = {True: "yes", False: "**no**", None: ""}
    findings = [[f["what"], f["paper"] or "–", f["ours"], mark[f["holds"]]] for f in record["findings"]]
    findings = [[cell.replace("(*)", r"(\*)") for cell in row] for row in findings]  # two in a cell would be emphasis
    settings = ", ".join(f"{key} = {value}" for key, value in record["settings"].items())
    run = (
        f"*{settings}. Seed {record['seed']}, {'quick' if record['quick'] else 'full'} settings, "
        f"{number(record['seconds'])} s on {on_machine(record['machine'])}.*"
    )
    files = ", ".join(f"[{file}](./{file})" for file in [*record["tables"], f"{record['name']}.json"])
    figures = [f"![{record['title']}]({file})" for file in record["figures"]]
    table = markdown_table(["", "paper", "here", "holds"], findings)
    return "\n\n".join([f"## {record['title']}", *figures, table, *record["notes"], run, f"Data: {files}."])


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown.

    Examples
    --------
    >>> print(markdown_table(["n", "seconds"], [["10", "0.1"]]))
    | n | seconds |
    | --- | --- |
    | 10 | 0.1 |
    """
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *lines))


def number(value: float | None) -> str:
    """Return a number with three digits, as ``a·10^b`` if it is large or small.

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
