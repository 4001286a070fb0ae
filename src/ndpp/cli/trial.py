"""``ndpp try``: what a model would find in the orders that came later, beside simpler things, and whether it is worth using."""

from __future__ import annotations

import os
import time as clock
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import ndpp
from ndpp import answers
from ndpp._atomic import write_text
from ndpp._show import Table, printable
from ndpp._types import BoolArray, FloatArray
from ndpp.baskets import Baskets
from ndpp.baskets.labels import many
from ndpp.baskets.orders import Orders
from ndpp.cli import options as o
from ndpp.cli.files import OTHER_FORMATS, Source, check_output, require
from ndpp.cli.fit import progress, stage, table_of
from ndpp.cli.output import Report, emit, template
from ndpp.errors import InvalidInputError
from ndpp.laws.files import save

TEST_SHARE, MOST_TEST = 0.1, 5000
"""Share of the orders, the latest ones, that are the test, and most of them where no day is given."""
VALIDATION_SHARE, MOST_VALIDATION, CHOOSING = 0.1, 1000, 500
"""Share and most of the orders before these that choose settings and end training; most of them for the settings of EASE."""
LEAST_TEST = 20
"""Fewest test orders with an item to hold out."""
MINUTES, RESAMPLES, LEVEL = 5.0, 1000, 0.95
MODEL, POPULARITY, EASES = "model", "popularity", ("EASE", "EASE by basket size")
EXAMPLES, LISTED, LEAST_SHOWN = 6, 5, 20
"""Orders that are shown, items that are listed for each, and fewest orders for which a share is drawn."""
SIZES = ((1, 1), (2, 2), (3, 4), (5, 9), (10, None))
"""Items that are in the basket when a suggestion is made, in groups."""
METRICS = ("hit rate", "MRR", "NDCG")
ORDERS = "A file of orders: text, CSV or Parquet; - is standard input."
ASK_TIME = "Column of the time; default: time if there is one, else the order of the file stands for time."
AFTER = "The test: orders from this day on, such as 2026-03-01; default: the latest tenth, at most 5,000."
KEEP = "Keep the fitted model in this file, too."
LIMIT = "Minutes for the fit of the model, the simple methods not included."


class Divided(NamedTuple):
    """Orders to fit to, to choose settings by, and to test on, and what separates the last ones."""

    train: Orders
    val: Orders
    test: Orders
    after: str | None
    """The time from which on orders are the test; None by the order of the file."""


class Reached(NamedTuple):
    """What one method reached on the test orders: ranks of the held-out items as metrics per order."""

    model: Any
    seconds: float
    values: Mapping[str, FloatArray]
    ranked: BoolArray


def try_(
    orders: Annotated[str, typer.Argument(metavar="ORDERS", help=ORDERS)],
    output: Annotated[Path | None, o.file("The page to write, an .html file.", "--output", "-o")] = None,
    keep: Annotated[Path | None, o.file(KEEP, kind="MODEL")] = None,
    minutes: Annotated[float, o.number(LIMIT)] = MINUTES,
    time: Annotated[str | None, o.word(ASK_TIME)] = None,
    test_after: Annotated[str | None, o.word(AFTER, metavar="DAY")] = None,
    top: Annotated[int, o.number("How many items a customer is shown.", least=1)] = 10,
    table: o.KeptTable = None,
    seed: o.Seed = 0,
    json: o.Json = False,
    *,
    reading: o.Reading,
) -> None:
    """Try a model on your orders: what would it have suggested for the latest ones, and is it worth using?

    A model is fitted to all but the latest tenth of the orders, and so are popularity, item-item cosine, EASE, and EASE in which large
    baskets count for less. One item of each of the latest orders is hidden: which method suggests it? The verdict compares the model with
    the simple method that was best on earlier orders, order by order.

    \b
    Examples:
      ndpp try orders.csv --basket order_id --item product --time ordered_at -o trial.html
      ndpp try baskets.txt --minutes 20 -o trial.html --keep model.safetensors --table products.csv
    """
    check_output(output, ".html", ".htm", inputs=(orders, table))
    require(output is None or output.suffix.lower() in (".html", ".htm"), "the page needs a name that ends in .html")
    if keep is not None:
        check_output(keep, *OTHER_FORMATS, inputs=(orders, table), kind="a model")
    source = Source(orders, reading)
    with stage(f"reading {source.name}"):
        parts = split(source.read_timed(time).select(min_size=1), test_after)
        attached = table_of(table, parts.train, reading)
    made = _simple(parts)
    with stage("comparing the simple methods on earlier orders"):
        simple = _best(made, parts.val, top, seed)
    with stage("loading torch"):
        from ndpp.learning.contest import duration
        from ndpp.learning.fitting import fit
    began = clock.monotonic()
    fitted = fit(parts.train, validation=parts.val, minutes=minutes, random_state=seed, progress=progress())
    made[MODEL] = fitted.law_, clock.monotonic() - began
    if keep is not None:
        save(fitted.law_, keep, metadata=fitted.about() | attached)
    with stage(f"judging on {many(len(parts.test), 'later order')}"):
        data = judged(parts, made, simple, top, seed)
    about = {"file": Path(source.name).name, "seed": seed, "minutes": minutes, "training": fitted.about()}
    data = {**about, **data}
    if output is not None:
        with stage(f"writing {os.fspath(output)}"):
            own = answers.Prepared(fitted.law_, metadata=attached)
            more = {"missions": answers.missions(own)[:EXAMPLES], "examples": examples(parts, made, simple, own, seed)}
            page = template("trial.html").render(
                data,
                **more,
                said=said(data),
                drawn=weeks_drawn(data["weeks"]),
                printable=printable,
                seconds=duration,
                written_by=ndpp.__version__,
            )
            write_text(output, page)
    emit(_report(data), None, as_json=json)


