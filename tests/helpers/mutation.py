"""Do the tests notice a wrong line? Change one piece of the source at a time, run the tests, and see whether any fails.

    python tests/helpers/mutation.py list -o mutants.json                                   # draw mutants, the same for the same seed
    python tests/helpers/mutation.py run mutants.json -o before.json --tests OLD/tests      # run them against the tests of a checkout
    python tests/helpers/mutation.py run mutants.json -o after.json --tests NEW/tests       # and of another
    python tests/helpers/mutation.py compare before.json after.json                         # exit 1: some were noticed before only

A mutant is a file, a line, a column, the text there and the text that takes its place; the rest of the file stays as it is, byte for
byte. Comparisons, arithmetic, signs, small constants, ``and``/``or``, ``.T``, ``.real``, minima and maxima, branches, tuples returned,
and statements that only have an effect are changed. Type hints, decorators, messages of errors, assertions and module constants are
not: a different tuning constant is not a mistake.

Each mutant has a copy of source and tests of its own, in which nothing but the changed file has to be compiled again. A mutant counts
as killed when a test fails, the package cannot be imported, or the tests need far longer than they do without it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from patience import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("linalg", "items", "samplers", "laws", "inference")
UNTOUCHED = "ndpp/samplers/gpu/kernels/"  # Triton's part runs on a GPU only
TESTS = (
    *("linalg", "items", "samplers", "laws", "inference"),
    *("test_kernel*.py", "test_inference.py", "test_scale.py"),  # where a checkout before 0.2 has them
)
EVERY = {"laws": "laws/test_contract.py", "inference": "laws/test_contract.py"}
"""The contract that judges a package; that of samplers for all others."""
SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "/"),
    ast.Pow: ("**", "*"), ast.BitAnd: ("&", "|"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
NAMES = {"minimum": "maximum", "min": "max", "argmax": "argmin", "any": "all", "real": "imag"}
NAMES |= {there: here for here, there in NAMES.items()}
STRINGS = {"left": "right", "right": "left"}

HEAVY = ("numba", "scipy.linalg", "scipy.stats", "torch")  # imported once, for all mutants


class Mutant(NamedTuple):
    """``old``, at ``column`` of a line that reads ``text``, becomes ``new``; ``file`` is relative to the source folder."""

    file: str
    line: int
    column: int
    old: str
    new: str
    text: str


# -- making mutants ----------------------------------------------------------------------------------------------------------


@cache
def mutants_of(file: str, code: str) -> list[Mutant]:
    """Return every mutant of a module."""
    lines = code.splitlines()
    found = []
    for first, end, new in _changes(ast.parse(code), lines):
        (row, start), (last, stop) = first, end
        if row == last and (old := lines[row - 1][start:stop]) != new:
            found.append(Mutant(file, row, start, old, new, lines[row - 1]))
    return sorted(set(found))


Place = tuple[int, int]
Change = tuple[Place, Place, str]


def _changes(node: ast.AST, lines: list[str]) -> Iterator[Change]:
    """Yield what to replace below a node, by its ends, and by what."""
    if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr) or _is_setting(node):
        return
    if isinstance(node, ast.expr | ast.stmt):
        yield from _changes_here(node, lines)
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _changes(child, lines)


def _is_setting(node: ast.AST) -> bool:
    """Constants of a module or class, warnings, and what a field or type variable is declared with."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("warnings.warn", "field", "TypeVar")
    constant = isinstance(node, ast.Assign | ast.AnnAssign) and node.col_offset == 0
    return constant or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")


