"""Draw ``_static/gpu-layout.svg``, the picture of :doc:`gpu-internals`: ``python experiments/publish/gpu_layout.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

TO = Path(__file__).resolve().parents[2] / "docs" / "_static" / "gpu-layout.svg"
SHARED, OWN, EMPTY, LINE = "#cfe0f3", "#f7d9b6", "#f5f5f5", "#404040"
N, CAPACITY, NODES = 3, 5, 3


def box(ax: Axes, x: float, y: float, width: float, height: float, color: str) -> None:
    ax.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor=LINE, linewidth=0.7))


def text(
    ax: Axes, x: float, y: float, words: str, *, size: float = 8.5, align: str = "left", weight: str = "normal"
) -> None:
    ax.text(x, y, words, fontsize=size, ha=align, va="center", color=LINE, fontweight=weight)


def shared(ax: Axes) -> None:
    """The matrices Z_j at the nodes of a circle."""
    text(ax, 0, 9.6, "Shared by all samples on a circle", weight="bold", size=9.5)
    for j in reversed(range(NODES)):
        box(ax, 0.3 + 0.3 * j, 6.55 + 0.3 * j, 1.9, 1.9, SHARED)
    text(ax, 1.25, 7.5, "$Z_0$", align="center", size=10)
    text(ax, 3.2, 8.75, "$Z_0 … Z_{h−1}$, each r × r,")
    text(ax, 3.2, 8.35, "complex, at h nodes")
    text(ax, 3.2, 7.7, "kept as to_sides (r, h·4·r):")
    text(ax, 3.2, 7.3, "q @ to_sides is Zq and Zᵀq")
    text(ax, 3.2, 6.9, "at all nodes in one product")


def sample(ax: Axes) -> None:
    """What one sample carries."""
    title = f"One of S samples, with n = {N} items chosen and a capacity of {CAPACITY}"
    text(ax, 7.6, 9.6, title, weight="bold", size=9.5)
    for i in range(CAPACITY):
        box(ax, 7.6, 8.8 - 0.36 * i, 1.9, 0.3, OWN if i < N else EMPTY)
    text(ax, 8.55, 6.75, "basis q̂ (wanted, r)", align="center")
    for i in range(CAPACITY):
        for j in range(NODES):
            for part in range(4):
                box(ax, 10.1 + 1.5 * j + 0.34 * part, 8.8 - 0.36 * i, 0.31, 0.3, OWN if i < N else EMPTY)
    text(ax, 12.3, 6.75, "sides (capacity, h, 4, r)", align="center")
    for j in range(NODES):
        for part in range(2):
            x, y = 15.0 + 1.7 * j + 0.25 * part, 7.4 + 0.25 * part
            box(ax, x, y, 1.3, 1.2, EMPTY)
            box(ax, x, y + 1.2 * (1 - N / CAPACITY), 1.3 * N / CAPACITY, 1.2 * N / CAPACITY, OWN)
    text(ax, 17.5, 6.75, "(VU)ᵀ (h, 2, capacity, capacity); G⁻¹ as below", align="center")


def strips(ax: Axes) -> None:
    """How sides and G⁻¹ lie in memory."""
    text(ax, 0, 5.6, "In memory: sides, one sample after another", weight="bold", size=9.5)
    names = ("Re Zq̂", "Im Zq̂", "Re Zᵀq̂", "Im Zᵀq̂")
    for j in range(3):
        for part, name in enumerate(names):
            x = 0.3 + 5.7 * j + 1.4 * part
            box(ax, x, 4.2, 1.4, 0.7, OWN)
            text(ax, x + 0.7, 4.55, name, align="center", size=8)
        where = ("item 0, node 0: 4·r numbers", "item 0, node 1", "… item 0, node h − 1")[j]
        text(ax, 0.3 + 5.7 * j, 5.15, where, size=8)
    text(ax, 17.6, 4.55, "… then item 1", size=8)
    title = f"In memory: G⁻¹ at one node, n = {N}: rows at the next even distance, no gaps"
    text(ax, 0, 3.3, title, weight="bold", size=9.5)
    for i in range(4):
        for k in range(4):
            used = i < N and k < N
            x = 0.3 + 3.1 * i + 0.75 * k
            if i < N:
                box(ax, x, 2.0, 0.75, 0.7, OWN if used else EMPTY)
                text(ax, x + 0.375, 2.35, f"{i},{k}" if used else "·", align="center", size=8)
    box(ax, 0.3 + 9.3, 2.0, 3.3, 0.7, EMPTY)
    text(ax, 0.3 + 9.3 + 1.65, 2.35, "free, up to capacity²", align="center", size=8)
    text(ax, 13.3, 2.35, "real part; the imaginary part follows capacity² later", size=8)
    blue, orange = "Blue: computed once per circle.", "Orange: what belongs to the chosen items."
    text(ax, 0.3, 1.3, f"{blue} {orange} Grey: space for the items to come.")


def main() -> None:
    # Letters stay letters, and nothing in the file tells when it was made.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gpu-layout", "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(11.5, 5.6), layout="constrained")
        ax = figure.subplots()
        ax.set(xlim=(-0.1, 20.2), ylim=(0.9, 10.0))
        ax.axis("off")
        shared(ax)
        sample(ax)
        strips(ax)
        figure.savefig(TO, metadata={"Date": None})


if __name__ == "__main__":
    main()