# -- which orders, and which methods ------------------------------------------------------------------------------------------


def split(orders: Orders, after: str | None = None) -> Divided:
    """Return the orders in three parts, one later than the other: by time, from the beginning of a day if possible, or by their order.

    Examples
    --------
    >>> baskets = Baskets.from_lists([["tea", "milk"]] * 500)
    >>> orders = Orders(baskets, times=np.datetime64("2026-01-01T12:00") + np.arange(500) * np.timedelta64(6, "h"))
    >>> parts = split(orders)
    >>> [len(part) for part in parts[:3]], parts.after
    ([405, 45, 50], '2026-04-24')
    """
    n, name = len(orders), None
    if after is not None:
        earlier, test = orders.split_at(after)
        name = after
    else:
        cut = n - min(round(TEST_SHARE * n), MOST_TEST)
        earlier, test = orders[:cut], orders[cut:]
        if orders.times is not None and len(test):
            for unit in ("s", "D"):
                begin = orders.times[cut].astype(f"datetime64[{unit}]")
                parts = orders.split_at(begin)
                if 2 * len(parts[0]) >= n:
                    (earlier, test), name = parts, str(begin).replace("T", " ")
    n_several = int((test.sizes > 1).sum())
    if n_several < LEAST_TEST or len(earlier) < LEAST_TEST:
        raise InvalidInputError(
            f"a trial needs at least {LEAST_TEST} orders of two items or more after the others; here {n_several} of {n:,} are left for the "
            f"test, and {len(earlier):,} come before them"
        )
    held = max(1, min(round(VALIDATION_SHARE * len(earlier)), MOST_VALIDATION))
    return Divided(earlier[:-held], earlier[-held:], test, name)


def _simple(parts: Divided) -> dict[str, tuple[Any, float]]:
    """Return the simple methods, and the seconds that each took, its settings chosen on the validation orders."""
    from ndpp import metrics
    from ndpp.metrics.regression import MAX_ITEMS

    train, few = parts.train, parts.val[-CHOOSING:]
    methods: dict[str, Callable[[], Any]] = {
        POPULARITY: lambda: metrics.independent_items(train), "item-item cosine": lambda: metrics.item_item_cosine(train),
    }  # fmt: skip
    if train.n_items <= MAX_ITEMS:
        methods[EASES[0]] = lambda: metrics.ease(train, validation=few)
        methods[EASES[1]] = lambda: metrics.ease(train, size_power=None, validation=few)
    found = {}
    for name, make in methods.items():
        with stage(f"fitting {name}"):
            began = clock.monotonic()
            found[name] = make(), clock.monotonic() - began
    return found


def _best(made: Mapping[str, tuple[Any, float]], val: Baskets, top: int, seed: int) -> str:
    """Return the simple method with the best hit rate on the validation orders."""
    from ndpp.metrics import hit_rate_at

    rates = {name: hit_rate_at(model, val, top, n_boot=0, rng=seed).value for name, (model, _) in made.items()}
    return max(rates, key=lambda name: np.nan_to_num(rates[name]))


# -- what they reach --------------------------------------------------------------------------------------------------------------


