"""Measured figures that were typed into a page instead of being written by ``figures.py``.

A figure is a number with a unit of measurement, or a decimal fraction. Blocks that ``figures.py`` writes do not count, nor do code,
formulas and addresses. What else stands there is in ``ALLOWED``, with the reason: it is set, computed or quoted, and not measured.
The changelog is not looked at: it says what was measured when something was changed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path

BLOCK = re.compile(r"(<!-- (\w+): written by experiments/publish/figures\.py -->\n).*?(<!-- \2: end -->)", re.DOTALL)
NO_PROSE = re.compile(
    r"\A---\n.*?^---$|^ *(?P<fence>`{3,}|~{3,}).*?^ *(?P=fence)$|\$\$.*?\$\$|(?P<tick>`+).+?(?P=tick)|\$[^$\n]+\$|\]\([^)]*\)|https?://\S+",
    re.DOTALL | re.MULTILINE,
)
"""Front matter, fenced code, formulas, code, targets of links, addresses."""
_WORDS = (
    "half|one|two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|forty|fifty|sixty|a hundred"
)
_DIGITS = r"(?<![\w.])(?:\d[\d,]*)?(?:\.\d+|\d)[ \N{NO-BREAK SPACE}]?"
_NUMBER = rf"(?:{_DIGITS}|\b(?:{_WORDS}) )"
_UNIT = r"(?<=\d[ \N{NO-BREAK SPACE}])[sh]|ns|µs|ms|min|(?:micro|milli)?seconds?|minutes?|hours?|[kMGT]i?B|×|%|nats?|[MGT]FLOP|TB/s"
_COMPARED = r"times (?:as (?:fast|long|many|much|often|large)|faster|slower)|(?:\w+ ){0,3}per (?:CPU )?second"
MEASURED = re.compile(rf"{_NUMBER}(?:(?:{_UNIT})(?!\w)|{_COMPARED})", re.IGNORECASE)
FRACTION = re.compile(r"(?<![\w.])\d*\.\d+(?!\w|\.\d)")

EVERYWHERE = {
    r"(?:Python|SciPy|NumPy|Triton)(?: \d\.\d+ to)? \d\.\d+": "a version",
    r"arXiv \d{4}\.\d{5}": "an address",
    r"95 %": "the level of intervals",
}
"""What any page may say, by pattern, and why."""
ALLOWED = {
    "docs/cli.md": {
        "a line about every ten seconds": "how often the program writes",
        "within ten minutes": "an argument",
    },
    "docs/contributing.md": {"every version from 3.11 on": "a version", "`HANG_SECONDS`, ten minutes": "a constant"},
    "docs/customers.md": {"are then 0.95, 10 and 0.6": "defaults"},
    "docs/diversity.md": {
        "odds of 0.1 to come": "an argument",
    },
    "docs/fitting.md": {
        "within ten minutes": "an argument",
        "a mean cosine of at least 0.08": "a setting",
        "the items behind 97 % of the normalisers": "a setting",
        "all $x_i$, 3 % smaller": "a setting",
        "differ by more than 5 % in the validation": "a rule",
        "better by 1 % or more": "a rule",
    },
    "docs/gpu-internals.md": {"or 2.5 standard deviations of the remaining size": "√(2π), computed"},
    "docs/mixtures.md": {
        "$\\gamma$ = 0.2 unless": "a default",
        "loses at most 4 % of the best precision": "a rule",
        "a lift of at least 1.1, substitutes one of at most 0.8": "rules",
    },
    "docs/notation.md": {"may be up to 3 % larger": "a bound that is proved"},
    "docs/production.md": {
        "52 MB for 400 missions of rank 128": "computed from the bytes before it",
        "within 1 GiB": "a limit",
        "not answered after 20 seconds": "a limit",
        "within 30 seconds of the signal": "a limit",
        "has 10 seconds for the headers": "a limit",
    },
    "docs/quality.md": {
        "39,123 × 39,123": "the shape of a matrix",
        "within 100 s per setting": "a limit",
        "The rule of 1 %": "a rule",
        "An AUC of 0.5 means": "what a metric means",
        "0.1 changes little for Goodreads, while 0.5 removes": "settings",
    },
    "docs/rankings.md": {"0.2 by default": "a default", "the rule by which 0.2 was chosen": "a default"},
    "docs/releasing.md": {"Until 1.0,": "a version"},
    "docs/scale.md": {
        "shards of 128 MB": "a setting",
        "up to 1 GiB of it": "a limit",
        "a 20 GB table": "computed from the bytes per item",
        "0.85 GB for 400 missions": "computed from the bytes before it",
    },
    "docs/serving.md": {
        '("in 33 % of such baskets")': "an example of words",
        '("2.6 times as often as usual")': "an example of words",
        '("bought before: 43 % of baskets"': "an example of words",
        "100, and 64 KiB": "a limit",
        "8 MiB, within 10 s": "a limit",
    },
    "experiments/publish/figures.py": dict.fromkeys(["≤ 1.3 ×", "≥ 1.8 ×", "≤ 300 MB", "≤ 1.5 ms"], "a target"),
    "experiments/publish/figures_evaluation.py": {"published, γ = 0.5": "a setting"},
    "experiments/publish/figures_gpu.py": {
        "Target: 60 % of its ceiling": "a target",
        "target: at most 1.3": "a target",
    },
    "experiments/publish/figures_learning.py": {
        "gain 1.4 on validation baskets": "a target",
        **dict.fromkeys(["≤ 20 s", "≤ 300 s on two cores", "≤ 8 GiB"], "a target"),
    },
    "experiments/publish/figures_scale.py": {"Targets for 10,000,000 × 64": "a shape"},
    "experiments/publish/figures_shop.py": {
        "hardly any store (2 %)": "a setting",
        "A price of 20 % less": "an example",
    },
    "src/ndpp/answers/relations.py": {"1.1 s(a, b)": "a formula"},
    "src/ndpp/datasets/loaders.py": {"the archive (23 MB)": "the size of a file"},
    "src/ndpp/laws/law.py": {"by default 256 MB, of a mixture 2 GB": "defaults"},
    "src/ndpp/linalg/coordinates.py": {
        "up to 3 % too large": "a bound that is proved",
        "at most 3 % above it": "the same",
    },
    "src/ndpp/metrics/likelihood.py": {"up to ten times as many random sets": "a setting"},
    "src/ndpp/samplers/exact/nodes.py": {"(r = 200: 640 kB)": "computed"},
    "src/ndpp/samplers/gpu/memory.py": {"4 GiB for CPU tensors": "a setting"},
    "src/ndpp/serve/run.py": {"waits some 40 ms for the client": "what TCP prescribes"},
}
"""What a page may say, word for word, and why it is no measurement of ours."""


def prose(text: str) -> str:
    """Return the text of a page with blanks where something else stands.

    Examples
    --------
    >>> prose("It takes `5 ms`, or $5$ s.")
    'It takes       , or     s.'
    """
    for pattern in (BLOCK, NO_PROSE):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return text


def typed(text: str, allowed: Collection[str] = (), *, fractions: bool = True) -> list[str]:
    """Return the lines with figures that were typed, each figure in brackets.

    Examples
    --------
    >>> typed("Samples take 5 ms. Requests end after 10 s.", ["end after 10 s"])
    ['1: Samples take [5 ms]. Requests end after 10 s.']
    """
    known = [*EVERYWHERE, *map(re.escape, allowed)]
    free = [range(*found.span()) for pattern in known for found in re.finditer(pattern, text)]
    plain, out = prose(text), []
    for pattern in (MEASURED, FRACTION)[: 1 + fractions]:
        for found in pattern.finditer(plain):
            if any(found.start() in span for span in free):
                continue
            begin, end = text.rfind("\n", 0, found.start()) + 1, (text + "\n").index("\n", found.end())
            line = f"{text[begin : found.start()]}[{found[0]}]{text[found.end() : end]}"
            out.append(f"{text.count(chr(10), 0, begin) + 1}: {line}")
    return out


def pages(root: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of every page, README and paper included, and of the notebooks' prose."""
    paths = [root / "README.md", root / "paper" / "paper.md", *sorted((root / "docs").glob("**/*.md"))]
    for path in paths:
        yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
    for path in (root / "docs" / "orders.ipynb", *sorted((root / "notebooks").glob("*.ipynb"))):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        shown = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        yield path.relative_to(root).as_posix(), "\n\n".join(shown)


