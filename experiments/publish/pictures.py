"""Make the pictures of the README and the documentation that are not results of experiments: ``python experiments/publish/pictures.py``.

``python experiments/publish/pictures.py overview`` makes this one alone: the picture of the README, from ``results``.

``_static/overview.png`` shows what a nonsymmetric kernel can say, and times of ``results/fig2-n.csv``. The other is the
map of a small shelf in the gallery.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpp import LowRankKernel, answers
from ndpp.datasets import shelf_kernel
from ndpp.plots.maps import ATTRACT, embedding_map
from ndpp_experiments.plots import REPEL, Curve, line_look

DOCS = Path(__file__).resolve().parents[2] / "docs"
STATIC = DOCS / "_static"
RESULTS = DOCS.parent / "results"


def overview() -> None:
    figure = Figure(figsize=(10.5, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    beside(left, shelf_kernel(), ["bread", "pasta"])
    times(right)
    figure.savefig(STATIC / "overview.png", dpi=130)


def beside(axes: Axes, kernel: LowRankKernel, given: list[str]) -> None:
    """Draw how many times as likely each item is where those given are in."""
    ids = kernel.ids(given)
    lift = kernel.inclusion_probabilities(given=ids) / kernel.inclusion_probabilities()
    order = sorted((i for i in range(kernel.n_items) if i not in ids), key=lambda i: lift[i])
    for y, i in enumerate(order):
        repels, same = lift[i] < 0.98, abs(lift[i] - 1) <= 0.02
        color = "#c9cfd4" if same else REPEL if repels else ATTRACT
        hatch, edge = ("///", "white") if repels else (None, None)
        bar = axes.barh(y, lift[i] - 1, left=1, height=0.72, color=color, hatch=hatch, edgecolor=edge)
        axes.bar_label(bar, [f"{lift[i]:.2g}×"], padding=3, fontsize=9)
    axes.set_yticks(range(len(order)), [(kernel.labels or ())[i] for i in order])
    axes.tick_params(axis="y", length=0)
    axes.axvline(1, color="black", lw=0.8)
    axes.set_xlim(-0.3, max(1.5, max(lift[i] for i in order) + 0.35))
    axes.set_xticks([0, 0.5, 1, 1.5], ["never", "half", "as ever", "1½ times"])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(f"Beside {' and '.join(given)}: attraction and repulsion", fontsize=11)


def times(axes: Axes) -> None:
    """Draw seconds per sample against the number of items, from the recorded results."""
    with open(RESULTS / "fig2-n.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    n = [float(row["n"]) for row in rows]
    names = {
        "rejection_walk": "the paper's walk, approximate",
        "direct_walk": "our walk, approximate",
        "exact": "exact",
    }
    for i, (name, label) in enumerate(names.items()):
        curve = Curve(label, n, [1e3 * float(row[name]) for row in rows])
        axes.plot(curve.x, curve.y, **line_look(2 - i))
        axes.annotate(label, (n[1], curve.y[1]), (0, 13), textcoords="offset points", ha="center", fontsize=9)
    axes.set(xscale="log", yscale="log", xlabel="items in the catalogue", ylabel="milliseconds per sample of 10 items")
    axes.grid(which="major", color="#e4e7ea", lw=0.8)
    axes.margins(y=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("One core, rank 100: the catalogue hardly matters", fontsize=11)


def shelf() -> None:
    """Draw the map of the gallery, of a small shelf, whose kinds are known."""
    kernel = shelf_kernel()
    drawn = embedding_map(kernel, n=kernel.n_items, pairs=answers.pairs(kernel))
    drawn.savefig(STATIC / "shelf-map.png", dpi=90)


if __name__ == "__main__":
    made = {"shelf": shelf, "overview": overview}
    for name in sys.argv[1:] or made:
        made[name]()
