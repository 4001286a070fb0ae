"""Draw ``_static/imports.svg``, the import graph of :doc:`architecture`: ``python experiments/publish/import_graph.py [--check]``.

Edges are the imports that grimp finds in ``ndpp``, by top-level package or module; bands are the layers of the contract
in ``pyproject.toml``. Every edge is listed in the file's ``metadata``; those that no chain of other imports implies are
drawn, except into the lowest floor. ``--check`` exits with 1 if the file is not what the imports give now.
"""

import re
import sys
import tomllib
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import grimp

ROOT = Path(__file__).resolve().parents[2]
TO = ROOT / "docs" / "_static" / "imports.svg"
LEFT, RIGHT, ROW, GAP, WIDTH = 80, 800, 50, 22, 7.4
STYLE = """<style>.module{fill:#fdf3e0;stroke:#506070} .package{fill:#cfe0f3;stroke:#506070} .band0{fill:#fff}
.band1{fill:#f1f5fa} .edge{fill:none;stroke:#7a8fa8} text{font:13px sans-serif;text-anchor:middle}</style>"""
Edges = frozenset[tuple[str, str]]


class Imports(NamedTuple):
    """Floors of modules, the top one first; which of the modules are packages; and who imports whom."""

    floors: list[list[str]]
    packages: frozenset[str]
    edges: Edges


def read_imports() -> Imports:
    """Return the imports as they are now, without those of ``ndpp/__init__.py``, which only collects public names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(c["layers"] for c in project["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    graph = grimp.build_graph("ndpp", cache_dir=None)
    top = {name: name.split(".")[1] for name in graph.modules - {"ndpp"}}
    pairs = {(top[a], top[b]) for a in top for b in graph.find_modules_directly_imported_by(a) & set(top)}
    packages = frozenset(top[name] for name in graph.find_children("ndpp") & set(top) if graph.find_children(name))
    floors = [re.findall(r"\w+", layer) for layer in layers]
    return Imports(floors, packages, frozenset((a, b) for a, b in pairs if a != b))


def drawn(imports: Imports) -> Edges:
    """Return the edges that no chain of edges implies and that end above the lowest floor. A cycle is an error."""
    imported = {a: {d for c, d in imports.edges if c == a} for a, _ in imports.edges}
    below: dict[str, set[str]] = {}
    for name in TopologicalSorter(imported).static_order():
        below[name] = set().union(*({other} | below[other] for other in imported.get(name, ())))
    implied = {(a, b) for a in imported for other in imported[a] for b in below[other]}
    return frozenset((a, b) for a, b in imports.edges - implied if b not in imports.floors[-1])


def rows_of(floor: list[str], edges: Edges) -> list[list[str]]:
    """Return the modules of a floor in rows: those that import others of the floor stand above them."""
    within, depth = {name: {b for a, b in edges if a == name and b in floor} for name in floor}, dict.fromkeys(floor, 0)
    for name in TopologicalSorter(within).static_order():
        depth[name] = 1 + max((depth[other] for other in within[name]), default=-1)
    return [[name for name in floor if depth[name] == d] for d in range(max(depth.values()), -1, -1)]


def place(rows: list[list[str]], edges: Edges) -> tuple[dict[str, float], list[list[str]]]:
    """Return the x of every name, and the route of every edge; "a>b>i" is where edge a, b crosses row i."""
    level = {name: i for i, row in enumerate(rows) for name in row}
    routes = [[a, *(f"{a}>{b}>{i}" for i in range(level[a] + 1, level[b])), b] for a, b in sorted(edges)]
    level |= {name: level[route[0]] + i for route in routes for i, name in enumerate(route)}
    steps = [step for route in routes for step in (*pairwise(route), *pairwise(route[::-1]))]
    near = {name: [b for a, b in steps if a == name] for name in sorted(level)}
    x = dict.fromkeys(near, (LEFT + RIGHT) / 2)
    for i in 60 * [*range(len(rows)), *reversed(range(len(rows)))]:
        wish = {name: fmean(x[o] for o in near[name] or [name]) for name in near if level[name] == i}
        x |= spread(sorted(wish, key=wish.__getitem__), wish)
    return x, routes


def spread(row: list[str], wish: dict[str, float]) -> dict[str, float]:
    """Return places close to those wished for, in this order and without overlap (pool adjacent violators)."""
    half = [0 if ">" in name else WIDTH * len(name) / 2 + 12 for name in row]
    shift = [0.0, *accumulate(a + b + GAP for a, b in pairwise(half))]
    blocks: list[list[float]] = []
    for name, by in zip(row, shift):
        blocks.append([wish[name] - by])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    free = (min(max(fmean(block), LEFT + half[0]), RIGHT - half[-1] - shift[-1]) for block in blocks for _ in block)
    return {name: start + by for name, start, by in zip(row, free, shift)}


def svg(imports: Imports) -> str:
    """Return the picture. Its ``metadata`` lists the edges, "a -> b"; the line that draws one has the id "a.b"."""
    bands = [rows_of(floor, drawn(imports)) for floor in imports.floors]
    x, routes = place(rows := [row for band in bands for row in band], drawn(imports))
    y = {name: ROW * i + ROW // 2 for i, row in enumerate(rows) for name in row}
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {RIGHT + 20} {ROW * len(rows)}">{STYLE}<metadata>']
    out += [*(f"{a} -&gt; {b}" for a, b in sorted(imports.edges)), "</metadata>"]
    for floor, band in zip(range(len(bands), 0, -1), bands):
        top, high = y[band[0][0]] - ROW // 2, ROW * len(band)
        label = f'<text x="36" y="{top + high // 2 + 4}">floor {floor}</text>'
        out.append(f'<rect class="band{floor % 2}" y="{top}" width="100%" height="{high}"/>{label}')
    for route in routes:
        (a, *_, b), bends = route, [(x[name], y[route[0]] + ROW * i) for i, name in enumerate(route)][1:-1]
        ends = [((u + s) / 2, (v + t) / 2) for (u, v), (s, t) in pairwise(bends)] + [(x[b], y[b] - 12)]
        curve = "".join(f"Q{u:.0f} {v} {s:.0f} {t:.0f}" for (u, v), (s, t) in zip(bends or ends, ends))
        out.append(f'<path class="edge" id="{a}.{b}" d="M{x[a]:.0f} {y[a] + 12}{curve}"/>')
    for name, v in y.items():
        kind, size = "package" if name in imports.packages else "module", WIDTH * len(name) + 24
        box = f'x="{x[name] - size / 2:.0f}" y="{v - 12}" width="{size:.0f}" height="24" rx="4"'
        out.append(f'<rect class="{kind}" {box}/><text x="{x[name]:.0f}" y="{v + 4}">{name}</text>')
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    text = svg(read_imports())
    if "--check" in sys.argv:
        sys.exit(not TO.exists() or TO.read_text(encoding="utf-8") != text)
    TO.write_text(text, encoding="utf-8", newline="\n")
