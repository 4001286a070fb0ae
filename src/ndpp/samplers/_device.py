"""The device that draws: the CPU, or a CUDA device through an engine of :mod:`ndpp.samplers.gpu`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ndpp.errors import InvalidInputError, needing
from ndpp.samplers.base import Engine, Sampler

if TYPE_CHECKING:
    import torch

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
