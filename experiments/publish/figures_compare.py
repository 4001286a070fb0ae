"""The tables of ``docs/compare.md``, some of which ``paper/paper.md`` repeats.

From ``benchmarks/results``: ``symmetric``, ``trees``, ``functions``, ``nonsymmetric`` and ``diverse`` (``benchmarks/peers``), ``dense``
(``bench_dense.py``) and ``diverse_gpu`` (``bench_diversify.py``). From ``results``: ``quality`` (``quality.py``), ``peers``
(``peers/run.py``), ``circuits`` (``peers/circuits.py``), ``registries`` and ``next_basket`` (``ndpp reproduce``).
"""

from __future__ import annotations

import csv
import json
import math
import re
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from figures_evaluation import COMPARED, TITLES, best, rivals
from figures_learning import NAMES
from units import duration

from ndpp_experiments.record import grouped, markdown_table, on_machine

Record = dict[str, Any]
MISSING = "Not measured with this version."
MARGIN = 1.1
"""Times that differ by less than this factor count as equal."""
MODELS = (
    "MixtureNDPP", "item-item cosine", "ItemKNN", "BM25 neighbours", "RP3beta", "EASE", "EASE by basket size", "EDLAE by basket size",
    "EASE of frequent items", "SANSA", "ALS", "AleaCarta",
)  # fmt: skip
SETS, SAMPLES = ("NumPy", "ndpp", "pyversity", "apricot"), ("ndpp, a sample", "DPPy, a sample")


class Found(NamedTuple):
    """What is recorded; None where a comparison has not been run."""

    symmetric: Record
    trees: Record
    functions: Record
    nonsymmetric: Record
    dense: Record
    diverse: Record
    diverse_gpu: Record | None
    quality: Record
    peers: Record
    circuits: list[Record]
    registries: list[dict[str, str]]
    next_basket: list[dict[str, str]] | None

    @classmethod
    def read(cls, root: Path) -> Found:
        files = {name: _rows(root / "results" / f"{name}.csv") for name in ("registries", "next_basket")}
        files |= {name: _read(root / "results" / f"{name}.json") for name in ("quality", "peers", "circuits")}
        timed = [name for name in cls._fields if name not in files]
        return cls(**files, **{name: _read(root / "benchmarks" / "results" / f"{name}.json") for name in timed})


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _rows(path: Path) -> Any:
    if not path.exists():
        return None
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _faster(ratio: float) -> str:
    return f"10^{len(f'{ratio:.0f}') - 1}" if ratio > 1e6 else f"{float(f'{ratio:.3g}'):,g}"


def _between(ratios: list[float]) -> str:
    ends = list(dict.fromkeys(_faster(float(f"{ratio:.2g}")) for ratio in (min(ratios), max(ratios))))
    return " to ".join(ends)


def _table(header: list[str], rows: list[list[str]], about: str, machine: Record) -> str:
    return "\n\n".join([about, _unbroken(markdown_table(header, rows)), on_machine(machine) + "."]) + "\n"


def _unbroken(table: str) -> str:
    """Keep numbers and their units on one line."""
    return re.sub(r"(?<=\d) (?=(ms|s|min|h|days|years)\b|×)|(?<=×) (?=\d)", "\N{NO-BREAK SPACE}", table)


# -- samplers ----------------------------------------------------------------------------------------------------------------


def symmetric(found: Record) -> str:
    records = found["records"]
    first, last, rows = records[0], records[-1], []
    for row in records:
        both = [duration(row["with preparation"][name], 3) for name in ("ndpp", "dppy")]
        quicker = row["with preparation"]["ndpp"] > row["with preparation"]["dppy"]
        both[quicker] = f"**{both[quicker]}**"
        theirs = [duration(seconds, 3) for seconds in row["dppy"].values()]
        behind = row["with preparation"]["ndpp"] - row["with preparation"]["dppy"]
        pays = 1 + max(0, math.ceil(behind / (min(row["dppy"].values()) - row["ndpp"])))
        rows.append(
            [f"{row['n']:,}", f"**{duration(row['ndpp'], 3)}**", *theirs, f"{row['ratio']:.0f} ×", *both, str(pays)]
        )
    header = ["items", "`Exact`", *(f"DPPy, `{mode}`" for mode in first["dppy"]), "faster than DPPy's best"]
    header += ["one set with its preparation, `Exact`", "DPPy", "faster from set"]
    about = f"Rank {first['rank']}, {first['size']} items per set; median CPU time per set of {len(first['rounds'][0])} rounds. "
    about += f"With {last['n']:,} items, `Exact` takes {last['ndpp'] / first['ndpp']:.2f} times as long as with {first['n']:,}."
    return _table(header, rows, about, found["machine"])


