"""``ndpp.update``: tonight's orders for a law that has seen others, without a new fit and without forgetting.

What is minimised, from the law P₀ on, is

    −Σ_{S tonight} log P(S) + N · KL(P₀ ‖ P) + penalties on the change of u and X.

N is a quarter of the number of orders that the law has seen, or less if old ones fade: a law knows less than its orders told, and people
change. The divergence is −log P(S) on average over exact samples of P₀, pseudo-orders that weigh N together. On average their gradient at
P₀ is zero; what it is for those that were drawn, penalties included, is subtracted from every gradient, so that only tonight's orders move
the law. An average of laws learns law by law, each from the same orders and from pseudo-orders of its own; their weights stay.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import torch
from scipy import sparse

from ndpp._progress import progress_bar, say_line
from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.baskets.labels import many, places
from ndpp.baskets.orders import Orders
from ndpp.errors import InvalidInputError, RefusedUpdateError
from ndpp.laws.files import load, load_metadata
from ndpp.laws.gate import Gain
from ndpp.laws.law import Law
from ndpp.laws.pooled import PooledMixture
from ndpp.learning.base import number, set_aside
from ndpp.learning.context import check_values, relearn_context
from ndpp.learning.trainer import Objective, P, Trainer, TrainingSettings
from ndpp.learning.turnover import items_entered, items_left, names_of, over, possible, young_levels
from ndpp.learning.warm import Training, warm_objective

MEMORY = "memory"
"""What the metadata call what a model remembers of its orders."""
EPOCHS, LEARNING_RATE = 3, 0.005
"""Passes over tonight's orders and the pseudo-orders, and rate of Adam at first (complete journey)."""
OLD_WEIGHT = 0.25
"""What an order that the law has seen weighs beside one of tonight: of 1, ½, ¼ and ⅒ best for the next month (complete journey)."""
MAX_PSEUDO_ORDERS, CHUNK = 20_000, 2000
"""Maximum number of pseudo-orders, and how many orders are processed at a time."""
NOISE_ERRORS = 2.0
"""Standard errors within which a difference is taken to be noise."""
LEAST_STRUCTURE = 0.25
"""Orders are taken to be those of another shop if the law predicts what comes together in them less than this well, relative to its own
samples."""
REMEMBERED_SHARE, MAX_DIGESTS = 16, 5000
"""One order in this many is remembered by a checksum, and at most this many are."""
MAX_CHANGED = 10
"""Items that a report names as the most changed."""


class UpdateSettings(TypedDict, total=False):
    """How :func:`update` works, all of it optional."""

    old_weight: float
    """Weight of an order that the model has seen, relative to a new one."""
    half_life: float | None
    """Number of new orders after which the weight of old ones is halved. None: it never is."""
    least_orders: int
    """Minimum number of orders with a new item before it enters the model; until then it is left out of the orders."""
    like: Mapping[str, Any] | None
    """What new items behave like, as in ``law.add_items``; others behave like those that the law expects in their place."""
    keep_catalogue: bool
    """No item enters, and none leaves; what is new is left out of the orders."""
    drop: Iterable[str | int]
    """Items to remove."""
    drop_after: int | None
    """Also remove items that were not sold in this many updates in a row."""
    max_epochs: int
    """Passes over the orders; with 0 only items enter and leave."""
    learning_rate: float
    """Initial learning rate of Adam."""


USUAL: UpdateSettings = {
    "old_weight": OLD_WEIGHT, "half_life": None, "least_orders": 3, "like": None, "keep_catalogue": False, "drop": (), "drop_after": None,
    "max_epochs": EPOCHS, "learning_rate": LEARNING_RATE,
}  # fmt: skip


class PastOrders(NamedTuple):
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
    def of(cls, about: Mapping[str, Any], seen: float | None) -> PastOrders:
        """Return what a model with these metadata remembers; ``seen`` is how many orders it has seen, if the caller says so."""
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

    law_: Law
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
        return bool(self.after - self.before < -NOISE_ERRORS * self.error)

    def about(self) -> dict[str, Any]:
        """Return how the model was made, for JSON: what :func:`ndpp.save` writes with it."""
        return dict(self.metadata)


