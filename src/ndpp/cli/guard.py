"""How a command ends: a failure is one clear line on standard error, and an exit code."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, ParamSpec, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from ndpp._atomic import WINDOWS
from ndpp._show import printable
from ndpp.errors import Names, NDPPError

P = ParamSpec("P")
DEBUG = ContextVar("debug", default=False)
"""Whether failures show their traceback."""
ARGUMENTS: ContextVar[Sequence[str]] = ContextVar("arguments", default=())
"""The words of the command line."""
PRESSED = ContextVar("pressed", default=0)
"""The number of the signal that has interrupted the command, 0 if none has."""
FAILED = 1
ALIASES = {
    "format": "from",
    "candidates": "only",
    "n_samples": "number",
    "n_jobs": "jobs",
    "n_missions": "missions",
    "limits": "limit",
}
"""Names of options that differ from the argument they set."""
SWITCHES = {("as_labels", "True"): "--labels", ("as_labels", "False"): "--ids", ("resume", "True"): "--resume"}
"""Options without a value."""


class Options(Names):
    """Names arguments after the options of a command, where it has such an option."""

    def __init__(self, command: Callable[..., None]) -> None:
        self.known: set[Any] = set()
        for name, annotation in get_type_hints(command, include_extras=True).items():
            for option in get_args(annotation):
                if isinstance(option, OptionInfo):  # typer stores the first name of an annotated option as its default
                    self.known.update([option.default, *(option.param_decls or ()), "--" + name.replace("_", "-")])

    def argument(self, argument: str) -> str:
        """Return the name of the option."""
        option = "--" + ALIASES.get(argument, argument).replace("_", "-")
        return option if option in self.known else argument

    def setting(self, argument: str, value: str) -> str:
        """Return the option with its value."""
        shown = value.strip("'") or "…"
        return SWITCHES.get((argument, value)) or f"{self.argument(argument)} {shown}"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a message on what was saved."""


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` on Ctrl-C and on SIGTERM; a signal that is ignored, as under nohup, stays so."""
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    usual = {number: handler for number, handler in usual.items() if handler not in (signal.SIG_IGN, None)}
    for number in usual:
        signal.signal(number, _on_interrupt)
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def _on_interrupt(number: int, _: object) -> None:
    PRESSED.set(number)
    raise KeyboardInterrupt


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Return the command with every failure turned into one line and an exit code."""

    @functools.wraps(command)
    @_interruptible()
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except (typer.BadParameter, typer.Exit, typer.Abort):
            raise
        except BaseException as error:
            if DEBUG.get() and not isinstance(error, SystemExit):
                traceback.print_exc()
            # A library that is being imported may turn an interrupt into any other exception.
            known = isinstance(error, KeyboardInterrupt | SystemExit | NDPPError | OSError)
            end_with(KeyboardInterrupt() if PRESSED.get() and not known else error, Options(command))

    return run


def say(text: str) -> None:
    """Print a line on standard error if it is a terminal."""
    if sys.stderr.isatty():
        print(printable(text), file=sys.stderr)


def install() -> None:
    """Show each warning as one line, and make every item name printable: replaced on a terminal if need be, UTF-8 elsewhere.

    Piped output is the same on every system, so lines end in a line feed on Windows, too.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8", newline="\n")
    warnings.showwarning = _show
    warnings.simplefilter("default", UserWarning)


def _show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Show a warning as one line. Deprecations are for those who write programs; some libraries show them to everyone."""
    if not issubclass(category, DeprecationWarning):
        with contextlib.suppress(OSError):  # a reader that left does not end the work
            print(printable(f"ndpp: warning: {message}"), file=sys.stderr)


def end_with(error: BaseException, names: Names | None = None) -> NoReturn:
    """End the command with one line about the error, if it is a failure, and an exit code."""
    if isinstance(error, SystemExit):
        raise error
    interrupted = isinstance(error, KeyboardInterrupt)
    code = 0 if reader_left(error) else 128 + (PRESSED.get() or signal.SIGINT) if interrupted else FAILED
    if interrupted:
        print(f"\nndpp: interrupted{'; ' + str(error) if str(error) else ''}", file=sys.stderr)
    elif code == FAILED:
        print(f"ndpp: error: {message_of(error, names)}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # point stdout at /dev/null so that the final flush cannot fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(code)


def reader_left(error: BaseException | None) -> bool:
    """Return whether the reader of a pipe closed it, which is not a failure. Windows reports an invalid argument."""
    if WINDOWS and isinstance(error, OSError) and error.errno == errno.EINVAL and error.filename is None:
        return True
    return isinstance(error, BrokenPipeError)


def message_of(error: BaseException, names: Names | None = None) -> str:
    """Return the message of an error on one line, in the terms of the command."""
    if isinstance(error, NDPPError):
        text = error.text(names)
    elif isinstance(error, MemoryError):
        text = "not enough memory; request less at a time, or use a smaller model"
    elif isinstance(error, OSError):
        name = f"{str(error.filename)!r}: " if error.filename else "could not write the output: "
        text = name + error.strerror if error.strerror else str(error)
    else:
        text = f"{type(error).__name__}: {error} (unexpected; --debug shows the traceback)"
    return printable(" ".join(text.split()))
