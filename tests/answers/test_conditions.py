"""The table of conditions: laws, commands, requests and the documentation have all of them, and call them so."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from ndpp import answers
from ndpp.answers.conditions import CONDITIONS, Said
from ndpp.datasets import shelf_kernel
from ndpp.laws.ask import Conditions

WITHOUT_SIZE = "recommend"


def test_laws_and_questions_take_them():
    names = {condition.name for condition in CONDITIONS}
    assert names == set(Conditions.__annotations__)
    assert names - {"given", "size"} | {"history", "unknown"} == set(Said.__annotations__)


def test_others_are_refused():
    with pytest.raises(TypeError, match="there is no condition 'exlude'"):
        answers.recommend(shelf_kernel(), ["bread"], exlude=["butter"])  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["recommend", "sample", "complete", "map"])
def test_commands_take_them(name: str):
    from ndpp.cli.app import application

    command = typer.main.get_command(application()).commands[name]  # type: ignore[attr-defined]
    taken = {option for parameter in command.params for option in parameter.opts}
    wanted = [one for one in CONDITIONS if name != WITHOUT_SIZE or one.name != "size"]
    assert {option for one in wanted for option in one.options} <= taken


@pytest.mark.parametrize("name", ["recommend", "complete"])
def test_requests_take_them(name: str):
    pytest.importorskip("fastapi", reason="needs fastapi: pip install 'ndpp[serve]'")
    from ndpp.serve import schemas

    taken = {"recommend": schemas.RecommendAsk, "complete": schemas.CompleteAsk}[name].model_fields
    wanted = [one for one in CONDITIONS if name != WITHOUT_SIZE or one.name != "size"]
    assert {field for one in wanted for field in one.fields} <= set(taken)


def test_the_documentation_lists_them():
    lines = Path(__file__).parents[2].joinpath("docs", "guide.md").read_text(encoding="utf-8").splitlines()
    for one in CONDITIONS:
        options, fields = (", ".join(f"`{word}`" for word in words) for words in (one.options, one.fields))
        assert f"| `{one.name}` | {one.meaning} | {options} | {fields} | {{doc}}`{one.page}` |" in lines
