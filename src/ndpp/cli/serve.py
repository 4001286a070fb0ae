"""``ndpp serve``: a page and a service for one model."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from ndpp.cli import options as o
from ndpp.cli.files import load_model
from ndpp.errors import InvalidInputError, MissingExtraError, ModelFileError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    model: o.Model,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port; 0 for any that is free.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with a token that every request must carry.", show_default=False),
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", min=1, max=256, help="Processes.")] = 1,
    seconds: Annotated[float, typer.Option(metavar="S", min=0.1, help="Most seconds of work for one request.")] = 10.0,
) -> None:
    """Serve a model: a page to explore it, and an HTTP service to use it.

    The page is at the address that is logged, the description of the service at /docs below it. A replaced model file is loaded
    without a restart. Any address but the local ones needs a token.

    \b
    Examples:
      ndpp serve model.safetensors
      ndpp serve model.safetensors --host 0.0.0.0 --token-file token.txt --workers 4
    """
    try:
        from ndpp.serve.run import Settings, run
    except ImportError as missing:
        raise MissingExtraError(missing.name or "fastapi", "serve", "`ndpp serve`") from None
    if host not in LOOPBACK and token_file is None:
        raise InvalidInputError(f"anyone who reaches {host!r} could ask this server; name a token with --token-file")
    settings = Settings(str(model), host, port, None if token_file is None else str(token_file), workers, seconds)
    if callable(signal.getsignal(signal.SIGTERM)):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the server ends by itself, and says nothing that is not JSON
    try:
        run(settings)
    except ModelFileError:
        load_model(model)  # says so where a file of baskets was named
        raise
