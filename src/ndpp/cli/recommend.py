"""``ndpp recommend`` and ``ndpp map``: likely items and sets, without drawing."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from ndpp.cli import options as o
from ndpp.cli.deliver import Target
from ndpp.cli.files import Source, check_output, check_totals, excluding, fingerprint, given_baskets, load_model
from ndpp.cli.output import Report, Row, emit, progress
from ndpp.errors import ZeroProbabilityError
from ndpp.inference import Recommendation, greedy_map
from ndpp.inference import recommend as best_items


def recommend(
    model: o.Model,
    baskets: o.MaybeBaskets = None,
    given: o.Given = None,
    number: Annotated[
        int, typer.Option("--number", "-n", metavar="N", min=1, help="How many items for each basket.")
    ] = 10,
    exclude: o.Exclude = None,
    output: o.Output = None,
    json: o.Json = False,
    ids: o.Ids = False,
    from_: o.From = None,
    basket: o.BasketColumn = "basket",
    item: o.ItemColumn = "item",
) -> None:
    """Recommend items that go well with a basket, best first.

    The score says how many times as probable the basket is with the item as without it.

    \b
    Examples:
      ndpp recommend model.safetensors --given bread,butter -n 5
      ndpp recommend model.safetensors baskets.txt -o recommended.csv
      echo "tea" | ndpp recommend model.safetensors - --json
    """
    check_output(output, inputs=(model, baskets))
    kernel = load_model(model)
    asked = given_baskets(kernel, given, Source.maybe(baskets, from_, basket, item), ids=ids)
    fixed = asked.indices if baskets is None else asked.indices[:0]  # a basket of a file is told of below
    allowed, _ = excluding(kernel, exclude, fixed, ids=ids)
    found: list[Recommendation | None] = []
    with progress(len(asked), "recommending", show=len(asked) > 1) as bar:
        for items in asked:
            try:
                found.append(best_items(allowed, items, n=number))
            except ZeroProbabilityError:
                if len(asked) == 1:
                    raise
                found.append(None)
            bar.advance()
    if missing := found.count(None):
        warnings.warn(
            f"{missing} of {len(asked)} baskets have probability zero; nothing is recommended there", stacklevel=1
        )
    names = None if ids else kernel.labels
    grouped: list[list[Row]] = [
        [
            {"item": it if names is None else names[it], "score": score}
            for it, score in (() if best is None else zip(best.items.tolist(), best.scores.tolist()))
        ]
        for best in found
    ]
    rows = [{"basket": i, "rank": j, **row} for i, own in enumerate(grouped) for j, row in enumerate(own, 1)]
    shown = None if baskets is not None else grouped[0]
    notes = () if rows else ("No item scores above zero.",)
    emit(Report({"recommendations": grouped}, rows, shown, notes), output, as_json=json)


def map_(
    model: o.Model,
    baskets: o.MaybeBaskets = None,
    size: Annotated[
        int,
        typer.Option(
            "--size", "-k", metavar="N", min=0, help="Items of the basket, given ones included.", show_default=False
        ),
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
) -> None:
    """Build a likely basket greedily: given items first, then, in the order chosen, the best next one.

    \b
    Examples:
      ndpp map model.safetensors --size 6
      ndpp map model.safetensors --size 6 --given bread
      ndpp map model.safetensors half.txt --size 6 --json
    """
    kernel = load_model(model)
    target = Target(output, to, json, None if ids else kernel.labels)
    target.check(model, baskets, resume=False)
    starts = given_baskets(kernel, given, Source.maybe(baskets, from_, basket, item), ids=ids)
    allowed, _ = excluding(kernel, exclude, starts.indices, ids=ids)
    if baskets is not None:
        check_totals(allowed, starts, [size] * len(starts))
    rows: list[list[int]] = []
    with progress(len(starts), "building", show=len(starts) > 1) as bar:
        for items in starts:
            rows.append(greedy_map(allowed, size, given=items).tolist())
            bar.advance()
    head = {"model_crc32": fingerprint(model), "size": size, "log_det": [kernel.log_det(row) for row in rows]}
    target.write(rows, head)
