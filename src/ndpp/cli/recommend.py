"""``ndpp recommend`` and ``ndpp map``: likely items and sets, without sampling."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer

from ndpp._show import Table
from ndpp.baskets import Baskets
from ndpp.cli import options as o
from ndpp.cli.deliver import Starts, Target
from ndpp.cli.files import (
    Law,
    Source,
    check_output,
    check_sizes,
    fingerprint,
    given_baskets,
    load_model,
)
from ndpp.cli.lists import CategoryFile, Lists
from ndpp.cli.output import Report, emit, progress, working
from ndpp.explain import Reason, reasons_many
from ndpp.inference import Ranking, greedy_map, recommend_many
from ndpp.laws.kernel import LowRankKernel

RANKING = "What a basket lacks: one item (completion), all that is still to come (continuation), or what is special of that (lift)."
CATEGORY_OF = "Table of categories, with the columns item and category."
CATEGORIES = "The only categories to recommend from, separated by commas; may be repeated."
WHY = "Show what each score owes to popularity, mission and ties: its factors."
MEANING = {
    Ranking.COMPLETION: "Score: the probability of the basket with the item, divided by that without it.",
    Ranking.CONTINUATION: "Score: the probability that a basket that begins so ends with the item in it.",
    Ranking.LIFT: "Score: how many times as likely the item is in a basket that begins so as in any basket.",
}


FIELDS = ("basket", "rank", "item", "score")
FACTORS = ("popularity", "mission", "ties", "because", "tied_to")


def recommend(
    model: o.Model,
    baskets: o.MaybeBaskets = None,
    *,
    given: o.Given = None,
    number: Annotated[int, o.number("Number of items per basket.", "--number", "-n", least=1)] = 10,
    ranking: Annotated[Ranking, typer.Option(help=RANKING)] = Ranking.COMPLETION,
    why: Annotated[bool, typer.Option("--why", help=WHY)] = False,
    limits: o.Limits,
    category_of: Annotated[str | None, o.file(CATEGORY_OF)] = None,
    max_per_category: Annotated[int | None, o.number("Most items of a category per basket.", least=1)] = None,
    categories: Annotated[list[str] | None, typer.Option(metavar="NAMES", help=CATEGORIES)] = None,
    output: o.Output = None,
    json: o.Json = False,
    ids: o.Ids = False,
    reading: o.ReadingFor,
) -> None:
    """Recommend items that go well with a basket, best first.

    By default the score of an item is the probability of the basket with the item, divided by its probability without it: what
    completes a basket that lacks one item. With --ranking continuation it is the probability that the item is in the final basket:
    what else a basket that has only begun will hold. With --ranking lift this is divided by the probability that any basket holds the
    item: what goes with this basket in particular.

    \b
    Examples:
      ndpp recommend model.safetensors --given bread,butter -n 5
      ndpp recommend model.safetensors --given bread,butter --why
      ndpp recommend model.safetensors baskets.txt -o recommended.csv
      ndpp recommend model.safetensors baskets.csv --candidates-file stock.txt --unknown skip
      ndpp recommend model.safetensors -g tea --category-of categories.csv --max-per-category 2
      echo "tea" | ndpp recommend model.safetensors - --json
    """
    check_output(output, inputs=(model, baskets, limits.candidates_file, limits.exclude_file, category_of))
    law = load_model(model)
    source = None if baskets is None else Source(baskets, reading)
    starts = given_baskets(law, given, source, ids=ids)
    allowed = Lists(limits, ids, reading.encoding, reading.unknown).allowed(law)
    asked = CategoryFile(category_of, max_per_category, categories)
    allowed, limit = asked.limit(law, allowed, ids=ids, encoding=reading.encoding)
    names = law.labels if law.labels is not None and not ids else range(law.n_items)
    with working("recommending"):
        make = _why if why else _best
        best = make(law, starts, names, n=number, candidates=allowed, ranking=ranking, per_category=limit)
    impossible = sum(own is None for own in best)
    if impossible and source is None:
        ranking.scores(law, starts[0])  # raises, and says why
    if impossible:
        text = f"{impossible} of {len(starts)} baskets have probability zero; nothing is recommended for them"
        warnings.warn(text, stacklevel=1)
    emit(_report(best, starts, ranking, FACTORS if why else (), from_file=source is not None), output, as_json=json)


def _report(
    best: Sequence[list[tuple[Any, ...]] | None],
    starts: Baskets,
    ranking: Ranking,
    more: Sequence[str],
    *,
    from_file: bool,
) -> Report:
    """Return what is recommended, with ``more`` fields after the score."""
    fields, keys = (*FIELDS, *more), starts.ids_or_numbers
    table = Table(fields, [(i, r, *one) for i, own in zip(keys, best) for r, one in enumerate(own or (), 1)])
    nested = [[dict(zip(fields[2:], one)) for one in own or ()] for own in best]
    shown = None if from_file else Table(fields[2:], [line[2:] for line in table.lines])
    notes = (MEANING[ranking] if table.lines else "No item scores above zero.",)
    data: dict[str, Any] = {"ranking": ranking.value, "recommendations": nested}
    if starts.basket_ids is not None:
        data["basket_ids"] = starts.basket_ids
    return Report(data, table, shown, notes)


def _best(law: Law, baskets: Baskets, names: Sequence[Any], **options: Any) -> list[list[tuple[Any, ...]] | None]:
    """Return item and score of each recommendation for each basket, None for impossible ones."""
    found = recommend_many(law, baskets, **options)
    return [one and [(names[a], score) for a, score in zip(one.items.tolist(), one.scores.tolist())] for one in found]


def _why(law: Law, baskets: Baskets, names: Sequence[Any], **options: Any) -> list[list[tuple[Any, ...]] | None]:
    """Return item, score, its factors and their origin of each recommendation for each basket, None for impossible ones."""
    found = reasons_many(law, baskets, **options)
    return [None if own is None else [_line(one, names) for one in own] for own in found]


def _line(one: Reason, names: Sequence[Any]) -> tuple[Any, ...]:
    factors = np.exp([one.popularity, one.mission, one.tie]).tolist()
    tied_to = next((names[tie.item] for tie in one.ties if tie.log_factor > 0), None)
    return names[one.item], one.score, *factors, one.because, tied_to


def map_(
    model: o.Model,
    baskets: o.MaybeBaskets = None,
    *,
    size: Annotated[int, o.number("Items of the basket, including given ones.", "--size", "-k", show_default=False)],
    given: o.Given = None,
    exclude: o.Exclude = None,
    writing: o.Writing,
    reading: o.ReadingFor,
) -> None:
    """Build a likely basket greedily: the given items, then the best next item at each step, in this order.

    \b
    Examples:
      ndpp map model.safetensors --size 6
      ndpp map model.safetensors --size 6 --given bread
      ndpp map model.safetensors half.txt --size 6 --json
    """
    kernel = load_model(model)
    target = Target.of(writing, kernel.labels)
    target.check(model, baskets, resume=False)
    source = None if baskets is None else Source(baskets, reading)
    starts = given_baskets(kernel, given, source, ids=writing.ids)
    allowed, _ = Lists(o.Limits(exclude=exclude), writing.ids).narrowed(kernel, starts.indices)
    if source:
        check_sizes(allowed, starts, [size] * len(starts))
    found: list[list[int]] = []
    with progress(len(starts), "building", show=len(starts) > 1) as bar:
        for items in starts:
            found.append(greedy_map(allowed, size, given=items).tolist())
            bar.advance()
    head: dict[str, Any] = {
        "model_crc32": fingerprint(model),
        "size": size,
        "log_prob": [kernel.log_prob(items) for items in found],
    }
    if isinstance(kernel, LowRankKernel):
        head["log_det"] = [kernel.log_det(items) for items in found]
    target._replace(starts=Starts(starts, from_file=source is not None)).write(found, head)
