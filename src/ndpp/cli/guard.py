"""How a command ends: what went wrong is one clear line on standard error, and an exit code."""

from __future__ import annotations

import errno
import functools
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NoReturn, ParamSpec, TextIO, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from ndpp._atomic import WINDOWS
from ndpp.errors import Names, NDPPError

P = ParamSpec("P")
DEBUG = ContextVar("debug", default=False)
"""Whether failures show their traceback."""

FAILED, INTERRUPTED = 1, 130
ALIASES = {"format": "from", "max_epochs": "epochs", "n_samples": "number", "n_jobs": "jobs"}
"""Options that have another name than the arguments they stand for."""
SWITCHES = {("as_labels", "True"): "--labels", ("as_labels", "False"): "--ids", ("resume", "True"): "--resume"}
"""Options without a value."""


class Options(Names):
    """Arguments as the options of a command, where it has such an option."""

    def __init__(self, command: Callable[..., None]) -> None:
        self.known: set[Any] = set()
        for name, annotation in get_type_hints(command, include_extras=True).items():
            for option in get_args(annotation):
                if isinstance(option, OptionInfo):  # the first name of an annotation is kept as its default
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
    """Ctrl-C, and what was kept."""


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Return the command, with every failure turned into one line and an exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with noticed() as interrupts:
            try:
                command(*args, **kwargs)
                sys.stdout.flush()
            except (typer.BadParameter, typer.Exit, typer.Abort):
                raise
            except BaseException as error:
                if DEBUG.get() and not isinstance(error, SystemExit):
                    traceback.print_exc()
                # In the middle of an import, a library may make any other exception of an interrupt.
                known = isinstance(error, KeyboardInterrupt | SystemExit | NDPPError | OSError)
                end_with(KeyboardInterrupt() if interrupts and not known else error, Options(command))

    return run


@contextmanager
def noticed() -> Iterator[list[int]]:
    """Give a list that grows with every Ctrl-C, which raises ``KeyboardInterrupt`` as ever."""
    interrupts: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    own = threading.current_thread() is threading.main_thread()
    if not own or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, as under nohup
        yield interrupts
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def say(text: str) -> None:
    """Print a line to the person at the terminal, if there is one."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning as one line, in the manner of an error."""
    print(f"ndpp: warning: {message}", file=sys.stderr)


def install() -> None:
    """Have warnings shown as a line each, and any name of an item written: as a terminal can show it, else as UTF-8.

    What is piped is the same bytes on every system, so lines end in a line feed on Windows too.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8", newline="\n")
    warnings.showwarning = show_warning
    warnings.simplefilter("default", UserWarning)


def end_with(error: BaseException, names: Names | None = None) -> NoReturn:
    """End the command with one line for what went wrong, if anything did, and an exit code."""
    if isinstance(error, SystemExit):
        raise error
    if reader_left(error):  # it has had enough: no failure
        _close_stdout()
        raise SystemExit(0)
    if isinstance(error, KeyboardInterrupt):
        print(f"\nndpp: interrupted{'; ' + str(error) if str(error) else ''}", file=sys.stderr)
    else:
        print(f"ndpp: error: {in_words(error, names)}", file=sys.stderr)
    _close_stdout()
    raise SystemExit(INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED)


def reader_left(error: BaseException | None) -> bool:
    """Return whether an output could not be written because its reader is gone. Windows calls that an invalid argument."""
    if WINDOWS and isinstance(error, OSError) and error.errno == errno.EINVAL and error.filename is None:
        return True
    return isinstance(error, BrokenPipeError)


def in_words(error: BaseException, names: Names | None = None) -> str:
    """Return what happened on one line, in the words of the command."""
    if isinstance(error, OSError) and not isinstance(error, NDPPError) and error.strerror:
        name = f"{str(error.filename)!r}: " if error.filename else "could not write the output: "
        text = name + error.strerror
    elif isinstance(error, MemoryError):
        text = "there is not enough memory for this. Ask for less at a time, or a smaller model"
    elif isinstance(error, NDPPError):
        text = error.text(names)
    elif isinstance(error, OSError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error} (unexpected; --debug shows where)"
    return " ".join(text.split())


def _close_stdout() -> None:
    """Let the interpreter's last flush of what cannot be written go nowhere."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
