"""Commands with random options, killed or interrupted at random times, or competing for a file; a part of :mod:`fuzz`.

Commands run in a child of this process, which has imported everything already, so that a kill takes a tenth of a second and not two.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import ndpp
from _ndpp_command import main
from fuzz_files import FOLDER, Failure, check, mutated
from ndpp.cli.app import run
from ndpp.samplers import base
from patience import until

KINDS = ("sample", "complete", "fit")
KILLED: Counter[str] = Counter()
"""How many runs of each command were killed before they were done."""
FIT = [
    "--model",
    "ndpp",
    "--rank",
    "4",
    "--max-epochs",
    "12",
    "--patience",
    "100",
    "--seed",
    "3",
    "--jobs",
    "1",
    "--noise",
    "0",
]


@cache
def inputs() -> Path:
    """Return a folder with a model, its baskets, and files that are neither."""
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name))
    rng = np.random.default_rng(5)
    labels = [f"item {i}" for i in range(12)]
    kernel = ndpp.LowRankKernel(
        rng.normal(size=(12, 4)), np.eye(4) + 0.3 * (np.triu(np.ones((4, 4)), 1) * 2 - 1), labels=None
    )
    kernel = ndpp.LowRankKernel(kernel.X, np.eye(4), labels=labels)
    ndpp.save(kernel, folder / "model")
    ndpp.save(ndpp.LowRankKernel(kernel.X, np.eye(4)), folder / "plain")
    baskets = kernel.sample(200, rng=1)
    for suffix in ("csv", "txt", "tsv", "parquet"):
        baskets.write(folder / f"orders.{suffix}")
    (folder / "half.txt").write_text("".join(f"item {i % 12}\t\n" for i in range(30)))
    damage = random.Random(1)
    for name in ("model", "orders.csv", "orders.parquet"):
        (folder / f"bad-{name}").write_bytes(mutated((folder / name).read_bytes(), damage))
    (folder / "empty").write_bytes(b"")
    (folder / "folder").mkdir()
    return folder


def quietly(words: list[Any]) -> tuple[int, str]:
    """Run a command here; return its exit code and what it said on standard error."""
    out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
    stdin = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"item 1\t\n"), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run([str(word) for word in words])
    except SystemExit as ended:
        return int(ended.code or 0), err.getvalue()
    finally:
        sys.stdin = stdin
    return 0, err.getvalue()


# -- command lines -----------------------------------------------------------------------------------------------------------

COMMANDS = ["info", "sample", "complete", "recommend", "map", "evaluate", "nonsense", ""]
FILES = ["model", "plain", "orders.csv", "orders.txt", "orders.tsv", "orders.parquet", "half.txt", "bad-model", "bad-orders.csv",
         "bad-orders.parquet", "empty", "folder", "missing", "-"]  # fmt: skip
OPTIONS = ["-n", "--size", "--given", "--exclude", "--seed", "--first", "--add", "-o", "--to", "--from", "--sampler", "--steps", "--jobs",
           "--basket", "--item", "--top", "--bootstrap", "--start"]  # fmt: skip
SWITCHES = ["--json", "--ids", "--labels", "--resume", "--help", "--debug", "--"]
VALUES = ["0", "1", "2", "3", "-1", "4", "99", "1e3", "nan", "", "item 1", "item 1,item 2", "item", "\x1b[2J", "1,1", "2,x", "csv", "text",
          "parquet", "exact", "walk", "cholesky", "basket", "greedy", str(2**63), str(2**64), "\ud800", "ß", "a" * 5000]  # fmt: skip


def command_case(seed: int) -> None:
    """Run a command line of words that may or may not fit together."""
    draw, folder = random.Random(seed), inputs()
    words: list[Any] = [draw.choice(COMMANDS)]
    if draw.random() < 0.9:
        words.append(folder / draw.choice(["model", "model", "plain", *FILES]) if draw.random() < 0.95 else "-")
    if draw.random() < 0.4:
        words.append(folder / draw.choice(FILES))
    for _ in range(draw.randint(0, 4)):
        if draw.random() < 0.25:
            words.append(draw.choice(SWITCHES))
        else:
            option = draw.choice(OPTIONS)
            value = draw.choice(VALUES)
            words += [
                option,
                Path(FOLDER.name) / "out" / draw.choice(["o.txt", "o.csv", "o.json", "o.parquet", "o"])
                if option == "-o"
                else value,
            ]
    out = Path(FOLDER.name) / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    code, said = quietly(words)
    check(code in (0, 1, 2), f"ended with code {code}: {words}")
    check("unexpected; --debug" not in said, f"{words}: {said}")
    check("Traceback" not in said or "--debug" in words, f"{words}: {said}")
    check(
        {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before, f"an input changed: {words}"
    )
    left = [path.name for path in out.iterdir() if path.name.startswith(".")]
    check(not left, f"{words} left {left}")


# -- children ----------------------------------------------------------------------------------------------------------------


class Finalized:
    """What takes a millisecond to delete."""

    def __del__(self) -> None:
        for _ in range(20_000):
            pass

    @classmethod
    def before(cls, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that deletes such an object before it calls another."""

        def call() -> Any:
            cls()
            return function()

        return call


def start(words: list[Any], *, said: Path | str = os.devnull, busy: bool = False) -> int:
    """Run a command in a child of this process; return its number. ``said`` is where its standard error goes.

    A ``busy`` child spends much of its time in finalizers, where Python ignores exceptions.
    """
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for stream, path in enumerate((null, null, os.open(said, os.O_WRONLY | os.O_CREAT))):
                os.dup2(path, stream)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # where this process is told to ignore it
            if busy:
                base.look = time.monotonic = Finalized.before(time.monotonic)
            sys.argv, sys.stderr = ["ndpp", *map(str, words)], os.fdopen(2, "w", 1, closefd=False)
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            os._exit(code)
    return child


