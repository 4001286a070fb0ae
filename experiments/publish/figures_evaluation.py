"""The tables of ``docs/learning.md`` that compare models: the summary, the peers, and whether samples look like baskets.

From ``benchmarks/results``: ``summary.json`` (``benchmarks/quality.py``), ``peers.json`` (``benchmarks/peers/run.py``) and
``lookalike.json`` (``benchmarks/lookalike.py``).
"""

from __future__ import annotations

import math
from typing import Any

from figures_learning import NAMES

from ndpp_experiments.record import markdown_table, on_machine

Record = dict[str, Any]
COMPARED = {"NDPP": "`NDPP`", "MixtureNDPP": "`MixtureNDPP`", "item-item cosine": "item–item cosine", "EASE": "EASE"}
SHOWN = {"MPR": 1, "hit rate@10": 3, "MRR": 3, "NDCG@10": 3}
TITLES = {"independent items": "popularity", "BM25 neighbours": "BM25 neighbours (implicit)", "ALS": "ALS (implicit)",
          "AleaCarta": "AleaCarta (choice-learn)"}  # fmt: skip


def by_model(records: list[Record], data: str) -> dict[str, dict[str, list[float]]]:
    return {record["model"]: record["metrics"] for record in records if record["data"] == data and record["seed"] == 0}


def best(values: dict[str, float], digits: int) -> dict[str, str]:
    """Return the values as text, the largest in bold."""
    most = max(values.values())
    return {
        name: f"**{value:.{digits}f}**" if value == most else f"{value:.{digits}f}" for name, value in values.items()
    }


def summary(records: list[Record]) -> str:
    """Return one line per data set: the gains of both models, then MPR and hit rate of all."""
    rows = []
    for data in NAMES:
        found = by_model(records, data)
        if not found:
            continue
        gains = best(
            {name: found[name]["log-likelihood gain"][0] for name in ("NDPP", "MixtureNDPP") if name in found}, 2
        )
        columns = [best({name: found[name][metric][0] for name in COMPARED if name in found}, digits) for metric, digits in
                   (("MPR", 1), ("hit rate@10", 3))]  # fmt: skip
        shape = next(
            f"{r['n_missions']}, {r['rank']}" for r in records if (r["data"], r["model"]) == (data, "MixtureNDPP")
        )
        rows.append(
            [NAMES[data], shape, *gains.values(), *(column.get(name, "–") for column in columns for name in COMPARED)]
        )
    heads = ["data", "missions, rank", "gain: `NDPP`", "`MixtureNDPP`"]
    heads += [
        f"{title}: {name}" if i == 0 else name
        for title in ("MPR", "hit rate@10")
        for i, name in enumerate(COMPARED.values())
    ]
    return markdown_table(heads, rows) + "\n\n" + losses(records) + "\n"


def hit_rates(records: list[Record]) -> str:
    """Return one line per data set: the hit rates of all models."""
    rows = []
    for data in NAMES:
        found = by_model(records, data)
        rates = best({name: found[name]["hit rate@10"][0] for name in COMPARED if name in found}, 3) if found else {}
        rows += [[NAMES[data], *(rates.get(name, "–") for name in COMPARED)]] if found else []
    return markdown_table(["data", *COMPARED.values()], rows) + "\n"


def losses(records: list[Record]) -> str:
    """Say where a simple model ranks better than the mixture."""
    lost = []
    for data in NAMES:
        found = by_model(records, data)
        for simple in ("item-item cosine", "EASE"):
            metrics = [
                m
                for m in ("MPR", "hit rate@10")
                if simple in found and found[simple][m][0] > found["MixtureNDPP"][m][0]
            ]
            if metrics:
                lost.append(f"{COMPARED[simple]} on {NAMES[data]} ({' and '.join(metrics)})")
    return (
        f"**Simple models that beat `MixtureNDPP`: {'; '.join(lost)}.**"
        if lost
        else "No simple model beats `MixtureNDPP`."
    )