def trees(found: Record) -> str:
    rows = []
    for row in found["records"]:
        once, first = row["seconds"], row["with preparation"]
        times = [duration(once[name], 3) for name in ("ndpp", "dppy")]
        firsts = [duration(first[name], 3) for name in ("ndpp", "dppy")]
        rows.append(
            [
                f"{row['side']} × {row['side']}",
                f"{row['edges']:,}",
                *_bold(times, once["ndpp"] > once["dppy"]),
                f"{_faster(row['ratio'])} ×",
                duration(once["ndpp, weighted"], 3),
                *_bold(firsts, first["ndpp"] > first["dppy"]),
            ]
        )
    header = ["grid", "edges", "`SpanningTrees`", "DPPy", "faster than DPPy", "`SpanningTrees`, random weights"]
    header += ["one tree with its preparation, `SpanningTrees`", "DPPy"]
    about = f"Uniform spanning trees; median CPU time per tree of {len(found['records'][0]['rounds']['ndpp'])} rounds."
    return _table(header, rows, about, found["machine"])


def functions(found: Record) -> str:
    rows = []
    for row in found["records"]:
        cells = [_points(row), f"{row['size']}" if row["size"] else "any"]
        for own, theirs in zip(*_medians(row)):
            texts = [duration(seconds, 3) if math.isfinite(seconds) else "–" for seconds in (own, theirs)]
            cells += _bold(texts, own > theirs)
        rows.append(cells)
    header = ["", "size", "first set, `FromFunction`", "DPPy", "each further set, `FromFunction`", "DPPy"]
    about = f"CPU time: medians of {len(found['records'][0]['rounds'][0])} rounds."
    problems = [row["problem"] for row in found["records"] if row["problem"]]
    said = dict.fromkeys(
        f"takes {text}" if text.startswith("more than") else "refuses sizes above the expected one" for text in problems
    )
    about += f" Dashes: DPPy {' or '.join(said)}." * bool(said)
    return _table(header, rows, about, found["machine"])


def _medians(row: Record) -> tuple[list[float], list[float]]:
    """Return the median times of the first set and of each further one, of ``FromFunction`` and of DPPy, infinite if it has none."""
    own, theirs = (list(map(statistics.median, zip(*times))) for times in row["rounds"])
    return own, theirs or [math.inf] * 2


def _points(row: Record) -> str:
    return f"{row['n']:,} points in {row['dim']} dimensions"


def nonsymmetric(found: Record) -> str:
    rows = []
    for row in sorted(found["records"], key=lambda row: row["kernel"]):
        same, seconds = next(iter(row["ratio"])), row["seconds"]
        cells = [f"`{name}`: {duration(seconds[name], 3)}, {_faster(row['ratio'][name])} ×" for name in (same, "Exact")]
        rows.append([row["kernel"], row["task"], row["code"], duration(seconds["peer"], 3), *cells])
    header = ["kernel", "size", "published", "time per sample", "the same algorithm here", "default here"]
    about = f"Mean CPU time of {len(found['records'][0]['rounds']['peer'])} rounds, and the speed-up over the published code."
    return _table(header, rows, about, found["machine"])


def dense(found: Record) -> str:
    rows = []
    for row in found["records"]:
        times = [duration(row[name], 3) for name in ("ndpp", "plain")]
        rows.append([row["what"], *_bold(times, row["ndpp"] > row["plain"]), f"{row['plain'] / row['ndpp']:.2f} ×"])
    about = "CPU time; the last column is the speed-up over plain code."
    return _table(["", "`ndpp`", "plain", ""], rows, about, found["machine"])


def _bold(texts: list[str], which: int) -> list[str]:
    return [f"**{text}**" if i == which else text for i, text in enumerate(texts)]


# -- diversity ---------------------------------------------------------------------------------------------------------------


def diverse(found: Record) -> str:
    rows, same, judged = [], 0, 0
    for row in found["records"]:
        methods = row["methods"]
        cells = [_times(methods, group) for group in (SETS, SAMPLES)]
        rows.append([f"{row['items']:,} × {row['columns']}", str(row["k"]), *cells[0], *cells[1]])
        weights = [methods[name].get("log det") for name in ("NumPy", "ndpp", "pyversity")]
        judged += None not in weights
        same += None not in weights and max(weights) - min(weights) < 1e-3
    header = ["items × columns", "k", "NumPy", "`ndpp`", "pyversity", "apricot (*)", "a sample: `ndpp`", "DPPy"]
    about = f"CPU time from the arrays to the items. NumPy, `ndpp` and pyversity find sets of the same weight in {same} of {judged} cases. "
    about += "(*) another objective, without scores."
    if left_out := _left_out(found["records"]):
        about += f" Dashes: {'; '.join(left_out)}."
    return _table(header, rows, about, found["machine"])