def finish(child: int) -> int:
    """Wait for a child; return its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def command(kind: str, output: Path, *, seed: int = 7) -> list[Any]:
    """Return the words of a command that takes a few tenths of a second."""
    folder = inputs()
    if kind == "fit":
        return ["fit", folder / "orders.csv", *FIT, "-o", output]
    if kind == "sample":
        return ["sample", folder / "model", "-n", 800, "--seed", seed, "--size", 2, "-o", output]
    return ["complete", folder / "model", folder / "half.txt", "--add", 1, "-n", 20, "--seed", seed, "-o", output]


def with_options(words: list[Any], options: dict[str, int]) -> list[Any]:
    """Return the words of a command with these options, in place of those that it has."""
    kept = [word for i, word in enumerate(words) if not {words[i - 1], word} & options.keys()]
    return [*kept, *(word for pair in options.items() for word in pair)]


@cache
def reference(kind: str, seed: int = 7) -> tuple[bytes, float]:
    """Return what a command writes when nothing happens to it, and how long that takes."""
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name))
    code, said = quietly(command(kind, folder / "here.txt", seed=seed))  # loads what children then need not load
    check(code == 0, f"{kind} failed: {said}")
    began = time.monotonic()
    check(finish(start(command(kind, folder / "child.txt", seed=seed))) == 0, f"{kind} failed in a child")
    took = time.monotonic() - began
    content = (folder / "child.txt").read_bytes()
    check(content == (folder / "here.txt").read_bytes(), f"{kind} gives other bytes each time")
    return content, took


def kill_case(seed: int, *, kinds: Sequence[str] = KINDS) -> None:
    """Kill a command one to three times, resume it, and compare what it wrote."""
    draw, kind = random.Random(seed), kinds[seed % len(kinds)]
    whole, took = reference(kind)
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as name:
        output = Path(name) / "out.txt"
        part = output.with_name("out.txt.ndpp-part")
        words = command(kind, output)
        for _ in range(draw.randint(1, 3)):
            child = start([*words, *(["--resume"] if part.exists() else [])])
            time.sleep(draw.random() * took)
            os.kill(child, signal.SIGKILL)
            code = finish(child)
            check(code in (0, -signal.SIGKILL), f"{kind} ended with code {code} after a kill")
            KILLED[kind] += code != 0
            if output.exists():
                check(output.read_bytes() == whole, f"{kind}: another file was left by a kill")
                output.unlink()
        child = start([*words, *(["--resume"] if part.exists() else [])])
        code = finish(child)
        check(code == 0, f"{kind} cannot be resumed: code {code}, {sorted(os.listdir(name))}")
        check(output.read_bytes() == whole, f"{kind}: another file after it was resumed")
        left = sorted(set(os.listdir(name)) - {"out.txt"})
        check(not left, f"{kind} left {left}")


def interrupt_case(seed: int) -> None:
    """Interrupt a command that would take hours, at a random time: it ends, says what it has saved, and can be continued."""
    draw, kind, busy = random.Random(seed), ("sample", "fit")[seed % 2], seed % 4 > 1
    long = {"--max-epochs": 10**6, "--patience": 10**6} if kind == "fit" else {"-n": 10**8}
    took, number = reference(kind)[1], draw.choice([signal.SIGINT, signal.SIGTERM])
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as name:
        output, said = Path(name) / "out.txt", Path(name) / "said.txt"
        child = start(with_options(command(kind, output), long), said=said, busy=busy)
        time.sleep(0.02 + draw.random() * (1 + 2 * busy) * took)
        os.kill(child, number)

        def ended() -> tuple[int, int] | None:
            found = os.waitpid(child, os.WNOHANG)
            return found if found[0] else None

        try:
            _, status = until(ended)
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            finish(child)
            raise Failure(f"{kind} went on after signal {number}") from None
        told = said.read_text().partition("\nndpp: interrupted")[2]
        check(
            os.waitstatus_to_exitcode(status) == 128 + number,
            f"{kind} ended with status {status}: {said.read_text()}",
        )
        part = output.with_name("out.txt.ndpp-part")  # of training alone
        check(part.exists() == ("saved" in told), f"{kind} said {told!r} and left {sorted(os.listdir(name))}")
        left = sorted(set(os.listdir(name)) - {"said.txt", part.name})
        check(not left, f"{kind} left {left}")
        if part.exists():
            code, error = quietly([*with_options(command(kind, output), long), "--minutes", 0, "--resume"])
            check(code == 0 and not part.exists(), f"{kind} cannot be continued: {error}")


def writers_case(seed: int) -> None:
    """Let two commands write one file at the same time: both may do so one after the other, or one is refused."""
    draw, kind = random.Random(seed), ("sample", "complete")[seed % 2]
    seeds = (7, 8)
    wholes = [reference(kind, number)[0] for number in seeds]
    took = reference(kind, 7)[1]
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as name:
        output = Path(name) / "out.txt"
        first = start(command(kind, output, seed=seeds[0]))
        time.sleep(draw.choice([0.0, draw.random() * took]))
        second = start(command(kind, output, seed=seeds[1]))
        codes = [finish(first), finish(second)]
        check(set(codes) <= {0, 1} and 0 in codes, f"codes {codes}")
        done = [whole for whole, code in zip(wholes, codes) if code == 0]
        check(output.read_bytes() in done, f"a file of neither of two writers of {kind}, codes {codes}")
        left = sorted(set(os.listdir(name)) - {"out.txt"})
        check(not left, f"writers left {left}")