def peers(found: dict[str, Any], records: list[Record]) -> str:
    """Return a table per data set, with the paired difference of the hit rate to item–item cosine, and what was chosen.

    Where the fitted mixture was not kept, its row has only what the summary has.
    """
    out = []
    for record in sorted(found["records"], key=lambda record: list(NAMES).index(record["data"])):
        metrics = {"MixtureNDPP": by_model(records, record["data"])["MixtureNDPP"], **record["metrics"]}
        columns = {
            m: best({name: own[m][0] for name, own in metrics.items() if m in own}, digits)
            for m, digits in SHOWN.items()
        }
        rows = [
            [_title(name), *(columns[m].get(name, "–") for m in SHOWN), _difference(own.get("hit rate@10 gain"))]
            for name, own in metrics.items()
        ]
        out += [f"**{NAMES[record['data']]}**, {record['n_held_out']:,} held-out items", ""]
        out += [markdown_table(["model", *SHOWN, "hit rate@10, difference to cosine"], rows), ""]
        out += [_winners(metrics), _chosen(record), ""]
    return "\n".join([*out, f"{on_machine(found['machine'])}.", ""])


def _title(name: str) -> str:
    return COMPARED.get(name, TITLES.get(name, name))


def _winners(metrics: dict[str, dict[str, list[float]]]) -> str:
    """Say which models beat the mixture, and in which metrics."""
    mixture, lost = metrics["MixtureNDPP"], []
    for name, own in metrics.items():
        better = [m for m in SHOWN if m in mixture and m in own and own[m][0] > mixture[m][0]]
        if better:
            lost.append(f"{_title(name)} in {', '.join(better)}")
    return f"**Better than `MixtureNDPP`: {'; '.join(lost)}.**" if lost else "None is better than `MixtureNDPP`."


def _difference(interval: list[float] | None) -> str:
    if interval is None:
        return "–"
    value, low, high, *_ = interval
    return "–" if low == high else f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"


def _chosen(record: Record) -> str:
    parts = [f"EASE: λ = {record['penalty']:g}"]
    for peer in record["peers"]:
        if "error" in peer:
            parts.append(f"{peer['model']} could not be run: `{peer['error'].splitlines()[-1]}`")
            continue
        settings = ", ".join(f"{name} {value:g}" for name, value in peer["settings"].items())
        parts.append(f"{peer['model']}: {settings}, of {len(peer['tried'])} settings, {peer['seconds']:.1f} s")
    return "Chosen on validation baskets: " + "; ".join(parts) + "."


def lookalike(found: dict[str, Any]) -> str:
    """Return the AUC of the classifier and what gives samples away."""
    rows = []
    for record in found["records"]:
        for name, own in record["models"].items():
            value, low, high = own["auc"]
            feature, alone = own["features"][0]
            error = f"{100 * math.expm1(own['median_lift_error']):.0f} %"
            label = COMPARED.get(name, name)
            rows.append(
                [
                    NAMES[record["data"]],
                    label,
                    f"{value:.3f} [{low:.3f}, {high:.3f}]",
                    f"{feature} ({alone:.3f})",
                    _sizes(own),
                    error,
                ]
            )
    header = ["data", "compared with", "AUC", "best single feature (AUC)", "size, mean ± SD", "median error of a lift"]
    real = "; ".join(f"{NAMES[record['data']]} {_sizes(record)}" for record in found["records"])
    return f"{markdown_table(header, rows)}\n\nSizes of the test baskets: {real}.\n"


def _sizes(record: Record) -> str:
    """Return mean and standard deviation of the sizes, whose counts are recorded."""
    counts = record["sizes"]
    mean = sum(size * count for size, count in enumerate(counts)) / sum(counts)
    variance = sum((size - mean) ** 2 * count for size, count in enumerate(counts)) / sum(counts)
    return f"{mean:.1f} ± {math.sqrt(variance):.1f}"


def parts(quality: dict[str, Any], found: dict[str, Any], alike: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page by name."""
    records = quality["records"]
    return {
        "summary": summary(records), "peers": peers(found, records), "lookalike": lookalike(alike),
    }  # fmt: skip
