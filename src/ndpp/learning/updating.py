"""``ndpp.update``: tonight's orders for a law that has seen others, without a new fit and without forgetting.

What is minimised, from the law P₀ on, is

    −Σ_{S tonight} log P(S) + N · KL(P₀ ‖ P) + penalties on the change of u and X.

N is a quarter of the number of orders that the law has seen, or less if old ones fade: a law knows less than its orders told, and people
change. The divergence is −log P(S) on average over exact samples of P₀, pseudo-orders that weigh N together. On average their gradient at
P₀ is zero; what it is for those that were drawn, penalties included, is subtracted from every gradient, so that only tonight's orders move
the law.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse

from ndpp._progress import progress_bar, say_line
from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.baskets.labels import many
from ndpp.baskets.weighted import WeightedBaskets, context_of
from ndpp.errors import InvalidInputError, RefusedUpdateError
from ndpp.laws.files import load, load_metadata
from ndpp.laws.gate import Gain
from ndpp.laws.law import Law
from ndpp.learning.base import number, set_aside
from ndpp.learning.context import relearn_context
from ndpp.learning.fitting import read_orders
from ndpp.learning.trainer import Objective, P, Trainer, TrainingSettings
from ndpp.learning.turnover import items_entered, items_left, names_of, over, possible, young_levels
from ndpp.learning.warm import Training, warm_objective

MEMORY = "memory"
"""What the metadata call what a model remembers of its orders."""
EPOCHS, LEARNING_RATE = 3, 0.005
"""Passes over tonight's orders and the pseudo-orders, and rate of Adam at first (complete journey)."""
OLD_WEIGHT = 0.25
"""What an order that the law has seen weighs beside one of tonight: of 1, ½, ¼ and ⅒ best for the next month (complete journey)."""
REPLAYED, CHUNK = 20_000, 2000
"""Most pseudo-orders, and how many of them are looked at at a time."""
NOISE = 2.0
"""Standard errors by which a difference must exceed zero not to be taken for noise."""
STRUCTURE = 0.25
"""Orders of which the law knows less than this share of what it knows of its own samples are taken for those of another shop."""
SAMPLED, KEPT = 16, 5000
"""One order in so many is remembered, and most that are."""
CHANGED = 10
"""Items that a report names as the most changed."""


class Memory(NamedTuple):
    """What a model remembers of the orders that it has seen."""

    orders: float
    """How many, each counting less the older it is."""
    updates: int = 0
    young: Mapping[str, float] = {}
    """How many since an item entered, for items that were not there from the beginning."""
    unsold: Mapping[str, int] = {}
    """Updates in a row without an order of an item."""
    digests: Sequence[int] = ()
    """Checksums of some of the orders."""

    @classmethod
    def of(cls, about: Mapping[str, Any], seen: float | None) -> Memory:
        """Return that of a model with these metadata, which has seen so many orders if that is not None."""
        known, told = dict(about.get(MEMORY, {})), about.get("baskets", {})
        if seen is not None:
            known["orders"] = number(seen, "seen", above_zero=True)
        elif told and not known:
            known["orders"] = float(told["weight"] if "weight" in told else told["number"])
        if not known:
            raise InvalidInputError("the model does not say how many orders it has seen", advice="Say so with {seen}.")
        return cls(**known)


class ItemChange(NamedTuple):
    """The probability of an item in an order, before and after."""

    item: str | int
    before: float
    after: float


@dataclass(frozen=True)
class Updated:
    """What :func:`update` returns; :func:`ndpp.save` writes it.

    Attributes
    ----------
    law_ : Law
        The new law.
    n_orders, n_validation : int
        Tonight's orders, and those of them that judged the new law.
    before, after, error : float
        Mean log-likelihood of the latter under the old law, new items included, and under the new one; standard error of the difference.
    entered, left, skipped : tuple
        Items that are new, that were dropped, and that are too rare to enter.
    changed : tuple of ItemChange
        The items whose probability has changed most.
    context : Gain or None
        What it gained to learn anew how the weights depend on context, and whether that was kept. None if there is no context, or if the
        orders do not tell how contexts differ; what was learned before is then carried over.
    shares_before : (C,) array
        Weights of the components before.
    """

    law_: Any
    metadata: Mapping[str, Any] = field(repr=False)
    n_orders: int
    n_validation: int
    before: float
    after: float
    error: float
    entered: tuple[str, ...]
    left: tuple[str | int, ...]
    skipped: tuple[str, ...]
    changed: tuple[ItemChange, ...]
    context: Gain | None
    shares_before: FloatArray = field(repr=False)
    seconds: float

    @property
    def is_worse(self) -> bool:
        """Whether the new law is worse than the old one, beyond noise."""
        return bool(self.after - self.before < -NOISE * self.error)

    def about(self) -> dict[str, Any]:
        """Return how the model was made, for JSON: what :func:`ndpp.save` writes with it."""
        return dict(self.metadata)


