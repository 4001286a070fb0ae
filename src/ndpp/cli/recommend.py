"""``ndpp recommend``, ``ndpp related`` and ``ndpp map``: likely items, pairs and sets, without sampling."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import typer

from ndpp import answers
from ndpp._show import Table, called
from ndpp.answers import records
from ndpp.baskets import Baskets
from ndpp.cli import options as o
from ndpp.cli.customers import OrderReading
from ndpp.cli.deliver import BasketOutput, Starts
from ndpp.cli.files import (
    Source,
    check_sizes,
    check_table,
    fingerprint,
    given_baskets,
    item_ids,
    load_prepared,
    require,
)
from ndpp.cli.guard import say
from ndpp.cli.lists import Lists
from ndpp.cli.output import Report, emit, progress, working
from ndpp.customers.store import encoded
from ndpp.inference import Ranking, Recommendations, best_set, greedy_map

RANKING = "What else will be in the basket (continuation), the one item missing (completion), or what is special to it (lift)."
DAMPED = "For continuation: order by P(item | basket) / P(item)^N; 0 favours bestsellers, 1 is the order of lift. Default: 0.2."
LEAST = "For lift: list items in at least this share of baskets; default: a quarter of the mean."
STAPLES = "List items that are less likely with this basket than in any, too; completions have them in any case."
WHY = "Show what each score owes to popularity, mission and ties: its factors."
POPULAR = "Consider only the N most popular items; default: all for given items, 1000 for the pairs of the catalogue."
LIFT = "Lift: how many times as often together as independent items would be. Together: the share of baskets with both."
BY_TIES = "By ties: the part of the lift that missions do not explain; below 1, items of one mission avoid each other."
BEST = "Improve the basket by exchanges and samples, and say how far from the best one it can be."
MORE = "With --staples, items that are less likely than usual are listed, too."
EVERYBODY = "Recommend for every customer of the file."
PAIRS = "go together", "stand in for each other"
"""What pairs of the catalogue do."""
Relations = records.Related | records.Pairs


@dataclass(frozen=True)
class RankingOptions:
    """How items are ranked."""

    ranking: Annotated[Ranking, typer.Option(help=RANKING)] = Ranking.CONTINUATION
    damping: Annotated[float | None, o.number(DAMPED)] = None
    support: Annotated[float | None, o.number(LEAST)] = None
    staples: Annotated[bool, typer.Option("--staples", help=STAPLES)] = False
    why: Annotated[bool, typer.Option("--why", help=WHY)] = False


def recommend(
    model: o.Model,
    baskets: o.MaybeBaskets = None,
    *,
    given: o.Given = None,
    number: Annotated[int, o.number("Number of items per basket.", "--number", "-n", least=1)] = 10,
    ranked: RankingOptions,
    conditions: o.ConditionOptions,
    categories: o.Categories,
    all_customers: Annotated[bool, typer.Option("--all-customers", help=EVERYBODY)] = False,
    customer_column: Annotated[str | None, o.word("CSV or Parquet column of the customer of each basket.")] = None,
    output: o.Output = None,
    json: o.Json = False,
    ids: o.Ids = False,
    reading: o.ReadingFor,
) -> None:
    """Recommend items that go well with a basket, best first.

    By default the score of an item is the probability that a basket with the given items contains it, too; popular items are ranked a
    little lower (--damping). With --ranking completion it is the probability of the basket with the item, divided by its probability
    without it: what completes a basket that lacks one item. With --ranking lift it is how many times as likely the item is as in any
    basket: what goes with this basket in particular.

    \b
    Examples:
      ndpp recommend model.safetensors --given bread,butter -n 5
      ndpp recommend model.safetensors --given bread,butter --why
      ndpp recommend model.safetensors baskets.txt -o recommended.csv
      ndpp recommend model.safetensors --given bread --at store=3 --at weekday=Sunday
      ndpp recommend model.safetensors baskets.csv --candidates-file stock.txt --unknown skip
      ndpp recommend model.safetensors -g tea --category-of categories.csv --max-per-category 2
      ndpp recommend model.safetensors -g tea --limit 'dairy<=1' --limit 'price<=20' --table products.csv
      ndpp recommend model.safetensors -g tea --boost factors.csv
      ndpp recommend model.safetensors --customers shop.customers --customer 17 -g tea
      ndpp recommend model.safetensors --customers shop.customers --all-customers -o next.parquet
      echo "tea" | ndpp recommend model.safetensors - --json
    """
    check_table(output, model, baskets, *conditions.files, categories.category_of)
    lists = Lists(conditions, ids, reading.encoding, reading.unknown)
    own = lists.open(model)
    starts, whose = _starts(own, given, baskets, conditions, all_customers, customer_column, reading, ids=ids)
    said = lists.said(own)
    order: dict[str, Any] = {"n": number, "ids": ids, "per_category": lists.per_category(own.law, categories)} | asdict(
        ranked
    )
    with working("recommending"):
        if conditions.history is not None:
            found = Recommendations([answers.recommend(own, starts[0], **order, **said)], [0])
        else:
            found = answers.recommend_each(own, starts, customers=whose, **order, **said)
    impossible = sum(one is None for one in found)
    if impossible and baskets is None:
        answers.recommend(own, starts[0], **order, **said)  # raises, and says why
    if conditions.limit and baskets is None and len(starts) == 1 and not any(one and one.items for one in found):
        lists.heard(own, starts)  # raises if the given items break a limit
    if impossible:
        text = f"{impossible} of {len(starts)} baskets have probability zero; nothing is recommended for them"
        warnings.warn(text, stacklevel=1)
    short = any(one and 0 < len(one.items) < number for one, start in zip(found, starts) if len(start))
    notes = [MORE] if short and not ranked.staples and ranked.ranking is not Ranking.COMPLETION else []
    emit(
        _report(found, starts, None if baskets else whose, ranked.ranking, notes, from_file=baskets is not None),
        output,
        as_json=json,
    )


def _starts(
    own: answers.Prepared,
    given: Sequence[str] | None,
    path: str | None,
    options: o.ConditionOptions,
    everybody: bool,
    column: str | None,
    reading: o.ReadingFor,
    *,
    ids: bool,
) -> tuple[Baskets, list[str] | None]:
    """Return the baskets, and whose they are, None if they are nobody's in particular."""
    law, named = own.law, options.customer or options.history is not None
    require(
        own.customers is not None or not (everybody or column),
        "--all-customers and --customer-column need --customers FILE",
    )
    require(not (everybody and (named or path)), "--all-customers is for all of them, and without a file of baskets")
    require(
        path is None or not named,
        "baskets of a file are those of --customer-column; --customer and --history take --given",
    )
    require(column is None or path is not None, "--customer-column is a column of a file of baskets")
    if path is not None and column is not None:
        orders = Source(path, OrderReading(**vars(reading), customer=column, time=None)).read_for(law, ids=ids)
        assert orders.customers is not None
        return orders.baskets, [str(one) for one in orders.customers]
    starts = given_baskets(own, given, path, reading, ids=ids)
    whose = list(own.customers or ()) if everybody else options.customer
    if whose is None:
        return starts, None
    encoded(whose)
    one = starts[0].tolist()
    return Baskets.from_lists([one] * len(whose), n_items=law.n_items, labels=law.labels, basket_ids=whose), whose


