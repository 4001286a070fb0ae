"""The commands, put together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

import ndpp
from ndpp.cli import draw, evaluate, fit, info, recommend, serve
from ndpp.cli import run as runs
from ndpp.cli.guard import DEBUG, end_with, guarded, install, reader_left

app = typer.Typer(
    name="ndpp",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="[bold]ndpp COMMAND --help[/] shows examples. Exit codes: 0 good, 1 failure, 2 wrong usage, 130 interrupted.",
)

COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Models": {"fit": fit.fit, "info": info.info, "evaluate": evaluate.evaluate, "diagnose": evaluate.diagnose},
    "Baskets": {
        "sample": draw.sample,
        "complete": draw.complete,
        "recommend": recommend.recommend,
        "map": recommend.map_,
        "serve": serve.serve,
    },
    "Experiments": {"demo": runs.demo, "reproduce": runs.reproduce, "bench": runs.bench},
}


def _help(command: Callable[..., None]) -> str:
    """Return the docstring with the lines of each paragraph joined, but for those that begin with a backspace."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(text if text.startswith("\b") else " ".join(text.split()) for text in paragraphs)


for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        alone = name in ("demo", "bench")  # these run without a single argument
        app.command(name, help=_help(command), rich_help_panel=panel, no_args_is_help=not alone)(guarded(command))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ndpp {ndpp.__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show where a failure came from. May stand anywhere.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Nonsymmetric determinantal point processes: fit models to baskets, draw from them, ask them things."""
    DEBUG.set(debug)


def run(arguments: Sequence[str]) -> None:
    """Run the command."""
    install()
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    if "--debug" in words[:end]:
        words.remove("--debug")
        words.insert(0, "--debug")
    try:  # commands are guarded; a page of help is written by none of them
        app(words, prog_name="ndpp")
    except SystemExit as leaving:
        if leaving.__context__ is not None and reader_left(leaving.__context__):
            end_with(leaving.__context__)
        raise
    except OSError as error:
        end_with(error)