def _times(methods: Record, names: tuple[str, ...]) -> list[str]:
    """Return the times of some methods, the shortest of the same task in bold."""
    known = {name: methods[name]["seconds"] for name in names if "seconds" in methods[name]}
    least = min((seconds for name, seconds in known.items() if name != "apricot"), default=0.0)
    texts = {name: duration(seconds, 3) for name, seconds in known.items()}
    return [f"**{texts[n]}**" if known.get(n) == least else texts.get(n, "–") for n in names]


def _left_out(records: list[Record]) -> list[str]:
    reasons: dict[str, str] = {}
    for row in records:
        for name, record in row["methods"].items():
            if "skipped" in record:
                reasons.setdefault(name, f"{name}, {row['items']:,} × {row['columns']}, {record['skipped']}")
    return list(reasons.values())


def diverse_gpu(found: Record | None) -> str:
    if found is None:
        return f"{MISSING}\n"
    rows = []
    for row in found["records"]:
        cells = _bold([duration(row[name], 3) for name in ("torch", "ndpp")], row["ndpp"] < row["torch"])
        cells.insert(1, duration(row["torch in double precision"], 3))
        rows.append(
            [f"{row['items']:,} × {row['columns']}", str(row["k"]), *cells, f"{row['torch'] / row['ndpp']:.2f} ×"]
        )
    header = ["items × columns", "k", "plain greedy in torch", "in double precision", "`ndpp`", "faster than torch"]
    agree = all(row["same"] for row in found["records"])
    same = "Both find the same items." if agree else "Near-ties may be broken differently."
    about = f"{found['machine']['device']}, torch {found['machine']['torch']}. Single-precision tensors; `ndpp` computes in double. {same}"
    return f"{_unbroken(markdown_table(header, rows))}\n\n{about}\n"


# -- models ------------------------------------------------------------------------------------------------------------------


def ranked(found: Found) -> dict[str, Record]:
    """Return the metrics of all models by data set."""
    out = {}
    for data in NAMES:
        ours, others = rivals(found.quality["records"], found.peers, data)
        both = {"MixtureNDPP": ours, **others}
        out[data] = {name: both[name] for name in MODELS if name in both}
    return out


def models(found: Found) -> str:
    """Return hit rates and percentile ranks of all models on all data sets."""
    tables = []
    for metric, digits in (("hit rate@10", 3), ("MPR", 1)):
        rows = []
        for data, there in ranked(found).items():
            values = best({name: own[metric][0] for name, own in there.items()}, digits)
            rows.append([NAMES[data], *(values.get(name, "–") for name in MODELS)])
        tables.append(markdown_table([metric, *map(_title, MODELS)], rows))
    return "\n\n".join(tables) + "\n"


def _title(name: str) -> str:
    return "`ndpp fit`" if name == "MixtureNDPP" else COMPARED.get(name, TITLES.get(name, name))


CIRCUITS = ("SimplePGC", "HCLT")


def _densities(found: Found) -> list[tuple[dict[str, str], dict[str, float]]]:
    """Return each data set with the log-likelihoods of circuits; of an HCLT, that with the number of states that validation sets chose."""
    chosen: dict[str, Record] = {}
    for one in found.circuits:
        if one["validation"] > chosen.get(one["name"], {"validation": -math.inf})["validation"]:
            chosen[one["name"]] = one
    out = []
    for row in found.registries:
        theirs = {"SimplePGC": float(row["published"])} if row["published"] else {}
        out.append((row, theirs | {"HCLT": float(chosen[row["category"]]["test"])}))
    return out


