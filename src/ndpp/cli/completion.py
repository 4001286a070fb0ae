"""Shell completion of the items of a model, by their labels and names."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, cast

import typer

from ndpp._show import called
from ndpp.answers import ItemTable
from ndpp.answers.search import folded
from ndpp.errors import NDPPError
from ndpp.laws.files import load_header

OFFERED = 100
"""Most items that a shell is offered at a time."""


class Offered(str):
    """A word that is offered. typer drops others than those that start like the typed word, in its case and without the marks of bash."""

    __slots__ = ()

    def startswith(self, *_: object) -> bool:
        """Return True."""
        return True


def items(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the items of the model that start like this, each with help; errors stay silent."""
    typed, in_quotes = _typed()
    # While an option waits for its value, the arguments are not parsed yet: the model is among the words typed so far.
    for word in filter(None, [ctx.params.get("model"), *typed]):
        try:
            header = load_header(word)
        except (NDPPError, OSError):
            continue
        table = ItemTable.attached(header.metadata, cast(Any, header))
        labels = [label for label in (table or header).labels or () if f"{label}{called(label)}".isprintable()]
        found = list(islice(_starting(labels, incomplete), OFFERED))
        before, comma, last = incomplete.rpartition(",")
        if comma and not found:
            apart = ((text, help) for text, help in _starting(labels, last) if "," not in text)
            found = [(f"{before},{text}", help) for text, help in islice(apart, OFFERED)]
        if "COMP_WORDS" in os.environ and not in_quotes:  # bash, unlike other shells, inserts words as they are
            found = [(re.sub(r"[^\w@%+=:,./-]", r"\\\g<0>", text), help) for text, help in found]
        return [(Offered(text), help) for text, help in found]
    return []


def _starting(labels: Sequence[str], start: str) -> Iterator[tuple[str, str]]:
    """Yield the labels that start like this, with names as help, and the names that do, with labels as help.

    Shells drop what does not start like the typed word. A name of several items does not say which: their labels are offered.
    """
    names, wanted = Counter(folded(called(label)) for label in labels), folded(start)
    for label in labels:
        name = called(label)
        if label.startswith(start):
            yield label, "" if name == label else name
        elif name != label and folded(name).startswith(wanted):
            yield (name, label) if names[folded(name)] == 1 else (label, name)


def _typed() -> tuple[list[str], bool]:
    """Return the words that are typed so far, and whether the last one is in quotes that are still open."""
    text = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", ""))
    lexer, words = shlex.shlex(text, posix=True), list[str]()
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words.extend(lexer)
    except ValueError:
        return words, True
    return words, False
