"""Do sampled baskets look like real ones? Classifier two-sample tests, sizes and pair lifts of learned models.

    NDPP_DATA=… python experiments/publish/lookalike.py --kernels kernels -o results/lookalike.json --pictures docs/_static

``--kernels`` names the folder of models that ``quality.py --kernels`` saved. Each model draws baskets, and a classifier learns to tell up
to 2,000 of them from the 2,000 test baskets. The control is other real baskets, taken out of the training baskets. Pair lifts are those
of the most frequent pairs, in training baskets and in all samples. ``--data`` without a name only draws the pictures of the records that
are there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from quality import DATA, N_VALIDATION, load

import ndpp
from ndpp import Baskets, metrics
from ndpp._atomic import replacing
from ndpp.plots.maps import NEUTRAL
from ndpp_experiments.lookalike import classifier_test
from ndpp_experiments.plots import COLOURS, STYLES
from ndpp_experiments.record import machine

NAMES = {"uk_retail": "UK Retail", "groceries": "Groceries"}
LEARNED = ("MixtureNDPP", "NDPP")
CONTROL = "other real baskets"
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
    return np.asarray((both + 0.5) * (len(baskets) + 1) / (counts[first] * counts[second]))


def judge(data: str, kernels: Path, n_samples: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    train, _, test = load(data).split(N_VALIDATION, DATA[data].n_test, rng=0)
    shuffled = rng.permutation(len(train))
    control, reference = train[np.sort(shuffled[: len(test)])], train[np.sort(shuffled[len(test) :])]
    models: dict[str, Any] = {}
    for name in LEARNED:
        (path,) = kernels.glob(f"{data}-{name.lower()}-*-0.safetensors")
        models[name] = ndpp.load(path)
    models["independent items"] = metrics.independent_items(train)
    drawn = draw(models, n_samples, rng)
    first, second = frequent_pairs(reference)
    known = lifts(reference, first, second)
    record: dict[str, Any] = {
        "data": data, "n_samples": n_samples, "sizes": np.bincount(test.sizes).tolist(), "lifts": known.round(4).tolist(), "models": {},
    }  # fmt: skip
    for name, baskets in {CONTROL: control, **drawn}.items():
        found = classifier_test(test, baskets[: len(test)], reference, rng=0)
        seen = lifts(baskets, first, second)
        error = float(np.median(np.abs(np.log(seen / known))))
        record["models"][name] = {
            "auc": [found.auc, found.low, found.high], "features": [list(feature) for feature in found.features],
            "sizes": np.bincount(baskets.sizes).tolist(), "lifts": seen.round(4).tolist(), "median_lift_error": error,
        }  # fmt: skip
        print(data, name, found, f"median |log lift error| {error:.3f}", flush=True)
    return record


def picture(record: dict[str, Any]) -> Figure:
    """Draw the sizes on the left, and the lifts of pairs in samples against those in real baskets, one panel per model."""
    models = {name: own for name, own in record["models"].items() if name != CONTROL}
    figure = Figure(figsize=(12.5, 3.4), layout="constrained")
    panels = figure.subplots(1, 1 + len(models), width_ratios=[1.5, *[1.0] * len(models)])
    counts = np.array(record["sizes"])
    most = int(np.searchsorted(np.cumsum(counts), 0.99 * counts.sum()))
    width = -(-(most + 1) // 34)
    edges = np.arange(-0.5, most + width, width)
    panels[0].stairs(shares(record["sizes"], edges), edges, fill=True, color=NEUTRAL, alpha=0.35, label="test baskets")
    for i, (name, own) in enumerate(models.items()):
        panels[0].stairs(shares(own["sizes"], edges), edges, color=COLOURS[i], ls=STYLES[i], lw=1.8, label=name)
    panels[0].set(xlabel="items in a basket (last class: all larger ones)", ylabel="share per item")
    panels[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].legend(frameon=False)
    panels[0].set_title(f"{NAMES.get(record['data'], record['data'])}: sizes", loc="left", fontsize=11)
    everything = np.concatenate([record["lifts"], *(own["lifts"] for own in models.values())])
    ends = everything.min() * 0.8, everything.max() * 1.25
    ticks = [tick for tick in (10.0**e * m for e in range(-3, 5) for m in (1, 2, 5)) if ends[0] <= tick <= ends[1]]
    ticks = ticks if len(ticks) <= 5 else [tick for tick in ticks if f"{tick:e}".startswith("1")]
    for i, (panel, (name, own)) in enumerate(zip(panels[1:], models.items())):
        panel.plot(ends, ends, color=NEUTRAL, lw=1)
        panel.scatter(record["lifts"], own["lifts"], s=9, color=COLOURS[i], alpha=0.6, linewidths=0)
        panel.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="lift in training baskets", aspect="equal")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(FixedLocator(ticks))
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_locator(NullLocator())
        panel.set_title(name, loc="left", fontsize=11)
    panels[1].set_ylabel("lift in samples")
    return figure


def shares(counts: list[int], edges: np.ndarray) -> np.ndarray:
    """Return the share of baskets per item of size, in the classes between the edges; larger sizes count in the last."""
    sizes = np.minimum(np.arange(len(counts)), edges[-1] - 0.5)
    return np.histogram(sizes, edges, weights=counts)[0] / np.diff(edges) / sum(counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=list(NAMES))
    parser.add_argument("--kernels", type=Path, default=Path("kernels"), metavar="FOLDER")
    parser.add_argument(
        "--samples", type=int, default=10_000, help="baskets per model, for the lifts; the test takes 2,000"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pictures", type=Path, metavar="FOLDER")
    parser.add_argument("-o", "--output", type=Path, default=Path("lookalike.json"))
    chosen = parser.parse_args()
    for data in chosen.data:
        record = judge(data, chosen.kernels, chosen.samples, chosen.seed)
        there = json.loads(chosen.output.read_text(encoding="utf-8"))["records"] if chosen.output.exists() else []
        found = {"machine": machine(), "records": [one for one in there if one["data"] != data] + [record]}
        with replacing(chosen.output) as temporary:
            temporary.write_text(json.dumps(found) + "\n", encoding="utf-8")
    if chosen.pictures:
        for record in json.loads(chosen.output.read_text(encoding="utf-8"))["records"]:
            picture(record).savefig(chosen.pictures / f"lookalike-{record['data']}.png", dpi=110)


if __name__ == "__main__":
    main()
