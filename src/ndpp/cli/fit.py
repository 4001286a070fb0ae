"""``ndpp fit``: a model from baskets, with an option for each parameter of the estimators. Only this command imports torch."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from typer.models import OptionInfo

from ndpp import answers
from ndpp._atomic import WINDOWS, check_writable, one_writer, part_path
from ndpp._show import Table, printable
from ndpp.answers import ItemTable
from ndpp.baskets import Baskets
from ndpp.baskets.groups import read_groups
from ndpp.baskets.orders import Orders
from ndpp.baskets.times import moment
from ndpp.cli import options as o
from ndpp.cli.files import OTHER_FORMATS, Source, check_output, require
from ndpp.cli.guard import ALIASES, ARGUMENTS, Interrupted, is_interrupt
from ndpp.cli.output import Report, emit, working
from ndpp.errors import TrainingInterruptedWarning, UnfinishedRunError
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.files import save

if TYPE_CHECKING:
    from ndpp.learning.base import BasketModel

Kind = StrEnum("Kind", "mixture ndpp ondpp symmetric")
"""Kinds of models."""
READ_RATE, WORTH_SAYING = 2e6, 5.0
"""Bytes that are read per second, roughly, of long tables as text or Parquet; seconds above which it is said how long that takes."""
SHOWN = 3
"""Missions that are named at the end."""


def _setting(help: str, least: float | None = None, metavar: str = "N", *names: str) -> OptionInfo:
    """Declare an option for a parameter of the estimators."""
    return o.word(help, *names, metavar=metavar, least=least, panel="Training (default: the estimator's own)")


FRACTION = "Share of the baskets that decides when training ends, without --validation."
GROUPS = "mixture: auto, none, or a table with the columns item and family."
FITS = "mixture: fits from other starts, whose average is better than any one of them; --minutes are for all of them."
INIT = "kernels: where training starts: popularity or literature; published also trains as the literature does."
SKEW = "ndpp, ondpp: share of the columns by which items attract each other."
RESTARTS = "kernels: random starts, of which the best after three epochs goes on; more help where the rank is low."
DROP = "kernels: what to do about baskets larger than the rank."
KINDS = (
    "mixture: missions with ties between items; a single kernel is faster to fit and less accurate: ndpp, where items attract and "
    "repel, ondpp, cheap to sample by rejection, or symmetric, where items only repel."
)
RANK = "Columns of the ties, or of a kernel, where it is also the largest size of a basket; default: by the number of items."
MISSIONS = "Components of a mixture; default: by the data."
VALIDATION = "Baskets that decide when training ends; default: a tenth of BASKETS."
MINUTES = "Time limit in minutes, reading and saving included; the model is the best found by then."
CONTEXT = (
    "Columns on which the weights of missions may depend, separated by commas, such as store,weekday; weekday, month, season and hour "
    "are derived from --time. Kept where validation baskets gain."
)
TIME = "CSV or Parquet column of the time, for --context and --test-after (there: time by default)."
TEST = (
    "Set aside this many random baskets for ndpp evaluate: OUTPUT.test.csv; the others go to OUTPUT.train.csv. Both have the columns of "
    "--context."
)
TEST_AFTER = (
    "Set aside the orders from this day on instead, such as 2026-03-01: a model is used on orders that come later."
)


@dataclass(frozen=True)
class FitSettings:
    """Parameters of the estimators as options, None where the estimator chooses."""

    max_epochs: Annotated[int | None, _setting("Maximum number of epochs.", 1)] = None
    minutes: Annotated[float | None, _setting(MINUTES, 0)] = None
    patience: Annotated[int | None, _setting("Epochs without progress before the learning rate drops.", 1)] = None
    learning_rate: Annotated[float | None, _setting("Learning rate of Adam.")] = None
    batch_size: Annotated[int | None, _setting("Baskets per step.", 1)] = None
    validation_fraction: Annotated[float | None, _setting(FRACTION)] = None
    dtype: Annotated[str | None, _setting("Type of the parameters: float32 or float64.", metavar="NAME")] = None
    n_factors: Annotated[int | None, _setting("mixture: numbers that describe an item or a mission.", 1)] = None
    penalty: Annotated[float | None, _setting("mixture: least penalty on what is popular in single missions.")] = None
    tie_penalty: Annotated[float | None, _setting("mixture: least penalty on ties.")] = None
    n_fits: Annotated[int | None, _setting(FITS, 1, "N", "--fits")] = None
    families: Annotated[str | None, _setting(GROUPS, metavar="auto|none|FILE")] = None
    skew_share: Annotated[float | None, _setting(SKEW)] = None
    noise: Annotated[float | None, _setting("kernels: relative noise on the rows in training; 0 for none.")] = None
    alpha: Annotated[float | None, _setting("kernels: weight of the penalty on the symmetric part.")] = None
    beta: Annotated[float | None, _setting("ndpp, ondpp: weight of the penalty on the skew part.")] = None
    gamma: Annotated[float | None, _setting("ondpp: weight of the rejection sampler's proposals.")] = None
    init: Annotated[str | None, _setting(INIT, metavar="NAME")] = None
    n_restarts: Annotated[int | None, _setting(RESTARTS, 1, "N", "--restarts")] = None
    oversize: Annotated[str | None, _setting(DROP, metavar="drop|raise")] = None
    epochs: Annotated[int | None, typer.Option(hidden=True, min=1)] = None


@dataclass(frozen=True)
class Held:
    """Baskets that are not trained on."""

    validation: Annotated[str | None, o.file(VALIDATION)] = None
    test: Annotated[int, o.number(TEST)] = 0
    test_after: Annotated[str | None, o.word(TEST_AFTER, metavar="DAY")] = None


@dataclass(frozen=True)
class Situation:
    """What the weights of missions depend on."""

    context: Annotated[str | None, o.word(CONTEXT, metavar="COLUMNS")] = None
    time_column: Annotated[str | None, o.word(TIME, "--time")] = None


@dataclass(frozen=True)
class Named:
    """What items are called."""

    items: Annotated[str | None, o.file("A file whose line i names item i.")] = None
    table: o.KeptTable = None
    labels: o.AsLabels = None


def fit(
    baskets: o.BasketFile,
    output: o.ModelOutput,
    kind: Annotated[Kind, o.word(KINDS, "--model")] = Kind.mixture,
    rank: Annotated[int | None, o.number(RANK, "--rank", "-r", least=1)] = None,
    missions: Annotated[int | None, o.number(MISSIONS, "--missions", "--n-missions", least=1)] = None,
    *,
    held: Held,
    situation: Situation,
    seed: o.Seed = 0,
    jobs: Annotated[int | None, o.number("Threads of torch; default: its own choice.", "--jobs", "-j", least=1)] = None,
    device: o.Device = "cpu",
    json: o.Json = False,
    resume: o.Resume = False,
    named: Named,
    reading: o.Reading,
    settings: FitSettings,
) -> None:
    """Fit a model to baskets: by default a mixture of shopping missions with ties between items.

    Standard error names each stage and shows how long training takes at most, and a line per epoch or, on a terminal, a bar.
    OUTPUT.ndpp-part holds the state of training from the time on when the baskets are read: after Ctrl-C or a crash, the same command
    with --resume continues and produces the same model, and with --resume --minutes 0 makes a model of what is there. CSV and Parquet
    files are in long form, with one row for each item of each basket.

    \b
    Examples:
      ndpp fit orders.csv --basket order_id --item product -o model.safetensors
      ndpp fit baskets.txt -o model.safetensors --missions 40 --seed 1
      ndpp fit orders.csv -o model.safetensors --context store,weekday --time ordered_at
      ndpp fit orders.csv -o model.safetensors --test-after 2026-02-01 --time ordered_at
      ndpp fit baskets.txt -o kernel.safetensors --model ndpp --rank 100
    """
    began, part, source = time.monotonic(), part_path(output), Source(baskets, reading)
    source.check()
    _check_output(output, (baskets, held.validation, named.items, named.table, settings.families), held)
    with one_writer(output):
        if part.exists() and not resume:
            raise UnfinishedRunError(os.fspath(part), "the training")
        if not part.exists():
            check_writable(part)  # now, not after the first epoch
        with _interruptible(part):
            with stage(f"reading {source.name}{_reading_time(baskets)}"):
                columns = [name.strip() for name in (situation.context or "").split(",") if name.strip()]
                timed = held.test_after is not None
                told = "--items is for files of ids; --context and --test-after for tables with columns"
                require(named.items is None or not (columns or timed), told)
                told = "--time is for --context, such as --context weekday, and for --test-after"
                require(situation.time_column is None or bool(columns) or timed, told)
                time_column = situation.time_column or ("time" if timed else None)
                known: dict[str, Any] = {"context": columns, "time": time_column} if columns or timed else {}
                more = {} if named.items is None else {"items": named.items}
                data = source.read(**known, **more, as_labels=named.labels)
                attached = table_of(named.table, data, reading)
                held_out = None
                if held.validation is not None:
                    held_out = source.sibling(held.validation).read_for(data, ids=False, **known)
            common = {"checkpoint": part, "device": device, "random_state": seed}
            chosen = {**asdict(settings), "rank": rank, "n_missions": missions, **common}
            if (epochs := chosen.pop("epochs")) is not None:
                warnings.warn("--epochs is now called --max-epochs", FutureWarning, stacklevel=1)
                chosen["max_epochs"] = settings.max_epochs or epochs
            estimator = _make_estimator(kind, chosen, data, jobs, ids=named.labels is False)
            kept, told_of_test = _set_aside(data, held, seed, output)
            if estimator.minutes is not None:
                estimator.minutes = max(0.0, estimator.minutes - (time.monotonic() - began) / 60)
            with warnings.catch_warnings():
                warnings.simplefilter("error", TrainingInterruptedWarning)  # reported as any other interrupt
                estimator.fit(kept, validation=held_out, resume=resume)
            about = estimator.about()
            # The name without its path, so that a resumed run writes the same file.
            about["baskets"] = {"file": Path(source.name).name, **about["baskets"]}
            about |= told_of_test
            with stage(f"finishing: saving {os.fspath(output)}"):
                save(estimator.law_, output, metadata=about | attached)
            _forget(part)
    own = answers.Prepared(estimator.law_, metadata=attached)
    emit(_report(output, kind, own, about), None, as_json=json)


def table_of(path: str | None, data: Baskets, reading: o.Reading) -> dict[str, Any]:
    """Return what the metadata of a model hold of a table of its items, whose column may have the name that --item gives; or nothing."""
    if path is None:
        return {}
    catalogue = Catalogue(data.n_items, data.labels)
    return ItemTable.read(Source(path).target, catalogue, item=reading.item, encoding=reading.encoding).attach()


def _reading_time(path: str) -> str:
    """Return about how long it takes to read a large file, from its size; nothing for others."""
    seconds = os.path.getsize(path) / READ_RATE if os.path.isfile(path) else 0.0
    return f", about {seconds:.0f} s" if seconds > WORTH_SAYING else ""


@contextlib.contextmanager
def stage(what: str) -> Iterator[None]:
    """Name a stage: by a spinner on a terminal, by a line elsewhere."""
    if not sys.stderr.isatty():
        say(what)
    with working(what):
        yield


def _report(output: Path, kind: Kind, own: answers.Prepared, about: dict[str, Any]) -> Report:
    """Return what the command prints."""
    path, notes = os.fspath(output), []
    data = {"output": path, **about}
    if kind is Kind.mixture:  # which has missions to name, even if it is of a single component
        found = own.missions or answers.missions(own)
        largest = ", ".join(f"{one.name} ({one.share:.0%})" for one in found[:SHOWN])
        notes += [_reached(about, "fit")] if about["settings"]["n_fits"] > 1 and "candidates" in about else []
        notes.append(f"{len(own.law.weights)} components, grouped into {len(found)} missions: {largest}, …")
        data |= {"components": len(own.law.weights), "missions": [asdict(one) for one in found]}
    elif "candidates" in about:
        notes.append(_reached(about, "start"))
    if reduced := about.get("in_time"):
        more = f"{reduced['instead_of']} take about --minutes {reduced['minutes']:g}"
        notes.append(f"Chosen for the time: {reduced['chosen']}; {more}")
    header = ("model", "epochs", "ended", "validation log-likelihood", "of independent items")
    scores = about["validation_log_likelihood"], about["independent_log_likelihood"]
    return Report(data, Table(header, [(path, about["epochs"], about["ended"], *scores)]), notes=notes)


def _reached(about: Mapping[str, Any], what: str) -> str:
    """Return what each start or fit reached."""
    values = ", ".join(f"{name} {value:.4g}" for name, value in about["candidates"].items())
    return f"validation log-likelihood of each {what}: {values}"


def _check_output(output: Path, inputs: Sequence[str | None], held: Held) -> None:
    """Raise if a file cannot be written, or would be lost, before any work; and if two kinds of test are asked for."""
    require(
        not (held.test and held.test_after), "--test takes random baskets, --test-after the latest; give one of them"
    )
    if held.test_after is not None and np.isnat(moment(held.test_after)):
        raise typer.BadParameter(f"--test-after takes a day such as 2026-03-01; got {held.test_after!r}")
    if output.is_dir() or (output.exists() and not output.is_file()):
        raise OSError(f"expected a regular file to save the model to; got {os.fspath(output)!r}")
    check_output(output, *OTHER_FORMATS, inputs=inputs, kind="a model")
    for written in _split_files(output) if held.test or held.test_after else ():
        check_output(written, inputs=inputs)


def _split_files(output: Path) -> tuple[Path, Path]:
    """Return the files of the training baskets and of the test baskets."""
    return output.with_suffix(".train.csv"), output.with_suffix(".test.csv")


def _set_aside(data: Orders, held: Held, seed: int, output: Path) -> tuple[Baskets, dict[str, Any]]:
    """Return the baskets to fit on, and what the model file says of others; if some are set aside, write both parts next to the model."""
    require(held.test < max(1, len(data)), f"--test must leave baskets to fit on, of {len(data):,}; got {held.test:,}")
    kept: Baskets
    test: Baskets
    if held.test_after is not None:
        kept, test = data.split_at(held.test_after)
        if not len(kept) or not len(test):
            times = (
                f"orders are from {data.times.min()} to {data.times.max()}"
                if data.times is not None and len(data)
                else "there are none"
            )
            raise typer.BadParameter(
                f"--test-after must leave orders on both sides; {times.replace('T', ' ')}, got {held.test_after!r}"
            )
    elif held.test:
        parts = data.split(0, held.test, rng=seed)
        kept, test = parts.train, parts.test
    else:
        return data, {}
    for baskets, path in zip((kept, test), _split_files(output)):
        baskets.write(path)
    return kept, {} if held.test_after is None else {"test": {"after": held.test_after, "baskets": len(test)}}


def _make_estimator(
    kind: Kind, settings: Mapping[str, object], data: Baskets, jobs: int | None, *, ids: bool
) -> BasketModel[Any, Any]:
    """Return the estimator of a kind with these settings, of which None are not given."""
    if jobs is not None:
        # Torch reads this as it is loaded. After ``torch.set_num_threads(2)`` its MKL may hang in batches of large determinants.
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(jobs)
    with stage("loading torch"):
        from ndpp.learning.fitting import ESTIMATORS, STARTS, make_estimator
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    known = ESTIMATORS[kind]().get_params()
    for name in given:
        option = ALIASES.get(name, name).replace("_", "-")
        require(name in known, f"--{option} is not an option of --model {kind.value}")
    if (families := given.get("families", "auto")) != "auto":
        given["families"] = None if families == "none" else _families(families, data, ids=ids)
    init = given.get("init", "popularity")
    require(init in STARTS, f"--init must be {' or '.join(STARTS)}; got {init!r}")
    return make_estimator(kind, **given, progress=progress())


def _families(path: str, data: Baskets, *, ids: bool) -> list[int]:
    """Return the family of each item; items that the file does not name are alone in theirs."""
    named = read_groups(Source(path).target, "family", data.n_items, None if ids else data.labels)
    numbers: dict[object, int] = {}
    return [numbers.setdefault(i if name is None else name, len(numbers)) for i, name in enumerate(named)]


def progress() -> bool | Callable[[str], None]:
    """Return how training shows how far it is: by a bar on a terminal, by lines elsewhere."""
    return True if sys.stderr.isatty() else say


def say(line: str) -> None:
    """Print a line on standard error; a reader that left does not end the training."""
    with contextlib.suppress(OSError, ValueError):
        print(printable(line), file=sys.stderr, flush=True)


@contextlib.contextmanager
def _interruptible(part: Path) -> Iterator[None]:
    """After Ctrl-C say what is saved, and how to continue or to make a model of it."""
    try:
        yield
    except BaseException as error:
        if not (is_interrupt(error) or isinstance(error, TrainingInterruptedWarning)):
            raise
        if not part.exists():
            raise Interrupted(f"nothing was learned yet; to start again: {_again()}") from None
        from ndpp.learning import average, checkpoint

        parts = part, *average.further_checkpoints(part)
        done = sum(len(checkpoint.read(one).record["history"]) for one in parts)  # a checkpoint may have been cut short
        raise Interrupted(
            f"training up to epoch {done} is saved in {os.fspath(part)!r}\n"
            f"  to continue:           {_again('--resume')}\n"
            f"  to make a model of it: {_again('--resume', '--minutes', '0')}"
        ) from None


def _forget(part: Path) -> None:
    """Remove the state of training."""
    from ndpp.learning.average import further_checkpoints

    for one in (*further_checkpoints(part), part):
        one.unlink(missing_ok=True)


def _again(*more: str) -> str:
    """Return the command line of this process with other words for --resume and --minutes, for a shell."""
    words, left = ["ndpp"], iter(ARGUMENTS.get())
    for word in left:
        if word == "--minutes" and "--minutes" in more:
            next(left, None)
        elif word != "--resume" and not (word.startswith("--minutes=") and "--minutes" in more):
            words.append(word)
    end = words.index("--") if "--" in words else len(words)
    words[end:end] = more
    return printable(subprocess.list2cmdline(words) if WINDOWS else shlex.join(words))
