"""The table of conditions: everything that a caller can say to a verb, how it is said to a law, and what it does to the truth.

A :class:`Case` is a law of :mod:`law_table`, what is said to it, and the truth under that. ``case.ask(verb, …)`` asks the verb in the
keywords that it takes. A verb that lacks one is asked of a law that was changed before (:func:`changed_by`), where that is possible:
``lacking`` says where it is not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

import ndpp
from kernels import Array
from law_table import Entry, Items, Truth
from ndpp import Limit
from ndpp.inference.ranking import recommend_many
from ndpp.inference.scores import continuation_scores

CONTEXT = {"hour": ("8", "20"), "day": ("Sunday",)}
"""The columns of context that every mixture of the table has, and their values."""
SHIFTS = np.log([[4.0, 1.0, 0.25], [0.5, 2.0, 1.0], [1.0, 3.0, 8.0]])
"""Of three components, which averages repeat."""
LEAST_MASS = 1e-6
"""What is said leaves sets of at least this probability."""


@dataclass(frozen=True)
class Person:
    """A customer: by how much more than others they like each mission and each item."""

    missions: tuple[float, ...] | None
    items: Mapping[int, float]

    def over(self, law: Any) -> tuple[Array | None, Array | None]:
        """The weights of missions and the factors of items, as a law takes them."""
        return self.weights(law.weights), np.array([self.items.get(a, 1.0) for a in range(law.n_items)])

    def begun(self, rule: Any, basket: Any) -> Array:
        """The chances of items beside these: those of the law of this person."""
        gone = dict.fromkeys(rule.gone.tolist(), 0.0)
        return np.asarray(continuation_scores(rule.whole, basket, customer=self, boost=gone))

    def weights(self, weights: Array) -> Array | None:
        if self.missions is None or len(weights) != len(self.missions):
            return None
        return np.asarray(weights * self.missions / (weights @ self.missions))


class Condition(NamedTuple):
    """What can be said under a keyword: several values, of which a law is told the first that leaves something."""

    name: str
    values: tuple[Any, ...]
    only_mixtures: bool = False

    def __str__(self) -> str:
        return self.name


PRICES = {0: 2.5, 1: 1.1, 2: 3.2, 3: 0.7, 4: 1.9, 5: 4.0}
TENTHS = dict.fromkeys(range(6), 0.1)
CONDITIONS = (
    Condition("given", ((1,), (0, 3), (2,), (0,))),
    Condition("size", (2, 3, 1, 4, 0)),
    Condition("exclude", ((4,), (1, 3), (0,))),
    Condition("candidates", ((0, 1, 2, 3), (0, 2, 4, 5), (1, 0))),
    Condition("boost", ({1: 4.0, 0: 0.375}, {2: 0.0, 3: 1.5, 0: 8.0}, {0: 0.0, 1: 2.0})),
    Condition(
        "limits",
        (
            (Limit([0, 1, 2], most=1),),
            (Limit([0, 1, 2, 3], least=1, most=2, name="some"),),
            (Limit(PRICES, least=1.8, most=7.2),),
            (Limit(TENTHS, most=0.3),),
            (Limit([0, 2, 4], most=2), Limit(PRICES, most=6.0)),
            (Limit([0], most=1),),
        ),
    ),
    Condition("context", ({"hour": "8"}, {"hour": 20, "day": "Sunday"}), only_mixtures=True),
    Condition("mission", ("one", "three", "two"), only_mixtures=True),
    Condition("customer", (Person((0.5, 4.0, 2.0), {0: 3.0, 2: 0.5}), Person(None, {0: 0.125, 1: 6.0}))),
    Condition("nonempty", (True,)),
)
"""``nonempty``, at least one item, is said by ``law.without_empty()``: a law has it, or has it not."""
NAMES = tuple(condition.name for condition in CONDITIONS)
PAIRS = tuple(combinations(NAMES, 2))
SPOKEN = frozenset(NAMES) - {"nonempty"}
CHANGING = frozenset({"exclude", "candidates", "boost", "context", "mission", "customer"})
"""Conditions under which there is a law of the same kind, which can be asked in place of the one that it came from."""


def said_to_truth(truth: Truth, said: Mapping[str, Any]) -> Truth:
    """The truth under what is said to a law."""
    options, weights = {key: said[key] for key in said if key in Truth.CONDITIONS}, truth.weights
    if "context" in said:
        rows = [f"{name}={word}" for name, words in CONTEXT.items() for word in words]
        chosen = [rows.index(f"{name}={word}") for name, word in said["context"].items()]
        weights = weights * np.exp(np.resize(SHIFTS[chosen].sum(axis=0), len(weights)))
    if "customer" in said:
        own = said["customer"].weights(weights)
        weights, options["habits"] = weights if own is None else own, said["customer"].items
    if "mission" in said:
        weights = np.array([float(name == said["mission"]) for name in truth.names])
    if weights is not truth.weights:
        options["weights"] = weights / weights.sum()
    options = {
        key: fitting(value, truth.n_items) if key in ("habits", "boost") else value for key, value in options.items()
    }
    return truth.under(**options)


def fitting(factors: Mapping[int, float], n_items: int) -> dict[int, float]:
    return {a: s for a, s in factors.items() if a < n_items}


def changed_by(law: Any, said: Mapping[str, Any]) -> Any:
    """The law under conditions of :data:`CHANGING`, with which what is given can be."""
    given = set(said.get("given", ()))
    asked = {name: value for name, value in said.items() if name in CHANGING}
    if "boost" in asked:
        asked["boost"] = {a: 1.0 if a in given and not s else s for a, s in asked["boost"].items()}
    if "candidates" in asked:
        asked["candidates"] = sorted({*asked["candidates"], *given})
    return law.under(law.ask(**asked)) if asked else law


# ---- verbs and their keywords ---------------------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "greedy_map": ndpp.greedy_map, "best_set": ndpp.best_set, "recommend": ndpp.recommend, "recommend_many": recommend_many,
}  # fmt: skip
"""Verbs that are functions of a law."""
LISTS = ("recommend", "recommend_many")
"""Verbs whose candidates, excluded items and limits say what may be listed, and nothing about baskets."""
OWN_MEANING = {
    "log_probs": {"context"},  # a value for each basket
    "probability": {"limits"},  # what the probability is of
    "recommend": {"given", "size"},  # the basket; a list has no size
    "recommend_many": {"given", "size"},
    "greedy_map": {"size"},
    "best_set": {"size"},
    "inclusion_estimates": {"limits"},
}
"""Keywords that are arguments of a verb and no conditions."""


@cache
def taken(verb: str) -> frozenset[str]:
    """The conditions that a verb takes as keywords."""
    function = FUNCTIONS.get("recommend" if verb == "recommend_many" else verb) or getattr(ndpp.Mixture, verb)
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_KEYWORD and "Conditions" in str(one.annotation) for one in parameters):
        return SPOKEN - OWN_MEANING.get(verb, set())
    return SPOKEN & {one.name for one in parameters} - OWN_MEANING.get(verb, set())


def lacking(verb: str) -> frozenset[str]:
    """The conditions under which a verb cannot be asked."""
    return SPOKEN - taken(verb) - CHANGING - OWN_MEANING.get(verb, set())


# ---- cases ----------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A law, what is said to it, and the truth under that."""

    entry: Entry
    said: dict[str, Any]
    truth: Truth
    forgets: frozenset[str] = frozenset()
    """What is not passed on to the law: a negative control."""

    def __str__(self) -> str:
        return f"{self.entry} under {self.said or 'nothing'}"

    @property
    def labels(self) -> list[str]:
        return self.entry.base.labels

    def but(self, *names: str) -> Case:
        """The same without some of what is said."""
        said = {name: value for name, value in self.said.items() if name not in names}
        return self._replace(said=said, truth=said_to_truth(self.entry.truth, said))

    @property
    def heard(self) -> dict[str, Any]:
        return {name: value for name, value in self.said.items() if name not in self.forgets}

    def ask(self, verb: str, *args: Any, **options: Any) -> Any:
        """What the law answers, under everything that is said."""
        return self.asking(verb, *args, **options)[0]

    def asking(self, verb: str, *args: Any, **options: Any) -> tuple[Any, Any]:
        """The answer, and the law that gave it: this one or, where the verb lacks keywords, a changed one."""
        direct = {name: value for name, value in self.heard.items() if name in taken(verb)}
        others = {name: value for name, value in self.heard.items() if name == "given" or name not in direct}
        if verb in LISTS and "exclude" in others:  # what is excluded is no candidate of a list
            listed = self.heard.get("candidates", range(self.truth.n_items))
            direct["candidates"] = [a for a in listed if a not in others["exclude"]]
            del others["exclude"]
        law = changed_by(self.entry.law, others)
        function = FUNCTIONS[verb] if verb in FUNCTIONS else getattr(type(law), verb)
        return function(law, *args, **direct, **options), law

    @property
    def law(self) -> Any:
        """The law under what is said, if there is one of the same kind."""
        return self.entry.law.under(self.entry.law.ask(**self.heard))


