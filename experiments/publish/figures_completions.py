"""Completions by learned mixtures, for ``docs/serving.md``, and under limits, for ``docs/limits.md``.

From ``benchmarks/results``: ``completions.json`` (``bench_completions.py``) and ``limits.json`` (``bench_limits.py MODEL --general``).
"""

from __future__ import annotations

from statistics import median
from typing import Any

from units import duration

from ndpp_experiments.record import markdown_table, on_machine

Record = dict[str, Any]
TITLES = {"uk_retail": "UK Retail", "foodcom": "Food.com"}
LISTS = {
    "first_ms": "the first list, from the file that `ndpp fit` writes", "first_prepared_ms": "from one that `ndpp prepare` writes",
    **{f"{ranking}_given_{n}_ms": f"`{ranking}`, {n} given" for ranking in ("continuation", "completion", "lift") for n in (1, 2, 3)},
    **{f"{ranking}_bulk_ms": f"`{ranking}`, a basket of thousands" for ranking in ("continuation", "completion", "lift")},
    "inclusions_given_2_ms": "`inclusion_probabilities(given=…)`, 2 given",
}  # fmt: skip
"""What is measured of lists, by its name in the record."""


def _milliseconds(value: float) -> str:
    return duration(value / 1e3)


def completions(found: Record) -> str:
    """Return times of completions by each model, and what memory they take."""
    parts = []
    for name, own in found["completions"].items():
        run = own["runs"][0]
        lines = []
        for given in (1, 2, 3):
            cells = [run[f"warm_{size}_given_{given}_ms"] for size in ("any", "8")]
            lines.append([str(given), *(_milliseconds(cell[which]) for cell in cells for which in ("median", "p99"))])
        header = ["given items", "any size, median", "p99", "to eight items, median", "p99"]
        about = (
            f"The default model of {TITLES[name]}, a new basket each time, CPU time of one core. The first completion after loading takes "
            f"{duration(run['cold_any_s'])} (any size) or {duration(run['cold_8_s'])} (to eight items)"
        )
        if "command_cpu_s" in run:
            about += (
                f"; `ndpp complete` completes {run['command_baskets']:,} baskets in {duration(run['command_cpu_s'])}"
            )
        parts += [f"{about}. {on_machine(own['machine'])}.", markdown_table(header, lines)]
    for name, own in found.get("memory", {}).items():
        parts.append(
            f"While {own['different_baskets']:,} different baskets of {TITLES[name]} were completed, what is kept of components grew to "
            f"{own['kept_mb']:,.0f} MB of the {own['bound_mb']:,.0f} MB that are allowed, and the process by {own['grown_mb']:,.0f} MB."
        )
    if runs := found.get("flat", {}).get("runs"):
        sizes, whole, eight = (
            ", ".join(show(run[key]) for run in runs)
            for key, show in (("n_items", "{:,}".format), ("warm_any_ms", _milliseconds), ("warm_8_ms", _milliseconds))
        )
        parts.append(
            f"The number of items hardly matters: with {sizes} items at equal rank, a completion takes {whole} (any size) or {eight} (to "
            f"eight items), where memory is enough for all {runs[0]['components']} components."
        )
    for name, own in found.get("everyday", {}).items():
        calls, asked = own["sample_to_8_s"], own["api_to_8_s"]
        parts.append(
            f"A new server of {TITLES[name]} answers `/health` after {duration(own['health_s'])} and is ready after "
            f"{duration(own['ready_s'])}; the first {len(asked)} different baskets are then completed to eight items in "
            f"{duration(median(asked))} (median), {duration(max(asked))} at most. In Python, `law.sample(1, given=…, size=8)` takes "
            f"{duration(calls[0])} the first time and {duration(median(calls))} (median) after that."
        )
    for name, own in found.get("lists", {}).items():
        runs = {run["version"]: run for run in own["runs"]}
        both = [runs[version] for version in ("before", "now") if version in runs]
        lines = [[title, *(_milliseconds(run[key]) for run in both)] for key, title in LISTS.items()]
        about = (
            f"Lists of ten from the default model of {TITLES[name]}, CPU time of one core, medians of {both[-1]['baskets']} baskets; of "
            f"{both[-1]['lists']:,} lists {both[-1]['differ']} differ from those of the full sum. {on_machine(own['machine'])}."
        )
        header = ["what", *("before, in the same run" if run["version"] == "before" else "now" for run in both)]
        parts += [about, markdown_table(header, lines)]
    return "\n\n".join(parts) + "\n"


def limits(found: Record) -> str:
    """Return times of begun baskets under limits."""
    parts = []
    for name, own in found["general"].items():
        run = own["runs"][0]
        lines = [
            [
                row["name"], f"{row['probability']:.2g}", f"{row['accepted']:.2g}", duration(row["prepared_s"]),
                _milliseconds(row["sample_ms"]), _milliseconds(row["warm_ms"]["median"]),
            ]
            for row in run["limits"]
        ]  # fmt: skip
        header = ["limits", "P(limits)", "accepted", "prepared in", "a sample", "a begun basket, median"]
        about = f"The default model of {TITLES[name]}, {run['components']} components; CPU time. {on_machine(own['machine'])}."
        parts += [about, markdown_table(header, lines)]
    return "\n\n".join(parts) + "\n"
