"""Entry point of the command ``ndpp``, and all that it does on Ctrl-C.

It lives outside the package, whose import takes most of a second: Ctrl-C in that time would end in a traceback from the middle of some
library. So Ctrl-C ends the process at once until a command runs, and from then on raises ``KeyboardInterrupt``.
"""

import os
import signal
import sys


class Interrupts:
    """Whether a command is running, and whether Ctrl-C was pressed since it started."""

    running = False
    pressed = False


def main() -> None:
    """Run the command with the arguments of this process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise ignored, as under nohup, and stays so
        signal.signal(signal.SIGINT, _on_interrupt)
    from ndpp.cli import load

    load()(sys.argv[1:])


def _on_interrupt(*_: object) -> None:
    if not Interrupts.running:  # nothing to lose yet, and code that is being imported may catch any exception
        os.write(2, b"\nndpp: interrupted\n")
        os._exit(130)
    Interrupts.pressed = True
    raise KeyboardInterrupt