def update(
    model: Any,
    orders: Any,
    *,
    basket: str = "basket",
    item: str = "item",
    format: str | None = None,
    missing: str = "error",
    encoding: str | None = None,
    time: str | None = None,
    validation: Any = None,
    seen: float | None = None,
    old_weight: float = OLD_WEIGHT,
    half_life: float | None = None,
    least_orders: int = 3,
    like: Mapping[str, Any] | None = None,
    drop: Iterable[str | int] = (),
    drop_after: int | None = None,
    force: bool = False,
    max_epochs: int = EPOCHS,
    learning_rate: float = LEARNING_RATE,
    device: str = "cpu",
    random_state: int = 0,
    progress: Any = False,
) -> Updated:
    """Continue the training of a model with new orders, as the command ``ndpp update`` does. Old orders are not needed.

    Pseudo-orders, drawn exactly from the model, stand for the orders that it has seen; together they weigh a quarter as much. Items that
    are new enter, items that are gone fade. How the weights depend on context is learned anew, from what the model knows, where the orders
    have the columns or these follow from ``time``, and kept if the validation orders gain; otherwise it is carried over.

    Parameters
    ----------
    model : path, Law, fitted estimator or Updated
        A mixture or a kernel as ``ndpp.fit`` learns it.
    orders : as for ``ndpp.fit``
        Those since the last update or fit. A tenth of them judges the new law.
    basket, item, format, missing, encoding
        As in ``ndpp.fit``.
    time : str, optional
        The column of the time, from which weekday, month, season and hour follow, if the model depends on them.
    validation : like orders, optional
        Orders that judge the new law instead.
    seen : float, optional
        Number of orders that the model has seen, if it is a law, or if its file does not say.
    old_weight : float
        Weight of an order that the model has seen, relative to a new one.
    half_life : float, optional
        Number of new orders after which the weight of old ones is halved. None: it never is.
    least_orders : int
        Minimum number of orders with a new item before it enters the model; until then it is left out of the orders.
    like : mapping, optional
        What new items behave like, as in ``law.add_items``; others behave like those that the law expects in their place.
    drop : items
        Items to remove.
    drop_after : int, optional
        Also remove items that were not sold in this many updates in a row.
    force : bool
        Return the new law though it is worse, and count orders though they were seen before or look like those of another shop.
    max_epochs, learning_rate, device, random_state, progress
        As for the estimators. With 0 epochs only items enter and leave.

    Returns
    -------
    Updated
        The new law, and what has changed.

    Raises
    ------
    RefusedUpdateError
        The new law is worse on the validation orders, beyond noise, or these were seen before, or are not of this shop.

    Examples
    --------
    >>> import ndpp
    >>> night = [["bread", "butter"], ["bread", "butter", "jam"], ["tea", "milk"], ["tea"]] * 25
    >>> model = ndpp.fit(night * 2, n_missions=2, max_epochs=4)
    >>> after = ndpp.update(model, night)
    >>> after.is_worse, after.metadata["memory"]["orders"]
    (False, 300.0)
    """
    began = perf_counter()
    law, about = _opened(model)
    memory = Memory.of(about, seen)
    options = {"basket": basket, "item": item, "missing": missing, "time": time}
    file = {"format": format, "encoding": encoding}
    tonight = _read(orders, law, file, options)
    digests = _digests(tonight)
    if (again := np.isin(digests, memory.digests).mean()) and not force:
        raise RefusedUpdateError(
            f"{'all' if again == 1 else f'about {again:.0%}'} of these orders were in an earlier update",
            advice="Leave them out, or count them again with {force:True}.",
        )
    start, tonight, skipped = items_entered(law, tonight, least_orders, like)
    entered = () if start.labels is None else start.labels[law.n_items :]
    start, tonight, unsold = items_left(start, tonight, memory.unsold, drop, drop_after)
    left = names_of(law)[~np.isin(names_of(law), names_of(start))]
    fade = 1.0 if half_life is None else 0.5 ** (len(tonight) / number(half_life, "half_life", above_zero=True))
    young = {name: fade * n for name, n in memory.young.items() if n < memory.orders / 2}
    start, young = young_levels(start, tonight, young, entered)
    parts = set_aside(tonight, 0.1, np.random.default_rng(random_state))
    if validation is not None:
        known = _read(validation, law, file, options)
        parts = tonight, possible(start, over(known, start))
    trained = _trained(
        start, *parts, number(old_weight, "old_weight", above_zero=True) * fade * memory.orders,
        epochs=check_count(max_epochs, "max_epochs"), rate=number(learning_rate, "learning_rate", above_zero=True),
        device=device, seed=random_state, progress=progress, force=force,
    )  # fmt: skip
    relearned = None
    if trained.gate is not None and max_epochs:
        gate, relearned = relearn_context(trained, *parts)
        trained = trained.framed(trained.frame._replace(gate=gate))
    values = [one.log_probs(parts[1], context=context_of(parts[1])) for one in (start, trained)]
    gain = values[1] - values[0]
    counts = fade * memory.orders + len(tonight), memory.updates + 1
    now = Memory(*counts, young, unsold, [*memory.digests, *digests.tolist()][-KEPT:])
    made = Updated(
        law_=trained, metadata={**about, MEMORY: now._asdict()}, n_orders=len(tonight), n_validation=len(gain),
        before=float(values[0].mean()), after=float(values[1].mean()),
        error=float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else np.inf,
        entered=tuple(entered), left=tuple(left.tolist()), skipped=skipped, changed=_changes(law, trained),
        context=relearned, shares_before=law.weights, seconds=perf_counter() - began,
    )  # fmt: skip
    if made.is_worse and not force:
        raise RefusedUpdateError(
            f"the updated model is worse: log-likelihood {made.after:.4g} of {many(len(gain), 'validation order')}, {made.before:.4g} "
            f"before, standard error {made.error:.2g}", advice="Keep it nevertheless with {force:True}.", updated=made,
        )  # fmt: skip
    return made


