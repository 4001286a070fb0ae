"""No test fails because a machine is slow: none asserts a duration, and none gives up waiting before it must hang (``patience``)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CLOCKS = {
    name + unit for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time") for unit in ("", "_ns")
}
"""Functions that tell the time. That of the processor counts, too: other processes do not add to it, but processors differ."""
WAITING = (
    "Timeout",
    "alarm",
    "join",
    "set_default_timeout",
    "settimeout",
    "timeout",
    "wait",
    "wait_for",
    "wait_for_timeout",
)
"""Functions whose first number is a limit of time."""
LIMITS = ("deadline", "faulthandler_timeout", "timeout")
"""Arguments that are limits of time."""
REPORTING = {
    "helpers/forking.py": "waits like subprocess, as long as it is told to",
    "helpers/fuzz.py": "run by hand, tries inputs for as long as it is told to, and tells which are slow; tests call its run_case",
    "helpers/fuzz_commands.py": "chooses when to kill a command",
    "helpers/fuzz_service.py": "tells how long answers took",
    "helpers/mutation.py": "tells how long mutants took",
    "helpers/patience.py": "is the guard",
    "test_clocks.py": "has examples of what it finds",
}
"""Files that read a clock, and why they may."""


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_number(node: ast.expr) -> bool:
    """Return whether this is a number above 0, written out."""
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value > 0


def polls(loop: ast.For) -> bool:
    """Return whether a loop tries something a number of times, until it works."""
    is_counted = isinstance(loop.iter, ast.Call) and name_of(loop.iter.func) == "range" and name_of(loop.target) == "_"
    return is_counted and any(isinstance(inner, ast.Break | ast.Return) for inner in ast.walk(loop))


def parsed(code: str) -> Iterator[ast.AST]:
    """Yield all nodes of a file, and those of the scripts that it holds as strings."""
    for node in ast.walk(ast.parse(code)):
        yield node
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\nimport " in node.value:
            try:
                yield from parsed(node.value)
            except SyntaxError:
                continue


def problems(code: str, *, may_read_clocks: bool = False) -> list[str]:
    """Return what in the code of a test depends on how fast a machine is."""
    found = []
    for node in parsed(code):
        if isinstance(node, ast.For) and polls(node):
            found.append(f"line {node.lineno}: a number of attempts; use patience.until")
        if isinstance(node, ast.Attribute) and node.attr == "timeout" and name_of(node.value) == "mark":
            found.append(f"line {node.lineno}: a limit of time")
        if not isinstance(node, ast.Call):
            continue
        name = name_of(node.func)
        if name in CLOCKS and not may_read_clocks:
            found.append(f"line {node.lineno}: {name}() is read; judge by the order of events or by counts")
        if (
            name == "setattr"
            and [name_of(one) for one in node.args[:1]] == ["time"]
            and "monotonic" in ast.dump(node.args[1])
        ):
            found.append(
                f"line {node.lineno}: stops the clock of all threads, on which servers wait; replace the module's time"
            )
        given = [*node.args[:1], *(word.value for word in node.keywords)] if name in WAITING else []
        given += [word.value for word in node.keywords if word.arg in LIMITS]
        if any(map(is_number, given)):
            found.append(f"line {node.lineno}: a limit of time; wait for patience.HANG_SECONDS")
    return found


def test_no_test_depends_on_the_speed_of_a_machine():
    found = {}
    for path in sorted(HERE.rglob("*.py")):
        name = path.relative_to(HERE).as_posix()
        if listed := problems(path.read_text(encoding="utf-8"), may_read_clocks=name in REPORTING):
            found[name] = listed
    assert found == {}


def test_no_file_is_excused_in_vain():
    for name in REPORTING:
        assert any("is read" in problem for problem in problems((HERE / name).read_text(encoding="utf-8"))), name


@pytest.mark.parametrize(
    "code",
    [
        "began = time.perf_counter()\nassert time.perf_counter() - began < 5",
        "end = monotonic() + 20",
        "assert time.process_time() < 5",
        "assert event.wait(5)",
        "thread.join(30)",
        "process.communicate(timeout=60)",
        "client.post(url, timeout=httpx.Timeout(10, read=0.3))",
        "connection.settimeout(1.0)",
        "page.set_default_timeout(20_000)",
        "await asyncio.wait_for(task, timeout=3)",
        "async def f():\n    async with asyncio.timeout(3):\n        pass",
        "for _ in range(400):\n    if ready():\n        break\n    sleep(0.05)",
        "@pytest.mark.timeout(60)\ndef test(): pass",
        "@settings(deadline=500)\ndef test(): pass",
        "CODE = '''\nimport time\nassert time.time() < 5\n'''",
        "monkeypatch.setattr(run.time, 'monotonic', lambda: now[0])",
    ],
)
def test_a_clock_that_judges_is_found(code: str):
    assert problems(code)


@pytest.mark.parametrize(
    "code",
    [
        "event.wait(HANG_SECONDS)",
        "thread.join()",
        "', '.join(words)",
        "select.select(slow, [], [], 0)",
        "for _ in range(20):\n    until(is_answered)",
        "time.sleep(0.01)",
        "settings(deadline=None)",
        "monkeypatch.setattr(run, 'time', SimpleNamespace(monotonic=lambda: now[0]))",
    ],
)
def test_what_waits_for_events_is_not(code: str):
    assert problems(code) == []