def modules(root: Path, pattern: str) -> Iterator[tuple[str, list[ast.AST]]]:
    """Yield name and nodes of the syntax tree of some modules."""
    for path in sorted(root.glob(pattern)):
        yield path.relative_to(root).as_posix(), list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def docstrings(root: Path) -> Iterator[tuple[str, str]]:
    """Yield name and docstrings of every module, without their examples."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for name, nodes in modules(root, "src/**/*.py"):
        told = [ast.get_docstring(n) or "" for n in nodes if isinstance(n, kinds)]
        texts = [re.sub(r"^ *>>> .*?(?:\n\n|\Z)", "", text, flags=re.S | re.M) for text in told]
        yield name, "\n\n".join(filter(None, texts)).replace("``", "`")


def writers(root: Path) -> Iterator[tuple[str, str]]:
    """Yield name and words of the modules that write figures: what they write should come from results, too."""
    for name, nodes in modules(root, "experiments/publish/figures*.py"):
        formats = [n.format_spec for n in nodes if isinstance(n, ast.FormattedValue) and n.format_spec]
        left_out = {id(part) for spec in formats for part in ast.walk(spec)}
        texts = [n.value for n in nodes if isinstance(n, ast.Constant) and id(n) not in left_out]
        yield name, "\n\n".join(text for text in texts if isinstance(text, str))


def everywhere(root: Path) -> list[str]:
    """Return what was typed on any page, into what writes them, or into any docstring."""
    found = {name: typed(text, ALLOWED.get(name, ())) for name, text in [*pages(root), *writers(root)]}
    found |= {name: typed(text, ALLOWED.get(name, ()), fractions=False) for name, text in docstrings(root)}
    return [f"{name}:{line}" for name, lines in found.items() for line in lines]


def unused(root: Path) -> list[str]:
    """Return what is allowed and stands nowhere."""
    texts = dict([*pages(root), *writers(root), *docstrings(root)])
    return [f"{name}: {words}" for name, own in ALLOWED.items() for words in own if words not in texts.get(name, "")]
