"""The tables that compare models, of ``README.md``, ``docs/quality.md``, ``docs/rankings.md`` and ``docs/mixtures.md``.

From ``results``: ``quality.json`` (``quality.py``), ``peers.json`` (``peers/run.py``), ``lookalike.json`` (``lookalike.py``) and
``begun_baskets.json`` (``begun_baskets.py``); ``next_basket.csv`` and ``next_basket-within.csv``
(``ndpp reproduce next_basket``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from figures_learning import NAMES, kernels

from ndpp_experiments.kernels import PAPER
from ndpp_experiments.record import markdown_table, on_machine

Record = dict[str, Any]
PUBLISHED: dict[tuple[str, str], dict[str, dict[str, float]]] = {
    ("uk_retail", "NDPP"): {"published": {"log-likelihood": -99.09}},
    ("uk_retail", "ONDPP"): {
        "published": {"log-likelihood": -99.45, "MPR, largest id": 78.4}, "published, γ = 0.5": {"log-likelihood": -103.83},
    },
    ("foodcom", "NDPP"): {"published": {"log-likelihood": -44.7, "AUC": 0.99, "MPR, largest id": 95.2}},
    ("instacart_train", "NDPP"): {"published": {"log-likelihood": -74.9, "AUC": 0.87, "MPR, largest id": 92.4}},
    ("millionsong_sample", "NDPP"): {"published": {"log-likelihood": -314.0, "AUC": 0.80, "MPR, largest id": 89.0}},
    ("goodreads_toread", "NDPP"): {"published": {"log-likelihood": -150.0, "AUC": 0.74, "MPR, largest id": 73.0}},
}  # fmt: skip
"""What Gartrell et al. (ICLR 2021) and Han et al. (ICLR 2022) have; the data are theirs for UK Retail alone."""
HELD_OUT = {"log-likelihood": 2, "AUC": 3, "MPR": 1, "MPR, largest id": 1}
COMPARED = {
    "NDPP": "`NDPP`",
    "MixtureNDPP": "`MixtureNDPP`",
    "average": "`n_fits=3`",
    "item-item cosine": "item–item cosine",
    "EASE": "EASE",
}
SHOWN = {"MPR": 1, "hit rate@10": 3, "MRR": 3, "NDCG@10": 3}
TITLES = {"independent items": "popularity", "RP3beta": "RP³β"}
OWN = ("MixtureNDPP", "average", "NDPP")


def by_model(records: list[Record], data: str) -> dict[str, dict[str, list[float]]]:
    return {record["model"]: record["metrics"] for record in records if record["data"] == data and record["seed"] == 0}


def best(values: dict[str, float], digits: int) -> dict[str, str]:
    """Return the values as text, the largest in bold."""
    most = max(values.values())
    return {
        name: f"**{value:.{digits}f}**" if value == most else f"{value:.{digits}f}" for name, value in values.items()
    }


def summary(records: list[Record], found: dict[str, Any]) -> str:
    """Return one line per data set: hit rate and MPR of the mixture and of the best of all others, and gains in log-likelihood."""
    rows = []
    for data in NAMES:
        ours, others = rivals(records, found, data)
        cells = []
        for metric, digits in (("hit rate@10", 3), ("MPR", 1)):
            most = max(others, key=lambda name: others[name][metric][0])
            values = best({"": ours[metric][0], most: others[most][metric][0]}, digits)
            cells += [values[""], f"{_title(most)} {values[most]}"]
        own = by_model(records, data)
        gains = best({name: own[name]["log-likelihood gain"][0] for name in OWN}, 2)
        shape = next(
            f"{r['n_missions']}, {r['rank']}" for r in records if (r["data"], r["model"]) == (data, "MixtureNDPP")
        )
        rows.append([NAMES[data], *cells, *gains.values(), shape])
    heads = [
        "data",
        "hit rate@10: mixture",
        "best other",
        "MPR: mixture",
        "best other",
        "gain: mixture",
        "of 3 fits",
        "`NDPP`",
        "missions, rank",
    ]
    return f"{markdown_table(heads, rows)}\n\n{losses(records, found)}\n"


def hit_rates(records: list[Record], found: dict[str, Any]) -> str:
    """Return one line per data set: the hit rates of our models, cosine and EASE."""
    rows = []
    for data in NAMES:
        known = both(records, found, data)
        rates = best({name: known[name]["hit rate@10"][0] for name in COMPARED if name in known}, 3)
        rows.append([NAMES[data], *(rates.get(name, "–") for name in COMPARED)])
    return markdown_table(["data", *COMPARED.values()], rows) + "\n"


def kinds_of_families(found: dict[str, Any]) -> str:
    """Return the validation log-likelihood and hit rate with families of several kinds, and the number of their states."""
    titles = {"uk_retail": "UK Retail", "tafeng": "Ta-Feng", "goodreads_toread": "Goodreads"}
    variants = list(dict.fromkeys(record["variant"] for record in found["records"]))
    rows = []
    for variant in variants:
        own = {record["data"]: record for record in found["records"] if record["variant"] == variant}
        cells = (
            f"{own[data]['validation']:.2f}, {own[data]['hit rate@10']:.3f}, {own[data]['states']:,}"
            if data in own
            else "–"
            for data in titles
        )
        rows.append([variant, *cells])
    return f"{markdown_table(['families of', *titles.values()], rows)}\n"


def losses(records: list[Record], found: dict[str, Any]) -> str:
    """Say where another model ranks better than the mixture."""
    lost: dict[str, list[str]] = {}
    for data in NAMES:
        ours, others = rivals(records, found, data)
        for name, own in others.items():
            metrics = [m for m in ("MPR", "hit rate@10") if own[m][0] > ours[m][0]]
            if metrics:
                lost.setdefault(name, []).append(f"{NAMES[data]} ({' and '.join(metrics)})")
    if not lost:
        return "No other model beats `MixtureNDPP`."
    told = [f"{_title(name)} on {', '.join(where)}" for name, where in lost.items()]
    return f"**Models that beat `MixtureNDPP`: {'; '.join(told)}.**"


def at_a_glance(records: list[Record], found: dict[str, Any]) -> str:
    """Return the hit rate of the default model beside those of cosine and of the best of all others, on every data set."""
    rows, first, won, won_by_average = [], [], 0, 0
    for data, title in NAMES.items():
        ours, others = rivals(records, found, data)
        strongest = max(others, key=lambda name: others[name]["hit rate@10"][0])
        average = both(records, found, data)["average"]["hit rate@10"][0]
        rates = {name: others[name]["hit rate@10"][0] for name in ("item-item cosine", strongest)}
        hits = best({"": ours["hit rate@10"][0], "average": average, **rates}, 3)
        size = next(record["n_items"] for record in records if record["data"] == data)
        shown = [hits[""], hits["average"], hits["item-item cosine"], f"{_title(strongest)} {hits[strongest]}"]
        rows.append([title, f"{size:,}", *shown, ahead(ours, others[strongest])])
        first.append(ours["MPR"][0] > max(own["MPR"][0] for own in others.values()))
        won += ours["hit rate@10"][0] > rates[strongest]
        won_by_average += average > rates[strongest]
    header = ["hit rate@10", "items", "`ndpp fit`", "`--fits 3`", "item–item cosine", "the strongest other", "ahead by"]
    n = "all of them" if all(first) else f"{sum(first)} of them"
    said = (
        f"By hit rate, the default model is ahead of all others on {won} of {len(rows)} data sets, and an average of three fits on "
        f"{won_by_average}; in mean percentile rank, the default model is ahead on {n}."
    )
    return f"{markdown_table(header, rows)}\n\n{said}\n"


def rivals(
    records: list[Record], found: dict[str, Any], data: str
) -> tuple[dict[str, list[float]], dict[str, dict[str, list[float]]]]:
    """Return the metrics of the default model and those of all models of others, on one data set."""
    known = both(records, found, data)
    return known["MixtureNDPP"], {
        name: own for name, own in known.items() if name not in (*OWN, "SymmetricDPP", "ONDPP")
    }


def both(records: list[Record], found: dict[str, Any], data: str) -> dict[str, dict[str, list[float]]]:
    """Return the metrics of all models on one data set: those of the comparison with others where it has them."""
    compared: dict[str, dict[str, list[float]]] = next(
        (record["metrics"] for record in found["records"] if record["data"] == data), {}
    )
    return by_model(records, data) | compared


def ahead(ours: dict[str, list[float]], theirs: dict[str, list[float]]) -> str:
    """Return by how much our hit rate is higher, with the interval of the paired difference if the same run had both models."""
    return (
        _difference(theirs.get("behind"))
        if "behind" in theirs
        else f"{ours['hit rate@10'][0] - theirs['hit rate@10'][0]:+.3f}"
    )


def peers(records: list[Record], found: dict[str, Any]) -> str:
    """Return one table for all data sets, with the paired difference of the hit rate to the mixture, and what was chosen."""
    rows, said = [], []
    for record in sorted(found["records"], key=lambda record: list(NAMES).index(record["data"])):
        known = both(records, found, record["data"])
        ours = {name: known[name] for name in OWN}
        order = sorted(record["metrics"].items(), key=lambda row: row[1]["hit rate@10"][0])
        metrics = ours | {name: own for name, own in order if name not in ours}
        columns = {
            m: best({name: own[m][0] for name, own in metrics.items() if m in own}, digits)
            for m, digits in SHOWN.items()
        }
        for i, (name, own) in enumerate(metrics.items()):
            cells = [columns[m].get(name, "–") for m in SHOWN]
            about = (f"**{NAMES[record['data']]}**", f"{record['n_held_out']:,} held-out items", "")[min(i, 2)]
            rows.append([about, _title(name), *cells, "–" if name in OWN else ahead(ours["MixtureNDPP"], own)])
        said.append(f"- {NAMES[record['data']]}: {_winners(metrics)} {_chosen(record)}")
    header = ["data", "model", *SHOWN, "hit rate@10, `MixtureNDPP` ahead by"]
    return "\n\n".join([markdown_table(header, rows), "\n".join(said), f"{on_machine(found['machine'])}.\n"])


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
    parts = []
    for peer in record["peers"]:
        if "error" in peer:
            parts.append(f"{peer['model']} could not be run: `{peer['error'].splitlines()[-1]}`")
            continue
        settings = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in peer["settings"].items())
        tried = f"of {len(peer['tried'])} settings, {peer['seconds']:.1f} s"
        parts.append(f"{_title(peer['model'])}: {settings}, {tried}")
    return "Chosen on validation baskets: " + "; ".join(parts) + "."


def lookalike(found: dict[str, Any]) -> str:
    """Return the AUC of the classifier and what gives samples away."""
    rows = []
    for record in found["records"]:
        for name, own in record["models"].items():
            value, low, high = own["auc"]
            feature, alone = own["features"][0]
            error = f"{100 * math.expm1(own['median_lift_error']):.0f} %"
            areas = f"{value:.3f} [{low:.3f}, {high:.3f}]", f"{feature} ({alone:.3f})"
            rows.append([NAMES[record["data"]], COMPARED.get(name, name), *areas, _sizes(own), error])
    header = ["data", "compared with", "AUC", "best single feature (AUC)", "size, mean ± SD", "median error of a lift"]
    real = "; ".join(f"{NAMES[record['data']]} {_sizes(record)}" for record in found["records"])
    return f"{markdown_table(header, rows)}\n\nSizes of the test baskets: {real}.\n"


def _sizes(record: Record) -> str:
    """Return mean and standard deviation of the sizes, whose counts are recorded."""
    counts = record["sizes"]
    mean = sum(size * count for size, count in enumerate(counts)) / sum(counts)
    variance = sum((size - mean) ** 2 * count for size, count in enumerate(counts)) / sum(counts)
    return f"{mean:.1f} ± {math.sqrt(variance):.1f}"


def begun(found: dict[str, Any]) -> str:
    """Return precision and share of bestsellers of each ranking, means over the numbers of given items."""
    continued = [f"`continuation`, `damping={gamma:g}`" for gamma in (0, found["gamma"])]
    header = ["", "`completion`", *continued, "`lift`"]
    rankings = ("completion", "0", f"{found['gamma']:g}", "1")
    data = dict.fromkeys(record["data"] for record in found["test"])
    return markdown_table(header, [[NAMES[name], *_begun(found["test"], name, rankings)] for name in data]) + "\n"


def _begun(records: list[Record], data: str, rankings: Iterable[str], given: int | None = None) -> list[str]:
    """Return precision and share of bestsellers of each ranking, for one number of given items or the mean over all."""
    cells = []
    for ranking in rankings:
        own = [r for r in records if (r["data"], r["ranking"]) == (data, ranking) and given in (None, r["given"])]
        means = [sum(record[name] for record in own) / len(own) for name in ("precision", "bestsellers")]
        cells.append(f"{means[0]:.3f} / {means[1]:.2f}".replace(" ", "\N{NO-BREAK SPACE}"))
    return cells


def begun_in_full(found: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of ``docs/mixtures.md``: each number of given items, each damping on validation baskets, times in bulk."""
    rankings = ("completion", "0", f"{found['gamma']:g}", "1")
    gammas = sorted({record["ranking"] for record in found["validation"]} - {"completion"}, key=float)
    cases = dict.fromkeys((record["data"], record["given"]) for record in found["test"])
    rows = [[NAMES[data], str(given), *_begun(found["test"], data, rankings, given)] for data, given in cases]
    header = ["", "given", "completion", "continuation", f"$P(a \\mid J)/P(a)^{{{found['gamma']:g}}}$", "lift"]
    tried = [
        [NAMES[data], *_begun(found["validation"], data, gammas)] for data in dict.fromkeys(data for data, _ in cases)
    ]
    timed = found["times"]
    data = list(dict.fromkeys(record["data"] for record in timed))
    took = {(r["ranking"], r["data"]): f"{1e3 * r['cpu_seconds']:.1f} ms" for r in timed}
    times = [[name, *(took[name, one] for one in data)] for name in dict.fromkeys(name for name, _ in took)]
    return {
        "given": markdown_table(header, rows) + "\n",
        "gammas": markdown_table(["$\\gamma$", *gammas], tried) + "\n",
        "bulk": f"{markdown_table(['', *(NAMES[one] for one in data)], times)}\n\n{on_machine(found['machine'])}.\n",
    }


