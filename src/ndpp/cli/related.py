"""``ndpp related``: complements and substitutes, of items or of the whole catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from ndpp import answers
from ndpp._show import Table
from ndpp.answers import records
from ndpp.answers.records import Relation
from ndpp.cli import options as o
from ndpp.cli.files import check_output, item_ids, load_model
from ndpp.cli.output import Report, emit, working

POPULAR = "Consider only the N most popular items; default: all for given items, 1000 for the pairs of the catalogue."
LIFT = "Lift: how many times as often together as independent items would be. Together: the share of baskets with both."
BY_TIES = "By ties: the part of the lift that missions do not explain, which orders the lists."


def related(
    model: o.Model,
    items: o.Items = None,
    number: Annotated[int, o.number("Number of complements, and of substitutes.", "--number", "-n", least=1)] = 10,
    popular: Annotated[int | None, o.number(POPULAR, least=2)] = None,
    output: o.Output = None,
    json: o.Json = False,
    ids: o.Ids = False,
) -> None:
    """List what goes with an item and what stands in for it, strongest first; without items, the strongest pairs of the catalogue.

    Complements are in the same baskets more often than chance would have it, substitutes less often.

    \b
    Examples:
      ndpp related model.safetensors bread
      ndpp related model.safetensors bread "tomato sauce" -n 3 -o related.csv
      ndpp related model.safetensors --popular 300 --json
    """
    check_output(output, inputs=(model,))
    law = answers.Prepared(load_model(model))
    with working("relating items"):
        if not items:
            pairs = answers.pairs(law, n=number, popular=popular or answers.MOST_POPULAR, ids=ids)
            emit(_catalogue(law, pairs), output, as_json=json)
            return
        chosen = item_ids(law.law, items, ids=ids).tolist()
        found = [answers.related(law, item, n=number, popular=popular, ids=ids) for item in chosen]
    table = Table(found[0].table()[0], [row for one in found for row in one.table()[1]])
    shown, notes = [], _notes(law) if table.lines else []
    for one in found:
        for title, kind in ((f"goes with {one.item}", one.complements), (f"instead of {one.item}", one.substitutes)):
            shown.append(_shown(law, (title,), [(pair.other,) for pair in kind], kind))
            notes += [] if kind else [f"Nothing {title}."]
    emit(Report({"items": [one.data() for one in found]}, table, shown, notes), output, as_json=json)


def _catalogue(law: answers.Prepared, pairs: records.Pairs) -> Report:
    """Return the report on the pairs of the catalogue."""
    shown, n_items = [], law.law.n_items
    notes = _notes(law) if pairs.complements or pairs.substitutes else []
    for title, kind in (("go together", pairs.complements), ("stand in for each other", pairs.substitutes)):
        shown.append(_shown(law, (title, ""), [(pair.item, pair.other) for pair in kind], kind))
        notes += [] if kind else [f"No items {title}."]
    if pairs.popular < n_items:
        notes.append(
            f"Pairs of the {pairs.popular:,} most popular of {n_items:,} items; --popular {n_items} takes all."
        )
    return Report(pairs.data(), Table(*pairs.table()), shown, notes)


def _notes(law: answers.Prepared) -> list[str]:
    return [LIFT, BY_TIES] if law.missions else [LIFT]


def _shown(law: answers.Prepared, header: Sequence[str], names: Sequence[Any], pairs: Sequence[Relation]) -> Table:
    """Return a table for people; only mixtures have a column of ties."""
    by_ties = ("by ties",) if law.missions else ()
    lines = [(*own, pair.lift, *(pair.by_ties for _ in by_ties), pair.together) for own, pair in zip(names, pairs)]
    return Table((*header, "lift", *by_ties, "together"), lines)
