"""Requests made up from the OpenAPI document, valid and invalid: every answer is one that the document describes, and none is a 5xx."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis: pip install 'ndpp[dev]'")

from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi import checks  # noqa: E402

from ndpp.serve.limits import RESULTS, SAMPLES  # noqa: E402

EXAMPLES = int(os.environ.get("NDPP_API_EXAMPLES", "20"))
"""Requests for each operation; a few thousand in all take minutes."""


@pytest.fixture
def operations(api, server, mode) -> list[Any]:
    """The operations of the document; for valid requests narrowed, so that they get further than the first check."""
    document = api.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(narrowed(document) if mode is GenerationMode.POSITIVE else document)
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


CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_answers_are_as_described(operations, mode):
    asked = 0
    for operation in operations:
        takes_nothing = operation.path in ("/api/model", "/api/map", "/health", "/ready", "/metrics")
        if takes_nothing and mode is GenerationMode.NEGATIVE:
            continue

        @settings(max_examples=1 if takes_nothing else EXAMPLES, deadline=None, derandomize=True, database=None,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate(checks=CHECKS)

        check()
    assert asked > 5 * EXAMPLES


def test_the_document_is_narrowed():
    assert narrowed({"a": [{"description": "position in the catalogue", "maximum": 5}], "n": {"maximum": SAMPLES}}) == {
        "a": [{"description": "position in the catalogue", "maximum": 17}],
        "n": {"maximum": 20},
    }
