"""The command ``ndpp``: each subcommand parses its options, calls the library, and prints or saves the result.

Exit codes: 0 success; 1 failure, with one line on standard error; 2 wrong usage; 130 or 143 interrupted. Results go to standard output or
to the file named by ``-o``; progress, warnings and errors go to standard error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ndpp.errors import MissingExtraError


def load() -> Callable[[Sequence[str]], None]:
    """Import the commands and return the function that runs one; exit with a message if a package is missing."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as missing:
        raise SystemExit(f"ndpp: error: {MissingExtraError(missing.name or 'typer', 'cli', 'The command')}") from None
    from ndpp.cli.app import run

    return run