def update(
    model: object,
    orders: object,
    *,
    basket: str = "basket",
    item: str = "item",
    time: str | None = None,
    validation: object = None,
    seen: float | None = None,
    force: bool = False,
    device: str = "cpu",
    random_state: int = 0,
    progress: bool | Callable[[str], None] = False,
    **settings: Unpack[UpdateSettings],
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
    basket, item, time : str
        The columns, as in ``ndpp.fit``. Weekday, month, season and hour follow from the time, if the model depends on them.
    validation : like orders, optional
        Orders that judge the new law instead.
    seen : float, optional
        Number of orders that the model has seen, if it is a law, or if its file does not say.
    force : bool
        Return the new law though it is worse, and count orders though they were seen before or look like those of another shop.
    device, random_state, progress
        As for the estimators.
    **settings
        How old orders fade (``old_weight``, ``half_life``), how items enter and leave (``least_orders``, ``like``, ``drop``,
        ``drop_after``, or ``keep_catalogue``), and how the law is trained (``max_epochs``, ``learning_rate``): see ``UpdateSettings``.

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
    if strange := settings.keys() - USUAL.keys():
        raise TypeError(f"update() got an unexpected keyword argument {min(strange)!r}")
    how: UpdateSettings = {**USUAL, **settings}
    law, about = _opened(model)
    memory = PastOrders.of(about, seen)
    columns = {"basket": basket, "item": item, "time": time}
    tonight: Baskets = _read(orders, law, columns)
    if law.gate is not None:
        levels = {name: words for name, words in law.gate.levels.items() if name in tonight.context}
        check_values({name: np.append(tonight.context[name], words) for name, words in levels.items()})
    digests = _digests(tonight)
    if (again := np.isin(digests, memory.digests).mean()) and not force:
        raise RefusedUpdateError(
            f"{'all' if again == 1 else f'about {again:.0%}'} of these orders were in an earlier update",
            advice="Leave them out, or count them again with {force:True}.",
        )
    least_orders: int | None = how["least_orders"]
    if how["keep_catalogue"]:
        least_orders = None
        if how["like"] or tuple(how["drop"]) or how["drop_after"] is not None:
            problem = "is to keep all items as they are, but other settings say which enter or leave"
            raise InvalidInputError(
                problem, argument="keep_catalogue", advice="Leave out {like}, {drop} and {drop_after}, or it."
            )
    start, tonight, skipped = items_entered(law, tonight, least_orders, how["like"])
    entered = () if start.labels is None else start.labels[law.n_items :]
    start, tonight, unsold = items_left(start, tonight, memory.unsold, how["drop"], how["drop_after"])
    staying = set(names_of(start))
    left = tuple(name for name in names_of(law) if name not in staying)
    n_new, half_life = tonight.total_weight, how["half_life"]
    fade = 1.0 if half_life is None else 0.5 ** (n_new / number(half_life, "half_life", above_zero=True))
    young = {name: fade * n for name, n in memory.young.items() if n < memory.orders / 2}
    start, young = young_levels(start, tonight, young, entered)
    parts = set_aside(tonight, 0.1, np.random.default_rng(random_state))
    if validation is not None:
        parts = tonight, possible(start, over(_read(validation, law, columns), start))
    old_weight = number(how["old_weight"], "old_weight", above_zero=True) * fade * memory.orders
    epochs = check_count(how["max_epochs"], "max_epochs")
    rate = number(how["learning_rate"], "learning_rate", above_zero=True)
    drawn = _pseudo_orders(start, old_weight, random_state, device, progress)
    if not force:
        _check_shop(start, parts[0], drawn, np.random.default_rng(random_state))
    trained = start
    if epochs:
        source = _Source(parts, old_weight, random_state, device, progress)
        trained = _continued(start, source, drawn, epochs, rate)
    relearned = None
    if trained.gate is not None and epochs:
        gate, relearned = relearn_context(trained, *parts)
        trained = trained.framed(trained.frame._replace(gate=gate))
    counts = fade * memory.orders + n_new, memory.updates + 1
    now = PastOrders(*counts, young, unsold, [*memory.digests, *digests.tolist()][-MAX_DIGESTS:])
    before, after, error = _judged(start, trained, parts[1])
    made = Updated(
        law_=trained, metadata={**about, MEMORY: now._asdict()}, n_orders=len(tonight), n_validation=len(parts[1]),
        before=before, after=after, error=error,
        entered=tuple(name for name in entered if name in staying), left=left, skipped=skipped, changed=_changes(law, trained),
        context=relearned, shares_before=law.weights, seconds=perf_counter() - began,
    )  # fmt: skip
    if made.is_worse and not force:
        raise RefusedUpdateError(
            f"the updated model is worse: log-likelihood {made.after:.4g} of {many(made.n_validation, 'validation order')}, "
            f"{made.before:.4g} before, standard error {made.error:.2g}", advice="Keep it nevertheless with {force:True}.", updated=made,
        )  # fmt: skip
    return made


def _opened(model: object) -> tuple[Law, dict[str, Any]]:
    """Return the law of a file or model, and its metadata."""
    if isinstance(model, (str, os.PathLike)):
        return load(model), load_metadata(model)
    about = getattr(model, "about", None)
    return Law.required(model), {} if about is None else about()


def _read(orders: object, law: Law, columns: Mapping[str, Any]) -> Orders:
    """Return the orders that are not empty, over the items of the law and those that are new; raise if there is nothing to learn from."""
    known: dict[str, Any] = {"n_items": law.n_items, "as_labels": False} if law.labels is None else {"as_labels": True}
    found = Orders.read(orders, context=list(law.context), partial=True, **columns, **known)
    if found.weights is not None:
        found = found[found.weights > 0]
    if law.labels is not None and found.labels is None and len(found.indices):
        raise InvalidInputError("must have names of items, as the model has; they have ids", argument="orders")
    if law.labels is not None:
        known_or_new = tuple(dict.fromkeys([*law.labels, *(found.labels or ())]))
        found = found._placed(places(found.labels or (), known_or_new), known_or_new)
    elif found.n_items != law.n_items:
        raise InvalidInputError(f"orders by ids must be over the {law.n_items} items of the model; got {found.n_items}")
    if not (found.indices < law.n_items).any():
        what = f"none of {many(len(found), 'order')} has an item of the model" if len(found) else "there are no orders"
        such = f"; it knows {', '.join(map(repr, names_of(law)[:3]))}, …" if len(found) else ""
        raise InvalidInputError(what + such, advice="Are these the right file and columns ({basket}, {item})?")
    return found.select(min_size=int(law.nonempty))


def _digests(orders: Baskets) -> IntArray:
    """Return checksums by which some orders are known again: of one in ``REMEMBERED_SHARE``, with its id, and of all together."""
    all_of_them = zlib.crc32(orders.indices.tobytes(), zlib.crc32(orders.indptr.tobytes()))
    own = [
        zlib.crc32("\0".join(map(str, (key, *items))).encode())
        for key, items in zip(orders.basket_ids or (), orders._named(as_labels=orders.labels is not None))
    ]
    return np.array([all_of_them, *(one for one in own if one % REMEMBERED_SHARE == 0)], np.int64)


def _pseudo_orders(law: Law, weight: float, seed: int, device: str, progress: bool | Callable[[str], None]) -> Baskets:
    """Return exact samples of the law, one per order that they stand for, at most ``MAX_PSEUDO_ORDERS`` and at least one."""
    n = max(1, int(np.ceil(min(weight, MAX_PSEUDO_ORDERS))))  # of old orders that have faded, nothing may be left
    say_line(f"drawing {many(n, 'pseudo-order')}", progress)
    return law.sample(n, rng=seed, device=None if device == "cpu" else device)


def _weighed(drawn: Baskets, orders: Baskets, weight: float) -> Orders:
    """Return the pseudo-orders, which weigh as much as ``weight`` orders together, and then the orders."""
    both = Baskets.concat([Baskets(one.indptr, one.indices, one.n_items, orders.labels) for one in (drawn, orders)])
    own = np.ones(len(orders)) if orders.weights is None else orders.weights
    return Orders(both, weights=np.append(np.full(len(drawn), weight / len(drawn)), own))


class _Source(NamedTuple):
    """What a law learns from beside its pseudo-orders: tonight's orders and those that judge, and how old ones weigh."""

    parts: tuple[Baskets, Baskets]
    old_weight: float
    seed: int
    device: str
    progress: bool | Callable[[str], None]


def _continued(law: Law, source: _Source, drawn: Baskets, epochs: int, rate: float) -> Law:
    """Return the law after some epochs; of an average, each law learns in turn, from pseudo-orders of its own, and keeps its weight."""
    (orders, judges), old_weight, seed, device, progress = source
    if isinstance(law, PooledMixture):
        found = []
        for k, member in enumerate(members := law.members, 1):
            say_line(f"fit {k} of {len(members)}", progress)
            own = _pseudo_orders(member, old_weight, seed, device, progress)
            found.append(_continued(member, source, own, epochs, rate))
        if not all(one.nonempty for one in found):
            found = [one.with_empty() for one in found]
        return law.averaging(found, law.shares)
    dtype = torch.float32 if device != "cpu" or len(law.weights) > 1 else torch.float64
    training = Training(_weighed(drawn, orders, old_weight), judges, device, dtype, seed)
    return _trained(law, training, len(drawn), epochs, rate, progress)


def _trained(
    law: Law, training: Training, n_drawn: int, epochs: int, rate: float, progress: bool | Callable[[str], None]
) -> Law:
    """Return the law after some epochs with orders, the first ``n_drawn`` of which are pseudo-orders."""
    goal = warm_objective(law, training)
    goal.pull = pull_of(warm_objective(law, training), n_drawn)
    trainer = Trainer(goal, TrainingSettings(rate, None, epochs, 1), training.seed)
    with progress_bar(epochs * trainer.n_steps, f"epoch 1 of {epochs}", show=progress) as bar:
        for epoch in range(epochs):
            goal.begin_epoch(trainer.now)
            losses = []
            for which in trainer.batches():
                losses.append(trainer.take_step(which))
                bar.advance()
            bar.tell(f"epoch {epoch + 1} of {epochs}, loss {float(torch.stack(losses).mean()):.3f}")
    made: Law = goal.law(goal.finish(trainer.mean), law.labels)
    made = made.normalized()
    return made.framed(law.frame._replace(weights=made.weights, nonempty=goal.nonempty))


def _judged(old: Law, new: Law, orders: Baskets) -> tuple[float, float, float]:
    """Return the mean log-likelihood of orders under two laws, and the standard error of the difference."""
    before, after = (law.log_probs(orders, context=orders.context) for law in (old, new))
    share = np.full(len(orders), 1 / len(orders)) if orders.weights is None else orders.weights / orders.total_weight
    gain = after - before
    spread = np.sum(share**2 * (gain - share @ gain) ** 2) / (1 - np.sum(share**2)) if len(orders) > 1 else np.inf
    return float(share @ before), float(share @ after), float(np.sqrt(spread))


def pull_of(anchor: Objective[P], n: int) -> Callable[[IntArray], P]:
    """Return what the gradient of some baskets is at the start, less the mean for all but the first ``n`` of them, pseudo-orders.

    Beside the start, what is left of a gradient then is that of tonight's orders, and without any noise.
    """
    total = [torch.zeros_like(tensor) for tensor in anchor.start]
    for part in np.array_split(np.arange(n, anchor.n_baskets), -(-(anchor.n_baskets - n) // CHUNK)):
        for sum_, one in zip(total, anchor.loss(anchor.start, part, 0).gradient):
            sum_.add_(one, alpha=len(part) / anchor.n_baskets)
    return lambda which: anchor.start._make(map(torch.sub, anchor.loss(anchor.start, which, 0).gradient, total))


def _check_shop(law: Law, orders: Baskets, drawn: Baskets, rng: np.random.Generator) -> None:
    """Raise if the law knows hardly more of what comes together in these orders than if their items were shuffled."""

    def known(baskets: Baskets) -> FloatArray:
        some = baskets[np.sort(rng.permutation(len(baskets))[:CHUNK])]
        owner = np.repeat(np.arange(len(some)), some.sizes)
        entries = np.ones(len(owner), np.int8), (owner, rng.permutation(some.indices))
        shuffled = Baskets.from_csr(sparse.csr_array(entries, shape=some.shape) > 0, labels=law.labels)
        return np.asarray(law.log_probs(some) - law.log_probs(shuffled))

    tonight, own = known(orders), known(drawn)
    mean, usual = float(tonight.mean()), float(own.mean())
    error = float(max(tonight.std(), own.std()) / np.sqrt(len(tonight)))  # a few orders hardly vary, but say little
    if mean + NOISE_ERRORS * error < LEAST_STRUCTURE * usual:
        raise RefusedUpdateError(
            f"what comes together in these orders is unlike what the model knows: {mean:.2g} nats per order beyond shuffled items, "
            f"{usual:.2g} in its own samples", advice="Are these the right file and columns? Learn from them anyway with {force:True}.",
        )  # fmt: skip


def _changes(old: Law, new: Law) -> tuple[ItemChange, ...]:
    """Return the items whose probability has changed most, by the difference of the roots."""
    before = dict(zip(names_of(old), old.inclusion_probabilities().tolist()))
    pairs = [
        ItemChange(name, before.get(name, 0.0), p)
        for name, p in zip(names_of(new), new.inclusion_probabilities().tolist())
    ]
    return tuple(sorted(pairs, key=lambda one: -abs(np.sqrt(one.after) - np.sqrt(one.before)))[:MAX_CHANGED])
