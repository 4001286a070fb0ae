"""Requests made up from the OpenAPI document, valid and invalid: every answer is one that the document describes, and none is a 5xx."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ndpp.serve.limits import RESULTS, SAMPLES

EXAMPLES = int(os.environ.get("NDPP_API_EXAMPLES", "8"))
"""Requests for each operation; a few thousand in all take minutes."""


@pytest.fixture(scope="module")
def schemathesis() -> Any:
    """The package, imported where it is needed: that takes seconds, which other processes of the test run need not pay."""
    return pytest.importorskip("schemathesis", reason="needs schemathesis: pip install 'ndpp[dev]'")


@pytest.fixture
def operations(api, server, mode, schemathesis) -> list[Any]:
    """The operations of the document; for valid requests narrowed, so that they get further than the first check."""
    document = api.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(narrowed(document) if mode == "positive" else document)
    schema.config.update(base_url=server.url)
    return [found.ok() for found in schema.get_all_operations()]


def narrowed(part: Any) -> Any:
    """Return a document in which ids are those of the catalogue, and counts small: a busy machine may run out of time."""
    if isinstance(part, list):
        return [narrowed(one) for one in part]
    if not isinstance(part, dict):
        return part
    made = {name: narrowed(value) for name, value in part.items()}
    if made.get("description") == "position in the catalogue":
        return made | {"maximum": 17}
    return made | {"maximum": 20} if made.get("maximum") in (RESULTS, SAMPLES, 100) else made


@pytest.fixture
def wanted(schemathesis) -> list[Any]:
    """What is asked of every answer."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    return [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.negative_data_rejection,
    ]


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_answers_are_as_described(operations, mode, wanted, schemathesis):
    assert {"positive", "negative"} == {each.value for each in schemathesis.GenerationMode}
    asked = 0
    for operation in operations:
        takes_nothing = operation.path in (
            "/api/model",
            "/api/models",
            "/api/map",
            "/api/changes",
            "/health",
            "/ready",
            "/metrics",
        )
        if takes_nothing and mode == "negative":
            continue

        @settings(max_examples=1 if takes_nothing else EXAMPLES,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
        def check(case: Any) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate(checks=wanted)

        check()
    assert asked > 5 * EXAMPLES


def test_the_document_is_narrowed():
    assert narrowed({"a": [{"description": "position in the catalogue", "maximum": 5}], "n": {"maximum": SAMPLES}}) == {
        "a": [{"description": "position in the catalogue", "maximum": 17}],
        "n": {"maximum": 20},
    }
