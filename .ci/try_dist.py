"""Install each wheel and sdist of a folder into a new environment, and run the README's quick start and the command there.

``python .ci/try_dist.py dist``. The code runs in a temporary folder, in isolated mode: the repository is on no path.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WHERE = """
import pathlib, sys, ndpp, ndpp_experiments
for package in (ndpp, ndpp_experiments):
    place = pathlib.Path(package.__file__).resolve()
    assert place.is_relative_to(pathlib.Path(sys.prefix).resolve()), f"{place} is not of the installed package"
    print(package.__name__, ndpp.__version__, "from", place.parent)
"""


def quick_start(text: str) -> str:
    """Return the Python blocks of the README as one program."""
    blocks = BLOCK.findall(text)
    if not blocks:
        raise SystemExit("the README has no Python block")
    return "".join(blocks)


def run(*words: str | Path, folder: Path) -> None:
    """Run a program in a folder; its failure is ours."""
    subprocess.run([str(word) for word in words], cwd=folder, check=True)


def try_out(dist: Path, program: str) -> None:
    """Install one wheel or sdist, with the command, and use it."""
    print(f"\n== {dist.name}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        venv.create(folder / "env", with_pip=True)
        scripts = folder / "env" / ("Scripts" if sys.platform == "win32" else "bin")
        python, work = scripts / "python", folder / "work"
        work.mkdir()
        install = (python, "-I", "-m", "pip", "install", "-qq", "--disable-pip-version-check", f"{dist}[cli]")
        run(*install, folder=work)
        run(python, "-I", "-c", WHERE, folder=work)
        (work / "quick_start.py").write_text(program, encoding="utf-8")
        run(python, "-I", "quick_start.py", folder=work)
        for words in (["--version"], ["--help"], ["bench", "--rank", "8", "--size", "3", "--seconds", "0.1"]):
            run(scripts / "ndpp", *words, folder=work)


def main() -> None:
    """Try every file of the folder."""
    folder = Path(sys.argv[1]).resolve()
    dists = sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])
    if len(dists) != 2:
        raise SystemExit(f"expected one wheel and one sdist in {str(folder)!r}; found {[dist.name for dist in dists]}")
    program = quick_start(README.read_text(encoding="utf-8"))
    for dist in dists:
        try_out(dist, program)


if __name__ == "__main__":
    main()
