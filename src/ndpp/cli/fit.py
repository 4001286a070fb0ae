"""``ndpp fit``: a model from baskets. torch is imported here, when it is needed."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ndpp._atomic import one_writer, part_path
from ndpp.baskets import Baskets
from ndpp.cli import options as o
from ndpp.cli.files import OTHERS, Source, check_output, need
from ndpp.cli.guard import Interrupted
from ndpp.cli.output import Report, emit, working
from ndpp.errors import TrainingInterruptedWarning, UnfinishedRunError
from ndpp.laws.files import save


class Family(StrEnum):
    """Which kernels are fitted."""

    ndpp = "ndpp"
    ondpp = "ondpp"
    symmetric = "symmetric"


ESTIMATORS = {Family.ndpp: "NDPP", Family.ondpp: "ONDPP", Family.symmetric: "SymmetricDPP"}
TRAINING = "Training (left out: the estimator's own default)"


def _tuning(help: str, *names: str, least: int | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=TRAINING, show_default=False, min=least)


ModelFile = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="The model file to write.", show_default=False)
]
Kind = Annotated[
    Family,
    typer.Option(
        "--model",
        metavar="NAME",
        help="ndpp: items attract and repel; ondpp: the same, easy to sample by rejection; symmetric: repel only.",
    ),
]
Rank = Annotated[
    int | None,
    typer.Option(
        "--rank",
        "-r",
        metavar="N",
        min=1,
        help="Columns of the kernel: no basket can be larger. Left out: the number of items, at most 200.",
    ),
]
Validation = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A file of baskets to judge on; left out, a tenth of BASKETS is set aside."),
]
Test = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="Set this many baskets aside at random, for ndpp evaluate: OUTPUT.test.csv, the others in OUTPUT.train.csv.",
    ),
]
Threads = Annotated[
    int | None, typer.Option("--jobs", "-j", metavar="N", min=1, help="Threads of torch; left out: its own choice.")
]
ItemFile = Annotated[str | None, typer.Option(metavar="FILE", help="A file whose line i names item i.")]
Epochs = Annotated[int | None, _tuning("Maximum number of epochs.", "--epochs", least=1)]
Patience = Annotated[int | None, _tuning("Epochs without progress before the learning rate drops.", least=1)]
LearningRate = Annotated[float | None, _tuning("Of Adam.")]
BatchSize = Annotated[int | None, _tuning("Baskets per step.", least=1)]
Noise = Annotated[float | None, _tuning("Relative noise on the rows in training; 0 switches it off.")]
Alpha = Annotated[float | None, _tuning("Weight of the symmetric part's penalty.")]
Beta = Annotated[float | None, _tuning("Weight of the skew part's penalty.")]
Gamma = Annotated[float | None, _tuning("ondpp: weight of the rejection sampler's proposals.")]


def fit(
    baskets: o.BasketFile,
    output: ModelFile,
    family: Kind = Family.ndpp,
    rank: Rank = None,
    validation: Validation = None,
    test: Test = 0,
    seed: o.Seed = 0,
    jobs: Threads = None,
    device: o.Device = "cpu",
    json: o.Json = False,
    resume: o.Resume = False,
    items: ItemFile = None,
    labels: o.AsLabels = None,
    from_: o.From = None,
    basket: o.BasketColumn = "basket",
    item: o.ItemColumn = "item",
    epochs: Epochs = None,
    patience: Patience = None,
    learning_rate: LearningRate = None,
    batch_size: BatchSize = None,
    noise: Noise = None,
    alpha: Alpha = None,
    beta: Beta = None,
    gamma: Gamma = None,
) -> None:
    """Fit a model to baskets.

    After every epoch the state of training goes to OUTPUT.ndpp-part; after Ctrl-C or a crash, the same command with --resume
    ends with the very same model. Baskets of CSV and Parquet are in long form, a row for each item of each basket.

    \b
    Examples:
      ndpp fit orders.csv --basket order_id --item product -o model.safetensors
      ndpp fit baskets.txt -o model.safetensors --rank 100 --seed 1
      ndpp fit orders.csv -o model.safetensors --test 500
      ndpp fit baskets.txt -o model.safetensors --resume
    """
    part = part_path(output)
    _check_output(output, (baskets, validation, items), test=test)
    with one_writer(output):
        _check_part(part, resume=resume)
        source = Source(baskets, from_, basket, item)
        data, judged = _read(source, validation, items, as_labels=labels)
        need(not test or test < len(data), f"--test must leave baskets to fit on, of {len(data):,}; got {test:,}")
        chosen = {
            "rank": rank, "max_epochs": epochs, "patience": patience, "learning_rate": learning_rate,
            "batch_size": batch_size, "noise": noise, "alpha": alpha, "beta": beta, "gamma": gamma,
        }  # fmt: skip
        estimator = _estimator(family, {key: value for key, value in chosen.items() if value is not None}, jobs)
        estimator.set_params(checkpoint=part, device=device, random_state=seed, progress=sys.stderr.isatty())
        train = _set_aside(data, test, seed, output)
        _train(estimator, train, judged, part, resume=resume)
        about = Provenance.of(estimator, source, train, seed)
        save(estimator.kernel_, output, metadata=asdict(about))
        part.unlink(missing_ok=True)
    emit(about.report(output), None, as_json=json)


@dataclass(frozen=True)
class Provenance:
    """How a model came about: no clock, no path, so that a resumed run writes the same file."""

    model: str
    baskets: dict[str, str | int]
    seed: int
    settings: dict[str, Any]
    epochs: int
    ended: str
    validation_log_likelihood: float

    @classmethod
    def of(cls, estimator: Any, source: Source, train: Baskets, seed: int) -> Provenance:
        """Return how a fitted estimator came about."""
        left_out = ("checkpoint", "progress", "init", "random_state")
        return cls(
            model=type(estimator).__name__,
            baskets={"file": Path(source.name).name, "number": len(train), "dropped": estimator.n_dropped_},
            seed=seed,
            settings={name: value for name, value in estimator.get_params().items() if name not in left_out},
            epochs=estimator.n_iter_,
            ended=estimator.ended_,
            validation_log_likelihood=max(record["validation"] for record in estimator.history_),
        )

    def report(self, output: Path) -> Report:
        """Return what the command prints."""
        row = {
            "model": os.fspath(output), "epochs": self.epochs, "ended": self.ended,
            "validation log-likelihood": self.validation_log_likelihood,
        }  # fmt: skip
        return Report({"output": os.fspath(output), **asdict(self)}, [row])


def _read(
    source: Source, validation: str | None, items: str | None, *, as_labels: bool | None
) -> tuple[Baskets, Baskets | None]:
    """Return the baskets to fit on, and those to judge on if a file names them."""
    with working("reading baskets"):
        data = source.read(as_labels=as_labels, items=items)
        judged = None if validation is None else _judges(source.beside(validation), data)
    if as_labels is None and items is None:
        _warn_of_codes(data)
    return data, judged


def _train(estimator: Any, train: Baskets, judged: Baskets | None, part: Path, *, resume: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingInterruptedWarning)  # said below, and how to go on
        estimator.fit(train, validation=judged, resume=resume)
    if estimator.ended_ == "interrupted":
        kept = f"training up to epoch {estimator.n_iter_} is kept in {os.fspath(part)!r}; --resume continues"
        raise Interrupted(kept if part.exists() else "no epoch was finished, so nothing was kept")


def _check_output(output: Path, inputs: Sequence[str | None], *, test: int) -> None:
    """Refuse what cannot be written, or would be lost, before any work."""
    if output.is_dir() or (output.exists() and not output.is_file()):
        raise OSError(f"a model is saved to a plain file; {os.fspath(output)!r} is something else")
    for written in (output, *(_aside(output) if test else ())):
        check_output(written, *OTHERS, inputs=inputs)


def _check_part(part: Path, *, resume: bool) -> None:
    """Refuse to overwrite the state of an earlier training, and to train where none can be written."""
    if part.exists() and not resume:
        raise UnfinishedRunError(os.fspath(part), "the training")
    if not part.exists():  # an unwritable place is found out now, not after the first epoch
        part.touch()
        part.unlink()


def _estimator(family: Family, options: Mapping[str, Any], jobs: int | None) -> Any:
    with working("loading torch"):
        from ndpp import learning

        if jobs is not None:
            import torch

            torch.set_num_threads(jobs)
    kind = getattr(learning, ESTIMATORS[family])
    known = kind().get_params()
    for name in options:
        need(name in known, f"--{name.replace('_', '-')} is not for --model {family.value}")
    return kind(**options)


def _judges(source: Source, data: Baskets) -> Baskets:
    """Return the baskets to judge on, over the items of those to fit on."""
    if data.labels is None:
        return source.read(n_items=data.n_items)
    return source.read_with(data.labels)


def _warn_of_codes(data: Baskets) -> None:
    """Say so where the whole numbers of a file hardly are positions in a catalogue: most of it would be made up."""
    n_seen = len(np.unique(data.indices))
    if data.labels is None and 2 * n_seen < data.n_items:
        warnings.warn(
            f"whole numbers are taken as ids, 0 to {data.n_items - 1:,}, of which {n_seen:,} occur; "
            "if they are product codes, say --labels, and if they are ids, --ids",
            stacklevel=1,
        )


def _aside(output: Path) -> tuple[Path, Path]:
    """Return where the baskets to fit on go, and those to test on."""
    return output.with_suffix(".train.csv"), output.with_suffix(".test.csv")


def _set_aside(data: Baskets, test: int, seed: int, output: Path) -> Baskets:
    """Return the baskets to fit on; those to test on, and these, are written beside the model."""
    if not test:
        return data
    parts = data.split(0, test, rng=seed)
    for baskets, path in zip((parts.train, parts.test), _aside(output)):
        baskets.write(path)
    return parts.train