SHOPS = {
    "complete_journey": "Complete journey, by product type",
    "DC": "DC, public split",
    "TaFeng": "Ta-Feng, public split",
}
LISTED = {
    "all items": ("recall", "ndcg", "hit"),
    "bought before": ("recall", "ndcg"),
    "new to the customer": ("recall", "ndcg"),
}
WORDS = {"recall": "recall", "ndcg": "NDCG", "hit": "hits"}


GUESSES = {
    "known": "The share of baskets that each hidden item was in is known:",
    "guessed": "It is guessed from the items that it is like:",
}


def new_items(rows: list[Record], fits: list[Record]) -> str:
    """Return how high hidden items are ranked, a table for each guess of their popularity, and what features do to the known items."""
    texts, data = [], list(dict.fromkeys(row["data"] for row in rows))
    measures = [(among, *measure) for among in ("new", "all") for measure in (("mpr", 1), ("hit_rate", 3))]
    header = ["", "", "MPR among new", "hit rate@10 among new", "MPR among all", "hit rate@10 among all"]
    header.append("MPR among all − popularity")
    for how, told in GUESSES.items():
        own = {(row["data"], row["method"], row["among"]): row for row in rows if row["popularity"] == how}
        lines = []
        for name in data:
            methods = list(dict.fromkeys(method for of, method, _ in own if of == name))
            columns = [
                best({method: float(own[name, method, among][measure]) for method in methods}, digits)
                for among, measure, digits in measures
            ]
            gains = {m: [float(own[name, m, "all"][key]) for key in ("gain", "gain_error")] for m in methods}
            columns.append({m: "" if m == methods[0] else "{:+.1f} ± {:.1f}".format(*gains[m]) for m in methods})
            lines += [["" if i else f"**{name}**", m, *(c[m] for c in columns)] for i, m in enumerate(methods)]
        texts += [told, markdown_table(header, lines)]
    counts = []
    for name in data:
        new, every = (next(row for row in rows if (row["data"], row["among"]) == (name, a)) for a in ("new", "all"))
        errors = [
            max(float(row[f"{measure}_error"]) for row in rows if row["data"] == name) for measure in ("mpr", "hit")
        ]
        counts.append(
            f"{name} {int(new['candidates']):,} hidden items, {int(new['baskets']):,} and {int(every['baskets']):,} baskets, standard "
            f"errors of at most {errors[0]:.1f} and {errors[1]:.3f}"
        )
    told = "; ".join(
        f"{name} " + " against ".join(f"{float(one['log_likelihood']):.2f}" for one in fits if one["data"] == name)
        for name in data
    )
    texts += [
        f"Hidden items, and baskets judged among the new items and among all: {'; '.join(counts)}.",
        f"Log-likelihood of what test baskets have of the known items, plain model against the one with features: {told}.",
    ]
    return "\n\n".join(texts) + "\n"


