"""The command ``ndpp`` in a process of its own, and how it ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from forking import ONE_THREAD, Forked
from patience import HANG_SECONDS

COMMAND = [sys.executable, "-m", "ndpp.cli"]
ENVIRONMENT = {**os.environ, **ONE_THREAD, "PYTHONPATH": "", "TERM": "dumb", "COLUMNS": "200"}
UNMEASURED = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("COVERAGE_")}
"""For processes that may not write what coverage would."""

BLOCKER = """
import sys
from importlib.machinery import PathFinder
for name in list(sys.modules):  # none in a new interpreter; all of them in a process that begins with everything imported
    if name.split(".")[0] in {blocked!r} | {{"ndpp", "ndpp_experiments"}}:
        del sys.modules[name]
find = PathFinder.find_spec
def find_others(name, path=None, target=None):
    return None if name.split(".")[0] in {blocked!r} else find(name, path, target)
PathFinder.find_spec = staticmethod(find_others)
"""


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @classmethod
    def of(cls, code: int, out: str, err: str) -> Done:
        """Return it, or skip the test where torch was wanted and is not installed."""
        if "needs the package 'torch'" in err and find_spec("torch") is None:
            pytest.skip("needs torch: pip install 'ndpp[learn]'")
        return cls(code, out, err)

    @property
    def json(self) -> Any:
        """What was printed, as strict JSON."""
        return json.loads(self.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def launch(*arguments: Any, cwd: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start the command in a new interpreter, with no terminal."""
    defaults: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    words = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(words, cwd=cwd, **{"env": ENVIRONMENT, **defaults, **options})


def spawn(*arguments: Any, cwd: Path, **options: Any) -> subprocess.Popen[bytes] | Forked:
    """Start the command in a process of its own, with everything imported where the system can do that.

    So it is over sooner than with :func:`launch`, which is for tests of how a command starts.
    """
    if not hasattr(os, "fork"):
        return launch(*arguments, cwd=cwd, **options)
    defaults = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    streams = [options.pop(name, usual) for name, usual in defaults.items()]
    env, first = options.pop("env", ENVIRONMENT), options.pop("preexec_fn", None)
    assert not options, f"unknown options: {options}"
    return Forked(list(map(str, arguments)), cwd, env, streams, first)


def end(process: subprocess.Popen[bytes] | Forked) -> Done:
    """Wait for it."""
    out, err = process.communicate(timeout=HANG_SECONDS)
    return Done.of(process.returncode or 0, (out or b"").decode(), (err or b"").decode())


def run(cwd: Path, *arguments: Any) -> Done:
    """Run the command in a process of its own, and wait for it."""
    return end(spawn(*arguments, cwd=cwd))


def without(tmp_path: Path, *packages: str) -> dict[str, str]:
    """Return an environment in which these packages cannot be imported."""
    folder = tmp_path / "blocked"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCKER.format(blocked=set(packages)))
    return {**ENVIRONMENT, "PYTHONPATH": str(folder)}


PAUSING = """
import builtins, os, time
paused = []
def pause():
    if paused:  # what is written after an interrupt does not wait for another
        return
    paused.append(True)
    for _ in range(6000):  # short ones: a signal that another thread receives does not end a sleep
        time.sleep(0.1)
replace, show = os.replace, builtins.print
def pausing(source, target, **options):
    replace(source, target, **options)
    if os.path.basename(target) == {name!r} and {holds!r} in open(target, "rb").read():
        pause()
def saying(*words, **options):
    show(*words, **options)
    if {line!r} and words and str(words[0]).startswith({line!r}):
        pause()
os.replace, builtins.print = pausing, saying
"""
ONE_EPOCH = b'\\"epoch\\": 1'
"""What is in a checkpoint of training from the first epoch on."""


def pausing(folder: Path, name: str = "", *, holds: bytes = ONE_EPOCH, line: str = "") -> dict[str, str]:
    """Return an environment in which the command goes to sleep once it has put a file of this name in its place.

    So it cannot be over before a test that waits for the file gets its turn to interrupt it. ``holds`` is what must be in the file; with
    ``line`` the command goes to sleep when it has printed a line that begins so.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(PAUSING.format(name=name, holds=holds, line=line))
    return {**ENVIRONMENT, "PYTHONPATH": str(folder)}


def has_epoch(part: Path) -> bool:
    """Return whether there is a checkpoint of a finished epoch."""
    return part.exists() and ONE_EPOCH in part.read_bytes()
