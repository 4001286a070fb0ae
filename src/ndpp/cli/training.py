"""How ``ndpp fit`` trains: an option for each parameter of the estimators, lines on how far it is, and what to do after Ctrl-C."""

from __future__ import annotations

import contextlib
import inspect
import os
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from ndpp._atomic import WINDOWS
from ndpp._show import printable
from ndpp.baskets import Baskets
from ndpp.cli.files import require
from ndpp.cli.guard import ALIASES, ARGUMENTS, Interrupted
from ndpp.cli.lists import read_groups
from ndpp.cli.output import working
from ndpp.errors import TrainingInterruptedWarning


class Family(StrEnum):
    """Families of models."""

    mixture = "mixture"
    ndpp = "ndpp"
    ondpp = "ondpp"
    symmetric = "symmetric"


ESTIMATORS = {
    Family.mixture: "MixtureNDPP",
    Family.ndpp: "NDPP",
    Family.ondpp: "ONDPP",
    Family.symmetric: "SymmetricDPP",
}
PANEL = "Training (default: the estimator's own)"


class Setting(NamedTuple):
    """A parameter of the estimators as an option of the command."""

    kind: Any
    help: str
    least: float | None = None
    metavar: str = "N"


SETTINGS = {
    "max_epochs": Setting(int, "Maximum number of epochs.", 1),
    "patience": Setting(int, "Epochs without progress before the learning rate drops.", 1),
    "learning_rate": Setting(float, "Learning rate of Adam."),
    "batch_size": Setting(int, "Baskets per step.", 1),
    "validation_fraction": Setting(
        float, "Share of the baskets that decides when training ends, without --validation."
    ),
    "dtype": Setting(str, "Type of the parameters: float32 or float64.", metavar="NAME"),
    "n_factors": Setting(int, "mixture: numbers that describe an item or a mission.", 1),
    "penalty": Setting(float, "mixture: least penalty on what is popular in single missions."),
    "tie_penalty": Setting(float, "mixture: least penalty on ties."),
    "families": Setting(
        str, "mixture: auto, none, or a table with the columns item and family.", metavar="auto|none|FILE"
    ),
    "skew_share": Setting(float, "ndpp, ondpp: share of the columns by which items attract each other."),
    "noise": Setting(float, "kernels: relative noise on the rows in training; 0 for none."),
    "alpha": Setting(float, "kernels: weight of the penalty on the symmetric part."),
    "beta": Setting(float, "ndpp, ondpp: weight of the penalty on the skew part."),
    "gamma": Setting(float, "ondpp: weight of the rejection sampler's proposals."),
    "init": Setting(str, "kernels: where training starts: popularity or literature.", metavar="NAME"),
    "oversize": Setting(str, "kernels: what to do about baskets larger than the rank.", metavar="drop|raise"),
}
"""By the name in Python; the name of the option has hyphens."""


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command the options of :data:`SETTINGS`, which it receives as its ``**settings``."""
    hints = {name: hint for name, hint in get_type_hints(command, include_extras=True).items() if name != "settings"}
    own = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=hint, default=given.default)
           for name, hint in hints.items() if (given := inspect.signature(command).parameters.get(name))]  # fmt: skip
    for name, (kind, help, least, metavar) in SETTINGS.items():
        limit: dict[str, Any] = {} if least is None else {"min": least}
        option = typer.Option(metavar=metavar, help=help, rich_help_panel=PANEL, show_default=False, **limit)
        hints[name] = Annotated[kind | None, option]
        own.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[name], default=None))
    command.__annotations__ = hints
    command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return command


def make_estimator(
    family: Family,
    settings: Mapping[str, Any],
    data: Baskets,
    jobs: int | None,
    *,
    as_labels: bool | None,
    **common: Any,
) -> Any:
    """Return the estimator of a family with these settings, of which None are not given."""
    with working("loading torch"):
        from ndpp import learning

        if jobs is not None:
            import torch

            torch.set_num_threads(jobs)
    estimator = getattr(learning, ESTIMATORS[family])
    given, known = {name: value for name, value in settings.items() if value is not None}, estimator().get_params()
    for name in given:
        option = ALIASES.get(name, name).replace("_", "-")
        require(name in known, f"--{option} is not an option of --model {family.value}")
    if (families := given.get("families", "auto")) != "auto":
        given["families"] = None if families == "none" else _families(families, data, ids=as_labels is False)
    if "init" in given:
        starts = {"popularity": learning.PopularityStart, "literature": learning.LiteratureStart}
        require(given["init"] in starts, f"--init must be popularity or literature; got {given['init']!r}")
        given["init"] = starts[given["init"]]()
    return estimator(**given, **common, progress=True if sys.stderr.isatty() else _say)


def _families(path: str, data: Baskets, *, ids: bool) -> list[int]:
    """Return the family of each item; items that the file does not name are alone in theirs."""
    names, family = read_groups(path, "family", data, ids=ids, encoding=None)
    return [int(g) if g >= 0 else len(names) + i for i, g in enumerate(family)]


def _say(line: str) -> None:
    """Print a line on standard error; a reader that left does not end the training."""
    with contextlib.suppress(OSError, ValueError):
        print(printable(line), file=sys.stderr, flush=True)


def train(estimator: Any, data: Baskets, validation: Baskets | None, part: Path, *, resume: bool) -> None:
    """Fit the estimator; after Ctrl-C say what was saved, and how to continue or to make a model of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingInterruptedWarning)  # reported below
            estimator.fit(data, validation=validation, resume=resume)
        if estimator.ended_ != "interrupted":
            return
    except KeyboardInterrupt:
        pass
    if not part.exists():
        raise Interrupted("no epoch was finished, so nothing was saved")
    from ndpp.learning import checkpoint

    done = len(checkpoint.read(part).record["history"])  # a checkpoint may have been cut short
    raise Interrupted(
        f"training up to epoch {done} is saved in {os.fspath(part)!r}\n"
        f"  to continue:           {_again('--resume')}\n"
        f"  to make a model of it: {_again('--resume', '--max-epochs', str(done))}"
    )


def _again(*more: str) -> str:
    """Return the command line of this process with other words for --resume and --max-epochs, for a shell."""
    words, left = ["ndpp"], iter(ARGUMENTS.get())
    for word in left:
        if word in ("--max-epochs", "--epochs") and "--max-epochs" in more:
            next(left, None)
        elif word != "--resume" and not (word.startswith(("--max-epochs=", "--epochs=")) and "--max-epochs" in more):
            words.append(word)
    end = words.index("--") if "--" in words else len(words)
    words[end:end] = more
    return printable(subprocess.list2cmdline(words) if WINDOWS else shlex.join(words))
