"""The test suite on machines that are not at hand: ``make test-matrix``, or ``nox``.

Rounding differs between processors, BLAS kernels and library versions; the suite must not care. One run of the matrix is
the whole suite in one environment (a Python, the newest or the lowest dependencies) under one setting:

- the core type of OpenBLAS (``OPENBLAS_CORETYPE``): NumPy's and SciPy's kernels for other processors of this kind
- NumPy's own loops (``NPY_DISABLE_CPU_FEATURES``): compiled for this processor, or for the baseline
- Numba's target (``NUMBA_CPU_NAME``): this processor, or any

``nox`` runs six such combinations: each core type once, every Python, and every pair of values of the other three.
``nox -- --full`` runs the whole product. Other arguments after ``--`` go to pytest. The table of what was run is printed
and written to ``results/test-matrix.md``. ``nox -R`` reuses the environments as they are.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["suite", "table"]
nox.options.error_on_missing_interpreters = False

HERE = Path(__file__).parent
ROWS = HERE / ".nox" / "matrix"
TABLE = HERE / "results" / "test-matrix.md"
OLDEST = (3, 11)
SHORT = 6

# Core types, those with kernels of their own first, and the flag of /proc/cpuinfo that each cannot do without.
CORE_TYPES = {
    "x86_64": {"Haswell": "avx2", "Nehalem": "sse4_2", "SkylakeX": "avx512f", "Sandybridge": "avx", "Zen": "avx2"},
    "aarch64": {
        "NEOVERSEN1": "asimd",
        "CORTEXA53": "asimd",
        "ARMV8": "asimd",
        "THUNDERX2T99": "asimd",
        "CORTEXA57": "asimd",
        "TSV110": "asimd",
        "NEOVERSEV1": "sve",
        "NEOVERSEN2": "sve",
    },
}

# Modules that cannot be imported, and whose doctests cannot run, without torch. Test files skip themselves.
WITH_TORCH = ("src/ndpp/learning", "src/ndpp/samplers/gpu", "experiments/ndpp_experiments/demo.py")

PROBE = """
import json, platform
import numpy as np, scipy, scipy.linalg, numba, threadpoolctl
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
try:
    import torch
except ImportError:
    torch = None
A = np.random.default_rng(0).standard_normal((96, 96))
scipy.linalg.lu(A @ A.T), np.linalg.svd(A), scipy.linalg.schur(A), A @ A[0]
found = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
found |= {"numba": numba.__version__, "torch": torch.__version__ if torch else "none"}
found["target"] = numba.core.config.CPU_NAME or "host"
found["features"] = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
found["blas"] = [i.get("architecture", i["internal_api"]) for i in threadpoolctl.threadpool_info()
                 if i["user_api"] == "blas" and "torch" not in i["filepath"]]
print(json.dumps(found))
"""


class Setting(NamedTuple):
    """What one run of the suite is told by its environment variables."""

    core: str
    features: str
    target: str


class Run(NamedTuple):
    """One run of the suite: an environment and a setting."""

    python: str
    versions: str
    setting: Setting

    @property
    def name(self) -> str:
        """Its name as a file name."""
        return "-".join((self.python, self.versions, *self.setting))


def find_pythons() -> list[str]:
    """["3.11", …]: every Python that the package supports, on PATH or kept by pyenv; all of them are on PATH then."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [sys.executable, *(f"python3.{minor}" for minor in range(OLDEST[1], 20)), *pyenv.glob("3.*/bin/python")]
    found: dict[tuple[int, int], str] = {}
    for name in names:
        ask = [str(name), "-c", "import os, sys; print(*sys.version_info[:2], os.path.dirname(sys._base_executable))"]
        try:
            major, minor, folder = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split(None, 2)
        except (OSError, ValueError, subprocess.CalledProcessError):  # not there, or a shim without a Python
            continue
        found.setdefault((int(major), int(minor)), folder.strip())
    found = {version: found[version] for version in sorted(found) if version >= OLDEST}
    os.environ["PATH"] = os.pathsep.join([*found.values(), os.environ.get("PATH", "")])
    return [".".join(map(str, version)) for version in found]


