"""``ndpp related``: complements and substitutes, of items or of the whole catalogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from ndpp._show import Table
from ndpp.cli import options as o
from ndpp.cli.files import Law, check_output, item_ids, load_model
from ndpp.cli.output import Report, emit, working
from ndpp.explain import Pair, Pairs, Share, popularity, strongest_pairs
from ndpp.explain import related as related_to
from ndpp.laws.mixture import Mixture

POPULAR = "Consider only the N most popular items; default: all for given items, 1000 for the pairs of the catalogue."
MOST_POPULAR = 1000
"""Items whose pairs are searched; the search takes the square of their number."""
FIELDS = ("kind", "item", "other", "lift", "by_missions", "by_ties", "together", "correlation")
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
    law = load_model(model)
    chosen = item_ids(law, items, ids=ids).tolist()
    words = chosen if ids or law.labels is None else [law.labels[item] for item in chosen]

    def name(share: Share) -> Any:
        return share.item if ids or law.labels is None else share.label

    popular = popular if items or popular is not None else MOST_POPULAR
    with working("relating items"):
        least = popularity(law, popular)[-1].probability if popular is not None else 0.0
        found = [related_to(law, item, n=number, least_probability=least) for item in words]
        pairs = Pairs((), ()) if items else strongest_pairs(law, n=number, least_probability=least)
    if not items:
        emit(_catalogue(law, pairs, name, min(popular or 0, law.n_items)), output, as_json=json)
        return
    lines = [line for one in found for line in _lines(Pairs(one.complements, one.substitutes), name)]
    data = [
        {"item": name(one.item), "probability": one.item.probability, "complements": _records(one.complements, name)}
        | {"substitutes": _records(one.substitutes, name)}
        for one in found
    ]
    shown, notes = [], _notes(law) if lines else []
    for one in found:
        own = str(name(one.item))
        for title, kind in ((f"goes with {own}", one.complements), (f"instead of {own}", one.substitutes)):
            shown.append(_shown(law, (title,), [(name(pair.second),) for pair in kind], kind))
            notes += [] if kind else [f"Nothing {title}."]
    emit(Report({"items": data}, Table(FIELDS, lines), shown, notes), output, as_json=json)


def _catalogue(law: Law, pairs: Pairs, name: Callable[[Share], Any], popular: int) -> Report:
    """Return the report on the pairs of the catalogue."""
    data = {"popular": popular, **{kind: _records(own, name) for kind, own in pairs._asdict().items()}}
    shown, notes = [], _notes(law) if any(pairs) else []
    for title, kind in (("go together", pairs.complements), ("stand in for each other", pairs.substitutes)):
        shown.append(_shown(law, (title, ""), [(name(pair.first), name(pair.second)) for pair in kind], kind))
        notes += [] if kind else [f"No items {title}."]
    if popular < law.n_items:
        notes.append(
            f"Pairs of the {popular:,} most popular of {law.n_items:,} items; --popular {law.n_items} takes all."
        )
    return Report(data, Table(FIELDS, _lines(pairs, name)), shown, notes)


def _notes(law: Law) -> list[str]:
    return [LIFT, BY_TIES] if isinstance(law, Mixture) else [LIFT]


def _shown(law: Law, header: Sequence[str], names: Sequence[tuple[Any, ...]], pairs: Sequence[Pair]) -> Table:
    """Return a table for people; only mixtures have a column of ties."""
    by_ties = ("by ties",) if isinstance(law, Mixture) else ()
    lines = [(*own, pair.lift, *(pair.tie for _ in by_ties), pair.together) for own, pair in zip(names, pairs)]
    return Table((*header, "lift", *by_ties, "together"), lines)


def _lines(pairs: Pairs, name: Callable[[Share], Any]) -> list[tuple[Any, ...]]:
    """Return the lines of the table for programs."""
    kinds = zip(("complement", "substitute"), pairs)
    return [(kind, name(pair.first), name(pair.second), *_numbers(pair)) for kind, own in kinds for pair in own]


def _records(pairs: Sequence[Pair], name: Callable[[Share], Any]) -> list[dict[str, Any]]:
    return [dict(zip(FIELDS[1:], (name(pair.first), name(pair.second), *_numbers(pair)))) for pair in pairs]


def _numbers(pair: Pair) -> tuple[float, ...]:
    return pair.lift, pair.by_missions, pair.tie, pair.together, pair.correlation