def registries(found: Found) -> str:
    rows, ahead = [], dict.fromkeys(CIRCUITS, 0)
    there = _densities(found)
    for row, theirs in there:
        own = float(row["log_likelihood"])
        for name, value in theirs.items():
            ahead[name] += own > value
        values = [own, *(theirs.get(name, -math.inf) for name in CIRCUITS)]
        texts = [
            f"{own:.3f}",
            *(f"{value:.{digits}f}" if value > -math.inf else "–" for value, digits in zip(values[1:], (2, 3))),
        ]
        cells = _bold(texts, values.index(max(values)))
        cells[0] += f" ± {float(row['error']):.3f}"
        rows.append([row["category"], row["items"], f"{float(row['independent']):.3f}", *cells])
    header = ["", "items", "independent items", "`MixtureNDPP`", "SimplePGC, published", "HCLT, run here"]
    seconds = [float(row["seconds"]) for row, _ in there]
    published = sum("SimplePGC" in theirs for _, theirs in there)
    after = f"`MixtureNDPP` is above SimplePGC on {ahead['SimplePGC']} of {published} data sets, and "
    after += (
        f"above the HCLT on {ahead['HCLT']} of {len(there)}. A fit took {min(seconds):.0f} to {max(seconds):.0f} s."
    )
    return f"{markdown_table(header, rows)}\n\n{after}\n"


def next_basket(found: list[dict[str, str]] | None) -> str:
    """Return the methods that predict the next basket of a customer, all items listed."""
    if found is None:
        return f"{MISSING}\n"
    rows = []
    for data, methods in _next(found).items():
        columns = [
            best({row["method"]: float(row[m]) for row in methods}, 3) for m in ("recall_10", "ndcg_10", "hit_10")
        ]
        about = [data, f"{int(methods[0]['customers']):,} customers"] + [""] * len(methods)
        rows += [
            [text, row["method"], *(column[row["method"]] for column in columns)] for text, row in zip(about, methods)
        ]
    return markdown_table(["data", "method", "recall@10", "NDCG@10", "customers with a hit"], rows) + "\n"


