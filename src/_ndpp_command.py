"""Entry point of the command ``ndpp``, and what it does on Ctrl-C and on SIGTERM until a command runs.

It lives outside the package, whose import takes most of a second: Ctrl-C in that time would end in a traceback from the middle of some
library. So either signal ends the process at once. A running command handles both itself (:mod:`ndpp.cli.guard`).
"""

import os
import signal
import sys


def main() -> None:
    """Run the command with the arguments of this process."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is usual:  # otherwise ignored, as under nohup, and stays so
            signal.signal(number, _end)
    from ndpp.cli import load

    load()(sys.argv[1:])


def _end(number: int, _: object) -> None:
    """End the process: there is nothing to lose yet, and code that is being imported may catch any exception."""
    os.write(2, b"\nndpp: interrupted\n")
    os._exit(128 + number)
