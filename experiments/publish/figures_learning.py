"""The tables of ``docs/learning.md``, from the records of ``benchmarks/quality.py`` and ``benchmarks/bench_learning.py``."""

from __future__ import annotations

from typing import Any

from ndpp_experiments.record import markdown_table, on_machine

Record = dict[str, Any]
NAMES = {
    "uk_retail": "UK Retail",
    "foodcom": "Food.com recipes",
    "instacart_train": "Instacart (train orders)",
    "goodreads_toread": "Goodreads to-read shelves",
    "amazon_apparel": "Amazon registries, apparel",
    "amazon_3cat": "Amazon registries, three categories",
    "groceries": "Groceries",
    "complete_journey": "Complete journey, by product type",
}
MODELS = ["independent items", "item-item cosine", "SymmetricDPP", "ONDPP", "NDPP"]
METRICS = {"log-likelihood": 2, "log-likelihood gain": 2, "MPR": 1, "AUC": 3, "hit rate@10": 3}


def cell(record: Record, metric: str) -> str:
    if metric not in record["metrics"]:
        return "–"
    value, low, high, _ = record["metrics"][metric]
    digits = METRICS[metric]
    if low == high:
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def name(record: Record) -> str:
    gamma = f", γ = {record['gamma']:g}" if record["gamma"] else ""
    return f"`{record['model']}{gamma}`" if record["model"] in MODELS[2:] else record["model"].replace("-", "–")


def section(data: str, records: list[Record]) -> str:
    records = sorted(records, key=lambda r: (MODELS.index(r["model"]), r["gamma"] or 0.0, r["seed"]))
    first = [record for record in records if record["seed"] == 0]
    rows = [[name(record), *(cell(record, metric) for metric in METRICS)] for record in first]
    found = first[-1]
    text = f"### {NAMES[data]}\n\n{found['n_items']:,} items, {found['n_train']:,} training baskets, rank {found['rank']}.\n\n"
    text += markdown_table(["model", "log-likelihood", "gain", "MPR", "AUC", "hit rate@10"], rows)
    return "\n".join([text + "\n", *notes(records), ""])


def notes(records: list[Record]) -> list[str]:
    """Return what a reader should know: the spread over seeds, unfinished training, and where a simple model wins."""
    out = []
    ours = [record for record in records if record["model"] == "NDPP"]
    if len(ours) > 1:
        spread = []
        for metric in ("log-likelihood gain", "MPR"):
            values = [record["metrics"][metric][0] for record in ours]
            spread.append(f"{metric.replace('log-likelihood ', '')} {min(values):.2f} to {max(values):.2f}")
        out.append(f"NDPP with seeds {', '.join(str(record['seed']) for record in ours)}: {', '.join(spread)}.")
    out += [
        f"{name(cut)} with seed {cut['seed']} was cut after {cut['epochs']} epochs, before it had converged."
        for cut in records
        if cut.get("ended", "converged") != "converged"
    ]
    cosine = next((record for record in records if record["model"] == "item-item cosine"), None)
    baseline = next((record for record in records if record["model"] == "independent items"), None)
    for simple in filter(None, (baseline, cosine)):
        better = [
            metric for metric in ("log-likelihood", "MPR", "hit rate@10")
            if ours and metric in simple["metrics"] and simple["metrics"][metric][0] > ours[0]["metrics"][metric][0]
        ]  # fmt: skip
        if better:
            out.append(f"**{simple['model'].replace('-', '–').capitalize()} beats NDPP in {' and '.join(better)}.**")
    return out


def proposals(records: list[Record]) -> str:
    rows = [
        [NAMES[r["data"]], f"{r['gamma']:g}", f"{r['proposals']:.3g}", cell(r, "log-likelihood gain"), cell(r, "MPR")]
        for r in sorted(records, key=lambda r: (list(NAMES).index(r["data"]), r["gamma"] or 0.0))
        if r["model"] == "ONDPP"
    ]
    return markdown_table(["data", "γ", "expected proposals", "gain", "MPR"], rows)


def speed(found: dict[str, Any]) -> str:
    rows = []
    for model, row in found.get("steps", {}).items():
        target = f"≤ {found['target_ms']} ms" if model == "NDPP" else ""
        times = f"{1e3 * row['median']:.0f} ms (least {1e3 * row['least']:.0f})"
        rows.append([f"a step of {model}, 3,941 items, rank 200, batch 200", times, target])
    if curve := found.get("training"):
        _, _, gain, seconds, cpu = next((row for row in curve if row[2] >= 1.4), curve[-1])
        times = f"{cpu:.0f} s (wall-clock {seconds:.0f} s), where it is {gain:.1f}"
        rows.append(["UK Retail, gain 1.4 on validation baskets", times, "≤ 20 s"])
        _, steps, _, seconds, cpu = curve[-1]
        times = f"{cpu:.0f} s (wall-clock {seconds:.0f} s), {steps:.0f} steps"
        rows.append([f"UK Retail, {found['ended']}", times, "≤ 300 s on two cores"])
    if large := found.get("large"):
        times = f"{1e3 * large['median']:.0f} ms (least {1e3 * large['least']:.0f})"
        rows.append([f"a step at {large['n_items']:,} items, rank 200, batch 200", times, ""])
        rows.append(["peak memory there", f"{large['peak_gib']:.1f} GiB", "≤ 8 GiB"])
    return markdown_table(["", "CPU time, one core", "target"], rows)


def parts(records: list[Record], learning: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page by name."""
    sections = [section(data, found) for data in NAMES if (found := [r for r in records if r["data"] == data])]
    return {
        "data": "\n".join(sections),
        "proposals": proposals(records) + "\n",
        "speed": f"{speed(learning)}\n\n{on_machine(learning['machine'])}.\n",
    }
