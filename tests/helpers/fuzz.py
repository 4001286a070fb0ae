"""Try inputs nobody thought of: ``make fuzz``, or ``python tests/helpers/fuzz.py [KIND …] --seconds 60``.

kernels   Random kernels with exact entries, badly scaled on purpose. Every public probability is compared with rational
          arithmetic: it must be right to 1e-8, or come with a :class:`PrecisionWarning`, or be refused. At most one in a hundred
          kernels with columns of one scale may be warned about.
laws      Random laws of every kind over a few items, over 10^±8 in every direction, plain or changed: every verb of the contract of laws
          (:mod:`law_verbs`) against rational arithmetic, by the same rule.
conditions  Random laws under up to three random conditions: every question of :mod:`law_questions`, right to 1e-7 or said.
draws     Draws from such laws, compared with the enumeration of all sets; the p-values of all cases are uniform.
models    Model files of every kind of distribution with bytes changed, cut off, repeated or inserted. Loading gives the same model or
          one of our errors.
crafted   The same files with right checksums and one array of another shape or type, or with an extreme number.
folders   Folders of shards, treated alike.
customers Files of customers, treated alike.
baskets   Baskets with awkward labels, written and read again in every format; then files with bytes changed.
commands  Command lines of random options, with good, damaged and missing files. A command ends with code 0, 1 or 2, and never with an
          exception it does not know.
kills     ``fit``, ``sample`` and ``complete``, or one of them (``--command fit``), killed at random times and resumed: the same bytes
          as without.
interrupts  ``fit`` and ``sample``, interrupted once at random times, some of them in places where Python ignores exceptions: they end,
          and say what they have saved.
service   Ordinary and hostile clients at once, and a signal to stop in the middle: no status 500, every ordinary request is answered,
          memory stays, and the process ends. ``python tests/helpers/fuzz_service.py --seconds 3600`` goes on for an hour.
writers   Two commands that write one file at once: it is that of one of them, whole.

A case is a number: ``--only kernels 17`` repeats case 17. The exit status is 1 if any case failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from scipy.stats import kstest

import fuzz_laws
from fuzz_commands import KILLED, KINDS, command_case, interrupt_case, kill_case, writers_case
from fuzz_files import Failure, basket_case, crafted_case, customers_case, folder_case, model_case
from fuzz_kernels import Tally, kernel_case
from fuzz_laws import LEAST_P, condition_case, draw_case, law_case
from fuzz_laws import Tally as LawTally
from fuzz_service import service_case

MOST_NEEDLESS = 0.01
"""Largest share of harmless kernels that may be warned about."""
SLOW = 20.0
"""Processor seconds of this process after which a case counts as hanging."""

CASES: dict[str, Callable[[int], None]] = {
    "kernels": kernel_case,
    "laws": law_case,
    "conditions": condition_case,
    "draws": draw_case,
    "models": model_case,
    "crafted": crafted_case,
    "folders": folder_case,
    "customers": customers_case,
    "baskets": basket_case,
    "commands": command_case,
    "kills": kill_case,
    "interrupts": interrupt_case,
    "service": service_case,
    "writers": writers_case,
}


class Result(NamedTuple):
    """A case that failed, and how."""

    kind: str
    seed: int
    problem: str


def run_case(kind: str, seed: int) -> Result | None:
    """Run one case; return what went wrong, however long it took."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CASES[kind](seed)
    except Failure as failure:
        return Result(kind, seed, str(failure))
    except Exception as error:  # a foreign exception is what we look for
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Result(kind, seed, f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})")
    return None


def timed_case(kind: str, seed: int) -> Result | None:
    """Run one case; return what went wrong, or that it took longer than ``SLOW``. Tests call :func:`run_case`, which reads no clock."""
    began = time.process_time()
    failure = run_case(kind, seed)
    took = time.process_time() - began
    return failure or (Result(kind, seed, f"took {took:.1f} s of the processor") if took > SLOW else None)


def run(kinds: list[str], *, first: int, seconds: float, count: int | None) -> tuple[int, list[Result]]:
    """Run cases of each kind, in turn, until the time is over or ``count`` cases are done."""
    failures: list[Result] = []
    done = 0
    for kind in kinds:
        run_case(kind, first)  # so that what is compiled is compiled
        end = time.monotonic() + seconds / len(kinds)
        for seed in seeds(first, count):
            if time.monotonic() > end:
                break
            done += 1
            if (failure := timed_case(kind, seed)) is not None:
                failures.append(failure)
                print(json.dumps(failure._asdict(), ensure_ascii=False), flush=True)
    return done, failures


def seeds(first: int, count: int | None) -> Iterator[int]:
    """Yield the numbers of the cases."""
    seed = first
    while count is None or seed < first + count:
        yield seed
        seed += 1


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--seconds", type=float, default=240.0, help="time for all kinds together")
    parser.add_argument("--count", type=int, help="most cases per kind")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--device", help="cuda: draw there")
    parser.add_argument("--command", choices=KINDS, help="what is killed; all in turn by default")
    parser.add_argument("--only", nargs=2, metavar=("KIND", "CASE"), help="repeat one case, with its traceback")
    chosen = parser.parse_args()
    fuzz_laws.DEVICE = chosen.device
    if chosen.command:
        CASES["kills"] = partial(kill_case, kinds=(chosen.command,))
    if chosen.only:
        CASES[chosen.only[0]](int(chosen.only[1]))
        return 0
    done, failures = run(chosen.kinds, first=chosen.first, seconds=chosen.seconds, count=chosen.count)
    print(f"{done} cases, {len(failures)} failed")
    for command, kills in sorted(KILLED.items()):
        print(f"kills: {command} was killed {kills} times")
    if Tally.warned or Tally.harmless:
        needless = [seed for seed, harmless, _ in Tally.warned if harmless]
        print(
            f"kernels: {len(Tally.warned)} warned about, {len(needless)} of them among {Tally.harmless} harmless ones: {needless}"
        )
        if len(needless) > MOST_NEEDLESS * Tally.harmless:
            return 1
    if LawTally.harmless:
        print(f"laws: {len(LawTally.warned)} of {LawTally.harmless} harmless ones were warned about: {LawTally.warned}")
        if len(LawTally.warned) > MOST_NEEDLESS * LawTally.harmless:
            return 1
    for what, count in LawTally.asked.items():
        print(f"{what}: {count}")
    if LawTally.p_values:
        uniform = kstest(LawTally.p_values, "uniform").pvalue
        print(
            f"draws: {len(LawTally.p_values)} p-values, the least {min(LawTally.p_values):.1e}; uniform with p-value {uniform:.2g}"
        )
        if uniform < LEAST_P:
            return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
