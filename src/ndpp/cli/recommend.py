"""``ndpp recommend`` and ``ndpp map``: likely items and sets, without sampling."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ndpp import answers
from ndpp._show import Table
from ndpp.answers import records
from ndpp.baskets import Baskets
from ndpp.cli import options as o
from ndpp.cli.deliver import Starts, Target
from ndpp.cli.files import check_output, check_sizes, fingerprint, given_baskets, load_model
from ndpp.cli.lists import CategoryFile, Lists
from ndpp.cli.output import Report, emit, progress, working
from ndpp.inference import Ranking, greedy_map
from ndpp.inference.ranking import DAMPING

RANKING = "What else will be in the basket (continuation), the one item missing (completion), or what is special to it (lift)."
DAMPED = "For continuation: order by P(item | basket) / P(item)^N; 0 favours bestsellers, 1 is the order of lift."
LEAST = "For lift: list items in at least this share of baskets; default: a quarter of the mean."
CATEGORY_OF = "Table of categories, with the columns item and category."
CATEGORIES = "The only categories to recommend from, separated by commas; may be repeated."
WHY = "Show what each score owes to popularity, mission and ties: its factors."


def recommend(
    model: o.Model,
    baskets: o.MaybeBaskets = None,
    *,
    given: o.Given = None,
    number: Annotated[int, o.number("Number of items per basket.", "--number", "-n", least=1)] = 10,
    ranking: Annotated[Ranking, typer.Option(help=RANKING)] = Ranking.CONTINUATION,
    damping: Annotated[float, o.number(DAMPED)] = DAMPING,
    support: Annotated[float | None, o.number(LEAST)] = None,
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

    By default the score of an item is the probability that a basket that begins so contains it in the end; in the order, bestsellers
    count a little less (--damping). With --ranking completion it is the probability of the basket with the item, divided by its probability
    without it: what completes a basket that lacks one item. With --ranking lift it is how many times as likely the item is as in any
    basket: what goes with this basket in particular.

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
    starts = given_baskets(law, given, baskets, reading, ids=ids)
    allowed = Lists(limits, ids, reading.encoding, reading.unknown).allowed(law)
    asked = CategoryFile(category_of, max_per_category, categories)
    allowed, limit = asked.limit(law, allowed, ids=ids, encoding=reading.encoding)
    with working("recommending"):
        model_ = answers.Prepared(law)
        order: dict[str, Any] = {"ranking": ranking, "damping": damping, "support": support}
        found = answers.recommend_each(
            model_, starts, n=number, candidates=allowed, per_category=limit, why=why, ids=ids, **order
        )
    impossible = sum(own is None for own in found)
    if impossible and baskets is None:
        answers.recommend(model_, starts[0], **order)  # raises, and says why
    if impossible:
        text = f"{impossible} of {len(starts)} baskets have probability zero; nothing is recommended for them"
        warnings.warn(text, stacklevel=1)
    emit(_report(found, starts, ranking, from_file=baskets is not None), output, as_json=json)


def _report(
    found: Sequence[records.Recommended | None], starts: Baskets, ranking: Ranking, *, from_file: bool
) -> Report:
    """Return what is recommended."""
    header = next((one.table()[0] for one in found if one is not None and one.items), ["item", "score"])
    rows = [
        (i, rank, *row)
        for i, one in zip(starts.ids_or_numbers, found)
        if one
        for rank, row in enumerate(one.table()[1], 1)
    ]
    data: dict[str, Any] = {
        "ranking": ranking.value,
        "meaning": ranking.meaning,
        "recommendations": [one.data()["items"] if one else [] for one in found],
    }
    if starts.basket_ids is not None:
        data["basket_ids"] = starts.basket_ids
    shown = None if from_file else Table(header, [row[2:] for row in rows])
    notes = (ranking.meaning if rows else "No item scores above zero.",)
    return Report(data, Table(("basket", "rank", *header), rows), shown, notes)


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
    starts = given_baskets(kernel, given, baskets, reading, ids=writing.ids)
    allowed, _ = Lists(o.Limits(exclude=exclude), writing.ids).narrowed(kernel, starts.indices)
    if baskets is not None:
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
    if hasattr(kernel, "log_det"):  # of one kernel
        head["log_det"] = [kernel.log_det(items) for items in found]
    target._replace(starts=Starts(starts, from_file=baskets is not None)).write(found, head)