def _opened(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the law of a file or model, and its metadata."""
    if isinstance(model, (str, os.PathLike)):
        return load(model), load_metadata(model)
    about = getattr(model, "about", None)
    return Law.required(model), {} if about is None else about()


def _read(orders: Any, law: Any, file: Mapping[str, Any], options: Mapping[str, Any]) -> Baskets:
    """Return the orders that are not empty, over the items of the law and those that are new; raise if there is nothing to learn from."""
    known = {"n_items": law.n_items, "as_labels": False} if law.labels is None else {"as_labels": True}
    found = read_orders(orders, file, context=list(law.context), partial=True, **options, **known)
    if not isinstance(found, Baskets):
        found = Baskets.from_lists(found, n_items=law.n_items if law.labels is None else None)
    if law.labels is not None and found.labels is None and len(found):
        raise InvalidInputError(
            "the items of the orders must have names, as those of the model have; they are ids", argument="orders"
        )
    if law.labels is not None:
        none = Baskets.from_lists([], labels=law.labels, basket_ids=None if found.basket_ids is None else [])
        found = WeightedBaskets.of(Baskets.concat([none, found]), None, context_of(found)) if len(found) else found
    elif found.n_items != law.n_items:
        raise InvalidInputError(f"orders by ids must be over the {law.n_items} items of the model; got {found.n_items}")
    if not (found.indices < law.n_items).any():
        what = f"none of {many(len(found), 'order')} has an item of the model" if len(found) else "there are no orders"
        such = f"; it knows {', '.join(map(repr, names_of(law)[:3]))}, …" if len(found) else ""
        raise InvalidInputError(what + such, advice="Are these the right file and columns ({basket}, {item})?")
    some: Baskets = found.select(min_size=int(law.nonempty))
    return some


def _digests(orders: Baskets) -> Any:
    """Return checksums by which some orders are known again: of one in ``SAMPLED``, with its id, and of all together."""
    all_of_them = zlib.crc32(orders.indices.tobytes(), zlib.crc32(orders.indptr.tobytes()))
    own = [
        zlib.crc32("\0".join(map(str, (key, *items))).encode())
        for key, items in zip(orders.basket_ids or (), orders._named(as_labels=orders.labels is not None))
    ]
    return np.array([all_of_them, *(one for one in own if one % SAMPLED == 0)], np.int64)


def _trained(
    law: Any, orders: Baskets, held_out: Baskets, weight: float, *,
    epochs: int, rate: float, device: str, seed: int, progress: Any, force: bool,
) -> Any:  # fmt: skip
    """Return the law after some epochs with pseudo-orders that weigh as much as ``weight`` orders."""
    n = max(1, int(np.ceil(min(weight, REPLAYED))))  # of old orders that have faded, nothing may be left
    say_line(f"drawing {many(n, 'pseudo-order')}", progress)
    drawn = law.sample(n, rng=seed, device=None if device == "cpu" else device)
    if not force:
        _check_shop(law, orders, drawn, np.random.default_rng(seed))
    if not epochs:
        return law
    both = Baskets.concat([Baskets(one.indptr, one.indices, law.n_items, law.labels) for one in (drawn, orders)])
    data = WeightedBaskets.of(both, np.repeat([weight / n, 1.0], [n, len(orders)]))
    single = torch.float32 if device != "cpu" or len(law.weights) > 1 else torch.float64
    training = Training(data, held_out, device, single, seed)
    goal = warm_objective(law, training)
    goal.pull = pull_of(warm_objective(law, training), n)
    trainer = Trainer(goal, TrainingSettings(rate, None, epochs, 1), seed)
    with progress_bar(epochs * trainer.n_steps, f"epoch 1 of {epochs}", show=progress) as bar:
        for epoch in range(epochs):
            goal.begin_epoch(trainer.now)
            losses = []
            for which in trainer.batches():
                losses.append(trainer.take_step(which))
                bar.advance()
            bar.tell(f"epoch {epoch + 1} of {epochs}, loss {float(torch.stack(losses).mean()):.3f}")
    made: Any = goal.law(goal.finish(trainer.mean), law.labels)
    made = made.normalized()
    return made.framed(law.frame._replace(weights=made.weights, nonempty=goal.nonempty))


def pull_of(anchor: Objective[P], n: int) -> Callable[[IntArray], P]:
    """Return what the gradient of some baskets is at the start, less the mean for all but the first ``n`` of them, pseudo-orders.

    Beside the start, what is left of a gradient then is that of tonight's orders, and without any noise.
    """
    total = [torch.zeros_like(tensor) for tensor in anchor.start]
    for part in np.array_split(np.arange(n, anchor.n_baskets), -(-(anchor.n_baskets - n) // CHUNK)):
        for sum_, one in zip(total, anchor.loss(anchor.start, part, 0).gradient):
            sum_.add_(one, alpha=len(part) / anchor.n_baskets)
    return lambda which: anchor.start._make(map(torch.sub, anchor.loss(anchor.start, which, 0).gradient, total))


def _check_shop(law: Any, orders: Baskets, drawn: Baskets, rng: np.random.Generator) -> None:
    """Raise if the law knows hardly more of what comes together in these orders than if their items were shuffled."""

    def known(baskets: Baskets) -> FloatArray:
        some = baskets[np.sort(rng.permutation(len(baskets))[:CHUNK])]
        owner = np.repeat(np.arange(len(some)), some.sizes)
        entries = np.ones(len(owner), np.int8), (owner, rng.permutation(some.indices))
        shuffled = Baskets.from_csr(sparse.csr_array(entries, shape=some.shape) > 0, labels=law.labels)
        return np.asarray(law.log_probs(some) - law.log_probs(shuffled))

    tonight, usual = known(orders), float(known(drawn).mean())
    mean, error = float(tonight.mean()), float(tonight.std() / np.sqrt(len(tonight)))
    if mean + NOISE * error < STRUCTURE * usual:
        raise RefusedUpdateError(
            f"what comes together in these orders is unlike what the model knows: {mean:.2g} nats per order beyond shuffled items, "
            f"{usual:.2g} in its own samples", advice="Are these the right file and columns? Learn from them anyway with {force:True}.",
        )  # fmt: skip


def _changes(old: Any, new: Any) -> tuple[ItemChange, ...]:
    """Return the items whose probability has changed most, by the difference of the roots."""
    before = dict(zip(names_of(old).tolist(), old.inclusion_probabilities().tolist()))
    pairs = [
        ItemChange(name, before.get(name, 0.0), p)
        for name, p in zip(names_of(new).tolist(), new.inclusion_probabilities().tolist())
    ]
    return tuple(sorted(pairs, key=lambda one: -abs(np.sqrt(one.after) - np.sqrt(one.before)))[:CHANGED])
