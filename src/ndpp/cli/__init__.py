"""The command ``ndpp``: parse, one public call, print or save.

Exit codes: 0 good; 1 failure, with one line on standard error; 2 wrong usage; 130 interrupted. Results go to standard
output or to the file ``-o`` names; progress, warnings and errors go to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from ndpp.errors import MissingExtraError


def load() -> Callable[[Sequence[str]], None]:
    """Import the commands and return what runs one, or say which package is missing."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as missing:
        raise SystemExit(f"ndpp: error: {MissingExtraError(missing.name or 'typer', 'cli', 'The command')}") from None
    from ndpp.cli.app import run

    return run


def main() -> None:
    """Run the command with the arguments of this process."""
    try:
        load()(sys.argv[1:])
    except KeyboardInterrupt:  # before a command had begun
        print("\nndpp: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
