"""Write every published figure from the recorded results: ``python experiments/publish/figures.py``.

``--check`` tells whether all are up to date, and whether a measurement was typed into a page (``typed.py``). Pages have blocks
``<!-- NAME: written by experiments/publish/figures.py -->`` … ``<!-- NAME: end -->``; what stands between is replaced, so no figure is
typed by hand. README.md and docs/benchmarks.md take theirs from one run of ``benchmarks/bench_samplers.py`` (results/samplers.csv and
.json, results/single.json), of ``bench_prepare.py`` (results/prepare.json), of ``bench_mixture.py`` and of ``benchmarks/gpu.py``; the
other pages, and the comparison in the README, from results and benchmarks/results, by the modules beside this one; the table of
docs/theory.md from the registry of samplers. paper/paper.md repeats some tables of docs/compare.md. results/report.md is written whole.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures_compare
import figures_completions
import figures_evaluation
import figures_gpu
import figures_learning
import figures_paper
import figures_scale
import figures_shop
import figures_subset
import figures_torch
from typed import BLOCK, everywhere
from units import duration

from ndpp.samplers.registry import SAMPLERS, WALK, SamplerSpec
from ndpp_experiments.record import grouped, markdown_table, on_machine, report_text
from ndpp_experiments.registry import EXPERIMENTS
from ndpp_experiments.samplers_timed import EXACT, PAPERS_WALK, PREPARATION, SamplerTime, times_exact

ROOT = Path(__file__).resolve().parents[2]
TASKS = {"k = 10": "10 items", "k = 50": "50 items", "any size": "any size"}
SIZES = dict(zip(TASKS, (10, 50, None)))
Row = dict[str, Any]

TARGETS = {("A", "k = 10"): 12, ("B", "k = 10"): 22, **dict.fromkeys([(name, "k = 50") for name in "AB"], 150),
           **dict.fromkeys([(name, "k = 100") for name in "AB"], 450)}  # fmt: skip
"""Milliseconds for a sample of ``Exact``, set on an Intel Xeon."""


class Results:
    """What is recorded under a folder: the samplers' table with its machine, single figures of the same run, and the rest."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.table, self.single, self.prepared = (
            self.read(f"results/{n}.json") for n in ("samplers", "single", "prepare")
        )
        recorded = [_sampler_time(row) for row in self.rows("results/samplers.csv")]
        self.sampler_times = [time for time in recorded if time.task != PREPARATION]
        if self.table["quick"] or self.single["quick"]:
            raise ValueError(
                "quick runs are not published: run benchmarks/bench_samplers.py -o results without --quick"
            )
        if self.single["run"] != self.table["machine"].get("date"):
            raise ValueError("results/samplers.json and results/single.json are of different runs of bench_samplers.py")

    def read(self, name: str) -> Any:
        return json.loads((self.root / name).read_text(encoding="utf-8"))

    def rows(self, name: str) -> list[dict[str, str]]:
        """Return the rows of a table."""
        with open(self.root / name, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def tables(self, *names: str) -> list[list[dict[str, str]]]:
        """Return the rows of tables of experiments."""
        return [self.rows(f"results/{name}.csv") for name in names]

    def of(self, sampler: str, task: str) -> list[SamplerTime]:
        """Return the times of one sampler and task, one per kernel."""
        return [time for time in self.sampler_times if (time.sampler, time.task) == (sampler, task)]

    def times(self, sampler: str, task: str) -> str:
        """Return the times over the kernels as a range, ``6.5 – 12 ms``, marked if they are expected values."""
        own = self.of(sampler, task)
        mark = " (*)" if any(time.expected for time in own) else ""
        return _range([duration(seconds) for seconds in sorted(time.seconds for time in own)]) + mark

    def ratios(self, sampler: str, task: str) -> str:
        """Return how many times as long as ``Exact`` a sampler takes, as a range over the kernels."""
        ratios = sorted(times_exact(self.sampler_times, time) for time in self.of(sampler, task))
        return _range([f"{ratio:.0f}" for ratio in ratios])


def _sampler_time(row: dict[str, str]) -> SamplerTime:
    def number(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    return SamplerTime(
        data=row["data"], kernel=re.sub(r"learned \((\w)\)", r"\1", row["kernel"]), n=int(row["n"]), rank=int(row["rank"]),
        task=row["task"], size=int(row["size"]) if row["size"] else None, sampler=row["sampler"],
        seconds=float(row["seconds"] or "nan"), least=number("least"), wall=number("wall"), rejections=number("rejections"),
        expected=row["expected"] == "True", steps=number("steps"), counted=number("counted"),
    )  # fmt: skip


def _range(found: list[str]) -> str:
    """Return ``6.5 – 12 ms`` for ``6.5 ms`` and ``12 ms``; equal ends once, an en dash where there is nothing."""
    found = list(dict.fromkeys(found))
    one_unit = len({text.partition(" ")[2] for text in found}) == 1
    return " – ".join([text.split()[0] if one_unit else text for text in found[:-1]] + found[-1:]) or "–"


# -- README.md ---------------------------------------------------------------------------------------------------------------


def samplers_at_a_glance(results: Results) -> str:
    rows = [
        [
            *about(spec),
            spec.cost,
            *(
                results.times(spec.label, task) if spec.is_offered and spec.draws(size) else ""
                for task, size in SIZES.items()
            ),
        ]
        for spec in pictured()
    ]
    header = ["sampler", "law", "exact", "one sample costs", *TASKS.values()]
    return markdown_table(header, rows) + "\n\n" + device(results)


def pictured() -> list[SamplerSpec]:
    """Return the samplers that have a row in tables: exact ones first."""
    return sorted((spec for spec in SAMPLERS if spec.pictured), key=lambda spec: not spec.exact)


def about(spec: SamplerSpec) -> list[str]:
    return [f"`{spec.expression}`" + f", {spec.remark}" * bool(spec.remark), spec.law, "yes" if spec.exact else "no"]


def device(results: Results) -> str:
    found = results.read("benchmarks/results/gpu.json")
    rates = {
        (row["kernel"], row["size"]): row["rate"]
        for row in found["rates"]
        if row.get("precision", "double") == "double"
    }
    rate, more = ([rates[name, size] for size in (10, 50)] for name in ("A", "A, 10⁶"))
    large = _range([f"{ratio:.2f}" for ratio in sorted(b / a for a, b in zip(rate, more))])
    many, fewer = (f"{float(f'{value:.3g}'):,.0f}" for value in rate)
    return (
        f"Times are medians on one core ({results.table['machine']['cpu']}). Walks take t = k² steps; (*) is an expected value in "
        f'closed form, as the run would not finish. With `device="cuda"` one {found["machine"]["device"]} draws {many} exact samples '
        f"per second of 10 items and {fewer} of 50; from a million items, {large} times as many ([GPU](docs/gpu.md)).\n"
    )  # fmt: skip


# -- docs/benchmarks.md ------------------------------------------------------------------------------------------------------


def answer(results: Results) -> str:
    size_10, size_50, any_size = (results.times(EXACT, task) for task in TASKS)
    large = next(row for row in results.single["catalogue"] if row["size"] == 10)
    times = large["seconds"][1] / large["seconds"][0]
    return (
        f"**The default sampler, `Exact`, draws 10 items in {size_10}, 50 items in {size_50} and a set of any size in {any_size}, "
        f"on one core.** The paper's walk takes {results.ratios(PAPERS_WALK, 'k = 10')} times as long for 10 items and "
        f"{results.ratios(PAPERS_WALK, 'k = 50')} times for 50, and its samples are approximate. The number of items matters "
        f"little: {large['n'][1]:,} items take {times:.2f} times as long as {large['n'][0]:,}.\n\n"
        f"The two ends of a range are two kernels learned from UK Retail, A and B (3,941 items, rank 200).\n\n"
        f"{on_machine(results.table['machine'])}.\n"
    )  # fmt: skip


def samplers(results: Results) -> str:
    """Return each task with the time of every sampler and how many times as long as ``Exact`` that is."""
    names = [spec.label for spec in pictured() if spec.is_offered]
    lines = []
    for (kernel, task), times in grouped(results.sampler_times, lambda time: (time.kernel, time.task)).items():
        own = {time.sampler: time for time in times}
        lines.append([kernel, task, *(_cell(results, own[name]) if name in own else "" for name in names)])
    return markdown_table(["kernel", "size", *(f"`{name}`" for name in names)], lines) + "\n"


def _cell(results: Results, time: SamplerTime) -> str:
    took = duration(time.seconds, 3) + " (*)" * time.expected
    if time.sampler == EXACT:
        return f"**{took}**"
    ratio = times_exact(results.sampler_times, time)
    return took if time.expected else f"{took}, {ratio:.2g} ×" if ratio < 100 else f"{took}, {ratio:,.0f} ×"


def all_times(results: Results) -> str:
    lines = []
    for time in results.sampler_times:
        target = TARGETS.get((time.kernel, time.task)) if time.sampler == EXACT else None
        label = f"`{time.sampler}`" + " (*)" * time.expected
        times = [duration(seconds or 0.0, 3) for seconds in (time.seconds, time.least, time.wall)]
        lines.append([time.kernel, time.task, label, *times, f"≤ {target} ms" if target else ""])
    return markdown_table(["kernel", "size", "sampler", "median", "least", "wall-clock", "target"], lines) + "\n"  # fmt: skip


def single(results: Results) -> str:
    found, rows = results.single, []
    for row in found["catalogue"]:
        (small, large), (few, many) = row["seconds"], row["nodes"]
        what = f"`Exact`, {row['n'][1]:,} items against {row['n'][0]:,}, rank {row['rank']}, size {row['size']}"
        least = row["least"][1] / row["least"][0]
        rows.append([what, f"{large / small:.2f} × (least {least:.2f}), {many} and {few} nodes", "≤ 1.3 ×"])
    for row in found["workers"]:
        load = row["load_average"][0] if isinstance(row["load_average"], list) else row["load_average"]
        what = f"two workers against one, size {row['size']}, wall-clock, load average {load:.1f}"
        ceiling = f"two programs that share nothing: {row['ratio_of_programs']:.2f} ×"
        rows.append([what, f"{row['ratio']:.2f} × the throughput ({ceiling})", "≥ 1.8 ×"])
    for kernel, row in found["memory"].items():
        what = f"memory of a prepared `Exact` at size {row['size']}, in addition to kernel {kernel}"
        rows.append([what, f"{row['mb']:.0f} MB", "≤ 300 MB"])
    for time in results.of(WALK.label, "k = 10"):
        assert time.steps
        assert time.least
        step = {"median": time.seconds / time.steps, "least": time.least / time.steps}
        rows.append([f"`DirectUp`, one step at size 10, kernel {time.kernel}", _brief(step), "≤ 1.5 ms"])
    for kernel, up in found["rejection_up"].items():
        for which, target in (("first", 20), ("further", 3)):
            what = f"`RejectionUp`, {which} proposal of a step at size {up['size']}, kernel {kernel}"
            rows.append([what, _brief(up[which]), f"≤ {target} ms"])
    for kernel, times in found["random_size"].items():
        rows.append([f"`RandomSize` with `DirectUp`, a whole sample, kernel {kernel}", _brief(times), ""])
    return markdown_table(["", "measured", "target"], rows) + "\n"


def _brief(times: Row) -> str:
    return f"{duration(times['median'], 3)} (least {duration(times['least'], 3)})"


def prepare(results: Results) -> str:
    found = results.prepared
    header = ["condition of X", "`LowRankKernel(X, W).coordinates`", "XᵀX, single", "XᵀX, double", "one read"]
    header += ["ratio, single", "ratio, double", "extra memory"]
    rows = []
    for row in found["rows"]:
        times = [f"{row[f'{name}_cpu_ms']:.0f} ms" for name in ("kernel", "product_single", "product_double", "read")]
        ratios = [f"{row[f'ratio_{kind}']:.2f}" for kind in ("single", "double")]
        rows.append([f"{row['condition']:g}", *times, *ratios, f"{row['extra_mb']:.0f} MB"])
    about = f"X is {found['n_items']:,} × {found['width']}, {found['dtype']}. Times are the least of {found['rows'][0]['rounds']} rounds; "
    about += f"the target is {found['target_ratio']:g} times the baseline and {found['target_mb']:,.0f} MB."
    return "\n\n".join([about, markdown_table(header, rows), on_machine(found["machine"]) + "."]) + "\n"  # fmt: skip


def mixtures(results: Results) -> str:
    found = results.read("benchmarks/results/mixture.json")
    header, rows = ["items", "components", "any size", "mean size", f"{found['size']} items"], []
    for row in found["records"]:
        times = [duration(row["any"], 3), f"{row['any_size']:.1f}", duration(row["ten"], 3)]
        rows.append([f"{row['n_items']:,}", str(row["n_components"]), *times])
    about = f"Rank {found['rank']}; CPU time per sample of {found['records'][0]['n_samples']:,} samples, from prepared components."
    return "\n\n".join([about, markdown_table(header, rows), on_machine(found["machine"]) + "."]) + "\n"  # fmt: skip


# -- docs/theory.md ----------------------------------------------------------------------------------------------------------


def costs(_: Results) -> str:
    rows = [[*about(spec), spec.source, spec.preparation, spec.cost] for spec in pictured()]
    return markdown_table(["sampler", "law", "exact", "from", "preparation", "one sample"], rows) + "\n"


BLOCKS: dict[str, dict[str, Callable[[Results], str]]] = {
    "README.md": {"samplers": samplers_at_a_glance},
    "docs/theory.md": {"costs": costs},
    "docs/benchmarks.md": {
        "answer": answer, "samplers": samplers, "times": all_times, "single": single, "prepare": prepare, "mixtures": mixtures,
    },
}  # fmt: skip


def filled(text: str, parts: dict[str, str]) -> str:
    """Return a page with its blocks written anew; every block has to be there, and no other."""
    there = [block[2] for block in BLOCK.finditer(text)]
    if sorted(there) != sorted(parts):
        raise ValueError(f"the page has the blocks {there}, and there are figures for {list(parts)}")
    return BLOCK.sub(lambda block: f"{block[1]}\n{parts[block[2]]}\n{block[3]}", text)


def pages(root: Path = ROOT) -> dict[str, str]:
    """Return each page that has figures, as it should be."""
    results = Results(root)
    texts = {page: {name: write(results) for name, write in blocks.items()} for page, blocks in BLOCKS.items()}
    learning, scale, gpu, counters = (
        results.read(f"benchmarks/results/{name}.json") for name in ("learning", "scale", "gpu", "gpu_counters")
    )
    quality, peers, alike, begun = (
        results.read(f"results/{name}.json") for name in ("quality", "peers", "lookalike", "begun_baskets")
    )
    records = quality["records"]
    texts["docs/compare.md"] = compared = figures_compare.parts(figures_compare.Found.read(root))
    texts["paper/paper.md"] = {name: compared[name] for name in ("symmetric", "nonsymmetric")}
    texts["paper/paper.md"]["models"] = figures_evaluation.hit_rates(records, peers)
    texts["README.md"]["compared"] = figures_evaluation.at_a_glance(records, peers)
    texts["docs/quality.md"] = figures_evaluation.parts(records, peers, alike)
    texts["docs/quality.md"]["kinds_of_families"] = figures_evaluation.kinds_of_families(
        results.read("results/families.json")
    )
    texts["docs/quality.md"]["holdouts"] = figures_evaluation.holdouts(results.read("results/holdouts.json"))
    baskets = results.tables("next_basket", "next_basket-within")
    texts["docs/quality.md"]["next_basket"] = figures_evaluation.next_basket(*baskets)
    effects, departments = results.tables("prices", "prices-departments")
    texts["docs/shop-over-a-year.md"] = {
        "customers": figures_shop.households(*baskets),
        "year": figures_shop.a_year(results.rows("results/a-year.csv"), results.read("results/a-year.json")),
        "prices": figures_shop.prices(effects, departments, results.read("results/prices.json")),
    }
    texts["docs/production.md"] = {
        "new_items": figures_evaluation.new_items(*results.tables("new_items", "new_items-fits"))
    }
    texts["docs/rankings.md"] = {"begun": figures_evaluation.begun(begun)}
    demo, customers = results.read("results/demo.json"), results.read("benchmarks/results/customers.json")
    texts["README.md"] |= figures_shop.at_a_glance(demo)
    texts["docs/mixtures.md"] = figures_evaluation.begun_in_full(begun) | {"demo": figures_shop.demo(demo)}
    others = figures_shop.others(results.read("results/others.json"))
    texts["docs/customers.md"] = {"large": figures_shop.customers(customers), "others": others}
    limits, methods = results.tables("limits", "limits-methods")
    texts["docs/limits.md"] = figures_shop.limits(limits, methods, results.read("results/limits.json"))
    texts["docs/limits.md"]["begun"] = figures_completions.limits(results.read("benchmarks/results/limits.json"))
    completions = results.read("benchmarks/results/completions.json")
    texts["docs/serving.md"] = {"completions": figures_completions.completions(completions)}
    texts["docs/fitting.md"] = figures_learning.parts(learning, records)
    texts["docs/fitting.md"]["weighted"] = figures_learning.weighted(results.read("results/weights.json")["records"])
    devices = [name for name in ("torch", "torch_gpu") if (root / f"benchmarks/results/{name}.json").is_file()]
    texts["docs/torch.md"] = figures_torch.parts(*(results.read(f"benchmarks/results/{name}.json") for name in devices))
    texts["docs/scale.md"] = figures_scale.parts(scale)
    learned = results.read("results/published.json") if (root / "results/published.json").is_file() else None
    texts["docs/paper.md"] = figures_paper.parts(
        learned, dict(zip(figures_paper.TABLES, results.tables("table2", "table3")))
    )
    speeds = sorted(path.name for path in (root / "benchmarks" / "results").glob("subset*.json"))
    chosen = [results.read(f"benchmarks/results/{name}") for name in speeds]
    texts["docs/subsets.md"] = figures_subset.parts(chosen, results.read("results/subset_quality.json"))
    texts |= {"docs/gpu.md": figures_gpu.parts(gpu), "docs/gpu-internals.md": figures_gpu.internals(gpu, counters)}
    written = {page: filled((root / page).read_text(encoding="utf-8"), parts) for page, parts in texts.items()}
    return written | {"results/report.md": report_text(root / "results", list(EXPERIMENTS))}


def stale(root: Path = ROOT) -> list[str]:
    """Return the pages whose figures are not those of the results."""
    return [page for page, text in pages(root).items() if (root / page).read_text(encoding="utf-8") != text]


def main() -> None:
    if "--check" in sys.argv[1:]:
        if old := stale():
            sys.exit(f"not what the results say: {', '.join(old)}; run python experiments/publish/figures.py")
        if found := everywhere(ROOT):
            sys.exit("\n".join(["typed, and not written from results:", *found]))
        return
    for page, text in pages().items():
        (ROOT / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
