"""Entry point of the command ``ndpp``, and all that it does on Ctrl-C and on SIGTERM.

It lives outside the package, whose import takes most of a second: Ctrl-C in that time would end in a traceback from the middle of some
library. So either signal ends the process at once until a command runs, and from then on raises ``KeyboardInterrupt``.
"""

import os
import signal
import sys


class Interrupts:
    """Whether a command is running, and the number of the signal that has interrupted it, 0 if none has."""

    running = False
    pressed = 0


def main() -> None:
    """Run the command with the arguments of this process."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is usual:  # otherwise ignored, as under nohup, and stays so
            signal.signal(number, _on_interrupt)
    from ndpp.cli import load

    load()(sys.argv[1:])


def _on_interrupt(number: int, _: object) -> None:
    if not Interrupts.running:  # nothing to lose yet, and code that is being imported may catch any exception
        os.write(2, b"\nndpp: interrupted\n")
        os._exit(128 + number)
    Interrupts.pressed = number
    raise KeyboardInterrupt
