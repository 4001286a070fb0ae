"""Which device draws: the CPU, or a CUDA device by the engine that a sampler names."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ndpp._lazy import load
from ndpp.errors import InvalidInputError, MissingExtraError
from ndpp.samplers.base import Sampler

if TYPE_CHECKING:
    import torch

AnySampler = TypeVar("AnySampler", bound=Sampler)


def with_engine(sampler: AnySampler, device: str | None, engine: str) -> AnySampler:
    """Return a prepared sampler, a dataclass, that draws on ``device`` by the engine of this name ("module:class").

    None and "cpu" mean the CPU. If torch finds no CUDA device at all, a warning says so and the CPU draws; naming a device that does not
    exist next to others is an error. torch and the engine's module are imported only if there is a device.
    """
    place = _cuda_device(device)
    if place is None:
        return sampler
    changes: dict[str, Any] = {"engine": load(engine).prepare(sampler, place)}
    return replace(sampler, **changes)  # type: ignore[type-var]


def _cuda_device(device: str | None) -> torch.device | None:
    if device is None or device == "cpu":
        return None
    name, _, number = str(device).partition(":")
    if name != "cuda" or not (number.isdigit() or (number == "" and ":" not in str(device))):
        raise InvalidInputError(f"device must be None, 'cpu', 'cuda' or 'cuda:1'; got {device!r}")
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch", "gpu", f"device={device!r}") from None
    if not torch.cuda.is_available():
        warnings.warn(
            f"device={device!r} was asked for, but torch {torch.__version__} finds no CUDA device: drawing on the CPU. "
            "The law is the same; the draws are those of device='cpu'.",
            RuntimeWarning,
            stacklevel=4,
        )
        return None
    if number and int(number) >= torch.cuda.device_count():
        raise InvalidInputError(
            f"device={device!r} is not there: CUDA devices are 0 to {torch.cuda.device_count() - 1}"
        )
    return torch.device(device)