def judged(parts: Divided, made: Mapping[str, tuple[Any, float]], simple: str, top: int, seed: int) -> dict[str, Any]:
    """Return what each method reaches on the test orders, and the verdict, for JSON."""
    from ndpp.metrics.estimates import Bootstrap, PerBasket, mean_estimates
    from ndpp.metrics.ranking import held_out_ranks, hold_out

    several = parts.test.select(min_size=2)
    held = hold_out(several, np.random.default_rng(seed))
    found = {}
    for name, (model, seconds) in made.items():
        ranks = held_out_ranks(model, held)
        values = ranks.in_top(top), ranks.reciprocal(), ranks.discounted(top)
        found[name] = Reached(model, seconds, dict(zip(METRICS, values)), ranks.is_ranked)
    common = np.all([one.ranked for one in found.values()], axis=0)
    columns = [
        PerBasket(f"{name}\0{metric}", one.values[metric][common], 0)
        for name, one in found.items()
        for metric in METRICS
    ]
    own, other = found[MODEL].values, found[simple].values
    columns += [PerBasket(f"\0{metric}", (own[metric] - other[metric])[common], 0) for metric in METRICS]
    means: dict[str, dict[str, Any]] = {}
    for one in mean_estimates(columns, Bootstrap(LEVEL, RESAMPLES, seed)):
        name, metric = one.name.split("\0")
        means.setdefault(name, {})[metric] = {"value": one.value, "low": one.low, "high": one.high}
    gain = means.pop("")
    hits = {name: found[name].values["hit rate"] for name in dict.fromkeys((MODEL, simple, POPULARITY))}
    known = np.bincount(parts.train.indices, minlength=parts.train.n_items) > 0
    return {
        "verdict": "model" if gain["hit rate"]["low"] > 0 else "simple" if gain["hit rate"]["high"] < 0 else "either",
        "simple": simple, "top": top, "level": LEVEL, "gain": gain, "left_out": [name for name in EASES if name not in made],
        "split": {
            "by": "the order of the file" if parts.after is None else "time", "after": parts.after, "train": len(parts.train),
            "validation": len(parts.val), "test": len(parts.test), "judged": int(common.sum()), "items": parts.train.n_items,
            "never_seen": float(np.mean(~known[held.items])),
        },
        "methods": [
            {"name": name, "seconds": one.seconds, "metrics": means[name], **_settings(one.model)} for name, one in found.items()
        ],
        "weeks": by_time(several, hits, common),
        "basket_sizes": _by_size(held.rest.sizes, hits, common),
    }  # fmt: skip


def _settings(model: Any) -> dict[str, float]:
    """Return what validation orders chose."""
    return {name: value for name in ("penalty", "size_power") if (value := getattr(model, name, None)) is not None}


def by_time(orders: Orders, hits: Mapping[str, FloatArray], common: BoolArray) -> list[dict[str, Any]]:
    """Return the hit rate of each week of the test, or of each day if it is of less than three weeks; nothing without times."""
    if orders.times is None:
        return []
    days = orders.times.astype("datetime64[D]")
    step = 7 if (days.max() - days.min()).astype(int) >= 21 else 1
    which = (days - days.min()).astype(int) // step
    groups = [(str(days.min() + np.timedelta64(int(i * step), "D")), which == i) for i in range(int(which.max()) + 1)]
    found = [{"from": name, "days": step, **_share(chosen & common, hits)} for name, chosen in groups]
    return [one for one in found if one["n"] >= LEAST_SHOWN]


def _by_size(sizes: Any, hits: Mapping[str, FloatArray], common: BoolArray) -> list[dict[str, Any]]:
    """Return the hit rate by the number of items that are in the basket."""
    found = []
    for least, most in SIZES:
        name = str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        chosen = (sizes >= least) & (sizes <= (most or np.inf)) & common
        found.append({"items": name, **_share(chosen, hits)})
    return [one for one in found if one["n"] >= LEAST_SHOWN]


def _share(chosen: BoolArray, hits: Mapping[str, FloatArray]) -> dict[str, Any]:
    n = int(chosen.sum())
    return {"n": n, "hit_rates": {name: float(values[chosen].mean()) if n else None for name, values in hits.items()}}


# -- what is said of it -----------------------------------------------------------------------------------------------------------


