"""The single kernels of ``docs/quality.md`` (``quality.py``) and the times of ``docs/fitting.md`` (``benchmarks/bench_learning.py``)."""

from __future__ import annotations

from typing import Any

from units import duration

from ndpp_experiments.record import grouped, markdown_table, on_machine

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


def kernels(records: list[Record]) -> str:
    """Return all single kernels and the simple models in one table, and what a reader should know about them."""
    rows, said = [], []
    records = [record for record in records if record["model"] in MODELS]
    for data, title in NAMES.items():
        own = [record for record in records if record["data"] == data]
        own.sort(key=lambda r: (MODELS.index(r["model"]), r["gamma"] or 0.0, r["seed"]))
        first = [record for record in own if record["seed"] == 0]
        shape = f"{first[-1]['n_items']:,} items, {first[-1]['n_train']:,} baskets, rank {first[-1]['rank']}"
        for i, record in enumerate(first):
            proposals = f"{record['proposals']:.3g}" if "proposals" in record else ""
            cells = [name(record), *(cell(record, metric) for metric in METRICS), proposals]
            rows.append([(f"**{title}**", shape, "")[min(i, 2)], *cells])
        said.append(f"{title} {spread(own)}{cut(own)}")
    header = ["data", "model", "log-likelihood", "gain", "MPR", "AUC", "hit rate@10", "expected proposals"]
    seeds = f"`NDPP` over its training seeds: {'; '.join(said)}."
    return "\n\n".join([markdown_table(header, rows), losses(records), seeds, times(records)])


def times(records: list[Record]) -> str:
    """Say how long the training runs took, on each kind of machine."""
    said = []
    for where, own in grouped([r for r in records if r.get("steps")], lambda record: record["where"]).items():
        whole, steps = [r["seconds"] for r in own], [r["seconds"] / r["steps"] for r in own]
        ranges = [f"{duration(min(values))} to {duration(max(values))}" for values in (whole, steps)]
        said.append(f"{ranges[0]} on an {where}, {ranges[1]} per step")
    return f"Training took {'; '.join(said)}, several runs at once."


def spread(records: list[Record]) -> str:
    """Return the range of gain and MPR of NDPP over its seeds."""
    ours, found = [record for record in records if record["model"] == "NDPP"], []
    for metric in ("log-likelihood gain", "MPR"):
        values = [record["metrics"][metric][0] for record in ours]
        found.append(f"{metric.replace('log-likelihood ', '')} {min(values):.2f} to {max(values):.2f}")
    return ", ".join(found)


def cut(records: list[Record]) -> str:
    """Say which training runs did not end by themselves."""
    return "".join(
        f", {name(record)} with seed {record['seed']} cut after {record['epochs']} epochs, before it had converged"
        for record in records
        if record.get("ended", "converged") != "converged"
    )


def losses(records: list[Record]) -> str:
    """Say where a simple model is better than NDPP."""
    first = {(r["data"], r["model"]): r["metrics"] for r in records if r["seed"] == 0 and not r["gamma"]}
    lost = []
    for simple in ("item-item cosine", "independent items"):
        for metric in ("log-likelihood", "MPR", "hit rate@10"):
            where = [
                NAMES[data]
                for data in NAMES
                if first[data, simple].get(metric, [-float("inf")])[0] > first[data, "NDPP"][metric][0]
            ]
            if where:
                told = "all data sets" if len(where) == len(NAMES) else "; ".join(where)
                lost.append(f"{simple.replace('-', '–')} in {metric} on {told}")
    return f"**Simple models that beat `NDPP`:** {'. '.join(one[0].upper() + one[1:] for one in lost)}."


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
    if default := found.get("default"):
        times = f"{duration(default['cpu'])} (wall-clock {duration(default['wall'])}), {default['epochs']} epochs"
        rows.append(["UK Retail, the model of `ndpp fit`", times, ""])
    if large := found.get("large"):
        times = f"{1e3 * large['median']:.0f} ms (least {1e3 * large['least']:.0f})"
        rows.append([f"a step at {large['n_items']:,} items, rank 200, batch 200", times, ""])
        rows.append(["peak memory there", f"{large['peak_gib']:.1f} GiB", "≤ 8 GiB"])
    return markdown_table(["", "CPU time, one core", "target"], rows)


def weighted(records: list[Record]) -> str:
    """Return what weights of baskets change on validation baskets."""
    groups = {"1-4": "1 to 4 items", "5-10": "5 to 10", "11-": "more"}
    digits = {"log-likelihood": 2, "hit rate@10": 3, "MRR": 3, "MPR": 1}
    rows = []
    for record in records:
        likelihood, *ranks = (f"{record['metrics'][metric][0]:.{places}f}" for metric, places in digits.items())
        by_size = [f"{record['by_size'][group]:.2f}" for group in groups]
        rows.append([NAMES[record["data"]], f"{record['power']:g}", likelihood, *by_size, *ranks])
    header = ["data", "$a$", "log-likelihood", *groups.values(), *list(digits)[1:]]
    return f"{markdown_table(header, rows)}\n"


def trained(records: list[Record]) -> str:
    """Return how long the default model was trained on each data set."""
    rows = []
    for data, title in NAMES.items():
        own = next(r for r in records if (r["data"], r["model"], r["seed"]) == (data, "MixtureNDPP", 0))
        size = f"{own['n_train']:,} baskets, {own['n_items']:,} items"
        rows.append([title, size, str(own["epochs"]), duration(own["seconds"]), own["where"]])
    return markdown_table(["data", "", "epochs", "training", "on"], rows) + "\n"


def parts(learning: dict[str, Any], records: list[Record]) -> dict[str, str]:
    """Return the blocks of ``docs/fitting.md`` by name."""
    return {"speed": f"{speed(learning)}\n\n{on_machine(learning['machine'])}.\n", "trained": trained(records)}
