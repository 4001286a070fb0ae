"""``ndpp fit``: a model from baskets. Only this command imports torch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ndpp import answers
from ndpp._atomic import check_writable, one_writer, part_path
from ndpp._show import Table
from ndpp.baskets import Baskets
from ndpp.cli import options as o
from ndpp.cli.files import OTHER_FORMATS, Law, Source, check_output, require
from ndpp.cli.output import Report, emit, working
from ndpp.cli.training import Kind, Settings, make_estimator, train
from ndpp.errors import UnfinishedRunError
from ndpp.laws.files import save
from ndpp.laws.mixture import Mixture

KINDS = (
    "mixture: missions with ties between items; a single kernel is faster to fit and less accurate: ndpp, where items attract and "
    "repel, ondpp, cheap to sample by rejection, or symmetric, where items only repel."
)
RANK = "Columns of the ties, or of a kernel, where it is also the largest size of a basket; default: by the number of items."
MISSIONS = "Components of a mixture; default: by the data."
SHOWN = 3
"""Missions that are named at the end."""
VALIDATION = "Baskets that decide when training ends; default: a tenth of BASKETS."
TEST = "Set aside this many random baskets for ndpp evaluate: OUTPUT.test.csv; the others go to OUTPUT.train.csv."


def fit(
    baskets: o.BasketFile,
    output: Annotated[Path, o.file("The model file to write.", "--output", "-o", show_default=False)],
    kind: Annotated[Kind, typer.Option("--model", metavar="NAME", help=KINDS)] = Kind.mixture,
    rank: Annotated[int | None, o.number(RANK, "--rank", "-r", least=1)] = None,
    missions: Annotated[int | None, o.number(MISSIONS, "--missions", "--n-missions", least=1)] = None,
    validation: Annotated[str | None, o.file(VALIDATION)] = None,
    test: Annotated[int, o.number(TEST)] = 0,
    seed: o.Seed = 0,
    jobs: Annotated[int | None, o.number("Threads of torch; default: its own choice.", "--jobs", "-j", least=1)] = None,
    device: o.Device = "cpu",
    json: o.Json = False,
    resume: o.Resume = False,
    items: Annotated[str | None, o.file("A file whose line i names item i.")] = None,
    labels: o.AsLabels = None,
    *,
    reading: o.Reading,
    settings: Settings,
    epochs: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
) -> None:
    """Fit a model to baskets: by default a mixture of shopping missions with ties between items.

    Standard error shows how long training takes at most, and a line per epoch or, on a terminal, a bar. OUTPUT.ndpp-part holds the
    state of training after every epoch: after Ctrl-C or a crash, the same command with --resume continues and produces the same model,
    and with --resume --max-epochs N, N being the epochs done, makes a model of what is there. CSV and Parquet files are in long form,
    with one row for each item of each basket.

    \b
    Examples:
      ndpp fit orders.csv --basket order_id --item product -o model.safetensors
      ndpp fit baskets.txt -o model.safetensors --missions 40 --seed 1
      ndpp fit baskets.txt -o kernel.safetensors --model ndpp --rank 100
    """
    part = part_path(output)
    _check_output(output, (baskets, validation, items, settings.families), test=test)
    with one_writer(output):
        _check_part(part, resume=resume)
        source = Source(baskets, reading)
        data, held_out = _read(source, validation, items, as_labels=labels)
        chosen = {**asdict(settings), "rank": rank, "n_missions": missions}
        if epochs is not None:
            warnings.warn("--epochs is now called --max-epochs", FutureWarning, stacklevel=1)
            chosen["max_epochs"] = settings.max_epochs or epochs
        common: dict[str, Any] = {"checkpoint": part, "device": device, "random_state": seed}
        estimator = make_estimator(kind, chosen, data, jobs, as_labels=labels, **common)
        kept = _set_aside(data, test, seed, output)
        train(estimator, kept, held_out, part, resume=resume)
        about = Provenance.of(estimator, source, kept, seed)
        save(estimator.law_, output, metadata=asdict(about))
        part.unlink(missing_ok=True)
    emit(about.report(output, estimator.law_), None, as_json=json)


@dataclass(frozen=True)
class Provenance:
    """How a model was made. It holds no time and no path, so that a resumed run writes the same file."""

    model: str
    baskets: dict[str, str | int]
    seed: int
    settings: dict[str, Any]
    epochs: int
    ended: str
    validation_log_likelihood: float
    independent_log_likelihood: float

    @classmethod
    def of(cls, estimator: Any, source: Source, train: Baskets, seed: int) -> Provenance:
        """Return how a fitted estimator was made."""
        omitted = ("checkpoint", "progress", "random_state")
        return cls(
            model=type(estimator).__name__,
            baskets={"file": Path(source.name).name, "number": len(train), "dropped": estimator.n_dropped_},
            seed=seed,
            settings={
                name: repr(value) if name == "init" and value is not None else value
                for name, value in estimator.get_params().items()
                if name not in omitted
            },
            epochs=estimator.n_iter_,
            ended=estimator.ended_,
            validation_log_likelihood=max(epoch["validation"] for epoch in estimator.history_),
            independent_log_likelihood=estimator.baseline_score_,
        )

    def report(self, output: Path, law: Law) -> Report:
        """Return what the command prints."""
        path, notes = os.fspath(output), []
        data: dict[str, Any] = {"output": path, **asdict(self)}
        if isinstance(law, Mixture):  # only a mixture has missions to name, even one of a single component
            found = answers.missions(law)
            largest = ", ".join(f"{one.name} ({one.share:.0%})" for one in found[:SHOWN])
            notes.append(f"{len(law.weights)} components, in {len(found)} missions for reading: {largest}, …")
            data |= {"components": len(law.weights), "missions": [asdict(one) for one in found]}
        header = ("model", "epochs", "ended", "validation log-likelihood", "of independent items")
        scores = self.validation_log_likelihood, self.independent_log_likelihood
        return Report(data, Table(header, [(path, self.epochs, self.ended, *scores)]), notes=notes)


def _check_output(output: Path, inputs: Sequence[str | None], *, test: int) -> None:
    """Raise if a file cannot be written, or would be lost, before any work."""
    if output.is_dir() or (output.exists() and not output.is_file()):
        raise OSError(f"expected a regular file to save the model to; got {os.fspath(output)!r}")
    for written in (output, *(_split_files(output) if test else ())):
        check_output(written, *OTHER_FORMATS, inputs=inputs)


def _check_part(part: Path, *, resume: bool) -> None:
    """Raise if the state of an earlier training would be overwritten, or if none can be written."""
    if part.exists() and not resume:
        raise UnfinishedRunError(os.fspath(part), "the training")
    if not part.exists():  # fail now if it cannot be written, not after the first epoch
        check_writable(part)


def _read(
    source: Source, validation: str | None, items: str | None, *, as_labels: bool | None
) -> tuple[Baskets, Baskets | None]:
    """Return the baskets to fit on, and those of --validation over the same items."""
    with working("reading baskets"):
        data, held_out = source.read(as_labels=as_labels, items=items), None
        if validation is not None:
            other = source.sibling(validation)
            held_out = other.read(n_items=data.n_items) if data.labels is None else other.read_with(data.labels)
    return data, held_out


def _split_files(output: Path) -> tuple[Path, Path]:
    """Return the files of the training baskets and of the test baskets."""
    return output.with_suffix(".train.csv"), output.with_suffix(".test.csv")


def _set_aside(data: Baskets, test: int, seed: int, output: Path) -> Baskets:
    """Return the baskets to fit on; if some are set aside, write both parts next to the model."""
    require(test < max(1, len(data)), f"--test must leave baskets to fit on, of {len(data):,}; got {test:,}")
    if not test:
        return data
    parts = data.split(0, test, rng=seed)
    for baskets, path in zip((parts.train, parts.test), _split_files(output)):
        baskets.write(path)
    return parts.train