def base_entry(entry: Entry) -> Entry:
    """The entry, with context if it is a mixture."""
    if not entry.kind.is_mixture:
        return entry
    shifts = np.stack([np.resize(row, len(entry.law.weights)) for row in SHIFTS])
    return entry._replace(law=entry.law.with_context(CONTEXT, shifts))


def case_of(entry: Entry, names: tuple[str, ...], turn: int = 0) -> Case | None:
    """A law under the first values of these conditions, from the turn on, that leave sets; None if there are none."""
    conditions = [CONDITIONS[NAMES.index(name)] for name in names if name != "nonempty"]
    if any(condition.only_mixtures for condition in conditions) and not entry.kind.is_mixture:
        return None
    if "nonempty" in names:
        if not entry.truth.p[1:].any():
            return None
        entry = entry._replace(
            law=entry.law.without_empty(), truth=entry.truth.without_empty(), change=(("without_empty", ()),)
        )
    for said in _sayings(conditions, turn, entry.truth.n_items):
        if _clashes(said):
            continue
        truth = said_to_truth(entry.truth, said)
        if truth.p.any() and not np.isnan(truth.p).any() and mass(entry.truth, said) > LEAST_MASS and truth.left:
            return Case(entry, said, truth)
    return None


def _sayings(conditions: list[Condition], turn: int, n_items: int) -> Iterator[dict[str, Any]]:
    """What may be said, in turn: all conditions move on to their next values together, then the first alone."""
    longest = max((len(condition.values) for condition in conditions), default=1)
    for first in range(longest):
        for i in range(longest):
            said = {
                condition.name: _cut(
                    condition.values[(turn + i + (first if k == 0 else 0)) % len(condition.values)], n_items
                )
                for k, condition in enumerate(conditions)
            }
            if None not in said.values():
                yield said


