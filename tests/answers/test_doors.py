"""Every question under every condition, asked in Python, by command and over HTTP: the same items, order, numbers and words."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

pytest.importorskip("httpx", reason="needs httpx: pip install 'ndpp[dev]'")

from doors import (
    BASKET,
    BY_ITEM_NAME,
    BY_NAME,
    CONDITIONS,
    LAWS,
    NAMES,
    PICTURES,
    QUESTIONS,
    Asked,
    Condition,
    Question,
    ask,
    close,
)
from ndpp import answers

PAIRS = tuple(
    pair
    for pair in combinations(["candidates", "exclude", "limits", "boost", "sold out", "context", "customer", "size"], 2)
    if pair != ("boost", "sold out")  # which are one argument
)
"""Conditions that go with each other; laws and questions take them in turn."""


def asked_of(model: Asked, question: Question) -> list[tuple[Condition, ...]]:
    """The conditions that a question goes with, and some pairs of them."""
    fitting = [one for one in CONDITIONS if question.kind in one.kinds and (question.has_basket or not one.also)]
    fitting = [one for one in fitting if model.name != "kernel" or not one.only_mixtures]
    turn = [*LAWS, "named"].index(model.name) + QUESTIONS.index(question)
    pairs = [tuple(BY_NAME[name] for name in names) for names in PAIRS[turn % 5 :: 5]]
    takes_names = model.name == "named" and question.has_basket and question.kind in BY_ITEM_NAME.kinds
    named = [(BY_ITEM_NAME,)] if takes_names else []
    return [*named, *((one,) for one in fitting), *(pair for pair in pairs if all(one in fitting for one in pair))]


def takes(door: str, said: tuple[Condition, ...]) -> bool:
    """Return whether a door takes what is said."""
    return not any(door in one.not_at for one in said)


def compare(model: Asked, question: Question, said: tuple[Condition, ...]) -> None:
    """Fail unless all doors that take what is said answer alike."""
    first, *others = [door for door in question.doors if takes(door, said)] or [""]
    if others:
        expected = ask(model, first, question, said)
        for door in others:
            found = ask(model, door, question, said)
            both = found.keys() & expected.keys()
            assert both, f"{door} and {first} have nothing in common"
            try:
                close({key: found[key] for key in both}, {key: expected[key] for key in both})
            except AssertionError as error:
                raise AssertionError(f"{door} does not answer as {first}: {error}") from None


@pytest.mark.parametrize("model", [*LAWS, "named"], indirect=True)
@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_all_doors_give_the_same_answer(model: Asked, question: Question):
    failures = []
    for said in asked_of(model, question):
        try:
            compare(model, question, said)
        except (AssertionError, Exception) as error:
            failures.append(f"{' and '.join(map(str, said))}: {error!r}"[:600])
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("model", ["mixture"], indirect=True)
@pytest.mark.parametrize("question", [question for question in QUESTIONS if question.service], ids=str)
def test_a_service_that_does_not_hear_a_condition_is_rejected(model: Asked, question: Question):
    expected = ask(model, "answers", question, (BY_NAME["boost" if question.kind == "d" else "context"],))
    found = ask(model, "service", question, (BY_NAME["nothing"],))
    with pytest.raises(AssertionError):
        close(found, {key: expected[key] for key in found})


@pytest.mark.parametrize("model", ["named"], indirect=True)
@pytest.mark.parametrize("question", [question for question in QUESTIONS if question.service], ids=str)
def test_a_model_beside_another_answers_as_alone(model: Asked, question: Question, two: str):
    beside, failures = replace(model, url=f"{two}/models/{model.name}"), []
    for said in asked_of(model, question):
        if takes("service", said) and not any(one.name in ("customer", "history") for one in said):  # of one model
            for door in {"service", "batch"} & {*question.doors} if takes("batch", said) else {"service"}:
                try:
                    close(ask(beside, door, question, said), ask(model, door, question, said))
                except AssertionError as error:
                    failures.append(f"{door}, {' and '.join(map(str, said))}: {error!r}"[:600])
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("model", ["named"], indirect=True)
@pytest.mark.parametrize("door", ["answers", "command", "service", "batch"])
def test_every_door_tells_the_names_of_items_and_is_asked_by_them(model: Asked, door: str):
    question = next(one for one in QUESTIONS if one.batch is not None and door in one.doors)
    found = ask(model, door, question, [BY_ITEM_NAME])
    listed = {one["item"] for one in found["items"]}
    assert not listed & {*BASKET, "coffee"}  # labels, of what is not in the basket
    assert found["names"].items() <= NAMES.items()
    assert listed - {"tea"} <= found["names"].keys()
    assert PICTURES.keys() & listed <= found["pictures"].keys()
    assert found["pictures"].items() <= PICTURES.items()
    by_label = answers.recommend(model.prepared, [*BASKET, "coffee"], n=6)
    assert [one["item"] for one in found["items"]] == [one.item for one in by_label.items]
