"""Entry point of the command ``ndpp``, and what it does on Ctrl-C and on SIGTERM until a command runs.

It lives outside the package, whose import takes most of a second: Ctrl-C in that time would end in a traceback from the middle of some
library. So either signal ends the process at once. A running command handles both itself (:mod:`ndpp.cli.guard`).

Linear algebra takes one thread, unless ``OPENBLAS_NUM_THREADS`` says otherwise: most matrices are small, and where another program keeps a
core busy, or a container has fewer cores than its machine, threads that wait for each other take much longer. torch's are its own.
"""

import os
import signal
import sys


def main() -> None:
    """Run the command with the arguments of this process."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is usual:  # otherwise ignored, as under nohup, and stays so
            signal.signal(number, _end)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from ndpp.cli import load

    load()(sys.argv[1:])


def _end(number: int, _: object) -> None:
    """End the process: there is nothing to lose yet, and code that is being imported may catch any exception."""
    os.write(2, b"\nndpp: interrupted\n")
    os._exit(128 + number)