def _report(
    found: Recommendations[records.Recommended],
    starts: Baskets,
    whose: list[str] | None,
    ranking: Ranking,
    further: list[str],
    *,
    from_file: bool,
) -> Report:
    """Return what is recommended, to whom if these are customers by name, with ``further`` notes."""
    first, *header = found.table()[0]
    table = Table([first if whose is None else "customer", *header], found.table()[1])
    meaning = next((one.meaning for one in found if one), ranking.meaning)  # the same for all
    data: dict[str, Any] = {
        "ranking": ranking.value,
        "meaning": meaning,
        "recommendations": [one.data()["items"] if one else [] for one in found],
    }
    if starts.basket_ids is not None:
        data["basket_ids" if whose is None else "customers"] = starts.basket_ids
    notes = [meaning if table.lines else "No item scores above zero.", *further]
    if new := sum(one is not None and one.customer == "new" for one in found):
        who = "This customer is new" if len(found) == 1 else f"{new:,} of {len(found):,} customers are new"
        notes.append(f"{who}: nothing is known of their orders, so this is what everybody gets.")
    several = from_file or len(starts) > 1
    return Report(data, table, None if several else Table(header[1:], [line[2:] for line in table.lines]), notes)


def related(
    model: o.Model,
    items: o.Items = None,
    number: Annotated[int, o.number("Number of complements, and of substitutes.", "--number", "-n", least=1)] = 10,
    popular: Annotated[int | None, o.number(POPULAR, least=2)] = None,
    table: o.ItemTable = None,
    output: o.Output = None,
    json: o.Json = False,
    ids: o.Ids = False,
) -> None:
    """List what goes with an item and what stands in for it, strongest first; without items, the strongest pairs of the catalogue.

    Complements are in the same baskets more often than chance and large baskets explain. Substitutes belong to the same missions, and
    are in the same baskets less often than these explain.

    \b
    Examples:
      ndpp related model.safetensors bread
      ndpp related model.safetensors bread "tomato sauce" -n 3 -o related.csv
      ndpp related model.safetensors --popular 300 --json
    """
    check_table(output, model)
    law = load_prepared(model, table, ids=ids)
    found: Sequence[Relations]
    with working("relating items"):
        if items:
            chosen = item_ids(law, items, ids=ids).tolist()
            found = [answers.related(law, item, n=number, popular=popular, ids=ids) for item in chosen]
            data: dict[str, Any] = {"items": [one.data() for one in found]}
        else:
            found = [answers.pairs(law, n=number, popular=popular or answers.MOST_POPULAR, ids=ids)]
            data = found[0].data()
    rows = Table(found[0].table()[0], [row for one in found for row in one.table()[1]])
    emit(Report(data, rows, *_relations(law, found)), output, as_json=json)