def _cut(value: Any, n_items: int) -> Any:
    """The same for a smaller catalogue; None if nothing is left of it."""
    if isinstance(value, Person):
        return replace(value, items=fitting(value.items, n_items))
    if isinstance(value, dict) and all(isinstance(key, int) for key in value):
        return fitting(value, n_items) or None
    if isinstance(value, tuple) and value and isinstance(value[0], Limit):
        kept = [replace(one, values=_cut(tuple(one.values) if one.counts else one.values, n_items)) for one in value]
        return None if any(one.values is None for one in kept) else tuple(kept)
    if isinstance(value, tuple):
        return tuple(a for a in value if a < n_items) or None
    return value


def _clashes(said: Mapping[str, Any]) -> bool:
    return bool({*said.get("given", ())} & {*said.get("exclude", ())})


def mass(truth: Truth, said: Mapping[str, Any]) -> float:
    """P(given, size, limits) under the other conditions."""
    given = set(said.get("given", ()))
    others = {name: value for name, value in said.items() if name in CHANGING}
    if "candidates" in said:
        others["candidates"] = (*said["candidates"], *given)
    if "boost" in said:
        others["boost"] = {a: 1.0 if a in given and not s else s for a, s in said["boost"].items()}
    kept = truth.containing(given, said.get("size"))
    for limit in said.get("limits", ()):
        kept = kept & truth.within(limit)
    return float(said_to_truth(truth, others).p[kept].sum())


def items_of(case: Case) -> Items:
    """What is given."""
    return tuple(case.said.get("given", ()))