def _changes_here(node: ast.expr | ast.stmt, lines: list[str]) -> Iterator[Change]:
    def piece(part: ast.expr) -> str:
        return "\n".join(lines)[_flat(_start(part, lines), lines) : _flat(_end(part, lines), lines)]

    start, end = _start(node, lines), _end(node, lines)
    match node:
        case ast.Compare():
            for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators):
                yield from _operator(left, op, right, lines)
        case ast.BinOp():
            yield from _operator(node.left, node.op, node.right, lines)
        case ast.BoolOp():
            for left, right in zip(node.values, node.values[1:]):
                yield from _operator(left, node.op, right, lines)
        case ast.UnaryOp(op=ast.USub() | ast.Not() as op):
            yield start, (start[0], start[1] + (1 if isinstance(op, ast.USub) else len("not "))), ""
        case ast.Constant(value=bool(value)):
            yield start, end, str(not value)
        case ast.Constant(value=int() | float() as value) if 0.1 <= abs(value) <= 4 or value == 0:
            yield start, end, str(value + 1)
        case ast.Constant(value=str(value)) if value in STRINGS:
            yield start, end, f'"{STRINGS[value]}"'
        case ast.Attribute(attr="T"):
            yield (end[0], end[1] - len(".T")), end, ""
        case ast.Attribute(attr=name) if name in NAMES:
            yield (end[0], end[1] - len(name)), end, NAMES[name]
        case ast.Name(id=name) if name in NAMES:
            yield start, end, NAMES[name]
        case ast.Call(func=ast.Attribute(attr="conj" | "conjugate" as name), args=[]):
            yield (end[0], end[1] - len(f".{name}()")), end, ""
        case ast.IfExp():
            yield start, end, f"{piece(node.orelse)} if {piece(node.test)} else {piece(node.body)}"
        case ast.Return(value=ast.Tuple(elts=[one, two, *_])):
            yield _start(one, lines), _end(two, lines), f"{piece(two)}, {piece(one)}"
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield start, end, "pass"


def _operator(left: ast.expr, op: ast.AST, right: ast.expr, lines: list[str]) -> Iterator[Change]:
    if type(op) in SWAPS:
        old, new = SWAPS[type(op)]
        row, after = _end(left, lines)
        between = lines[row - 1][after:] if right.lineno != row else lines[row - 1][after : _start(right, lines)[1]]
        if (at := between.find(old)) >= 0:  # else it stands on the next line
            yield (row, after + at), (row, after + at + len(old)), new


def _start(node: ast.expr | ast.stmt, lines: list[str]) -> Place:
    return node.lineno, len(lines[node.lineno - 1].encode()[: node.col_offset].decode())


def _end(node: ast.expr | ast.stmt, lines: list[str]) -> Place:
    row, column = node.end_lineno or 0, node.end_col_offset or 0
    return row, len(lines[row - 1].encode()[:column].decode())


def _flat(place: Place, lines: list[str]) -> int:
    return sum(len(line) + 1 for line in lines[: place[0] - 1]) + place[1]


def drawn_mutants(source: Path, count: int, seed: int) -> list[Mutant]:
    """Return ``count`` mutants: one of each file in turn, until there are enough."""
    rng, shuffled = random.Random(seed), []
    for path in sorted(path for package in PACKAGES for path in (source / "ndpp" / package).rglob("*.py")):
        file = path.relative_to(source).as_posix()
        if not file.startswith(UNTOUCHED) and (found := mutants_of(file, path.read_text(encoding="utf-8"))):
            shuffled.append(rng.sample(found, len(found)))
    rounds = max(map(len, shuffled))
    in_turn = [found[i] for i in range(rounds) for found in shuffled if i < len(found)]
    return sorted(in_turn[:count])


def mutated(mutant: Mutant, code: str) -> str | None:
    """Return the code with the mutant in it; None where its line is gone. A line that has moved is known by its text."""
    lines = code.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if line.rstrip("\r\n") == mutant.text]
    if not places:
        return None
    i = min(places, key=lambda i: abs(i + 1 - mutant.line))
    stop = mutant.column + len(mutant.old)
    assert mutant.text[mutant.column : stop] == mutant.old, mutant
    lines[i] = lines[i][: mutant.column] + mutant.new + lines[i][stop:]
    return "".join(lines)


# -- running them ------------------------------------------------------------------------------------------------------------


def home_of(mutant: Mutant, source: Path) -> Path | None:
    """Return the file with the mutant's line: its own or, if the code has moved, the only other one; None if there is none."""

    def has_it(path: Path) -> bool:
        return path.is_file() and mutated(mutant, path.read_text(encoding="utf-8")) is not None

    if has_it(source / mutant.file):
        return source / mutant.file
    elsewhere = [path for package in PACKAGES for path in (source / "ndpp" / package).rglob("*.py") if has_it(path)]
    return elsewhere[0] if len(elsewhere) == 1 else None


