"""Run the examples of some pages and write what they print into them: ``python experiments/publish/examples.py [PAGE.md …]``.

A line that begins with ``$`` is a command, and what follows is its output; Python blocks are run in between. Output that differs in times
alone stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS, PAGES = Path(__file__).resolve().parents[2] / "docs", ("cli.md", "shop-over-a-year.md")
TIME = re.compile(r"\d[\d.]* (s|min)\b")
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(text: str) -> list[tuple[str, str]]:
    """Return the command lines of a block, each with what it prints."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2]))


def printed(line: str) -> str:
    """Return what a command line prints, errors and warnings first."""
    command = re.sub(r"(^|\| )ndpp ", rf"\1{sys.executable} -m ndpp.cli ", line)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, encoding="utf-8")
    return done.stderr + done.stdout


def written(block: re.Match[str]) -> str:
    """Return a block with the output of now."""
    kind, text = block.groups()
    if kind == "python":
        exec(compile(text, "a page", "exec"), {})
        return block[0]
    lines = [f"$ {line}\n{current(line, before)}" for line, before in examples(text)]
    return f"```console\n{''.join(lines)}```"


def current(line: str, before: str) -> str:
    """Return what a command prints now, or before if only times differ."""
    now = printed(line)
    return before if TIME.sub("", now) == TIME.sub("", before) else now


def main() -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    for page in sys.argv[1:] or PAGES:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            text = BLOCK.sub(written, (DOCS / page).read_text(encoding="utf-8"))
        (DOCS / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
