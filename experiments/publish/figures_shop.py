"""The figures of ``docs/shop-over-a-year.md``: ``ndpp reproduce a-year``, ``next_basket`` and ``prices``."""

from __future__ import annotations

from typing import Any

import numpy as np
from figures_evaluation import best

from ndpp_experiments.record import markdown_table

Record = dict[str, str]
ANEW, UPDATED, NEVER = "fitted anew", "updated", "never updated"
METHODS = ("bestsellers", "own, then all", "TIFU-KNN", "`ndpp.Customers`")
"""Methods that are listed here; docs/quality.md has all of them."""
EFFECTS = {
    "price alone": ("price alone", "price"),
    "beside displays and mailers": ("beside displays and mailers", "price"),
    "in weeks in which hardly any store (2 %) had a display or a mailer for the product": (
        "weeks without display or mailer",
        "price",
    ),
    "next week's price, beside this week's: a check, as it should do nothing": ("and next week's price", "later"),
}
DEPARTMENTS = {"GROCERY": "groceries", "MEAT-PCKGD": "packaged meat", "PRODUCE": "fruit and vegetables by the piece"}


def year(rows: list[Record]) -> str:
    """Return the months of a year, and what they come to."""
    found = {(int(row["month"]), row["model"]): row for row in rows}
    months = sorted({month for month, _ in found})[1:]  # before, all are the same model

    def column(model: str, name: str) -> dict[int, float]:
        return {month: float(found[month, model][name]) for month in months}

    gains = {model: (column(model, "gain"), column(model, "gain_error")) for model in (ANEW, UPDATED)}
    hits = {model: column(model, "hit_rate") for model in (NEVER, UPDATED, ANEW)}
    seconds = {model: column(model, "seconds") for model in (UPDATED, ANEW)}
    lines = [
        [
            str(month + 1), *(f"{gain[month]:.2f} ± {error[month]:.2f}" for gain, error in gains.values()),
            *(f"{own[month]:.3f}" for own in hits.values()), *(f"{own[month]:.0f}" for own in seconds.values()),
        ]
        for month in months
    ]  # fmt: skip
    header = [
        "month", "gain of a new fit", "gain of the update", "hit rate@10: never updated", "updated", "fitted anew",
        "seconds: update", "new fit",
    ]  # fmt: skip
    gain, hit, time = (
        {model: float(np.mean(list(own.values()))) for model, own in columns.items()}
        for columns in ({model: own for model, (own, _) in gains.items()}, hits, seconds)
    )
    kept, hit_kept = gain[UPDATED] / gain[ANEW], (hit[UPDATED] - hit[NEVER]) / (hit[ANEW] - hit[NEVER])
    first, last = (float(found[month, UPDATED]["behind"]) for month in (months[0], months[-1]))
    text = (
        f"On average an update keeps {kept:.0%} of what a new fit gains in log-likelihood, and {hit_kept:.0%} of what it gains in hit "
        f"rate, in {time[UPDATED] / time[ANEW]:.0%} of the time, with the orders of one month instead of all. It falls behind slowly: by "
        f"{first:.2f} nats after one update and {last:.2f} after {len(months)}."
    )
    return f"{markdown_table(header, lines)}\n\n{text.replace('%', ' %')}\n"


def customers(rows: list[Record], within: list[Record]) -> str:
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


def prices(rows: list[Record], departments: list[Record], found: dict[str, Any]) -> str:
    """Return the effects of prices."""

    def words(row: Record) -> str:
        return f"{float(row['effect']):.2f} ± {float(row['error']):.2f}".replace("-", "−")

    known = {(row["model"], row["variable"]): row for row in rows}
    lines = [[name, words(known[key])] for name, key in EFFECTS.items()]
    later = next(one["ours"] for one in found["findings"] if one["what"].startswith("weeks after"))
    lines.append(
        ["the effect of the first 39 weeks used as a factor in the last 14, gained per 1,000 baskets", f"{later} nats"]
    )
    apart = ", ".join(f"{words(row)} for {DEPARTMENTS[row['model']]}" for row in departments)
    table = markdown_table(["", "β, ± one standard error"], lines)
    return f"{table}\n\nBeside displays and mailers, departments differ: {apart}.\n"
