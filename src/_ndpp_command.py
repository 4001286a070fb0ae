"""The first lines of the command ``ndpp``; outside the package, so that they run before anything heavy is imported.

Importing takes most of a second, in which Ctrl-C would end in a traceback out of the middle of some library.
"""

import os
import signal


def main() -> None:
    """Run the command. Until all of it is imported, Ctrl-C ends the process with one line and exit code 130."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else it is ignored, as under nohup, and stays so
        signal.signal(signal.SIGINT, _quit)
    from ndpp.cli import load, main

    load()
    signal.signal(signal.SIGINT, before)
    main()


def _quit(*_: object) -> None:
    os.write(2, b"\nndpp: interrupted\n")
    os._exit(130)  # there is nothing to lose yet, and an import may catch any exception
