"""Install the wheels of a folder, then its sdists, into a new environment, and run the README's quick start and the command there.

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
import importlib.metadata, importlib.util, pathlib, sys
packages = sys.argv[1].split(",")
for name in packages:
    place = pathlib.Path(importlib.util.find_spec(name).origin).resolve()
    assert place.is_relative_to(pathlib.Path(sys.prefix).resolve()), f"{place} is not of the installed package"
    print(name, importlib.metadata.version(name), "from", place.parent)
assert len(packages) > 1 or importlib.util.find_spec("ndpp_experiments") is None, "ndpp brings the experiments along"
"""
BENCH = ("bench", "--rank", "8", "--size", "3", "--seconds", "0.1")
ADVICE = "'ndpp bench' needs the package ndpp-experiments. Run: pip install ndpp-experiments=="


def quick_start(text: str) -> str:
    """Return the Python blocks of the README as one program."""
    blocks = BLOCK.findall(text)
    if not blocks:
        raise SystemExit("the README has no Python block")
    return "".join(blocks)


def run(*words: str | Path, folder: Path) -> None:
    """Run a program in a folder; its failure is ours."""
    subprocess.run([str(word) for word in words], cwd=folder, check=True)


def try_out(library: Path, experiments: Path, program: str) -> None:
    """Install the library with the command and use it, then the experiments."""
    print(f"\n== {library.name}, {experiments.name}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        venv.create(folder / "env", with_pip=True)
        scripts = folder / "env" / ("Scripts" if sys.platform == "win32" else "bin")
        python, command, work = scripts / "python", scripts / "ndpp", folder / "work"
        work.mkdir()
        install = (python, "-I", "-m", "pip", "install", "-qq", "--disable-pip-version-check")
        run(*install, f"{library}[cli]", folder=work)
        run(python, "-I", "-c", WHERE, "ndpp", folder=work)
        (work / "quick_start.py").write_text(program, encoding="utf-8")
        run(python, "-I", "quick_start.py", folder=work)
        for option in ("--version", "--help"):
            run(command, option, folder=work)
        told = subprocess.run([command, *BENCH], cwd=work, capture_output=True, text=True, check=False).stderr
        if ADVICE not in told:
            raise SystemExit(f"without the experiments, ndpp bench says {told!r}")
        run(*install, experiments, folder=work)
        run(python, "-I", "-c", WHERE, "ndpp,ndpp_experiments", folder=work)
        run(command, *BENCH, folder=work)


def main() -> None:
    """Try the wheels of the folder, then its sdists."""
    folder = Path(sys.argv[1]).resolve()
    program = quick_start(README.read_text(encoding="utf-8"))
    for suffix in (".whl", ".tar.gz"):
        found = [sorted(folder.glob(f"{name}-*{suffix}")) for name in ("ndpp", "ndpp_experiments")]
        if [len(dists) for dists in found] != [1, 1]:
            raise SystemExit(f"expected one {suffix} of each package in {str(folder)!r}; found {found}")
        try_out(found[0][0], found[1][0], program)


if __name__ == "__main__":
    main()
