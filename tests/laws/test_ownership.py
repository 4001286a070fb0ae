"""Nobody can write into a law: what it returns is read-only or a copy, and what it was given may change afterwards.

All arrays that public methods and properties of a law return are written into. A new method says in :func:`questions` how to call it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import oracles
from law_table import BASES, KINDS, Base, Kind
from ndpp import Baskets, Limit
from ndpp.errors import NDPPError
from ndpp.laws.law import Law

GENERIC = BASES[0]
CONSTRUCTORS = {
    "of",
    "required",
    "from_stored",
    "from_dense",
    "from_features",
    "from_marginal",
    "from_vbd",
    "pooled",
    "tied",
}
PARTS = {
    "averaging", "by_item", "catalogue_ids", "coordinates", "drawn_from", "families_of", "form", "framed", "free_law", "known_rows",
    "laws", "log_rows", "marginal_form", "masses", "members", "memory", "nested", "q_blocks", "q_map", "q_rows", "q_times",
    "row_noise", "sampler", "scaled", "shares", "size_moments", "sums", "tilted", "tilted_for", "tilted_odds", "tilts", "touched",
    "touched_rows", "with_features", "within_rows", "without_background", "x_blocks",
}  # fmt: skip
"""What laws compute with, and not what they answer."""
SINGLE_KERNELS = {"at", "component", "with_context", "weights_at"}
CHANGES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda law: law,
    "without empty": lambda law: law.without_empty(),
    "conditioned": lambda law: law.condition([5]),
    "tilted": lambda law: law.without_empty().tilt({0: 2.0}),
    "given": lambda law: law.under(law.ask(given=[5], limits=Limit([0, 1, 2], most=2))),
}
MAY_REFUSE = dict.fromkeys(CHANGES, 0) | {"conditioned": 1, "given": 12}


def questions(law: Any) -> dict[str, dict[str, Any]]:
    """Arguments of the methods that need some."""
    n, first, two, sets = law.n_items, np.array([0]), np.array([0, 1]), [np.array([0]), np.array([1, 2])]
    limit = Limit(np.linspace(1.0, 2.0, n), least=1, most=5)
    missions = {"mission": [0, 1]} if len(law.weights) > 1 else {}
    with_sets, of_two = {"baskets": sets}, {"items": two}
    return {
        "add_items": {"like": {"new": first}}, "ask": {"given": first, "exclude": np.array([2])}, "at": {"hour": 8},
        "can_occur": {"ids": two}, "chances_alone": {"items": np.array([3, 4])}, "check_size": {"size": 2}, "component": {"which": 0},
        "component_inclusions": {"items": np.array([3, 4])}, "component_log_probs": with_sets, "condition": {"items": np.array([1])},
        "entropy": {"n_samples": 20}, "exclude": {"items": np.array([2])},
        "given_alone": {"items": first}, "ids": {"labels": list(law.labels[:2])}, "inclusion_estimates": {"limits": limit},
        "inclusion_probabilities": {"given": first}, "is_possible": {"rows": two}, "kl": {"other": law, "n_samples": 20},
        "largest_given": {"ids": first}, "largest_of_rows": {"rows": two, "c": 0}, "log_containment": of_two, "log_det": of_two,
        "log_dets": {"baskets": Baskets.from_lists(sets, n_items=n)}, "log_prob": of_two, "log_probs": with_sets, "marginal_kernel": of_two,
        "mean_covariances": {"first": two, "second": np.array([2, 3])}, "named": {"catalogue": law.catalogue}, "one_basket": {"ids": two},
        "only": {"components": np.array([0, 1])}, "pair_probabilities": of_two, "probability": {"limits": limit},
        "recommend": {"basket": first}, "remove": {"items": np.array([2])}, "rename": {"names": {law.labels[0]: "new"}},
        "rescale": {"expected_size": 1.5}, "responsibilities": of_two, "restrict": {"items": np.array([0, 1, 2])}, "rows_of": of_two,
        "sample": {"n_samples": 3, "rng": 0}, "single": {"c": 0}, "sizes_with": of_two, "tilt": {"factors": np.linspace(0.5, 2.0, n)},
        "tilt_to": {"shares": {0: 0.25}}, "under": {"ask": law.ask(given=first, **missions)}, "weights_at": {"context": {"hour": 8}},
        "with_context": {"levels": {"day": ("Mon", "Sun")}, "shifts": np.eye(2, len(law.weights))},
    }  # fmt: skip


def arrays(found: object) -> Iterator[np.ndarray]:
    """All arrays in lists, dicts and records. Laws among them are asked by themselves."""
    if isinstance(found, np.ndarray):
        yield found
    elif isinstance(found, Baskets):
        yield from arrays([found.indptr, found.indices, found.weights])
    elif isinstance(found, dict):
        yield from arrays(list(found.values()))
    elif isinstance(found, (list, tuple)):
        for one in found:
            yield from arrays(one)
    elif is_dataclass(found) and not isinstance(found, (Law, type)):
        yield from arrays([getattr(found, field.name) for field in fields(found)])


def spoil(found: object) -> None:
    """Write into all arrays, other numbers of the kind that belongs there."""
    for array in arrays(found):
        if array.flags.writeable:
            array[...] = array[::-1].copy() if array.dtype.kind in "iu" and len(array) > 1 else array == 0


def shown(found: Any) -> list[np.ndarray]:
    """What can be compared: copies of all arrays, and the probabilities of all sets under a law."""
    if not isinstance(found, Law):
        return [np.array(one) for one in arrays(found)]
    sets = oracles.subsets(found.n_items)
    asked = found.log_probs(sets), found.component_log_probs(sets), found.popularity, found.size_distribution()
    more = found.component_inclusions(), found.inclusion_probabilities(), found.max_size, found.weights
    sized = found.inclusion_probabilities(size=min(2, found.max_size))
    return [np.array(one) for one in (*asked, *more, sized, *found.sample(3, rng=1))]


def assert_same(found: list[np.ndarray], before: list[np.ndarray], what: str) -> None:
    assert len(found) == len(before), what
    for one, other in zip(found, before):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-300, err_msg=what)


def fresh(kind: Kind, change: str) -> Any:
    law = kind.build(GENERIC)
    if kind.is_mixture:
        law = law.with_context({"hour": ("8", "20")}, np.eye(2, len(law.weights)))
    return CHANGES[change](law)


def calls(law: Any) -> dict[str, Callable[..., Any]]:
    """All public methods of a law with their arguments, and all its public properties."""
    asked, found = questions(law), {}
    single = SINGLE_KERNELS if len(law.weights) == 1 else set()
    for name in dir(law):
        if name.startswith("_") or name in CONSTRUCTORS | PARTS | single:
            continue
        is_method = callable(getattr(type(law), name, None))
        found[name] = partial(getattr(law, name), **asked.get(name, {})) if is_method else partial(getattr, law, name)
    return found


TURNS = [(kind, change) for i, kind in enumerate(KINDS) for j, change in enumerate(CHANGES) if j == 0 or (i + j) % 2]


@pytest.mark.parametrize(("kind", "change"), TURNS, ids=str)
def test_what_a_law_returns_can_be_written_into(kind: Kind, change: str):
    law = fresh(kind, change)
    before = shown(fresh(kind, change))
    refused = []
    for name in calls(law):
        try:
            first = calls(law)[name]()
        except NDPPError:
            refused.append(name)
            continue
        kept = shown(first)
        spoil(first)
        assert_same(shown(calls(law)[name]()), kept, f"{name} of {kind}, {change}")
    assert len(refused) <= MAY_REFUSE[change], refused
    assert_same(shown(law), before, f"{kind}, {change}")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_a_law_was_asked_with_can_be_written_into(kind: Kind):
    law = fresh(kind, "plain")
    for name, call in calls(law).items():
        given = [copy.deepcopy(value) for value in call.keywords.values() if not isinstance(value, Law)]
        if any(True for _ in arrays(given)):
            before = shown(given)
            kept, found = shown(call()), partial(call.func, **dict(zip(call.keywords, given)))()
            assert_same(shown(given), before, f"{name} of {kind} wrote into its arguments")
            spoil(given)
            assert_same(shown(found), kept, f"{name} of {kind}")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_a_law_is_made_of_can_be_written_into(kind: Kind):
    """But for X, which is not copied."""
    given = {field.name: copy.deepcopy(getattr(GENERIC, field.name)) for field in fields(Base)}
    law = kind.build(replace(GENERIC, **given))
    spoil({name: value for name, value in given.items() if name != "X"})
    assert_same(shown(law), shown(kind.build(GENERIC)), str(kind))