def _next(found: list[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    rows = [row for row in found if row["listed"] == "all items"]
    names = NAMES | {"DC": "DC, public split", "TaFeng": "Ta-Feng, public split"}
    return grouped(rows, lambda row: names.get(row["data"], row["data"]))


# -- in short ----------------------------------------------------------------------------------------------------------------


def short(found: Found) -> str:
    """Say what the tables say, and where others are better."""
    drawn = _between([row["ratio"] for row in found.symmetric["records"]])
    grown = _between([row["ratio"] for row in found.trees["records"]])
    walks = [row["ratio"]["Exact"] for row in found.nonsymmetric["records"] if row["code"] != "rejection"]
    sets = [row["methods"] for row in found.diverse["records"]]
    rivals = [
        m["pyversity"]["seconds"] / m["ndpp"]["seconds"]
        for m in sets
        if "seconds" in m["pyversity"] and "seconds" in m["ndpp"]
    ]
    further = [theirs[1] / own[1] for own, theirs in map(_medians, found.functions["records"]) if theirs[1] < math.inf]
    there = ranked(found)
    first = {
        m: sum(max(own, key=lambda name: own[name][m][0]) == "MixtureNDPP" for own in there.values())
        for m in ("hit rate@10", "MPR")
    }
    densities = _densities(found)
    above = sum(float(row["log_likelihood"]) > max(theirs.values()) for row, theirs in densities)
    lines = [
        f"- **Samplers.** Prepared once, `Exact` is {drawn} times as fast as DPPy for symmetric kernels of rank 100, and {_between(walks)} "
        "times as fast as the walk and the Cholesky-based sampler that Han et al. published for nonsymmetric ones. "
        f"`SpanningTrees` draws trees of grids {grown} times as fast as DPPy, and `FromFunction` further sets of a kernel function "
        f"{_between(further)} times.",
        f"- **Diversity.** `diversify` is {_between(rivals)} times as fast as pyversity, for the same set.",
        f"- **Models.** Of all models that were run, that of `ndpp fit` has the best hit rate@10 on {first['hit rate@10']} of {len(there)} "
        f"data sets and the best mean percentile rank on {first['MPR']}. On {above} of {len(densities)} data sets for density estimation "
        "its log-likelihood is above those of probabilistic circuits.",
    ]  # fmt: skip
    lost = [
        f"- {loss}"
        for part in (_slower, _less_diverse, _ranked_worse, _next_worse, _published_better)
        for loss in part(found)
    ]
    return "\n".join([*lines, "", "**Where others are better:**", "", *(lost or ["- Nowhere in these tables."])]) + "\n"


def _slower(found: Found) -> list[str]:
    """Return where samples of others take less time."""
    out = []
    first = [(f"{row['n']:,} items", row["with preparation"]) for row in found.symmetric["records"]]
    first += [(f"a tree of {row['nodes']:,} nodes", row["with preparation"]) for row in found.trees["records"]]
    first += [
        (
            f"{_points(row)}, {row['size'] or 'any number of'} items",
            dict(zip(("ndpp", "dppy"), (one[0] for one in _medians(row)))),
        )
        for row in found.functions["records"]
        if "dppy" in row
    ]
    lost = [
        f"{what}, {duration(t['dppy'])} against {duration(t['ndpp'])}"
        for what, t in first
        if t["ndpp"] > MARGIN * t["dppy"]
    ]
    if lost:
        out.append(f"DPPy, for a single set with its preparation: {'; '.join(lost)}.")
    lost = [
        f"{row['what']}, {duration(row['plain'])} against {duration(row['ndpp'])}"
        for row in found.dense["records"]
        if row["ndpp"] > MARGIN * row["plain"]
    ]
    if lost:
        out.append(f"Plain NumPy, for dense kernels: {'; '.join(lost)}.")
    return out


def _less_diverse(found: Found) -> list[str]:
    """Return where others choose the same set, or draw a sample, in less time."""
    rows = [
        {"what": _case(row), **{m: one.get("seconds") for m, one in row["methods"].items()}}
        for row in found.diverse["records"]
    ]
    peers = [("ndpp", "NumPy", "NumPy, for the greedy set"), ("ndpp", "pyversity", "pyversity, for the greedy set")]
    out = [_cases(rows, *peer) for peer in (*peers, (*SAMPLES, "DPPy, for a diverse sample with its preparation"))]
    gpu = [row | {"what": _case(row)} for row in (found.diverse_gpu or {"records": []})["records"]]
    return [line for line in (*out, _cases(gpu, "ndpp", "torch", "Plain torch on a GPU, for the greedy set")) if line]


def _case(row: Record) -> str:
    return f"{row['items']:,} × {row['columns']}, k = {row['k']}"


def _cases(rows: list[Record], own: str, peer: str, name: str) -> str:
    """Say in how many cases a peer is faster, and where most so."""
    both = [row for row in rows if row[own] and row[peer]]
    lost = sorted((row for row in both if row[own] > MARGIN * row[peer]), key=lambda row: row[own] / row[peer])
    if not lost:
        return ""
    worst = lost[-1]
    times = f"{duration(worst[peer])} against {duration(worst[own])} with {worst['what']}"
    return f"{name}: in {len(lost)} of {len(both)} cases, {'and most so ' if len(lost) > 1 else ''}{times}."


def _ranked_worse(found: Found) -> list[str]:
    """Return where other models rank better."""
    lost: dict[str, list[str]] = {}
    for data, there in ranked(found).items():
        for name, own in there.items():
            for metric, digits in (("hit rate@10", 3), ("MPR", 1)):
                theirs, ours = own[metric][0], there["MixtureNDPP"][metric][0]
                if theirs > ours:
                    lost.setdefault(name, []).append(
                        f"{NAMES[data]}, {metric} {theirs:.{digits}f} against {ours:.{digits}f}"
                    )
    titles = {name: _title(name)[0].upper() + _title(name)[1:] for name in lost}
    return [f"{titles[name]}: {'; '.join(cases)}." for name, cases in lost.items()]


def _next_worse(found: Found) -> list[str]:
    """Return where other methods find more of the next basket than the best of ours."""
    out = []
    for data, rows in _next(found.next_basket or []).items():
        recall = {row["method"]: float(row["recall_10"]) for row in rows}
        own = max(r for name, r in recall.items() if name.startswith("`ndpp"))
        better = [(name, r) for name, r in recall.items() if r > own]
        out += [f"{name}, for the next basket: {data}, recall@10 {r:.3f} against {own:.3f}." for name, r in better]
    return out


def _published_better(found: Found) -> list[str]:
    lost: dict[str, list[str]] = {}
    for row, theirs in _densities(found):
        for name, value in theirs.items():
            if value >= float(row["log_likelihood"]):
                lost.setdefault(name, []).append(row["category"])
    return [f"{name}, in log-likelihood: {', '.join(where)}." for name, where in lost.items()]


def parts(found: Found) -> dict[str, str]:
    """Return the blocks of ``docs/compare.md`` by name."""
    return {
        "short": short(found), "symmetric": symmetric(found.symmetric), "trees": trees(found.trees),
        "functions": functions(found.functions), "nonsymmetric": nonsymmetric(found.nonsymmetric), "dense": dense(found.dense),
        "diverse": diverse(found.diverse), "diverse_gpu": diverse_gpu(found.diverse_gpu), "models": models(found),
        "next_basket": next_basket(found.next_basket), "registries": registries(found),
    }  # fmt: skip