def _relations(law: answers.Prepared, found: Sequence[Relations]) -> tuple[list[Table], list[str]]:
    """Return complements and substitutes as tables for people, and notes; only mixtures have a column of ties."""
    numbers = {"lift": "lift", **({"by_ties": "by ties"} if law.missions else {}), "together": "together"}
    shown, missing, n_items = [], [], law.law.n_items
    for one in found:
        of_one = isinstance(one, records.Related)
        titles = (
            (f"goes with {called(one.item)}", f"instead of {called(one.item)}")
            if isinstance(one, records.Related)
            else PAIRS
        )
        for title, kind in zip(titles, (one.complements, one.substitutes)):
            columns = {**({"other": title} if of_one else {"item": title, "other": ""}), **numbers}
            shown.append(Table([*columns.values()], [[getattr(pair, name) for name in columns] for pair in kind]))
            if not kind:
                missing.append(f"{'Nothing' if of_one else 'No items'} {title}.")
        if isinstance(one, records.Pairs) and one.popular < n_items:
            shown_of = f"Pairs of the {one.popular:,} most popular of {n_items:,} items"
            missing.append(f"{shown_of}; --popular {n_items} takes all.")
    notes = ([LIFT, BY_TIES] if law.missions else [LIFT]) if any(table.lines for table in shown) else []
    return shown, notes + missing


def map_(
    model: o.Model,
    baskets: o.MaybeBaskets = None,
    *,
    size: Annotated[int, o.number("Items of the basket, including given ones.", "--size", "-k")],
    given: o.Given = None,
    conditions: o.ConditionOptions,
    best: Annotated[bool, typer.Option("--best", help=BEST)] = False,
    writing: o.Writing,
    reading: o.ReadingFor,
) -> None:
    """Build a likely basket greedily: the given items, then the best next item at each step, in this order.

    With --best, the greedy basket and some samples are improved by exchanging items, and an upper bound tells how far from the best
    basket of this size the result can be.

    \b
    Examples:
      ndpp map model.safetensors --size 6
      ndpp map model.safetensors --size 6 --best
      ndpp map model.safetensors --size 6 --given bread
      ndpp map model.safetensors --size 6 --best --limit 'price<=20' --table products.csv
      ndpp map model.safetensors half.txt --size 6 --json
    """
    lists = Lists(conditions, writing.ids, reading.encoding, reading.unknown)
    own = lists.open(model)
    law = own.law
    target = BasketOutput.checked(writing, own.labels, model, baskets, *conditions.files)
    starts = given_baskets(own, given, baskets, reading, ids=writing.ids)
    heard = lists.heard(own, starts)
    allowed, _ = heard.drawing(None)
    if baskets is not None:
        check_sizes(allowed, starts, [size] * len(starts))
    found: list[list[int]] = []
    gaps: list[float] = []
    with progress(len(starts), "building", show=len(starts) > 1) as bar:
        for items in starts:
            excluded = heard._replace(given=items).drawing(size)[1]["exclude"]
            joining = np.setdiff1d(np.arange(law.n_items), excluded) if len(excluded) else None
            if best:
                one = best_set(allowed, size, given=items, candidates=joining, limits=heard.limits)
                found.append(one.items.tolist())
                gaps.append(one.gap)
            else:
                items = greedy_map(allowed, size, given=items, candidates=joining, limits=heard.limits)
                found.append(items.tolist())
            bar.advance()
    plain = heard.in_situation()
    head: dict[str, Any] = {
        "model_crc32": fingerprint(model), "size": size, "log_prob": [plain.log_prob(items) for items in found],
        **{name: value for name, value in lists.told(heard).items() if value},
    }  # fmt: skip
    if plain.as_kernel is not None:
        head["log_det"] = [plain.as_kernel.log_det(items) for items in found]
    if best:
        head["gap"] = gaps
        worst, of = max(gaps, default=0.0), " that keeps the limits" if heard.limits else ""
        what = f"the best of its size{of}"
        if worst:
            what = f"at least {100 * math.exp(-worst):.3g} % as probable as the best{of} (gap {worst:.3g})"
        say(f"{'the basket is' if len(found) == 1 else 'every basket is'} {what}")
    target._replace(starts=Starts(starts, from_file=baskets is not None)).write(found, head)
