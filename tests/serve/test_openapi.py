"""Requests made up from the OpenAPI document, valid and invalid: every answer is one that the document describes, and none is a 5xx."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis: pip install 'ndpp[dev]'")

from schemathesis import checks  # noqa: E402

EXAMPLES = int(os.environ.get("NDPP_API_EXAMPLES", "20"))
"""Requests for each operation; a few thousand in all take minutes."""


@pytest.fixture(scope="module")
def document(api, server) -> Any:
    """The document, with ids that exist, so that requests get further than the first check."""
    found = narrowed(api.get("/openapi.json").json())
    schema = schemathesis.openapi.from_dict(found)
    schema.config.update(base_url=server.url)
    schema.config.phases.update(phases=["examples", "fuzzing"])
    return schema


def narrowed(part: Any) -> Any:
    """Return a document in which ids are those of the catalogue."""
    if isinstance(part, list):
        return [narrowed(one) for one in part]
    if not isinstance(part, dict):
        return part
    made = {name: narrowed(value) for name, value in part.items()}
    return made | {"maximum": 17} if made.get("description") == "position in the catalogue" else made


schema = schemathesis.pytest.from_fixture("document")
CHECKS = [
    checks.not_a_server_error,
    schemathesis.specs.openapi.checks.status_code_conformance,
    schemathesis.specs.openapi.checks.content_type_conformance,
    schemathesis.specs.openapi.checks.response_schema_conformance,
    schemathesis.specs.openapi.checks.negative_data_rejection,
]


@schema.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
def test_answers_are_as_described(case):
    case.call_and_validate(checks=CHECKS)


def test_ids_of_the_document_are_found():
    assert narrowed({"a": [{"description": "position in the catalogue", "maximum": 5}]}) == {
        "a": [{"description": "position in the catalogue", "maximum": 17}]
    }