def next_basket(rows: list[Record], within: list[Record]) -> str:
    """Return a table per shop and number of items listed, by how much ours is ahead, and held-out items with and without the customer."""
    texts = []
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        methods = list(dict.fromkeys(row["method"] for row in own))
        customers = next(row["customers"] for row in own)
        for k in (10, 20):
            columns = {}
            for listed, measures in LISTED.items():
                for measure in measures:
                    values = {row["method"]: float(row[f"{measure}_{k}"]) for row in own if row["listed"] == listed}
                    columns[f"{listed}: {WORDS[measure]}@{k}"] = best(values, 3)
            lines = [[name, *(column[name] for column in columns.values())] for name in methods]
            texts.append(f"**{SHOPS[data]}**, {int(customers):,} test customers:")
            texts.append(markdown_table(["", *columns], lines))
        ahead = [row for row in own if row["ahead_by"] and row["listed"] == "all items"]
        differences = "; ".join(
            f"{r['method']} {float(r['ahead_by']):+.3f} ± {float(r['ahead_error']):.3f}" for r in ahead
        )
        texts.append(f"Recall@10 of {methods[-1]} minus that of others, over the same customers: {differences}.")
        chosen = "; ".join(f"{r['method']} {float(r['validation']):.3f}" for r in own if r["listed"] == "all items")
        texts.append(f"Recall@10 + NDCG@10 on the validation customers: {chosen}.")
    lines = [
        [
            SHOPS[row["data"]], f"{int(row['customers']):,}", f"`{row['ranking']}`", f"{float(row['plain']):.3f}",
            f"{float(row['personal']):.3f}", f"{float(row['gain']):+.3f} ± {float(row['gain_error']):.3f}",
        ]
        for row in within
    ]  # fmt: skip
    header = ["one item held out, hit rate@10", "customers", "ranking"]
    header += ["without the customer", "with the customer", "gain"]
    return "\n\n".join([*texts, markdown_table(header, lines)]) + "\n"