def find_cores() -> tuple[list[str], dict[str, str]]:
    """(core types that this processor can run, {core type: why it cannot})."""
    known = CORE_TYPES.get({"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine()), {})
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:  # not Linux: each is tried, and a crash is reported as such
        flags = set(known.values())
    return (
        [core for core, flag in known.items() if flag in flags],
        {core: f"this processor has no {flag}" for core, flag in known.items() if flag not in flags},
    )


PYTHONS = find_pythons()
CORES, IMPOSSIBLE = find_cores()


def plan(full: bool) -> list[Run]:
    """The runs to make. Short: each core type and each Python once at least, and all pairs of the other settings."""
    cores = CORES or ["default"]
    features, targets, versions = ("all", "baseline"), ("host", "generic"), ("newest", "lowest")
    if full:
        environments = itertools.product(PYTHONS, versions)
        settings = list(itertools.starmap(Setting, itertools.product(cores, features, targets)))
        return [Run(*environment, setting) for environment in environments for setting in settings]
    pattern = [  # versions, features, target: the first four are an orthogonal array
        ("newest", "all", "host"),
        ("lowest", "baseline", "host"),
        ("newest", "baseline", "generic"),
        ("lowest", "all", "generic"),
        ("newest", "all", "generic"),
        ("newest", "baseline", "host"),
    ]
    newer = itertools.cycle(PYTHONS)  # torch may be had for the oldest alone: it comes first
    runs = []
    for core, (version, feature, target) in zip(itertools.cycle(cores), pattern[:SHORT]):
        python = next(newer) if version == "newest" else PYTHONS[0]
        runs.append(Run(python, version, Setting(core, feature, target)))
    return runs


def commit() -> str:
    """The state of the working tree, the table itself aside."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", f":!{TABLE.relative_to(HERE).as_posix()}")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with changes" if changed else "")


@nox.session(python=PYTHONS)
@nox.parametrize("versions", [nox.param(v, id=v) for v in ("newest", "lowest")])
def suite(session: nox.Session, versions: str) -> None:
    """The whole suite in one environment, once for each setting."""
    chosen = plan("--full" in session.posargs)
    runs = [run for run in chosen if (run.python, run.versions) == (session.python, versions)]
    if not runs:
        session.skip("no run of the short matrix: ask for all of them with -- --full")
    install(session, versions)
    failed = [run.name for run in runs if not run_suite(session, run)]
    if failed:
        session.error(f"failed: {', '.join(failed)}")


def install(session: nox.Session, versions: str) -> None:
    """Everything but torch as uv resolves it, wheels only; then torch by pip, where it comes without CUDA."""
    session.install("--upgrade", "pip", "uv")
    folder = Path(session.virtualenv.location).resolve() / "matrix"
    folder.mkdir(exist_ok=True)
    without, lock = folder / "without-torch.txt", folder / "versions.txt"
    without.write_text("torch ; python_version < '0'\n")
    resolution = "lowest-direct" if versions == "lowest" else "highest"
    wheels = ("--only-binary", ":all:", "-q")
    environment = {"VIRTUAL_ENV": session.virtualenv.location}
    compile_ = ("uv", "pip", "compile", "pyproject.toml", "--extra", "dev", "--resolution", resolution, "--upgrade")
    session.run_install(*compile_, *wheels, "--override", str(without), "-o", str(lock), env=environment)
    session.run_install("uv", "pip", "install", *wheels, "-r", str(lock), env=environment)
    session.run_install("uv", "pip", "install", "-q", "--no-deps", "-e", ".", "-e", "experiments", env=environment)
    torch = ("python", "-m", "pip", "install", "-q", "-c", "constraints.txt", "torch")
    report = folder / "torch.json"
    report.unlink(missing_ok=True)
    session.run_install(*torch, "--dry-run", "--report", str(report), silent=True, success_codes=[0, 1])
    if "--torch" in session.posargs or comes_without_cuda(report):
        session.run_install(*torch)


def comes_without_cuda(report: Path) -> bool:
    """Whether pip can install what was asked for, and no CUDA with it."""
    if not report.exists():
        return False
    names = [package["metadata"]["name"] for package in json.loads(report.read_text())["install"]]
    return not any(name.startswith(("nvidia", "cuda")) for name in names)


def variables(setting: Setting, features: list[str], cache: Path) -> dict[str, str]:
    """The environment variables of a setting; compiled functions are kept apart."""
    env = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    env["NUMBA_CACHE_DIR"] = str(cache)
    if setting.core != "default":
        env["OPENBLAS_CORETYPE"] = setting.core
    if setting.features == "baseline":
        env["NPY_DISABLE_CPU_FEATURES"] = " ".join(features)
    if setting.target == "generic":
        env["NUMBA_CPU_NAME"] = "generic"
    return env


def probe(session: nox.Session, env: dict[str, str]) -> dict | None:
    """What is in use under these environment variables; None where it crashes."""
    answer = session.run("python", "-c", PROBE, env=env, silent=True, success_codes=range(-64, 256), log=False)
    if answer is None:
        session.skip("installed, and nothing run")
    lines = str(answer).strip().splitlines()
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None


def run_suite(session: nox.Session, run: Run) -> bool:
    """Run the suite, keep its row of the table, and say whether it passed."""
    ROWS.mkdir(parents=True, exist_ok=True)
    cache = ROWS.parent / f"numba-{run.python}-{run.versions}-{run.setting.target}"
    row: dict = {"commit": commit()}
    usual = probe(session, {})
    if usual is None:
        session.error("this environment is broken: NumPy, SciPy, Numba and threadpoolctl cannot be used together")
    env = variables(run.setting, usual["features"], cache)
    found = probe(session, env)
    if found is None:
        row["skipped"] = "the processor cannot run this core type"
    elif any(core.lower() != run.setting.core.lower() for core in found["blas"]) and run.setting.core != "default":
        row["skipped"] = f"OpenBLAS falls back to {', '.join(sorted(set(found['blas'])))}"
    elif run.setting.features == "baseline" and found["features"]:
        row["skipped"] = f"NumPy still uses {' '.join(found['features'])}"
    else:
        xml = ROWS / f"{run.name}.xml"
        xml.unlink(missing_ok=True)
        chosen = [arg for arg in session.posargs if arg not in ("--full", "--torch")]
        needless = WITH_TORCH if found["torch"] == "none" else ()
        start = time.monotonic()
        pytest = ("python", "-m", "pytest", "-n", "auto", "--dist", "worksteal", "-q", f"--junitxml={xml}")
        try:
            session.run(*pytest, *(f"--ignore={path}" for path in needless), *chosen, env=env)
            errors = 0
        except CommandFailed:  # also where no test has failed, as when more laws were checked than declared
            errors = 1
        row |= found | {"seconds": time.monotonic() - start, "tests": chosen, **counts(xml)}
        row["failed"] = max(row["failed"], errors)
    (ROWS / f"{run.name}.json").write_text(json.dumps(row))
    return "skipped" in row or (row["failed"] == 0 and row["passed"] > 0)


def counts(xml: Path) -> dict[str, int]:
    """Tests passed, failed and passed over, from pytest's own record; a run without one has failed."""
    if not xml.exists():
        return {"passed": 0, "failed": 1, "passed over": 0}
    suites = ElementTree.parse(xml).getroot().iter("testsuite")
    total = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for one in suites:
        for name in total:
            total[name] += int(one.get(name, 0))
    failed = total["failures"] + total["errors"]
    return {"passed": total["tests"] - failed - total["skipped"], "failed": failed, "passed over": total["skipped"]}


@nox.session(python=False)
def table(session: nox.Session) -> None:
    """Print the table of the runs made on this state of the working tree, and write it down."""
    now = commit()
    lines = [
        "# The test suite on other machines",
        "",
        f"Written by `make test-matrix` on {platform.machine()} ({platform.system()}), {os.cpu_count()} processors, "
        f"commit {now}.",
        "",
        "| Python | dependencies | NumPy, SciPy, Numba, torch | core type (NumPy, SciPy) | NumPy's loops | Numba's target "
        "| passed | failed | skipped | minutes |",
        "|---|---|---|---|---|---|--:|--:|--:|--:|",
    ]
    missing = []
    for run in plan("--full" in session.posargs):
        path = ROWS / f"{run.name}.json"
        row = json.loads(path.read_text()) if path.exists() else {}
        if row.get("commit") != now:
            missing.append(f"{run.name}: not run")
        elif "skipped" in row:
            missing.append(f"{run.name}: {row['skipped']}")
        else:
            lines.append(table_line(run, row))
    missing += [f"{core}: {why}" for core, why in IMPOSSIBLE.items()]
    if missing:
        lines += ["", "Left out:", "", *(f"- {line}" for line in missing)]
    text = "\n".join(lines) + "\n"
    TABLE.write_text(text, encoding="utf-8")
    print(text)  # noqa: T201 - it is what was asked for
    session.log(f"written to {TABLE.relative_to(HERE)}")


def table_line(run: Run, row: dict) -> str:
    """One run as a row of the table."""
    used = ", ".join(row[name] for name in ("numpy", "scipy", "numba", "torch"))
    loops = "baseline" if run.setting.features == "baseline" else " ".join(row["features"]) or "baseline"
    only = f" ({' '.join(row['tests'])})" if row["tests"] else ""
    cells = [row["python"], run.versions + only, used, ", ".join(row["blas"]), loops, row["target"]]
    numbers = [row["passed"], row["failed"], row["passed over"], f"{row['seconds'] / 60:.1f}"]
    return "| " + " | ".join(map(str, cells + numbers)) + " |"