def imports(path: Path, modules: set[str]) -> bool:
    """Tell whether a file imports a module of one of these names, from any package."""
    names = "|".join(map(re.escape, sorted(modules)))
    statement = rf"^(?:from|import) (?:[^(\n]*|[^(]*\([^)]*)\b_?(?:{names})\b"
    return re.search(statement, path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def forget_compiled(source: Path, changed: Path) -> None:
    """Delete compiled code that may contain a function of the changed file.

    numba compares the time of a function's own file, but also keeps what it calls in other files.
    """
    stale, files = {changed.stem.lstrip("_")}, list(source.rglob("*.py"))
    while more := {path.stem.lstrip("_") for path in files if imports(path, stale)} - stale:
        stale |= more
    for path in source.rglob("__pycache__/*.nb[ic]"):
        if path.name.split(".")[0].lstrip("_") in stale:
            path.unlink()
    for path in changed.parent.glob(f"__pycache__/{changed.stem}.*.pyc"):  # Python compares whole seconds, and sizes
        path.unlink()


def files_to_run(tests: Path, mutant: Mutant | None, *, everything: bool) -> list[str]:
    """Return the files to run: named after the changed module, or importing it; after its packages; then its contract, or all ``TESTS``."""
    within = [path for pattern in TESTS for path in sorted(tests.glob(pattern))]
    found = [path for one in within for path in (sorted(one.rglob("test_*.py")) if one.is_dir() else [one])]
    first: list[Path] = []
    if mutant:
        *packages, module = (part.lstrip("_") for part in Path(mutant.file).with_suffix("").parts[1:])
        small_first = sorted(found, key=lambda path: path.stat().st_size)
        own = {f"test_{module}", f"test_{packages[-1]}_{module}"}
        first = [path for path in found if path.stem in own]
        first = first or [path for path in small_first if imports(path, {module})]
        first += [path for part in packages for path in found if path.stem == f"test_{part}"]
    rest = [tests / EVERY.get(packages[0], "samplers/test_contract.py")] if mutant and not everything else found
    return [path.relative_to(tests.parent).as_posix() for path in dict.fromkeys(first + rest)]


def run_tests(tree: Path, files: list[str], options: argparse.Namespace) -> tuple[int, str]:
    """Run pytest in a copy of the tree, in a process of its own; return its exit code (< 0: the signal) and what it printed."""
    arguments = [
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "_hypothesis_pytestplugin",
        "--hypothesis-seed=0",
        "--tb=line",
        "-rfE",
        *files,
    ]
    arguments += [f"--deselect={test}" for test in options.deselect]
    log = tree / "log.txt"
    if not (child := os.fork()):
        code = 70
        try:
            with log.open("w") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            os.setsid()
            os.chdir(tree)
            os.environ["PYTHONPATH"] = str(tree / "src")  # for the processes that tests start
            sys.path.insert(0, str(tree / "src"))
            if not str(importlib.util.find_spec("ndpp")).count(str(tree)):
                raise ImportError("another ndpp comes first")
            resource.setrlimit(resource.RLIMIT_CPU, (options.seconds, options.seconds + 5))
            signal.alarm(int(max(6 * options.seconds, HANG_SECONDS)))  # one that waits for ever uses no time
            code = int(pytest.main(arguments))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what the tests have left running
    return status, log.read_text(errors="replace")


def trial(mutant: Mutant, warm: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return whether a mutant was killed, and by which test."""
    with tempfile.TemporaryDirectory(prefix="mutant-", dir=warm.parent) as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(warm, tree)  # with the times of files, by which compiled code is known to be theirs
        place = home_of(mutant, tree / "src")
        if place is None:
            return mutant._asdict() | {"outcome": "gone", "by": "", "seconds": 0.0}
        place.write_text(mutated(mutant, place.read_text(encoding="utf-8")) or "", encoding="utf-8")
        forget_compiled(tree / "src", place)
        began, here = time.perf_counter(), mutant._replace(file=place.relative_to(tree / "src").as_posix())
        status, output = run_tests(tree, files_to_run(tree / "tests", here, everything=options.all), options)
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
    if status == 0:
        outcome, by = "survived", ""
    elif failed or "while loading conftest" in output:
        outcome, by = "killed", failed[1] if failed else "import"
    elif status in (-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGALRM):
        outcome, by = "killed", "time"
    elif status in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS):  # compiled code has no bounds to check
        outcome, by = "killed", "crash"
    else:
        raise RuntimeError(f"pytest ended with {status}:\n{output[-3000:]}")
    return mutant._asdict() | {"outcome": outcome, "by": by, "seconds": round(time.perf_counter() - began, 1)}


def run(options: argparse.Namespace) -> int:
    """Run mutants and write how each ended, after every one, so that a run that was stopped can go on."""
    mutants = [Mutant(**record) for record in json.loads(options.mutants.read_text(encoding="utf-8"))]
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # each start would take seconds
    os.environ.pop("NUMBA_CACHE_DIR", None)  # compiled code belongs to its copy
    for name in HEAVY:
        importlib.import_module(name)
    resumed = options.resume and options.output.exists()
    results = json.loads(options.output.read_text(encoding="utf-8")) if resumed else []
    known = {tuple(result[name] for name in Mutant._fields) for result in results}
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        warm = Path(folder) / "warm"
        shutil.copytree(options.source, warm / "src")  # with what has been compiled already
        shutil.copytree(options.tests, warm / "tests")
        shutil.copy2(options.tests.parent / "pyproject.toml", warm)
        files = [] if options.unchecked else files_to_run(warm / "tests", None, everything=True)
        status, output = run_tests(warm, files, options) if files else (0, "")
        if status:
            print(
                output[-3000:], f"\nThe tests must pass without a mutant first; pytest ended with {status}.", sep="\n"
            )
            return 2
        began = time.perf_counter()
        for mutant in mutants:
            if mutant not in known and time.perf_counter() - began < options.stop_after:
                results.append(trial(mutant, warm, options))
                options.output.write_text(json.dumps(results, indent=1, ensure_ascii=False), encoding="utf-8")
                print(describe(results[-1]), flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in Counter(r["outcome"] for r in results).items()))
    return 0


def describe(result: dict[str, Any]) -> str:
    """Return a line on one mutant."""
    change = f"{result['file']}:{result['line']}:{result['column']}: {result['old']!r} -> {result['new']!r}"
    return f"{result['outcome']:8} {change}  {result['by']} ({result['seconds']:.0f} s)"


def compare(options: argparse.Namespace) -> int:
    """Print how many mutants were killed in two runs, and which in the first only."""
    before, after = (
        {tuple(result[name] for name in Mutant._fields): result for result in json.loads(path.read_text("utf-8"))}
        for path in (options.before, options.after)
    )
    for name, results in (("before", before), ("after", after)):
        counts = Counter(result["outcome"] for result in results.values())
        print(f"{name:6}  {len(results)} mutants, {counts['killed']} killed, {counts['survived']} survived")
    lost = [key for key, result in before.items() if result["outcome"] == "killed"]
    lost = [key for key in lost if key not in after or after[key]["outcome"] != "killed"]
    for key in lost:
        print(describe(after[key]) if key in after else f"not run  {key}")
    print(f"{len(lost)} killed before and not after")
    return bool(lost)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    listing = commands.add_parser("list", help="draw mutants")
    listing.add_argument("--source", type=Path, default=ROOT / "src")
    listing.add_argument("-n", "--count", type=int, default=72)
    listing.add_argument("--seed", type=int, default=0)
    listing.add_argument("-o", "--output", type=Path, required=True)
    listing.set_defaults(command=write_list)
    running = commands.add_parser("run", help="run the tests against each of them")
    running.add_argument("mutants", type=Path)
    running.add_argument("--source", type=Path, default=ROOT / "src")
    running.add_argument("--tests", type=Path, default=ROOT / "tests")
    running.add_argument("--deselect", action="append", default=[], metavar="TEST", help="a test to leave out")
    running.add_argument("--seconds", type=int, default=400, help="processor time after which a mutant hangs")
    running.add_argument("--all", action="store_true", help=f"run all of {', '.join(TESTS)}, not one contract alone")
    running.add_argument("--unchecked", action="store_true", help="the tests are known to pass without a mutant")
    running.add_argument("--resume", action="store_true", help="keep the results that the output file holds already")
    running.add_argument("--stop-after", type=float, default=float("inf"), metavar="SECONDS", help="begin no more then")
    running.add_argument("-o", "--output", type=Path, required=True)
    running.set_defaults(command=run)
    comparing = commands.add_parser("compare", help="exit 1 where a mutant was killed in the first run only")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.set_defaults(command=compare)
    options = parser.parse_args()
    return int(options.command(options))


def write_list(options: argparse.Namespace) -> int:
    """Write the mutants drawn."""
    records = [mutant._asdict() for mutant in drawn_mutants(options.source, options.count, options.seed)]
    options.output.write_text(json.dumps(records, indent=1, ensure_ascii=False), encoding="utf-8")
    print(f"{len(records)} mutants of {len({record['file'] for record in records})} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
