"""What the README and the documentation say is run: every Python block, in the order it stands on its page."""

from __future__ import annotations

import doctest
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

import ndpp

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if FENCE.search(path.read_text(encoding="utf-8"))
]


def run_blocks(text: str, name: str) -> None:
    """Run the fenced blocks of a page in one namespace; in ``pycon`` blocks the printed results must match too."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in FENCE.finditer(text):
        kind, code = block.groups()
        where = f"{name}, line {text[: block.start()].count(chr(10)) + 2}"
        if kind == "python":
            exec(compile(code, where, "exec"), names)
            continue
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        test = doctest.DocTestParser().get_doctest(code, names, where, name, 0)
        failures: list[str] = []
        runner.run(test, out=failures.append, clear_globs=False)
        names.update(test.globs)
        assert not runner.failures, "".join(failures)


@pytest.mark.usefixtures("short_epochs")
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_page_runs_as_written(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with falls_back_to_the_cpu() if page.name == "gpu.md" else nullcontext():
        run_blocks(page.read_text(encoding="utf-8"), page.name)


def falls_back_to_the_cpu():
    """Without a GPU, ``device="cuda"`` warns and draws on the CPU."""
    if pytest.importorskip("torch").cuda.is_available():
        return nullcontext()
    return pytest.warns(RuntimeWarning, match="finds no CUDA device")


def test_readme_has_a_quick_start():
    assert ROOT / "README.md" in PAGES


def test_a_wrong_page_fails():
    with pytest.raises(AssertionError, match="Expected"):
        run_blocks("```pycon\n>>> 1 + 1\n3\n```\n", "wrong")
    with pytest.raises(ZeroDivisionError):
        run_blocks("```python\n1 / 0\n```\n", "wrong")


def test_every_public_name_is_in_the_api_pages():
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md"))
    listed = set(re.findall(r"^   (\w+)$", pages, re.MULTILINE)) | set(
        re.findall(r"module:: ndpp\.(\w+)$", pages, re.MULTILINE)
    )
    assert set(ndpp.__all__) <= listed
