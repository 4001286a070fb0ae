"""How ``ndpp fit`` trains: an option for each parameter of the estimators, lines on how far it is, and what to do after Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ndpp._atomic import WINDOWS
from ndpp._show import printable
from ndpp.baskets import Baskets
from ndpp.cli.files import require
from ndpp.cli.guard import ALIASES, ARGUMENTS, Interrupted
from ndpp.cli.lists import read_groups
from ndpp.cli.output import working
from ndpp.errors import TrainingInterruptedWarning

Kind = StrEnum("Kind", "mixture ndpp ondpp symmetric")
"""Kinds of models."""
ESTIMATORS = {"mixture": "MixtureNDPP", "ndpp": "NDPP", "ondpp": "ONDPP", "symmetric": "SymmetricDPP"}
PANEL = "Training (default: the estimator's own)"


def setting(help: str, least: float | None = None, metavar: str = "N") -> Any:
    """Declare an option for a parameter of the estimators."""
    return typer.Option(metavar=metavar, min=least, help=help, rich_help_panel=PANEL, show_default=False)


FRACTION = "Share of the baskets that decides when training ends, without --validation."
GROUPS = "mixture: auto, none, or a table with the columns item and family."
INIT = "kernels: where training starts: popularity or literature."
SKEW = "ndpp, ondpp: share of the columns by which items attract each other."
DROP = "kernels: what to do about baskets larger than the rank."


@dataclass(frozen=True)
class Settings:
    """Parameters of the estimators as options, None where the estimator chooses."""

    max_epochs: Annotated[int | None, setting("Maximum number of epochs.", 1)] = None
    patience: Annotated[int | None, setting("Epochs without progress before the learning rate drops.", 1)] = None
    learning_rate: Annotated[float | None, setting("Learning rate of Adam.")] = None
    batch_size: Annotated[int | None, setting("Baskets per step.", 1)] = None
    validation_fraction: Annotated[float | None, setting(FRACTION)] = None
    dtype: Annotated[str | None, setting("Type of the parameters: float32 or float64.", metavar="NAME")] = None
    n_factors: Annotated[int | None, setting("mixture: numbers that describe an item or a mission.", 1)] = None
    penalty: Annotated[float | None, setting("mixture: least penalty on what is popular in single missions.")] = None
    tie_penalty: Annotated[float | None, setting("mixture: least penalty on ties.")] = None
    families: Annotated[str | None, setting(GROUPS, metavar="auto|none|FILE")] = None
    skew_share: Annotated[float | None, setting(SKEW)] = None
    noise: Annotated[float | None, setting("kernels: relative noise on the rows in training; 0 for none.")] = None
    alpha: Annotated[float | None, setting("kernels: weight of the penalty on the symmetric part.")] = None
    beta: Annotated[float | None, setting("ndpp, ondpp: weight of the penalty on the skew part.")] = None
    gamma: Annotated[float | None, setting("ondpp: weight of the rejection sampler's proposals.")] = None
    init: Annotated[str | None, setting(INIT, metavar="NAME")] = None
    oversize: Annotated[str | None, setting(DROP, metavar="drop|raise")] = None


def make_estimator(
    kind: Kind,
    settings: Mapping[str, Any],
    data: Baskets,
    jobs: int | None,
    *,
    as_labels: bool | None,
    **common: Any,
) -> Any:
    """Return the estimator of a kind with these settings, of which None are not given."""
    with working("loading torch"):
        from ndpp import learning

        if jobs is not None:
            import torch

            torch.set_num_threads(jobs)
    estimator = getattr(learning, ESTIMATORS[kind])
    given, known = {name: value for name, value in settings.items() if value is not None}, estimator().get_params()
    for name in given:
        option = ALIASES.get(name, name).replace("_", "-")
        require(name in known, f"--{option} is not an option of --model {kind.value}")
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
