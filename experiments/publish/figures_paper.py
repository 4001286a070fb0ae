"""Tables 2 and 3 beside the paper's, by both recipes, and what the choices of a recipe change (``docs/paper.md``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

from ndpp_experiments import table2, table3
from ndpp_experiments.kernels import PAPER
from ndpp_experiments.record import markdown_table, number, on_machine
from ndpp_experiments.samplers_timed import CHOLESKY, PAPERS_WALK, REJECTION

Row = Mapping[str, str]
TABLES = {"ndpp": table2.PAPER_TABLE, "ondpp": table3.PAPER_TABLE}
TASKS = {"k = 10": "10", "k = 50": "50", "any size": "any"}
SHORT = {REJECTION: "rejection", PAPERS_WALK: "walk", CHOLESKY: "Cholesky"}
RECIPE = ", the paper's recipe"
ABSENT = "not learned yet"
UNTIMED = "not timed yet"


def parts(record: Mapping[str, Any] | None, timed: Mapping[str, Sequence[Row]]) -> dict[str, str]:
    """Return the blocks of the page; ``record`` is what ``published.py`` wrote, if anything, and ``timed`` has tables 2 and 3."""
    learned = [] if record is None else record["kernels"]
    found = {(one["data"], one["kind"]): one for one in learned if not one["variant"]}
    blocks = {kind: rejections(kind, found, timed[kind]) for kind in TABLES}
    blocks["fits"] = fits(record, found)
    blocks["agreement"] = agreement(found, timed)
    blocks["choices"] = choices(learned)
    blocks["fastest"] = fastest(timed)
    return {name: text + "\n" for name, text in blocks.items()}


def value(text: str) -> float:
    """Return a number of the paper's tables.

    Examples
    --------
    >>> value("20880") == 20880, value("2·10^13 (*)") == 2e13
    (True, True)
    """
    return float(re.sub(r"·10\^", "e", text.removesuffix(" (*)")))


def recorded(about: Mapping[str, Any], task: str) -> float:
    """Return the rejections that are expected for a task."""
    return float(max(0.0, 10 ** about["log10_proposals"][TASKS[task]] - 1))


def lines_of(rows: Sequence[Row], title: str, task: str, sampler: str, *, by_paper: bool) -> list[Row]:
    """Return the lines of a table of one data set, task and sampler, of kernels learned by the paper's recipe or by ours."""
    return [
        row
        for row in rows
        if (row["data"], row["task"], row["sampler"]) == (title, task, sampler)
        and row["kernel"].startswith("learned")
        and row["kernel"].endswith(RECIPE) == by_paper
    ]


def rejections(kind: str, found: Mapping[tuple[str, str], Mapping[str, Any]], rows: Sequence[Row]) -> str:
    """Return the rejections of both samplers: the paper's, ours by its recipe, ours by our own."""
    table = []
    for task in TASKS:
        for i, data in enumerate(PAPER):
            cells = [task if not i else "", data.title]
            for sampler in (REJECTION, PAPERS_WALK):
                by_paper, own = (lines_of(rows, data.title, task, sampler, by_paper=b) for b in (True, False))
                cells.append(TABLES[kind][task, sampler, "rejections"][i].removesuffix(" (*)"))
                about = found.get((data.baskets, kind))
                if sampler == REJECTION:
                    cells.append(ABSENT if about is None else number(recorded(about, task)))
                else:
                    cells.append(_several(by_paper) or (ABSENT if about is None else UNTIMED))
                cells.append(_several(own) or "–")
            table.append(cells)
    header = ["", "data"]
    for name in ("rejection, per sample", "walk, per step"):
        header += [f"{name}: the paper", "its recipe here", "our recipe"]
    return markdown_table(header, table)


def _several(rows: Sequence[Row]) -> str:
    """Return the rejections of several kernels, with their γ if they have one."""
    gammas = [re.search(r"γ = [\d.]+", row["kernel"]) if len(rows) > 1 else None for row in rows]
    return "; ".join(number(float(row["rejections"])) + (f" ({g[0]})" if g else "") for row, g in zip(rows, gammas))


