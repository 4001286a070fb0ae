"""Several models in one server: /models/NAME/… is answered by one of them as /… is by the first."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ndpp.serve import problems
from ndpp.serve.model import Holder

PREFIX = "/models/"


def place(name: str) -> str:
    """Return the path of a model.

    Examples
    --------
    >>> place("fresh & dry")
    '/models/fresh%20%26%20dry/'
    """
    return f"{PREFIX}{quote(name, safe='')}/"


def holder_of(request: Request) -> Holder:
    """Return what holds the model that a request is about."""
    holders: dict[str, Holder] = request.app.state.holders
    return holders[request.scope.get("ndpp.model", next(iter(holders)))]


class ModelPath:
    """Takes the name of a model out of the path, and notes it."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, to that model."""
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            name, slash, rest = scope["path"].removeprefix(PREFIX).partition("/")
            if name not in self.names:
                known = ", ".join(map(repr, self.names))
                refused = problems.reply(
                    problems.of_status(404, f"there is no model {name[:100]!r}; this server has {known}")
                )
                await refused(scope, receive, send)
                return
            if not slash:  # relative, so that it does not depend on the Host header
                moved = Response(status_code=307, headers={"location": f"{quote(name, safe='')}/"})
                await moved(scope, receive, send)
                return
            scope.update({"ndpp.model": name, "path": f"/{rest}", "raw_path": quote(f"/{rest}").encode()})
        await self.app(scope, receive, send)
