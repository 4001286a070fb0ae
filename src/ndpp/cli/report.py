"""``ndpp report``: one page about a model, a single HTML file without scripts that needs nothing from elsewhere."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import ndpp
from ndpp import answers
from ndpp._atomic import write_text
from ndpp._show import called, has_name, printable
from ndpp._types import FloatArray, IntArray
from ndpp.answers.records import Pairs
from ndpp.baskets.orders import Orders
from ndpp.cli import options as o
from ndpp.cli.evaluate import TIME, compare, in_common
from ndpp.cli.files import Source, check_output, fingerprint, load_prepared, require
from ndpp.cli.guard import say
from ndpp.cli.info import SMALLEST_SHOWN
from ndpp.cli.output import cell, template, working
from ndpp.cli.trial import by_time, weeks_drawn
from ndpp.laws.files import load_header
from ndpp.laws.law import Law

TRAIN = "Baskets that the model was fitted on, for the baselines of the evaluation."
SINCE = "An earlier version of the model: what has changed since, and with --test and --time how well both do by week."
SHOWN = {"popular": 15, "pairs": 10}
"""Items and pairs on the page."""
COLUMNS, TICKS = 40, 12
"""Most columns of the size distribution, and most of them with a number below."""
MAP_ITEMS, MAP_LABELS = 2000, 60
"""Largest catalogue that has a map, and most items on it."""


def report(
    model: o.Model,
    output: Annotated[Path, o.file("The page to write, an .html file.", "--output", "-o")],
    test: Annotated[str | None, o.file("Baskets that the model was not fitted on, to evaluate it.")] = None,
    train: Annotated[str | None, o.file(TRAIN)] = None,
    since: Annotated[Path | None, o.file(SINCE, kind="MODEL")] = None,
    seed: o.Seed = 0,
    time: Annotated[str | None, o.word(TIME)] = None,
    ids: Annotated[bool, typer.Option("--ids", help="The baskets hold ids (0, 1, 2, …), not labels.")] = False,
    table: o.ItemTable = None,
    *,
    reading: o.ReadingFor,
) -> None:
    """Write a page about a model: sizes of baskets, popular items, pairs, missions, a map and, with --test, an evaluation.

    The page is one HTML file without scripts that loads nothing from elsewhere, so it can be mailed or archived.

    \b
    Examples:
      ndpp report model.safetensors -o report.html
      ndpp report model.safetensors -o report.html --test test.csv --train train.csv
      ndpp report tonight.safetensors -o week.html --since lastweek.safetensors --test orders.csv --time ordered_at
    """
    check_output(output, ".html", ".htm", inputs=(model, test, train, since))
    require(
        output.suffix.lower() in (".html", ".htm"),
        f"a report is a page; use a name that ends in .html, not {output.name!r}",
    )
    require(train is None or test is not None, "--train is for the evaluation, which needs --test")
    require(time is None or test is not None, "--time is a column of the baskets of --test")
    own, observed, evaluation, changed = load_prepared(model, table, ids=ids), None, None, None
    head: dict[str, Any] = {"name": printable(model.name), "version": load_header(model).ndpp_version}
    head |= {"crc32": fingerprint(model), "test": printable(test or ""), "written_by": ndpp.__version__}
    with working("evaluating") as now:
        if test is not None:
            seen, found, notes = compare(own.law, Source(test, reading), train, ids=ids, time=time, rng=seed)
            observed, evaluation = seen.sizes, {"tables": found.tables(), "notes": notes}
        if since is not None:
            now("comparing with the earlier model")
            old, weeks = load_prepared(since, table, ids=ids), []
            changed = answers.changes(own, old)
            if test is not None and time is not None:
                timed = Source(test, reading).read_for(own.law, ids=ids, time=time)
                weeks = by_week(own.law, old.law, timed, seed=seed)
            head |= {"since_name": printable(since.name), "weeks": weeks, "drawn": weeks_drawn(weeks)}
        now("describing the model")
        about = contents(own, observed=observed)
    write_text(output, template("report.html").render(about, **head, evaluation=evaluation, since=changed))
    say(f"{str(output)!r} describes {str(model)!r}")


def by_week(law: Law, old: Law, test: Orders, *, top: int = 10, seed: int = 0) -> list[dict[str, Any]]:
    """Return the hit rates of both models by week, on the items that both have; the test orders have times."""
    from ndpp.metrics.ranking import held_out_ranks, hold_out

    new, judged, others, _ = in_common(law, test, {"before": old}, "old")
    several = judged.select(min_size=2)
    held = hold_out(several, np.random.default_rng(seed))
    ranks = {name: held_out_ranks(one, held) for name, one in {"now": new, **others}.items()}
    common = np.all([one.is_ranked for one in ranks.values()], axis=0)
    return by_time(several, {name: one.in_top(top) for name, one in ranks.items()}, common)


def contents(own: answers.Prepared, *, observed: IntArray | None = None) -> dict[str, Any]:
    """Return what the page says about a model; ``observed`` are sizes of baskets to compare with."""
    found, pairs = answers.describe(own, n=SHOWN["popular"]), answers.pairs(own, n=SHOWN["pairs"])
    sizes = np.array(found.size_distribution)
    columns = size_columns(sizes, observed)
    facts = {"items": found.n_items, "items per basket": found.mean_size, "empty baskets": f"{sizes[0]:.1%}"}
    facts |= {"components": found.n_components} if found.rank is None else {"rank": found.rank}
    return {
        "kind": "Mixture of missions" if found.rank is None else "Nonsymmetric determinantal point process",
        "facts": {name: cell(value) for name, value in facts.items()},
        "sizes": columns, "top": max(max(one["model"], one["observed"] or 0.0) for one in columns),
        "model": found, "pairs": pairs, "shown": lambda item: printable(called(item)), "label": _label, "map": _map(own, pairs),
    }  # fmt: skip


def _label(item: object) -> str:
    """Return the label of an item that has a name, in its place or beside it."""
    return printable(item) if has_name(item) else ""


def size_columns(model: FloatArray, observed: IntArray | None = None) -> list[dict[str, Any]]:
    """Return the columns of the size distribution: several sizes to a column if there are many.

    Examples
    --------
    >>> [(column["name"], round(column["model"], 2)) for column in size_columns(np.array([0.0, 0.25, 0.5, 0.25]))]
    [('1', 0.25), ('2', 0.5), ('3', 0.25)]
    """
    there = np.zeros(0) if observed is None else np.bincount(observed) / len(observed)
    both = np.zeros((2, max(len(model), len(there))))
    both[0, : len(model)], both[1, : len(there)] = model, there
    shown = np.flatnonzero((both >= SMALLEST_SHOWN).any(axis=0))
    low, high = int(shown[0]), int(shown[-1])
    width = -(-(high - low + 1) // COLUMNS)
    starts = np.arange(low, high + 1, width)
    shares = np.add.reduceat(both[:, : starts[-1] + width], starts, axis=1)
    every, top = -(-len(starts) // TICKS), float(shares.max())
    return [
        {
            "name": str(start) if width == 1 else f"{start}–{start + width - 1}", "tick": i % every == 0,
            "model": own, "observed": None if observed is None else seen, "height": own / top, "seen_height": seen / top,
        }
        for i, (start, own, seen) in enumerate(zip(starts.tolist(), *shares.tolist()))
    ]  # fmt: skip


def _map(own: answers.Prepared, pairs: Pairs) -> str | None:
    """Return a map of the popular items as SVG, None if there are too many or too few, or nothing to draw it with."""
    n_items = int(np.count_nonzero(own.law.popularity))
    if not 4 <= n_items <= MAP_ITEMS:
        return None
    try:
        from matplotlib import rc_context
    except ImportError:
        return None
    from ndpp.plots import embedding_map

    # Labels are text: no mathematics between dollar signs, and letters that the browser can select and recolour.
    with (
        warnings.catch_warnings(),
        rc_context({"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "ndpp"}),
    ):
        warnings.simplefilter("ignore", UserWarning)  # letters that matplotlib's font lacks: the browser has others
        drawn, file = embedding_map(own, n=min(MAP_LABELS, n_items), pairs=pairs), io.StringIO()
        drawn.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = "\n".join(map(printable, file.getvalue().split("\n")))
    return re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
