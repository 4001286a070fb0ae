"""A law with what the answers to many questions share, computed once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ndpp._stop import look
from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_items, check_values
from ndpp.answers.atlas import draw_map
from ndpp.answers.mission import find_missions
from ndpp.answers.records import Item, Map, Mission, names_of
from ndpp.answers.search import LabelIndex
from ndpp.answers.table import ItemTable
from ndpp.errors import InvalidInputError, PrecisionError
from ndpp.items.base import look_up_cdf
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit
from ndpp.linalg.size_law import tilted_law
from ndpp.samplers import Exact
from ndpp.samplers.base import stream, stream_key
from ndpp.samplers.exact.node_route import NodesRoute, State
from ndpp.samplers.exact.routes import Unfinished
from ndpp.samplers.exact.sweep import Sweep
from ndpp.samplers.shared import prepare_components

T = TypeVar("T")
MISSIONS, TYPICAL = 12, 12
"""Missions for reading, and items by which each is described."""
MAPPED = 300
"""Items of a map."""
LEFT = 6
"""Items that are often added to a basket. What is prepared for it serves four to eight."""
MEMORY = 2**30
"""Most bytes of matrices that the sampler of a model keeps."""
VARIANTS = 4
"""Contexts, boosts and customers whose laws are kept."""
NEARLY = 1e-12
"""The factor of items that are out of stock, beside baskets that hold some of these."""


class once(cached_property[T]):
    """A property that is computed when first asked for, by one thread while others wait."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> T:  # type: ignore[override]
        if instance is None:
            return self  # type: ignore[return-value]
        with instance._lock:
            found: T = super().__get__(instance, owner)
            return found


