"""Processes that begin with the command imported: each is a fork of a server, which has imported everything once.

They are as real as those of :mod:`subprocess`, with a number, signals and streams of their own, and start in a hundredth of the time.
What a new interpreter does first (imports, ``sitecustomize``, Ctrl-C in the middle of an import) they do not repeat.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pickle
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import IO, Any

from patience import HANG_SECONDS

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
TRAINING = "ndpp.learning.trainer"
PRELOADED = ("numba", "torch", "sklearn", "ndpp.cli.app", "ndpp.learning", "ndpp.samplers", "ndpp.serve.app")


class Forked:
    """A process of the server, to be used as a :class:`subprocess.Popen`.

    :param words: arguments of the command.
    :param streams: where it reads and writes: for each of the three a file, a descriptor, ``PIPE`` or ``DEVNULL``.
    :param first: called in the process before the command, or instead of it where it ends with ``sys.exit``; it is pickled.
    """

    def __init__(
        self, words: list[str], cwd: Path, env: dict[str, str], streams: list[Any], first: Callable[[], object] | None
    ) -> None:
        ours: list[IO[bytes] | None] = []
        theirs, opened = [], []
        for number, stream in enumerate(streams):
            mine = None
            if stream == subprocess.PIPE:
                reader, writer = os.pipe()
                stream, kept, mode = (reader, writer, "wb") if number == 0 else (writer, reader, "rb")
                mine = os.fdopen(kept, mode)
                opened.append(stream)
            elif stream == subprocess.DEVNULL:
                stream = os.open(os.devnull, os.O_RDWR)
                opened.append(stream)
            theirs.append(stream if isinstance(stream, int) else stream.fileno())
            ours.append(mine)
        self.stdin, self.stdout, self.stderr = ours
        self.args, self.returncode = words, None
        self._told, tell = os.pipe()
        steps = getattr(sys.modules.get(TRAINING), "MIN_STEPS", None)  # a test may have patched it
        request = pickle.dumps((words, str(cwd), env, first, steps))
        socket.send_fds(_server(), [len(request).to_bytes(4, "big") + request], [tell, *theirs])
        for number in (tell, *opened):
            os.close(number)
        self.pid = int.from_bytes(os.read(self._told, 4), "big")
        assert self.pid, "no process was started"

    def poll(self) -> int | None:
        """Return how it ended, None if it has not."""
        with selectors.DefaultSelector() as waiting:
            if self.returncode is None and self._told >= 0:
                waiting.register(self._told, selectors.EVENT_READ)
                return self.wait() if waiting.select(0) else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None:
            with selectors.DefaultSelector() as waiting:
                waiting.register(self._told, selectors.EVENT_READ)
                if not waiting.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(os.read(self._told, 4), "big"))
            os.close(self._told)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        """Return all that is left to read from its pipes, and wait for its end."""
        end, read = time.monotonic() + timeout, {1: b"", 2: b""}
        with selectors.DefaultSelector() as waiting:
            for number, stream in ((1, self.stdout), (2, self.stderr)):
                if stream is not None:
                    waiting.register(stream, selectors.EVENT_READ, number)
            while waiting.get_map():
                ready = waiting.select(end - time.monotonic())
                if not ready:
                    raise subprocess.TimeoutExpired(self.args, timeout)
                for key, _ in ready:
                    piece = key.fileobj.read1(65536)  # type: ignore[union-attr]
                    read[key.data] += piece
                    if not piece:
                        waiting.unregister(key.fileobj)
                        key.fileobj.close()  # type: ignore[union-attr]
        self.wait(max(0.0, end - time.monotonic()))
        return read[1], read[2]


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        env = {**os.environ, **ONE_THREAD}
        server = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=env)

    def finish() -> None:
        ours.close()
        server.wait(HANG_SECONDS)

    atexit.register(finish)
    return ours


def main() -> None:
    """Import, fork for every request, and run the command in the fork; end when nobody can ask any more."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):  # of an extra that is not installed
            __import__(name)
    _prepare()
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for pytest
        while (request := _next(channel)) is not None:
            (words, cwd, env, first, steps), (tell, *streams) = request
            if not os.fork():
                break
            for number in (tell, *streams):
                os.close(number)
        else:
            os._exit(0)
    _keep(tell, streams)
    if steps is not None:
        importlib.import_module(TRAINING).MIN_STEPS = steps  # type: ignore[attr-defined]
    _become(words, cwd, env, streams)
    _end_with(_code_of(first))


def _prepare() -> None:
    """Do once what each fork would do again: derive the parser, set up numba by one compiled call, tidy up after torch at its end."""
    import numpy as np

    from ndpp.cli.app import parser
    from ndpp.items.table import alias_table

    parser()
    alias_table(np.ones(2))
    for one in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        one.atexit = False


def _code_of(first: Callable[[], object] | None) -> int:
    """Run the command and return the exit code."""
    from _ndpp_command import main

    try:
        if first is not None:
            first()
        main()
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        print(leaving.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end_with(code: int) -> None:
    """End as the interpreter does, except that it does not clean up what the server had imported, which takes a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120
    os._exit(code & 0xFF)


def _next(channel: socket.socket) -> tuple[Any, list[int]] | None:
    data, streams, *_ = socket.recv_fds(channel, 4, 4)
    if not data:
        return None
    with channel.makefile("rb", buffering=0) as rest:
        size, request = int.from_bytes(data, "big"), b""
        while len(request) < size:
            request += rest.read(size - len(request))
    while True:  # the forks that have ended
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                break
        except ChildProcessError:
            break
    return pickle.loads(request), streams


def _keep(tell: int, streams: list[int]) -> None:
    """Fork once more; return in the fork, and in this process wait for it and tell how it ended."""
    pid = os.fork()
    if not pid:
        os.close(tell)
        return
    for number in streams:
        os.close(number)
    os.write(tell, pid.to_bytes(4, "big"))
    _, status = os.waitpid(pid, 0)
    os.write(tell, status.to_bytes(4, "big"))
    os._exit(0)


def _become(words: list[str], cwd: str, env: dict[str, str], streams: list[int]) -> None:
    """Make this process what a new one would be."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    encoding = env.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = os.fdopen(0, closefd=False, encoding=encoding)
    sys.stdout = os.fdopen(1, "w", 1 if os.isatty(1) else -1, closefd=False, encoding=encoding)
    sys.stderr = os.fdopen(2, "w", 1, closefd=False, encoding=encoding, errors="backslashreplace")
    sys.argv = ["ndpp", *words]
    if not any(name.startswith("COVERAGE_") for name in env) and "coverage" in sys.modules:
        measuring = sys.modules["coverage"].Coverage.current()
        if measuring is not None:  # this process may not write what it would
            atexit.unregister(measuring._atexit)
    for folder in filter(None, env.get("PYTHONPATH", "").split(os.pathsep)):
        if Path(folder, "sitecustomize.py").exists():
            runpy.run_path(str(Path(folder, "sitecustomize.py")))


if __name__ == "__main__":
    main()
