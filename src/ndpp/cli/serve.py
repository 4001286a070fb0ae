"""``ndpp serve``: a page and a service for a model, or for several; ``ndpp prepare`` makes it start sooner."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

from ndpp.cli import options as o
from ndpp.cli.files import check_output, load_model
from ndpp.cli.guard import say
from ndpp.cli.output import working
from ndpp.errors import InvalidInputError, MissingExtraError, ModelFileError
from ndpp.laws.files import load_metadata, save

SINCE = "An earlier version of the model, or of the first of several: the page says what has changed since."
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def prepare(model: o.Model, output: o.ModelOutput) -> None:
    """Write a model with what its first answers would have to compute, so that a service answers as soon as it has read the file.

    The model is the same; a mixture of 400 missions of rank 128 grows by tables of its
    ties and items. The sizes of baskets take minutes, once.

    \b
    Examples:
      ndpp prepare model.safetensors -o served.safetensors
    """
    check_output(output, ".safetensors", inputs=(model,), kind="a model")
    law = load_model(model)
    with working("Preparing the components"):
        prepared = law.prepared()
    if prepared is law:
        raise InvalidInputError(
            "mixtures with shared ties, which ndpp fit learns, are prepared; this model needs nothing"
        )
    save(prepared, output, metadata=load_metadata(model))
    say(f"{str(output)!r} has {output.stat().st_size / 1e6:.0f} MB and is used like the model")


def serve(
    models: o.Models,
    host: Annotated[str, o.word("Address to listen at.", metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[int, o.word("Port; 0 for any that is free.", metavar="N", least=0, most=65535)] = 8000,
    token_file: Annotated[
        Path | None,
        o.word("File with a token that every request must carry.", metavar="FILE"),
    ] = None,
    workers: Annotated[int, o.word("Processes.", metavar="N", least=1, most=256)] = 1,
    seconds: Annotated[float, o.word("Time limit in seconds for one request.", metavar="S", least=0.1)] = 10.0,
    category_of: o.CategoryOf = None,
    table: o.ItemTable = None,
    boost: o.Boost = None,
    customers: Annotated[
        str | None, o.file("File of customers, for personal recommendations; with one model only.")
    ] = None,
    since: Annotated[Path | None, o.file(SINCE, kind="MODEL")] = None,
    pictures: Annotated[
        Path | None, o.file("Folder of the pictures that the table of the items names.", kind="FOLDER")
    ] = None,
) -> None:
    """Serve a model, or several: a page to explore it, and an HTTP service to use it.

    The page is at the address that is logged, the description of the service at /docs below it. A replaced model file, or
    table, is loaded without a restart. Any address but the local ones needs a token. Of several models, each is at /models/NAME/, and the
    page offers the choice.

    \b
    Examples:
      ndpp serve model.safetensors
      ndpp serve model.safetensors --category-of categories.csv --table products.csv
      ndpp serve model.safetensors --table products.csv --pictures photos
      ndpp serve model.safetensors --boost factors.csv --customers shop.customers
      ndpp serve shop.safetensors online.safetensors
      ndpp serve tonight.safetensors --since lastweek.safetensors
      ndpp serve model.safetensors --host 0.0.0.0 --token-file token.txt --workers 4
    """
    try:
        from ndpp.serve.model import Settings
        from ndpp.serve.run import run
    except ImportError as missing:
        raise MissingExtraError(missing.name or "fastapi", "serve", "`ndpp serve`") from None
    if host not in LOOPBACK and token_file is None:
        raise InvalidInputError(f"anyone who reaches {host!r} could ask this server; name a token with --token-file")
    settings = Settings(
        models[0], host, port, token_file, workers, seconds, category_of, table, boost, customers, more=models[1:],
        since=since, pictures=pictures,
    )  # fmt: skip
    if callable(signal.getsignal(signal.SIGTERM)):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the server ends by itself, and says nothing that is not JSON
    try:
        run(settings)
    except ModelFileError:
        for model in (*models, *([since] if since else [])):
            load_model(model)  # says so where a file of baskets was named
        raise
