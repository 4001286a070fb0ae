"""Problem documents, RFC 9457: what went wrong, in the words of the library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ndpp._show import with_names
from ndpp.answers.conditions import CONDITIONS
from ndpp.answers.records import Explained, Record, Scored
from ndpp.errors import (
    BudgetExceededError,
    ImpossibleLimitError,
    ImpossibleSizeError,
    InvalidInputError,
    Names,
    NDPPError,
    PrecisionError,
    UnknownItemError,
    UnknownLabelError,
    ZeroProbabilityError,
)
from ndpp.serve.model import NotReadyError
from ndpp.serve.schemas import ModelAnswer, Problem
from ndpp.serve.work import BusyError, ClientGoneError, OutOfTimeError, StoppingError

MEDIA_TYPE = "application/problem+json"
CLIENT_GONE = 499
"""Status, in logs and metrics, of a request whose client did not wait for the answer."""
KINDS: dict[type[Exception], tuple[int, str, str]] = {
    UnknownLabelError: (422, "unknown-label", "Unknown label"),
    UnknownItemError: (422, "unknown-item", "Unknown item"),
    ImpossibleLimitError: (422, "impossible-limit", "Impossible limit"),
    ImpossibleSizeError: (422, "impossible-size", "Impossible size"),
    ZeroProbabilityError: (422, "zero-probability", "Probability zero"),
    InvalidInputError: (422, "invalid-input", "Invalid input"),
    PrecisionError: (422, "precision", "Double precision does not suffice"),
    BudgetExceededError: (503, "budget-exceeded", "Too much work"),
    NotReadyError: (503, "not-ready", "Not ready"),
    BusyError: (503, "busy", "Busy"),
    StoppingError: (503, "stopping", "Stopping"),
    OutOfTimeError: (503, "out-of-time", "Out of time"),
    ClientGoneError: (CLIENT_GONE, "client-gone", "Client gone"),
}
"""Status, name and title of each error that is answered with a document of its own, the most special first."""
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for status, text in {
        400: "The body is not JSON.",
        401: "The token is missing or wrong.",
        408: "The request came too slowly.",
        413: "The request is too large.",
        415: "The request does not say that its body is JSON.",
        422: "The request cannot be answered, and why.",
        503: "The model is not loaded yet, there are too many requests, one is too much work, or the server is stopping.",
    }.items()
}
"""What the OpenAPI document says about problems."""
ANSWERS = {kind.__name__ for kind in (*Record.__subclasses__(), Explained, ModelAnswer) if kind is not Scored}
"""Schemas of whole answers."""
ALTERNATIVES = ("constrained-int", "constrained-str")
"""What pydantic calls the two ways to name an item; no part of a request."""
FIELDS = ("label", "suggestions", "item", "n_items", "limits")
"""Fields of errors that a document repeats."""


class ApiNames(Names):
    """Arguments as the fields of a request, or as options of the server."""

    fields = {"items": "basket", "n_samples": "n", "old": "the model of --since"} | {
        one.name: one.fields[0] for one in CONDITIONS
    }
    phrases = {name: f"`ndpp serve --{name} FILE`" for name in ("table", "customers")} | {
        "background": "another model: a kernel of a larger rank, or a mixture"
    }

    def argument(self, argument: str) -> str:
        """Return the name of the field."""
        return self.fields.get(argument, argument)

    def setting(self, argument: str, value: str) -> str:
        """Return the field with its value."""
        return self.phrases.get(argument) or f'"{self.argument(argument)}": {value or "…"}'


def document(status: int, kind: str, title: str, detail: str, **fields: object) -> dict[str, Any]:
    """Return a problem document."""
    found = {"type": f"urn:ndpp:problem:{kind}", "title": title, "status": status, "detail": detail, **fields}
    return dict(with_names(found))


def reply(problem: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Return a problem document as an answer."""
    body = json.dumps(problem, ensure_ascii=False, allow_nan=False)
    more = {"retry-after": "1"} if problem["status"] == 503 else {}
    return Response(body.encode("utf-8", "replace"), problem["status"], {**more, **(headers or {})}, MEDIA_TYPE)


def of(error: BaseException) -> dict[str, Any] | None:
    """Return the document of an error that is no surprise; None for any other."""
    kind = next((kind for cls, kind in KINDS.items() if isinstance(error, cls)), None)
    if kind is None:
        return None
    text = error.text(ApiNames()) if isinstance(error, NDPPError) else str(error)
    return document(*kind, text, **{name: getattr(error, name) for name in FIELDS if hasattr(error, name)})


def of_status(status: int, detail: str = "") -> dict[str, Any]:
    """Return the document of a plain HTTP error, such as 404."""
    title = HTTPStatus(status).phrase
    return document(status, title.lower().replace(" ", "-"), title, detail or title)


def invalid(errors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the document of a request that is not what the OpenAPI document describes. ``errors`` are pydantic's."""
    malformed = any(error["type"] == "json_invalid" for error in errors)
    kind = (400, "malformed", "Malformed JSON") if malformed else (422, "invalid-request", "Invalid request")
    found: dict[str, list[str]] = {}
    for error in errors:
        pointer = "/" + "/".join(str(part) for part in error["loc"] if part not in ALTERNATIVES)
        found.setdefault(pointer, []).append(error["msg"])
    shown = [{"pointer": pointer, "detail": " or ".join(texts)} for pointer, texts in [*found.items()][:20]]
    detail = "; ".join(f"{one['pointer']}: {one['detail']}" for one in shown[:3])
    return document(*kind, detail, errors=shown)


async def answer(request: Request, error: Exception) -> Response:
    """Answer a request that ended in an error."""
    if isinstance(error, RequestValidationError):
        media_type = request.headers.get("content-type")
        is_json = (media_type or "").partition(";")[0].strip().lower().endswith(("/json", "+json"))
        of_body = any(one["loc"][0] == "body" for one in error.errors())
        if is_json or not of_body:
            return reply(invalid(error.errors()))
        came = "no content type" if media_type is None else f"content-type: {media_type}"
        wanted = "the body must be JSON, and the header must say so: content-type: application/json"
        return reply(of_status(415, f"{wanted}; got {came}"))
    if isinstance(error, HTTPException):
        return reply(of_status(error.status_code, str(error.detail)), error.headers)
    return reply(of(error) or of_status(500, "something went wrong inside the server; its log says what"))


def documented(openapi: dict[str, Any]) -> dict[str, Any]:
    """Add to an OpenAPI document the schema of problem documents, and names and pictures of the items that an answer is about."""
    schemas = openapi["components"]["schemas"]
    schemas["Problem"] = Problem.model_json_schema()
    told = {"names": "Names", "pictures": "Addresses of pictures, or paths below /pictures,"}
    for field, what in told.items():
        text = f"{what} of the items of the answer, by label; left out where there are none."
        kind = {"type": "object", "additionalProperties": {"type": "string"}, "description": text}
        for name in ANSWERS & schemas.keys():
            schemas[name]["properties"][field] = kind
    return openapi
