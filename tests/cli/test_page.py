"""The page on the command says what the command does: every example is run, in order, and must print what is shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ndpp.cli.app import COMMANDS
from ndpp.datasets import shelf_kernel

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\"[0-9a-f]{8}\"|-?\d[\d,.]*(e[+-]?\d+)?")
LABEL = re.compile("|".join(sorted(shelf_kernel().labels or (), key=len, reverse=True)))
FUNCTIONAL = re.compile("item item|items of group #|log det")
"""What ``ndpp diagnose`` watches; which of them are the worst depends on the draws."""


def shape(text: str) -> list[str]:
    """Return the lines of a text without what may change with the last digit: numbers, items, functionals, lengths of bars."""
    lines = [FUNCTIONAL.sub("functional", LABEL.sub("item", NUMBER.sub("#", line))) for line in text.splitlines()]
    return [" ".join(re.sub("─+", "─", re.sub("█+", "█", line)).split()) for line in lines]


def examples(text: str) -> list[tuple[str, str]]:
    """Return the command lines of a block, each with what it prints."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2]))


def check(call, line: str, expected: str) -> None:
    """Run a command line, pipes included, and compare what it prints."""
    words, piped = shlex.split(line), ""
    while words:
        end = words.index("|") if "|" in words else len(words)
        assert words[0] == "ndpp"
        done = call(*words[1:end], stdin=piped)
        words, piped = words[end + 1 :], done.out
        assert (done.code == 0) == ("ndpp: error" not in done.err)
    told = done.err.splitlines(keepends=True)
    told = [
        re.sub(r": start [\d.]+ (s|min), ", ": ", line) for line in told
    ]  # only a slow machine says so, and what follows
    for mark in ("ndpp: warning", "it fits as well or worse", " so far", ": step "):
        told = [line for line in told if mark not in line or mark in expected]
    assert shape("".join(told) + piped) == shape(expected), line


@pytest.mark.usefixtures("full_epochs")
def test_the_page_runs_as_written(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(text, PAGE.name, "exec"), {})
            continue
        for line, expected in examples(text):
            check(call, line, expected)
    assert not list(tmp_path.glob("*.ndpp-part"))


def test_a_wrong_page_fails(call, shelf):
    check(call, f"ndpp map {shelf} --size 2", "tea	coffee\n")
    with pytest.raises(AssertionError, match="ndpp map"):
        check(call, f"ndpp map {shelf} --size 2", "tea	coffee	bread\n")


def test_the_page_names_every_command():
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `ndpp {name}` |" in page for commands in COMMANDS.values() for name in commands)
