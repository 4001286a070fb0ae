"""``ndpp recommend`` and ``ndpp map``: likely items and sets, without sampling."""

from __future__ import annotations

import warnings
from typing import Annotated, Any, NamedTuple

from ndpp.cli import options as o
from ndpp.cli.deliver import Starts, Target
from ndpp.cli.files import Source, check_output, check_sizes, exclude_items, fingerprint, given_baskets, load_model
from ndpp.cli.output import Report, emit, progress
from ndpp.errors import ZeroProbabilityError
from ndpp.experiments.record import Table, grouped
from ndpp.inference import greedy_map
from ndpp.inference import recommend as best_items


class Recommended(NamedTuple):
    """An item recommended for one basket of the input; rank 1 is the best."""

    basket: int | str
    rank: int
    item: str | int
    score: float


def recommend(
    model: o.Model,
    baskets: o.MaybeBaskets = None,
    given: o.Given = None,
    number: Annotated[int, o.number("Number of items per basket.", "--number", "-n", least=1)] = 10,
    exclude: o.Exclude = None,
    output: o.Output = None,
    json: o.Json = False,
    ids: o.Ids = False,
    from_: o.From = None,
    basket: o.BasketColumn = "basket",
    item: o.ItemColumn = "item",
    encoding: o.Encoding = None,
    missing: o.MissingValues = o.Missing.error,
    unknown: o.UnknownItems = o.Unknown.error,
) -> None:
    """Recommend items that go well with a basket, best first.

    The score of an item is the probability of the basket with the item, divided by its probability without it.

    \b
    Examples:
      ndpp recommend model.safetensors --given bread,butter -n 5
      ndpp recommend model.safetensors baskets.txt -o recommended.csv
      echo "tea" | ndpp recommend model.safetensors - --json
    """
    check_output(output, inputs=(model, baskets))
    kernel = load_model(model)
    source = None if baskets is None else Source(baskets, from_, basket, item, encoding, missing, unknown)
    starts = given_baskets(kernel, given, source, ids=ids)
    fixed = starts.indices if source is None else starts.indices[:0]  # excluded items of a file are reported below
    allowed, _ = exclude_items(kernel, exclude, fixed, ids=ids)
    names = kernel.labels if kernel.labels is not None and not ids else range(kernel.n_items)
    found: list[Recommended] = []
    impossible = 0
    with progress(len(starts), "recommending", show=len(starts) > 1) as bar:
        for i, items in zip(starts.ids_or_numbers, starts):
            try:
                best = best_items(allowed, items, n=number)
                pairs = enumerate(zip(best.items.tolist(), best.scores.tolist()), 1)
                found += [Recommended(i, rank, names[it], score) for rank, (it, score) in pairs]
            except ZeroProbabilityError:
                if len(starts) == 1:
                    raise
                impossible += 1
            bar.advance()
    if impossible:
        text = f"{impossible} of {len(starts)} baskets have probability zero; nothing is recommended for them"
        warnings.warn(text, stacklevel=1)
    own = grouped(found, lambda one: one.basket)
    nested = [[{"item": one.item, "score": one.score} for one in own.get(i, ())] for i in starts.ids_or_numbers]
    data: dict[str, Any] = {"recommendations": nested}
    if starts.basket_ids is not None:
        data["basket_ids"] = starts.basket_ids
    shown = None if source else Table(("item", "score"), [(one.item, one.score) for one in found])
    notes = () if found else ("No item scores above zero.",)
    emit(Report(data, Table(Recommended._fields, found), shown, notes), output, as_json=json)


def map_(
    model: o.Model,
    baskets: o.MaybeBaskets = None,
    size: Annotated[
        int, o.number("Items of the basket, including given ones.", "--size", "-k", show_default=False)
    ] = ...,  # type: ignore[assignment]
    given: o.Given = None,
    exclude: o.Exclude = None,
    output: o.Output = None,
    to: o.To = None,
    json: o.Json = False,
    ids: o.Ids = False,
    from_: o.From = None,
    basket: o.BasketColumn = "basket",
    item: o.ItemColumn = "item",
    encoding: o.Encoding = None,
    missing: o.MissingValues = o.Missing.error,
    unknown: o.UnknownItems = o.Unknown.error,
) -> None:
    """Build a likely basket greedily: the given items, then the best next item at each step, in this order.

    \b
    Examples:
      ndpp map model.safetensors --size 6
      ndpp map model.safetensors --size 6 --given bread
      ndpp map model.safetensors half.txt --size 6 --json
    """
    kernel = load_model(model)
    Target(output, to, json, None if ids else kernel.labels).check(model, baskets, resume=False)
    source = None if baskets is None else Source(baskets, from_, basket, item, encoding, missing, unknown)
    starts = given_baskets(kernel, given, source, ids=ids)
    allowed, _ = exclude_items(kernel, exclude, starts.indices, ids=ids)
    if source:
        check_sizes(allowed, starts, [size] * len(starts))
    found: list[list[int]] = []
    with progress(len(starts), "building", show=len(starts) > 1) as bar:
        for items in starts:
            found.append(greedy_map(allowed, size, given=items).tolist())
            bar.advance()
    head = {"model_crc32": fingerprint(model), "size": size, "log_det": [kernel.log_det(items) for items in found]}
    target = Target(output, to, json, None if ids else kernel.labels, Starts(starts, from_file=source is not None))
    target.write(found, head)
