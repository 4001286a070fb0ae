"""The commands, assembled into one application."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from itertools import pairwise
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand

import ndpp
from ndpp.cli.guard import ARGUMENTS, DEBUG, end_with, guarded, install, reader_left
from ndpp.cli.options import flattened
from ndpp.cli.output import SAFE
from ndpp.errors import NDPPError

GROUP = "ndpp.commands"
"""The entry points by which other distributions add commands."""
EXPERIMENTS = ("demo", "reproduce", "bench")
"""Commands of the distribution ``ndpp-experiments``, which users are told to install where it is not."""


PANELS: dict[str, dict[str, str]] = {
    "Models": {
        "try": "trial.try_", "fit": "fit.fit", "update": "update.update", "info": "info.info", "related": "recommend.related",
        "report": "report.report", "evaluate": "evaluate.evaluate", "diagnose": "evaluate.diagnose", "items": "items.items",
        "prepare": "serve.prepare",
    },
    "Customers": {f"customers {name}": f"customers.customers_{name}" for name in ("fit", "update", "forget", "info")},
    "Baskets": {
        "sample": "draw.sample", "complete": "draw.complete", "recommend": "recommend.recommend", "map": "recommend.map_",
        "serve": "serve.serve",
    },
    "Experiments": {},
}  # fmt: skip
"""Where each command is, by panel of the help page and by name; "customers fit" is a command of the group "customers".

Experiments are those of other distributions.
"""
OWN = {name.split()[0] for panel in PANELS.values() for name in panel}
COMPLETING = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")
"""Environment variables in which shells pass the words of a command that is to be completed."""
NO_ARGUMENTS = ("demo", "bench")
"""Commands that run without any argument; the others show their help instead."""


def commands(first: str = "") -> dict[str, dict[str, Callable[..., None]]]:
    """Return the commands that begin with this word, or all, by panel and name. Only modules of these are imported."""
    found: dict[str, dict[str, Callable[..., None]]] = {panel: {} for panel in PANELS}
    for panel, places in PANELS.items():
        for name, place in places.items():
            if first in ("", name.split()[0]):
                module, function = place.split(".")
                found[panel][name] = getattr(import_module(f"ndpp.cli.{module}"), function)
    for entry in entry_points(group=GROUP) if first not in OWN else ():
        with suppress(ImportError):
            found["Experiments"][entry.name] = entry.load()
    return found


TOGETHER = {"basket": "columns that name a basket together are written with commas, such as --basket customer,date"}
"""What to do instead of giving an option several times."""


class Once(TyperCommand):
    """A command that refuses an option given twice, of which the last would count, and a value for one that takes none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words, checked."""
        if args and not ctx.resilient_parsing:
            end = args.index("--") if "--" in args else len(args)
            switches = {
                name
                for one in self.params
                if getattr(one, "is_flag", False)
                for name in (*one.opts, *one.secondary_opts)
            }
            for switch, word in pairwise(args[:end]):
                if switch in switches and word.lower() in ("true", "false"):
                    advice = f"write {switch} alone" if word.lower() == "true" else "leave it out"
                    raise typer.BadParameter(f"{switch} takes no value; {advice}, without {word!r}")
            _, _, order = self.make_parser(ctx).parse_args(list(args))
            for one in order:
                takes_one = one.param_type_name == "option" and not getattr(one, "is_flag", False) and not one.multiple
                if takes_one and (times := order.count(one)) > 1:
                    advice = TOGETHER.get(one.name, "it takes one value")
                    raise typer.BadParameter(f"{one.opts[0]} is given {times} times; {advice}")
        return super().parse_args(ctx, args)


def help_of(command: Callable[..., None]) -> str:
    """Return the docstring of a command with each paragraph on one line, except paragraphs that start with a backspace."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(text if text.startswith("\b") else " ".join(text.split()) for text in paragraphs)


def missing(name: str) -> Callable[[], None]:
    """Return a command that says what to install for the command of this name."""

    def command() -> None:
        wanted = f"ndpp-experiments=={ndpp.__version__}"
        raise NDPPError(f"'ndpp {name}' needs the package ndpp-experiments", advice=f"Run: pip install {wanted}")

    return command


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ndpp {ndpp.__version__}")
        raise typer.Exit


def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure; allowed anywhere.")] = False,
    safe: Annotated[
        bool, typer.Option("--safe", help="In CSV, put ' before names that spreadsheets take for formulas; anywhere.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Nonsymmetric determinantal point processes: fit models to baskets, draw from them, query them."""
    DEBUG.set(debug)
    SAFE.set(safe)


def application(first: str = "") -> typer.Typer:
    """Return the application with the commands that begin with this word, or with all."""
    settings: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": "rich"}
    epilog = "[bold]ndpp COMMAND --help[/] shows examples. Exit codes: 0 success, 1 failure, 2 wrong usage, 130 or 143 interrupted."
    app = typer.Typer(
        name="ndpp", epilog=epilog, pretty_exceptions_enable=False, **settings,
        context_settings={"help_option_names": ["--help", "-h"]},
    )  # fmt: skip
    people = typer.Typer(help="What is known of each customer, in a file of its own.", **settings)
    app.callback()(root)
    panels = commands(first)
    for panel, own in panels.items():
        for name, command in own.items():
            needs, group = name not in NO_ARGUMENTS, people if " " in name else app
            made = group.command(
                name.split()[-1], cls=Once, help=help_of(command), rich_help_panel=panel, no_args_is_help=needs
            )
            made(guarded(flattened(command)))
    for name in set(EXPERIMENTS) - set(panels["Experiments"]) if not first else ():
        anything = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command(name, hidden=True, add_help_option=False, context_settings=anything)(guarded(missing(name)))
    if panels["Customers"]:
        app.add_typer(people, name="customers", rich_help_panel="Customers")
    return app


@cache
def parser(first: str = "") -> Callable[..., Any]:
    """Return what parses the words and calls a command that begins with this one; typer takes a while to derive it from annotations."""
    group: Any = typer.main.get_command(application(first))
    own = list(group.commands.values())
    own += [one for each in own for one in getattr(each, "commands", {}).values()]
    for command in (group, *own):
        for param in command.get_params(typer.Context(command, **group.context_settings)):
            if getattr(param, "is_flag", False):
                param.metavar = ""  # a flag takes no value whose type could be shown
    return cast(Callable[..., Any], group)


def run(arguments: Sequence[str]) -> None:
    """Run the command with these arguments."""
    install()
    ARGUMENTS.set(words := list(arguments))
    end = words.index("--") if "--" in words else len(words)
    for anywhere in ("--debug", "--safe"):
        if anywhere in words[:end]:
            words.remove(anywhere)
            words.insert(0, anywhere)
    typed = words or next((os.environ[name].split()[1:] for name in COMPLETING if name in os.environ), [])
    first = next((word for word in typed if not word.startswith("-")), "")
    try:  # commands are guarded, but help pages are written outside of them
        parser(first if first in OWN else "")(words, prog_name="ndpp")
    except SystemExit as leaving:
        if leaving.__context__ is not None and reader_left(leaving.__context__):
            end_with(leaving.__context__)
        raise
    except OSError as error:
        end_with(error)
