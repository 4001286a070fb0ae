"""Do sampled baskets look like real ones? Classifier two-sample tests, sizes and pair lifts of learned models.

    NDPP_DATA=… python benchmarks/lookalike.py --kernels kernels -o benchmarks/results/lookalike.json --pictures docs/_static

``--kernels`` names the folder of models that ``benchmarks/quality.py --kernels`` saved. Each model draws as many baskets as there are
test baskets, and a classifier learns to tell them from the test baskets. The control is other real baskets, taken out of the training
baskets. Pair lifts are those of the most frequent pairs, in training baskets and in more samples.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from quality import DATA, N_VALIDATION, load

import ndpp
from ndpp import Baskets, metrics
from ndpp._atomic import replacing
from ndpp.diagnostics import classifier_test
from ndpp.experiments.record import machine
from ndpp.plots._base import COLOURS, NEUTRAL, STYLES

NAMES = {"uk_retail": "UK Retail", "groceries": "Groceries"}
LEARNED = ("MixtureNDPP", "NDPP")
N_PAIRS = 300


def draw_independent(model: metrics.IndependentItems, n: int, rng: np.random.Generator) -> Baskets:
    rows = [np.flatnonzero(rng.random(model.n_items) < model.probabilities) for _ in range(n)]
    return Baskets.from_lists(rows, n_items=model.n_items)


def draw(models: dict[str, Any], n: int, rng: np.random.Generator) -> dict[str, Baskets]:
    return {
        name: draw_independent(model, n, rng)
        if isinstance(model, metrics.IndependentItems)
        else model.sample(n, rng=rng)
        for name, model in models.items()
    }


def frequent_pairs(baskets: Baskets) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs that most baskets hold."""
    matrix = baskets.to_csr().astype(np.int64)
    together = (matrix.T @ matrix).tocoo()
    upper = together.row < together.col
    row, col, counts = together.row[upper], together.col[upper], together.data[upper]
    order = np.argsort(-counts, kind="stable")[:N_PAIRS]
    return row[order], col[order]


def lifts(baskets: Baskets, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return P(both) / (P(first) P(second)), with half a basket added to each count."""
    matrix = baskets.to_csr().astype(np.int64).tocsc()
    both = np.array([matrix[:, [a]].multiply(matrix[:, [b]]).sum() for a, b in zip(first, second)])
    counts = np.bincount(baskets.indices, minlength=baskets.n_items) + 0.5
    return (both + 0.5) * (len(baskets) + 1) / (counts[first] * counts[second])


def judge(data: str, kernels: Path, n_lifts: int, seed: int) -> tuple[dict[str, Any], Figure]:
    rng = np.random.default_rng(seed)
    train, _, test = load(data).split(N_VALIDATION, DATA[data].n_test, rng=0)
    shuffled = rng.permutation(len(train))
    control, reference = train[np.sort(shuffled[: len(test)])], train[np.sort(shuffled[len(test) :])]
    models: dict[str, Any] = {}
    for name in LEARNED:
        (path,) = kernels.glob(f"{data}-{name.lower()}-*-0.safetensors")
        models[name] = ndpp.load(path)
    models["independent items"] = metrics.independent_items(train)
    drawn = draw(models, len(test), rng)
    first, second = frequent_pairs(reference)
    known = lifts(reference, first, second)
    record: dict[str, Any] = {"data": data, "n_test": len(test), "n_lifts": n_lifts, "models": {}}
    seen: dict[str, np.ndarray] = {"other real baskets": lifts(control, first, second)}
    for name, baskets in {"other real baskets": control, **drawn}.items():
        found = classifier_test(test, baskets, reference, rng=0)
        if name in models:
            more = draw({name: models[name]}, n_lifts, rng)[name]
            seen[name] = lifts(more, first, second)
        error = np.abs(np.log(seen[name] / known))
        record["models"][name] = {
            "auc": [found.auc, found.low, found.high], "features": [list(feature) for feature in found.features],
            "mean_size": float(baskets.sizes.mean()), "sd_size": float(baskets.sizes.std()), "empty": float(np.mean(baskets.sizes == 0)),
            "median_lift_error": float(np.median(error)),
        }  # fmt: skip
        print(data, name, found, f"median |log lift error| {np.median(error):.3f}", flush=True)
    record |= {"mean_size": float(test.sizes.mean()), "sd_size": float(test.sizes.std())}
    return record, picture(data, test, drawn, known, seen)


def picture(
    data: str, test: Baskets, drawn: dict[str, Baskets], known: np.ndarray, seen: dict[str, np.ndarray]
) -> Figure:
    """Draw the sizes on the left, and the lifts of pairs in samples against those in real baskets, one panel per model."""
    figure = Figure(figsize=(12.5, 3.6), layout="constrained")
    panels = figure.subplots(1, 1 + len(drawn), width_ratios=[1.5, *[1.0] * len(drawn)])
    most = int(np.quantile(test.sizes, 0.99))
    edges = np.arange(-0.5, most + 1.5) if most < 40 else np.linspace(-0.5, most + 0.5, 34)
    panels[0].hist(np.minimum(test.sizes, most), edges, density=True, color=NEUTRAL, alpha=0.35, label="test baskets")
    for i, (name, baskets) in enumerate(drawn.items()):
        share, _ = np.histogram(np.minimum(baskets.sizes, most), edges, density=True)
        panels[0].stairs(share, edges, color=COLOURS[i], ls=STYLES[i], lw=1.8, label=name)
    panels[0].set(xlabel=f"items in a basket (last bar: {most} or more)", ylabel="share per item")
    panels[0].legend(frameon=False)
    panels[0].set_title(f"{NAMES.get(data, data)}: sizes", loc="left", fontsize=11)
    ends = (
        min(known.min(), *(seen[name].min() for name in drawn)) * 0.8,
        max(known.max(), *(seen[name].max() for name in drawn)) * 1.25,
    )
    for i, (panel, name) in enumerate(zip(panels[1:], drawn)):
        panel.plot(ends, ends, color=NEUTRAL, lw=1)
        panel.scatter(known, seen[name], s=9, color=COLOURS[i], alpha=0.6, linewidths=0)
        panel.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="lift in training baskets")
        panel.set_title(name, loc="left", fontsize=11)
        panel.set_aspect("equal")
    panels[1].set_ylabel("lift in samples")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(NAMES))
    parser.add_argument("--kernels", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--lift-samples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pictures", type=Path, metavar="FOLDER")
    parser.add_argument("-o", "--output", type=Path, default=Path("lookalike.json"))
    chosen = parser.parse_args()
    for data in chosen.data:
        record, figure = judge(data, chosen.kernels, chosen.lift_samples, chosen.seed)
        if chosen.pictures:
            figure.savefig(chosen.pictures / f"lookalike-{data}.png", dpi=110)
        there = json.loads(chosen.output.read_text(encoding="utf-8"))["records"] if chosen.output.exists() else []
        records = [one for one in there if one["data"] != data] + [record]
        with replacing(chosen.output) as temporary:
            temporary.write_text(
                json.dumps({"machine": machine(), "records": records}, indent=1) + "\n", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