class Prepared:
    """A law, and what many answers share; each part is computed when first needed. Threads may share it.

    Every question of :mod:`ndpp.answers` takes one in place of a law: ``model = answers.Prepared(law)`` answers the second question faster.
    With a ``table`` of its items, questions take limits in words. ``boost``, factors as in ``law.tilt``, is part of every question about
    what to buy: recommendations, their reasons and draws. With ``customers`` (:class:`ndpp.Customers`) such questions may name one.
    """

    gone: IntArray = np.empty(0, np.int64)
    """Items that are out of stock."""

    def __init__(self, model: Any, table: ItemTable | None = None, boost: Any = None, customers: Any = None) -> None:
        self.law: Any = Law.required(model)
        self.table, self.customers = table, customers
        self.factors = None if boost is None else self.factors_of(boost)
        self._lock, self._variants = threading.RLock(), dict[tuple[Any, ...], Derived]()

    @classmethod
    def of(cls, model: Any, context: Any = None, *, unknown: str = "error") -> Prepared:
        """Return a law, fitted estimator or prepared model as a prepared one, in a context as ``law.at`` takes it if there is one."""
        own = model if isinstance(model, Prepared) else cls(model)
        law = own.law.at(context, unknown=unknown) if context else own.law
        return own if law is own.law else own._kept(("context", law.weights.tobytes()), lambda: InContext(own, law))

    # -- names ---------------------------------------------------------------------------------------------------------------

    def ids(self, items: Any, argument: str = "basket", skipped: list[Item] | None = None) -> IntArray:
        """Return the ids of distinct items: a string is a label, an integer an id, also in one list.

        Items that are not in the catalogue raise an error, or are left out and added to ``skipped`` if it is given.
        """
        if skipped is not None and not isinstance(items, str):
            catalogue = self.law.catalogue
            skipped += [item for item in items if item not in catalogue]
            items = [item for item in items if item in catalogue]
        labels = [item for item in items if isinstance(item, str)]
        if 0 < len(labels) < len(items):
            known = dict(zip(labels, self.law.ids(labels).tolist()))
            items = [known.get(item, item) for item in items]
        return check_items(items, self.law, argument)

    def names(self, items: Any, *, ids: bool = False) -> list[Any]:
        """Return items as labels, or as ids if these are wanted or there are no labels."""
        return names_of(self.law, items, ids=ids)

    def limits(
        self, limits: Any, *, given: Items = (), candidates: Items | None = None, exclude: Items = ()
    ) -> list[Limit]:
        """Return limits on baskets that hold given items and candidates, but no excluded items; those in words by the table."""
        chosen: list[Any] = [limits] if isinstance(limits, Limit | str) else list(limits)
        words = [one for one in chosen if isinstance(one, str)]
        if not words:
            return chosen
        if self.table is None:
            raise InvalidInputError(
                f"in words, such as {words[0]!r}, need a table of the items", argument="limits", advice="Name one with {table}"
            )  # fmt: skip
        everything = np.arange(self.law.n_items)
        left = np.isin(everything, everything if candidates is None else candidates) & ~np.isin(everything, exclude)
        possible = left | np.isin(everything, given)
        return [one for one in chosen if not isinstance(one, str)] + self.table.limits(words, possible)

    # -- boosts --------------------------------------------------------------------------------------------------------------

    def boosted(
        self, boost: Any = None, given: Items = (), skipped: list[Item] | None = None, *, drawn: bool = False
    ) -> Prepared:
        """Return the model with the odds of items times factors, its own and those of ``boost``; itself if there are none.

        What is given is not out of stock, even if its factor is zero: any other factor has the same effect. For draws it gets 1. For
        probabilities everything that is out of stock gets nearly zero, so that one law serves all such baskets.
        """
        factors = self.factors
        if boost is not None and len(boost):
            factors = self.factors_of(boost, skipped) * (1.0 if factors is None else factors)
        if factors is None or (factors == 1).all():
            return self
        held, gone = np.asarray(given, np.int64), np.flatnonzero(factors == 0)
        held = held[factors[held] == 0]
        if len(held):
            factors = factors.copy()
            factors[held if drawn else gone] = 1.0 if drawn else NEARLY
        return self._kept(("boost", factors.tobytes()), lambda: Variant(self, lambda: self.law.tilt(factors), gone))

    def personal(self, person: Any) -> Prepared:
        """Return the model of a customer's baskets (``ndpp.answers.personal.Person``)."""
        people = self.people
        return self._kept(
            ("customer", id(people), *person[1:]), lambda: Variant(self, lambda: people.law(**person.asked), self.gone)
        )

    @property
    def people(self) -> Any:
        """The customers, over this law."""
        return self.customers

    def _kept(self, key: tuple[Any, ...], make: Callable[[], Derived]) -> Derived:
        """Return a model of which the last few are kept; it is made without its law, so that other questions go on."""
        with self._lock:
            found = self._variants.pop(key) if key in self._variants else make()
            self._variants[key] = found
            if len(self._variants) > VARIANTS:
                del self._variants[next(iter(self._variants))]
        return found

    def factors_of(self, boost: Any, skipped: list[Item] | None = None) -> FloatArray:
        """Return a factor for every item, 1 where a mapping has none."""
        if isinstance(boost, Mapping):
            if self.law.labels is None:  # JSON has no numbers for keys
                boost = {int(item) if str(item).isdecimal() else item: factor for item, factor in boost.items()}
            items = self.ids(list(boost), "boost", skipped)
            boost = dict(zip(items.tolist(), (factor for item, factor in boost.items() if item in self.law.catalogue)))
        return check_values(boost, self.law, "boost", default=1.0)

    # -- what many answers share ---------------------------------------------------------------------------------------------

    @once
    def inclusions(self) -> FloatArray:
        """Inclusion probabilities by component, shape (C, n_items)."""
        return np.asarray(self.law.component_inclusions())

    @once
    def popularity(self) -> FloatArray:
        """P(a) of every item."""
        return np.asarray(self.law.weights @ self.inclusions)

    @once
    def pair_weights(self) -> FloatArray:
        """w_c with which Σ_c w_c P_c(a) P_c(b) is P(a, b) without ties: if the empty set is left out, it makes items rarer together."""
        return np.asarray(self.law.weights * self.law.kept)

    @once
    def recurrence(self) -> FloatArray:
        """E(a, a) = Σ_c w_c P_c(a)² of every item: how often two baskets of one mission both contain it."""
        return np.asarray(self.pair_weights @ self.inclusions**2)

    @once
    def crowd(self) -> FloatArray:
        """m(a) / √m of every item: the product of two is the lift that the sizes of baskets explain (``ndpp.answers.relations``)."""
        p, sizes = self.popularity, self.inclusions.sum(axis=1)
        among = np.divide((self.pair_weights * sizes) @ self.inclusions, p, out=np.zeros_like(p), where=p > 0)
        return np.asarray(among / np.sqrt(self.pair_weights @ sizes**2 or 1.0))

    @once
    def missions(self) -> tuple[Mission, ...]:
        """The missions of a mixture, similar components merged, largest first; a kernel has none."""
        return find_missions(self.law, self.inclusions, MISSIONS, TYPICAL) if len(self.law.weights) > 1 else ()

    @once
    def sizes(self) -> FloatArray | None:
        """P(|S| = k)."""
        return np.asarray(self.law.size_distribution())

    def sizes_with(self, item: int) -> FloatArray | None:
        """Return P(|S| = k) of the baskets with an item."""
        return np.asarray(self.law.sizes_with([item])[0])

    @once
    def index(self) -> LabelIndex:
        """The names of the catalogue, to search in."""
        return LabelIndex(list(map(str, self.names(range(self.law.n_items)))), self.popularity)

    @once
    def sampler(self) -> Exact | None:
        """The exact sampler of all baskets of a kernel without background, of which all is ties; None for other laws."""
        plain = getattr(self.law, "low_rank", None) is self.law
        return Exact.prepare(self.law, memory=MEMORY) if plain else None

    @once
    def map(self) -> Map:
        """The map of the catalogue."""
        return draw_map(self.law, self.inclusions, MAPPED, self.missions)

    # -- draws ---------------------------------------------------------------------------------------------------------------

    def prepare_components(self) -> None:
        """Prepare what draws from the components of a mixture with shared ties, the most probable first, as far as memory goes."""
        for left in (None, LEFT):
            prepare_components(self.law, MEMORY, left)

    def draw(
        self,
        n: int,
        seed: int,
        *,
        given: Items = (),
        size: int | None = None,
        exclude: Items = (),
        candidates: Items | None = None,
        limits: Any = (),
    ) -> list[list[int]]:
        """Return ``n`` baskets as sorted ids, those of ``law.sample(n, …, rng=seed)``.

        Beside the given items they hold candidates, if these are listed, and no excluded item.
        """
        own, kept = self.sampler, self.limits(limits, given=given, candidates=candidates, exclude=exclude)
        if own is None or candidates is not None or len(exclude) or kept:
            law = self.law if candidates is None else self.law.restrict(np.union1d(candidates, given))
            sampler: Any = law.sampler(size=size, given=given, exclude=exclude, memory=MEMORY, limits=kept)
        else:
            is_begun = own.route != Sweep.name if size is None else len(given) < size <= self.law.rank
            if not own.symmetric and is_begun:
                # A basket that never occurs has no precise answer here: the careful way below knows, and says so.
                with contextlib.suppress(PrecisionError):
                    return list(_shared(own, given, size, n, seed))
            # A symmetric kernel has no circles, and one decomposition per basket is soon made; the table is that of all baskets.
            sampler = own.to_complete(given, size)
        found: list[list[int]] = sampler.sample(n, rng=seed).baskets.to_lists()
        return found


