"""The page, and the description of the service for people, both made on the server from templates that come with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from fastapi import APIRouter, Request
from starlette.responses import FileResponse, HTMLResponse, Response

import ndpp
from ndpp.serve.choice import holder_of, place
from ndpp.serve.gate import POLICY
from ndpp.serve.model import NotReadyError

DESCRIPTION = """Ask a model about baskets: what goes next and why, whole exact completions, how likely a basket is, what goes with
what. Items are named by their labels (strings) or ids (integers). Every problem is an RFC 9457 document."""
HOSTS = 20
"""Most hosts of pictures that a header names one by one."""
PAGE = Path(str(files("ndpp.serve") / "page"))
router = APIRouter(include_in_schema=False)
TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(PAGE),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


@router.get("/")
async def page(request: Request) -> Response:
    """The page to explore the model."""
    holder = holder_of(request)
    try:
        name = holder.current.name
    except NotReadyError as error:  # the page asks until the model is there, and loads itself again once
        waiting = TEMPLATES.get_template("loading.html").render(reason=str(error), version=ndpp.__version__)
        return HTMLResponse(waiting, 503, {"retry-after": "1"})
    names = list(request.app.state.holders)
    others = [(one, f".{place(one)}" if "ndpp.model" not in request.scope else f"../..{place(one)}") for one in names]
    shown = {
        "name": name,
        "models": others if len(names) > 1 else [],
        "here": request.scope.get("ndpp.model", names[0]),
        "since": holder.settings.since and Path(holder.settings.since).stem,
    }
    table = holder.current.table
    hosts = [] if table is None else table.hosts if len(table.hosts) <= HOSTS else ["https:", "http:"]
    policy = {"content-security-policy": " ".join([POLICY, *hosts])}
    return HTMLResponse(TEMPLATES.get_template("page.html").render(shown, version=ndpp.__version__), headers=policy)


@router.get("/favicon.ico")
async def icon() -> FileResponse:
    """The icon, for documents that name none: browsers then ask here."""
    return FileResponse(PAGE / "icon.svg")


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The OpenAPI document for people."""
    found = request.app.openapi()
    operations = [
        operation(found, method, path, entry)
        for path, methods in found["paths"].items()
        for method, entry in methods.items()
    ]
    text = TEMPLATES.get_template("docs.html").render(
        info=found["info"], operations=operations, version=ndpp.__version__
    )
    return HTMLResponse(text)


def operation(document: dict[str, Any], method: str, path: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return what a person wants to know of an operation: its fields in and out."""
    content = entry.get("requestBody", {}).get("content", {}).get("application/json", {})
    answer = entry["responses"].get("200", {}).get("content", {}).get("application/json", {})
    fields = [_field(p["name"], p["schema"], p.get("description", "")) for p in entry.get("parameters", ())]
    return {
        "method": method.upper(),
        "path": path,
        "summary": entry.get("summary", ""),
        "text": entry.get("description", ""),
        "fields": fields + _fields(document, content.get("schema", {})),
        "answer": _fields(document, answer.get("schema", {})),
    }


def _fields(document: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    record = document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], {})
    return [_field(name, one, one.get("description", "")) for name, one in record.get("properties", {}).items()]


def _field(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "type": _type(schema), "default": schema.get("default", ""), "text": text}


def _type(schema: dict[str, Any]) -> str:
    """Return a type in a few words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("$ref", "").rpartition("/")[2] or schema.get("type", "any"))
