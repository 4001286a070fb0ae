"""What ``docs/shop-over-a-year.md``, ``docs/limits.md`` and ``docs/customers.md`` have measured, and what the demonstration shows.

From ``results``: ``prices``, ``limits``, ``next_basket`` and ``a-year`` (``ndpp reproduce``), and ``demo.json`` (``demonstrated.py``),
which README.md and ``docs/mixtures.md`` show. From ``benchmarks/results``: ``customers.json`` (``bench_customers.py``).
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from figures_evaluation import best
from units import duration

from ndpp_experiments.record import markdown_table, on_machine

Record = dict[str, Any]
Rows = list[dict[str, str]]
EFFECTS = {
    ("price alone", "price"): "price alone",
    ("beside displays and mailers", "price"): "beside displays and mailers",
    ("weeks without display or mailer", "price"): "in weeks in which hardly any store (2 %) had a display or a mailer for the product",
    ("and next week's price", "later"): "next week's price, beside this week's: a check, as it should do nothing",
}  # fmt: skip
METHODS = ("bestsellers", "own, then all", "TIFU-KNN", "`ndpp.Customers`")
"""Methods that are listed for a year; docs/quality.md has all of them."""
DEPARTMENTS = {
    "GROCERY": "groceries",
    "MEAT-PCKGD": "packaged meat",
    "PRODUCE": "fruit and vegetables sold by the piece",
}


def _interval(value: float, error: float, digits: int = 2) -> str:
    return f"{value:.{digits}f} ± {error:.{digits}f}".replace("-", "−")


# -- docs/limits.md ----------------------------------------------------------------------------------------------------------


def limits(rows: Rows, methods: Rows, found: Record) -> dict[str, str]:
    """Return the times of samples under limits, and how far other ways to draw are from the distribution."""
    lines = [
        [
            row["limits"], f"{float(row['chance']):.2g}", f"{100 / float(row['proposals']):.2g} %", duration(float(row["seconds"])),
            duration(float(row["seconds_untilted"])),
        ]
        for row in rows
    ]  # fmt: skip
    header = ["limits", "P(limits)", "accepted", "a sample", "without tilts"]
    slowest = max(float(row["prepare_s"]) for row in rows)
    about = f"{found['settings']['law'].capitalize()}. Preparing took at most {duration(slowest)}. {on_machine(found['machine'])}."
    apart = [
        [row["method"], f"{float(row['distance']):.2f}", f"{float(row['noise']):.2f}", f"{int(row['samples']):,}"]
        for row in methods
    ]
    header_apart = ["samples", "distance in total variation", "expected of exact ones", "draws"]
    return {
        "limits": f"{markdown_table(header, lines)}\n\n{about}\n",
        "methods": markdown_table(header_apart, apart) + "\n",
    }


# -- docs/shop-over-a-year.md ------------------------------------------------------------------------------------------------------


def a_year(rows: Rows, found: Record) -> str:
    """Return a line per month that judges an update and a new fit, and what they keep on average."""
    first = min(int(row["month"]) for row in rows)
    months: dict[int, dict[str, dict[str, str]]] = {}
    for row in rows:
        if int(row["month"]) > first:
            months.setdefault(int(row["month"]), {})[row["model"]] = row
    lines = []
    for month, own in months.items():
        gains = [_interval(float(own[m]["gain"]), float(own[m]["gain_error"])) for m in ("fitted anew", "updated")]
        hits = [f"{float(own[m]['hit_rate']):.3f}" for m in ("never updated", "updated", "fitted anew")]
        took = [duration(float(own[m]["seconds"])) for m in ("updated", "fitted anew")]
        lines.append([str(month + 1), *gains, *hits, *took])
    header = ["month", "gain of a new fit", "gain of the update"]
    header += ["hit rate@10: never updated", "updated", "fitted anew", "an update takes", "a new fit"]
    models, metrics = ("never updated", "updated", "fitted anew"), ("gain", "hit_rate", "seconds")
    mean = {(m, metric): fmean(float(own[m][metric]) for own in months.values()) for m in models for metric in metrics}
    kept, spent = (mean["updated", metric] / mean["fitted anew", metric] for metric in ("gain", "seconds"))
    plain, updated, anew = (mean[model, "hit_rate"] for model in models)
    behind = [float(own["updated"]["behind"]) for own in months.values()]
    begun = next(row for row in rows if int(row["month"]) == first and row["model"] == "fitted anew")
    where = found["machine"]
    device = where.get("device") or found["settings"].get("device") or where["cpu"]
    before = f"The first model has seen {int(begun['orders']):,} orders. Times are those of an {device}."
    after = (
        f"On average an update keeps {kept:.0%} of what a new fit gains in log-likelihood and {(updated - plain) / (anew - plain):.0%} of "
        f"what it gains in hit rate, in {spent:.0%} of the time, with the orders of one month instead of all. It falls behind slowly: by "
        f"{behind[0]:.2f} nats after one update and {behind[-1]:.2f} after {len(behind)}."
    ).replace("%", " %")  # fmt: skip
    return "\n\n".join([before, markdown_table(header, lines), after]) + "\n"


def households(rows: Rows, within: Rows) -> str:
    """Return how well some methods predict the next basket, and what a customer is worth within a basket."""
    rows = [row for row in rows if row["data"] == "complete_journey" and row["listed"] == "all items"]
    rows = [row for row in rows if row["method"] in METHODS]
    columns = [
        best({row["method"]: float(row[name]) for row in rows}, 3) for name in ("recall_10", "ndcg_10", "hit_10")
    ]
    lines = [[row["method"], *(column[row["method"]] for column in columns)] for row in rows]
    found = next(row for row in within if (row["data"], row["ranking"]) == ("complete_journey", "completion"))
    text = (
        f"Next baskets of {int(rows[0]['customers']):,} households. Within a basket that lacks one item, that item is among the first ten "
        f"for {float(found['plain']):.1%} of the households without the customer, and for {float(found['personal']):.1%} with it."
    )
    header = ["method", "recall@10", "NDCG@10", "customers with a hit"]
    return f"{markdown_table(header, lines)}\n\n{text.replace('%', ' %')}\n"


def prices(effects: Rows, departments: Rows, found: Record) -> str:
    """Return the effects of prices, what an offer does to the odds, and what each department shows."""
    own = {(row["model"], row["variable"]): row for row in effects}
    beta = {name: (float(own[name]["effect"]), float(own[name]["error"])) for name in EFFECTS}
    rows = [[title, _interval(*beta[name])] for name, title in EFFECTS.items()]
    later = next(one for one in found["findings"] if one["what"].startswith("weeks after"))
    offer, alone = (beta[name][0] for name in list(EFFECTS)[::2])
    apart = [
        f"{_interval(float(row['effect']), float(row['error']))} for {DEPARTMENTS[row['model']]}" for row in departments
    ]
    said = (
        f"These are {effects[0]['items']} products. A price of 20 % less multiplies the odds by {0.8**offer:.1f} with the displays and "
        f"mailers that usually come with it, and by {0.8**alone:.1f} where nothing announces it. Departments differ, too: "
        f"{', '.join(apart)}. As a factor for later weeks, what earlier ones tell gains {later['ours']} nats per 1,000 baskets."
    )  # fmt: skip
    return f"{markdown_table(['', 'β, ± one standard error'], rows)}\n\n{said}\n"


# -- docs/customers.md -------------------------------------------------------------------------------------------------------


def others(found: dict[str, Any]) -> str:
    """Return what was tried for what customers learn from each other."""
    names = {"DC": "DC", "TaFeng": "Ta-Feng"}
    lines = [
        [
            f"{row['what']}{', ' + row['first'] if 'first' in row else ''}",
            *("–" if row[name] is None else f"{row[name]:.3f}" for name in names),
        ]
        for row in found["rows"]
    ]
    likely, bulk = found["log_likelihood"].values(), found["bulk_ms"].values()
    texts = [f"{found['about']}:", markdown_table(["", *names.values()], lines)]
    texts.append(
        "Mean log-likelihood of these baskets of Ta-Feng with one penalty, and by popularity: {:.2f} and {:.2f}.".format(
            *likely
        )
    )
    texts.append(
        "A next basket in bulk on Ta-Feng takes {:.2f} ms of CPU time with habits alone, and {:.2f} ms with others.".format(
            *bulk
        )
    )
    return "\n\n".join(texts) + "\n"


def customers(found: Record) -> str:
    """Return CPU time and memory of each step with many customers on disk."""
    rows = []
    for i, row in enumerate(found["rows"]):
        took = "" if i == 0 else duration(row["cpu_seconds"] / row.get("times", 1))
        rows.append([row["what"], took, f"{row['own_mb']:.0f} MB"])
    about = f"{found['customers']:,} customers with {found['own']} items each of a catalogue of {found['items']:,}; "
    about += f"the file is {found['file_mb']:.0f} MB."
    table = markdown_table(["", "CPU time", "memory of the process, without pages of the file"], rows)
    return "\n\n".join([about, table, on_machine(found["machine"]) + "."]) + "\n"


# -- the demonstration -------------------------------------------------------------------------------------------------------


def demo(found: Record) -> str:
    """Return the largest missions and the strongest pairs of the demonstration."""
    missions = []
    for one in found["missions"][:6]:
        typical = ", ".join(f"{name.strip()} {lift:.1f}" for name, lift in one["items"])
        missions.append([f"{one['share']:.1%}".replace("%", " %"), f"{one['mean_size']:.1f}", typical])
    pairs = []
    for kind, sign, count in (("complements", "+", 4), ("substitutes", "/", 3)):
        for item, other, lift, ties in found[kind][:count]:
            pairs.append([f"{item.strip()} {sign} {other.strip()}", f"{lift:.1f}", f"{ties:.2f}"])
    tables = [
        markdown_table(["share", "mean size", "most typical items, with their lift"], missions),
        markdown_table(["pair (+ together, / instead of each other)", "lift", "by ties"], pairs),
    ]
    return "\n\n".join(tables) + "\n"


def at_a_glance(found: Record) -> dict[str, str]:
    """Return the blocks of README.md: a recommendation with its reasons, and two dinners."""
    dinners = [[f"{dollars:.2f}", names] for dollars, names in found["dinners"][:2]]
    return {
        "why": f"```console\n$ {found['asked']}\n{found['printed'].rstrip()}\n```\n",
        "dinners": markdown_table(["dollars", "dinner"], dinners) + "\n",
    }
