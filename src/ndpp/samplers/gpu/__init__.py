"""The engine of :class:`Exact` on a CUDA device: many samples side by side, in torch.

torch is imported here, when an engine is first asked for, and nowhere else below learning. The rules are those of the CPU: the same
ladder of circles, the same plan of their nodes, the same monitors. What differs is the form of the state (``_group``). Sample i depends
on the seed and on i alone; its stream is not that of the CPU, so the two engines agree in law and not draw by draw.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

from ndpp.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    from ndpp.samplers.exact import Exact


def with_engine(sampler: Exact, device: str | None) -> Exact:
    """Return a prepared sampler that draws on ``device``.

    None and "cpu" are the CPU. Where torch finds no CUDA device at all, a warning says so and the CPU it is; a device that is not
    there beside others is an error.
    """
    place = _place(device)
    if place is None:
        return sampler
    from ndpp.samplers.gpu.exact import ExactEngine

    return dataclasses.replace(sampler, engine=ExactEngine.prepare(sampler, place))


def _place(device: str | None) -> Any:
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