def holdouts(found: dict[str, Any]) -> str:
    """Return kernels of the paper's recipe and of ours under both rules, beside the published figures."""
    rows = []
    for data in PAPER:
        own = [record for record in found["records"] if record["data"] == data.baskets]
        own.sort(
            key=lambda record: (record["model"] != "independent items", record["model"], record["recipe"] == "ours")
        )
        lines = []
        for record in own:
            published = {} if record["recipe"] == "ours" else PUBLISHED.get((data.baskets, record["model"]), {})
            for name, figures in published.items():
                lines.append([record["model"], name, *cells({metric: [value] for metric, value in figures.items()})])
            gamma = f", γ = {record['gamma']:g}" if record.get("gamma") else ""
            lines.append([record["model"], record["recipe"] + gamma, *cells(record["metrics"])])
        rows += [[f"**{data.title}**" if i == 0 else "", *line] for i, line in enumerate(lines)]
    header = ["data", "model", "recipe", "log-likelihood", "AUC", "MPR, a random item", "MPR, the largest id"]
    return f"{markdown_table(header, rows)}\n\n{on_machine(found['machine'])}.\n"


def cells(values: dict[str, list[float]]) -> list[str]:
    """Return the means of a row; that of log-likelihoods with the number of baskets that are not in it."""
    found = [f"{values[metric][0]:.{digits}f}" if metric in values else "–" for metric, digits in HELD_OUT.items()]
    n_zero = values.get("log-likelihood", [])[3:]
    return [f"{found[0]} ({n_zero[0]:,} at zero)" if any(n_zero) else found[0], *found[1:]]


def parts(records: list[Record], found: dict[str, Any], alike: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of ``docs/quality.md`` by name."""
    return {
        "summary": summary(records, found), "peers": peers(records, found), "lookalike": lookalike(alike), "data": kernels(records) + "\n",
    }  # fmt: skip
