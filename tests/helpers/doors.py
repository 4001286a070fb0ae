"""The doors of a model (the library, ``ndpp.answers``, the command, the service and its batches), and what can be said at each of them.

``CONDITIONS`` × ``QUESTIONS`` is the whole table: how each condition is spelled at each door, and how each question is asked there. All
doors give the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import ndpp
from ndpp import answers
from ndpp.baskets.orders import Orders
from ndpp.cli.app import run
from ndpp.customers import Habits
from ndpp.datasets import shelf_kernel
from servers import post, trips

BASKET = ["bread", "jam"]
NAMES = {label: f"Fine {label}" for label in shelf_kernel().labels or () if label != "tea"}
"""What people call items, in the table that is part of the file of the model "named"; one item has no name."""
PICTURES = {
    label: f"https://shop.example/{label.replace(' ', '-')}.png" for label in ("bread", "tea", "pasta", "tomato sauce")
}
"""The pictures of some, in the same table."""
TOLD = ("names", "pictures")
"""What answers tell of items beside their labels."""
CATEGORY_OF = {label: label[0] for label in shelf_kernel().labels or ()} | {"oat drink": "o"}
"""Categories by label, one of them of an item that no model knows."""
HISTORY = [["tea", "jam"], ["tea", "rice"], ["tea", "jam", "butter"]]
BOOST = {"tea": 3.0, "jam": 0.5, "rice": 0.0, "butter": 0.0}
SOLD_OUT = {"bread": 0.0, "rice": 0.0}
"""Items that are out of stock, one of them in every basket."""


# ---- models ---------------------------------------------------------------------------------------------------------


def families() -> ndpp.FamilyMixture:
    """Four families of three variants each, in three missions."""
    rng, members, states = np.random.default_rng(0), np.arange(12) // 3, np.repeat(np.arange(4), 2)
    X, state_odds = rng.normal(size=(4, 2)), rng.gamma(1.0, 0.05, size=(3, 8))
    return ndpp.FamilyMixture(
        state_odds, np.tile([0.3, 4.0], (12, 1)), members, states, X, [[0.0, 1.0], [-1.0, 0.0]],
        weights=[0.5, 0.3, 0.2], labels=shelf_kernel().labels, names=["one", "two", "three"],
    )  # fmt: skip


def at_hours(law: Any) -> Any:
    """The mixture with another mission in the morning."""
    shifts = np.log(np.linspace(4.0, 0.25, len(law.weights)))
    return law.with_context({"hour": ("8", "20")}, [shifts, -shifts])


LAWS: dict[str, Callable[[], Any]] = {
    "kernel": shelf_kernel,
    "mixture": lambda: at_hours(trips()),
    "families": lambda: at_hours(families()),
    "average": lambda: at_hours(ndpp.Mixture.pooled([families(), trips()], [0.6, 0.4])),
}


def customers_of(law: Any) -> ndpp.Customers:
    """Return two customers: one who likes tea, and one who has bought once."""
    baskets = [["tea", "jam"], ["tea", "rice"], ["pesto"], ["tea", "jam", "butter"]]
    orders = Orders(ndpp.Baskets.from_lists(baskets, labels=law.labels), ["17", "17", "ann", "17"])
    return ndpp.Customers(law, Habits(mission_prior=2.0)).update(orders)


def write_tables(folder: Path) -> None:
    """Write what commands and servers read."""
    rows = "".join(f"{item},{kind},{len(item)}.5\n" for item, kind in CATEGORY_OF.items())
    (folder / "products.csv").write_text(f"item,category,price\n{rows}")
    rows = "".join(
        f"{item},{NAMES.get(item, '')},{kind},{len(item)}.5,{PICTURES.get(item, '')}\n"
        for item, kind in CATEGORY_OF.items()
    )
    (folder / "named.csv").write_text(f"item,name,category,price,picture\n{rows}")
    (folder / "categories.csv").write_text(
        "item,category\n" + "".join(f"{item},{name}\n" for item, name in CATEGORY_OF.items())
    )
    for name, factors in {"boost": BOOST, "sold_out": SOLD_OUT}.items():
        rows = "".join(f"{item},{factor}\n" for item, factor in factors.items())
        (folder / f"{name}.csv").write_text(f"item,factor\n{rows}")
    (folder / "history.txt").write_text("".join(",".join(items) + "\n" for items in HISTORY))


# ---- answers --------------------------------------------------------------------------------------------------------


def close(found: Any, expected: Any) -> None:
    """Assert that two answers agree: words and order exactly, numbers up to rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            close(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            close(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert found == expected


def told(record: answers.Record) -> Any:
    """Return a record as a reader of its JSON sees it."""
    return json.loads(record.to_json())


@dataclass(frozen=True)
class Asked:
    """One model, to be asked at every door."""

    name: str
    law: Any
    path: Path
    url: str
    capsys: pytest.CaptureFixture[str]

    @property
    def customers_file(self) -> Path:
        return self.path.with_suffix(".customers")

    @cached_property
    def prepared(self) -> answers.Prepared:
        """The model as the server has it: with a table of the items, of its file if that has one, and customers."""
        about = ndpp.load_metadata(self.path)
        table = None if about else answers.ItemTable.read(self.path.parent / "products.csv", self.law)
        return answers.Prepared(self.law, table, customers=self.customers, metadata=about)

    @cached_property
    def customers(self) -> ndpp.Customers:
        return ndpp.Customers.load(self.customers_file, self.law)

    def command(self, name: str, *words: Any) -> Any:
        """Return what the command prints."""
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run([name, str(self.path), *map(str, words), "--json"])
        out, err = self.capsys.readouterr()
        assert not ended.value.code, err
        return json.loads(out)

    def post(self, name: str, **body: Any) -> Any:
        """Return what the service answers."""
        return post(f"{self.url}/api/{name}", json=body).raise_for_status().json()


# ---- conditions -----------------------------------------------------------------------------------------------------


class Condition(NamedTuple):
    """What is said: in Python, as words of a command, and in the body of a request. ``{folder}`` and ``{customers}`` are files."""

    name: str
    kinds: str
    """The questions that it goes with: of [l]ists, [r]easons, [d]raws, the best [s]et, and [p]robabilities."""
    python: Mapping[str, Any]
    words: Sequence[Any]
    body: Mapping[str, Any] | None = None
    """None: as in Python."""
    library: Mapping[str, Any] | None = None
    """What laws take, or a function of the model that returns it; None: as in ``answers``."""
    batch: Mapping[str, Any] | None = None
    also: tuple[str, ...] = ()
    """Items that are in the basket, too."""
    only_mixtures: bool = False
    not_at: tuple[str, ...] = ()
    """Doors that have nothing like it: ids of unknown items are nothing to skip."""

    def __str__(self) -> str:
        return self.name


ONLY, NEVER = ["tea", "coffee", "rice", "butter", "pasta"], ["rice"]
LIMITED, AT_LEAST = ["b<=2", "price<=25"], ["b=1..2", "price<=25"]
LIMITS = [
    ndpp.Limit([item for item, name in CATEGORY_OF.items() if name == "b" and item != "oat drink"], most=2),
    ndpp.Limit({item: len(item) + 0.5 for item in shelf_kernel().labels or ()}, most=25),
]
CUSTOMERS = ("--customers", "{customers}")
CONDITIONS = (
    Condition("nothing", "lrdsp", {}, ()),
    Condition("candidates", "lds", {"candidates": ONLY}, ("--only", ",".join(ONLY))),
    Condition("exclude", "lds", {"exclude": NEVER}, ("--exclude", NEVER[0])),
    Condition("limits", "lds", {"limits": LIMITED}, ("--table", "{folder}/products.csv", *(w for one in LIMITED for w in ("--limit", one))),
              library={"limits": LIMITS}),
    Condition("least", "d", {"limits": AT_LEAST}, ("--table", "{folder}/products.csv", *(w for one in AT_LEAST for w in ("--limit", one))),
              library={"limits": [replace(LIMITS[0], least=1), LIMITS[1]]}),
    Condition("boost", "lrds", {"boost": BOOST}, ("--boost", "{folder}/boost.csv"),
              {"boost": {"tea": 3, "jam": 0.5}, "out_of_stock": ["rice", "butter"]}),
    Condition("sold out", "lrds", {"boost": SOLD_OUT}, ("--boost", "{folder}/sold_out.csv"), {"out_of_stock": [*SOLD_OUT]}),
    Condition("context", "lrdsp", {"context": {"hour": "8"}}, ("--at", "hour=8"), only_mixtures=True),
    Condition("mission", "lrdsp", {"mission": "{mission}"}, ("--mission", "{mission}"), only_mixtures=True),
    Condition("customer", "lds", {"customer": "17"}, (*CUSTOMERS, "--customer", 17), {"customer": 17}, batch={"customers": [17]},
              library={"customer": lambda model: model.customers["17"]}),
    Condition("history", "ld", {"history": HISTORY}, (*CUSTOMERS, "--history", "{folder}/history.txt"),
              library={"customer": lambda model: model.customers.person(history=HISTORY)}, not_at=("batch",)),
    Condition("size", "d", {"size": 4}, ("--size", 4)),
    Condition("unknown", "lrdp", {"unknown": "skip"}, ("--unknown", "skip"), also=("oat drink",), not_at=("library",)),
    Condition("damping", "l", {"damping": 0.5}, ("--damping", 0.5)),
    Condition("support", "l", {"support": 0.2}, ("--support", 0.2)),
    Condition("staples", "l", {"staples": True}, ("--staples",)),
)  # fmt: skip
BY_ITEM_NAME = Condition("names", "lrdp", {}, (), also=(NAMES["coffee"].upper(),), not_at=("library",))
"""What is said of the model "named": an item by its name."""
BY_NAME = {condition.name: condition for condition in CONDITIONS}


# ---- questions ------------------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """How a question is asked at each door, and how its answers are read: each as a part of what the first door says."""

    name: str
    kind: str
    answers: Callable[[Any, list[str], dict[str, Any]], dict[str, Any]] | None = None
    library: Callable[[Any, list[str], dict[str, Any]], dict[str, Any]] | None = None
    command: tuple[Any, ...] | None = None
    read: Callable[[Any], dict[str, Any]] = dict
    service: tuple[str, dict[str, Any]] | None = None
    batch: dict[str, Any] | None = None
    has_basket: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def doors(self) -> list[str]:
        """The doors at which it is asked; the first one has the whole answer."""
        return [
            door for door in ("answers", "library", "command", "service", "batch") if getattr(self, door) is not None
        ]


def of_list(ranking: str | None, why: bool) -> Question:
    order = {} if ranking is None else {"ranking": ranking}
    asked = {"n": 6, **order}

    def by_answers(model: Any, basket: list[str], said: dict[str, Any]) -> dict[str, Any]:
        found = told(answers.recommend(model, basket, why=why, **asked, **said))
        rows = found["items"]
        return found | {"best": [row["item"] for row in rows], "scores": [row["score"] for row in rows]}

    def by_library(law: Any, basket: list[str], said: dict[str, Any]) -> dict[str, Any]:
        found = law.recommend(basket, **{"staples": False, **asked, **said})
        return {"best": list(found.labels), "scores": found.scores.tolist()}

    def read(printed: Any) -> dict[str, Any]:
        shared = {name: printed[name] for name in ("ranking", "meaning", *TOLD) if name in printed}
        return shared | {"items": printed["recommendations"][0]}

    words = ("recommend", "-n", 6, *(("--ranking", ranking) if ranking else ()), *(("--why",) if why else ()))
    name = f"recommend by {ranking}" if ranking else "recommend and say why" if why else "recommend"
    batch = None if why else {"task": "recommend", **asked}
    return Question(name, "l", by_answers, by_library, words, read, ("recommend", {"why": why, **asked}), batch)


def of_reason(ranking: str) -> Question:
    """Why one item is recommended; the command explains what it lists."""

    def by_answers(model: Any, basket: list[str], said: dict[str, Any]) -> dict[str, Any]:
        found = told(answers.why(model, basket, "tea", ranking=ranking, **said))
        return found | {"reason": {key: value for key, value in found.items() if key not in ("skipped", *TOLD)}}

    words = ("recommend", "--only", "tea", "--why", "--ranking", ranking, "--support", 0)
    asked = {"item": "tea", "ranking": ranking}

    def read(printed: Any) -> dict[str, Any]:
        return {"reason": printed["recommendations"][0][0], **{name: printed[name] for name in TOLD if name in printed}}

    return Question(f"why by {ranking}", "r", by_answers, None, words, read, ("why", asked))


def of_draws(name: str, has_basket: bool) -> Question:
    asked = {"n": 4, "seed": 5}

    def by_answers(model: Any, basket: list[str], said: dict[str, Any]) -> dict[str, Any]:
        found = told(answers.complete(model, basket, **asked, **said))
        return found | {"sets": [sorted(one["items"]) for one in found["baskets"]]}

    def by_library(law: Any, basket: list[str], said: dict[str, Any]) -> dict[str, Any]:
        drawn = law.sample(4, given=basket, rng=5, **said)
        return {"sets": [sorted(law.labels[a] for a in one) for one in drawn]}

    def read(printed: Any) -> dict[str, Any]:
        return {"sets": [sorted(basket) for basket in printed["baskets"]]}

    return Question(
        name, "d", by_answers, by_library, (name, "-n", 4, "--seed", 5), read, (name, asked), None, has_basket
    )


def best_set(law: Any, basket: list[str], said: dict[str, Any]) -> dict[str, Any]:
    return {"order": [law.labels[a] for a in ndpp.greedy_map(law, 4, given=basket, **said)]}


def probability(model: Any, basket: list[str], said: dict[str, Any]) -> dict[str, Any]:
    return told(answers.probability(model, basket, **said))


QUESTIONS = (
    of_list(None, True),
    *(of_list(ranking.value, False) for ranking in ndpp.Ranking),
    *(of_reason(ranking.value) for ranking in ndpp.Ranking),
    of_draws("complete", True),
    of_draws("sample", False),
    Question("map", "s", None, best_set, ("map", "--size", 4), lambda printed: {"order": printed["baskets"][0]}),
    Question("probability", "p", probability, service=("probability", {}), batch={"task": "probability"}),
)


def ask(model: Asked, door: str, question: Question, conditions: Sequence[Condition]) -> dict[str, Any]:
    """What a door answers."""
    basket = [*(["bread"] if question.kind == "d" else BASKET)] if question.has_basket else []
    basket += [item for one in conditions for item in one.also]
    places = {
        "folder": model.path.parent, "customers": model.customers_file, "mission": (model.law.names or ("",))[0],
    }  # fmt: skip

    def filled(value: Any) -> Any:
        return value.format(**places) if isinstance(value, str) else value(model) if callable(value) else value

    said: dict[str, Any] = {}
    for one in conditions:
        chosen = one.python
        if door == "library" and one.library is not None:
            chosen = one.library
        elif door in ("service", "batch"):
            chosen = (
                one.batch if door == "batch" and one.batch is not None else one.python if one.body is None else one.body
            )
        said |= {key: filled(value) for key, value in chosen.items()}
    if door in ("answers", "library"):
        function = getattr(question, door)
        assert function is not None
        return dict(function(model.prepared if door == "answers" else model.law, basket, said))
    if door == "command":
        assert question.command is not None
        given = ["--given", ",".join(basket)] if basket else []
        words = [filled(word) for one in conditions for word in one.words]
        return question.read(model.command(question.command[0], *given, *question.command[1:], *words))
    if door == "service":
        assert question.service is not None
        path, asked = question.service
        answer = post(f"{model.url}/api/{path}", json={**asked, **({"basket": basket} if basket else {}), **said})
    else:
        answer = post(f"{model.url}/api/batch", json={**(question.batch or {}), "baskets": [basket], **said})
    assert answer.status_code == 200, answer.text
    return {key: value for key, value in answer.json().items() if key != "index"}