class Derived(Prepared):
    """A model for a context, a boost or a customer. It has the missions of the ``plain`` one, so that they keep their names."""

    plain: Prepared
    _bound: tuple[Any, Any] = (None, None)

    @property
    def customers(self) -> Any:
        """The customers of the model."""
        return self.plain.customers

    @property
    def people(self) -> Any:
        """The customers of the model, over this law."""
        found = self.customers
        with self._lock:
            if self._bound[0] is not found:
                self._bound = found, found.with_law(self.law)
            return self._bound[1]

    @once
    def missions(self) -> tuple[Mission, ...]:
        """The missions of the model."""
        return self.plain.missions


class InContext(Derived):
    """A prepared law in a context: its components are those of the plain one."""

    def __init__(self, plain: Prepared, law: Any) -> None:
        self.plain, self.law, self.table, self.factors = plain, law, plain.table, plain.factors
        self._lock, self._variants = threading.RLock(), dict[tuple[Any, ...], Derived]()

    @once
    def inclusions(self) -> FloatArray:
        """Those of the plain law."""
        return self.plain.inclusions

    @property
    def sizes(self) -> FloatArray | None:
        """P(|S| = k), if that of the plain law is known."""
        return None if self.plain.sizes is None else np.asarray(self.law.size_distribution())


class Variant(Derived):
    """The law of a model for a boost or a customer."""

    def __init__(self, plain: Prepared, make: Callable[[], Any], gone: IntArray) -> None:
        self.plain, self.make, self.gone, self.table, self.factors = plain, make, gone, plain.table, None
        self._lock, self._variants = threading.RLock(), dict[tuple[Any, ...], Derived]()

    @once
    def law(self) -> Any:
        """The law, which may take seconds to make."""
        return self.make()


def _shared(sampler: Exact, given: Items, size: int | None, n: int, seed: int) -> Iterator[list[int]]:
    """Draw from the sampler of the whole law, whose chains begin with the given items. The draws are those of their own sampler.

    A basket is put into the circles of the whole law item by item, O(N r²) each, where its own sampler would compute N inverses first.
    """
    kernel, key = sampler.kernel, stream_key(seed)
    rows = np.sort(kernel.rows_of(given, "given"))
    sizes, clock, states = np.ones(1), None, dict[int, Any]()
    if size is None:
        law = tilted_law(kernel.coordinates, 1.0, kernel.q_rows(rows))
        if law.log_weight == -np.inf:
            raise PrecisionError
        sizes = np.cumsum(law.law)
        clock = None if sampler.clock is None else replace(sampler.clock, given=rows, alone=np.zeros(len(rows)))
        clock = clock if clock is not None and clock.suits(law.law) else None
    for i in range(n):
        look()
        rng, found = stream(key, i), rows
        if clock is not None:
            drawn = clock.draw(rng)
            done = clock.finish(rng, drawn) if isinstance(drawn, Unfinished) else drawn
            found = np.concatenate([rows, done.rows])
        elif more := size - len(rows) if size is not None else look_up_cdf(sizes, rng.random()):
            nodes = sampler.nodes(len(rows) + more)
            if more not in states:
                states[more] = _begun(nodes, rows)
            found = nodes.complete(rng, states[more])[0].rows
        yield kernel.catalogue_ids(np.sort(found)).tolist()


def _begun(nodes: NodesRoute, rows: IntArray) -> State:
    """Return the state of a sample that has these rows already."""
    state = nodes.start()
    for row in rows.tolist():
        state = nodes.add(state, row)
    return state._replace(owned=False)  # several draws begin with it
