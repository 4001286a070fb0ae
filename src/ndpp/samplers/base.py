"""The interface of all samplers: ``prepare`` computes what depends on the kernel alone, ``sample`` draws.

Sample i of a call depends on the seed and on i alone. Each sample has its own stream, a Philox generator whose key comes from the
seed and whose counter comes from i (Salmon et al., SC 2011), so batches, threads and machines cannot change it.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ndpp._compiled import interruptible
from ndpp._progress import counted
from ndpp._show import SHOWN_ROWS as SHOWN
from ndpp._show import html_table, to_frame
from ndpp._stop import look
from ndpp._types import AnyArray, IntArray, Jobs, KeyArray, RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import BudgetExceededError, InvalidInputError, PartialResultError, needing
from ndpp.laws.catalogue import Catalogue
from ndpp.samplers._dispatch import dispatch

if TYPE_CHECKING:
    import torch

BATCH, STREAM_BATCH = 64, 16
"""Maximum number of samples per batch of a worker, in ``sample`` and in ``stream``. No draw depends on them."""


MAX_EMPTY = 10**5
"""Maximum number of empty sets that are drawn for one sample that must not be empty."""


class Draw(NamedTuple):
    """One set, as rows of the kernel's support, and its counters and monitors."""

    rows: IntArray
    info: Mapping[str, float]


class Monitor(StrEnum):
    """Quantities in ``info`` that a draw monitors rather than counts: their worst value is informative, their sum is not."""

    FRACTION = "fraction"
    TRACE_ERROR = "trace_error"

    def worst(self, values: AnyArray) -> float:
        """Return the smallest fraction, or the largest error."""
        return float(np.min(values) if self is Monitor.FRACTION else np.max(values))