def fits(record: Mapping[str, Any] | None, found: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    """Return what was learned by the paper's recipe, and from what."""
    if record is None:
        return "**The kernels of the paper's recipe are not learned yet**: `experiments/publish/published.py` does it, on a GPU."
    table = []
    for data in PAPER:
        for kind in TABLES:
            if (about := found.get((data.baskets, kind))) is None:
                table.append([data.title, kind.upper(), ABSENT, *[""] * 6])
                continue
            settings = about["settings"]
            penalties = ", ".join(
                f"{s} = {settings[n]:g}" for n, s in (("alpha", "α = β"), ("gamma", "γ")) if n in settings
            )
            counts = [f"{about[name]:,}" for name in ("n_items", "n_train", "epochs")]
            scores = [f"{about[name]:.2f}" for name in ("test", "mean_size")]
            table.append([data.title, kind.upper(), penalties, *counts, about["ended"], *scores])
    header = [
        "data",
        "model",
        "penalties",
        "items",
        "training baskets",
        "steps",
        "ended",
        "test log-likelihood",
        "mean size",
    ]
    return "\n\n".join(
        [markdown_table(header, table), f"{record.get('where') or 'On a GPU'}; {on_machine(record['machine'])}."]
    )


def agreement(found: Mapping[tuple[str, str], Mapping[str, Any]], timed: Mapping[str, Sequence[Row]]) -> str:
    """Say by what powers of ten the expected proposals differ from the paper's, by either recipe."""
    lines = []
    for kind in TABLES:
        for task in TASKS:
            cells = [kind.upper(), task]
            for by_paper in (True, False):
                off = []
                for i, data in enumerate(PAPER):
                    own = lines_of(timed[kind], data.title, task, REJECTION, by_paper=False)
                    there = log10(1 + value(TABLES[kind][task, REJECTION, "rejections"][i]))
                    if by_paper and (about := found.get((data.baskets, kind))):
                        off.append((about["log10_proposals"][TASKS[task]] - there, data.title))
                    elif not by_paper:
                        off += [(log10(1 + float(row["rejections"])) - there, data.title) for row in own]
                ends = (
                    [f"{f'{e:+.1f}'.replace('-', '−')} ({title})" for e, title in (min(off), max(off))] if off else []
                )
                cells.append(" to ".join(dict.fromkeys(ends)) or ABSENT)
            lines.append(cells)
    table = markdown_table(["", "", "the paper's recipe", "our recipe"], lines)
    return f"Powers of ten between our expected proposals and the paper's, from the lowest to the highest:\n\n{table}"


def choices(learned: Sequence[Mapping[str, Any]]) -> str:
    """Return what changes with single choices of the recipe, for UK Retail."""
    own = [one for one in learned if one["data"] == PAPER[0].baskets]
    lines = []
    for kind, published in TABLES.items():
        if any(one["kind"] == kind for one in own):
            paper = [number(value(published[task, REJECTION, "rejections"][0])) for task in TASKS]
            lines.append([f"{kind.upper()}: the paper", "", "", "", *paper])
        for one in sorted((one for one in own if one["kind"] == kind), key=lambda one: one["variant"]):
            name = f"{kind.upper()}: {one['variant'] or 'its recipe here'}"
            ended, counts = f"{one['epochs']:,}, {one['ended']}", [number(recorded(one, task)) for task in TASKS]
            lines.append([name, ended, f"{one['test']:.2f}", f"{one['mean_size']:.1f}", *counts])
    if not lines:
        return "Not learned yet."
    return markdown_table(["UK Retail", "epochs", "test log-likelihood", "mean size", *TASKS], lines)


def fastest(timed: Mapping[str, Sequence[Row]]) -> str:
    """Return the fastest of the paper's samplers in each cell, in the paper and here, and what that says."""
    lines, wins = [], []
    for kind, published in TABLES.items():
        for task in TASKS:
            cells = [kind.upper(), task]
            for i, data in enumerate(PAPER):
                times = {s: value(published[task, s, "seconds"][i]) for s in SHORT if (task, s, "seconds") in published}
                best = min(times, key=lambda sampler: times[sampler])
                wins.append((kind, task, data.title, best))
                cells.append(
                    ", ".join(
                        [f"**{SHORT[best]}**", *(_fastest(timed[kind], data.title, task, b) for b in (True, False))]
                    )
                )
            lines.append(cells)
    ratios = [
        value(a) / value(b)
        for a, b in zip(*(TABLES["ndpp"]["any size", s, "seconds"] for s in (CHOLESKY, PAPERS_WALK)), strict=True)
    ]
    names = {
        (kind, task): [title for k, t, title, best in wins if (k, t) == (kind, task) and best == REJECTION]
        for kind in TABLES
        for task in TASKS
    }
    counts = {key: f"{len(titles)} of {len(PAPER)}" for key, titles in names.items()}
    text = (
        f"In the paper itself, exact rejection is the fastest on {counts['ondpp', 'k = 10']} ONDPP kernels for 10 items and on "
        f"{counts['ondpp', 'any size']} for any size, and on {counts['ndpp', 'k = 10']} NDPP kernels for 10 items "
        f"({', '.join(names['ndpp', 'k = 10'])}). Its walk is faster than its Cholesky sampler on {sum(r > 1 for r in ratios)} of "
        f"{len(PAPER)} NDPP kernels, by {min(r for r in ratios if r > 1):.2g} to {max(ratios):.2g} times by the table and up to 13 by the "
        "text, and slower on the others. The fastest of these three samplers, in the paper, here by its recipe, and here by ours:"
    )
    return f"{text}\n\n{markdown_table(['', '', *(data.title for data in PAPER)], lines)}"


def _fastest(rows: Sequence[Row], title: str, task: str, by_paper: bool) -> str:
    own = [row for sampler in SHORT for row in lines_of(rows, title, task, sampler, by_paper=by_paper)]
    if not own:
        return "–"
    best: dict[str, Row] = {}
    for row in own:
        if row["kernel"] not in best or float(row["seconds"]) < float(best[row["kernel"]]["seconds"]):
            best[row["kernel"]] = row
    return " or ".join(dict.fromkeys(SHORT[row["sampler"]] for row in best.values()))
