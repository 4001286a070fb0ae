"""How a command ends: a failure is one clear line on standard error, and an exit code."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import shlex
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, NoReturn, ParamSpec, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from ndpp._atomic import WINDOWS
from ndpp._show import printable
from ndpp.answers.conditions import CONDITIONS
from ndpp.errors import Names, NDPPError

P = ParamSpec("P")
DEBUG = ContextVar("debug", default=False)
"""Whether failures show their traceback."""
ARGUMENTS: ContextVar[Sequence[str]] = ContextVar("arguments", default=())
"""The words of the command line."""
FAILED = 1
PAUSE = 0.1
"""Seconds after which an interrupt that was lost is raised again."""
ALIASES = {
    "format": "from",
    "n_samples": "number",
    "n_fits": "fits",
    "n_jobs": "jobs",
    "n_missions": "missions",
    "n_restarts": "restarts",
    "old": "since",
}
ALIASES |= {one.name: one.option for one in CONDITIONS}
"""Names of options that differ from the argument they set."""
SWITCHES = {("as_labels", "True"): "--labels", ("as_labels", "False"): "--ids"}
SWITCHES |= {(name, "True"): f"--{name}" for name in ("resume", "force")}
"""Options without a value."""


class Options(Names):
    """Names arguments after the options of a command, where it has such an option."""

    phrases = {  # noqa: RUF012
        "background": "a kernel of a larger rank, or a mixture; see `ndpp fit --help`",
        "format": "the suffix of its name, such as .csv",
    }
    """What to do where a command has no such option."""

    def __init__(self, command: Callable[..., None]) -> None:
        self.known: set[Any] = set()
        for name, annotation in get_type_hints(command, include_extras=True).items():
            for option in get_args(annotation):
                if isinstance(option, OptionInfo):  # typer stores the first name of an annotated option as its default
                    self.known.update([option.default, *(option.param_decls or ()), "--" + name.replace("_", "-")])

    def argument(self, argument: str) -> str:
        """Return the name of the option."""
        options = (f"--{name.replace('_', '-')}" for name in (argument, ALIASES.get(argument, argument)))
        return next((option for option in options if option in self.known), argument)

    def setting(self, argument: str, value: str) -> str:
        """Return the option with its value."""
        shown = shlex.quote(value.strip("'")) if value else "…"
        option = self.argument(argument)
        phrase = None if option.startswith("-") else self.phrases.get(argument)
        return SWITCHES.get((argument, value)) or phrase or f"{option} {shown}"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a message on what was saved."""


class Pressed(KeyboardInterrupt):
    """What a signal raises. It is lost where Python ignores exceptions, as in finalizers and callbacks from C; :class:`Signals` notices."""

    def __init__(self, number: int, lost: SimpleQueue[int]) -> None:
        super().__init__()
        self.number, self.lost = number, lost

    def __del__(self) -> None:
        self.lost.put(self.number)  # unlike most functions, it may be called from anywhere


class Signals:
    """While a command runs, Ctrl-C and SIGTERM raise :class:`Pressed`; a signal that is ignored, as under nohup, stays so.

    Whoever handles the exception ends the command, and keeps it alive until then as the context of another. So one that is deleted before
    was lost, and a thread sends the signal again.
    """

    number = 0
    """The signal that has interrupted the last command, 0 if none has."""

    def __enter__(self) -> None:
        Signals.number, self.runs, self.lost = 0, True, SimpleQueue[int]()
        self.hook, usual = sys.unraisablehook, (signal.SIGINT, signal.SIGTERM)
        found = {number: signal.getsignal(number) for number in usual}
        self.handlers = {number: handler for number, handler in found.items() if handler not in (signal.SIG_IGN, None)}
        sys.unraisablehook = self._ignored
        threading.Thread(target=self._again, name="ndpp-signals", daemon=True).start()
        for number in self.handlers:
            signal.signal(number, self._press)

    def __exit__(self, *_: object) -> None:
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.runs, sys.unraisablehook = False, self.hook
        self.lost.put(0)

    def _press(self, number: int, _: object) -> None:
        Signals.number = number
        raise Pressed(number, self.lost)

    def _ignored(self, what: sys.UnraisableHookArgs) -> None:
        if not isinstance(what.exc_value, Pressed):
            self.hook(what)

    def _again(self) -> None:
        """Send every signal that was lost to the main thread, which may be waiting."""
        while number := self.lost.get():
            time.sleep(PAUSE)  # the code that ignored it is over by then, or ignores it once more
            if not self.runs:
                return
            if WINDOWS:
                signal.raise_signal(number)
            else:
                signal.pthread_kill(threading.main_thread().ident or 0, number)


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception is an interrupt, or what an extension such as numba, or a module that is being imported, made of one."""
    is_own = isinstance(error, SystemExit | NDPPError | OSError)
    return isinstance(error, KeyboardInterrupt) or (Signals.number > 0 and not is_own)


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Return the command with every failure turned into one line and an exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with Signals():
            try:
                command(*args, **kwargs)
                sys.stdout.flush()
            except (typer.BadParameter, typer.Exit, typer.Abort):
                raise
            except BaseException as error:
                if DEBUG.get() and not isinstance(error, SystemExit):
                    traceback.print_exc()
                is_masked = is_interrupt(error) and not isinstance(error, KeyboardInterrupt)
                end_with(KeyboardInterrupt() if is_masked else error, Options(command))

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


def _show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Show a warning as one line. Deprecations are for those who write programs; some libraries show them to everyone."""
    if not issubclass(category, DeprecationWarning):
        with contextlib.suppress(OSError):  # a reader that left does not end the work
            print(printable(f"ndpp: warning: {message}"), file=sys.stderr)


def end_with(error: BaseException, names: Names | None = None) -> NoReturn:
    """End the command with one line about the error, if it is a failure, and an exit code."""
    if isinstance(error, SystemExit):
        raise error
    interrupted = isinstance(error, KeyboardInterrupt)
    code = 0 if reader_left(error) else 128 + (Signals.number or signal.SIGINT) if interrupted else FAILED
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