@dataclass(frozen=True, repr=False)
class Draws:
    """Many sets. ``info`` has one array per counter (proposals, rejections, steps, seconds, …) and monitor, with one entry per draw."""

    baskets: Baskets
    info: Mapping[str, AnyArray]

    def __len__(self) -> int:
        return len(self.baskets)

    def __repr__(self) -> str:
        about = repr(self.baskets).removeprefix("<Baskets: ").removesuffix(">")
        return f"<Draws: {about}; {', '.join(self.info) or 'no counters'}>"

    def _repr_html_(self) -> str:
        columns = Draws(self.baskets[:SHOWN], {name: values[:SHOWN] for name, values in self.info.items()})._columns()
        names = [", ".join(map(str, items)) for items in columns.pop("items")]
        lines = list(zip(names, *columns.values()))
        return html_table(repr(self).strip("<>"), ["items", *columns], lines, n_lines=len(self))

    def _columns(self) -> dict[str, list[Any]]:
        labels = self.baskets.labels
        sets = [items if labels is None else [labels[i] for i in items] for items in self.baskets.to_lists()]
        return {"items": sets, **{str(name): np.asarray(values).tolist() for name, values in self.info.items()}}

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of pandas, polars or pyarrow with a row per draw: its items, and its counters and monitors."""
        return to_frame(self._columns(), backend)

    @property
    def totals(self) -> dict[str, float]:
        """The sum of each counter over the draws; monitors are excluded."""
        return {name: float(np.sum(values)) for name, values in self.info.items() if name not in tuple(Monitor)}

    @property
    def worst(self) -> dict[Monitor, float]:
        """The worst value of each :class:`Monitor` over the draws."""
        return {name: name.worst(self.info[name]) for name in Monitor if len(self.info.get(name, ()))}


class Engine(Protocol):
    """Draws the sets of one prepared sampler on a device, many at once."""

    def draws(self, key: KeyArray, first: int, n_samples: int) -> Iterator[Draws]:
        """Yield the samples first, first + 1, … in order, some at a time; ``key`` is that of the seed."""


def stream_key(rng: RngLike) -> KeyArray:
    """Return the 128-bit key of a family of streams. A ``Generator`` advances by one draw, so that the next call differs."""
    return np.random.default_rng(rng).integers(0, 2**64, size=2, dtype=np.uint64)


def stream(key: KeyArray, index: int) -> np.random.Generator:
    """Return the stream of sample ``index``."""
    return np.random.Generator(np.random.Philox(key=key, counter=np.array([0, 0, 0, index], np.uint64)))


def streams(key: KeyArray, indices: Iterable[int]) -> Iterator[np.random.Generator]:
    """Yield the streams of these samples, one at a time: one generator that moves on, which is much cheaper than a new one."""
    bits = np.random.Philox(key=key)
    rng, state = np.random.Generator(bits), bits.state
    for index in indices:
        state["state"]["counter"][3] = index
        bits.state = state
        yield rng


class Sampler(ABC):
    """Base class. A sampler implements the draw of one set; this class draws many."""

    kernel: Any
    engine: Engine | None = None
    """Draws on a GPU (``ndpp.samplers.gpu``); without one, ``Workers`` do."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted rows of the kernel's support."""

    def draw_allowed(self, rng: np.random.Generator) -> Draw:
        """Draw one set, again while it is empty if the distribution leaves out the empty set."""
        proposals = 0.0
        for _ in range(MAX_EMPTY):
            look()
            draw = self.draw(rng)
            if len(draw.rows) or not self.kernel.nonempty:
                more = {name: draw.info[name] + proposals for name in ("proposals", "rejections") if name in draw.info}
                return Draw(draw.rows, {**draw.info, **more}) if proposals else draw
            proposals += draw.info.get("proposals", 0)
        raise BudgetExceededError(
            f"{MAX_EMPTY} sets were drawn, all of them empty, and the empty set is left out: items are too rare",
            count=MAX_EMPTY,
        )

    def draw_batch(self, key: KeyArray, indices: Sequence[int]) -> list[Draw]:
        """Draw the sets with these indices. Samplers that process many sets at once override this."""
        draws: list[Draw] = []
        for rng in streams(key, indices):
            look()
            began = time.perf_counter()
            try:
                draw = self.draw_allowed(rng)
            except PartialResultError as error:
                error.partial = draws
                raise
            draws.append(Draw(draw.rows, {**draw.info, "seconds": time.perf_counter() - began}))
        return draws

    def sample(
        self,
        n_samples: int = 1,
        *,
        rng: RngLike = None,
        n_jobs: Jobs = None,
        progress: bool | str = False,
        first: int = 0,
    ) -> Draws:
        """Draw ``n_samples`` sets.

        Parameters
        ----------
        n_samples : int
            Number of sets.
        rng : anything ``numpy.random.default_rng`` takes
            The seed. Sample i depends on it and on i alone.
        n_jobs : int or distributed.Client, optional
            Number of joblib workers (threads, unless a ``joblib.parallel_config`` says otherwise), or a dask cluster. Each worker uses one
            BLAS thread. If a worker dies, its batch is drawn again.
        progress : bool or str
            Show a progress bar; a string is its title.
        first : int
            Index of the first sample, to continue an earlier call with the same seed.

        Returns
        -------
        Draws
            ``.baskets``, and an array for each counter in ``.info``.
        """
        engine, done = self.engine or Workers(self, n_jobs, BATCH), list[Draws]()
        parts = engine.draws(stream_key(rng), *_checked(first, n_samples))
        try:
            done.extend(counted(parts, n_samples, progress, "sampling"))
        except PartialResultError as error:
            error.partial = self._whole([*done, error.partial] if error.partial else done)
            raise
        return self._whole(done)

    def stream(
        self, n_samples: int = 1, *, rng: RngLike = None, n_jobs: Jobs = None, first: int = 0
    ) -> Iterator[Draws]:
        """Yield the draws of :meth:`sample` in small batches as they arrive, so that they can be saved before the end.

        Examples
        --------
        >>> import numpy as np, ndpp
        >>> sampler = ndpp.samplers.Exact.prepare(ndpp.LowRankKernel(np.eye(4), np.eye(4)))
        >>> parts = [draws.baskets.to_lists() for draws in sampler.stream(100, rng=0)]
        >>> sum(parts, []) == sampler.sample(100, rng=0).baskets.to_lists()
        True
        """
        engine = self.engine or Workers(self, n_jobs, STREAM_BATCH)
        yield from engine.draws(stream_key(rng), *_checked(first, n_samples))

    @property
    def catalogue(self) -> Catalogue:
        """The items that are drawn, and their labels."""
        found: Catalogue = self.kernel.catalogue
        return found

    def items_of(self, rows: IntArray) -> IntArray:
        """Return the items of the catalogue of a draw."""
        return np.asarray(self.kernel.catalogue_ids(rows))

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Draw one set, as items of the catalogue: what a mixture asks of the samplers of its components."""
        return self.items_of(self.draw(rng).rows)

    def _whole(self, parts: Sequence[Draws]) -> Draws:
        """Return all parts as one."""
        return joined(parts) if parts else self._collect([])

    def _run(self, key: KeyArray, batches: Sequence[range], n_jobs: Jobs) -> Iterator[list[Draw]]:
        return dispatch(partial(_draw_batch, key), self, batches, n_jobs)

    def _collect(self, draws: Sequence[Draw]) -> Draws:
        sets = [np.sort(self.items_of(draw.rows)) for draw in draws]
        names = dict.fromkeys(name for draw in draws for name in draw.info)
        info = {str(name): np.array([draw.info.get(name, 0) for draw in draws]) for name in names}
        indptr, nothing = np.cumsum([0, *map(len, sets)]), np.empty(0, np.int64)
        # Rows are distinct and the kernel has checked its labels: there is no need to check them again for every batch.
        indices = np.concatenate([nothing, *sets]).astype(np.int64, copy=False)
        return Draws(Baskets._trusted(indptr, indices, self.catalogue.n_items, self.catalogue.labels), info)


def joined(parts: Sequence[Draws]) -> Draws:
    """Return the draws of all parts, in order."""
    ends = np.cumsum([len(part.baskets.indices) for part in parts])
    indptr = [part.baskets.indptr[1:] + end - len(part.baskets.indices) for part, end in zip(parts, ends)]
    one = parts[0].baskets
    indices = np.concatenate([part.baskets.indices for part in parts])
    baskets = Baskets._trusted(np.concatenate([[0], *indptr]), indices, one.n_items, one.labels)
    names = dict.fromkeys(name for part in parts for name in part.info)
    nothing = [np.zeros(len(part), np.int64) for part in parts]
    info = {n: np.concatenate([part.info.get(n, zero) for part, zero in zip(parts, nothing)]) for n in names}
    return Draws(baskets, info)


def _checked(first: int, n_samples: int) -> tuple[int, int]:
    n_samples = check_count(n_samples, "n_samples", most=2**63)
    return check_count(first, "first", most=2**64 - n_samples), n_samples  # samples are numbered by 64 bits


class Workers(NamedTuple):
    """The engine of the CPU: workers draw batches of at most ``at_once`` samples each."""

    sampler: Sampler
    n_jobs: Jobs
    at_once: int

    def draws(self, key: KeyArray, first: int, n_samples: int) -> Iterator[Draws]:
        """Yield the samples first, first + 1, … in order."""
        step = min(self.at_once, -(-n_samples // 16)) or 1  # at least a dozen batches, so that workers finish together
        batches = [range(i, min(i + step, first + n_samples)) for i in range(first, first + n_samples, step)]
        try:
            yield from map(self.sampler._collect, self.sampler._run(key, batches, self.n_jobs))
        except PartialResultError as error:
            error.partial = self.sampler._collect(error.partial) if error.partial else None
            raise


def _draw_batch(key: KeyArray, sampler: Sampler, indices: range) -> list[Draw]:
    with interruptible():
        return sampler.draw_batch(key, indices)


# -- the device that draws: the CPU, or a CUDA device through an engine of ndpp.samplers.gpu ---------------------------------

AnySampler = TypeVar("AnySampler", bound=Sampler)


class Engines:
    """What prepares the engine of a sampler on a device; ``ndpp/samplers/__init__.py`` connects it."""

    prepare: Callable[[Sampler, torch.device], Engine | None]


def with_engine(sampler: AnySampler, device: str | None) -> AnySampler:
    """Return a prepared sampler (a dataclass) that draws on ``device`` with its engine.

    None and "cpu" mean the CPU. If torch finds no CUDA device at all, the sampler warns and draws on the CPU; a device number that does not
    exist is an error. torch and the engines are imported only if there is a device.
    """
    found = cuda_device(device)
    if found is None:
        return sampler
    changes: dict[str, Any] = {"engine": Engines.prepare(sampler, found)}
    return replace(sampler, **changes)  # type: ignore[type-var]


def cuda_device(device: str | None) -> torch.device | None:
    """Return the CUDA device of this name; None for the CPU, and, with a warning, if torch finds no CUDA device."""
    if device is None or device == "cpu":
        return None
    name, _, number = str(device).partition(":")
    if name != "cuda" or not (number.isdigit() or (number == "" and ":" not in str(device))):
        raise InvalidInputError(f"must be None, 'cpu', 'cuda' or 'cuda:1'; got {device!r}", argument="device")
    with needing("torch", "gpu", f"Drawing on {device!r}"):
        import torch
    if not torch.cuda.is_available():
        warnings.warn(
            f"the device {device!r} is not available: torch {torch.__version__} finds no CUDA device. Drawing on the CPU "
            "instead: the same distribution, and the draws of the device 'cpu'.",
            RuntimeWarning,
            stacklevel=4,
        )
        return None
    if number and int(number) >= torch.cuda.device_count():
        most = torch.cuda.device_count() - 1
        raise InvalidInputError(f"must be a CUDA device from 0 to {most}; got {device!r}", argument="device")
    return torch.device(device)