def said(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the verdict in words: a title, what was found, and what follows."""
    simple, gain, top = data["simple"], data["gain"]["hit rate"], data["top"]
    rates = {one["name"]: one["metrics"]["hit rate"]["value"] for one in data["methods"]}
    more, low, high = (round(1000 * gain[name]) for name in ("value", "low", "high"))
    own, other, popular = (round(1000 * rates[name]) for name in (MODEL, simple, POPULARITY))
    found = (
        f"Of 1,000 later orders with one item hidden, that item is among the first {top} suggestions of the model in {own}, of {simple} in "
        f"{other}" + (f", and of the best-selling items in {popular}" if simple != POPULARITY else "") + "."
    )
    paired = f"The model finds {abs(more)} {'more' if more >= 0 else 'fewer'} than {simple}"
    paired += f" ({data['level']:.0%} interval: {low:+d} to {high:+d})."
    ended = data["training"]["ended"] == "minutes"
    time = f" Its training was ended by --minutes {data['minutes']:g}; more time may help." if ended else ""
    if reduced := data["training"].get("in_time"):
        whole = f"{reduced['instead_of']} take about --minutes {reduced['minutes']:g}"
        time = f" There was time for {reduced['chosen']}; {whole}, and may do better."
    words = {
        "model": ("Use the model", "The difference is beyond chance."),
        "simple": (
            f"Use {simple}", f"For suggestions, {simple} is better here, and simpler. The model is worth its cost only for what {simple} "
            f"cannot do: whole baskets, limits, probabilities, missions.{time}",
        ),
        "either": (
            "No difference that these orders show", f"If suggestions are all you need, {simple} is the simpler choice. The model also "
            f"completes whole baskets within limits, says how likely a basket is and why an item is suggested.{time}",
        ),
    }  # fmt: skip
    title, follows = words[data["verdict"]]
    return {"title": title, "found": found, "paired": paired, "follows": follows}


def _report(data: Mapping[str, Any]) -> Report:
    """Return what the command prints."""
    heads = {"hit rate": f"hit rate@{data['top']}", "MRR": "MRR", "NDCG": f"NDCG@{data['top']}"}

    def shown(one: Mapping[str, float]) -> str:
        return f"{one['value']:.3f} ± {(one['high'] - one['low']) / 2:.3f}"

    lines = [
        [one["name"], *(shown(one["metrics"][name]) for name in METRICS), round(one["seconds"], 1)]
        for one in data["methods"]
    ]
    table = Table(("method", *heads.values(), "seconds"), lines)
    words, own = said(data), data["split"]
    by = f"from {own['after']} on" if own["by"] == "time" else "the last ones of the file, which has no --time"
    notes = [
        f"{own['judged']:,} of {many(own['test'], 'later order')} ({by}) have an item to hide; {own['train']:,} orders to fit to, "
        f"{own['validation']:,} to choose settings.", words["found"], words["paired"], f"{words['title']}. {words['follows']}",
    ]  # fmt: skip
    if data["left_out"]:
        notes.append(f"Left out: {', '.join(data['left_out'])}, whose weights between all items do not fit in memory.")
    return Report(data, table, notes=notes)


def examples(
    parts: Divided, made: Mapping[str, tuple[Any, float]], simple: str, own: answers.Prepared, seed: int
) -> list[dict[str, Any]]:
    """Return some test orders drawn at random, one item hidden, and what the model and the simple method suggest for them."""
    from ndpp.metrics.models import scores
    from ndpp.metrics.ranking import hold_out

    few = parts.test[(parts.test.sizes >= 3) & (parts.test.sizes <= 8)]
    few = few[np.sort(np.random.default_rng(seed).permutation(len(few))[:EXAMPLES])]
    held = hold_out(few, np.random.default_rng(seed))
    names = own.labels or tuple(map(str, range(own.law.n_items)))
    lists = {}
    for name in (MODEL, simple):
        values = scores(made[name][0], held.rest)
        values[np.repeat(np.arange(len(held.rest)), held.rest.sizes), held.rest.indices] = -np.inf
        lists[name] = np.argsort(-values, axis=1, kind="stable")[:, :LISTED]
    return [
        {
            "basket": [names[i] for i in held.rest[k].tolist()], "hidden": names[int(held.items[k])],
            "lists": {name: [names[i] for i in found[k].tolist()] for name, found in lists.items()},
        }
        for k in range(len(held.items))
    ]  # fmt: skip


WIDTH, HEIGHT = 640, 200
"""Size of the picture of the weeks."""


def weeks_drawn(weeks: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the picture of the hit rate over time: a line for each method, and numbers beside it; None for less than two points."""
    if len(weeks) < 2:
        return None
    names = list(weeks[0]["hit_rates"])
    top = min(1.0, 1.1 * max(max(one["hit_rates"].values()) for one in weeks)) or 1.0
    places = [round(WIDTH * i / (len(weeks) - 1), 1) for i in range(len(weeks))]
    lines = [
        {
            "name": name,
            "points": [(x, round(HEIGHT * (1 - one["hit_rates"][name] / top), 1)) for x, one in zip(places, weeks)],
        }
        for name in names
    ]
    every = -(-len(weeks) // 4)
    ticks = [(x, one["from"]) for i, (x, one) in enumerate(zip(places, weeks)) if i % every == 0]
    grid = [(round(HEIGHT * (1 - share), 1), f"{share * top:.0%}") for share in (0.0, 0.5, 1.0)]
    return {"lines": lines, "ticks": ticks, "grid": grid, "width": WIDTH, "height": HEIGHT}
